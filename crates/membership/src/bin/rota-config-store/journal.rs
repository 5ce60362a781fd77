//! The one durable file: the state at some moment, and every change since.
//!
//! ```text
//!   rota config store, format 1\n
//!   frame 0: the state, as it goes over the wire (it names the cluster)
//!   frame 1..: {"first": index, "changes": [...]}   one frame per write and sync
//! ```
//!
//! A file appears only by rename of a whole, synced one, so its first frame is never torn.

use crate::frame::{self, Found};
use rota_daemon::private::shut_folder;
use rota_membership::wire::{state_from_json, state_to_json};
use rota_model::ClusterName;
use rota_ring::{Change, ConfigState};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

const FIRST_LINE: &str = "rota config store, format ";
const FORMAT: u32 = 1;
const FILE_NAME: &str = "config-store.log";
const NEW_FILE_NAME: &str = "config-store.new";
const LOCK_FILE_NAME: &str = "config-store.lock";

/// What may stand in a folder without the file: what a first start leaves that was cut short, and
/// what a new file system begins with.
const HARMLESS: [&str; 3] = [NEW_FILE_NAME, LOCK_FILE_NAME, "lost+found"];

/// Why the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The system refused.
    #[error("cannot {doing} {}: {source}", path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// With which file.
        path: PathBuf,
        /// Its answer.
        source: io::Error,
    },
    /// Another process has it.
    #[error(
        "{} is in use by another config store (process {holder}): stop that one, or give this one \
         its own --data folder", path.display()
    )]
    InUse {
        /// The lock file.
        path: PathBuf,
        /// Who, as it wrote itself; may be empty.
        holder: String,
    },
    /// The folder holds something, and not a config store's file.
    #[error(
        "{} holds {found} and no {FILE_NAME}: it is not a config store's folder; give an empty one \
         (--data), or the one that this config store had", folder.display()
    )]
    Foreign {
        /// The folder.
        folder: PathBuf,
        /// A name in it.
        found: String,
    },
    /// Written by another version, or not by a config store at all.
    #[error(
        "{} begins with {found:?} instead of \"{FIRST_LINE}{FORMAT}\": start the version that \
         wrote it, or give another --data folder", path.display()
    )]
    Format {
        /// The file.
        path: PathBuf,
        /// Its first line.
        found: String,
    },
    /// It belongs to another cluster.
    #[error(
        "{} belongs to cluster {found:?}, and this process was started for {expected:?}: start it \
         with --cluster {found:?}, or give another --data folder", path.display()
    )]
    Cluster {
        /// The file.
        path: PathBuf,
        /// Its cluster.
        found: String,
        /// The cluster asked for.
        expected: String,
    },
    /// Something that was written and synced is no longer what it was.
    #[error(
        "{} is damaged at offset {offset}: {problem}. Nothing was changed. Restore the file from a \
         copy; what was written after that copy is lost", path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where the damaged record begins, in bytes.
        offset: usize,
        /// What is wrong there.
        problem: String,
    },
    /// A record would be too long.
    #[error("a record of {0} bytes is too long")]
    TooLong(usize),
}

#[derive(Serialize)]
struct ChangesOut<'a> {
    first: u64,
    changes: &'a [&'a Change],
}

#[derive(Deserialize)]
struct ChangesIn {
    first: u64,
    changes: Vec<Change>,
}

#[derive(Deserialize)]
struct ClusterOnly {
    cluster: String,
}

/// The open file. While it lives, no other process can open it.
#[derive(Debug)]
pub struct Journal {
    folder: PathBuf,
    path: PathBuf,
    cluster: ClusterName,
    file: File,
    /// Number of the next frame.
    next_frame: u64,
    /// Bytes of the first frame, and of all changes after it.
    base_bytes: usize,
    changes_bytes: usize,
    compact_after: usize,
    // Held, never read: the lock goes with the file handle, also at kill -9.
    _lock: File,
}

impl Journal {
    /// Opens the file in `folder`, or makes an empty one. Whatever it holds is written anew and
    /// synced before this returns: after a failed sync the system may show bytes that never
    /// reached the disk, and they must not be built upon.
    ///
    /// # Errors
    /// [`JournalError`]; nothing on disk was changed then.
    pub fn open(
        folder: &Path,
        cluster: &ClusterName,
        compact_after: usize,
    ) -> Result<(Self, ConfigState), JournalError> {
        make_folder(folder)?;
        refuse_foreign(folder)?;
        let lock = lock(folder)?;
        let path = folder.join(FILE_NAME);
        let state = match std::fs::read(&path) {
            Ok(bytes) => load(&path, cluster, &bytes)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => ConfigState::default(),
            Err(error) => return Err(io_error("read", &path)(error)),
        };
        let json = state_to_json(cluster, &state);
        let (file, base_bytes) = write_anew(folder, &json)?;
        shut_folder(folder).map_err(io_error("set the rights in", folder))?;
        let journal = Self {
            folder: folder.to_owned(),
            path,
            cluster: cluster.clone(),
            file,
            next_frame: 1,
            base_bytes,
            changes_bytes: 0,
            compact_after,
            _lock: lock,
        };
        Ok((journal, state))
    }

    /// Name of the cluster.
    pub fn cluster(&self) -> &ClusterName {
        &self.cluster
    }

    /// Appends changes, the first of which makes index `first`, and syncs. After an error nothing
    /// may be acknowledged any more: the process must end.
    ///
    /// # Errors
    /// The write or the sync failed.
    pub fn append(&mut self, first: u64, changes: &[&Change]) -> Result<(), JournalError> {
        let content = serde_json::to_vec(&ChangesOut { first, changes })
            .expect("strings, numbers and number-keyed maps serialise");
        let bytes = frame::encode(self.next_frame, &content)
            .map_err(|_| JournalError::TooLong(content.len()))?;
        self.file.write_all(&bytes).map_err(io_error("write", &self.path))?;
        self.file.sync_data().map_err(io_error("sync", &self.path))?;
        self.next_frame += 1;
        self.changes_bytes += bytes.len();
        Ok(())
    }

    /// Replaces the file by one that holds only `state_json`, when the changes since the last
    /// time are many: more bytes than `compact_after` and four times the state.
    ///
    /// # Errors
    /// As [`Self::append`].
    pub fn compact_if_due(&mut self, state_json: &[u8]) -> Result<(), JournalError> {
        if self.changes_bytes <= self.compact_after.max(4 * self.base_bytes) {
            return Ok(());
        }
        let before = self.changes_bytes + self.base_bytes;
        (self.file, self.base_bytes) = write_anew(&self.folder, state_json)?;
        self.changes_bytes = 0;
        self.next_frame = 1;
        tracing::debug!(before, after = self.base_bytes, "wrote the file anew");
        Ok(())
    }
}

fn io_error(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> JournalError {
    let path = path.to_owned();
    move |source| JournalError::Io { doing, path, source }
}

fn make_folder(folder: &Path) -> Result<(), JournalError> {
    if folder.is_dir() {
        return Ok(());
    }
    std::fs::create_dir_all(folder).map_err(io_error("create", folder))?;
    let parent = folder.parent().filter(|it| !it.as_os_str().is_empty());
    sync_folder(parent.unwrap_or(Path::new(".")))
}

/// Refuses a folder that is another program's, which may be at work in it.
fn refuse_foreign(folder: &Path) -> Result<(), JournalError> {
    if folder.join(FILE_NAME).exists() {
        return Ok(());
    }
    let entries = std::fs::read_dir(folder).map_err(io_error("read", folder))?;
    let mut names = entries.flatten().map(|it| it.file_name().to_string_lossy().into_owned());
    match names.find(|name| !HARMLESS.contains(&name.as_str())) {
        Some(found) => Err(JournalError::Foreign { folder: folder.to_owned(), found }),
        None => Ok(()),
    }
}

fn sync_folder(folder: &Path) -> Result<(), JournalError> {
    let opened = File::open(folder).map_err(io_error("open", folder))?;
    opened.sync_all().map_err(io_error("sync", folder))
}

fn lock(folder: &Path) -> Result<File, JournalError> {
    let path = folder.join(LOCK_FILE_NAME);
    let mut options = OpenOptions::new();
    let mut file = options
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .map_err(io_error("open", &path))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            // Only for the message; an unreadable number is left out of it.
            file.read_to_string(&mut holder).ok();
            return Err(JournalError::InUse { path, holder });
        }
        Err(TryLockError::Error(source)) => return Err(io_error("lock", &path)(source)),
    }
    file.set_len(0).map_err(io_error("write", &path))?;
    write!(file, "{}", std::process::id()).map_err(io_error("write", &path))?;
    Ok(file)
}

/// Writes a file that holds only this state: beside the old one, synced, then renamed over it.
fn write_anew(folder: &Path, state_json: &[u8]) -> Result<(File, usize), JournalError> {
    let new = folder.join(NEW_FILE_NAME);
    let path = folder.join(FILE_NAME);
    let frame =
        frame::encode(0, state_json).map_err(|_| JournalError::TooLong(state_json.len()))?;
    let mut file = File::create(&new).map_err(io_error("create", &new))?;
    let head = format!("{FIRST_LINE}{FORMAT}\n");
    file.write_all(head.as_bytes()).map_err(io_error("write", &new))?;
    file.write_all(&frame).map_err(io_error("write", &new))?;
    file.sync_all().map_err(io_error("sync", &new))?;
    std::fs::rename(&new, &path).map_err(io_error("rename", &new))?;
    sync_folder(folder)?;
    Ok((file, frame.len()))
}

fn load(path: &Path, cluster: &ClusterName, bytes: &[u8]) -> Result<ConfigState, JournalError> {
    let mut offset = check_first_line(path, bytes)?;
    let mut number = 0;
    let mut state = ConfigState::default();
    loop {
        let damaged =
            |problem: String| JournalError::Damaged { path: path.to_owned(), offset, problem };
        let frame = match frame::read(bytes, offset) {
            Found::Whole(frame) => frame,
            Found::End if number > 0 => return Ok(state),
            Found::Torn if number > 0 => {
                let cut = bytes.len() - offset;
                let file = path.display();
                tracing::warn!(
                    %file, offset, cut,
                    "the last record is torn, so it was never acknowledged; it is cut off"
                );
                return Ok(state);
            }
            Found::End | Found::Torn => {
                return Err(damaged("the first record is not whole".into()));
            }
            Found::Damaged(later) => {
                return Err(damaged(format!(
                    "the record there fails its checksum, and a whole one follows at {later}"
                )));
            }
        };
        if frame.number != number {
            let found = frame.number;
            return Err(damaged(format!("record {found} stands where {number} belongs")));
        }
        if number == 0 {
            check_cluster(path, cluster, frame.content)?;
            state = state_from_json(cluster, frame.content).map_err(damaged)?;
        } else {
            state = replay(state, frame.content).map_err(damaged)?;
        }
        number += 1;
        offset = frame.end;
    }
}

fn check_first_line(path: &Path, bytes: &[u8]) -> Result<usize, JournalError> {
    let expected = format!("{FIRST_LINE}{FORMAT}\n");
    if bytes.starts_with(expected.as_bytes()) {
        return Ok(expected.len());
    }
    let line = bytes.split(|it| *it == b'\n').next().unwrap_or_default();
    let found = String::from_utf8_lossy(&line[..line.len().min(80)]).into_owned();
    Err(JournalError::Format { path: path.to_owned(), found })
}

fn check_cluster(path: &Path, cluster: &ClusterName, json: &[u8]) -> Result<(), JournalError> {
    match serde_json::from_slice::<ClusterOnly>(json) {
        Ok(found) if found.cluster != cluster.as_str() => Err(JournalError::Cluster {
            path: path.to_owned(),
            found: found.cluster,
            expected: cluster.to_string(),
        }),
        // What does not parse is named by the reader of the state.
        Ok(_) | Err(_) => Ok(()),
    }
}

fn replay(mut state: ConfigState, json: &[u8]) -> Result<ConfigState, String> {
    let record: ChangesIn = serde_json::from_slice(json)
        .map_err(|error| format!("the record there is whole but does not parse: {error}"))?;
    if record.first != state.index + 1 {
        let (first, index) = (record.first, state.index);
        return Err(format!("the record there makes index {first} after index {index}"));
    }
    for change in &record.changes {
        let Some(next) = change.apply(&state) else {
            return Err(format!("the change to index {} does not fit", state.index + 1));
        };
        if let Some(view) = &change.view {
            view.check().map_err(|error| error.to_string())?;
        }
        state = next;
    }
    Ok(state)
}
