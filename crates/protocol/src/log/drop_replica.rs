//! What a manager holds of a partition that it copies no more: dropped, in memory and on disk, once
//! as many others as the ring wants hold it.

use crate::log::env::Env;
use crate::log::state::Log;
use crate::ports::note::Transition;
use rota_messages::DocKey;

/// At a follower only: who learns or leads keeps what it has.
impl Log {
    /// Drops some of what is here, if this is a former copy that nobody will ask for.
    ///
    /// Nothing reads it: who is outside the ISR comes back by learning, and that replaces everything
    /// here. It is kept while copies are missing, for people to look at should the others die. And it
    /// is kept while this run may have acknowledged something under the current epoch, as a learner:
    /// then its log must not go back.
    pub fn drop_replica(&mut self, env: &mut Env) {
        if !self.is_to_be_dropped(env) {
            return;
        }
        if self.replica.whole || !self.replica.latest.is_empty() {
            env.note(Transition::CopyDropped, Some(self.number));
            // Whoever reads this disk must not take the rest for a copy.
            self.replica.whole = false;
            let last = self.replica.last;
            self.replica.restart_at(last);
        }
        let some = self.replica.docs.keys().take(env.config.sizes.purge_docs);
        let some: Vec<DocKey> = some.cloned().collect();
        for key in some {
            self.replica.set(&key, None);
            env.persist_doc(key, None);
        }
        self.persist_meta(env);
    }

    /// Whether something is left of a copy that nobody will ask for.
    pub fn is_to_be_dropped(&self, env: &Env) -> bool {
        let is_empty = self.replica.docs.is_empty() && self.replica.latest.is_empty();
        !is_empty && self.is_replica_unneeded(env)
    }

    fn is_replica_unneeded(&self, env: &Env) -> bool {
        let me = env.me;
        // From its disk a manager knows partitions before it has seen a View.
        let Some(view) = env.view.as_deref() else { return false };
        let part = view.parts.get(&self.number);
        let Some(part) = part.filter(|_| view.member(me.number) == Some(me)) else {
            return false;
        };
        if part.has(me.number) {
            return false;
        }
        // Who was taken out comes back within moments, and needs less of what is the same.
        let serving = part.isr.iter().filter(|it| view.is_up(it.number)).count();
        let enough = serving > view.r as usize && view.is_up(me.number);
        let settled = self.replica.pe == part.pe && self.replica.last.pe < part.pe;
        enough && settled && !view.wanted(self.number).contains(&me.number)
    }
}
