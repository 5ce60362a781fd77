//! Requests that wait at an owner, and answers that wait for a commit.

use crate::log::origin::Origin;
use crate::log::requests::{Asked, PendingReply, Requests};
use std::collections::VecDeque;

/// Requests that wait at an owner.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Inbox {
    /// Every request that waits here, with its operation and deadline.
    pub live: Requests<Origin, Asked>,
    /// Requests that wait until the partition serves, or until it has enough copies.
    pub queue: VecDeque<Origin>,
    /// Answers that wait for a commit.
    pub pending_replies: VecDeque<PendingReply>,
}
