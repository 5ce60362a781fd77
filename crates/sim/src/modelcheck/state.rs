//! A state of the whole cluster, and what may happen in it. Processes, messages, the config store and
//! clients are kept once each in tables and named by numbers: states share nearly all of their parts.

use super::clients::Wish;
use super::left::Left;
use super::seen::wide_of;
use rota_model::ManagerNumber;
use std::hash::Hash;

/// A state. Numbers are those of a [`super::room::Room`]'s tables.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct State {
    /// Managers, in order of their numbers.
    pub managers: Box<[u32]>,
    /// Nodes.
    pub nodes: Box<[u32]>,
    /// The config store.
    pub store: u32,
    /// Clients.
    pub clients: u32,
    /// Messages under way, each as often as it is; in order of their numbers.
    pub net: Vec<u32>,
    /// What may still happen.
    pub left: Left,
    /// Steps of the clocks so far.
    pub ticks: u8,
}

/// Something that may happen. Managers and nodes by place, messages by number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// A message arrives.
    Arrive(u32),
    /// It arrives, and stays under way.
    ArriveTwice(u32),
    /// It is lost.
    Lose(u32),
    /// A call to a node is thrown away before it is sent, and its manager is told.
    Refuse(u32),
    /// A manager's process dies; with its disk.
    Crash(usize, bool),
    /// It starts again.
    Start(usize),
    /// A manager (first) finds the other's port refusing, since its process is gone.
    Notice(usize, usize),
    /// The same of a process that runs.
    Suspect(usize, usize),
    /// A manager's watch shows it what the config store holds.
    Watch(usize),
    /// A manager hears that nobody knows what became of its compare-and-set.
    Unknown(u32),
    /// A compare-and-set is done, and its manager has not heard of it yet.
    Land(u32),
    /// A manager's disk has written everything.
    Synced(usize),
    /// All clocks go on.
    Tick,
    /// That manager's clock goes on before the others'.
    TickManager(usize),
    /// That node's.
    TickNode(usize),
    /// A client asks through a manager.
    Ask(Wish, usize, ManagerNumber),
    /// A client asks again what it asked.
    AskAgain(usize, ManagerNumber),
    /// A number joins.
    Join(usize),
    /// An operator orders, through a manager, that a number leaves.
    Leave(usize),
    /// An operator takes back, through a manager, what is under way.
    Cancel(usize),
    /// An operator orders, through a manager, that a node becomes empty: at once.
    Drain(usize, usize),
    /// A node dies with what it runs, and boots anew.
    Boot(usize),
    /// A node's agent dies alone, and the next one goes on.
    Resume(usize),
    /// A call arrives at a node, whose agent dies when it has written down what follows.
    ArriveTorn(u32),
    /// A program ends by itself.
    End(usize, usize),
    /// A node is cut off; its programs run on.
    Silence(usize),
    /// It is reached again.
    Heard(usize),
    /// The config store is away from now on; or is back.
    Outage(bool),
}

impl State {
    /// Its hash, by what its parts count as.
    pub fn hash(&self, canon: impl Fn(Part, u32) -> u128) -> u128 {
        wide_of(|into| {
            self.managers.iter().for_each(|it| canon(Part::Manager, *it).hash(into));
            self.nodes.iter().for_each(|it| canon(Part::Node, *it).hash(into));
            canon(Part::Store, self.store).hash(into);
            canon(Part::Clients, self.clients).hash(into);
            let mut net: Vec<u128> = self.net.iter().map(|it| canon(Part::Flying, *it)).collect();
            net.sort_unstable();
            (net, self.left, self.ticks).hash(into);
        })
    }

    /// Puts a message under way. Of equal ones at most two are kept: a bound like the others.
    pub fn fly(&mut self, message: u32) {
        let at = self.net.partition_point(|it| *it < message);
        let equal = self.net[at..].iter().take_while(|it| **it == message).count();
        if equal < 2 {
            self.net.insert(at, message);
        }
    }

    /// Takes a message out.
    pub fn land(&mut self, message: u32) {
        if let Ok(at) = self.net.binary_search(&message) {
            self.net.remove(at);
        }
    }
}

/// Kinds of parts, by table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// [`super::hosts::ManagerHost`].
    Manager,
    /// [`super::node_host::NodeHost`].
    Node,
    /// [`super::hosts::Store`].
    Store,
    /// [`super::clients::Clients`].
    Clients,
    /// [`super::flying::Flying`].
    Flying,
}
