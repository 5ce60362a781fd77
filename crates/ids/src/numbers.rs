//! The entries, the lasts, and every way in which they change.

use crate::name::{Group, Key, Name};
use crate::outcome::{Adopted, Assigned, Change, Entry, NumberError, Swept};
use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};
use uuid::Uuid;

/// Numbers of resources, and the last number of each group.
///
/// Every time is the wall clock's, in milliseconds since 1970. A clock that is set back makes entries stay
/// longer, and no number is given twice by it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Numbers {
    outdate_ms: u64,
    entries: BTreeMap<Key, Entry>,
    lasts: BTreeMap<Group, Entry>,
    /// Who has each number of a group; no group is empty.
    taken: BTreeMap<Group, BTreeMap<u64, Uuid>>,
}

impl Numbers {
    /// Nothing yet. `outdate_ms`: how long an entry stays that is not valid, in milliseconds. With 0 it goes
    /// at once. Too low, and a resource that is away for a moment comes back with another number; too high,
    /// and many entries of old resources are kept.
    pub fn new(outdate_ms: u64) -> Self {
        Self {
            outdate_ms,
            entries: BTreeMap::new(),
            lasts: BTreeMap::new(),
            taken: BTreeMap::new(),
        }
    }

    /// How long an entry stays that is not valid, in milliseconds.
    pub fn outdate_ms(&self) -> u64 {
        self.outdate_ms
    }

    /// The number of a resource, valid or not.
    pub fn entry(&self, key: &Key) -> Option<Entry> {
        self.entries.get(key).copied()
    }

    /// The last number that a group assigned.
    pub fn last(&self, group: &Group) -> Option<Entry> {
        self.lasts.get(group).copied()
    }

    /// What has that name.
    pub fn get(&self, name: &Name) -> Option<Entry> {
        match name {
            Name::Entry(key) => self.entry(key),
            Name::Last(group) => self.last(group),
        }
    }

    /// Who has a number in a group, valid or not.
    pub fn holder(&self, group: &Group, number: u64) -> Option<Key> {
        let uuid = *self.taken.get(group)?.get(&number)?;
        Some(Key { parent: group.parent, kind: group.kind.clone(), uuid })
    }

    /// The highest number that an entry of the group has.
    pub fn highest(&self, group: &Group) -> Option<u64> {
        self.taken.get(group)?.last_key_value().map(|(number, _)| *number)
    }

    /// Every entry, those of one parent side by side.
    pub fn entries(&self) -> impl Iterator<Item = (&Key, Entry)> {
        self.entries.iter().map(|(key, entry)| (key, *entry))
    }

    /// Every last, those of one parent side by side.
    pub fn lasts(&self) -> impl Iterator<Item = (&Group, Entry)> {
        self.lasts.iter().map(|(group, entry)| (group, *entry))
    }

    /// How many entries and lasts there are.
    pub fn len(&self) -> usize {
        self.entries.len() + self.lasts.len()
    }

    /// True when there is no entry and no last.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.lasts.is_empty()
    }

    /// Puts back what was persisted, before anything else happens. Refuses an entry whose number another one
    /// of its group has.
    pub fn restore(&mut self, name: Name, entry: Entry) -> Result<(), NumberError> {
        if entry.number == 0 {
            return Err(NumberError::Zero { name });
        }
        if let Name::Entry(key) = &name
            && let Some(by) = self.taken.get(&key.group()).and_then(|it| it.get(&entry.number))
            && *by != key.uuid
        {
            let (number, by) = (entry.number, *by);
            return Err(NumberError::Taken { key: key.clone(), number, by });
        }
        self.set(&name, entry);
        Ok(())
    }

    /// A resource is reported, new or again. One that has an entry keeps its number, even if that entry was
    /// not valid; any other gets the first free one above the last. Its entry and its last are valid then.
    pub fn assign(&mut self, key: &Key, now_ms: u64) -> Result<Assigned, NumberError> {
        let known = self.entry(key).map(|it| it.number);
        let number = match known {
            Some(number) => number,
            None => self.first_free(key.group())?,
        };
        Ok(Assigned { number, is_new: known.is_none(), changes: self.hold(key, number, now_ms) })
    }

    /// Takes over a number that the owner of the parent assigned. The entry is valid with that number then,
    /// and the last is at least as high. An entry that says otherwise is wrong: that of this resource with
    /// another number is replaced, and that of another resource with this number is removed.
    pub fn adopt(&mut self, key: &Key, number: u64, now_ms: u64) -> Result<Adopted, NumberError> {
        if number == 0 {
            return Err(NumberError::Zero { name: Name::Entry(key.clone()) });
        }
        let was = self.entry(key).map(|it| it.number).filter(|it| *it != number);
        let displaced = self.holder(&key.group(), number).filter(|it| it != key);
        let mut changes = Vec::new();
        if let Some(other) = &displaced {
            changes.push(self.remove(Name::Entry(other.clone())));
        }
        changes.extend(self.hold(key, number, now_ms));
        Ok(Adopted { was, displaced, changes })
    }

    /// A resource is removed. First the lasts of all groups below it are made invalid, then its entry. Refuses
    /// a resource that is not allocated: one without an entry, or whose entry is not valid.
    pub fn purge(&mut self, key: &Key, now_ms: u64) -> Result<Swept, NumberError> {
        match self.entry(key) {
            None => return Err(NumberError::NotAllocated { key: key.clone() }),
            Some(Entry { number, valid: false, .. }) => {
                return Err(NumberError::NotValid { key: key.clone(), number });
            }
            Some(Entry { valid: true, .. }) => {}
        }
        let below = self.lasts.range(Group::first_of(key.uuid)..);
        let below = below.take_while(|(group, _)| group.parent == Some(key.uuid));
        let mut names: Vec<Name> = below.map(|(group, _)| Name::Last(group.clone())).collect();
        names.push(Name::Entry(key.clone()));
        Ok(self.invalidate(names, now_ms))
    }

    /// Makes every entry and every last invalid: nothing is known to be there until it is reported.
    pub fn invalidate_all(&mut self, now_ms: u64) -> Swept {
        let names = self.names(|it| it.valid);
        self.invalidate(names, now_ms)
    }

    /// Removes every entry and every last that is outdated: not valid, and unchanged for the interval.
    pub fn remove_outdated(&mut self, now_ms: u64) -> Swept {
        let names = self.outdated(now_ms);
        let changes: Vec<Change> = names.into_iter().map(|name| self.remove(name)).collect();
        Swept { removed: changes.len(), invalidated: 0, changes }
    }

    /// Removes entries that are not valid, those that are so for longest first, until there are at most so many
    /// entries or none that is not valid. What bounds the entries of a group that comes and goes much.
    pub fn make_room(&mut self, most: usize) -> Swept {
        let excess = self.entries.len().saturating_sub(most);
        let mut old: Vec<(u64, Key)> = self
            .entries
            .iter()
            .filter(|_| excess > 0)
            .filter(|(_, it)| !it.valid)
            .map(|(key, it)| (it.changed_ms, key.clone()))
            .collect();
        old.sort();
        old.truncate(excess);
        let changes: Vec<Change> =
            old.into_iter().map(|(_, key)| self.remove(Name::Entry(key))).collect();
        Swept { removed: changes.len(), invalidated: 0, changes }
    }

    /// The process starts, before it takes any report: removes what is outdated, then makes all the rest
    /// invalid.
    pub fn start(&mut self, now_ms: u64) -> Swept {
        let mut swept = self.remove_outdated(now_ms);
        let then = self.invalidate_all(now_ms);
        swept.removed += then.removed;
        swept.invalidated += then.invalidated;
        swept.changes.extend(then.changes);
        swept
    }

    /// The process stops: makes everything invalid. What is not reported for the interval after it is removed.
    pub fn stop(&mut self, now_ms: u64) -> Swept {
        self.invalidate_all(now_ms)
    }

    /// What is outdated, the lasts first.
    pub(crate) fn outdated(&self, now_ms: u64) -> Vec<Name> {
        self.names(|it| !it.valid && now_ms.saturating_sub(it.changed_ms) >= self.outdate_ms)
    }

    /// Makes a last valid, and at least so high.
    pub(crate) fn raise_last(&mut self, group: &Group, number: u64, now_ms: u64) -> Option<Change> {
        let before = self.last(group);
        let number = before.map_or(number, |it| it.number.max(number));
        if before.is_some_and(|it| it.valid && it.number == number) {
            return None;
        }
        let entry = Entry { number, valid: true, changed_ms: now_ms };
        let name = Name::Last(group.clone());
        self.set(&name, entry);
        Some(Change::Put(name, entry))
    }

    fn first_free(&self, group: Group) -> Result<u64, NumberError> {
        let last = self.last(&group).map_or(0, |it| it.number);
        let mut free = last.checked_add(1);
        let above = self.taken.get(&group).into_iter();
        for number in above.flat_map(|it| it.range((Excluded(last), Unbounded))).map(|it| *it.0) {
            if free != Some(number) {
                break;
            }
            free = number.checked_add(1);
        }
        free.ok_or(NumberError::Full { group, last })
    }

    /// Makes the last and the entry valid. The last comes first: a rim that stops between the two leaves no
    /// number above it.
    fn hold(&mut self, key: &Key, number: u64, now_ms: u64) -> Vec<Change> {
        let mut changes: Vec<Change> =
            self.raise_last(&key.group(), number, now_ms).into_iter().collect();
        if self.entry(key).is_none_or(|it| !it.valid || it.number != number) {
            let entry = Entry { number, valid: true, changed_ms: now_ms };
            let name = Name::Entry(key.clone());
            self.set(&name, entry);
            changes.push(Change::Put(name, entry));
        }
        changes
    }

    /// Those that are valid stay for the interval from now on; without one, they go.
    fn invalidate(&mut self, names: Vec<Name>, now_ms: u64) -> Swept {
        let mut swept = Swept::default();
        for name in names {
            let Some(before) = self.get(&name).filter(|it| it.valid) else { continue };
            if self.outdate_ms == 0 {
                swept.removed += 1;
                swept.changes.push(self.remove(name));
            } else {
                let entry = Entry { valid: false, changed_ms: now_ms, ..before };
                self.set(&name, entry);
                swept.invalidated += 1;
                swept.changes.push(Change::Put(name, entry));
            }
        }
        swept
    }

    fn names(&self, wanted: impl Fn(&Entry) -> bool) -> Vec<Name> {
        let lasts = self.lasts.iter().filter(|it| wanted(it.1));
        let lasts = lasts.map(|(group, _)| Name::Last(group.clone()));
        let entries = self.entries.iter().filter(|it| wanted(it.1));
        lasts.chain(entries.map(|(key, _)| Name::Entry(key.clone()))).collect()
    }

    fn set(&mut self, name: &Name, entry: Entry) {
        match name {
            Name::Entry(key) => {
                self.free(key);
                self.taken.entry(key.group()).or_default().insert(entry.number, key.uuid);
                self.entries.insert(key.clone(), entry);
            }
            Name::Last(group) => {
                self.lasts.insert(group.clone(), entry);
            }
        }
    }

    pub(crate) fn remove(&mut self, name: Name) -> Change {
        match &name {
            Name::Entry(key) => {
                self.free(key);
                self.entries.remove(key);
            }
            Name::Last(group) => {
                self.lasts.remove(group);
            }
        }
        Change::Remove(name)
    }

    /// Gives up the number of a resource, if it has one.
    fn free(&mut self, key: &Key) {
        let Some(entry) = self.entries.get(key) else { return };
        let group = key.group();
        if let Some(numbers) = self.taken.get_mut(&group) {
            numbers.remove(&entry.number);
            if numbers.is_empty() {
                self.taken.remove(&group);
            }
        }
    }
}
