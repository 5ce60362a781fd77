//! What is known of one life of a session, from every record that was ever written of it.

use rota_model::{Outcome, Reason, RequestFate, RequestId, SessionRecord, Stamp, Token};
use std::collections::BTreeSet;

/// Facts about one life.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LifeFacts {
    /// When its first record was given to a disk.
    pub written_us: u64,
    /// Requests that its records name as those which began it.
    pub creators: BTreeSet<RequestId>,
    /// Attempts to run it.
    pub tokens: BTreeSet<Token>,
    /// When a record of it was given to a disk that says that it ends by itself: nobody used it, or it lived long.
    pub expired_us: Option<u64>,
    /// A record of it says that no node took it, and remembers nothing else.
    pub unplaced: bool,
    /// The first life of its chain.
    pub origin: Option<Stamp>,
}

impl LifeFacts {
    /// A life that was first written now.
    pub fn new(written_us: u64) -> Self {
        let (creators, tokens) = (BTreeSet::new(), BTreeSet::new());
        Self { written_us, creators, tokens, expired_us: None, unplaced: false, origin: None }
    }

    /// Learns from a record of that life.
    pub fn learn(&mut self, now_us: u64, record: &SessionRecord) {
        if matches!(record.reason, Some(Reason::IdleTimeout | Reason::MaxLifetime)) {
            self.expired_us.get_or_insert(now_us);
        }
        self.tokens.extend(record.token());
        self.origin = Some(record.origin());
        self.unplaced |= record.is_unplaced();
        for entry in &record.requests {
            let began = match &entry.fate {
                RequestFate::Opening => true,
                RequestFate::Opened { outcome, life, .. } => {
                    *outcome == Outcome::Created && *life == record.life
                }
                RequestFate::Failed { life } => *life == record.life,
                RequestFate::Closed { .. } => false,
            };
            if began && !self.creators.contains(&entry.id) {
                self.creators.insert(entry.id.clone());
            }
        }
    }
}
