//! One machine of a cluster, and what it stands on. What happens at a machine is given this: it reaches others by what
//! it sends.

use crate::ground::Ground;
use crate::manager_host::ManagerHost;
use crate::mutants::bug::Bug;
use crate::mutants::plant::Plant;
use crate::network::Place;
use crate::node_host::NodeHost;
use crate::store::Store;
use rota_model::ManagerNumber;
use rota_protocol::Input;

/// A manager's machine.
pub struct AtManager<'a> {
    /// What every machine stands on.
    pub ground: &'a mut Ground,
    /// A planted bug.
    pub plant: &'a mut Option<Plant>,
    /// What the config store holds: for operators and planted bugs. The manager itself is sent what it knows.
    pub store: &'a Store,
    /// The machine.
    pub host: &'a mut ManagerHost,
    /// Its number.
    pub number: ManagerNumber,
}

/// A node's machine.
pub struct AtNode<'a> {
    /// What every machine stands on.
    pub ground: &'a mut Ground,
    /// A planted bug.
    pub plant: &'a mut Option<Plant>,
    /// The machine.
    pub host: &'a mut NodeHost,
    /// Its place among the nodes, in order of first start.
    pub index: usize,
}

impl AtManager<'_> {
    pub(crate) fn bug(&self) -> Option<Bug> {
        self.plant.as_ref().map(|it| it.bug)
    }

    pub(crate) fn place(&self) -> Place {
        Place::Manager(self.number)
    }

    /// Tells this manager something that comes from outside the network.
    pub(crate) fn hears(&mut self, delay_us: u64, input: Input) {
        self.ground.tell_later(self.number, delay_us, input);
    }
}

impl AtNode<'_> {
    pub(crate) fn bug(&self) -> Option<Bug> {
        self.plant.as_ref().map(|it| it.bug)
    }

    pub(crate) fn place(&self) -> Place {
        Place::Node(self.index)
    }
}
