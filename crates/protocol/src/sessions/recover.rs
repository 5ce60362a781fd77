//! A partition of which no copy is known to be complete (R3): its last copy is gone, or older than what
//! the nodes have seen. It is found again from what really runs.
//!
//! ```text
//!  giving up ──CAS──▶ looking: nodes are scanned, managers asked ──▶ writing ──CAS──▶ Scan ──▶ Serving
//!                        ▲                        │
//!                        └── CAS: somebody has a newer copy: that one looks
//! ```
//! Nobody is answered before that ends; nodes are judged all the while, or those whose slot lies here
//! would lose their lease. What the owner's disk holds stays, as old as it is: documents, ended sessions
//! and the requests that they remember. Of sessions it is only the base: what runs on no node is over,
//! and what runs is taken from its node, with its token and where its machine is, so every later owner finds
//! the same instance.
//! Gone is what came after that disk's last entry and runs nowhere; the View says so for good
//! ([`rota_ring::Recovered`]).

use crate::log::env::Env;
use crate::log::sync::split;
use crate::partition::state::Partition;
use crate::ports::note::Transition;
use crate::sessions::request_ids::{earlier_requests, hear_of_machine, succeed_opens};
use crate::sessions::scan_state::{Found, Recovery, Scan, Step, UNKNOWN_THERE, Writing};
use rota_messages::{Doc, Entry, Message, Write};
use rota_model::node_msg::{Alive, ScanFate};
use rota_model::{
    BootId, LogPos, MemberId, NodeId, Placement, Reason, SessionKey, SessionRecord, SessionState,
    Stamp, Token,
};
use rota_ring::{FoundAgain, ManagerEntry};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How far stamps that were given out and lost are taken to be above the clock that finds a partition again.
/// Clocks may be an hour apart ([`rota_docstore::cache::CLOCKS_APART_MS_MAX`]), but caches refuse what is
/// that far ahead: where they are more than this apart, a lost stamp may be given out again.
const LOST_BY_CLOCK_MS: u64 = 600_000;

/// The same above stamps that are known here: versions run ahead of those before them by seconds for each
/// change of the owner ([`crate::sessions::version`]).
const LOST_BY_RECORD_MS: u64 = 120_000;

impl Partition {
    /// Goes on with finding it again: asks the managers, and takes what the nodes said when everybody had
    /// the time to answer.
    pub fn drive_recovery(&mut self, env: &mut Env) {
        let (part, now, resend_ms) =
            (self.number, env.now.mono_ms, env.config.timing.resend_ms * 4);
        let (Some(view), Some(pe)) = (env.view.clone(), self.leading.as_ref().map(|it| it.lead.pe))
        else {
            return;
        };
        let Some(Recovery { step: Step::Looking(looking), .. }) = self.recovery() else { return };
        let serves = |it: &MemberId| {
            let entry = view.managers.get(&it.number);
            view.member(it.number) == Some(*it) && entry.is_some_and(ManagerEntry::serves)
        };
        looking.better = looking.better.filter(|(_, member)| serves(member));
        looking.has_waited = now >= looking.until_ms;
        // Nodes may be waited for much longer than that: who comes back meanwhile is still asked.
        if looking.asked_ms.is_none_or(|at| now >= at + resend_ms) {
            looking.asked_ms = Some(now);
            let me = env.me.number;
            for other in view.managers.keys().filter(|it| **it != me) {
                env.send(*other, Message::SyncAsk { part, pe });
            }
        }
        // Who holds more is to look instead.
        if looking.has_waited && looking.better.is_none() && looking.scan.is_done() {
            let scan = looking.scan.take();
            self.write_what_was_found(env, &scan);
        }
    }

    /// Writes what the nodes run, and the end of everything else.
    fn write_what_was_found(&mut self, env: &mut Env, scan: &Scan) {
        let Some(pe) = self.leading.as_ref().map(|it| it.lead.pe) else { return };
        let (held, _) = self.holding();
        self.replica.found_from = Some(held);
        // Positions of before mean nothing in this log: whoever watches begins with a snapshot.
        self.replica.restart_at(LogPos::new(pe, self.replica.last.seq));
        self.replica.whole = true;
        let alive = living(env, scan.found());
        let mut sessions = 0;
        let mut writes = Vec::new();
        for (session, (token, node, boot, alive)) in &alive {
            let key = Self::key_of(env, session);
            let before = self.replica.record(&key);
            let record = match before.as_deref().filter(|it| it.token() >= Some(*token)) {
                // As this disk has it; or it stands in the way of what is newer, and is ended later.
                Some(known) => {
                    sessions += u64::from(is_at(known, *token));
                    self.with_later_news(env, known, *token, alive)
                }
                None => {
                    sessions += 1;
                    let at = (node.clone(), *boot, *token);
                    Some(found_again(env, session, before.as_deref(), at, alive))
                }
            };
            if let Some(record) = record {
                let before = self.replica.get(&key).map(|it| &**it);
                writes.push(Write::of(key.slot, Doc::session_after(before, Arc::new(record))));
            }
        }
        writes.extend(self.end_the_rest(env, scan, &alive));
        let lost = self.write_off_lost(env, &writes);
        writes.extend(lost);
        env.note(Transition::ScanDone, Some(self.number));
        let found =
            FoundAgain { sessions, held, stamps_above: self.above_what_was_lost(env, &writes) };
        // One entry at least: this disk is to know the new position.
        let rest = split(writes, &env.config.sizes).into();
        let at = self.replica.last;
        if let Some(recovery) = self.recovery() {
            recovery.step = Step::Writing(Writing { rest, at, found });
        }
        self.write_more(env);
    }

    /// What was given out and is lost lies below, and so does what is found.
    fn above_what_was_lost(&self, env: &Env, found: &[Write]) -> Stamp {
        let found = found.iter().filter_map(|it| Some(it.doc.as_ref()?.version())).max();
        // Since the loss before this one, stamps may have begun at the floor of that.
        let known = self.stamps_above(env).max(self.replica.high_water).max(env.stamps.forgotten);
        let known = known.max(found.unwrap_or_default()).plus_ms(LOST_BY_RECORD_MS);
        known.max(Stamp::from_epoch_ms(env.now.wall_ms).plus_ms(LOST_BY_CLOCK_MS))
    }

    /// The record of a session that runs as this disk has it, and whose machine has gone on: the owner that
    /// acknowledged that may be gone with its disk, and its node tells it no more.
    fn with_later_news(
        &self,
        env: &Env,
        known: &SessionRecord,
        token: Token,
        alive: &Alive,
    ) -> Option<SessionRecord> {
        if !is_at(known, token) {
            return None;
        }
        let mut record = known.clone();
        if !hear_of_machine(&mut record, &alive.machine_state, alive.machine_change) {
            return None;
        }
        record.version = self.version_after(env, known);
        Some(record)
    }

    /// Writes the next entry of what was found, when the one before is on the disk: a batch for the disk
    /// has a limit, and partitions share it.
    pub fn write_more(&mut self, env: &mut Env) {
        let (last, committed) = (self.replica.last, self.replica.committed);
        let Some(pe) = self.leading.as_ref().map(|it| it.lead.pe).filter(|_| committed >= last)
        else {
            return;
        };
        let at = self.replica.next_pos(pe);
        let Some(Recovery { step: Step::Writing(writing), .. }) = self.recovery() else { return };
        if let Some(writes) = writing.rest.pop_front() {
            writing.at = at;
            self.append(env, Entry::new(at, writes, None));
        }
    }

    /// The end of each session that has not ended by this disk, and runs on no node. (What was lost with
    /// its node is written off elsewhere.)
    fn end_the_rest(&self, env: &mut Env, scan: &Scan, alive: &Living<'_>) -> Vec<Write> {
        let open = self.replica.sessions().filter(|(_, brief)| {
            let over = |(node, boot): &(NodeId, BootId)| env.nodes.is_over(node, *boot);
            !brief.state.is_ended() && !brief.at.as_ref().is_some_and(over)
        });
        let open = open.filter_map(|(key, _)| self.replica.session(key));
        let over = open.filter(|record| {
            let found = alive.get(&record.key).map(|it| it.0);
            // A newer attempt is written instead of this one.
            found.is_none_or(|token| Some(token) < record.token())
        });
        let unknown = |record| self.ended_as(env, record, Reason::Internal, None, UNKNOWN_THERE);
        let ended: Vec<SessionRecord> =
            over.map(|it| self.ended_by(env, scan, it).unwrap_or_else(|| unknown(it))).collect();
        self.write_ends(env, ended)
    }
}

/// What lives of each session: its newest attempt, where, and what is known of it there.
type Living<'a> = BTreeMap<SessionKey, (Token, NodeId, BootId, &'a Alive)>;

fn living<'a>(env: &Env, found: &'a Found) -> Living<'a> {
    let mut living = Living::new();
    // In order of token, so the newest comes last.
    for ((session, token), (node, boot, fate)) in found {
        if let ScanFate::Live(alive) = fate
            && !env.nodes.is_over(node, *boot)
        {
            living.insert(session.clone(), (*token, node.clone(), *boot, alive));
        }
    }
    living
}

fn is_at(record: &SessionRecord, token: Token) -> bool {
    !record.state.is_ended() && record.token() == Some(token)
}

/// The record of a session that runs, and of which this disk has an earlier attempt at most.
fn found_again(
    env: &Env,
    session: &SessionKey,
    before: Option<&SessionRecord>,
    (node, boot, token): (NodeId, BootId, Token),
    alive: &Alive,
) -> SessionRecord {
    let state = match (alive.ends, alive.ready) {
        (Some(_), _) => SessionState::Closing,
        (None, true) => SessionState::Ready,
        // Its owner asks for it again, and hears where it answers.
        (None, false) => SessionState::Pending,
    };
    let told = before.map_or(alive.life, |it| it.version.max(alive.life));
    let mut record = SessionRecord {
        key: session.clone(),
        spec: alive.spec.clone(),
        life: alive.life,
        version: Stamp::from_epoch_ms(env.now.wall_ms).max(told.next()),
        state,
        reason: alive.ends,
        detail: String::new(),
        exit: None,
        grace_ms: None,
        placement: Some(Placement { node, boot, token, address: alive.address.clone() }),
        attributes_digest: None,
        machine_state: alive.machine_state.clone(),
        machine_change: alive.machine_change,
        requests: Vec::new(),
    };
    match before {
        Some(before) if before.life == alive.life => {
            record.requests.clone_from(&before.requests);
            if state == SessionState::Ready {
                succeed_opens(&mut record);
            }
        }
        _ => record.requests = earlier_requests(before, &record.spec),
    }
    record
}
