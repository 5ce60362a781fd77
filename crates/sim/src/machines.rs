//! The machines of a cluster, as anybody may know of them: which there are, whether they run, and where they listen.

use crate::network::Place;
use crate::setup::Setup;
use rota_model::{BootId, ManagerId, ManagerNumber, NodeId};
use std::collections::{BTreeMap, BTreeSet};

/// The machines of a cluster.
#[derive(Debug, Default)]
pub struct Machines {
    managers: BTreeMap<ManagerNumber, Power>,
    nodes: Vec<NodeMachine>,
    /// Every boot that there was, of any node.
    pub boots: BTreeSet<BootId>,
    /// Managers of the ring, and those that are to come into it.
    pub numbers: Vec<(ManagerNumber, ManagerId)>,
    /// Managers that may join, the next one last.
    pub newcomers: Vec<(ManagerNumber, ManagerId)>,
    /// Managers whose numbers have left the ring.
    pub gone: Vec<(ManagerNumber, ManagerId)>,
}

/// Whether a machine's process runs, and how many there were.
#[derive(Clone, Copy, Debug, Default)]
struct Power {
    run: u64,
    is_on: bool,
}

/// A node's machine. Two machines may have one id.
#[derive(Debug)]
pub struct NodeMachine {
    /// Its node id.
    pub id: NodeId,
    /// Where managers reach it.
    pub address: String,
    /// It takes no new connection before this, in simulated microseconds.
    pub refuses_until_us: u64,
    power: Power,
}

impl NodeMachine {
    /// Counts its boots.
    pub fn run(&self) -> u64 {
        self.power.run
    }

    /// Whether its agent runs.
    pub fn is_on(&self) -> bool {
        self.power.is_on
    }

    /// Whether it takes no connection at that time.
    pub fn refuses(&self, now_us: u64) -> bool {
        !self.is_on() || now_us < self.refuses_until_us
    }
}

impl Machines {
    /// The machines of a seed's cluster: none of them is there yet.
    pub fn new(setup: &Setup) -> Self {
        let (numbers, newcomers) = (setup.numbers.clone(), setup.newcomers.clone());
        Self { numbers, newcomers, ..Self::default() }
    }

    /// A manager's machine that was never started.
    pub fn add_manager(&mut self, number: ManagerNumber) {
        self.managers.insert(number, Power::default());
    }

    /// A node's machine that was never started.
    pub fn add_node(&mut self, id: NodeId, address: String) {
        let power = Power::default();
        self.nodes.push(NodeMachine { id, address, refuses_until_us: 0, power });
    }

    /// Every manager that there was.
    pub fn managers(&self) -> Vec<ManagerNumber> {
        self.managers.keys().copied().collect()
    }

    /// Every machine of a node that there was, in order of first start.
    pub fn nodes(&self) -> &[NodeMachine] {
        &self.nodes
    }

    /// A machine of a node.
    pub fn node_mut(&mut self, index: usize) -> Option<&mut NodeMachine> {
        self.nodes.get_mut(index)
    }

    /// The machine of a node at an address.
    pub fn at_address(&self, address: &str) -> Option<usize> {
        self.nodes.iter().position(|it| it.address == address)
    }

    /// The first machine of a node id.
    pub fn of_node(&self, id: &NodeId) -> Option<usize> {
        self.nodes.iter().position(|it| it.id == *id)
    }

    /// The process of a manager, or the agent of a node, runs from now on.
    pub fn on_start(&mut self, place: Place, run: u64) {
        if let Some(power) = self.power_mut(place) {
            *power = Power { run, is_on: true };
        }
    }

    /// The process of a manager, or the agent of a node, has ended.
    pub fn on_end(&mut self, place: Place) {
        if let Some(power) = self.power_mut(place) {
            power.is_on = false;
        }
    }

    /// The newest run of a manager, whether it goes on or not.
    pub fn run_of(&self, number: ManagerNumber) -> Option<u64> {
        self.managers.get(&number).map(|it| it.run)
    }

    /// Whether somebody runs there who would get what is sent.
    pub fn is_on(&self, place: Place) -> bool {
        match place {
            Place::Manager(number) => self.managers.get(&number).is_some_and(|it| it.is_on),
            Place::Node(index) => self.nodes.get(index).is_some_and(NodeMachine::is_on),
            Place::Store | Place::Client(_) => true,
        }
    }

    /// Managers and nodes that run.
    pub fn running(&self) -> impl Iterator<Item = Place> + '_ {
        let managers = self.managers.iter().filter(|(_, it)| it.is_on);
        let nodes = self.nodes.iter().enumerate().filter(|(_, it)| it.is_on());
        let managers = managers.map(|(number, _)| Place::Manager(*number));
        managers.chain(nodes.map(|(index, _)| Place::Node(index)))
    }

    fn power_mut(&mut self, place: Place) -> Option<&mut Power> {
        match place {
            Place::Manager(number) => self.managers.get_mut(&number),
            Place::Node(index) => self.nodes.get_mut(index).map(|it| &mut it.power),
            Place::Store | Place::Client(_) => None,
        }
    }
}
