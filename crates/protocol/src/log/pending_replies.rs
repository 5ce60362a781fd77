//! Answers to what was written: kept until it is committed. What may go is found here alone,
//! and goes by `Led::release`.
//!
//! A copy that acknowledges also says that nobody else owns the partition. A lone owner has none, and its
//! own disk says nothing of that. So what it wrote is answered once the config store was read after the
//! commit, and still names it; unless a node took part, whose fence refuses a former owner. A lone owner that
//! cannot reach the store therefore opens and closes sessions, and refuses the rest as CONFIG_STORE_AWAY.

use crate::log::at::At;
use crate::log::inbox::Inbox;
use crate::log::origin::Origin;
use crate::log::requests::PendingReply;
use rota_messages::OpResult;
use rota_model::LogPos;

impl At<'_> {
    /// Keeps an answer until `at` is committed. Now somebody waits for everything up to there.
    pub fn promise(&mut self, at: LogPos, origin: Origin, result: OpResult) {
        self.enqueue_reply(PendingReply { at, origin, result, is_fenced: false });
    }

    /// The same for an answer in which a node took part.
    pub fn promise_fenced(&mut self, at: LogPos, origin: Origin, result: OpResult) {
        self.enqueue_reply(PendingReply { at, origin, result, is_fenced: true });
    }

    fn enqueue_reply(&mut self, reply: PendingReply) {
        self.inbox.pending_replies.push_back(reply);
        self.lead.unsent.dirty = true;
    }

    /// Takes the answers that may be let go when everything up to `at` is committed. Answers of a lone owner in
    /// which no node took part stay for [`Self::take_unproven`].
    pub(crate) fn take_committed(&mut self, at: LogPos) -> Vec<PendingReply> {
        let is_lone = self.lead.is_lone();
        let waiting = &mut self.inbox.pending_replies;
        let upto = waiting.partition_point(|reply| reply.at <= at);
        let committed = waiting.drain(..upto);
        let (now, later): (Vec<_>, Vec<_>) =
            committed.partition(|reply| reply.is_fenced || !is_lone);
        for waits in later.into_iter().rev() {
            waiting.push_front(waits);
        }
        now
    }

    /// Whether answers are committed and wait for the config store.
    pub fn has_unproven(&self, committed: LogPos) -> bool {
        let first = self.inbox.pending_replies.front();
        self.lead.is_lone() && first.is_some_and(|reply| reply.at <= committed)
    }

    /// Takes the answers that wait for the config store alone.
    pub(crate) fn take_unproven(&mut self, upto: LogPos) -> Vec<PendingReply> {
        if !self.has_unproven(upto) {
            return Vec::new();
        }
        let upto = self.inbox.pending_replies.partition_point(|reply| reply.at <= upto);
        self.inbox.pending_replies.drain(..upto).collect()
    }
}

impl Inbox {
    /// Takes the answer to a request that waits elsewhere from now on.
    pub fn take_pending(&mut self, origin: Origin) -> Option<PendingReply> {
        let at = self.pending_replies.iter().position(|reply| reply.origin == origin)?;
        self.pending_replies.remove(at)
    }
}
