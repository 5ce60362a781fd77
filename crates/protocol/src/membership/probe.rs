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
use crate::membership::standing::Standing;
use crate::membership::state::Membership;
use rota_messages::Message;
use rota_model::MemberId;
use rota_ring::View;

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
