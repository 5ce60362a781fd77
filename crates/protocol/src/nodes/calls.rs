//! Calls to nodes that wait for an answer, and nodes that are wanted.

use rota_messages::DocKey;
use rota_messages::lives::Event;
use rota_model::{BootId, Epoch, ManagerNumber, NodeId, PoolName, Resources, SessionKey, Token};
use std::collections::BTreeMap;

/// What a call to a node was for.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct CallFor {
    /// The partition that asked.
    pub part: ManagerNumber,
    /// Its epoch then: a node that answered raised its fence to that.
    pub pe: Epoch,
    /// The node that was asked, and its boot.
    pub node: NodeId,
    /// That boot.
    pub boot: BootId,
    /// What for.
    pub what: CallWhat,
    /// Forgotten after this time.
    pub until_ms: u64,
}

/// What a call to a node asked.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum CallWhat {
    Create {
        key: SessionKey,
        token: Token,
    },
    Destroy {
        key: SessionKey,
        token: Token,
    },
    Scan,
    /// The action of a session, by the document of its life cycles.
    Act {
        key: DocKey,
        event: Event,
        token: Token,
    },
    /// A look at one session waits for it: a scan that begins just before, or a Destroy of what is there.
    Look,
}

/// What somebody asks a pool's owner for.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct NodesWanted {
    pub pool: PoolName,
    /// Sessions that found no room: what each takes, and how many there are.
    pub waiting: Vec<(Resources, u32)>,
    /// Index of the newest state of the config store that was known when they were counted.
    pub index: u64,
    /// Who asks.
    pub from: ManagerNumber,
}

/// Most calls to nodes that are remembered. Each open makes one; the bound only guards memory when
/// nodes never answer, since forgotten calls are made again.
pub(crate) const CALLS_MAX: usize = 65_536;

/// Longest text that is kept of an order that failed: a status has room for no more.
pub(crate) const FAILURE_CHARS_MAX: usize = 300;

/// What was asked of nodes, and of those who start them.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Fleet {
    pub calls: BTreeMap<u64, CallFor>,
    /// What is wanted of pools that this manager owns.
    pub wanted: Vec<NodesWanted>,
    /// Orders of nodes that a provisioner carries out, one for each pool at most.
    pub orders: BTreeMap<u64, PoolName>,
}
