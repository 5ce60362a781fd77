//! Operations on documents, as a manager carries them out.
//!
//! ```text
//!   client ─▶ entry manager ─▶ owner of the slot: work, validate, one entry of the log ─▶ answer
//!                                │      ▲
//!                 other owners ◀─┘ Sync └── documents that may be some seconds old
//! ```
//! * `schema`: classes. [`registry`]: operations, and the check of who asks. `write`, `read`, `administer`,
//!   `pools`: the operations; `form`: how their callers write items; `about`: what callers are told of them.
//! * `operate`: an operation at the owner of its slot. `worker`: one that works beside the decisions.
//!   `pending`, `waiting`: what waits there. `here`: which documents it sees. `state`: all that an owner keeps.
//! * `documents_env`: what a manager needs to run operations, whatever the partition.
//! * `memory_quota`: how much documents may fill at one manager. `usage`: what namespaces with limits hold.
//! * `copies`: updates of copies; pages and ends of whole namespaces; `importing`: documents of exports.
//! * `watch`: an owner tells what clients watch.
//! * `follow`: an owner tells news of namespaces and pools. Ageing stands in [`crate::partition::aging`], slots in
//!   [`crate::ports::slots`].

pub(crate) mod about;
pub(crate) mod administer;
pub(crate) mod content;
pub(crate) mod copies;
pub(crate) mod copying;
pub(crate) mod documents_env;
pub(crate) mod follow;
pub(crate) mod form;
pub(crate) mod here;
pub(crate) mod importing;
pub(crate) mod memory_quota;
pub(crate) mod operate;
pub(crate) mod output;
pub(crate) mod pending;
pub(crate) mod pools;
pub(crate) mod read;
pub(crate) mod registry;
pub(crate) mod resident;
pub(crate) mod schema;
pub(crate) mod state;
pub(crate) mod tasks;
pub(crate) mod usage;
pub(crate) mod waiting;
pub(crate) mod watch;
pub(crate) mod worker;
pub(crate) mod write;
