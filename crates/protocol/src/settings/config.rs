//! What a manager is told about itself at its start.

use crate::settings::documents::DocumentsConfig;
use crate::settings::sizes::Sizes;
use crate::settings::timing::Timing;
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
