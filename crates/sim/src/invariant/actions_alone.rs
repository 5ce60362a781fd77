//! Actions of sessions: one of a session runs at a time, beside its program; none is asked for once it is committed that
//! its session has ended, that its event has fired, or that it was taken back; and what life cycles call fired has run.

use super::{Verdict, Violation};
use crate::ledger::{Ledger, Ran};
use rota_model::{Epoch, ManagerNumber, SessionKey, SlotId, Stamp};

/// Checks the start of an action.
///
/// # Errors
/// Another action of the session runs there, or the session does not.
pub fn check_start(ledger: &Ledger, ran: &Ran) -> Verdict {
    let is_there = |it: &&Ran| (&it.node, it.boot, &it.key) == (&ran.node, ran.boot, &ran.key);
    let other = ledger.actions.ran.iter().filter(is_there).find(|it| it.to_us.is_none());
    if let Some(other) = other {
        let text = format!("{ran:?} begins beside {other:?}");
        return Err(Violation::new("action", text));
    }
    let runs = ledger.instances.iter().any(|instance| {
        (&instance.node, instance.boot, instance.token) == (&ran.node, ran.boot, ran.token)
            && instance.to.is_none()
    });
    if !runs {
        let text = format!("{ran:?} begins, and its session does not run");
        return Err(Violation::new("action", text));
    }
    Ok(())
}

/// Checks that an owner asks for an action.
///
/// # Errors
/// Every member of the ISR knows that this life is being closed, or has ended, or that the event has fired, or was taken
/// back. In a partition that was given up a life may be found again, and its close and what had happened to its events
/// not.
pub fn check_asked(
    ledger: &Ledger,
    (part, pe): (ManagerNumber, Epoch),
    (key, slot): (&SessionKey, SlotId),
    (life, word): (Stamp, &str),
) -> Verdict {
    let Some(entry) = ledger.view(pe).and_then(|view| view.parts.get(&part)) else {
        let text = format!("an action of {key} under pe {pe}, which partition {part} never had");
        return Err(Violation::new("action", text));
    };
    let knows = |number| ledger.disks.closing.contains(&(number, key.clone(), life));
    let may_forget = ledger.lost.contains(&slot);
    if !may_forget && entry.isr.iter().all(|member| knows(member.number)) {
        let text =
            format!("an action of {key} is asked for under pe {pe}, and life {life} is over");
        return Err(Violation::new("action", text));
    }
    let origin = ledger.origin_of(key, life).filter(|_| !may_forget);
    let is_gone = |origin| {
        let gone = |number| ledger.disks.gone_events.is_gone(number, (key, origin), word);
        entry.isr.iter().all(|member| gone(member.number))
    };
    if origin.is_some_and(is_gone) {
        let text = format!(
            "the action of {word} of {key} is asked for under pe {pe}, and it has fired or was taken back"
        );
        return Err(Violation::new("action", text));
    }
    Ok(())
}

/// Checks at the end what life cycles call fired.
///
/// # Errors
/// An event whose action succeeded nowhere.
pub fn check(ledger: &Ledger) -> Verdict {
    for fired in &ledger.actions.fired {
        let is_it = |it: &&Ran| (&it.key, &it.word) == (&fired.key, &fired.word) && it.is_done;
        if !ledger.actions.ran.iter().any(|it| is_it(&it)) {
            return Err(Violation::new("action", format!("{fired:?} says so, and never ran")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariant::example::{instance, key, life, token, view};
    use crate::ledger::Fired;
    use crate::life::LifeFacts;
    use std::sync::Arc;

    fn ran(from_us: u64, to_us: Option<u64>) -> Ran {
        let running = instance("y", "n0", token(1, 1), 5, None);
        Ran {
            key: key("y"),
            token: token(1, 1),
            index: 0,
            node: running.node,
            boot: running.boot,
            word: "a@270115080003000".to_owned(),
            from_us,
            to_us,
            is_done: to_us.is_some(),
        }
    }

    #[test]
    fn an_action_beside_another_one_or_without_its_session_is_found() {
        let mut ledger = Ledger::default();
        assert_eq!(check_start(&ledger, &ran(7, None)).unwrap_err().rule, "action");
        ledger.instances.push(instance("y", "n0", token(1, 1), 5, None));
        assert_eq!(check_start(&ledger, &ran(7, None)), Ok(()));
        ledger.actions.ran.push(ran(7, None));
        assert_eq!(check_start(&ledger, &ran(8, None)).unwrap_err().rule, "action");
    }

    #[test]
    fn an_action_of_a_life_whose_end_is_committed_is_found() {
        let (a, b) = (ManagerNumber(10), ManagerNumber(20));
        let mut ledger = Ledger::default();
        ledger.views.insert(Epoch(1), Arc::new(view()));
        ledger.disks.closing.insert((a, key("y"), life(1)));
        let of = (&key("y"), SlotId(5));
        assert_eq!(check_asked(&ledger, (a, Epoch(1)), of, (life(1), "a@1")), Ok(()));
        ledger.disks.closing.insert((b, key("y"), life(1)));
        let verdict = check_asked(&ledger, (a, Epoch(1)), of, (life(1), "a@1"));
        assert_eq!(verdict.unwrap_err().rule, "action");
        ledger.lost.insert(SlotId(5));
        let verdict = check_asked(&ledger, (a, Epoch(1)), of, (life(1), "a@1"));
        assert_eq!(verdict, Ok(()), "the partition forgot the close");
    }

    #[test]
    fn an_action_of_an_event_that_fired_or_was_taken_back_is_found() {
        let (a, b) = (ManagerNumber(10), ManagerNumber(20));
        let mut ledger = Ledger::default();
        ledger.views.insert(Epoch(1), Arc::new(view()));
        let mut facts = LifeFacts::new(0);
        facts.origin = Some(life(1));
        ledger.lives.entry(key("y")).or_default().insert(life(2), facts);
        let slot = SlotId(5);
        let asked = |ledger: &Ledger, word| {
            check_asked(ledger, (a, Epoch(1)), (&key("y"), slot), (life(2), word))
        };
        ledger.disks.gone_events.insert(a, (&key("y"), life(1)), "a@1");
        assert_eq!(asked(&ledger, "a@1"), Ok(()), "a copy may not know it");
        ledger.disks.gone_events.insert(b, (&key("y"), life(1)), "a@1");
        assert_eq!(asked(&ledger, "a@1").unwrap_err().rule, "action");
        assert_eq!(asked(&ledger, "b@1"), Ok(()));
        ledger.lost.insert(slot);
        assert_eq!(asked(&ledger, "a@1"), Ok(()), "the partition forgot it");
    }

    #[test]
    fn an_event_that_is_called_fired_and_never_ran_is_found() {
        let fired = Fired { key: key("y"), word: "a@270115080003000".to_owned() };
        let mut ledger = Ledger::default();
        ledger.actions.fired.push(fired);
        assert_eq!(check(&ledger).unwrap_err().rule, "action");
        ledger.actions.ran.push(ran(7, Some(9)));
        assert_eq!(check(&ledger), Ok(()));
    }
}
