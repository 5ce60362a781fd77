//! I7: a node never runs a dead token, never runs one twice, and never obeys below its fence.

use super::{Verdict, Violation};
use rota_model::node_msg::SlotRange;
use rota_model::{BootId, Epoch, NodeId, SessionKey, SlotId, Token};
use std::collections::{BTreeMap, BTreeSet};

/// One boot of a node.
pub type Boot = (NodeId, BootId);

/// What every boot of every node did.
#[derive(Clone, Debug, Default)]
pub struct NodeObeys {
    obeyed: BTreeMap<Boot, BTreeMap<SlotId, Epoch>>,
    dead: BTreeSet<(Boot, SessionKey, Token)>,
    started: BTreeSet<(Boot, SessionKey, Token)>,
}

impl NodeObeys {
    /// The boot obeyed somebody for these slots (or was told its first fences).
    pub fn raise(&mut self, boot: &Boot, range: SlotRange, m: u32, pe: Epoch) {
        let slots = self.obeyed.entry(boot.clone()).or_default();
        for (first, last) in range.intervals(m) {
            for slot in first.0..=last.0 {
                let known = slots.entry(SlotId(slot)).or_default();
                *known = (*known).max(pe);
            }
        }
    }

    /// The highest epoch that the boot obeyed for a slot.
    pub fn floor(&self, boot: &Boot, slot: SlotId) -> Epoch {
        self.obeyed.get(boot).and_then(|it| it.get(&slot)).copied().unwrap_or_default()
    }

    /// The boot obeys a call that arrived when `floor` was the highest epoch obeyed for its slot.
    ///
    /// # Errors
    /// The call's epoch is lower.
    pub fn check_obeyed(boot: &Boot, slot: SlotId, pe: Epoch, floor: Epoch) -> Verdict {
        if pe >= floor {
            return Ok(());
        }
        let text = format!("{boot:?} obeys pe {pe} for slot {slot} after it obeyed {floor}");
        Err(Violation::new("I7", text))
    }

    /// The boot said that a token is dead.
    pub fn on_dead(&mut self, boot: &Boot, key: &SessionKey, token: Token) {
        self.dead.insert((boot.clone(), key.clone(), token));
    }

    /// The boot starts a token.
    ///
    /// # Errors
    /// It said that it is dead, or started it before.
    pub fn on_start(&mut self, boot: &Boot, key: &SessionKey, token: Token) -> Verdict {
        let name = (boot.clone(), key.clone(), token);
        let problem = if self.dead.contains(&name) {
            "which it called dead"
        } else if !self.started.insert(name) {
            "a second time"
        } else {
            return Ok(());
        };
        Err(Violation::new("I7", format!("{boot:?} starts token {token} of {key}, {problem}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariant::example::{key, node, token};

    #[test]
    fn a_dead_token_that_runs_is_found() {
        let boot = (node("n0"), BootId(1));
        let mut book = NodeObeys::default();
        assert_eq!(book.on_start(&boot, &key("y"), token(1, 1)), Ok(()));
        assert!(book.on_start(&boot, &key("y"), token(1, 1)).is_err());
        book.on_dead(&boot, &key("y"), token(1, 2));
        assert_eq!(book.on_start(&boot, &key("y"), token(1, 2)).unwrap_err().rule, "I7");
    }

    #[test]
    fn a_node_that_obeys_below_its_fence_is_found() {
        let boot = (node("n0"), BootId(1));
        let mut book = NodeObeys::default();
        let range = SlotRange { first: SlotId(30), last: SlotId(2) };
        book.raise(&boot, range, 32, Epoch(5));
        assert_eq!(book.floor(&boot, SlotId(31)), Epoch(5));
        assert_eq!(book.floor(&boot, SlotId(3)), Epoch(0));
        let floor = book.floor(&boot, SlotId(1));
        let verdict = NodeObeys::check_obeyed(&boot, SlotId(1), Epoch(4), floor);
        assert_eq!(verdict.unwrap_err().rule, "I7");
        assert_eq!(NodeObeys::check_obeyed(&boot, SlotId(1), Epoch(5), floor), Ok(()));
    }
}
