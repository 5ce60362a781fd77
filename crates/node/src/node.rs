//! The node: its state and its answers to inputs.

use crate::config::NodeConfig;
use crate::io::{NodeEffect, NodeInput};
use rota_model::node_msg::{DeadToken, NodeLoad, Register};
use rota_model::{Epoch, ManagerNumber, NodeState, PoolName, SessionKey, SlotId, Token};
use std::sync::Arc;

/// A node's decisions: the state of one boot.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Node {
    config: Arc<NodeConfig>,
    effects: Vec<NodeEffect>,
}

/// How far a session has got.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Phase {
    /// The runtime was asked to start it.
    Starting,
    /// It runs.
    Running,
    /// The runtime was asked to stop it; something of it may still run.
    Stopping,
}

/// A session that lives, as others see it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct LiveSession<'a> {
    /// Which.
    pub key: &'a SessionKey,
    /// Its slot.
    pub slot: SlotId,
    /// Which attempt.
    pub token: Token,
    /// How far it has got.
    pub phase: Phase,
    /// Where it answers; empty while it starts.
    pub address: &'a str,
    /// Whether it answers.
    pub ready: bool,
}

/// Where the lease stands.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LeaseState {
    /// Not registered yet.
    None,
    /// It runs.
    Valid,
    /// It ran out: everything is being ended politely, nothing is started.
    Term,
    /// Everything is being killed, nothing is started.
    Kill,
    /// The boot was declared lost.
    Lost,
}

impl Node {
    /// A node at its start, with nothing running.
    pub fn new(config: NodeConfig, _now_mono_ms: u64) -> Self {
        Self {
            config: Arc::new(config),
            effects: Vec::new(),
        }
    }

    /// Takes one input. `now_mono_ms` is on the monotonic clock and never goes back.
    pub fn handle(&mut self, _now_mono_ms: u64, _input: NodeInput) {}

    /// Gives everything that is to be done since the last call, in order.
    pub fn flush(&mut self) -> Vec<NodeEffect> {
        std::mem::take(&mut self.effects)
    }

    /// When the next [`NodeInput::Tick`] is due, on the monotonic clock.
    pub fn wake_at(&self) -> Option<u64> {
        None
    }

    /// What the node was told at its start.
    pub fn config(&self) -> &NodeConfig {
        &self.config
    }

    /// The registration of this boot. `state` is READY, or REMOVED after [`NodeEffect::Left`].
    pub fn registration(&self, address: String, pool: PoolName, state: NodeState) -> Register {
        Register {
            node: self.config.node.clone(),
            boot: self.config.boot,
            address,
            pool,
            places: self.config.places,
            classes: self.config.classes.iter().cloned().collect(),
            state,
        }
    }

    /// Whether a registration was answered.
    pub fn is_registered(&self) -> bool {
        false
    }

    /// Managers to renew with and report to, as last heard: number, address.
    pub fn managers(&self) -> &[(ManagerNumber, String)] {
        &[]
    }

    /// Where the lease stands, by the last input's time.
    pub fn lease(&self) -> LeaseState {
        LeaseState::None
    }

    /// When keepers are to end and to kill by themselves; `None` before the registration.
    pub fn lease_deadlines(&self) -> Option<(u64, u64)> {
        None
    }

    /// Places in use, and places there are.
    pub fn load(&self) -> NodeLoad {
        NodeLoad {
            used: 0,
            places: self.config.places,
        }
    }

    /// Sessions that live, in order of key.
    pub fn live(&self) -> impl Iterator<Item = LiveSession<'_>> {
        std::iter::empty()
    }

    /// Order-independent digest of the live (id, token)s.
    pub fn live_digest(&self) -> u64 {
        0
    }

    /// Why a token is dead, if it is remembered as dead.
    pub fn dead(&self, _key: &SessionKey, _token: Token) -> Option<&DeadToken> {
        None
    }

    /// How many dead tokens are remembered.
    pub fn dead_count(&self) -> usize {
        0
    }

    /// Sessions with news that no manager has acknowledged yet.
    pub fn outbox_sessions(&self) -> usize {
        0
    }

    /// The lowest partition epoch that the node still obeys for a slot.
    pub fn fence(&self, _slot: SlotId) -> Epoch {
        Epoch(0)
    }
}
