//! A manager's machine: its disk, its clocks, and its process.

use crate::blob_store::BlobStore;
use crate::disk::SimDisk;
use crate::event::{StoreCall, WALL_START_MS};
use crate::invariant::deadlines::GRACE_MS;
use crate::network::Place;
use rota_model::node_msg::ToNode;
use rota_model::{BootId, Epoch, Now};
use rota_node::ReportId;
use rota_protocol::{Disk, Manager, ManagerConfig, Wait};
use rota_ring::{ClaimRefused, ConfigState};
use std::collections::{BTreeMap, BTreeSet};

/// Who waits for an answer of a manager's process.
#[derive(Clone, Debug)]
pub enum Caller {
    /// A client's call.
    Client(Place, u64),
    /// A node's registration, sent at that time of its clock.
    Register(usize, u64, u64),
    /// A node's sign of life.
    Renew(usize, u64, BootId, u64),
    /// A node's report.
    Report(usize, u64, ReportId),
}

/// Calls that wait for a connection, by machine. One that is there has something waiting.
pub type Links = BTreeMap<usize, Vec<ToNode>>;

/// A manager's machine.
pub struct ManagerHost {
    /// What its process is told.
    pub config: ManagerConfig,
    /// Whether it may come into a ring in which nobody reserved its number.
    pub joins: bool,
    /// It was told to take a number again that has left.
    pub told: bool,
    /// Its number has left, and its process is about to end.
    pub ends: bool,
    /// It stays away until the cluster is healed, whoever starts it.
    pub away: bool,
    /// Its process, when it runs.
    pub process: Option<Manager>,
    /// Counts its processes.
    pub run: u64,
    /// Its disk.
    pub disk: SimDisk,
    /// The bodies on its disk.
    pub blob_store: BlobStore,
    /// It receives nothing before this.
    pub paused_until_us: u64,
    /// Syncs take this many times longer, until then.
    pub slow_disk_until_us: u64,
    /// A sync has already taken longer for that.
    pub slow_disk_felt: bool,
    /// Its wall clock is off by this many ms.
    pub wall_ahead_ms: u64,
    /// What its disk once held.
    pub past: PastDisks,
    pub(crate) mono_ahead_ms: u64,
    pub(crate) waiting: ProcessWaits,
}

/// What a manager's disk once held.
#[derive(Default)]
pub struct PastDisks {
    /// At the crash before, for a planted bug.
    pub at_crash: Option<Disk>,
    /// When the newest run had just taken its number.
    pub backup: Option<Disk>,
    /// When it was lost.
    pub lost: Option<Disk>,
}

/// What is gone with a manager's process.
#[derive(Default)]
pub(crate) struct ProcessWaits {
    /// Who waits for it, by call.
    pub callers: BTreeMap<u64, Caller>,
    /// Orders of operators that are not answered.
    pub orders: BTreeSet<u64>,
    /// What waits for connections to nodes.
    pub links: Links,
    /// What the config store was asked.
    pub store_calls: BTreeSet<StoreCall>,
    /// What a watch of the config store showed last.
    pub watched: Option<u64>,
    /// The driver gathers more before it carries out what was decided.
    pub flush_due: bool,
    /// Its timer.
    pub tick_at_us: Option<u64>,
}

impl ManagerHost {
    /// A machine with an empty disk.
    pub fn new(config: ManagerConfig) -> Self {
        Self {
            config,
            joins: false,
            told: false,
            ends: false,
            away: false,
            process: None,
            run: 0,
            disk: SimDisk::default(),
            blob_store: BlobStore::default(),
            paused_until_us: 0,
            slow_disk_until_us: 0,
            slow_disk_felt: false,
            wall_ahead_ms: 100_000,
            past: PastDisks::default(),
            mono_ahead_ms: 0,
            waiting: ProcessWaits::default(),
        }
    }

    /// A watch showed this. What is refused is asked for again.
    pub(crate) fn watches_on(&mut self, state: &ConfigState, is_ours: bool) {
        let known = self.known_epoch();
        if is_ours && known.is_none_or(|known| state.epoch() >= known) {
            self.waiting.watched = self.waiting.watched.max(Some(state.index));
        }
    }

    /// The disk that acknowledged what was acknowledged last: of a machine that was lost, its own, until
    /// its number is taken by another one.
    pub fn disk_as_acked(&self) -> &Disk {
        self.past
            .lost
            .as_ref()
            .filter(|_| !self.is_claimed())
            .unwrap_or_else(|| self.disk.durable())
    }

    /// What waits in its process, unless that has just been paused and may be late.
    pub fn waits(&self, now_us: u64) -> Option<Vec<Wait>> {
        let awake = now_us >= self.paused_until_us + GRACE_MS * 1000;
        let process = self.process.as_ref().filter(|_| awake)?;
        Some(process.waits(self.now(now_us).mono_ms))
    }

    /// Until when it receives nothing, if it is paused.
    pub fn paused_until(&self, now_us: u64) -> Option<u64> {
        Some(self.paused_until_us).filter(|it| *it > now_us)
    }

    /// The epoch of the View that its process knows.
    pub fn known_epoch(&self) -> Option<Epoch> {
        Some(self.process.as_ref()?.view()?.epoch)
    }

    /// Whether its process has taken its number.
    pub fn is_claimed(&self) -> bool {
        self.process.as_ref().is_some_and(Manager::is_claimed)
    }

    /// Why its process may not take its number, if it was told so.
    pub fn refused(&self) -> Option<&ClaimRefused> {
        self.process.as_ref()?.refused()
    }

    /// It has an empty disk again, and no bodies.
    pub fn empty(&mut self) {
        (self.disk, self.blob_store) = (SimDisk::default(), BlobStore::default());
    }

    /// What its wall clock says.
    pub fn wall_ms(&self, now_us: u64) -> u64 {
        self.now(now_us).wall_ms
    }

    pub(crate) fn now(&self, now_us: u64) -> Now {
        let mono_ms = now_us / 1000 + self.mono_ahead_ms;
        // Offsets are held shifted by 100 s, so that they may be negative.
        let wall_ms = WALL_START_MS + now_us / 1000 + self.wall_ahead_ms - 100_000;
        Now { mono_ms, wall_ms }
    }
}
