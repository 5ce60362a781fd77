//! How changes reach a folder, and how files are set aside.

use super::error::{NumbersError, SetAside, Why};
use super::read::{number, open_in};
use super::{ENDING, NumbersFolder, SET_ASIDE, STICKY};
use crate::disk::{Disk as _, NEW, RealDisk};
use rota_ids::{Change, Entry, Name};
use rustix::fs::syncfs;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, FileTimes, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

/// Rights of the files, before the umask.
const RIGHTS: u32 = 0o664;
/// Rights and bits of a mode that say nothing of validity.
const RIGHTS_MASK: u32 = 0o777;
/// Up to so many files are synced one by one; for more of them the whole file system is synced once. Too
/// low, and a report of a few resources waits for what others write to that disk. Too high, and a stop with many
/// resources takes as many syncs.
const SYNCS_MAX: usize = 32;

/// A change on its way.
enum Step {
    /// The file is written under its other name.
    Rename(PathBuf, PathBuf),
    Remove(PathBuf),
}

impl NumbersFolder {
    /// Makes changes durable, in their order. Of several changes of one name only the last one counts, at
    /// its place. A change that is there already is no error, so that after an error the same changes may be
    /// given again.
    ///
    /// # Errors
    /// The operating system refuses. Then some of the changes may be there.
    pub fn persist(&mut self, changes: &[Change]) -> Result<(), NumbersError> {
        if changes.is_empty() {
            return Ok(());
        }
        let mut steps = Vec::new();
        let done = self.prepare(changes, &mut steps).and_then(|()| self.carry_out(&steps));
        if done.is_err() {
            for step in steps {
                match step {
                    // Those that were renamed are not there any more.
                    Step::Rename(new, _) => drop(fs::remove_file(new)),
                    Step::Remove(_) => {}
                }
            }
        }
        done
    }

    /// Writes what has another number beside it, changes what has another validity, and syncs both.
    fn prepare(&self, changes: &[Change], steps: &mut Vec<Step>) -> Result<(), NumbersError> {
        let folder = File::open(&self.path).map_err(NumbersError::io("open", &self.path))?;
        let changes = last_of_each_name(changes);
        let is_put = |change: &&Change| match change {
            Change::Put(..) => true,
            Change::Remove(_) => false,
        };
        let puts = changes.iter().copied().filter(is_put).count();
        for change in changes {
            let name = OsString::from(format!("{}{ENDING}", change.name()));
            let path = self.path.join(&name);
            let entry = match change {
                Change::Put(_, entry) => entry,
                Change::Remove(_) => {
                    steps.push(Step::Remove(path));
                    continue;
                }
            };
            let file = match mark(&folder, &name, entry) {
                Some(file) => file,
                None => {
                    let new = self.path.join(format!("{}{NEW}", change.name()));
                    let made = make(&new);
                    // From here on an error removes it.
                    steps.push(Step::Rename(new.clone(), path));
                    let written = made.and_then(|file| write(file, entry));
                    written.map_err(NumbersError::io("write", &new))?
                }
            };
            if puts <= SYNCS_MAX {
                file.sync_all().map_err(NumbersError::io("sync", &self.path.join(&name)))?;
            }
        }
        if puts > SYNCS_MAX {
            let synced = syncfs(&folder).map_err(io::Error::from);
            synced.map_err(NumbersError::io("sync the file system of", &self.path))?;
        }
        Ok(())
    }

    fn carry_out(&self, steps: &[Step]) -> Result<(), NumbersError> {
        for step in steps {
            match step {
                Step::Rename(new, path) => {
                    RealDisk.rename(new, path).map_err(NumbersError::io("rename", new))?;
                }
                Step::Remove(path) => match RealDisk.remove(path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        return Err(NumbersError::io("remove", path)(error));
                    }
                    Ok(()) | Err(_) => {}
                },
            }
        }
        RealDisk.sync_folder(&self.path).map_err(NumbersError::io("sync the folder", &self.path))
    }

    /// Moves files into the sub-folder, and tells each in the log.
    pub(super) fn set_aside(
        &self,
        wrong: Vec<(OsString, Why)>,
    ) -> Result<Vec<SetAside>, NumbersError> {
        if wrong.is_empty() {
            return Ok(Vec::new());
        }
        let aside = self.path.join(SET_ASIDE);
        RealDisk.create_folder(&aside).map_err(NumbersError::io("make the folder", &aside))?;
        let mut moved = Vec::new();
        for (name, why) in wrong {
            let (from, to) = (self.path.join(&name), free_name(&aside, &name));
            RealDisk.rename(&from, &to).map_err(NumbersError::io("set aside", &from))?;
            tracing::warn!(
                file = %from.display(), to = %to.display(), %why,
                "a file among the numbers is no entry and was set aside: look at it, and remove it"
            );
            moved.push(SetAside { from, to, why });
        }
        for folder in [&aside, &self.path] {
            RealDisk.sync_folder(folder).map_err(NumbersError::io("sync the folder", folder))?;
        }
        Ok(moved)
    }
}

/// The last change of each name, in their order.
fn last_of_each_name(changes: &[Change]) -> Vec<&Change> {
    let mut seen: BTreeSet<&Name> = BTreeSet::new();
    let mut kept: Vec<&Change> = changes.iter().rev().filter(|it| seen.insert(it.name())).collect();
    kept.reverse();
    kept
}

/// Gives an entry that is there with its number another validity. `None`: there is no such file, or it cannot
/// be changed, and a new one takes its place.
fn mark(folder: &File, name: &OsStr, entry: &Entry) -> Option<File> {
    let file = open_in(folder, name).ok()?;
    let data = file.metadata().ok().filter(fs::Metadata::is_file)?;
    let found = number(&file, data.len()).ok()??;
    if found != entry.number {
        return None;
    }
    set_time(&file, entry.changed_ms).ok()?;
    set_sticky(&file, data.permissions().mode(), entry.valid).ok()?;
    Some(file)
}

/// Makes an empty file; one that an earlier process left goes.
fn make(new: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(RIGHTS);
    match options.open(new) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            fs::remove_file(new)?;
            options.open(new)
        }
        made => made,
    }
}

fn write(mut file: File, entry: &Entry) -> io::Result<File> {
    file.write_all(entry.number.to_string().as_bytes())?;
    set_sticky(&file, file.metadata()?.permissions().mode(), entry.valid)?;
    set_time(&file, entry.changed_ms)?;
    Ok(file)
}

fn set_sticky(file: &File, mode: u32, valid: bool) -> io::Result<()> {
    if (mode & STICKY != 0) == valid {
        return Ok(());
    }
    let bit = if valid { STICKY } else { 0 };
    file.set_permissions(Permissions::from_mode(mode & RIGHTS_MASK | bit))
}

fn set_time(file: &File, changed_ms: u64) -> io::Result<()> {
    let time = UNIX_EPOCH.checked_add(Duration::from_millis(changed_ms));
    let time = time.ok_or(io::ErrorKind::InvalidInput)?;
    file.set_times(FileTimes::new().set_modified(time))
}

/// A name that is not taken in the folder: the name itself, or that with a number behind it.
fn free_name(folder: &Path, name: &OsStr) -> PathBuf {
    let mut path = folder.join(name);
    let mut suffix = 1u64;
    while fs::symlink_metadata(&path).is_ok() {
        let mut longer = name.to_owned();
        longer.push(format!(".{suffix}"));
        path = folder.join(longer);
        suffix += 1;
    }
    path
}
