//! Names of life cycles, events and marks.

use crate::item::wrong;
use rota_model::FieldError;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;
use std::fmt;

/// Longest name, in bytes. Names are names of files of actions, too.
pub const NAME_BYTES_MAX: usize = 64;

/// Life cycles that are built in. At entry no item may have such a name or wait for one. Options of these names say
/// what they do.
pub const RESERVED: [&str; 6] =
    ["idle", "max_life", "start_timeout", "close_grace", "restart", "health"];

/// 1 to 64 characters of `a-z A-Z 0-9 _ - .`, the first one a letter or digit.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "SmolStr")]
pub struct Name(SmolStr);

impl Name {
    /// Checks a text that stands alone. The error names the column.
    pub fn parse(text: &str) -> Result<Self, FieldError> {
        Self::parse_at(text, 1, "a name")
    }

    /// Checks a text whose first character stands in that column. `what` is its noun in errors.
    pub(crate) fn parse_at(text: &str, column: usize, what: &str) -> Result<Self, FieldError> {
        let expected = || {
            format!(
                "{what} of 1 to {NAME_BYTES_MAX} characters a-z A-Z 0-9 _ - ., the first one a letter or digit"
            )
        };
        for (index, it) in text.chars().enumerate() {
            let fits = it.is_ascii_alphanumeric() || index > 0 && matches!(it, '_' | '-' | '.');
            if !fits || index >= NAME_BYTES_MAX {
                return Err(wrong(column + index, &format!("{it:?}"), &expected()));
            }
        }
        if text.is_empty() {
            return Err(wrong(column, "nothing", &expected()));
        }
        Ok(Self(SmolStr::new(text)))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is the name of a life cycle that is built in.
    pub fn is_reserved(&self) -> bool {
        RESERVED.contains(&self.as_str())
    }
}

impl TryFrom<String> for Name {
    type Error = FieldError;
    fn try_from(text: String) -> Result<Self, FieldError> {
        Self::parse(&text)
    }
}

impl From<Name> for SmolStr {
    fn from(name: Name) -> SmolStr {
        name.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_str())
    }
}
