//! What a commit changes of the items.

use crate::item::{FIELD, LifeItem};
use crate::managed::{Held, ITEMS_BYTES_MAX, ITEMS_MAX, Managed, Past};
use crate::name::Name;
use rota_model::{FieldError, Stamp};
use smol_str::SmolStr;
use std::collections::{BTreeMap, BTreeSet};

/// Changes of the items. Whatever their order, what is replaced and removed goes first, then comes what is added,
/// then what is finished.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Edit {
    /// Items that are added. One that is there already, or is history and has fired, changes nothing.
    pub add: Vec<LifeItem>,
    /// Items that are removed. One that is not there changes nothing.
    pub remove: Vec<LifeItem>,
    /// Life cycles that move to the history, whatever is left of them.
    pub finish: Vec<Name>,
    /// Items that take the place of all others.
    pub replace: Option<Vec<LifeItem>>,
}

impl Edit {
    /// Adds items.
    pub fn adding(add: Vec<LifeItem>) -> Self {
        Self { add, ..Self::default() }
    }

    /// Reads items as people enter them. Every mistake is told with its place in the list.
    pub fn parse_entries(lines: &[String], now: Stamp) -> Result<Vec<LifeItem>, Vec<FieldError>> {
        let mut mistakes = Vec::new();
        let items = lines.iter().enumerate().filter_map(|(index, line)| {
            let read = LifeItem::parse_entry(line, now);
            let told = |it: FieldError| FieldError::new(format!("{FIELD}[{index}]"), it.problem);
            read.map_err(|it| mistakes.push(told(it))).ok()
        });
        let items: Vec<LifeItem> = items.collect();
        if mistakes.is_empty() { Ok(items) } else { Err(mistakes) }
    }

    /// Whether nothing is asked for.
    pub fn is_empty(&self) -> bool {
        let lists = self.add.is_empty() && self.remove.is_empty() && self.finish.is_empty();
        lists && self.replace.is_none()
    }
}

/// Where an item of the history stands, in errors.
const HISTORY: &str = ", which is history";

fn mistake(problem: String) -> FieldError {
    FieldError::new(FIELD, problem)
}

/// Which item uses a name of a life cycle, and where that item stands. Made once for all additions, since the
/// history may have very many names.
#[derive(Default)]
struct Used<'a>(BTreeMap<(&'a Name, SmolStr), (&'a LifeItem, &'static str)>);

impl<'a> Used<'a> {
    fn note(&mut self, item: &'a LifeItem, place: &'static str) {
        let names = item.words().map(|word| (item.life_cycle(), word.event()));
        self.0.extend(names.map(|name| (name, (item, place))));
    }

    fn clash(&self, item: &'a LifeItem) -> Option<FieldError> {
        let life_cycle = item.life_cycle();
        let mut events = item.words().map(|word| word.event());
        events.find_map(|event| {
            let (other, place) = self.0.get(&(life_cycle, event.clone()))?;
            Some(mistake(format!(
                "{item:?}: {event} is used in the life cycle {life_cycle} by {other:?}{place}; give it another name"
            )))
        })
    }
}

impl Managed {
    /// Carries out an edit, all of it or nothing. The errors name each item that clashes, and what with.
    /// Life cycles do not move to the history by themselves here: [`Managed::fire_marks`] or [`Managed::settle`]
    /// ends the commit.
    pub fn edit(&mut self, edit: &Edit, now: Stamp) -> Result<(), Vec<FieldError>> {
        let additions: BTreeSet<&LifeItem> =
            edit.add.iter().chain(edit.replace.iter().flatten()).collect();
        if self.ended && !additions.is_empty() {
            let problem = "the session has ended, so nothing happens in it any more".to_owned();
            return Err(vec![mistake(problem)]);
        }
        let mut next = self.clone();
        next.remove(edit, &additions, now);
        let clashes = next.add(&additions);
        let mistakes: Vec<FieldError> = clashes.into_iter().chain(next.over_limits()).collect();
        if !mistakes.is_empty() {
            return Err(mistakes);
        }
        next.move_where(now, |item, _| edit.finish.contains(item.life_cycle()));
        *self = next;
        Ok(())
    }

    /// Removes items. One that has fired moves to the history, since its name is used. If an added item goes on
    /// from there, with the fired event ahead of its last word, that item takes its place.
    fn remove(&mut self, edit: &Edit, additions: &BTreeSet<&LifeItem>, now: Stamp) {
        let goes = |item: &LifeItem| {
            let is_replaced = edit.replace.as_ref().is_some_and(|kept| !kept.contains(item));
            is_replaced || edit.remove.contains(item)
        };
        let goes_on = |item: &LifeItem| {
            let event = item.last().event();
            let mut same = additions.iter().filter(|it| it.life_cycle() == item.life_cycle());
            same.any(|it| it.earlier().iter().any(|word| word.event() == event))
        };
        self.items.retain(|(item, held)| !goes(item) || held.fired.is_some() && !goes_on(item));
        self.move_where(now, |item, _| goes(item));
    }

    /// The history of this chain of lives.
    fn past(&self) -> impl Iterator<Item = &Past> {
        self.history.iter().filter(|past| past.origin == self.origin)
    }

    fn used_in_history(&self) -> Used<'_> {
        let mut used = Used::default();
        self.past().for_each(|past| used.note(&past.item, HISTORY));
        used
    }

    /// The items whose names the history of this chain of lives does not have.
    fn without_past(&self, mut items: Vec<LifeItem>) -> Vec<LifeItem> {
        let used = self.used_in_history();
        items.retain(|item| used.clash(item).is_none());
        items
    }

    /// Adds what is not there yet. The errors name each item that has a name of another one.
    fn add(&mut self, additions: &BTreeSet<&LifeItem>) -> Vec<FieldError> {
        let mut used = self.used_in_history();
        let has_fired =
            |item: &LifeItem| self.past().any(|it| it.item == *item && it.fired.is_some());
        self.items().for_each(|(it, _)| used.note(it, ""));
        let (mut clashes, mut new) = (Vec::new(), Vec::new());
        for item in additions {
            if self.items.binary_search_by(|(it, _)| it.cmp(item)).is_ok() || has_fired(item) {
                continue;
            }
            match used.clash(item) {
                Some(clash) => clashes.push(clash),
                None => {
                    used.note(item, "");
                    new.push(*item);
                }
            }
        }
        self.items.reserve_exact(new.len());
        self.items.extend(new.into_iter().map(|item| (item.clone(), Held::default())));
        self.items.sort_by(|(one, _), (other, _)| one.cmp(other));
        clashes
    }

    fn over_limits(&self) -> Option<FieldError> {
        let count = self.items.len();
        if count > ITEMS_MAX {
            let problem = format!("would have {count} items; the limit is {ITEMS_MAX}");
            return Some(mistake(problem));
        }
        let bytes: usize = self.items().map(|(it, _)| it.to_string().len()).sum();
        (bytes > ITEMS_BYTES_MAX).then(|| {
            mistake(format!("would have {bytes} bytes of items; the limit is {ITEMS_BYTES_MAX}"))
        })
    }

    /// Another chain of lives of the session begins with these items. What is left of the one before moves to the
    /// history, and its names may be used anew. The chain that is under way already gets the items added.
    ///
    /// A session whose last copies were lost may go back to an earlier chain. Items whose names the history has of that
    /// chain are left out, also those that never fired: they ended with it.
    pub fn begin(
        &mut self,
        origin: Stamp,
        mut items: Vec<LifeItem>,
        now: Stamp,
    ) -> Result<(), Vec<FieldError>> {
        let mut next = self.clone();
        if next.origin != origin {
            next.end(now);
            next.origin = origin;
            next.ended = false;
            items = next.without_past(items);
        }
        next.edit(&Edit::adding(items), now)?;
        *self = next;
        Ok(())
    }
}
