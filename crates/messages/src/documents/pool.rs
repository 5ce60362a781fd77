//! The document by which a pool is described. Operators write its settings, and the owner of its slot the texts
//! of classes that nodes of the pool have.

use super::{CONFIGURATION, SCHEMA};
use rota_docstore::{DocName, Document, DocumentEdit};
use rota_model::items::{CLASS_ITEM, POOL_CLASS};
use rota_model::{ClassName, ClassText, FieldError, KnownPool, PoolName, PoolSettings, Stamp};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Name of a pool's document.
pub fn pool_name(pool: &PoolName) -> DocName {
    DocName::new(&CONFIGURATION, POOL_CLASS, pool.as_str()).expect("names of pools are ids")
}

/// What the document of a pool says; `None` when its life has ended.
pub fn read_pool(document: &Document) -> Result<Option<KnownPool>, FieldError> {
    if document.is_deleted() {
        return Ok(None);
    }
    let name = PoolName::parse(document.name().docid())?;
    let settings = document.one::<PoolSettings>()?;
    if let Some(mistake) = settings.as_ref().and_then(|it| it.mistakes_of(&name).into_iter().next())
    {
        return Err(mistake);
    }
    let mut texts = BTreeMap::new();
    let items = document.existing().map(|(name, _)| name);
    for key in items.filter(|it| it.class() == CLASS_ITEM).filter_map(|it| it.key()) {
        let text = document.keyed::<ClassText>(key)?;
        texts.extend(text.map(|it| ClassName::parse(key).map(|key| (key, it))).transpose()?);
    }
    Ok(Some(KnownPool { settings, texts }))
}

/// Texts of classes by name.
pub type Texts = BTreeMap<ClassName, ClassText>;

/// The document after `before` at that version or a later one, with new texts of classes, and without others.
pub(super) fn with_texts(
    before: Option<&Arc<Document>>,
    pool: &PoolName,
    (new, gone): (&Texts, &[ClassName]),
    version: Stamp,
) -> Document {
    let version = before.map_or(version, |it| version.max(it.version().next()));
    let mut edited = DocumentEdit::new(pool_name(pool), before.cloned(), SCHEMA.clone());
    edited.ensure();
    for (class, text) in new {
        edited.put(class.as_str(), text).expect("names and digests are short");
    }
    for class in gone {
        edited.remove(CLASS_ITEM, Some(class.as_str())).expect("managers write it");
    }
    edited.settle_at(version, version, Stamp::MIN).expect("items at a newer version")
}
