//! An owner that knows that a node is cordoned or drained begins nothing there; and what operators want
//! of a node is changed by their orders alone, never along with its boot or a verdict.

use super::{Verdict, Violation};
use crate::checker::Run;
use crate::ledger::Ledger;
use rota_model::{NodeId, NodeState, SessionRecord, SessionState};
use rota_ring::{ConfigState, NodeWish};
use std::collections::{BTreeMap, BTreeSet};

/// Nodes that take nothing, in one state of the registry.
#[derive(Clone, Debug, Default)]
struct Closed {
    index: u64,
    nodes: BTreeSet<NodeId>,
    /// Whether it is certain that the run adopted it, if that was newer than what it had.
    sure: bool,
}

/// What each run knows of it.
#[derive(Clone, Debug, Default)]
pub struct CordonKept {
    /// Told since that run last gave its effects: what it gives next may have been decided before.
    told: Vec<(Run, Closed)>,
    known: BTreeMap<Run, Closed>,
}

impl CordonKept {
    /// A run is told a state of the config store. It adopts it if it is newer; unless `sure`, only
    /// perhaps.
    pub fn on_told(&mut self, run: Run, state: &ConfigState, sure: bool) {
        let closed = state.nodes.values().filter(|it| !it.wish.is_none());
        let nodes = closed.map(|it| it.node.clone()).collect();
        self.told.push((run, Closed { index: state.index, nodes, sure }));
    }

    /// A run gave all effects of what it was told so far.
    pub fn on_flushed(&mut self, run: Run) {
        for (to, closed) in std::mem::take(&mut self.told) {
            if to != run {
                self.told.push((to, closed));
                continue;
            }
            let known = self.known.entry(run).or_default();
            if closed.sure && closed.index >= known.index {
                *known = closed;
            } else if closed.index > known.index {
                // Whichever it goes by.
                known.nodes.retain(|it| closed.nodes.contains(it));
                known.index = closed.index;
            }
        }
    }

    /// Checks a record that a run gives to its disk, before the book has it.
    ///
    /// # Errors
    /// It is the first of an attempt, on a node that this run knows to take nothing.
    pub fn check(&self, ledger: &Ledger, run: Run, record: &SessionRecord) -> Verdict {
        let at = record.placement.as_ref().filter(|_| record.state == SessionState::Pending);
        let Some(at) = at else { return Ok(()) };
        // Owners give an attempt to their disk before anybody else can.
        if ledger.life_of(&record.key, at.token).is_some() {
            return Ok(());
        }
        let takes_nothing = |it: &Closed| it.nodes.contains(&at.node);
        let known = self.known.get(&run).is_some_and(takes_nothing);
        // It may have heard of the end of that since it last gave effects.
        let told = self.told.iter().filter(|(to, _)| *to == run);
        if known && told.map(|(_, closed)| closed).all(takes_nothing) {
            let (key, node, token) = (&record.key, &at.node, at.token);
            let text = format!(
                "M{} begins {key} as token {token} on {node}, and knows that nothing more is to be \
                 placed there",
                run.0
            );
            return Err(Violation::new("cordon", text));
        }
        Ok(())
    }
}

/// Checks one write of the config store.
///
/// # Errors
/// What operators want of a node changed together with something else.
pub fn check_written(before: &ConfigState, after: &ConfigState) -> Verdict {
    for (node, now) in &after.nodes {
        // Who comes back after it was forgotten serves, as one that is new. So does a node that was to end and has.
        let may_serve = |reg: &rota_ring::NodeReg| {
            let ended = reg.state == NodeState::Removed;
            let to_end = matches!(reg.wish, NodeWish::Drained { retires: true, .. });
            now.wish == NodeWish::Serves && (reg.is_forgotten() || (ended && to_end))
        };
        let other = |it: &&rota_ring::NodeReg| it.wish != now.wish && !may_serve(it);
        let Some(was) = before.nodes.get(node).filter(other) else { continue };
        let same = (was.boot, was.state.is_gone()) == (now.boot, now.state.is_gone());
        if !same {
            let text = format!("{was:?} became {now:?}: nobody ordered the other wish");
            return Err(Violation::new("cordon", text));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariant::example::{self, life, node, record};
    use rota_model::{ManagerNumber, NodeState};
    use rota_ring::NodeWish;

    fn registry(index: u64, boot: u64, wish: NodeWish) -> ConfigState {
        example::registry(index, boot, wish.shown(NodeState::Ready), wish)
    }

    #[test]
    fn a_begin_on_a_node_that_is_known_to_be_cordoned_is_found() {
        let run = (ManagerNumber(10), 1);
        let mut pending = record("y", life(1), SessionState::Pending);
        pending.placement.as_mut().unwrap().node = node("n0");
        let mut kept = CordonKept::default();
        let ledger = Ledger::default();
        kept.on_told(run, &registry(5, 1, NodeWish::Cordoned), true);
        assert_eq!(kept.check(&ledger, run, &pending), Ok(()), "it was decided before");
        kept.on_flushed(run);
        assert_eq!(kept.check(&ledger, run, &pending).unwrap_err().rule, "cordon");
        assert_eq!(kept.check(&ledger, (ManagerNumber(20), 1), &pending), Ok(()), "who knows not");
        kept.on_told(run, &registry(4, 1, NodeWish::Serves), true);
        kept.on_flushed(run);
        assert!(kept.check(&ledger, run, &pending).is_err(), "older news change nothing");
        kept.on_told(run, &registry(6, 1, NodeWish::Serves), false);
        assert_eq!(kept.check(&ledger, run, &pending), Ok(()), "it may have heard of it");
        kept.on_flushed(run);
        assert_eq!(kept.check(&ledger, run, &pending), Ok(()));
    }

    #[test]
    fn a_cordon_that_a_restart_takes_away_is_found() {
        let cordoned = registry(5, 1, NodeWish::Cordoned);
        assert_eq!(check_written(&cordoned, &registry(6, 1, NodeWish::Serves)), Ok(()));
        assert_eq!(check_written(&cordoned, &registry(6, 2, NodeWish::Cordoned)), Ok(()));
        let taken = check_written(&cordoned, &registry(6, 2, NodeWish::Serves));
        assert_eq!(taken.unwrap_err().rule, "cordon");
    }
}
