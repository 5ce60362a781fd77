//! Bodies of attachments: what this manager holds, what it is given, what it fetches.
//!
//! ```text
//!  PutBody ──▶ rpc/bodies ──▶ spread ──┬──▶ places ──▶ attachments (digest and size checked, durable)
//!  peers ─ KeepBody ─▶ service ─▶ ─────┘└──▶ KeepBody at the other copies, while the bytes come
//!
//!  driver: FetchBodies ──▶ fetch ──▶ SendBody at other copies ──▶ attachments
//!          Persist ──▶ ledger: which documents name which bodies
//!  GetBody ──▶ naming: does its document name it ──▶ pieces: from here, else from another manager
//! ```
//! Nothing here decides what may commit: the decisions ask [`rota_protocol::Bodies`] whether a body
//! is held, and whatever is held stays for the time of grace.
//!
//! Bytes travel in pieces of at most 1 MiB, a few of them in memory for each stream. Files are read
//! and written on threads that may block, one piece at a time: a slow peer or client holds no thread.

mod channels;
mod failure;
mod fetch;
mod ledger;
mod namers;
mod naming;
mod pieces;
mod places;
mod service;
mod spread;

pub use failure::status_of;
pub use fetch::Fetcher;
pub use ledger::Ledger;
pub use pieces::Pieces;
pub use service::{Sending, keep_body, names_body, send_body};

use crate::clock::Clock;
use crate::driver_state::DriverState;
use crate::mailbox::Mailbox;
use anyhow::{Context, Result};
use channels::Channels;
use namers::Namers;
use places::Places;
use rota_docstore::Digest;
use rota_model::{ClusterName, ManagerId, ManagerNumber, Refusal, RefusalKind, Retry, SlotId};
use rota_proto::refusal;
use rota_ring::View;
use rota_storage::attachments::{AttachmentSettings, Attachments};
use rota_storage::{Label, RealDisk};
use std::future::Future;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tonic::{Status, Streaming};

/// Below the data folder.
const FOLDER: &str = "attachments";

/// Largest body that a manager takes from others, whatever its clients may put: a copy must be able to
/// hold what another manager took. Taking one in needs 8 MiB of memory.
pub const BODY_BYTES_MAX: u64 = 64 * 1024 * 1024 * 1024;

/// How long another manager may leave a stream of bytes without progress. A copy that is silent for
/// less is suspected anyway; with more, an upload would wait for it longer than its client does.
const STALL: Duration = Duration::from_secs(3);

/// Requests to fetch that wait. Whatever finds no room is asked for again.
const ASKED_MAX: usize = 256;

/// Advice to a caller who should come again soon, in milliseconds.
const RETRY_MS: u64 = 200;

/// Opens the bodies in a data folder.
pub fn open(
    folder: &Path,
    cluster: &ClusterName,
    manager: &ManagerId,
    number: ManagerNumber,
    settings: AttachmentSettings,
) -> Result<Attachments> {
    let settings = AttachmentSettings { body_bytes_max: BODY_BYTES_MAX, ..settings };
    let label = Label { cluster: cluster.clone(), manager: manager.clone(), number };
    let (folder, now_ms) = (folder.join(FOLDER), Clock::start().now().wall_ms);
    Attachments::open(Arc::new(RealDisk), &folder, &label, settings, now_ms)
        .with_context(|| format!("folder {} cannot be used", folder.display()))
}

/// Removes the bodies in a data folder.
pub fn remove(folder: &Path) -> Result<()> {
    let folder = folder.join(FOLDER);
    match std::fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("folder {} cannot be removed", folder.display()))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Bodies to fetch, for documents of a slot.
#[derive(Debug)]
struct Asked {
    slot: SlotId,
    bodies: Vec<Digest>,
    /// Documents here name them: they are missing until they are here.
    lasting: bool,
}

/// Another manager that may have a body.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Peer {
    number: ManagerNumber,
    address: String,
}

/// The bodies at this manager. Clones are the same.
#[derive(Clone, Debug)]
pub struct Bodies {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    attachments: Attachments,
    /// For those on their way in.
    places: Places,
    /// Largest body that clients may put.
    put_bytes_max: u64,
    clock: Clock,
    cluster: ClusterName,
    me: ManagerNumber,
    /// What the driver shows of itself: it starts after this.
    seen: OnceLock<watch::Receiver<DriverState>>,
    channels: Channels,
    asked: mpsc::Sender<Asked>,
    // A lock, because the driver writes it and calls look into it. LaneBytes for one look.
    namers: Mutex<Namers>,
}

impl Bodies {
    /// The bodies in an open folder, and who fetches what is missing.
    pub fn new(
        attachments: Attachments,
        cluster: ClusterName,
        me: ManagerNumber,
        mailbox: Mailbox,
        put_bytes_max: u64,
    ) -> (Self, Fetcher) {
        let (asked, asks) = mpsc::channel(ASKED_MAX);
        let (clock, channels) = (Clock::start(), Channels::default());
        let seen = OnceLock::new();
        let namers = Mutex::new(Namers::new(attachments.grace_ms()));
        let places = Places::new(attachments.puts_max());
        let shared = Shared {
            attachments,
            places,
            put_bytes_max,
            clock,
            cluster,
            me,
            seen,
            channels,
            asked,
            namers,
        };
        let bodies = Self { shared: Arc::new(shared) };
        (bodies.clone(), Fetcher::new(bodies, mailbox, asks))
    }

    /// Says where the driver shows the View. Once.
    pub fn follow(&self, seen: watch::Receiver<DriverState>) {
        // A second one would show the same.
        let _ = self.shared.seen.set(seen);
    }

    /// Fetches bodies in the background. Without a word when too much waits: who needs them asks
    /// again.
    pub fn fetch(&self, slot: SlotId, bodies: Vec<Digest>) {
        let _ = self.shared.asked.try_send(Asked { slot, bodies, lasting: false });
    }

    /// The file of a body is damaged: it is fetched again, if anybody has it. Without a word when too
    /// much waits: whoever wants it next asks again.
    fn mend(&self, sha256: Digest) {
        // All managers are asked, whatever the slot.
        let asked = Asked { slot: SlotId(0), bodies: vec![sha256], lasting: true };
        let _ = self.shared.asked.try_send(asked);
    }

    /// Whether a body is here.
    pub fn contains(&self, sha256: &Digest) -> bool {
        self.shared.attachments.contains(sha256)
    }

    fn namers(&self) -> MutexGuard<'_, Namers> {
        // Nothing panics under this lock.
        self.shared.namers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ms(&self) -> u64 {
        self.shared.clock.now().wall_ms
    }

    fn view(&self) -> Result<Arc<View>, Status> {
        let seen = self.shared.seen.get();
        let view = seen.and_then(|it| it.borrow().view.clone());
        view.ok_or_else(|| refused(RefusalKind::NotServing, "this manager has no View yet"))
    }

    /// Whether this manager holds a copy of the partition of a slot, by the View.
    fn is_copy(&self, view: &View, slot: SlotId) -> bool {
        view.part_of(slot).1.has(self.shared.me)
    }

    fn peer(&self, view: &View, number: ManagerNumber) -> Option<Peer> {
        let address = view.managers.get(&number).map(|it| it.grpc.clone())?;
        let is_there = number != self.shared.me && !address.is_empty();
        is_there.then_some(Peer { number, address })
    }

    /// The other managers with a copy of the slot's partition, its owner first.
    fn copies(&self, view: &View, slot: SlotId) -> Vec<Peer> {
        let part = view.part_of(slot).1;
        let others = part.isr.iter().map(|it| it.number).filter(|it| *it != part.owner);
        [part.owner].into_iter().chain(others).filter_map(|it| self.peer(view, it)).collect()
    }

    /// All other managers, those with a copy of the slot's partition first.
    fn peers(&self, view: &View, slot: SlotId) -> Vec<Peer> {
        let mut peers = self.copies(view, slot);
        let others = view.managers.keys().filter_map(|it| self.peer(view, *it));
        let others: Vec<Peer> = others.filter(|it| !peers.contains(it)).collect();
        peers.extend(others);
        peers
    }
}

impl rota_protocol::Bodies for Bodies {
    fn hold(&self, sha256: &Digest) -> Option<u64> {
        self.shared.attachments.renew(sha256, self.now_ms())
    }

    fn damage(&self, sha256: &Digest) -> Option<String> {
        let damage = self.shared.attachments.damage(sha256)?;
        self.mend(*sha256);
        Some(damage.to_string())
    }
}

/// Bodies of manager `a` below a folder.
#[cfg(test)]
pub fn of_test(folder: &Path, cluster: &ClusterName, me: ManagerNumber) -> (Bodies, Fetcher) {
    let id = ManagerId::parse("a").unwrap();
    let opened = open(folder, cluster, &id, me, AttachmentSettings::default());
    Bodies::new(opened.unwrap(), cluster.clone(), me, crate::mailbox::mailbox().0, u64::MAX)
}

/// A refusal of something that may work a little later.
pub fn refused(kind: RefusalKind, text: impl Into<String>) -> Status {
    refusal::status(&Refusal::new(kind, Retry::AfterMs(RETRY_MS), text))
}

/// The same of something that may have happened.
fn undecided(kind: RefusalKind, text: impl Into<String>) -> Status {
    refusal::status(&Refusal::unknown_outcome(kind, Retry::AfterMs(RETRY_MS), text))
}

/// Waits for what a caller sends; refuses one that does not send it in time.
pub async fn in_time<T>(
    what: &str,
    patience: Duration,
    next: impl Future<Output = T>,
) -> Result<T, Refusal> {
    timeout(patience, next).await.map_err(|_| {
        let text = format!("{what} did not come within {} s", patience.as_secs());
        Refusal::new(RefusalKind::DeadlineExceeded, Retry::AfterMs(RETRY_MS), text)
    })
}

/// The first message of a stream that brings a body.
pub async fn announced<T>(
    messages: &mut Streaming<T>,
    patience: Duration,
) -> Result<Option<T>, Status> {
    let first = in_time("the announcement of a body", patience, messages.message()).await;
    first.map_err(|it| refusal::status(&it))?
}
