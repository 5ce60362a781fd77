//! What a node may see of a repository.

use crate::category::FilesetName;
use crate::record::Hash;
use crate::tree::{Fileset, Tree};
use rota_docstore::Digest;
use rota_model::{Labels, PoolName};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeSet;

/// Who looks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Viewer {
    /// The pool of the node.
    pub pool: PoolName,
    /// Its labels.
    pub labels: Labels,
}

impl Viewer {
    fn sees(&self, fileset: &Fileset) -> bool {
        let has = |(name, value): (_, _)| self.labels.get(name) == Some(value);
        (fileset.pools.is_empty() || fileset.pools.contains(&self.pool))
            && fileset.labels.iter().all(has)
    }
}

/// The filesets that a node may see.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Access {
    visible: BTreeSet<FilesetName>,
}

impl Access {
    /// What somebody sees of a tree. Who is nobody in particular sees everything.
    pub fn of(tree: &Tree, viewer: Option<&Viewer>) -> Self {
        let sees = |it: &Fileset| viewer.is_none_or(|viewer| viewer.sees(it));
        let visible = tree.filesets().iter().filter(|(_, it)| sees(it));
        Self { visible: visible.map(|(name, _)| name.clone()).collect() }
    }

    /// Whether a fileset is among them.
    pub fn sees(&self, fileset: &FilesetName) -> bool {
        self.visible.contains(fileset)
    }

    /// A hash of everything that this depends on. While it stays, a node keeps in step by changes alone.
    pub fn fingerprint(&self) -> Hash {
        let mut hash = Sha256::new();
        for name in &self.visible {
            hash.update(name.as_str());
            hash.update([0]);
        }
        Hash::short(&Digest(hash.finalize().into()))
    }
}
