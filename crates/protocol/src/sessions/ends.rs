//! Ends that no client asked for, as owners write them: what a node says of a scanned session, and what was lost with
//! its node.

use crate::log::at::At;
use crate::log::env::Env;
use crate::log::state::Log;
use crate::ports::note::Transition;
use crate::sessions::follows::{Follows, end_unasked, reopens};
use crate::sessions::read::key_of;
use crate::sessions::remembered::{session_writes, write_session};
use crate::sessions::request_ids::{fail_opens, forget_overtaken};
use crate::sessions::scan_state::{Scan, UNKNOWN_THERE};
use crate::sessions::version::{next_version, version_after};
use rota_messages::documents::Brief;
use rota_messages::{Doc, DocKey, Write};
use rota_model::node_msg::{DeadToken, ScanFate};
use rota_model::{Epoch, Exit, NodeId, Reason, SessionRecord, SessionState};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The writes of records that have ended.
pub(crate) fn write_ends(env: &mut Env, log: &Log, ended: Vec<SessionRecord>) -> Vec<Write> {
    let write = |record: SessionRecord| {
        let key = key_of(env, &record.key);
        let from = log.replica.session(&key).map_or(record.state, |it| it.state);
        env.note_end(Transition::Ended, log.number, from, &record);
        session_writes(env, log, &key, record)
    };
    ended.into_iter().flat_map(write).collect()
}

/// The end of a session of which its node says that it ended, or that it knows nothing of it
/// although it ran there.
pub(crate) fn ended_by(
    env: &Env,
    log: &Log,
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
    Some(ended_as(env, log, record, reason, exit, &detail))
}

/// A record of a life that is over.
pub(crate) fn ended_as(
    env: &Env,
    log: &Log,
    record: &SessionRecord,
    reason: Reason,
    exit: Option<Exit>,
    detail: &str,
) -> SessionRecord {
    let mut ended = record.clone();
    ended.version = next_version(env, log, record);
    if record.state == SessionState::Closing {
        ended.state = SessionState::Closed;
        (ended.exit, ended.detail) = (exit, detail.to_owned());
        forget_overtaken(&mut ended, log.replica.pe);
    } else {
        end_unasked(env, &mut ended, reason, exit, detail);
        fail_opens(&mut ended);
    }
    ended
}

/// Sessions whose node's boot is over, as they are to be written. Whoever takes over writes
/// them with its first entry, before anybody is answered.
///
/// What `found` ends has ended in a way that is known, before its boot did: one entry holds one
/// write of a document.
pub(crate) fn write_off_lost(
    env: &mut Env,
    log: &Log,
    found: &[Write],
    follows: Follows,
) -> Vec<Write> {
    let ended: BTreeSet<&DocKey> = found.iter().map(|it| &it.key).collect();
    let over = log.replica.sessions_over(|node, boot| env.is_over(log.number, node, boot));
    let over = over.into_iter().filter(|key| !ended.contains(key));
    let records = over.filter_map(|key| Some((log.replica.record(&key)?, key)));
    let write = |(record, key): (Arc<SessionRecord>, DocKey)| {
        let lost = lost(env, &record, log.replica.pe, follows);
        env.note_end(Transition::SessionLost, log.number, record.state, &lost);
        session_writes(env, log, &key, lost)
    };
    records.flat_map(write).collect()
}

/// The record of a session whose node's boot is over.
pub(crate) fn lost(
    env: &mut Env,
    record: &SessionRecord,
    pe: Epoch,
    follows: Follows,
) -> SessionRecord {
    let closing = record.state == SessionState::Closing;
    let at = record.placement.as_ref().map(|it| &it.node);
    let node = at.map(NodeId::to_string).unwrap_or_default();
    let reopens = follows == Follows::AsItsClassSays && reopens(env, record);
    let mut lost = SessionRecord {
        version: version_after(env, record, pe),
        state: if closing { SessionState::Closed } else { SessionState::Lost },
        reason: Some(if reopens { Reason::Reopening } else { Reason::NodeLost }),
        detail: format!("node {node} was lost or booted anew"),
        ..record.clone()
    };
    if closing {
        forget_overtaken(&mut lost, pe);
    }
    lost
}

/// Nothing of the boot on which a session was placed runs any more.
pub(crate) fn write_boot_over(led: &mut At<'_>, key: &DocKey) {
    if !led.lead.is_open() {
        return;
    }
    let over = |doc: &&Arc<Doc>| {
        let runs_at = doc.brief().and_then(Brief::runs_at);
        runs_at.is_some_and(|(node, boot)| led.env.is_over(led.log.number, node, *boot))
    };
    let doc = led.log.replica.get(key).filter(over);
    let Some(record) = doc.and_then(|it| it.session()).cloned() else {
        return;
    };
    let lost = lost(led.env, &record, led.log.replica.pe, Follows::AsItsClassSays);
    led.env.note_end(Transition::SessionLost, led.log.number, record.state, &lost);
    write_session(led, key, lost, None);
}
