//! Which text of a class a node has.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Equal for equal texts of a class: the first 64 bits of the SHA-256 of its file, so that the digest that
/// `sha256sum` prints begins with it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct ClassDigest(pub u64);

impl ClassDigest {
    /// Reads the sixteen hexadecimal digits as which it is written.
    pub fn parse(text: &str) -> Option<Self> {
        let is_digits = text.len() == 16 && text.bytes().all(|it| it.is_ascii_hexdigit());
        is_digits.then(|| u64::from_str_radix(text, 16).ok()).flatten().map(Self)
    }
}

impl fmt::Display for ClassDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for ClassDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl From<ClassDigest> for String {
    fn from(digest: ClassDigest) -> Self {
        digest.to_string()
    }
}

impl TryFrom<String> for ClassDigest {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text)
            .ok_or_else(|| format!("{text:?} is not a digest of 16 hexadecimal digits"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_read_as_it_is_written_and_nothing_else_is() {
        for number in [0, 1, u64::MAX] {
            let digest = ClassDigest(number);
            assert_eq!(ClassDigest::parse(&digest.to_string()), Some(digest));
        }
        for wrong in ["", "1", "+123456789abcdef", "0123456789abcdef0", "g123456789abcdef"] {
            assert_eq!(ClassDigest::parse(wrong), None, "{wrong}");
        }
    }
}
