//! At the owner of the document of a node's numbers: from reports to numbers.

use crate::log::at::At;
use crate::log::origin::Origin;
use crate::numbers::sessions::state::{Kept, SessionNumbering};
use crate::numbers::step::next_version;
use crate::ports::number_keys::{of_session, sessions_of_node};
use crate::ports::slots::{Slots, session_numbers_of, slot_of};
use rota_docstore::Territory as _;
use rota_ids::{Entry, Key, Name, Numbers};
use rota_messages::api::OpResult;
use rota_messages::documents::read_session_numbers;
use rota_messages::{Answer, Doc, DocKey, Write};
use rota_model::items::{SessionNumber, SessionNumbers, StableNumber};
use rota_model::{
    Namespace, NodeId, PoolName, SESSION_NUMBERS_MAX, SessionId, SessionKey, SessionsThere,
};
use rota_ring::slot_of_session;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Most documents that one sweep writes.
const SWEPT_MAX: usize = 16;

/// Most sessions of a node that are gone and keep their numbers. More would make every write longer.
const ENDED_MAX: usize = 200;

/// A node, and the pool that it is in.
type NodeOf<'a> = (&'a PoolName, &'a NodeId);

/// The numbers of a node's sessions, and whose they are.
struct OfNode {
    numbers: Numbers,
    sessions: BTreeMap<Key, SessionKey>,
}

impl OfNode {
    /// What a document says. What does not read as a number in it counts for nothing.
    fn read(doc: Option<&Doc>, (pool, node): NodeOf<'_>, retention_ms: u64) -> Self {
        let mut of_node = Self { numbers: Numbers::new(retention_ms), sessions: BTreeMap::new() };
        let Some(said) = doc.and_then(said_by) else { return of_node };
        if let Some(StableNumber { number, valid, changed_ms }) = said.last {
            let last = Name::Last(sessions_of_node(pool, node));
            drop(of_node.numbers.restore(last, Entry { number, valid, changed_ms }));
        }
        for SessionNumber { namespace, id, number, valid, changed_ms } in said.sessions {
            let parsed =
                Namespace::parse(&namespace).and_then(|it| Ok((it, SessionId::parse(&id)?)));
            let Ok((namespace, id)) = parsed else { continue };
            let session = SessionKey::new(namespace, id);
            let key = of_session(pool, node, &session);
            let entry = Entry { number, valid, changed_ms };
            // Refused only if two have one number: the second one gets another.
            if of_node.numbers.restore(Name::Entry(key.clone()), entry).is_ok() {
                of_node.sessions.insert(key, session);
            }
        }
        of_node
    }

    /// Those that are valid.
    fn valid(&self) -> Vec<Key> {
        self.numbers.entries().filter(|(_, it)| it.valid).map(|(key, _)| key.clone()).collect()
    }

    /// Takes over what a report says: in its slots that runs there, and nothing else.
    fn take(&mut self, node: NodeOf<'_>, slots: Slots, there: &SessionsThere, wall_ms: u64) {
        let is_reported = |it: &SessionKey| slots.holds(slot_of_session(it, slots.m));
        let mut keys = self.valid();
        keys.retain(|key| self.sessions.get(key).is_some_and(|it| !is_reported(it)));
        let there = there.sessions.iter().filter(|it| is_reported(it));
        let (mut known, mut new) = (Vec::new(), Vec::new());
        for session in there {
            let key = of_session(node.0, node.1, session);
            let is_known = self.numbers.entry(&key).is_some();
            if is_known { &mut known } else { &mut new }.push(key.clone());
            self.sessions.insert(key, session.clone());
        }
        keys.extend(known);
        keys.extend(new);
        keys.truncate(SESSION_NUMBERS_MAX);
        self.settle(&keys, wall_ms);
        drop(self.numbers.make_room((keys.len() + ENDED_MAX).min(SESSION_NUMBERS_MAX)));
    }

    /// These run there, and no other one.
    fn settle(&mut self, there: &[Key], wall_ms: u64) {
        // What it comes to is read from the numbers themselves.
        drop(self.numbers.settle(there, usize::MAX, wall_ms));
    }

    /// What the document is to say; `None`: it is to end.
    fn said(&self, (pool, node): NodeOf<'_>) -> Option<SessionNumbers> {
        if self.numbers.is_empty() {
            return None;
        }
        let last = self.numbers.last(&sessions_of_node(pool, node));
        let last = last.map(|Entry { number, valid, changed_ms }| StableNumber {
            number,
            valid,
            changed_ms,
        });
        let named = |(key, entry): (&Key, Entry)| {
            let SessionKey { namespace, id } = self.sessions.get(key)?;
            let (namespace, id) = (namespace.as_str().to_owned(), id.as_str().to_owned());
            let Entry { number, valid, changed_ms } = entry;
            Some(SessionNumber { namespace, id, number, valid, changed_ms })
        };
        let mut sessions: Vec<SessionNumber> = self.numbers.entries().filter_map(named).collect();
        sessions.sort_by_key(|it| it.number);
        Some(SessionNumbers { pool: pool.to_string(), node: node.to_string(), last, sessions })
    }
}

/// What a document says, unless its life has ended.
fn said_by(doc: &Doc) -> Option<SessionNumbers> {
    read_session_numbers(doc.document()).ok().flatten()
}

fn key_of((pool, node): NodeOf<'_>, m: u32) -> DocKey {
    let name = session_numbers_of(pool, node);
    DocKey::new(slot_of(&name, m), name)
}

impl SessionNumbering {
    /// Some owner tells what of its own runs on a node.
    pub(super) fn on_report(
        &mut self,
        led: &mut At<'_>,
        origin: Origin,
        node: NodeOf<'_>,
        there: &SessionsThere,
    ) {
        let (m, wall_ms) = (led.env.view().m, led.env.now.wall_ms);
        let slots = Slots { m, range: there.range };
        // Another owner serves there by now, and has told what it knows.
        let is_overtaken = there.pe < led.env.view().part_of(there.range.last).1.pe;
        if !is_overtaken {
            change(led, node, |it| it.take(node, slots, there, wall_ms));
        }
        // Nobody builds on it: what is not committed after all is reported again.
        led.reply(origin, Ok(Answer::Reported));
    }

    /// Somebody asks for the numbers of a node's sessions.
    pub(super) fn on_question(&mut self, led: &mut At<'_>, origin: Origin, node: NodeOf<'_>) {
        let doc = led.log.replica.docs.get(&key_of(node, led.env.view().m));
        let said = doc.and_then(|it| said_by(it)).unwrap_or_default();
        let result: OpResult = Ok(Answer::Numbers(said.sessions));
        led.reply(origin, result);
    }

    /// What is outdated goes, and where a node is gone nothing runs.
    pub(super) fn sweep(&mut self, led: &mut At<'_>) {
        let wall_ms = led.env.now.wall_ms;
        let reg = &led.env.nodes.reg;
        let is_there = |kept: &Kept| {
            reg.get(&kept.node).is_some_and(|reg| reg.pool == kept.pool && !reg.is_forgotten())
        };
        let is_due = |kept: &&Kept| {
            kept.outdated_wall_ms.is_some_and(|at| wall_ms >= at)
                || (kept.is_valid && !is_there(kept))
        };
        let due = self.kept.values().filter(is_due).take(SWEPT_MAX);
        let due: Vec<(Kept, bool)> = due.map(|it| (it.clone(), is_there(it))).collect();
        for (kept, is_there) in due {
            change(led, (&kept.pool, &kept.node), |of_node| {
                if !is_there {
                    // As the removal of the node does: first the last below it, then the rest.
                    drop(of_node.numbers.invalidate_all(wall_ms));
                }
                of_node.settle(&of_node.valid(), wall_ms);
            });
        }
    }

    /// A document of numbers is committed here.
    pub(super) fn learn(&mut self, led: &mut At<'_>, key: &DocKey) {
        let Some(group) = Self::group_of(key) else { return };
        let said = led.log.replica.docs.get(key).and_then(|it| said_by(it));
        let parsed = said
            .and_then(|it| Some((PoolName::parse(&it.pool).ok()?, NodeId::parse(&it.node).ok()?)));
        let told = Arc::make_mut(&mut led.env.numbers.of_sessions);
        let Some((pool, node)) = parsed.filter(|it| sessions_of_node(&it.0, &it.1) == group) else {
            told.learn_group(&group, []);
            self.kept.remove(key);
            return;
        };
        let retention_ms = led.env.config.numbers.map_or(0, |it| it.retention_ms);
        let doc = led.log.replica.docs.get(key).map(|it| &**it);
        let OfNode { numbers, .. } = OfNode::read(doc, (&pool, &node), retention_ms);
        let entries = numbers.entries().map(|(key, entry)| (Name::Entry(key.clone()), entry));
        let lasts = numbers.lasts().map(|(group, entry)| (Name::Last(group.clone()), entry));
        told.learn_group(&group, entries.chain(lasts));
        let is_valid = numbers.lasts().any(|(_, it)| it.valid);
        let outdated_wall_ms = numbers.next_outdated_ms();
        self.kept.insert(key.clone(), Kept { pool, node, outdated_wall_ms, is_valid });
    }
}

/// Changes the numbers of a node's sessions, and writes them if that makes a difference.
fn change(led: &mut At<'_>, node: NodeOf<'_>, with: impl FnOnce(&mut OfNode)) {
    let key = key_of(node, led.env.view().m);
    let here = Slots { m: led.env.view().m, range: led.log.range };
    if !here.holds(key.slot) {
        return;
    }
    let retention_ms = led.env.config.numbers.map_or(0, |it| it.retention_ms);
    let before = led.log.replica.get(&key).cloned();
    let mut of_node = OfNode::read(before.as_deref(), node, retention_ms);
    let was = of_node.numbers.clone();
    with(&mut of_node);
    if of_node.numbers == was {
        return;
    }
    let version = next_version(led);
    let said = of_node.said(node);
    let doc =
        Doc::session_numbers_after(before.as_deref(), key.name.clone(), said.as_ref(), version);
    led.write_unhurried(vec![Write::of(key.slot, doc)], None);
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_model::node_msg::SlotRange;
    use rota_model::{Epoch, SlotId};
    use std::collections::BTreeSet;

    const M: u32 = 1_024;
    const WEEK: u64 = 604_800_000;

    fn session(at: usize) -> SessionKey {
        let space = Namespace::parse("default").unwrap();
        SessionKey::new(space, SessionId::parse(&format!("s{at}")).unwrap())
    }

    fn range(first: u32, last: u32) -> SlotRange {
        SlotRange { first: SlotId(first), last: SlotId(last) }
    }

    fn numbers(it: &OfNode, valid: bool) -> BTreeSet<u64> {
        it.numbers.entries().filter(|it| it.1.valid == valid).map(|it| it.1.number).collect()
    }

    #[test]
    fn a_report_changes_numbers_of_its_own_slots_only() {
        let (pool, node) = (PoolName::default_pool(), NodeId::parse("n1").unwrap());
        let at = (&pool, &node);
        let mut of_node = OfNode::read(None, at, WEEK);
        let halves = [range(0, M / 2 - 1), range(M / 2, M - 1)];
        let all: Vec<SessionKey> = (0..20).map(session).collect();
        let take = |of_node: &mut OfNode, half: SlotRange, sessions: &[SessionKey]| {
            let there = SessionsThere { pe: Epoch(1), range: half, sessions: sessions.to_vec() };
            of_node.take(at, Slots { m: M, range: half }, &there, 5);
        };
        // What lies elsewhere is left out of a report.
        take(&mut of_node, halves[0], &all);
        let first = numbers(&of_node, true).len();
        assert!((1..20).contains(&first));
        take(&mut of_node, halves[1], &all);
        assert_eq!(numbers(&of_node, true), (1..=20).collect());
        take(&mut of_node, halves[0], &[]);
        assert_eq!(numbers(&of_node, true).len(), 20 - first);
        assert_eq!(numbers(&of_node, false), (1..=first as u64).collect());
        // All of it outlives the document.
        let said = of_node.said(at).unwrap();
        let name = session_numbers_of(&pool, &node);
        let doc =
            Doc::session_numbers_after(None, name, Some(&said), rota_model::Stamp::MIN.next());
        let again = OfNode::read(Some(&doc), at, WEEK);
        assert_eq!((&again.numbers, again.sessions), (&of_node.numbers, of_node.sessions));
    }

    #[test]
    fn a_node_with_more_sessions_than_have_numbers_gives_those_of_sessions_that_are_gone_away_first()
     {
        let (pool, node) = (PoolName::default_pool(), NodeId::parse("n1").unwrap());
        let at = (&pool, &node);
        let whole = range(0, M - 1);
        let mut of_node = OfNode::read(None, at, WEEK);
        let take = |of_node: &mut OfNode, from: usize, to: usize, wall_ms: u64| {
            let there = SessionsThere {
                pe: Epoch(1),
                range: whole,
                sessions: (from..to).map(session).collect(),
            };
            of_node.take(at, Slots { m: M, range: whole }, &there, wall_ms);
        };
        take(&mut of_node, 0, SESSION_NUMBERS_MAX, 1);
        take(&mut of_node, 0, 300, 1);
        assert_eq!(of_node.numbers.entries().count(), 300 + ENDED_MAX);
        of_node = OfNode::read(None, at, WEEK);
        take(&mut of_node, 0, SESSION_NUMBERS_MAX, 1);
        take(&mut of_node, 0, SESSION_NUMBERS_MAX - 10, 2);
        assert_eq!(numbers(&of_node, false).len(), 10);
        take(&mut of_node, 0, SESSION_NUMBERS_MAX - 10, 3);
        take(&mut of_node, 5, SESSION_NUMBERS_MAX - 10, 4);
        assert_eq!(numbers(&of_node, false).len(), 15);
        // Twelve new ones displace as many that are gone, the oldest first.
        let sessions = (5..SESSION_NUMBERS_MAX - 10).chain(5_000..5_012).map(session).collect();
        let there = SessionsThere { pe: Epoch(1), range: whole, sessions };
        of_node.take(at, Slots { m: M, range: whole }, &there, 5);
        assert_eq!(of_node.numbers.entries().count(), SESSION_NUMBERS_MAX);
        assert_eq!(numbers(&of_node, false).len(), 3);
        assert_eq!(numbers(&of_node, true).last(), Some(&(SESSION_NUMBERS_MAX as u64 + 12)));
        // Where all run, those beyond have none.
        take(&mut of_node, 0, 2 * SESSION_NUMBERS_MAX, 6);
        assert_eq!(numbers(&of_node, true).len(), SESSION_NUMBERS_MAX);
        assert_eq!(numbers(&of_node, false).len(), 0);
    }
}
