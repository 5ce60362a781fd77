//! Documents, items and updates.

use crate::v1;
use crate::wire::{WireError, convert, each, named, required};
use bytes::Bytes;
use rota_docstore::{
    Attachment, Changes, ChangesParts, Content, Digest, DocName, Document, DocumentParts, Held,
    Item, ItemName, Stamp, SyncRequest, Update,
};
use rota_model::{FieldError, Namespace};
use std::sync::Arc;

/// Puts the name of the whole on the mistake of a part.
fn within<T>(whole: &'static str, made: Result<T, FieldError>) -> Result<T, WireError> {
    made.map_err(|it| WireError::new(whole, format!("has a wrong {it}")))
}

pub(crate) fn stamp(field: &'static str, number: u64) -> Result<Stamp, WireError> {
    named(field, Stamp::parse(number))
}

/// A namespace that may be left out.
pub(super) fn space(field: &'static str, text: &str) -> Result<Namespace, WireError> {
    if text.is_empty() {
        return Ok(Namespace::default_space());
    }
    named(field, Namespace::parse(text))
}

impl From<&DocName> for v1::DocumentName {
    fn from(name: &DocName) -> Self {
        Self {
            namespace: name.space().into(),
            class: name.class().into(),
            docid: name.docid().into(),
        }
    }
}

impl TryFrom<v1::DocumentName> for DocName {
    type Error = WireError;
    fn try_from(name: v1::DocumentName) -> Result<Self, WireError> {
        let space = space("DocumentName.namespace", &name.namespace)?;
        within("DocumentName", DocName::new(&space, &name.class, &name.docid))
    }
}

impl From<&ItemName> for v1::ItemName {
    fn from(name: &ItemName) -> Self {
        Self { class: name.class().into(), key: name.key().map(Into::into) }
    }
}

impl TryFrom<v1::ItemName> for ItemName {
    type Error = WireError;
    fn try_from(name: v1::ItemName) -> Result<Self, WireError> {
        within("ItemName", ItemName::new(&name.class, name.key.as_deref()))
    }
}

/// A digest: 32 bytes.
pub(crate) fn digest(bytes: &[u8]) -> Result<Digest, FieldError> {
    let wrong = |_| {
        let problem = format!("is {} bytes long; it must be 32", bytes.len());
        FieldError::new("sha256", problem)
    };
    <[u8; 32]>::try_from(bytes).map(Digest).map_err(wrong)
}

/// A digest as bytes.
pub(crate) fn digest_bytes(digest: Digest) -> Bytes {
    Bytes::copy_from_slice(&digest.0)
}

impl From<&Attachment> for v1::AttachmentInfo {
    fn from(it: &Attachment) -> Self {
        Self { mime: it.mime().into(), size: it.size(), sha256: digest_bytes(it.sha256()) }
    }
}

impl TryFrom<v1::AttachmentInfo> for Attachment {
    type Error = WireError;
    fn try_from(it: v1::AttachmentInfo) -> Result<Self, WireError> {
        let sha256 = named("AttachmentInfo.sha256", digest(&it.sha256))?;
        named("AttachmentInfo.mime", Attachment::new(&it.mime, it.size, sha256))
    }
}

pub(super) fn content(content: &Content) -> v1::document_item::Content {
    use v1::document_item::Content as Wire;
    match content {
        Content::Json(text) => Wire::Json(text.as_str().into()),
        Content::Raw(bytes) => Wire::Raw(Bytes::copy_from_slice(bytes)),
        Content::Attachment(it) => Wire::Attachment((&**it).into()),
    }
}

pub(super) fn read_content(content: v1::document_item::Content) -> Result<Content, WireError> {
    use v1::document_item::Content as Wire;
    match content {
        Wire::Json(text) => named("DocumentItem.json", Content::json(&text)),
        Wire::Raw(bytes) => named("DocumentItem.raw", Content::raw(&bytes[..])),
        Wire::Attachment(it) => Ok(Content::Attachment(Arc::new(it.try_into()?))),
    }
}

impl From<&Item> for v1::DocumentItem {
    fn from(item: &Item) -> Self {
        Self {
            name: Some(item.name().into()),
            version: item.version().as_u64(),
            item_version: item.item_version().map_or(0, Stamp::as_u64),
            content: item.content().map(content),
        }
    }
}

impl TryFrom<v1::DocumentItem> for Item {
    type Error = WireError;
    fn try_from(item: v1::DocumentItem) -> Result<Self, WireError> {
        let name = convert("DocumentItem.name", item.name)?;
        let version = stamp("DocumentItem.version", item.version)?;
        let Some(content) = item.content else {
            return match item.item_version {
                0 => Ok(Item::destroyed(name, version)),
                item_version => {
                    let problem = format!("is {item_version}; a destroyed item has 0");
                    Err(WireError::new("DocumentItem.item_version", problem))
                }
            };
        };
        let item_version = stamp("DocumentItem.item_version", item.item_version)?;
        within("DocumentItem", Item::existing(name, version, item_version, read_content(content)?))
    }
}

impl From<&Document> for v1::Document {
    fn from(document: &Document) -> Self {
        Self {
            name: Some(document.name().into()),
            ctime: document.ctime().as_u64(),
            version: document.version().as_u64(),
            dtime: document.dtime().as_u64(),
            deleted: document.is_deleted(),
            items: document.items().iter().map(Into::into).collect(),
        }
    }
}

impl TryFrom<v1::Document> for Document {
    type Error = WireError;
    fn try_from(document: v1::Document) -> Result<Self, WireError> {
        let parts = DocumentParts {
            name: convert("Document.name", document.name)?,
            ctime: stamp("Document.ctime", document.ctime)?,
            version: stamp("Document.version", document.version)?,
            dtime: stamp("Document.dtime", document.dtime)?,
            is_deleted: document.deleted,
            items: each(document.items)?,
        };
        within("Document", Document::from_parts(parts))
    }
}

impl From<Held> for v1::HeldDocument {
    fn from(held: Held) -> Self {
        Self {
            ctime: held.ctime().as_u64(),
            version: held.version().as_u64(),
            dtime: held.dtime().as_u64(),
        }
    }
}

impl TryFrom<v1::HeldDocument> for Held {
    type Error = WireError;
    fn try_from(held: v1::HeldDocument) -> Result<Self, WireError> {
        let ctime = stamp("HeldDocument.ctime", held.ctime)?;
        let version = stamp("HeldDocument.version", held.version)?;
        let dtime = stamp("HeldDocument.dtime", held.dtime)?;
        named("HeldDocument.dtime", Held::new(ctime, version, dtime))
    }
}

impl From<&SyncRequest> for v1::DocumentSync {
    fn from(sync: &SyncRequest) -> Self {
        Self { name: Some((&sync.name).into()), held: sync.held.map(Into::into) }
    }
}

impl From<&Changes> for v1::DocumentChanges {
    fn from(changes: &Changes) -> Self {
        let names = |it: &[ItemName]| v1::ItemNames { names: it.iter().map(Into::into).collect() };
        Self {
            ctime: changes.ctime().as_u64(),
            since: changes.since().as_u64(),
            version: changes.version().as_u64(),
            dtime: changes.dtime().as_u64(),
            items: changes.items().iter().map(Into::into).collect(),
            unchanged: changes.unchanged().map(names),
        }
    }
}

impl TryFrom<v1::DocumentChanges> for Changes {
    type Error = WireError;
    fn try_from(changes: v1::DocumentChanges) -> Result<Self, WireError> {
        let parts = ChangesParts {
            ctime: stamp("DocumentChanges.ctime", changes.ctime)?,
            since: stamp("DocumentChanges.since", changes.since)?,
            version: stamp("DocumentChanges.version", changes.version)?,
            dtime: stamp("DocumentChanges.dtime", changes.dtime)?,
            items: each(changes.items)?,
            unchanged: changes.unchanged.map(|it| each(it.names)).transpose()?,
        };
        within("DocumentChanges", Changes::from_parts(parts))
    }
}

pub(super) fn life(ctime: Stamp, version: Stamp) -> v1::DocumentLife {
    v1::DocumentLife { ctime: ctime.as_u64(), version: version.as_u64() }
}

pub(super) fn read_life(life: &v1::DocumentLife) -> Result<(Stamp, Stamp), WireError> {
    let ctime = stamp("DocumentLife.ctime", life.ctime)?;
    let version = stamp("DocumentLife.version", life.version)?;
    if ctime > version {
        let problem = format!("is {ctime}, after version {version}");
        return Err(WireError::new("DocumentLife.ctime", problem));
    }
    Ok((ctime, version))
}

impl From<(&DocName, &Update)> for v1::DocumentUpdate {
    fn from((name, update): (&DocName, &Update)) -> Self {
        use v1::document_update::Update as Wire;
        let update = match update {
            Update::Unchanged { ctime, version } => Wire::Unchanged(life(*ctime, *version)),
            Update::Full(document) => Wire::Full((&**document).into()),
            Update::Changes(changes) => Wire::Changes(changes.into()),
            Update::Deleted { ctime, version } => Wire::Deleted(life(*ctime, *version)),
            Update::Absent { as_of } => Wire::AbsentAsOf(as_of.as_u64()),
            Update::SourceBehind { ctime, version } => Wire::SourceBehind(life(*ctime, *version)),
        };
        Self { name: Some(name.into()), update: Some(update) }
    }
}

impl TryFrom<v1::DocumentUpdate> for (DocName, Update) {
    type Error = WireError;
    fn try_from(update: v1::DocumentUpdate) -> Result<Self, WireError> {
        use v1::document_update::Update as Wire;
        let name = convert("DocumentUpdate.name", update.name)?;
        let update = match required("DocumentUpdate.update", update.update)? {
            Wire::Unchanged(it) => {
                let (ctime, version) = read_life(&it)?;
                Update::Unchanged { ctime, version }
            }
            Wire::Full(document) => Update::Full(Arc::new(document.try_into()?)),
            Wire::Changes(changes) => Update::Changes(changes.try_into()?),
            Wire::Deleted(it) => {
                let (ctime, version) = read_life(&it)?;
                Update::Deleted { ctime, version }
            }
            Wire::AbsentAsOf(as_of) => {
                Update::Absent { as_of: stamp("DocumentUpdate.absent_as_of", as_of)? }
            }
            Wire::SourceBehind(it) => {
                let (ctime, version) = read_life(&it)?;
                Update::SourceBehind { ctime, version }
            }
            Wire::TooLarge(_) => {
                return Err(WireError::new(
                    "DocumentUpdate.update",
                    "is too large to be told here",
                ));
            }
        };
        Ok((name, update))
    }
}
