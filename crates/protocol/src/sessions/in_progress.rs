//! Ids in progress: who waits for each of them, and what its node was asked last.
//!
//! The record says where a life stands, and is committed before its node is asked (I5). What is here is this owner's
//! alone: whoever takes over begins it anew.

use crate::log::at::At;
use crate::log::origin::{Ending, Origin};
use crate::nodes::calls::{CallFor, CallWhat};
use crate::nodes::choice::Chosen;
use crate::sessions::ends::write_boot_over;
use crate::sessions::read::key_of;
use crate::sessions::remembered::write_session;
use crate::sessions::version::next_version;
use rota_messages::{DocKey, Op};
use rota_model::node_msg::{NodeCall, ToNode};
use rota_model::{
    NodeId, Placement, RequestFate, RequestId, SessionKey, SessionRecord, SessionState, Token,
};
use std::collections::{BTreeMap, BTreeSet};

/// Most calls that are remembered of one attempt. One that is repeated so often, and neither answered nor thrown
/// away, counts as sent.
const CALLS_MAX: usize = 64;

/// An id in progress: who waits for it, and what its node was asked.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Work {
    /// Opens, closes and reads that wait for it.
    pub waiters: Vec<Origin>,
    /// When the node is asked (again).
    pub ask_ms: u64,
    /// How often it was asked.
    pub asked: u32,
    /// Nodes that refused this life.
    pub refused: Vec<NodeId>,
    /// At how many of them it was to blame itself.
    pub failures: u32,
    /// A new owner drives it again: reads wait until that ends.
    pub redriven: bool,
    /// The attempt that this owner began, as long as it may be withdrawn.
    pub kept: Option<Kept>,
}

/// An attempt whose every call is known.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Kept {
    pub(crate) token: Token,
    /// Calls that were given to the link, and of which it has not said that they were thrown away.
    pub(crate) given: BTreeSet<u64>,
}

impl Work {
    /// An attempt begins under this token.
    pub fn begin(&mut self, token: Token) {
        self.kept = Some(Kept { token, given: BTreeSet::new() });
    }

    /// The link is given a call about that token.
    pub fn on_given(&mut self, token: Token, call: u64) {
        let Some(kept) = self.kept.as_mut().filter(|it| it.token == token) else {
            self.kept = None;
            return;
        };
        kept.given.insert(call);
        if kept.given.len() > CALLS_MAX {
            self.kept = None;
        }
    }

    /// The node answered about that token: it saw it.
    pub fn on_seen(&mut self, token: Token) {
        self.kept.take_if(|it| it.token == token);
    }

    /// The link threw a call away of which nothing was sent.
    pub(crate) fn on_unsent(&mut self, token: Token, call: u64) {
        if let Some(kept) = self.kept.as_mut().filter(|it| it.token == token) {
            kept.given.remove(&call);
        }
    }

    /// Whether nothing of that attempt was ever sent, and nothing of it waits to be.
    pub(crate) fn is_unsent(&self, token: Token) -> bool {
        self.kept.as_ref().is_some_and(|it| it.token == token && it.given.is_empty())
    }
}

/// Ids in progress.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct InProgress {
    pub ids: BTreeMap<SessionKey, Work>,
}

impl InProgress {
    /// Writes PENDING on a node, under the token that its log position names.
    pub fn write_pending(
        &mut self,
        led: &mut At<'_>,
        key: &DocKey,
        mut record: SessionRecord,
        chosen: Chosen,
        request: Option<RequestId>,
    ) {
        let pe = led.lead.pe;
        let token = Token(led.log.replica.next_pos(pe));
        led.env.nodes.ask(&chosen.node, &record.spec.class, token, led.env.now.mono_ms);
        self.ids.entry(record.key.clone()).or_default().begin(token);
        let Chosen { node, boot } = chosen;
        record.version = next_version(led.env, led.log, &record);
        record.state = SessionState::Pending;
        record.placement = Some(Placement { node, boot, token, address: String::new() });
        write_session(led, key, record, request);
    }

    /// Asks the node for what a committed record wants.
    pub fn ask(&mut self, led: &mut At<'_>, session: &SessionKey) {
        let key = key_of(led.env, session);
        if led.log.replica.latest.contains_key(&key) {
            return;
        }
        if let Some(record) = led.log.replica.record(&key) {
            self.ask_for(led, &key, &record);
        }
    }

    pub(crate) fn ask_for(&mut self, led: &mut At<'_>, key: &DocKey, record: &SessionRecord) {
        let session = &record.key;
        let Some(placement) = record.placement.clone() else {
            return;
        };
        if self.withdraw(led, key, record) {
            return;
        }
        let now = led.env.now.mono_ms;
        let work = self.ids.entry(session.clone()).or_default();
        work.asked += 1;
        work.ask_ms = now + (led.env.config.timing.node_resend_ms << work.asked.min(3));
        let (part, range, pe) = (led.log.number, led.log.range, led.lead.pe);
        let (token, boot) = (placement.token, placement.boot);
        let request = record.requests.last().map(|it| it.id.clone());
        let closing = record.state == SessionState::Closing;
        let what = if closing {
            CallWhat::Destroy { key: session.clone(), token }
        } else {
            CallWhat::Create { key: session.clone(), token }
        };
        let until_ms = now + led.env.config.timing.tombstone_ms;
        let node = placement.node.clone();
        let call = CallFor { part, pe, node, boot, what, until_ms };
        let deadline_ms = led.env.config.timing.create_deadline_ms;
        let (slot, session) = (key.slot, session.clone());
        let (life, spec, grace_ms) = (record.life, record.spec.clone(), record.grace_ms);
        let asked = led.env.ask_node(call, |call| {
            let head = NodeCall { call, boot, pe, range };
            if closing {
                return ToNode::Destroy { head, key: session, slot, token, grace_ms, request };
            }
            ToNode::Create { head, key: session, slot, token, life, deadline_ms, spec, request }
        });
        if let Some(call) = asked
            && !closing
        {
            work.on_given(token, call);
        }
        if asked.is_none() && led.env.is_over(led.log.number, &placement.node, boot) {
            write_boot_over(led, key);
        }
    }

    /// The node of a session is asked as soon as its record is committed, as if for the first time.
    pub(crate) fn ask_anew(&mut self, session: &SessionKey) {
        let work = self.ids.entry(session.clone()).or_default();
        (work.ask_ms, work.asked) = (0, 0);
    }

    /// The life ends for which some open waits: its record is about to forget for which, or is committed later.
    pub fn note_ending(&mut self, led: &mut At<'_>, record: &SessionRecord, ending: Ending) {
        let began = |request: &RequestId| {
            record.request(request).is_some_and(|it| it.fate == RequestFate::Opening)
        };
        let waiters = self.ids.get(&record.key).map_or(&[][..], |work| &work.waiters);
        for origin in waiters {
            if let Some(asked) = led.inbox.live.get_mut(origin)
                && matches!(&asked.op, Op::Open(open) if began(&open.request))
            {
                asked.ending = Some(ending);
            }
        }
    }

    /// The connection to a node is new: what was asked before may be lost.
    pub fn on_node_connected(&mut self, led: &mut At<'_>, node: &NodeId) {
        let now = led.env.now.mono_ms;
        for (session, work) in &mut self.ids {
            let key = key_of(led.env, session);
            let at = led.log.replica.session(&key).and_then(|it| it.placement.as_ref());
            if at.is_some_and(|at| at.node == *node) {
                work.ask_ms = work.ask_ms.min(now);
            }
        }
    }
}
