//! Planted bugs of joins: what is done to splits, to copying to a newcomer, and to former copies.

use crate::invariant::member_added;
use crate::mutants::Bug;
use crate::world::World;
use rota_model::ManagerNumber;
use rota_protocol::{DiskWrite, Message};
use rota_ring::{Change, IsrMember, View};

impl World {
    /// A split that keeps the epoch, or gives the arc to the newcomer at once.
    pub(crate) fn spoil_split(&self, change: &mut Change) {
        if let Some((before, view)) = self.store.state().view.as_ref().zip(change.view.as_mut()) {
            spoil_split(self.bug(), before, view);
        }
    }

    /// An addition after which only wanted copies are left.
    pub(crate) fn shed_early(&self, change: &mut Change) {
        if let Some((before, view)) = self.store.state().view.as_ref().zip(change.view.as_mut()) {
            shed_early(before, view);
        }
    }

    /// Removals of documents that a manager does not copy do not reach its disk.
    pub(crate) fn keep_replica(&self, number: ManagerNumber, writes: &mut Vec<DiskWrite>) {
        let Some(view) = &self.store.state().view else { return };
        writes.retain(|write| match write {
            DiskWrite::Doc { key, doc: None } => view.part_of(key.slot).1.has(number),
            DiskWrite::Doc { .. } | DiskWrite::Part { .. } | DiskWrite::Identity(_) => true,
        });
    }

    /// A newcomer's chunks of the arc that was cut out for it are empty.
    pub(crate) fn empty_arc(&self, number: ManagerNumber, message: &mut Message) {
        let joined = self.managers.get(&number).is_some_and(|it| it.joins);
        if let Message::SnapshotChunk { part, chunk } = message
            && joined
            && *part == number
        {
            chunk.docs.clear();
        }
    }
}

/// Where a View adds a copy, only those are left that are wanted, or new.
pub(crate) fn shed_early(before: &View, view: &mut View) {
    for (number, _) in member_added::newcomers(before, view) {
        let (wanted, order) = (before.wanted(number), view.ring_from(number).collect::<Vec<_>>());
        let (was, leaver) = (before.parts.get(&number), before.leaver());
        let Some(part) = view.parts.get_mut(&number) else { continue };
        let is_new = |it| was.is_some_and(|was| !was.has(it));
        let stays = |it| wanted.contains(&it) || is_new(it) || leaver == Some(it);
        part.isr.retain(|it| stays(it.number));
        let first = order.into_iter().find(|it| part.has(*it));
        part.owner = first.unwrap_or(part.owner);
    }
}

/// What such a bug makes of a View that splits a partition.
pub(crate) fn spoil_split(bug: Option<Bug>, before: &View, view: &mut View) {
    let (unfenced, epoch) = (bug == Some(Bug::SplitUnfenced), view.epoch);
    for (number, split) in view.splits.clone().iter().filter(|it| it.1.epoch == epoch) {
        let pe = before.parts.get(&split.from).map(|it| it.pe);
        for half in [number, &split.from] {
            if let (true, Some(part), Some(pe)) = (unfenced, view.parts.get_mut(half), pe) {
                part.pe = pe;
            }
        }
        if let (false, Some(part)) = (unfenced, view.parts.get_mut(number)) {
            part.owner = *number;
            part.isr = vec![IsrMember { number: *number, since: part.pe }];
        }
    }
}
