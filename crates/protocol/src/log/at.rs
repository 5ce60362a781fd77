//! The log's face to what lives in a partition beside it, at the owner: append, promise, confirm, reply.

use crate::log::answered::Answered;
use crate::log::env::Env;
use crate::log::inbox::Inbox;
use crate::log::lead::Lead;
use crate::log::origin::Origin;
use crate::log::read_index::Rounds;
use crate::log::state::Log;
use crate::ports::slots::Slots;
use rota_messages::{DocKey, Op, OpResult, Write};
use rota_model::{LogPos, Refusal, RefusalKind, RequestId, Retry, Stamp};

/// The log of a partition that this manager owns, and the requests that wait there. Residents reach both
/// through this, and nothing else of the partition.
pub(crate) struct At<'a> {
    pub env: &'a mut Env,
    pub log: &'a mut Log,
    pub lead: &'a mut Lead,
    pub inbox: &'a mut Inbox,
    pub rounds: &'a mut Rounds,
    pub answered: &'a mut Answered,
}

impl At<'_> {
    /// Writes an entry. Only while serving.
    pub fn write(&mut self, writes: Vec<Write>, request: Option<RequestId>) -> LogPos {
        self.lead.write(self.env, self.log, writes, request)
    }

    /// Writes an entry that nobody waits for ([`Lead::write_unhurried`]).
    pub fn write_unhurried(&mut self, writes: Vec<Write>, request: Option<RequestId>) -> LogPos {
        self.lead.write_unhurried(self.env, self.log, writes, request)
    }

    /// Whether a new operation may be written: this partition serves, and is not wedged, and not too
    /// much is about to go to the disk. Who was read for before that, and is to be written for now, waits
    /// until it is over.
    pub fn may_begin(&self) -> bool {
        self.lead.is_open() && self.lead.has_copies(self.env) && !self.env.is_batch_full()
    }

    /// The slots of this partition.
    pub fn slots(&self) -> Slots {
        Slots { m: self.env.view().m, range: self.log.range }
    }

    pub fn stamps_above(&self) -> Stamp {
        self.log.stamps_above(self.env)
    }

    /// Why nothing more is written now, if so: too much is not committed.
    pub fn backlog(&self) -> Option<String> {
        self.log.backlog(self.env)
    }

    /// Why a request cannot be taken now, if so: it would wait behind a commit that may not come.
    pub fn refuses_backlog(&self, op: &Op) -> Option<Refusal> {
        self.lead.refuses_backlog(self.env, self.log, op)
    }

    /// What a request that waits here asks for, or why that cannot be taken now.
    pub fn taken(&self, origin: &Origin) -> Option<Result<Op, Refusal>> {
        let op = self.inbox.live.get(origin)?.op.clone();
        let refusal = if self.lead.reads() { self.refuses_backlog(&op) } else { None };
        Some(refusal.map_or(Ok(op), Err))
    }

    /// Whether the answer waits until the newest write of a document is committed.
    pub fn waits_for_commit(&self, key: &DocKey) -> bool {
        self.log.replica.latest.contains_key(key) || self.lead.is_lone()
    }

    /// Answers a request that waits here. A resident that keeps something of its own about it lets that go.
    pub fn reply(&mut self, origin: Origin, result: OpResult) {
        let Some(asked) = self.inbox.live.remove(&origin) else { return };
        self.answered.insert(self.env, origin, &asked.op, &result);
        self.env.answer(origin, result);
    }

    /// What a request is told whose deadline passed, and of which nobody knows what it came to.
    pub fn too_late(&self, text: &str) -> Refusal {
        let (kind, retry) =
            (RefusalKind::DeadlineExceeded, Retry::AfterMs(self.env.config.timing.retry_ms));
        Refusal::unknown_outcome(kind, retry, text)
    }

    /// Lets a request wait for a confirm round that begins after now.
    pub fn confirm_then(&mut self, origin: Origin) {
        self.rounds.next.push(origin);
    }

    /// Lets a request wait until the partition serves, or has enough copies.
    pub fn enqueue(&mut self, origin: Origin) {
        self.inbox.queue.push_back(origin);
    }
}
