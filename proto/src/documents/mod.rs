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
//! * [`answer`]: what clients get, and how they read it.
//! * [`exception`]: exceptions as gRPC statuses, and back.
//! * `document`: documents, items, updates.
//! * [`namespace`]: descriptions of namespaces. [`export`] and
//!   [`document_export`]: the order of an export's records.
//! * [`cursor`]: page tokens of lists. `peer`: what managers pass to owners.

pub mod answer;
pub mod cursor;
pub(crate) mod document;
pub mod document_export;
pub mod exception;
pub mod export;
pub mod namespace;
mod namespace_request;
pub(crate) mod peer;
pub mod request;

pub use exception::{exception, in_call, status};
pub use namespace::NamespaceState;
pub use rota_protocol::DocumentCursor;

/// The metadata in which an operator sends the administrator's key.
pub const ADMIN_KEY_METADATA: &str = "rota-admin-key";
/// Most bytes of one piece of a body.
pub const PIECE_BYTES_MAX: usize = 1024 * 1024;
/// Most bytes of updates in one response, unless the first one alone is larger. Each owner sends far
/// less ([`rota_protocol::Sizes`]: about half a MiB, or one document); a response to a client has those of
/// all owners that it asked for.
pub const UPDATES_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Largest request of the service Documents: parameters or a piece, with names around them.
pub const REQUEST_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Largest response of both services, and largest request of Namespaces: updates of that size, or
/// one document (8 MiB of contents), with names around them.
pub const MESSAGE_BYTES_MAX: usize = UPDATES_BYTES_MAX + 16 * 1024 * 1024;
