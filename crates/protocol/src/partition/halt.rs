//! A copy that is known to lack what was acknowledged answers nobody until it is found again.

use crate::log::copies::Report;
use crate::log::env::Env;
use crate::partition::leading::{Leading, Phase};
use crate::partition::state::Partition;
use crate::ports::note::Transition;
use crate::sessions::scan_state::{Looking, Recovery, Scan, Step};
use rota_model::{Epoch, MemberId, Refusal, RefusalKind, Retry};

impl Partition {
    /// The View says that this manager finds the partition again, under `pe`.
    pub fn recover(&mut self, env: &mut Env, pe: Epoch) {
        let why = self.halted.take().unwrap_or_else(|| {
            format!(
                "partition {} lost its last copy: the disk of manager {} lacks what was acknowledged",
                self.number, env.me.number
            )
        });
        let text = format!("{why}; sessions are found again from the nodes");
        env.note_text(Transition::LastCopyLost, Some(self.number), text);
        let until_ms = env.now.mono_ms + env.config.timing.recover_after_ms;
        let scan = Scan::new(&env.nodes.reg);
        let looking = Looking { scan, until_ms, asked_ms: None, better: None, has_waited: false };
        self.lead_recovery(env, pe, Recovery { why, step: Step::Looking(looking) });
        self.drive_scan(env);
    }

    /// What is here is not all that was acknowledged. Nobody is answered from it any more.
    pub fn halt(&mut self, env: &mut Env, text: String) {
        env.note_text(Transition::LastCopyLost, Some(self.number), text.clone());
        self.halted = Some(text);
        self.stay_halted(env, self.replica.pe);
    }

    /// The same under a later epoch, as long as the View does not say that it is given up.
    pub fn stay_halted(&mut self, env: &mut Env, pe: Epoch) {
        let Some(why) = self.halted.clone() else { return };
        self.lead_recovery(env, pe, Recovery { why, step: Step::GivingUp });
    }

    fn lead_recovery(&mut self, env: &mut Env, pe: Epoch, recovery: Recovery) {
        self.step_down(env);
        let copies = self.other_copies(env);
        let phase = Phase::Recover(Box::new(recovery));
        env.found(self.replica.high_water);
        self.leading = Some(Box::new(Leading::new(pe, phase, copies, env.now.mono_ms)));
    }

    /// What everybody is told while the partition is being found again.
    pub fn recovering(&self) -> Option<Refusal> {
        let why = match &self.leading.as_ref()?.lead.phase {
            Phase::Recover(recovery) => &recovery.why,
            Phase::Scan(_) | Phase::Sync(_) | Phase::Serving | Phase::Wedged { .. } => return None,
        };
        let text = format!("{why}; sessions are being found again from the nodes");
        Some(Refusal::new(RefusalKind::Recovering, Retry::AfterMs(1_000), text))
    }

    pub(crate) fn recovery(&mut self) -> Option<&mut Recovery> {
        match &mut self.leading.as_mut()?.lead.phase {
            Phase::Recover(recovery) => Some(recovery),
            Phase::Scan(_) | Phase::Sync(_) | Phase::Serving | Phase::Wedged { .. } => None,
        }
    }

    /// A manager says what it holds. True when that was asked for a recovery.
    pub fn on_copy_offered(&mut self, from: MemberId, report: &Report) -> bool {
        let (mine, theirs) = (self.holding(), (report.committed, report.last));
        let Some(recovery) = self.recovery() else { return false };
        if let Step::Looking(looking) = &mut recovery.step
            && theirs > looking.better.map_or(mine, |it| it.0.max(mine))
        {
            looking.better = Some((theirs, from));
        }
        true
    }
}
