//! A data folder: who it belongs to, and who has it open.
//!
//! Beside the engine's own files a folder holds `LOCK` (locked while the folder is open) and
//! `OWNER`, a few lines of text that are read before anything else is touched:
//!
//! ```text
//! rota data folder
//! format 1
//! engine log
//! state ready
//! cluster demo
//! manager m1
//! number 0
//! check 91f2c0d35a7be604
//! ```
//!
//! `state new` stands there while the engine's files are made for the first time: what a start
//! finds in that state was never used and is made again. Once it says `ready`, a missing file is
//! damage and never a reason to begin anew.

use crate::disk::{Disk, Lock, replace_file};
use crate::engine::EngineKind;
use crate::error::EngineError;
use rota_model::{ClusterName, ManagerId, ManagerNumber};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64;

/// Version of everything in a data folder.
pub const FORMAT: u32 = 1;

const TITLE: &str = "rota data folder";
const OWNER: &str = "OWNER";
const LOCK: &str = "LOCK";
/// An `OWNER` file is three names of at most 255 bytes and a few words.
const OWNER_BYTES_MAX: u64 = 4 * 1024;

/// Whose records a folder holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Label {
    /// The cluster.
    pub cluster: ClusterName,
    /// The manager.
    pub manager: ManagerId,
    /// The manager's reserved number.
    pub number: ManagerNumber,
}

impl Label {
    /// The label in one line, as engines store it in their own files.
    pub(crate) fn line(&self) -> String {
        format!("{}\n{}\n{}", self.cluster, self.manager, self.number)
    }

    /// A number that stands for the label in headers of files.
    pub(crate) fn sum(&self) -> u64 {
        xxh3_64(self.line().as_bytes())
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    New,
    Ready,
}

impl State {
    fn as_str(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Ready => "ready",
        }
    }
}

/// An open folder. It stays locked for as long as this lives.
#[derive(Debug)]
pub(crate) struct Folder {
    pub disk: Arc<dyn Disk>,
    pub path: PathBuf,
    pub label: Label,
    pub kind: EngineKind,
    pub state: State,
    _lock: Held,
}

struct Held(#[expect(dead_code, reason = "held for its drop")] Lock);

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Held")
    }
}

impl Folder {
    /// Locks a folder and checks that it is `label`'s. `wanted` is the engine that must keep it;
    /// `None` takes the one that does, and `otherwise` in a new folder.
    pub fn open(
        disk: Arc<dyn Disk>,
        path: &Path,
        label: &Label,
        wanted: Option<EngineKind>,
        otherwise: EngineKind,
    ) -> Result<Self, EngineError> {
        disk.create_folder(path).map_err(EngineError::io("make the folder", path))?;
        let lock_file = path.join(LOCK);
        let lock = disk.lock(&lock_file).map_err(|source| {
            if source.kind() == io::ErrorKind::WouldBlock {
                EngineError::InUse { folder: path.to_owned() }
            } else {
                EngineError::Io { doing: "lock", file: lock_file, source }
            }
        })?;
        let names = disk.list(path).map_err(EngineError::io("list", path))?;
        let (kind, state) = if names.iter().any(|name| name == OWNER) {
            read_owner(&*disk, path, label, wanted)?
        } else {
            if let Some(name) = names.iter().find(|name| is_engine_file(name)) {
                let what = format!("{name} is there without it: the folder is not whole");
                return Err(EngineError::missing(&path.join(OWNER), what));
            }
            (wanted.unwrap_or(otherwise), State::New)
        };
        let folder = Self {
            disk,
            path: path.to_owned(),
            label: label.clone(),
            kind,
            state,
            _lock: Held(lock),
        };
        if state == State::New {
            folder.write_owner(State::New)?;
        }
        Ok(folder)
    }

    /// Says that the engine's files are complete.
    pub fn made(&mut self) -> Result<(), EngineError> {
        if self.state == State::New {
            self.write_owner(State::Ready)?;
            self.state = State::Ready;
        }
        Ok(())
    }

    /// A file of this folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    fn write_owner(&self, state: State) -> Result<(), EngineError> {
        let file = self.file(OWNER);
        replace_file(&*self.disk, &file, owner_text(&self.label, self.kind, state).as_bytes())
            .map_err(EngineError::io("write", &file))
    }
}

/// True for names that engines give to their files.
fn is_engine_file(name: &str) -> bool {
    name == crate::redb_engine::FILE || crate::log::is_log_file(name)
}

fn owner_text(label: &Label, kind: EngineKind, state: State) -> String {
    let Label { cluster, manager, number } = label;
    let state = state.as_str();
    let body = format!(
        "{TITLE}\nformat {FORMAT}\nengine {kind}\nstate {state}\n\
         cluster {cluster}\nmanager {manager}\nnumber {number}\n"
    );
    let check = xxh3_64(body.as_bytes());
    format!("{body}check {check:016x}\n")
}

fn read_owner(
    disk: &dyn Disk,
    folder: &Path,
    label: &Label,
    wanted: Option<EngineKind>,
) -> Result<(EngineKind, State), EngineError> {
    let file = folder.join(OWNER);
    let damaged = |what: &str| EngineError::missing(&file, what);
    let bytes = read_small(disk, &file).map_err(EngineError::io("read", &file))?;
    let text = String::from_utf8(bytes).map_err(|_| damaged("it is no text"))?;
    let (body, check) = text.rsplit_once("check ").ok_or_else(|| damaged("it has no last line"))?;
    let mut lines = body.lines();
    if lines.next() != Some(TITLE) {
        return Err(damaged("it does not begin as such a file does"));
    }
    let mut field = |name: &str| {
        let line = lines.next().and_then(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.map(str::to_owned).ok_or_else(|| damaged(&format!("it has no line \"{name}\"")))
    };
    // The format comes first: another format may have other lines and another check.
    let format = field("format")?;
    if format != FORMAT.to_string() {
        return Err(EngineError::OtherFormat { file: file.clone(), found: format, wanted: FORMAT });
    }
    if check.trim_end() != format!("{:016x}", xxh3_64(body.as_bytes())) {
        return Err(damaged("its text does not match its last line"));
    }
    let kind = EngineKind::parse(&field("engine")?).ok_or_else(|| damaged("unknown engine"))?;
    let state = field("state")?;
    let state = [State::New, State::Ready]
        .into_iter()
        .find(|known| known.as_str() == state)
        .ok_or_else(|| damaged("unknown state"))?;
    let cluster = ClusterName::parse(&field("cluster")?).map_err(|e| damaged(&e.to_string()))?;
    let manager = ManagerId::parse(&field("manager")?).map_err(|e| damaged(&e.to_string()))?;
    let number = field("number")?.parse().map_err(|_| damaged("the number is no number"))?;
    check_label(folder, &Label { cluster, manager, number: ManagerNumber(number) }, label)?;
    match wanted {
        Some(wanted) if wanted != kind => {
            Err(EngineError::OtherEngine { folder: folder.to_owned(), found: kind, wanted })
        }
        Some(_) | None => Ok((kind, state)),
    }
}

/// Refuses what belongs to another cluster or manager.
fn check_label(folder: &Path, found: &Label, wanted: &Label) -> Result<(), EngineError> {
    let folder = folder.to_owned();
    if found.cluster != wanted.cluster {
        let (found, wanted) = (found.cluster.clone(), wanted.cluster.clone());
        return Err(EngineError::OtherCluster { folder, found, wanted });
    }
    if found != wanted {
        let found = (found.manager.clone(), found.number);
        let wanted = (wanted.manager.clone(), wanted.number);
        return Err(EngineError::OtherManager { folder, found, wanted });
    }
    Ok(())
}

fn read_small(disk: &dyn Disk, file: &Path) -> io::Result<Vec<u8>> {
    let opened = disk.open(file)?;
    let length = opened.len()?.min(OWNER_BYTES_MAX);
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
    opened.read_at(0, &mut bytes)?;
    Ok(bytes)
}
