//! What an administrator decides about documents.

use rota_docstore::rules::WEEK_MS;
use std::fmt;
use std::hint::black_box;

/// What an administrator decides about documents.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DocumentsConfig {
    /// The key that operations of administrators need. Default: none.
    pub admin_key: AdminKey,
    /// The oldest build of clients that may run operations; a client that says none may. Default 0.
    pub client_build_min: u64,
    /// Memory for copies of documents that other managers own, in bytes. Default 64 MiB. Too low:
    /// operations that read them fetch them again and again; those that read more than it holds are
    /// refused (A-LIMIT).
    pub cache_bytes: u64,
    /// How long destroyed items of documents stay known, in milliseconds. Default 7 days. Too low:
    /// copies that were away longer get the list of all keys. Too high: documents grow.
    pub destroyed_ms: u64,
    /// How long ended lives of documents, and names of deleted namespaces, stay known, in milliseconds.
    /// Default 7 days. Too low: an import brings back what was deleted elsewhere since. Too high: ends
    /// of documents fill memory and disk.
    pub deleted_ms: u64,
    /// Most bytes of applications' documents in all copies at this manager: names and contents of items,
    /// and [`DOCUMENT_BYTES`](crate::contents::fills::DOCUMENT_BYTES) for each document. Default 4 GiB. Too low: what
    /// makes them grow is refused (A-LIMIT). Too high: the process runs out of memory.
    pub bytes_max: u64,
    /// Most operations of applications that work at once beside the decisions. Default 8. Too low: callers
    /// wait, and are refused (X-BUSY), while some do long work. Too high: work takes the processors from
    /// the decisions.
    pub works_max: usize,
    /// How long one of them may work, in milliseconds, before its caller is told X-QUOTA. Default 10 s.
    /// Too low: what would have ended well is thrown away. Too high: callers hear late of what hangs.
    pub work_ms: u64,
}

impl Default for DocumentsConfig {
    fn default() -> Self {
        Self {
            admin_key: AdminKey::default(),
            client_build_min: 0,
            cache_bytes: 64 * 1024 * 1024,
            destroyed_ms: WEEK_MS,
            deleted_ms: WEEK_MS,
            bytes_max: 4 * 1024 * 1024 * 1024,
            works_max: 8,
            work_ms: 10_000,
        }
    }
}

/// A key that is never printed.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct AdminKey(Option<String>);

impl AdminKey {
    /// A key. Empty: none is needed.
    pub fn new(key: &str) -> Self {
        Self((!key.is_empty()).then(|| key.to_owned()))
    }

    /// Whether one is needed.
    pub fn is_set(&self) -> bool {
        self.0.is_some()
    }

    /// Whether somebody may do what needs the administrator's key: `Err` says why not.
    pub fn check(&self, given: &str) -> Result<(), String> {
        match &self.0 {
            None => Ok(()),
            Some(_) if given.is_empty() => Err("the administrator's key is missing".to_owned()),
            Some(key) if is_same(key.as_bytes(), given.as_bytes()) => Ok(()),
            Some(_) => Err("the administrator's key is wrong".to_owned()),
        }
    }
}

impl fmt::Debug for AdminKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_set() { "AdminKey(set)" } else { "AdminKey(none)" })
    }
}

/// Compares in a time that depends on the lengths only.
fn is_same(one: &[u8], two: &[u8]) -> bool {
    let differences = one.iter().zip(two).fold(0, |all, (a, b)| black_box(all | (a ^ b)));
    one.len() == two.len() && black_box(differences) == 0
}
