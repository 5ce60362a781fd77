//! Why a store does not open, and why a call has no answer.

use crate::attachments::AttachmentError;
use crate::error::EngineError;
use rota_docstore::{Exception, FieldError};
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Why a folder of documents cannot be opened. Nothing in it was changed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The records cannot be read: another's folder, another format, damage.
    #[error(transparent)]
    Records(#[from] EngineError),
    /// The bodies of attachments cannot be used.
    #[error(transparent)]
    Attachments(#[from] AttachmentError),
    /// A record is whole, and is not one that this program may hold: of an unknown class, for
    /// instance. Another build wrote it.
    #[error("the record \"{}\" in {} cannot be used: {problem}", .key.escape_ascii(), .folder.display())]
    Record {
        /// Folder of the records.
        folder: PathBuf,
        /// The record's key.
        key: Vec<u8>,
        /// What is wrong.
        problem: FieldError,
    },
    /// The operating system starts no more threads.
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
}

/// Why a call has no answer.
#[derive(Debug, thiserror::Error)]
pub enum Unanswered {
    /// It was refused or failed; the exception says how far it had come.
    #[error(transparent)]
    Exception(#[from] Exception),
    /// The disk did not finish in time. What was asked for may yet be durable: repeat the request
    /// with its operation time, or ask for the document.
    #[error("the disk did not finish within {waited:?}; the outcome is not known")]
    Undecided {
        /// How long the caller waited for the disk.
        waited: Duration,
    },
    /// The body of an attachment cannot be given out.
    #[error(transparent)]
    Body(#[from] AttachmentError),
}

impl Unanswered {
    /// The exception, when it is one.
    pub fn exception(&self) -> Option<&Exception> {
        match self {
            Self::Exception(exception) => Some(exception),
            Self::Undecided { .. } | Self::Body(_) => None,
        }
    }
}

/// The disk did not write everything in time while a store was closed. What was answered is on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the disk did not finish in time")]
pub struct NotClosed;
