//! The lease keeps its promise: when the registry says that a boot is lost, nothing of it runs any
//! more. Everything that is done for lost sessions rests on this.

use super::{Verdict, Violation};
use crate::ledger::Instance;
use rota_ring::ConfigState;

/// Checks one write of the config store.
///
/// # Errors
/// A boot that became LOST or REMOVED, or was replaced, while something of it runs.
pub fn check(before: &ConfigState, after: &ConfigState, instances: &[Instance]) -> Verdict {
    for (node, reg) in &before.nodes {
        let Some(now) = after.nodes.get(node) else { continue };
        let newly_gone = now.boot != reg.boot || (now.state.is_gone() && !reg.state.is_gone());
        let of_boot = |it: &&Instance| it.node == *node && it.boot == reg.boot && it.to.is_none();
        if newly_gone && let Some(running) = instances.iter().find(of_boot) {
            let text = format!(
                "the registry says that nothing of {node} {:?} runs ({} {:?}), and this does: \
                 {running:?}",
                reg.boot, now.state, now.boot
            );
            return Err(Violation::new("lease", text));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariant::example::{self, instance, token};
    use rota_model::NodeState;
    use rota_ring::NodeWish;

    fn registry(boot: u64, state: NodeState) -> ConfigState {
        example::registry(1, boot, state, NodeWish::default())
    }

    #[test]
    fn a_verdict_over_a_boot_that_still_runs_something_is_found() {
        let before = registry(1, NodeState::Ready);
        let running = [instance("y", "n0", token(1, 1), 5, None)];
        let ended = [instance("y", "n0", token(1, 1), 5, Some(9))];
        for after in [registry(1, NodeState::Lost), registry(2, NodeState::Ready)] {
            assert_eq!(check(&before, &after, &running).unwrap_err().rule, "lease");
            assert_eq!(check(&before, &after, &ended), Ok(()));
        }
        assert_eq!(check(&before, &before.clone(), &running), Ok(()));
    }
}
