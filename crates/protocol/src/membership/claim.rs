//! How a manager takes its number: at its first start, after a restart, and after it was taken out
//! while it was alive. It writes down what it means to take, then takes it by compare-and-set, and
//! serves nobody before.

use crate::log::env::{Env, NameOf};
use crate::manager::inputs::Manager;
use crate::membership::standing::{Probes, Standing};
use crate::membership::state::Membership;
use crate::partition::partitions::Parts;
use crate::ports::io::Effect;
use crate::ports::note::Transition;
use rota_messages::{Identity, PartMeta};
use rota_model::{Epoch, Incarnation, LogPos, ManagerNumber, ManagerStatus, MemberId, Nonce};
use rota_ring::{Change, Claim, ClaimRefused, Others, View};
use std::collections::BTreeMap;

impl Manager {
    /// The config store was read: claim the number in that View. What is older than what is known by now
    /// tells nothing of the number: from a store that went back for a moment it may be refused for good.
    pub(crate) fn claim_in(&mut self, view: &View) {
        if view.epoch < self.env.epoch() {
            return self.membership.read_again(&self.env);
        }
        let number = self.env.config.number;
        let entry = view.managers.get(&number);
        // A data folder keeps to one nonce per incarnation, so that a compare-and-set whose outcome
        // is unknown and its repetition, by a later run too, are the same claim.
        let target = entry.map_or(Incarnation(1), |it| it.incarnation.next());
        let meant = self.membership.claiming.or(self.membership.identity.intended);
        let nonce = match meant.filter(|(incarnation, _)| *incarnation == target) {
            Some((_, nonce)) => nonce,
            None => Nonce(self.env.random() | 1),
        };
        if let (Some(entry), Some((incarnation, nonce))) = (entry, self.membership.claiming)
            && entry.incarnation == incarnation
            && entry.nonce == nonce
        {
            self.membership.on_claimed(&mut self.env, incarnation, nonce);
            return self.detector.heard.clear();
        }
        // Who was in has left with that; who was never in is refused, or told to come again.
        let has_left = entry.is_some_and(|it| it.status == ManagerStatus::Left);
        if has_left && self.env.me.incarnation > Incarnation(0) {
            return self.go_out(view);
        }
        let claim = self.membership.claim(&self.env, &self.parts, nonce);
        let (now, timing) = (self.env.now.mono_ms, &self.env.config.timing);
        let gone = match view.others(&claim, &|it| self.membership.probes.runs(it, now, timing)) {
            Ok(Others::Gone(gone)) => gone,
            Ok(Others::Ask(asked)) => return self.membership.probe(&mut self.env, view, asked),
            Err(refused) => return self.membership.standing = Standing::Refused(refused),
        };
        let claimed = match view.claimed_beside(&claim, &gone) {
            Err(ClaimRefused::NotReserved(..) | ClaimRefused::HasLeft(_))
                if self.membership.joins =>
            {
                view.claimed_or_joined(&claim)
            }
            claimed => claimed,
        };
        let next = match claimed {
            Ok(next) => next,
            Err(refused) => {
                self.membership.standing = Standing::Refused(refused);
                return;
            }
        };
        if !gone.is_empty() {
            let names: Vec<String> = gone.iter().map(ToString::to_string).collect();
            let text = format!("managers {}", names.join(", "));
            self.env.note_text(Transition::OthersGone, None, text);
        }
        let to = (target, nonce);
        self.membership.claiming = Some(to);
        // What an earlier run meant to take and did take must not be forgotten for the new intent.
        let standing = entry.map(|it| (it.incarnation, it.nonce));
        if standing.is_some() && standing == self.membership.identity.intended {
            self.membership.identity.taken = standing;
        }
        self.membership.identity.intended = Some(to);
        self.env.persist_identity(self.membership.identity.clone());
        if entry.is_some_and(|it| it.incarnation == Incarnation(0)) {
            self.intend_founding(view);
        }
        let taken_over: Vec<ManagerNumber> = lone_parts(&next, number, next.epoch);
        for part in taken_over {
            self.intend_epoch(part, next.epoch);
        }
        let lsn = self.env.disk.lsn;
        self.membership.standing = Standing::Intending { lsn, next: Box::new(next), to };
    }

    /// A copy that never ran is exact while it is empty. The disk must say so before the first
    /// claim: the run that claims may end before it hears of it.
    fn intend_founding(&mut self, view: &View) {
        for (number, entry) in &view.parts {
            if entry.has(self.env.config.number) {
                let meta = PartMeta {
                    pe: entry.pe,
                    last: LogPos::ZERO,
                    whole: true,
                    forgotten: self.env.stamps.forgotten,
                    found_from: None,
                };
                self.env.persist_part(*number, meta);
                if let Some(part) = self.parts.get_mut(number) {
                    part.replica.whole = true;
                    part.replica.pe = part.replica.pe.max(entry.pe);
                }
            }
        }
    }

    /// The disk must know the epoch of a take-over before it happens, or the next restart would
    /// take this disk for an old one.
    fn intend_epoch(&mut self, part: ManagerNumber, pe: Epoch) {
        if let Some(partition) = self.parts.get_mut(&part) {
            // Here too: this run may be taken out before it hears that it was in, and claims again.
            partition.replica.pe = pe;
            let meta = partition.meta(&self.env);
            self.env.persist_part(part, meta);
        }
    }

    /// The intent is on disk: take the number.
    pub(crate) fn on_intent_persisted(&mut self, lsn: u64) {
        let Standing::Intending { lsn: due, next, to } = &self.membership.standing else {
            return;
        };
        if *due > lsn {
            return;
        }
        let (next, to) = ((**next).clone(), *to);
        self.membership.standing = Standing::Asking { to };
        self.ask_view(crate::membership::purpose::Purpose::Claim, Change::view(next));
    }

    /// Whether the View still names this run as alive.
    pub(crate) fn is_inside(env: &Env, view: &View) -> bool {
        view.managers
            .get(&env.me.number)
            .is_some_and(|entry| entry.incarnation == env.me.incarnation && entry.serves())
    }
}

fn lone_parts(view: &View, number: ManagerNumber, epoch: Epoch) -> Vec<ManagerNumber> {
    let active = rota_ring::PartState::Active;
    let lone = view
        .parts
        .iter()
        .filter(|(_, part)| part.base_pe == epoch && part.is_lone(number) && part.state == active);
    lone.map(|(n, _)| *n).collect()
}

impl Membership {
    /// What was read tells nothing of the number: after a pause it is read again.
    pub(crate) fn read_again(&mut self, env: &Env) {
        let again_ms = env.now.mono_ms + env.config.timing.retry_ms;
        self.standing = Standing::Outside { read: None, again_ms };
    }

    fn claim(&self, env: &Env, parts: &Parts, nonce: Nonce) -> Claim {
        let config = &env.config;
        let held = [self.identity.taken, self.identity.intended].into_iter().flatten().collect();
        let disk: BTreeMap<ManagerNumber, Epoch> = (parts.all())
            .filter(|it| it.replica.whole)
            .map(|it| (it.number, it.replica.pe))
            .collect();
        Claim {
            number: config.number,
            id: config.id.clone(),
            grpc: config.grpc.clone(),
            http: config.http.clone(),
            held,
            taken: self.identity.taken.map(|(incarnation, _)| incarnation),
            nonce,
            disk,
            force_lost: self.force_lost,
            times: config.timing.of_cluster(),
            peer_times: config.timing.of_peers(),
        }
    }

    /// Goes on with the claim: asks for a consistent read when that is due.
    pub(crate) fn drive_claim(&mut self, env: &mut Env) {
        self.drive_probes(env);
        let now = env.now.mono_ms;
        let retry_ms = env.config.timing.retry_ms;
        if let Standing::Outside { read, again_ms } = &mut self.standing
            && now >= *again_ms
        {
            let id = env.next_id(NameOf::Read);
            (*read, *again_ms) = (Some(id), now + retry_ms.max(1) * 10);
            env.effects.push(Effect::ReadConfig { read: id });
        }
    }

    /// The View names this run.
    pub(crate) fn on_claimed(&mut self, env: &mut Env, incarnation: Incarnation, nonce: Nonce) {
        self.standing = Standing::Inside;
        self.claiming = None;
        // The View keeps the number from now on; should that leave, coming back is another order.
        self.joins = false;
        self.force_lost = false;
        self.identity = Identity { taken: Some((incarnation, nonce)), intended: None };
        env.persist_identity(self.identity.clone());
        env.me = MemberId { number: env.config.number, incarnation };
        env.note(Transition::Claimed, None);
        self.probes = Probes::default();
    }
}
