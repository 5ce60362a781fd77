//! Ownership comes and goes; commits, and what they set going.

use crate::log::copies::SyncState;
use crate::log::env::Env;
use crate::log::inbox::Inbox;
use crate::log::origin::Origin;
use crate::partition::leading::{Leading, Phase};
use crate::partition::state::Partition;
use crate::ports::note::Transition;
use crate::sessions::scan_state::Scan;
use rota_messages::{DocKey, Op};
use rota_model::node_msg::Renewed;
use rota_model::{Changed, Epoch, Refusal, RefusalKind, Retry};
use std::collections::{BTreeSet, VecDeque};

impl Leading {
    /// Nodes whose renewals wait for a round that will never end ask again at once.
    fn give_up_renewals(mut self: Box<Self>, env: &mut Env) -> Box<Self> {
        let now = std::mem::take(&mut self.residents.leases.renewals_now);
        let next = std::mem::take(&mut self.residents.leases.renewals_next);
        for renewal in now.into_iter().chain(next) {
            crate::node_lease::reply::answer(env, renewal.call, Renewed::NotServing);
        }
        self
    }
}

impl Partition {
    /// The View says that this manager owns the partition under `pe`.
    pub fn lead(&mut self, env: &mut Env, pe: Epoch) {
        let Some(part) = self.entry(env) else { return };
        let lone_take_over = part.base_pe == pe && part.is_lone(env.me.number);
        let copies = self.other_copies(env);
        let before = self.leading.take();
        // Requests stay; everything that was known about the ring or the nodes may be outdated.
        let (mut live, mut promised) = before
            .map(|before| before.give_up_renewals(env))
            .map_or_else(Default::default, |it| (it.inbox.live, it.inbox.promised));
        for (origin, (asked, promise)) in std::mem::take(&mut self.inherited) {
            live.insert(origin, asked);
            // The arc was cut out while the log was at rest, so all of them lie below its first entry.
            promised.extend(promise);
        }
        // Operations that were appended are not begun again: their entries are in this log, and
        // are committed with the first one of this epoch.
        let is_operation =
            |origin: &Origin| live.get(origin).is_some_and(|it| matches!(it.op, Op::Documents(_)));
        let promised: VecDeque<_> =
            promised.into_iter().filter(|it| is_operation(&it.origin)).collect();
        let kept: BTreeSet<Origin> = promised.iter().map(|it| it.origin).collect();
        let phase = if lone_take_over && pe.0 > 1 {
            env.note(Transition::LoneTakeOver, Some(self.number));
            Phase::Scan(Scan::new(&env.nodes.reg))
        } else {
            env.note(Transition::SyncStarted, Some(self.number));
            Phase::Sync(SyncState::default())
        };
        env.found(self.replica.high_water);
        let queue = live.keys().filter(|it| !kept.contains(it)).copied().collect();
        self.leading = Some(Box::new(Leading {
            inbox: Inbox { live, queue, promised },
            ..Leading::new(pe, phase, copies, env.now.mono_ms)
        }));
        self.drive_scan(env);
        self.drive_sync(env);
    }

    /// The View says that another manager owns it.
    pub fn step_down(&mut self, env: &mut Env) {
        let Some(leading) = self.leading.take() else {
            return;
        };
        env.note(Transition::SteppedDown, Some(self.number));
        // Entries that nobody waited for are on no list any more.
        env.disk.persist_now = true;
        let leading = leading.give_up_renewals(env);
        let epoch = env.epoch();
        let appended: BTreeSet<Origin> =
            leading.inbox.promised.iter().map(|it| it.origin).collect();
        for (origin, asked) in leading.inbox.live {
            let text = format!("partition {} has another owner now", self.number);
            let (kind, retry) = (RefusalKind::NotOwner, Retry::AtOwner(epoch));
            let mut refusal = Refusal::new(kind, retry, text);
            // What was begun here may be gone, or may be finished by the next owner.
            let is_begun = !matches!(asked.op, Op::Documents(_)) || appended.contains(&origin);
            if is_begun {
                refusal.changed = Changed::Unknown;
            }
            let result = Err(refusal);
            self.settled.insert(env, origin, &asked.op, &result);
            env.answer(origin, result);
        }
    }

    /// Commits what the whole ISR, this manager's disk included, has acknowledged; then answers
    /// what was promised for it.
    pub fn advance_commit(&mut self, env: &mut Env) {
        let Some(leading) = &mut self.leading else {
            return;
        };
        let mut at = self.replica.durable;
        for copy in leading.lead.copies.values() {
            at = at.min(copy.flow.acked);
        }
        if at.pe != leading.lead.pe || at <= self.replica.committed {
            return;
        }
        let done = self.replica.commit_to(at, &env.config.sizes);
        // What is found again is acted on when the View says that it is all.
        if let Phase::Recover(_) = leading.lead.phase {
            return self.write_more(env);
        }
        self.keep_promises(env, at);
        let Some(leading) = &mut self.leading else { return };
        let synced =
            matches!(&leading.lead.phase, Phase::Sync(sync) if sync.at.is_some_and(|it| it <= at));
        if synced {
            self.start_serving(env);
        }
        let keys: BTreeSet<&DocKey> =
            done.iter().flat_map(|entry| entry.writes.iter().map(|write| &write.key)).collect();
        for key in keys {
            self.on_committed(env, key);
        }
        self.serve_pulls(env);
        self.serve_follows(env);
        self.drive_wedge(env);
    }

    fn start_serving(&mut self, env: &mut Env) {
        let Some(leading) = &mut self.leading else {
            return;
        };
        leading.lead.phase = Phase::Serving;
        leading.lead.since_ms = env.now.mono_ms;
        // Whatever an earlier owner told is not above what it had.
        leading.residents.documents.told = self.replica.high_water;
        for copy in leading.lead.copies.values_mut() {
            (copy.behind_ms, copy.difference) = (None, None);
        }
        env.note(Transition::Serving, Some(self.number));
        self.start_judging(env);
        self.redrive(env);
        self.drain_queue(env);
    }
}
