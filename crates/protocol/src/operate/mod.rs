//! Operations on documents, as a manager carries them out.
//!
//! ```text
//!   client ─▶ entry manager ─▶ owner of the slot: work, validate, one entry of the log ─▶ answer
//!                                │      ▲
//!                 other owners ◀─┘ Sync └── documents that may be some seconds old
//! ```
//! * [`registry`]: classes, operations and the check of who asks. `write`, `read`, `administer`:
//!   the operations; `form`: how their callers write items.
//! * `owner`: an operation at the owner of its slot. `pending`: what waits there. `here`: which
//!   documents it sees, and [`slot_of`] them.
//! * `copies`: updates of copies; pages, ends and imports of whole namespaces.
//! * `follow`: how every manager knows the namespaces.

mod administer;
mod copies;
mod desks;
mod follow;
mod form;
mod here;
mod owner;
mod pending;
mod read;
pub mod registry;
mod write;

pub(crate) use desks::Desks;
pub use desks::DocumentsConfig;
pub(crate) use follow::Following;
pub use here::{SPACES_DOCID, slot_of, slot_of_spaces};
pub(crate) use pending::{Errand, Inner, Runs};
pub use registry::AdminKey;
