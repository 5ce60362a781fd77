//! S4 and I1: whoever acts or answers as owner of a partition under an epoch is the one owner that
//! the View of that epoch names.

use super::{Verdict, Violation};
use rota_model::{Epoch, ManagerNumber, SlotId};
use rota_ring::View;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Checks that `who` may act as owner of `part` under `pe`.
///
/// # Errors
/// The View of that epoch names another owner, or there was no such epoch of that partition.
pub fn check_act(
    views: &BTreeMap<Epoch, Arc<View>>,
    who: ManagerNumber,
    part: ManagerNumber,
    pe: Epoch,
    what: &str,
) -> Verdict {
    let entry = views.get(&pe).and_then(|view| view.parts.get(&part));
    if entry.is_some_and(|it| it.pe == pe && it.owner == who) {
        return Ok(());
    }
    let text = format!("M{who} sends {what} as owner of partition {part} under pe {pe}: {entry:?}");
    Err(Violation::new("S4/I1", text))
}

/// Checks that `who` may answer as owner of `slot` under a View.
///
/// # Errors
/// That View names another owner.
pub fn check_answer(
    views: &BTreeMap<Epoch, Arc<View>>,
    who: ManagerNumber,
    slot: SlotId,
    epoch: Epoch,
) -> Verdict {
    let owner = views.get(&epoch).map(|view| view.owner_of(slot));
    if owner == Some(who) {
        return Ok(());
    }
    let text =
        format!("M{who} answers as owner of slot {slot} in epoch {epoch}, owned by {owner:?}");
    Err(Violation::new("S4/I1", text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariant::example::view;

    #[test]
    fn a_second_owner_of_one_epoch_is_found() {
        let views = BTreeMap::from([(Epoch(1), Arc::new(view()))]);
        let (a, b) = (ManagerNumber(10), ManagerNumber(20));
        assert_eq!(check_act(&views, a, a, Epoch(1), "prepare"), Ok(()));
        assert_eq!(check_act(&views, b, a, Epoch(1), "prepare").unwrap_err().rule, "S4/I1");
        assert!(check_act(&views, a, a, Epoch(2), "prepare").is_err());
        assert_eq!(check_answer(&views, a, SlotId(5), Epoch(1)), Ok(()));
        assert!(check_answer(&views, b, SlotId(5), Epoch(1)).is_err());
    }
}
