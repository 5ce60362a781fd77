//! The managers that a node renews its lease with and reports to.

use rota_model::{Epoch, ManagerNumber};

/// Managers, as the newest View has them that the node was told of.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct KnownManagers {
    /// Epoch of that View.
    epoch: Epoch,
    /// Number and address.
    list: Vec<(ManagerNumber, String)>,
}

impl KnownManagers {
    /// Number and address of each.
    pub(crate) fn list(&self) -> &[(ManagerNumber, String)] {
        &self.list
    }

    /// Whether a View of that epoch is newer than the one that these are from.
    pub(crate) fn is_news(&self, epoch: Epoch) -> bool {
        epoch > self.epoch
    }

    /// A View of that epoch has these. True when one of them was not known before.
    pub(crate) fn learn(&mut self, epoch: Epoch, managers: Vec<(ManagerNumber, String)>) -> bool {
        // An empty list would leave nobody to renew with, and nothing would ever mend it.
        if epoch < self.epoch || managers.is_empty() {
            return false;
        }
        let is_known = |(number, _): &(ManagerNumber, String)| {
            self.list.iter().any(|(known, _)| known == number)
        };
        let has_new = !managers.iter().all(is_known);
        (self.epoch, self.list) = (epoch, managers);
        has_new
    }
}
