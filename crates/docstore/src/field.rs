//! Declared fields: properties of JSON items by which documents are searched, each with its type.

use crate::content::JsonText;
use rota_model::FieldError;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::fmt;

/// Longest name of a declared field, in bytes.
pub const FIELD_BYTES_MAX: usize = 64;
/// Most elements of an array in a declared field: each is an entry of an index.
pub const ELEMENTS_MAX: usize = 1_000;

/// The type of a declared field.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FieldType {
    /// A text.
    String,
    /// An integer of 32 bits.
    Int,
    /// An integer of 64 bits.
    Long,
    /// A number of 64 bits with a fraction.
    Double,
    /// An array of texts.
    Strings,
    /// An array of integers of 32 bits.
    Ints,
    /// An array of integers of 64 bits.
    Longs,
    /// An array of numbers with fractions.
    Doubles,
}

impl FieldType {
    /// What a value of it is, for messages.
    pub fn describe(self) -> &'static str {
        match self {
            Self::String => "a string",
            Self::Int => "an integer of 32 bits",
            Self::Long => "an integer of 64 bits",
            Self::Double => "a number",
            Self::Strings => "an array of strings",
            Self::Ints => "an array of integers of 32 bits",
            Self::Longs => "an array of integers of 64 bits",
            Self::Doubles => "an array of numbers",
        }
    }

    /// Whether a field of it has many values.
    pub fn is_array(self) -> bool {
        match self {
            Self::String | Self::Int | Self::Long | Self::Double => false,
            Self::Strings | Self::Ints | Self::Longs | Self::Doubles => true,
        }
    }
}

/// One value of a declared field; of an array, one element.
#[derive(Clone, PartialEq, Debug)]
pub enum FieldValue {
    /// A text.
    String(String),
    /// An integer, of 32 or 64 bits.
    Long(i64),
    /// A number; finite.
    Double(f64),
}

fn one(is: FieldType, json: Json) -> Option<FieldValue> {
    match is {
        FieldType::String | FieldType::Strings => match json {
            Json::String(text) => Some(FieldValue::String(text)),
            Json::Null | Json::Bool(_) | Json::Number(_) | Json::Array(_) | Json::Object(_) => None,
        },
        FieldType::Int | FieldType::Ints => {
            let number = i32::try_from(json.as_i64()?).ok()?;
            Some(FieldValue::Long(number.into()))
        }
        FieldType::Long | FieldType::Longs => json.as_i64().map(FieldValue::Long),
        FieldType::Double | FieldType::Doubles => json.as_f64().map(FieldValue::Double),
    }
}

/// The values in a JSON value, if it is of the type. Null has none.
fn values(is: FieldType, json: Json) -> Option<Vec<FieldValue>> {
    match json {
        Json::Null => Some(Vec::new()),
        Json::Array(elements) if is.is_array() => {
            elements.into_iter().map(|it| one(is, it)).collect()
        }
        Json::Array(_) => None,
        Json::Bool(_) | Json::Number(_) | Json::String(_) | Json::Object(_) => {
            if is.is_array() {
                None
            } else {
                Some(vec![one(is, json)?])
            }
        }
    }
}

/// Top-level properties of some names.
struct Picked<'a, T>(&'a BTreeMap<T, FieldType>);

impl<'de, T: AsRef<str>> DeserializeSeed<'de> for Picked<'_, T> {
    type Value = Vec<(usize, Json)>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de, T: AsRef<str>> Visitor<'de> for Picked<'_, T> {
    type Value = Vec<(usize, Json)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found: Self::Value = Vec::new();
        while let Some(name) = map.next_key::<std::borrow::Cow<'de, str>>()? {
            let Some(at) = self.0.keys().position(|it| it.as_ref() == name) else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            let value = map.next_value::<Json>()?;
            // Of a name that stands twice the last one counts, as for readers of JSON values.
            found.retain(|it| it.0 != at);
            found.push((at, value));
        }
        Ok(found)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Vec::new())
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }

    fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }
}

fn picked<T: AsRef<str>>(
    fields: &BTreeMap<T, FieldType>,
    text: &JsonText,
) -> Result<Vec<(usize, Json)>, FieldError> {
    let mut reader = serde_json::Deserializer::from_str(text.as_str());
    let wrong = |error| FieldError::new("json", format!("cannot be read: {error}"));
    Picked(fields).deserialize(&mut reader).map_err(wrong)
}

/// Calls `each` with every value of every field that a JSON text has, and the field's number in order
/// of names. A field of another type than its own has no value here: [`check_fields`] refuses it.
pub fn read_fields<T: AsRef<str>>(
    fields: &BTreeMap<T, FieldType>,
    text: &JsonText,
    mut each: impl FnMut(usize, FieldValue),
) {
    for (at, json) in picked(fields, text).unwrap_or_default() {
        let Some(is) = fields.values().nth(at) else { continue };
        values(*is, json).into_iter().flatten().for_each(|it| each(at, it));
    }
}

/// Refuses a JSON text in which a field has another type than its own, or an array of more than
/// [`ELEMENTS_MAX`]: the error has the name of that field. A field that is missing or null is fine.
pub fn check_fields<T: AsRef<str>>(
    fields: &BTreeMap<T, FieldType>,
    text: &JsonText,
) -> Result<(), FieldError> {
    for (at, json) in picked(fields, text)? {
        let Some((name, is)) = fields.iter().nth(at) else { continue };
        let what = what(&json);
        let Some(values) = values(*is, json) else {
            let problem = format!("is {what}, and must be {}", is.describe());
            return Err(FieldError::new(name.as_ref(), problem));
        };
        let count = values.len();
        if count > ELEMENTS_MAX {
            let problem = format!("has {count} elements; the limit is {ELEMENTS_MAX}");
            return Err(FieldError::new(name.as_ref(), problem));
        }
    }
    Ok(())
}

/// A JSON value in a few words.
fn what(json: &Json) -> String {
    const SHOWN_MAX: usize = 40;
    let text = json.to_string();
    if text.chars().count() <= SHOWN_MAX {
        return text;
    }
    let begin: String = text.chars().take(SHOWN_MAX).collect();
    format!("{begin}...")
}

/// Refuses the name of a field that a filter could not be written with: 1 to [`FIELD_BYTES_MAX`] letters,
/// digits, dashes and underscores. `docid` is the document's own.
pub fn check_field_name(name: &str) -> Result<(), FieldError> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if !(1..=FIELD_BYTES_MAX).contains(&name.len()) || !name.bytes().all(fits) || name == "docid" {
        let problem = format!("{name:?} is not 1 to {FIELD_BYTES_MAX} letters, digits, - and _");
        return Err(FieldError::new("field", problem));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(is: FieldType, json: &str) -> Result<Vec<FieldValue>, String> {
        let fields = BTreeMap::from([("a", is)]);
        let text = JsonText::parse(json).expect("it is JSON");
        check_fields(&fields, &text).map_err(|it| it.to_string())?;
        let mut found = Vec::new();
        read_fields(&fields, &text, |_, it| found.push(it));
        Ok(found)
    }

    #[test]
    fn each_type_reads_its_values_and_refuses_others_by_name() {
        use FieldType::{Double, Doubles, Int, Ints, Long, Longs, String, Strings};
        let text = |it: &str| FieldValue::String(it.into());
        assert_eq!(read(String, r#"{"a":"x"}"#), Ok(vec![text("x")]));
        assert_eq!(read(Strings, r#"{"b":[],"a":["x","y"]}"#), Ok(vec![text("x"), text("y")]));
        assert_eq!(read(Long, r#"{"a":-5}"#), Ok(vec![FieldValue::Long(-5)]));
        assert_eq!(read(Double, r#"{"a":3}"#), Ok(vec![FieldValue::Double(3.0)]));
        assert_eq!(read(Ints, r#"{"a":[]}"#), Ok(vec![]));
        assert_eq!(read(Long, r#"{"a":null}"#), Ok(vec![]));
        assert_eq!(read(Long, "[1]"), Ok(vec![]));
        assert_eq!(
            read(Int, r#"{"a":3000000000}"#),
            Err("a is 3000000000, and must be an integer of 32 bits".into())
        );
        assert_eq!(read(String, r#"{"a":1}"#), Err("a is 1, and must be a string".into()));
        for (is, json) in [
            (Long, r#"{"a":1.5}"#),
            (Long, r#"{"a":9223372036854775808}"#),
            (Longs, r#"{"a":1}"#),
            (Doubles, r#"{"a":[1,"x"]}"#),
            (Strings, r#"{"a":[null]}"#),
            (String, r#"{"a":["x"]}"#),
        ] {
            assert!(read(is, json).is_err_and(|it| it.starts_with("a is ")), "{is:?} {json}");
        }
        let many = format!("{{\"a\":[{}1]}}", "1,".repeat(ELEMENTS_MAX));
        assert_eq!(read(Longs, &many), Err("a has 1001 elements; the limit is 1000".into()));
    }

    #[test]
    fn of_a_property_that_stands_twice_the_last_one_counts() {
        assert_eq!(read(FieldType::Long, r#"{"a":1,"\u0061":2}"#), Ok(vec![FieldValue::Long(2)]));
    }
}
