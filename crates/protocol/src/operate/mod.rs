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

mod about;
mod administer;
mod aging;
mod copies;
mod desks;
mod follow;
mod form;
mod here;
mod holdings;
mod importing;
mod owner;
mod pending;
mod read;
pub mod registry;
pub(crate) mod room;
mod work;
mod write;

pub(crate) use copies::write_of;
pub(crate) use desks::Desks;
pub use desks::DocumentsConfig;
pub(crate) use follow::Following;
pub use here::{SPACES_DOCID, slot_of, slot_of_spaces};
pub(crate) use pending::{Errand, Inner, Runs, Waiting};
pub use registry::AdminKey;
pub use room::DOCUMENT_BYTES;
use rota_messages::DocumentOp;
pub(crate) use work::Works;
pub use work::{Job, Worked};

use rota_model::SlotId;
use rota_ring::slot_of_document;

/// The slot that a request about documents is about.
pub(crate) fn slot_of_op(op: &DocumentOp, m: u32) -> SlotId {
    let inside = |slot: SlotId| SlotId(slot.0.min(m.saturating_sub(1)));
    match op {
        DocumentOp::Operate(operate) => slot_of_document(&operate.request.space, &operate.docid, m),
        DocumentOp::Sync(sync) => inside(sync.slot),
        DocumentOp::Page(page) => inside(page.from.slot),
        DocumentOp::Clear(clear) => inside(clear.from.slot),
        DocumentOp::Import(import) => slot_of(import.document.name(), m),
        DocumentOp::Follow(_) => slot_of_spaces(m),
    }
}
