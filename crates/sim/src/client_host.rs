//! Clients: they open, close and read the same few sessions through any manager, follow the advice
//! of refusals, give up after a while, and sometimes repeat a request that was answered.

use crate::calls::CallFor;
use crate::counters::{Corner, Fault};
use crate::event::{Event, Phase};
use crate::invariant::Violation;
use crate::ledger::{Asked, Attempt, Shown, Wish};
use crate::network::Place;
use crate::packet::Packet;
use crate::rng::SeededRng;
use crate::setup::{CLASS, CLIENT_DEADLINE_MS_MAX};
use crate::users::last_readings::{on_copies, on_documents};
use crate::world::World;
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
    pub fn new(rng: SeededRng) -> Self {
        let (current, answered, lives) = (None, Vec::new(), BTreeMap::new());
        Self { rng, current, answered, lives }
    }

    /// Whether a request is under way.
    pub fn is_busy(&self) -> bool {
        self.current.is_some()
    }
}

impl World {
    /// A client does its next thing.
    pub fn on_client_next(&mut self, index: usize) {
        let Some(client) = self.clients.get_mut(index) else { return };
        if self.ground.phase == Phase::Quiet || client.current.is_some() {
            return;
        }
        let dice = client.rng.within(0, 99);
        match dice {
            0..=43 => self.begin(index, Wish::Open),
            44..=63 => {
                let key = client.rng.pick(&self.ground.setup.keys).clone();
                let named = client.lives.get(&key).copied();
                let named = named.filter(|_| client.rng.permille(250));
                self.begin_at(index, key, Wish::Close(named));
            }
            64..=84 => {
                let stale_ok = client.rng.permille(80);
                self.begin(index, Wish::Get(stale_ok));
            }
            85..=89 => self.ask_page(index),
            _ => self.repeat(index),
        }
    }

    fn begin(&mut self, index: usize, wish: Wish) {
        let client = &mut self.clients[index];
        let key = client.rng.pick(&self.ground.setup.keys).clone();
        self.begin_at(index, key, wish);
    }

    /// Begins a request of a client.
    pub fn begin_at(&mut self, index: usize, key: SessionKey, wish: Wish) {
        let now_us = self.ground.now_us();
        let asked = self.ground.checker.ledger.asked.len();
        let request = RequestId::parse(&format!("r{asked}")).expect("a short name");
        let healed = self.ground.phase == Phase::Serve;
        let attempts = Vec::new();
        let client = &mut self.clients[index];
        let once = wish == Wish::Open && !healed && client.rng.permille(60);
        let patience_us = client.rng.within(1_500_000, 6_000_000);
        client.current = Some((asked, now_us + if once { 0 } else { patience_us }));
        let doubled = client.rng.permille(50) && !once;
        let client = index;
        self.ground.checker.ledger.asked.push(Asked {
            client,
            key,
            wish,
            request,
            attempts,
            healed,
            once,
        });
        self.attempt(index, asked);
        if doubled {
            self.ground.counters.fault(Fault::RequestDoubled);
            self.attempt(index, asked);
        }
    }

    /// Sends a request through a manager.
    fn attempt(&mut self, index: usize, asked: usize) {
        let now_us = self.ground.now_us();
        let number = self.clients[index].rng.pick(&self.ground.setup.numbers).0;
        let deadline_ms = self.clients[index].rng.within(200, CLIENT_DEADLINE_MS_MAX);
        let request = &mut self.ground.checker.ledger.asked[asked];
        let attempt = request.attempts.len();
        request.attempts.push(Attempt { manager: number, sent_us: now_us, answer: None });
        let unknown = request.wish == Wish::Open && asked.is_multiple_of(97);
        let life = self.ground.setup.life_of(request);
        let op = op_of(request, if unknown { "no-such-class" } else { CLASS }, life);
        self.ground.call(
            number,
            CallFor::Try(index, asked, attempt),
            Place::Client(index),
            deadline_ms,
            op,
        );
    }

    /// A reply reaches a client.
    pub fn client_gets(&mut self, packet: Packet) {
        let Packet::Reply { call, result } = packet else { return };
        match self.ground.calls.remove(&call) {
            Some(CallFor::Try(index, asked, attempt)) => {
                self.on_answer(index, asked, attempt, result);
            }
            Some(CallFor::Page(index, sent_us, filter)) => {
                self.note_page(sent_us, &result, &filter);
                self.rest(index);
            }
            Some(CallFor::LastPage(number, sent_us)) => {
                self.note_page(sent_us, &result, &Filter::default());
                self.users.last_lists.on_page(&mut self.ground, number, result);
            }
            Some(CallFor::Pull(part)) => {
                self.users.watcher.on_pulled(&mut self.ground, part, Some(result))
            }
            Some(CallFor::Documents(part)) => {
                self.users.document_watcher.on_told(&mut self.ground, part, Some(result))
            }
            Some(CallFor::Write(index, asked, sent_us)) => {
                if let Some(writer) = self.users.writers.get_mut(index) {
                    writer.on_written(&mut self.ground, asked, sent_us, &result);
                }
            }
            Some(CallFor::LastSync(sent_us)) => {
                on_documents(&mut self.ground, sent_us, Some(&result))
            }
            Some(CallFor::LastCopies) => on_copies(&mut self.ground, Some(&result)),
            Some(CallFor::Describe) => {
                self.users.admin.on_described(&mut self.ground, Some(&result))
            }
            Some(CallFor::TakeBack(it)) => self.on_taken_back(it, Some(&result)),
            Some(CallFor::Mend) | None => {}
        }
    }

    fn on_answer(&mut self, index: usize, asked: usize, attempt: usize, result: OpResult) {
        let now_us = self.ground.now_us();
        let retry = result.as_ref().err().map(|it| it.retry);
        let not_started = result.as_ref().is_err_and(|it| it.kind == RefusalKind::StartFailed);
        let Some(request) = self.ground.checker.ledger.asked.get_mut(asked) else { return };
        let once = request.once;
        if let Ok(Answer::Opened { session, .. } | Answer::Got { session, .. }) = &result {
            let client = &mut self.clients[index];
            client.lives.insert(session.record.key.clone(), session.record.life);
            let record = session.record.clone();
            self.plan_take_back(index, &record);
        }
        let Some(request) = self.ground.checker.ledger.asked.get_mut(asked) else { return };
        if let Some(attempt) = request.attempts.get_mut(attempt) {
            attempt.answer = Some((now_us, result));
        }
        let client = &mut self.clients[index];
        let Some((current, until_us)) = client.current else { return };
        if current != asked {
            return;
        }
        let pause_ms = match retry {
            None if once => None,
            None => {
                client.answered.push(asked);
                None
            }
            Some(Retry::Never | Retry::WhenChanged) => {
                if not_started && !once {
                    client.answered.push(asked);
                }
                None
            }
            Some(Retry::Now | Retry::AtOwner(_)) => Some(client.rng.within(1, 10)),
            Some(Retry::AfterMs(ms)) => Some(ms + client.rng.within(0, 10)),
        };
        match pause_ms {
            Some(pause_ms) if now_us + pause_ms * 1000 < until_us => {
                // The try itself is repeated after the pause; a timeout of 0 stands for it.
                let call = self.ground.name();
                self.ground.calls.insert(call, CallFor::Try(index, asked, usize::MAX));
                self.ground.queue.after(pause_ms * 1000, Event::ClientTimeout(call));
            }
            Some(_) | None => self.finish(index),
        }
    }

    /// A client waits no longer for a call: it asks again, or gives up.
    pub fn on_client_timeout(&mut self, call: u64) {
        let now_us = self.ground.now_us();
        match self.ground.calls.remove(&call) {
            Some(CallFor::Try(index, asked, _)) => {
                let Some((current, until_us)) = self.clients[index].current else { return };
                if current != asked {
                    return;
                }
                if now_us < until_us {
                    self.attempt(index, asked);
                } else {
                    self.finish(index);
                }
            }
            Some(CallFor::Page(index, _, _)) => self.rest(index),
            Some(CallFor::LastPage(number, _)) => {
                self.users.last_lists.ask_page(&mut self.ground, number)
            }
            Some(CallFor::Pull(part)) => self.users.watcher.on_pulled(&mut self.ground, part, None),
            Some(CallFor::Documents(part)) => {
                self.users.document_watcher.on_told(&mut self.ground, part, None)
            }
            Some(CallFor::Write(index, asked, _)) => {
                if let Some(writer) = self.users.writers.get_mut(index) {
                    writer.write_again(&mut self.ground, asked, 0);
                }
            }
            Some(CallFor::LastSync(sent_us)) => on_documents(&mut self.ground, sent_us, None),
            Some(CallFor::LastCopies) => on_copies(&mut self.ground, None),
            Some(CallFor::Describe) => self.users.admin.on_described(&mut self.ground, None),
            Some(CallFor::TakeBack(it)) => self.on_taken_back(it, None),
            Some(CallFor::Mend) | None => {}
        }
    }

    fn finish(&mut self, index: usize) {
        self.clients[index].current = None;
        self.rest(index);
    }

    fn rest(&mut self, index: usize) {
        let pause_us = self.clients[index].rng.skewed(1_000, 220_000);
        self.ground.queue.after(pause_us, Event::ClientNext(index));
    }

    /// Repeats one of the client's answered requests, which must get the same answer.
    fn repeat(&mut self, index: usize) {
        let client = &mut self.clients[index];
        let recent = client.answered.len().saturating_sub(12);
        let Some(recent) = client.answered.get(recent..).filter(|it| !it.is_empty()) else {
            self.rest(index);
            return;
        };
        let asked = *client.rng.pick(recent);
        let until_us = self.ground.queue.now_us() + 1_500_000;
        client.current = Some((asked, until_us));
        self.ground.counters.fault(Fault::RequestRepeated);
        self.attempt(index, asked);
    }

    /// Asks for one page of a list.
    fn ask_page(&mut self, index: usize) {
        let now_us = self.ground.now_us();
        let client = &mut self.clients[index];
        let number = client.rng.pick(&self.ground.setup.numbers).0;
        let slot = client.rng.within(0, u64::from(self.ground.setup.m) - 1);
        let slot = SlotId(u32::try_from(slot).unwrap_or(0));
        let limit = u32::try_from(client.rng.within(1, 12)).unwrap_or(1);
        let mut filter = Filter::default();
        if client.rng.permille(250) {
            filter.states.push(*client.rng.pick(SessionState::ALL));
        }
        if client.rng.permille(60) {
            filter.states.push(*client.rng.pick(SessionState::ALL));
        }
        if client.rng.permille(150) {
            filter.namespace = Some(Namespace::default_space());
        }
        if client.rng.permille(100) {
            filter.node = Some(client.rng.pick(&self.ground.node_ids).clone());
        }
        if client.rng.permille(60) {
            let class = *client.rng.pick(&[CLASS, "no-such-class"]);
            filter.class = Some(ClassName::parse(class).expect("a short name"));
        }
        if client.rng.permille(60) {
            filter.key = Some(client.rng.pick(&self.ground.setup.keys).clone());
        }
        let stale_ok = client.rng.permille(150);
        let what = CallFor::Page(index, now_us, Box::new(filter.clone()));
        let from = ListCursor { slot, after: None };
        let op = Op::List(ListOp { from, limit, filter, stale_ok });
        self.ground.call(number, what, Place::Client(index), 800, op);
    }

    fn note_page(&mut self, sent_us: u64, result: &OpResult, filter: &Filter) {
        let came_us = self.ground.now_us();
        if let Ok(Answer::Listed(page)) = result {
            if page.next.as_ref().is_some_and(|it| it.after.is_some()) {
                self.ground.counters.corner(Corner::SplitPage);
            }
            if let Some(other) = page.sessions.iter().find(|it| !filter.passes(&it.record)) {
                let text = format!("a list of {filter:?} shows {:?}", other.record);
                self.ground.checker.judge(came_us, Err(Violation::new("list", text)));
            }
            // A page that need not be confirmed may be as old as it likes.
            if page.stale {
                return;
            }
            let shown = page.sessions.iter().map(|session| Shown {
                sent_us,
                came_us,
                record: session.record.clone(),
                owner: session.owner,
            });
            self.ground.checker.ledger.listed.extend(shown);
        }
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
