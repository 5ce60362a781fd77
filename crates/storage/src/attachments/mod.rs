//! Bodies of attachments: files that are stored once per SHA-256, however many items name them.
//!
//! ```text
//!  begin(sha256, size) ──▶ 0000000000000001.new     bytes stream in, size and digest are checked
//!                              │ sync, rename, sync of the folder
//!                              ▼
//!  refer ─▶ ba7816bf…15ad  named by 2 items         readable, as a whole or in ranges
//!  release ▶    "          named by none, since t   readable for the time of grace, then collected
//! ```
//!
//! * A body is whole under its name or not there at all: a put that fails or is cut short leaves a
//!   file `*.new`, which the next start removes.
//! * The caller says which bodies live items name: all counts after a start
//!   ([`Attachments::set_references`]), then each change. **[`Attachments::refer`] comes before the
//!   commit of the item**: it refuses a body that is not here.
//! * Time comes from the caller, in milliseconds of any clock that hardly goes back. A body that
//!   nobody named yet has the same time of grace, so that its item can be committed. After a start
//!   the time of grace begins anew: old content is kept at least as long as it should be.
//! * A file that changed on the disk is found when it is read, and named; from then on the body
//!   counts as missing and may be put again.
//! * The folder also holds `OWNER` (whose it is, and the format) and `LOCK`. The file of a body is
//!   described in `body.rs`, exports at [`Export`].
//!
//! Calls may block on the disk. Each put or read holds one open file and one piece of memory.

mod body;
mod digest;
mod error;
mod export;
mod import;
mod incoming;
mod index;
mod manifest;

pub use body::PIECE_BYTES;
pub use digest::digest_of;
pub use error::AttachmentError;
pub use export::{Export, Exported};
pub use import::Imported;
pub use incoming::{Incoming, Stored};
pub use index::{Collected, Volumes};
pub use manifest::{ENTRIES_MAX, Named};
pub use rota_docstore::Digest;

use self::body::{PieceReader, check_file};
use self::index::Index;
use crate::disk::{Disk, DiskFile, NEW};
use crate::error::EngineError;
use crate::folder::{Held, Label, check_label, lock, read_label};
use crate::layout::FORMAT;
use crate::marker::Marker;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const MARKER: Marker = Marker { title: "rota attachments", format: FORMAT };
const OWNER: &str = "OWNER";
const LOCK: &str = "LOCK";

/// How [`Attachments`] works.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AttachmentSettings {
    /// How long a body that no item names any more stays readable, in milliseconds. Too low: an
    /// export of a large document, or an item that is about to be committed, loses bodies under
    /// its hands; too high: the disk holds what nobody wants.
    pub grace_ms: u64,
    /// Largest body in bytes. Too low: attachments are refused; too high: one put may fill the
    /// disk. A body that is being put takes an eight-thousandth of its size in memory.
    pub body_bytes_max: u64,
    /// Most puts at a time. Too low: callers are refused and come again; too high: the process
    /// runs out of open files.
    pub puts_max: usize,
    /// Most bytes of bodies that no item names, those on their way in included. Too low: what many
    /// callers are about to name is refused, and so is what comes while much was given up; too high:
    /// whoever puts bodies and names none fills the disk. Bodies that items name already
    /// ([`Attachments::begin_wanted`]) are always taken.
    pub free_bytes_max: u64,
    /// Bytes that every body leaves free on the disk, for whatever else is written there. Too low: a
    /// log on the same disk finds none; too high: attachments are refused early. Default 0.
    pub reserve_bytes: u64,
}

impl Default for AttachmentSettings {
    fn default() -> Self {
        let (day_ms, gib) = (24 * 60 * 60 * 1000, 1024 * 1024 * 1024);
        Self {
            grace_ms: day_ms,
            body_bytes_max: 4 * gib,
            puts_max: 64,
            free_bytes_max: 64 * gib,
            reserve_bytes: 0,
        }
    }
}

/// A folder of bodies, open. Clones are the same folder, which stays locked until the last of them
/// is gone.
#[derive(Clone, Debug)]
pub struct Attachments {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    settings: AttachmentSettings,
    // A lock, because puts and reads come from many threads. It is never held over a file.
    index: Mutex<Index>,
    // Held over a rename, a removal and the sync after it: a body that is collected and put again
    // at the same time is there afterwards.
    names: Mutex<()>,
    next_new: AtomicU64,
    puts: AtomicUsize,
    given_up: AtomicBool,
    // Last, so that it is given up last.
    _lock: Held,
}

impl Shared {
    fn index(&self) -> MutexGuard<'_, Index> {
        // No code under the lock can leave the index half changed.
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn names(&self) -> MutexGuard<'_, ()> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn file(&self, sha256: &Digest) -> PathBuf {
        self.path.join(sha256.to_string())
    }

    fn usable(&self) -> Result<(), AttachmentError> {
        if self.given_up.load(Relaxed) {
            return Err(AttachmentError::GivenUp { folder: self.path.clone() });
        }
        Ok(())
    }

    /// Notes a damage before it is told.
    fn noted(&self, error: AttachmentError) -> AttachmentError {
        if let AttachmentError::Damaged { sha256, what, .. } = &error {
            self.index().found_damaged(sha256, what);
            tracing::error!(%sha256, "{error}");
        }
        error
    }
}

impl Attachments {
    /// Opens a folder of bodies, made when it is not there. Refuses one of another cluster, manager
    /// or format, and one that is in use, and changes nothing in it. Left-overs of puts that were
    /// cut short are removed. Damaged files are no reason to refuse: see [`Attachments::damaged`].
    pub fn open(
        disk: Arc<dyn Disk>,
        path: &Path,
        label: &Label,
        settings: AttachmentSettings,
        now_ms: u64,
    ) -> Result<Self, AttachmentError> {
        disk.create_folder(path).map_err(AttachmentError::io("make the folder", path))?;
        let lock = lock(&*disk, path)?;
        let names = disk.list(path).map_err(AttachmentError::io("list", path))?;
        own(&*disk, path, label, &names)?;
        disk.shut_folder(path).map_err(AttachmentError::io("set the rights of", path))?;
        let mut index = Index::default();
        for name in &names {
            let file = path.join(name);
            if let Ok(sha256) = name.parse::<Digest>() {
                note(&*disk, &file, sha256, now_ms, &mut index)?;
            } else if name.ends_with(NEW) {
                disk.remove(&file).map_err(AttachmentError::io("remove", &file))?;
            } else if name != OWNER && name != LOCK {
                tracing::warn!(file = %file.display(), "this is no attachment; it is left alone");
            }
        }
        // What an earlier run renamed may not be durable yet.
        disk.sync_folder(path).map_err(AttachmentError::io("sync the folder", path))?;
        let shared = Shared {
            disk,
            path: path.to_owned(),
            settings,
            index: Mutex::new(index),
            names: Mutex::new(()),
            next_new: AtomicU64::new(1),
            puts: AtomicUsize::new(0),
            given_up: AtomicBool::new(false),
            _lock: lock,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// True when a whole body of this digest is here, as far as is known.
    pub fn contains(&self, sha256: &Digest) -> bool {
        self.shared.index().size(sha256).is_some()
    }

    /// A body's size in bytes, when it is here.
    pub fn size(&self, sha256: &Digest) -> Option<u64> {
        self.shared.index().size(sha256)
    }

    /// Bodies that are here, in order of their digests from the one after `after`, at most `most`
    /// of them, each with its size.
    pub fn list(&self, after: Option<&Digest>, most: usize) -> Vec<(Digest, u64)> {
        self.shared.index().list(after, most)
    }

    /// Bodies whose files are not what was written, as far as is known, each with what is wrong.
    /// To put one again mends it.
    pub fn damaged(&self) -> Vec<AttachmentError> {
        let damaged = self.shared.index().all_damaged();
        let error = |(sha256, what)| {
            let file = self.shared.file(&sha256);
            AttachmentError::Damaged { sha256, file, what }
        };
        damaged.into_iter().map(error).collect()
    }

    /// How much there is. Goes through all bodies.
    pub fn volumes(&self) -> Volumes {
        self.shared.index().volumes()
    }

    /// Begins to put a body. It is needed also where the body is already here: then its bytes are
    /// checked and left out. (Ask [`Attachments::contains`] first to save the way.)
    pub fn begin(&self, sha256: Digest, size: u64) -> Result<Incoming, AttachmentError> {
        Incoming::begin(&self.shared, sha256, size, self.shared.settings.free_bytes_max)
    }

    /// Begins to put a body that an item names already, or is about to: it is taken however many
    /// others no item names.
    pub fn begin_wanted(&self, sha256: Digest, size: u64) -> Result<Incoming, AttachmentError> {
        Incoming::begin(&self.shared, sha256, size, u64::MAX)
    }

    /// Puts a body as a whole from a reader.
    pub fn put(
        &self,
        sha256: Digest,
        size: u64,
        mut bytes: impl Read,
        now_ms: u64,
    ) -> Result<Stored, AttachmentError> {
        let mut incoming = self.begin(sha256, size)?;
        let mut buffer = vec![0; PIECE_BYTES];
        loop {
            match bytes.read(&mut buffer) {
                Ok(0) => return incoming.finish(now_ms),
                Ok(length) => incoming.write(&buffer[..length])?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(AttachmentError::of_stream("read what is put")(error)),
            }
        }
    }

    /// Reads a body. Every piece is verified before it is handed out, and the digest before the
    /// last. What was opened stays readable also when the body is collected meanwhile.
    pub fn read(&self, sha256: &Digest) -> Result<BodyReader, AttachmentError> {
        let (file, path, size) = self.open_body(sha256)?;
        Ok(self.reader(file, path, (*sha256, size), 0..size))
    }

    /// Reads the bytes of a body in `range`, which must lie in it; see [`Attachments::read`].
    pub fn read_range(
        &self,
        sha256: &Digest,
        range: Range<u64>,
    ) -> Result<BodyReader, AttachmentError> {
        let (file, path, size) = self.open_body(sha256)?;
        let Range { start: from, end: to } = range;
        if from > to || to > size {
            return Err(AttachmentError::OutOfRange { sha256: *sha256, from, to, size });
        }
        Ok(self.reader(file, path, (*sha256, size), from..to))
    }

    fn reader(
        &self,
        file: Arc<dyn DiskFile>,
        path: PathBuf,
        body: (Digest, u64),
        range: Range<u64>,
    ) -> BodyReader {
        let pieces = PieceReader::new(file, path, body, range.start, range.end);
        BodyReader { shared: self.shared.clone(), pieces, size: body.1, pending: Vec::new(), at: 0 }
    }

    fn open_body(
        &self,
        sha256: &Digest,
    ) -> Result<(Arc<dyn DiskFile>, PathBuf, u64), AttachmentError> {
        let sha256 = *sha256;
        let path = self.shared.file(&sha256);
        if !self.contains(&sha256) {
            return Err(self.why_unreadable(sha256));
        }
        let file = self.shared.disk.open(&path).map_err(|source| {
            if source.kind() != io::ErrorKind::NotFound {
                return AttachmentError::Io { doing: "open", file: path.clone(), source };
            }
            // Collected since, or taken away by somebody else.
            if !self.contains(&sha256) {
                return AttachmentError::Missing { sha256 };
            }
            let what = "is gone".to_owned();
            self.shared.noted(AttachmentError::Damaged { sha256, file: path.clone(), what })
        })?;
        let size = check_file(&*file, &path, sha256).map_err(|error| self.shared.noted(error))?;
        Ok((file, path, size))
    }

    /// Reads a body to its end and throws it away: `Ok` when nothing in it has changed.
    pub fn verify(&self, sha256: &Digest) -> Result<(), AttachmentError> {
        let mut reader = self.read(sha256)?;
        while !reader.next_piece()?.is_empty() {}
        Ok(())
    }

    /// For how long a body stays that no item names, in milliseconds.
    pub fn grace_ms(&self) -> u64 {
        self.shared.settings.grace_ms
    }

    /// How many bodies may be put at a time.
    pub fn puts_max(&self) -> usize {
        self.shared.settings.puts_max
    }

    /// Says how often live items name each body: all of them, as read from the documents. Returns
    /// the bodies that are named and not here, or damaged: they must come from elsewhere.
    pub fn set_references(&self, counts: &BTreeMap<Digest, u64>, now_ms: u64) -> Vec<Digest> {
        self.shared.index().set_references(counts, now_ms)
    }

    /// How many live items name a body.
    pub fn references(&self, sha256: &Digest) -> u64 {
        self.shared.index().references(sha256)
    }

    /// One more live item names each of these bodies (twice when it stands here twice). Refuses all
    /// when one of them is not here.
    pub fn refer(&self, bodies: &[Digest]) -> Result<(), AttachmentError> {
        let referred = self.shared.index().refer(bodies);
        referred.map_err(|sha256| self.why_unreadable(sha256))
    }

    /// The same for items that are written whether or not the bodies are here. Returns those that
    /// are not, or are damaged: they must come from elsewhere.
    pub fn refer_all(&self, bodies: &[Digest], now_ms: u64) -> Vec<Digest> {
        self.shared.index().refer_all(bodies, now_ms)
    }

    /// Begins the time of grace of a body anew, for an item that is about to name it. Its size in
    /// bytes, when it is here.
    pub fn renew(&self, sha256: &Digest, now_ms: u64) -> Option<u64> {
        self.shared.index().renew(sha256, now_ms)
    }

    /// One live item less names each of these bodies. When it was the last, its time of grace
    /// begins. Refuses all when one of them has not so many references.
    pub fn release(&self, bodies: &[Digest], now_ms: u64) -> Result<(), AttachmentError> {
        let released = self.shared.index().release(bodies, now_ms);
        released.map_err(|sha256| AttachmentError::NotReferenced { sha256 })
    }

    /// What is wrong with the file of a body, when it is known not to be what was written.
    pub fn damage(&self, sha256: &Digest) -> Option<AttachmentError> {
        let what = self.shared.index().damage(sha256)?.to_owned();
        let (sha256, file) = (*sha256, self.shared.file(sha256));
        Some(AttachmentError::Damaged { sha256, file, what })
    }

    fn why_unreadable(&self, sha256: Digest) -> AttachmentError {
        self.damage(&sha256).unwrap_or(AttachmentError::Missing { sha256 })
    }

    /// Removes bodies that no item has named for the time of grace, at most `most` in one call, and
    /// says which.
    pub fn collect(&self, now_ms: u64, most: usize) -> Result<Vec<Collected>, AttachmentError> {
        let shared = &self.shared;
        shared.usable()?;
        let _names = shared.names();
        let taken = shared.index().take_expired(now_ms, shared.settings.grace_ms, most);
        let mut taken = taken.ok_or(AttachmentError::ReferencesUnknown)?;
        for at in 0..taken.len() {
            let file = shared.file(&taken[at].sha256);
            let error = match shared.disk.remove(&file) {
                Ok(()) => continue,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => AttachmentError::io("remove", &file)(error),
            };
            // What is still there is known again, and is tried again later.
            for left in taken.split_off(at) {
                let file = shared.file(&left.sha256);
                note(&*shared.disk, &file, left.sha256, now_ms, &mut shared.index())?;
            }
            return Err(error);
        }
        // Not synced: a body that comes back after a loss of power is free, and goes again.
        Ok(taken)
    }

    /// Keeps bodies from being collected until the answer is dropped. Refuses all when one of them
    /// is not here.
    fn pin(&self, bodies: BTreeSet<Digest>) -> Result<Pinned, AttachmentError> {
        let pinned = self.shared.index().pin(&bodies);
        pinned.map_err(|sha256| self.why_unreadable(sha256))?;
        Ok(Pinned { shared: self.shared.clone(), bodies })
    }
}

/// Bodies that are not collected while this lives.
#[derive(Debug)]
struct Pinned {
    shared: Arc<Shared>,
    bodies: BTreeSet<Digest>,
}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.shared.index().unpin(&self.bodies);
    }
}

/// A body, or a range of it, that is read piece by piece.
#[derive(Debug)]
pub struct BodyReader {
    shared: Arc<Shared>,
    pieces: PieceReader,
    size: u64,
    /// For [`Read`]: what it was given and did not pass on yet.
    pending: Vec<u8>,
    at: usize,
}

impl BodyReader {
    /// Bytes of the whole body.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Bytes that are still to come.
    pub fn left(&self) -> u64 {
        self.pieces.left() + (self.pending.len() - self.at) as u64
    }

    /// The next bytes, at most [`PIECE_BYTES`]; empty at the end.
    pub fn next_piece(&mut self) -> Result<&[u8], AttachmentError> {
        let shared = &self.shared;
        self.pieces.next().map_err(|error| shared.noted(error))
    }
}

impl Read for BodyReader {
    /// An error of the store is inside the [`io::Error`].
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.at == self.pending.len() {
            let mut piece = std::mem::take(&mut self.pending);
            piece.clear();
            piece.extend_from_slice(self.next_piece().map_err(io::Error::other)?);
            (self.pending, self.at) = (piece, 0);
        }
        let rest = &self.pending[self.at..];
        let length = rest.len().min(into.len());
        into[..length].copy_from_slice(&rest[..length]);
        self.at += length;
        Ok(length)
    }
}

/// Checks whose folder it is, or makes it `label`'s when it is new.
fn own(
    disk: &dyn Disk,
    path: &Path,
    label: &Label,
    names: &[String],
) -> Result<(), AttachmentError> {
    let file = path.join(OWNER);
    if names.iter().any(|name| name == OWNER) {
        let found = read_label(&mut MARKER.read(disk, &file)?)?;
        return Ok(check_label(path, &found, label)?);
    }
    if let Some(name) = names.iter().find(|name| name.parse::<Digest>().is_ok()) {
        let what = format!("{name} is there without it: the folder is not whole");
        return Err(EngineError::missing(&file, what).into());
    }
    let [cluster, manager, number] = label.fields();
    let fields = [("cluster", cluster.as_str()), ("manager", &manager), ("number", &number)];
    Ok(MARKER.write(disk, &file, &fields)?)
}

/// Looks at a file with a body's name.
fn note(
    disk: &dyn Disk,
    file: &Path,
    sha256: Digest,
    now_ms: u64,
    index: &mut Index,
) -> Result<(), AttachmentError> {
    let opened = disk.open(file).map_err(AttachmentError::io("open", file))?;
    match check_file(&*opened, file, sha256) {
        Ok(size) => index.stored(sha256, size, now_ms),
        Err(AttachmentError::Damaged { what, .. }) => {
            tracing::error!(file = %file.display(), "this attachment {what}");
            index.damaged(sha256, what, now_ms);
        }
        Err(error) => return Err(error),
    }
    Ok(())
}
