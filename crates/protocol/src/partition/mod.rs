//! One partition at one manager: its log, and what lives beside the log while this manager owns it.

pub(crate) mod aging;
pub(crate) mod committed;
pub(crate) mod deadlines;
pub(crate) mod halt;
pub(crate) mod inputs;
pub(crate) mod lead;
pub(crate) mod leading;
pub(crate) mod messages;
pub(crate) mod own_usage;
pub(crate) mod partitions;
pub(crate) mod requests;
pub(crate) mod split;
pub(crate) mod state;
pub(crate) mod tick;
