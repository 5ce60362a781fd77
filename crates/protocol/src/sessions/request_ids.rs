//! What a record remembers: requests, lives before the one that it holds, and where its machine was last.

use crate::log::env::Env;
use crate::sessions::follows::waits_for;
use rota_model::{
    Attributes, AttributesDigest, CloseOp, EarlierSpec, Epoch, FieldError, LifeFacts, Lifetime,
    NodeId, OpenOp, Outcome, REQUEST_MEMORY_MS, Reason, Refusal, RefusalKind, RequestEntry,
    RequestFate, RequestId, Retry, SessionKey, SessionRecord, SessionSpec, SessionState, Stamp,
};
use std::sync::Arc;
use xxhash_rust::xxh3::Xxh3;

/// A machine changed. Reports travel through any manager and repeat, so old ones come late. Gives whether
/// this is news.
pub(crate) fn hear_of_machine(record: &mut SessionRecord, state: &str, change: u64) -> bool {
    use SessionState::{Pending, Ready, Starting};
    let is_first = record.machine_state.is_empty() && !state.is_empty();
    let is_news = is_first || change > record.machine_change;
    if !is_news || !matches!(record.state, Pending | Starting | Ready) {
        return false;
    }
    record.machine_state = state.to_string();
    record.machine_change = change;
    true
}

fn digest(attributes: &Attributes) -> AttributesDigest {
    let mut hash = Xxh3::new();
    for text in attributes.iter().flat_map(|(name, value)| [name, value]) {
        hash.update(&(text.len() as u64).to_be_bytes());
        hash.update(text.as_bytes());
    }
    AttributesDigest(hash.digest128())
}

/// Notes what an open asked for whose attributes are to change: its repetition asks for the same.
pub(crate) fn note_opened_with(record: &mut SessionRecord) {
    let lifetime = record.lifetime.as_deref();
    if lifetime.is_none_or(|it| it.opened_with.is_none()) {
        let opened_with = Some(digest(&record.spec.attributes));
        let lifetime = lifetime.cloned().unwrap_or_default();
        record.lifetime = Some(Arc::new(Lifetime { opened_with, ..lifetime }));
    }
}

/// The record as it is kept: one of a life that has ended has a digest of its attributes instead of them. They
/// may be large, and nobody runs them any more.
pub(crate) fn kept(record: Arc<SessionRecord>) -> Arc<SessionRecord> {
    // The next life of a session that is opened again gets them.
    let is_over = record.state.is_ended() && !record.is_reopened();
    if !is_over || record.spec.attributes.is_empty() {
        return record;
    }
    let mut record = Arc::unwrap_or_clone(record);
    record.attributes_digest = Some(digest(&record.spec.attributes));
    record.spec.attributes = Arc::default();
    Arc::new(record)
}

/// Whether a life was opened to run that.
fn runs(record: &SessionRecord, spec: &SessionSpec) -> bool {
    let SessionSpec { class, pool, attributes, .. } = &record.spec;
    let opened_with = record.lifetime.as_ref().and_then(|it| it.opened_with);
    let is_same = match opened_with.or(record.attributes_digest) {
        Some(known) => known == digest(&spec.attributes),
        None => *attributes == spec.attributes,
    };
    is_same && (class, pool) == (&spec.class, &spec.pool)
}

/// What an open asks for that may have begun this life. Who named no pool did not ask for another one, wherever
/// the class would go now.
fn as_asked(record: &SessionRecord, op: &OpenOp) -> SessionSpec {
    let pool = if op.pool_named { &op.spec.pool } else { &record.spec.pool };
    SessionSpec { pool: pool.clone(), ..op.spec.clone() }
}

/// What ran when a remembered open was answered that is repeated now. What was not kept is taken from the
/// repetition, if it is the same.
pub(crate) fn spec_answered(
    record: &SessionRecord,
    entry: &RequestEntry,
    repeated: &OpenOp,
) -> SessionSpec {
    let spec = as_asked(record, repeated);
    if entry.ran.is_none() && runs(record, &spec) {
        return spec;
    }
    spec_then(record, entry)
}

/// What ran when a remembered request was answered. Attributes of earlier lives are not kept.
pub(crate) fn spec_then(record: &SessionRecord, entry: &RequestEntry) -> SessionSpec {
    match entry.ran.as_deref() {
        None => record.spec.clone(),
        Some(EarlierSpec { class, pool }) => SessionSpec {
            class: class.clone(),
            pool: pool.clone(),
            attributes: Arc::default(),
            life: None,
        },
    }
}

/// Shortens the time of a close under way, if that is shorter. What a class gives is known to nodes alone, and
/// they never lengthen it.
pub(crate) fn hasten(record: &mut SessionRecord, grace_ms: Option<u64>) -> bool {
    let hastens = match (grace_ms, record.grace_ms) {
        (Some(now), Some(before)) => now < before,
        (Some(_), None) => true,
        (None, _) => false,
    };
    if hastens {
        record.grace_ms = grace_ms;
    }
    hastens
}

/// What a close gives as the reason of the end that it begins.
pub(crate) fn closed_by(op: &CloseOp) -> Reason {
    if op.by_operator { Reason::ClosedByOperator } else { Reason::ClosedByClient }
}

/// What is still known of a life that was closed before the one in the record, by a request that is repeated now. Whether
/// another close began that end is not remembered. Its version is the latest that it can have had: an older one than was
/// told would look like a step back.
pub(crate) fn earlier_life(
    record: &SessionRecord,
    entry: &RequestEntry,
    life: Stamp,
    repeated: &CloseOp,
) -> SessionRecord {
    SessionRecord {
        spec: spec_then(record, entry),
        life,
        version: record.life.minus_ms(1).max(life),
        state: SessionState::Closed,
        reason: Some(closed_by(repeated)),
        detail: "an earlier life of this session".to_string(),
        exit: None,
        grace_ms: None,
        placement: None,
        attributes_digest: record.attributes_digest.filter(|_| entry.ran.is_none()),
        machine_state: String::new(),
        machine_change: 0,
        requests: Vec::new(),
        ..record.clone()
    }
}

/// What is remembered of requests to lives before one that runs this.
pub(crate) fn earlier_requests(
    old: Option<&SessionRecord>,
    spec: &SessionSpec,
) -> Vec<RequestEntry> {
    let mut requests = old.map(|it| it.requests.clone()).unwrap_or_default();
    requests.retain(|it| it.fate != RequestFate::Opening);
    if let Some(old) = old.filter(|it| !runs(it, spec)) {
        let ran = spec_ran(&old.spec);
        for entry in requests.iter_mut().filter(|it| it.ran.is_none()) {
            entry.ran = Some(ran.clone());
        }
    }
    requests
}

/// What is kept of what an earlier life ran.
pub(crate) fn spec_ran(spec: &SessionSpec) -> Arc<EarlierSpec> {
    Arc::new(EarlierSpec { class: spec.class.clone(), pool: spec.pool.clone() })
}

/// The first record of a new life, above `floor`. It keeps what is remembered of requests to earlier lives.
pub(crate) fn new_life(
    env: &Env,
    old: Option<&SessionRecord>,
    (op, node): (&OpenOp, &NodeId),
    floor: Stamp,
) -> SessionRecord {
    let goes_on = old.filter(|it| waits_for(it, &op.spec));
    // One that goes on keeps what it was opened with.
    let spec = goes_on.map_or(&op.spec, |it| &it.spec);
    life_of(env, (old, goes_on), (&op.key, spec), node, floor)
}

/// What holds for a new life of that on a node; `goes_on`: the life that it goes on with.
pub(crate) fn lifetime_of(
    env: &Env,
    spec: &SessionSpec,
    node: &NodeId,
    goes_on: Option<&SessionRecord>,
) -> Option<Arc<Lifetime>> {
    let asked = spec.life.as_deref().cloned().unwrap_or_default();
    let facts = env.nodes.facts_there(node, &spec.pool, &spec.class).map(|it| &*it.life);
    let mut lifetime = facts.unwrap_or(&LifeFacts::default()).holds(&asked);
    if let Some(before) = goes_on {
        let was = before.lifetime.as_deref().cloned().unwrap_or_default();
        lifetime.origin = Some(before.origin());
        // A life that no node took did not end badly.
        lifetime.restarts = was.restarts + u32::from(was.restart_at.is_some());
        lifetime.ended_as = was.ended_as;
    }
    (!lifetime.is_default()).then(|| Arc::new(lifetime))
}

/// The same, whoever begins it. The life before, and whether the new one goes on with it.
pub(crate) fn life_of(
    env: &Env,
    (old, goes_on): (Option<&SessionRecord>, Option<&SessionRecord>),
    (key, spec): (&SessionKey, &SessionSpec),
    node: &NodeId,
    floor: Stamp,
) -> SessionRecord {
    let before = old.map_or(env.stamps.forgotten, |it| it.version).max(floor);
    let stamp = Stamp::from_epoch_ms(env.now.wall_ms).max(before.next());
    SessionRecord {
        key: key.clone(),
        spec: spec.clone(),
        life: stamp,
        version: stamp,
        state: SessionState::Pending,
        reason: goes_on.and_then(|it| it.reason),
        detail: String::new(),
        exit: None,
        grace_ms: None,
        placement: None,
        attributes_digest: None,
        machine_state: String::new(),
        machine_change: 0,
        requests: earlier_requests(old, spec),
        lifetime: lifetime_of(env, spec, node, goes_on),
    }
}

/// The life that its open asked for is found to run: a repetition finds that it was created.
pub(crate) fn succeed_opens(record: &mut SessionRecord) {
    let (life, version) = (record.life, record.version);
    let Some(placement) = record.placement.clone() else { return };
    for entry in record.requests.iter_mut().filter(|it| it.fate == RequestFate::Opening) {
        let (outcome, placement) = (Outcome::Created, placement.clone());
        entry.fate = RequestFate::Opened { outcome, life, version, placement };
    }
}

/// The life ends before its open was answered: a repetition must not start another one.
pub(crate) fn fail_opens(record: &mut SessionRecord) {
    let life = record.life;
    for entry in record.requests.iter_mut().filter(|it| it.fate == RequestFate::Opening) {
        entry.fate = RequestFate::Failed { life };
    }
}

/// A close that overtook an open is finished: nothing is left of that life, and a repetition begins anew.
/// Until then the record says which open it was, so that no owner begins another life for it meanwhile. Only the
/// owner that began the life (in epoch `pe`) knows that nobody was told of it; a later one keeps what stands there.
pub(crate) fn forget_overtaken(record: &mut SessionRecord, pe: Epoch) {
    if record.token().is_none_or(|it| it.0.pe != pe) {
        return;
    }
    let life = record.life;
    record.requests.retain(|it| it.fate != RequestFate::Failed { life });
}

/// What a request id named before, when it comes with an open that asks for something else. As far as
/// the record shows: it tells what the open asked for that began its life, and of no other.
pub(crate) fn asked_before(
    record: &SessionRecord,
    entry: &RequestEntry,
    op: &OpenOp,
) -> Option<String> {
    let began = match &entry.fate {
        RequestFate::Opening => true,
        RequestFate::Opened { outcome: Outcome::Created, life, .. }
        | RequestFate::Failed { life } => *life == record.life,
        RequestFate::Opened { outcome: Outcome::Existed, .. } | RequestFate::Closed { .. } => false,
    };
    let (before, now) = (&record.spec, &as_asked(record, op));
    if !began || runs(record, now) {
        return None;
    }
    Some(if before.class != now.class {
        format!("an open with class {:?}", before.class)
    } else if before.pool != now.pool {
        format!("an open with pool {:?}", before.pool)
    } else {
        "an open with other attributes".to_owned()
    })
}

/// Refuses a request id that was used for something else.
pub(crate) fn reused(id: &RequestId, what: &str) -> Refusal {
    let field =
        FieldError::new("request_id", format!("{id:?} named {what} of this session before"));
    let (kind, retry) = (RefusalKind::RequestIdReused, Retry::Never);
    Refusal { fields: vec![field.clone()], ..Refusal::new(kind, retry, field.to_string()) }
}

/// Whether a request may be forgotten early because nobody can repeat it any more: its entry manager
/// named it, and has given up by now.
pub(crate) fn is_over(entry: &RequestEntry, env: &Env) -> bool {
    let answers_ms = env.config.timing.answers_ms();
    let oldest = Stamp::from_epoch_ms(env.now.wall_ms.saturating_sub(answers_ms));
    entry.id.is_given_by_manager() && entry.at < oldest
}

/// Remembers a request in a record, from which older ones move beside it when it is written; forgets what
/// is older than the promise.
pub(crate) fn remember(
    record: &mut SessionRecord,
    env: &Env,
    request: &RequestId,
    fate: RequestFate,
) {
    let oldest = Stamp::from_epoch_ms(env.now.wall_ms.saturating_sub(REQUEST_MEMORY_MS));
    record.requests.retain(|it| it.id != *request && it.at >= oldest);
    let at = Stamp::from_epoch_ms(env.now.wall_ms);
    // Nearly every record holds one request for ever: spare room would be most of its size.
    record.requests.reserve_exact(1);
    let entry = RequestEntry { id: request.clone(), at, fate, ran: None };
    // The clock may have stepped back.
    let place = record.requests.partition_point(|it| it.order(&entry).is_lt());
    record.requests.insert(place, entry);
}
