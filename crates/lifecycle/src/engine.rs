//! What is to fire, and what happens when it does.

use crate::item::{LifeItem, Word};
use crate::managed::{Failure, Fired, Held, Managed};
use crate::name::Name;
use rota_model::Stamp;
use smol_str::{SmolStr, ToSmolStr};

/// An event that is to fire. Ordered by time, then life cycle, then word.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Due {
    /// Since when it is due. [`Stamp::MIN`] for a wait.
    pub since: Stamp,
    /// Its life cycle.
    pub life_cycle: Name,
    /// The last word of its item, as it is printed.
    pub word: SmolStr,
    /// What is unique within its life cycle: the event's name, or the whole word of a wait.
    pub event: SmolStr,
}

impl Managed {
    /// Whether a name of a life cycle has been reached. It fired, stands as a mark, or stands as a timed word ahead
    /// of the last one.
    fn is_reached(&self, life_cycle: &Name, event: &Name) -> bool {
        self.items_of(life_cycle).any(|(item, held)| {
            let is_earlier = item.earlier().iter().any(|word| word.is_named(event));
            let has_happened = held.fired.is_some() || !item.last().can_fire();
            is_earlier || has_happened && item.last().is_named(event)
        })
    }

    /// Whether a wait has nothing left to wait for: its life cycle is absent, or what it awaits was reached.
    pub(crate) fn is_fulfilled(&self, life_cycle: &Name, event: &Name) -> bool {
        self.items_of(life_cycle).next().is_none() || self.is_reached(life_cycle, event)
    }

    /// From when on an item's last word is due. `None`: it has fired, failed, is a mark, or waits.
    fn due_at(&self, item: &LifeItem, held: &Held) -> Option<Stamp> {
        if !held.is_open(item) {
            return None;
        }
        match item.last() {
            Word::Mark(_) => None,
            Word::At { at, .. } => Some(*at),
            Word::Wait { life_cycle, event } => {
                (held.ready || self.is_fulfilled(life_cycle, event)).then_some(Stamp::MIN)
            }
        }
    }

    /// What is to fire now, in order: by time, then life cycle, then word.
    pub fn due(&self, now: Stamp) -> Vec<Due> {
        let due = self.items().filter_map(|(item, held)| {
            let since = self.due_at(item, held).filter(|since| *since <= now)?;
            let (word, event) = (item.last().to_smolstr(), item.last().event());
            Some(Due { since, life_cycle: item.life_cycle().clone(), word, event })
        });
        let mut due: Vec<Due> = due.collect();
        due.sort();
        due
    }

    /// Whether the action of a last word may run: it has not fired, and is due or has failed.
    pub fn may_run(&self, life_cycle: &str, word: &str, now: Stamp) -> bool {
        let mut items = self.items().filter(|(item, _)| item.is_event(life_cycle, word));
        items.any(|(item, held)| {
            let is_due = self.due_at(item, held).is_some_and(|since| since <= now);
            is_due || held.fired.is_none() && held.failed.is_some()
        })
    }

    /// From when on [`Managed::due`] is not empty, as things stand. [`Stamp::MIN`] when something is due whatever
    /// the time. `None`: nothing will be.
    pub fn next_at(&self) -> Option<Stamp> {
        self.items().filter_map(|(item, held)| self.due_at(item, held)).min()
    }

    /// From when on [`Managed::due`] tells more than it does now, as things stand. `None`: it never will.
    pub fn next_after(&self, now: Stamp) -> Option<Stamp> {
        let ahead = self.items().filter_map(|(item, held)| self.due_at(item, held));
        ahead.filter(|at| *at > now).min()
    }

    /// The item of a life cycle with that last word, if it can still fire.
    fn unfired(&mut self, life_cycle: &str, word: &str) -> Option<&mut Held> {
        let mut items = self.items.iter_mut().filter(|(item, held)| {
            held.fired.is_none() && item.last().can_fire() && item.is_event(life_cycle, word)
        });
        items.next().map(|(_, held)| held)
    }

    fn mark_fired(&mut self, life_cycle: &str, word: &str, fired: Fired) -> bool {
        let Some(held) = self.unfired(life_cycle, word) else { return false };
        *held = Held { fired: Some(fired), ..Held::default() };
        // The rest of the commit may remove this item, and whatever waits for it must not miss that it fired.
        self.note_ready(Self::is_reached);
        true
    }

    /// The action of a last word succeeded. False where it is gone or has fired: then nothing changes.
    pub fn fire(&mut self, life_cycle: &str, word: &str, at: Stamp) -> bool {
        self.mark_fired(life_cycle, word, Fired { at, skipped: false })
    }

    /// An operator skips a last word: it counts as fired. False where it is gone or has fired.
    pub fn skip(&mut self, life_cycle: &str, word: &str, at: Stamp) -> bool {
        self.mark_fired(life_cycle, word, Fired { at, skipped: true })
    }

    /// The action of a last word failed: it is not due any more. False where it is gone or has fired.
    pub fn fail(&mut self, life_cycle: &str, word: &str, failure: Failure) -> bool {
        let Some(held) = self.unfired(life_cycle, word) else { return false };
        held.failed = Some(Box::new(failure));
        true
    }

    /// The failure of a last word is forgotten: it is due again. False where none stands.
    pub fn retry(&mut self, life_cycle: &str, word: &str) -> bool {
        self.unfired(life_cycle, word).is_some_and(|held| held.failed.take().is_some())
    }

    /// Fires what is due and needs no action, as often as this makes more due. `is_mark` is asked for a life cycle
    /// and an event. Finished life cycles move to the history. Comes last in a commit.
    pub fn fire_marks(&mut self, now: Stamp, is_mark: &dyn Fn(&str, &str) -> bool) -> Vec<Due> {
        let mut fired = Vec::new();
        // Each round fires an item, and no item fires twice.
        loop {
            self.settle(now);
            let mut due = self.due(now);
            due.retain(|it| is_mark(it.life_cycle.as_str(), &it.event));
            if due.is_empty() {
                return fired;
            }
            for it in due {
                let is_new = self.fire(it.life_cycle.as_str(), &it.word, now);
                debug_assert!(is_new, "what is due has not fired");
                fired.push(it);
            }
        }
    }

    /// Ends a commit: notes which waits have nothing left to wait for, and moves finished life cycles to the
    /// history.
    pub fn settle(&mut self, now: Stamp) {
        self.note_ready(Self::is_fulfilled);
        let finished: Vec<Name> = self.finished();
        self.move_where(now, |item, _| finished.contains(item.life_cycle()));
        // A life cycle that goes may leave others with nothing to wait for.
        self.note_ready(Self::is_fulfilled);
    }

    /// Notes the waits for which the rule holds.
    fn note_ready(&mut self, rule: impl Fn(&Self, &Name, &Name) -> bool) {
        let ready =
            self.items.iter().enumerate().filter_map(|(at, (item, held))| match item.last() {
                Word::Mark(_) | Word::At { .. } => None,
                Word::Wait { life_cycle, event } => {
                    let is_new = held.fired.is_none() && !held.ready;
                    (is_new && rule(self, life_cycle, event)).then_some(at)
                }
            });
        let ready: Vec<usize> = ready.collect();
        for at in ready {
            self.items[at].1.ready = true;
        }
    }

    /// Life cycles of which each item's last word has fired.
    fn finished(&self) -> Vec<Name> {
        let mut names: Vec<Name> =
            self.items().map(|(item, _)| item.life_cycle().clone()).collect();
        names.dedup();
        names.retain(|name| self.items_of(name).all(|(_, held)| held.fired.is_some()));
        names
    }

    /// The last successful stamp of a life cycle: the latest time of its events that fired, up to which none is
    /// left to fire. It lags, and never runs ahead. `None`: there is none.
    pub fn last(&self, life_cycle: &Name) -> Option<Stamp> {
        let time = |word: &Word| match word {
            Word::At { at, .. } => Some(*at),
            Word::Mark(_) | Word::Wait { .. } => None,
        };
        let items = || self.items_of(life_cycle);
        let left = items().filter(|(_, held)| held.fired.is_none());
        let left = left.filter_map(|(item, _)| time(item.last())).min();
        let earlier = items().flat_map(|(item, _)| item.earlier());
        let fired = items().filter(|(_, held)| held.fired.is_some()).map(|(item, _)| item.last());
        let past = earlier.chain(fired).filter_map(time);
        past.filter(|at| left.is_none_or(|left| *at < left)).max()
    }
}
