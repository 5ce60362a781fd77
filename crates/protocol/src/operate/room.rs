//! How much documents of applications may fill at one manager, in all of its copies together: they are
//! all in memory.
//!
//! The owner of a document refuses what would make it grow beyond that; what is there may stay, and
//! shrink. Memories of operations count, and may go an eighth beyond it: they go by themselves. What ends
//! a document is never refused, with what that leaves: there are no more of these than documents. A copy takes what its owner took: it could not refuse without falling behind. So the ceiling
//! is the same at all managers. Descriptions of namespaces always have room, with what remembers their
//! changes: an operator must be able to switch off what fills it.

use super::registry::CONFIGURATION;
use crate::env::Env;
use crate::partition::Partition;
use crate::replica::{Replica, of_application};
use rota_docstore::space::SPACE_CLASS;
use rota_docstore::{Document, Exception, FieldError, Usage, codes};
use rota_messages::{Doc, DocKey, Entry, Op, Write};
use rota_model::items::{REQUEST_CLASS, SESSION_CLASS};
use rota_model::{OpenOp, Refusal, RefusalKind, Retry, Stamp};
use std::sync::Arc;

/// What a document takes beside the names and contents of its items, so that empty ones count, too.
pub const DOCUMENT_BYTES: u64 = 512;

/// How much more there is room for when an operation only has to be remembered: a part of what
/// documents may fill. Full documents are to get smaller with a dhop, too.
const MEMORIES_SHARE: u64 = 8;

/// Advice where there is no room for records: about as often those of ended sessions go.
const RECORDS_MS: u64 = 10_000;

fn bytes(usage: Usage) -> u64 {
    usage.v1.saturating_add(usage.documents.saturating_mul(DOCUMENT_BYTES))
}

/// What a document fills that counts for no namespace: the end of one, or a memory of an operation.
pub(crate) fn beside(doc: &Doc) -> u64 {
    match of_application(doc) {
        Some(document) if counts(document) => 0,
        Some(_) => DOCUMENT_BYTES + doc.bytes() as u64,
        None => 0,
    }
}

/// What a document fills that is the record of a session, or remembers a request beside one.
pub(crate) fn of_session(doc: &Doc) -> u64 {
    match doc.name().class() {
        SESSION_CLASS | REQUEST_CLASS => DOCUMENT_BYTES + doc.bytes() as u64,
        _ => 0,
    }
}

fn counts(document: &Document) -> bool {
    Usage::of(Some(document)).documents > 0
}

/// What documents fill: by what counts for their namespaces, and beside that.
#[derive(Clone, Copy, Default)]
struct Filling {
    documents: u64,
    beside: u64,
}

impl Filling {
    fn add(&mut self, doc: Option<&Arc<Doc>>) {
        let document = doc.and_then(|it| of_application(it));
        self.documents = self.documents.saturating_add(bytes(Usage::of(document)));
        self.beside = self.beside.saturating_add(doc.map_or(0, |it| beside(it)));
    }

    fn all(self) -> u64 {
        self.documents.saturating_add(self.beside)
    }
}

fn is_description(DocKey { name, .. }: &DocKey) -> bool {
    name.space() == CONFIGURATION && name.class() == SPACE_CLASS
}

/// What an entry fills until it is committed.
pub(crate) fn fills(entry: &Entry) -> u64 {
    let docs = entry.writes.iter().filter_map(|it| it.doc.as_deref());
    let of_applications = docs.filter(|it| of_application(it).is_some());
    of_applications.map(|it| DOCUMENT_BYTES + it.bytes() as u64).sum()
}

impl Replica {
    /// What documents of applications fill here. What is not known to be committed (at a copy that is
    /// the last entry, until the next one comes) counts whole, beside what it replaces.
    pub fn filled(&self) -> u64 {
        let committed = bytes(self.usages.all()).saturating_add(self.beside);
        committed.saturating_add(self.tail_fills)
    }

    /// What records of sessions fill here, at most: all that is not known to be committed counts as such.
    pub fn session_bytes(&self) -> u64 {
        self.sessions.saturating_add(self.tail_bytes as u64)
    }
}

impl Partition {
    /// There is no room for the record of one more life.
    pub(crate) fn refuses_for_room(&self, env: &mut Env, op: &OpenOp) -> Option<Refusal> {
        let limit = env.config.sizes.session_bytes;
        let asked = Op::Open(op.clone()).bytes() as u64;
        let grown = env.session_bytes.saturating_add(asked);
        if grown <= limit {
            // Until it is counted anew.
            env.session_bytes = grown;
            return None;
        }
        let text = format!(
            "records of sessions at manager {} fill {} of {limit} bytes, those of ended ones for ten minutes",
            env.config.id, env.session_bytes
        );
        Some(Refusal::new(RefusalKind::Overloaded, Retry::AfterMs(RECORDS_MS), text))
    }

    /// Makes room for what is about to be written, or says why there is none. What ends a document always
    /// has room; what only remembers operations has [`MEMORIES_SHARE`] more.
    pub(super) fn take_room(&self, env: &mut Env, writes: &[Write]) -> Result<(), Exception> {
        if writes.iter().any(|it| is_description(&it.key)) {
            return Ok(());
        }
        let (mut before, mut after, mut ends) = (Filling::default(), Filling::default(), false);
        for Write { key, doc } in writes {
            let found = self.replica.get(key);
            before.add(found);
            after.add(doc.as_ref());
            let is_there =
                |doc: Option<&Arc<Doc>>| doc.and_then(|it| of_application(it)).is_some_and(counts);
            ends |= is_there(found) && !is_there(doc.as_ref());
        }
        let (manager, limit) = (&env.config.id, env.config.documents.bytes_max);
        let filled = env.desks.filled.saturating_add(after.all().saturating_sub(before.all()));
        let growth = after.documents.saturating_sub(before.documents);
        let grown = env.desks.filled.saturating_add(growth);
        if growth > 0 && grown > limit {
            let problem = format!(
                "of all documents at manager {manager} would be {grown}; the limit is {limit}"
            );
            return Err(Exception::of_field(codes::LIMIT, FieldError::new("bytes", problem)));
        }
        let limit = limit.saturating_add(limit / MEMORIES_SHARE);
        if after.beside > before.beside && filled > limit && !ends {
            let problem = format!(
                "cannot be remembered: bytes of all documents and memories of operations at manager \
                 {manager} would be {filled}; the limit is {limit}"
            );
            let exception = Exception::of_field(codes::BUSY, FieldError::new("dhop", problem));
            let now = Stamp::from_epoch_ms(env.now.wall_ms);
            let oldest = self.replica.memories.operations.oldest();
            let wait = oldest.map(|it| env.desks.rules(self.slots(env)).ms_to_forget(it, now));
            return Err(wait.into_iter().fold(exception, Exception::after));
        }
        env.desks.filled = filled;
        Ok(())
    }
}
