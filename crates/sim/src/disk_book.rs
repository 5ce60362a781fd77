//! What stood durably on managers' disks, as the observer wrote it down.

use crate::gone_events::GoneEvents;
use crate::ledger::session_of;
use rota_model::{LogPos, ManagerNumber, SessionKey, SessionState, Stamp, Token};
use rota_protocol::DiskWrite;
use std::collections::{BTreeMap, BTreeSet};

/// A life of a session at a manager.
type LifeAt = (ManagerNumber, SessionKey, Stamp);

/// What stood durably on managers' disks. A disk that is lost takes nothing of it back: it was announced rightly.
#[derive(Clone, Debug, Default)]
pub struct DiskBook {
    /// Attempts that ever stood there.
    pub tokens: BTreeSet<(ManagerNumber, SessionKey, Token)>,
    /// Lives that ever stood there as ended.
    pub ended: BTreeSet<LifeAt>,
    /// Lives that ever stood there as being closed, or ended.
    pub closing: BTreeSet<LifeAt>,
    /// Lives that ever stood there as READY.
    pub ready: BTreeSet<LifeAt>,
    /// Newest life of a session that ever stood there.
    pub newest: BTreeMap<(ManagerNumber, SessionKey), Stamp>,
    /// Events of life cycles that stand there as fired, or taken back.
    pub gone_events: GoneEvents,
    /// Highest last entry of a partition that ever stood there.
    pub last: BTreeMap<(ManagerNumber, ManagerNumber), LogPos>,
    /// When each manager's disk was lost last.
    pub lost_us: BTreeMap<ManagerNumber, u64>,
}

impl DiskBook {
    /// Writes became durable on a manager's disk.
    pub fn on_durable(&mut self, manager: ManagerNumber, writes: &[DiskWrite]) {
        for write in writes {
            if let DiskWrite::Part { part, meta } = write {
                let last = self.last.entry((manager, *part)).or_default();
                *last = (*last).max(meta.last);
            }
            self.gone_events.on_durable(manager, write);
            if let Some(record) = session_of(write) {
                let key = || record.key.clone();
                if let Some(token) = record.token() {
                    self.tokens.insert((manager, key(), token));
                }
                let newest = self.newest.entry((manager, key())).or_insert(record.life);
                *newest = (*newest).max(record.life);
                if record.state == SessionState::Ready {
                    self.ready.insert((manager, key(), record.life));
                }
                if record.state.is_ended() || record.state == SessionState::Closing {
                    self.closing.insert((manager, key(), record.life));
                }
                if record.state.is_ended() {
                    self.ended.insert((manager, key(), record.life));
                }
            }
        }
    }
}
