//! What can go wrong with a folder of numbers, and what was found in one.

use rota_ids::Uuid;
use rota_model::FieldError;
use std::io;
use std::path::{Path, PathBuf};

/// What a folder of numbers refuses or fails with.
#[derive(Debug, thiserror::Error)]
pub enum NumbersError {
    /// Another process (or another part of this one) has the folder open. Nothing was changed.
    #[error("{} is in use by another process: end that one, or give another folder", .folder.display())]
    InUse {
        /// Which folder.
        folder: PathBuf,
    },
    /// The operating system refused. The same changes may be persisted again.
    #[error("cannot {doing} {}: {}", .file.display(), advice(.source))]
    Io {
        /// A verb, as in "cannot write".
        doing: &'static str,
        /// Which file or folder.
        file: PathBuf,
        /// Its reason.
        source: io::Error,
    },
}

impl NumbersError {
    pub(super) fn io(doing: &'static str, file: &Path) -> impl FnOnce(io::Error) -> Self {
        let file = file.to_owned();
        move |source| Self::Io { doing, file, source }
    }
}

/// What a person does about it.
fn advice(error: &io::Error) -> &'static str {
    use io::ErrorKind as Kind;
    let known = [
        (Kind::PermissionDenied, "give the user of this process the right to it"),
        (Kind::StorageFull, "make room on its disk"),
        (Kind::QuotaExceeded, "make room in the quota of its user"),
        (Kind::ReadOnlyFilesystem, "mount its disk for writing, or give another folder"),
        (Kind::NotADirectory, "give a folder, or move the file away that has its name"),
        (Kind::AlreadyExists, "give a folder, or move the file away that has its name"),
    ];
    let found = known.iter().find(|(kind, _)| *kind == error.kind());
    found.map_or("see what is wrong with its disk", |(_, advice)| advice)
}

/// A file that is no entry, and where it lies now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SetAside {
    /// Where it was.
    pub from: PathBuf,
    /// Where it is.
    pub to: PathBuf,
    /// What is wrong with it.
    pub why: Why,
}

/// Why a file is no entry.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Why {
    /// Its name is none of an entry.
    #[error("its {0}")]
    Name(FieldError),
    /// Its name does not end as those of entries do.
    #[error("its name does not end with .db")]
    Ending,
    /// It is a folder, a link, or something else that is no file.
    #[error("it is no regular file")]
    NotRegular,
    /// It was being written when its process ended. What has the name itself counts.
    #[error("it is a write that was cut off")]
    CutOff,
    /// Its content is not what is written. If it was a last, there is a new one.
    #[error("its content is no number from 1 on")]
    Content,
    /// Another resource of its group has its number. Of two, the one that is valid keeps it, and then the one
    /// that has it for longer.
    #[error("its number is that of {by}, too")]
    Taken {
        /// Who keeps the number.
        by: Uuid,
    },
}
