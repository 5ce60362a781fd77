//! Bodies of attachments: which of them a manager's disk holds, and how managers get them from each
//! other.

use crate::mutants::Bug;
use crate::network::Place;
use crate::world::{Event, World};
use rota_docstore::{Attachment, Digest};
use rota_model::ManagerNumber;
use rota_protocol::{Bodies, Input};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Size of every body.
const BODY_BYTES: u64 = 1;

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

/// For a planted bug: every body is said to be there.
#[derive(Clone, Copy, Debug)]
struct Boast;

impl Bodies for Boast {
    fn hold(&self, _: &Digest) -> Option<u64> {
        Some(BODY_BYTES)
    }
}

/// What somebody attaches.
pub fn attachment_of(who: &str) -> Attachment {
    let mut sha256 = [0; 32];
    for (at, byte) in who.bytes().enumerate() {
        sha256[at % 32] ^= byte.wrapping_add(u8::try_from(at % 256).unwrap_or(0));
    }
    Attachment::new("text/plain", BODY_BYTES, Digest(sha256)).expect("a usual attachment")
}

impl World {
    /// What a manager's process is told of its bodies.
    pub fn blobs_of(&self, number: ManagerNumber) -> Arc<dyn Bodies> {
        if self.plant.as_ref().is_some_and(|it| it.bug == Bug::BodyBoasted) {
            return Arc::new(Boast);
        }
        Arc::new(self.managers.get(&number).map(|it| it.blob_store.clone()).unwrap_or_default())
    }

    /// Somebody puts a body: most managers that run get it before it is named, as a rule.
    pub fn put_body(&mut self, attachment: &Attachment) {
        for host in self.managers.values() {
            if host.process.is_some() && self.rng.permille(800) {
                host.blob_store.put(attachment.sha256());
            }
        }
    }

    /// A manager wants bodies from others.
    pub fn fetch_bodies(
        &mut self,
        number: ManagerNumber,
        run: u64,
        part: ManagerNumber,
        bodies: Vec<Digest>,
    ) {
        let delay_us = self.rng.skewed(1_000, 300_000);
        self.queue.after(delay_us, Event::Fetched(number, run, part, bodies));
    }

    /// They have come, as far as somebody has them who can be reached now.
    pub fn on_fetched(
        &mut self,
        number: ManagerNumber,
        run: u64,
        part: ManagerNumber,
        bodies: &[Digest],
    ) {
        let Some(host) = self.managers.get(&number) else { return };
        let me = Place::Manager(number);
        let mut all = true;
        for sha256 in bodies {
            let has = self.managers.iter().any(|(other, it)| {
                let cut = self.network.is_cut(Place::Manager(*other), me);
                it.process.is_some() && !cut && it.blob_store.has(sha256)
            });
            if has {
                host.blob_store.put(*sha256);
            }
            all &= has;
        }
        if all {
            self.tell_manager(number, run, Input::BodiesFetched { part });
        }
    }
}
