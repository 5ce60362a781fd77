//! Bodies of attachments: which of them a manager's disk holds.

use crate::writing::BODY_BYTES;
use rota_docstore::Digest;
use rota_protocol::Bodies;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The bodies on one manager's disk. What is there stays there, also over a crash.
#[derive(Clone, Debug, Default)]
pub struct BlobStore {
    // A lock, since decisions ask through a shared reference.
    held: Arc<Mutex<BTreeSet<Digest>>>,
}

impl BlobStore {
    fn lock(&self) -> MutexGuard<'_, BTreeSet<Digest>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a body is there.
    pub fn has(&self, sha256: &Digest) -> bool {
        self.lock().contains(sha256)
    }

    /// A body is durable there now.
    pub fn put(&self, sha256: Digest) {
        self.lock().insert(sha256);
    }
}

impl Bodies for BlobStore {
    fn hold(&self, sha256: &Digest) -> Option<u64> {
        self.has(sha256).then_some(BODY_BYTES)
    }
}
