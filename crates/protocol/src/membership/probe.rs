//! Whether others still run, for a manager that takes its number again: it must know when its copies
//! would be left to them alone ([`rota_ring::absent`]).
//!
//! ```text
//!  claimer ── Probe ──▶ the run that the View names ── Probed { runs } ──▶ claimer
//!          └─ again with each heartbeat; silent for more than suspicion takes: gone
//! ```
//! Who answers, whatever it says, is never taken for silent. Who is there without that run says so at
//! once: a run that lost its process never comes back. In a cluster that lives this costs the claimer one
//! exchange of messages, and only if nobody has missed it yet.

use crate::log::env::Env;
use crate::manager::inputs::Manager;
use crate::membership::standing::Standing;
use crate::membership::state::Membership;
use rota_messages::{Envelope, Message};
use rota_model::{ManagerNumber, MemberId};
use rota_ring::View;

impl Manager {
    /// Whether this manager asks others whether they run, before it takes its number.
    pub fn asks_others(&self) -> bool {
        matches!(self.membership.standing, Standing::Probing { .. })
    }

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

impl Membership {
    /// Asks these of that View whether they run. What was found so far waits for it.
    pub(crate) fn probe(&mut self, env: &mut Env, view: &View, asked: Vec<MemberId>) {
        let now = env.now.mono_ms;
        // Who was asked under it and is still missing has its time.
        if matches!(self.standing, Standing::Probing { .. }) {
            return;
        }
        for member in &asked {
            let address = view.managers.get(&member.number).map(|it| it.grpc.clone());
            let reply_to = env.config.grpc.clone();
            env.send_to(address.unwrap_or_default(), *member, Message::Probe { reply_to });
        }
        let until_ms = now + env.config.timing.heartbeat_ms;
        let view = Box::new(view.clone());
        self.standing = Standing::Probing { view, asked, since_ms: now, until_ms };
    }

    /// The time for answers may be over: asks those again that are missing, under a View that is read
    /// anew, since somebody may have missed this manager meanwhile.
    pub(crate) fn drive_probes(&mut self, env: &Env) {
        let now = env.now.mono_ms;
        if let Standing::Probing { asked, since_ms, until_ms, .. } = &self.standing
            && now >= *until_ms
        {
            self.probes.on_missed(asked, *since_ms);
            self.standing = Standing::outside();
        }
    }
}
