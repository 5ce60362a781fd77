//! The documents of stable numbers, one for each entry. The owner of all descriptions writes them.

use super::{CONFIGURATION, SCHEMA};
use rota_docstore::{DocName, Document, DocumentEdit};
use rota_model::items::{NUMBER_CLASS, StableNumber};
use rota_model::{FieldError, Stamp};
use std::sync::Arc;

/// Name of the document of an entry, by the entry's name.
///
/// # Errors
/// Field `docid`: the name is no id of a document. Names of entries are.
pub fn number_name(entry: &str) -> Result<DocName, FieldError> {
    DocName::new(&CONFIGURATION, NUMBER_CLASS, entry)
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
pub(super) fn next(
    before: Option<&Arc<Document>>,
    name: DocName,
    entry: Option<&StableNumber>,
    version: Stamp,
) -> Document {
    let version = before.map_or(version, |it| version.max(it.version().next()));
    let mut edited = DocumentEdit::new(name, before.cloned(), SCHEMA.clone());
    match entry {
        Some(entry) => {
            edited.ensure();
            edited.put_one(entry).expect("numbers are short");
        }
        None => drop(edited.destroy()),
    }
    edited.settle_at(version, version, Stamp::MIN).expect("one item at a newer version")
}
