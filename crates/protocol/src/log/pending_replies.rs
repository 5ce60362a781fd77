//! Answers to what was written: kept until it is committed, and let go here alone.
//!
//! A copy that acknowledges also says that nobody else owns the partition. A lone owner has none, and its
//! own disk says nothing of that. So what it wrote is answered once the config store was read after the
//! commit, and still names it; unless a node took part, whose fence refuses a former owner. A lone owner that
//! cannot reach the store therefore opens and closes sessions, and refuses the rest as CONFIG_STORE_AWAY.

use crate::log::backlog::LOST_AFTER;
use crate::log::env::Env;
use crate::log::origin::Origin;
use crate::log::requests::Promised;
use crate::partition::state::Partition;
use rota_messages::{DocKey, OpResult};
use rota_model::{Changed, LogPos, Refusal, RefusalKind, Retry};

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
            leading.inbox.promised.push_back(promised);
            leading.lead.unsent.dirty = true;
        }
    }

    /// Whether this owner is the only copy.
    pub fn has_no_copies(&self) -> bool {
        self.leading.as_ref().is_some_and(|it| it.lead.copies.is_empty())
    }

    /// Everything up to there is committed. Answers of a lone owner in which no node took part stay for
    /// [`Self::keep_proven`].
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
        let is_over = now >= leading.rounds.again_ms + patience_ms;
        leading.rounds.unread_since_ms.take_if(|_| is_over);
        leading.rounds.again_ms = now + retry_ms;
        let since = *leading.rounds.unread_since_ms.get_or_insert(now);
        let proves = leading.rounds.proves;
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
        let upto = leading.inbox.promised.partition_point(|it| it.at <= upto);
        leading.inbox.promised.drain(..upto).collect()
    }

    pub(crate) fn let_go(&mut self, env: &mut Env, promised: Promised) {
        let Some(leading) = &mut self.leading else { return };
        let Promised { origin, result, .. } = promised;
        if let Some(asked) = leading.inbox.live.remove(&origin) {
            leading.residents.documents.runs.remove(&origin);
            self.settled.insert(env, origin, &asked.op, &result);
            env.answer(origin, result);
        }
    }
}

impl Partition {
    /// Lets a request wait until the partition serves, or has enough copies.
    pub fn enqueue(&mut self, origin: Origin) {
        if let Some(leading) = &mut self.leading {
            leading.inbox.queue.push_back(origin);
        }
    }

    /// Answers once the newest write of a document is committed.
    pub fn reply_when_committed(
        &mut self,
        env: &mut Env,
        key: &DocKey,
        origin: Origin,
        result: OpResult,
    ) {
        if self.replica.latest.contains_key(key) || self.has_no_copies() {
            // Promises are kept in order of position: wait for everything that was appended.
            self.promise(self.replica.last, origin, result);
        } else {
            self.reply(env, origin, result);
        }
    }
}
