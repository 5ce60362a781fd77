//! The task that tries an action of a session again.

use crate::contents::tasks::TaskItem;
use crate::log::at::At;
use crate::log::replica::Replica;
use rota_docstore::{DocName, DocumentEdit};
use rota_lifecycle::{LifeItem, Managed};
use rota_messages::lives::Event;
use rota_messages::{Doc, DocKey, Write};
use rota_model::{SessionKey, SessionRecord, SlotId, Stamp};
use rota_ring::together;
use rota_tasks::{ACT, ActWork, TASK_CLASS};
use std::collections::BTreeSet;
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64;

/// The name of a task behind the place of its session, with braces around that.
const NAME_BYTES: usize = "act-".len() + 16 + 2;

/// Longest place of a session for which such tasks can be made.
pub(crate) const PLACE_BYTES_MAX: usize = rota_tasks::DOCID_BYTES_MAX - NAME_BYTES;

/// The task that tries an action again which failed. `None`: the id of the session leaves no room for its id.
pub(crate) fn retry_key(
    slot: SlotId,
    (session, origin): (&SessionKey, Stamp),
    event: &Event,
) -> Option<DocKey> {
    Some(DocKey::new(slot, retry_name(session, &retry_id((session, origin), event))?))
}

fn retry_name(session: &SessionKey, id: &str) -> Option<DocName> {
    let place = together(session.id.as_str());
    let docid = format!("{{{place}}}{id}");
    let name = DocName::new(&session.namespace, TASK_CLASS, &docid).ok()?;
    Some(name).filter(|_| together(&docid) == place)
}

fn retry_id((session, origin): (&SessionKey, Stamp), Event { life_cycle, word }: &Event) -> String {
    let text = format!("{} {origin} {life_cycle} {word}", session.id);
    format!("act-{:016x}", xxh3_64(text.as_bytes()))
}

/// Whether tasks can be made that try actions of a session again.
pub(crate) fn takes_retries(session: &SessionKey) -> bool {
    retry_name(session, &format!("act-{:016x}", 0)).is_some()
}

/// Events whose action failed, with the chain of lives that they belong to.
fn failures(managed: &Managed) -> BTreeSet<(Stamp, Event)> {
    let failed = managed.items().filter(|(_, it)| it.failed.is_some() && it.fired.is_none());
    let event = |item: &LifeItem| Event {
        life_cycle: item.life_cycle().to_string(),
        word: item.last().to_string(),
    };
    failed.map(|(item, _)| (managed.origin(), event(item))).collect()
}

/// The removal of tasks that have nothing left to try, since what failed there has not failed any more. The one that had
/// an action run which succeeded, `ran`, goes when it is told so.
pub(crate) fn settled_retries(
    replica: &Replica,
    (slot, session): (SlotId, &SessionKey),
    (before, after): (&Managed, &Managed),
    ran: Option<&Event>,
) -> Vec<Write> {
    let after = failures(after);
    let is_settled = |it: &(Stamp, Event)| !after.contains(it) && ran != Some(&it.1);
    let settled = failures(before).into_iter().filter(is_settled);
    let keys = settled.filter_map(|(origin, event)| retry_key(slot, (session, origin), &event));
    let there = keys.filter(|it| replica.get(it).is_some());
    there.map(|key| Write { key, doc: None }).collect()
}

/// The write of a task that tries an action again, so many times at most; none where the task stands there already. It
/// is given up from the start if it may try no time.
pub(crate) fn retry_write(
    led: &At<'_>,
    (session, record): (&DocKey, &SessionRecord),
    event: &Event,
    retries: u32,
    (code, report): (&str, &str),
) -> Option<Write> {
    let of = (&record.key, record.origin());
    let key = retry_key(session.slot, of, event)?;
    if led.log.replica.get(&key).is_some() {
        return None;
    }
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
    let task = work.into_task((ns, place, retry_id(of, event), qn), start_at, (code, report));
    let schema = led.env.documents_env.schema.clone();
    let mut edited = DocumentEdit::new(key.name.clone(), None, schema);
    edited.ensure();
    edited.put_one(&TaskItem(task)).ok()?;
    let version = led.stamps_above().max(now);
    let document = edited.settle_at(version, version, Stamp::MIN).ok()?;
    let doc = Doc::new(Arc::new(document)).ok()?;
    Some(Write { key, doc: Some(Arc::new(doc)) })
}
