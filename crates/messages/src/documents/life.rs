//! The document of a session's life cycles, beside that of the session.

use super::SCHEMA;
use rota_docstore::{DocName, Document, DocumentEdit, Schema, Singleton};
use rota_lifecycle::Managed;
use rota_model::items::LIFE_CLASS;
use rota_model::{FieldError, Namespace, SessionId, SessionKey, Stamp};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The item of the document.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ManagedItem(pub Managed);

impl Singleton for ManagedItem {
    const CLASS: &'static str = "managed";
}

/// Adds the class of life cycles.
#[must_use]
pub fn with_lives(schema: Schema) -> Schema {
    schema.class(LIFE_CLASS, |it| it.singleton::<ManagedItem>())
}

/// Name of the document of a session's life cycles. It lies in the slot of the session.
pub fn life_name(key: &SessionKey) -> DocName {
    DocName::new(&key.namespace, LIFE_CLASS, key.id.as_str())
        .expect("ids of sessions are ids of documents")
}

/// The session that such a document is about.
pub fn life_session(name: &DocName) -> Option<SessionKey> {
    let space = Namespace::parse(name.space()).ok()?;
    let id = SessionId::parse(name.docid()).ok()?;
    (name.class() == LIFE_CLASS).then(|| SessionKey::new(space, id))
}

/// The life cycles that a document holds.
///
/// # Errors
/// It does not read as such.
pub fn read_life(document: &Document) -> Result<Managed, FieldError> {
    let missing = || FieldError::new("managed", "is missing");
    document.one::<ManagedItem>()?.map(|it| it.0).ok_or_else(missing)
}

pub(super) fn next(
    before: Option<&Arc<Document>>,
    name: DocName,
    managed: &Managed,
    version: Stamp,
) -> Document {
    let version = before.map_or(version, |it| version.max(it.version().next()));
    let ctime = before.filter(|it| !it.is_deleted()).map_or(version, |it| it.ctime());
    let mut edited = DocumentEdit::new(name, before.cloned(), SCHEMA.clone());
    edited.ensure();
    edited.put_one(&ManagedItem(managed.clone())).expect("items and their history are bounded");
    edited.settle_at(ctime, version, Stamp::MIN).expect("one item at a newer version")
}
