//! After a take-over from a lone disk (R2): ask every registered node what it runs, before anybody
//! is answered. What no longer runs is written off with the first entry; what runs and should not
//! is ended; a token that this disk has never seen proves that the disk is older than the nodes.

use crate::log::copies::SyncState;
use crate::log::env::Env;
use crate::nodes::calls::{CallFor, CallWhat};
use crate::partition::leading::Phase;
use crate::partition::state::Partition;
use crate::ports::note::Transition;
use crate::sessions::request_ids::{fail_opens, forget_overtaken};
use crate::sessions::scan_state::{Found, Scan, UNKNOWN_THERE};
use rota_messages::Write;
use rota_model::node_msg::{DeadToken, NodeAnswer, NodeCall, ScanFate, ScanItem, ToNode};
use rota_model::{BootId, Exit, NodeId, Reason, SessionRecord, SessionState};
use rota_ring::slot_of_session;

impl Partition {
    /// Asks the nodes that have not answered; goes on to Sync when all have.
    pub fn drive_scan(&mut self, env: &mut Env) {
        let (number, range, now) = (self.number, self.range, env.now.mono_ms);
        let Some(leading) = &mut self.leading else {
            return;
        };
        let pe = leading.lead.pe;
        let Some(scan) = leading.lead.phase.scan() else {
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
        let is_done = scan.is_done();
        if matches!(leading.lead.phase, Phase::Recover(_)) {
            self.drive_recovery(env);
        } else if is_done {
            self.finish_scan(env);
        }
    }

    /// A node answered a scan.
    pub fn on_scanned(&mut self, env: &mut Env, node: &NodeId, boot: BootId, answer: NodeAnswer) {
        let range = self.range;
        let Some(leading) = &mut self.leading else {
            return;
        };
        let Some(scan) = leading.lead.phase.scan() else {
            return;
        };
        let Some(state) = scan.nodes.get_mut(node).filter(|it| it.boot == boot) else {
            return;
        };
        match answer {
            NodeAnswer::Scanned { items, more, highest } => {
                scan.highest = scan.highest.max(highest);
                let last = items.last().map(|item| item.key.clone());
                let m = env.view().m;
                let here = |item: &ScanItem| range.contains(slot_of_session(&item.key, m));
                for ScanItem { key, token, fate } in items.into_iter().filter(here) {
                    scan.found.insert((key, token), (node.clone(), boot, fate));
                }
                if !more {
                    (state.answered, state.done) = (true, true);
                } else if last > state.after {
                    state.after = last;
                    state.asked_ms = None;
                }
            }
            NodeAnswer::Fenced { .. } => {
                env.note(Transition::Fenced, Some(self.number));
                env.store.refresh = true;
            }
            NodeAnswer::WrongBoot
            | NodeAnswer::Running { .. }
            | NodeAnswer::Dead(_)
            | NodeAnswer::Full
            | NodeAnswer::OtherLive { .. }
            | NodeAnswer::Destroyed { .. } => env.store.refresh = true,
        }
        self.drive_scan(env);
    }

    fn finish_scan(&mut self, env: &mut Env) {
        let Some(leading) = &mut self.leading else {
            return;
        };
        let Phase::Scan(scan) = &mut leading.lead.phase else {
            return;
        };
        let scan = scan.take();
        let last = self.replica.last;
        if let Some(what) = scan.newer_than(last) {
            let text = format!(
                "partition {}: a node knows {what}, which is newer than anything on this disk (last \
                 entry {last}): the disk was rolled back, and no other copy is left",
                self.number
            );
            self.halt(env, text);
            return;
        }
        let writes = self.reconcile(env, &scan);
        let found = scan.found;
        env.note(Transition::ScanDone, Some(self.number));
        if let Some(leading) = &mut self.leading {
            leading.lead.phase = Phase::Sync(SyncState { found: writes, ..SyncState::default() });
        }
        self.end_strays(env, &found);
        self.drive_sync(env);
    }

    /// What by the records runs, and does not any more, is written off.
    fn reconcile(&self, env: &mut Env, scan: &Scan) -> Vec<Write> {
        let ended: Vec<SessionRecord> = {
            let records = self.replica.sessions().filter(|(_, brief)| !brief.state.is_ended());
            let records = records.filter_map(|(key, _)| self.replica.session(key));
            records.filter_map(|record| self.ended_by(env, scan, record)).collect()
        };
        self.write_ends(env, ended)
    }

    /// The writes of records that have ended.
    pub fn write_ends(&self, env: &mut Env, ended: Vec<SessionRecord>) -> Vec<Write> {
        let write = |record: SessionRecord| {
            let key = Self::key_of(env, &record.key);
            let from = self.replica.session(&key).map_or(record.state, |it| it.state);
            env.note_end(Transition::Ended, self.number, from, &record);
            self.session_writes(env, &key, record)
        };
        ended.into_iter().flat_map(write).collect()
    }

    /// The end of a session of which its node says that it ended, or that it knows nothing of it
    /// although it ran there.
    pub fn ended_by(
        &self,
        env: &Env,
        scan: &Scan,
        record: &SessionRecord,
    ) -> Option<SessionRecord> {
        let at = record.placement.as_ref()?;
        let fate = scan.found.get(&(record.key.clone(), at.token)).map(|(_, _, fate)| fate);
        let ran = matches!(record.state, SessionState::Starting | SessionState::Ready);
        let (reason, exit, detail) = match fate {
            Some(ScanFate::Live(_)) => return None,
            Some(ScanFate::Dead(DeadToken::Ended { reason, exit, detail })) => {
                (*reason, exit.clone(), detail.clone())
            }
            Some(ScanFate::Dead(DeadToken::NeverStarted { .. })) | None
                if ran && scan.has_answered(&at.node, at.boot) =>
            {
                (Reason::Internal, None, UNKNOWN_THERE.to_owned())
            }
            Some(ScanFate::Dead(DeadToken::NeverStarted { .. })) | None => return None,
        };
        Some(self.ended_as(env, record, reason, exit, &detail))
    }

    /// A record of a life that is over.
    pub fn ended_as(
        &self,
        env: &Env,
        record: &SessionRecord,
        reason: Reason,
        exit: Option<Exit>,
        detail: &str,
    ) -> SessionRecord {
        let mut ended = record.clone();
        ended.version = self.version_after(env, record);
        if record.state == SessionState::Closing {
            ended.state = SessionState::Closed;
            forget_overtaken(&mut ended, self.replica.pe);
        } else {
            ended.state = record.state.ended_unasked(reason, exit.as_ref());
            ended.reason = Some(reason);
            fail_opens(&mut ended);
        }
        (ended.exit, ended.detail) = (exit, detail.to_owned());
        ended
    }

    /// What runs, and by the records should not, is ended.
    fn end_strays(&mut self, env: &mut Env, found: &Found) {
        let (part, range) = (self.number, self.range);
        let Some(pe) = self.leading.as_ref().map(|it| it.lead.pe) else {
            return;
        };
        for ((session, token), (node, boot, fate)) in found {
            let ScanFate::Live(_) = fate else {
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
                ToNode::Destroy { head, key: name, slot, token, grace_ms: None, request: None }
            });
        }
    }
}
