//! The bodies of documents, as each manager of the table has them.

use rota_docstore::Digest;
use std::collections::BTreeSet;
use std::sync::Mutex;

/// The bodies on one manager's disk.
#[derive(Debug, Default)]
pub struct BlobStore {
    held: Mutex<BTreeSet<Digest>>,
    damaged: Mutex<BTreeSet<Digest>>,
}

impl BlobStore {
    pub fn has(&self, sha256: Digest) -> bool {
        self.held.lock().unwrap().contains(&sha256)
    }

    pub fn put(&self, sha256: Digest) {
        self.damaged.lock().unwrap().remove(&sha256);
        self.held.lock().unwrap().insert(sha256);
    }

    /// All bodies are lost.
    pub fn clear(&self) {
        self.held.lock().unwrap().clear();
    }

    /// Its file is found to be damaged.
    pub fn damage(&self, sha256: Digest) {
        self.held.lock().unwrap().remove(&sha256);
        self.damaged.lock().unwrap().insert(sha256);
    }
}

impl rota_protocol::Bodies for BlobStore {
    /// Each has 9 bytes.
    fn hold(&self, sha256: &Digest) -> Option<u64> {
        self.has(*sha256).then_some(9)
    }

    fn damage(&self, sha256: &Digest) -> Option<String> {
        let is_damaged = self.damaged.lock().unwrap().contains(sha256);
        is_damaged.then(|| format!("file {sha256} ends early"))
    }
}
