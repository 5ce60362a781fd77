//! A data folder: who it belongs to, and who has it open.
//!
//! Beside the engine's own files a folder holds `LOCK` (locked while the folder is open) and
//! `OWNER`, a marker that is read before anything else is touched:
//!
//! ```text
//! rota data folder
//! format 6
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
//! damage and never a reason to begin anew. Without a marker a folder must hold nothing: what stands
//! there is another program's, which may be at work in it.

use crate::disk::{Disk, Lock};
use crate::engine::EngineKind;
use crate::error::EngineError;
use crate::layout::{FORMAT, is_engine_file};
use crate::marker::{Fields, Marker};
use rota_model::{ClusterName, ManagerId, ManagerNumber};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64;

const MARKER: Marker = Marker { title: "rota data folder", format: FORMAT };
const OWNER: &str = "OWNER";
const LOCK: &str = "LOCK";

/// What may stand in a folder without an owner: what a first start leaves that was cut short, and
/// what a new file system begins with.
pub(crate) const HARMLESS: [&str; 3] = [LOCK, "OWNER.new", "lost+found"];

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

    /// The label as fields of a marker: cluster, manager, number.
    pub(crate) fn fields(&self) -> [String; 3] {
        let Self { cluster, manager, number } = self;
        [cluster.to_string(), manager.to_string(), number.to_string()]
    }

    /// A number that stands for the label in headers of files.
    pub(crate) fn sum(&self) -> u64 {
        xxh3_64(self.line().as_bytes())
    }
}

/// Whether nothing says yet to whom a folder belongs, also when it is not there. Opening it gives it
/// to its opener for good.
///
/// # Errors
/// The folder cannot be read, or has no owner and holds something: it is another program's, or not
/// whole.
pub fn is_unclaimed(folder: &Path) -> Result<bool, EngineError> {
    match crate::RealDisk.list(folder) {
        Ok(names) if names.iter().any(|name| name == OWNER) => Ok(false),
        Ok(names) => refuse_used(folder, &names).map(|()| true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(EngineError::io("list", folder)(error)),
    }
}

/// Refuses a folder without an owner that holds something.
fn refuse_used(folder: &Path, names: &[String]) -> Result<(), EngineError> {
    if let Some(name) = names.iter().find(|name| is_engine_file(name)) {
        let what = format!("{name} is there without it: the folder is not whole");
        return Err(EngineError::missing(&folder.join(OWNER), what));
    }
    match names.iter().find(|name| !HARMLESS.contains(&name.as_str())) {
        Some(found) => {
            Err(EngineError::Foreign { folder: folder.to_owned(), found: found.clone() })
        }
        None => Ok(()),
    }
}

/// For which number of that manager a folder was begun; `None` while nothing says whose it is.
///
/// # Errors
/// It is another's, or in use; the marker cannot be read; without one, those of [`is_unclaimed`].
pub fn begun_for(
    folder: &Path,
    cluster: &ClusterName,
    manager: &ManagerId,
) -> Result<Option<ManagerNumber>, EngineError> {
    if is_unclaimed(folder)? {
        return Ok(None);
    }
    let mut fields = MARKER.read(&crate::RealDisk, &folder.join(OWNER))?;
    fields.next("engine")?;
    fields.next("state")?;
    let found = read_label(&mut fields)?;
    let number = found.number;
    check_label(
        folder,
        &found,
        &Label { cluster: cluster.clone(), manager: manager.clone(), number },
    )?;
    lock(&crate::RealDisk, folder).map(|_| Some(number))
}

/// Makes a folder nobody's again: its records go, and whoever opens it next may be anybody. For one
/// that was begun in vain. Cut short, it is still `label`'s, and made again by the next to open it.
///
/// # Errors
/// It is in use or another's, or a file cannot be removed.
pub fn give_up(folder: &Path, label: &Label) -> Result<(), EngineError> {
    let disk: Arc<dyn Disk> = Arc::new(crate::RealDisk);
    let folder = Folder::open(disk, folder, label, None, EngineKind::Log)?;
    let (disk, path) = (&folder.disk, &folder.path);
    folder.write_owner(State::New)?;
    let names = disk.list(path).map_err(EngineError::io("list", path))?;
    for name in names.into_iter().filter(|it| is_engine_file(it)).chain([OWNER.to_owned()]) {
        let file = folder.file(&name);
        disk.remove(&file).map_err(EngineError::io("remove", &file))?;
    }
    disk.sync_folder(path).map_err(EngineError::io("sync", path))
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

/// A lock, held for as long as this lives.
pub(crate) struct Held(#[expect(dead_code, reason = "held for its drop")] Lock);

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
        // Before anything is written, also the lock: it may be another program's folder.
        let list = || disk.list(path).map_err(EngineError::io("list", path));
        let is_owned = |names: &[String]| names.iter().any(|name| name == OWNER);
        let before = list()?;
        if !is_owned(&before) {
            refuse_used(path, &before)?;
        }
        let lock = lock(&*disk, path)?;
        let (kind, state) = if is_owned(&list()?) {
            read_owner(&*disk, path, label, wanted)?
        } else {
            (wanted.unwrap_or(otherwise), State::New)
        };
        let folder =
            Self { disk, path: path.to_owned(), label: label.clone(), kind, state, _lock: lock };
        if state == State::New {
            folder.write_owner(State::New)?;
        }
        let path = &folder.path;
        folder.disk.shut_folder(path).map_err(EngineError::io("set the rights of", path))?;
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

    /// What to tell a program that knows no engine of that kind.
    pub fn kept_elsewhere(self) -> EngineError {
        EngineError::OtherEngine { folder: self.path, found: self.kind, wanted: EngineKind::Log }
    }

    /// A file of this folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    fn write_owner(&self, state: State) -> Result<(), EngineError> {
        let [cluster, manager, number] = self.label.fields();
        let fields = [
            ("engine", self.kind.as_str()),
            ("state", state.as_str()),
            ("cluster", &cluster),
            ("manager", &manager),
            ("number", &number),
        ];
        MARKER.write(&*self.disk, &self.file(OWNER), &fields)
    }
}

/// A folder whose records an engine elsewhere keeps: it says whose it is, and is locked while this lives.
#[derive(Debug)]
pub struct Claim(Folder);

impl Claim {
    /// Opens a folder of `kind` on the real disk; makes it when it is not there.
    ///
    /// # Errors
    /// It belongs to another cluster, manager, format or engine, or is in use. Nothing in it was changed.
    pub fn open(path: &Path, label: &Label, kind: EngineKind) -> Result<Self, EngineError> {
        Folder::open(Arc::new(crate::RealDisk), path, label, Some(kind), kind).map(Self)
    }

    /// Whether the records were made once: what is missing now is lost, and never made anew.
    pub fn is_made(&self) -> bool {
        self.0.state == State::Ready
    }

    /// Says that the records are there.
    ///
    /// # Errors
    /// The folder cannot be written to.
    pub fn made(&mut self) -> Result<(), EngineError> {
        self.0.made()
    }
}

fn read_owner(
    disk: &dyn Disk,
    folder: &Path,
    label: &Label,
    wanted: Option<EngineKind>,
) -> Result<(EngineKind, State), EngineError> {
    let mut fields = MARKER.read(disk, &folder.join(OWNER))?;
    let kind = EngineKind::parse(&fields.next("engine")?)
        .ok_or_else(|| fields.damaged("unknown engine"))?;
    let state = fields.next("state")?;
    let state = [State::New, State::Ready]
        .into_iter()
        .find(|known| known.as_str() == state)
        .ok_or_else(|| fields.damaged("unknown state"))?;
    check_label(folder, &read_label(&mut fields)?, label)?;
    match wanted {
        Some(wanted) if wanted != kind => {
            Err(EngineError::OtherEngine { folder: folder.to_owned(), found: kind, wanted })
        }
        Some(_) | None => Ok((kind, state)),
    }
}

/// Reads the three fields of a label.
pub(crate) fn read_label(fields: &mut Fields) -> Result<Label, EngineError> {
    let cluster = ClusterName::parse(&fields.next("cluster")?);
    let cluster = cluster.map_err(|error| fields.damaged(&error.to_string()))?;
    let manager = ManagerId::parse(&fields.next("manager")?);
    let manager = manager.map_err(|error| fields.damaged(&error.to_string()))?;
    let number = fields.next("number")?.parse();
    let number = number.map_err(|_| fields.damaged("the number is no number"))?;
    Ok(Label { cluster, manager, number: ManagerNumber(number) })
}

/// Locks a folder that is there, by its file `LOCK`.
pub(crate) fn lock(disk: &dyn Disk, path: &Path) -> Result<Held, EngineError> {
    let lock_file = path.join(LOCK);
    let lock = disk.lock(&lock_file).map_err(|source| {
        if source.kind() == io::ErrorKind::WouldBlock {
            EngineError::InUse { folder: path.to_owned() }
        } else {
            EngineError::Io { doing: "lock", file: lock_file, source }
        }
    })?;
    Ok(Held(lock))
}

/// Refuses what belongs to another cluster or manager.
pub(crate) fn check_label(folder: &Path, found: &Label, wanted: &Label) -> Result<(), EngineError> {
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
