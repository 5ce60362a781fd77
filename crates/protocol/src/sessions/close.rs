//! Closes of a session, at its owner.

use crate::log::env::Env;
use crate::log::origin::{Ending, Origin};
use crate::partition::state::Partition;
use crate::ports::note::Transition;
use crate::sessions::read::not_found;
use crate::sessions::request_ids::{earlier_life, fail_opens, hasten, remember, reused};
use rota_messages::{Answer, DocKey};
use rota_model::{
    CloseOp, Reason, Refusal, RefusalKind, RequestFate, RequestId, Retry, SessionRecord,
    SessionState,
};

impl Partition {
    pub fn on_close(&mut self, env: &mut Env, origin: Origin, op: &CloseOp) {
        let key = Self::key_of(env, &op.key);
        let Some(mut record) = self.replica.session(&key).cloned() else {
            return self.confirm_then(origin);
        };
        let entry = self.replica.request(&key, &op.request);
        match entry.as_ref().map(|entry| (&entry.fate, entry)) {
            Some((
                RequestFate::Opening | RequestFate::Opened { .. } | RequestFate::Failed { .. },
                _,
            )) => {
                let refusal = reused(&op.request, "an open");
                return self.reply(env, origin, Err(refusal));
            }
            Some((RequestFate::Closed { life }, _)) if op.life.is_some_and(|it| it != *life) => {
                let refusal = reused(&op.request, &format!("a close of life {life}"));
                return self.reply(env, origin, Err(refusal));
            }
            Some((RequestFate::Closed { life }, entry)) if record.life != *life => {
                // That close was carried out, and a later open began a new life.
                let session = self.view_of(env, earlier_life(&record, entry, *life));
                let result = Ok(Answer::Closed { finished: true, session });
                return self.reply_when_committed(env, &key, origin, result);
            }
            Some((RequestFate::Closed { .. }, _)) | None => {}
        }
        if op.life.is_some_and(|life| life != record.life) {
            return self.confirm_then(origin);
        }
        if self.refuses_for_memory(env, origin, &key, &op.request) {
            return;
        }
        match record.state {
            SessionState::Closed | SessionState::Failed | SessionState::Lost => {
                self.close_ended(env, origin, &key, record, &op.request);
            }
            SessionState::Closing => {
                let known = entry.is_some();
                let hastens = hasten(&mut record, op.grace_ms);
                // The node is asked again once that is committed.
                if hastens || !known {
                    self.remember_close(env, &key, record, &op.request);
                }
                self.join_work(env, origin, &op.key);
            }
            SessionState::Pending | SessionState::Starting | SessionState::Ready => {
                record.grace_ms = op.grace_ms;
                self.start_closing(env, &key, record, &op.request);
                self.join_work(env, origin, &op.key);
            }
        }
    }

    /// The life ended already. The request is remembered all the same: its repetition must not
    /// close a later life.
    fn close_ended(
        &mut self,
        env: &mut Env,
        origin: Origin,
        key: &DocKey,
        mut record: SessionRecord,
        request: &RequestId,
    ) {
        if self.replica.request(key, request).is_none() {
            record = self.remember_close(env, key, record, request);
        }
        let session = self.view_of(env, record.clone());
        let result = Ok(Answer::Closed { finished: true, session });
        if self.replica.latest.contains_key(key) {
            self.promise(self.replica.last, origin, result);
        } else {
            self.confirm_then(origin);
        }
    }

    /// Writes down that a request closed this life.
    fn remember_close(
        &mut self,
        env: &mut Env,
        key: &DocKey,
        mut record: SessionRecord,
        request: &RequestId,
    ) -> SessionRecord {
        let life = record.life;
        record.version = self.version_after(env, &record);
        // An open that this close overtakes is over.
        fail_opens(&mut record);
        remember(&mut record, env, request, RequestFate::Closed { life });
        self.write_session(env, key, record.clone(), Some(request.clone()));
        record
    }

    fn start_closing(
        &mut self,
        env: &mut Env,
        key: &DocKey,
        mut record: SessionRecord,
        request: &RequestId,
    ) {
        record.state = SessionState::Closing;
        record.detail.clear();
        record.reason = Some(Reason::ClosedByClient);
        self.note_ending(&record, Ending::Overtaken);
        env.note(Transition::CloseStarted, Some(self.number));
        let session = record.key.clone();
        self.remember_close(env, key, record, request);
        if let Some(leading) = &mut self.leading {
            let work = leading.residents.sessions.work.entry(session).or_default();
            (work.ask_ms, work.asked) = (0, 0);
        }
    }

    /// The close found nothing to close; nobody else owned the partition when it arrived.
    pub fn on_close_confirmed(&mut self, env: &mut Env, origin: Origin, op: CloseOp) {
        let key = Self::key_of(env, &op.key);
        let entry = self.replica.request(&key, &op.request);
        let remembered = self.replica.session(&key).is_some_and(|record| {
            let fate = entry.as_ref().map(|entry| &entry.fate);
            matches!(fate, Some(RequestFate::Closed { life }) if *life != record.life)
        });
        let result = match self.replica.session(&key) {
            None => Err(not_found(&op.key)),
            // Another life came and went meanwhile: the answer is about the one that was closed.
            Some(_) if remembered => return self.run(env, origin),
            Some(record) if op.life.is_some_and(|life| life != record.life) => {
                let text = format!("session {} lives life {}", op.key, record.life);
                let result = Err(Refusal::new(RefusalKind::LifeMismatch, Retry::Never, text));
                return self.reply_when_committed(env, &key, origin, result);
            }
            // It came and went while the copies confirmed: this close must be remembered first.
            Some(_) if entry.is_none() => {
                return self.run(env, origin);
            }
            Some(record) if record.state.is_ended() => {
                let session = self.view_of(env, record.clone());
                let result = Ok(Answer::Closed { finished: true, session });
                return self.reply_when_committed(env, &key, origin, result);
            }
            Some(_) => return self.run(env, origin),
        };
        self.reply(env, origin, result);
    }
}
