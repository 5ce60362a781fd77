//! What the assigner does with a list of all resources that there are.

use crate::name::{Key, Name};
use crate::numbers::Numbers;
use crate::outcome::{Change, Entry};
use std::collections::{BTreeMap, BTreeSet};

/// What was done about a list of resources.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[must_use = "the changes must be persisted"]
pub struct Settled {
    /// In their order. A name may occur more than once: the last one counts.
    pub changes: Vec<Change>,
    /// More is to be done: there were too many changes for one step.
    pub more: bool,
}

impl Numbers {
    /// Makes the entries say what there is, as reports and removals one by one would: first what is outdated
    /// goes, then whoever is valid and not there any more is purged, then whoever is there gets its number, in
    /// the order of the list. Stops after about `most` changes; the next call goes on. A resource for which its
    /// group has no number left goes without.
    pub fn settle(&mut self, there: &[Key], most: usize, now_ms: u64) -> Settled {
        let mut settled = Settled::default();
        let mut outdated = self.outdated(now_ms);
        settled.more = outdated.len() > most;
        outdated.truncate(most);
        settled.changes.extend(outdated.into_iter().map(|name| self.remove(name)));
        let wanted: BTreeSet<&Key> = there.iter().collect();
        let valid = self.entries().filter(|(_, it)| it.valid).map(|(key, _)| key.clone());
        let gone: Vec<Key> = valid.filter(|key| !wanted.contains(key)).collect();
        for key in gone {
            if settled.is_full(most) {
                return settled;
            }
            if let Ok(swept) = self.purge(&key, now_ms) {
                settled.changes.extend(swept.changes);
            }
        }
        for key in there.iter() {
            if self.entry(key).is_some_and(|it| it.valid) {
                continue;
            }
            if settled.is_full(most) {
                return settled;
            }
            if let Ok(assigned) = self.assign(key, now_ms) {
                settled.changes.extend(assigned.changes);
            }
        }
        settled
    }

    /// When the next entry or last is outdated that is not valid now, in milliseconds since 1970.
    pub fn next_outdated_ms(&self) -> Option<u64> {
        let entries = self.entries().map(|(_, it)| it);
        let all = entries.chain(self.lasts().map(|(_, it)| it));
        let changed = all.filter(|it| !it.valid).map(|it| it.changed_ms).min();
        changed.map(|it| it.saturating_add(self.outdate_ms()))
    }
}

impl Settled {
    /// Whether no more fits in; something is left then.
    fn is_full(&mut self, most: usize) -> bool {
        self.more |= self.changes.len() >= most;
        self.more
    }
}

/// What changes leave of each name: the entry, or none.
pub fn collapse(changes: Vec<Change>) -> BTreeMap<Name, Option<Entry>> {
    let each = changes.into_iter().map(|change| match change {
        Change::Put(name, entry) => (name, Some(entry)),
        Change::Remove(name) => (name, None),
    });
    each.collect()
}
