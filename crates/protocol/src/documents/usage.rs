//! What namespaces with limits hold in all partitions together. Every owner says what its partitions
//! hold when it asks for news of descriptions ([`crate::documents::follow`]), and is told what all have said.
//!
//! Nobody waits for this, so a limit is exceeded by as much as other partitions take until their owners
//! have said so and been told: a second, unless the partition of the descriptions is not served.
//! Another View may give partitions to other owners, so what was counted before counts no more: until an
//! owner has been told again, it holds its partition to the limit by itself.

use rota_docstore::Usage;
use rota_messages::api::CountedUsage;
use rota_model::{Epoch, ManagerNumber};
use std::collections::BTreeMap;

/// What one partition holds, by namespace. One that is not there holds nothing.
type Usages = BTreeMap<String, Usage>;

/// What this manager's own partitions held when it said so.
pub(crate) type Own = BTreeMap<ManagerNumber, Usages>;

/// All of it together.
pub(crate) fn together<'a>(usages: impl Iterator<Item = &'a Usages>) -> Usages {
    let mut sum = Usages::new();
    for (space, usage) in usages.flatten() {
        let held = sum.entry(space.clone()).or_default();
        *held = held.plus(*usage);
    }
    sum
}

/// What was told last of all partitions, and what this manager had said of its own then.
#[derive(Clone, Default, Debug)]
pub(crate) struct Counted {
    told: Option<(CountedUsage, Own)>,
}

impl Counted {
    pub fn learn(&mut self, all: CountedUsage, own: Own) {
        self.told = Some((all, own));
    }

    /// What others hold than this partition.
    pub fn beside(&self, part: ManagerNumber, epoch: Epoch) -> Beside<'_> {
        let told = self.told.as_ref().filter(|(all, _)| all.epoch == epoch);
        Beside(told.map(|(all, own)| (&all.usages, own.get(&part))))
    }
}

/// What other partitions hold than one of this manager's.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Beside<'a>(Option<(&'a Usages, Option<&'a Usages>)>);

impl Beside<'_> {
    pub fn usage(&self, space: &str) -> Usage {
        let held = |usages: &Usages| usages.get(space).copied().unwrap_or_default();
        self.0.map_or_else(Usage::default, |(all, own)| {
            held(all).minus(own.map(held).unwrap_or_default())
        })
    }
}
