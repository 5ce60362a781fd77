//! When clients said that they use a session, as its owner knows it.

use rota_model::{SessionKey, SessionRecord, Stamp};
use std::collections::BTreeMap;

/// When sessions were used last: an entry for each one that lives and was.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Uses {
    /// In which life, and when.
    last: BTreeMap<SessionKey, (Stamp, u64)>,
}

impl Uses {
    /// A session is used now. Gives for how long it was not, if that is known.
    pub fn note(&mut self, record: &SessionRecord, now_ms: u64) -> Option<u64> {
        let before = self.last.insert(record.key.clone(), (record.life, now_ms));
        let (_, at_ms) = before.filter(|(life, _)| *life == record.life)?;
        Some(now_ms.saturating_sub(at_ms))
    }

    /// When a life was used last, as far as this owner knows.
    pub fn last(&self, key: &SessionKey, life: Stamp) -> Option<u64> {
        self.last.get(key).filter(|it| it.0 == life).map(|it| it.1)
    }

    /// A life has ended.
    pub fn forget(&mut self, key: &SessionKey) {
        self.last.remove(key);
    }
}
