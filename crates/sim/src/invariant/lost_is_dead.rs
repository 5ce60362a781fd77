//! What is said to be over is over. The registry says of a boot that nothing of it runs any more, when it left, or when
//! the next one had ended what it left. A verdict LOST says only that it is shut out: an owner writes a session off
//! when what it granted is over. Everything that is done for lost sessions rests on this.

use super::{Verdict, Violation};
use crate::ledger::Instance;
use rota_model::{Reason, SessionRecord, SessionState};
use rota_ring::ConfigState;

/// Checks one write of the config store.
///
/// # Errors
/// A boot of which nothing runs any more by the registry, while something of it runs.
pub fn check(before: &ConfigState, after: &ConfigState, instances: &[Instance]) -> Verdict {
    for (node, reg) in &before.nodes {
        let Some(now) = after.nodes.get(node) else { continue };
        let newly_over = now.is_proved_over(reg.boot) && !reg.is_proved_over(reg.boot);
        let of_boot = |it: &&Instance| it.node == *node && it.boot == reg.boot && it.to.is_none();
        if newly_over && let Some(running) = instances.iter().find(of_boot) {
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

/// Checks a record that a manager writes.
///
/// # Errors
/// It ended with its node, and what it names runs.
pub fn check_record(record: &SessionRecord, instances: &[Instance]) -> Verdict {
    let reasons = [Some(Reason::NodeLost), Some(Reason::Reopening)];
    let is_lost = record.state.is_ended() && reasons.contains(&record.reason);
    let token = record.token().filter(|_| is_lost || record.state == SessionState::Lost);
    let runs = |it: &&Instance| it.key == record.key && Some(it.token) == token && it.to.is_none();
    let Some(running) = instances.iter().find(runs) else { return Ok(()) };
    let text = format!("{} is written as LOST, and this runs: {running:?}", record.key);
    Err(Violation::new("lease", text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariant::example::{self, instance, record, token};
    use rota_model::{BootId, NodeState};
    use rota_ring::NodeWish;

    fn registry(boot: u64, state: NodeState) -> ConfigState {
        example::registry(1, boot, state, NodeWish::default())
    }

    #[test]
    fn a_boot_that_is_said_to_be_over_and_still_runs_something_is_found() {
        let before = registry(1, NodeState::Ready);
        let running = [instance("y", "n0", token(1, 1), 5, None)];
        let ended = [instance("y", "n0", token(1, 1), 5, Some(9))];
        for after in [registry(1, NodeState::Removed), registry(2, NodeState::Ready)] {
            assert_eq!(check(&before, &after, &running).unwrap_err().rule, "lease");
            assert_eq!(check(&before, &after, &ended), Ok(()));
        }
        let shut_out = registry(1, NodeState::Lost);
        assert_eq!(check(&before, &shut_out, &running), Ok(()), "owners wait");
        let mut unproven = registry(2, NodeState::Ready);
        unproven.nodes.values_mut().for_each(|it| it.unproven = Some(BootId(1)));
        assert_eq!(check(&shut_out, &unproven, &running), Ok(()), "owners wait");
        assert_eq!(check(&before, &before.clone(), &running), Ok(()));
    }

    #[test]
    fn a_session_that_is_written_off_while_it_runs_is_found() {
        let mut lost = record("y", example::life(1), SessionState::Lost);
        let token = lost.token().expect("it was placed");
        let running = [instance("y", "n0", token, 5, None)];
        assert_eq!(check_record(&lost, &running).unwrap_err().rule, "lease");
        assert_eq!(check_record(&lost, &[instance("y", "n0", token, 5, Some(9))]), Ok(()));
        (lost.state, lost.reason) = (SessionState::Closed, Some(Reason::NodeLost));
        assert_eq!(check_record(&lost, &running).unwrap_err().rule, "lease");
        lost.state = SessionState::Ready;
        assert_eq!(check_record(&lost, &running), Ok(()));
    }
}
