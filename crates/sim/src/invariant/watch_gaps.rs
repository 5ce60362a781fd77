//! A watch has no gaps: who followed a partition from its snapshot on knows, when nothing moves any
//! more, the newest version of every session that the list shows.

use super::{Verdict, Violation};
use rota_model::{Pulled, SessionKey, SessionRecord, Stamp};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a watcher of one partition knows.
#[derive(Clone, Debug, Default)]
pub struct Watched {
    known: BTreeMap<SessionKey, (Stamp, Stamp, rota_model::SessionState)>,
    in_snapshot: bool,
}

impl Watched {
    /// An answer to a pull.
    pub fn on_pulled(&mut self, pulled: &Pulled) {
        if pulled.snapshot && !self.in_snapshot {
            self.known.clear();
        }
        self.in_snapshot = pulled.snapshot && pulled.snapshot_next.is_some();
        for event in &pulled.events {
            let record = &event.record;
            let news = (record.life, record.version, record.state);
            let known = self.known.entry(record.key.clone()).or_insert(news);
            // At least once: an older change may come again.
            if (known.0, known.1) < (news.0, news.1) {
                *known = news;
            }
        }
    }

    /// Whether a snapshot has begun and not ended: what it has not shown yet is no gap.
    pub fn is_in_snapshot(&self) -> bool {
        self.in_snapshot
    }

    /// Whether it ever heard of that session since its last snapshot began.
    pub fn knows(&self, key: &SessionKey) -> bool {
        self.known.contains_key(key)
    }

    /// Checks against the records of that partition.
    ///
    /// # Errors
    /// A session whose newest change the watcher never saw.
    pub fn check(&self, records: &[Arc<SessionRecord>]) -> Verdict {
        for record in records {
            let known = self.known.get(&record.key);
            if known != Some(&(record.life, record.version, record.state)) {
                let text = format!(
                    "{} is {} (life {}, version {}); the watcher knows {known:?}",
                    record.key, record.state, record.life, record.version
                );
                return Err(Violation::new("watch", text));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariant::example::{life, record, shown};
    use rota_model::{LogPos, ManagerNumber, SessionState};

    #[test]
    fn a_change_that_a_watcher_missed_is_found() {
        let pulled = |events, snapshot| Pulled {
            part: ManagerNumber(10),
            events,
            snapshot,
            upto: LogPos::ZERO,
            snapshot_next: None,
        };
        let mut watched = Watched::default();
        watched.on_pulled(&pulled(vec![shown("y", life(1), SessionState::Ready)], true));
        let now = [Arc::new(record("y", life(2), SessionState::Ready))];
        assert_eq!(watched.check(&now).unwrap_err().rule, "watch");
        watched.on_pulled(&pulled(vec![shown("y", life(2), SessionState::Ready)], false));
        watched.on_pulled(&pulled(vec![shown("y", life(1), SessionState::Ready)], false));
        assert_eq!(watched.check(&now), Ok(()));
    }
}
