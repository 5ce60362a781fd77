//! I11: a boot of a node is registered before its first Create.

use super::{Verdict, Violation};
use crate::ledger::BootFacts;
use rota_model::{BootId, NodeId};
use std::collections::BTreeMap;

/// Checks one Create.
///
/// # Errors
/// The registry never held that boot.
pub fn check(
    boots: &BTreeMap<(NodeId, BootId), BootFacts>,
    node: &NodeId,
    boot: BootId,
) -> Verdict {
    let known = boots.get(&(node.clone(), boot)).is_some_and(|it| it.registered.is_some());
    if known {
        return Ok(());
    }
    Err(Violation::new("I11", format!("a Create at {node} {boot:?}, which is not registered")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariant::example::node;
    use rota_model::Epoch;

    #[test]
    fn a_create_at_an_unregistered_boot_is_found() {
        let facts = BootFacts { registered: Some(Epoch(1)), gone_us: None, proved_us: None };
        let boots = BTreeMap::from([((node("n0"), BootId(1)), facts)]);
        assert_eq!(check(&boots, &node("n0"), BootId(1)), Ok(()));
        assert_eq!(check(&boots, &node("n0"), BootId(2)).unwrap_err().rule, "I11");
    }
}
