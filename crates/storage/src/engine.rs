//! The trait that every engine fulfils, and the limits that all of them share.

use crate::error::EngineError;
use rota_docstore::document::STORED_BYTES_MAX;
use std::fmt;
use std::ops::ControlFlow;
use std::time::Duration;

/// Longest key in bytes. A document's key is a slot and three names of at most 255 bytes. An entry of an index in
/// PostgreSQL holds 2,704 bytes.
pub const KEY_BYTES_MAX: usize = 2 * 1024;

/// Longest value in bytes: any document that fits, and one record stays small beside a machine's
/// memory.
pub const VALUE_BYTES_MAX: usize = 24 * 1024 * 1024;
const _: () = assert!(VALUE_BYTES_MAX as u64 > STORED_BYTES_MAX);

/// Most bytes of keys and values in one batch: eight times what the writer's queue holds.
pub const BATCH_BYTES_MAX: usize = 256 * 1024 * 1024;

/// One write. Keys and values mean nothing here; keys are ordered as bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KvWrite {
    /// The record at `key` becomes `value`.
    Put {
        /// At most [`KEY_BYTES_MAX`] bytes; may be empty.
        key: Vec<u8>,
        /// At most [`VALUE_BYTES_MAX`] bytes; may be empty.
        value: Vec<u8>,
    },
    /// There is no record at `key` any more. Deleting what is not there is no error.
    Delete {
        /// At most [`KEY_BYTES_MAX`] bytes.
        key: Vec<u8>,
    },
}

impl KvWrite {
    /// A put.
    pub fn put(key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Self {
        Self::Put { key: key.into(), value: value.into() }
    }

    /// A delete.
    pub fn delete(key: impl Into<Vec<u8>>) -> Self {
        Self::Delete { key: key.into() }
    }

    /// The key that is written.
    pub fn key(&self) -> &[u8] {
        match self {
            Self::Put { key, .. } | Self::Delete { key } => key,
        }
    }

    /// The new value; `None` deletes.
    pub fn value(&self) -> Option<&[u8]> {
        match self {
            Self::Put { value, .. } => Some(value),
            Self::Delete { .. } => None,
        }
    }

    /// Bytes of key and value.
    pub fn bytes(&self) -> usize {
        self.key().len() + self.value().map_or(0, <[u8]>::len)
    }
}

/// Refuses a batch with anything too long in it, before any of it is written.
///
/// # Errors
/// [`EngineError::TooLong`].
pub fn check(batch: &[KvWrite]) -> Result<(), EngineError> {
    let within = |what, bytes, limit| {
        if bytes > limit { Err(EngineError::TooLong { what, bytes, limit }) } else { Ok(()) }
    };
    let mut total = 0usize;
    for write in batch {
        within("a key", write.key().len(), KEY_BYTES_MAX)?;
        within("a value", write.value().map_or(0, <[u8]>::len), VALUE_BYTES_MAX)?;
        total = total.saturating_add(write.bytes());
    }
    within("a batch", total, BATCH_BYTES_MAX)
}

/// Is given each record of a scan, in order of keys: key, then value. `Break` ends the scan.
pub type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'a;

/// A [`Visit`] that may fail.
pub(crate) type TryVisit<'a> = dyn FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>, EngineError> + 'a;

/// Records on one manager's disk.
///
/// Reading takes `&mut self` because an engine may have to catch up with its own writes first:
/// reads happen at a start and in tests, never beside the writer.
pub trait Engine: Send {
    /// Carries out all writes, in their order, or none; on `Ok` they survive a loss of power.
    /// After an error the engine refuses everything: what was acknowledged is on disk, and only a
    /// new start can tell whether this batch is. An empty batch does nothing.
    fn commit(&mut self, batch: &[KvWrite]) -> Result<(), EngineError>;

    /// The value at a key. A record whose bytes changed on disk is an error.
    fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError>;

    /// Visits the records with `from <= key`, and `key < to` where `to` is given, in order.
    fn scan(
        &mut self,
        from: &[u8],
        to: Option<&[u8]>,
        visit: &mut Visit<'_>,
    ) -> Result<(), EngineError>;

    /// Visits every record, in order.
    fn scan_all(&mut self, visit: &mut Visit<'_>) -> Result<(), EngineError> {
        self.scan(&[], None, visit)
    }

    /// Visits the records whose key begins with `prefix`, in order.
    fn scan_prefix(&mut self, prefix: &[u8], visit: &mut Visit<'_>) -> Result<(), EngineError> {
        let end = prefix_end(prefix);
        self.scan(prefix, end.as_deref(), visit)
    }

    /// Frees memory that only reading needs. Reading stays possible. [`crate::Writer`] calls this.
    fn reading_is_over(&mut self) {}

    /// How long the last commit waited for the disk to sync; zero when the engine does not know.
    fn last_sync_time(&self) -> Duration {
        Duration::ZERO
    }
}

impl Engine for Box<dyn Engine> {
    fn commit(&mut self, batch: &[KvWrite]) -> Result<(), EngineError> {
        (**self).commit(batch)
    }
    fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        (**self).get(key)
    }
    fn scan(
        &mut self,
        from: &[u8],
        to: Option<&[u8]>,
        visit: &mut Visit<'_>,
    ) -> Result<(), EngineError> {
        (**self).scan(from, to, visit)
    }
    fn reading_is_over(&mut self) {
        (**self).reading_is_over();
    }
    fn last_sync_time(&self) -> Duration {
        (**self).last_sync_time()
    }
}

/// The first key after all that begin with `prefix`; `None` when there is none.
fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte < u8::MAX)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

/// Which engine keeps a folder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EngineKind {
    /// [`crate::LogEngine`]: an append-only log with a checkpoint behind it.
    Log,
    /// [`crate::RedbEngine`]: one redb file.
    Redb,
    /// A schema of a PostgreSQL server, which another crate keeps. The folder only says whose it is.
    Postgres,
}

impl EngineKind {
    /// Its name in a folder's `OWNER` file and on a command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Redb => "redb",
            Self::Postgres => "postgres",
        }
    }

    /// The engine of that name.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Log, Self::Redb, Self::Postgres].into_iter().find(|kind| kind.as_str() == text)
    }
}

impl fmt::Display for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_before_the_next_key_that_does_not_begin_with_it() {
        assert_eq!(prefix_end(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(prefix_end(b"a\xff\xff"), Some(b"b".to_vec()));
        assert_eq!(prefix_end(b"\xff"), None);
        assert_eq!(prefix_end(b""), None);
    }
}
