//! Numbers that somebody else assigns: what was told of them, and how a copy follows that.

use crate::name::{Group, Key, Name};
use crate::numbers::Numbers;
use crate::outcome::{Change, Entry, Swept};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Entries and lasts as their assigner told them. A copy shares every group that is not changed later.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Told(BTreeMap<Group, Arc<BTreeMap<Name, Entry>>>);

impl Told {
    /// Takes over what is said of one name. `None`: it is gone.
    pub fn learn(&mut self, name: Name, entry: Option<Entry>) {
        let group = name.group();
        let of_group = Arc::make_mut(self.0.entry(group.clone()).or_default());
        match entry {
            Some(entry) => drop(of_group.insert(name, entry)),
            None => drop(of_group.remove(&name)),
        }
        if of_group.is_empty() {
            self.0.remove(&group);
        }
    }

    /// Takes over all that is said of one group, in place of what was said of it earlier.
    pub fn learn_group(&mut self, group: &Group, entries: impl IntoIterator<Item = (Name, Entry)>) {
        let entries: BTreeMap<Name, Entry> =
            entries.into_iter().filter(|(name, _)| name.group() == *group).collect();
        match entries.is_empty() {
            true => drop(self.0.remove(group)),
            false => drop(self.0.insert(group.clone(), Arc::new(entries))),
        }
    }

    /// All of it, and all that another one says of other groups.
    #[must_use]
    pub fn with(&self, other: &Told) -> Told {
        let mut all = other.0.clone();
        all.extend(self.0.iter().map(|(group, entries)| (group.clone(), entries.clone())));
        Told(all)
    }

    /// The number of a resource, valid or not.
    pub fn number(&self, key: &Key) -> Option<u64> {
        self.get(&Name::Entry(key.clone())).map(|it| it.number)
    }

    /// All of it, those of one parent side by side.
    pub fn iter(&self) -> impl Iterator<Item = (&Name, Entry)> {
        self.0.values().flat_map(|it| it.iter()).map(|(name, entry)| (name, *entry))
    }

    fn get(&self, name: &Name) -> Option<&Entry> {
        self.0.get(&name.group())?.get(name)
    }

    fn is_valid(&self, name: &Name) -> bool {
        self.get(name).is_some_and(|it| it.valid)
    }
}

/// What a copy changed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[must_use = "the changes must be persisted"]
pub struct Followed {
    /// Entries that are valid now and were not, or have another number now.
    pub adopted: usize,
    /// Entries and lasts that are not valid any more, or are gone at once.
    pub purged: Swept,
    /// All changes, those of `purged` too, in their order. A name may occur more than once: the last one
    /// counts.
    pub changes: Vec<Change>,
}

impl Numbers {
    /// Follows another assigner: what it tells as valid is valid here with that number, and nothing else is.
    /// A last is at least as high as the one that was told. What was told as not valid is not taken over, so
    /// it stays as long as it would have stayed here.
    pub fn follow(&mut self, told: &Told, now_ms: u64) -> Followed {
        let mut followed = Followed::default();
        let valid = self.entries().filter(|(_, it)| it.valid).map(|(key, _)| key.clone());
        let gone: Vec<Key> = valid.filter(|it| !told.is_valid(&Name::Entry(it.clone()))).collect();
        for key in gone {
            // It is valid here, so it can be purged.
            let Ok(swept) = self.purge(&key, now_ms) else { continue };
            followed.purged.removed += swept.removed;
            followed.purged.invalidated += swept.invalidated;
            followed.purged.changes.extend(swept.changes);
        }
        followed.changes.clone_from(&followed.purged.changes);
        for (name, entry) in told.iter().filter(|(_, it)| it.valid && it.number > 0) {
            match name {
                Name::Entry(key) => {
                    // The only error is for the number 0.
                    let Ok(adopted) = self.adopt(key, entry.number, now_ms) else { continue };
                    let is_it = |it: &Change| it.name() == name;
                    followed.adopted += usize::from(adopted.changes.iter().any(is_it));
                    followed.changes.extend(adopted.changes);
                }
                Name::Last(group) => {
                    followed.changes.extend(self.raise_last(group, entry.number, now_ms));
                }
            }
        }
        followed
    }
}
