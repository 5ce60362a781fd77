//! What owners say of their sessions beside what nodes run, one partition after the other.
//!
//! ```text
//!   owner ── Placements, page by page ──▶ known ──┐
//!   nodes ── Live, page by page ──▶ matched ◀─────┘ ──▶ suspects ──▶ asked again by name
//! ```
//! Only one partition's sessions are held at a time, and of those that are as they should be nothing is
//! kept. What looks wrong may only have moved while it was looked at.

use super::finding::{Finding, Kind};
use rota_client::{CallError, Client, v1};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

/// Sessions in one page.
const PAGE: u32 = 1_000;

/// Most suspects that are asked again; more would only say the same of more sessions.
const SUSPECTS_MAX: usize = 10_000;

/// Namespace and id.
pub type Key = (String, String);

/// A session as its owner knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Known {
    pub state: String,
    /// Where it runs or ran; empty for a life that found no node.
    pub node: String,
    /// Which attempt.
    pub token: (u64, u64),
}

impl Known {
    fn from(it: v1::PlacedSession) -> Option<(Key, Self)> {
        let key = it.key?;
        let token = it.token.map_or((0, 0), |it| (it.pe, it.seq));
        Some(((key.namespace, key.id), Self { state: it.state, node: it.node, token }))
    }

    fn is_ready(&self) -> bool {
        self.state == "READY"
    }

    pub(super) fn has_ended(&self) -> bool {
        matches!(self.state.as_str(), "CLOSED" | "FAILED" | "LOST")
    }

    /// Whether it says that this attempt may run on that node.
    fn names(&self, node: &str, token: (u64, u64)) -> bool {
        !self.has_ended() && self.node == node && self.token == token
    }
}

/// Something that runs.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Runs {
    pub node: String,
    pub token: (u64, u64),
}

/// A node that is asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    pub id: String,
    pub address: String,
    pub boot: u64,
    /// It was declared lost: it may be silent, and may run nothing.
    pub gone: bool,
}

/// A partition that is looked at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Part {
    pub number: u32,
    pub first_slot: u32,
    /// Where its owner serves.
    pub owner: String,
}

/// What a look at a partition came to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Counted {
    /// READY sessions that run exactly once.
    pub proved: u64,
    /// READY sessions on nodes that did not answer.
    pub unproved: u64,
    /// What is to be asked again.
    pub suspects: BTreeSet<Key>,
    /// Some more looked wrong.
    pub overflow: bool,
}

/// Asks owners and nodes.
pub struct SessionCounts<'a> {
    pub client: &'a Client,
    pub cluster: String,
    pub wait: Duration,
    /// Nodes that are there.
    pub nodes: Vec<Node>,
    /// Of them, those that did not answer, and why.
    pub silent: BTreeMap<String, String>,
}

/// One page of what a node runs.
struct Page {
    sessions: Vec<(Key, (u64, u64))>,
    after: Option<v1::SessionKey>,
}

impl SessionCounts<'_> {
    /// Looks at a whole partition.
    ///
    /// # Errors
    /// Its owner does not tell.
    pub async fn count(&mut self, part: &Part) -> Result<Counted, CallError> {
        let mut known = self.known(part).await?;
        let mut counted = Counted::default();
        for node in self.nodes.clone() {
            let each = |key: Key, token| match known.get_mut(&key) {
                Some((it, runs)) if it.names(&node.id, token) => *runs += 1,
                Some(_) | None => counted.suspect(key),
            };
            self.each_live(part, &node, each).await;
        }
        for (key, (it, runs)) in known.into_iter().filter(|(_, (it, _))| it.is_ready()) {
            match runs {
                1 if !counted.suspects.contains(&key) => counted.proved += 1,
                0 if self.silent.contains_key(&it.node) => counted.unproved += 1,
                _ => counted.suspect(key),
            }
        }
        Ok(counted)
    }

    /// Everything that a node runs of a partition, as far as it tells.
    pub(super) async fn each_live(
        &mut self,
        part: &Part,
        node: &Node,
        mut each: impl FnMut(Key, (u64, u64)),
    ) {
        let mut after = None;
        loop {
            let Some(page) = self.live(part, node, after.take(), Vec::new()).await else { return };
            page.sessions.into_iter().for_each(|(key, token)| each(key, token));
            after = page.after;
            if after.is_none() {
                return;
            }
        }
    }

    /// Every session of a partition that has not ended.
    pub(super) async fn known(&self, part: &Part) -> Result<HashMap<Key, (Known, u32)>, CallError> {
        let mut all = HashMap::new();
        let mut after = None;
        loop {
            let request = v1::PlacementsRequest {
                part: part.number,
                after: after.take(),
                page_size: PAGE,
                keys: Vec::new(),
            };
            let page = self.client.placements_at(&part.owner, request, self.wait).await?;
            let sessions = page.sessions.into_iter().filter_map(Known::from);
            all.extend(sessions.map(|(key, known)| (key, (known, 0))));
            after = page.next;
            if after.is_none() {
                return Ok(all);
            }
        }
    }

    async fn named(&self, part: &Part, keys: &[Key]) -> Result<BTreeMap<Key, Known>, CallError> {
        let keys = keys.iter().map(to_wire).collect();
        let request = v1::PlacementsRequest { part: part.number, keys, ..Default::default() };
        let page = self.client.placements_at(&part.owner, request, self.wait).await?;
        Ok(page.sessions.into_iter().filter_map(Known::from).collect())
    }

    /// A page of what a node runs of a partition, or of what it runs of these sessions; `None` when it
    /// does not tell.
    async fn live(
        &mut self,
        part: &Part,
        node: &Node,
        after: Option<v1::SessionKey>,
        keys: Vec<v1::SessionKey>,
    ) -> Option<Page> {
        if self.silent.contains_key(&node.id) {
            return None;
        }
        let request = v1::LiveRequest {
            cluster: self.cluster.clone(),
            first_slot: part.first_slot,
            last_slot: part.number,
            after,
            page_size: PAGE,
            keys,
        };
        let answer = match self.client.live_at(&node.address, request, self.wait).await {
            Ok(answer) if answer.node != node.id || answer.boot != node.boot => {
                Err(format!("node {} boot {} answers at its address", answer.node, answer.boot))
            }
            Ok(answer) => Ok(answer),
            Err(error) => Err(error.to_string()),
        };
        match answer {
            Ok(answer) => {
                let sessions = answer.sessions.into_iter().filter_map(|session| {
                    let (key, token) = (session.key?, session.token.unwrap_or_default());
                    Some(((key.namespace, key.id), (token.pe, token.seq)))
                });
                let sessions: Vec<_> = sessions.collect();
                let last = sessions.last().map(|(key, _)| to_wire(key));
                Some(Page { sessions, after: last.filter(|_| answer.more) })
            }
            Err(why) => {
                self.silent.insert(node.id.clone(), why);
                None
            }
        }
    }

    /// Looks at some sessions of a partition again: first at the owner, then at the nodes, then at the
    /// owner again, and judges what stood still meanwhile.
    ///
    /// # Errors
    /// The owner does not tell.
    pub async fn look_again(&mut self, part: &Part, keys: &[Key]) -> Result<Again, CallError> {
        let mut again = Again::default();
        for some in keys.chunks(PAGE as usize) {
            let before = self.named(part, some).await?;
            let mut runs: BTreeMap<Key, Vec<Runs>> = BTreeMap::new();
            for node in self.nodes.clone() {
                let wanted = some.iter().map(to_wire).collect();
                let Some(page) = self.live(part, &node, None, wanted).await else { continue };
                for (key, token) in page.sessions {
                    runs.entry(key).or_default().push(Runs { node: node.id.clone(), token });
                }
            }
            let after = self.named(part, some).await?;
            for key in some {
                // It changed while it was looked at, and stays a suspect.
                if before.get(key) != after.get(key) {
                    continue;
                }
                let runs = runs.remove(key).unwrap_or_default();
                let silent = |node: &str| self.silent.contains_key(node);
                let found = judge(part.number, key, after.get(key), &runs, silent);
                if found.is_empty() {
                    again.cleared.insert(key.clone(), after.get(key).cloned());
                }
                again.found.extend(found);
            }
        }
        Ok(again)
    }
}

/// What another look at suspects came to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Again {
    /// What is wrong with them.
    pub found: Vec<Finding>,
    /// Those with which nothing is wrong, and what they are.
    pub cleared: BTreeMap<Key, Option<Known>>,
}

impl Again {
    /// READY sessions that were found to run exactly once.
    pub fn proved(&self, silent: impl Fn(&str) -> bool) -> u64 {
        let ready = self.cleared.values().flatten().filter(|it| it.is_ready());
        ready.filter(|it| !silent(&it.node)).count() as u64
    }
}

impl Counted {
    fn suspect(&mut self, key: Key) {
        if self.suspects.len() < SUSPECTS_MAX {
            self.suspects.insert(key);
        } else {
            self.overflow = true;
        }
    }
}

fn to_wire((namespace, id): &Key) -> v1::SessionKey {
    v1::SessionKey { namespace: namespace.clone(), id: id.clone() }
}

fn shown((pe, seq): (u64, u64)) -> String {
    format!("{pe}:{seq}")
}

/// What is wrong with one session, of which the record stood still while the nodes were asked.
fn judge(
    part: u32,
    (namespace, id): &Key,
    known: Option<&Known>,
    runs: &[Runs],
    silent: impl Fn(&str) -> bool,
) -> Vec<Finding> {
    let finding = |kind, node: &str, token, text: String| Finding {
        partition: Some(part),
        node: Some(node.to_owned()),
        namespace: Some(namespace.clone()),
        id: Some(id.clone()),
        token: Some(shown(token)),
        ..Finding::new(kind, text)
    };
    let mut found = Vec::new();
    let right = |it: &&Runs| known.is_some_and(|known| known.names(&it.node, it.token));
    let is_there = runs.iter().any(|it| right(&it));
    for Runs { node, token } in runs.iter().filter(|it| !right(it)) {
        let says = match known {
            None => "no record names it".to_owned(),
            Some(it) if it.has_ended() => format!("its record is {}", it.state),
            Some(it) => format!(
                "its record is {} as attempt {} on node {}",
                it.state,
                shown(it.token),
                it.node
            ),
        };
        let kind = if is_there { Kind::RunsTwice } else { Kind::UnknownRuns };
        let text = format!(
            "session {namespace}/{id} runs on node {node} as attempt {}; {says}",
            shown(*token)
        );
        found.push(finding(kind, node, *token, text));
    }
    if let Some(it) = known.filter(|it| it.is_ready() && !is_there && !silent(&it.node)) {
        let text = format!(
            "session {namespace}/{id} is READY on node {} as attempt {}, and does not run there",
            it.node,
            shown(it.token)
        );
        found.push(finding(Kind::NotRunning, &it.node, it.token, text));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(state: &str, token: u64) -> Known {
        Known { state: state.to_owned(), node: "n1".to_owned(), token: (3, token) }
    }

    fn runs(node: &str, token: u64) -> Runs {
        Runs { node: node.to_owned(), token: (3, token) }
    }

    fn kinds(known: Option<&Known>, runs: &[Runs]) -> Vec<Kind> {
        let key = ("default".to_owned(), "a".to_owned());
        let found = judge(7, &key, known, runs, |node| node == "silent");
        assert!(found.iter().all(|it| it.text.contains("default/a") && it.partition == Some(7)));
        found.into_iter().map(|it| it.kind).collect()
    }

    #[test]
    fn a_ready_session_runs_exactly_once_where_its_record_says() {
        let ready = known("READY", 1);
        assert_eq!(kinds(Some(&ready), &[runs("n1", 1)]), []);
        assert_eq!(kinds(Some(&ready), &[]), [Kind::NotRunning]);
        assert_eq!(kinds(Some(&ready), &[runs("n1", 1), runs("n2", 1)]), [Kind::RunsTwice]);
        let elsewhere = kinds(Some(&ready), &[runs("n2", 2)]);
        assert_eq!(elsewhere, [Kind::UnknownRuns, Kind::NotRunning]);
        let silent = Known { node: "silent".to_owned(), ..ready };
        assert_eq!(kinds(Some(&silent), &[]), [], "that node is told as silent");
    }

    #[test]
    fn what_runs_is_named_by_a_record_that_has_not_ended() {
        for state in ["PENDING", "STARTING", "CLOSING"] {
            assert_eq!(kinds(Some(&known(state, 1)), &[runs("n1", 1)]), [], "{state}");
            assert_eq!(kinds(Some(&known(state, 1)), &[]), [], "{state}");
        }
        assert_eq!(kinds(Some(&known("CLOSED", 1)), &[runs("n1", 1)]), [Kind::UnknownRuns]);
        assert_eq!(kinds(None, &[runs("n1", 1)]), [Kind::UnknownRuns]);
        assert_eq!(kinds(Some(&known("PENDING", 2)), &[runs("n1", 1)]), [Kind::UnknownRuns]);
    }
}
