//! Operations on documents, as a manager carries them out.
//!
//! ```text
//!   client ─▶ entry manager ─▶ owner of the slot: work, validate, one entry of the log ─▶ answer
//!                                │      ▲
//!                 other owners ◀─┘ Sync └── documents that may be some seconds old
//! ```
//! * [`registry`]: classes, operations and the check of who asks. `write`, `read`, `administer`:
//!   the operations; `form`: how their callers write items; `about`: what callers are told of them.
//! * `owner`: an operation at the owner of its slot. `work`: one that works beside the decisions.
//!   `pending`: what waits there. `here`: which documents it sees, and [`slot_of`] them.
//! * `room`: how much documents may fill at one manager.
//! * `copies`: updates of copies; pages and ends of whole namespaces; `importing`: documents of
//!   exports.
//! * `aging`: what time makes of documents.
//! * `follow`: how every manager knows the namespaces.

pub(crate) mod about;
pub(crate) mod administer;
pub(crate) mod copies;
pub(crate) mod documents_env;
pub(crate) mod follow;
pub(crate) mod form;
pub(crate) mod here;
pub(crate) mod importing;
pub(crate) mod memory_quota;
pub(crate) mod operate;
pub(crate) mod pending;
pub(crate) mod read;
pub(crate) mod registry;
pub(crate) mod state;
pub(crate) mod usage;
pub(crate) mod waiting;
pub(crate) mod worker;
pub(crate) mod write;
