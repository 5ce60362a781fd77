//! Names: of documents, and of items inside a document.
//!
//! Both are one text with a NUL between the parts, so a name is at most one small allocation, its
//! clones are free, and its bytes order and look the same in memory and as a key on disk. Names of
//! singletons are nearly always so short that they are not allocated at all.

use rota_model::items::REQUEST_CLASS;
use rota_model::{FieldError, Namespace, no_slash};
use smol_str::{SmolStr, SmolStrBuilder};
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;
use xxhash_rust::xxh3::Xxh3;

/// Longest name of a class of documents or items, in bytes. Short names keep keys small.
pub const CLASS_BYTES_MAX: usize = 32;
/// Longest id of a document, in bytes.
pub const DOCID_BYTES_MAX: usize = 255;
/// Longest key of an item, in bytes.
pub const KEY_BYTES_MAX: usize = 255;

/// The class of items that describe attachments; every class of documents has it.
pub const ATTACHMENT_CLASS: &str = "P";
/// The class of documents that remember operations (see [`crate::Transaction::repeated`]), and of the item in
/// each; every schema has it. Caches and readers of applications never see what they hold: it is what
/// others were answered.
pub const MEMORY_CLASS: &str = "H";
/// What the id of a memory ends with, in bytes: `@` and 32 digits.
const MEMORY_BYTES: usize = 33;

fn check_length(field: &str, text: &str, bytes_max: usize) -> Result<(), FieldError> {
    let length = text.len();
    if length > bytes_max {
        let problem = format!("is {length} bytes long; the limit is {bytes_max}");
        return Err(FieldError::new(field, problem));
    }
    Ok(())
}

/// Not empty, not too long, no control characters.
pub(crate) fn check_word(field: &str, text: &str, bytes_max: usize) -> Result<(), FieldError> {
    if text.is_empty() {
        return Err(FieldError::new(field, "must not be empty"));
    }
    check_length(field, text, bytes_max)?;
    // Nearly every word is so, and seen to be so faster.
    if text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(());
    }
    match text.find(char::is_control) {
        Some(at) => Err(FieldError::new(field, format!("has a control character at byte {at}"))),
        None => Ok(()),
    }
}

/// A class name: 1 to [`CLASS_BYTES_MAX`] bytes, no control characters, and no slash: that parts it
/// from the id in the name of a document.
pub(crate) fn check_class(field: &str, text: &str) -> Result<(), FieldError> {
    check_word(field, text, CLASS_BYTES_MAX)?;
    no_slash(field, text)
}

/// A key: at most [`KEY_BYTES_MAX`] bytes, no NUL. It may be empty.
pub(crate) fn check_key(field: &str, text: &str) -> Result<(), FieldError> {
    check_length(field, text, KEY_BYTES_MAX)?;
    match text.find('\0') {
        Some(at) => Err(FieldError::new(field, format!("has a NUL at byte {at}"))),
        None => Ok(()),
    }
}

fn check_parts(class: &str, docid: &str) -> Result<(), FieldError> {
    check_class("class", class)?;
    let more = if is_of_memories(class) { MEMORY_BYTES } else { 0 };
    check_word("docid", docid, DOCID_BYTES_MAX + more)
}

/// Whether documents of that class are memories: [`DocName::memory`].
fn is_of_memories(class: &str) -> bool {
    [MEMORY_CLASS, REQUEST_CLASS].contains(&class)
}

/// The full name of a document: its namespace, its class and its id (docid). Orders by these
/// three. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DocName {
    text: Arc<str>,
    class_at: u16,
    id_at: u16,
}

impl DocName {
    /// A name from its parts. The class has 1 to [`CLASS_BYTES_MAX`] bytes, the id 1 to
    /// [`DOCID_BYTES_MAX`]; neither has control characters. Fields: `class`, `docid`.
    pub fn new(space: &Namespace, class: &str, docid: &str) -> Result<Self, FieldError> {
        check_parts(class, docid)?;
        let space = space.as_str();
        Ok(Self::of_checked([space, "\0", class, "\0", docid].concat().into(), space, class))
    }

    /// The name of a memory: a document that remembers one request, in the slot of the documents of an
    /// id, so that it is written with them. `class`: [`MEMORY_CLASS`], or [`REQUEST_CLASS`] of managers.
    /// `asked` says which request; it is found by that, without a search.
    pub fn memory(
        space: &Namespace,
        class: &str,
        docid: &str,
        asked: &[&str],
    ) -> Result<Self, FieldError> {
        let mut hasher = Xxh3::new();
        for part in asked {
            hasher.update(part.as_bytes());
            // In no part: they are words and JSON texts.
            hasher.update(&[0]);
        }
        Self::new(space, class, &format!("{docid}@{:032x}", hasher.digest128()))
    }

    /// The name of what says how much was forgotten of what lay beside this memory, itself included. For a
    /// document that is no memory: its own name.
    pub fn floor(&self) -> Self {
        if !self.is_memory() {
            return self.clone();
        }
        let beside = self.text.len() - MEMORY_BYTES;
        let text = [&self.text[..beside], "@--------------------------------"].concat();
        Self { text: text.into(), ..*self }
    }

    /// Whether it names a memory.
    pub fn is_memory(&self) -> bool {
        is_of_memories(self.class()) && self.docid().len() > MEMORY_BYTES
    }

    /// The id whose slot it lies in: its own or, of a memory, that of the documents that it lies beside.
    pub fn place(&self) -> &str {
        let docid = self.docid();
        let own = if self.is_memory() { docid.len() - MEMORY_BYTES } else { docid.len() };
        docid.get(..own).unwrap_or(docid)
    }

    fn of_checked(text: Arc<str>, space: &str, class: &str) -> Self {
        let offset = |at: usize| u16::try_from(at).expect("parts of a name are at most 255 bytes");
        let class_at = space.len() + 1;
        let id_at = class_at + class.len() + 1;
        Self { text, class_at: offset(class_at), id_at: offset(id_at) }
    }

    /// From [`DocName::as_text`], checked like the parts of a new name.
    pub fn from_text(text: &str) -> Result<Self, FieldError> {
        let mut parts = text.split('\0');
        let four = (parts.next(), parts.next(), parts.next(), parts.next());
        let (Some(space), Some(class), Some(docid), None) = four else {
            let problem = "is not three parts with a NUL between them";
            return Err(FieldError::new("document", problem));
        };
        Namespace::check(space)?;
        check_parts(class, docid)?;
        Ok(Self::of_checked(text.into(), space, class))
    }

    /// Namespace, class and id with a NUL between them: fit for a key on disk.
    pub fn as_text(&self) -> &str {
        &self.text
    }

    /// The namespace.
    pub fn space(&self) -> &str {
        &self.text[..usize::from(self.class_at) - 1]
    }

    /// The class of the document.
    pub fn class(&self) -> &str {
        &self.text[usize::from(self.class_at)..usize::from(self.id_at) - 1]
    }

    /// The document's id inside its class.
    pub fn docid(&self) -> &str {
        &self.text[usize::from(self.id_at)..]
    }
}

impl fmt::Display for DocName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.space(), self.class(), self.docid())
    }
}

impl fmt::Debug for DocName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// The name of an item inside its document: a class, and a key unless the item is a singleton.
/// Orders by class, a singleton before keyed items, then by key. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ItemName {
    text: SmolStr,
    /// Where the key begins; 0 for a singleton.
    key_at: u8,
}

impl ItemName {
    /// The name of a singleton. Field: `class`.
    pub fn singleton(class: &str) -> Result<Self, FieldError> {
        check_class("class", class)?;
        Ok(Self { text: class.into(), key_at: 0 })
    }

    /// The name of a keyed item. Fields: `class`, `key`.
    pub fn keyed(class: &str, key: &str) -> Result<Self, FieldError> {
        check_class("class", class)?;
        check_key("key", key)?;
        let mut text = SmolStrBuilder::new();
        for part in [class, "\0", key] {
            text.push_str(part);
        }
        let key_at = u8::try_from(class.len() + 1).expect("a class is at most 32 bytes");
        Ok(Self { text: text.finish(), key_at })
    }

    /// With a key or, for a singleton, without one.
    pub fn new(class: &str, key: Option<&str>) -> Result<Self, FieldError> {
        match key {
            Some(key) => Self::keyed(class, key),
            None => Self::singleton(class),
        }
    }

    /// The item's class.
    pub fn class(&self) -> &str {
        match self.key_at {
            0 => &self.text,
            key_at => &self.text[..usize::from(key_at) - 1],
        }
    }

    /// The item's key; `None` for a singleton.
    pub fn key(&self) -> Option<&str> {
        (self.key_at > 0).then(|| &self.text[usize::from(self.key_at)..])
    }

    /// Whether it names what an operation remembers of itself.
    pub fn is_memory(&self) -> bool {
        self.class() == MEMORY_CLASS
    }

    /// Bytes of class and key.
    pub(crate) fn bytes(&self) -> usize {
        self.text.len()
    }

    /// How this name stands to another one given in parts, in the order of names.
    pub(crate) fn cmp_parts(&self, class: &str, key: Option<&str>) -> Ordering {
        (self.class(), self.key()).cmp(&(class, key))
    }
}

impl fmt::Display for ItemName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.key() {
            Some(key) => write!(f, "{}[{}]", self.class(), key.escape_debug()),
            None => f.write_str(self.class()),
        }
    }
}

impl fmt::Debug for ItemName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn space() -> Namespace {
        Namespace::parse("shop").unwrap()
    }

    #[test]
    fn a_name_gives_its_parts_back() {
        let name = DocName::new(&space(), "Cart", "c/1").unwrap();
        assert_eq!((name.space(), name.class(), name.docid()), ("shop", "Cart", "c/1"));
        assert_eq!(DocName::from_text(name.as_text()), Ok(name));
        let item = ItemName::keyed("Line", "").unwrap();
        assert_eq!((item.class(), item.key()), ("Line", Some("")));
        let one = ItemName::singleton("Line").unwrap();
        assert_eq!((one.class(), one.key()), ("Line", None));
        assert_ne!(item, one);
    }

    #[test]
    fn a_key_may_have_255_bytes_and_no_more() {
        assert!(ItemName::keyed("L", &"x".repeat(255)).is_ok());
        let error = ItemName::keyed("L", &"x".repeat(256)).unwrap_err();
        assert_eq!(error, FieldError::new("key", "is 256 bytes long; the limit is 255"));
    }

    #[test]
    fn a_memory_lies_where_the_document_does_and_each_request_has_its_own() {
        let longest = "d".repeat(DOCID_BYTES_MAX);
        let of = |class: &str, asked: &[&str]| DocName::memory(&space(), class, &longest, asked);
        let one = of(MEMORY_CLASS, &["a", "b"]).unwrap();
        assert_eq!((one.place(), one.is_memory()), (&*longest, true));
        assert_eq!(DocName::from_text(one.as_text()), Ok(one.clone()));
        assert_ne!(one, of(MEMORY_CLASS, &["ab", ""]).unwrap());
        let floor = one.floor();
        assert_eq!((floor.place(), floor.floor()), (&*longest, floor.clone()));
        assert_ne!(floor, one);
        assert!(of("Cart", &["a", "b"]).is_err(), "too long for any other class");
        let cart = DocName::new(&space(), "Cart", "c").unwrap();
        assert_eq!((cart.place(), cart.is_memory()), ("c", false));
    }

    #[test]
    fn a_nul_in_any_part_is_refused() {
        assert_eq!(ItemName::keyed("L", "a\0b").unwrap_err().problem, "has a NUL at byte 1");
        assert_eq!(ItemName::singleton("L\0").unwrap_err().field, "class");
        assert_eq!(DocName::new(&space(), "C\0", "d").unwrap_err().field, "class");
        assert_eq!(DocName::new(&space(), "C", "d\0").unwrap_err().field, "docid");
        let slash = DocName::new(&space(), "C/D", "d").unwrap_err();
        assert_eq!(slash.to_string(), "class has a slash at byte 1");
        assert!(DocName::new(&space(), "C", "d/e").is_ok());
    }

    #[test]
    fn a_text_that_is_no_name_is_refused() {
        for wrong in ["", "a", "a\0b", "a\0b\0c\0d", "\0b\0c", "a\0\0c", "a\0b\0"] {
            assert!(DocName::from_text(wrong).is_err(), "{wrong:?}");
        }
    }

    proptest! {
        #[test]
        fn names_of_items_order_by_class_and_key(
            one in ("[A-C]{1,3}", proptest::option::of("[a-c]{0,3}")),
            two in ("[A-C]{1,3}", proptest::option::of("[a-c]{0,3}")),
        ) {
            let name = |it: &(String, Option<String>)| ItemName::new(&it.0, it.1.as_deref()).unwrap();
            let (a, b) = (name(&one), name(&two));
            prop_assert_eq!(a.cmp(&b), one.cmp(&two));
            prop_assert_eq!(a.cmp_parts(&two.0, two.1.as_deref()), one.cmp(&two));
        }
    }
}
