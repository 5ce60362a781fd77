//! After a take-over from a lone disk (R2): ask every registered node what it runs, before anybody
//! is answered. What no longer runs is written off with the first entry; what runs and should not
//! is ended; a token that this disk has never seen proves that the disk is older than the nodes.

use crate::log::at::At;
use crate::log::copies::SyncState;
use crate::log::env::Env;
use crate::log::lead::Next;
use crate::log::lead::Phase;
use crate::log::state::Log;
use crate::nodes::calls::{CallFor, CallWhat};
use crate::ports::note::Transition;
use crate::sessions::ends::{ended_by, write_ends};
use crate::sessions::read::key_of;
use crate::sessions::recover::write_what_was_found;
use crate::sessions::scan_state::{Found, Scan};
use rota_messages::Write;
use rota_model::node_msg::{NodeAnswer, NodeCall, ScanFate, ScanItem, ToNode};
use rota_model::{BootId, NodeId, SessionRecord};
use rota_ring::slot_of_session;

/// What nodes say that they run, until all have.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Scanning {
    pub scan: Option<Scan>,
}

impl Scanning {
    /// Asks the nodes that have not answered; goes on to Sync when all have.
    pub fn drive_scan(&mut self, led: &mut At<'_>) -> Next {
        let (number, range, now) = (led.log.number, led.log.range, led.env.now.mono_ms);
        let pe = led.lead.pe;
        let Some(scan) = &mut self.scan else { return Next::Nothing };
        let resend = led.env.config.timing.node_resend_ms;
        let limit = led.env.config.sizes.scan_page;
        for (id, node) in &mut scan.nodes {
            // One that is shut out answers nobody. What the next boot starts is fenced.
            node.done |= led.env.nodes.is_over(id, node.boot);
            let due = node.asked_ms.is_none_or(|at| now >= at + resend);
            if node.done || !due {
                continue;
            }
            node.asked_ms = Some(now);
            let boot = node.boot;
            let until_ms = now + led.env.config.timing.node_lost_ms;
            let call = CallFor {
                part: number,
                pe,
                node: id.clone(),
                boot,
                what: CallWhat::Scan,
                until_ms,
            };
            let after = node.after.clone();
            led.env.ask_node(call, |call| {
                let head = NodeCall { call, boot, pe, range };
                ToNode::Scan { head, after, limit }
            });
        }
        let is_done = scan.is_done();
        if !matches!(led.lead.phase, Phase::Recover(_)) {
            return if is_done { self.finish_scan(led) } else { Next::Nothing };
        }
        if led.env.leases.granted.owns_since(number).is_none() {
            led.env.leases.granted.begin(number, now);
        }
        // What a node that was shut out runs nobody can be asked for.
        if led.lead.may_write_found(led.env, led.log)
            && led.env.has_outwaited(number)
            && let Some(scan) = self.scan.take_if(|scan| scan.is_done())
        {
            write_what_was_found(led, &scan);
        }
        Next::Nothing
    }

    /// A node answered a scan.
    pub fn on_scanned(
        &mut self,
        led: &mut At<'_>,
        node: &NodeId,
        boot: BootId,
        answer: NodeAnswer,
    ) -> Next {
        let range = led.log.range;
        let Some(scan) = &mut self.scan else { return Next::Nothing };
        let Some(state) = scan.nodes.get_mut(node).filter(|it| it.boot == boot) else {
            return Next::Nothing;
        };
        match answer {
            NodeAnswer::Scanned { items, more, highest } => {
                scan.highest = scan.highest.max(highest);
                let last = items.last().map(|item| item.key.clone());
                let m = led.env.view().m;
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
                led.env.note(Transition::Fenced, Some(led.log.number));
                led.env.store.refresh = true;
            }
            NodeAnswer::WrongBoot
            | NodeAnswer::Running { .. }
            | NodeAnswer::Dead(_)
            | NodeAnswer::Full
            | NodeAnswer::Acted { .. }
            | NodeAnswer::OtherLive { .. }
            | NodeAnswer::Destroyed { .. } => led.env.store.refresh = true,
        }
        self.drive_scan(led)
    }

    fn finish_scan(&mut self, led: &mut At<'_>) -> Next {
        let Some(scan) = self.scan.take() else { return Next::Nothing };
        let last = led.log.replica.last;
        if let Some(what) = scan.newer_than(last) {
            let text = format!(
                "partition {}: a node knows {what}, which is newer than anything on this disk (last \
                 entry {last}): the disk was rolled back, and no other copy is left",
                led.log.number
            );
            led.lead.halts = Some(text);
            return Next::Nothing;
        }
        let writes = reconcile(led.env, led.log, &scan);
        let found = scan.found;
        led.env.note(Transition::ScanDone, Some(led.log.number));
        led.lead.phase = Phase::Sync(SyncState { found: writes, ..SyncState::default() });
        end_strays(led, &found);
        Next::Sync
    }
}

/// What runs, and by the records should not, is ended.
fn end_strays(led: &mut At<'_>, found: &Found) {
    let (part, range) = (led.log.number, led.log.range);
    let pe = led.lead.pe;
    for ((session, token), (node, boot, fate)) in found {
        let ScanFate::Live(_) = fate else {
            continue;
        };
        let key = key_of(led.env, session);
        let wanted =
            |record: &SessionRecord| !record.state.is_ended() && record.token() == Some(*token);
        if !range.contains(key.slot) || led.log.replica.session(&key).is_some_and(wanted) {
            continue;
        }
        let (token, boot, slot) = (*token, *boot, key.slot);
        let what = CallWhat::Destroy { key: session.clone(), token };
        let until_ms = led.env.now.mono_ms + led.env.config.timing.node_lost_ms;
        let call = CallFor { part, pe, node: node.clone(), boot, what, until_ms };
        let name = session.clone();
        led.env.ask_node(call, |call| {
            let head = NodeCall { call, boot, pe, range };
            ToNode::Destroy { head, key: name, slot, token, grace_ms: None, request: None }
        });
    }
}

/// What by the records runs, and does not any more, is written off.
pub(crate) fn reconcile(env: &mut Env, log: &Log, scan: &Scan) -> Vec<Write> {
    let ended: Vec<SessionRecord> = {
        let records = log.replica.sessions().filter(|(_, brief)| !brief.state.is_ended());
        let records = records.filter_map(|(key, _)| log.replica.session(key));
        records.filter_map(|record| ended_by(env, log, scan, record)).collect()
    };
    write_ends(env, log, ended)
}
