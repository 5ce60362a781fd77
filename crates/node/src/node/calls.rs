//! Calls of managers.

use super::scan::Scan;
use super::{Departure, Node};
use crate::dead::Dead;
use crate::io::{NodeEffect, StopHow};
use crate::lease::LeaseState;
use crate::live::{Live, Stage, StopCause, Waiter, Wants};
use rota_model::node_msg::{Blame, DeadToken, FromNode, NodeAnswer, ToNode};
use rota_model::{Disturb, Epoch, SessionKey, SessionSpec, SlotId, Stamp, Token};
use std::collections::VecDeque;

/// One attempt of one session, as a call names it.
pub(super) struct Attempt<'a> {
    pub(super) key: &'a SessionKey,
    pub(super) slot: SlotId,
    pub(super) token: Token,
}

impl Node {
    pub(super) fn on_call(&mut self, now: u64, stream: u64, message: ToNode) {
        if self.lease.is_lost() || !self.is_registered() {
            return;
        }
        let head = message.head().clone();
        // Boot and fence: what every call must pass.
        if head.boot != self.config.boot {
            self.answer(stream, head.call, NodeAnswer::WrongBoot);
            return;
        }
        if let Some(fence) = self.fences.stop(head.pe, head.range, slot_of(&message)) {
            self.answer(stream, head.call, NodeAnswer::Fenced { fence });
            return;
        }
        let waiter = |wants| Waiter { stream, call: head.call, wants };
        let answer = match &message {
            ToNode::Create { key, slot, token, deadline_ms, spec, life, .. } => {
                let attempt = Attempt { key, slot: *slot, token: *token };
                let not_after_ms = now.saturating_add(*deadline_ms);
                let answer = self.on_create(now, &attempt, not_after_ms, (*life, spec));
                answer.or_else(|| self.wait(&attempt, waiter(Wants::Create)))
            }
            ToNode::Destroy { key, slot, token, grace_ms, .. } => {
                let attempt = Attempt { key, slot: *slot, token: *token };
                let answer = self.on_destroy(now, &attempt, head.pe, *grace_ms);
                answer.or_else(|| self.wait(&attempt, waiter(Wants::Destroy)))
            }
            ToNode::Act { key, slot, token, action, .. } => {
                let attempt = Attempt { key, slot: *slot, token: *token };
                self.on_act(&attempt, (stream, head.call), action)
            }
            ToNode::Scan { after, limit, .. } => {
                let scan = Scan { live: &self.live, dead: &self.dead, range: head.range };
                Some(scan.page(after.as_ref(), *limit))
            }
            ToNode::Meet { epoch, managers, .. } => {
                self.meet(now, *epoch, managers.clone());
                None
            }
        };
        if let Some(answer) = answer {
            self.answer(stream, head.call, answer);
        }
    }

    /// `None`: the answer comes when the session's start or end is known.
    fn on_create(
        &mut self,
        now: u64,
        attempt: &Attempt<'_>,
        not_after_ms: u64,
        (life, spec): (Stamp, &SessionSpec),
    ) -> Option<NodeAnswer> {
        let Attempt { key, slot, token } = *attempt;
        let known = self.live.get(key);
        let dead = self.dead.get(key, token).cloned();
        let of_this_session = match (known, dead) {
            (Some(live), _) if live.token == token => return live.running(),
            (_, Some(ended @ DeadToken::Ended { .. })) => Some(NodeAnswer::Dead(ended)),
            (Some(live), _) => Some(NodeAnswer::OtherLive { token: live.token }),
            (None, Some(never)) => Some(NodeAnswer::Dead(never)),
            (None, None) => self.dead.too_old(key, slot, token).map(|detail| {
                NodeAnswer::Dead(DeadToken::NeverStarted { blame: Blame::Session, detail })
            }),
        };
        let refusal = of_this_session.or_else(|| self.refuse_new(slot, spec));
        if let Some(refusal) = refusal {
            // A new owner has not granted anything yet, and mostly can by now.
            if self.lease.state_of(slot, &self.config.timing) != LeaseState::Valid {
                self.lease.renew_for_start(now, &self.config.timing);
            }
            // Whatever was refused once stays refused: its manager may by now have gone elsewhere.
            let why = why_dead(&refusal);
            self.bury(now, attempt, why);
            return Some(refusal);
        }
        self.live.add(
            key,
            Live {
                slot,
                token,
                stage: Stage::Starting { not_after_ms },
                address: String::new(),
                ready: false,
                remark: String::new(),
                spec: spec.clone(),
                life,
                takes: self.config.takes(&spec.class),
                kept: self.config.disturb(&spec.class) != Disturb::Always,
                machine: None,
                destroyed_by: None,
                resumed: false,
                waiters: VecDeque::new(),
            },
        );
        let (key, spec, not_after_mono_ms) = (key.clone(), spec.clone(), not_after_ms);
        self.effects.push(NodeEffect::Start { key, token, spec, not_after_mono_ms });
        None
    }

    /// Why this node does not start any such session now.
    fn refuse_new(&self, slot: SlotId, spec: &SessionSpec) -> Option<NodeAnswer> {
        let never = |blame: Blame, detail: String| {
            Some(NodeAnswer::Dead(DeadToken::NeverStarted { blame, detail }))
        };
        let node = &self.config.node;
        if self.departure != Departure::Stays {
            return never(Blame::Node, format!("node {node} is leaving"));
        }
        // What is started now would be killed at once, or its owner might count it as gone.
        if self.lease.state_of(slot, &self.config.timing) != LeaseState::Valid {
            let text =
                format!("no owner of slot {slot} has renewed the lease of node {node} there");
            return never(Blame::Node, text);
        }
        if let Some(why) = &self.takes_none {
            return never(Blame::Node, format!("node {node} takes no session: {why}"));
        }
        if !self.config.classes.contains_key(&spec.class) {
            return never(
                Blame::Session,
                format!("node {node} does not know class {}", spec.class),
            );
        }
        if !self.load().has_room(self.load_limit, self.config.takes(&spec.class)) {
            return Some(NodeAnswer::Full);
        }
        // Its load would not show that.
        if self.outbox.len() >= self.config.bounds.outbox_sessions_max {
            return never(Blame::Node, format!("nobody takes the news of node {node}"));
        }
        None
    }

    /// `None`: the answer comes when nothing of the session runs any more.
    fn on_destroy(
        &mut self,
        now: u64,
        attempt: &Attempt<'_>,
        pe: Epoch,
        grace_ms: Option<u64>,
    ) -> Option<NodeAnswer> {
        let Attempt { key, token, .. } = *attempt;
        // Whoever asks for this has written down that the session is closing.
        self.outbox.forget(key, token);
        let lives = self.live.change(key, token, |live| {
            live.destroyed_by = live.destroyed_by.max(Some(pe));
        });
        if lives.is_some() {
            let how = match grace_ms {
                None => StopHow::Class,
                Some(0) => StopHow::Kill,
                Some(ms) => StopHow::Within(ms),
            };
            self.stop(now, (key, token), how, StopCause::Destroyed);
            return None;
        }
        let dead = self.dead.get(key, token);
        let destroyed = destroyed(dead);
        if dead.is_none() {
            let detail = "destroyed before it was created".to_owned();
            let blame = Blame::Session;
            self.bury(now, attempt, DeadToken::NeverStarted { blame, detail });
        }
        Some(destroyed)
    }

    fn wait(&mut self, attempt: &Attempt<'_>, waiter: Waiter) -> Option<NodeAnswer> {
        let waiters_max = self.config.bounds.waiters_max;
        self.live.change(attempt.key, attempt.token, |live| live.wait(waiter, waiters_max));
        None
    }

    pub(super) fn bury(&mut self, now: u64, attempt: &Attempt<'_>, why: DeadToken) {
        let expires_ms = now + self.config.timing.tombstone_ms;
        let dead = Dead { slot: attempt.slot, why };
        self.dead.bury(attempt.key, attempt.token, dead, expires_ms);
    }

    /// Ends a session's life here: its token is dead from now on, and whoever waited is answered.
    pub(super) fn finish(&mut self, now: u64, attempt: &Attempt<'_>, why: DeadToken) {
        let Attempt { key, token, .. } = *attempt;
        let Some(live) = self.live.remove(key, token) else {
            return;
        };
        self.bury(now, attempt, why.clone());
        if self.lease.is_lost() {
            drop(self.actions.end(key));
            return;
        }
        self.end_actions(key);
        for waiter in &live.waiters {
            let answer = match waiter.wants {
                Wants::Create => NodeAnswer::Dead(why.clone()),
                Wants::Destroy => destroyed(Some(&why)),
            };
            self.answer(waiter.stream, waiter.call, answer);
        }
        // A manager that destroyed it hears by the answer. A newer one does not wait for that
        // answer, and may have been shown the session as alive.
        let told = live.destroyed_by.is_some_and(|pe| pe >= self.fence(live.slot));
        if let (DeadToken::Ended { reason, exit, detail }, false) = (why, told) {
            let event = rota_model::node_msg::ReportEvent::Ended { reason, exit, detail };
            self.outbox.push(key, token, event);
        }
    }

    pub(super) fn answer(&mut self, stream: u64, call: u64, answer: NodeAnswer) {
        let answer = FromNode {
            call,
            node: self.config.node.clone(),
            boot: self.config.boot,
            load: self.load(),
            answer,
        };
        self.effects.push(NodeEffect::Answer { stream, answer });
    }
}

fn slot_of(message: &ToNode) -> Option<SlotId> {
    match message {
        ToNode::Create { slot, .. } | ToNode::Destroy { slot, .. } | ToNode::Act { slot, .. } => {
            Some(*slot)
        }
        ToNode::Scan { .. } | ToNode::Meet { .. } => None,
    }
}

/// The answer to a destroy of a token of which nothing runs.
fn destroyed(dead: Option<&DeadToken>) -> NodeAnswer {
    match dead {
        Some(DeadToken::Ended { exit, detail, .. }) => {
            NodeAnswer::Destroyed { exit: exit.clone(), detail: detail.clone() }
        }
        // Why it never began is no news of its end.
        Some(DeadToken::NeverStarted { .. }) | None => {
            NodeAnswer::Destroyed { exit: None, detail: String::new() }
        }
    }
}

/// What a refused token is remembered as.
fn why_dead(refusal: &NodeAnswer) -> DeadToken {
    let (blame, detail) = match refusal {
        NodeAnswer::Dead(why) => return why.clone(),
        NodeAnswer::Full => (Blame::Node, "the node had no room".to_owned()),
        NodeAnswer::OtherLive { token } => {
            (Blame::Session, format!("another attempt, {token}, lived here"))
        }
        NodeAnswer::Running { .. }
        | NodeAnswer::Acted { .. }
        | NodeAnswer::Destroyed { .. }
        | NodeAnswer::Scanned { .. }
        | NodeAnswer::Fenced { .. }
        | NodeAnswer::WrongBoot => (Blame::Session, "it was refused".to_owned()),
    };
    DeadToken::NeverStarted { blame, detail }
}
