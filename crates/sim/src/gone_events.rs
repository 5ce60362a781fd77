//! Which events of life cycles stand on which disk as fired, or as taken back.

use crate::setup::ACTS;
use rota_model::{ManagerNumber, SessionKey, Stamp};
use rota_protocol::DiskWrite;
use rota_protocol::life_documents::{life_session, managed_in};
use std::collections::{BTreeMap, BTreeSet};

/// What was last written durably of them. What was never committed may be replaced by a later owner.
#[derive(Clone, Debug, Default)]
pub struct GoneEvents {
    /// The events of each session and chain of lives that any document ever held.
    known: BTreeMap<(SessionKey, Stamp), BTreeSet<String>>,
    gone: BTreeSet<(ManagerNumber, SessionKey, Stamp, String)>,
}

impl GoneEvents {
    /// A write became durable on a manager's disk.
    pub fn on_durable(&mut self, manager: ManagerNumber, write: &DiskWrite) {
        let DiskWrite::Doc { key, doc: Some(doc) } = write else { return };
        let Some((session, managed)) = life_session(&key.name).zip(managed_in(doc)) else { return };
        let origin = managed.origin();
        let known = self.known.entry((session.clone(), origin)).or_default();
        let acts = managed.items().filter(|(it, _)| it.life_cycle().as_str() == ACTS);
        known.extend(acts.map(|(it, _)| it.last().to_string()));
        for word in known.iter() {
            let event = (manager, session.clone(), origin, word.clone());
            if managed.is_unfired(ACTS, word) {
                self.gone.remove(&event);
            } else {
                self.gone.insert(event);
            }
        }
    }

    /// Whether the disk of a manager holds that an event has fired, or was taken back.
    pub fn is_gone(
        &self,
        manager: ManagerNumber,
        (session, origin): (&SessionKey, Stamp),
        word: &str,
    ) -> bool {
        self.gone.contains(&(manager, session.clone(), origin, word.to_owned()))
    }

    #[cfg(test)]
    pub(crate) fn insert(
        &mut self,
        manager: ManagerNumber,
        (session, origin): (&SessionKey, Stamp),
        word: &str,
    ) {
        self.gone.insert((manager, session.clone(), origin, word.to_owned()));
    }
}
