//! Documents on the wire.
//!
//! ```text
//!   client ── v1::OperateRequest, … ──▶ request ──▶ docstore::Request, … ─┐
//!   client ◀── v1::OperateResponse, … ── answer ◀── docstore::Answer, … ──┤ a store
//!   client ◀── tonic::Status ───────── exception ◀── docstore::Exception ─┘
//! ```
//!
//! * [`request`]: requests of clients, checked; every mistake of a request is listed in one
//!   exception.
//! * [`search`]: searches, and what they find.
//! * [`answer`]: what clients get, and how they read it.
//! * [`exception`]: exceptions as gRPC statuses, and back.
//! * `document`: documents, items, updates.
//! * [`namespace`]: descriptions of namespaces. [`export`] and
//!   [`document_export`]: the order of an export's records. `more`: what is too large for one of them.
//! * [`watch`]: watches, of clients and as managers pass them on.
//! * [`cursor`]: page tokens of lists. `peer`: what managers pass to owners.

pub mod answer;
pub mod cursor;
pub(crate) mod document;
pub mod document_export;
pub mod exception;
pub mod export;
mod more;
pub mod namespace;
mod namespace_request;
pub(crate) mod peer;
pub mod request;
pub mod search;
pub mod watch;

pub use exception::{exception, in_call, status};
pub use namespace::NamespaceState;
pub use rota_messages::DocumentCursor;

/// The metadata in which an operator sends the administrator's key.
pub const ADMIN_KEY_METADATA: &str = "rota-admin-key";
/// Most bytes of one piece of a body.
pub const PIECE_BYTES_MAX: usize = 1024 * 1024;
/// Most bytes of updates in one answer, and of one record of a document: with the rest of a message well
/// below the 4 MiB that clients of gRPC take unless told otherwise. A larger update is named in an answer, and
/// comes in several records of an export.
pub const UPDATES_BYTES_MAX: usize = 3 * 1024 * 1024;
/// Largest answer of both services, and largest record of an export: what clients take.
pub const ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Largest request of the service Documents: parameters or a piece, with names around them.
pub const REQUEST_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Largest request of Namespaces: one document (8 MiB of contents, with the names of its items), which is one
/// record in exports of format 1.
pub const MESSAGE_BYTES_MAX: usize = 32 * 1024 * 1024;
