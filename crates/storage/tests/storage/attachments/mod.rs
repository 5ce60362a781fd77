//! Bodies of attachments.

mod bodies;
mod damage;
mod disks;
mod exports;
mod kills;
mod references;

use crate::label;
use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rota_storage::Disk;
use rota_storage::attachments::{
    AttachmentError, AttachmentSettings, Attachments, Digest, Stored, digest_of,
};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

const GRACE_MS: u64 = 1000;

pub fn settings() -> AttachmentSettings {
    AttachmentSettings {
        grace_ms: GRACE_MS,
        body_bytes_max: 1024 * 1024,
        puts_max: 4,
        ..AttachmentSettings::default()
    }
}

pub fn open(disk: Arc<dyn Disk>, folder: &Path) -> Result<Attachments, AttachmentError> {
    Attachments::open(disk, folder, &label(), settings(), 0)
}

/// A body that follows from its number: sizes around the borders of pieces are among them.
pub fn body(number: u64) -> Vec<u8> {
    let sizes = [0, 1, 700, 65_535, 65_536, 65_537, 131_072, 200_000];
    let at = usize::try_from(number).expect("small") % sizes.len();
    let mut bytes = vec![0; sizes[at]];
    ChaCha8Rng::seed_from_u64(number).fill_bytes(&mut bytes);
    // Otherwise all empty bodies were one.
    bytes.extend_from_slice(&number.to_le_bytes());
    bytes
}

pub fn sha(number: u64) -> Digest {
    digest_of(&body(number))
}

pub fn put(store: &Attachments, bytes: &[u8], now_ms: u64) -> Result<Stored, AttachmentError> {
    store.put(digest_of(bytes), bytes.len() as u64, bytes, now_ms)
}

pub fn read(store: &Attachments, sha256: &Digest) -> Result<Vec<u8>, AttachmentError> {
    let mut reader = store.read(sha256)?;
    let mut bytes = Vec::new();
    loop {
        let piece = reader.next_piece()?;
        if piece.is_empty() {
            return Ok(bytes);
        }
        bytes.extend_from_slice(piece);
    }
}

/// Names of all files in the folder but `OWNER` and `LOCK`, in order.
pub fn bodies_on_disk(folder: &Path) -> Vec<String> {
    let names = rota_storage::RealDisk.list(folder).expect("a folder");
    let mut names: Vec<_> =
        names.into_iter().filter(|name| name != "OWNER" && name != "LOCK").collect();
    names.sort();
    names
}

/// A reader that gives a few bytes at a time.
pub struct Trickle<'a>(pub &'a [u8]);

impl Read for Trickle<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let length = into.len().min(self.0.len()).min(777);
        let (now, later) = self.0.split_at(length);
        into[..length].copy_from_slice(now);
        self.0 = later;
        Ok(length)
    }
}
