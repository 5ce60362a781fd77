//! What may happen in one search, and how often.

use super::left::Left;
use rota_model::{ClusterName, ManagerNumber};
use rota_protocol::{Sizes, Timing};
use rota_ring::RingShape;

/// One search.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// Its name in reports: it says what the bounds are.
    pub name: &'static str,
    /// Numbers in the ring at the start.
    pub numbers: &'static [u32],
    /// Successors with copies.
    pub r: u32,
    /// Numbers that may join.
    pub newcomers: &'static [u32],
    /// How many nodes there are.
    pub nodes: usize,
    /// Places of each.
    pub places: u32,
    /// For each session id, the number whose partition it falls into at the start (and, with a
    /// second number, into whose it falls when that number has joined).
    pub ids: &'static [(u32, u32)],
    /// How many of them live at the start.
    pub opened: usize,
    /// Managers that clients ask.
    pub doors: &'static [u32],
    /// Managers that are asked for reads.
    pub readers: &'static [u32],
    /// The only manager that takes others for gone that run, if it is one.
    pub accuser: u32,
    /// The only manager whose process dies, if it is one.
    pub mortal: u32,
    /// Where the search begins.
    pub from: From,
    /// Nobody is a bystander ([`super::room`]).
    pub all_act: bool,
    /// From there on nothing passes between that manager and others. The config store, nodes and clients
    /// it reaches.
    pub cut: u32,
    /// That manager hears no renewal of any node.
    pub deaf: u32,
    /// What may happen.
    pub left: Left,
    /// Which number is ordered to leave, if one is.
    pub leaver: u32,
    /// Whether a disk's write and its end are two steps.
    pub disk_apart: bool,
    /// Times.
    pub times: Times,
    /// Whether a healed cluster must converge and serve from every quiet state.
    pub lives: bool,
    /// What must come about in it, by name of the transition, after as many crashes, suspicions and beginnings of
    /// joins as may happen: a search without it says nothing of what it is named for.
    pub shows: &'static [&'static str],
    /// Most states: a search that reaches them says that it did not exhaust its bounds.
    pub states_max: usize,
}

/// Where a search begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum From {
    /// At rest.
    Rest,
    /// The first number of [`Bounds::newcomers`] has joined so far that a compare-and-set is under way
    /// which adds it to the copies of a partition in which something of the model lies. Whatever led
    /// there came in a fair order.
    Adding,
    /// The same, and that is done. The owner that asked for it has not heard.
    Added,
    /// The first node was cut off, and with the next step of the clocks it ends what it runs.
    LeaseEnds,
    /// The first node was cut off, has ended what it ran, and is LOST with the next step of the clocks.
    Losing,
    /// The owner of the first node's slot has heard nothing of it for long, while others do: with the next step of the clocks
    /// it declares that node LOST.
    DeclaredLost,
    /// The first id was closed, and its tombstone goes with the next step of the clocks.
    Ended,
    /// The last number was taken for gone and is up again, and nothing of what owners sent it since arrived:
    /// with the next step of the clocks they wait for its copy no longer.
    Missed,
}

/// Which times matter. A step of the clocks is [`STEP_MS`]: whatever waits for less than that is due
/// at each step, whatever waits for longer after a known number of steps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Times {
    /// Only repetitions: nobody is suspected for silence, and no lease ends.
    Repeat,
    /// Repetitions, and who has begun to copy and is not wanted drops that: four steps.
    Abandon,
    /// Repetitions, `copy_deadline` and `repair_after`: one step.
    Copies,
    /// Repetitions and leases: politely after two steps, killed after three, LOST after five.
    Lease,
    /// Repetitions, and tombstones: three steps.
    Tombstone,
}

/// A step of the clocks, in milliseconds.
pub const STEP_MS: u64 = 1_000;

/// Longer than any search lasts, in milliseconds.
const NEVER_MS: u64 = 1_000_000_000;

/// What becomes of messages that come too late.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Late {
    /// They stay under way, like others.
    Stays,
    /// They go at once.
    Goes,
    /// They stay, and none of them may come to matter.
    Watched,
}

impl Bounds {
    /// What managers are told of times.
    pub fn timing(&self) -> Timing {
        let all = Timing {
            heartbeat_ms: STEP_MS,
            suspect_ms: NEVER_MS,
            resend_ms: 1,
            node_resend_ms: 1,
            create_deadline_ms: NEVER_MS,
            copy_deadline_ms: NEVER_MS,
            repair_ms: NEVER_MS,
            abandon_ms: NEVER_MS,
            join_ms: NEVER_MS,
            recover_after_ms: STEP_MS,
            renew_ms: NEVER_MS,
            lease_term_ms: 3 * NEVER_MS,
            lease_kill_ms: 4 * NEVER_MS,
            node_lost_ms: 6 * NEVER_MS,
            tombstone_ms: 10 * NEVER_MS,
            provision_ms: NEVER_MS,
            request_ms: NEVER_MS,
            retry_ms: 1,
        };
        match self.times {
            Times::Repeat => all,
            Times::Abandon => Timing { abandon_ms: 4 * STEP_MS, ..all },
            Times::Copies => Timing { copy_deadline_ms: STEP_MS, repair_ms: STEP_MS, ..all },
            Times::Lease => Timing {
                renew_ms: STEP_MS - 1,
                lease_term_ms: 2 * STEP_MS,
                lease_kill_ms: 3 * STEP_MS,
                node_lost_ms: 5 * STEP_MS,
                ..all
            },
            Times::Tombstone => {
                Timing { create_deadline_ms: 2 * STEP_MS, tombstone_ms: 3 * STEP_MS, ..all }
            }
        }
    }

    /// Whether a manager may take another one for gone that runs.
    pub fn may_accuse(&self, number: ManagerNumber) -> bool {
        [number.0, u32::MAX].contains(&self.accuser)
    }

    /// Whether a manager's process may die.
    pub fn may_die(&self, number: ManagerNumber) -> bool {
        [number.0, u32::MAX].contains(&self.mortal)
    }

    /// What managers are told of sizes.
    pub fn sizes(&self) -> Sizes {
        Sizes::default()
    }

    /// Slots of the ring.
    pub fn slots(&self) -> u32 {
        64
    }

    /// What the ring never changes.
    pub fn ring(&self) -> RingShape {
        let cluster = ClusterName::parse("model").expect("a short name");
        RingShape { cluster, m: self.slots(), r: self.r }
    }
}
