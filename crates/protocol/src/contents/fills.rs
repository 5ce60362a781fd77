//! How many bytes a document counts for.

use rota_docstore::{Document, Usage};
use rota_messages::{Doc, Entry};
use rota_model::items::{REQUEST_CLASS, SESSION_CLASS};
use std::sync::Arc;

/// What a document takes beside the names and contents of its items, so that empty ones count, too.
pub const DOCUMENT_BYTES: u64 = 512;

pub(crate) fn bytes(usage: Usage) -> u64 {
    usage.item_bytes.saturating_add(usage.documents.saturating_mul(DOCUMENT_BYTES))
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

pub(crate) fn counts(document: &Document) -> bool {
    Usage::of(Some(document)).documents > 0
}

/// What documents fill: by what counts for their namespaces, and beside that.
#[derive(Clone, Copy, Default)]
pub(crate) struct Filling {
    pub(crate) documents: u64,
    pub(crate) beside: u64,
}

impl Filling {
    pub(crate) fn add(&mut self, doc: Option<&Arc<Doc>>) {
        let document = doc.and_then(|it| of_application(it));
        self.documents = self.documents.saturating_add(bytes(Usage::of(document)));
        self.beside = self.beside.saturating_add(doc.map_or(0, |it| beside(it)));
    }

    pub(crate) fn all(self) -> u64 {
        self.documents.saturating_add(self.beside)
    }
}

/// What an entry fills until it is committed.
pub(crate) fn fills(entry: &Entry) -> u64 {
    let docs = entry.writes.iter().filter_map(|it| it.doc.as_deref());
    let of_applications = docs.filter(|it| of_application(it).is_some());
    of_applications.map(|it| DOCUMENT_BYTES + it.bytes() as u64).sum()
}

/// What counts for the limits of a namespace: not what managers themselves write, which has its own.
pub(crate) fn of_application(doc: &Doc) -> Option<&Document> {
    doc.of_application().map(|it| &**it)
}
