//! Durable documents: records in engines, the thread that commits to them in groups, the bodies of
//! attachments, the store of documents that ties them together, and numbers that a person reads.
//!
//! ```text
//!   DocumentStore ── documents (rota-docstore): what is valid, and its version
//!        ├───────── Writer ── Engine ── records/       one fdatasync for many operations
//!        └───────── Attachments ─────── attachments/   one file for each SHA-256
//! ```
//!
//! Below [`DocumentStore`] keys and values are opaque bytes. The pure core decides what is written;
//! this crate makes it durable, in order, all or nothing, and never lies about it. Managers use the
//! parts: their core has its own log.
//!
//! * [`documents`]: the store; operations, synchronisation and attachments for any number of callers.
//! * [`Engine`]: commit a batch, get, scan. [`LogEngine`] and [`RedbEngine`] fulfil it, and one
//!   suite runs on both.
//! * [`Writer`]: owns an engine on a thread of its own; one commit and one call back for everything
//!   that waits.
//! * [`open`]: a folder that belongs to one manager of one cluster, locked while it is open.
//! * [`attachments`]: bodies stored once per SHA-256, read in ranges, kept for a time of grace,
//!   exported and imported.
//! * [`numbers`]: small numbers of resources, a file for each, as a person reads them.
//! * [`Disk`]: the files under all of these but the numbers, which are their user's alone; tests put one there that fails or
//!   forgets.
//!
//! # What is promised
//! * What was acknowledged survives `kill -9` and a loss of power. After a commit that failed
//!   nothing more is acknowledged, and the process ends ([`end_process`]).
//! * No changed byte goes unnoticed: each record, batch, checkpoint and piece of a body has its
//!   checksum, and an error names the file, the place and the record. Each file says its format;
//!   another one is refused with what to do, and nothing is changed.
//! * A log that was closed in good order and cut off afterwards is refused. Only the end of a log
//!   whose process was killed is taken as it is found: nothing else knows how long it was.
//!
//! # Which engine
//! The log is the default. `examples/bench` writes records of 600 bytes from a closed loop of
//! callers. Figures are ratios to a bare append with fdatasync of the same bytes, in the same
//! minutes, on two cores that were not idle, so each is a range over several runs:
//!
//! | callers | redb, records/s | log, records/s | redb, processor per record | log |
//! |---|---|---|---|---|
//! | 1 | 0.8 | 1.1-1.3 | 1.4-1.7 | 0.4-0.8 |
//! | 16 | 0.2-0.6 | 1.1-2.1 | 2.4-5.8 | 0.7-1.0 |
//! | 64 | 0.2-0.5 | 0.7-2.0 | 4.1-7.9 | 0.9-1.1 |
//! | 256 | 0.1-0.5 | 0.6-1.4 | 4.3-9.7 | 0.8-1.6 |
//!
//! redb writes several pages per record and pays for it with the processor time that an open needs
//! six times over (two writes at each of three managers). The log can be faster than the bare
//! append because it writes into blocks that the file already has, so that a sync need not write
//! metadata. Under many callers it loses a part to the checkpoint that is written beside it.
//!
//! Both engines pass the same suite: conformance, kill -9 in a loop, power cuts that forget what
//! was not synced, failing and full disks, changed and cut off files. The log passes one case more:
//! see [`RedbEngine`].
//!
//! `rota-storage-postgres` keeps the records in a PostgreSQL server, with the same trait, limits and suite; its
//! folder is a [`Claim`] here.
//!
//! No process of this project opens a folder with redb. It stays for three things: the suite runs
//! on two engines that share no code, so that a mistake of the suite or of the trait shows; the
//! bench has a peer that others maintain; and there is a way out, should the log fail.

pub mod attachments;
mod counters;
mod disk;
pub mod documents;
mod engine;
mod error;
mod folder;
mod layout;
mod log;
mod marker;
pub mod numbers;
mod record;
mod redb_engine;
mod writer;

pub use counters::Counters;
pub use disk::{Disk, DiskFile, Lock, RealDisk};
pub use documents::{DocumentStore, Setup, Unanswered};
pub use engine::{
    BATCH_BYTES_MAX, Engine, EngineKind, KEY_BYTES_MAX, KvWrite, VALUE_BYTES_MAX, Visit, check,
};
pub use error::EngineError;
pub use folder::{Claim, Label, begun_for, give_up, is_unclaimed};
pub use layout::FORMAT;
pub use log::{LogEngine, LogSettings};
pub use record::checksum;
// What a [`Label`] is made of.
pub use redb_engine::{RedbEngine, RedbSettings};
pub use rota_model::{ClusterName, ManagerId, ManagerNumber};
pub use writer::{
    EXIT_STATUS, Failure, NotQueued, Pace, QUEUE_BYTES_MAX, StillWriting, Writer, end_process,
};

use std::path::Path;
use std::sync::Arc;

/// How a folder is opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settings {
    /// The engine that must keep the folder. `None`: the one that does, and the log in a new one.
    pub engine: Option<EngineKind>,
    /// For the log.
    pub log: LogSettings,
    /// For redb.
    pub redb: RedbSettings,
}

/// Opens a manager's folder on the real disk; makes it when it is not there. Refuses a folder of
/// another cluster, manager, format or engine, and one that is in use, and changes nothing in it.
pub fn open(
    folder: &Path,
    label: &Label,
    settings: &Settings,
) -> Result<Box<dyn Engine>, EngineError> {
    open_on(Arc::new(RealDisk), folder, label, settings)
}

/// Like [`open`], on any disk.
pub fn open_on(
    disk: Arc<dyn Disk>,
    folder: &Path,
    label: &Label,
    settings: &Settings,
) -> Result<Box<dyn Engine>, EngineError> {
    let folder = folder::Folder::open(disk, folder, label, settings.engine, EngineKind::Log)?;
    Ok(match folder.kind {
        EngineKind::Log => Box::new(LogEngine::open_folder(folder, settings.log)?),
        EngineKind::Redb => Box::new(RedbEngine::open_folder(folder, settings.redb)?),
        EngineKind::Postgres => return Err(folder.kept_elsewhere()),
    })
}
