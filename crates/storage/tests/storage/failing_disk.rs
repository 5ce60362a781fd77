//! The real disk, with one failure, or with a gate before every sync.

use rota_storage::{Disk, DiskFile, Lock, RealDisk};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// What fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// A sync, with EIO. The one after it succeeds, as Linux does it.
    Sync,
    /// A write, with ENOSPC, half of it done. So do all that follow.
    Write,
    /// A read, with EIO.
    Read,
    /// A sync of a folder, with EIO.
    FolderSync,
}

impl Fault {
    pub fn parse(text: &str) -> Self {
        let all = [Self::Sync, Self::Write, Self::Read, Self::FolderSync];
        all.into_iter().find(|fault| fault.as_str() == text).expect("a fault")
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sync => "sync",
            Self::Write => "write",
            Self::Read => "read",
            Self::FolderSync => "folder",
        }
    }
}

fn eio() -> io::Error {
    io::Error::from_raw_os_error(5)
}

#[derive(Debug)]
struct Plan {
    fault: Fault,
    /// Calls until it happens.
    left: AtomicU64,
    gate: Gate,
}

/// A disk with a plan. Clones are the same disk.
#[derive(Clone, Debug)]
pub struct FailingDisk(Arc<Plan>);

#[derive(Debug)]
struct FailingFile {
    file: Arc<dyn DiskFile>,
    plan: Arc<Plan>,
}

/// Holds up every sync while it is shut.
#[derive(Default, Debug)]
pub struct Gate {
    shut: Mutex<bool>,
    changed: Condvar,
}

impl Gate {
    pub fn shut(&self) {
        *self.shut.lock().expect("no test panics under the lock") = true;
    }

    pub fn open(&self) {
        *self.shut.lock().expect("no test panics under the lock") = false;
        self.changed.notify_all();
    }

    fn pass(&self) {
        let shut = self.shut.lock().expect("no test panics under the lock");
        let patience = Duration::from_secs(30);
        let waited = self.changed.wait_timeout_while(shut, patience, |shut| *shut);
        assert!(!*waited.expect("no test panics under the lock").0, "the gate stayed shut");
    }
}

impl FailingDisk {
    /// The call of this kind that comes after `calls` others fails.
    pub fn new(fault: Fault, calls: u64) -> Self {
        let left = AtomicU64::new(calls);
        Self(Arc::new(Plan { fault, left, gate: Gate::default() }))
    }

    pub fn sound() -> Self {
        Self::new(Fault::Sync, u64::MAX)
    }

    pub fn gate(&self) -> &Gate {
        &self.0.gate
    }

    fn wrap(&self, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        Arc::new(FailingFile { file, plan: self.0.clone() })
    }
}

impl Plan {
    fn fails(&self, fault: Fault) -> bool {
        if self.fault != fault {
            return false;
        }
        let before = self.left.fetch_update(SeqCst, SeqCst, |left| match fault {
            Fault::Sync | Fault::Read | Fault::FolderSync => Some(left.wrapping_sub(1)),
            Fault::Write => Some(left.saturating_sub(1)),
        });
        before == Ok(0)
    }
}

impl DiskFile for FailingFile {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        if self.plan.fails(Fault::Read) {
            return Err(eio());
        }
        self.file.read_at(offset, into)
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if self.plan.fails(Fault::Write) {
            self.file.write_at(offset, &bytes[..bytes.len() / 2])?;
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.file.write_at(offset, bytes)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }
    fn sync(&self) -> io::Result<()> {
        self.plan.gate.pass();
        if self.plan.fails(Fault::Sync) {
            return Err(eio());
        }
        self.file.sync()
    }
}

impl Disk for FailingDisk {
    fn create_folder(&self, folder: &Path) -> io::Result<()> {
        RealDisk.create_folder(folder)
    }
    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        RealDisk.list(folder)
    }
    fn create(&self, file: &Path) -> io::Result<Arc<dyn DiskFile>> {
        RealDisk.create(file).map(|file| self.wrap(file))
    }
    fn open(&self, file: &Path) -> io::Result<Arc<dyn DiskFile>> {
        RealDisk.open(file).map(|file| self.wrap(file))
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealDisk.rename(from, to)
    }
    fn remove(&self, file: &Path) -> io::Result<()> {
        RealDisk.remove(file)
    }
    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        if self.0.fails(Fault::FolderSync) {
            return Err(eio());
        }
        RealDisk.sync_folder(folder)
    }
    fn lock(&self, file: &Path) -> io::Result<Lock> {
        RealDisk.lock(file)
    }
}
