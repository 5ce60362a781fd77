//! Whoever describes the pool: at the start, and anew in other ways while the cluster goes through chaos.

use crate::calls::CallFor;
use crate::event::{Event, Phase};
use crate::ground::Ground;
use crate::network::Place;
use crate::rng::SeededRng;
use rota_docstore::Request;
use rota_model::{LoadLimit, Policy, PoolName, PoolSettings};
use rota_protocol::api::OperateOp;
use rota_protocol::operate::{CONFIGURATION, SPACES_DOCID};
use rota_protocol::{Answer, DocumentAnswer, DocumentOp, Op, OpResult};
use serde_json::json;
use std::sync::Arc;

/// Whoever describes the pool.
#[derive(Clone, Debug)]
pub struct AdminHost {
    /// Of its own: whatever it does, others do as they would without it.
    rng: SeededRng,
    /// What it said last is what holds while nothing is disturbed.
    says_final: bool,
    /// That was taken.
    pub is_done: bool,
}

impl AdminHost {
    /// For the cluster of a seed.
    pub fn new(seed: u64) -> Self {
        Self { rng: SeededRng::new(seed ^ 0x706f_6f6c), says_final: false, is_done: false }
    }

    /// Tells some manager what the pool is like.
    pub fn on_describe(&mut self, ground: &mut Ground) {
        let base = ground.setup.pool();
        self.says_final = ground.phase != Phase::Chaos;
        let settings = if self.says_final {
            base
        } else {
            let rng = &mut self.rng;
            PoolSettings {
                policy: if rng.permille(300) { Policy::Spread } else { Policy::Pack },
                load_limit: LoadLimit::of_permille(1_000).filter(|_| rng.permille(300)),
                warm_places: u32::from(rng.permille(200)) * base.places,
                scale_in_delay_s: u32::from(rng.permille(400)),
                scale_in_below: LoadLimit::of_permille(500).filter(|_| rng.permille(500)),
                ..base
            }
        };
        let number = self.rng.pick(&ground.machines.numbers).0;
        let pool = PoolName::default_pool();
        let mut settings = json!(settings);
        // What is not given stays; without a value it has its default again.
        for field in PoolSettings::FIELDS {
            settings.as_object_mut().expect("a struct").entry(field).or_insert(json!(null));
        }
        let parameters = json!({"name": pool, "allow_missing": true, "settings": settings});
        let space = rota_model::Namespace::parse(CONFIGURATION).expect("z is a name");
        let request = Request::new(space, "pool.set").with(&parameters);
        let request = Arc::new(request.expect("a small document"));
        let op = OperateOp { request, docid: SPACES_DOCID.to_owned() };
        let op = Op::Documents(DocumentOp::Operate(op));
        ground.call(number, CallFor::Describe, Place::Client(0), 1_000, op);
    }

    /// The pool was described, or was not, or nobody knows.
    pub fn on_described(&mut self, ground: &mut Ground, result: Option<&OpResult>) {
        let is_done =
            matches!(result, Some(Ok(Answer::Documents(DocumentAnswer::Operated(Ok(_))))));
        if is_done && self.says_final {
            self.is_done = true;
            return;
        }
        let (from_us, to_us) = if is_done { (1_000_000, 6_000_000) } else { (50_000, 300_000) };
        let pause_us = self.rng.within(from_us, to_us);
        ground.queue.after(pause_us, Event::Describe);
    }
}
