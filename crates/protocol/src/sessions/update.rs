//! Changes of a session that lives: its attributes and its life cycles, in one commit.
//!
//! Invariant: the record and the document of life cycles that one change writes are committed together.

use crate::contents::lives::{beside, managed_in};
use crate::contents::tasks::task_of;
use crate::log::at::At;
use crate::log::origin::Origin;
use crate::log::resident::RequestHandler;
use crate::managed::retry::{retry_key, settled_retries};
use crate::managed::settle::settle;
use crate::managed::{begun, check_handlers, handler, is_mark, managed_of, write_of};
use crate::ports::note::Transition;
use crate::sessions::keep_alive::refuses;
use crate::sessions::read::{key_of, not_found, view_at_node, visible};
use crate::sessions::remembered::session_writes;
use crate::sessions::request_ids::note_opened_with;
use crate::sessions::state::Sessions;
use crate::sessions::version::next_version;
use rota_lifecycle::{Edit, Managed};
use rota_messages::lives::{Event, Life, LivesAnswer, Retrying, UpdateOp};
use rota_messages::{Answer, DocKey, OpResult, Write};
use rota_model::{
    ATTRIBUTES_BYTES_MAX, Attributes, FieldError, Refusal, RefusalKind, Retry, SessionKey,
    SessionRecord, SessionState, SessionView, Stamp,
};
use std::sync::Arc;

/// Why a change cannot be made of this record, if so. It may be another one by the time that it is confirmed.
fn refused(record: &SessionRecord, op: &UpdateOp) -> Option<Refusal> {
    if let Some(refusal) = refuses(record, op.life) {
        return Some(refusal);
    }
    let version = op.if_version.filter(|it| *it != record.version)?;
    let text = format!("session {} has version {}, and not {version}", op.key, record.version);
    Some(Refusal::new(RefusalKind::VersionMismatch, Retry::WhenChanged, text))
}

/// The attributes after a change.
fn changed(attributes: &Arc<Attributes>, op: &UpdateOp) -> Result<Arc<Attributes>, FieldError> {
    if op.attributes.is_empty() {
        return Ok(attributes.clone());
    }
    let mut attributes = (**attributes).clone();
    for (name, value) in &op.attributes {
        match value {
            Some(value) => drop(attributes.insert(name.clone(), value.clone())),
            None => drop(attributes.remove(name)),
        }
    }
    let bytes: usize = attributes.iter().map(|(name, value)| name.len() + value.len()).sum();
    if bytes > ATTRIBUTES_BYTES_MAX {
        let problem =
            format!("would be {bytes} bytes together; the limit is {ATTRIBUTES_BYTES_MAX}");
        return Err(FieldError::new("attributes", problem));
    }
    Ok(Arc::new(attributes))
}

/// Carries out what a change says of life cycles. All of it, or every mistake.
fn edited(
    managed: &mut Managed,
    op: &UpdateOp,
    now: Stamp,
    check: impl Fn(&Edit) -> Vec<FieldError>,
) -> Result<(), Vec<FieldError>> {
    let mut mistakes = check(&op.edit);
    if let Some(Event { life_cycle, word }) = &op.ran {
        // It was removed meanwhile, or an operator skipped it: what the action asks for is done all the same.
        managed.fire(life_cycle, word, now);
    }
    mistakes.extend(settle(managed, op, now));
    if let Err(clashes) = managed.edit(&op.edit, now) {
        mistakes.extend(clashes);
    }
    if mistakes.is_empty() { Ok(()) } else { Err(mistakes) }
}

/// How a session lives of which another version was to be changed, if all that was asked for has come about: then this
/// may be a repetition.
fn stood(led: &At<'_>, key: &DocKey, record: &SessionRecord, op: &UpdateOp) -> Option<Life> {
    let UpdateOp { attributes, edit, skip, retry, .. } = op;
    let asks = !(attributes.is_empty() && edit.is_empty() && skip.is_empty() && retry.is_empty());
    let now = Stamp::from_epoch_ms(led.env.now.wall_ms);
    if !asks || refuses(record, op.life).is_some() {
        return None;
    }
    let managed = managed_of(&led.log.replica, key, record, now);
    let mut after = managed.clone();
    edited(&mut after, op, now, |_| Vec::new()).ok()?;
    let attributes = changed(&record.spec.attributes, op).ok()?;
    if after != managed || attributes != record.spec.attributes {
        return None;
    }
    let session = view_at_node(led, record.clone());
    Some(life(led, key, Some(session), managed))
}

impl Sessions {
    pub(crate) fn on_update(&mut self, led: &mut At<'_>, origin: Origin, op: UpdateOp) {
        let key = key_of(led.env, &op.key);
        let Some(record) = led.log.replica.record(&key) else { return led.confirm_then(origin) };
        if refused(&record, &op).is_some() {
            return led.confirm_then(origin);
        }
        if record.state != SessionState::Ready {
            return self.join_work(led, origin, &op.key);
        }
        if !led.may_begin() {
            return led.enqueue(origin);
        }
        match updated(led, &key, &record, &op) {
            Ok((writes, life)) => {
                led.env.note(Transition::SessionUpdated, Some(led.log.number));
                let at = led.write(writes, None);
                led.promise(at, origin, Ok(Answer::Lives(LivesAnswer::Life(Box::new(life)))));
            }
            Err(mistakes) => self.reply(led, origin, Err(Refusal::invalid(mistakes))),
        }
    }

    /// Nobody else owned the partition when a change came that could not be made.
    pub(crate) fn on_update_confirmed(&mut self, led: &mut At<'_>, origin: Origin, op: &UpdateOp) {
        let key = key_of(led.env, &op.key);
        let result: OpResult = match led.log.replica.session(&key) {
            None => Err(not_found(&op.key)),
            Some(record) => match refused(record, op) {
                Some(refusal) => match stood(led, &key, record, op) {
                    Some(life) => Ok(Answer::Lives(LivesAnswer::Life(Box::new(life)))),
                    None => Err(refusal),
                },
                None => return self.run(led, origin),
            },
        };
        self.reply_when_committed(led, &key, origin, result);
    }

    /// How the life cycles of a session stand, as they are committed. `running`: the event whose action is under way.
    pub(crate) fn show_life(
        &mut self,
        led: &mut At<'_>,
        origin: Origin,
        session: &SessionKey,
        running: Option<&Event>,
    ) {
        let key = key_of(led.env, session);
        let record = visible(led, &key);
        let held = led.log.replica.docs.get(&beside(&key, session)).and_then(|it| managed_in(it));
        let now = Stamp::from_epoch_ms(led.env.now.wall_ms);
        let managed = match (&record, held) {
            (None, None) => return self.reply(led, origin, Err(not_found(session))),
            (Some(record), held) if !record.state.is_ended() => begun(held, record, now),
            (_, held) => held.unwrap_or_else(|| Managed::new(Stamp::MIN)),
        };
        let view = record.map(|it| view_at_node(led, it));
        let life = Life { running: running.cloned(), ..life(led, &key, view, managed) };
        self.reply(led, origin, Ok(Answer::Lives(LivesAnswer::Life(Box::new(life)))));
    }
}

/// What is told of life cycles.
fn life(led: &At<'_>, key: &DocKey, session: Option<SessionView>, managed: Managed) -> Life {
    let failed = managed.items().filter(|(_, it)| it.failed.is_some() && it.fired.is_none());
    let events = failed.map(|(item, _)| Event {
        life_cycle: item.life_cycle().to_string(),
        word: item.last().to_string(),
    });
    let retrying = events.filter_map(|event| {
        let record = &session.as_ref()?.record;
        let of = (&record.key, record.origin());
        let doc = led.log.replica.get(&retry_key(key.slot, of, &event)?)?;
        let task = task_of(doc.of_application()?)?;
        let state = task.state().as_str().to_owned();
        Some(Retrying { event, task: task.docid(), state, at: task.start_at })
    });
    let retrying = retrying.collect();
    Life { session, managed: Arc::new(managed), retrying, running: None }
}

/// What a change writes, and how things stand after it.
fn updated(
    led: &mut At<'_>,
    key: &DocKey,
    record: &SessionRecord,
    op: &UpdateOp,
) -> Result<(Vec<Write>, Life), Vec<FieldError>> {
    let now = Stamp::from_epoch_ms(led.env.now.wall_ms);
    let attributes = changed(&record.spec.attributes, op);
    let before = managed_of(&led.log.replica, key, record, now);
    let mut managed = before.clone();
    let check = |edit: &Edit| {
        let added = edit.add.iter().chain(edit.replace.iter().flatten());
        check_handlers(&op.key, |it| handler(record, it), added)
    };
    let edited = edited(&mut managed, op, now, check);
    let attributes = match (attributes, edited) {
        (Ok(attributes), Ok(())) => attributes,
        (attributes, edited) => {
            let mistakes = edited.err().unwrap_or_default();
            return Err(mistakes.into_iter().chain(attributes.err()).collect());
        }
    };
    managed.fire_marks(now, &|life_cycle, _| is_mark(record, life_cycle));
    let mut record = record.clone();
    if record.spec.attributes != attributes {
        note_opened_with(&mut record);
        record.spec.attributes = attributes;
    }
    record.version = next_version(led.env, led.log, &record);
    let record = Arc::new(record);
    let mut writes = session_writes(led.env, led.log, key, record.clone());
    let floor = led.stamps_above().max(now);
    writes.push(write_of(&led.log.replica, &beside(key, &record.key), &managed, floor));
    let of = (key.slot, &record.key);
    let change = (&before, &managed);
    writes.extend(settled_retries(&led.log.replica, of, change, op.ran.as_ref()));
    let session = view_at_node(led, record);
    Ok((writes, life(led, key, Some(session), managed)))
}
