//! Names that people choose, and numbers of the ring.

use crate::refusal::FieldError;
use crate::text::misleads;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;
use std::fmt;

/// Longest name of any kind, in bytes.
pub const NAME_BYTES_MAX: usize = 255;

/// The name of what nobody named.
const DEFAULT: SmolStr = SmolStr::new_static("default");

/// Refuses a text that is empty, longer than so many bytes, or has control characters.
pub(crate) fn check_text(field: &str, text: &str, bytes_max: usize) -> Result<(), FieldError> {
    if text.is_empty() {
        return Err(FieldError::new(field, "must not be empty"));
    }
    if text.len() > bytes_max {
        let length = text.len();
        let problem = format!("is {length} bytes long; the limit is {bytes_max}");
        return Err(FieldError::new(field, problem));
    }
    // Nearly every name is so, and seen to be so faster.
    if text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(());
    }
    if let Some(at) = text.find(char::is_control) {
        return Err(FieldError::new(field, format!("has a control character at byte {at}")));
    }
    Ok(())
}

/// A slash parts a namespace from what follows in the name of a document.
pub fn no_slash(field: &str, text: &str) -> Result<(), FieldError> {
    match text.find('/') {
        Some(at) => Err(FieldError::new(field, format!("has a slash at byte {at}"))),
        None => Ok(()),
    }
}

/// An equals sign parts a label's name from its value.
pub fn no_equals(field: &str, text: &str) -> Result<(), FieldError> {
    match text.find('=') {
        Some(at) => Err(FieldError::new(field, format!("has an equals sign at byte {at}"))),
        None => Ok(()),
    }
}

/// Refuses characters that turn the direction of writing. Names that exist may have them; no new one gets any.
pub fn no_turn(field: &str, text: &str) -> Result<(), FieldError> {
    let found = if text.is_ascii() { None } else { text.char_indices().find(|it| misleads(it.1)) };
    match found {
        Some((at, it)) => {
            let code = u32::from(it);
            let problem =
                format!("has U+{code:04X} at byte {at}, which turns the direction of writing");
            Err(FieldError::new(field, problem))
        }
        None => Ok(()),
    }
}

macro_rules! name {
    ($(#[$doc:meta])* $type:ident, $field:literal $(, $rule:ident)?) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "SmolStr", into = "SmolStr")]
        pub struct $type(SmolStr);

        impl $type {
            /// 1 to 255 bytes, no control characters; in a namespace no slash either.
            pub fn check(text: &str) -> Result<(), FieldError> {
                check_text($field, text, NAME_BYTES_MAX)?;
                $($rule($field, text)?;)?
                Ok(())
            }
            /// Checks the text as [`Self::check`] does.
            pub fn parse(text: &str) -> Result<Self, FieldError> {
                Self::check(text)?;
                Ok(Self(SmolStr::new(text)))
            }
            /// Checks the text of a new name: it has no character either that turns the direction of
            /// writing, by which one name can be shown as another. Names of that kind that exist are read.
            pub fn parse_new(text: &str) -> Result<Self, FieldError> {
                Self::check(text)?;
                no_turn($field, text)?;
                Ok(Self(SmolStr::new(text)))
            }
            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl TryFrom<SmolStr> for $type {
            type Error = FieldError;
            fn try_from(text: SmolStr) -> Result<Self, FieldError> {
                Self::check(&text)?;
                Ok(Self(text))
            }
        }
        impl From<$type> for SmolStr {
            fn from(name: $type) -> SmolStr {
                name.0
            }
        }
        impl From<$type> for String {
            fn from(name: $type) -> String {
                name.0.into()
            }
        }
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", self.0.as_str())
            }
        }
    };
}

/// How request ids begin that managers give. A caller's own that begins so is forgotten as early.
const GIVEN: char = '~';

name!(
    /// A separate space of session ids. `default` where a caller names none.
    Namespace, "namespace", no_slash
);
name!(
    /// A session's id, unique inside its namespace.
    SessionId, "id"
);
name!(
    /// What a session runs: the name of a class that nodes know.
    ClassName, "class"
);
name!(
    /// A node's id, stable over its boots.
    NodeId, "node"
);
name!(
    /// A pool of nodes that can grow.
    PoolName, "pool"
);
name!(
    /// A repository of content that nodes run.
    RepositoryName, "repository"
);
name!(
    /// What a label is about: `zone`.
    LabelName, "label's name", no_equals
);
name!(
    /// What a label says: `eu-1`.
    LabelValue, "label's value"
);
name!(
    /// Who starts nodes, as managers were told at their start.
    ProvisionerName, "provisioner"
);
name!(
    /// A caller's name for one request; repeating it repeats the answer.
    RequestId, "request_id"
);
name!(
    /// A manager's own name, written into its data folder at its first start.
    ManagerId, "manager"
);
name!(
    /// The cluster's name; data folders of another cluster are refused.
    ClusterName, "cluster"
);

impl RequestId {
    /// A manager's name for the request of a caller that gave none. `run` tells managers and their runs
    /// apart.
    pub fn given_by_manager(run: u64, count: u64) -> Self {
        Self(SmolStr::from(format!("{GIVEN}{run:016x}-{count}")))
    }

    /// Whether a manager gave it: no caller can repeat such a request.
    pub fn is_given_by_manager(&self) -> bool {
        self.0.starts_with(GIVEN)
    }
}

impl Namespace {
    /// The namespace of callers that name none.
    pub fn default_space() -> Self {
        Self(DEFAULT)
    }
}

impl PoolName {
    /// The pool of classes that name none.
    pub fn default_pool() -> Self {
        Self(DEFAULT)
    }
}

/// The full name of a session: its placement key.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SessionKey {
    /// The space that the id lives in.
    pub namespace: Namespace,
    /// The id.
    pub id: SessionId,
}

impl SessionKey {
    /// A key from its parts.
    pub fn new(namespace: Namespace, id: SessionId) -> Self {
        Self { namespace, id }
    }
}

impl fmt::Display for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.id)
    }
}

impl fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

macro_rules! number {
    ($(#[$doc:meta])* $type:ident($inner:ty), $letter:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $type(pub $inner);

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($letter, "{}"), self.0)
            }
        }
    };
}
pub(crate) use number;

number!(
    /// A slot of the ring, in `[0, m)`.
    SlotId(u32), "s"
);
number!(
    /// A manager's reserved number in `[0, m)`. It is also the name of the partition that ends there.
    ManagerNumber(u32), "M"
);

/// One run of a manager: its number and the incarnation that the View gave it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MemberId {
    /// The reserved number.
    pub number: ManagerNumber,
    /// Which run of the manager with that number.
    pub incarnation: crate::epoch::Incarnation,
}

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.number, self.incarnation)
    }
}

impl fmt::Debug for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "M{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_refused_when_empty_too_long_or_with_control_characters() {
        assert!(SessionId::parse("").is_err());
        assert!(SessionId::parse(&"x".repeat(256)).is_err());
        assert!(SessionId::parse("a\nb").is_err());
        assert!(SessionId::parse("a\0b").is_err());
        assert_eq!(SessionId::parse(&"x".repeat(255)).unwrap().as_str().len(), 255);
    }

    #[test]
    fn a_new_name_turns_no_writing_and_one_that_exists_is_read() {
        let turned = "adm\u{202e}in\u{2066}x";
        assert_eq!(SessionId::parse(turned).unwrap().as_str(), turned);
        let error = SessionId::parse_new(turned).unwrap_err();
        assert_eq!(
            error.to_string(),
            "id has U+202E at byte 3, which turns the direction of writing"
        );
        for name in ["a b", "Zo\u{eb}", "\u{5e9}\u{5dc}\u{5d5}\u{5dd}"] {
            assert!(SessionId::parse_new(name).is_ok(), "{name}");
        }
    }

    #[test]
    fn a_namespace_has_no_slash_and_an_id_may_have_some() {
        let error = Namespace::parse("a b/c").unwrap_err();
        assert_eq!(error.to_string(), "namespace has a slash at byte 3");
        assert!(SessionId::parse("a b/c").is_ok());
    }

    #[test]
    fn a_refused_name_says_field_and_limit() {
        let error = SessionId::parse(&"x".repeat(300)).unwrap_err();
        assert_eq!(error.field, "id");
        assert!(error.problem.contains("300") && error.problem.contains("255"));
    }
}
