//! Planted bugs of joins: what is done to splits, to copying to a newcomer, and to former copies.

use crate::invariant::member_added;
use crate::mutants::bug::Bug;
use crate::site::AtManager;
use rota_protocol::{DiskWrite, Message};
use rota_ring::{IsrMember, View};

/// Removals of documents that a manager does not copy do not reach its disk.
pub(crate) fn keep_replica(at: &AtManager<'_>, writes: &mut Vec<DiskWrite>) {
    let Some(view) = &at.store.state().view else { return };
    writes.retain(|write| match write {
        DiskWrite::Doc { key, doc: None } => view.part_of(key.slot).1.has(at.number),
        DiskWrite::Doc { .. } | DiskWrite::Part { .. } | DiskWrite::Identity(_) => true,
    });
}

/// A newcomer's chunks of the arc that was cut out for it are empty.
pub(crate) fn empty_arc(at: &AtManager<'_>, message: &mut Message) {
    if let Message::SnapshotChunk { part, chunk } = message
        && at.host.joins
        && *part == at.number
    {
        chunk.docs.clear();
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

/// A split that keeps the epoch, or gives the arc to the newcomer at once.
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
