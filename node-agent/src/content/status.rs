//! How the content of this node stands, for operators.

use rota_content::steps::Version;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What the follower is at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ContentState {
    /// The node's pool follows nothing.
    #[default]
    Nothing,
    /// A refresh is under way.
    Refreshing,
    /// The node has what it should have.
    Current,
    /// The last refresh failed.
    Failed,
}

impl ContentState {
    /// As it is told.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Refreshing => "refreshing",
            Self::Current => "current",
            Self::Failed => "failed",
        }
    }
}

/// What is known.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Standing {
    /// What the follower is at.
    pub state: ContentState,
    /// Which repository.
    pub repository: String,
    /// The commit of the version in use; empty: none is.
    pub commit: String,
    /// The folder of that version.
    pub root: Option<PathBuf>,
    /// What the node may see, as a hash.
    pub access: String,
    /// Files of that version, and their bytes.
    pub files: u64,
    /// See `files`.
    pub bytes: u64,
    /// When the last refresh came to its end, in milliseconds since 1970.
    pub refreshed_at_ms: u64,
    /// How long it took, in microseconds.
    pub refresh_us: u64,
    /// Why the last refresh failed.
    pub failure: String,
    /// Of a download that is under way: files and bytes that came, and of how many.
    pub came: (u64, u64),
    /// See `came`.
    pub of: (u64, u64),
}

impl Standing {
    /// Whether this version is told.
    pub fn is_of(&self, version: &Version) -> bool {
        (&*self.commit, &*self.access) == (version.commit.as_str(), version.access.as_str())
    }
}

/// Shared by who follows and who tells operators.
#[derive(Clone, Debug, Default)]
pub struct ContentStatus(Arc<Mutex<Standing>>);

impl ContentStatus {
    /// What is known now.
    pub fn standing(&self) -> Standing {
        self.locked().clone()
    }

    /// Changes it.
    pub fn set(&self, change: impl FnOnce(&mut Standing)) {
        change(&mut self.locked());
    }

    /// A version is in use, in that folder, with so many files and bytes.
    pub fn shows(&self, version: &Version, root: PathBuf, (files, bytes): (u64, u64)) {
        self.set(|standing| {
            standing.root = Some(root);
            (standing.commit, standing.access) =
                (version.commit.to_string(), version.access.to_string());
            (standing.files, standing.bytes) = (files, bytes);
        });
    }

    /// A download begins.
    pub fn begins(&self, files: u64, bytes: u64) {
        self.set(|it| (it.came, it.of) = ((0, 0), (files, bytes)));
    }

    /// A part of it came.
    pub fn came(&self, files: u64, bytes: u64) {
        self.set(|standing| {
            standing.came.0 += files;
            standing.came.1 += bytes;
        });
    }

    /// Files and bytes that came.
    pub fn progress(&self) -> (u64, u64) {
        self.locked().came
    }

    // A lock because two tasks share it; it is held for one look.
    fn locked(&self) -> MutexGuard<'_, Standing> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
