//! Planted bugs of copies: what is done to the entries that they get.

use rota_docstore::Document;
use rota_model::SessionRecord;
use rota_protocol::{Doc, Entry, Message, Write};
use std::sync::Arc;

/// Entries without what sessions remember of requests.
pub(crate) fn forget_requests(message: &mut Message) {
    let Message::Prepare { entries, .. } = message else { return };
    for entry in entries.iter_mut() {
        let writes = entry.writes.iter().map(|write| {
            let mut write = write.clone();
            if let Some(record) = write.doc.as_ref().and_then(|doc| doc.session()) {
                let record = SessionRecord { requests: Vec::new(), ..(**record).clone() };
                write.doc = Some(Arc::new(Doc::session_after(None, record)));
            }
            write
        });
        *entry = Entry::new(entry.at, writes.collect(), entry.request.clone());
    }
}

/// Changes documents of applications in entries of the log, or leaves them out.
pub(crate) fn alter_documents(message: &mut Message, alter: impl Fn(&Doc) -> Option<Doc>) {
    let Message::Prepare { entries, .. } = message else { return };
    for entry in entries.iter_mut() {
        let writes = entry.writes.iter().filter_map(|write| {
            let plain =
                write.doc.as_ref().filter(|it| it.brief().is_none() && it.orders().is_none());
            let Some(doc) = plain else { return Some(write.clone()) };
            Some(Write { key: write.key.clone(), doc: Some(Arc::new(alter(doc)?)) })
        });
        *entry = Entry::new(entry.at, writes.collect(), entry.request.clone());
    }
}

/// A document without what operations remember in it.
pub(crate) fn without_memories(doc: &Doc) -> Doc {
    let mut parts = Document::clone(doc.document()).into_parts();
    parts.items.retain(|it| it.name().class() != "H");
    let document = Document::from_parts(parts).expect("it only holds less");
    Doc::new(Arc::new(document)).expect("it is no session")
}
