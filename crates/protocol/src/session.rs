//! Requests about one session, at its owner: open, get, report; closes stand in `closing`.
//!
//! The record says where a life stands; [`Work`] says who waits for it and what the node was asked
//! last. Everything that a record promises is committed before the node is asked (I5).

use crate::drive::{Runs, start_failed};
use crate::entry::{Asked, Origin};
use crate::env::Env;
use crate::io::Transition;
use crate::leading::REQUESTS_MAX;
use crate::memory::{asked_before, hear_of_machine, new_life, remember, reused, spec_answered};
use crate::nodes::{Chosen, NoNode};
use crate::partition::Partition;
use crate::pool::{ROOM_MS, full_for_good, unknown_class};
use crate::work::Work;
use rota_messages::{Answer, Doc, DocKey, Op, OpResult, Write};
use rota_model::node_msg::{ReportEvent, ReportItem};
use rota_model::{
    OpenOp, Outcome, Placement, Refusal, RefusalKind, RequestEntry, RequestFate, RequestId, Retry,
    SessionRecord, SessionState, Token,
};
use std::sync::Arc;

/// Most requests that wait for one id.
const WAITERS_MAX: usize = 1_024;

impl Partition {
    /// A request arrives at the owner. A repetition of one that waits here is dropped, before all else.
    pub fn on_request(&mut self, env: &mut Env, origin: Origin, op: Op, deadline_ms: u64) {
        if self.leading.as_ref().is_some_and(|it| it.live.contains_key(&origin)) {
            return;
        }
        if let Some(result) = self.settled.get(origin, &op) {
            return env.answer(origin, result);
        }
        if let Some(refusal) = self.recovering() {
            return self.refuse_at_once(env, origin, &op, refusal);
        }
        let Some(leading) = &mut self.leading else {
            let text = format!("this manager does not own partition {}", self.number);
            let retry = Retry::AtOwner(env.epoch());
            let refusal = Refusal::new(RefusalKind::NotOwner, retry, text);
            return self.refuse_at_once(env, origin, &op, refusal);
        };
        if let Some(refusal) = leading.live.refuse(env, &op, REQUESTS_MAX, "partition") {
            return self.refuse_at_once(env, origin, &op, refusal);
        }
        let now = env.now.mono_ms;
        let deadline_ms = now + deadline_ms;
        let asked = Asked { op, deadline_ms, arrived_ms: now, ending: None };
        leading.live.insert(origin, asked);
        self.run(env, origin);
    }

    fn refuse_at_once(&mut self, env: &mut Env, origin: Origin, op: &Op, refusal: Refusal) {
        let result = Err(refusal);
        self.settled.insert(env, origin, op, &result);
        env.answer(origin, result);
    }

    /// Carries a waiting request on, from its beginning.
    pub fn run(&mut self, env: &mut Env, origin: Origin) {
        let Some(leading) = &self.leading else {
            return;
        };
        let Some(asked) = leading.live.get(&origin) else {
            return;
        };
        let op = asked.op.clone();
        let (open, reads) = (leading.is_open(), leading.reads());
        if reads && let Some(refusal) = self.refuses_backlog(env, &op) {
            return self.reply(env, origin, Err(refusal));
        }
        match op {
            // Before the nodes were scanned and the copies compared, nothing here may be shown.
            Op::Get(get) if get.stale_ok && reads => {
                let result = self.read(env, &get.key, true);
                self.reply(env, origin, result);
            }
            Op::List(list) if list.stale_ok && reads => {
                let result = Ok(Answer::Listed(self.page(env, &list)));
                self.reply(env, origin, result);
            }
            Op::Get(get) if reads => self.on_get(origin, &get.key),
            Op::List(_) if reads => self.confirm_then(origin),
            Op::Pull(_) if reads => self.serve_pull(env, origin),
            Op::Open(op) if open => self.on_open(env, origin, op),
            Op::Close(op) if open => self.on_close(env, origin, &op),
            Op::Report(item) if open => self.on_report(env, origin, &item),
            Op::Documents(op) if open || (reads && !op.changes()) => {
                self.on_documents(env, origin, &op);
            }
            Op::Get(_)
            | Op::List(_)
            | Op::Pull(_)
            | Op::Open(_)
            | Op::Close(_)
            | Op::Report(_)
            | Op::Documents(_) => self.enqueue(origin),
        }
    }

    /// Lets a request wait until the partition serves, or has enough copies.
    pub fn enqueue(&mut self, origin: Origin) {
        if let Some(leading) = &mut self.leading {
            leading.queue.push_back(origin);
        }
    }

    fn on_get(&mut self, origin: Origin, key: &rota_model::SessionKey) {
        let Some(leading) = &mut self.leading else {
            return;
        };
        match leading.work.get_mut(key).filter(|work| work.redriven) {
            Some(work) => wait(work, origin),
            None => leading.reads.next.push(origin),
        }
    }

    fn on_open(&mut self, env: &mut Env, origin: Origin, op: OpenOp) {
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

    /// Answers once the newest write of a document is committed.
    pub fn reply_when_committed(
        &mut self,
        env: &mut Env,
        key: &DocKey,
        origin: Origin,
        result: OpResult,
    ) {
        if self.replica.latest.contains_key(key) || self.has_no_copies() {
            // Promises are kept in order of position: wait for everything that was appended.
            self.promise(self.replica.last, origin, result);
        } else {
            self.reply(env, origin, result);
        }
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
                    leading.room.push_back(origin);
                }
            }
        }
    }

    /// The registry here may be some milliseconds old: before an open is refused for it, it is
    /// read again and the open waits a moment.
    fn wait_for_news(&mut self, env: &mut Env, origin: Origin) -> bool {
        let now = env.now.mono_ms;
        let Some(leading) = &mut self.leading else { return false };
        let waits = leading.live.get(&origin).is_some_and(|it| now < it.arrived_ms + ROOM_MS);
        if waits {
            env.refresh = true;
            leading.room.push_back(origin);
        }
        waits
    }

    fn wait_for_room(&mut self, env: &mut Env, origin: Origin, op: &OpenOp, full: NoNode) {
        if let Some(full) = full_for_good(env, &op.spec.pool, full) {
            return self.reply(env, origin, Err(full));
        }
        if let Some(leading) = &mut self.leading {
            leading.room.push_back(origin);
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
        let pe = self.leading.as_ref().map_or(self.replica.pe, |it| it.pe);
        let token = Token(self.replica.next_pos(pe));
        env.nodes.ask(&chosen.node, token, env.now.mono_ms);
        if let Some(leading) = &mut self.leading {
            leading.work.entry(record.key.clone()).or_default().begin(token);
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
        let work = leading.work.entry(session.clone()).or_default();
        if work.waiters.len() < WAITERS_MAX {
            wait(work, origin);
            return;
        }
        let retry = Retry::AfterMs(env.config.timing.retry_ms);
        let text = format!("{WAITERS_MAX} requests wait for session {session} already");
        self.reply(env, origin, Err(Refusal::new(RefusalKind::Overloaded, retry, text)));
    }

    fn on_report(&mut self, env: &mut Env, origin: Origin, item: &ReportItem) {
        let key = Self::key_of(env, &item.key);
        let record = self.replica.session(&key).filter(|record| {
            let at = record.placement.as_ref();
            at.is_some_and(|at| at.token == item.token && at.boot == item.boot)
        });
        env.nodes.on_heard(&item.node, item.boot, env.now.mono_ms);
        let Some(record) = record.cloned() else {
            if !matches!(item.event, ReportEvent::Ended { .. }) {
                let at = (&item.node, item.boot);
                self.end_earlier(env, (&item.key, item.token), at);
            }
            return self.reported(origin, &key);
        };
        match &item.event {
            ReportEvent::Ready { address, remark } => {
                self.on_running(env, &key, record, &Runs { address, ready: true, remark });
            }
            ReportEvent::Ended { reason, exit, detail } => {
                self.on_ended(env, &key, record, *reason, exit.clone(), detail);
            }
            ReportEvent::MachineState { state, change } => {
                self.on_machine_state(env, &key, record, state, *change);
            }
        }
        self.reported(origin, &key);
    }

    /// The node forgets its news with the answer. What makes them old must be committed before, as
    /// much as what they change: a CLOSING that is lost with this owner would leave a READY behind
    /// of which nothing runs, and nobody would tell.
    fn reported(&mut self, origin: Origin, key: &DocKey) {
        if self.replica.latest.contains_key(key) {
            self.promise(self.replica.last, origin, Ok(Answer::Reported));
        } else {
            self.confirm_then(origin);
        }
    }

    fn on_machine_state(
        &mut self,
        env: &mut Env,
        key: &DocKey,
        mut record: SessionRecord,
        state: &str,
        change: u64,
    ) {
        if !hear_of_machine(&mut record, state, change) {
            return;
        }
        record.version = self.version_after(env, &record);
        self.write_session(env, key, record, None);
    }

    /// Writes a session's record.
    pub fn write_session(
        &mut self,
        env: &mut Env,
        key: &DocKey,
        record: impl Into<Arc<SessionRecord>>,
        request: Option<RequestId>,
    ) -> rota_model::LogPos {
        let writes = self.session_writes(env, key, record);
        self.write(env, writes, request)
    }

    /// The write of a session's record as it is, over everything that was appended.
    pub fn session_write(&self, key: &DocKey, record: impl Into<Arc<SessionRecord>>) -> Write {
        let record = record.into();
        let before = self.replica.get(key).map(|it| &**it);
        if cfg!(debug_assertions)
            && let Some(before) = before.and_then(Doc::session).filter(|it| it.life == record.life)
        {
            let (from, to) = (before.state, record.state);
            assert!(from == to || from.may_become(to), "{from:?} may not become {to:?}");
        }
        Write::of(key.slot, Doc::session_after(before, record))
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
