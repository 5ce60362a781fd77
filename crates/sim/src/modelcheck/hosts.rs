//! The processes of a model, each with its clock and its disk: shipped machines, carried out.

use super::bounds::{Bounds, Times};
use super::flying::{Caller, Flying, Out, Run};
use super::mutant;
use super::names::{START_MS, manager_id, node_index};
use super::seen::wide_of;
use crate::invariant::enough_copies;
use crate::mutants::Bug;
use crate::setup::manager_address;
use rota_model::node_msg::ToNode;
use rota_model::{LoadLimit, ManagerNumber, NodeId, Now, SessionState};
use rota_protocol::{
    Disk, DiskWrite, EffectHandler, Envelope, Input, Manager, ManagerConfig, Note, Reply,
};
use rota_ring::{Change, ConfigState};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::Hash;

/// Wall clocks are so much ahead of the others.
const WALL_AHEAD_MS: u64 = 1_750_000_000_000;

/// A life was begun with fewer copies than it can have ([`ManagerHost::came`]).
pub const BEGUN_SHORT: &str = "begun_short";

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
        tasks: rota_protocol::TasksConfig::default(),
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
