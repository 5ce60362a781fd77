//! The task that tries an action of a session again.

use crate::contents::tasks::TaskItem;
use crate::log::at::At;
use rota_docstore::{DocName, DocumentEdit};
use rota_messages::lives::Event;
use rota_messages::{Doc, DocKey, Write};
use rota_model::{SessionRecord, Stamp};
use rota_ring::together;
use rota_tasks::{ACT, ActWork, TASK_CLASS};
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64;

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

/// The write of a task that tries an action again, so many times at most; none where the task stands there already. It
/// is given up from the start if it may try no time.
pub(crate) fn retry_write(
    led: &At<'_>,
    (session, record): (&DocKey, &SessionRecord),
    event: &Event,
    retries: u32,
    (code, report): (&str, &str),
) -> Option<Write> {
    let key = retry_key(session, record, event)?;
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
    let task = work.into_task((ns, place, retry_id(record, event), qn), start_at, (code, report));
    let schema = led.env.documents_env.schema.clone();
    let mut edited = DocumentEdit::new(key.name.clone(), None, schema);
    edited.ensure();
    edited.put_one(&TaskItem(task)).ok()?;
    let version = led.stamps_above().max(now);
    let document = edited.settle_at(version, version, Stamp::MIN).ok()?;
    let doc = Doc::new(Arc::new(document)).ok()?;
    Some(Write { key, doc: Some(Arc::new(doc)) })
}
