//! Ownership comes and goes.

use crate::log::copies::SyncState;
use crate::log::env::Env;
use crate::log::inbox::Inbox;
use crate::log::lead::{Lead, Phase};
use crate::log::origin::Origin;
use crate::log::resident::RequestHandler;
use crate::partition::state::{Leader, Partition, Role};
use crate::ports::note::Transition;
use rota_messages::Op;
use rota_model::{Changed, Epoch, Refusal, RefusalKind, Retry};
use std::collections::{BTreeSet, VecDeque};

impl<R: RequestHandler> Partition<R> {
    /// The View says that this manager owns the partition under `pe`.
    pub fn lead(&mut self, env: &mut Env, pe: Epoch) {
        let Some(part) = self.log.entry(env) else { return };
        let lone_take_over = part.base_pe == pe && part.is_lone(env.me.number);
        let copies = self.log.other_copies(env);
        // Requests stay; everything that was known about the ring or the nodes may be outdated.
        let mut stays = None;
        let (mut live, mut pending_replies) = match self.take_leader() {
            Some(mut before) => {
                before.residents.hand_on(stays.insert(R::begin(env, &before.lead.phase)));
                before.residents.step_down(env);
                (before.inbox.live, before.inbox.pending_replies)
            }
            None => Default::default(),
        };
        for (origin, (asked, promise)) in std::mem::take(&mut self.inherited) {
            live.insert(origin, asked);
            // The arc was cut out while the log was at rest, so all of them lie below its first entry.
            pending_replies.extend(promise);
        }
        // Operations that were appended are not begun again: their entries are in this log, and
        // are committed with the first one of this epoch.
        let is_operation = |origin: &Origin| {
            live.get(origin).is_some_and(|asked| matches!(asked.op, Op::Documents(_)))
        };
        let pending_replies: VecDeque<_> =
            pending_replies.into_iter().filter(|it| is_operation(&it.origin)).collect();
        let kept: BTreeSet<Origin> = pending_replies.iter().map(|it| it.origin).collect();
        let phase = if lone_take_over && pe.0 > 1 {
            env.note(Transition::LoneTakeOver, Some(self.log.number));
            Phase::Scan
        } else {
            env.note(Transition::SyncStarted, Some(self.log.number));
            Phase::Sync(SyncState::default())
        };
        env.leases.granted.end(self.log.number);
        env.found(self.log.replica.high_water);
        let queue = live.keys().filter(|origin| !kept.contains(origin)).copied().collect();
        let mut residents = R::begin(env, &phase);
        if let Some(mut stays) = stays {
            stays.hand_on(&mut residents);
        }
        let mut leader = Leader::new(Lead::new(pe, phase, copies, env.now.mono_ms), residents);
        leader.inbox = Inbox { live, queue, pending_replies };
        self.role = Role::Leader(Box::new(leader));
        self.find_out(env);
        if let Some(mut led) = self.led(env) {
            led.drive_sync();
        }
    }

    /// The View says that another manager owns it.
    pub fn step_down(&mut self, env: &mut Env) {
        let Some(mut leader) = self.take_leader() else { return };
        env.note(Transition::SteppedDown, Some(self.log.number));
        // Entries that nobody waited for are on no list any more.
        env.disk.persist_now = true;
        leader.residents.step_down(env);
        env.leases.granted.end(self.log.number);
        let epoch = env.epoch();
        let Inbox { live, pending_replies, .. } = leader.inbox;
        let appended: BTreeSet<Origin> = pending_replies.iter().map(|it| it.origin).collect();
        for (origin, asked) in live {
            let text = format!("partition {} has another owner now", self.log.number);
            let (kind, retry) = (RefusalKind::NotOwner, Retry::AtOwner(epoch));
            let mut refusal = Refusal::new(kind, retry, text);
            // What was begun here may be gone, or may be finished by the next owner.
            let is_begun = !matches!(asked.op, Op::Documents(_)) || appended.contains(&origin);
            if is_begun {
                refusal.changed = Changed::Unknown;
            }
            let result = Err(refusal);
            self.answered.insert(env, origin, &asked.op, &result);
            env.answer(origin, result);
        }
    }
}
