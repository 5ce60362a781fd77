//! One page of one index: which entries to walk, and which documents to read.
//!
//! The order of results is fixed by the search alone. So there are two ways. A *walk* goes through
//! entries or names in just that order, and stops when the page is full or has cost enough. A *gathering*
//! reads all places of a condition that few entries fulfil, and sorts what fits.

use super::ranges::{LAST_KEY, Merged, Range, entries, names};
use super::{Filling, Hit, Limits, Page, Read};
use crate::index::{Entry, Index, Part, Place};
use crate::query::{Position, Search, Wanted};
use crate::shapes::{Record, Shape};
use crate::special::{Spent, View};
use crate::value::{Condition, Test, Value, end_of};
use rota_docstore::{DocName, Document, Exception};
use rota_model::{Namespace, Stamp};
use smol_str::SmolStr;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

/// So many entries of one document in a row are passed over for one document read.
const ENTRIES_PER_DOCUMENT: u64 = 16;

struct Walk<'a> {
    search: &'a Search,
    shape: Option<(&'a SmolStr, &'a Shape)>,
    parts: Vec<&'a Part>,
    docids: (Bound<String>, Bound<String>),
    now: Stamp,
    limits: Limits,
    read: Read<'a>,
    last_read: Option<(DocName, Option<Arc<Document>>)>,
    documents_read: u64,
    steps: u64,
}

/// Where candidates come from.
enum Way<'a> {
    /// Names in order.
    Names,
    /// Entries of a field, in order of results: the field's own, or all of one value.
    Entries(&'a SmolStr, Range),
    /// Places of few entries, in any order.
    Gathered(BTreeSet<Place>),
    /// What a special search found, and whether these are items.
    Special(BTreeSet<Place>, bool),
}

pub(super) fn page(
    index: &Index,
    search: &Search,
    after: Option<&Position>,
    now: Stamp,
    limits: Limits,
    read: Read<'_>,
) -> Result<Page, Exception> {
    let query = search.query();
    let items = index.shapes().items(&query.class);
    let shape = query.item.as_ref().and_then(|it| items?.get_key_value(it));
    let parts = index.parts(&query.class, query.space.as_ref().map(Namespace::as_str));
    let docids = docids(&search.docid, now);
    let mut walk = Walk {
        search,
        shape,
        parts,
        docids,
        now,
        limits,
        read,
        last_read: None,
        documents_read: 0,
        steps: 0,
    };
    let way = match &query.special {
        Some(special) => {
            let (class, space) = (query.class.as_str(), query.space.as_ref());
            let view = View { index, class, space, now, read, spent: Spent::default() };
            let (places, are_items) = index.shapes().specials().places(special, &view)?;
            walk.documents_read = view.documents_read();
            Way::Special(places, are_items)
        }
        None => walk.way(),
    };
    let (hits, next) = walk.run(way, after);
    Ok(Page { hits, next, documents_read: walk.documents_read })
}

/// The ids that fulfil all conditions on docid lie in this range; others may, too.
fn docids(tests: &[Test], now: Stamp) -> (Bound<String>, Bound<String>) {
    let text = |bound: Bound<Value>| match bound {
        Bound::Included(Value::Text(it)) => Bound::Included(it.to_string()),
        Bound::Excluded(Value::Text(it)) => Bound::Excluded(it.to_string()),
        Bound::Included(_) | Bound::Excluded(_) | Bound::Unbounded => Bound::Unbounded,
    };
    let mut range = (Bound::Unbounded, Bound::Unbounded);
    for test in tests {
        let (low, high) = test.range(now);
        // A text with a control character is no id: such a bound is left out, and the test decides.
        let [low, high] = [low, high].map(text).map(|bound| match end_of(&bound) {
            Some(text) if text.contains(char::is_control) => Bound::Unbounded,
            Some(_) | None => bound,
        });
        if end_of(&low).is_some() && end_of(&low) > end_of(&range.0) {
            range.0 = low;
        }
        if end_of(&high).is_some_and(|it| end_of(&range.1).is_none_or(|known| it < known)) {
            range.1 = high;
        }
    }
    range
}

impl<'a> Walk<'a> {
    fn run(&mut self, way: Way<'a>, after: Option<&Position>) -> (Vec<Hit>, Option<Position>) {
        let mut filling = Filling::new(self.limits);
        match way {
            Way::Gathered(places) => self.gather(&places, after),
            Way::Special(places, are_items) => {
                let next = self.walk_special((places, are_items), after, &mut filling);
                (filling.hits, next)
            }
            Way::Names => {
                let next = self.walk_names(after, &mut filling);
                (filling.hits, next)
            }
            Way::Entries(field, range) => {
                let is_among_values = after.is_none_or(|it| it.value.is_some());
                if (self.search.by.is_none() || is_among_values)
                    && let Some(next) = self.walk_entries(field, &range, after, &mut filling)
                {
                    return (filling.hits, Some(next));
                }
                if !self.has_rest() {
                    return (filling.hits, None);
                }
                let after = if self.search.by.is_some() && is_among_values { None } else { after };
                let next = self.walk_names(after, &mut filling);
                (filling.hits, next)
            }
        }
    }

    /// Whether items without the field that is sorted by come behind those with it.
    fn has_rest(&self) -> bool {
        self.search.by.is_some() && self.sort_test().is_none()
    }

    /// The condition that says which values of the sorted field count.
    fn sort_test(&self) -> Option<&'a Test> {
        let by = self.search.by.as_ref()?;
        self.search.conditions.iter().find(|it| it.field == *by).map(|it| &it.test)
    }

    fn range(&self, test: Option<&Test>) -> Range {
        let all = (Bound::Unbounded, Bound::Unbounded);
        let values = test.map_or(all, |it| it.range(self.now));
        Range { values, docids: self.docids.clone() }
    }

    fn entries(
        &self,
        field: &str,
        range: &Range,
        from: Option<&Position>,
    ) -> Vec<Box<dyn Iterator<Item = &'a Entry> + 'a>> {
        let Some((item, _)) = self.shape else { return Vec::new() };
        let known = self.parts.iter().filter_map(|part| Some((*part, part.entries(item, field)?)));
        known.map(|(part, all)| entries(part, all, range, from, self.search.is_reversed)).collect()
    }

    /// The cheapest way that gives the order of the search.
    fn way(&self) -> Way<'a> {
        let search = self.search;
        let conditions: &'a [Condition] = &search.conditions;
        let in_order = |condition: &&Condition| match &search.by {
            Some(by) => condition.field == *by && Some(&condition.test) == self.sort_test(),
            None => condition.test.is_one_key(),
        };
        let natural = || match &search.by {
            Some(by) => Way::Entries(by, self.range(self.sort_test())),
            None => match conditions.iter().find(in_order) {
                Some(it) => Way::Entries(&it.field, self.range(Some(&it.test))),
                None => Way::Names,
            },
        };
        let is_by_docid = search.docid.is_empty() || search.by.is_none();
        if conditions.len() <= 1 && conditions.iter().all(|it| in_order(&it)) && is_by_docid {
            return natural();
        }
        let most = self.limits.gathered;
        let counted = conditions.iter().map(|condition| {
            let range = self.range(Some(&condition.test));
            let all = self.entries(&condition.field, &range, None).into_iter().flatten();
            (all.take(most + 1).count(), Some(condition))
        });
        let by_names = self.parts.iter().flat_map(|part| names(part, &self.docids, None, false));
        let by_names = (by_names.take(most + 1).count(), None);
        let Some((count, rarest)) = counted.chain([by_names]).min_by_key(|it| it.0) else {
            return natural();
        };
        if count > most {
            return natural();
        }
        let Some(condition) = rarest else {
            let all = self.parts.iter().flat_map(|part| names(part, &self.docids, None, false));
            let place = |name: &DocName| Place { name: name.clone(), key: None };
            return if search.by.is_none() {
                Way::Names
            } else {
                Way::Gathered(all.map(place).collect())
            };
        };
        let range = self.range(Some(&condition.test));
        if in_order(&condition) {
            return Way::Entries(&condition.field, range);
        }
        let all = self.entries(&condition.field, &range, None).into_iter().flatten();
        Way::Gathered(all.map(|it| Place { name: it.1.name.clone(), key: None }).collect())
    }

    fn gather(
        &mut self,
        places: &BTreeSet<Place>,
        after: Option<&Position>,
    ) -> (Vec<Hit>, Option<Position>) {
        let mut found: Vec<Position> =
            places.iter().flat_map(|it| self.positions(&it.name)).collect();
        found.retain(|it| is_behind(self.search, it, after));
        found.sort_unstable_by(|one, two| self.search.compare(one, two));
        let mut filling = Filling::new(self.limits);
        for at in found {
            if let Some(hit) = self.hit(at)
                && !filling.add(hit)
            {
                let next = filling.last();
                return (filling.hits, next);
            }
        }
        (filling.hits, None)
    }

    /// Whether the page has cost enough, after at least one step.
    fn is_spent(&self) -> bool {
        self.documents_read >= self.limits.documents
            || self.steps >= self.limits.documents.saturating_mul(ENTRIES_PER_DOCUMENT)
    }

    /// Where the next page goes on; `None`: nothing is left.
    fn walk_entries(
        &mut self,
        field: &str,
        range: &Range,
        after: Option<&Position>,
        filling: &mut Filling,
    ) -> Option<Position> {
        let from = self.entries(field, range, after);
        let mut last: Option<Position> = None;
        for (value, place) in Merged::new(from, self.search.is_reversed) {
            let at = self.place_in_order(value, place);
            let is_new = |it: Option<&Position>| is_behind(self.search, &at, it);
            if !is_new(after) || !is_new(last.as_ref()) {
                continue;
            }
            if last.is_some() && self.is_spent() {
                return last;
            }
            self.steps += 1;
            let is_inside = self.search.docid.iter().all(|it| self.fits_docid(it, &place.name));
            let found = if is_inside { self.position(place) } else { None };
            if found.as_ref() == Some(&at)
                && let Some(hit) = self.hit(at.clone())
                && !filling.add(hit)
            {
                return filling.last();
            }
            last = Some(at);
        }
        None
    }

    /// As [`Walk::walk_names`], for what a special search found: documents, or items by their keys.
    fn walk_special(
        &mut self,
        (places, are_items): (BTreeSet<Place>, bool),
        after: Option<&Position>,
        filling: &mut Filling,
    ) -> Option<Position> {
        let is_own = |it: &Place| self.parts.iter().any(|part| part.names.contains(&it.name));
        let mut documents: BTreeMap<DocName, Vec<Place>> = BTreeMap::new();
        for place in places.into_iter().filter(is_own) {
            documents.entry(place.name.clone()).or_default().push(place);
        }
        let mut in_order: Vec<(DocName, Vec<Place>)> = documents.into_iter().collect();
        if self.search.is_reversed {
            in_order.reverse();
        }
        let mut last = None;
        for (name, items) in in_order {
            let end = self.end_of(&name);
            if !is_behind(self.search, &end, after) {
                continue;
            }
            if last.is_some() && self.is_spent() {
                return last;
            }
            self.steps += 1;
            let found = if are_items { self.chosen(&name, &items) } else { self.positions(&name) };
            for at in found {
                if is_behind(self.search, &at, after)
                    && let Some(hit) = self.hit(at)
                    && !filling.add(hit)
                {
                    return filling.last();
                }
            }
            last = Some(end);
        }
        None
    }

    /// Results among items of a document, in order: those that fulfil all conditions.
    fn chosen(&mut self, name: &DocName, items: &[Place]) -> Vec<Position> {
        if self.shape.is_none() {
            return self.positions(name);
        }
        let is_inside = self.search.docid.iter().all(|it| self.fits_docid(it, name));
        let mut found: Vec<Position> = match is_inside {
            true => items.iter().filter_map(|it| self.item(it)).collect(),
            false => Vec::new(),
        };
        found.sort_unstable_by(|one, two| self.search.compare(one, two));
        if self.search.query().wanted == Wanted::Documents {
            found.truncate(1);
            found.iter_mut().for_each(|it| it.place.key = None);
        }
        found
    }

    /// Where everything of a document has come, in the order of results.
    fn end_of(&self, name: &DocName) -> Position {
        let key = match (self.search.query().wanted, self.search.is_reversed) {
            (Wanted::Items, false) => Some(LAST_KEY.clone()),
            (Wanted::Items, true) | (Wanted::Documents, _) => None,
        };
        Position { value: None, place: Place { name: name.clone(), key } }
    }

    fn place_in_order(&self, value: &Value, place: &Place) -> Position {
        let key = match self.search.query().wanted {
            Wanted::Documents => None,
            Wanted::Items => place.key.clone(),
        };
        let value = self.search.by.as_ref().map(|_| value.clone());
        Position { value, place: Place { name: place.name.clone(), key } }
    }

    /// As [`Walk::walk_entries`], for the results without a value to sort by.
    fn walk_names(&mut self, after: Option<&Position>, filling: &mut Filling) -> Option<Position> {
        let is_reversed = self.search.is_reversed;
        let from = after.map(|it| &it.place.name);
        let mut all: Vec<_> =
            self.parts.iter().map(|part| names(part, &self.docids, from, is_reversed)).collect();
        if is_reversed {
            all.reverse();
        }
        let mut last = None;
        for name in all.into_iter().flatten() {
            let end = self.end_of(name);
            if !is_behind(self.search, &end, after) {
                continue;
            }
            if last.is_some() && self.is_spent() {
                return last;
            }
            self.steps += 1;
            for at in self.positions(name) {
                if at.value.is_some() || !is_behind(self.search, &at, after) {
                    continue;
                }
                if let Some(hit) = self.hit(at)
                    && !filling.add(hit)
                {
                    return filling.last();
                }
            }
            last = Some(end);
        }
        None
    }

    fn fits_docid(&self, test: &Test, name: &DocName) -> bool {
        test.holds(&Value::text(name.docid()), self.now)
    }

    fn document(&mut self, name: &DocName) -> Option<Arc<Document>> {
        if let Some((known, document)) = &self.last_read
            && known == name
        {
            return document.clone();
        }
        self.documents_read += 1;
        let document = (self.read)(name).filter(|it| !it.is_deleted());
        self.last_read = Some((name.clone(), document.clone()));
        document
    }

    /// Where a record stands, if it fulfils all conditions on fields.
    fn stands(&self, record: &Record, place: Place) -> Option<Position> {
        let values = |field: &str| record.get(field).into_iter().flatten();
        let holds = |it: &Condition| values(&it.field).any(|value| it.test.holds(value, self.now));
        if !self.search.conditions.iter().all(holds) {
            return None;
        }
        let test = self.sort_test();
        let value = self.search.by.as_ref().and_then(|by| {
            let counts = |it: &&Value| test.is_none_or(|test| test.holds(it, self.now));
            let counted = values(by).filter(counts);
            let first = if self.search.is_reversed { counted.max() } else { counted.min() };
            first.cloned().map(Value::kept)
        });
        Some(Position { value, place })
    }

    /// The result that a place belongs to: that of its item or, of documents, that of all items.
    fn position(&mut self, place: &Place) -> Option<Position> {
        match self.search.query().wanted {
            Wanted::Documents => self.positions(&place.name).into_iter().next(),
            Wanted::Items => self.item(place),
        }
    }

    fn item(&mut self, place: &Place) -> Option<Position> {
        let document = self.document(&place.name)?;
        let (item, shape) = self.shape?;
        let record = shape.record(item, &document, place.key.as_deref())?;
        self.stands(&record, place.clone())
    }

    /// All results in a document, in order.
    fn positions(&mut self, name: &DocName) -> Vec<Position> {
        if !self.search.docid.iter().all(|it| self.fits_docid(it, name)) {
            return Vec::new();
        }
        let Some(document) = self.document(name) else { return Vec::new() };
        let place = |key: Option<&str>| Place { name: name.clone(), key: key.map(Into::into) };
        let Some((item, shape)) = self.shape else {
            return vec![Position { value: None, place: place(None) }];
        };
        let wanted = self.search.query().wanted;
        let mut found = Vec::new();
        shape.records(item, &document, |key, record| {
            let key = if wanted == Wanted::Items { key } else { None };
            found.extend(self.stands(&record, place(key)));
        });
        found.sort_unstable_by(|one, two| self.search.compare(one, two));
        if wanted == Wanted::Documents {
            found.truncate(1);
        }
        found
    }

    fn hit(&mut self, at: Position) -> Option<Hit> {
        let document = self.document(&at.place.name)?;
        let content = match (self.search.query().wanted, self.shape) {
            (Wanted::Items, Some((item, Shape::Items(_)))) => {
                document.content(item, at.place.key.as_deref()).cloned()
            }
            (Wanted::Items | Wanted::Documents, _) => None,
        };
        Some(Hit { at, version: document.version(), content })
    }
}

fn is_behind(search: &Search, at: &Position, after: Option<&Position>) -> bool {
    after.is_none_or(|it| search.compare(at, it) == Ordering::Greater)
}
