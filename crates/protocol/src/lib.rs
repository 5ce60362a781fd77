//! Every decision of a manager, and nothing else: no clock, no socket, no file.
//!
//! A room for each kind of thing. A room uses those above it; arrows that are still to go stand in
//! `tests/tests/house/rooms.rs`.
//!
//! ```text
//!  ports, settings        inputs and effects; what a manager is told at its start
//!  contents, nodes        what the documents of a copy come to; the registry, loads, calls to nodes
//!  log                    one partition's log: copies, sync, learning, confirmed reads, waiting answers
//!  managed                the document of life cycles beside a session
//!  node_lease, numbers,   what lives beside the log; none of these uses another one
//!  pools, sessions,
//!  documents, searches,
//!  lives, tasks
//!  ring_tasks             tasks whose work goes around the ring
//!  partition              the log and what lives beside it, put together
//!  router, membership     requests find their owner; this manager's number, changes of the View, suspicion
//!  manager                takes inputs apart, gives effects out
//! ```
//!
//! See [`io`] for the picture of inputs and effects. What passes as a value stands in `rota-messages`.

mod contents;
mod documents;
mod lives;
mod log;
mod managed;
mod manager;
mod membership;
mod node_lease;
mod nodes;
mod numbers;
mod partition;
mod pools;
mod ports;
mod ring_tasks;
mod router;
mod searches;
mod sessions;
mod settings;
mod tasks;

pub use crate::contents::searchable::Searchable;
pub use crate::manager::inputs::Manager;
pub use crate::ports::bodies::{Bodies, NoBodies};
pub use crate::ports::carry_out::EffectHandler;
pub use crate::ports::io;
pub use crate::ports::io::{CasOutcome, Effect, Input, Reply};
pub use crate::ports::note::{Note, SessionEnd, Transition};
pub use crate::ports::task_work::{TaskJob, TaskOutcome};
pub use crate::ports::wait::Wait;
pub use crate::settings::config::ManagerConfig;
pub use crate::settings::documents::DocumentsConfig;
pub use crate::settings::numbers::NumbersConfig;
pub use crate::settings::sizes::Sizes;
pub use crate::settings::tasks::TasksConfig;
pub use crate::settings::timing::{REQUEST_MS, Timing};
pub use crate::settings::{sizes, timing};
pub use rota_messages::{
    Answer, Chunk, Disk, DiskWrite, Doc, DocKey, DocName, DocumentAnswer, DocumentCursor,
    DocumentHead, DocumentOp, DocumentPage, Entry, Envelope, Found, Identity, LivesAnswer, LivesOp,
    Message, NodeOrdered, Numbered, Op, OpKind, OpResult, Order, Ordered, PartitionMeta,
    PartitionStats, QueueRow, SearchOp, Stats, TaskStats, TasksOp, TasksPage, UpdateOp, Write, api,
    events, message, placements, session_of,
};
pub use rota_tasks::{Filter as TaskFilter, Patience, QueueSettings, Task};

/// What an administrator decides about tasks, and what programs and calls are given.
pub mod outside {
    pub use rota_tasks::{GrpcCall, HttpCall, Outside, Patience, ProgramRun, QueueSettings, Run};
}

/// By which fields sessions are searched.
pub mod session_search {
    pub use rota_messages::documents::{
        ATTRIBUTE, SESSION_FIELDS, SessionValues, session_fields, session_name,
    };
}

/// A copy of a partition.
pub mod replica {
    pub use crate::log::replica::Replica;
}

/// Which resource has which key among the stable numbers.
pub mod stable_numbers {
    pub use crate::ports::number_keys::{of_manager, of_node, of_pool, of_session};
    pub use rota_ids::{Key, Told};
}

/// Life cycles as documents hold them, for checks.
pub mod life_documents {
    pub use crate::contents::lives::managed_in;
    pub use rota_messages::documents::life_session;
}

/// What the ring keeps of what programs printed.
pub mod kept_outputs {
    pub use rota_messages::documents::{
        KeptOutput, OUTPUT_CLASS, OutputEnd, kept_outputs, output_name,
    };
}

/// The records of tasks.
pub mod task_records {
    pub use rota_tasks::{Param, Task, TaskState};
}

/// What is offered of documents.
pub mod operate {
    pub use crate::contents::fills::DOCUMENT_BYTES;
    pub use crate::contents::tasks::task_of;
    pub use crate::documents::registry::operations;
    pub use crate::documents::schema::{check_schema, schema};
    pub use crate::ports::slots::{CONFIGURATION, SPACES_DOCID, slot_of, slot_of_spaces};
    pub use crate::ports::work::{Job, Worked};
    pub use crate::settings::documents::{AdminKey, DocumentsConfig};
    pub use rota_messages::documents::read_pool;
}
