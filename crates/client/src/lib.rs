//! Rust client of Rota.
//!
//! ```text
//!  Client ── Call (open, close, get, list) ──▶ attempt ──▶ Connections ──▶ any manager
//!    │            ▲                              │              or, with routing, the owner
//!    │            └── pause by advice ◀── retry ◀┘ refusal, break, silence
//!    ├── Watch, DocumentWatch ── resume from the last position after a break
//!    ├── Documents, Namespaces, Pools, Tasks ── the same for operations, copies, bodies, exports
//!    └── CachedDocument ── a DocumentWatch that wakes, a Sync that brings the document up to date
//! ```
//!
//! * [`Client`]: several endpoints, one deadline per call. Any manager takes any call, so a break
//!   or an unknown outcome is repeated at the next endpoint: opens and closes always carry a
//!   request id, which makes that safe.
//!   One that nobody heard for a while is asked for its health first, and the next one after 300 ms, so a
//!   process that hangs holds nobody up.
//! * [`Watch`]: changes at least once and without gaps, over breaks. [`DocumentWatch`]: those of one document,
//!   a class or a namespace, with a filter.
//! * [`KeepAlive`]: a session that is kept alive until it is dropped.
//! * [`Logs`]: what a program prints, every byte once, over breaks.
//! * [`Options::route_by_view`]: go to the owner directly and save the forward hop.
//! * [`Documents`]: operations on documents, updates of copies, bodies of attachments in pieces. An
//!   operation without an operation time is not sent twice when its outcome is unknown. An update that is too large for an
//!   answer comes as an export.
//! * [`CachedDocument`]: a document that keeps itself in step, over restarts with a file. [`CachedSession`]:
//!   that of a session, with its state and address.
//! * [`ContentFeed`]: what a node is told of the content that it follows.
//! * [`CallError`]: the typed refusal or exception with its advice, or what broke.

mod attempt;
pub mod cached;
mod call;
mod connections;
mod content;
pub mod documents;
mod endpoints;
mod error;
mod events;
mod keep_alive;
pub mod pools;
mod programs;
mod resume;
mod retry;
mod routing;
mod session;
pub mod tasks;
mod watch;

pub use cached::{
    CachedDocument, CachedDocumentOptions, CachedSession, CachedSessionOptions, DocumentCopy,
    SessionCopy,
};
pub use connections::{CONNECTIONS_DEFAULT, EndpointsError, parse_endpoints};
pub use content::ContentFeed;
pub use documents::Documents;
pub use endpoints::Entry;
pub use error::CallError;
pub use events::Events;
pub use keep_alive::{KeepAlive, may_live_on};
pub use pools::Pools;
pub use programs::{Logs, Printed};
pub use session::{Client, OnWait, Options};
pub use tasks::Tasks;
pub use watch::{DocumentWatch, Watch, WatchOptions, Watchable};

pub use rota_docstore as docstore;
pub use rota_proto::v1;
