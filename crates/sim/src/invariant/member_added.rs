//! I3: members are added only by the owner, wedged, after the newcomer holds the last entry that
//! the owner prepared, and for the run that acknowledged it.

use super::{Verdict, Violation};
use rota_model::{LogPos, ManagerNumber};
use rota_protocol::PartitionMeta;
use rota_ring::{PartitionState, View};

/// What the observer knows of an addition at the moment of its compare-and-set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Addition {
    /// Who wrote it.
    pub author: ManagerNumber,
    /// The partition.
    pub part: ManagerNumber,
    /// The newcomer.
    pub newcomer: ManagerNumber,
    /// The last entry that the owner gave to its own disk.
    pub owner_last: LogPos,
    /// What stands on the newcomer's disk.
    pub newcomer_meta: Option<PartitionMeta>,
}

/// Newcomers of a write of the View: partition and manager.
pub fn newcomers(before: &View, after: &View) -> Vec<(ManagerNumber, ManagerNumber)> {
    let mut list = Vec::new();
    for (number, part) in &after.parts {
        let Some(was) = before.parts.get(number) else { continue };
        // Who is to find it again holds what it holds.
        if part.state == PartitionState::Recovering {
            continue;
        }
        let new = part.isr.iter().filter(|it| !was.has(it.number));
        list.extend(new.map(|it| (*number, it.number)));
    }
    list
}

/// Checks one addition.
///
/// # Errors
/// It was not the owner's, or the newcomer's disk does not hold everything.
pub fn check(before: &View, addition: &Addition) -> Verdict {
    let owner = before.parts.get(&addition.part).map(|it| it.owner);
    let holds = addition.newcomer_meta.is_some_and(|it| it.whole && it.last >= addition.owner_last);
    if owner == Some(addition.author) && holds {
        return Ok(());
    }
    Err(Violation::new("I3", format!("owner {owner:?}: {addition:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariant::example::view;
    use rota_model::{Epoch, Seq};

    #[test]
    fn a_newcomer_that_lacks_the_last_entry_is_found() {
        let before = view();
        let last = LogPos::new(Epoch(1), Seq(7));
        let mut addition = Addition {
            author: ManagerNumber(10),
            part: ManagerNumber(10),
            newcomer: ManagerNumber(20),
            owner_last: last,
            newcomer_meta: Some(PartitionMeta {
                pe: Epoch(1),
                last,
                whole: true,
                ..PartitionMeta::default()
            }),
        };
        assert_eq!(check(&before, &addition), Ok(()));
        addition.owner_last.seq = Seq(8);
        assert_eq!(check(&before, &addition).unwrap_err().rule, "I3");
        addition.owner_last.seq = Seq(7);
        addition.newcomer_meta =
            Some(PartitionMeta { pe: Epoch(1), last, whole: false, ..PartitionMeta::default() });
        assert!(check(&before, &addition).is_err());
    }

    #[test]
    fn an_addition_by_another_than_the_owner_is_found() {
        let last = LogPos::ZERO;
        let newcomer_meta =
            Some(PartitionMeta { pe: Epoch(1), last, whole: true, ..PartitionMeta::default() });
        let (author, part) = (ManagerNumber(20), ManagerNumber(10));
        let addition = Addition { author, part, newcomer: author, owner_last: last, newcomer_meta };
        assert!(check(&view(), &addition).is_err());
    }
}
