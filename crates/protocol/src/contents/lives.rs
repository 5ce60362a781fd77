//! The committed life cycles of a copy: which documents there are, and when their owner must look at each. So a
//! take-over reads no document to know what is due.

use crate::contents::tasks::TaskItem;
use crate::log::at::At;
use crate::log::env::Env;
use crate::log::replica::Replica;
use rota_docstore::{DocName, DocumentEdit};
use rota_lifecycle::{LifeItem, Managed};
use rota_messages::documents::{life_name, life_session, read_life, session_name};
use rota_messages::lives::Event;
use rota_messages::{Doc, DocKey, Write};
use rota_model::items::LIFE_CLASS;
use rota_model::{FieldError, Handler, LifeFacts, SessionRecord, SessionSpec, Stamp};
use rota_ring::together;
use rota_tasks::{ACT, ActWork, TASK_CLASS};
use std::collections::BTreeMap;
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64;

/// How long the history of life cycles is kept, in milliseconds: a week.
pub(crate) const HISTORY_KEPT_MS: u64 = 7 * 86_400_000;

/// What is known of one document of life cycles.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Glimpse {
    /// Its session's lives have ended.
    pub has_ended: bool,
    /// When its owner must look at it.
    pub at: Option<Stamp>,
}

/// The documents of life cycles of a copy.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Lives {
    glimpses: BTreeMap<DocKey, Glimpse>,
}

impl Lives {
    /// A document was written, or has gone.
    pub fn change(&mut self, key: &DocKey, after: Option<&Doc>) {
        if key.name.class() != LIFE_CLASS {
            return;
        }
        match after.and_then(managed_in) {
            Some(managed) => drop(self.glimpses.insert(key.clone(), glimpse(&managed))),
            None => drop(self.glimpses.remove(key)),
        }
    }

    /// All of them, in order.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&DocKey, Glimpse)> {
        self.glimpses.iter().map(|(key, it)| (key, *it))
    }

    /// One of them.
    pub(crate) fn get(&self, key: &DocKey) -> Option<Glimpse> {
        self.glimpses.get(key).copied()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.glimpses.len()
    }
}

fn glimpse(managed: &Managed) -> Glimpse {
    let next = managed.next_at().filter(|_| !managed.has_ended());
    let at = next.into_iter().chain(managed.purge_at(HISTORY_KEPT_MS)).min();
    Glimpse { has_ended: managed.has_ended(), at }
}

/// The life cycles that a document holds. One that does not read as such holds none: nobody can fire it.
pub fn managed_in(doc: &Doc) -> Option<Managed> {
    let document = doc.of_application().filter(|it| !it.is_deleted())?;
    read_life(document).ok()
}

/// The document of life cycles beside a session.
pub(crate) fn beside(session: &DocKey, record: &SessionRecord) -> DocKey {
    DocKey::new(session.slot, life_name(&record.key))
}

/// The session of a document of life cycles.
pub(crate) fn session_of(life: &DocKey) -> Option<DocKey> {
    Some(DocKey::new(life.slot, session_name(&life_session(&life.name)?)))
}

/// The life cycles that an open gave.
pub(crate) fn given(spec: &SessionSpec) -> Vec<LifeItem> {
    let texts = spec.life.iter().flat_map(|it| &it.managed_state);
    texts.filter_map(|it| LifeItem::parse(it).ok()).collect()
}

/// The life cycles of a session that lives, with everything that was appended: those of its document, or those that
/// its open gave, where the document is of earlier lives.
pub(crate) fn managed_of(
    replica: &Replica,
    session: &DocKey,
    record: &SessionRecord,
    now: Stamp,
) -> Managed {
    let held = replica.get(&beside(session, record)).and_then(|it| managed_in(it));
    begun(held, record, now)
}

/// What is held of a session, brought to the chain of lives of its record.
pub(crate) fn begun(held: Option<Managed>, record: &SessionRecord, now: Stamp) -> Managed {
    let origin = record.origin();
    let mut managed = held.unwrap_or_else(|| Managed::new(Stamp::MIN));
    if managed.origin() != origin {
        // They were checked when the session was opened.
        let begins = managed.begin(origin, given(&record.spec), now);
        debug_assert_eq!(begins, Ok(()));
        if begins.is_err() {
            drop(managed.begin(origin, Vec::new(), now));
        }
    }
    managed
}

/// The write that makes a document of life cycles so; it goes when nothing is left of it. Above `floor`.
pub(crate) fn write_of(replica: &Replica, key: &DocKey, managed: &Managed, floor: Stamp) -> Write {
    if managed.has_ended() && managed.is_empty() {
        return Write { key: key.clone(), doc: None };
    }
    let before = replica.get(key).map(|it| &**it);
    let doc = Doc::life_after(before, key.name.clone(), managed, floor);
    Write { key: key.clone(), doc: Some(Arc::new(doc)) }
}

/// What the class of a session says of lives, by the text that its node has.
pub(crate) fn facts<'a>(env: &'a Env, record: &'a SessionRecord) -> Option<&'a LifeFacts> {
    let SessionSpec { pool, class, .. } = &record.spec;
    let there =
        record.placement.as_ref().and_then(|it| env.nodes.facts_there(&it.node, pool, class));
    there.or_else(|| env.nodes.facts(pool, class)).map(|it| &*it.life)
}

/// Whether an event of a life cycle is only marked.
pub(crate) fn is_mark(facts: Option<&LifeFacts>, life_cycle: &str) -> bool {
    facts.is_some_and(|it| matches!(it.life_cycles.get(life_cycle), Some(Handler::Mark)))
}

/// Refuses items of life cycles that nobody handles.
pub(crate) fn check_handlers<'a>(
    facts: Option<&LifeFacts>,
    items: impl IntoIterator<Item = &'a LifeItem>,
) -> Vec<FieldError> {
    let nobody = |item: &LifeItem| {
        let (life_cycle, event) = (item.life_cycle(), item.last().event());
        let handler = facts.and_then(|it| it.life_cycles.get(life_cycle.as_str()));
        let problem = match handler {
            Some(handler) if !item.last().can_fire() || handler.takes(&event) => return None,
            Some(_) => format!("has no program for {event}"),
            None => "neither has a program nor says mark_only".to_owned(),
        };
        let text = format!("{item}: the class {problem} in its life cycle {life_cycle}");
        Some(FieldError::new("managed_state", text))
    };
    items.into_iter().filter_map(nobody).collect()
}

/// The task that tries an action again which failed. `None`: the id of the session leaves no room for its id.
pub(crate) fn retry_key(session: &DocKey, record: &SessionRecord, event: &Event) -> Option<DocKey> {
    let docid = format!("{{{}}}{}", together(record.key.id.as_str()), retry_id(record, event));
    let name = DocName::new(&record.key.namespace, TASK_CLASS, &docid).ok()?;
    Some(DocKey::new(session.slot, name))
        .filter(|_| together(&docid) == together(record.key.id.as_str()))
}

fn retry_id(record: &SessionRecord, Event { life_cycle, word }: &Event) -> String {
    let text = format!("{} {} {life_cycle} {word}", record.key.id, record.origin());
    format!("act-{:016x}", xxh3_64(text.as_bytes()))
}

/// The write of a task that tries an action again, so many times at most. It stands there given up if that is none.
pub(crate) fn retry_write(
    led: &At<'_>,
    (session, record): (&DocKey, &SessionRecord),
    event: &Event,
    retries: u32,
    (code, report): (&str, &str),
) -> Option<Write> {
    let key = retry_key(session, record, event)?;
    let now = Stamp::from_epoch_ms(led.env.now.wall_ms);
    let tasks = &led.env.config.tasks;
    let work = ActWork {
        id: record.key.id.as_str().to_owned(),
        origin: record.origin(),
        life_cycle: event.life_cycle.clone(),
        word: event.word.clone(),
        retries,
    };
    let start_at = (retries > 0).then(|| now.plus_ms(tasks.patience.first_ms));
    let (ns, place) = (record.key.namespace.clone(), together(record.key.id.as_str()).to_owned());
    let qn = tasks.queue_of.get(ACT).copied().unwrap_or(0);
    let task = work.into_task((ns, place, retry_id(record, event), qn), start_at, (code, report));
    let before = led.log.replica.get(&key).and_then(|it| it.of_application()).cloned();
    let schema = led.env.documents_env.schema.clone();
    let mut edited = DocumentEdit::new(key.name.clone(), before, schema);
    edited.ensure();
    edited.put_one(&TaskItem(task)).ok()?;
    let version = led.stamps_above().max(now);
    let document = edited.settle_at(version, version, Stamp::MIN).ok()?;
    let doc = Doc::new(Arc::new(document)).ok()?;
    Some(Write { key, doc: Some(Arc::new(doc)) })
}
