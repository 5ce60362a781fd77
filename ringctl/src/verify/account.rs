//! What became of sessions that were acknowledged: whether each is still there, and runs once.

use super::session_counts::Key;
use crate::inspect::Answers;
use anyhow::bail;
use rota_client::Client;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// One look at all sessions, at their owners and at the nodes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Account {
    /// Acknowledged sessions that no owner knows as alive, or of which nothing runs.
    pub lost: BTreeSet<Key>,
    /// Sessions with more than one live instance.
    pub twice: BTreeSet<Key>,
}

/// What is told of all sessions.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Sightings {
    /// Those that have not ended, by their owners.
    known: BTreeSet<Key>,
    /// How many instances of each run, by the nodes.
    runs: BTreeMap<Key, u32>,
}

impl Sightings {
    fn account(&self, acknowledged: impl IntoIterator<Item = Key>) -> Account {
        let is_there = |key: &Key| self.known.contains(key) && self.runs.contains_key(key);
        let lost = acknowledged.into_iter().filter(|it| !is_there(it)).collect();
        let twice = self.runs.iter().filter(|(_, runs)| **runs > 1).map(|(key, _)| key.clone());
        Account { lost, twice: twice.collect() }
    }
}

/// Looks at every session, by the View of the first manager that answers. What is `acknowledged` must
/// have been so before the call, and nobody may close it.
///
/// # Errors
/// An owner or a node does not tell what it has: then nothing is known.
pub async fn account(
    client: &Client,
    acknowledged: impl IntoIterator<Item = Key>,
    wait: Duration,
) -> anyhow::Result<Account> {
    let first = client.inspect(wait).await?;
    let answers: Answers = [(first.number, Ok(first))].into();
    let mut session_counts = super::session_counts(client, wait, &answers)?;
    let mut told = Sightings::default();
    for part in super::parts(&super::view_of(&answers)?) {
        let known = session_counts.known(&part).await?.into_iter();
        told.known.extend(known.filter(|(_, (it, _))| !it.has_ended()).map(|(key, _)| key));
        for node in session_counts.nodes.clone() {
            let each = |key, _token| *told.runs.entry(key).or_default() += 1;
            session_counts.each_live(&part, &node, each).await;
        }
    }
    if let Some((node, why)) = session_counts.silent.first_key_value() {
        bail!("node {node} does not tell what it runs: {why}");
    }
    Ok(told.account(acknowledged))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(id: &str) -> Key {
        ("default".to_owned(), id.to_owned())
    }

    #[test]
    fn a_session_is_there_when_its_owner_knows_it_and_it_runs() {
        let told = Sightings {
            known: [key("a"), key("stopped")].into(),
            runs: [(key("a"), 1), (key("unknown"), 1), (key("b"), 2)].into(),
        };
        let account = told.account(["a", "stopped", "unknown", "gone"].map(key));
        assert_eq!(account.lost, ["gone", "stopped", "unknown"].map(key).into());
        assert_eq!(account.twice, [key("b")].into(), "also of those that nobody asked for");
    }
}
