//! Protobuf package `rota.v1`: generated code, and the only parser of the wire.
//!
//! ```text
//!   client ── v1::OpenRequest ──▶ request ──▶ OpenOp ─┐               ┌─▶ op, peer ──▶ peers
//!   client ◀─ v1::OpenResponse ── session ◀── Answer ─┤   decisions   ├─▶ node ──────▶ nodes
//!   client ◀─ tonic::Status ──── refusal ◀── Refusal ─┘               └─▶ disk ──────▶ disk
//! ```
//!
//! Model to wire is `From` and cannot fail. Wire to model is `TryFrom` with a [`WireError`] that
//! names the field; it never panics, whatever the bytes. Requests of clients go through
//! [`request`], which lists all mistakes of a request at once.
//!
//! * [`request`]: requests of clients to validated ones.
//! * [`session`]: what clients are shown of a session, and their responses.
//! * [`session_search`]: lists of sessions by conditions and in an order.
//! * [`position`]: page tokens and watch positions.
//! * [`refusal`]: the one table from refusals to gRPC statuses, and back.
//! * [`reflection`]: what a server tells of its services.
//! * [`serving`]: what every server bounds. [`bounded`]: services that refuse a message over their limit as any other mistake.
//! * [`record`]: names, placements, writes, log entries.
//! * [`op`]: requests and answers between managers. [`peer`]: everything else between them.
//! * [`bodies`]: bodies of attachments between managers.
//! * [`node`]: messages between managers and node-agents.
//! * [`pool`]: pools of nodes.
//! * [`operator`]: what operators see. [`running`]: where sessions are, and what nodes run. [`mend`]: looks that put right.
//! * [`programs`]: output of programs, and what they use.
//! * [`documents`]: documents, operations and namespaces, and exceptions as gRPC statuses.
//! * [`content`]: content that nodes run.
//! * [`status_details`]: what stands in a status, for who does not speak gRPC.
//! * [`disk`]: keys and values of the storage engine. [`encoded`]: documents as bytes, made once.

pub mod bodies;
pub mod bounded;
pub mod content;
pub mod disk;
pub mod documents;
pub mod encoded;
pub mod events;
pub mod keep_alive;
mod life;
pub mod lives;
pub mod mend;
mod mistakes;
pub mod node;
pub mod numbers;
mod offers;
pub mod op;
pub mod operator;
pub mod peer;
pub mod pool;
pub mod position;
pub mod programs;
pub mod record;
pub mod reflection;
pub mod refusal;
pub mod request;
pub mod running;
pub mod serving;
pub mod session;
pub mod session_search;
pub mod status_details;
pub mod tasks;
mod wire;

pub use operator::Inspected;
pub use position::Position;
pub use request::{SendEvent, Watch};
pub use session::Session;
pub use wire::WireError;

/// Generated code of package `rota.v1`: messages, clients and servers.
#[allow(missing_docs, clippy::all, clippy::pedantic, clippy::restriction)]
pub mod v1 {
    tonic::include_proto!("rota.v1");
}

/// The compiled descriptors of package `rota.v1` (a `google.protobuf.FileDescriptorSet`), for
/// gRPC reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/rota.v1.bin"));
