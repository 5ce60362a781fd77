//! SHA-256 as the name of a body.

use sha2::{Digest, Sha256 as Hash};
use std::fmt;

/// The SHA-256 of a body: its name here, and what an item of class P says of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sha256([u8; 32]);

impl Sha256 {
    /// The digest of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Hash::digest(bytes).into())
    }

    /// A digest that somebody else computed.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 32 bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Reads the printed form: exactly 64 lower-case hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        let pairs: &[u8; 64] = text.as_bytes().try_into().ok()?;
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(pairs.chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Some(Self(bytes))
    }

    /// Seed of the checksums inside this body's file, so that pieces of two files that changed
    /// places are noticed.
    pub(super) fn seed(&self) -> u64 {
        u64::from_le_bytes(*self.0.first_chunk().expect("32 bytes"))
    }
}

impl fmt::Display for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A digest that is being computed.
#[derive(Clone, Default, Debug)]
pub(super) struct Digesting(Hash);

impl Digesting {
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub fn finish(self) -> Sha256 {
        Sha256(self.0.finalize().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_printed_form_is_read_again_and_nothing_else_is() {
        let text = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let digest = Sha256::of(b"abc");
        assert_eq!(digest.to_string(), text);
        assert_eq!(Sha256::parse(text), Some(digest));
        for wrong in
            [&text[1..], &text.to_uppercase(), &format!("{text}0"), &text.replace('b', "g")]
        {
            assert_eq!(Sha256::parse(wrong), None, "{wrong}");
        }
    }
}
