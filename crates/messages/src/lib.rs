//! What passes between a manager and everything around it, as types. Nothing here decides.
//!
//! * [`api`]: what clients and operators ask about sessions and documents, and the answers.
//! * [`polls`]: long polls of watches, and of managers that follow namespaces.
//! * [`orders`], [`stats`], [`placements`], [`tasks`]: what operators order and see; [`search`]: what they look for;
//!   [`lives`]: how sessions live. [`events`]: what happened to them.
//! * [`message`]: what managers say to each other.
//! * [`documents`]: documents as managers keep them, and [`disk`]: what lies on a manager's disk.
//!
//! Clients, `ringctl` and node-agents use these types, and never link what decides.

pub mod api;
pub mod disk;
pub mod documents;
pub mod events;
mod kinds;
pub mod lives;
pub mod message;
pub mod orders;
pub mod placements;
pub mod polls;
pub mod search;
pub mod stats;
pub mod tasks;

pub use api::{
    Answer, DocumentAnswer, DocumentCursor, DocumentHead, DocumentOp, DocumentPage, Op, OpKind,
    OpResult,
};
pub use disk::{Disk, DiskWrite, Identity, PartitionMeta};
pub use documents::{Doc, DocKey, session_of};
pub use lives::{Life, LivesAnswer, LivesOp, UpdateOp};
pub use message::{Chunk, Entry, Envelope, Message, WAITING_KINDS_MAX, Write};
pub use orders::{NodeOrdered, Order, Ordered};
pub use rota_docstore::DocName;
pub use search::{Found, SearchOp};
pub use stats::{IndexStats, Numbered, PartitionStats, Stats, TASK_LATE_MS, TaskStats};
pub use tasks::{QueueRow, TasksOp, TasksPage};
