//! A document as one run of bytes: for a disk, and for other copies. The same document always has
//! the same bytes, so whoever has them need not make them again.
//!
//! The first byte is the [`FORMAT`]; the rest is in the order of `Stored`, with numbers of variable
//! length. There is no checksum here: whoever keeps the bytes has one.

use crate::content::{Attachment, Content, Digest, JsonText, read_json};
use crate::document::{Document, DocumentParts, Item};
use crate::name::{DocName, ItemName};
use crate::schema::Singleton;
use rota_model::{FieldError, Stamp};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The first byte of every encoded document. Another one is refused.
pub const FORMAT: u8 = 1;

#[derive(Serialize, Deserialize)]
struct Stored<'a> {
    name: &'a str,
    ctime: u64,
    version: u64,
    dtime: u64,
    is_deleted: bool,
    #[serde(borrow)]
    items: Vec<StoredItem<'a>>,
}

#[derive(Serialize, Deserialize)]
struct StoredItem<'a> {
    class: &'a str,
    key: Option<&'a str>,
    version: u64,
    /// The stamp of the operation that made it, and the content; `None`: destroyed.
    #[serde(borrow)]
    existing: Option<(u64, StoredContent<'a>)>,
}

#[derive(Serialize, Deserialize)]
enum StoredContent<'a> {
    Json(&'a str),
    Raw(&'a [u8]),
    Attachment { mime: &'a str, size: u64, sha256: [u8; 32] },
}

impl Document {
    /// Its bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let stored = Stored {
            name: self.name().as_text(),
            ctime: self.ctime().as_u64(),
            version: self.version().as_u64(),
            dtime: self.dtime().as_u64(),
            is_deleted: self.is_deleted(),
            items: self.items().iter().map(StoredItem::of).collect(),
        };
        // Contents, and little beside them.
        let about = 96 + 48 * self.items().len();
        let mut bytes = Vec::with_capacity(about + as_length(self.content_bytes()));
        bytes.push(FORMAT);
        let bytes = postcard::to_extend(&stored, bytes).expect("a vector takes everything");
        debug_assert!(bytes.len() as u64 <= self.stored_bytes_at_most(), "{} bytes", bytes.len());
        bytes
    }

    /// The document of [`Document::to_bytes`]. Checks what [`Document::from_parts`] checks, and
    /// refuses what is cut off or goes on after the end: fields `format`, `document`. JSON texts
    /// were checked when they were written; one that was changed since fails to be read.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, FieldError> {
        Glance::at(bytes)?.into_document()
    }
}

/// A document in its bytes, read only as far as somebody asks: name and stamps at once, and an item
/// by its type. Whether the rest is a document, [`Glance::into_document`] alone can tell.
pub struct Glance<'a> {
    name: DocName,
    stamps: [Stamp; 3],
    is_deleted: bool,
    items: Vec<StoredItem<'a>>,
}

impl<'a> Glance<'a> {
    /// At the bytes of [`Document::to_bytes`]. Fields as there.
    pub fn at(bytes: &'a [u8]) -> Result<Self, FieldError> {
        let Stored { name, ctime, version, dtime, is_deleted, items } = Stored::parse(bytes)?;
        let name = DocName::from_text(name)?;
        let stamps = [Stamp::parse(ctime)?, Stamp::parse(version)?, Stamp::parse(dtime)?];
        Ok(Self { name, stamps, is_deleted, items })
    }

    /// The document's name.
    pub fn name(&self) -> &DocName {
        &self.name
    }

    /// Its ctime, version and dtime.
    pub fn stamps(&self) -> [Stamp; 3] {
        self.stamps
    }

    /// A singleton, as [`Document::one`] gives it.
    pub fn one<T: Singleton>(&self) -> Result<Option<T>, FieldError> {
        let is_it = |it: &&StoredItem<'_>| it.class == T::CLASS && it.key.is_none();
        match self.items.iter().find(is_it).and_then(|it| it.existing.as_ref()) {
            Some((_, StoredContent::Json(text))) => read_json(text).map(Some),
            Some((_, StoredContent::Raw(_) | StoredContent::Attachment { .. })) => {
                Err(FieldError::new("content", "is not JSON"))
            }
            None => Ok(None),
        }
    }

    /// The whole document, checked as by [`Document::from_bytes`].
    pub fn into_document(self) -> Result<Document, FieldError> {
        let Self { name, stamps: [ctime, version, dtime], is_deleted, items } = self;
        let items = items.into_iter().map(StoredItem::into_item).collect::<Result<_, _>>()?;
        Document::from_parts(DocumentParts { name, ctime, version, dtime, is_deleted, items })
    }
}

impl<'a> Stored<'a> {
    fn parse(bytes: &'a [u8]) -> Result<Self, FieldError> {
        let broken = |problem: String| FieldError::new("document", problem);
        let (format, rest) = bytes.split_first().ok_or_else(|| broken("has no bytes".into()))?;
        if *format != FORMAT {
            let problem = format!("is {format}; this build reads {FORMAT} only");
            return Err(FieldError::new("format", problem));
        }
        let (stored, rest) = postcard::take_from_bytes::<Stored<'_>>(rest)
            .map_err(|error| broken(format!("cannot be decoded: {error}")))?;
        if !rest.is_empty() {
            return Err(broken(format!("is followed by {} bytes too many", rest.len())));
        }
        Ok(stored)
    }
}

impl<'a> StoredItem<'a> {
    fn of(item: &'a Item) -> Self {
        let content = item.item_version().zip(item.content());
        Self {
            class: item.name().class(),
            key: item.name().key(),
            version: item.version().as_u64(),
            existing: content
                .map(|(item_version, it)| (item_version.as_u64(), StoredContent::of(it))),
        }
    }

    fn into_item(self) -> Result<Item, FieldError> {
        let name = ItemName::new(self.class, self.key)?;
        let version = Stamp::parse(self.version)?;
        match self.existing {
            None => Ok(Item::destroyed(name, version)),
            Some((item_version, content)) => {
                Item::existing(name, version, Stamp::parse(item_version)?, content.into_content()?)
            }
        }
    }
}

impl<'a> StoredContent<'a> {
    fn of(content: &'a Content) -> Self {
        match content {
            Content::Json(text) => Self::Json(text.as_str()),
            Content::Raw(bytes) => Self::Raw(bytes),
            Content::Attachment(it) => {
                Self::Attachment { mime: it.mime(), size: it.size(), sha256: it.sha256().0 }
            }
        }
    }

    fn into_content(self) -> Result<Content, FieldError> {
        match self {
            Self::Json(text) => Content::of_text(JsonText::checked_before(text)),
            Self::Raw(bytes) => Content::raw(bytes),
            Self::Attachment { mime, size, sha256 } => {
                let attachment = Attachment::new(mime, size, Digest(sha256))?;
                Ok(Content::Attachment(Arc::new(attachment)))
            }
        }
    }
}

/// Only to reserve room.
fn as_length(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_model::Namespace;

    fn stamp(ms: u64) -> Stamp {
        Stamp::from_epoch_ms(1_800_000_000_000 + ms)
    }

    fn document() -> Document {
        let item = |class, key, version, item_version, content| {
            let name = ItemName::new(class, key).unwrap();
            Item::existing(name, stamp(version), stamp(item_version), content).unwrap()
        };
        let body = Attachment::new("text/plain", 9, Digest([7; 32])).unwrap();
        let gone = ItemName::new("Raw", Some("z")).unwrap();
        Document::from_parts(DocumentParts {
            name: DocName::new(&Namespace::parse("default").unwrap(), "note", "a").unwrap(),
            ctime: stamp(1),
            version: stamp(9),
            dtime: stamp(2),
            is_deleted: false,
            items: vec![
                item("Head", None, 3, 3, Content::json("{\"a\":[1,2]}").unwrap()),
                item("P", Some("picture"), 9, 4, Content::Attachment(Arc::new(body))),
                item("Raw", Some(""), 5, 5, Content::raw(vec![0, 255]).unwrap()),
                Item::destroyed(gone, stamp(2)),
            ],
        })
        .unwrap()
    }

    #[test]
    fn a_document_reads_back_and_what_is_cut_off_or_goes_on_is_refused() {
        let bytes = document().to_bytes();
        assert_eq!(Document::from_bytes(&bytes), Ok(document()));
        for length in 0..bytes.len() {
            assert!(Document::from_bytes(&bytes[..length]).is_err(), "{length}");
        }
        let longer = [bytes.as_slice(), &[0]].concat();
        let error = Document::from_bytes(&longer).unwrap_err();
        assert_eq!(error.to_string(), "document is followed by 1 bytes too many");
    }

    #[derive(serde::Serialize, serde::Deserialize, PartialEq, Debug)]
    struct Head {
        a: Vec<u8>,
    }

    impl Singleton for Head {
        const CLASS: &'static str = "Head";
    }

    #[derive(serde::Serialize, serde::Deserialize, PartialEq, Debug)]
    struct Raw;

    impl Singleton for Raw {
        const CLASS: &'static str = "Raw";
    }

    #[test]
    fn a_glance_gives_what_the_document_gives_and_refuses_what_is_cut_off() {
        let (document, bytes) = (document(), document().to_bytes());
        let glance = Glance::at(&bytes).unwrap();
        assert_eq!(glance.name(), document.name());
        assert_eq!(glance.stamps(), [document.ctime(), document.version(), document.dtime()]);
        assert_eq!(glance.one::<Head>(), document.one::<Head>());
        assert_eq!(glance.one::<Head>(), Ok(Some(Head { a: vec![1, 2] })));
        assert_eq!(glance.one::<Raw>(), Ok(None), "there is a keyed one only");
        for length in 0..bytes.len() {
            assert!(Glance::at(&bytes[..length]).is_err(), "{length}");
        }
    }

    #[test]
    fn bytes_of_another_format_are_refused_by_its_number() {
        let mut bytes = document().to_bytes();
        bytes[0] = 2;
        let error = Document::from_bytes(&bytes).unwrap_err();
        assert_eq!(error.to_string(), "format is 2; this build reads 1 only");
    }

    #[test]
    fn changed_bytes_never_panic() {
        let bytes = document().to_bytes();
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut changed = bytes.clone();
                changed[at] ^= 1 << bit;
                let _ = Document::from_bytes(&changed).map(|it| it.to_bytes());
            }
        }
    }
}
