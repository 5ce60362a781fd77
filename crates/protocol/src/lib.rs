//! Every decision of a manager, and nothing else: no clock, no socket, no file.
//!
//! See [`io`] for the picture of inputs and effects.

pub mod io;
pub mod message;
pub mod timing;

pub use io::{
    CasOutcome, Disk, DiskWrite, Effect, Identity, Input, Note, PartMeta, Transition,
};
pub use message::{Doc, DocKey, DocName, Entry, Envelope, Message, PoolRecord, Write};
pub use timing::Timing;

use rota_model::{ManagerId, ManagerNumber, Now, PoolName};

/// What a manager is told about itself at its start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ManagerConfig {
    /// Its reserved number.
    pub number: ManagerNumber,
    /// Its name.
    pub id: ManagerId,
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

/// A manager's decisions: the state of one manager process.
pub struct Manager {
    _config: ManagerConfig,
}

impl Manager {
    /// A manager at its start, with what its disk holds. `seed` feeds nonces and jitter.
    pub fn new(config: ManagerConfig, _disk: Disk, _seed: u64, _now: Now) -> Self {
        Self { _config: config }
    }

    /// Takes one input.
    pub fn handle(&mut self, _now: Now, _input: Input) {}

    /// Gives everything that is to be done since the last call.
    pub fn flush(&mut self, _now: Now) -> Vec<Effect> {
        Vec::new()
    }

    /// When the next [`Input::Tick`] is due, on the monotonic clock.
    pub fn wake_at(&self) -> Option<u64> {
        None
    }

    /// What an operator sees of this manager.
    pub fn stats(&self) -> Stats {
        Stats::default()
    }
}

/// What an operator sees of a manager.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Partitions that this manager owns or copies.
    pub parts: Vec<PartStats>,
    /// Nodes, with the load as this manager knows it.
    pub nodes: Vec<(rota_ring::NodeReg, rota_model::node_msg::NodeLoad)>,
    /// Client requests that wait here.
    pub requests_waiting: usize,
}

/// What an operator sees of a partition at one manager.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartStats {
    /// Which partition.
    pub part: ManagerNumber,
    /// `serving`, `syncing`, `scanning`, `wedged`, `copy`, `learning`, `recovering`, `idle`.
    pub role: &'static str,
    /// Last entry here.
    pub last: rota_model::LogPos,
    /// Last committed entry known here.
    pub committed: rota_model::LogPos,
    /// Sessions by state, tombstones included.
    pub sessions: std::collections::BTreeMap<rota_model::SessionState, u64>,
    /// At the owner: each copy and how many entries it is behind.
    pub lag: Vec<(ManagerNumber, u64)>,
    /// Order-independent digest of all session records (key, life, version, state).
    pub digest: u64,
}
