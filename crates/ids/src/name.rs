//! What is numbered, within what, and how an entry is called.

use rota_model::FieldError;
use smol_str::SmolStr;
use std::fmt;
use uuid::Uuid;

/// Longest name of a type, in bytes. With two UUIDs it stays far below the longest name of a file.
pub const KIND_BYTES_MAX: usize = 64;

/// What stands for the UUID in the name of a last.
const LAST: &str = "last";
/// Between the parts of a name. No kind and no UUID has one.
const DOT: char = '.';

/// A type of resources, such as `Node`: 1 to 64 letters and digits of ASCII.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind(SmolStr);

impl Kind {
    /// Checks the text. The error says which character is wrong, or what the limit is.
    pub fn parse(text: &str) -> Result<Self, FieldError> {
        let wrong = |problem: String| Err(FieldError::new("kind", problem));
        if text.is_empty() {
            return wrong("must not be empty; give a name such as Node".to_owned());
        }
        if let Some((at, it)) = text.char_indices().find(|(_, it)| !it.is_ascii_alphanumeric()) {
            return wrong(format!("has {it:?} at byte {at}; use letters and digits only"));
        }
        if text.len() > KIND_BYTES_MAX {
            let length = text.len();
            return wrong(format!("is {length} bytes long; the limit is {KIND_BYTES_MAX}"));
        }
        Ok(Self(SmolStr::new(text)))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Stands before every kind.
    fn before_all() -> Self {
        Self(SmolStr::new_static(""))
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_str())
    }
}

/// Resources that are numbered together: no two of them have one number.
// The parent first: groups of one parent lie side by side.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Group {
    /// The resource that these belong to. `None`: they have none, or count over all parents.
    pub parent: Option<Uuid>,
    /// Their type.
    pub kind: Kind,
}

impl Group {
    /// Stands before every group of that parent, and after those of lower ones.
    pub(crate) fn first_of(parent: Uuid) -> Self {
        Self { parent: Some(parent), kind: Kind::before_all() }
    }

    /// Writes the beginning of a name, up to and with the dot before its last part.
    fn write_stem(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{DOT}", self.kind)?;
        match self.parent {
            Some(parent) => write!(f, "{parent}{DOT}"),
            None => Ok(()),
        }
    }
}

/// Which resource an entry is about.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key {
    /// The resource that it belongs to. `None`: it has none, or its type counts over all parents.
    pub parent: Option<Uuid>,
    /// Its type.
    pub kind: Kind,
    /// Its UUID.
    pub uuid: Uuid,
}

impl Key {
    /// The resources that it is numbered with.
    pub fn group(&self) -> Group {
        Group { parent: self.parent, kind: self.kind.clone() }
    }
}

/// As the name of its entry: `Type[.parent].uuid`.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.group().write_stem(f)?;
        write!(f, "{}", self.uuid)
    }
}

/// How the resources of a type are numbered.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Policy {
    /// Within each parent: two nodes of different pools may both have number 1.
    Local,
    /// Over all parents of the type: each number occurs once.
    Global,
}

impl Policy {
    /// The key of a resource under this policy. A global one leaves the parent out.
    pub fn key(self, kind: Kind, parent: Option<Uuid>, uuid: Uuid) -> Key {
        let parent = match self {
            Policy::Local => parent,
            Policy::Global => None,
        };
        Key { parent, kind, uuid }
    }
}

/// How something that is kept is called: `Type[.parent].uuid` or `Type[.parent].last`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Name {
    /// The number of one resource.
    Entry(Key),
    /// The last number that a group assigned.
    Last(Group),
}

impl Name {
    /// The resources that it is about, or among which the one is that it is about.
    pub fn group(&self) -> Group {
        match self {
            Name::Entry(key) => key.group(),
            Name::Last(group) => group.clone(),
        }
    }

    /// Reads what [`fmt::Display`] writes, and nothing else: UUIDs have lower-case letters and hyphens.
    pub fn parse(text: &str) -> Result<Self, FieldError> {
        let wrong = |problem: String| FieldError::new("name", problem);
        let shape = || wrong("is not Type.uuid, Type.parent.uuid or one of these with last".into());
        let uuid = |part: &str| {
            let mut canonical = Uuid::encode_buffer();
            let read = Uuid::try_parse(part).ok();
            let read = read.filter(|it| it.hyphenated().encode_lower(&mut canonical) == part);
            read.ok_or_else(|| wrong(format!("has {part:?}, which is not a lower-case UUID")))
        };
        let mut parts = text.split(DOT);
        let (kind, parent, end) = match [(); 4].map(|()| parts.next()) {
            [Some(kind), Some(end), None, None] => (kind, None, end),
            [Some(kind), Some(parent), Some(end), None] => (kind, Some(uuid(parent)?), end),
            _ => return Err(shape()),
        };
        let kind = Kind::parse(kind)?;
        if end == LAST {
            return Ok(Name::Last(Group { parent, kind }));
        }
        Ok(Name::Entry(Key { parent, kind, uuid: uuid(end)? }))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Name::Entry(key) => key.fmt(f),
            Name::Last(group) => {
                group.write_stem(f)?;
                f.write_str(LAST)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "74f30be0-3151-11e6-8b2f-fcaa1429e144";

    #[test]
    fn a_kind_has_letters_and_digits_only_and_the_error_says_what_is_wrong() {
        assert_eq!(Kind::parse("Node2").unwrap().as_str(), "Node2");
        let told = |text: &str| Kind::parse(text).unwrap_err().to_string();
        assert_eq!(told(""), "kind must not be empty; give a name such as Node");
        assert_eq!(told("No.de"), "kind has '.' at byte 2; use letters and digits only");
        assert_eq!(told("Größe"), "kind has 'ö' at byte 2; use letters and digits only");
        assert_eq!(told(&"k".repeat(65)), "kind is 65 bytes long; the limit is 64");
        assert!(Kind::parse(&"k".repeat(64)).is_ok());
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        for text in [
            "Manager.last".to_owned(),
            "last.last".to_owned(),
            format!("Manager.{UUID}"),
            format!("Node.{UUID}.last"),
            format!("Node.{UUID}.{UUID}"),
        ] {
            assert_eq!(Name::parse(&text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn other_names_are_refused() {
        for text in [
            String::new(),
            "Node".to_owned(),
            "Node.".to_owned(),
            ".last".to_owned(),
            "Node.Last".to_owned(),
            "Node.last.last".to_owned(),
            format!("Node.{}", UUID.to_uppercase()),
            format!("Node.{}", UUID.replace('-', "")),
            format!("Node.{{{UUID}}}"),
            format!("No-de.{UUID}"),
            format!("Node.{UUID}.{UUID}.{UUID}"),
        ] {
            assert!(Name::parse(&text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_global_policy_leaves_the_parent_out() {
        let (kind, uuid) = (Kind::parse("Node").unwrap(), Uuid::from_u128(1));
        let parent = Some(Uuid::from_u128(2));
        assert_eq!(Policy::Local.key(kind.clone(), parent, uuid).parent, parent);
        assert_eq!(Policy::Global.key(kind, parent, uuid).parent, None);
    }
}
