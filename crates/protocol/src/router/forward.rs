//! The entry manager's side of a request: find the owner, ask, ask again, until the deadline.

use crate::log::answered::is_asked_again;
use crate::log::env::{Env, NameOf};
use crate::log::internal::{Internal, InternalRequest};
use crate::log::origin::Origin;
use crate::log::requests::{OfRequest, Requests};
use crate::ports::io::{Effect, Reply};
use crate::ports::note::Transition;
use crate::ports::slots::{CONFIGURATION, slot_of_request};
use rota_docstore::Phase;
use rota_messages::{Answer, DocumentAnswer, DocumentOp, Message, Op, OpResult};
use rota_model::{
    Changed, ManagerNumber, ManagerStatus, MemberId, Refusal, RefusalKind, Retry, SlotId,
};

/// Most client requests that wait at one manager; more are told to come back. Most hold a few hundred
/// bytes; what large ones hold is bounded by [`crate::settings::sizes::Sizes::request_bytes`].
const REQUESTS_MAX: usize = 50_000;

/// How long an owner may take before it is asked again, beside what it was told to wait. An owner
/// that waits (for a node to start, say) ignores the repetition.
const SILENCE_MS: u64 = 500;

/// The owner is told to answer this much before the caller's deadline, so that its own account of
/// what is unfinished arrives in time.
const MARGIN_MS: u64 = 50;

/// This manager gives up so long before the caller's deadline, so that its account arrives in time. Of a
/// short wait it is a tenth. More than a tick: it looks at deadlines at ticks.
const OWN_MARGIN_MS: u64 = 40;

/// Who waits for an answer.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Caller {
    /// A client, by the driver's name for its call.
    Client(u64),
    /// This manager itself.
    Internal(Internal),
}

/// A request of one of this manager's clients.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Waiting {
    pub(crate) caller: Caller,
    pub(crate) op: Op,
    pub(crate) slot: SlotId,
    pub(crate) deadline_ms: u64,
    pub(crate) again_ms: u64,
    pub(crate) tries: u32,
    pub(crate) asked: Option<ManagerNumber>,
    /// Which run of it, and as which run of this manager: an owner knows a repetition by both.
    pub(crate) asked_as: Option<(MemberId, MemberId)>,
    /// What the owner said last, if it was worth telling.
    pub(crate) last_refusal: Option<Refusal>,
    /// An owner that was asked may have begun it, or may yet: no later refusal can promise that
    /// nothing changed.
    pub(crate) doubtful: bool,
    /// It was sent to a peer: copies of it may be under way after an answer.
    pub(crate) sent: bool,
}

impl OfRequest for Waiting {
    fn op(&self) -> &Op {
        &self.op
    }
}

impl Waiting {
    fn is_follow(&self) -> bool {
        self.caller == Caller::Internal(Internal::Follow)
    }

    /// Whether it must wait until this manager knows which namespaces are off.
    fn is_held(&self, env: &Env) -> bool {
        let space = self.op.space().filter(|it| it.as_str() != CONFIGURATION);
        let is_clients = matches!(self.caller, Caller::Client(_));
        !env.documents_env.knows_spaces && is_clients && space.is_some()
    }

    /// How long its owner may be silent. It holds a long poll for as long as that says; but a manager
    /// that has just become the owner may know it later than this one and let the first message fall,
    /// so it is told a second time.
    fn silence_ms(&self, is_moved: bool) -> u64 {
        if let (Some(poll), false) = (self.op.poll(), is_moved) {
            return SILENCE_MS.saturating_add(poll.wait_ms);
        }
        SILENCE_MS
    }

    /// Whether a copy of it that arrives late may be carried out, though it was refused so: owners
    /// remember only refusals after which nobody asks again.
    fn may_yet_change(&self, refusal: &Refusal) -> bool {
        self.op.changes() && self.sent && is_asked_again(refusal.kind)
    }
}

/// All requests of this manager's clients.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Router {
    waiting: Requests<u64, Waiting>,
}

/// A request that this manager must carry out itself.
pub(crate) struct ForHere {
    pub part: ManagerNumber,
    pub origin: Origin,
    pub op: Op,
    pub deadline_ms: u64,
}

impl Router {
    /// How many wait, this manager's own question for news of namespaces aside.
    pub fn len(&self) -> usize {
        self.waiting.values().filter(|it| !it.is_follow()).count()
    }

    /// Whether somebody waits for time to pass: not this manager itself, for news of namespaces.
    pub fn is_busy(&self) -> bool {
        self.waiting.values().any(|it| !it.is_follow())
    }

    /// By when each waiting request is answered.
    pub fn deadlines(&self) -> impl Iterator<Item = u64> {
        self.waiting.values().map(|it| it.deadline_ms)
    }

    /// A client's request arrives.
    pub fn on_client(
        &mut self,
        env: &mut Env,
        call: u64,
        deadline_ms: u64,
        op: Op,
    ) -> Option<ForHere> {
        if let Some(refusal) = self.waiting.refuse(env, &op, REQUESTS_MAX, "manager") {
            env.effects.push(Effect::Reply { call, reply: Reply::Request(Err(refusal)) });
            return None;
        }
        if let Some(result) = refused_by_namespace(env, &op) {
            env.note(Transition::NamespaceRefused, None);
            env.effects.push(Effect::Reply { call, reply: Reply::Request(result) });
            return None;
        }
        self.begin(env, Caller::Client(call), deadline_ms, op)
    }

    /// This manager asks for something on its own account.
    pub fn on_internal(
        &mut self,
        env: &mut Env,
        internal_request: InternalRequest,
    ) -> Option<ForHere> {
        let InternalRequest { inner, op, deadline_ms } = internal_request;
        self.begin(env, Caller::Internal(inner), deadline_ms, op)
    }

    pub(crate) fn begin(
        &mut self,
        env: &mut Env,
        caller: Caller,
        deadline_ms: u64,
        op: Op,
    ) -> Option<ForHere> {
        let rid = env.next_id(NameOf::Request);
        let now = env.now.mono_ms;
        let left_ms = deadline_ms.saturating_sub(now).min(env.config.timing.request_ms);
        let waiting = Waiting {
            caller,
            op,
            slot: SlotId(0),
            deadline_ms: now + left_ms - OWN_MARGIN_MS.min(left_ms / 10),
            again_ms: 0,
            tries: 0,
            asked: None,
            asked_as: None,
            last_refusal: None,
            doubtful: false,
            sent: false,
        };
        self.waiting.insert(rid, waiting);
        self.ask(env, rid)
    }

    /// Asks the owner by the current View.
    pub(crate) fn ask(&mut self, env: &mut Env, rid: u64) -> Option<ForHere> {
        let now = env.now.mono_ms;
        let rid = self.renamed(env, rid)?;
        let waiting = self.waiting.get_mut(&rid)?;
        waiting.again_ms = now.saturating_add(waiting.silence_ms(false));
        if waiting.is_held(env) {
            return None;
        }
        let refused_as = waiting.last_refusal.take().map(|it| it.kind);
        let unanswered = refused_as.is_none();
        let view = env.view.clone()?;
        waiting.slot = slot_of_request(&waiting.op, view.m);
        let (part, entry) = view.part_of(waiting.slot);
        let owner = entry.owner;
        let run = view.member(owner).map(|it| (it, env.me));
        let is_moved = waiting.asked_as.is_some_and(|it| Some(it) != run);
        if waiting.op.is_once() && unanswered && is_moved {
            let text = "the owner that was asked is gone, and may have carried it out";
            self.give_up(env, rid, text);
            return None;
        }
        waiting.asked_as = run;
        waiting.again_ms = now.saturating_add(waiting.silence_ms(is_moved));
        if waiting.tries > 0 {
            env.note(Transition::ForwardRetried, Some(part));
        } else if owner != env.me.number {
            env.note(Transition::Forwarded, Some(part));
        }
        // Another run of the owner, or as another run of this manager: the one before may go on with it,
        // unless it remembers that it has refused it.
        let is_settled =
            refused_as.is_some_and(|it| it == RefusalKind::NotOwner || waiting.op.is_once());
        waiting.doubtful |= is_moved && !is_settled;
        waiting.tries += 1;
        waiting.asked = Some(owner);
        let left_ms = waiting.deadline_ms.saturating_sub(now);
        let deadline_ms = left_ms.saturating_sub(MARGIN_MS).max(left_ms / 2);
        let op = waiting.op.clone();
        if owner == env.me.number {
            let origin = Origin::Here { rid };
            return Some(ForHere { part, origin, op, deadline_ms });
        }
        waiting.sent = true;
        env.send(owner, Message::Request { rid, deadline_ms, op: Box::new(op) });
        None
    }

    /// What must not be carried out twice gets a new name once it was refused: the owner remembers
    /// the old one, so that no late copy of it is carried out.
    fn renamed(&mut self, env: &mut Env, rid: u64) -> Option<u64> {
        let waiting = self.waiting.get(&rid)?;
        if !waiting.op.is_once() || waiting.last_refusal.is_none() {
            return Some(rid);
        }
        let waiting = self.waiting.remove(&rid)?;
        let rid = env.next_id(NameOf::Request);
        self.waiting.insert(rid, waiting);
        Some(rid)
    }

    fn give_up(&mut self, env: &mut Env, rid: u64, text: &str) {
        if let Some(waiting) = self.waiting.remove(&rid) {
            let (kind, retry) = (RefusalKind::NotServing, Retry::Never);
            let refusal = Refusal::unknown_outcome(kind, retry, text);
            answer(env, waiting.caller, Err(refusal));
        }
    }

    /// The owner answered.
    pub fn on_answer(&mut self, env: &mut Env, rid: u64, mut result: OpResult) {
        let Some(waiting) = self.waiting.get_mut(&rid) else {
            return;
        };
        let now = env.now.mono_ms;
        if let Err(refusal) = &mut result {
            waiting.doubtful |= refusal.changed == Changed::Unknown;
            // An earlier try that was carried out would stand where something else stands.
            let is_proof = refusal.kind == RefusalKind::RequestIdReused;
            if !waiting.op.changes() {
                refusal.changed = Changed::No;
            } else if !is_proof && (waiting.doubtful || waiting.may_yet_change(refusal)) {
                refusal.changed = Changed::Unknown;
            }
            let resend_ms = env.config.timing.resend_ms;
            let pause = if refusal.kind == RefusalKind::NotOwner {
                env.store.refresh = true;
                Some(resend_ms / 4)
            } else {
                is_asked_again(refusal.kind).then_some(resend_ms)
            };
            // Nobody knows what became of it: it must not be asked for again.
            let is_over = waiting.op.is_once() && waiting.doubtful;
            if let Some(pause) = pause.filter(|_| !is_over)
                && now + pause < waiting.deadline_ms
            {
                waiting.again_ms = now + pause;
                waiting.last_refusal = Some(refusal.clone());
                return;
            }
        }
        if let Some(waiting) = self.waiting.remove(&rid) {
            answer(env, waiting.caller, result);
        }
    }

    /// This manager learned of namespaces: answers and asks what waited for that, and ends long
    /// polls in those that are off.
    pub fn on_spaces(&mut self, env: &mut Env) -> Vec<ForHere> {
        let is_concerned = |it: &Waiting| it.asked.is_none() || it.op.poll().is_some();
        let concerned = self.waiting.iter().filter(|(_, it)| is_concerned(it));
        let concerned: Vec<u64> = concerned.map(|(rid, _)| *rid).collect();
        let mut here = Vec::new();
        for rid in concerned {
            let Some(waiting) = self.waiting.get(&rid) else { continue };
            let Caller::Client(call) = waiting.caller else { continue };
            if let Some(result) = refused_by_namespace(env, &waiting.op) {
                self.waiting.remove(&rid);
                env.note(Transition::NamespaceRefused, None);
                env.effects.push(Effect::Reply { call, reply: Reply::Request(result) });
            } else if waiting.asked.is_none() {
                here.extend(self.ask(env, rid));
            }
        }
        here
    }

    /// A new View: ask at once where the owner changed; and for long polls, which are not asked again
    /// for long, where it runs anew.
    pub fn on_view(&mut self, env: &mut Env) -> Vec<ForHere> {
        let Some(view) = env.view.clone() else {
            return Vec::new();
        };
        let moved = self.waiting.iter().filter(|(_, waiting)| {
            let owner = view.owner_of(slot_of_request(&waiting.op, view.m));
            let runs_anew = waiting.asked_as != view.member(owner).map(|it| (it, env.me));
            waiting.asked != Some(owner)
                || waiting.last_refusal.is_some()
                || (runs_anew && waiting.op.poll().is_some())
        });
        let moved: Vec<u64> = moved.map(|(rid, _)| *rid).collect();
        moved.into_iter().filter_map(|rid| self.ask(env, rid)).collect()
    }

    /// Repeats what stays unanswered; gives up what is too late.
    pub fn on_tick(&mut self, env: &mut Env) -> Vec<ForHere> {
        let now = env.now.mono_ms;
        let due = self.waiting.iter().filter(|(_, it)| now >= it.deadline_ms || now >= it.again_ms);
        let due: Vec<u64> = due.map(|(rid, _)| *rid).collect();
        let mut here = Vec::new();
        for rid in due {
            if self.waiting.get(&rid).is_some_and(|it| now >= it.deadline_ms) {
                let Some(waiting) = self.waiting.remove(&rid) else {
                    continue;
                };
                let (caller, refusal) = too_late(env, waiting);
                answer(env, caller, Err(refusal));
            } else {
                // Silence: the owner may be another one by now.
                env.store.refresh = true;
                here.extend(self.ask(env, rid));
            }
        }
        here
    }
}

fn answer(env: &mut Env, caller: Caller, result: OpResult) {
    match caller {
        Caller::Client(call) => {
            env.effects.push(Effect::Reply { call, reply: Reply::Request(result) })
        }
        Caller::Internal(inner) => env.router.done.push((inner, result)),
    }
}

/// Why nothing was heard of a slot's owner.
fn silent(env: &Env, slot: SlotId, asked: ManagerNumber) -> String {
    let owned = env.view.as_ref().map(|view| (view, view.owner_of(slot)));
    let Some(entry) = owned.and_then(|(view, owner)| view.managers.get(&owner)) else {
        return format!("manager {asked} did not answer before the deadline");
    };
    match entry.status {
        // The last copy goes down with its place kept.
        ManagerStatus::Down => format!(
            "every copy of this partition is down; it is served again when manager {} is back, or \
             when that is given up",
            entry.id
        ),
        ManagerStatus::Joining => {
            format!("manager {} is to own this partition, and has not started yet", entry.id)
        }
        ManagerStatus::Syncing
        | ManagerStatus::Active
        | ManagerStatus::Leaving
        | ManagerStatus::Left => {
            format!("manager {asked} did not answer before the deadline")
        }
    }
}

/// What clients of a namespace are told that is switched off, or that does not exist.
fn refused_by_namespace(env: &Env, op: &Op) -> Option<OpResult> {
    let exception = env.documents_env.spaces.check_open(op.space()?).err()?.at(Phase::Before);
    if let Op::Documents(DocumentOp::Operate(op)) = op {
        let exception = exception.in_call(&op.request.operation);
        return Some(Ok(Answer::Documents(DocumentAnswer::Operated(Err(exception)))));
    }
    if let Op::Documents(DocumentOp::Sync(_)) = op {
        return Some(Ok(Answer::Documents(DocumentAnswer::Synced(Err(exception)))));
    }
    let message = exception.details().message.clone();
    Some(Err(Refusal::new(RefusalKind::NamespaceOff, exception.retry(), message)))
}

fn too_late(env: &Env, waiting: Waiting) -> (Caller, Refusal) {
    let retry = Retry::AfterMs(env.config.timing.retry_ms);
    let is_held = env.view.is_some() && waiting.is_held(env);
    let refusal = waiting.last_refusal.unwrap_or_else(|| {
        if is_held {
            let text =
                "this manager has just started, and does not know the namespaces and pools yet";
            return Refusal::new(RefusalKind::NotServing, retry, text);
        }
        let text = match waiting.asked {
            Some(owner) => silent(env, waiting.slot, owner),
            None => "this manager has no View of the ring yet".to_string(),
        };
        if waiting.op.changes() && waiting.asked.is_some() {
            Refusal::unknown_outcome(RefusalKind::DeadlineExceeded, retry, text)
        } else {
            Refusal::new(RefusalKind::DeadlineExceeded, retry, text)
        }
    });
    (waiting.caller, refusal)
}
