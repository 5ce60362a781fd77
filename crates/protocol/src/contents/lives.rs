//! The committed life cycles of a copy: which documents there are, and when their owner must look at each. So a
//! take-over reads no document to know what is due.

use rota_lifecycle::Managed;
use rota_messages::documents::{life_name, life_session, read_life, session_name};
use rota_messages::{Doc, DocKey};
use rota_model::items::LIFE_CLASS;
use rota_model::{SessionKey, SessionRecord, SlotId, Stamp};
use std::collections::BTreeMap;

/// How long the history of life cycles is kept, in milliseconds: a week.
pub(crate) const HISTORY_KEPT_MS: u64 = 7 * 86_400_000;

/// What is known of one document of life cycles.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Glimpse {
    /// Its session's lives have ended.
    pub has_ended: bool,
    /// When its owner must look at it.
    pub at: Option<Stamp>,
    /// How many of its events have failed.
    pub failed: u32,
}

/// The documents of life cycles of a copy.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Lives {
    glimpses: BTreeMap<DocKey, Glimpse>,
}

impl Lives {
    /// A document was written, or has gone.
    pub fn change(&mut self, key: &DocKey, after: Option<&Doc>) {
        if key.name.class() != LIFE_CLASS {
            return;
        }
        match after.and_then(managed_in) {
            Some(managed) => drop(self.glimpses.insert(key.clone(), glimpse(&managed))),
            None => drop(self.glimpses.remove(key)),
        }
    }

    /// All of them, in order.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&DocKey, Glimpse)> {
        self.glimpses.iter().map(|(key, it)| (key, *it))
    }

    /// How many actions of a session that lives have failed and not succeeded since, by what is committed.
    pub(crate) fn failed_of(&self, slot: SlotId, record: &SessionRecord) -> u32 {
        if record.state.is_ended() || self.glimpses.is_empty() {
            return 0;
        }
        self.get(&DocKey::new(slot, life_name(&record.key))).map_or(0, |it| it.failed)
    }

    /// One of them.
    pub(crate) fn get(&self, key: &DocKey) -> Option<Glimpse> {
        self.glimpses.get(key).copied()
    }
}

fn glimpse(managed: &Managed) -> Glimpse {
    let next = managed.next_at().filter(|_| !managed.has_ended());
    let at = next.into_iter().chain(managed.purge_at(HISTORY_KEPT_MS)).min();
    let failed = managed.items().filter(|(_, it)| it.failed.is_some()).count();
    Glimpse {
        has_ended: managed.has_ended(),
        at,
        failed: u32::try_from(failed).unwrap_or(u32::MAX),
    }
}

/// The life cycles that a document holds. One that does not read as such holds none: nobody can fire it.
pub fn managed_in(doc: &Doc) -> Option<Managed> {
    let document = doc.of_application().filter(|it| !it.is_deleted())?;
    read_life(document).ok()
}

/// The document of life cycles beside the document of a session.
pub(crate) fn beside(document: &DocKey, session: &SessionKey) -> DocKey {
    DocKey::new(document.slot, life_name(session))
}

/// The session of a document of life cycles.
pub(crate) fn session_of(life: &DocKey) -> Option<DocKey> {
    Some(DocKey::new(life.slot, session_name(&life_session(&life.name)?)))
}
