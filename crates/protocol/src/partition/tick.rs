//! The tick of a partition.

use crate::log::env::Env;
use crate::log::lead::Phase;
use crate::log::resident::RequestHandler;
use crate::partition::state::{Leader, Partition};

impl<R: RequestHandler> Partition<R> {
    /// Whether something here waits for time to pass, or goes on with each tick.
    pub fn is_busy(&self, env: &Env) -> bool {
        let Some(Leader { lead, inbox, residents, .. }) = self.leader() else {
            return self.is_follower() && self.log.is_to_be_dropped(env);
        };
        // Who follows the namespaces always waits, and for nothing that time brings.
        inbox.live.len() > residents.patient()
            || residents.is_busy()
            || !lead.newcomers.learners.is_empty()
            || !lead.newcomers.missing.is_empty()
            || !matches!(lead.phase, Phase::Serving)
    }

    /// Time passed.
    pub fn tick(&mut self, env: &mut Env) {
        self.answered.forget(env.now.mono_ms);
        if self.is_follower() {
            return self.log.drop_replica(env);
        }
        let Some(mut led) = self.led(env) else { return };
        led.expire();
        self.find_out(env);
        if let Some(mut led) = self.led(env) {
            led.tick();
        }
    }

    /// The registry of nodes changed.
    pub fn nodes_changed(&mut self, env: &mut Env) {
        if let Some(mut led) = self.led(env) {
            led.residents.nodes_changed(&mut led.at);
        }
    }
}
