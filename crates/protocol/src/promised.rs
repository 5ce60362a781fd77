//! Answers to what was written: kept until it is committed, and let go here alone.
//!
//! A copy that acknowledges also says that nobody else owns the partition. A lone owner has none, and its
//! own disk says nothing of that. So what it wrote is answered once the config store was read after the
//! commit, and still names it; unless a node took part, whose fence refuses a former owner. A lone owner that
//! cannot reach the store therefore opens and closes sessions, and refuses the rest as CONFIG_STORE_AWAY.

use crate::backlog::LOST_AFTER;
use crate::entry::Origin;
use crate::env::Env;
use crate::leading::Leading;
use crate::partition::Partition;
use rota_messages::OpResult;
use rota_model::{Changed, LogPos, Refusal, RefusalKind, Retry};

/// An answer that waits.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Promised {
    /// Until this is committed.
    pub at: LogPos,
    /// Who asked.
    pub origin: Origin,
    /// What they get.
    pub result: OpResult,
    /// Whether a node took part in what is answered.
    is_fenced: bool,
}

impl Leading {
    /// Whether answers are committed and wait for the config store.
    pub fn has_unproven(&self, committed: LogPos) -> bool {
        self.copies.is_empty() && self.promised.front().is_some_and(|it| it.at <= committed)
    }

    /// Whether somebody waits for a confirm round, or for another read of the config store.
    pub fn wants_round(&self, committed: LogPos, now_ms: u64) -> bool {
        !self.reads.next.is_empty()
            || !self.reads.renewals_next.is_empty()
            || self.has_unproven(committed) && now_ms >= self.reads.again_ms
    }

    /// Takes the answer to a request that waits elsewhere from now on.
    pub fn take_promise(&mut self, origin: Origin) -> Option<Promised> {
        let at = self.promised.iter().position(|it| it.origin == origin)?;
        self.promised.remove(at)
    }

    /// Takes the answers that may be let go when everything up to `at` is committed.
    fn take_promised(&mut self, at: LogPos) -> Vec<Promised> {
        let is_lone = self.copies.is_empty();
        let upto = self.promised.partition_point(|it| it.at <= at);
        let committed = self.promised.drain(..upto);
        let (now, later): (Vec<_>, Vec<_>) = committed.partition(|it| it.is_fenced || !is_lone);
        for waits in later.into_iter().rev() {
            self.promised.push_front(waits);
        }
        now
    }
}

impl Partition {
    /// Keeps an answer until `at` is committed. Now somebody waits for everything up to there.
    pub fn promise(&mut self, at: LogPos, origin: Origin, result: OpResult) {
        self.keep(Promised { at, origin, result, is_fenced: false });
    }

    /// The same for an answer in which a node took part.
    pub fn promise_fenced(&mut self, at: LogPos, origin: Origin, result: OpResult) {
        self.keep(Promised { at, origin, result, is_fenced: true });
    }

    fn keep(&mut self, promised: Promised) {
        if let Some(leading) = &mut self.leading {
            leading.promised.push_back(promised);
            leading.dirty = true;
        }
    }

    /// Whether this owner is the only copy.
    pub fn has_no_copies(&self) -> bool {
        self.leading.as_ref().is_some_and(|it| it.copies.is_empty())
    }

    /// Everything up to there is committed. The only place where an answer to a write is let go.
    pub fn keep_promises(&mut self, env: &mut Env, at: LogPos) {
        let Some(leading) = &mut self.leading else { return };
        for promised in leading.take_promised(at) {
            self.let_go(env, promised);
        }
    }

    /// The config store was read since everything up to there was committed, and names this owner.
    pub fn keep_proven(&mut self, env: &mut Env, upto: LogPos) {
        for promised in self.take_unproven(upto) {
            self.let_go(env, promised);
        }
    }

    /// The config store could not be read. It may be back in a moment, so answers wait a little: for as
    /// long as new work does where a copy is lost.
    pub fn on_unread(&mut self, env: &mut Env) {
        let (now, timing) = (env.now.mono_ms, &env.config.timing);
        let (retry_ms, patience_ms) = (timing.retry_ms, timing.suspect_ms * LOST_AFTER);
        let Some(leading) = &mut self.leading else { return };
        // Where nothing was asked of it for so long, it may have been back in between.
        let is_over = now >= leading.reads.again_ms + patience_ms;
        leading.reads.unread_since_ms.take_if(|_| is_over);
        leading.reads.again_ms = now + retry_ms;
        let since = *leading.reads.unread_since_ms.get_or_insert(now);
        let proves = leading.reads.proves;
        if now < since + patience_ms {
            return;
        }
        for mut promised in self.take_unproven(proves) {
            let retry = Retry::AfterMs(retry_ms);
            let text = "it is written, but the only copy must read the config store before it says so, and \
                        cannot reach it";
            let refusal = Refusal::new(RefusalKind::ConfigStoreAway, retry, text);
            promised.result = Err(Refusal { changed: Changed::Unknown, ..refusal });
            self.let_go(env, promised);
        }
    }

    fn take_unproven(&mut self, upto: LogPos) -> Vec<Promised> {
        let Some(leading) = self.leading.as_mut().filter(|it| it.has_unproven(upto)) else {
            return Vec::new();
        };
        let upto = leading.promised.partition_point(|it| it.at <= upto);
        leading.promised.drain(..upto).collect()
    }

    fn let_go(&mut self, env: &mut Env, promised: Promised) {
        let Some(leading) = &mut self.leading else { return };
        let Promised { origin, result, .. } = promised;
        if let Some(asked) = leading.live.remove(&origin) {
            leading.runs.remove(&origin);
            self.settled.insert(env, origin, &asked.op, &result);
            env.answer(origin, result);
        }
    }
}
