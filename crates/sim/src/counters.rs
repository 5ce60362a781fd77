//! What happened in a run, counted: faults, protocol steps, and limits that were met, by kind.

use crate::disk::Crashed;
use rota_model::RefusalKind;
use rota_model::node_msg::ToNode;
use rota_protocol::{Effect, Message, Reply, Transition};
use std::collections::BTreeMap;

macro_rules! faults {
    ($($(#[$doc:meta])* $variant:ident = $text:literal,)*) => {
        /// A kind of fault. One that never happened in a whole run fails it.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Fault { $($(#[$doc])* $variant,)* }
        impl Fault {
            /// Every kind.
            pub const ALL: &'static [Fault] = &[$(Fault::$variant),*];
            /// Name in reports.
            pub fn as_str(self) -> &'static str { match self { $(Self::$variant => $text,)* } }
        }
    };
}

faults!(
    /// A message was lost.
    Loss = "loss",
    /// A message came twice.
    Duplication = "duplication",
    /// A call to a node came once more, long after.
    LateNodeCall = "late_node_call",
    /// A message was overtaken.
    Reordering = "reordering",
    /// A part of the network became slow and lossy.
    BadNetworkProfile = "bad_network_profile",
    /// Places were cut off each other.
    Partition = "partition",
    /// Places were cut off in one direction.
    OneWayPartition = "one_way_partition",
    /// A manager was cut off the other managers and the config store, not off clients and nodes.
    ManagerIsolated = "manager_isolated",
    /// A manager reached its peers and not the config store.
    StoreAway = "store_away",
    /// A manager reached the config store, and heard nothing of what it wrote or read there.
    StoreUnheard = "store_unheard",
    /// A manager reached the config store and not its peers, or was not reached by them.
    PeersAway = "peers_away",
    /// Nobody could reach the config store.
    StoreDown = "store_down",
    /// A node could reach no manager.
    NodeIsolated = "node_isolated",
    /// A node and one manager could not reach each other, for longer than a lease.
    NodeApart = "node_apart",
    /// A manager's process died.
    ManagerCrash = "manager_crash",
    /// It came back.
    ManagerRestart = "manager_restart",
    /// A newcomer's process started, to come into the ring.
    ManagerJoins = "manager_joins",
    /// A newcomer was refused because another one was under way, and tried again.
    JoinRefused = "join_refused",
    /// An operator ordered that a number leaves.
    ManagerLeaves = "manager_leaves",
    /// An operator took back what was under way.
    TransitionCancelled = "transition_cancelled",
    /// A number that had left was told to come into the ring again.
    ManagerReturns = "manager_returns",
    /// An order was refused because something else was under way.
    OrderRefused = "order_refused",
    /// All managers died at once.
    ClusterCrash = "cluster_crash",
    /// All managers died at once, and one of them stayed away until all was served without it.
    OneStaysAway = "one_stays_away",
    /// A manager's machine was lost with its disk, some with their neighbours'.
    MachinesLost = "machines_lost",
    /// A manager's machine was lost, and another one took its place with an old backup of its disk.
    DiskWentBack = "disk_went_back",
    /// Writes that were not synced were lost with a crash.
    LostWrites = "lost_writes",
    /// A manager died while its disk wrote a batch, which was not there when it came back.
    TornBatch = "torn_batch",
    /// A manager died when batches were on its disk, and had not heard of it.
    UnheardWrites = "unheard_writes",
    /// A manager received nothing for a while.
    ManagerPause = "manager_pause",
    /// A manager was called gone although it was not.
    FalseSuspicion = "false_suspicion",
    /// A node's boot died and another came at once.
    NodeRestart = "node_restart",
    /// A node stayed away for long.
    NodeCrash = "node_crash",
    /// A node's agent died, and what it ran went on: the next agent took over.
    AgentRestart = "agent_restart",
    /// An agent died when it had written down what it decided, and had done nothing of it.
    AgentTorn = "agent_torn",
    /// A program ended while its node had no agent.
    EndUntold = "end_untold",
    /// A node's agent received nothing for a while.
    NodePause = "node_pause",
    /// A node left in good order, and came back later.
    NodeLeave = "node_leave",
    /// A stream between a manager and a node broke and was opened again.
    StreamReset = "stream_reset",
    /// A manager found a node's port refusing, and threw away what waited for a connection.
    ConnectionRefused = "connection_refused",
    /// What waited for a connection was sent, since one was opened after all.
    SentLate = "sent_late",
    /// Keepers ended programs because the lease had passed.
    LeaseKill = "lease_kill",
    /// A compare-and-set arrived long after it was sent.
    LateCas = "late_cas",
    /// A compare-and-set was written and its answer lost.
    CasAnswerLost = "cas_answer_lost",
    /// A watch notification came late.
    LateWatch = "late_watch",
    /// The config store showed a manager a View of another ring.
    OtherRingShown = "other_ring_shown",
    /// The config store showed a manager an old backup that was written since.
    OldStoreShown = "old_store_shown",
    /// A wall clock stepped.
    ClockStep = "clock_step",
    /// A disk became slow.
    SlowDisk = "slow_disk",
    /// A session ended on its own.
    SessionEnded = "session_ended",
    /// A program did not start.
    StartFailed = "start_failed",
    /// A program was slow to start.
    SlowStart = "slow_start",
    /// Ordered nodes did not come.
    ProvisionFailed = "provision_failed",
    /// A node came back with a fresh data folder.
    FolderLost = "folder_lost",
    /// A second agent under one id was started.
    NodeTwin = "node_twin",
    /// A second agent under one id was started with a copy of the first one's data folder.
    FolderCopied = "folder_copied",
    /// A node's registration was written, and its answer lost for nearly as long as a lease.
    RegisteredLost = "registered_lost",
    /// A node registered as draining before it left.
    NodeDraining = "node_draining",
    /// An operator cordoned a node.
    NodeCordoned = "node_cordoned",
    /// An operator ordered that a node is drained.
    NodeDrained = "node_drained",
    /// An operator had a node forgotten that is gone.
    NodeForgotten = "node_forgotten",
    /// An operator let a node take sessions again.
    NodeUncordoned = "node_uncordoned",
    /// An operator had owners look at what a node has, and put right what differs.
    MendOrdered = "mend_ordered",
    /// A client repeated a request that was answered, through any manager.
    RequestRepeated = "request_repeated",
    /// A client sent one request to two managers at once.
    RequestDoubled = "request_doubled",
);

macro_rules! corners {
    ($($(#[$doc:meta])* $variant:ident = $text:literal,)*) => {
        /// A limit that was met. One that was never met in a whole run fails it.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Corner { $($(#[$doc])* $variant,)* }
        impl Corner {
            /// Every kind.
            pub const ALL: &'static [Corner] = &[$(Corner::$variant),*];
            /// Name in reports.
            pub fn as_str(self) -> &'static str { match self { $(Self::$variant => $text,)* } }
        }
    };
}

corners!(
    /// A snapshot of several chunks.
    SplitSnapshot = "split_snapshot",
    /// A Prepare of several entries.
    FullPrepare = "full_prepare",
    /// A Prepare that asks a silent receiver how far it is.
    EmptyPrepare = "empty_prepare",
    /// The difference of a Sync in several pieces.
    SplitSync = "split_sync",
    /// A scan of a node in several pages.
    SplitScan = "split_scan",
    /// A page of a list that ends before its partition.
    SplitPage = "split_page",
    /// A watch from a position that is too old, answered by a snapshot.
    OldPosition = "old_position",
    /// A snapshot of a watch in several pages.
    SplitWatch = "split_watch",
    /// A boot that had to wait until another one was declared lost.
    BootWaited = "boot_waited",
    /// A boot whose clock was behind that of the registered one.
    BootBehind = "boot_behind",
    /// A request that was refused because too much is not committed.
    FullTail = "full_tail",
    /// A batch for the disk that was full: its manager took nothing more before it was given.
    FullBatch = "full_batch",
);

impl Corner {
    /// The limit that an effect shows to have been met.
    pub fn of(effect: &Effect) -> Option<Corner> {
        match effect {
            Effect::Send { envelope, .. } => match &envelope.message {
                Message::SnapshotChunk { chunk, .. } if chunk.number > 0 => {
                    Some(Corner::SplitSnapshot)
                }
                Message::SyncData { pieces: 2.., .. } => Some(Corner::SplitSync),
                Message::Prepare { entries, .. } if entries.is_empty() => {
                    Some(Corner::EmptyPrepare)
                }
                Message::Prepare { entries, .. } if entries.len() > 1 => Some(Corner::FullPrepare),
                Message::SnapshotChunk { .. }
                | Message::SyncData { .. }
                | Message::Prepare { .. }
                | Message::Request { .. }
                | Message::Answer { .. }
                | Message::Ack { .. }
                | Message::Nack { .. }
                | Message::SyncAsk { .. }
                | Message::SyncReport { .. }
                | Message::SyncApplied { .. }
                | Message::ReadIndex { .. }
                | Message::ReadIndexConfirmed { .. }
                | Message::SnapshotAck { .. }
                | Message::Heartbeat { .. }
                | Message::Probe { .. }
                | Message::Probed { .. }
                | Message::NodeWanted { .. }
                | Message::NodesFailed { .. } => None,
            },
            Effect::ToNode { message: ToNode::Scan { after: Some(_), .. }, .. } => {
                Some(Corner::SplitScan)
            }
            Effect::Reply { reply: Reply::Request(Err(refusal)), .. } => {
                let full = refusal.kind == RefusalKind::Overloaded
                    && refusal.message.contains("not committed");
                full.then_some(Corner::FullTail)
            }
            Effect::Reply { .. }
            | Effect::ToNode { .. }
            | Effect::Persist { .. }
            | Effect::FetchBodies { .. }
            | Effect::Work { .. }
            | Effect::RunTask { .. }
            | Effect::StopTask { .. }
            | Effect::TaskGivenUp { .. }
            | Effect::ReadConfig { .. }
            | Effect::Cas { .. }
            | Effect::Provision { .. }
            | Effect::ClearNode { .. }
            | Effect::Events(_)
            | Effect::Note(_) => None,
        }
    }
}

/// Counts of one run, or of many.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Faults.
    pub faults: BTreeMap<Fault, u64>,
    /// Steps of the protocol.
    pub transitions: BTreeMap<Transition, u64>,
    /// Limits that were met.
    pub corners: BTreeMap<Corner, u64>,
    /// Answers to clients by what they said.
    pub answers: BTreeMap<&'static str, u64>,
}

impl Counters {
    /// Counts a fault.
    pub fn fault(&mut self, fault: Fault) {
        *self.faults.entry(fault).or_default() += 1;
    }

    /// Counts what a crash did to writes that were under way.
    pub fn crashed(&mut self, crashed: &Crashed) {
        let kinds = [
            (crashed.lost > 0, Fault::LostWrites),
            (crashed.is_torn, Fault::TornBatch),
            (!crashed.kept.is_empty(), Fault::UnheardWrites),
        ];
        kinds.iter().filter(|it| it.0).for_each(|it| self.fault(it.1));
    }

    /// Counts a limit that was met.
    pub fn corner(&mut self, corner: Corner) {
        *self.corners.entry(corner).or_default() += 1;
    }

    /// Counts a step of the protocol.
    pub fn transition(&mut self, transition: Transition) {
        *self.transitions.entry(transition).or_default() += 1;
    }

    /// Counts an answer to a client.
    pub fn answer(&mut self, what: &'static str) {
        *self.answers.entry(what).or_default() += 1;
    }

    /// Adds another run's counts.
    pub fn add(&mut self, other: &Counters) {
        for (fault, count) in &other.faults {
            *self.faults.entry(*fault).or_default() += count;
        }
        for (corner, count) in &other.corners {
            *self.corners.entry(*corner).or_default() += count;
        }
        for (transition, count) in &other.transitions {
            *self.transitions.entry(*transition).or_default() += count;
        }
        for (answer, count) in &other.answers {
            *self.answers.entry(answer).or_default() += count;
        }
    }

    /// Kinds that never happened, by name.
    pub fn missing(&self) -> Vec<&'static str> {
        let count = |it: &Fault| self.faults.get(it).copied().unwrap_or_default();
        let faults = Fault::ALL.iter().filter(|it| count(it) == 0).map(|it| it.as_str());
        // Only a disk that went back further than the View can tell makes an owner give up what it serves, and
        // what leaves no trace on a node breaks promises then: no seed does that (but `wrong_r2`).
        let steps = Transition::ALL.iter().filter(|it| **it != Transition::GivenUp);
        let steps = steps.filter(|it| !self.transitions.contains_key(it));
        let corners = Corner::ALL.iter().filter(|it| !self.corners.contains_key(it));
        let corners = corners.map(|it| it.as_str());
        faults.chain(steps.map(|it| it.as_str())).chain(corners).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_that_never_happened_is_named() {
        let mut counters = Counters::default();
        for fault in Fault::ALL.iter().skip(1) {
            counters.fault(*fault);
        }
        for transition in Transition::ALL {
            counters.transition(*transition);
        }
        for corner in Corner::ALL {
            counters.corner(*corner);
        }
        assert_eq!(counters.missing(), vec![Fault::ALL[0].as_str()]);
    }
}
