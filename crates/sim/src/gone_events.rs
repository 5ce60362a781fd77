//! Which events of life cycles stand on which disk as fired, or as taken back.

use crate::setup::ACTS;
use rota_model::{ManagerNumber, SessionKey, SlotId, Stamp};
use rota_protocol::DiskWrite;
use rota_protocol::life_documents::{life_session, managed_in};
use std::collections::{BTreeMap, BTreeSet};

/// What was last written durably of them. What was never committed may be replaced by a later owner; what had fired on
/// every disk of its partition stays so.
#[derive(Clone, Debug, Default)]
pub struct GoneEvents {
    /// The events of each session and chain of lives that any document ever held.
    known: BTreeMap<(SessionKey, Stamp), BTreeSet<String>>,
    gone: BTreeSet<(ManagerNumber, SessionKey, Stamp, String)>,
    fired: BTreeSet<(SessionKey, Stamp, String)>,
}

impl GoneEvents {
    /// A write became durable on a manager's disk. `isr` is that of its partition, by the newest View.
    pub fn on_durable(
        &mut self,
        manager: ManagerNumber,
        write: &DiskWrite,
        isr: impl Fn(SlotId) -> Vec<ManagerNumber>,
    ) {
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
                continue;
            }
            self.gone.insert(event);
            let is_everywhere = || {
                let isr = isr(key.slot);
                let of = |member| (member, session.clone(), origin, word.clone());
                !isr.is_empty() && isr.into_iter().all(|member| self.gone.contains(&of(member)))
            };
            if managed.fired(ACTS, word).is_some() && is_everywhere() {
                self.fired.insert((session.clone(), origin, word.clone()));
            }
        }
    }

    /// Whether the disk of a manager holds that an event has fired, or was taken back, or every disk did.
    pub fn is_gone(
        &self,
        manager: ManagerNumber,
        (session, origin): (&SessionKey, Stamp),
        word: &str,
    ) -> bool {
        self.fired.contains(&(session.clone(), origin, word.to_owned()))
            || self.gone.contains(&(manager, session.clone(), origin, word.to_owned()))
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
