//! Clients: they open, close and read the same few sessions through any manager, follow the advice
//! of refusals, give up after a while, and sometimes repeat a request that was answered.

use crate::calls::CallFor;
use crate::counters::Fault;
use crate::event::{Event, Phase};
use crate::ground::Ground;
use crate::ledger::{Asked, Attempt, Wish};
use crate::network::Place;
use crate::rng::SeededRng;
use crate::setup::{CLASS, CLIENT_DEADLINE_MS_MAX};
use rota_model::{
    ClassName, CloseOp, Filter, GetOp, LifeOptions, ListCursor, ListOp, Namespace, OpenOp,
    PoolName, RefusalKind, RequestId, Retry, SessionKey, SessionSpec, SessionState, SlotId, Stamp,
};
use rota_protocol::{Answer, Op, OpResult};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A client.
#[derive(Clone, Debug)]
pub struct ClientHost {
    /// Which one it is.
    index: usize,
    rng: SeededRng,
    /// Its request under way, by its index in the book, and when it gives up.
    current: Option<(usize, u64)>,
    /// Its requests that were answered.
    answered: Vec<usize>,
    /// The life of each session as last heard.
    lives: BTreeMap<SessionKey, Stamp>,
}

impl ClientHost {
    /// A client with nothing under way.
    pub fn new(index: usize, rng: SeededRng) -> Self {
        let (current, answered, lives) = (None, Vec::new(), BTreeMap::new());
        Self { index, rng, current, answered, lives }
    }

    /// Whether a request is under way.
    pub fn is_busy(&self) -> bool {
        self.current.is_some()
    }

    /// The client does its next thing.
    pub fn on_next(&mut self, ground: &mut Ground) {
        if ground.phase == Phase::Quiet || self.is_busy() {
            return;
        }
        let dice = self.rng.within(0, 99);
        match dice {
            0..=43 => self.begin(ground, Wish::Open),
            44..=63 => {
                let key = self.rng.pick(&ground.setup.keys).clone();
                let named = self.lives.get(&key).copied();
                let named = named.filter(|_| self.rng.permille(250));
                self.begin_at(ground, key, Wish::Close(named));
            }
            64..=84 => {
                let stale_ok = self.rng.permille(80);
                self.begin(ground, Wish::Get(stale_ok));
            }
            85..=89 => self.ask_page(ground),
            _ => self.repeat(ground),
        }
    }

    fn begin(&mut self, ground: &mut Ground, wish: Wish) {
        let key = self.rng.pick(&ground.setup.keys).clone();
        self.begin_at(ground, key, wish);
    }

    /// Begins a request.
    fn begin_at(&mut self, ground: &mut Ground, key: SessionKey, wish: Wish) {
        let now_us = ground.now_us();
        let asked = ground.checker.ledger.asked.len();
        let request = RequestId::parse(&format!("r{asked}")).expect("a short name");
        let healed = ground.phase == Phase::Serve;
        let attempts = Vec::new();
        let once = wish == Wish::Open && !healed && self.rng.permille(60);
        let patience_us = self.rng.within(1_500_000, 6_000_000);
        self.current = Some((asked, now_us + if once { 0 } else { patience_us }));
        let doubled = self.rng.permille(50) && !once;
        let client = self.index;
        ground.checker.ledger.asked.push(Asked {
            client,
            key,
            wish,
            request,
            attempts,
            healed,
            once,
        });
        self.attempt(ground, asked);
        if doubled {
            ground.counters.fault(Fault::RequestDoubled);
            self.attempt(ground, asked);
        }
    }

    /// Sends a request through a manager.
    fn attempt(&mut self, ground: &mut Ground, asked: usize) {
        let now_us = ground.now_us();
        let number = self.rng.pick(&ground.machines.numbers).0;
        let deadline_ms = self.rng.within(200, CLIENT_DEADLINE_MS_MAX);
        let request = &mut ground.checker.ledger.asked[asked];
        let attempt = request.attempts.len();
        request.attempts.push(Attempt { manager: number, sent_us: now_us, answer: None });
        let unknown = request.wish == Wish::Open && asked.is_multiple_of(97);
        let life = ground.setup.life_of(request);
        let op = op_of(request, if unknown { "no-such-class" } else { CLASS }, life);
        ground.call(
            number,
            CallFor::Try(self.index, asked, attempt),
            Place::Client(self.index),
            deadline_ms,
            op,
        );
    }

    /// A try of a request was answered.
    pub fn on_answer(
        &mut self,
        ground: &mut Ground,
        asked: usize,
        attempt: usize,
        result: OpResult,
    ) {
        let now_us = ground.now_us();
        let retry = result.as_ref().err().map(|it| it.retry);
        let not_started = result.as_ref().is_err_and(|it| it.kind == RefusalKind::StartFailed);
        let Some(request) = ground.checker.ledger.asked.get_mut(asked) else { return };
        let once = request.once;
        if let Ok(Answer::Opened { session, .. } | Answer::Got { session, .. }) = &result {
            self.lives.insert(session.record.key.clone(), session.record.life);
        }
        if let Some(attempt) = request.attempts.get_mut(attempt) {
            attempt.answer = Some((now_us, result));
        }
        let Some((current, until_us)) = self.current else { return };
        if current != asked {
            return;
        }
        let pause_ms = match retry {
            None if once => None,
            None => {
                self.answered.push(asked);
                None
            }
            Some(Retry::Never | Retry::WhenChanged) => {
                if not_started && !once {
                    self.answered.push(asked);
                }
                None
            }
            Some(Retry::Now | Retry::AtOwner(_)) => Some(self.rng.within(1, 10)),
            Some(Retry::AfterMs(ms)) => Some(ms + self.rng.within(0, 10)),
        };
        match pause_ms {
            Some(pause_ms) if now_us + pause_ms * 1000 < until_us => {
                // The try itself is repeated after the pause; a timeout of 0 stands for it.
                let call = ground.name();
                ground.calls.insert(call, CallFor::Try(self.index, asked, usize::MAX));
                ground.queue.after(pause_ms * 1000, Event::ClientTimeout(call));
            }
            Some(_) | None => self.finish(ground),
        }
    }

    /// A client waits no longer for a try of a request: it asks again, or gives up.
    pub fn on_timeout(&mut self, ground: &mut Ground, asked: usize) {
        let Some((current, until_us)) = self.current else { return };
        if current != asked {
            return;
        }
        if ground.now_us() < until_us {
            self.attempt(ground, asked);
        } else {
            self.finish(ground);
        }
    }

    fn finish(&mut self, ground: &mut Ground) {
        self.current = None;
        self.rest(ground);
    }

    /// Its next thing comes after a pause.
    pub fn rest(&mut self, ground: &mut Ground) {
        let pause_us = self.rng.skewed(1_000, 220_000);
        ground.queue.after(pause_us, Event::ClientNext(self.index));
    }

    /// Repeats one of the client's answered requests, which must get the same answer.
    fn repeat(&mut self, ground: &mut Ground) {
        let recent = self.answered.len().saturating_sub(12);
        let Some(recent) = self.answered.get(recent..).filter(|it| !it.is_empty()) else {
            self.rest(ground);
            return;
        };
        let asked = *self.rng.pick(recent);
        let until_us = ground.queue.now_us() + 1_500_000;
        self.current = Some((asked, until_us));
        ground.counters.fault(Fault::RequestRepeated);
        self.attempt(ground, asked);
    }

    /// Asks for one page of a list.
    fn ask_page(&mut self, ground: &mut Ground) {
        let now_us = ground.now_us();
        let number = self.rng.pick(&ground.machines.numbers).0;
        let slot = self.rng.within(0, u64::from(ground.setup.m) - 1);
        let slot = SlotId(u32::try_from(slot).unwrap_or(0));
        let limit = u32::try_from(self.rng.within(1, 12)).unwrap_or(1);
        let mut filter = Filter::default();
        if self.rng.permille(250) {
            filter.states.push(*self.rng.pick(SessionState::ALL));
        }
        if self.rng.permille(60) {
            filter.states.push(*self.rng.pick(SessionState::ALL));
        }
        if self.rng.permille(150) {
            filter.namespace = Some(Namespace::default_space());
        }
        if self.rng.permille(100) {
            filter.node = Some(self.rng.pick(ground.machines.nodes()).id.clone());
        }
        if self.rng.permille(60) {
            let class = *self.rng.pick(&[CLASS, "no-such-class"]);
            filter.class = Some(ClassName::parse(class).expect("a short name"));
        }
        if self.rng.permille(60) {
            filter.key = Some(self.rng.pick(&ground.setup.keys).clone());
        }
        let stale_ok = self.rng.permille(150);
        let what = CallFor::Page(self.index, now_us, Box::new(filter.clone()));
        let from = ListCursor { slot, after: None };
        let op = Op::List(ListOp { from, limit, filter, stale_ok });
        ground.call(number, what, Place::Client(self.index), 800, op);
    }
}

fn op_of(request: &Asked, class: &str, life: Option<Arc<LifeOptions>>) -> Op {
    let (key, name) = (request.key.clone(), request.request.clone());
    match request.wish {
        Wish::Open => Op::Open(OpenOp {
            pool_named: true,
            key,
            spec: SessionSpec {
                class: ClassName::parse(class).expect("a short name"),
                pool: PoolName::default_pool(),
                attributes: Arc::default(),
                life,
            },
            request: name,
            remember: !request.once,
        }),
        Wish::Close(life) => {
            Op::Close(CloseOp { key, life, request: name, grace_ms: None, by_operator: false })
        }
        Wish::Get(stale_ok) => Op::Get(GetOp { key, stale_ok }),
    }
}
