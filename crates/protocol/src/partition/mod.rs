//! One partition at one manager: its log, and what lives beside the log while this manager owns it.

pub(crate) mod aging;
#[cfg(test)]
mod counter;
pub(crate) mod follower;
pub(crate) mod halt;
pub(crate) mod inputs;
pub(crate) mod lead;
pub(crate) mod led;
pub(crate) mod messages;
pub(crate) mod own_usage;
pub(crate) mod partitions;
pub(crate) mod requests;
pub(crate) mod residents;
pub(crate) mod rounds;
pub(crate) mod split;
pub(crate) mod state;
pub(crate) mod tick;
