//! The documents of one partition, as an operation sees them at its owner.

use crate::documents::usage::Beside;
use crate::log::replica::Replica;
use crate::ports::slots::slot_of;
use rota_docstore::{DocName, Document, Documents, Remembered, Spaces, Usage};
use rota_messages::DocKey;
use rota_model::Stamp;
use std::sync::Arc;

/// The documents of a partition with everything that was appended.
pub(crate) struct Here<'a> {
    pub replica: &'a Replica,
    pub spaces: &'a Spaces,
    /// What other partitions hold.
    pub beside: Beside<'a>,
    pub m: u32,
    /// No version below this is given out.
    pub floor: Stamp,
    /// A time that has come: see [`Documents::clock`].
    pub clock: Stamp,
}

impl Documents for Here<'_> {
    fn get(&self, name: &DocName) -> Option<Arc<Document>> {
        let key = DocKey::new(slot_of(name, self.m), name.clone());
        self.replica.get(&key).map(|doc| doc.document().clone())
    }

    fn high_water(&self) -> Stamp {
        self.floor
    }

    fn clock(&self) -> Stamp {
        self.clock
    }

    fn spaces(&self) -> &Spaces {
        self.spaces
    }

    fn usage(&self, space: &str) -> Usage {
        self.replica.usage(space).plus(self.beside.usage(space))
    }

    fn remembered(&self) -> Remembered {
        self.replica.remembered()
    }
}
