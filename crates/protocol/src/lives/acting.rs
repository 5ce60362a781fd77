//! One action: the node is asked for it, and what it asks for is carried out.

use crate::contents::lives::{managed_in, session_of};
use crate::lives::state::{Lives, about};
use crate::log::at::At;
use crate::log::env::NameOf;
use crate::log::internal::OwnRequest;
use crate::managed::retry::retry_write;
use crate::managed::{handler, managed_of, write_of};
use crate::nodes::calls::{CallFor, CallWhat};
use crate::ports::note::Transition;
use rota_lifecycle::{Failure, Managed, Patch};
use rota_messages::lives::{Event, LivesAnswer, LivesOp, UpdateOp};
use rota_messages::{Answer, DocKey, Op, OpResult};
use rota_model::node_msg::{Action, ActionEnd, NodeAnswer, NodeCall, ToNode};
use rota_model::{FieldError, Handler, Placement, RefusalKind, Retry, SessionRecord, Stamp, Token};
use serde_json::json;
use std::sync::Arc;

/// Beside the time of the action: calls travel, and actions of a node wait for each other.
const ANSWER_MS: u64 = 60_000;

/// How long the change that an action asks for may take.
const UPDATE_MS: u64 = 15_000;

/// After a refusal a change is asked for again, in milliseconds.
const AGAIN_MS: u64 = 500;

/// How often an action is tried again, and how long it may take, where the text of its class that it began with
/// does not say.
const UNKNOWN: (u32, u64) = (5, 30_000);

/// The code of an action for which its node has no room now.
const BUSY: &str = "BUSY";

/// When a node that was asked for an action must have answered.
fn answered_by(now_ms: u64, timeout_ms: u64) -> u64 {
    now_ms.saturating_add(timeout_ms).saturating_add(ANSWER_MS)
}

/// What an action waits for.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Step {
    /// Its node.
    Node { ask_ms: u64, asked: u32, action: Box<Action> },
    /// The change that it asks for.
    Update { rid: u64, op: Box<UpdateOp>, again_ms: Option<u64> },
    /// Room in the log for what became of it.
    Failed { code: String, report: String },
}

/// Where an action is to run, and since when it waits for that, by the monotonic clock.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Acts {
    pub placement: Placement,
    pub since_ms: u64,
}

/// An action under way.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Acting {
    pub life: Stamp,
    event: Event,
    acts: Acts,
    step: Step,
    retries: u32,
    until_ms: u64,
}

/// What an action is told of its session.
fn document(record: &SessionRecord, managed: &Managed) -> String {
    let state: Vec<String> = managed.items().map(|(item, _)| item.to_string()).collect();
    let history: Vec<String> = managed.history().iter().map(|it| it.item.to_string()).collect();
    let address = record.placement.as_ref().map_or("", |it| it.address.as_str());
    json!({
        "namespace": record.key.namespace.as_str(),
        "id": record.key.id.as_str(),
        "class": record.spec.class.as_str(),
        "pool": record.spec.pool.as_str(),
        "life": record.life.as_u64(),
        "version": record.version.as_u64(),
        "address": address,
        "attributes": *record.spec.attributes,
        "managedState": state,
        "managedHistory": history,
    })
    .to_string()
}

/// Whether something was written about a session, or its life cycles, that is not committed.
fn is_written(led: &At<'_>, key: &DocKey) -> bool {
    let latest = &led.log.replica.latest;
    latest.contains_key(key) || session_of(key).is_some_and(|it| latest.contains_key(&it))
}

fn texts(mistakes: &[FieldError]) -> String {
    mistakes.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

impl Lives {
    /// The event of a session whose action is under way.
    pub(crate) fn running(&self, key: &DocKey) -> Option<&Event> {
        self.acting.get(key).map(|it| &it.event)
    }

    /// Asks the node of a session for an action.
    pub(super) fn begin(
        &mut self,
        led: &mut At<'_>,
        key: &DocKey,
        (record, acts): (&SessionRecord, Acts),
        managed: &Managed,
        event: Event,
    ) {
        let (retries, timeout_ms) = match handler(record, &event.life_cycle) {
            Some(Handler::Action { retries, timeout_ms, .. }) => (*retries, *timeout_ms),
            Some(Handler::Mark) | None => UNKNOWN,
        };
        let held = managed.held(&event.life_cycle, &event.word);
        let failed = held.and_then(|it| it.failed.as_ref());
        let action = Action {
            life: record.life,
            life_cycle: event.life_cycle.clone(),
            word: event.word.clone(),
            failures: failed.map_or(0, |it| it.attempts),
            timeout_ms,
            document: document(record, managed),
        };
        let now = led.env.now.mono_ms;
        let step = Step::Node { ask_ms: now, asked: 0, action: Box::new(action) };
        let until_ms = answered_by(now, timeout_ms);
        let acting = Acting { life: record.life, event, acts, step, retries, until_ms };
        led.env.note(Transition::ActionBegan, Some(led.log.number));
        self.acting.insert(key.clone(), acting);
        self.drive_one(led, key);
    }

    /// An event was removed, or has fired: nobody is asked for its action any more.
    pub(super) fn drop_removed(&mut self, led: &At<'_>, key: &DocKey) {
        let Some(acting) = self.acting.get(key) else { return };
        let Event { life_cycle, word } = &acting.event;
        let managed = led.log.replica.docs.get(key).and_then(|it| managed_in(it));
        let is_open = managed.is_some_and(|it| it.is_unfired(life_cycle, word));
        // What an action that is over asks for comes all the same.
        if !is_open && matches!(acting.step, Step::Node { .. }) {
            self.over(key);
        }
    }

    /// Asks again what was left unanswered, and writes what had no room.
    pub(super) fn drive(&mut self, led: &mut At<'_>) {
        let keys: Vec<DocKey> = self.acting.keys().cloned().collect();
        for key in keys {
            self.drive_one(led, &key);
        }
    }

    fn drive_one(&mut self, led: &mut At<'_>, key: &DocKey) {
        let now = led.env.now.mono_ms;
        let Some(acting) = self.acting.get_mut(key) else { return };
        match &mut acting.step {
            Step::Node { .. } | Step::Update { .. } if now >= acting.until_ms => {
                self.failed(led, key, "TIMEOUT", "nobody told how it ended");
            }
            // Whether it may still run is known when what was written about its session is committed.
            Step::Node { .. } if is_written(led, key) => {}
            Step::Node { ask_ms, asked, action } if now >= *ask_ms => {
                *asked += 1;
                *ask_ms = now + (led.env.config.timing.node_resend_ms << (*asked).min(3));
                let (placement, action) = (acting.acts.placement.clone(), action.clone());
                self.ask(led, key, &placement, action);
            }
            Step::Update { again_ms: Some(at), .. } if now >= *at => self.update(led, key),
            Step::Failed { .. } => self.write_failure(led, key),
            Step::Node { .. } | Step::Update { .. } => {}
        }
    }

    fn ask(&mut self, led: &mut At<'_>, key: &DocKey, placement: &Placement, action: Box<Action>) {
        let Some(session) = about(key) else { return };
        let (part, range, pe) = (led.log.number, led.log.range, led.lead.pe);
        let Placement { node, boot, token, .. } = placement.clone();
        let event = Event { life_cycle: action.life_cycle.clone(), word: action.word.clone() };
        let what = CallWhat::Act { key: key.clone(), event, token };
        let until_ms = answered_by(led.env.now.mono_ms, action.timeout_ms);
        let call = CallFor { part, pe, node, boot, what, until_ms };
        let slot = key.slot;
        // A boot that is over takes its sessions along: their records say so soon.
        let _ = led.env.ask_node(call, |call| {
            let head = NodeCall { call, boot, pe, range };
            ToNode::Act { head, key: session, slot, token, action }
        });
    }

    /// The node answered.
    pub(crate) fn on_acted(
        &mut self,
        led: &mut At<'_>,
        (key, event, token): (&DocKey, &Event, Token),
        answer: NodeAnswer,
    ) {
        // A node answers each repetition of a call: what came late is about an action that is over, or another life.
        let is_it = |it: &&mut Acting| it.event == *event && it.acts.placement.token == token;
        let Some(acting) = self.acting.get_mut(key).filter(is_it) else { return };
        if !matches!(acting.step, Step::Node { .. }) || !led.lead.is_open() {
            return;
        }
        let end = match answer {
            NodeAnswer::Acted { end } => end,
            NodeAnswer::Fenced { .. } => {
                led.env.note(Transition::Fenced, Some(led.log.number));
                led.env.store.refresh = true;
                return;
            }
            NodeAnswer::WrongBoot => {
                led.env.store.refresh = true;
                return;
            }
            NodeAnswer::Running { .. }
            | NodeAnswer::Dead(_)
            | NodeAnswer::Full
            | NodeAnswer::OtherLive { .. }
            | NodeAnswer::Destroyed { .. }
            | NodeAnswer::Scanned { .. } => return,
        };
        match end {
            ActionEnd::Failed { code, .. } if code == BUSY => self.put_off(led, key),
            // This says nothing of the action: it is asked for again.
            ActionEnd::Failed { code, .. } if code == "NOT-RUNNING" => {
                let again_ms = led.env.now.mono_ms + AGAIN_MS;
                if let Step::Node { ask_ms, .. } = &mut acting.step {
                    *ask_ms = again_ms.max(*ask_ms);
                }
            }
            ActionEnd::Failed { code, report } => self.failed(led, key, &code, &report),
            ActionEnd::Done { output } => {
                let now = Stamp::from_epoch_ms(led.env.now.wall_ms);
                match Patch::parse(&output, now) {
                    Err(mistakes) => self.failed(led, key, "PATCH", &texts(&mistakes)),
                    Ok(patch) => self.done(led, key, patch),
                }
            }
        }
    }

    /// Its node has no room for it: others may go ahead, and it keeps its place among those of its node.
    fn put_off(&mut self, led: &At<'_>, key: &DocKey) {
        let Some(Acting { acts, .. }) = self.acting.remove(key) else { return };
        self.crowd.note_full(&acts.placement.node, led.env.now.mono_ms + AGAIN_MS);
        self.crowd.join(&acts.placement.node, key, acts.since_ms);
    }

    /// It succeeded: what it asks for is committed with that.
    fn done(&mut self, led: &mut At<'_>, key: &DocKey, patch: Patch) {
        let (Some(acting), Some(session)) = (self.acting.get_mut(key), about(key)) else { return };
        let op = UpdateOp {
            key: session,
            life: Some(acting.life),
            if_version: None,
            attributes: patch.attributes,
            edit: Arc::new(patch.edit),
            skip: Vec::new(),
            retry: Vec::new(),
            ran: Some(acting.event.clone()),
        };
        acting.step = Step::Update { rid: 0, op: Box::new(op), again_ms: None };
        acting.until_ms = led.env.now.mono_ms + UPDATE_MS;
        self.update(led, key);
    }

    /// Asks this partition for the change.
    fn update(&mut self, led: &mut At<'_>, key: &DocKey) {
        let name = led.env.next_id(NameOf::Task);
        let Some(acting) = self.acting.get_mut(key) else { return };
        let Step::Update { rid, op, again_ms } = &mut acting.step else { return };
        (*rid, *again_ms) = (name, None);
        let op = Op::Lives(LivesOp::Update(op.clone()));
        let own = OwnRequest { part: led.log.number, rid: name, op, deadline_ms: UPDATE_MS };
        led.env.router.own.push_back(own);
    }

    /// Something of this partition's own was answered. False: it is not about an action.
    pub(crate) fn on_answered(&mut self, led: &mut At<'_>, name: u64, result: &OpResult) -> bool {
        let mine = self.acting.iter_mut().find_map(|(key, acting)| match &mut acting.step {
            Step::Update { rid, again_ms, .. } if *rid == name => Some((key.clone(), again_ms)),
            Step::Update { .. } | Step::Node { .. } | Step::Failed { .. } => None,
        });
        let Some((key, again_ms)) = mine else { return false };
        match result {
            Ok(_) => {
                led.env.note(Transition::EventFired, Some(led.log.number));
                self.over(&key);
            }
            Err(refusal) => match refusal.retry {
                Retry::Now | Retry::AfterMs(_) | Retry::AtOwner(_) => {
                    *again_ms = Some(led.env.now.mono_ms + AGAIN_MS);
                }
                Retry::Never | Retry::WhenChanged => {
                    let is_over = [RefusalKind::NotFound, RefusalKind::LifeMismatch];
                    if is_over.contains(&refusal.kind) {
                        self.over(&key);
                    } else {
                        let text = refusal.message.clone();
                        self.failed(led, &key, "REFUSED", &text);
                    }
                }
            },
        }
        true
    }

    /// An action is over: the next one may begin.
    fn over(&mut self, key: &DocKey) {
        self.acting.remove(key);
        // Whoever waits for it is answered with the next look.
        self.arm(key, Some(Stamp::MIN));
    }

    fn failed(&mut self, led: &mut At<'_>, key: &DocKey, code: &str, report: &str) {
        let Some(acting) = self.acting.get_mut(key) else { return };
        acting.step = Step::Failed { code: code.to_owned(), report: report.to_owned() };
        self.write_failure(led, key);
    }

    /// Writes how an action failed, with the task that tries it again.
    fn write_failure(&mut self, led: &mut At<'_>, key: &DocKey) {
        let is_written = led.log.replica.latest.contains_key(key);
        if is_written || !led.may_begin() || led.backlog().is_some() {
            return;
        }
        let Some(acting) = self.acting.get(key).cloned() else { return };
        let Step::Failed { code, report } = &acting.step else { return };
        let now = Stamp::from_epoch_ms(led.env.now.wall_ms);
        let record = session_of(key).and_then(|it| led.log.replica.record(&it));
        let held = led.log.replica.get(key).is_some_and(|it| managed_in(it).is_some());
        let Some(record) = record.filter(|it| it.life == acting.life && held) else {
            return self.over(key);
        };
        let session = session_of(key).expect("its record was found");
        let mut managed = managed_of(&led.log.replica, &session, &record, now);
        let Event { life_cycle, word } = &acting.event;
        let before = managed.held(life_cycle, word).and_then(|it| it.failed.as_ref());
        let attempts = before.map_or(0, |it| it.attempts) + 1;
        let failure = Failure::new(attempts, code, report, now);
        if !managed.fail(life_cycle, word, failure) {
            return self.over(key);
        }
        led.env.note(Transition::ActionFailed, Some(led.log.number));
        let floor = led.stamps_above().max(now);
        let mut writes = vec![write_of(&led.log.replica, key, &managed, floor)];
        let (of, why) = ((&session, &*record), (code.as_str(), report.as_str()));
        writes.extend(retry_write(led, of, &acting.event, acting.retries, why));
        let at = led.write(writes, None);
        for it in self.take_wanted(key, |it| it.event == acting.event) {
            let why = Err((code.clone(), report.clone()));
            led.promise(at, it.origin, Ok(Answer::Lives(LivesAnswer::Fired(why))));
        }
        self.over(key);
    }
}
