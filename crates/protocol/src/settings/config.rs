//! What a manager is told about itself at its start.

use crate::settings::documents::DocumentsConfig;
use crate::settings::numbers::NumbersConfig;
use crate::settings::sizes::Sizes;
use crate::settings::tasks::TasksConfig;
use crate::settings::timing::Timing;
use rota_model::{LoadLimit, ManagerId, ManagerNumber};
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
    /// T of pools that say none: load of a node at which it takes no more.
    pub load_limit: LoadLimit,
    /// Times.
    pub timing: Timing,
    /// Sizes.
    pub sizes: Sizes,
    /// What an administrator decides about documents.
    pub documents: DocumentsConfig,
    /// What is decided about stable numbers. `None`: this manager assigns none.
    pub numbers: Option<NumbersConfig>,
    /// What is decided about tasks.
    pub tasks: TasksConfig,
}
