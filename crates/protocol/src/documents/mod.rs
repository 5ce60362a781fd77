//! Documents of applications, as a manager serves them.
//!
//! * [`registry`]: classes, operations and the check of who asks.
//! * `write`, `read`, `administer`: the operations; `form`: how their callers write items.

mod administer;
mod form;
mod read;
pub mod registry;
mod write;

pub use registry::AdminKey;
