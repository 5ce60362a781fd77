//! What an action prints to change its session: a merge patch of JSON (RFC 7396).

use crate::edit::Edit;
use crate::item::{FIELD, LifeItem};
use crate::managed::cut;
use rota_model::{FieldError, Stamp};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Longest text of a patch, in bytes. Longer texts are refused unread.
pub const PATCH_BYTES_MAX: usize = 256 * 1024;

/// Most bytes of a name that an error shows.
const SHOWN_BYTES_MAX: usize = 80;
/// What a whole patch is called in errors.
const PATCH: &str = "patch";
const ATTRIBUTES: &str = "attributes";

/// Changes of a session.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Patch {
    /// Attributes by name: their new value, or `None` to remove them.
    pub attributes: BTreeMap<String, Option<String>>,
    /// Changes of the life cycles.
    pub edit: Edit,
}

/// Members of an object as they stand there, the same name twice too.
struct Members(Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Members;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        from.deserialize_map(Reader)
    }
}

/// Mistakes as they are found.
struct Mistakes(Vec<FieldError>);

impl Mistakes {
    fn add(&mut self, field: impl Into<String>, problem: impl Into<String>) {
        self.0.push(FieldError::new(field, problem));
    }

    /// The members of an object whose names differ.
    fn members(&mut self, field: &str, text: &str) -> Vec<(String, Box<RawValue>)> {
        let Members(members) = match serde_json::from_str(text) {
            Ok(members) => members,
            Err(error) => {
                self.add(field, format!("is no JSON object: {error}"));
                return Vec::new();
            }
        };
        let mut names = BTreeSet::new();
        for (name, _) in &members {
            if !names.insert(name) {
                let shown = cut(name, SHOWN_BYTES_MAX);
                self.add(field, format!("has {shown:?} twice; give it once"));
            }
        }
        members
    }

    fn item(&mut self, field: &str, line: &str, now: Stamp) -> Option<LifeItem> {
        let read = LifeItem::parse_entry(line, now);
        read.map_err(|it| self.add(field, it.problem)).ok()
    }
}

impl Patch {
    /// Reads what an action printed at `now`. An empty text changes nothing. Every mistake is told.
    pub fn parse(text: &str, now: Stamp) -> Result<Self, Vec<FieldError>> {
        let (mut patch, mut mistakes) = (Self::default(), Mistakes(Vec::new()));
        if text.trim().is_empty() {
            return Ok(patch);
        }
        if text.len() > PATCH_BYTES_MAX {
            let length = text.len();
            let problem = format!("is {length} bytes long; the limit is {PATCH_BYTES_MAX}");
            return Err(vec![FieldError::new(PATCH, problem)]);
        }
        for (name, value) in mistakes.members(PATCH, text) {
            match name.as_str() {
                ATTRIBUTES => patch.read_attributes(value.get(), &mut mistakes),
                FIELD => patch.read_life_cycles(value.get(), now, &mut mistakes),
                _ => {
                    let shown = cut(&name, SHOWN_BYTES_MAX);
                    let known = format!("known are {ATTRIBUTES} and {FIELD}");
                    mistakes.add(PATCH, format!("has the unknown field {shown:?}; {known}"));
                }
            }
        }
        if mistakes.0.is_empty() { Ok(patch) } else { Err(mistakes.0) }
    }

    fn read_attributes(&mut self, text: &str, mistakes: &mut Mistakes) {
        for (name, value) in mistakes.members(ATTRIBUTES, text) {
            match serde_json::from_str::<Option<String>>(value.get()) {
                Ok(value) => {
                    self.attributes.insert(name, value);
                }
                Err(_) => mistakes.add(
                    format!("{ATTRIBUTES}.{}", cut(&name, SHOWN_BYTES_MAX)),
                    format!("is {}; expected: a text, or null to remove it", kind(value.get())),
                ),
            }
        }
    }

    fn read_life_cycles(&mut self, text: &str, now: Stamp, mistakes: &mut Mistakes) {
        if let Ok(lines) = serde_json::from_str::<Vec<Box<RawValue>>>(text) {
            let mut items = Vec::new();
            for (index, line) in lines.iter().enumerate() {
                let field = format!("{FIELD}[{index}]");
                match serde_json::from_str::<String>(line.get()) {
                    Ok(line) => items.extend(mistakes.item(&field, &line, now)),
                    Err(_) => mistakes.add(
                        field,
                        format!("is {}; expected: the text of an item", kind(line.get())),
                    ),
                }
            }
            self.edit.replace = Some(items);
            return;
        }
        if kind(text) != "an object" {
            let expected =
                "an array of items, or an object of items with true to add and null to remove";
            mistakes.add(FIELD, format!("is {}; expected: {expected}", kind(text)));
            return;
        }
        for (line, value) in mistakes.members(FIELD, text) {
            let field = format!("{FIELD}[{:?}]", cut(&line, SHOWN_BYTES_MAX));
            match serde_json::from_str::<Value>(value.get()) {
                Ok(Value::Bool(true)) => {
                    self.edit.add.extend(mistakes.item(&field, &line, now));
                }
                // What is removed is stored, so its times are absolute.
                Ok(Value::Null) => match LifeItem::parse(&line) {
                    Ok(item) => self.edit.remove.push(item),
                    Err(it) => mistakes.add(field, it.problem),
                },
                _ => mistakes.add(
                    field,
                    format!(
                        "is {}; expected: true to add it, or null to remove it",
                        kind(value.get())
                    ),
                ),
            }
        }
    }
}

/// What a JSON text is, with its article.
fn kind(text: &str) -> &'static str {
    match text.trim_start().bytes().next() {
        Some(b'{') => "an object",
        Some(b'[') => "an array",
        Some(b'"') => "a text",
        Some(b't' | b'f') => "true or false",
        Some(b'n') => "null",
        _ => "a number",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Patch, Vec<String>> {
        let told = |errors: Vec<FieldError>| errors.iter().map(ToString::to_string).collect();
        Patch::parse(text, Stamp::MIN).map_err(told)
    }

    fn items(texts: &[&str]) -> Vec<LifeItem> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn no_text_and_an_empty_object_change_nothing() {
        for text in ["", " \n", "{}", "{\"attributes\":{}}", "{\"managedState\":{}}"] {
            assert_eq!(read(text), Ok(Patch::default()), "{text:?}");
        }
    }

    #[test]
    fn attributes_are_set_and_removed() {
        let patch = read(r#"{"attributes": {"color": "red", "size": null}}"#).unwrap();
        let expected = [("color".into(), Some("red".into())), ("size".into(), None)];
        assert_eq!(patch.attributes, expected.into());
        assert!(patch.edit.is_empty());
    }

    #[test]
    fn an_object_of_items_adds_and_removes() {
        let text = r#"{"managedState": {"key made@+2s": true, "key x": null, "a b": true}}"#;
        let edit = read(text).unwrap().edit;
        assert_eq!(edit.add, items(&["key made@2000-01-01T00:00:02.000Z", "a b"]));
        assert_eq!(edit.remove, items(&["key x"]));
        assert_eq!((edit.replace, edit.finish), (None, vec![]));
    }

    #[test]
    fn an_array_of_items_replaces_all() {
        let edit = read(r#"{"managedState": ["key made@+2s"]}"#).unwrap().edit;
        assert_eq!(edit.replace, Some(items(&["key made@2000-01-01T00:00:02.000Z"])));
        let edit = read(r#"{"managedState": []}"#).unwrap().edit;
        assert_eq!((edit.is_empty(), edit.replace), (false, Some(vec![])));
    }

    #[test]
    fn all_mistakes_are_told_with_their_fields() {
        let text = r#"{"attributes": {"a": 5, "b": "x", "b": null}, "more": 1,
            "managedState": {"key x@+1h": null, "key": true, "key y": false, "idle z": true}}"#;
        let told = read(text).unwrap_err();
        let expected = [
            "attributes has \"b\" twice; give it once",
            "attributes.a is a number; expected: a text, or null to remove it",
            "patch has the unknown field \"more\"; known are attributes and managedState",
            "managedState[\"key x@+1h\"] column 7: \"+1h\", a time from now on stands there; \
             expected: a time as 261128093000000 (YYMMDDhhmmssmmm) or 2026-11-28T09:30:00Z",
            "managedState[\"key\"] column 4: the end stands there; \
             expected: a space and a word behind the life cycle key",
            "managedState[\"key y\"] is true or false; expected: true to add it, or null to remove it",
            "managedState[\"idle z\"] column 1: the life cycle idle is built in; \
             use the option idle of the class or of the open",
        ];
        assert_eq!(told, expected);
        let told = read(r#"{"managedState": ["key", 7]}"#).unwrap_err();
        assert!(told[0].starts_with("managedState[0] column 4: "), "{told:?}");
        assert_eq!(told[1], "managedState[1] is a number; expected: the text of an item");
    }

    #[test]
    fn other_shapes_are_refused() {
        let told = |text: &str| read(text).unwrap_err().join("|");
        assert!(told("[]").starts_with("patch is no JSON object: "));
        assert!(told("{} {}").starts_with("patch is no JSON object: trailing characters"));
        assert!(told("{").starts_with("patch is no JSON object: EOF"));
        assert!(told(r#"{"attributes": null}"#).starts_with("attributes is no JSON object: "));
        let null = told(r#"{"managedState": null}"#);
        assert!(
            null.starts_with("managedState is null; expected: an array of items, or an"),
            "{null}"
        );
        let long = format!("{{\"a\":\"{}\"}}", "x".repeat(PATCH_BYTES_MAX));
        assert_eq!(told(&long), "patch is 262152 bytes long; the limit is 262144");
        let deep = format!("{{\"managedState\":{}", "[".repeat(200_000));
        let array = format!("{{\"managedState\":{}{}}}", "[".repeat(90_000), "]".repeat(90_000));
        assert_eq!(told(&array), "managedState[0] is an array; expected: the text of an item");
        assert!(told(&deep).starts_with("patch is no JSON object: EOF"));
    }
}
