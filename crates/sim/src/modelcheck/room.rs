//! Where a search happens: the parts of all states, and how one state becomes the next.
//!
//! A step is one action and everything that follows from it without anybody's choice:
//!
//! * A process carries out what it decides at once, and its disk has at once what it gave it (unless
//!   [`Bounds::disk_apart`]). A later moment is the same as a slower message: what others learn of a
//!   write, they learn by messages that are sent after it; and who dies before a write has not sent them.
//! * A consistent read of the config store is answered at once; with nothing, while the store is away. A
//!   slower one is the same as a slower message that led to it; what is read is no promise of what stands
//!   there later.
//! * *Chores* arrive at once: what managers say about partitions in which nothing of the model lies,
//!   about namespaces, and the bare notice of a newer epoch. They only carry on what concerns the
//!   model in no way, or make the receiver read the config store. So are compare-and-sets that change
//!   such partitions alone, and what *bystanders* hear of the config store: managers that hold no copy
//!   in which something of the model lies, and that no client asks. They are neither crashed nor
//!   suspected, and suspect nobody: whoever else does it writes the same. One of them that comes to hold such
//!   a copy later, since others are down or cannot be copied to, goes on like that, unless
//!   [`Bounds::all_act`]: what it would do late, or not do, is not searched.
//! * What can never be taken any more goes: messages to and from runs that are over. Whoever receives
//!   such a message drops it by the run named in it. So do answers that come too late ([`super::late`]).
//!
//! A step of one process depends on its state and its input alone, so each is computed once and
//! remembered: most of the millions of states are new combinations of known parts.

use super::bounds::{Bounds, Late, STEP_MS};
use super::check;
use super::clients::{self, Clients};
use super::flying::{Flying, Out, Run};
use super::hosts::{ManagerHost, Store};
use super::known::{Came, Known};
use super::names::{START_MS, manager_id, node_id};
use super::node_host::NodeHost;
use super::seen::{Table, wide};
use super::state::{Part, State};
use super::work::{Fate, Told, Work};
use crate::invariant::{Verdict, Violation};
use crate::mutants::Bug;
use rota_model::{ManagerNumber, SessionKey};
use rota_ring::{ConfigState, RingShape, View, place};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Inputs that may follow from one action without anybody's choice: more are a storm that feeds itself.
const WORK_MAX: usize = 2_000;

/// A node ends what it runs, since its lease is over ([`Room::came`]).
pub const LEASE_OVER: &str = "lease_over";

/// In the place of a config store: it refuses.
const REFUSED: u32 = u32::MAX;

/// The parts of all states of one search, each kept once.
#[derive(Default)]
pub struct Parts {
    /// Managers.
    pub managers: Table<ManagerHost>,
    /// Nodes.
    pub nodes: Table<NodeHost>,
    /// Config stores.
    pub stores: Table<Store>,
    /// Clients.
    pub clients: Table<Clients>,
    /// Messages.
    pub flying: Table<Flying>,
}

impl Parts {
    /// Keeps a manager.
    pub fn keep_manager(&mut self, host: ManagerHost) -> u32 {
        let (key, canon) = host.hashes();
        self.managers.keep(host, key, canon)
    }

    /// Keeps a node.
    pub fn keep_node(&mut self, host: NodeHost) -> u32 {
        let key = host.hash();
        self.nodes.keep(host, key, key)
    }

    /// Keeps a config store.
    pub fn keep_store(&mut self, store: Store) -> u32 {
        let key = wide(&store);
        self.stores.keep(store, key, key)
    }

    /// Keeps clients.
    pub fn keep_clients(&mut self, clients: Clients) -> u32 {
        let key = wide(&clients);
        self.clients.keep(clients, key, key)
    }

    /// Keeps a message.
    pub fn keep_flying(&mut self, message: Flying) -> u32 {
        let key = wide(&message);
        self.flying.keep(message, key, key)
    }

    /// A state's hash.
    pub fn hash(&self, state: &State) -> u128 {
        state.hash(|part, number| match part {
            Part::Manager => self.managers.canon(number),
            Part::Node => self.nodes.canon(number),
            Part::Store => self.stores.canon(number),
            Part::Clients => self.clients.canon(number),
            Part::Flying => self.flying.canon(number),
        })
    }

    /// A manager of a state, by its place.
    pub fn manager(&self, state: &State, at: usize) -> &ManagerHost {
        self.managers.get(state.managers[at])
    }

    /// A node of a state.
    pub fn node(&self, state: &State, at: usize) -> &NodeHost {
        self.nodes.get(state.nodes[at])
    }

    /// The config store of a state.
    pub fn store(&self, state: &State) -> &Store {
        self.stores.get(state.store)
    }

    /// The clients of a state.
    pub fn clients_of(&self, state: &State) -> &Clients {
        self.clients.get(state.clients)
    }

    /// Whether the config store holds what a manager of a state has not seen.
    pub fn has_news(&self, state: &State, at: usize) -> bool {
        let store = self.store(state);
        let process = self.manager(state, at).process.as_ref();
        !store.away && process.is_some_and(|it| it.config_index() < store.state.index)
    }

    /// What the author of a compare-and-set is told that arrived: nothing, from a store that is away.
    pub fn fate(&self, state: &State, done: bool) -> Fate {
        match (self.store(state).away, done) {
            (true, _) => Fate::Unknown,
            (false, true) => Fate::Done,
            (false, false) => Fate::Conflict,
        }
    }

    /// What a process sent, each message by its number.
    pub fn kept(&mut self, out: Vec<Out>) -> Arc<[Out]> {
        let kept = out.into_iter().map(|output| {
            if let Out::Fly(message) = output {
                Out::Kept(self.keep_flying(message))
            } else {
                output
            }
        });
        kept.collect()
    }
}

/// The states of one search, and how they follow from each other.
pub struct Room {
    /// What may happen.
    pub bounds: Bounds,
    /// A planted bug.
    pub bug: Option<Bug>,
    /// What becomes of messages that come too late.
    pub late: Late,
    /// The ids.
    pub keys: Vec<SessionKey>,
    /// Managers, by place.
    pub numbers: Vec<ManagerNumber>,
    /// Partitions in which something of the model lies.
    pub tracked: BTreeSet<ManagerNumber>,
    /// Managers that neither hold any of that, nor may come to, nor are asked by clients.
    pub bystanders: BTreeSet<ManagerNumber>,
    /// The parts of all states.
    pub parts: Parts,
    /// What was computed.
    pub known: Known,
    /// What came about.
    pub came: Came,
}

impl Room {
    /// An empty room.
    pub fn new(bounds: &Bounds, bug: Option<Bug>) -> Self {
        let keys = clients::keys(bounds);
        let homes = bounds.ids.iter().flat_map(|(home, then)| [*home, *then]);
        let mut tracked: BTreeSet<ManagerNumber> = homes.map(ManagerNumber).collect();
        if bounds.times == super::bounds::Times::Lease {
            tracked.extend((0..bounds.nodes).filter_map(|it| owner_of_node(bounds, it)));
        }
        let bystanders = bystanders(bounds, &tracked);
        let mut numbers: Vec<_> =
            bounds.numbers.iter().chain(bounds.newcomers).map(|it| ManagerNumber(*it)).collect();
        numbers.sort_unstable();
        Self {
            numbers,
            bystanders,
            bounds: bounds.clone(),
            bug,
            late: Late::Stays,
            keys,
            tracked,
            parts: Parts::default(),
            known: Known::default(),
            came: Came::default(),
        }
    }

    /// A ring that was founded, nobody started yet.
    pub fn founded(&mut self) -> State {
        let bounds = self.bounds.clone();
        let RingShape { cluster, m, r } = bounds.ring();
        let name = |it: &u32| (ManagerNumber(*it), manager_id(ManagerNumber(*it)));
        let numbers: Vec<_> = bounds.numbers.iter().map(name).collect();
        let view = View::found(cluster, m, r, 100, &numbers)
            .expect("the numbers of a model are distinct and below m");
        let state = ConfigState { index: 1, view: Some(Arc::new(view)), ..ConfigState::default() };
        let all = self.numbers.clone();
        let managers =
            all.iter().map(|it| self.parts.keep_manager(ManagerHost::new(it.0))).collect();
        let nodes = (0..bounds.nodes).map(|it| self.parts.keep_node(NodeHost::new(&bounds, it)));
        let nodes = nodes.collect();
        let store = self.parts.keep_store(Store::new(state));
        let clients = self.parts.keep_clients(Clients::new(&bounds));
        State { managers, nodes, store, clients, net: Vec::new(), left: bounds.left, ticks: 0 }
    }

    /// The place of a manager.
    pub fn place_of(&self, number: ManagerNumber) -> Option<usize> {
        self.numbers.binary_search(&number).ok()
    }

    /// The place of a manager whose process is that run.
    pub fn place_of_run(&self, state: &State, run: Run) -> Option<usize> {
        let at = self.place_of(run.0)?;
        let host = self.parts.manager(state, at);
        (host.run == run.1 && host.process.is_some()).then_some(at)
    }

    /// What all clocks that go with the others show.
    pub fn clock_ms(&self, state: &State) -> u64 {
        START_MS + u64::from(state.ticks) * STEP_MS
    }

    /// Does what is to be done, and what follows from it.
    ///
    /// # Errors
    /// Something that must never happen.
    pub fn work(&mut self, state: &mut State, first: Work) -> Verdict {
        self.work_all(state, VecDeque::from([first]))
    }

    /// The same of what is to be done in that order.
    ///
    /// # Errors
    /// Something that must never happen.
    pub fn work_all(&mut self, state: &mut State, mut queue: VecDeque<Work>) -> Verdict {
        let mut count = 0;
        while let Some(work) = queue.pop_front().or_else(|| self.news_of_bystanders(state)) {
            count += 1;
            if count > WORK_MAX {
                let text = format!("{WORK_MAX} inputs, and no end of them: {work:?}");
                return Err(Violation::new("progress", text));
            }
            let (out, chore) = match work {
                Work::Manager(at, told) => (self.step_manager(state, at, &told), false),
                Work::Node(at, told, chore) => (self.step_node(state, at, &told), chore),
            };
            for out in out.iter() {
                self.carry_out(state, out, chore, &mut queue)?;
            }
        }
        self.forget_dead(state);
        self.forget_late(state);
        Ok(())
    }

    /// Bystanders hear at once what the config store holds.
    fn news_of_bystanders(&self, state: &State) -> Option<Work> {
        let Store { state: ConfigState { index, .. }, away: false, .. } = *self.parts.store(state)
        else {
            return None;
        };
        let behind = |at: &usize| {
            let host = self.parts.manager(state, *at);
            let process = host.process.as_ref();
            self.bystanders.contains(&host.number)
                && process.is_some_and(|it| it.config_index() < index)
        };
        (0..state.managers.len()).find(behind).map(|at| Work::Manager(at, Told::Watch))
    }

    fn carry_out(
        &mut self,
        state: &mut State,
        (at, out): (usize, &Out),
        chore: bool,
        queue: &mut VecDeque<Work>,
    ) -> Verdict {
        match out {
            Out::Fly(message) => {
                let number = self.parts.keep_flying(message.clone());
                self.send(state, (at, number), chore, queue)?;
            }
            Out::Kept(number) => self.send(state, (at, *number), chore, queue)?,
            Out::ToAny(to_any) => {
                if let Some(message) = self.address(state, at, to_any) {
                    let number = self.parts.keep_flying(message);
                    self.send(state, (at, number), chore, queue)?;
                }
            }
            Out::Read(read) => queue.push_back(Work::Manager(at, Told::Read(*read))),
            Out::Reply(call, result) => {
                let mut clients = self.parts.clients_of(state).clone();
                let call = usize::try_from(*call).unwrap_or(usize::MAX);
                clients.on_answer(call, result)?;
                check::answered(self, state, result)?;
                state.clients = self.parts.keep_clients(clients);
            }
            Out::Forged(envelope) => {
                let message = self.parts.keep_flying(Flying::Peer((**envelope).clone()));
                queue.push_back(Work::Manager(at, Told::Flying(message)));
            }
            Out::ForgedNode(answer) => {
                let to = self.parts.manager(state, at).name();
                let answer = Flying::FromNode { to, node: 0, answer: (**answer).clone() };
                let message = self.parts.keep_flying(answer);
                queue.push_back(Work::Manager(at, Told::Flying(message)));
            }
            Out::LeaseOver => {
                self.came.note(&state.left, &[LEASE_OVER]);
                self.may_end(state);
            }
            Out::Ordered(_) => {}
            Out::Broken(rule, text) => return Err(Violation::new(rule, text.clone())),
        }
        Ok(())
    }

    fn send(
        &mut self,
        state: &mut State,
        (at, number): (usize, u32),
        chore: bool,
        queue: &mut VecDeque<Work>,
    ) -> Verdict {
        let message = self.parts.flying.get(number);
        check::sent(self, state, message)?;
        if let Flying::Peer(envelope) = message
            && [envelope.from, envelope.to].iter().any(|it| it.number.0 == self.bounds.cut)
        {
            return Ok(());
        }
        let is_chore = self.is_chore(state, message);
        if let Flying::Cas { from, cas, .. } = message
            && is_chore
        {
            let (from, cas) = (*from, *cas);
            let done = self.write(state, from.0, number)?;
            let fate = self.parts.fate(state, done);
            queue.push_back(Work::Manager(at, Told::Cas(cas, fate)));
            return Ok(());
        }
        if !chore && !is_chore {
            state.fly(number);
            return Ok(());
        }
        match self.receiver(state, message) {
            Some(Receiver::Manager(at)) => {
                queue.push_back(Work::Manager(at, Told::Flying(number)));
            }
            Some(Receiver::Node(at)) => queue.push_back(Work::Node(at, Told::Flying(number), true)),
            None => {}
        }
        Ok(())
    }

    /// A compare-and-set that is under way reaches the config store.
    ///
    /// # Errors
    /// What it writes must not be written.
    pub fn write(
        &mut self,
        state: &mut State,
        author: ManagerNumber,
        number: u32,
    ) -> Result<bool, Violation> {
        if self.parts.store(state).away {
            return Ok(false);
        }
        let key = wide(&(2_u8, state.store, number));
        let next = match self.known.answer(key) {
            Some(known) => known,
            None => {
                let (Flying::Cas { change, .. } | Flying::Orphan { change, .. }) =
                    self.parts.flying.get(number)
                else {
                    return Ok(false);
                };
                let change = change.clone();
                let next = self.written(state, &change);
                self.known.keep_answer(key, next);
                next
            }
        };
        if next == REFUSED {
            return Ok(false);
        }
        check::written(self, state, author, &self.parts.stores.get(next).state)?;
        state.store = next;
        Ok(true)
    }

    /// The config store goes away, or comes back.
    ///
    /// # Errors
    /// Something that must never happen.
    pub fn set_away(&mut self, state: &mut State, away: bool) -> Verdict {
        let mut store = self.parts.store(state).clone();
        store.away = away;
        state.store = self.parts.keep_store(store);
        self.work_all(state, VecDeque::new())
    }

    /// The config store after a change; [`REFUSED`] if it does not hold what the change expects.
    fn written(&mut self, state: &State, change: &rota_ring::Change) -> u32 {
        let held = &self.parts.store(state).state;
        let next = super::mutant::forced(self.bug, change, held).or_else(|| change.apply(held));
        let Some(next) = next else { return REFUSED };
        let mut store = self.parts.store(state).clone();
        store.state = next;
        store.remember();
        self.parts.keep_store(store)
    }

    /// The state of the partitions, by the config store.
    pub fn view<'a>(&'a self, state: &State) -> Option<&'a Arc<View>> {
        self.parts.store(state).state.view.as_ref()
    }
}

/// Who receives a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Receiver {
    /// A manager, by place.
    Manager(usize),
    /// A node.
    Node(usize),
}

/// Who has nothing to do with a model: not among the first r+1 after what is tracked.
fn bystanders(bounds: &Bounds, tracked: &BTreeSet<ManagerNumber>) -> BTreeSet<ManagerNumber> {
    let all: BTreeMap<ManagerNumber, ()> =
        bounds.numbers.iter().map(|it| (ManagerNumber(*it), ())).collect();
    let count = bounds.r as usize + 1;
    let near = |part: &ManagerNumber| {
        place::ring_from(&all, *part).take(count).collect::<Vec<ManagerNumber>>()
    };
    let near: BTreeSet<ManagerNumber> = tracked.iter().flat_map(near).collect();
    let leaves = bounds.left.operators.leaves > 0;
    if bounds.all_act {
        return BTreeSet::new();
    }
    let apart = |it: &ManagerNumber| !near.contains(it) && !bounds.doors.contains(&it.0) && !leaves;
    all.into_keys().filter(apart).collect()
}

/// The partition whose owner judges a node.
pub fn owner_of_node(bounds: &Bounds, node: usize) -> Option<ManagerNumber> {
    let ring: BTreeMap<ManagerNumber, ()> =
        bounds.numbers.iter().map(|it| (ManagerNumber(*it), ())).collect();
    place::home(&ring, rota_ring::slot_of_node(&node_id(node), bounds.slots()))
}
