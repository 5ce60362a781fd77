//! The life cycles of one session, as one document holds them.

use crate::item::LifeItem;
use crate::name::Name;
use rota_model::Stamp;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

/// Most items of a session.
pub const ITEMS_MAX: usize = 64;
/// Most bytes of all items of a session together.
pub const ITEMS_BYTES_MAX: usize = 16 * 1024;
/// Most items of the history; the oldest one goes.
pub const HISTORY_MAX: usize = 256;
/// Most bytes of a failure's code; what is longer is cut.
pub const CODE_BYTES_MAX: usize = 64;
/// Most bytes of a failure's report.
pub const REPORT_BYTES_MAX: usize = 1_024;

/// That an item's last word fired.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Fired {
    /// When its action succeeded.
    pub at: Stamp,
    /// An operator skipped it: its action never succeeded.
    #[serde(default, skip_serializing_if = "is_false")]
    pub skipped: bool,
}

/// Why the action of an item's last word did not succeed. The event is not due as long as this stands.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Failure {
    /// How often it was tried.
    pub attempts: u32,
    /// A short word or an exit code, at most [`CODE_BYTES_MAX`] bytes.
    pub code: SmolStr,
    /// What it told, at most [`REPORT_BYTES_MAX`] bytes; the middle of a longer text is left out.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub report: String,
    /// When it failed last.
    pub at: Stamp,
}

impl Failure {
    /// With texts that are cut where they are too long.
    pub fn new(attempts: u32, code: &str, report: &str, at: Stamp) -> Self {
        let code = SmolStr::new(cut(code, CODE_BYTES_MAX));
        Self { attempts, code, report: shortened(report, REPORT_BYTES_MAX), at }
    }
}

/// A text of at most so many bytes of whole characters: of a longer one the middle goes. What it is about mostly stands
/// at its beginning, and why at its end.
fn shortened(text: &str, max: usize) -> String {
    const GAP: &str = " … ";
    if text.len() <= max {
        return text.to_owned();
    }
    let head = cut(text, max / 4);
    let tail = text.len() - (max - head.len() - GAP.len());
    format!("{head}{GAP}{}", &text[text.ceil_char_boundary(tail)..])
}

/// The beginning of a text, at most so many bytes of whole characters.
pub(crate) fn cut(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

fn is_false(flag: &bool) -> bool {
    !flag
}

/// How far an item has come. A new one is at its beginning.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Held {
    /// Its last word fired.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fired: Option<Fired>,
    /// The action of its last word failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<Box<Failure>>,
    /// Its last word waits, and what it waits for has happened. Whatever changes later, it stays so.
    #[serde(default, skip_serializing_if = "is_false")]
    pub ready: bool,
}

impl Held {
    /// Whether its last word still has something to fire, now or later, and no failure holds it.
    pub(crate) fn is_open(&self, item: &LifeItem) -> bool {
        item.last().can_fire() && self.fired.is_none() && self.failed.is_none()
    }
}

/// An item of the history.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Past {
    /// The item.
    pub item: LifeItem,
    /// Its last word fired.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fired: Option<Fired>,
    /// The action of its last word failed, and nothing came of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<Box<Failure>>,
    /// When it moved here.
    pub moved: Stamp,
    /// The chain of lives that it belonged to.
    pub origin: Stamp,
}

/// Items as a map of JSON, by their texts.
mod as_map {
    use super::{Held, LifeItem};
    use serde::{Deserialize, Deserializer, Serializer};
    use std::collections::BTreeMap;

    pub(super) fn serialize<S: Serializer>(
        items: &[(LifeItem, Held)],
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_map(items.iter().map(|(item, held)| (item, held)))
    }

    /// Whatever order they have there.
    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<(LifeItem, Held)>, D::Error> {
        Ok(BTreeMap::deserialize(from)?.into_iter().collect())
    }
}

/// The life cycles of one session.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Managed {
    /// Which chain of lives of the session.
    pub(crate) origin: Stamp,
    /// The chain of lives ended: nothing is held, and nothing is taken.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) ended: bool,
    /// In their order. Nearly every session has a few, and a map would take five times the memory.
    #[serde(default, with = "as_map", skip_serializing_if = "Vec::is_empty")]
    pub(crate) items: Vec<(LifeItem, Held)>,
    /// In the order in which they moved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) history: Vec<Past>,
}

impl Managed {
    /// Of a chain of lives that has no items yet.
    pub fn new(origin: Stamp) -> Self {
        Self { origin, ended: false, items: Vec::new(), history: Vec::new() }
    }

    /// Which chain of lives of the session this is about.
    pub fn origin(&self) -> Stamp {
        self.origin
    }

    /// Whether the chain of lives ended.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Whether nothing is held and nothing is remembered, so that no document is needed.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty() && self.history.is_empty()
    }

    /// The items in their order, each with how far it has come.
    pub fn items(&self) -> impl ExactSizeIterator<Item = (&LifeItem, &Held)> {
        self.items.iter().map(|(item, held)| (item, held))
    }

    /// How far the item of a life cycle has come that has that last word, as it is printed.
    pub fn held(&self, life_cycle: &str, word: &str) -> Option<&Held> {
        let mut items = self.items.iter().filter(|(item, _)| item.is_event(life_cycle, word));
        items.next().map(|(_, held)| held)
    }

    /// Whether the item with that last word is there, and has not fired.
    pub fn is_unfired(&self, life_cycle: &str, word: &str) -> bool {
        self.held(life_cycle, word).is_some_and(|held| held.fired.is_none())
    }

    /// That an event fired: as an item, or in the history of this chain of lives.
    pub fn fired(&self, life_cycle: &str, word: &str) -> Option<Fired> {
        let past = || {
            let mut past = self.history.iter().rev().filter(|it| it.origin == self.origin);
            past.find(|it| it.item.is_event(life_cycle, word)).and_then(|it| it.fired)
        };
        self.held(life_cycle, word).map_or_else(past, |held| held.fired)
    }

    /// The history in the order in which its items moved.
    pub fn history(&self) -> &[Past] {
        &self.history
    }

    /// Bytes of its compact JSON.
    pub fn bytes(&self) -> usize {
        serde_json::to_vec(self).expect("texts and numbers have a form in JSON").len()
    }

    /// The items of a life cycle.
    pub(crate) fn items_of(&self, name: &Name) -> impl Iterator<Item = (&LifeItem, &Held)> {
        self.items().filter(move |(item, _)| item.life_cycle() == name)
    }

    /// The session's chain of lives ended: what is left moves to the history.
    pub fn end(&mut self, now: Stamp) {
        self.move_where(now, |_, _| true);
        self.ended = true;
    }

    /// Drops history that moved earlier than `before`.
    pub fn purge(&mut self, before: Stamp) {
        self.history.retain(|past| past.moved >= before);
    }

    /// From when on `purge(now - keep_ms)` drops something. `None`: there is no history.
    pub fn purge_at(&self, keep_ms: u64) -> Option<Stamp> {
        let oldest = self.history.iter().map(|past| past.moved).min()?;
        Some(oldest.plus_ms(keep_ms.saturating_add(1)))
    }

    /// Moves the items that fulfil the condition to the history, in their order.
    pub(crate) fn move_where(&mut self, now: Stamp, moves: impl Fn(&LifeItem, &Held) -> bool) {
        let (origin, history) = (self.origin, &mut self.history);
        for (item, held) in self.items.extract_if(.., |(item, held)| moves(item, held)) {
            let Held { fired, failed, .. } = held;
            history.push(Past { item, fired, failed, moved: now, origin });
        }
        let too_many = history.len().saturating_sub(HISTORY_MAX);
        history.drain(..too_many);
    }
}

#[cfg(test)]
mod tests;
