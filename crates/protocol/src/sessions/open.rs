//! Opens and gets of one session, at its owner. Closes stand in `close`, reports of nodes in `report`.
//!
//! The record says where a life stands; [`Work`] says who waits for it and what the node was asked
//! last. Everything that a record promises is committed before the node is asked (I5).

use crate::log::env::Env;
use crate::log::origin::Origin;
use crate::nodes::registry::{Chosen, NoNode};
use crate::partition::state::Partition;
use crate::ports::note::Transition;
use crate::sessions::capacity::unknown_class;
use crate::sessions::refusals::start_failed;
use crate::sessions::request_ids::{asked_before, new_life, remember, reused, spec_answered};
use crate::sessions::state::Work;
use rota_messages::{Answer, DocKey};
use rota_model::{
    OpenOp, Outcome, Placement, Refusal, RefusalKind, RequestEntry, RequestFate, RequestId, Retry,
    SessionRecord, SessionState, Token,
};

/// Most requests that wait for one id.
const WAITERS_MAX: usize = 1_024;

impl Partition {
    pub(crate) fn on_get(&mut self, origin: Origin, key: &rota_model::SessionKey) {
        let Some(leading) = &mut self.leading else {
            return;
        };
        match leading.residents.sessions.work.get_mut(key).filter(|work| work.redriven) {
            Some(work) => wait(work, origin),
            None => leading.rounds.next.push(origin),
        }
    }

    pub(crate) fn on_open(&mut self, env: &mut Env, origin: Origin, op: OpenOp) {
        let key = Self::key_of(env, &op.key);
        let record = self.replica.record(&key);
        if let Some(record) = &record
            && let Some(entry) = self.replica.request(&key, &op.request)
        {
            if let Some(before) = asked_before(record, &entry, &op) {
                return self.reply(env, origin, Err(reused(&entry.id, &before)));
            }
            if self.on_repeated_open(env, origin, &op, record, &entry) {
                return;
            }
        }
        if self.refuses_for_memory(env, origin, &key, &op.request) {
            return;
        }
        match record.as_ref().map(|record| record.state) {
            Some(SessionState::Ready) if op.remember => self.open_existed(env, origin, &key, &op),
            Some(SessionState::Ready) => self.confirm_then(origin),
            Some(SessionState::Pending | SessionState::Starting | SessionState::Closing) => {
                self.join_work(env, origin, &op.key);
            }
            Some(SessionState::Closed | SessionState::Failed | SessionState::Lost)
                if self.replica.latest.contains_key(&key) =>
            {
                // The end is not committed yet: whoever waits for it is answered first.
                self.join_work(env, origin, &op.key);
            }
            Some(SessionState::Closed | SessionState::Failed | SessionState::Lost) | None => {
                self.begins_anew(origin);
                self.open_new(env, origin, &key, record.as_deref(), op);
            }
        }
    }

    /// Too many requests changed sessions within the time that they are remembered.
    pub fn refuses_for_memory(
        &mut self,
        env: &mut Env,
        origin: Origin,
        key: &DocKey,
        request: &RequestId,
    ) -> bool {
        let Some(wait_ms) = self.memory_wait(env, key, request) else { return false };
        let text = format!(
            "{} requests opened or closed sessions of this partition in the last 10 minutes; no more \
             can be remembered",
            env.config.sizes.requests_max
        );
        let retry = Retry::AfterMs(wait_ms);
        self.reply(env, origin, Err(Refusal::new(RefusalKind::Overloaded, retry, text)));
        true
    }

    /// A remembered request gets its remembered answer. False: carry on as if it were new.
    fn on_repeated_open(
        &mut self,
        env: &mut Env,
        origin: Origin,
        op: &OpenOp,
        record: &SessionRecord,
        entry: &RequestEntry,
    ) -> bool {
        let result = match &entry.fate {
            RequestFate::Opening => return false,
            RequestFate::Failed { life } if *life == record.life && is_closing(record) => {
                self.overtaken(origin);
                return false;
            }
            RequestFate::Failed { life } => Err(start_failed(record, *life)),
            RequestFate::Closed { .. } => Err(reused(&entry.id, "a close")),
            RequestFate::Opened { outcome, life, version, placement } => {
                let is_live = record.life == *life && record.state == SessionState::Ready;
                let answered = SessionRecord {
                    key: record.key.clone(),
                    spec: spec_answered(record, entry, op),
                    life: *life,
                    version: *version,
                    state: SessionState::Ready,
                    reason: None,
                    detail: if is_live { record.detail.clone() } else { String::new() },
                    exit: None,
                    grace_ms: None,
                    placement: Some(placement.clone()),
                    attributes_digest: None,
                    machine_state: String::new(),
                    machine_change: 0,
                    requests: Vec::new(),
                };
                let session = self.view_at_node(env, answered);
                Ok(Answer::Opened { outcome: *outcome, session, ended_since: !is_live })
            }
        };
        env.note(Transition::RequestRepeated, Some(self.number));
        let key = Self::key_of(env, &op.key);
        self.reply_when_committed(env, &key, origin, result);
        true
    }

    /// Nobody else owned the partition when the open arrived. Only what is committed is told: the
    /// newest version may be lost with this owner.
    pub fn on_open_confirmed(&mut self, env: &mut Env, origin: Origin, op: OpenOp) {
        let key = Self::key_of(env, &op.key);
        if !self.replica.session(&key).is_some_and(SessionRecord::is_live) {
            return self.run(env, origin);
        }
        match self.visible(&key).filter(|it| it.is_live()) {
            Some(record) => {
                let session = self.view_at_node(env, record);
                env.note(Transition::OpenExisted, Some(self.number));
                let (outcome, ended_since) = (Outcome::Existed, false);
                self.reply(env, origin, Ok(Answer::Opened { outcome, session, ended_since }));
            }
            None => self.confirm_then(origin),
        }
    }

    /// The live session was found, and the caller may ask again: remember the answer.
    fn open_existed(&mut self, env: &mut Env, origin: Origin, key: &DocKey, op: &OpenOp) {
        let Some(mut record) = self.replica.session(key).cloned() else {
            return;
        };
        let Some(placement) = record.placement.clone() else {
            return;
        };
        record.version = self.version_after(env, &record);
        let fate = RequestFate::Opened {
            outcome: Outcome::Existed,
            life: record.life,
            version: record.version,
            placement,
        };
        remember(&mut record, env, &op.request, fate);
        let session = self.view_at_node(env, record.clone());
        let at = self.write_session(env, key, record, Some(op.request.clone()));
        env.note(Transition::OpenExisted, Some(self.number));
        let (outcome, ended_since) = (Outcome::Existed, false);
        self.promise(at, origin, Ok(Answer::Opened { outcome, session, ended_since }));
    }

    /// `old` is the life before, which has ended.
    fn open_new(
        &mut self,
        env: &mut Env,
        origin: Origin,
        key: &DocKey,
        old: Option<&SessionRecord>,
        op: OpenOp,
    ) {
        if !self.has_copies(env) {
            return self.enqueue(origin);
        }
        let limit = env.config.load_limit_permille;
        if let Some(refusal) = self.refuses_for_room(env, &op) {
            return self.reply(env, origin, Err(refusal));
        }
        match env.nodes.choose(&op.spec.pool, &op.spec.class, limit, &[], env.now.mono_ms) {
            Ok(chosen) => {
                let mut record = new_life(env, old, &op, self.stamps_above(env));
                remember(&mut record, env, &op.request, RequestFate::Opening);
                env.note(Transition::OpenPending, Some(self.number));
                let session = op.key.clone();
                self.write_pending(env, key, record, chosen, Some(op.request));
                self.join_work(env, origin, &session);
            }
            Err(_) if self.wait_for_news(env, origin) => {}
            Err(NoNode::UnknownClass) => {
                let refusal = unknown_class(env, &op.spec);
                self.reply(env, origin, Err(refusal));
            }
            Err(full @ NoNode::NoRoom { .. }) => self.wait_for_room(env, origin, &op, full),
            Err(NoNode::Unable) => {
                if let Some(leading) = &mut self.leading {
                    leading.residents.sessions.capacity.waiting.push_back(origin);
                }
            }
        }
    }

    /// Writes PENDING on a node, under the token that its log position names.
    pub fn write_pending(
        &mut self,
        env: &mut Env,
        key: &DocKey,
        mut record: SessionRecord,
        chosen: Chosen,
        request: Option<RequestId>,
    ) {
        let pe = self.leading.as_ref().map_or(self.replica.pe, |it| it.lead.pe);
        let token = Token(self.replica.next_pos(pe));
        env.nodes.ask(&chosen.node, token, env.now.mono_ms);
        if let Some(leading) = &mut self.leading {
            leading.residents.sessions.work.entry(record.key.clone()).or_default().begin(token);
        }
        let Chosen { node, boot } = chosen;
        record.version = self.version_after(env, &record);
        record.state = SessionState::Pending;
        record.placement = Some(Placement { node, boot, token, address: String::new() });
        self.write_session(env, key, record, request);
    }

    /// Lets a request wait for an id in progress.
    pub fn join_work(&mut self, env: &mut Env, origin: Origin, session: &rota_model::SessionKey) {
        let Some(leading) = &mut self.leading else {
            return;
        };
        let work = leading.residents.sessions.work.entry(session.clone()).or_default();
        if work.waiters.len() < WAITERS_MAX {
            wait(work, origin);
            return;
        }
        let retry = Retry::AfterMs(env.config.timing.retry_ms);
        let text = format!("{WAITERS_MAX} requests wait for session {session} already");
        self.reply(env, origin, Err(Refusal::new(RefusalKind::Overloaded, retry, text)));
    }
}

fn is_closing(record: &SessionRecord) -> bool {
    record.state == SessionState::Closing
}

fn wait(work: &mut Work, origin: Origin) {
    if !work.waiters.contains(&origin) {
        work.waiters.push(origin);
    }
}
