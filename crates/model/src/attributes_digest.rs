//! What is kept of the attributes of a session that has ended.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Equal for equal attributes: 128 bits of XXH3 over their names and values. Managers make it when a session
/// ends, to know a repeated open from one that asks for something else. It is written as 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct AttributesDigest(pub u128);

impl AttributesDigest {
    /// Reads the digits as which it is written.
    pub fn parse(text: &str) -> Option<Self> {
        let is_digits = text.len() == 32 && text.bytes().all(|it| it.is_ascii_hexdigit());
        is_digits.then(|| u128::from_str_radix(text, 16).ok()).flatten().map(Self)
    }
}

impl fmt::Display for AttributesDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for AttributesDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl From<AttributesDigest> for String {
    fn from(digest: AttributesDigest) -> Self {
        digest.to_string()
    }
}

impl TryFrom<String> for AttributesDigest {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text)
            .ok_or_else(|| format!("{text:?} is not a digest of 32 hexadecimal digits"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_read_as_it_is_written_and_nothing_else_is() {
        for number in [0, 1, u128::MAX] {
            let digest = AttributesDigest(number);
            assert_eq!(AttributesDigest::parse(&digest.to_string()), Some(digest));
        }
        for wrong in
            ["", "1", "+123456789abcdef0123456789abcdef", "g123456789abcdef0123456789abcdef"]
        {
            assert_eq!(AttributesDigest::parse(wrong), None, "{wrong}");
        }
    }
}
