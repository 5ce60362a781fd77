//! Planted bugs of leaves: what is done to the compare-and-sets by which partitions are handed on.

use crate::mutants::bug::Bug;
use crate::packet::Packet;
use crate::site::AtManager;
use rota_model::ManagerNumber;
use rota_protocol::DiskWrite;
use rota_ring::{Change, IsrMember, View};

/// A View in which who leaves is no copy of a partition any more, and the next one owns it.
fn without_leaver(view: &View, number: ManagerNumber) -> Option<View> {
    let leaver = view.leaver()?;
    let mut next = view.clone();
    next.epoch = view.epoch.next();
    let epoch = next.epoch;
    let order: Vec<ManagerNumber> = view.ring_from(number).collect();
    let part = next.parts.get_mut(&number).filter(|it| it.has(leaver))?;
    part.isr.retain(|it| it.number != leaver);
    part.owner = order.into_iter().find(|it| part.has(*it))?;
    part.pe = epoch;
    Some(next)
}

/// Who leaves gives a write to its disk: as the owner of a partition it lets itself go, before the
/// others have the copies, or while they lack that write.
pub(crate) fn release_early(at: &mut AtManager<'_>, writes: &[DiskWrite]) {
    let Some(view) = at.store.state().view.clone() else { return };
    if view.leaver() != Some(at.number) {
        return;
    }
    let written = |part: &ManagerNumber| {
        writes.iter().any(|write| match write {
            DiskWrite::Doc { key, .. } => view.home(key.slot) == *part,
            DiskWrite::Part { .. } | DiskWrite::Identity(_) => false,
        })
    };
    let complete = at.bug() == Some(Bug::ReleasedUnwedged);
    let owned = view.parts.iter().filter(|(_, part)| part.owner == at.number);
    let mut owned = owned.map(|(part, _)| *part);
    let early = owned.find(|it| written(it) && view.may_release(*it) == complete);
    if let Some(next) = early.and_then(|it| without_leaver(&view, it)) {
        let (generation, change) = (at.host.run, Box::new(Change::view(next)));
        // The manager waits for no answer to it.
        at.send_later(0, Packet::Cas { cas: u64::MAX, generation, change });
    }
}

/// A View in which who leaves hands its partitions to managers that are no copies.
pub(crate) fn hand_to_stranger(before: &View, view: &mut View) {
    let Some(leaver) = before.leaver().filter(|it| view.leaver() == Some(*it)) else { return };
    for (number, was) in before.parts.iter().filter(|(_, part)| part.owner == leaver) {
        let up = before.ring_from(*number).filter(|it| before.is_up(*it));
        let stranger = up.into_iter().find(|it| !was.has(*it));
        let Some(part) = view.parts.get_mut(number).filter(|it| !it.has(leaver)) else {
            continue;
        };
        if let Some(stranger) = stranger {
            part.owner = stranger;
            part.isr = vec![IsrMember { number: stranger, since: was.pe }];
        }
    }
}
