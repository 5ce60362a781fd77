//! A manager: takes one input at a time, hands it to its room, and gives the effects of a batch out.

use crate::log::env::{Env, NameOf, ReadFor};
use crate::log::internal::{Internal, OwnRequest};
use crate::log::origin::Origin;
use crate::manager::restart;
use crate::membership::leave::is_for_the_last_calls;
use crate::membership::standing::Standing;
use crate::membership::state::{FailureDetector, Membership, Orders, RingProgress, ViewChanges};
use crate::node_lease::reply::{give_up_renewals, renewal_arrives};
use crate::node_lease::state::Renewal;
use crate::nodes::calls::NodesWanted;
use crate::partition::led::Led;
use crate::partition::partitions::Partitions;
use crate::ports::bodies::Bodies;
use crate::ports::io::{Effect, Input};
use crate::router::following::Following;
use crate::router::forward::{ForHere, Router};
use crate::settings::config::ManagerConfig;
use rota_docstore::{Checker, FieldError, Operations, Schema};
use rota_messages::{Disk, Envelope, Message, OpResult};
use rota_model::node_msg::Renew;
use rota_model::{ManagerNumber, MemberId, Now};
use rota_search::SpecialSearches;
use std::sync::Arc;

/// Between ticks while something waits, and while nothing does.
const TICK_BUSY_MS: u64 = 20;

const TICK_IDLE_MS: u64 = 100;

/// A manager's decisions: the state of one manager process.
#[derive(Clone)]
pub struct Manager {
    pub(crate) env: Env,
    pub(crate) parts: Partitions,
    pub(crate) router: Router,
    pub(crate) following: Following,
    /// Its number.
    pub(crate) membership: Membership,
    /// What is read of the config store, and asked of it.
    pub(crate) changes: ViewChanges,
    /// Who is silent.
    pub(crate) detector: FailureDetector,
    /// Orders of operators that wait.
    pub(crate) orders: Orders,
    /// How far a join or a leave is.
    pub(crate) progress: RingProgress,
    pub(crate) next_tick_ms: u64,
}

impl Manager {
    /// A manager at its start, with what its disk holds. `seed` feeds nonces and jitter and must
    /// differ from run to run.
    pub fn new(config: ManagerConfig, disk: Disk, seed: u64, now: Now) -> Self {
        let mut env = Env::new(config, seed, now);
        let parts = restart::parts_of(&mut env, &disk);
        Self {
            env,
            parts,
            router: Router::default(),
            following: Following::new(now.mono_ms),
            membership: Membership::new(disk.identity),
            changes: ViewChanges::new(now.mono_ms),
            detector: FailureDetector::new(now.mono_ms),
            orders: Orders::default(),
            progress: RingProgress::default(),
            next_tick_ms: now.mono_ms,
        }
    }

    /// Takes one input.
    pub fn handle(&mut self, now: Now, input: Input) {
        self.env.now = now;
        match input {
            Input::Client { call, deadline_mono_ms, op } => {
                let here = self.router.on_client(&mut self.env, call, deadline_mono_ms, op);
                if let Some(here) = here {
                    self.carry_out(here);
                }
            }
            Input::Peer(envelope) => self.on_peer(envelope),
            Input::Node(answer) => self.parts.on_node(&mut self.env, answer),
            Input::NodeRegister { call, register } => {
                let Self { env, changes, membership, .. } = self;
                changes.register(env, membership, call, register, 0);
            }
            Input::NodeRenew { call, renew } => self.on_renew(call, renew),
            Input::Order { call, order } => self.on_order(call, order),
            Input::NodeOrder { call, node, order } => {
                let Self { env, membership, orders, .. } = self;
                orders.on_node_order(env, membership, (call, node, order));
            }
            Input::Persisted { lsn } => {
                self.on_intent_persisted(lsn);
                for part in self.parts.awake_mut() {
                    part.on_persisted(&mut self.env, lsn);
                }
            }
            Input::Config(state) => self.adopt(&state),
            Input::ConfigRead { read, state } => self.on_config_read(read, state),
            Input::CasDone { cas, outcome } => self.on_cas_done(cas, outcome),
            Input::PeerRefused { number, address } => self.on_peer_refused(number, &address),
            Input::Signal { member } => {
                if self.detector.on_signal(&self.env, member) {
                    self.next_tick_ms = self.env.now.mono_ms;
                }
            }
            Input::NodeConnected { node } => self.parts.on_node_connected(&mut self.env, &node),
            Input::NodeUnreached { node, address, unsent } => {
                self.parts.on_node_unreached(&mut self.env, &node, &address, unsent);
            }
            Input::Provisioned { order, begun, failed, failure } => {
                if let Some(pool) = self.env.on_provisioned(order, failure) {
                    self.parts.on_provisioned(&mut self.env, &pool, (begun, &failed));
                }
            }
            Input::NodeCleared { pool, node, failure } => {
                self.parts.on_node_cleared(&mut self.env, &pool, (&node, failure.as_deref()));
            }
            Input::BodiesFetched { part } => {
                if let Some(part) = self.parts.get_mut(&part) {
                    part.on_bodies_fetched(&mut self.env);
                }
            }
            Input::Worked { work, worked } => self.parts.on_worked(&mut self.env, work, &worked),
            Input::TaskRan { part, work, outcome } => {
                if let Some(mut led) = self.parts.led(&part, &mut self.env) {
                    led.residents.tasks.on_ran(&mut led.at, work, &outcome);
                }
            }
            Input::Tick => self.on_tick(),
        }
        self.settle();
    }

    /// Carries on what one part of this manager asked of another.
    fn settle(&mut self) {
        while let Some((rid, result)) = self.env.router.answers.pop() {
            self.router.on_answer(&mut self.env, rid, result);
        }
        while let Some(wanted) = self.env.fleet.wanted.pop() {
            self.parts.on_node_wanted(&mut self.env, &wanted);
        }
        self.run_internal();
        self.drive_view();
    }

    /// Asks for what this manager needs on its own account, and takes what was answered.
    fn run_internal(&mut self) {
        if self.membership.standing == Standing::Inside {
            self.following.drive(&mut self.env, &self.parts);
        }
        loop {
            if let Some(own) = self.env.router.own.pop_front() {
                let OwnRequest { part, rid, op, deadline_ms } = own;
                let origin = Origin::Task { part, rid };
                self.carry_out(ForHere { part, origin, op, deadline_ms });
            } else if let Some(internal_request) = self.env.router.asked.pop() {
                if let Some(here) = self.router.on_internal(&mut self.env, internal_request) {
                    self.carry_out(here);
                }
            } else if let Some((inner, result)) = self.env.router.done.pop() {
                self.on_internal_done(inner, result);
            } else if let Some((rid, result)) = self.env.router.answers.pop() {
                self.router.on_answer(&mut self.env, rid, result);
            } else {
                return;
            }
        }
    }

    fn on_internal_done(&mut self, inner: Internal, result: OpResult) {
        match inner {
            Internal::Follow => {
                if self.following.on_answer(&mut self.env, &result) {
                    let here = self.router.on_spaces(&mut self.env);
                    here.into_iter().for_each(|here| self.carry_out(here));
                } else if !self.env.documents_env.knows_spaces {
                    // Clients wait for the rest.
                    self.following.drive(&mut self.env, &self.parts);
                }
            }
            Internal::Task { part, rid } => {
                if let Some(mut led) = self.parts.led(&part, &mut self.env)
                    && !led.residents.lives.on_answered(&mut led.at, rid, &result)
                {
                    led.residents.tasks.on_answered(&mut led.at, rid, result);
                }
            }
            Internal::RingTask { part, work, rid } => {
                if let Some(mut led) = self.parts.led(&part, &mut self.env) {
                    led.residents.tasks.on_ring_task(&mut led.at, (work, rid), result);
                }
            }
            Internal::Numbers { part, node } => {
                if let Some(led) = self.parts.led(&part, &mut self.env) {
                    led.residents.session_numbers.on_reported(&node, &result);
                }
            }
            Internal::Fetch { part, origin, name, asked } => {
                if let Some(mut led) = self.parts.led(&part, &mut self.env) {
                    let documents = &mut led.residents.documents;
                    documents.on_fetched(&mut led.at, origin, &name, asked, result);
                }
            }
        }
    }

    /// Offers an application's operations, on documents of these classes, instead of those that
    /// every manager knows ([`crate::operate::operations`]). Every manager of a cluster must offer
    /// the same. Before the first input. Field `schema`: see
    /// [`crate::operate::check_schema`].
    pub fn offer(&mut self, operations: Operations, schema: Schema) -> Result<(), FieldError> {
        self.env.documents_env.offer(operations, schema)
    }

    /// Offers an application's own searches, after its operations. Every manager of a cluster must offer the same. Before
    /// the first input.
    pub fn search_with(&mut self, specials: SpecialSearches) {
        self.env.documents_env.search_with(specials);
    }

    /// Asks an application, beside the administrator's key, whether who asks may run an operation:
    /// its accounts and their keys. Every manager of a cluster must ask the same. Before the first
    /// input.
    pub fn check_with(&mut self, checker: Arc<dyn Checker>) {
        self.env.documents_env.check_with(checker);
    }

    /// Lets this manager come into a ring in which nobody reserved its number ([`rota_ring::join`]);
    /// without it such a number is refused. Before the first input.
    pub fn may_join(&mut self) {
        self.membership.joins = true;
    }

    /// Lets this manager take its number with an empty disk, though the one that the number had may
    /// hold the last copy of a partition: an operator says that it is gone for good. Before the first
    /// input.
    pub fn force_lost(&mut self) {
        self.membership.force_lost = true;
    }

    /// Says where bodies of attachments are kept; without it none is held. Before the first input.
    pub fn keep_bodies(&mut self, bodies: Arc<dyn Bodies>) {
        self.env.held.bodies = bodies;
    }

    pub(crate) fn carry_out(&mut self, here: ForHere) {
        let ForHere { part, origin, op, deadline_ms } = here;
        if let Some(part) = self.parts.get_mut(&part) {
            part.on_request(&mut self.env, origin, op, deadline_ms);
        }
    }

    fn on_peer(&mut self, envelope: Envelope) {
        if self.on_probing(&envelope) {
            return;
        }
        let Envelope { from, to, epoch, message } = envelope;
        if epoch > self.env.epoch() {
            self.env.store.refresh = true;
        }
        let last_calls = self.has_left() && is_for_the_last_calls(&message);
        if to != self.env.me || !(self.membership.standing == Standing::Inside || last_calls) {
            return;
        }
        if self.env.view.as_ref().and_then(|view| view.member(from.number)) != Some(from) {
            return;
        }
        self.detector.heard.insert(from.number, (from, self.env.now.mono_ms));
        self.env.store.suspects.remove(&from);
        self.on_message(from, message);
    }

    fn on_message(&mut self, from: MemberId, message: Message) {
        match message {
            Message::Request { rid, deadline_ms, op } => {
                let Some(view) = self.env.view.clone() else { return };
                let number = view.home(crate::ports::slots::slot_of_request(&op, view.m));
                let Some(part) = self.parts.get_mut(&number) else { return };
                part.on_request(&mut self.env, Origin::Peer { from, rid }, *op, deadline_ms);
            }
            Message::Answer { rid, result } => self.env.router.answers.push((rid, *result)),
            Message::ReadIndex { round, parts } => {
                self.parts.on_confirm(&mut self.env, from, round, parts)
            }
            Message::ReadIndexConfirmed { round, parts } => {
                self.parts.on_confirmed(&mut self.env, from, round, &parts)
            }
            Message::Heartbeat { committed } => {
                self.parts.on_heartbeat(&self.env, from, &committed)
            }
            Message::NodeWanted { pool, waiting, index } => {
                self.env.fleet.wanted.push(NodesWanted { pool, waiting, index, from: from.number });
            }
            Message::NodesFailed { pool, why } => self.env.on_order_failed(&pool, &why),
            Message::Probe { .. } | Message::Probed { .. } => {}
            Message::Prepare { part, .. }
            | Message::Ack { part, .. }
            | Message::Nack { part, .. }
            | Message::SyncAsk { part, .. }
            | Message::SyncReport { part, .. }
            | Message::SyncData { part, .. }
            | Message::SyncApplied { part, .. }
            | Message::SnapshotChunk { part, .. }
            | Message::SnapshotAck { part, .. } => {
                let Some(part) = self.parts.get_mut(&part) else { return };
                if let Some(message) = part.log.with_bodies(&mut self.env, message) {
                    part.on_message(&mut self.env, from, message);
                }
            }
        }
    }

    fn on_config_read(&mut self, read: u64, state: Option<rota_ring::ConfigState>) {
        let waiting = self.changes.reads.remove(&read).unwrap_or_default();
        if let Some(state) = &state {
            self.adopt(state);
        }
        // One whose View is refused is as good as none.
        let reached = state.is_some() && self.changes.refused.is_none();
        self.env.store.is_away = !reached;
        self.orders.on_order_read(&mut self.env, read, reached);
        if let Some(waiting) = self.orders.on_node_order_read(&mut self.env, read, reached) {
            self.changes.order_node(&mut self.env, waiting);
        }
        for (number, pe, what) in waiting {
            let Some(mut led) = self.parts.led(&number, &mut self.env) else { continue };
            match what {
                _ if led.at.lead.pe != pe => {}
                ReadFor::Round(round) => led.on_config_read(round, reached),
                ReadFor::Wedge => led.at.lead.on_wedge_read(led.at.env, led.at.log, reached),
            }
        }
        let Standing::Outside { read: mine, .. } = &mut self.membership.standing else {
            return;
        };
        if *mine == Some(read) {
            match state.filter(|_| reached).and_then(|it| it.view) {
                Some(view) => {
                    self.claim_in(&view);
                    self.take_up_parts();
                }
                None => self.membership.read_again(&self.env),
            }
        }
    }

    pub(crate) fn on_tick(&mut self) {
        let now = self.env.now.mono_ms;
        if now < self.next_tick_ms {
            return;
        }
        self.membership.drive_claim(&mut self.env);
        self.orders.expire_orders(&mut self.env);
        self.orders.expire_node_orders(&mut self.env);
        for here in self.router.on_tick(&mut self.env) {
            self.carry_out(here);
        }
        self.env.nodes.on_tick(now);
        self.env.leases.granted.forget(self.env.config.timing.node_lost_ms, now);
        give_up_renewals(&mut self.env);
        self.env.fleet.calls.retain(|_, call| call.until_ms > now);
        if self.membership.standing == Standing::Inside {
            self.detector.tick_peers(&mut self.env, &mut self.parts);
        }
        for part in self.parts.awake_mut() {
            part.tick(&mut self.env);
        }
        let resend_ms = self.env.config.timing.resend_ms;
        let again = self.parts.awake_mut().filter_map(|part| {
            let (number, pe) = (part.log.number, part.log.replica.pe);
            Some((part.leader_mut()?.rounds.repeat(now, resend_ms)?, number, pe))
        });
        let again: Vec<_> = again.collect();
        for ((round, peers), number, pe) in again {
            for peer in peers {
                self.env.send(peer, Message::ReadIndex { round, parts: vec![(number, pe)] });
            }
        }
        self.parts.tick_works(&mut self.env);
        self.drive_verdicts();
        let busy = self.router.is_busy()
            || self.membership.standing != Standing::Inside
            || self.parts.awake().any(|it| it.is_busy(&self.env));
        self.next_tick_ms = now + if busy { TICK_BUSY_MS } else { TICK_IDLE_MS };
    }

    /// Whether so much is to be written that [`Manager::flush`] should come before the next input.
    pub fn is_batch_full(&self) -> bool {
        self.env.is_batch_full()
    }

    /// Gives everything that is to be done since the last call.
    pub fn flush(&mut self, now: Now) -> Vec<Effect> {
        self.env.now = now;
        self.parts.begin_rounds(&mut self.env);
        for part in self.parts.awake_mut() {
            if let Some(Led { at, .. }) = part.led(&mut self.env) {
                at.lead.flush(at.env, at.log);
            }
        }
        self.settle();
        self.env.held.document_bytes =
            self.parts.awake().map(|part| part.log.replica.filled()).sum();
        self.env.held.session_bytes =
            self.parts.awake().map(|it| it.log.replica.session_bytes()).sum();
        if !self.env.store.reads_wanted.is_empty() || self.env.store.refresh {
            let wanted = std::mem::take(&mut self.env.store.reads_wanted);
            let waiting: Vec<_> = (wanted.into_iter())
                .filter_map(|(it, what)| Some((it, self.parts.get(&it)?.leader()?.lead.pe, what)))
                .collect();
            // One refresh at a time is enough; a partition's confirmation needs a read of its own.
            if !waiting.is_empty() || self.changes.reads.is_empty() {
                let read = self.env.next_id(NameOf::Read);
                self.changes.reads.insert(read, waiting);
                self.env.effects.push(Effect::ReadConfig { read });
            }
            self.env.store.refresh = false;
        }
        let mut effects = std::mem::take(&mut self.env.effects);
        let persist_now = std::mem::take(&mut self.env.disk.persist_now);
        if persist_now && self.env.has_writes() {
            let writes = self.env.take_writes();
            effects.push(Effect::Persist { lsn: self.env.disk.lsn, writes });
            self.env.disk.lsn += 1;
        }
        if self.parts.awake().any(|it| it.is_busy(&self.env)) || self.router.is_busy() {
            self.next_tick_ms = self.next_tick_ms.min(now.mono_ms + TICK_BUSY_MS);
        }
        self.parts.park_idle();
        effects
    }

    /// A node's sign of life. Each partition that this manager owns grants what is its own.
    pub(crate) fn on_renew(&mut self, call: u64, renew: Renew) {
        let Renew { node, boot, load, .. } = renew.clone();
        if self.env.nodes.reg.get(&node).is_some_and(|reg| reg.boot == boot) {
            self.env.nodes.on_load(&node, boot, load);
            self.env.nodes.on_heard(&node, boot, self.env.now.mono_ms);
        }
        let inside = self.membership.standing == Standing::Inside;
        let parts = if inside { self.parts.led_numbers() } else { Vec::new() };
        if !renewal_arrives(&mut self.env, call, renew, parts.len()) {
            return;
        }
        for number in parts {
            if let Some(led) = self.parts.led(&number, &mut self.env) {
                led.residents.leases.on_renew(Renewal { call, node: node.clone(), boot });
            }
        }
    }

    /// A peer's process is gone: its port refuses. That of an earlier run says nothing of this one.
    pub(crate) fn on_peer_refused(&mut self, number: ManagerNumber, address: &str) {
        self.on_probe_refused(number, address);
        let Some(view) = &self.env.view else { return };
        let (Some(member), Some(entry)) = (view.member(number), view.managers.get(&number)) else {
            return;
        };
        let shares =
            self.membership.standing == Standing::Inside && self.detector.sharing.contains(&number);
        if shares && entry.serves() && entry.grpc == address {
            self.env.suspect(member);
        }
    }
}
