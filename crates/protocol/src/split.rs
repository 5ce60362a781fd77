//! A new number's arc is cut out of the partition that holds it, at every manager for itself when it
//! adopts the View that says so.
//!
//! ```text
//!  before:  |-------------- partition 30 --------------|
//!  after:   |-- partition 20 --|----- partition 30 ----|   the same positions, each its own writes
//! ```
//! Nothing moves on disk, since documents are kept by slot: the new partition's record is written,
//! and from then on a restart counts its documents there. A disk that never heard of it holds them
//! under the other one's name; the View says of which ([`rota_ring::Split`]).
//!
//! Both halves keep the log's positions and begin a new epoch, so Sync goes on from them as after any
//! change of owner. The owner asks for the split while its log is at rest (as when members are
//! added), so no entry is ever committed in one half and lost in the other.

use crate::entry::{Asked, slot_of};
use crate::manager::Manager;
use crate::operate::room::fills;
use crate::partition::Partition;
use crate::replica::Replica;
use rota_messages::{DocKey, Entry, Write};
use rota_model::node_msg::SlotRange;
use rota_model::{Epoch, ManagerNumber};
use rota_ring::{PartState, View};
use std::collections::{BTreeSet, VecDeque};

/// Takes the writes of `arc` out of entries; each keeps its place in both logs.
fn cut_entries(entries: &mut VecDeque<Entry>, arc: SlotRange) -> (VecDeque<Entry>, usize) {
    let mut bytes = 0;
    let mut taken = VecDeque::with_capacity(entries.len());
    for entry in entries {
        let (inside, outside): (Vec<Write>, Vec<Write>) =
            entry.writes.iter().cloned().partition(|write| arc.contains(write.key.slot));
        let (at, request) = (entry.at, entry.request.clone());
        *entry = Entry::new(at, outside, request.clone());
        taken.push_back(Entry::new(at, inside, request));
        bytes += taken.back().map_or(0, Entry::bytes);
    }
    (taken, bytes)
}

impl Replica {
    /// Takes out the copy of an arc: its documents, and its part of the log.
    pub fn cut(&mut self, arc: SlotRange) -> Replica {
        let (window, window_bytes) = cut_entries(&mut self.window, arc);
        let (tail, tail_bytes) = cut_entries(&mut self.tail, arc);
        self.window_bytes = self.window.iter().map(Entry::bytes).sum();
        self.tail_bytes = self.tail.iter().map(Entry::bytes).sum();
        self.tail_fills = self.tail.iter().map(fills).sum();
        let tail_fills = tail.iter().map(fills).sum();
        let mut taken = Replica {
            pe: self.pe,
            high_water: self.high_water,
            settled_water: self.settled_water,
            base: self.base,
            window,
            window_bytes,
            tail,
            tail_bytes,
            tail_fills,
            last: self.last,
            committed: self.committed,
            durable: self.durable,
            whole: self.whole,
            ..Replica::default()
        };
        let is_inside = |key: &&DocKey| arc.contains(key.slot);
        let keys: Vec<DocKey> = self.docs.keys().filter(is_inside).cloned().collect();
        for key in keys {
            let doc = self.docs.get(&key).cloned();
            self.set(&key, None);
            taken.set(&key, doc);
        }
        let keys: Vec<DocKey> = self.latest.keys().filter(is_inside).cloned().collect();
        for key in keys {
            if let Some(latest) = self.latest.remove(&key) {
                taken.latest.insert(key, latest);
            }
        }
        taken
    }
}

impl Partition {
    /// Takes out the partition of an arc.
    fn cut(&mut self, number: ManagerNumber, arc: SlotRange) -> Partition {
        let replica = self.replica.cut(arc);
        let mut taken = Partition::new(number, arc);
        taken.replica = replica;
        taken.durable_due = self.durable_due.clone();
        taken.settled = self.settled.clone();
        taken
    }
}

impl Manager {
    /// Cuts out the partitions that a View has and this manager has not, where it holds what they
    /// come from. Before anything of that View is taken up.
    pub(crate) fn cut_arcs(&mut self, view: &View) {
        let known: BTreeSet<ManagerNumber> = self.parts.all().map(|it| it.number).collect();
        for number in view.splits.keys().filter(|it| !known.contains(it)) {
            let Some((from, epoch)) = held_in(view, *number, &known) else { continue };
            let Some(part) = self.parts.get_mut(&from) else { continue };
            // Who saw a later epoch of the other half has the record of this one, or never held it.
            // That very epoch may be what a claim meant to take before somebody else's change took it.
            if part.replica.pe > epoch {
                continue;
            }
            let mut taken = part.cut(*number, view.range(*number));
            taken.persist_meta(&mut self.env);
            part.persist_meta(&mut self.env);
            self.parts.insert(taken);
            self.env.note(crate::Transition::ArcCut, Some(*number));
        }
    }

    /// Requests that wait at a partition whose arc was cut out wait at the new one from now on, if
    /// this manager is about to lead that: repetitions of them come there. What was appended for them is
    /// in that log, too, and is committed with its first entry.
    pub(crate) fn hand_requests_over(&mut self, view: &View) {
        let me = self.env.me.number;
        let halted = self.parts.all().filter(|it| it.halted.is_some()).map(|it| it.number);
        let halted: BTreeSet<ManagerNumber> = halted.collect();
        let leads = |number: &ManagerNumber| {
            let part = view.parts.get(number).filter(|_| !halted.contains(number));
            part.is_some_and(|it| it.owner == me && it.state == PartState::Active)
        };
        let home = |asked: &Asked| view.home(slot_of(&asked.op, view.m));
        let mut moved = Vec::new();
        for part in self.parts.awake_mut() {
            let Some(leading) = &mut part.leading else { continue };
            let gone = leading.live.iter().filter(|(_, asked)| {
                let home = home(asked);
                home != part.number && leads(&home)
            });
            let gone: Vec<_> = gone.map(|(origin, asked)| (*origin, home(asked))).collect();
            for (origin, home) in gone {
                if let Some(asked) = leading.live.remove(&origin) {
                    moved.push((home, origin, (asked, leading.take_promise(origin))));
                }
            }
        }
        for (home, origin, waiting) in moved {
            if let Some(part) = self.parts.get_mut(&home) {
                part.inherited.insert(origin, waiting);
            }
        }
    }
}

/// The known partition that holds a new one's documents, and the epoch up to which it does.
fn held_in(
    view: &View,
    number: ManagerNumber,
    known: &BTreeSet<ManagerNumber>,
) -> Option<(ManagerNumber, Epoch)> {
    let mut at = view.splits.get(&number)?;
    // Each came after the one that it was cut out of, so this ends.
    while !known.contains(&at.from) {
        at = view.splits.get(&at.from).filter(|it| it.epoch < at.epoch)?;
    }
    Some((at.from, at.epoch))
}
