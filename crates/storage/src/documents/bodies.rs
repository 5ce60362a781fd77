//! Bodies of attachments, seen from documents.

use super::{DocumentStore, Unanswered};
use crate::attachments::{
    AttachmentError, Attachments, BodyReader, Digest, Export, Exported, Stored,
};
use rota_docstore::{
    Answer, Attachment, DocName, Document, DocumentEdit, Exception, FieldError, ItemName,
    Namespace, Phase, codes,
};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::sync::Arc;

/// An export begins anew when the document changed so that a body is gone; a document that changes
/// so often has a time of grace that is too short.
const EXPORT_ATTEMPTS: usize = 3;

impl DocumentStore {
    /// Puts the body of an attachment: on `Ok` it is durable. It has the time of grace to be named
    /// by an item: see [`DocumentEdit::attach`](rota_docstore::DocumentEdit::attach). Refuses bytes of another
    /// size or digest.
    pub fn put_body(
        &self,
        attachment: &Attachment,
        bytes: impl Read,
    ) -> Result<Stored, AttachmentError> {
        let (sha256, size) = (attachment.sha256(), attachment.size());
        self.shared.attachments.put(sha256, size, bytes, self.shared.now_ms())
    }

    /// Opens the body that an item of class `P` names. N-DOCUMENT or N-BODY when there is none.
    pub fn read_body(&self, name: &DocName, key: &str) -> Result<BodyReader, Unanswered> {
        let document = self.alive(name)?;
        let found = document.attachments().find(|(it, _)| *it == key);
        let (_, attachment) = found.ok_or_else(|| {
            let problem = format!("of {name} has no P[{}]", key.escape_debug());
            Exception::of_field(codes::BODY, FieldError::new("key", problem))
        })?;
        Ok(self.shared.attachments.read(&attachment.sha256())?)
    }

    /// Opens a body by its digest: also one that no item names any more, in its time of grace.
    pub fn read_body_of(&self, sha256: &Digest) -> Result<BodyReader, AttachmentError> {
        self.shared.attachments.read(sha256)
    }

    /// The bodies themselves: ranges, lists, volumes, damage, import.
    pub fn attachments(&self) -> &Attachments {
        &self.shared.attachments
    }

    /// Writes the attachments of a document at one version, without those that the receiver has,
    /// and returns that very document, without what operations remember in it. Operations go on
    /// meanwhile.
    pub fn export(
        &self,
        name: &DocName,
        receiver_has: &BTreeSet<Digest>,
        mut into: impl Write,
    ) -> Result<(Arc<Document>, Exported), Unanswered> {
        let mut attempt = 1;
        loop {
            let document = self.alive(name)?;
            let named = document.attachments().map(|(key, it)| (key.to_owned(), it.sha256()));
            let attachments: Vec<_> = named.collect();
            let version = document.version().as_u64();
            let export = Export { version, attachments: &attachments, receiver_has };
            match self.shared.attachments.export(&export, &mut into) {
                Ok(exported) => return Ok((document, exported)),
                // Nothing was written. The document that named it may be an old one by now.
                Err(AttachmentError::Missing { .. }) if attempt < EXPORT_ATTEMPTS => attempt += 1,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Takes over what [`DocumentStore::export`] gave: stores the bodies that came, then makes the
    /// document's items those of the exported one. It is a change like any other, and safe to repeat:
    /// the document is created if there is none, its version is that of this change, and items that
    /// are the same already stay as they are. So does what operations remember: a repetition is known
    /// where it was done, and nowhere else. Refuses an export of another version (A-INVALID), and,
    /// by the rules of every change, a document whose bodies are not all here (N-BODY).
    pub fn import(&self, document: &Arc<Document>, from: impl Read) -> Result<Answer, Unanswered> {
        let (name, version) = (document.name(), document.version());
        let imported = self.shared.attachments.import(from, self.shared.now_ms())?;
        if imported.version != version.as_u64() {
            let problem = format!("of the export of {name} is {}, not {version}", imported.version);
            return Err(Exception::from(FieldError::new("version", problem))
                .at(Phase::Before)
                .into());
        }
        let space = Namespace::parse(name.space()).map_err(Exception::from)?;
        let document = Arc::clone(document);
        self.change(&space, move |transaction| {
            become_like(transaction.current(document.name())?, &document)
        })
    }

    fn alive(&self, name: &DocName) -> Result<Arc<Document>, Unanswered> {
        let document = self.get(name)?.filter(|it| !it.is_deleted());
        Ok(document.ok_or_else(|| {
            let field = FieldError::new("document", format!("{name} does not exist"));
            Exception::of_field(codes::DOCUMENT, field)
        })?)
    }
}

/// Gives an edit the items of a document; an ended one ends it.
fn become_like(edited: &mut DocumentEdit, document: &Document) -> Result<(), Exception> {
    if document.is_deleted() {
        edited.destroy();
        return Ok(());
    }
    edited.ensure_copy();
    let is_gone = |it: &&ItemName| document.content(it.class(), it.key()).is_none();
    let gone: Vec<ItemName> =
        edited.existing().map(|(item, _)| item).filter(is_gone).cloned().collect();
    for item in gone {
        edited.remove(item.class(), item.key())?;
    }
    document.existing().try_for_each(|(item, content)| edited.put_content(item, content.clone()))
}
