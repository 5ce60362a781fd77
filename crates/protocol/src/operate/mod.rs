//! Operations on documents, as a manager carries them out.
//!
//! * [`registry`]: classes, operations and the check of who asks.
//! * `write`, `read`, `administer`: the operations; `form`: how their callers write items.

mod administer;
mod form;
mod read;
pub mod registry;
mod write;

pub use registry::AdminKey;
