//! A resident that only these tests have: a counter with a timer. It shows what a new kind of thing on the ring
//! needs: its own state, and this trait. The log and the other residents do not know it.

use crate::log::at::At;
use crate::log::env::Env;
use crate::log::lead::Phase;
use crate::log::origin::Origin;
use crate::log::resident::{Late, RequestHandler, Resident, Turn};
use crate::partition::state::Partition;
use crate::ports::io::Effect;
use crate::settings::config::ManagerConfig;
use crate::settings::documents::DocumentsConfig;
use crate::settings::sizes::Sizes;
use crate::settings::timing::Timing;
use rota_messages::documents::orders_name;
use rota_messages::{Doc, DocKey, Envelope, Op, OpResult, Write};
use rota_model::items::Orders;
use rota_model::{
    ClusterName, Incarnation, LoadLimit, ManagerId, ManagerNumber, ManagerStatus, Now, PoolName,
    Refusal, RefusalKind, Retry, SlotId, Stamp,
};
use rota_ring::View;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Between two counts.
const COUNT_MS: u64 = 100;

/// Where it counts: a slot of the partition.
const SLOT: SlotId = SlotId(25);

/// Counts up in one document, for as long as this manager owns it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Counter {
    next_ms: u64,
    /// Counts that were committed here.
    seen: Vec<u64>,
}

fn pool() -> PoolName {
    PoolName::parse("counter").expect("a name")
}

fn key() -> DocKey {
    DocKey::new(SLOT, orders_name(&pool()))
}

fn count(doc: Option<&Arc<Doc>>) -> u64 {
    doc.and_then(|doc| doc.orders()).map_or(0, |orders| orders.decisions)
}

impl Resident for Counter {
    fn begin(env: &Env, _: &Phase) -> Self {
        Self { next_ms: env.now.mono_ms + COUNT_MS, seen: Vec::new() }
    }

    fn committed(&mut self, led: &mut At<'_>, written: &DocKey) {
        if *written == key() {
            self.seen.push(count(led.log.replica.docs.get(written)));
        }
    }

    /// Its timer always runs.
    fn is_busy(&self) -> bool {
        true
    }

    fn tick(&mut self, led: &mut At<'_>, turn: Turn) {
        let now = led.env.now;
        if turn != Turn::Rest || now.mono_ms < self.next_ms || !led.may_begin() {
            return;
        }
        self.next_ms = now.mono_ms + COUNT_MS;
        let before = led.log.replica.get(&key());
        let orders = Orders { decisions: count(before) + 1, ..Orders::default() };
        let stamp = Stamp::from_epoch_ms(now.wall_ms);
        let doc = Doc::orders_after(before.map(|doc| &**doc), &pool(), orders, stamp);
        led.write(vec![Write::of(SLOT, doc)], None);
    }
}

impl RequestHandler for Counter {
    fn carry_out(&mut self, led: &mut At<'_>, origin: Origin, _: Op) {
        let refusal = Refusal::new(RefusalKind::InvalidArgument, Retry::Never, "it only counts");
        self.reply(led, origin, Err(refusal));
    }

    fn confirmed(&mut self, _: &mut At<'_>, _: Origin, _: Op) {}

    fn unfinished(&self, _: &At<'_>, _: &Late) -> BTreeMap<Origin, OpResult> {
        BTreeMap::new()
    }

    fn reply(&mut self, led: &mut At<'_>, origin: Origin, result: OpResult) {
        led.reply(origin, result);
    }
}

/// Three managers with a copy each of partition 30. Messages between them are carried by hand.
struct Three {
    copies: BTreeMap<ManagerNumber, (Env, Partition<Counter>)>,
    under_way: VecDeque<Envelope>,
    now: Now,
}

const OWNER: ManagerNumber = ManagerNumber(30);

impl Three {
    fn new() -> Self {
        let numbers = [10, 20, 30].map(ManagerNumber);
        let id = |n: ManagerNumber| ManagerId::parse(&format!("m{n}")).expect("a name");
        let named: Vec<_> = numbers.iter().map(|n| (*n, id(*n))).collect();
        let cluster = ClusterName::parse("test").expect("a name");
        let mut view = View::found(cluster, 32, 2, 10, &named).expect("it is sound");
        for (number, entry) in &mut view.managers {
            entry.grpc = format!("m{number}:1");
            (entry.status, entry.incarnation) = (ManagerStatus::Active, Incarnation(1));
        }
        let now = Now { mono_ms: 1_000, wall_ms: 1_000_000 };
        let copy = |number| {
            let config = ManagerConfig {
                number,
                id: id(number),
                ring: view.shape(),
                grpc: String::new(),
                http: String::new(),
                load_limit: LoadLimit::of_permille(800).expect("within bounds"),
                timing: Timing::default(),
                sizes: Sizes::default(),
                documents: DocumentsConfig::default(),
                numbers: None,
                tasks: crate::settings::tasks::TasksConfig::default(),
            };
            let part = Partition::new(OWNER, view.range(OWNER));
            let mut env = Env::new(config, 7, now);
            env.me.incarnation = Incarnation(1);
            (number, (env, part))
        };
        let copies = numbers.into_iter().map(copy).collect();
        let mut three = Self { copies, under_way: VecDeque::new(), now };
        three.adopt(&view);
        three
    }

    /// Everybody sees a View.
    fn adopt(&mut self, view: &View) {
        let entry = &view.parts[&OWNER];
        for (number, (env, part)) in &mut self.copies {
            (env.now, env.view) = (self.now, Some(Arc::new(view.clone())));
            part.learn_epoch(env, entry.pe);
            part.log.replica.whole = true;
            if entry.owner == *number {
                part.lead(env, entry.pe);
            } else {
                part.step_down(env);
                part.log.send_sync_report(env);
            }
        }
    }

    /// Time passes, disks write, messages arrive.
    fn pass(&mut self, ms: u64) {
        let until = self.now.mono_ms + ms;
        while self.now.mono_ms < until {
            self.now.mono_ms += 20;
            self.now.wall_ms += 20;
            for (env, part) in self.copies.values_mut() {
                env.now = self.now;
                part.tick(env);
            }
            self.settle();
        }
    }

    fn settle(&mut self) {
        loop {
            for (env, part) in self.copies.values_mut() {
                if let Some(led) = part.led(env) {
                    led.at.lead.flush(led.at.env, led.at.log);
                }
                if std::mem::take(&mut env.disk.persist_now) && !env.take_writes().is_empty() {
                    let lsn = env.disk.lsn;
                    env.disk.lsn += 1;
                    part.on_persisted(env, lsn);
                }
                for effect in std::mem::take(&mut env.effects) {
                    if let Effect::Send { envelope, .. } = effect {
                        self.under_way.push_back(envelope);
                    }
                }
            }
            let Some(envelope) = self.under_way.pop_front() else { return };
            if let Some((env, part)) = self.copies.get_mut(&envelope.to.number) {
                part.on_message(env, envelope.from, envelope.message);
            }
        }
    }

    /// What the owner's counter saw committed.
    fn seen(&self, owner: ManagerNumber) -> &[u64] {
        let (_, part) = &self.copies[&owner];
        part.leader().map_or(&[], |leader| &leader.residents.seen)
    }
}

#[test]
fn a_new_resident_writes_and_hears_of_what_is_committed() {
    let mut three = Three::new();
    three.pass(1_000);
    let seen = three.seen(OWNER).to_vec();
    assert!(seen.len() >= 5, "it counted {seen:?}");
    assert!(seen.iter().copied().eq(1..=seen.len() as u64), "it counted {seen:?}");
    for (_, part) in three.copies.values() {
        let held = count(part.log.replica.get(&key()));
        assert!(held >= seen.len() as u64, "a copy holds {held} of {seen:?}");
    }
}

#[test]
fn a_new_resident_goes_on_at_the_next_owner_with_what_was_committed() {
    let mut three = Three::new();
    three.pass(1_000);
    let told = *three.seen(OWNER).last().expect("it counted");
    let (env, _) = three.copies.remove(&OWNER).expect("it is there");
    let gone = env.view().member(OWNER).expect("it is in the View");
    let next = env.view().without(&[gone]).expect("others hold copies");
    three.adopt(&next);
    three.pass(1_000);
    let seen = three.seen(next.parts[&OWNER].owner);
    assert!(seen.iter().any(|it| *it > told), "{told} was told, and later {seen:?}");
    assert!(seen.is_sorted(), "it went back: {seen:?}");
}
