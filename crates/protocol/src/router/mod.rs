//! Requests of clients, and a manager's own, find the owner of their slot and are asked again until their deadline.

pub(crate) mod following;
pub(crate) mod forward;
