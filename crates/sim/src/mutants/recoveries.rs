//! Planted bugs of partitions that are found again: what is done to the compare-and-sets by which they are
//! given up, and to the scans of nodes.

use crate::mutants::bug::Bug;
use crate::mutants::nodes::head_mut;
use crate::site::AtManager;
use rota_model::node_msg::ToNode;
use rota_model::{Epoch, ManagerNumber, SlotId};
use rota_ring::{ConfigState, PartitionState, View};
use std::sync::Arc;

/// A manager's process has just died. Its disk goes back to the crash before in those partitions
/// for which it is then older than its membership: by R2 no claim may take them over from it.
pub(crate) fn on_crash(at: &mut AtManager<'_>) {
    if at.bug() != Some(Bug::WrongR2) {
        return;
    }
    let (number, host) = (at.number, &mut *at.host);
    let now = host.disk.durable().clone();
    let Some(old) = host.past.at_crash.replace(now.clone()) else { return };
    let Some(view) = &at.store.state().view else { return };
    let too_old = |part: &ManagerNumber| {
        let (was, entry) = (old.parts.get(part), view.parts.get(part));
        let mine = entry.and_then(|it| it.isr.iter().find(|it| it.number == number));
        was.zip(mine).is_some_and(|(was, mine)| was.pe < mine.since)
    };
    let of = |slot| rota_ring::place::home(&view.parts, slot).filter(&too_old);
    let mut back = now;
    back.docs.retain(|key, _| of(key.slot).is_none());
    let docs = old.docs.iter().filter(|(key, _)| of(key.slot).is_some());
    back.docs.extend(docs.map(|(key, doc)| (key.clone(), doc.clone())));
    let parts = old.parts.iter().filter(|(part, _)| too_old(part));
    back.parts.extend(parts.map(|(part, meta)| (*part, *meta)));
    host.disk.replace(back);
}

/// A manager that is about to claim its number compares its disk with a View that says that it has
/// been a member since then: since ever, and every disk is new enough; or since never, and none is.
pub(crate) fn alter_since(at: &AtManager<'_>, state: &mut ConfigState, since: Epoch) {
    let (number, claims) = (at.number, at.host.process.as_ref());
    let Some(view) = state.view.as_mut().filter(|_| claims.is_some_and(|it| !it.is_claimed()))
    else {
        return;
    };
    let ran = view.managers.get(&number).is_some_and(|it| it.incarnation.0 > 0);
    for part in Arc::make_mut(view).parts.values_mut().filter(|_| ran) {
        for member in part.isr.iter_mut().filter(|it| it.number == number) {
            member.since = since;
        }
    }
}

/// A View that gives partitions up has them active instead.
pub(crate) fn skip_recovery(before: &View, view: &mut View) {
    for number in crate::invariant::given_up::newly(before, view) {
        if let Some(part) = view.parts.get_mut(&number) {
            (part.state, part.loss) = (PartitionState::Active, None);
        }
    }
}

/// A scan raises no fence: it comes under the highest epoch that the node obeys there already.
pub(crate) fn lower_epoch(message: &mut ToNode, m: u32, fence: impl Fn(SlotId) -> Epoch) {
    let range = message.head().range;
    let known = (0..m).map(SlotId).filter(|it| range.contains(*it)).map(fence).max();
    let head = head_mut(message);
    head.pe = known.unwrap_or(head.pe).min(head.pe);
}
