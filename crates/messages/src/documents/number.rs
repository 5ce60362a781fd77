//! The documents of stable numbers. The owner of all descriptions writes one for each entry; the numbers of the
//! sessions of a node are one document, which the owner of its slot writes.

use super::{CONFIGURATION, SCHEMA};
use rota_docstore::{DocName, Document, DocumentEdit, Singleton};
use rota_model::items::{NUMBER_CLASS, SESSION_NUMBERS_CLASS, SessionNumbers, StableNumber};
use rota_model::{FieldError, Stamp};
use std::sync::Arc;

/// Name of the document of an entry, by the entry's name.
///
/// # Errors
/// Field `docid`: the name is no id of a document. Names of entries are.
pub fn number_name(entry: &str) -> Result<DocName, FieldError> {
    DocName::new(&CONFIGURATION, NUMBER_CLASS, entry)
}

/// Name of the document of the numbers of a node's sessions, by the name of the node's entry.
///
/// # Errors
/// Field `docid`: the name is no id of a document. Names of entries are.
pub fn session_numbers_name(entry: &str) -> Result<DocName, FieldError> {
    DocName::new(&CONFIGURATION, SESSION_NUMBERS_CLASS, entry)
}

/// What the document of the numbers of a node's sessions says; `None` when its life has ended.
///
/// # Errors
/// It does not read as one.
pub fn read_session_numbers(document: &Document) -> Result<Option<SessionNumbers>, FieldError> {
    if document.is_deleted() {
        return Ok(None);
    }
    let missing = || FieldError::new("numbers", "are missing");
    document.one::<SessionNumbers>()?.ok_or_else(missing).map(Some)
}

/// What the document of a stable number says; `None` when its life has ended.
///
/// # Errors
/// It does not read as one.
pub fn read_number(document: &Document) -> Result<Option<StableNumber>, FieldError> {
    if document.is_deleted() {
        return Ok(None);
    }
    let missing = || FieldError::new("number", "is missing");
    document.one::<StableNumber>()?.ok_or_else(missing).map(Some)
}

/// The document after `before` at that version or a later one. `None`: its life ends.
pub(super) fn next<T: Singleton>(
    before: Option<&Arc<Document>>,
    name: DocName,
    entry: Option<&T>,
    version: Stamp,
) -> Document {
    let version = before.map_or(version, |it| version.max(it.version().next()));
    let mut edited = DocumentEdit::new(name, before.cloned(), SCHEMA.clone());
    match entry {
        Some(entry) => {
            edited.ensure();
            edited.put_one(entry).expect("numbers are short, and so many");
        }
        None => drop(edited.destroy()),
    }
    edited.settle_at(version, version, Stamp::MIN).expect("one item at a newer version")
}
