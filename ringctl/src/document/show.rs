//! Documents as they are shown.

use crate::output::plain_table;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use comfy_table::Table;
use rota_client::docstore::{Answer, Body, Content, Document, Item, Stamp};
use rota_client::documents::{FoundHit, Head};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

/// Characters of a content that a table shows.
const SHOWN_MAX: usize = 100;

/// A document.
#[derive(Serialize, PartialEq, Debug)]
pub struct Shown {
    pub namespace: String,
    pub class: String,
    pub docid: String,
    pub ctime: u64,
    pub version: u64,
    pub dtime: u64,
    /// Bytes of names and contents.
    pub item_bytes: u64,
    /// Bytes of attachments.
    pub attachment_bytes: u64,
    pub items: Vec<ShownItem>,
}

/// An item: one of `json`, `raw` (base64) and `attachment`, or none when it was destroyed.
#[derive(Serialize, PartialEq, Debug)]
pub struct ShownItem {
    pub class: String,
    /// None for a singleton.
    pub key: Option<String>,
    pub version: u64,
    pub item_version: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub json: Option<Stored>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raw: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attachment: Option<ShownAttachment>,
}

/// An attachment.
#[derive(Serialize, PartialEq, Debug)]
pub struct ShownAttachment {
    pub mime: String,
    pub size: u64,
    pub sha256: String,
}

/// A document in a list.
#[derive(Serialize, PartialEq, Debug)]
pub struct ShownHead {
    pub namespace: String,
    pub class: String,
    pub docid: String,
    pub ctime: u64,
    pub version: u64,
    pub item_bytes: u64,
    pub attachment_bytes: u64,
}

/// `document list`.
#[derive(Serialize, PartialEq, Debug)]
pub struct Listed {
    pub documents: Vec<ShownHead>,
}

/// `document operate`: the result is JSON, or bytes (base64) with their type, or none.
#[derive(Serialize, PartialEq, Debug)]
pub struct Answered {
    pub version: u64,
    pub json: Option<Stored>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mime: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<String>,
}

/// JSON as it is stored, digit for digit.
#[derive(Serialize, Debug)]
#[serde(transparent)]
pub struct Stored(Box<RawValue>);

impl PartialEq for Stored {
    fn eq(&self, other: &Self) -> bool {
        self.0.get() == other.0.get()
    }
}

impl Stored {
    /// Of a text in one line. One that does not parse is shown as a text.
    fn of(text: &str) -> Self {
        let as_text = |_| to_raw_value(text).expect("a text can be written");
        Self(RawValue::from_string(in_one_line(text)).unwrap_or_else(as_text))
    }
}

/// Without the white space between the parts of a JSON text.
fn in_one_line(text: &str) -> String {
    let (mut line, mut is_inside, mut is_escaped) =
        (String::with_capacity(text.len()), false, false);
    for it in text.chars() {
        if is_inside || !it.is_ascii_whitespace() {
            line.push(it);
        }
        is_inside ^= it == '"' && !is_escaped;
        is_escaped = is_inside && it == '\\' && !is_escaped;
    }
    line
}

impl ShownItem {
    fn of(item: &Item) -> Self {
        let mut shown = Self {
            class: item.name().class().to_owned(),
            key: item.name().key().map(str::to_owned),
            version: item.version().as_u64(),
            item_version: item.item_version().map(Stamp::as_u64),
            json: None,
            raw: None,
            attachment: None,
        };
        (shown.json, shown.raw, shown.attachment) = forms(item.content());
        shown
    }

    fn content(&self) -> String {
        let parts = (&self.json, &self.raw, &self.attachment);
        one_line(parts).unwrap_or_else(|| "destroyed".to_owned())
    }
}

/// A content in the form that it has.
fn forms(content: Option<&Content>) -> (Option<Stored>, Option<String>, Option<ShownAttachment>) {
    match content {
        None => (None, None, None),
        Some(Content::Json(text)) => (Some(Stored::of(text.as_str())), None, None),
        Some(Content::Raw(bytes)) => (None, Some(STANDARD.encode(bytes)), None),
        Some(Content::Attachment(it)) => {
            let (mime, sha256) = (it.mime().to_owned(), it.sha256().to_string());
            (None, None, Some(ShownAttachment { mime, size: it.size(), sha256 }))
        }
    }
}

/// The beginning of a content; `None` where there is none.
fn one_line(forms: (&Option<Stored>, &Option<String>, &Option<ShownAttachment>)) -> Option<String> {
    let whole = match forms {
        (Some(json), _, _) => json.0.get().to_owned(),
        (_, Some(raw), _) => raw.clone(),
        (_, _, Some(it)) => format!("{} {} bytes, sha256 {}", it.mime, it.size, it.sha256),
        (None, None, None) => return None,
    };
    Some(match whole.char_indices().nth(SHOWN_MAX) {
        Some((at, _)) => format!("{}…", &whole[..at]),
        None => whole,
    })
}

/// A document or an item that a search found: an item has one of `json`, `raw` (base64) and `attachment`.
#[derive(Serialize, PartialEq, Debug)]
pub struct ShownHit {
    pub namespace: String,
    pub class: String,
    pub docid: String,
    /// None for a document, and for an item without a key.
    pub key: Option<String>,
    pub version: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub json: Option<Stored>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raw: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attachment: Option<ShownAttachment>,
}

/// `document search`, and `document list` in order of ids.
#[derive(Serialize, PartialEq, Debug)]
pub struct Sought {
    pub hits: Vec<ShownHit>,
    /// How many documents the owners read for that.
    pub documents_read: u64,
}

impl ShownHit {
    /// Of a result.
    pub fn of(hit: &FoundHit) -> Self {
        let (json, raw, attachment) = forms(hit.content.as_ref());
        Self {
            namespace: hit.name.space().to_owned(),
            class: hit.name.class().to_owned(),
            docid: hit.name.docid().to_owned(),
            key: hit.key.clone(),
            version: hit.version.as_u64(),
            json,
            raw,
            attachment,
        }
    }
}

/// Documents or items that were found.
pub fn hits(all: &[ShownHit]) -> Table {
    let mut table = plain_table(["ID", "KEY", "VERSION", "CONTENT"]);
    for it in all {
        let content = one_line((&it.json, &it.raw, &it.attachment)).unwrap_or_default();
        let key = it.key.clone().unwrap_or_default();
        table.add_row([it.docid.clone(), key, it.version.to_string(), content]);
    }
    table
}

impl Shown {
    /// Of a document.
    pub fn of(document: &Document, with_destroyed: bool) -> Self {
        let (name, volumes) = (document.name(), document.volumes());
        let items = document.items().iter().filter(|it| with_destroyed || !it.is_destroyed());
        Self {
            namespace: name.space().to_owned(),
            class: name.class().to_owned(),
            docid: name.docid().to_owned(),
            ctime: document.ctime().as_u64(),
            version: document.version().as_u64(),
            dtime: document.dtime().as_u64(),
            item_bytes: volumes.item_bytes,
            attachment_bytes: volumes.attachment_bytes,
            items: items.map(ShownItem::of).collect(),
        }
    }
}

impl ShownHead {
    /// Of a document in a list.
    pub fn of(head: &Head) -> Self {
        Self {
            namespace: head.name.space().to_owned(),
            class: head.name.class().to_owned(),
            docid: head.name.docid().to_owned(),
            ctime: head.ctime.as_u64(),
            version: head.version.as_u64(),
            item_bytes: head.volumes.item_bytes,
            attachment_bytes: head.volumes.attachment_bytes,
        }
    }
}

impl Answered {
    /// Of an answer.
    pub fn of(answer: &Answer) -> Self {
        let version = answer.version.as_u64();
        let (mut json, mut mime, mut bytes) = (None, None, None);
        match &answer.body {
            Body::Nothing => {}
            Body::Json(text) => json = Some(Stored::of(text.as_str())),
            Body::Binary { mime: kind, bytes: body } => {
                mime = Some(kind.to_string());
                bytes = Some(STANDARD.encode(body));
            }
        }
        Self { version, json, mime, bytes }
    }

    /// For a table.
    pub fn as_text(&self) -> String {
        match (&self.json, &self.bytes) {
            (Some(json), _) => json.0.get().to_owned(),
            (None, Some(bytes)) => bytes.clone(),
            (None, None) => String::new(),
        }
    }
}

/// The document without its items.
pub fn head(it: &Shown) -> Table {
    let mut table = plain_table([
        "NAMESPACE",
        "CLASS",
        "ID",
        "CTIME",
        "VERSION",
        "ITEM_BYTES",
        "ATTACHMENT_BYTES",
    ]);
    let numbers =
        [it.ctime, it.version, it.item_bytes, it.attachment_bytes].map(|it| it.to_string());
    let names = [it.namespace.clone(), it.class.clone(), it.docid.clone()];
    table.add_row(names.into_iter().chain(numbers));
    table
}

/// Its items.
pub fn items(it: &Shown) -> Table {
    let mut table = plain_table(["ITEM", "KEY", "VERSION", "CONTENT"]);
    for item in &it.items {
        let key = item.key.clone().unwrap_or_default();
        table.add_row([item.class.clone(), key, item.version.to_string(), item.content()]);
    }
    table
}

/// Documents of a list.
pub fn many(all: &[ShownHead]) -> Table {
    let mut table = plain_table(["CLASS", "ID", "VERSION", "ITEM_BYTES", "ATTACHMENT_BYTES"]);
    for it in all {
        let numbers = [it.version, it.item_bytes, it.attachment_bytes].map(|it| it.to_string());
        table.add_row([it.class.clone(), it.docid.clone()].into_iter().chain(numbers));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_client::docstore::{
        Attachment, Digest, DocName, DocumentParts, ItemName, JsonText, Namespace,
    };
    use serde_json::Value;
    use std::sync::Arc;

    fn document() -> Document {
        let at = Stamp::parse(260_101_000_000_001).unwrap();
        let existing = |name: ItemName, content| Item::existing(name, at, at, content).unwrap();
        let logo = Attachment::new("image/png", 9, Digest([0xab; 32])).unwrap();
        let items = vec![
            existing(ItemName::keyed("P", "logo").unwrap(), Content::Attachment(Arc::new(logo))),
            existing(ItemName::singleton("a").unwrap(), Content::json("{\"x\":1}").unwrap()),
            Item::destroyed(ItemName::keyed("b", "k").unwrap(), at),
            existing(ItemName::keyed("c", "").unwrap(), Content::raw(vec![1, 2]).unwrap()),
        ];
        let space = Namespace::parse("shop").unwrap();
        let name = DocName::new(&space, "Cart", "c1").unwrap();
        let (ctime, version, dtime, is_deleted) = (at, at, at, false);
        let parts = DocumentParts { name, ctime, version, dtime, is_deleted, items };
        Document::from_parts(parts).unwrap()
    }

    #[test]
    fn a_document_is_printed_with_its_items_each_in_its_own_form() {
        let shown = serde_json::to_value(Shown::of(&document(), true)).unwrap();
        assert_eq!(shown["version"], 260_101_000_000_001_u64);
        assert_eq!(shown["items"][0]["attachment"]["sha256"], "ab".repeat(32));
        assert_eq!(shown["items"][1]["json"]["x"], 1);
        assert_eq!(shown["items"][2]["item_version"], Value::Null);
        assert_eq!(shown["items"][3]["raw"], "AQI=");
        assert_eq!(
            (&shown["items"][3]["key"], &shown["items"][1]["key"]),
            (&"".into(), &Value::Null)
        );
        assert_eq!(Shown::of(&document(), false).items.len(), 3);
    }

    #[test]
    fn a_table_cuts_long_contents() {
        let mut shown = Shown::of(&document(), true);
        shown.items[1].json = Some(Stored::of(&format!("\"{}\"", "é".repeat(500))));
        let text = items(&shown).to_string();
        assert!(text.contains("destroyed") && text.contains("é…"), "{text}");
        assert!(text.lines().all(|it| it.chars().count() < 160), "{text}");
    }

    #[test]
    fn json_is_shown_as_it_is_stored_but_in_one_line() {
        let stored = "{ \"a\" :\n18446744073709551616,\t\"a\": \"b \\\" c\\\\\" , \"d\":1.50 }";
        let shown = serde_json::to_string(&Stored::of(stored)).unwrap();
        assert_eq!(shown, "{\"a\":18446744073709551616,\"a\":\"b \\\" c\\\\\",\"d\":1.50}");
        assert_eq!(Stored::of("{").0.get(), "\"{\"");
    }

    #[test]
    fn what_was_found_is_shown_with_its_key_and_content() {
        let space = Namespace::parse("shop").unwrap();
        let name = DocName::new(&space, "Cart", "c1").unwrap();
        let content = Some(Content::json("{\"article\": \"tea\"}").unwrap());
        let found = FoundHit { name, key: Some("1".to_owned()), version: Stamp::MIN, content };
        let shown = ShownHit::of(&found);
        assert_eq!(serde_json::to_value(&shown).unwrap()["json"]["article"], "tea");
        let text = hits(&[shown, ShownHit::of(&FoundHit { key: None, content: None, ..found })]);
        let text = text.to_string();
        assert!(text.contains("{\"article\":\"tea\"}"), "{text}");
        assert_eq!(text.lines().count(), 3, "{text}");
    }

    #[test]
    fn an_answer_is_json_or_bytes_or_nothing() {
        let version = Stamp::MIN;
        let shown = |body| Answered::of(&Answer { version, body, updates: Vec::new() }).as_text();
        assert_eq!(shown(Body::Json(JsonText::parse("[1]").unwrap())), "[1]");
        assert_eq!(shown(Body::binary("image/png", vec![1, 2]).unwrap()), "AQI=");
        assert_eq!(shown(Body::Nothing), "");
    }
}
