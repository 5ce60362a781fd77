//! A request arrives at the owner.

use crate::log::env::Env;
use crate::log::origin::Origin;
use crate::log::requests::Asked;
use crate::log::resident::RequestHandler;
use crate::partition::led::Led;
use crate::partition::state::{Leader, Partition};
use crate::settings::sizes::REQUESTS_MAX;
use rota_messages::Op;
use rota_model::{Refusal, RefusalKind, Retry};

impl<R: RequestHandler> Partition<R> {
    /// A request arrives at the owner. A repetition of one that waits here is dropped, before all else.
    pub fn on_request(&mut self, env: &mut Env, origin: Origin, op: Op, deadline_ms: u64) {
        if self.leader().is_some_and(|leader| leader.inbox.live.contains_key(&origin)) {
            return;
        }
        if let Some(result) = self.answered.get(origin, &op) {
            return env.answer(origin, result);
        }
        if let Some(refusal) = self.refuses(env, &op) {
            return self.refuse_at_once(env, origin, &op, refusal);
        }
        if let Some(mut led) = self.led(env) {
            led.take_in(origin, op, deadline_ms);
        }
    }

    /// Why a request is not taken in at all, if so.
    fn refuses(&self, env: &Env, op: &Op) -> Option<Refusal> {
        let Some(Leader { lead, inbox, .. }) = self.leader() else {
            let text = format!("this manager does not own partition {}", self.log.number);
            let retry = Retry::AtOwner(env.epoch());
            return Some(Refusal::new(RefusalKind::NotOwner, retry, text));
        };
        let refusal = lead.recovering();
        refusal.or_else(|| inbox.live.refuse(env, op, REQUESTS_MAX, "partition"))
    }

    fn refuse_at_once(&mut self, env: &mut Env, origin: Origin, op: &Op, refusal: Refusal) {
        let result = Err(refusal);
        self.answered.insert(env, origin, op, &result);
        env.answer(origin, result);
    }
}

impl<R: RequestHandler> Led<'_, R> {
    /// Takes a request in, and carries it out or lets it wait.
    fn take_in(&mut self, origin: Origin, op: Op, deadline_ms: u64) {
        let arrived_ms = self.at.env.now.mono_ms;
        let deadline_ms = arrived_ms + deadline_ms;
        self.at.inbox.live.insert(origin, Asked { op, deadline_ms, arrived_ms, ending: None });
        self.residents.run(&mut self.at, origin);
    }
}
