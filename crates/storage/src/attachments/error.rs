//! Everything that can go wrong with attachments.

use super::Digest;
use crate::error::EngineError;
use std::io;
use std::path::{Path, PathBuf};

/// What the store of attachments refuses or fails with.
#[derive(Debug, thiserror::Error)]
pub enum AttachmentError {
    /// The folder cannot be used: in use, another's, another format, damaged.
    #[error(transparent)]
    Folder(#[from] EngineError),
    /// The operating system refused. Of a put, nothing is visible.
    #[error("cannot {doing} {}", .file.display())]
    Io {
        /// A verb, as in "cannot write".
        doing: &'static str,
        /// Which file or folder.
        file: PathBuf,
        /// Its reason; [`io::ErrorKind::StorageFull`] when the disk is full.
        source: io::Error,
    },
    /// A whole body of this digest is not here.
    #[error("there is no attachment {sha256}")]
    Missing {
        /// Which.
        sha256: Digest,
    },
    /// The body's file is not what was written. It is given out no more, and may be put again.
    #[error("attachment {sha256} is damaged: {} {what}", .file.display())]
    Damaged {
        /// Which.
        sha256: Digest,
        /// Its file.
        file: PathBuf,
        /// What is wrong, as in "ends early".
        what: String,
    },
    /// A put brought another number of bytes than was announced.
    #[error("attachment {sha256} was announced with {expected} bytes, and {found} came{}", more(.found, .expected))]
    WrongSize {
        /// Which.
        sha256: Digest,
        /// What was announced.
        expected: u64,
        /// What came; when it is more than announced, at least so many.
        found: u64,
    },
    /// A put brought other bytes than was announced.
    #[error("attachment {expected} was announced, and the bytes that came have SHA-256 {found}")]
    WrongDigest {
        /// What was announced.
        expected: Digest,
        /// What came.
        found: Digest,
    },
    /// Something is longer or more than is accepted. Nothing was done.
    #[error("{what} is {found}; the limit is {limit}")]
    TooLarge {
        /// What, with its unit.
        what: &'static str,
        /// How much it is.
        found: u64,
        /// The most that is accepted.
        limit: u64,
    },
    /// With this one no item would name too many bytes. Nothing was done.
    #[error(
        "the size of all attachments that no item names, with this one, in bytes is {found}; the limit is \
         {limit}"
    )]
    Unnamed {
        /// How many.
        found: u64,
        /// The most that is accepted.
        limit: u64,
    },
    /// With this one and those on their way in, the disk would have too little left for other things.
    /// Nothing was done.
    #[error(
        "an attachment of {size} bytes would leave too little of the disk, where {free} bytes are free: \
         {reserve} must be left, and what is being put already"
    )]
    NoRoom {
        /// The attachment's size in bytes.
        size: u64,
        /// Free bytes.
        free: u64,
        /// How many must be left.
        reserve: u64,
    },
    /// With those that are being put already no item would name too many bytes. Nothing was done.
    #[error(
        "all attachments that no item names, with this one and those that are being put already, would have \
         {found} bytes; the limit is {limit}; come again soon"
    )]
    Crowded {
        /// How many.
        found: u64,
        /// The most that is accepted.
        limit: u64,
    },
    /// So many puts are under way already. Nothing was done.
    #[error("{limit} attachments are being put already, the limit; come again soon")]
    Busy {
        /// The most at a time.
        limit: usize,
    },
    /// A range ends after the body or before its own beginning.
    #[error("bytes {from} to {to} of attachment {sha256} were asked for; it has {size}")]
    OutOfRange {
        /// Which.
        sha256: Digest,
        /// First byte.
        from: u64,
        /// First byte after the range.
        to: u64,
        /// The body's size in bytes.
        size: u64,
    },
    /// More references were given up than there were. Nothing was changed.
    #[error("attachment {sha256} has fewer references than are given up")]
    NotReferenced {
        /// Which.
        sha256: Digest,
    },
    /// Nothing may be collected before the references are known.
    #[error("the references of the attachments are not known yet")]
    ReferencesUnknown,
    /// An earlier change of the folder may be lost; only a new start can tell what is there.
    #[error("{} was given up after an earlier failure", .folder.display())]
    GivenUp {
        /// Which folder.
        folder: PathBuf,
    },
    /// A put, export or import could not read from or write to the other side.
    #[error("cannot {doing}")]
    Stream {
        /// A verb and what for, as in "cannot read the export".
        doing: &'static str,
        /// Its reason.
        source: io::Error,
    },
    /// An export was written in a format that this program does not know.
    #[error(
        "the export has format {found}; this program knows format {wanted}: import it with the \
         release that wrote it, and export from there again"
    )]
    OtherExportFormat {
        /// What it says.
        found: u64,
        /// What this program reads and writes.
        wanted: u64,
    },
    /// What is to be exported or imported cannot be.
    #[error("{entry} of the export: {what}")]
    BadExport {
        /// Which part of it.
        entry: String,
        /// What is wrong.
        what: String,
    },
}

fn more(found: &u64, expected: &u64) -> &'static str {
    if found > expected { " at least" } else { "" }
}

impl AttachmentError {
    pub(super) fn io(doing: &'static str, file: &Path) -> impl FnOnce(io::Error) -> Self {
        let file = file.to_owned();
        move |source| Self::Io { doing, file, source }
    }

    pub(super) fn bad_export(entry: impl Into<String>, what: impl Into<String>) -> Self {
        Self::BadExport { entry: entry.into(), what: what.into() }
    }

    /// The error inside an [`io::Error`] that this store made, or one about the other side.
    pub(super) fn of_stream(doing: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| match source.downcast::<Self>() {
            Ok(own) => own,
            Err(source) => Self::Stream { doing, source },
        }
    }
}
