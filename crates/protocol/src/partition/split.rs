//! The partitions are cut in two when the View says so.

use crate::log::env::Env;
use crate::log::requests::Asked;
use crate::log::resident::Resident;
use crate::partition::partitions::Partitions;
use crate::partition::state::{Leader, Partition};
use crate::ports::slots::slot_of_request;
use rota_model::{Epoch, ManagerNumber};
use rota_ring::{PartitionState, View};
use std::collections::BTreeSet;

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

impl Partitions {
    /// Cuts out the partitions that a View has and this manager has not, where it holds what they
    /// come from. Before anything of that View is taken up.
    pub(crate) fn cut_arcs(&mut self, env: &mut Env, view: &View) {
        let known: BTreeSet<ManagerNumber> = self.all().map(|it| it.log.number).collect();
        for number in view.splits.keys().filter(|it| !known.contains(it)) {
            let Some((from, epoch)) = held_in(view, *number, &known) else { continue };
            let Some(part) = self.get_mut(&from) else { continue };
            // Who saw a later epoch of the other half has the record of this one, or never held it.
            // That very epoch may be what a claim meant to take before somebody else's change took it.
            if part.log.replica.pe > epoch {
                continue;
            }
            let mut taken = part.cut(*number, view.range(*number));
            taken.log.persist_meta(env);
            part.log.persist_meta(env);
            self.insert(taken);
            env.note(crate::ports::note::Transition::ArcCut, Some(*number));
        }
    }

    /// Requests that wait at a partition whose arc was cut out wait at the new one from now on, if
    /// this manager is about to lead that: repetitions of them come there. What was appended for them is
    /// in that log, too, and is committed with its first entry.
    pub(crate) fn hand_requests_over(&mut self, me: ManagerNumber, view: &View) {
        let halted = self.all().filter(|it| it.halted.is_some()).map(|it| it.log.number);
        let halted: BTreeSet<ManagerNumber> = halted.collect();
        // Whoever leads already takes what comes there. What a former home asks for on its own account stays with that.
        let leading = |part: &Partition| {
            let pe = part.leader()?.lead.pe;
            let entry = view.parts.get(&part.log.number)?;
            (entry.pe == pe).then_some(part.log.number)
        };
        let leading: BTreeSet<ManagerNumber> = self.all().filter_map(leading).collect();
        let leads = |number: &ManagerNumber| {
            let is_new = |it: &ManagerNumber| !halted.contains(it) && !leading.contains(it);
            let part = view.parts.get(number).filter(|_| is_new(number));
            part.is_some_and(|it| it.owner == me && it.state == PartitionState::Active)
        };
        let home = |asked: &Asked| view.home(slot_of_request(&asked.op, view.m));
        let mut moved = Vec::new();
        for part in self.awake_mut() {
            let number = part.log.number;
            let Some(Leader { inbox, residents, .. }) = part.leader_mut() else { continue };
            let gone = inbox.live.iter().filter(|(_, asked)| {
                let home = home(asked);
                home != number && leads(&home)
            });
            let gone: Vec<_> = gone.map(|(origin, asked)| (*origin, home(asked))).collect();
            for (origin, home) in gone {
                if let Some(asked) = inbox.live.remove(&origin) {
                    residents.forget(&origin);
                    moved.push((home, origin, (asked, inbox.take_pending(origin))));
                }
            }
        }
        for (home, origin, waiting) in moved {
            if let Some(part) = self.get_mut(&home) {
                part.inherited.insert(origin, waiting);
            }
        }
    }
}
