//! A disk in memory that loses power after a number of calls and forgets what was not synced.
//!
//! After a cut each unsynced sector is there or not, as a die decides, and so is each unsynced
//! length; of the unsynced changes of names a prefix is there, as a journal keeps them.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rota_storage::{Disk, DiskFile, Lock};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

const SECTOR: usize = 512;

#[derive(Clone, Debug)]
enum Change {
    Write { offset: usize, bytes: Vec<u8> },
    SetLen(usize),
}

#[derive(Clone, Default, Debug)]
struct Contents {
    now: Vec<u8>,
    durable: Vec<u8>,
    unsynced: Vec<Change>,
}

#[derive(Clone, Debug)]
enum NameChange {
    Link(PathBuf, usize),
    Unlink(PathBuf),
}

type Names = BTreeMap<PathBuf, usize>;

fn apply_name(names: &mut Names, change: &NameChange) {
    match change {
        NameChange::Link(path, file) => names.insert(path.clone(), *file),
        NameChange::Unlink(path) => names.remove(path),
    };
}

#[derive(Debug)]
struct State {
    files: Vec<Contents>,
    names: Names,
    durable_names: Names,
    /// Groups: a rename is one change or none.
    unsynced_names: Vec<Vec<NameChange>>,
    locked: BTreeSet<PathBuf>,
    calls_left: u64,
    syncs_left: u64,
    forbidden: Option<PathBuf>,
    random: ChaCha8Rng,
}

/// The disk. Clones are the same disk.
#[derive(Clone, Debug)]
pub struct ForgetfulDisk {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct Locked {
    disk: ForgetfulDisk,
    file: PathBuf,
}

impl Drop for Locked {
    fn drop(&mut self) {
        self.disk.state().locked.remove(&self.file);
    }
}

#[derive(Debug)]
struct OpenFile {
    disk: ForgetfulDisk,
    file: usize,
}

fn power_is_out() -> io::Error {
    io::Error::other("the power is out")
}

impl ForgetfulDisk {
    pub fn new(seed: u64) -> Self {
        let state = State {
            files: Vec::new(),
            names: Names::new(),
            durable_names: Names::new(),
            unsynced_names: Vec::new(),
            locked: BTreeSet::new(),
            calls_left: u64::MAX,
            syncs_left: u64::MAX,
            forbidden: None,
            random: ChaCha8Rng::seed_from_u64(seed),
        };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// The power goes out after so many changes.
    pub fn power_lasts(&self, calls: u64) {
        self.state().calls_left = calls;
    }

    /// The sync of a file after so many others fails: what it should have made durable is not,
    /// still shows when it is read, and is not tried again by the next sync, as Linux does it.
    pub fn sync_fails_after(&self, syncs: u64) {
        self.state().syncs_left = syncs;
    }

    /// This file cannot be made.
    pub fn forbid(&self, file: &Path) {
        self.state().forbidden = Some(file.to_owned());
    }

    pub fn power_is_out(&self) -> bool {
        self.state().calls_left == 0
    }

    /// The disk as the next start finds it, with power that lasts. This one is of no more use.
    pub fn restart(&self) -> Self {
        self.state().calls_left = 0;
        self.after_a_cut()
    }

    /// The disk as a start would find it if the power went out now. This one goes on.
    pub fn after_a_cut(&self) -> Self {
        let mut state = self.state();
        let state = &mut *state;
        let random = &mut state.random;
        let mut names = state.durable_names.clone();
        let kept = random.random_range(0..=state.unsynced_names.len());
        for change in state.unsynced_names.iter().take(kept).flatten() {
            apply_name(&mut names, change);
        }
        let survives = |contents: &Contents| {
            let now = what_survives(contents, random);
            Contents { durable: now.clone(), now, unsynced: Vec::new() }
        };
        let next = State {
            files: state.files.iter().map(survives).collect(),
            durable_names: names.clone(),
            names,
            unsynced_names: Vec::new(),
            locked: BTreeSet::new(),
            calls_left: u64::MAX,
            syncs_left: u64::MAX,
            forbidden: None,
            random: ChaCha8Rng::seed_from_u64(state.random.random()),
        };
        Self { state: Arc::new(Mutex::new(next)) }
    }

    /// Names and contents of all files.
    pub fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let state = self.state();
        state
            .names
            .iter()
            .map(|(path, &file)| (path.clone(), state.files[file].now.clone()))
            .collect()
    }

    /// A disk with these files.
    pub fn with_files(files: &BTreeMap<PathBuf, Vec<u8>>) -> Self {
        let disk = Self::new(0);
        {
            let mut state = disk.state();
            for (path, bytes) in files {
                let file = state.files.len();
                let (now, durable) = (bytes.clone(), bytes.clone());
                state.files.push(Contents { now, durable, unsynced: Vec::new() });
                state.names.insert(path.clone(), file);
            }
            state.durable_names = state.names.clone();
        }
        disk
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no test panics under the lock")
    }

    /// The state, for a call that changes something: it may be the one that the power dies in.
    fn spend(&self) -> io::Result<MutexGuard<'_, State>> {
        let mut state = self.state();
        state.calls_left = state.calls_left.saturating_sub(1);
        if state.calls_left == 0 { Err(power_is_out()) } else { Ok(state) }
    }

    fn look(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = self.state();
        if state.calls_left == 0 { Err(power_is_out()) } else { Ok(state) }
    }
}

fn write(into: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    let end = offset + bytes.len();
    if into.len() < end {
        into.resize(end, 0);
    }
    into[offset..end].copy_from_slice(bytes);
}

fn apply(bytes: &mut Vec<u8>, change: &Change) {
    match change {
        Change::SetLen(length) => bytes.resize(*length, 0),
        Change::Write { offset, bytes: written } => write(bytes, *offset, written),
    }
}

fn what_survives(contents: &Contents, random: &mut ChaCha8Rng) -> Vec<u8> {
    let mut bytes = contents.durable.clone();
    // Now and then all or nothing, so that neither is rare.
    let chance = [0.0, 0.5, 0.9, 1.0][random.random_range(0..4)];
    for change in &contents.unsynced {
        match change {
            Change::SetLen(length) => {
                if random.random_bool(chance) {
                    bytes.resize(*length, 0);
                }
            }
            Change::Write { offset, bytes: written } => {
                let mut at = 0;
                while at < written.len() {
                    let end = ((offset + at) / SECTOR + 1) * SECTOR - offset;
                    let end = end.min(written.len());
                    if random.random_bool(chance) {
                        write(&mut bytes, offset + at, &written[at..end]);
                    }
                    at = end;
                }
            }
        }
    }
    bytes
}

fn position(offset: u64) -> usize {
    usize::try_from(offset).expect("test files fit memory")
}

impl DiskFile for OpenFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.disk.look()?.files[self.file].now.len() as u64)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let state = self.disk.look()?;
        let bytes = &state.files[self.file].now;
        let from = position(offset);
        let found = bytes.get(from..from + into.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        into.copy_from_slice(found);
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.disk.state();
        if state.calls_left == 0 {
            return Err(power_is_out());
        }
        state.calls_left -= 1;
        // The write during which the power dies may reach the disk in part.
        let (offset, out) = (position(offset), state.calls_left == 0);
        let file = &mut state.files[self.file];
        write(&mut file.now, offset, bytes);
        file.unsynced.push(Change::Write { offset, bytes: bytes.to_vec() });
        if out { Err(power_is_out()) } else { Ok(()) }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.disk.spend()?;
        let file = &mut state.files[self.file];
        file.now.resize(position(len), 0);
        file.unsynced.push(Change::SetLen(position(len)));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.disk.spend()?;
        let fails = state.syncs_left == 0;
        state.syncs_left = state.syncs_left.wrapping_sub(1);
        let file = &mut state.files[self.file];
        if fails {
            file.unsynced.clear();
            return Err(io::Error::from_raw_os_error(5));
        }
        for change in std::mem::take(&mut file.unsynced) {
            apply(&mut file.durable, &change);
        }
        Ok(())
    }
}

impl Disk for ForgetfulDisk {
    fn create_folder(&self, _folder: &Path) -> io::Result<()> {
        Ok(())
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        let state = self.look()?;
        let inside = state.names.keys().filter(|path| path.parent() == Some(folder));
        Ok(inside.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect())
    }

    fn create(&self, file: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.spend()?;
        if state.forbidden.as_deref() == Some(file) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        if let Some(&known) = state.names.get(file) {
            let contents = &mut state.files[known];
            contents.now.clear();
            contents.unsynced.push(Change::SetLen(0));
            return Ok(Arc::new(OpenFile { disk: self.clone(), file: known }));
        }
        let new = state.files.len();
        state.files.push(Contents::default());
        state.names.insert(file.to_owned(), new);
        state.unsynced_names.push(vec![NameChange::Link(file.to_owned(), new)]);
        Ok(Arc::new(OpenFile { disk: self.clone(), file: new }))
    }

    fn open(&self, file: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let state = self.look()?;
        let known = *state.names.get(file).ok_or(io::ErrorKind::NotFound)?;
        Ok(Arc::new(OpenFile { disk: self.clone(), file: known }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.spend()?;
        let file = *state.names.get(from).ok_or(io::ErrorKind::NotFound)?;
        let change =
            vec![NameChange::Unlink(from.to_owned()), NameChange::Link(to.to_owned(), file)];
        change.iter().for_each(|change| apply_name(&mut state.names, change));
        state.unsynced_names.push(change);
        Ok(())
    }

    fn remove(&self, file: &Path) -> io::Result<()> {
        let mut state = self.spend()?;
        state.names.remove(file).ok_or(io::ErrorKind::NotFound)?;
        state.unsynced_names.push(vec![NameChange::Unlink(file.to_owned())]);
        Ok(())
    }

    fn sync_folder(&self, _folder: &Path) -> io::Result<()> {
        let mut state = self.spend()?;
        state.durable_names = state.names.clone();
        state.unsynced_names.clear();
        Ok(())
    }

    fn lock(&self, file: &Path) -> io::Result<Lock> {
        if !self.look()?.locked.insert(file.to_owned()) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(Box::new(Locked { disk: self.clone(), file: file.to_owned() }))
    }
}
