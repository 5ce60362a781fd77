//! What does not hold, and how long that is known.

use super::session_counts::Key;
use serde::Serialize;
use std::collections::BTreeMap;

/// A rule of the cluster.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Debug)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Nobody serves a partition.
    NoOwner,
    /// More than one manager serves a partition.
    TwoOwners,
    /// No copy of a partition is known to be complete: it is being found again.
    Recovering,
    /// A manager should hold a copy in sync, and does not.
    MissingCopy,
    /// A manager holds what it should not.
    SurplusCopy,
    /// Two copies differ at the same position.
    DigestDiffers,
    /// No position at which the copies of a partition could be compared was seen.
    DigestUnproved,
    /// A session is READY, and nothing of it runs.
    NotRunning,
    /// A session runs more than once.
    RunsTwice,
    /// Something runs that no record names.
    UnknownRuns,
}

impl Kind {
    /// Whether it is a violation; otherwise it only could not be proved.
    pub fn is_violation(self) -> bool {
        self != Kind::DigestUnproved
    }
}

/// One thing that does not hold. Equal ones are one.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Debug)]
pub struct Finding {
    pub kind: Kind,
    /// What was seen, for people. Two that differ in nothing else are one.
    pub text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manager: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Which attempt, `pe:seq`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
}

impl Finding {
    /// One without a place.
    pub fn new(kind: Kind, text: String) -> Self {
        let (partition, manager, node) = (None, None, None);
        Self { kind, text, partition, manager, node, namespace: None, id: None, token: None }
    }

    /// In a partition, at a manager.
    pub fn of_partition(kind: Kind, part: u32, manager: Option<u32>, text: String) -> Self {
        Self { partition: Some(part), manager, ..Self::new(kind, text) }
    }
}

impl Finding {
    /// The session that it is about.
    pub fn session(&self) -> Option<Key> {
        Some((self.namespace.clone()?, self.id.clone()?))
    }
}

/// Findings that were seen, and for how many rounds in a row.
#[derive(Debug, Default)]
pub struct Findings {
    rounds: BTreeMap<Finding, u32>,
}

impl Findings {
    /// Takes what a round found: what it did not find any more is forgotten.
    pub fn on_round(&mut self, found: Vec<Finding>) {
        let before = std::mem::take(&mut self.rounds);
        for finding in found {
            let rounds = before.get(&finding).copied().unwrap_or(0) + 1;
            self.rounds.insert(finding, rounds);
        }
    }

    /// Whether everything is a violation that was seen for so many rounds: what could not be compared yet
    /// may be later.
    pub fn are_settled(&self, rounds: u32) -> bool {
        self.rounds.iter().all(|(it, seen)| it.kind.is_violation() && *seen >= rounds)
    }

    /// What was seen for so many rounds, and the rest.
    pub fn split(self, rounds: u32) -> (Vec<Finding>, Vec<Finding>) {
        let (old, new): (Vec<_>, Vec<_>) = self.rounds.into_iter().partition(|it| it.1 >= rounds);
        let only = |them: Vec<(Finding, u32)>| them.into_iter().map(|it| it.0).collect();
        (only(old), only(new))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_persists_from_round_to_round_is_settled() {
        let one = Finding::new(Kind::NoOwner, "one".to_owned());
        let two = Finding::new(Kind::NotRunning, "two".to_owned());
        let mut findings = Findings::default();
        findings.on_round(vec![one.clone(), two.clone()]);
        findings.on_round(vec![one.clone()]);
        findings.on_round(vec![one.clone(), two.clone()]);
        assert!(findings.are_settled(1) && !findings.are_settled(2));
        assert_eq!(findings.split(3), (vec![one], vec![two]));
    }
}
