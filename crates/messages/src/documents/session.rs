//! The document of a session: its items are one to one with its record.

use super::{Doc, SCHEMA};
use rota_docstore::{DocName, Document, DocumentEdit, Exception};
use rota_model::items::{
    LIFETIME_ITEM, MACHINE_ITEM, Machine, REQUEST_CLASS, REQUEST_ITEM, Remembered, RememberedFate,
    SESSION_CLASS, Standing,
};
use rota_model::{
    FieldError, Lifetime, Namespace, Placement, REQUEST_MEMORY_MS, RequestEntry, RequestFate,
    RequestId, SessionId, SessionKey, SessionRecord, SessionSpec, Stamp,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Most forgotten requests that a document still knows as destroyed, but for those that were
/// forgotten by one write. A cache that is further behind gets the list of all that exist.
const DESTROYED_MAX: usize = 8;

/// Name of a session's document.
pub fn session_name(key: &SessionKey) -> DocName {
    DocName::new(&key.namespace, SESSION_CLASS, key.id.as_str())
        .expect("ids of sessions are ids of documents")
}

/// Name of the document beside a session's that remembers a request.
pub fn request_name(key: &SessionKey, request: &RequestId) -> DocName {
    DocName::memory(&key.namespace, REQUEST_CLASS, key.id.as_str(), &[request.as_str()])
        .expect("ids of sessions are ids of documents")
}

/// The session that a document of class `session` or `request` is about.
pub(super) fn key(name: &DocName) -> Result<SessionKey, FieldError> {
    Ok(SessionKey::new(Namespace::parse(name.space())?, SessionId::parse(name.place())?))
}

/// The document that remembers a request beside its session, after `before`.
pub(super) fn next_request(
    before: Option<&Arc<Document>>,
    session: &SessionKey,
    entry: &RequestEntry,
    version: Stamp,
) -> Document {
    let version = before.map_or(version, |it| version.max(it.version().next()));
    let name = request_name(session, &entry.id);
    let mut edited = DocumentEdit::new(name, before.cloned(), SCHEMA.clone());
    edited.ensure();
    edited
        .put(entry.id.as_str(), &remembered(entry, None))
        .expect("everything in an entry is bounded");
    edited.settle_at(version, version, Stamp::MIN).expect("it is small, and its version is above")
}

/// What a document beside a session remembers.
pub(super) fn decode_request(document: &Document) -> Result<RequestEntry, FieldError> {
    let entry = requests(document, None)?.pop();
    entry.ok_or_else(|| FieldError::new("request", "is missing"))
}

/// The document after `before`, with what the record says now.
pub(super) fn next(before: Option<&Doc>, record: &SessionRecord) -> Document {
    let name = before.map_or_else(|| session_name(&record.key), |it| it.name().clone());
    let found = before.map(|it| it.document().clone());
    let old = before.and_then(Doc::session).filter(|it| it.life == record.life);
    let mut edited = DocumentEdit::new(name, found, SCHEMA.clone());
    if old.is_none() {
        edited.destroy();
        edited.ensure();
    }
    // Wherever texts come in they are bounded, far below the limits of a document.
    put(&mut edited, old.map(|it| &**it), record).expect("everything in a record is bounded");
    let forget_before = old.and(before).map(|it| forget_before(it.document(), record.version));
    edited
        .settle_at(record.life, record.version, forget_before.unwrap_or(Stamp::MIN))
        .expect("a record's version grows, and everything in it is bounded")
}

fn put(
    edited: &mut DocumentEdit,
    old: Option<&SessionRecord>,
    record: &SessionRecord,
) -> Result<(), Exception> {
    if old.is_none_or(|old| old.spec != record.spec) {
        edited.put_one(&record.spec)?;
    }
    let standing = standing(record);
    if old.is_none_or(|old| self::standing(old) != standing) {
        edited.put_one(&standing)?;
    }
    match (old.and_then(machine), machine(record)) {
        (before, Some(now)) if before.as_ref() != Some(&now) => edited.put_one(&now)?,
        (Some(_), None) => drop(edited.remove(MACHINE_ITEM, None)?),
        (_, _) => {}
    }
    match (old.and_then(|it| it.lifetime.as_deref()), record.lifetime.as_deref()) {
        (before, Some(now)) if before != Some(now) => edited.put_one(now)?,
        (Some(_), None) => drop(edited.remove(LIFETIME_ITEM, None)?),
        (_, _) => {}
    }
    put_requests(edited, old, record)
}

fn standing(record: &SessionRecord) -> Standing {
    Standing {
        state: record.state,
        reason: record.reason,
        detail: record.detail.clone(),
        exit: record.exit.clone(),
        grace_ms: record.grace_ms,
        placement: record.placement.clone(),
        attributes: record.attributes_digest,
    }
}

/// Nothing for a program: its item would say nothing.
fn machine(record: &SessionRecord) -> Option<Machine> {
    let machine = Machine { state: record.machine_state.clone(), change: record.machine_change };
    (!machine.state.is_empty() || machine.change > 0).then_some(machine)
}

fn put_requests(
    edited: &mut DocumentEdit,
    old: Option<&SessionRecord>,
    record: &SessionRecord,
) -> Result<(), Exception> {
    let stays = |old: &SessionRecord| old.placement == record.placement;
    // An answer that leaned on the placement is written out when that moves.
    let leans = old.is_some_and(|old| !stays(old));
    let before = old.map(|it| it.requests.as_slice()).unwrap_or_default();
    if before == record.requests && !leans {
        return Ok(());
    }
    let mut before: BTreeMap<&RequestId, &RequestEntry> =
        before.iter().map(|it| (&it.id, it)).collect();
    for entry in &record.requests {
        let known = before.remove(&entry.id) == Some(entry);
        if !known || (leans && matches!(entry.fate, RequestFate::Opened { .. })) {
            edited.put(entry.id.as_str(), &remembered(entry, record.placement.as_ref()))?;
        }
    }
    for id in before.keys() {
        edited.remove(REQUEST_ITEM, Some(id.as_str()))?;
    }
    Ok(())
}

fn remembered(entry: &RequestEntry, here: Option<&Placement>) -> Remembered {
    let fate = match &entry.fate {
        RequestFate::Opening => RememberedFate::Opening,
        RequestFate::Opened { outcome, life, version, placement } => RememberedFate::Opened {
            outcome: *outcome,
            life: *life,
            version: *version,
            placement: Some(placement).filter(|it| Some(*it) != here).cloned(),
        },
        RequestFate::Failed { life } => RememberedFate::Failed { life: *life },
        RequestFate::Closed { life } => RememberedFate::Closed { life: *life },
    };
    Remembered { at: entry.at, fate, ran: entry.ran.clone() }
}

/// Which destroyed items are forgotten: those that are older than requests are remembered, and all
/// but the newest of many.
fn forget_before(document: &Document, version: Stamp) -> Stamp {
    let destroyed = document.items().iter().filter(|it| it.is_destroyed());
    let mut versions: Vec<Stamp> = destroyed.map(|it| it.version()).collect();
    versions.sort_unstable();
    let oldest = versions.len().checked_sub(DESTROYED_MAX).and_then(|at| versions.get(at));
    version.minus_ms(REQUEST_MEMORY_MS).max(oldest.copied().unwrap_or(Stamp::MIN))
}

/// The record that a document stands for.
pub(super) fn decode(document: &Document) -> Result<SessionRecord, FieldError> {
    let missing = |item: &str| FieldError::new(item, "is missing");
    let spec: SessionSpec = document.one()?.ok_or_else(|| missing("spec"))?;
    let standing: Standing = document.one()?.ok_or_else(|| missing("state"))?;
    let machine: Option<Machine> = document.one()?;
    let Standing { state, reason, detail, exit, grace_ms, placement, attributes } = standing;
    let (machine_state, machine_change) =
        machine.map_or((String::new(), 0), |it| (it.state, it.change));
    let requests = requests(document, placement.as_ref())?;
    let lifetime: Option<Lifetime> = document.one()?;
    Ok(SessionRecord {
        key: key(document.name())?,
        spec,
        life: document.ctime(),
        version: document.version(),
        state,
        reason,
        detail,
        exit,
        grace_ms,
        placement,
        attributes_digest: attributes,
        machine_state,
        machine_change,
        lifetime: lifetime.map(Arc::new),
        requests,
    })
}

fn requests(
    document: &Document,
    here: Option<&Placement>,
) -> Result<Vec<RequestEntry>, FieldError> {
    let of_requests = || document.existing().filter(|(name, _)| name.class() == REQUEST_ITEM);
    // Nearly every record holds one request for ever: spare room would be most of its size.
    let mut requests = Vec::with_capacity(of_requests().count());
    for (name, _) in of_requests() {
        let key = name.key().ok_or_else(|| FieldError::new("request", "has no id"))?;
        let Some(Remembered { at, fate, ran }) = document.keyed(key)? else { continue };
        let fate = match fate {
            RememberedFate::Opening => RequestFate::Opening,
            RememberedFate::Opened { outcome, life, version, placement } => {
                let nowhere = || FieldError::new("request", "was answered, and ran nowhere");
                let placement = placement.or_else(|| here.cloned()).ok_or_else(nowhere)?;
                RequestFate::Opened { outcome, life, version, placement }
            }
            RememberedFate::Failed { life } => RequestFate::Failed { life },
            RememberedFate::Closed { life } => RequestFate::Closed { life },
        };
        requests.push(RequestEntry { id: RequestId::parse(key)?, at, fate, ran });
    }
    requests.sort_unstable_by(RequestEntry::order);
    Ok(requests)
}
