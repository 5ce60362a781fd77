//! How a manager takes its number: at its first start, after a restart, and after it was taken out
//! while it was alive. It writes down what it means to take, then takes it by compare-and-set, and
//! serves nobody before.

use crate::log::env::{Env, NameOf};
use crate::manager::inputs::Manager;
use crate::membership::purpose::Purpose;
use crate::membership::standing::{Probes, Standing};
use crate::membership::state::{FailureDetector, Membership};
use crate::partition::partitions::Partitions;
use crate::ports::io::Effect;
use crate::ports::note::Transition;
use rota_messages::{Envelope, Identity, Message};
use rota_model::{Epoch, Incarnation, ManagerNumber, ManagerStatus, MemberId, Nonce};
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
            let detector = &mut self.detector;
            return self.membership.on_claimed(&mut self.env, detector, incarnation, nonce);
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
            self.parts.intend_founding(&mut self.env, view);
        }
        let taken_over: Vec<ManagerNumber> = lone_parts(&next, number, next.epoch);
        for part in taken_over {
            self.parts.intend_epoch(&mut self.env, part, next.epoch);
        }
        let lsn = self.env.disk.lsn;
        self.membership.standing = Standing::Intending { lsn, next: Box::new(next), to };
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
        self.changes.ask(&mut self.env, Purpose::Claim, Change::view(next));
    }
}

fn lone_parts(view: &View, number: ManagerNumber, epoch: Epoch) -> Vec<ManagerNumber> {
    let active = rota_ring::PartitionState::Active;
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

    fn claim(&self, env: &Env, parts: &Partitions, nonce: Nonce) -> Claim {
        let config = &env.config;
        let held = [self.identity.taken, self.identity.intended].into_iter().flatten().collect();
        let disk: BTreeMap<ManagerNumber, Epoch> = (parts.all())
            .filter(|it| it.log.replica.whole)
            .map(|it| (it.log.number, it.log.replica.pe))
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
    pub(crate) fn on_claimed(
        &mut self,
        env: &mut Env,
        detector: &mut FailureDetector,
        incarnation: Incarnation,
        nonce: Nonce,
    ) {
        self.standing = Standing::Inside;
        self.claiming = None;
        // The View keeps the number from now on; should that leave, coming back is another order.
        self.joins = false;
        self.force_lost = false;
        self.identity = Identity { taken: Some((incarnation, nonce)), intended: None };
        env.persist_identity(self.identity.clone());
        env.me = MemberId { number: env.config.number, incarnation };
        env.note(Transition::Claimed, None);
        detector.heard.clear();
        self.probes = Probes::default();
    }
}

impl Manager {
    /// A question about a run of this manager, or an answer to one. Gives whether it was one.
    pub(crate) fn on_probing(&mut self, envelope: &Envelope) -> bool {
        let Envelope { from, to, message, .. } = envelope;
        if let Message::Probe { reply_to } = message {
            // Whether a claim of that very run was written is not known yet: it is asked again.
            let may_begin = self.membership.claiming.is_some_and(|it| it.0 == to.incarnation);
            let runs = *to == self.env.me && self.membership.standing == Standing::Inside;
            if to.number == self.env.me.number && (runs || !may_begin) {
                let answer = Message::Probed { incarnation: to.incarnation, runs };
                self.env.send_to(reply_to.clone(), *from, answer);
            }
            return true;
        }
        let Message::Probed { incarnation, runs } = message else { return false };
        if *to == self.env.me {
            let member = MemberId { number: from.number, incarnation: *incarnation };
            self.on_run_known(member, *runs);
        }
        true
    }

    /// The port of a manager that was asked refuses: nobody is there.
    pub(crate) fn on_probe_refused(&mut self, number: ManagerNumber, address: &str) {
        let Standing::Probing { view, asked, .. } = &self.membership.standing else { return };
        let is_there = view.managers.get(&number).is_some_and(|it| it.grpc == address);
        let member = asked.iter().find(|it| it.number == number).filter(|_| is_there).copied();
        if let Some(member) = member {
            self.on_run_known(member, false);
        }
    }

    fn on_run_known(&mut self, member: MemberId, runs: bool) {
        self.membership.probes.on_said(member, runs, self.env.now.mono_ms);
        if let Standing::Probing { view, .. } = &self.membership.standing {
            let view = view.clone();
            self.claim_in(&view);
            self.take_up_parts();
        }
    }
}

/// Whether the View still names this run as alive.
pub(crate) fn is_inside(env: &Env, view: &View) -> bool {
    view.managers
        .get(&env.me.number)
        .is_some_and(|entry| entry.incarnation == env.me.incarnation && entry.serves())
}
