//! Opens and gets of one session, at its owner. Closes stand in `close`, reports of nodes in `report`.
//!
//! The record says where a life stands; [`Work`] says who waits for it and what the node was asked
//! last. Everything that a record promises is committed before the node is asked (I5).

use crate::log::at::At;
use crate::log::env::Env;
use crate::log::origin::Origin;
use crate::log::resident::RequestHandler;
use crate::managed::{check_handlers, given};
use crate::nodes::choice::{Chosen, NoNode};
use crate::ports::note::Transition;
use crate::sessions::capacity::{
    full_for_good, refused_by_pool, refused_unheard, refuses_for_room, unfit, unknown_class,
};
use crate::sessions::in_progress::Work;
use crate::sessions::read::{key_of, view_at_node, visible};
use crate::sessions::refusals::start_failed;
use crate::sessions::remembered::{memory_wait, write_session};
use crate::sessions::request_ids::{asked_before, new_life, remember, reused, spec_answered};
use crate::sessions::retry_placement::{note_begins_anew, note_overtaken};
use crate::sessions::state::Sessions;
use crate::sessions::version::next_version;
use rota_messages::{Answer, DocKey};
use rota_model::{
    LifeFacts, OpenOp, Outcome, Refusal, RefusalKind, RequestEntry, RequestFate, RequestId, Retry,
    SessionRecord, SessionState,
};

/// Most requests that wait for one id.
const WAITERS_MAX: usize = 1_024;

impl Sessions {
    /// Lets a read wait for a confirm round; or for an id in progress that an earlier owner may have told already.
    pub(crate) fn on_get(
        &mut self,
        led: &mut At<'_>,
        origin: Origin,
        key: &rota_model::SessionKey,
    ) {
        match self.work.ids.get_mut(key).filter(|work| work.redriven) {
            Some(work) => wait(work, origin),
            None => led.confirm_then(origin),
        }
    }

    pub(crate) fn on_open(&mut self, led: &mut At<'_>, origin: Origin, mut op: OpenOp) {
        if let Some(refusal) = refused_unheard(led.env) {
            return self.reply(led, origin, Err(refusal));
        }
        op.spec.pool = led.env.nodes.pool_of(&op);
        let key = key_of(led.env, &op.key);
        let record = led.log.replica.record(&key);
        if let Some(record) = &record
            && let Some(entry) = led.log.replica.request(&key, &op.request)
        {
            if let Some(before) = asked_before(record, &entry, &op) {
                return self.reply(led, origin, Err(reused(&entry.id, &before)));
            }
            if self.on_repeated_open(led, origin, &op, record, &entry) {
                return;
            }
        }
        if self.refuses_for_memory(led, origin, &key, &op.request) {
            return;
        }
        match record.as_ref().map(|record| record.state) {
            Some(SessionState::Ready) if op.remember => self.open_existed(led, origin, &key, &op),
            Some(SessionState::Ready) => led.confirm_then(origin),
            Some(SessionState::Pending | SessionState::Starting | SessionState::Closing) => {
                self.join_work(led, origin, &op.key);
            }
            Some(SessionState::Closed | SessionState::Failed | SessionState::Lost)
                if led.log.replica.latest.contains_key(&key) =>
            {
                // The end is not committed yet: whoever waits for it is answered first.
                self.join_work(led, origin, &op.key);
            }
            Some(SessionState::Closed | SessionState::Failed | SessionState::Lost) | None => {
                note_begins_anew(led, origin);
                self.open_new(led, origin, &key, record.as_deref(), op);
            }
        }
    }

    /// Too many requests changed sessions within the time that they are remembered.
    pub fn refuses_for_memory(
        &mut self,
        led: &mut At<'_>,
        origin: Origin,
        key: &DocKey,
        request: &RequestId,
    ) -> bool {
        let Some(wait_ms) = memory_wait(led, key, request) else { return false };
        let text = format!(
            "{} requests opened or closed sessions of this partition in the last 10 minutes; no more \
             can be remembered",
            led.env.config.sizes.requests_max
        );
        let retry = Retry::AfterMs(wait_ms);
        self.reply(led, origin, Err(Refusal::new(RefusalKind::Overloaded, retry, text)));
        true
    }

    /// A remembered request gets its remembered answer. False: carry on as if it were new.
    fn on_repeated_open(
        &mut self,
        led: &mut At<'_>,
        origin: Origin,
        op: &OpenOp,
        record: &SessionRecord,
        entry: &RequestEntry,
    ) -> bool {
        let result = match &entry.fate {
            RequestFate::Opening => return false,
            RequestFate::Failed { life } if *life == record.life && is_closing(record) => {
                note_overtaken(led, origin);
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
                    lifetime: None,
                };
                let session = view_at_node(led, answered);
                Ok(Answer::Opened { outcome: *outcome, session, ended_since: !is_live })
            }
        };
        led.env.note(Transition::RequestRepeated, Some(led.log.number));
        let key = key_of(led.env, &op.key);
        self.reply_when_committed(led, &key, origin, result);
        true
    }

    /// Nobody else owned the partition when the open arrived. Only what is committed is told: the
    /// newest version may be lost with this owner.
    pub fn on_open_confirmed(&mut self, led: &mut At<'_>, origin: Origin, op: OpenOp) {
        let key = key_of(led.env, &op.key);
        if !led.log.replica.session(&key).is_some_and(SessionRecord::is_live) {
            return self.run(led, origin);
        }
        match visible(led, &key).filter(|it| it.is_live()) {
            Some(record) => {
                // Whoever opens it uses it.
                self.uses.note(&record, led.env.now.mono_ms);
                let session = view_at_node(led, record);
                led.env.note(Transition::OpenExisted, Some(led.log.number));
                let (outcome, ended_since) = (Outcome::Existed, false);
                self.reply(led, origin, Ok(Answer::Opened { outcome, session, ended_since }));
            }
            None => led.confirm_then(origin),
        }
    }

    /// The live session was found, and the caller may ask again: remember the answer.
    fn open_existed(&mut self, led: &mut At<'_>, origin: Origin, key: &DocKey, op: &OpenOp) {
        let Some(mut record) = led.log.replica.session(key).cloned() else {
            return;
        };
        let Some(placement) = record.placement.clone() else {
            return;
        };
        self.uses.note(&record, led.env.now.mono_ms);
        record.version = next_version(led.env, led.log, &record);
        let fate = RequestFate::Opened {
            outcome: Outcome::Existed,
            life: record.life,
            version: record.version,
            placement,
        };
        remember(&mut record, led.env, &op.request, fate);
        let session = view_at_node(led, record.clone());
        let at = write_session(led, key, record, Some(op.request.clone()));
        led.env.note(Transition::OpenExisted, Some(led.log.number));
        let (outcome, ended_since) = (Outcome::Existed, false);
        led.promise(at, origin, Ok(Answer::Opened { outcome, session, ended_since }));
    }

    /// `old` is the life before, which has ended.
    fn open_new(
        &mut self,
        led: &mut At<'_>,
        origin: Origin,
        key: &DocKey,
        old: Option<&SessionRecord>,
        op: OpenOp,
    ) {
        if !led.lead.has_copies(led.env) {
            return led.enqueue(origin);
        }
        let refusal = refused_by_pool(led.env, &op).or_else(|| refuses_for_room(led, &op));
        if let Some(refusal) = refusal {
            return self.reply(led, origin, Err(refusal));
        }
        match led.env.nodes.choose(&op.spec, &[], led.env.now.mono_ms) {
            Ok(chosen) => {
                if let Some(refusal) = refused_by_class(led.env, &op, &chosen) {
                    return self.reply(led, origin, Err(refusal));
                }
                let mut record = new_life(led.env, old, (&op, &chosen.node), led.stamps_above());
                remember(&mut record, led.env, &op.request, RequestFate::Opening);
                led.env.note(Transition::OpenPending, Some(led.log.number));
                let session = op.key.clone();
                self.work.write_pending(led, key, record, chosen, Some(op.request));
                self.join_work(led, origin, &session);
            }
            Err(_) if self.capacity.wait_for_news(led, origin) => {}
            Err(NoNode::UnknownClass) => {
                let refusal = unknown_class(led.env, &op.spec);
                self.reply(led, origin, Err(refusal));
            }
            Err(NoNode::Unfit(why)) => {
                let refusal = unfit(led.env, &op.spec, &why);
                self.reply(led, origin, Err(refusal));
            }
            Err(full) => match full_for_good(led.env, &op.spec, &full) {
                Some(refusal) => self.reply(led, origin, Err(refusal)),
                None => self.capacity.waiting.push_back(origin),
            },
        }
    }

    /// Lets a request wait for an id in progress.
    pub fn join_work(
        &mut self,
        led: &mut At<'_>,
        origin: Origin,
        session: &rota_model::SessionKey,
    ) {
        let work = self.work.ids.entry(session.clone()).or_default();
        if work.waiters.len() < WAITERS_MAX {
            wait(work, origin);
            return;
        }
        let retry = Retry::AfterMs(led.env.config.timing.retry_ms);
        let text = format!("{WAITERS_MAX} requests wait for session {session} already");
        self.reply(led, origin, Err(Refusal::new(RefusalKind::Overloaded, retry, text)));
    }
}

/// Why the class, as the chosen node has it, does not allow the life that an open asks for, if so.
fn refused_by_class(env: &Env, op: &OpenOp, chosen: &Chosen) -> Option<Refusal> {
    let asked = op.spec.life.as_deref()?;
    let facts = env.nodes.facts_there(&chosen.node, &op.spec.pool, &op.spec.class);
    let facts = facts.map(|it| &*it.life);
    // A node says nothing of a class that says nothing.
    let nothing = LifeFacts::default();
    let mut mistakes = facts.unwrap_or(&nothing).refuses(asked);
    let handler_of = |life_cycle: &str| facts.and_then(|it| it.life_cycles.get(life_cycle));
    mistakes.extend(check_handlers(&op.key, handler_of, &given(&op.spec)));
    (!mistakes.is_empty()).then(|| Refusal::invalid(mistakes))
}

fn is_closing(record: &SessionRecord) -> bool {
    record.state == SessionState::Closing
}

fn wait(work: &mut Work, origin: Origin) {
    if !work.waiters.contains(&origin) {
        work.waiters.push(origin);
    }
}
