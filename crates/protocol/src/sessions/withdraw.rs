//! An attempt that no node saw is placed elsewhere; an earlier attempt that shows up is ended.
//!
//! A Create may be withdrawn while it is certain that no node ever saw it. The owner that wrote its PENDING, in the
//! epoch of that write, knows every call that carries it. A link that finds its node's port closed throws
//! away what waits for it, and says which calls those were: not one byte of them went to any connection.
//! Once that is said of all of them, the id may go to another node; PENDING is written for that one first, and it is
//! asked when that is committed, as after a refusal. Whoever takes over, or starts again, knows nothing of
//! what was sent before: for them every Create counts as sent.

use crate::log::env::Env;
use crate::nodes::calls::{CallFor, CallWhat};
use crate::partition::state::Partition;
use crate::ports::note::Transition;
use rota_messages::DocKey;
use rota_model::node_msg::{NodeCall, ToNode};
use rota_model::{BootId, NodeId, SessionKey, SessionRecord, SessionState, Token};

impl Partition {
    /// The link to a node threw away a Create before one byte of it went to a connection.
    pub fn on_unsent(&mut self, env: &mut Env, session: &SessionKey, token: Token, call: u64) {
        let Some(leading) = self.leading.as_mut().filter(|it| it.lead.is_open()) else {
            return;
        };
        let Some(work) = leading.residents.sessions.work.get_mut(session) else {
            return;
        };
        work.on_unsent(token, call);
        let key = Self::key_of(env, session);
        if self.replica.latest.contains_key(&key) {
            return;
        }
        if let Some(record) = self.replica.record(&key) {
            self.withdraw(env, &key, &record);
        }
    }

    /// Places an attempt elsewhere of which nothing was sent, if its node is out of reach and another one is
    /// not. `record` is committed, and the newest. True when that was begun.
    pub fn withdraw(&mut self, env: &mut Env, key: &DocKey, record: &SessionRecord) -> bool {
        let now = env.now.mono_ms;
        let Some(placement) = record.placement.as_ref() else { return false };
        let (node, token) = (&placement.node, placement.token);
        let is_out = record.state == SessionState::Pending && env.nodes.is_unreachable(node, now);
        let Some(leading) = self.leading.as_mut().filter(|it| it.lead.is_open() && is_out) else {
            return false;
        };
        let Some(work) = leading.residents.sessions.work.get_mut(&record.key) else { return false };
        if token.0.pe != leading.lead.pe || !work.is_unsent(token) {
            return false;
        }
        let mut others = work.refused.clone();
        others.push(node.clone());
        let (spec, limit) = (&record.spec, env.config.load_limit_permille);
        let Ok(chosen) = env.nodes.choose(&spec.pool, &spec.class, limit, &others, now) else {
            return false;
        };
        if env.nodes.is_unreachable(&chosen.node, now) {
            return false;
        }
        work.asked = 0;
        env.nodes.asked_done(node, token);
        let text = format!("session {}: node {node} is out of reach", record.key);
        env.note_text(Transition::Withdrawn, Some(self.number), text);
        self.write_pending(env, key, record.clone(), chosen, None);
        true
    }

    /// A node shows an attempt that runs. If the id has gone to a later one, the node ends it.
    pub fn end_earlier(
        &mut self,
        env: &mut Env,
        (session, token): (&SessionKey, Token),
        (node, boot): (&NodeId, BootId),
    ) {
        let key = Self::key_of(env, session);
        let is_earlier = self.replica.session(&key).is_some_and(|it| it.token() > Some(token));
        if is_earlier && self.leading.as_ref().is_some_and(|it| it.lead.is_open()) {
            self.end_at(env, &key, (session, token), (node.clone(), boot));
        }
    }

    /// Has a node end an attempt, whatever the record says.
    pub fn end_at(
        &mut self,
        env: &mut Env,
        key: &DocKey,
        (session, token): (&SessionKey, Token),
        (node, boot): (NodeId, BootId),
    ) {
        let Some(pe) = self.leading.as_ref().map(|it| it.lead.pe) else { return };
        let (part, range) = (self.number, self.range);
        let what = CallWhat::Destroy { key: session.clone(), token };
        let until_ms = env.now.mono_ms + env.config.timing.tombstone_ms;
        let call = CallFor { part, pe, node, boot, what, until_ms };
        let (slot, name) = (key.slot, session.clone());
        env.ask_node(call, |call| {
            let head = NodeCall { call, boot, pe, range };
            ToNode::Destroy { head, key: name, slot, token, grace_ms: None, request: None }
        });
    }
}
