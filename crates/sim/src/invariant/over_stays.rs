//! A boot that is over never comes back. The registry drops what is left of nodes that are gone, and still knows of
//! each of their boots that it is over.

use super::{Verdict, Violation};
use rota_model::{BootId, NodeId};
use rota_ring::ConfigState;
use std::collections::BTreeMap;

/// The latest boot of each node that was over.
#[derive(Clone, Debug, Default)]
pub struct OverStays(BTreeMap<NodeId, BootId>);

impl OverStays {
    /// Checks one write of the config store.
    ///
    /// # Errors
    /// A boot that was over is registered and not over, or one that nobody knows of is not over any more.
    pub fn check(&mut self, before: &ConfigState, after: &ConfigState) -> Verdict {
        for (node, reg) in before.nodes.iter().filter(|(_, it)| it.is_over(it.boot)) {
            let over = self.0.entry(node.clone()).or_insert(reg.boot);
            *over = reg.boot.max(*over);
        }
        for (node, over) in &self.0 {
            let is_over = match after.nodes.get(node) {
                Some(reg) => reg.is_over(*over),
                None => after.dropped.is_over(*over),
            };
            if !is_over {
                let now = after.nodes.get(node);
                let text =
                    format!("boot {over} of {node} was over, and is not by the registry: {now:?}");
                return Err(Violation::new("over", text));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariant::example::{self, node};
    use rota_model::NodeState;
    use rota_ring::{Change, Dropped, NodeChange, NodeOrder, NodeWish};

    #[test]
    fn a_boot_that_comes_back_after_it_was_dropped_is_found() {
        let lost = example::registry(5, 7, NodeState::Lost, NodeWish::Serves);
        let reg = &lost.nodes[&node("n0")];
        let trace = reg.ordered(NodeOrder::Forget, 0).unwrap().unwrap();
        let change = NodeChange { drops: vec![node("n0")], ..NodeChange::to(trace) };
        let change = Change { expect_epoch: None, view: None, node: Some(change) };
        let dropped = change.apply(&lost).unwrap();
        assert!(dropped.nodes.is_empty() && dropped.dropped.is_over(BootId(7)));
        assert!(!dropped.dropped.is_proved_over(BootId(7)), "it was lost");
        let mut stays = OverStays::default();
        assert_eq!(stays.check(&lost, &dropped), Ok(()));
        let unsaid = ConfigState { dropped: Dropped::default(), ..dropped.clone() };
        assert_eq!(stays.check(&dropped, &unsaid).unwrap_err().rule, "over");
        let mut again = reg.clone();
        (again.state, again.revision) = (NodeState::Ready, 1);
        let back = ConfigState { nodes: [(node("n0"), again.clone())].into(), ..dropped.clone() };
        assert_eq!(stays.check(&dropped, &back).unwrap_err().rule, "over");
        // The config store refuses that, and takes a later boot.
        let comes = |boot| {
            let to = rota_ring::NodeReg { boot: BootId(boot), ..again.clone() };
            let node = Some(NodeChange::to(to));
            Change { expect_epoch: None, view: None, node }.apply(&dropped)
        };
        assert_eq!(comes(7), None);
        assert_eq!(stays.check(&dropped, &comes(8).unwrap()), Ok(()));
    }
}
