//! Digests by which two texts are known to be equal without being kept.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A digest of fixed width, written as that many hexadecimal digits.
macro_rules! digest {
    ($(#[$doc:meta])* $name:ident, $number:ty, $digits:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(into = "String", try_from = "String")]
        pub struct $name(pub $number);

        impl $name {
            /// Reads the digits as which it is written.
            pub fn parse(text: &str) -> Option<Self> {
                let is_digits = text.len() == $digits && text.bytes().all(|byte| byte.is_ascii_hexdigit());
                is_digits.then(|| <$number>::from_str_radix(text, 16).ok()).flatten().map(Self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:0width$x}", self.0, width = $digits)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{self}")
            }
        }

        impl From<$name> for String {
            fn from(digest: $name) -> Self {
                digest.to_string()
            }
        }

        impl TryFrom<String> for $name {
            type Error = String;

            fn try_from(text: String) -> Result<Self, String> {
                Self::parse(&text).ok_or_else(|| {
                    format!("{text:?} is not a digest of {} hexadecimal digits", $digits)
                })
            }
        }
    };
}

digest! {
    /// Equal for equal texts of a class: the first 64 bits of the SHA-256 of its file, so that the digest that
    /// `sha256sum` prints begins with it.
    ClassDigest, u64, 16
}

digest! {
    /// Equal for equal attributes: 128 bits of XXH3 over their names and values. Managers make it when a session
    /// ends, to know a repeated open from one that asks for something else. It is written as 32 hexadecimal digits.
    AttributesDigest, u128, 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_read_as_it_is_written() {
        for number in [0, 1, u64::MAX] {
            let digest = ClassDigest(number);
            assert_eq!(ClassDigest::parse(&digest.to_string()), Some(digest));
        }
        for number in [0, 1, u128::MAX] {
            let digest = AttributesDigest(number);
            assert_eq!(AttributesDigest::parse(&digest.to_string()), Some(digest));
        }
    }

    #[test]
    fn a_text_that_is_no_digest_is_refused() {
        for wrong in ["", "1", "+123456789abcdef", "0123456789abcdef0", "g123456789abcdef"] {
            assert_eq!(ClassDigest::parse(wrong), None, "{wrong}");
        }
        let wrong =
            ["", "1", "+123456789abcdef0123456789abcdef", "g123456789abcdef0123456789abcdef"];
        for wrong in wrong {
            assert_eq!(AttributesDigest::parse(wrong), None, "{wrong}");
        }
    }
}
