//! Linearizable reads: a confirm round with the other copies, shared by all that wait; a lone copy
//! reads the config store. Only committed documents are shown, and a READY that may be told early
//! ([`crate::sessions::version`]): by a read, a list, the snapshot of a watch.

use crate::log::env::{Env, ReadFor};
use crate::log::origin::Origin;
use crate::partition::leading::Phase;
use crate::partition::state::Partition;
use rota_model::{ManagerNumber, Refusal, RefusalKind, Retry};
use std::collections::BTreeSet;

impl Partition {
    /// Lets a request wait for a confirm round that begins after now.
    pub fn confirm_then(&mut self, origin: Origin) {
        if let Some(leading) = &mut self.leading {
            leading.rounds.next.push(origin);
        }
    }

    /// Begins a round when somebody waits and none is under way. Gives the peers to ask.
    pub fn begin_round(&mut self, env: &mut Env, round: u64) -> Vec<ManagerNumber> {
        let now = env.now.mono_ms;
        let number = self.number;
        let Some(leading) = &mut self.leading else {
            return Vec::new();
        };
        let committed = self.replica.committed;
        if leading.rounds.round.is_some() || !leading.wants_round(committed, now) {
            return Vec::new();
        }
        leading.rounds.proves = committed;
        leading.rounds.unread_since_ms.take_if(|_| !env.store.is_away);
        let mut peers: BTreeSet<ManagerNumber> = leading.lead.copies.keys().copied().collect();
        // Whoever gives a partition up may be out already, and its copies with it.
        if matches!(leading.lead.phase, Phase::Recover(_)) {
            peers.clear();
        }
        // Without copies the config store is read, which names whoever was added.
        if !peers.is_empty() {
            peers.extend(leading.lead.wedge.adding.keys());
        }
        leading.rounds.now = std::mem::take(&mut leading.rounds.next);
        leading.residents.leases.renewals_now =
            std::mem::take(&mut leading.residents.leases.renewals_next);
        leading.rounds.sent_ms = now;
        if peers.is_empty() {
            env.store.reads_wanted.push((number, ReadFor::Round(round)));
        }
        let asked = peers.iter().copied().collect();
        leading.rounds.round = Some((round, peers));
        asked
    }

    /// A copy knows this partition under this epoch.
    pub fn on_confirmed(&mut self, env: &mut Env, from: ManagerNumber, round: u64) {
        let Some(leading) = &mut self.leading else {
            return;
        };
        let Some((under_way, missing)) = &mut leading.rounds.round else {
            return;
        };
        if *under_way != round || !missing.remove(&from) || !missing.is_empty() {
            return;
        }
        self.finish_round(env);
    }

    /// The config store was read after that round began, and still names this epoch. A read that began
    /// before another round says nothing of what waits for that.
    pub fn on_config_read(&mut self, env: &mut Env, round: u64, reached: bool) {
        let Some(leading) = &mut self.leading else {
            return;
        };
        let under_way = leading.rounds.round.as_ref();
        if !under_way.is_some_and(|(it, missing)| *it == round && missing.is_empty()) {
            return;
        }
        if reached {
            self.finish_round(env);
            return;
        }
        leading.rounds.round = None;
        let renewals = std::mem::take(&mut leading.residents.leases.renewals_now);
        let now = std::mem::take(&mut leading.rounds.now);
        self.on_unread(env);
        for renewal in renewals {
            crate::node_lease::reply::not_judge(env, renewal.call, &renewal.renew.node);
        }
        for origin in now {
            let retry = Retry::AfterMs(env.config.timing.retry_ms);
            let text = "the only copy must read the config store first, and cannot reach it";
            let refusal = Refusal::new(RefusalKind::ConfigStoreAway, retry, text);
            self.reply(env, origin, Err(refusal));
        }
    }

    /// Who was to be added was not: a round needs no word of theirs any more.
    pub fn on_nobody_added(&mut self, env: &mut Env) {
        let Some(leading) = &mut self.leading else { return };
        leading.lead.wedge.adding.clear();
        let Some((_, missing)) = &mut leading.rounds.round else { return };
        let waited = !missing.is_empty();
        missing.retain(|it| leading.lead.copies.contains_key(it));
        if waited && missing.is_empty() {
            self.finish_round(env);
        }
    }

    fn finish_round(&mut self, env: &mut Env) {
        let Some(leading) = &mut self.leading else {
            return;
        };
        leading.rounds.round = None;
        let (reads, proves) = (leading.lead.reads(), leading.rounds.proves);
        let renewals = std::mem::take(&mut leading.residents.leases.renewals_now);
        let now = std::mem::take(&mut leading.rounds.now);
        self.keep_proven(env, proves);
        for renewal in renewals {
            self.on_renewal_confirmed(env, renewal);
        }
        for origin in now.into_iter().filter(|_| reads) {
            self.on_read_confirmed(env, origin);
        }
    }

    /// Sends a round again that stays unanswered. Gives the peers to ask again.
    pub fn repeat_round(&mut self, env: &Env) -> Option<(u64, Vec<ManagerNumber>)> {
        let leading = self.leading.as_mut()?;
        let due = env.now.mono_ms >= leading.rounds.sent_ms + env.config.timing.resend_ms;
        let (round, missing) = leading.rounds.round.as_ref().filter(|_| due)?;
        let again = (*round, missing.iter().copied().collect());
        leading.rounds.sent_ms = env.now.mono_ms;
        Some(again)
    }

    /// Whether a confirm round should begin.
    pub fn wants_round(&self, now_ms: u64) -> bool {
        self.leading.as_ref().is_some_and(|it| {
            it.rounds.round.is_none() && it.wants_round(self.replica.committed, now_ms)
        })
    }
}
