//! An attempt that no node saw is placed elsewhere; an earlier attempt that shows up is ended.
//!
//! A Create may be withdrawn while it is certain that no node ever saw it. The owner that wrote its PENDING, in the
//! epoch of that write, knows every call that carries it. A link that finds its node's port closed throws
//! away what waits for it, and says which calls those were: not one byte of them went to any connection.
//! Once that is said of all of them, the id may go to another node; PENDING is written for that one first, and it is
//! asked when that is committed, as after a refusal. Whoever takes over, or starts again, knows nothing of
//! what was sent before: for them every Create counts as sent.

use crate::log::at::At;
use crate::nodes::calls::{CallFor, CallWhat};
use crate::ports::note::Transition;
use crate::sessions::in_progress::InProgress;
use crate::sessions::read::key_of;
use rota_messages::DocKey;
use rota_model::node_msg::{NodeCall, ToNode};
use rota_model::{BootId, NodeId, SessionKey, SessionRecord, SessionState, Token};

impl InProgress {
    /// The link to a node threw away a Create before one byte of it went to a connection.
    pub fn on_unsent(&mut self, led: &mut At<'_>, session: &SessionKey, token: Token, call: u64) {
        if !led.lead.is_open() {
            return;
        }
        let Some(work) = self.ids.get_mut(session) else {
            return;
        };
        work.on_unsent(token, call);
        let key = key_of(led.env, session);
        if led.log.replica.latest.contains_key(&key) {
            return;
        }
        if let Some(record) = led.log.replica.record(&key) {
            self.withdraw(led, &key, &record);
        }
    }

    /// Places an attempt elsewhere of which nothing was sent, if its node is out of reach and another one is
    /// not. `record` is committed, and the newest. True when that was begun.
    pub fn withdraw(&mut self, led: &mut At<'_>, key: &DocKey, record: &SessionRecord) -> bool {
        let now = led.env.now.mono_ms;
        let Some(placement) = record.placement.as_ref() else { return false };
        let (node, token) = (&placement.node, placement.token);
        let is_out =
            record.state == SessionState::Pending && led.env.nodes.is_unreachable(node, now);
        if !(led.lead.is_open() && is_out) {
            return false;
        }
        let Some(work) = self.ids.get_mut(&record.key) else { return false };
        if token.0.pe != led.lead.pe || !work.is_unsent(token) {
            return false;
        }
        let mut others = work.refused.clone();
        others.push(node.clone());
        let Ok(chosen) = led.env.nodes.choose(&record.spec, &others, now) else {
            return false;
        };
        if led.env.nodes.is_unreachable(&chosen.node, now) {
            return false;
        }
        work.asked = 0;
        led.env.nodes.asked_done(node, token);
        let text = format!("session {}: node {node} is out of reach", record.key);
        led.env.note_text(Transition::Withdrawn, Some(led.log.number), text);
        self.write_pending(led, key, record.clone(), chosen, None);
        true
    }
}

/// A node shows an attempt that runs. If the id has gone to a later one, the node ends it.
pub(crate) fn end_earlier(
    led: &mut At<'_>,
    (session, token): (&SessionKey, Token),
    (node, boot): (&NodeId, BootId),
) {
    let key = key_of(led.env, session);
    let is_earlier = led.log.replica.session(&key).is_some_and(|it| it.token() > Some(token));
    if is_earlier && led.lead.is_open() {
        end_at(led, &key, (session, token), (node.clone(), boot));
    }
}

/// Has a node end an attempt, whatever the record says.
pub(crate) fn end_at(
    led: &mut At<'_>,
    key: &DocKey,
    (session, token): (&SessionKey, Token),
    (node, boot): (NodeId, BootId),
) {
    let pe = led.lead.pe;
    let (part, range) = (led.log.number, led.log.range);
    let what = CallWhat::Destroy { key: session.clone(), token };
    let until_ms = led.env.now.mono_ms + led.env.config.timing.tombstone_ms;
    let call = CallFor { part, pe, node, boot, what, until_ms };
    let (slot, name) = (key.slot, session.clone());
    led.env.ask_node(call, |call| {
        let head = NodeCall { call, boot, pe, range };
        ToNode::Destroy { head, key: name, slot, token, grace_ms: None, request: None }
    });
}
