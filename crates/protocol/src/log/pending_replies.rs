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
use crate::log::requests::Promised;
use rota_messages::OpResult;
use rota_model::LogPos;

impl At<'_> {
    /// Keeps an answer until `at` is committed. Now somebody waits for everything up to there.
    pub fn promise(&mut self, at: LogPos, origin: Origin, result: OpResult) {
        self.keep(Promised { at, origin, result, is_fenced: false });
    }

    /// The same for an answer in which a node took part.
    pub fn promise_fenced(&mut self, at: LogPos, origin: Origin, result: OpResult) {
        self.keep(Promised { at, origin, result, is_fenced: true });
    }

    fn keep(&mut self, promised: Promised) {
        self.inbox.promised.push_back(promised);
        self.lead.unsent.dirty = true;
    }

    /// Takes the answers that may be let go when everything up to `at` is committed. Answers of a lone owner in
    /// which no node took part stay for [`Self::take_unproven`].
    pub(crate) fn take_promised(&mut self, at: LogPos) -> Vec<Promised> {
        let is_lone = self.lead.is_lone();
        let waiting = &mut self.inbox.promised;
        let upto = waiting.partition_point(|promised| promised.at <= at);
        let committed = waiting.drain(..upto);
        let (now, later): (Vec<_>, Vec<_>) =
            committed.partition(|promised| promised.is_fenced || !is_lone);
        for waits in later.into_iter().rev() {
            waiting.push_front(waits);
        }
        now
    }

    /// Whether answers are committed and wait for the config store.
    pub fn has_unproven(&self, committed: LogPos) -> bool {
        let first = self.inbox.promised.front();
        self.lead.is_lone() && first.is_some_and(|promised| promised.at <= committed)
    }

    /// Takes the answers that wait for the config store alone.
    pub(crate) fn take_unproven(&mut self, upto: LogPos) -> Vec<Promised> {
        if !self.has_unproven(upto) {
            return Vec::new();
        }
        let upto = self.inbox.promised.partition_point(|promised| promised.at <= upto);
        self.inbox.promised.drain(..upto).collect()
    }
}

impl Inbox {
    /// Takes the answer to a request that waits elsewhere from now on.
    pub fn take_promise(&mut self, origin: Origin) -> Option<Promised> {
        let at = self.promised.iter().position(|promised| promised.origin == origin)?;
        self.promised.remove(at)
    }
}
