//! Everything that can go wrong with a data folder.

use crate::engine::EngineKind;
use crate::layout::FORMAT;
use rota_model::{ClusterName, ManagerId, ManagerNumber};
use std::io;
use std::path::{Path, PathBuf};

/// What an engine refuses or fails with. Every variant names the file or the folder.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The operating system refused.
    #[error("cannot {doing} {}", .file.display())]
    Io {
        /// A verb, as in "cannot open".
        doing: &'static str,
        /// Which file or folder.
        file: PathBuf,
        /// Its reason.
        source: io::Error,
    },
    /// redb refused for a reason of its own.
    #[error("redb cannot {doing} {}", .file.display())]
    Redb {
        /// A verb, as in "cannot commit to".
        doing: &'static str,
        /// Which file.
        file: PathBuf,
        /// Its reason.
        source: Box<redb::Error>,
    },
    /// Another process (or another part of this one) has the folder open. Nothing was changed.
    #[error("{} is in use by another process", .folder.display())]
    InUse {
        /// Which folder.
        folder: PathBuf,
    },
    /// The folder belongs to another cluster. Nothing was changed.
    #[error("{} belongs to cluster {found}, not to cluster {wanted}", .folder.display())]
    OtherCluster {
        /// Which folder.
        folder: PathBuf,
        /// Whose it is.
        found: ClusterName,
        /// Who asked.
        wanted: ClusterName,
    },
    /// The folder belongs to another manager. Nothing was changed.
    #[error(
        "{} belongs to manager {} with number {}, not to manager {} with number {}",
        .folder.display(), .found.0, .found.1, .wanted.0, .wanted.1
    )]
    OtherManager {
        /// Which folder.
        folder: PathBuf,
        /// Whose it is.
        found: (ManagerId, ManagerNumber),
        /// Who asked.
        wanted: (ManagerId, ManagerNumber),
    },
    /// The folder has no owner and holds something. Nothing was changed.
    #[error(
        "{} holds {found} and no OWNER: it is not a manager's folder; give an empty one, or the one \
         that this manager had", .folder.display()
    )]
    Foreign {
        /// Which folder.
        folder: PathBuf,
        /// A name in it.
        found: String,
    },
    /// The folder was written in a format that this program does not know. Nothing was changed.
    #[error(
        "{} has format {found}; this program knows format {wanted}: start the release that wrote \
         it, or move the folder away and let a new one be filled from the other copies",
        .file.display()
    )]
    OtherFormat {
        /// Which file says so.
        file: PathBuf,
        /// What it says.
        found: String,
        /// What this program reads and writes.
        wanted: u32,
    },
    /// The folder is kept by another engine than the one that was asked for. Nothing was changed.
    #[error("{} is kept by engine {found}, not by engine {wanted}", .folder.display())]
    OtherEngine {
        /// Which folder.
        folder: PathBuf,
        /// Its engine.
        found: EngineKind,
        /// What was asked for.
        wanted: EngineKind,
    },
    /// Bytes on the disk are not what was written, or a file is missing.
    #[error("{} is damaged{}: {what}", .file.display(), place(.offset, .key))]
    Damaged {
        /// Which file.
        file: PathBuf,
        /// Where in it, in bytes, where that is known.
        offset: Option<u64>,
        /// Which record, where that is known.
        key: Option<Vec<u8>>,
        /// What is wrong.
        what: String,
    },
    /// A write is longer than engines accept. Nothing was written.
    #[error("{what} is {bytes} bytes long; the limit is {limit}")]
    TooLong {
        /// Which part of it.
        what: &'static str,
        /// Its length.
        bytes: usize,
        /// The longest that is accepted.
        limit: usize,
    },
    /// An engine that another crate keeps refused or failed, for a reason of its own.
    #[error(transparent)]
    Elsewhere(Box<dyn std::error::Error + Send + Sync>),
    /// An earlier operation failed; only a new start can tell what is on disk.
    #[error("{} was given up after an earlier failure", .folder.display())]
    GivenUp {
        /// Which folder.
        folder: PathBuf,
    },
}

impl EngineError {
    pub(crate) fn io(doing: &'static str, file: &Path) -> impl FnOnce(io::Error) -> Self {
        let file = file.to_owned();
        move |source| Self::Io { doing, file, source }
    }

    pub(crate) fn redb<E>(doing: &'static str, file: &Path) -> impl FnOnce(E) -> Self
    where
        E: Into<redb::Error>,
    {
        let file = file.to_owned();
        move |error| {
            let error = error.into();
            if let redb::Error::Io(source) = error {
                Self::Io { doing, file, source }
            } else if let redb::Error::UpgradeRequired(found) = error {
                Self::OtherFormat { file, found: format!("redb {found}"), wanted: FORMAT }
            } else if let redb::Error::Corrupted(what) = error {
                Self::Damaged { file, offset: None, key: None, what }
            } else {
                Self::Redb { doing, file, source: Box::new(error) }
            }
        }
    }

    pub(crate) fn damaged(file: &Path, offset: u64, what: impl Into<String>) -> Self {
        Self::Damaged { file: file.to_owned(), offset: Some(offset), key: None, what: what.into() }
    }

    pub(crate) fn missing(file: &Path, what: impl Into<String>) -> Self {
        Self::Damaged { file: file.to_owned(), offset: None, key: None, what: what.into() }
    }
}

fn place(offset: &Option<u64>, key: &Option<Vec<u8>>) -> String {
    let offset = offset.map(|offset| format!(" at byte {offset}"));
    let key = key.as_ref().map(|key| format!(" in the record \"{}\"", key.escape_ascii()));
    offset.unwrap_or_default() + &key.unwrap_or_default()
}

/// Writes an error with all its causes on one line.
pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text.push_str(": ");
        text.push_str(&next.to_string());
        cause = next.source();
    }
    text
}
