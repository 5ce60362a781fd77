//! Numbers of resources in a folder that a person reads: one file for each entry of [`Numbers`].
//!
//! ```text
//! -rw-rw-r-T 1 rota rota 1 Nov 26 12:27 Pool.74f30be0-3151-11e6-8b2f-fcaa1429e144.db
//! -rw-rw-r-- 1 rota rota 2 Nov 26 12:25 Node.74f30be0-3151-11e6-8b2f-fcaa1429e144.last.db
//! ```
//!
//! * The name is that of the entry, with its parent if it has one: `Type[.parent].uuid.db`. `last` stands for
//!   the UUID where the last number of a group is kept.
//! * The content is the number, as decimal text.
//! * The sticky bit (`T`, or `t`) is set while the entry is valid.
//! * The time of modification is when the number or the validity last changed.
//!
//! What a group and others may do is what the umask of the process leaves of reading for all and writing for
//! the group. A folder that is made is its user's alone; one that exists keeps its rights. Beside the entries
//! lie `LOCK`, which is locked while the folder is open, and `set-aside`.
//!
//! # What is promised
//! * A file is the old one or the new one, also after a loss of power: a number is written to a file with
//!   another name, synced and renamed. Where only the validity changes, its time is set first and then its
//!   bit. What is cut off between the two stays longer, and never goes early.
//! * What [`NumbersFolder::persist`] answered survives a loss of power: all files of the call are synced, and
//!   then the folder, once.
//! * A number has no checksum, so that a person may change it while the folder is closed.
//! * Nothing is deleted that Rota did not write: what cannot be read as an entry goes to `set-aside`, is told
//!   in the log, and is told to the caller.

mod error;
mod read;
mod write;

pub use error::{NumbersError, SetAside, Why};

use crate::disk::{Disk as _, RealDisk};
use crate::error::EngineError;
use crate::folder::{Held, lock};
use rota_ids::Numbers;
use std::path::{Path, PathBuf};

/// The sub-folder of what was set aside.
pub const SET_ASIDE: &str = "set-aside";
/// Ending of the files of entries.
const ENDING: &str = ".db";
/// The bit of valid entries.
const STICKY: u32 = 0o1000;

/// A folder with numbers, locked while this lives.
#[derive(Debug)]
pub struct NumbersFolder {
    path: PathBuf,
    _lock: Held,
}

/// What an open found.
#[derive(Debug)]
pub struct Opened {
    /// Takes the changes from now on.
    pub folder: NumbersFolder,
    /// All that is kept. [`Numbers::start`] comes next, before any report.
    pub numbers: Numbers,
    /// What could not be read as an entry, in the order of its names.
    pub set_aside: Vec<SetAside>,
}

impl NumbersFolder {
    /// Opens a folder, made when it is not there, and reads every entry. `outdate_ms`: for
    /// [`Numbers::new`].
    ///
    /// What is no entry is set aside. A last that cannot be read is made anew from the highest number of its
    /// group.
    ///
    /// # Errors
    /// The folder is in use, or the operating system refuses.
    pub fn open(path: &Path, outdate_ms: u64) -> Result<Opened, NumbersError> {
        RealDisk.create_folder(path).map_err(NumbersError::io("make the folder", path))?;
        let lock = lock(&RealDisk, path).map_err(|error| {
            if let EngineError::Io { doing, file, source } = error {
                NumbersError::Io { doing, file, source }
            } else {
                NumbersError::InUse { folder: path.to_owned() }
            }
        })?;
        let mut folder = Self { path: path.to_owned(), _lock: lock };
        let read = read::read(path)?;
        let (numbers, wrong, made_anew) = read.restore(outdate_ms);
        let set_aside = folder.set_aside(wrong)?;
        folder.persist(&made_anew)?;
        Ok(Opened { folder, numbers, set_aside })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}
