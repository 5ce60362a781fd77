//! Closes of a session, at its owner.

use crate::log::at::At;
use crate::log::origin::{Ending, Origin};
use crate::log::resident::RequestHandler;
use crate::ports::note::Transition;
use crate::sessions::expiry::expired;
use crate::sessions::follows::stays_lost;
use crate::sessions::read::{key_of, not_found, view_of};
use crate::sessions::remembered::write_session;
use crate::sessions::request_ids::{closed_by, earlier_life, fail_opens, hasten, remember, reused};
use crate::sessions::state::Sessions;
use crate::sessions::version::next_version;
use rota_messages::{Answer, DocKey};
use rota_model::{
    CloseOp, Reason, Refusal, RefusalKind, RequestFate, RequestId, Retry, SessionRecord,
    SessionState,
};
use rota_ring::Spares;

/// Most sessions that one step begins to close because they are over: about a millisecond.
const EXPIRED_MAX: usize = 64;

impl Sessions {
    pub fn on_close(&mut self, led: &mut At<'_>, origin: Origin, op: &CloseOp) {
        let key = key_of(led.env, &op.key);
        let Some(mut record) = led.log.replica.session(&key).cloned() else {
            return led.confirm_then(origin);
        };
        let entry = led.log.replica.request(&key, &op.request);
        match entry.as_ref().map(|entry| (&entry.fate, entry)) {
            Some((
                RequestFate::Opening | RequestFate::Opened { .. } | RequestFate::Failed { .. },
                _,
            )) => {
                let refusal = reused(&op.request, "an open");
                return self.reply(led, origin, Err(refusal));
            }
            Some((RequestFate::Closed { life }, _)) if op.life.is_some_and(|it| it != *life) => {
                let refusal = reused(&op.request, &format!("a close of life {life}"));
                return self.reply(led, origin, Err(refusal));
            }
            Some((RequestFate::Closed { life }, entry)) if record.life != *life => {
                // That close was carried out, and a later open began a new life.
                let session = view_of(led, earlier_life(&record, entry, *life, op));
                let result = Ok(Answer::Closed { finished: true, session });
                return self.reply_when_committed(led, &key, origin, result);
            }
            Some((RequestFate::Closed { .. }, _)) | None => {}
        }
        if op.life.is_some_and(|life| life != record.life) {
            return led.confirm_then(origin);
        }
        if self.refuses_for_memory(led, origin, &key, &op.request) {
            return;
        }
        match record.state {
            SessionState::Closed | SessionState::Failed | SessionState::Lost => {
                self.close_ended(led, origin, &key, record, &op.request);
            }
            SessionState::Closing => {
                let known = entry.is_some();
                let hastens = hasten(&mut record, op.grace_ms);
                // The node is asked again once that is committed.
                if hastens || !known {
                    remember_close(led, &key, record, &op.request);
                }
                self.join_work(led, origin, &op.key);
            }
            SessionState::Pending | SessionState::Starting | SessionState::Ready => {
                record.grace_ms = op.grace_ms;
                record.reason = Some(closed_by(op));
                self.start_closing(led, &key, record, &op.request);
                self.join_work(led, origin, &op.key);
            }
        }
    }

    /// The life ended already. The request is remembered all the same: its repetition must not
    /// close a later life.
    fn close_ended(
        &mut self,
        led: &mut At<'_>,
        origin: Origin,
        key: &DocKey,
        mut record: SessionRecord,
        request: &RequestId,
    ) {
        if record.is_reopened() || led.log.replica.request(key, request).is_none() {
            record = remember_close(led, key, record, request);
        }
        let session = view_of(led, record.clone());
        let result = Ok(Answer::Closed { finished: true, session });
        if led.log.replica.latest.contains_key(key) {
            led.promise(led.log.replica.last, origin, result);
        } else {
            led.confirm_then(origin);
        }
    }

    fn start_closing(
        &mut self,
        led: &mut At<'_>,
        key: &DocKey,
        mut record: SessionRecord,
        request: &RequestId,
    ) {
        record.state = SessionState::Closing;
        record.detail.clear();
        self.work.note_ending(led, &record, Ending::Overtaken);
        led.env.note(Transition::CloseStarted, Some(led.log.number));
        let session = record.key.clone();
        remember_close(led, key, record, request);
        self.work.ask_anew(&session);
    }

    /// The close found nothing to close; nobody else owned the partition when it arrived.
    pub fn on_close_confirmed(&mut self, led: &mut At<'_>, origin: Origin, op: CloseOp) {
        let key = key_of(led.env, &op.key);
        let entry = led.log.replica.request(&key, &op.request);
        let remembered = led.log.replica.session(&key).is_some_and(|record| {
            let fate = entry.as_ref().map(|entry| &entry.fate);
            matches!(fate, Some(RequestFate::Closed { life }) if *life != record.life)
        });
        let result = match led.log.replica.session(&key) {
            None => Err(not_found(&op.key)),
            // Another life came and went meanwhile: the answer is about the one that was closed.
            Some(_) if remembered => return self.run(led, origin),
            Some(record) if op.life.is_some_and(|life| life != record.life) => {
                let text = format!("session {} lives life {}", op.key, record.life);
                let result = Err(Refusal::new(RefusalKind::LifeMismatch, Retry::Never, text));
                return self.reply_when_committed(led, &key, origin, result);
            }
            // It came and went while the copies confirmed: this close must be remembered first.
            Some(_) if entry.is_none() => {
                return self.run(led, origin);
            }
            Some(record) if record.state.is_ended() => {
                let session = view_of(led, record.clone());
                let result = Ok(Answer::Closed { finished: true, session });
                return self.reply_when_committed(led, &key, origin, result);
            }
            Some(_) => return self.run(led, origin),
        };
        self.reply(led, origin, result);
    }

    /// A session that runs on a node which is drained.
    pub(crate) fn close_drained(&mut self, led: &mut At<'_>, key: &DocKey) {
        let Some(record) = led.log.replica.session(key).cloned() else { return };
        let node = record.placement.as_ref().map(|it| it.node.to_string()).unwrap_or_default();
        let reg = record.placement.as_ref().and_then(|it| led.env.nodes.reg.get(&it.node));
        let shrinks = reg.and_then(|it| it.closes(u64::MAX)) == Some(Spares::AllButAlways);
        let why = if shrinks { ": its pool does not need it any more" } else { "" };
        led.env.note(Transition::SessionDrained, Some(led.log.number));
        let detail = format!("node {node} is drained{why}");
        self.begin_closing(led, key, record, Reason::Drained, detail);
    }

    /// Begins to close what is over by itself.
    pub(crate) fn close_expired(&mut self, led: &mut At<'_>) {
        let now = led.env.now.mono_ms;
        for _ in 0..EXPIRED_MAX {
            if !led.may_begin() || led.backlog().is_some() {
                return;
            }
            let Some((session, life, reason)) = self.expiry.next(&self.uses, now) else { return };
            let key = key_of(led.env, &session);
            let Some(record) = led.log.replica.session(&key).cloned() else { continue };
            let lives = !record.state.is_ended() && record.state != SessionState::Closing;
            if !lives || record.life != life {
                continue;
            }
            let lifetime = record.lifetime.as_deref().cloned().unwrap_or_default();
            led.env.note(Transition::SessionExpired, Some(led.log.number));
            self.begin_closing(led, &key, record, reason, expired(&lifetime, reason));
        }
    }

    /// Begins to close a session that no client closed.
    fn begin_closing(
        &mut self,
        led: &mut At<'_>,
        key: &DocKey,
        mut record: SessionRecord,
        reason: Reason,
        detail: String,
    ) {
        record.version = next_version(led.env, led.log, &record);
        record.state = SessionState::Closing;
        record.reason = Some(reason);
        record.detail = detail;
        self.work.note_ending(led, &record, Ending::Overtaken);
        fail_opens(&mut record);
        let session = record.key.clone();
        write_session(led, key, record, None);
        self.work.ask_anew(&session);
    }
}

/// Writes down that a request closed this life.
fn remember_close(
    led: &mut At<'_>,
    key: &DocKey,
    mut record: SessionRecord,
    request: &RequestId,
) -> SessionRecord {
    let life = record.life;
    record.version = next_version(led.env, led.log, &record);
    // An open that this close overtakes is over.
    fail_opens(&mut record);
    // Nobody opens again what a client closed.
    stays_lost(&mut record);
    remember(&mut record, led.env, request, RequestFate::Closed { life });
    write_session(led, key, record.clone(), Some(request.clone()));
    record
}
