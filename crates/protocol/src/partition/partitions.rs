//! The partitions of a manager. It knows every one of the ring, since it may come to hold any; but only
//! those that it holds, or is to hold, have anything to do: 2r + 1 of them or so, however large the ring.
//! What goes through the partitions in each turn goes through these.

use crate::partition::state::Partition;
use rota_model::ManagerNumber;
use std::collections::BTreeMap;

/// Every partition of the ring, at one manager.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Partitions {
    /// Those that may have something to do.
    awake: BTreeMap<ManagerNumber, Partition>,
    /// Those that have nothing to do: they were looked at by nobody since they were found so.
    idle: BTreeMap<ManagerNumber, Partition>,
}

impl Partitions {
    pub fn get(&self, number: &ManagerNumber) -> Option<&Partition> {
        self.awake.get(number).or_else(|| self.idle.get(number))
    }

    /// One that is about to change: it is awake from now on.
    pub fn get_mut(&mut self, number: &ManagerNumber) -> Option<&mut Partition> {
        if let Some(part) = self.idle.remove(number) {
            self.awake.insert(*number, part);
        }
        self.awake.get_mut(number)
    }

    /// The same of one that may be new.
    pub fn get_or_insert_with(
        &mut self,
        number: ManagerNumber,
        new: impl FnOnce() -> Partition,
    ) -> &mut Partition {
        let idle = self.idle.remove(&number);
        self.awake.entry(number).or_insert_with(|| idle.unwrap_or_else(new))
    }

    pub fn insert(&mut self, part: Partition) {
        self.idle.remove(&part.log.number);
        self.awake.insert(part.log.number, part);
    }

    /// Every partition of the ring, in no order that means anything.
    pub fn all(&self) -> impl Iterator<Item = &Partition> {
        self.awake.values().chain(self.idle.values())
    }

    /// Those that this manager owns.
    pub fn led_numbers(&self) -> Vec<ManagerNumber> {
        self.awake.iter().filter(|(_, it)| it.leader().is_some()).map(|(it, _)| *it).collect()
    }

    pub fn awake(&self) -> impl Iterator<Item = &Partition> {
        self.awake.values()
    }

    pub fn awake_mut(&mut self) -> impl Iterator<Item = &mut Partition> {
        self.awake.values_mut()
    }

    /// Parks those that have nothing to do.
    pub fn park_idle(&mut self) {
        let idle = self.awake.extract_if(.., |_, part| part.is_idle());
        self.idle.extend(idle);
    }
}

impl FromIterator<Partition> for Partitions {
    fn from_iter<T: IntoIterator<Item = Partition>>(parts: T) -> Self {
        let awake = parts.into_iter().map(|it| (it.log.number, it)).collect();
        Self { awake, idle: BTreeMap::new() }
    }
}
