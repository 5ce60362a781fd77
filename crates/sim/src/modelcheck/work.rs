//! One process takes one input; who gets a message, and when at once.

use super::clients;
use super::flying::{Caller, Flying, Out, ToAny};
use super::hosts::{ManagerHost, closed_nodes};
use super::known::Stepped;
use super::mutant;
use super::names::node_id;
use super::node_host::{NodeHost, stream_of};
use super::room::{Receiver, Room};
use super::seen::wide;
use super::state::State;
use crate::setup::{manager_address, node_address};
use rota_model::node_msg::{Renewed, ToNode};
use rota_model::{ManagerNumber, MemberId, SessionKey, Token};
use rota_node::NodeInput;
use rota_protocol::{
    Answer, CasOutcome, DocumentAnswer, DocumentOp, Envelope, Input, Message, Op, Order,
};
use rota_ring::{Change, ConfigState, DrainTime, NodeOrder};
use std::sync::Arc;

/// What a process is told.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Told {
    /// A message, by number.
    Flying(u32),
    /// A read of the config store is answered.
    Read(u64),
    /// What became of a compare-and-set.
    Cas(u64, Fate),
    /// The config store's watch.
    Watch,
    /// That peer's port refuses.
    Refused(ManagerNumber),
    /// That node's port refuses, and nothing of that call was sent.
    Unreached(usize, u64),
    /// Its clock shows this.
    Clock(u64),
    /// That call of a client's.
    Call(usize),
    /// It starts.
    Start,
    /// Its process dies; with its disk.
    Crash(bool),
    /// Its disk has written everything.
    Synced,
    /// An operator's order: that number leaves.
    Leave(ManagerNumber),
    /// An operator's order: what is under way is taken back.
    Cancel,
    /// An operator's order: that node becomes empty.
    Drain(usize),
    /// Node: it dies, and boots anew.
    Boot,
    /// Node: its agent dies alone, and the next one goes on.
    Resume,
    /// Node: the same when it has written down what follows from that call.
    Torn(u32),
    /// Node: a program ends by itself.
    End(SessionKey, Token),
    /// Node: it is cut off; or is not any more.
    Silence(bool),
}

/// What a manager is told of its compare-and-set.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fate {
    /// It was written.
    Done,
    /// An expectation did not hold.
    Conflict,
    /// Nobody knows.
    Unknown,
}

/// Who is told what.
#[derive(Clone, Debug)]
pub enum Work {
    /// A manager, by place.
    Manager(usize, Told),
    /// A node; whether what it says is a chore too.
    Node(usize, Told, bool),
}

/// What a process sent: its place, and the list.
pub struct Sent {
    at: usize,
    out: Arc<[Out]>,
}

impl Sent {
    /// Whether that is nothing.
    pub fn is_nothing(&self) -> bool {
        self.out.is_empty()
    }

    /// Everything, with the sender's place.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &Out)> {
        self.out.iter().map(|it| (self.at, it))
    }
}

impl Room {
    /// A manager takes an input.
    pub fn step_manager(&mut self, state: &mut State, at: usize, told: &Told) -> Sent {
        let before = state.managers[at];
        // Other parts matter to it only when they are in the input.
        let sees = matches!(told, Told::Read(_) | Told::Cas(..) | Told::Watch);
        let store = if sees || self.bug.is_some() { state.store } else { u32::MAX };
        let call = if let Told::Call(_) = told { state.clients } else { u32::MAX };
        let key = wide(&(0_u8, before, told, store, call));
        if let Some(Stepped { host, out, came }) = self.known.step(key) {
            self.came.note(&state.left, &came);
            state.managers[at] = host;
            return Sent { at, out };
        }
        let mut host = self.parts.managers.get(before).clone();
        let mut out = Vec::new();
        self.tell_manager(state, &mut host, told, &mut out);
        mutant::alter(self, state, &mut out);
        let came: Arc<[&'static str]> = std::mem::take(&mut host.came).into_iter().collect();
        self.came.note(&state.left, &came);
        let host = self.parts.keep_manager(host);
        let out = self.parts.kept(out);
        self.known.keep_step(key, Stepped { host, out: out.clone(), came });
        state.managers[at] = host;
        Sent { at, out }
    }

    /// A node takes an input.
    pub fn step_node(&mut self, state: &mut State, at: usize, told: &Told) -> Sent {
        let before = state.nodes[at];
        let key = wide(&(1_u8, before, told));
        if let Some(Stepped { host, out, .. }) = self.known.step(key) {
            state.nodes[at] = host;
            return Sent { at, out };
        }
        let mut host = self.parts.nodes.get(before).clone();
        let mut out = Vec::new();
        self.tell_node(&mut host, told, &mut out);
        let host = self.parts.keep_node(host);
        let out = self.parts.kept(out);
        self.known.keep_step(key, Stepped { host, out: out.clone(), came: Arc::default() });
        state.nodes[at] = host;
        Sent { at, out }
    }

    fn tell_manager(
        &mut self,
        state: &State,
        host: &mut ManagerHost,
        told: &Told,
        out: &mut Vec<Out>,
    ) {
        let (bounds, bug) = (&self.bounds, self.bug);
        let held = &self.parts.store(state).state;
        let seen = || mutant::shown(bug, bounds, host, held.clone());
        let unread = matches!(told, Told::Read(_)) && self.parts.store(state).away;
        let news =
            matches!(told, Told::Read(_) | Told::Cas(_, Fate::Done | Fate::Conflict) | Told::Watch);
        let news = news && !unread;
        let mut hears = news.then(|| (held.index, closed_nodes(held)));
        if let Told::Flying(message) = told
            && let Flying::Outcome { held, .. } = self.parts.flying.get(*message)
        {
            hears = Some((held.index, closed_nodes(held)));
        }
        let input = match told {
            Told::Start => return host.start(bounds, out, bug),
            Told::Crash(wiped) => return host.crash(*wiped),
            Told::Synced => return host.synced(bounds, out, bug),
            Told::Flying(message) => {
                if let Some(answer) = mutant::answered(bug, host, self.parts.flying.get(*message)) {
                    return out.push(answer);
                }
                let Some(input) = input_of(host, self.parts.flying.get(*message)) else { return };
                mutant::input(bug, bounds, host, input)
            }
            Told::Read(read) => {
                let reached = !self.parts.store(state).away;
                let state = reached.then(|| mutant::read(bug, bounds, host, held.clone()));
                Input::ConfigRead { read: *read, state }
            }
            Told::Cas(cas, fate) => {
                let outcome = match fate {
                    Fate::Done => CasOutcome::Done(seen()),
                    Fate::Conflict => CasOutcome::Conflict(seen()),
                    Fate::Unknown => CasOutcome::Unknown,
                };
                Input::CasDone { cas: *cas, outcome }
            }
            Told::Watch => Input::Config(seen()),
            Told::Refused(number) => {
                let (number, address) = (*number, manager_address(*number));
                Input::PeerRefused { number, address }
            }
            Told::Unreached(node, call) => {
                let (node, unsent) = (node_id(*node), vec![*call]);
                let address = node_address(&node);
                Input::NodeUnreached { node, address, unsent }
            }
            Told::Clock(clock_ms) => {
                host.clock_ms = *clock_ms;
                Input::Tick
            }
            Told::Call(call) => {
                let asked = &self.parts.clients_of(state).asked[*call];
                let op = clients::op_of(asked, &self.keys[asked.id]);
                let deadline_mono_ms = host.clock_ms + bounds.timing().request_ms;
                Input::Client { call: *call as u64, deadline_mono_ms, op }
            }
            Told::Leave(number) => Input::Order { call: 1, order: Order::Leave(*number) },
            Told::Cancel => Input::Order { call: 1, order: Order::Cancel(None) },
            Told::Drain(node) => {
                let order = NodeOrder::Drain(DrainTime::AsBefore);
                Input::NodeOrder { call: 1, node: node_id(*node), order }
            }
            Told::Boot | Told::Resume | Told::Torn(_) | Told::End(..) | Told::Silence(_) => return,
        };
        host.hears = hears;
        host.give(bounds, input, out, bug);
    }

    fn tell_node(&self, host: &mut NodeHost, told: &Told, out: &mut Vec<Out>) {
        let (bounds, bug) = (&self.bounds, self.bug);
        let input = match told {
            Told::Flying(message) => match self.parts.flying.get(*message) {
                Flying::ToNode { from, message, .. } => {
                    let stream = stream_of(*from);
                    return host.call(bounds, stream, message, out, bug);
                }
                Flying::Registered { sent_mono_ms, result: Ok(registered), .. } => {
                    let registered = mutant::registered(bug, registered.clone());
                    NodeInput::Registered { sent_mono_ms: *sent_mono_ms, registered }
                }
                Flying::Renewed { to, sent_mono_ms, renewed } => NodeInput::Renewed {
                    boot: to.1,
                    sent_mono_ms: *sent_mono_ms,
                    renewed: mutant::renewed(bug, bounds, renewed.clone()),
                },
                Flying::ReportAcked { id, .. } => match host.own_report(*id) {
                    Some(id) => NodeInput::ReportsAcked { ids: vec![id] },
                    None => return,
                },
                Flying::Registered { result: Err(_), .. }
                | Flying::Peer(_)
                | Flying::Outcome { .. }
                | Flying::FromNode { .. }
                | Flying::Cas { .. }
                | Flying::Orphan { .. }
                | Flying::Register { .. }
                | Flying::Renew { .. }
                | Flying::Report { .. } => return,
            },
            Told::Clock(clock_ms) => {
                host.clock_ms = *clock_ms;
                return host.tick(bounds, out, bug);
            }
            Told::Start => return host.register(out),
            Told::Boot => return host.boot_anew(bounds, out),
            Told::Resume => return host.resume(bounds, out, bug),
            Told::Torn(message) => {
                if let Flying::ToNode { from, message, .. } = self.parts.flying.get(*message) {
                    host.call_and_die(bounds, stream_of(*from), message, out, bug);
                }
                return;
            }
            Told::Silence(silent) => {
                host.silent = *silent;
                return;
            }
            Told::End(key, token) => {
                host.programs.remove(&(key.clone(), *token));
                NodeInput::Ended {
                    key: key.clone(),
                    token: *token,
                    reason: rota_model::Reason::Exited,
                    exit: None,
                    detail: String::new(),
                }
            }
            Told::Read(_)
            | Told::Cas(..)
            | Told::Watch
            | Told::Refused(_)
            | Told::Unreached(..)
            | Told::Call(_)
            | Told::Crash(_)
            | Told::Synced
            | Told::Leave(_)
            | Told::Cancel
            | Told::Drain(_) => return,
        };
        host.give(bounds, input, out, bug);
    }

    /// Who would get a message now; nobody, if that one is gone or cut off.
    pub fn receiver(&self, state: &State, message: &Flying) -> Option<Receiver> {
        let heard = |node: usize| !self.parts.node(state, node).silent;
        let node = |(node, boot)| {
            let there = heard(node) && self.parts.node(state, node).boot == boot;
            there.then_some(Receiver::Node(node))
        };
        match message {
            // Whoever has the number answers that, as what it is.
            Flying::Peer(Envelope { to, message: Message::Probe { .. }, .. }) => {
                let at = self.place_of(to.number);
                let there = at.filter(|at| self.parts.manager(state, *at).process.is_some());
                there.map(Receiver::Manager)
            }
            Flying::Peer(envelope) => self.run_of(state, envelope.to).map(Receiver::Manager),
            Flying::ToNode { node, .. } => heard(*node).then_some(Receiver::Node(*node)),
            Flying::FromNode { to, node, .. }
            | Flying::Register { to, node, .. }
            | Flying::Renew { to, node, .. }
            | Flying::Report { to, node, .. } => {
                self.place_of_run(state, *to).filter(|_| heard(*node)).map(Receiver::Manager)
            }
            Flying::Registered { to, .. }
            | Flying::Renewed { to, .. }
            | Flying::ReportAcked { to, .. } => node(*to),
            Flying::Cas { from: run, .. } | Flying::Outcome { to: run, .. } => {
                self.place_of_run(state, *run).map(Receiver::Manager)
            }
            Flying::Orphan { .. } => None,
        }
    }

    /// The place of a manager that speaks as that incarnation.
    fn run_of(&self, state: &State, member: MemberId) -> Option<usize> {
        let at = self.place_of(member.number)?;
        let process = self.parts.manager(state, at).process.as_ref()?;
        (process.member() == member).then_some(at)
    }

    /// What can never be taken any more goes.
    pub fn forget_dead(&mut self, state: &mut State) {
        let mut net = std::mem::take(&mut state.net);
        let mut orphans = Vec::new();
        net.retain(|number| match self.parts.flying.get(*number) {
            Flying::Orphan { change, .. } => {
                change.expect_epoch.is_none_or(|it| it >= self.parts.store(state).state.epoch())
            }
            Flying::Cas { from, change, .. } if self.place_of_run(state, *from).is_none() => {
                orphans.push(Flying::Orphan { from: from.0, change: change.clone() });
                false
            }
            Flying::Peer(envelope) => {
                let ahead = self.place_of(envelope.to.number).is_some_and(|at| {
                    let process = self.parts.manager(state, at).process.as_ref();
                    process.is_some_and(|it| it.member().incarnation <= envelope.to.incarnation)
                });
                ahead && self.may_be_heard(state, envelope.to.number, envelope.from)
            }
            message @ (Flying::ToNode { .. }
            | Flying::FromNode { .. }
            | Flying::Cas { .. }
            | Flying::Outcome { .. }
            | Flying::Register { .. }
            | Flying::Registered { .. }
            | Flying::Renew { .. }
            | Flying::Renewed { .. }
            | Flying::Report { .. }
            | Flying::ReportAcked { .. }) => self.receiver(state, message).is_some(),
        });
        state.net = net;
        for orphan in orphans {
            let number = self.parts.keep_flying(orphan);
            state.fly(number);
        }
    }

    /// Whether a receiver may yet take something from that run: not once it knows a later one.
    fn may_be_heard(&self, state: &State, to: ManagerNumber, from: MemberId) -> bool {
        let at = self.place_of(to);
        let process = at.and_then(|it| self.parts.manager(state, it).process.as_ref());
        let known = process.and_then(|it| it.view()?.member(from.number));
        known.is_none_or(|it| it.incarnation <= from.incarnation)
    }

    /// Whether a message concerns nothing of the model.
    pub fn is_chore(&self, state: &State, message: &Flying) -> bool {
        let tracked = |part: &ManagerNumber| self.tracked.contains(part);
        match message {
            Flying::Peer(envelope) => match &envelope.message {
                Message::Request { op, .. } => {
                    matches!(&**op, Op::Documents(DocumentOp::Follow(_)))
                }
                Message::Answer { result, .. } => {
                    matches!(&**result, Ok(Answer::Documents(DocumentAnswer::Followed { .. })))
                }
                Message::Heartbeat { .. }
                | Message::Probe { .. }
                | Message::Probed { .. }
                | Message::NodeWanted { .. }
                | Message::NodesFailed { .. } => true,
                Message::ReadIndex { parts, .. } | Message::ReadIndexConfirmed { parts, .. } => {
                    !parts.iter().any(|(part, _)| tracked(part))
                }
                Message::Prepare { part, .. }
                | Message::Ack { part, .. }
                | Message::Nack { part, .. }
                | Message::SyncAsk { part, .. }
                | Message::SyncReport { part, .. }
                | Message::SyncData { part, .. }
                | Message::SyncApplied { part, .. }
                | Message::SnapshotChunk { part, .. }
                | Message::SnapshotAck { part, .. } => !tracked(part),
            },
            Flying::Cas { from, change, .. } => {
                self.bystanders.contains(&from.0) || self.changes_no_tracked(state, change)
            }
            Flying::ToNode { message: ToNode::Scan { head, .. }, .. } => {
                !tracked(&ManagerNumber(head.range.last.0))
            }
            // What is granted where nothing of the model lies keeps nothing of it alive.
            Flying::Renewed { renewed: Renewed::Heard { grants, .. }, .. } => {
                !grants.iter().any(|it| tracked(&ManagerNumber(it.range.last.0)))
            }
            Flying::Renew { to, .. } => {
                let parts = self.view(state).map(|view| &view.parts);
                let owns =
                    |part| parts.and_then(|it| it.get(part)).map(|it| it.owner) == Some(to.0);
                !self.tracked.iter().any(owns)
            }
            Flying::ToNode { .. }
            | Flying::FromNode { .. }
            | Flying::Orphan { .. }
            | Flying::Outcome { .. }
            | Flying::Register { .. }
            | Flying::Registered { .. }
            | Flying::Renewed { .. }
            | Flying::Report { .. }
            | Flying::ReportAcked { .. } => false,
        }
    }

    /// Whether a compare-and-set changes only partitions in which nothing of the model lies.
    fn changes_no_tracked(&self, state: &State, change: &Change) -> bool {
        let (Some(now), Some(next)) = (self.view(state), &change.view) else { return false };
        let same = |part: &ManagerNumber| now.parts.get(part) == next.parts.get(part);
        change.expect_epoch == Some(now.epoch)
            && change.node.is_none()
            && now.managers == next.managers
            && now.transition == next.transition
            && now.splits == next.splits
            && self.tracked.iter().all(same)
    }

    /// A node's message to any manager goes to the first that has its number.
    pub fn address(&self, state: &State, node: usize, to_any: &ToAny) -> Option<Flying> {
        let claimed = |at: &usize| {
            let process = self.parts.manager(state, *at).process.as_ref();
            process.is_some_and(rota_protocol::Manager::is_claimed)
        };
        let any = (0..state.managers.len()).find(claimed);
        let any = any.map(|it| self.parts.manager(state, it).name());
        Some(match to_any {
            ToAny::Register(sent_mono_ms, register) => {
                let (sent_mono_ms, register) = (*sent_mono_ms, register.clone());
                Flying::Register { to: any?, node, sent_mono_ms, register }
            }
            ToAny::Report(id, item) => {
                Flying::Report { to: any?, node, id: *id, item: (**item).clone() }
            }
            // That one hears no sign of life of nodes.
            ToAny::Renew(number, ..) if number.0 == self.bounds.deaf => return None,
            ToAny::Renew(number, sent_mono_ms, renew) => {
                let to = self.parts.manager(state, self.place_of(*number)?).name();
                Flying::Renew { to, node, sent_mono_ms: *sent_mono_ms, renew: renew.clone() }
            }
        })
    }
}

/// What a message is to the manager that gets it.
fn input_of(host: &mut ManagerHost, message: &Flying) -> Option<Input> {
    let name = |kind: u64, node: usize, number: u64| {
        kind * 1_000_000_000 + (node as u64) * 100_000_000 + number % 100_000_000
    };
    Some(match message {
        Flying::Peer(envelope) => Input::Peer(envelope.clone()),
        Flying::FromNode { answer, .. } => Input::Node(answer.clone()),
        Flying::Outcome { cas, done, held, .. } => {
            let held = ConfigState::clone(held);
            let outcome = if *done { CasOutcome::Done(held) } else { CasOutcome::Conflict(held) };
            Input::CasDone { cas: *cas, outcome }
        }
        Flying::Register { node, sent_mono_ms, register, .. } => {
            let call = name(1, *node, *sent_mono_ms);
            host.callers.insert(call, Caller::Register((*node, register.boot), *sent_mono_ms));
            Input::NodeRegister { call, register: (**register).clone() }
        }
        Flying::Renew { node, sent_mono_ms, renew, .. } => {
            let call = name(2, *node, *sent_mono_ms);
            host.callers.insert(call, Caller::Renew((*node, renew.boot), *sent_mono_ms));
            Input::NodeRenew { call, renew: renew.clone() }
        }
        Flying::Report { node, id, item, .. } => {
            let call = name(3, *node, id.0);
            host.callers.insert(call, Caller::Report((*node, item.boot), *id));
            let deadline_mono_ms = host.clock_ms + 2_000;
            Input::Client { call, deadline_mono_ms, op: Op::Report(item.clone()) }
        }
        Flying::ToNode { .. }
        | Flying::Cas { .. }
        | Flying::Orphan { .. }
        | Flying::Registered { .. }
        | Flying::Renewed { .. }
        | Flying::ReportAcked { .. } => return None,
    })
}
