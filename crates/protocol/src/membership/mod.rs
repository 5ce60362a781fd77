//! This manager's number, the View and its changes, suspicion, and what operators order about managers and nodes.

pub(crate) mod adopt;
pub(crate) mod claim;
pub(crate) mod failure_detector;
pub(crate) mod leave;
pub(crate) mod node_orders;
pub(crate) mod probe;
pub(crate) mod purpose;
pub(crate) mod registry;
pub(crate) mod replies;
pub(crate) mod standing;
pub(crate) mod state;
pub(crate) mod view_changes;
pub(crate) mod waiting;
