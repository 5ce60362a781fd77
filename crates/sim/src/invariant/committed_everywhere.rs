//! I2: every committed write is at every member of the ISR, durably.

use super::{Verdict, Violation};
use crate::ledger::Ledger;
use rota_model::{
    Epoch, LogPos, ManagerNumber, SessionKey, SessionRecord, SessionState, SlotId, Token,
};

/// Checks an owner's announcement that everything up to `committed` is committed.
///
/// # Errors
/// A member of the ISR under that `pe` whose disk never held an entry that high.
pub fn check_announced(
    ledger: &Ledger,
    part: ManagerNumber,
    pe: Epoch,
    committed: LogPos,
) -> Verdict {
    let Some(entry) = ledger.view(pe).and_then(|view| view.parts.get(&part)) else { return Ok(()) };
    for member in &entry.isr {
        let last = ledger.disks.last.get(&(member.number, part)).copied().unwrap_or_default();
        if last < committed {
            let text = format!(
                "partition {part} under pe {pe}: {committed} was announced as committed, but the \
                 disk of M{} never went beyond {last}",
                member.number
            );
            return Err(Violation::new("I2", text));
        }
    }
    Ok(())
}

/// Checks an answer that tells a client of a session: its placement, or that it is being closed or
/// ended, are on the disk of every member of the ISR of the View under which the owner answers.
///
/// An answer that is `repeated` says of a life that it has ended since. Where the partition was given up, a
/// copy may know of the answer and of no life: then any disk that ever held that life will do.
///
/// # Errors
/// A member whose disk never held that.
pub fn check_told(
    ledger: &Ledger,
    epoch: Epoch,
    slot: SlotId,
    (record, repeated): (&SessionRecord, bool),
) -> Verdict {
    let of_life = |copy: &(ManagerNumber, SessionKey, Token)| {
        copy.1 == record.key && Some(copy.2) == record.token()
    };
    if repeated && ledger.lost.contains(&slot) && ledger.disks.tokens.iter().any(of_life) {
        return Ok(());
    }
    let Some(view) = ledger.view(epoch) else { return Ok(()) };
    let (part, entry) = view.part_of(slot);
    for member in entry.isr.iter().map(|it| it.number) {
        let newest = ledger.disks.newest.get(&(member, record.key.clone())).copied();
        // A remembered answer may speak of an earlier life, of which a newcomer knows nothing.
        if newest.is_some_and(|newest| newest > record.life) {
            continue;
        }
        let attempt = record.token().map(|token| (member, record.key.clone(), token));
        let life = || (member, record.key.clone(), record.life);
        let holds = if record.state.is_ended() {
            ledger.disks.ended.contains(&life())
        } else if record.state == SessionState::Closing {
            ledger.disks.closing.contains(&life())
        } else {
            attempt.is_none_or(|it| ledger.disks.tokens.contains(&it))
        };
        if !holds {
            let text = format!(
                "the owner of partition {part} answers in epoch {epoch} that {} is {} under {:?}; \
                 the disk of M{member} never held that",
                record.key, record.state, record.placement
            );
            return Err(Violation::new("I2", text));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariant::example::{key, life, record, view};
    use rota_model::Seq;
    use std::sync::Arc;

    fn ledger() -> Ledger {
        let mut ledger = Ledger::default();
        ledger.views.insert(Epoch(1), Arc::new(view()));
        ledger
    }

    #[test]
    fn an_announcement_beyond_a_members_disk_is_found() {
        let (a, b) = (ManagerNumber(10), ManagerNumber(20));
        let upto = LogPos::new(Epoch(1), Seq(4));
        let mut ledger = ledger();
        ledger.disks.last.insert((a, a), upto);
        ledger.disks.last.insert((b, a), LogPos::new(Epoch(1), Seq(3)));
        assert_eq!(check_announced(&ledger, a, Epoch(1), upto).unwrap_err().rule, "I2");
        ledger.disks.last.insert((b, a), upto);
        assert_eq!(check_announced(&ledger, a, Epoch(1), upto), Ok(()));
    }

    #[test]
    fn an_answer_that_is_not_at_every_member_is_found() {
        let mut ledger = ledger();
        let told = record("y", life(1), SessionState::Closed);
        let slot = SlotId(5);
        assert_eq!(check_told(&ledger, Epoch(1), slot, (&told, false)).unwrap_err().rule, "I2");
        for member in [ManagerNumber(10), ManagerNumber(20)] {
            assert!(check_told(&ledger, Epoch(1), slot, (&told, false)).is_err());
            ledger.disks.ended.insert((member, key("y"), life(1)));
        }
        assert_eq!(check_told(&ledger, Epoch(1), slot, (&told, false)), Ok(()));
    }

    #[test]
    fn a_repeated_answer_of_a_partition_that_was_given_up_needs_one_disk_that_ever_held_its_life() {
        let mut ledger = ledger();
        let told = record("y", life(1), SessionState::Ready);
        let token = told.token().expect("it runs somewhere");
        let slot = SlotId(5);
        let broken = |ledger: &Ledger, repeated| {
            check_told(ledger, Epoch(1), slot, (&told, repeated)).is_err()
        };
        ledger.lost.insert(slot);
        assert!(broken(&ledger, true), "no disk ever held that life");
        ledger.disks.tokens.insert((ManagerNumber(30), key("y"), token));
        assert!(!broken(&ledger, true));
        assert!(broken(&ledger, false), "an answer about the present needs every copy");
        ledger.lost.clear();
        assert!(broken(&ledger, true), "nothing was given up");
    }
}
