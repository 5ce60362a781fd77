//! Small numbers of resources that stay. A resource has a UUID, which no person remembers; beside it stands a
//! number, which counts from 1 within the resource's type and parent. Pure: whoever calls says what time it is.
//!
//! ```text
//!   reported ── assign ──▶ valid ── purge, start, stop ──▶ invalid ── remove_outdated ──▶ gone
//!               adopt        ▲                                │
//!                            └──── assign, adopt: the same ───┘
//! ```
//!
//! * [`Numbers`]: the entries, the last number of each group, and every way in which they change. Each way
//!   tells its [`Change`]s, so that a rim persists exactly these, and its counts, for the log.
//! * [`Numbers::settle`]: all of that at once, from a list of all resources that there are.
//! * [`Told`], [`Numbers::follow`]: a copy of what another assigner tells.
//! * [`Kind`], [`Key`], [`Group`], [`Name`]: what is numbered, within what, and how an entry is called.
//! * [`Policy`]: whether a type counts within each parent or over all of them.
//! * [`uuid_of`]: a UUID for what has a name and no UUID.
//!
//! **Invariant:** no two entries of a group have one number. A last is at least every number that was given
//! while that last exists.

mod name;
mod numbers;
mod outcome;
mod settle;
mod told;
mod uuids;

pub use name::{Group, KIND_BYTES_MAX, Key, Kind, Name, Policy};
pub use numbers::Numbers;
pub use outcome::{Adopted, Assigned, Change, Entry, NumberError, Swept};
pub use settle::{Settled, collapse};
pub use told::{Followed, Told};
pub use uuid::Uuid;
pub use uuids::{NAMESPACE, uuid_of};
