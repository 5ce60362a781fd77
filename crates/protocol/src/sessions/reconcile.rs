//! Driving ids to where their records want them: what a node's answers change, and what a new owner takes up again.

use crate::log::at::At;
use crate::log::inbox::Inbox;
use crate::log::origin::{Ending, Origin};
use crate::log::resident::RequestHandler;
use crate::ports::note::Transition;
use crate::sessions::ends::write_boot_over;
use crate::sessions::follows::end_unasked;
use crate::sessions::in_progress::Work;
use crate::sessions::mend::FoundEnd;
use crate::sessions::read::{key_of, view_at_node, view_of};
use crate::sessions::refusals::{overtaken, start_failed};
use crate::sessions::remembered::{session_writes, write_session};
use crate::sessions::request_ids::{fail_opens, forget_overtaken, remember};
use crate::sessions::state::Sessions;
use crate::sessions::version::{next_version, told_early};
use crate::sessions::withdraw::end_at;
use rota_messages::{Answer, DocKey, Op};
use rota_model::node_msg::{Blame, DeadToken, NodeAnswer};
use rota_model::{
    BootId, Exit, MendStep, Mended, NodeId, OpenOp, Outcome, Reason, RequestFate, SessionKey,
    SessionRecord, SessionState, Token,
};
use std::cell::Cell;
use std::sync::Arc;

/// What a node says of a session that runs.
pub(crate) struct Running<'a> {
    pub address: &'a str,
    /// Whether it answers.
    pub ready: bool,
    /// What its opener should know of it, for people.
    pub remark: &'a str,
}

impl Sessions {
    /// A node answered about a token.
    pub fn on_node_answer(
        &mut self,
        led: &mut At<'_>,
        session: &SessionKey,
        token: Token,
        answer: NodeAnswer,
    ) {
        if !led.lead.is_open() {
            return;
        }
        if let Some(work) = self.work.ids.get_mut(session) {
            work.on_seen(token);
        }
        let key = key_of(led.env, session);
        let record = led.log.replica.session(&key).filter(|it| it.token() == Some(token));
        let Some(record) = record.cloned() else {
            return;
        };
        let closing = record.state == SessionState::Closing;
        match answer {
            NodeAnswer::Running { address, ready, remark } if !closing => {
                let running = Running { address: &address, ready, remark: &remark };
                self.on_running(led, &key, record, &running);
            }
            NodeAnswer::Dead(DeadToken::NeverStarted { blame, detail }) if !closing => {
                if blame == Blame::Node
                    && let Some(at) = &record.placement
                {
                    led.env.note(Transition::NodeUnable, Some(led.log.number));
                    led.env.nodes.on_unable(&at.node, led.env.now.mono_ms);
                }
                self.work.on_refused(led, &key, record, &detail, blame);
            }
            NodeAnswer::Full if !closing => {
                self.work.on_refused(led, &key, record, "it is full", Blame::Node);
            }
            NodeAnswer::Dead(DeadToken::Ended { reason, exit, detail }) if !closing => {
                write_end(led, &key, record, reason, exit, &detail);
            }
            NodeAnswer::Destroyed { exit, detail } if closing => {
                write_closed(led, &key, record, exit, detail);
            }
            NodeAnswer::WrongBoot => {
                let over = record.placement.as_ref();
                let number = led.log.number;
                if over.is_some_and(|at| led.env.is_over(number, &at.node, at.boot)) {
                    write_boot_over(led, &key);
                } else {
                    // The registry here is older than the node's boot.
                    led.env.store.refresh = true;
                }
            }
            NodeAnswer::Fenced { .. } => {
                led.env.note(Transition::Fenced, Some(led.log.number));
                led.env.store.refresh = true;
            }
            NodeAnswer::OtherLive { token: other } if other < token => {
                destroy_stray(led, &key, session, other);
            }
            NodeAnswer::OtherLive { token: other } if other > token => {
                on_later_attempt(led, session, token, other);
            }
            NodeAnswer::OtherLive { .. }
            | NodeAnswer::Running { .. }
            | NodeAnswer::Dead(_)
            | NodeAnswer::Full
            | NodeAnswer::Acted { .. }
            | NodeAnswer::Destroyed { .. }
            | NodeAnswer::Scanned { .. } => {}
        }
    }

    /// It runs. When it answers, the waiting opens are answered: PENDING is committed, so any
    /// later owner drives to this same instance; READY rides on the next batch.
    pub fn on_running(
        &mut self,
        led: &mut At<'_>,
        key: &DocKey,
        mut record: SessionRecord,
        running: &Running<'_>,
    ) {
        let Running { address, ready, remark } = *running;
        let starting = matches!(record.state, SessionState::Pending | SessionState::Starting);
        if !starting || (!ready && record.state == SessionState::Starting) {
            return;
        }
        // The opens are answered before READY is committed, on the strength of a committed PENDING.
        // Without it the news is about a later owner's Create.
        let committed = led.log.replica.docs.get(key).and_then(|doc| doc.session());
        if committed.and_then(|it| it.token()) != record.token() {
            return;
        }
        if let Some(placement) = &mut record.placement {
            led.env.nodes.asked_done(&placement.node, placement.token);
            placement.address = address.to_string();
        }
        if !remark.is_empty() {
            record.detail = remark.to_owned();
        }
        record.version = next_version(led.env, led.log, &record);
        if !ready {
            record.state = SessionState::Starting;
            write_session(led, key, record, None);
            return;
        }
        record.state = SessionState::Ready;
        record.reason = None;
        self.answer_opens(led, key, record);
    }

    /// A node answered whoever looks at what it has.
    pub fn on_look_answer(&mut self, led: &mut At<'_>, call: u64, answer: NodeAnswer) {
        let Some(found) = self.looks.on_answer(led, call, answer) else { return };
        let FoundEnd { origin, key, record, token, reason, exit, detail } = found;
        write_end(led, &key, (*record).clone(), reason, exit, &detail);
        let state = led.log.replica.session(&key).map_or("", |it| it.state.as_str());
        let detail = if detail.is_empty() { detail } else { format!(", {detail}") };
        let text = format!("its end is written: {state}{detail}");
        let mended = Mended { step: MendStep::WriteEnd, token: Some(token), text };
        self.reply_when_committed(led, &key, origin, Ok(Answer::Mended(mended)));
    }

    fn answer_opens(&mut self, led: &mut At<'_>, key: &DocKey, mut record: SessionRecord) {
        let session = record.key.clone();
        let work = self.work.ids.remove(&session).unwrap_or_default();
        let Some(placement) = record.placement.clone() else {
            return;
        };
        let creator = record.requests.iter().find(|it| it.fate == RequestFate::Opening);
        let creator = creator.map(|it| it.id.clone());
        let fate = |outcome| RequestFate::Opened {
            outcome,
            life: record.life,
            version: record.version,
            placement: placement.clone(),
        };
        let (created, existed) = (fate(Outcome::Created), fate(Outcome::Existed));
        if let Some(id) = &creator {
            remember(&mut record, led.env, id, created);
        }
        let (opens, others) = opens_among(led.inbox, work.waiters);
        let mut answers: Vec<(Origin, Outcome)> = Vec::new();
        for (origin, op) in opens {
            let creates = creator.as_ref() == Some(&op.request);
            if op.remember && !creates {
                remember(&mut record, led.env, &op.request, existed.clone());
            }
            answers.push((origin, if creates { Outcome::Created } else { Outcome::Existed }));
        }
        let record = Arc::new(record);
        let committed = led.log.replica.docs.get(key).and_then(|doc| doc.session());
        let told = committed.and_then(|it| told_early(it, &record));
        let told = told.map(|it| view_at_node(led, it));
        let view = view_at_node(led, record.clone());
        let writes = session_writes(led.env, led.log, key, record);
        let at = led.write_unhurried(writes, creator);
        for (origin, outcome) in answers {
            let step = match outcome {
                Outcome::Created => Transition::OpenCreated,
                Outcome::Existed => Transition::OpenExisted,
            };
            led.env.note(step, Some(led.log.number));
            let answer = |session| Ok(Answer::Opened { outcome, session, ended_since: false });
            match (outcome, &told) {
                (Outcome::Created, Some(told)) => self.reply(led, origin, answer(told.clone())),
                // Its request id is remembered by the READY entry only; or the version is too high.
                (Outcome::Created, None) | (Outcome::Existed, _) => {
                    led.promise_fenced(at, origin, answer(view.clone()));
                }
            }
        }
        if told.is_some() {
            others.into_iter().for_each(|origin| self.run(led, origin));
        } else {
            // READY may not be shown yet, and an earlier owner may have told it: they wait on.
            let waits = Work { waiters: others, redriven: work.redriven, ..Work::default() };
            self.work.ids.insert(session, waits);
            led.lead.unsent.dirty = true;
        }
    }

    /// The registry changed, or time passed: sessions of boots that are over are lost.
    pub fn sweep_lost(&mut self, led: &mut At<'_>) {
        if !led.lead.is_open() {
            return;
        }
        let (part, now) = (led.log.number, led.env.now.mono_ms);
        let later = Cell::new(None::<u64>);
        let is_over = |node: &NodeId, boot: BootId| match led.env.over_at(part, node, boot) {
            Some(at) if at <= now => true,
            Some(at) => {
                later.set(Some(later.get().map_or(at, |it| it.min(at))));
                false
            }
            None => false,
        };
        let over = led.log.replica.sessions_over(is_over);
        self.sweep_ms = later.get();
        for key in over {
            write_boot_over(led, &key);
        }
    }

    /// The time has come at which what this owner granted to a boot is over.
    pub fn sweep_when_due(&mut self, led: &mut At<'_>) {
        if self.sweep_ms.is_some_and(|at| at <= led.env.now.mono_ms) {
            self.sweep_lost(led);
        }
    }

    /// A life ended and that is committed: everybody who waited for it goes on.
    pub(crate) fn release(&mut self, led: &mut At<'_>, session: &SessionKey) {
        let Some(work) = self.work.ids.remove(session) else {
            return;
        };
        let key = key_of(led.env, session);
        let Some(record) = led.log.replica.session(&key).cloned() else {
            return;
        };
        for origin in work.waiters {
            let Some(asked) = led.inbox.live.get(&origin) else {
                continue;
            };
            match &asked.op {
                Op::Close(op) if op.life.is_none_or(|life| life == record.life) => {
                    let session = view_of(led, record.clone());
                    self.reply(led, origin, Ok(Answer::Closed { finished: true, session }));
                }
                Op::Open(op) => {
                    let mine = led.log.replica.request(&key, &op.request).map(|it| it.fate);
                    let refusal = match mine {
                        Some(RequestFate::Failed { life }) => start_failed(&record, life),
                        _ if asked.ending == Some(Ending::Overtaken) => overtaken(&record),
                        _ => {
                            self.run(led, origin);
                            continue;
                        }
                    };
                    self.reply(led, origin, Err(refusal));
                }
                Op::Close(_)
                | Op::Get(_)
                | Op::KeepAlive(_)
                | Op::Lives(_)
                | Op::List(_)
                | Op::Pull(_)
                | Op::Report(_)
                | Op::Mend(_)
                | Op::Numbers(_)
                | Op::Tasks(_)
                | Op::Search(_)
                | Op::Documents(_) => self.run(led, origin),
            }
        }
    }

    /// A new owner takes up every id that is in progress. What an earlier one told of those early stands
    /// above what is committed here: until that is settled, a get of one waits, also where it is settled by an
    /// end that is written now. Lists show what is committed meanwhile.
    pub fn redrive(&mut self, led: &mut At<'_>) {
        let records =
            led.log.replica.sessions_under_way().filter_map(|key| led.log.replica.session(key));
        let sessions: Vec<SessionKey> = records.map(|record| record.key.clone()).collect();
        for session in &sessions {
            led.env.note(Transition::Redriven, Some(led.log.number));
            self.work.ids.entry(session.clone()).or_default().redriven = true;
        }
        // The registry may have changed since the first entry was written.
        self.sweep_lost(led);
        for session in &sessions {
            self.work.ask(led, session);
        }
    }

    /// Asks again what nodes left unanswered.
    pub fn tick_work(&mut self, led: &mut At<'_>) {
        let now = led.env.now.mono_ms;
        if !led.lead.is_open() {
            return;
        }
        let due = self.work.ids.iter().filter(|(_, work)| now >= work.ask_ms);
        let due: Vec<SessionKey> = due.map(|(session, _)| session.clone()).collect();
        for session in due {
            let key = key_of(led.env, &session);
            match led.log.replica.session(&key).map(|record| record.state) {
                Some(SessionState::Ready) if led.log.replica.latest.contains_key(&key) => {}
                Some(SessionState::Ready) | None => self.rerun_waiters(led, &session),
                Some(state) if state.is_ended() => {
                    if !led.log.replica.latest.contains_key(&key) {
                        self.release(led, &session);
                    }
                }
                Some(_) => self.work.ask(led, &session),
            }
        }
    }

    pub(crate) fn rerun_waiters(&mut self, led: &mut At<'_>, session: &SessionKey) {
        let Some(work) = self.work.ids.remove(session) else {
            return;
        };
        for origin in work.waiters {
            self.run(led, origin);
        }
    }
}

/// Of those that wait for an id, who opens it; and the others.
fn opens_among(inbox: &Inbox, waiters: Vec<Origin>) -> (Vec<(Origin, &OpenOp)>, Vec<Origin>) {
    let (mut opens, mut others) = (Vec::new(), Vec::new());
    for origin in waiters {
        let Some(asked) = inbox.live.get(&origin) else { continue };
        let Op::Open(op) = &asked.op else {
            others.push(origin);
            continue;
        };
        opens.push((origin, op));
    }
    (opens, others)
}

/// A node runs a later attempt than the newest that is known here. Either a later owner asked for
/// it; or this epoch's log lacks what every copy had before the node was asked: it was lost (R3).
fn on_later_attempt(led: &mut At<'_>, session: &SessionKey, token: Token, other: Token) {
    led.env.store.refresh = true;
    if other.0.pe > led.log.replica.pe {
        return;
    }
    let text = format!(
        "partition {}: a node runs attempt {other} of session {session}, and the newest attempt \
         known here is {token}: acknowledged writes were lost",
        led.log.number
    );
    led.lead.halts = Some(text);
}

/// An instance of an earlier attempt still stands in the way: end it, then ask again.
fn destroy_stray(led: &mut At<'_>, key: &DocKey, session: &SessionKey, token: Token) {
    let Some(record) = led.log.replica.session(key) else {
        return;
    };
    let Some(placement) = record.placement.clone() else {
        return;
    };
    end_at(led, key, (session, token), (placement.node, placement.boot));
}

/// The node says that it ended.
pub(crate) fn write_end(
    led: &mut At<'_>,
    key: &DocKey,
    mut record: SessionRecord,
    reason: Reason,
    exit: Option<Exit>,
    detail: &str,
) {
    let live = matches!(
        record.state,
        SessionState::Pending | SessionState::Starting | SessionState::Ready
    );
    if !live {
        return;
    }
    if let Some(placement) = &record.placement {
        led.env.nodes.asked_done(&placement.node, placement.token);
    }
    record.version = next_version(led.env, led.log, &record);
    let from = record.state;
    end_unasked(led.env, &mut record, reason, exit, detail);
    fail_opens(&mut record);
    led.env.note_end(Transition::Ended, led.log.number, from, &record);
    write_session(led, key, record, None);
}

fn write_closed(
    led: &mut At<'_>,
    key: &DocKey,
    mut record: SessionRecord,
    exit: Option<Exit>,
    detail: String,
) {
    if let Some(placement) = &record.placement {
        led.env.nodes.asked_done(&placement.node, placement.token);
    }
    record.version = next_version(led.env, led.log, &record);
    record.state = SessionState::Closed;
    record.exit = exit;
    if !detail.is_empty() {
        record.detail = detail;
    }
    forget_overtaken(&mut record, led.log.replica.pe);
    led.env.note_end(Transition::CloseFinished, led.log.number, SessionState::Closing, &record);
    write_session(led, key, record, None);
}
