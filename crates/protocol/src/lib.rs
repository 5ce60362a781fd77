//! Every decision of a manager, and nothing else: no clock, no socket, no file.
//!
//! See [`io`] for the picture of inputs and effects, [`documents`] for what is kept, and
//! [`replica`] for a copy of a partition.

mod adopt;
mod backlog;
mod bodies;
pub mod census;
mod claim;
mod closing;
mod cordon;
mod council;
mod drain;
mod drive;
mod elsewhere;
mod entry;
mod env;
mod fingerprint;
mod flow;
mod former;
mod hearing;
mod inspect;
pub mod io;
mod judge;
mod leading;
mod learn;
mod leave;
mod manager;
pub mod memories;
mod memory;
mod nodes;
pub mod operate;
mod partition;
mod parts;
mod pool;
mod probe;
mod promised;
mod reads;
mod recover;
pub mod replica;
mod requests;
mod scan;
mod session;
mod settled;
pub mod sizes;
mod split;
mod sync;
pub mod timing;
mod upkeep;
mod version;
mod waits;
mod work;

pub use bodies::{Bodies, NoBodies};
pub use io::{CasOutcome, Effect, Input, Note, SessionEnd, Transition};
pub use manager::Manager;
pub use operate::DocumentsConfig;
pub use rota_messages::*;
pub use sizes::Sizes;
pub use timing::{REQUEST_MS, Timing};
pub use waits::Wait;

use rota_model::{ManagerId, ManagerNumber, PoolName};
use rota_ring::RingShape;

/// What a manager is told about itself at its start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ManagerConfig {
    /// Its reserved number.
    pub number: ManagerNumber,
    /// Its name.
    pub id: ManagerId,
    /// The ring that it is for. A View of another one is refused, also by who knows none yet.
    pub ring: RingShape,
    /// Where it serves gRPC, `host:port`.
    pub grpc: String,
    /// Where it serves HTTP, `host:port`.
    pub http: String,
    /// Load of a node at which it takes no more, in thousandths (T = 0.8 is 800).
    pub load_limit_permille: u32,
    /// Pools that can grow.
    pub pools: Vec<PoolConfig>,
    /// Times.
    pub timing: Timing,
    /// Sizes.
    pub sizes: Sizes,
    /// What an administrator decides about documents.
    pub documents: DocumentsConfig,
}

/// A pool that can grow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PoolConfig {
    /// Its name.
    pub name: PoolName,
    /// Most nodes.
    pub nodes_max: u32,
    /// Places of a new node.
    pub places: u32,
}
