//! A partition of which no copy is known to be complete (R3): its last copy is gone, or older than what
//! the nodes have seen. It is found again from what really runs.
//!
//! ```text
//!  giving up ──CAS──▶ looking: nodes are scanned, managers asked ──▶ writing ──CAS──▶ Scan ──▶ Serving
//!                        ▲                        │
//!                        └── CAS: somebody has a newer copy: that one looks
//! ```
//! Nobody is answered before that ends; leases are granted all the while, or what runs would lose them. A node
//! that was shut out cannot be asked, and may run what a lost owner granted: that is waited for. What the owner's disk holds stays, as old as it is: documents, ended sessions
//! and the requests that they remember. Of sessions it is only the base: what runs on no node is over,
//! and what runs is taken from its node, with its token and where its machine is, so every later owner finds
//! the same instance.
//! Gone is what came after that disk's last entry and runs nowhere; the View says so for good
//! ([`rota_ring::Recovered`]).

use crate::log::at::At;
use crate::log::env::Env;
use crate::log::state::Log;
use crate::ports::note::Transition;
use crate::sessions::ends::{ended_as, ended_by, write_ends, write_off_lost};
use crate::sessions::follows::{Follows, stays_lost};
use crate::sessions::read::key_of;
use crate::sessions::remembered::session_writes;
use crate::sessions::request_ids::{earlier_requests, hear_of_machine, lifetime_of, succeed_opens};
use crate::sessions::scan_state::{Found, Scan, UNKNOWN_THERE};
use crate::sessions::version::next_version;
use rota_messages::{Doc, Write};
use rota_model::node_msg::{Alive, ScanFate};
use rota_model::{
    BootId, ManagerNumber, NodeId, Placement, Reason, SessionKey, SessionRecord, SessionState,
    Stamp, Token,
};
use rota_ring::FoundAgain;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What the nodes run is written, and the end of everything else.
pub(crate) fn write_what_was_found(led: &mut At<'_>, scan: &Scan) {
    let held = led.log.restart_as_found(led.lead.pe);
    let (env, log) = (&mut *led.env, &*led.log);
    let alive = living(env, log.number, scan.found());
    let mut sessions = 0;
    let mut writes = Vec::new();
    for (session, (token, node, boot, alive)) in &alive {
        let key = key_of(env, session);
        let before = log.replica.record(&key);
        let record = match before.as_deref().filter(|it| it.token() >= Some(*token)) {
            // As this disk has it; or it stands in the way of what is newer, and is ended later.
            Some(known) => {
                sessions += u64::from(is_at(known, *token));
                with_later_news(env, log, known, *token, alive)
            }
            None => {
                sessions += 1;
                let at = (node.clone(), *boot, *token);
                Some(found_again(env, session, before.as_deref(), at, alive))
            }
        };
        if let Some(record) = record {
            let before = log.replica.get(&key).map(|it| &**it);
            writes.push(Write::of(key.slot, Doc::session_after(before, Arc::new(record))));
        }
    }
    writes.extend(end_the_rest(env, log, scan, &alive));
    writes.extend(end_what_waits(env, log, &alive));
    let lost = write_off_lost(env, log, &writes, Follows::Nothing);
    writes.extend(lost);
    env.note(Transition::ScanDone, Some(log.number));
    let stamps_above = log.above_what_was_lost(env, &writes);
    led.lead.write_found(led.env, led.log, writes, FoundAgain { sessions, held, stamps_above });
}

/// The record of a session that runs as this disk has it, and whose machine has gone on: the owner that
/// acknowledged that may be gone with its disk, and its node tells it no more.
fn with_later_news(
    env: &Env,
    log: &Log,
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
    record.version = next_version(env, log, known);
    Some(record)
}

/// The end of each session that has not ended by this disk, and runs on no node. (What was lost with
/// its node is written off elsewhere.)
fn end_the_rest(env: &mut Env, log: &Log, scan: &Scan, alive: &Living<'_>) -> Vec<Write> {
    let open = log.replica.sessions().filter(|(_, brief)| {
        let over = |(node, boot): &(NodeId, BootId)| env.is_over(log.number, node, *boot);
        !brief.state.is_ended() && !brief.at.as_ref().is_some_and(over)
    });
    let open = open.filter_map(|(key, _)| log.replica.session(key));
    let over = open.filter(|record| {
        let found = alive.get(&record.key).map(|it| it.0);
        // A newer attempt is written instead of this one.
        found.is_none_or(|token| Some(token) < record.token())
    });
    let unknown = |record| ended_as(env, log, record, Reason::Internal, None, UNKNOWN_THERE);
    let ended = over.map(|it| ended_by(env, log, scan, it).unwrap_or_else(|| unknown(it)));
    let mut ended: Vec<SessionRecord> = ended.collect();
    ended.iter_mut().for_each(stays_lost);
    write_ends(env, log, ended)
}

/// Lost sessions that wait to be opened again stay lost: a client may have closed them after this disk's last entry.
fn end_what_waits(env: &mut Env, log: &Log, alive: &Living<'_>) -> Vec<Write> {
    let waiting = log.replica.sessions_reopening().filter_map(|key| log.replica.session(key));
    // A newer attempt is written instead of this one.
    let waiting = waiting.filter(|record| {
        alive.get(&record.key).is_none_or(|(token, ..)| Some(*token) <= record.token())
    });
    let end = |record: &SessionRecord| {
        let version = next_version(env, log, record);
        let mut ended = SessionRecord { version, ..record.clone() };
        stays_lost(&mut ended);
        ended
    };
    let ended: Vec<SessionRecord> = waiting.map(end).collect();
    ended.into_iter().flat_map(|it| session_writes(env, log, &key_of(env, &it.key), it)).collect()
}

/// What lives of each session: its newest attempt, where, and what is known of it there.
type Living<'a> = BTreeMap<SessionKey, (Token, NodeId, BootId, &'a Alive)>;

fn living<'a>(env: &Env, part: ManagerNumber, found: &'a Found) -> Living<'a> {
    let mut living = Living::new();
    // In order of token, so the newest comes last.
    for ((session, token), (node, boot, fate)) in found {
        if let ScanFate::Live(alive) = fate
            && !env.is_over(part, node, *boot)
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
    let lifetime = lifetime_of(env, &alive.spec, &node, None);
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
        lifetime,
    };
    match before {
        Some(before) if before.life == alive.life => {
            record.requests.clone_from(&before.requests);
            record.lifetime.clone_from(&before.lifetime);
            if state == SessionState::Ready {
                succeed_opens(&mut record);
            }
        }
        _ => record.requests = earlier_requests(before, &record.spec),
    }
    record
}
