//! After a take-over from a lone disk (R2): ask every registered node what it runs, before anybody
//! is answered. What no longer runs is written off with the first entry; what runs and should not
//! is ended; a token that this disk has never seen proves that the disk is older than the nodes.

use crate::env::{CallFor, CallWhat, Env};
use crate::io::Transition;
use crate::leading::Phase;
use crate::memory::fail_opens;
use crate::message::Write;
use crate::partition::Partition;
use crate::sync::SyncState;
use rota_model::node_msg::{DeadToken, NodeAnswer, NodeCall, ScanFate, ScanItem, ToNode};
use rota_model::{BootId, NodeId, SessionKey, SessionRecord, SessionState, Token};
use rota_ring::{NodeReg, slot_of_session};
use std::collections::BTreeMap;

/// Progress of a scan.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Scan {
    nodes: BTreeMap<NodeId, ScanNode>,
    /// What was found: session -> (token, node, boot, fate).
    found: BTreeMap<(SessionKey, Token), (NodeId, BootId, ScanFate)>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct ScanNode {
    boot: BootId,
    after: Option<SessionKey>,
    done: bool,
    asked_ms: Option<u64>,
}

impl Scan {
    /// All nodes that may run something.
    pub fn new(reg: &BTreeMap<NodeId, NodeReg>) -> Self {
        let there = reg.values().filter(|it| !it.state.is_gone());
        let node = |it: &NodeReg| {
            let asked = ScanNode { boot: it.boot, after: None, done: false, asked_ms: None };
            (it.node.clone(), asked)
        };
        Self { nodes: there.map(node).collect(), found: BTreeMap::new() }
    }
}

impl Partition {
    /// Asks the nodes that have not answered; goes on to Sync when all have.
    pub fn drive_scan(&mut self, env: &mut Env) {
        let (number, range, now) = (self.number, self.range, env.now.mono_ms);
        let Some(leading) = &mut self.leading else {
            return;
        };
        let pe = leading.pe;
        let Phase::Scan(scan) = &mut leading.phase else {
            return;
        };
        let resend = env.config.timing.node_resend_ms;
        let limit = env.config.sizes.scan_page;
        for (id, node) in &mut scan.nodes {
            // Nothing of a boot that is over runs any more; what the next boot starts is fenced.
            node.done |= env.nodes.is_over(id, node.boot);
            let due = node.asked_ms.is_none_or(|at| now >= at + resend);
            if node.done || !due {
                continue;
            }
            node.asked_ms = Some(now);
            let boot = node.boot;
            let until_ms = now + env.config.timing.node_lost_ms;
            let call = CallFor {
                part: number,
                pe,
                node: id.clone(),
                boot,
                what: CallWhat::Scan,
                until_ms,
            };
            let after = node.after.clone();
            env.ask_node(call, |call| {
                let head = NodeCall { call, boot, pe, range };
                ToNode::Scan { head, after, limit }
            });
        }
        if scan.nodes.values().all(|node| node.done) {
            self.finish_scan(env);
        }
    }

    /// A node answered a scan.
    pub fn on_scanned(&mut self, env: &mut Env, node: &NodeId, boot: BootId, answer: NodeAnswer) {
        let range = self.range;
        let Some(leading) = &mut self.leading else {
            return;
        };
        let Phase::Scan(scan) = &mut leading.phase else {
            return;
        };
        let Some(state) = scan.nodes.get_mut(node).filter(|it| it.boot == boot) else {
            return;
        };
        match answer {
            NodeAnswer::Scanned { items, more } => {
                let last = items.last().map(|item| item.key.clone());
                let m = env.view().m;
                let here = |item: &ScanItem| range.contains(slot_of_session(&item.key, m));
                for ScanItem { key, token, fate } in items.into_iter().filter(here) {
                    scan.found.insert((key, token), (node.clone(), boot, fate));
                }
                if !more {
                    state.done = true;
                } else if last > state.after {
                    state.after = last;
                    state.asked_ms = None;
                }
            }
            NodeAnswer::Fenced { .. } => {
                env.note(Transition::Fenced, Some(self.number));
                env.refresh = true;
            }
            NodeAnswer::WrongBoot
            | NodeAnswer::Running { .. }
            | NodeAnswer::Dead(_)
            | NodeAnswer::Full
            | NodeAnswer::OtherLive { .. }
            | NodeAnswer::Destroyed { .. } => env.refresh = true,
        }
        self.drive_scan(env);
    }

    fn finish_scan(&mut self, env: &mut Env) {
        let Some(leading) = &mut self.leading else {
            return;
        };
        let Phase::Scan(scan) = &mut leading.phase else {
            return;
        };
        let found = std::mem::take(&mut scan.found);
        let last = self.replica.last;
        if let Some((key, token)) = found.keys().find(|(_, token)| token.0 > last) {
            let text = format!(
                "partition {}: a node knows attempt {token} of session {key}, which is newer than \
                 anything on this disk (last entry {last}): the disk was rolled back, and no other \
                 copy is left",
                self.number
            );
            self.halt(env, text);
            return;
        }
        let writes = self.reconcile(env, &found);
        env.note(Transition::ScanDone, Some(self.number));
        if let Some(leading) = &mut self.leading {
            leading.phase = Phase::Sync(SyncState { found: writes, ..SyncState::default() });
        }
        self.end_strays(env, &found);
        self.drive_sync(env);
    }

    /// R3: what is here is not all that was acknowledged. Nobody is answered from it.
    pub fn halt(&mut self, env: &mut Env, text: String) {
        env.note_text(Transition::ScanDone, Some(self.number), text.clone());
        self.halted = Some(text);
        self.step_down(env);
    }

    /// Records whose token a node reports dead are closed.
    fn reconcile(
        &self,
        env: &mut Env,
        found: &BTreeMap<(SessionKey, Token), (NodeId, BootId, ScanFate)>,
    ) -> Vec<Write> {
        let mut writes = Vec::new();
        for ((session, token), (_, _, fate)) in found {
            let ScanFate::Dead(DeadToken::Ended { reason, exit, detail }) = fate else {
                continue;
            };
            let key = Self::key_of(env, session);
            let record = self.replica.session(&key).filter(|it| it.token() == Some(*token));
            let Some(record) = record.filter(|it| !it.state.is_ended()) else {
                continue;
            };
            let mut ended = record.clone();
            let closing = record.state == SessionState::Closing;
            ended.version = self.version_after(env, record);
            ended.state = SessionState::Closed;
            if !closing {
                ended.reason = Some(*reason);
            }
            ended.exit.clone_from(exit);
            ended.detail.clone_from(detail);
            fail_opens(&mut ended);
            env.note(Transition::Ended, Some(self.number));
            writes.push(self.session_write(&key, ended));
        }
        writes
    }

    /// What runs, and by the records should not, is ended.
    fn end_strays(
        &mut self,
        env: &mut Env,
        found: &BTreeMap<(SessionKey, Token), (NodeId, BootId, ScanFate)>,
    ) {
        let (part, range) = (self.number, self.range);
        let Some(pe) = self.leading.as_ref().map(|it| it.pe) else {
            return;
        };
        for ((session, token), (node, boot, fate)) in found {
            let ScanFate::Live { .. } = fate else {
                continue;
            };
            let key = Self::key_of(env, session);
            let wanted =
                |record: &SessionRecord| !record.state.is_ended() && record.token() == Some(*token);
            if !range.contains(key.slot) || self.replica.session(&key).is_some_and(wanted) {
                continue;
            }
            let (token, boot, slot) = (*token, *boot, key.slot);
            let what = CallWhat::Destroy { key: session.clone(), token };
            let until_ms = env.now.mono_ms + env.config.timing.node_lost_ms;
            let call = CallFor { part, pe, node: node.clone(), boot, what, until_ms };
            let name = session.clone();
            env.ask_node(call, |call| {
                let head = NodeCall { call, boot, pe, range };
                ToNode::Destroy { head, key: name, slot, token, request: None }
            });
        }
    }
}
