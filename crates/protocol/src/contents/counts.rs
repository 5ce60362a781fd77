//! What the committed documents of a copy come to, kind by kind.

use crate::contents::lives::Lives;
use crate::contents::memories::Memories;
use crate::contents::session_counts::SessionCounts;
use crate::contents::tasks::Tasks;
use rota_docstore::space::Usages;

/// What the committed documents of a copy come to.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Counts {
    /// Its sessions, counted.
    pub session_counts: SessionCounts,
    /// What it remembers beside its sessions and documents, by age.
    pub memories: Memories,
    /// How much committed documents of applications fill, by namespace.
    pub usages: Usages,
    /// What is kept beside that of applications: ends of documents, and memories of operations.
    pub beside: u64,
    /// What committed records of sessions fill, with what is remembered beside them.
    pub sessions: u64,
    /// Its tasks.
    pub tasks: Tasks,
    /// Its life cycles.
    pub lives: Lives,
}
