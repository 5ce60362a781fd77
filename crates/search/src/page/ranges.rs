//! Parts of an index between two bounds, in either direction, and of several namespaces in one order.

use crate::index::{Entries, Entry, Part, Place};
use crate::query::Position;
use crate::value::{Value, end_of};
use rota_docstore::DocName;
use rota_model::Namespace;
use smol_str::SmolStr;
use std::collections::{BTreeSet, BinaryHeap};
use std::ops::Bound;
use std::sync::LazyLock;

/// Above every key: a key has at most 255 bytes.
pub(crate) static LAST_KEY: LazyLock<SmolStr> = LazyLock::new(|| "\u{10ffff}".repeat(64).into());

/// The last id of 255 bytes.
static LAST_DOCID: LazyLock<String> = LazyLock::new(|| "\u{10ffff}".repeat(63) + "\u{ffff}");

/// A range of values, and one of ids.
#[derive(Clone, Debug)]
pub(crate) struct Range {
    pub(crate) values: (Bound<Value>, Bound<Value>),
    pub(crate) docids: (Bound<String>, Bound<String>),
}

/// A name in the class and namespace of others, as far as the id can be one.
fn beside(other: &DocName, docid: &str) -> Option<DocName> {
    let space = Namespace::parse(other.space()).ok()?;
    DocName::new(&space, other.class(), docid).ok()
}

/// Iterates over what lies between two bounds, forwards or backwards.
fn between<'a, T: Ord>(
    all: &'a BTreeSet<T>,
    (low, high): (Bound<T>, Bound<T>),
    is_reversed: bool,
) -> Box<dyn Iterator<Item = &'a T> + 'a> {
    if let (Some(low_end), Some(high_end)) = (end_of(&low), end_of(&high)) {
        let is_open = matches!((&low, &high), (Bound::Included(_), Bound::Included(_)));
        if low_end > high_end || low_end == high_end && !is_open {
            return Box::new(std::iter::empty());
        }
    }
    let range = all.range((low, high));
    if is_reversed { Box::new(range.rev()) } else { Box::new(range) }
}

/// The names of a part whose ids lie in a range, from a name on.
pub(crate) fn names<'a>(
    part: &'a Part,
    docids: &(Bound<String>, Bound<String>),
    from: Option<&DocName>,
    is_reversed: bool,
) -> Box<dyn Iterator<Item = &'a DocName> + 'a> {
    let Some(any) = part.names.first() else { return Box::new(std::iter::empty()) };
    let bound = |of: &Bound<String>| match end_of(of).and_then(|it| beside(any, it)) {
        Some(name) => match of {
            Bound::Excluded(_) => Bound::Excluded(name),
            Bound::Included(_) | Bound::Unbounded => Bound::Included(name),
        },
        None => Bound::Unbounded,
    };
    let (mut low, mut high) = (bound(&docids.0), bound(&docids.1));
    if let Some(from) = from {
        if is_reversed {
            if end_of(&high).is_none_or(|it| it > from) {
                high = Bound::Included(from.clone());
            }
        } else if end_of(&low).is_none_or(|it| it < from) {
            low = Bound::Included(from.clone());
        }
    }
    between(&part.names, (low, high), is_reversed)
}

/// The entries of a part in a range, from a position on. Where all have one value, ids narrow them.
pub(crate) fn entries<'a>(
    part: &'a Part,
    all: &'a Entries,
    range: &Range,
    from: Option<&Position>,
    is_reversed: bool,
) -> Box<dyn Iterator<Item = &'a Entry> + 'a> {
    let Some(any) = part.names.first() else { return Box::new(std::iter::empty()) };
    let end = |docid: &str| beside(any, docid).expect("one space and the last id are ids");
    let first = Place { name: end(" "), key: None };
    let last = Place { name: end(&LAST_DOCID), key: Some(LAST_KEY.clone()) };
    let mut low = match &range.values.0 {
        Bound::Included(it) => Bound::Included((it.clone(), first.clone())),
        Bound::Excluded(it) => Bound::Excluded((it.clone(), last.clone())),
        Bound::Unbounded => Bound::Unbounded,
    };
    let mut high = match &range.values.1 {
        Bound::Included(it) => Bound::Included((it.clone(), last)),
        Bound::Excluded(it) => Bound::Excluded((it.clone(), first)),
        Bound::Unbounded => Bound::Unbounded,
    };
    if let (Bound::Included(one), Bound::Included(two)) = &range.values
        && one == two
    {
        if let Some(name) = end_of(&range.docids.0).and_then(|it| beside(any, it)) {
            low = Bound::Included((one.clone(), Place { name, key: None }));
        }
        if let Some(name) = end_of(&range.docids.1).and_then(|it| beside(any, it)) {
            let key = Some(LAST_KEY.clone());
            high = Bound::Included((one.clone(), Place { name, key }));
        }
    }
    if let Some(from) = from {
        narrow((&mut low, &mut high), &range.values, from, is_reversed);
    }
    between(all, (low, high), is_reversed)
}

/// Leaves out what lies clearly on the near side of a position.
fn narrow(
    (low, high): (&mut Bound<Entry>, &mut Bound<Entry>),
    values: &(Bound<Value>, Bound<Value>),
    from: &Position,
    is_reversed: bool,
) {
    // Sorted by docid, all entries have one value.
    let value = from.value.as_ref().or(end_of(&values.0));
    let Some(value) = value else { return };
    let mut place = from.place.clone();
    if is_reversed {
        place.key = place.key.or_else(|| Some(LAST_KEY.clone()));
        let begin = (value.clone(), place);
        if end_of(high).is_none_or(|it| *it > begin) {
            *high = Bound::Included(begin);
        }
    } else {
        let begin = (value.clone(), place);
        if end_of(low).is_none_or(|it| *it < begin) {
            *low = Bound::Included(begin);
        }
    }
}

/// The first entry of an iterator that has not been taken.
struct Head<'a> {
    entry: &'a Entry,
    of: usize,
    is_reversed: bool,
}

impl Ord for Head<'_> {
    /// A heap gives the greatest first, which is to be the first in order.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let order = self.entry.cmp(other.entry);
        if self.is_reversed { order } else { order.reverse() }
    }
}

impl PartialOrd for Head<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Head<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Head<'_> {}

/// Entries of several namespaces in one order.
pub(crate) struct Merged<'a> {
    all: Vec<Box<dyn Iterator<Item = &'a Entry> + 'a>>,
    heads: BinaryHeap<Head<'a>>,
    is_reversed: bool,
}

impl<'a> Merged<'a> {
    pub(crate) fn new(
        all: Vec<Box<dyn Iterator<Item = &'a Entry> + 'a>>,
        is_reversed: bool,
    ) -> Self {
        let mut merged = Self { all, heads: BinaryHeap::new(), is_reversed };
        (0..merged.all.len()).for_each(|of| merged.refill(of));
        merged
    }

    fn refill(&mut self, of: usize) {
        let next = self.all.get_mut(of).and_then(Iterator::next);
        let is_reversed = self.is_reversed;
        self.heads.extend(next.map(|entry| Head { entry, of, is_reversed }));
    }
}

impl<'a> Iterator for Merged<'a> {
    type Item = &'a Entry;

    fn next(&mut self) -> Option<&'a Entry> {
        let Head { entry, of, .. } = self.heads.pop()?;
        self.refill(of);
        Some(entry)
    }
}
