//! The processes of a model, each with its clock and its disk: shipped machines, carried out.

use super::bounds::{Bounds, Times};
use super::flying::{Caller, Flying, Out, Run, ToAny};
use super::mutant;
use super::seen::{wide, wide_of};
use crate::invariant::enough_copies;
use crate::mutants::Bug;
use crate::setup::{manager_address, node_address};
use rota_model::node_msg::{NodeAnswer, ToNode};
use rota_model::{
    BootId, ClassDigest, ClassName, Epoch, LoadLimit, ManagerId, ManagerNumber, NodeId, NodeState,
    Now, PoolName, SessionKey, SessionState, SlotId, Stamp, Token,
};
use rota_node::{
    Entry, Node, NodeBounds, NodeConfig, NodeEffect, NodeInput, NodeTiming, ReportId, SlotLease,
    StopHow,
};
use rota_protocol::{
    Disk, DiskWrite, EffectHandler, Envelope, Input, Manager, ManagerConfig, Note, Reply,
};
use rota_ring::{Change, ConfigState};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::Hash;

/// Clocks of all processes show this at the start.
pub const START_MS: u64 = 1_000_000;

/// Wall clocks are so much ahead of the others.
const WALL_AHEAD_MS: u64 = 1_750_000_000_000;

/// A life was begun with fewer copies than it can have ([`ManagerHost::came`]).
pub const BEGUN_SHORT: &str = "begun_short";

/// Name of the class that nodes know.
pub const CLASS: &str = "builtin";

/// A manager's machine.
#[derive(Clone)]
pub struct ManagerHost {
    /// Its number.
    pub number: ManagerNumber,
    /// Its process, when it runs.
    pub process: Option<Manager>,
    /// Counts its processes.
    pub run: u64,
    /// Its clock.
    pub clock_ms: u64,
    /// Its disk.
    pub disk: Disk,
    /// Its disk was lost, and its number is not taken since: an operator says so at each start.
    pub lost: bool,
    /// Writes that are not on it yet.
    pub unsynced: VecDeque<(u64, Vec<DiskWrite>)>,
    /// Who waits for answers, beside clients.
    pub callers: BTreeMap<u64, Caller>,
    /// Nodes of which its process knows that nothing more is to be placed there.
    pub closed: BTreeSet<NodeId>,
    /// What came about here in the newest step, by name; told to the room, and no part of the state.
    pub came: BTreeSet<&'static str>,
    /// What the input that comes next tells of the config store: its index, and such nodes.
    pub hears: Option<(u64, BTreeSet<NodeId>)>,
}

impl ManagerHost {
    /// A machine with an empty disk.
    pub fn new(number: u32) -> Self {
        Self {
            number: ManagerNumber(number),
            process: None,
            run: 0,
            clock_ms: START_MS,
            disk: Disk::default(),
            lost: false,
            unsynced: VecDeque::new(),
            callers: BTreeMap::new(),
            closed: BTreeSet::new(),
            came: BTreeSet::new(),
            hears: None,
        }
    }

    /// What makes it the same as another: exactly, and to the search.
    pub fn hashes(&self) -> (u128, u128) {
        let canon = wide_of(|into| {
            (self.number, self.run, self.clock_ms, &self.callers).hash(into);
            (&self.disk, self.unsynced.iter().map(|it| &it.1).collect::<Vec<_>>()).hash(into);
            (self.lost, self.process.is_some(), &self.closed).hash(into);
            if let Some(process) = &self.process {
                process.fingerprint(into);
            }
        });
        let key = wide_of(|into| {
            canon.hash(into);
            self.unsynced.iter().for_each(|it| it.0.hash(into));
            if let Some(process) = &self.process {
                process.fingerprint_names(into);
            }
        });
        (key, canon)
    }

    /// This run.
    pub fn name(&self) -> Run {
        (self.number, self.run)
    }

    fn now(&self) -> Now {
        Now { mono_ms: self.clock_ms, wall_ms: WALL_AHEAD_MS + self.clock_ms }
    }

    /// Starts its process with what its disk holds.
    pub fn start(&mut self, bounds: &Bounds, out: &mut Vec<Out>, bug: Option<Bug>) {
        self.run += 1;
        let config = manager_config(bounds, self.number);
        let seed = ((u64::from(self.number.0) * 16 + self.run) << 16) | 1;
        let mut process = Manager::new(config, self.disk.clone(), seed, self.now());
        if bounds.newcomers.contains(&self.number.0) {
            process.may_join();
        }
        if self.lost {
            process.force_lost();
        }
        self.process = Some(process);
        self.give(bounds, Input::Tick, out, bug);
    }

    /// Its process dies, and what it had not synced is lost.
    pub fn crash(&mut self, wiped: bool) {
        self.lost &= self.process.as_ref().is_none_or(|it| !it.is_claimed());
        self.process = None;
        self.unsynced.clear();
        self.callers.clear();
        self.closed.clear();
        if wiped {
            self.disk = Disk::default();
            self.lost = true;
        }
    }

    /// Gives its process an input, and carries out what it decides.
    pub fn give(&mut self, bounds: &Bounds, input: Input, out: &mut Vec<Out>, bug: Option<Bug>) {
        let now = self.now();
        let Some(process) = &mut self.process else { return };
        process.handle(now, input);
        if let Some((index, closed)) = self.hears.take()
            && process.config_index() == index
        {
            self.closed = closed;
        }
        self.flush(bounds, out, bug);
        // Who may not have its number ends, and is started again later.
        if self.process.as_ref().is_some_and(|it| it.refused().is_some()) {
            self.crash(false);
        }
    }

    fn flush(&mut self, bounds: &Bounds, out: &mut Vec<Out>, bug: Option<Bug>) {
        let now = self.now();
        loop {
            let Some(process) = &mut self.process else { return };
            let effects = process.flush(now);
            if effects.is_empty() {
                return;
            }
            let mut turn = Turn { host: self, bounds, bug, out, done: None };
            effects.into_iter().for_each(|it| turn.carry_out(it));
            let done = turn.done;
            let Some(process) = &mut self.process else { return };
            if let Some(lsn) = done {
                process.handle(now, Input::Persisted { lsn });
            }
        }
    }

    /// An owner gives the first record of an attempt to its disk, on a node that it knows to take
    /// nothing.
    fn placed_on_closed(&self, write: &DiskWrite) -> Option<Out> {
        let DiskWrite::Doc { key, doc: Some(doc) } = write else { return None };
        let record = doc.session().filter(|it| it.state == SessionState::Pending)?;
        let at = record.placement.as_ref().filter(|it| self.closed.contains(&it.node))?;
        let part = self.process.as_ref()?.view()?.part_of(key.slot).1.clone();
        let known = |write: &DiskWrite| {
            matches!(write, DiskWrite::Doc { doc: Some(doc), .. }
                if doc.session().is_some_and(|it| it.token() == Some(at.token)))
        };
        let on_disk = self.disk.docs.get(key).and_then(|it| it.session()?.token());
        let begun =
            on_disk == Some(at.token) || self.unsynced.iter().flat_map(|it| &it.1).any(known);
        if part.owner != self.number || part.pe != at.token.0.pe || begun {
            return None;
        }
        let text = format!(
            "M{} begins {} on {}, and knows that nothing more is to be placed there",
            self.number, record.key, at.node
        );
        Some(Out::Broken("cordon", text))
    }

    /// An owner gives the first record of a life to its disk, with fewer copies than it can have: it may
    /// where somebody has been missed for long.
    fn begun_short(&self, write: &DiskWrite) -> Option<Out> {
        let DiskWrite::Doc { key, doc: Some(doc) } = write else { return None };
        let record = doc.session().filter(|it| it.state == SessionState::Pending)?;
        let view = self.process.as_ref()?.view()?;
        let (number, part) = view.part_of(key.slot);
        let of_life = |write: &DiskWrite| {
            matches!(write, DiskWrite::Doc { doc: Some(doc), .. }
                if doc.session().is_some_and(|it| it.key == record.key && it.life == record.life))
        };
        let on_disk = self.disk.docs.get(key).and_then(|it| it.session()).map(|it| it.life);
        let known =
            on_disk == Some(record.life) || self.unsynced.iter().flat_map(|it| &it.1).any(of_life);
        let own = record.token().is_some_and(|it| it.0.pe == part.pe);
        let begins = part.owner == self.number && own && !known;
        let enough = enough_copies::is_enough(view, part.isr.len(), view.up_count());
        if !begins || enough {
            return None;
        }
        let text =
            format!("M{} begins {} in partition {number}: {part:?}", self.number, record.key);
        Some(Out::Broken("copies", text))
    }

    /// Everything that was written is on the disk.
    pub fn synced(&mut self, bounds: &Bounds, out: &mut Vec<Out>, bug: Option<Bug>) {
        let mut done = None;
        for (lsn, writes) in std::mem::take(&mut self.unsynced) {
            writes.iter().for_each(|write| self.disk.apply(write));
            done = Some(lsn);
        }
        if let Some(lsn) = done {
            self.give(bounds, Input::Persisted { lsn }, out, bug);
        }
    }
}

/// One turn of a manager, and what came out of it.
struct Turn<'a> {
    host: &'a mut ManagerHost,
    bounds: &'a Bounds,
    bug: Option<Bug>,
    out: &'a mut Vec<Out>,
    /// What is on the disk already.
    done: Option<u64>,
}

/// Nothing grows here, and no body is named.
impl EffectHandler for Turn<'_> {
    fn persist(&mut self, lsn: u64, mut writes: Vec<DiskWrite>) {
        let Self { host, bounds, bug, out, .. } = self;
        if let Some(process) = &host.process {
            mutant::writes(*bug, process, host.number.0, &mut writes);
        }
        out.extend(writes.iter().find_map(|it| host.placed_on_closed(it)));
        if let Some(short) = writes.iter().find_map(|it| host.begun_short(it)) {
            host.came.insert(BEGUN_SHORT);
            let may = bounds.times == Times::Copies;
            out.extend((!may).then_some(short));
        }
        if *bug == Some(Bug::AckBeforeDisk) || !bounds.disk_apart {
            self.done = Some(lsn);
        }
        if bounds.disk_apart {
            host.unsynced.push_back((lsn, writes));
        } else {
            writes.iter().for_each(|write| host.disk.apply(write));
        }
    }

    fn send(&mut self, _: String, envelope: Envelope) {
        self.out.push(Out::Fly(Flying::Peer(envelope)));
    }

    fn send_to_node(&mut self, node: NodeId, _: String, message: ToNode) {
        let (from, node) = (self.host.name(), node_index(&node));
        self.out.push(Out::Fly(Flying::ToNode { from, node, message }));
    }

    fn reply(&mut self, call: u64, reply: Reply) {
        let caller = self.host.callers.remove(&call);
        self.out.extend(match (reply, caller) {
            (Reply::Request(result), Some(Caller::Report(to, id))) if result.is_ok() => {
                Some(Out::Fly(Flying::ReportAcked { to, id }))
            }
            (Reply::Request(result), None) => Some(Out::Reply(call, Box::new(result))),
            (Reply::Registered(result), Some(Caller::Register(to, sent_mono_ms))) => {
                Some(Out::Fly(Flying::Registered { to, sent_mono_ms, result }))
            }
            (Reply::Renewed(renewed), Some(Caller::Renew(to, sent_mono_ms))) => {
                Some(Out::Fly(Flying::Renewed { to, sent_mono_ms, renewed }))
            }
            (Reply::Ordered(result), _) => Some(Out::Ordered(result)),
            // An order about a node is as good as carried out when the config store has it.
            (
                Reply::Request(_)
                | Reply::Registered(_)
                | Reply::Renewed(_)
                | Reply::NodeOrdered(_),
                _,
            ) => None,
        });
    }

    fn read_config(&mut self, read: u64) {
        self.out.push(Out::Read(read));
    }

    fn compare_and_set(&mut self, cas: u64, change: Box<Change>) {
        let change = (*change).into();
        self.out.push(Out::Fly(Flying::Cas { from: self.host.name(), cas, change }));
    }

    fn note(&mut self, note: Note) {
        self.host.came.insert(note.transition.as_str());
    }
}

/// Nodes on which nothing more is to be placed.
pub fn closed_nodes(state: &ConfigState) -> BTreeSet<NodeId> {
    let closed = state.nodes.values().filter(|it| !it.wish.is_none());
    closed.map(|it| it.node.clone()).collect()
}

fn manager_config(bounds: &Bounds, number: ManagerNumber) -> ManagerConfig {
    ManagerConfig {
        number,
        id: manager_id(number),
        ring: bounds.ring(),
        grpc: manager_address(number),
        http: format!("manager-{number}:7600"),
        load_limit: LoadLimit::of_permille(1_000).expect("within bounds"),
        timing: bounds.timing(),
        sizes: bounds.sizes(),
        documents: rota_protocol::DocumentsConfig::default(),
        numbers: None,
    }
}

/// A manager's own name.
pub fn manager_id(number: ManagerNumber) -> ManagerId {
    ManagerId::parse(&format!("manager-{number}")).expect("a short name")
}

/// A node's name.
pub fn node_id(index: usize) -> NodeId {
    NodeId::parse(&format!("node-{index}")).expect("a short name")
}

fn node_index(node: &NodeId) -> usize {
    node.as_str().trim_start_matches("node-").parse().expect("the model named it")
}

/// A node's machine.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct NodeHost {
    /// Which.
    pub index: usize,
    /// Its agent.
    pub agent: Node,
    /// Its boot.
    pub boot: BootId,
    /// Its clock.
    pub clock_ms: u64,
    /// What runs, and the life that it belongs to.
    pub programs: BTreeMap<(SessionKey, Token), Stamp>,
    /// Lives of attempts that were asked for.
    pub lives: BTreeMap<Token, Stamp>,
    /// Attempts that ran here under this boot.
    pub ran: BTreeSet<(SessionKey, Token)>,
    /// Nothing reaches it, and nothing that it says is heard.
    pub silent: bool,
    /// How many agents of this boot there were before this one.
    pub agents_before: u64,
    /// Fences that earlier agents of this boot raised and this one does not know.
    pub forgotten: BTreeMap<SlotId, Epoch>,
}

/// Reports of one agent have names below this.
const REPORTS_MAX: u64 = 1_000;

impl NodeHost {
    /// A machine whose agent is to be registered.
    pub fn new(bounds: &Bounds, index: usize) -> Self {
        let boot = BootId(1);
        Self {
            index,
            agent: Node::new(node_config(bounds, index, boot)),
            boot,
            clock_ms: START_MS,
            programs: BTreeMap::new(),
            lives: BTreeMap::new(),
            ran: BTreeSet::new(),
            silent: false,
            agents_before: 0,
            forgotten: BTreeMap::new(),
        }
    }

    /// Its hash.
    pub fn hash(&self) -> u128 {
        wide(self)
    }

    /// Asks to be registered.
    pub fn register(&self, out: &mut Vec<Out>) {
        let address = node_address(&node_id(self.index));
        let pool = PoolName::default_pool();
        let register = self.agent.registration(address, pool, NodeState::Ready);
        out.push(Out::ToAny(ToAny::Register(self.clock_ms, Box::new(register))));
    }

    /// Dies with all that it runs, and boots anew from the same folder.
    pub fn boot_anew(&mut self, bounds: &Bounds, out: &mut Vec<Out>) {
        let ended = self.boot;
        self.boot = BootId(self.boot.0 + 1);
        let config =
            NodeConfig { ended_boots: vec![ended], ..node_config(bounds, self.index, self.boot) };
        self.agent = Node::new(config);
        self.agents_before = 0;
        self.forgotten.clear();
        self.programs.clear();
        self.ran.clear();
        self.register(out);
    }

    /// Its agent dies alone, and the next one goes on from the journal.
    pub fn resume(&mut self, bounds: &Bounds, out: &mut Vec<Out>, bug: Option<Bug>) {
        let (journal, leases) = mutant::left_behind(bug, self.clock_ms, &self.agent, bounds);
        self.resume_from(bounds, (journal, leases), out, bug);
    }

    fn resume_from(
        &mut self,
        bounds: &Bounds,
        (journal, leases): (Vec<Entry>, Vec<SlotLease>),
        out: &mut Vec<Out>,
        bug: Option<Bug>,
    ) {
        if bug == Some(Bug::AdoptedAnew) {
            let programs = std::mem::take(&mut self.programs);
            self.boot_anew(bounds, out);
            self.programs = programs;
            return;
        }
        let config = node_config(bounds, self.index, self.boot);
        match Node::resumed(config, journal, &leases) {
            Ok(agent) => {
                let raised =
                    (0..bounds.slots()).map(|it| (SlotId(it), self.agent.fence(SlotId(it))));
                self.forgotten = raised.filter(|(slot, pe)| agent.fence(*slot) < *pe).collect();
                self.agent = agent;
                self.agents_before += 1;
                self.register(out);
                self.give(bounds, NodeInput::Tick, out, bug);
            }
            Err(_) => self.boot_anew(bounds, out),
        }
    }

    /// Its agent takes a call, writes down what follows from it, and dies before it does any of that.
    pub fn call_and_die(
        &mut self,
        bounds: &Bounds,
        stream: u64,
        message: &ToNode,
        out: &mut Vec<Out>,
        bug: Option<Bug>,
    ) {
        if bug == Some(Bug::JournalLate) {
            let before = mutant::left_behind(bug, self.clock_ms, &self.agent, bounds);
            self.call(bounds, stream, message, out, bug);
            return self.resume_from(bounds, before, out, bug);
        }
        if let ToNode::Create { token, life, .. } = message {
            self.lives.insert(*token, *life);
        }
        let message = message.clone();
        self.agent.handle(self.clock_ms, NodeInput::Call { stream, message });
        drop(self.agent.flush());
        self.resume(bounds, out, bug);
    }

    /// What this agent calls a report, if it sent it.
    pub fn own_report(&self, name: ReportId) -> Option<ReportId> {
        let is_own = name.0 / REPORTS_MAX == self.agents_before;
        is_own.then_some(ReportId(name.0 % REPORTS_MAX))
    }

    /// Gives its agent a call as it was sent, and as a planted bug makes it: I7 asks whether the one
    /// that was sent may be obeyed.
    pub fn call(
        &mut self,
        bounds: &Bounds,
        stream: u64,
        sent: &ToNode,
        out: &mut Vec<Out>,
        bug: Option<Bug>,
    ) {
        let (head, first) = (sent.head(), out.len());
        let slot = match sent {
            ToNode::Create { slot, .. } | ToNode::Destroy { slot, .. } => *slot,
            ToNode::Scan { head, .. } | ToNode::Meet { head, .. } => head.range.last,
        };
        let forgotten = self.forgotten.get(&slot).copied().unwrap_or_default();
        let late = head.pe < self.agent.fence(slot).max(forgotten);
        let message = mutant::call(bug, bounds, self, sent.clone());
        let other = head.boot != self.boot;
        self.give(bounds, NodeInput::Call { stream, message }, out, bug);
        let obeys = |it: &Out| {
            matches!(it, Out::Fly(Flying::FromNode { answer, .. })
                if !matches!(answer.answer, NodeAnswer::Fenced { .. } | NodeAnswer::WrongBoot))
        };
        if (late || other) && out[first..].iter().any(obeys) {
            let text = format!("node {} obeys pe {} for boot {}", self.index, head.pe, head.boot);
            out.push(Out::Broken("I7", text));
        }
    }

    /// Gives its agent an input, and carries out what it decides.
    pub fn give(
        &mut self,
        bounds: &Bounds,
        input: NodeInput,
        out: &mut Vec<Out>,
        bug: Option<Bug>,
    ) {
        if let NodeInput::Call { message: ToNode::Create { token, life, .. }, .. } = &input {
            self.lives.insert(*token, *life);
        }
        let before = mutant::kept_agent(bug, &self.agent);
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            self.agent.handle(self.clock_ms, input);
            for effect in self.agent.flush() {
                self.carry_out(bounds, effect, &mut inputs, out, bug);
            }
        }
        if let Some(before) = before
            && mutant::said_full(out)
        {
            self.agent = before;
        }
    }

    /// Time passed.
    pub fn tick(&mut self, bounds: &Bounds, out: &mut Vec<Out>, bug: Option<Bug>) {
        self.give(bounds, NodeInput::Tick, out, bug);
        if !self.agent.is_registered() {
            self.register(out);
        }
    }

    fn carry_out(
        &mut self,
        bounds: &Bounds,
        effect: NodeEffect,
        inputs: &mut VecDeque<NodeInput>,
        out: &mut Vec<Out>,
        bug: Option<Bug>,
    ) {
        match effect {
            NodeEffect::Answer { stream, answer } => {
                let to = run_of(stream);
                out.push(Out::Fly(Flying::FromNode { to, node: self.index, answer }));
            }
            NodeEffect::Start { key, token, .. } => {
                let life = self.lives.get(&token).copied().unwrap_or(Stamp::MIN);
                if !self.ran.insert((key.clone(), token)) {
                    let text = format!("node {} starts token {token} a second time", self.index);
                    out.push(Out::Broken("I7", text));
                }
                self.programs.insert((key.clone(), token), life);
                let address = format!("node-{}/{token}", self.index);
                inputs.push_back(NodeInput::Started {
                    key,
                    token,
                    address,
                    ready: true,
                    remark: String::new(),
                });
            }
            NodeEffect::Stop { key, token, how } => {
                let of_lease = matches!(how, StopHow::Term | StopHow::Kill);
                if of_lease && bug == Some(Bug::LeaseIgnored) {
                    return;
                }
                if of_lease {
                    out.push(Out::LeaseOver);
                }
                let ran = self.programs.remove(&(key.clone(), token)).is_some();
                if ran {
                    inputs.push_back(NodeInput::Stopped {
                        key,
                        token,
                        exit: None,
                        detail: String::new(),
                    });
                }
            }
            NodeEffect::Adopt { key, token, .. } => {
                let runs = self.programs.contains_key(&(key.clone(), token));
                let address = format!("node-{}/{token}", self.index);
                let detail = String::new();
                inputs.push_back(match runs {
                    true => NodeInput::Started { key, token, address, ready: true, remark: detail },
                    false => NodeInput::StartFailed { key, token, detail },
                });
            }
            NodeEffect::Report { id, item, .. } => {
                let id = ReportId(self.agents_before * REPORTS_MAX + id.0);
                out.push(Out::ToAny(ToAny::Report(id, Box::new(item))));
            }
            NodeEffect::Renew { sent_mono_ms, renew, managers } => {
                for (number, _) in managers {
                    out.push(Out::ToAny(ToAny::Renew(number, sent_mono_ms, renew.clone())));
                }
            }
            NodeEffect::Journal { .. } | NodeEffect::Lease { .. } | NodeEffect::Left => {}
            NodeEffect::BootAnew => self.boot_anew(bounds, out),
        }
    }
}

/// A stream's name: the run of a manager that it comes from.
pub fn stream_of((number, run): Run) -> u64 {
    (u64::from(number.0) << 16) | run
}

fn run_of(stream: u64) -> Run {
    (ManagerNumber(u32::try_from(stream >> 16).unwrap_or_default()), stream & 0xFFFF)
}

fn node_config(bounds: &Bounds, index: usize, boot: BootId) -> NodeConfig {
    let timing = bounds.timing();
    NodeConfig {
        ended_boots: Vec::new(),
        node: node_id(index),
        boot,
        offers: rota_model::Resources::of_places(bounds.places),
        labels: rota_model::Labels::new(),
        load_limit: LoadLimit::FULL,
        classes: BTreeMap::from([(
            ClassName::parse(CLASS).expect("a short name"),
            ClassDigest(1).into(),
        )]),
        timing: NodeTiming {
            renew_ms: timing.renew_ms,
            lease_term_ms: timing.lease_term_ms,
            lease_kill_ms: timing.lease_kill_ms,
            tombstone_ms: timing.tombstone_ms,
            renew_retry_ms: 1,
            report_resend_ms: 1,
            report_resend_ms_max: 1,
        },
        bounds: NodeBounds::default(),
    }
}

/// What the config store holds, and every View that it held.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Store {
    /// What it holds.
    pub state: ConfigState,
    /// Nobody reaches it.
    pub away: bool,
    /// Every View by its epoch.
    pub views: BTreeMap<rota_model::Epoch, std::sync::Arc<rota_ring::View>>,
}

impl Store {
    /// A store that holds `state`.
    pub fn new(state: ConfigState) -> Self {
        let mut store = Self { state, away: false, views: BTreeMap::new() };
        store.remember();
        store
    }

    /// Notes the View that it holds.
    pub fn remember(&mut self) {
        if let Some(view) = &self.state.view {
            self.views.insert(view.epoch, view.clone());
        }
    }
}
