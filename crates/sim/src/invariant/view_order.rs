//! I1, in the config store: every write of the View adds one to the epoch; a partition that changed
//! takes the new epoch as its `pe`, one that did not keeps it.

use super::{Verdict, Violation};
use rota_ring::View;

/// Checks one write of the View.
///
/// # Errors
/// An epoch or `pe` that does not follow the rule.
pub fn check(before: &View, after: &View) -> Verdict {
    let wrong = |text: String| Err(Violation::new("I1", text));
    if let Err(error) = after.check() {
        return wrong(format!("a View was written that is refused: {error}"));
    }
    if after.epoch != before.epoch.next() {
        return wrong(format!("epoch {} was written after {}", after.epoch, before.epoch));
    }
    for (number, part) in &after.parts {
        let Some(was) = before.parts.get(number) else { continue };
        let moved = was.owner != part.owner
            || was.isr != part.isr
            || was.state != part.state
            || before.range(*number) != after.range(*number);
        let fits = if moved { part.pe == after.epoch } else { part.pe >= was.pe };
        if !fits || (!moved && part.pe != was.pe && part.pe != after.epoch) {
            return wrong(format!("partition {number} went from {was:?} to {part:?}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariant::example::view;
    use rota_model::ManagerNumber;

    #[test]
    fn a_change_that_keeps_pe_is_found() {
        let before = view();
        let mut after = before.clone();
        after.epoch = before.epoch.next();
        let part = after.parts.get_mut(&ManagerNumber(10)).unwrap();
        part.isr.retain(|it| it.number == ManagerNumber(10));
        assert_eq!(check(&before, &after).unwrap_err().rule, "I1");
        after.parts.get_mut(&ManagerNumber(10)).unwrap().pe = after.epoch;
        assert_eq!(check(&before, &after), Ok(()));
    }

    #[test]
    fn an_epoch_that_jumps_is_found() {
        let before = view();
        let mut after = before.clone();
        after.epoch.0 += 2;
        assert!(check(&before, &after).is_err());
    }
}
