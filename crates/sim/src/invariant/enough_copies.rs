//! Nothing new begins with fewer copies than min(r+1, managers that are Up): an owner waits for a copy that
//! can be had, for `copy_deadline`. Who cannot be copied to for so long counts as not Up there.

use super::{Verdict, Violation};
use rota_model::{Epoch, ManagerNumber, SlotId};
use rota_ring::View;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Checks the first record of a life, which an owner writes under `pe`. `begun_us` is when that epoch was
/// written, after which managers may be missed.
///
/// # Errors
/// The partition has fewer copies than it can have, and nobody was waited for.
pub fn check(
    views: &BTreeMap<Epoch, Arc<View>>,
    slot: SlotId,
    pe: Epoch,
    (begun_us, now_us, copy_deadline_us): (u64, u64, u64),
) -> Verdict {
    let Some(view) = views.get(&pe) else { return Ok(()) };
    let (number, part) = view.part_of(slot);
    // The owner goes by one of these.
    let up = views.range(pe..).map(|(_, view)| view.up_count()).min().unwrap_or_default();
    if is_enough(view, part.isr.len(), up) || now_us >= begun_us + copy_deadline_us {
        return Ok(());
    }
    let copies: Vec<ManagerNumber> = part.isr.iter().map(|it| it.number).collect();
    let text = format!(
        "an open begins in partition {number} under pe {pe} with {copies:?} only: {up} managers are Up, \
         and nobody was missed for {copy_deadline_us} us"
    );
    Err(Violation::new("copies", text))
}

/// Whether so many copies are enough in a ring in which so many are Up.
pub fn is_enough(view: &View, copies: usize, up: usize) -> bool {
    copies >= up.min(view.r as usize + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariant::example::view;
    use rota_model::ManagerStatus;

    #[test]
    fn an_open_with_one_copy_where_two_managers_are_up_is_found() {
        let mut both = view();
        both.managers.values_mut().for_each(|it| it.status = ManagerStatus::Active);
        let mut alone = both.clone();
        (alone.epoch, both.epoch) = (Epoch(2), Epoch(1));
        alone.parts.values_mut().for_each(|it| it.isr.truncate(1));
        let mut views = BTreeMap::from([(Epoch(1), Arc::new(both)), (Epoch(2), Arc::new(alone))]);
        let of = |views: &_, pe, now_us| check(views, SlotId(5), Epoch(pe), (100, now_us, 50));
        assert_eq!(of(&views, 1, 120), Ok(()), "both are copies");
        assert_eq!(of(&views, 2, 120).unwrap_err().rule, "copies");
        assert_eq!(of(&views, 2, 150), Ok(()), "the other was waited for");
        let mut down = (*views[&Epoch(2)]).clone();
        down.managers.get_mut(&ManagerNumber(20)).unwrap().status = ManagerStatus::Down;
        views.insert(Epoch(3), Arc::new(down));
        assert_eq!(of(&views, 2, 120), Ok(()), "there is nobody else");
    }
}
