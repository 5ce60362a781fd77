//! Rust client of Rota.
//!
//! ```text
//!  Client ── Call (open, close, get, list) ──▶ attempt ──▶ Connections ──▶ any manager
//!    │            ▲                              │              or, with routing, the owner
//!    │            └── pause by advice ◀── retry ◀┘ refusal, break, silence
//!    └── Watch ── resumes from the last position after a break
//! ```
//!
//! * [`Client`]: several endpoints, one deadline per call. Any manager takes any call, so a break
//!   or an unknown outcome is repeated at the next endpoint: opens and closes always carry a
//!   request id, which makes that safe.
//! * [`Watch`]: changes at least once and without gaps, over breaks.
//! * [`Options::route_by_view`]: go to the owner directly and save the forward hop.
//! * [`CallError`]: the typed refusal with its advice, or what broke.

mod attempt;
mod call;
mod connections;
mod error;
mod retry;
mod routing;
mod session;
mod watch;

pub use connections::{CONNECTIONS_DEFAULT, EndpointsError, parse_endpoints};
pub use error::CallError;
pub use session::{Client, Entry, Options};
pub use watch::{Watch, WatchOptions};

pub use rota_proto::v1;
