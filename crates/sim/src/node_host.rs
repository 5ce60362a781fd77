//! A node's machine: its data folder, its agent, and its programs under their keepers.

use rota_model::node_msg::ENDED_BOOTS_MAX;
use rota_model::{BootId, ManagerNumber, NodeId, SessionKey, SlotId, Token};
use rota_node::{Entry, Node, NodeInput, SlotLease, StopHow};
use std::collections::{BTreeMap, BTreeSet};

/// A program under its keeper.
#[derive(Clone, Debug)]
pub struct Program {
    /// Its execution in the observer's book; `None` before it runs.
    pub instance: Option<usize>,
    /// It was asked to stop.
    pub stopping: Option<StopHow>,
    /// It answers.
    pub ready: bool,
    /// It will not start.
    pub fails: bool,
    /// It is not to start later than this, on the node's clock.
    pub not_after_mono_ms: u64,
}

/// What a node's data folder remembers of its boots.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Folder {
    /// Those of this folder, newest last, and the machine that each ran on: a folder is copied, too.
    boots: Vec<(BootId, usize)>,
    /// Where the clock of its machine is behind, by which part: half, a quarter, an eighth.
    behind: Option<u32>,
}

impl Folder {
    /// An empty folder, perhaps of a machine whose clock is behind.
    pub fn fresh(behind: Option<u32>) -> Self {
        Self { boots: Vec::new(), behind }
    }

    /// The machine's clock is less behind than it was. Whether it was behind.
    pub fn catch_up(&mut self) -> bool {
        self.behind.as_mut().map(|part| *part += 1).is_some()
    }

    /// The number of the next boot on a machine at that time, which no boot has yet, and the boots that the folder
    /// proves to be over. What runs on another machine cannot be seen from this one, but by who believes that it can.
    pub fn next_boot(
        &mut self,
        clock: u64,
        (machine, believes): (usize, bool),
        all: &mut BTreeSet<BootId>,
    ) -> (BootId, Vec<BootId>) {
        let behind = self.behind.map_or(0, |part| clock >> part.min(63));
        let last = self.boots.last().map_or(0, |it| it.0.0);
        let mut boot = BootId((clock - behind).max(last + 1));
        while !all.insert(boot) {
            boot = BootId(boot.0 + 1);
        }
        let here = self.boots.iter().filter(|(_, other)| *other == machine || believes);
        let ended = here.map(|(boot, _)| *boot).collect();
        self.boots.push((boot, machine));
        let surplus = self.boots.len().saturating_sub(ENDED_BOOTS_MAX);
        self.boots.drain(..surplus);
        (boot, ended)
    }
}

/// A node's machine.
pub struct NodeHost {
    /// Its id.
    pub id: NodeId,
    /// What its data folder remembers of its boots.
    pub folder: Folder,
    /// Its agent, when it runs.
    pub agent: Option<Node>,
    /// How many agents of this boot there were before this one.
    pub agents_before: u64,
    /// What they wrote down for the next one.
    pub journal: Vec<Entry>,
    /// What keepers said of ends while there was no agent.
    pub untold: BTreeMap<(SessionKey, Token), NodeInput>,
    /// The agent dies when it has next written something down, before it does anything that follows.
    pub dies_next: bool,
    /// Counts its boots.
    pub run: u64,
    /// This boot.
    pub boot: BootId,
    /// The agent receives nothing before this.
    pub paused_until_us: u64,
    pub(crate) mono_ahead_ms: u64,
    /// Its programs.
    pub programs: BTreeMap<(SessionKey, Token), Program>,
    /// When keepers end programs politely, and when they kill, by slot and on the node's clock.
    pub lease: Vec<SlotLease>,
    pub(crate) waiting: AgentWaits,
    /// Answers to its registrations are lost before this.
    pub registered_lost_until_us: u64,
    /// It was told to leave; registers as REMOVED once it has.
    pub leaving: Leaving,
}

/// What is gone with a node's agent.
#[derive(Default)]
pub(crate) struct AgentWaits {
    /// Who called, by stream.
    pub streams: BTreeMap<u64, (ManagerNumber, u64)>,
    /// Its timer.
    pub tick_at_us: Option<u64>,
}

/// How far a node is with leaving.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leaving {
    /// It stays.
    No,
    /// It ends what it runs.
    Asked,
    /// Nothing is left but to say so.
    Left,
}

impl NodeHost {
    /// A machine that was never started.
    pub fn new(id: NodeId) -> Self {
        Self {
            id,
            folder: Folder::default(),
            agent: None,
            agents_before: 0,
            journal: Vec::new(),
            untold: BTreeMap::new(),
            dies_next: false,
            run: 0,
            boot: BootId(0),
            paused_until_us: 0,
            mono_ahead_ms: 0,
            programs: BTreeMap::new(),
            lease: Vec::new(),
            waiting: AgentWaits::default(),
            registered_lost_until_us: 0,
            leaving: Leaving::No,
        }
    }

    /// The node's monotonic clock.
    pub fn mono_ms(&self, now_us: u64) -> u64 {
        now_us / 1000 + self.mono_ahead_ms
    }

    pub(crate) fn us_of(&self, mono_ms: u64) -> u64 {
        mono_ms.saturating_sub(self.mono_ahead_ms).saturating_mul(1000)
    }

    /// When keepers kill what is in a slot.
    pub fn kill_at_ms(&self, slot: SlotId) -> Option<u64> {
        self.lease.iter().find(|it| it.slots.contains(slot)).map(|it| it.kill_at_mono_ms)
    }

    /// Until when it receives nothing, if it is paused.
    pub fn paused_until(&self, now_us: u64) -> Option<u64> {
        Some(self.paused_until_us).filter(|it| *it > now_us)
    }

    /// Boot as the observer names it.
    pub fn name(&self) -> (NodeId, BootId) {
        (self.id.clone(), self.boot)
    }
}
