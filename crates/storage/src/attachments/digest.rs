//! SHA-256 as the name of a body.

use rota_docstore::Digest;
use sha2::{Digest as _, Sha256};

/// The SHA-256 of these bytes.
pub fn digest_of(bytes: &[u8]) -> Digest {
    Digest(Sha256::digest(bytes).into())
}

/// Seed of the checksums inside a body's file, so that pieces of two files that changed places are
/// noticed.
pub(super) fn seed(sha256: &Digest) -> u64 {
    u64::from_le_bytes(*sha256.0.first_chunk().expect("32 bytes"))
}

/// A digest that is being computed.
#[derive(Clone, Default, Debug)]
pub(super) struct Digesting(Sha256);

impl Digesting {
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub fn finish(self) -> Digest {
        Digest(self.0.finalize().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_of_abc_is_the_one_of_the_standard() {
        let text = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(digest_of(b"abc").to_string(), text);
    }
}
