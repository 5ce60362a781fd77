//! A copy that is known to lack what was acknowledged answers nobody until it is found again.

use crate::log::env::Env;
use crate::log::lead::{Lead, Phase};
use crate::log::recovery::{Looking, Recovery, Step};
use crate::log::resident::RequestHandler;
use crate::partition::state::{Leader, Partition, Role};
use crate::ports::note::Transition;
use rota_model::Epoch;

impl<R: RequestHandler> Partition<R> {
    /// The View says that this manager finds the partition again, under `pe`.
    pub fn recover(&mut self, env: &mut Env, pe: Epoch) {
        let why = self.halted.take().unwrap_or_else(|| {
            format!(
                "partition {} lost its last copy: the disk of manager {} lacks what was acknowledged",
                self.log.number, env.me.number
            )
        });
        let text = format!("{why}; sessions are found again from the nodes");
        env.note_text(Transition::LastCopyLost, Some(self.log.number), text);
        let until_ms = env.now.mono_ms + env.config.timing.recover_after_ms;
        let looking = Looking { until_ms, asked_ms: None, better: None, has_waited: false };
        self.lead_recovery(env, pe, Recovery { why, step: Step::Looking(looking) });
        self.find_out(env);
    }

    /// Goes on with finding out what must be known before the log may begin. That may show that this copy lacks
    /// something.
    pub fn find_out(&mut self, env: &mut Env) {
        if let Some(mut led) = self.led(env) {
            led.find_out();
        }
        self.heed_halt(env);
    }

    /// A resident may have found that what is here is not all that was acknowledged. Then nobody is answered
    /// from it any more.
    pub fn heed_halt(&mut self, env: &mut Env) {
        let Some(text) = self.leader_mut().and_then(|leader| leader.lead.halts.take()) else {
            return;
        };
        env.note_text(Transition::LastCopyLost, Some(self.log.number), text.clone());
        self.halted = Some(text);
        self.stay_halted(env, self.log.replica.pe);
    }

    /// The same under a later epoch, as long as the View does not say that it is given up.
    pub fn stay_halted(&mut self, env: &mut Env, pe: Epoch) {
        let Some(why) = self.halted.clone() else { return };
        self.lead_recovery(env, pe, Recovery { why, step: Step::GivingUp });
    }

    fn lead_recovery(&mut self, env: &mut Env, pe: Epoch, recovery: Recovery) {
        self.step_down(env);
        let copies = self.log.other_copies(env);
        let phase = Phase::Recover(Box::new(recovery));
        env.found(self.log.replica.high_water);
        let residents = R::begin(env, &phase);
        let leader = Leader::new(Lead::new(pe, phase, copies, env.now.mono_ms), residents);
        self.role = Role::Leader(Box::new(leader));
    }
}
