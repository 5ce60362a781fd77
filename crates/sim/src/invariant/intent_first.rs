//! I5: a Create is given only after PENDING(node, token) stands on the disk of the whole ISR of the
//! View under whose `pe` it is given.

use super::{Verdict, Violation};
use crate::ledger::Ledger;
use rota_model::{Epoch, ManagerNumber, SessionKey, Token};

/// Checks one Create of partition `part`.
///
/// # Errors
/// A member of the ISR whose disk never held that attempt.
pub fn check(
    ledger: &Ledger,
    part: ManagerNumber,
    pe: Epoch,
    key: &SessionKey,
    token: Token,
) -> Verdict {
    let Some(entry) = ledger.view(pe).and_then(|view| view.parts.get(&part)) else {
        let text = format!("a Create of {key} under pe {pe}, which partition {part} never had");
        return Err(Violation::new("I5", text));
    };
    for member in &entry.isr {
        if !ledger.disks.tokens.contains(&(member.number, key.clone(), token)) {
            let text = format!(
                "a Create of {key} token {token} under pe {pe}, but the disk of M{} never held it",
                member.number
            );
            return Err(Violation::new("I5", text));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariant::example::{key, token, view};
    use std::sync::Arc;

    #[test]
    fn a_create_before_the_whole_isr_holds_its_intent_is_found() {
        let (a, b) = (ManagerNumber(10), ManagerNumber(20));
        let mut ledger = Ledger::default();
        ledger.views.insert(Epoch(1), Arc::new(view()));
        ledger.disks.tokens.insert((a, key("y"), token(1, 1)));
        let verdict = check(&ledger, a, Epoch(1), &key("y"), token(1, 1));
        assert_eq!(verdict.unwrap_err().rule, "I5");
        ledger.disks.tokens.insert((b, key("y"), token(1, 1)));
        assert_eq!(check(&ledger, a, Epoch(1), &key("y"), token(1, 1)), Ok(()));
    }
}
