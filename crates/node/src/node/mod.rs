//! The node: its state, and which part takes which input.

mod actions;
mod calls;
mod resume;
mod runtime;
mod scan;
mod upkeep;

pub use actions::ACTIONS_WAITING_MAX;
pub use scan::SCAN_PAGE_MAX;

use crate::config::NodeConfig;
use crate::dead::DeadTokens;
use crate::fences::Fences;
use crate::io::{NodeEffect, NodeInput};
use crate::known_managers::KnownManagers;
use crate::lease::{Lease, LeaseState, SlotLease};
use crate::live::{Live, LiveSessions};
use crate::outbox::{Outbox, Sender};
use rota_model::node_msg::{DeadToken, NodeLoad, Register, Renew};
use rota_model::{
    ClassName, ClassText, Epoch, LoadLimit, ManagerNumber, NodeState, PoolName, SessionKey, SlotId,
    Token,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A node's decisions: the state of one boot.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Node {
    config: Arc<NodeConfig>,
    fences: Fences,
    live: LiveSessions,
    /// What runs beside them, and who waits for it.
    actions: actions::Actions,
    dead: DeadTokens,
    outbox: Outbox,
    lease: Lease,
    departure: Departure,
    /// Why it takes no session now, if so.
    takes_none: Option<String>,
    /// T in thousandths: as its pool says, or as it was started.
    load_limit: LoadLimit,
    managers: KnownManagers,
    /// The boot was declared lost since.
    lost_moved: bool,
    effects: Vec<NodeEffect>,
}

/// Whether this boot is to end.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Departure {
    /// It is not.
    Stays,
    /// It was asked to leave.
    Leaving,
    /// It has left: the driver was told.
    Left,
    /// It was declared lost, and the driver was told to boot anew.
    Retired,
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

impl<'a> LiveSession<'a> {
    fn of(key: &'a SessionKey, live: &'a Live) -> Self {
        let Live { slot, token, ready, .. } = *live;
        Self { key, slot, token, phase: live.phase(), address: &live.address, ready }
    }
}

impl Node {
    /// A node at its start, with nothing running. Nothing of an earlier boot may run any more.
    pub fn new(config: NodeConfig) -> Self {
        Self {
            load_limit: config.load_limit,
            config: Arc::new(config),
            fences: Fences::default(),
            live: LiveSessions::default(),
            actions: actions::Actions::default(),
            dead: DeadTokens::default(),
            outbox: Outbox::default(),
            lease: Lease::default(),
            departure: Departure::Stays,
            takes_none: None,
            managers: KnownManagers::default(),
            lost_moved: false,
            effects: Vec::new(),
        }
    }

    /// Takes one input. `now_mono_ms` is on the monotonic clock and never goes back.
    pub fn handle(&mut self, now_mono_ms: u64, input: NodeInput) {
        let now = now_mono_ms;
        // A grant that is at hand counts before the lease is judged by the clock.
        let input = self.on_lease_news(now, input);
        self.upkeep(now);
        match input {
            None | Some(NodeInput::Tick) => {}
            Some(NodeInput::Call { stream, message }) => self.on_call(now, stream, message),
            Some(NodeInput::StreamClosed { stream }) => {
                self.live.close_stream(stream);
                self.actions.close_stream(stream);
            }
            Some(NodeInput::Leave) => self.on_leave(now),
            Some(NodeInput::ReportsAcked { ids }) => {
                for id in ids {
                    self.outbox.on_acked(id);
                }
            }
            Some(input) => self.on_runtime(now, input),
        }
        self.send_what_is_due(now);
        self.depart();
    }

    /// Gives everything that is to be done since the last call, in order.
    pub fn flush(&mut self) -> Vec<NodeEffect> {
        let entries = self.journal();
        let mut effects = Vec::with_capacity(self.effects.len() + 1);
        if !entries.is_empty() {
            effects.push(NodeEffect::Journal { entries });
        }
        effects.append(&mut self.effects);
        effects
    }

    /// When the next [`NodeInput::Tick`] is due, on the monotonic clock.
    pub fn wake_at(&self) -> Option<u64> {
        if self.departure == Departure::Retired {
            return None;
        }
        let lease = self.lease.wake_at(&self.config.timing);
        let reports = self.outbox.next_due().filter(|_| !self.lease.is_lost());
        let times = [lease, self.live.next_deadline(), reports, self.dead.next_expiry()];
        times.into_iter().flatten().min()
    }

    fn send_what_is_due(&mut self, now: u64) {
        if self.lease.is_lost() {
            return;
        }
        let config = self.config.clone();
        if self.lease.renew(now, &config.timing) {
            let renew = Renew { node: config.node.clone(), boot: config.boot, load: self.load() };
            let managers = self.managers.list().to_vec();
            self.effects.push(NodeEffect::Renew { sent_mono_ms: now, renew, managers });
        }
        let sender = Sender {
            node: &config.node,
            boot: config.boot,
            timing: &config.timing,
            bounds: &config.bounds,
        };
        self.outbox.pump(now, &sender, &mut self.effects);
    }

    /// From now on it runs these classes; what runs goes on. Managers learn of it by a registration.
    pub fn offer(&mut self, classes: BTreeMap<ClassName, ClassText>) {
        Arc::make_mut(&mut self.config).classes = classes;
    }

    /// From now on it takes no session, for that reason; or again, without one. What runs goes on.
    pub fn take_no_session(&mut self, why: Option<&str>) {
        if self.takes_none.as_deref() != why {
            self.takes_none = why.map(str::to_owned);
        }
    }

    /// What the node was told at its start, with the classes that it runs now.
    pub fn config(&self) -> &NodeConfig {
        &self.config
    }

    /// The registration of this boot, without what decides nothing (`sandbox`). `state` is READY, or REMOVED after [`NodeEffect::Left`].
    pub fn registration(&self, address: String, pool: PoolName, state: NodeState) -> Register {
        let texts = &self.config.classes;
        Register {
            node: self.config.node.clone(),
            boot: self.config.boot,
            ended_boots: self.config.ended_boots.clone(),
            address,
            pool,
            offers: self.config.offers,
            labels: self.config.labels.clone(),
            classes: texts.keys().cloned().collect(),
            digests: texts.iter().map(|(name, it)| (name.clone(), it.digest)).collect(),
            facts: texts
                .iter()
                .filter(|(_, it)| !it.facts.is_default())
                .map(|(name, it)| (name.clone(), it.facts.clone()))
                .collect(),
            sandbox: None,
            state,
            lease: self.config.timing.lease(),
            tombstone_ms: self.config.timing.tombstone_ms,
        }
    }

    /// Whether a registration was answered.
    pub fn is_registered(&self) -> bool {
        self.fences.runs().is_some()
    }

    /// Managers to renew with and report to, as last heard: number, address.
    pub fn managers(&self) -> &[(ManagerNumber, String)] {
        self.managers.list()
    }

    /// Where the lease stands, by the last input's time: it is there as long as that of any slot.
    pub fn lease(&self) -> LeaseState {
        self.lease.state(&self.config.timing)
    }

    /// Where the lease of a slot stands, by the last input's time.
    pub fn lease_of(&self, slot: SlotId) -> LeaseState {
        self.lease.state_of(slot, &self.config.timing)
    }

    /// When keepers are to end and to kill by themselves; empty before the registration.
    pub fn lease_deadlines(&self) -> Vec<SlotLease> {
        self.lease.deadlines(&self.config.timing)
    }

    /// What is in use, and what there is. A session takes its share until nothing of it runs.
    pub fn load(&self) -> NodeLoad {
        NodeLoad { used: self.live.taken(), offered: self.config.offers, kept: self.live.kept() }
    }

    /// Sessions that live, in order of key.
    pub fn live(&self) -> impl Iterator<Item = LiveSession<'_>> {
        self.live.after(None).map(|(key, live)| LiveSession::of(key, live))
    }

    /// Why a token is dead, if it is remembered as dead.
    pub fn dead(&self, key: &SessionKey, token: Token) -> Option<&DeadToken> {
        self.dead.get(key, token)
    }

    /// How many dead tokens are remembered.
    pub fn dead_count(&self) -> usize {
        self.dead.len()
    }

    /// Sessions with news that no manager has acknowledged yet.
    pub fn outbox_sessions(&self) -> usize {
        self.outbox.len()
    }

    /// The lowest partition epoch that the node still obeys for a slot; 0 before the registration.
    pub fn fence(&self, slot: SlotId) -> Epoch {
        self.fences.at(slot)
    }
}
