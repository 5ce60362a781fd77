//! How much documents of applications may fill at one manager, in all of its copies together: they are
//! all in memory.
//!
//! The owner of a document refuses what would make it grow beyond that; what is there may stay, and
//! shrink. A copy takes what its owner took: it could not refuse without falling behind. So the ceiling
//! is the same at all managers. Descriptions of namespaces always have room, with what remembers their
//! changes: an operator must be able to switch off what fills it.

use super::registry::CONFIGURATION;
use crate::documents::{Doc, DocKey};
use crate::env::Env;
use crate::message::{Entry, Write};
use crate::partition::Partition;
use crate::replica::{Replica, of_application};
use rota_docstore::space::SPACE_CLASS;
use rota_docstore::{Document, Exception, FieldError, Usage, codes};
use std::sync::Arc;

/// What a document takes beside the names and contents of its items, so that empty ones count, too.
pub const DOCUMENT_BYTES: u64 = 512;

fn bytes(usage: Usage) -> u64 {
    usage.v1.saturating_add(usage.documents.saturating_mul(DOCUMENT_BYTES))
}

/// What a document fills that counts for no namespace: the end of one, or memories of operations.
pub(crate) fn beside(doc: &Doc) -> u64 {
    let counts = |it: &Document| Usage::of(Some(it)).documents > 0;
    match of_application(doc) {
        Some(document) if !counts(document) => DOCUMENT_BYTES + doc.bytes() as u64,
        Some(_) | None => 0,
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
}

impl Partition {
    /// Makes room for what is about to be written, or says why there is none. What ends a document always
    /// has room, and so has what remembers an operation.
    pub(super) fn take_room(&self, env: &mut Env, writes: &[Write]) -> Result<(), Exception> {
        if writes.iter().any(|it| is_description(&it.key)) {
            return Ok(());
        }
        let (mut before, mut after) = (0_u64, 0_u64);
        for Write { key, doc } in writes {
            let of = |doc: Option<&_>| bytes(Usage::of(doc));
            before += of(self.replica.get(key).and_then(|it| of_application(it)));
            after += of(doc.as_ref().map(Arc::as_ref).and_then(of_application));
        }
        let Some(growth) = after.checked_sub(before).filter(|it| *it > 0) else { return Ok(()) };
        let limit = env.config.documents.bytes_max;
        let filled = env.desks.filled.saturating_add(growth);
        if filled > limit {
            let problem = format!(
                "of all documents at manager {} would be {filled}; the limit is {limit}",
                env.config.id
            );
            return Err(Exception::of_field(codes::LIMIT, FieldError::new("bytes", problem)));
        }
        env.desks.filled = filled;
        Ok(())
    }
}
