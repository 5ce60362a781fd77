//! Files as engines see them.
//!
//! Engines reach the disk only through [`Disk`], so that both of them run unchanged on a disk that
//! fails at a chosen call or forgets what was not synced; [`RealDisk`] is the one in use. What it makes is
//! its user's alone, whatever the umask of the process.

use std::any::Any;
use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

/// Rights of folders and of files.
const FOLDER: u32 = 0o700;
const FILE: u32 = 0o600;
/// Ending of a file that is being written, until it gets its name.
pub(crate) const NEW: &str = ".new";
/// What a group and others may do.
const OTHERS: u32 = 0o077;

/// Keeps a folder locked until it is dropped.
pub type Lock = Box<dyn Any + Send + Sync>;

/// An open file.
pub trait DiskFile: fmt::Debug + Send + Sync {
    /// Length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// True when there is no byte.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Fills `into` from `offset`; an end of file inside is an error.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;
    /// Writes all of `bytes` at `offset`, growing the file as needed.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Cuts the file, or grows it with zeros.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Makes everything written so far, and the length, survive a loss of power.
    fn sync(&self) -> io::Result<()>;
}

/// Files and folders.
pub trait Disk: fmt::Debug + Send + Sync {
    /// Makes a folder and its parents, durably. One that exists is no error.
    fn create_folder(&self, folder: &Path) -> io::Result<()>;
    /// Names of the files in a folder.
    fn list(&self, folder: &Path) -> io::Result<Vec<String>>;
    /// Makes an empty file, replacing one that exists.
    fn create(&self, file: &Path) -> io::Result<Arc<dyn DiskFile>>;
    /// Opens a file that exists, for reading and writing.
    fn open(&self, file: &Path) -> io::Result<Arc<dyn DiskFile>>;
    /// Gives a file another name, replacing one that exists.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, file: &Path) -> io::Result<()>;
    /// Makes names in a folder survive a loss of power.
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;
    /// Locks a file, made when it is not there. [`io::ErrorKind::WouldBlock`] when someone else
    /// has it.
    fn lock(&self, file: &Path) -> io::Result<Lock>;
    /// Shuts a folder of ours that others may read: one that somebody made for it, or that an earlier
    /// version made. Then the files in it are shut, too. Default: nothing, on a disk without rights.
    fn shut_folder(&self, folder: &Path) -> io::Result<()> {
        let _ = folder;
        Ok(())
    }
    /// Bytes that may still be written where a folder is. Default: as many as there are.
    fn free_bytes(&self, folder: &Path) -> io::Result<u64> {
        let _ = folder;
        Ok(u64::MAX)
    }
}

/// The operating system's files.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

impl DiskFile for File {
    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(into, offset)
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        File::set_len(self, len)
    }
    fn sync(&self) -> io::Result<()> {
        // fdatasync: it leaves out times, but not a changed length.
        self.sync_data()
    }
}

impl Disk for RealDisk {
    fn create_folder(&self, folder: &Path) -> io::Result<()> {
        let missing: Vec<&Path> = folder
            .ancestors()
            .take_while(|path| !path.as_os_str().is_empty() && !path.exists())
            .collect();
        DirBuilder::new().recursive(true).mode(FOLDER).create(folder)?;
        for made in missing {
            let parent = made.parent().filter(|parent| !parent.as_os_str().is_empty());
            self.sync_folder(parent.unwrap_or(Path::new(".")))?;
        }
        Ok(())
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(folder)? {
            // A name that is no text is none of ours.
            names.extend(entry?.file_name().into_string().ok());
        }
        Ok(names)
    }

    fn create(&self, file: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true).mode(FILE);
        Ok(Arc::new(options.open(file)?))
    }

    fn open(&self, file: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(OpenOptions::new().read(true).write(true).open(file)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, file: &Path) -> io::Result<()> {
        fs::remove_file(file)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        File::open(folder)?.sync_all()
    }

    fn lock(&self, file: &Path) -> io::Result<Lock> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(FILE);
        let file = options.open(file)?;
        match file.try_lock() {
            Ok(()) => Ok(Box::new(file)),
            Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn shut_folder(&self, folder: &Path) -> io::Result<()> {
        if fs::metadata(folder)?.permissions().mode() & OTHERS == 0 {
            return Ok(());
        }
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                fs::set_permissions(entry.path(), Permissions::from_mode(FILE))?;
            }
        }
        // Last: a start that is cut short here does it again.
        fs::set_permissions(folder, Permissions::from_mode(FOLDER))
    }

    fn free_bytes(&self, folder: &Path) -> io::Result<u64> {
        let disk = rustix::fs::statvfs(folder)?;
        // Some file systems over networks do not tell.
        if disk.f_blocks == 0 {
            return Ok(u64::MAX);
        }
        Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
    }
}

/// Writes a whole file so that after a loss of power there is the old one or the new one.
pub(crate) fn replace_file(disk: &dyn Disk, file: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = file.with_extension("new");
    let opened = disk.create(&new)?;
    opened.write_at(0, bytes)?;
    opened.sync()?;
    disk.rename(&new, file)?;
    disk.sync_folder(file.parent().unwrap_or(Path::new(".")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn folders_and_files_are_their_users_alone_and_what_was_open_is_shut() {
        let root = tempfile::tempdir().unwrap();
        let (folder, file) = (root.path().join("a/b"), root.path().join("a/b/f"));
        RealDisk.create_folder(&folder).unwrap();
        drop(RealDisk.create(&file).unwrap());
        drop(RealDisk.lock(&folder.join("LOCK")).unwrap());
        assert_eq!([mode(&root.path().join("a")), mode(&folder)], [0o700; 2]);
        assert_eq!([mode(&file), mode(&folder.join("LOCK"))], [0o600; 2]);
        fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        RealDisk.shut_folder(&folder).unwrap();
        assert_eq!(mode(&file), 0o644, "nobody else reaches it");
        fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
        RealDisk.shut_folder(&folder).unwrap();
        assert_eq!([mode(&folder), mode(&file)], [0o700, 0o600]);
    }
}
