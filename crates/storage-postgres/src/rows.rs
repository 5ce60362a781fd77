//! What the columns of a record say: a copy of its document for people.

use rota_docstore::{Content, Document, Item};
use serde_json::{Map, Value, json};

/// Longest text of items in a column, in bytes. The column of a larger document is null: an index over it would cost
/// more than the record.
pub const ITEMS_BYTES_MAX: usize = 1024 * 1024;

/// Reads a record: what its columns say. `None`: it is no document, and has no columns.
pub type RowOf = fn(key: &[u8], value: &[u8]) -> Option<DocumentRow>;

/// The columns of one document.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DocumentRow {
    pub(crate) slot: i32,
    pub(crate) namespace: String,
    pub(crate) class: String,
    pub(crate) docid: String,
    pub(crate) version: i64,
    pub(crate) ctime: i64,
    pub(crate) deleted: bool,
    pub(crate) items: Option<String>,
}

impl DocumentRow {
    /// The columns of a document in a slot.
    pub fn of(slot: u32, document: &Document) -> Self {
        let name = document.name();
        let stamp = |stamp: rota_model::Stamp| i64::try_from(stamp.as_u64()).unwrap_or(i64::MAX);
        Self {
            slot: i32::try_from(slot).unwrap_or(i32::MAX),
            namespace: storable(name.space()),
            class: storable(name.class()),
            docid: storable(name.docid()),
            version: stamp(document.version()),
            ctime: stamp(document.ctime()),
            deleted: document.is_deleted(),
            items: items(document),
        }
    }
}

/// No text of the server's holds the character NUL; U+FFFD stands for it.
fn storable(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

fn items(document: &Document) -> Option<String> {
    let shown: Vec<Value> = document.items().iter().filter_map(item).collect();
    let text = Value::Array(shown).to_string();
    (text.len() <= ITEMS_BYTES_MAX).then_some(text)
}

/// An item that exists: class, key where it has one, version, and its content.
fn item(item: &Item) -> Option<Value> {
    let content = item.content()?;
    let mut shown = Map::new();
    shown.insert("class".into(), storable(item.name().class()).into());
    if let Some(key) = item.name().key() {
        shown.insert("key".into(), storable(key).into());
    }
    shown.insert("version".into(), item.version().as_u64().into());
    match content {
        Content::Json(text) => {
            // A number that no machine's number holds is valid JSON, and is shown as text.
            let value = serde_json::from_str(text.as_str());
            let value = value.map_or_else(|_| storable(text.as_str()).into(), cleaned);
            shown.insert("content".into(), value);
        }
        Content::Raw(bytes) => {
            shown.insert("raw_bytes".into(), bytes.len().into());
        }
        Content::Attachment(it) => {
            let sha256 = it.sha256().to_string();
            let attachment = json!({"mime": it.mime(), "size": it.size(), "sha256": sha256});
            shown.insert("attachment".into(), attachment);
        }
    }
    Some(Value::Object(shown))
}

fn cleaned(value: Value) -> Value {
    match value {
        Value::String(text) if text.contains('\0') => storable(&text).into(),
        Value::Array(values) => values.into_iter().map(cleaned).collect(),
        Value::Object(fields) => {
            fields.into_iter().map(|(name, it)| (storable(&name), cleaned(it))).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value,
    }
}
