//! JSON of serde types without null fields: a field whose value would be `null` is left out, while
//! `null` as a value inside a map or a list stays.
//!
//! A struct with `#[serde(flatten)]` is written as a map, so its null fields stay. A text that comes
//! as JSON and not as a value (`Content::json`, imports) is kept as it is.
//!
//! serde_json does the writing. [`Lean`] stands between a value and serde_json's serializer and
//! skips such fields, at every depth.

use serde::Serialize;
use serde::ser::{self, Impossible, Serializer};

/// The JSON text of a value, without null fields. A type whose field may be null but is no
/// `Option` needs `#[serde(default)]` to be read back.
pub fn to_json<T: Serialize + ?Sized>(value: &T) -> Result<String, serde_json::Error> {
    // Most items fit, and so are written without growing.
    let mut bytes = Vec::with_capacity(1_024);
    serde_json::to_writer(&mut bytes, &Lean(value))?;
    Ok(String::from_utf8(bytes).expect("serde_json writes UTF-8"))
}

/// A value that leaves null fields out when it is serialized.
struct Lean<'a, T: ?Sized>(&'a T);

impl<T: Serialize + ?Sized> Serialize for Lean<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(LeanSerializer(serializer))
    }
}

struct LeanSerializer<S>(S);
struct LeanParts<C>(C);

macro_rules! pass_on {
    ($($method:ident($($arg:ident: $type:ty),*);)*) => {
        $(fn $method(self, $($arg: $type),*) -> Result<S::Ok, S::Error> { self.0.$method($($arg),*) })*
    };
}

macro_rules! pass_on_parts {
    ($($method:ident($($arg:ident: $type:ty),*) -> $parts:ident;)*) => {
        $(fn $method(self, $($arg: $type),*) -> Result<LeanParts<S::$parts>, S::Error> {
            Ok(LeanParts(self.0.$method($($arg),*)?))
        })*
    };
}

impl<S: Serializer> Serializer for LeanSerializer<S> {
    type Ok = S::Ok;
    type Error = S::Error;
    type SerializeSeq = LeanParts<S::SerializeSeq>;
    type SerializeTuple = LeanParts<S::SerializeTuple>;
    type SerializeTupleStruct = LeanParts<S::SerializeTupleStruct>;
    type SerializeTupleVariant = LeanParts<S::SerializeTupleVariant>;
    type SerializeMap = LeanParts<S::SerializeMap>;
    type SerializeStruct = LeanParts<S::SerializeStruct>;
    type SerializeStructVariant = LeanParts<S::SerializeStructVariant>;

    pass_on! {
        serialize_bool(v: bool); serialize_i8(v: i8); serialize_i16(v: i16); serialize_i32(v: i32);
        serialize_i64(v: i64); serialize_i128(v: i128); serialize_u8(v: u8); serialize_u16(v: u16);
        serialize_u32(v: u32); serialize_u64(v: u64); serialize_u128(v: u128);
        serialize_f32(v: f32); serialize_f64(v: f64); serialize_char(v: char);
        serialize_str(v: &str); serialize_bytes(v: &[u8]); serialize_none(); serialize_unit();
        serialize_unit_struct(name: &'static str);
        serialize_unit_variant(name: &'static str, index: u32, variant: &'static str);
    }

    pass_on_parts! {
        serialize_seq(length: Option<usize>) -> SerializeSeq;
        serialize_tuple(length: usize) -> SerializeTuple;
        serialize_tuple_struct(name: &'static str, length: usize) -> SerializeTupleStruct;
        serialize_tuple_variant(
            name: &'static str, index: u32, variant: &'static str, length: usize
        ) -> SerializeTupleVariant;
        serialize_map(length: Option<usize>) -> SerializeMap;
        serialize_struct(name: &'static str, length: usize) -> SerializeStruct;
        serialize_struct_variant(
            name: &'static str, index: u32, variant: &'static str, length: usize
        ) -> SerializeStructVariant;
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<S::Ok, S::Error> {
        self.0.serialize_some(&Lean(value))
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        self.0.serialize_newtype_struct(name, &Lean(value))
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        self.0.serialize_newtype_variant(name, index, variant, &Lean(value))
    }

    fn is_human_readable(&self) -> bool {
        self.0.is_human_readable()
    }
}

macro_rules! list {
    ($($trait:ident::$method:ident;)*) => {
        $(impl<C: ser::$trait> ser::$trait for LeanParts<C> {
            type Ok = C::Ok;
            type Error = C::Error;
            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), C::Error> {
                self.0.$method(&Lean(value))
            }
            fn end(self) -> Result<C::Ok, C::Error> {
                self.0.end()
            }
        })*
    };
}

list! {
    SerializeSeq::serialize_element;
    SerializeTuple::serialize_element;
    SerializeTupleStruct::serialize_field;
    SerializeTupleVariant::serialize_field;
}

impl<C: ser::SerializeMap> ser::SerializeMap for LeanParts<C> {
    type Ok = C::Ok;
    type Error = C::Error;
    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), C::Error> {
        self.0.serialize_key(key)
    }
    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), C::Error> {
        self.0.serialize_value(&Lean(value))
    }
    fn end(self) -> Result<C::Ok, C::Error> {
        self.0.end()
    }
}

macro_rules! fields {
    ($($trait:ident;)*) => {
        $(impl<C: ser::$trait> ser::$trait for LeanParts<C> {
            type Ok = C::Ok;
            type Error = C::Error;
            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                name: &'static str,
                value: &T,
            ) -> Result<(), C::Error> {
                match value.serialize(IsNull) {
                    Ok(()) => self.0.skip_field(name),
                    Err(Something) => self.0.serialize_field(name, &Lean(value)),
                }
            }
            fn skip_field(&mut self, name: &'static str) -> Result<(), C::Error> {
                self.0.skip_field(name)
            }
            fn end(self) -> Result<C::Ok, C::Error> {
                self.0.end()
            }
        })*
    };
}

fields! { SerializeStruct; SerializeStructVariant; }

/// Finds out whether a value would be `null`: it ends at the first sign of something else, before
/// it has looked into it.
struct IsNull;

/// The value is not null.
#[derive(Debug, thiserror::Error)]
#[error("the value is not null")]
struct Something;

impl ser::Error for Something {
    fn custom<T: std::fmt::Display>(_: T) -> Self {
        Something
    }
}

macro_rules! something {
    ($($method:ident($($type:ty),*) -> $ok:ty;)*) => {
        $(fn $method(self, $(_: $type),*) -> Result<$ok, Something> { Err(Something) })*
    };
}

impl Serializer for IsNull {
    type Ok = ();
    type Error = Something;
    type SerializeSeq = Impossible<(), Something>;
    type SerializeTuple = Impossible<(), Something>;
    type SerializeTupleStruct = Impossible<(), Something>;
    type SerializeTupleVariant = Impossible<(), Something>;
    type SerializeMap = Impossible<(), Something>;
    type SerializeStruct = Impossible<(), Something>;
    type SerializeStructVariant = Impossible<(), Something>;

    something! {
        serialize_bool(bool) -> (); serialize_i8(i8) -> (); serialize_i16(i16) -> ();
        serialize_i32(i32) -> (); serialize_i64(i64) -> (); serialize_i128(i128) -> ();
        serialize_u8(u8) -> (); serialize_u16(u16) -> (); serialize_u32(u32) -> ();
        serialize_u64(u64) -> (); serialize_u128(u128) -> (); serialize_char(char) -> ();
        serialize_str(&str) -> (); serialize_bytes(&[u8]) -> ();
        serialize_unit_variant(&'static str, u32, &'static str) -> ();
        serialize_seq(Option<usize>) -> Self::SerializeSeq;
        serialize_tuple(usize) -> Self::SerializeTuple;
        serialize_tuple_struct(&'static str, usize) -> Self::SerializeTupleStruct;
        serialize_tuple_variant(&'static str, u32, &'static str, usize)
            -> Self::SerializeTupleVariant;
        serialize_map(Option<usize>) -> Self::SerializeMap;
        serialize_struct(&'static str, usize) -> Self::SerializeStruct;
        serialize_struct_variant(&'static str, u32, &'static str, usize)
            -> Self::SerializeStructVariant;
    }

    /// JSON has no infinity and no NaN: serde_json writes `null` for them.
    fn serialize_f32(self, v: f32) -> Result<(), Something> {
        if v.is_finite() { Err(Something) } else { Ok(()) }
    }

    fn serialize_f64(self, v: f64) -> Result<(), Something> {
        if v.is_finite() { Err(Something) } else { Ok(()) }
    }

    fn serialize_none(self) -> Result<(), Something> {
        Ok(())
    }

    fn serialize_unit(self) -> Result<(), Something> {
        Ok(())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), Something> {
        Ok(())
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Something> {
        value.serialize(self)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), Something> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Result<(), Something> {
        Err(Something)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use std::collections::BTreeMap;

    #[derive(Serialize, Deserialize, PartialEq, Debug, Default, Clone)]
    struct Inner {
        a: Option<u8>,
        b: Option<bool>,
    }

    #[derive(Serialize, Deserialize, PartialEq, Debug, Clone)]
    enum Choice {
        One,
        Two(Option<u8>),
        Three { x: Option<u8>, y: u8 },
    }

    #[derive(Serialize, Deserialize, PartialEq, Debug, Clone)]
    struct Outer {
        none: Option<String>,
        some: Option<Inner>,
        list: Vec<Option<Inner>>,
        map: BTreeMap<String, Option<Inner>>,
        pair: (Option<u8>, u8),
        choices: Vec<Choice>,
        last: Option<u8>,
    }

    fn outer() -> Outer {
        let inner = Inner { a: None, b: Some(false) };
        Outer {
            none: None,
            some: Some(inner.clone()),
            list: vec![None, Some(inner.clone()), Some(Inner::default())],
            map: BTreeMap::from([("x".to_owned(), None), ("y".to_owned(), Some(inner))]),
            pair: (None, 1),
            choices: vec![Choice::One, Choice::Two(None), Choice::Three { x: None, y: 2 }],
            last: None,
        }
    }

    #[test]
    fn null_fields_are_left_out_except_inside_maps_and_lists() {
        let expected = r#"{"some":{"b":false},"list":[null,{"b":false},{}],"map":{"x":null,"y":{"b":false}},"pair":[null,1],"choices":["One",{"Two":null},{"Three":{"y":2}}]}"#;
        assert_eq!(to_json(&outer()).unwrap(), expected);
    }

    #[test]
    fn what_was_left_out_reads_back_as_nothing() {
        let text = to_json(&outer()).unwrap();
        assert_eq!(serde_json::from_str::<Outer>(&text).unwrap(), outer());
    }

    #[test]
    fn values_that_json_can_only_write_as_null_count_as_null() {
        #[derive(Serialize)]
        struct Odd {
            unit: (),
            nan: f64,
            value: serde_json::Value,
            nested: Option<Option<u8>>,
            text: &'static str,
        }
        let value = serde_json::Value::Null;
        let odd = Odd { unit: (), nan: f64::NAN, value, nested: Some(None), text: "" };
        assert_eq!(to_json(&odd).unwrap(), r#"{"text":""}"#);
    }
}
