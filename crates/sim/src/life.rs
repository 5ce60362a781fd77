//! What is known of one life of a session, from every record that was ever written of it.

use rota_model::{Outcome, RequestFate, RequestId, SessionRecord, Token};
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
    /// A record of it says that no node took it, and remembers nothing else.
    pub unplaced: bool,
}

impl LifeFacts {
    /// A life that was first written now.
    pub fn new(written_us: u64) -> Self {
        let (creators, tokens) = (BTreeSet::new(), BTreeSet::new());
        Self { written_us, creators, tokens, unplaced: false }
    }

    /// Learns from a record of that life.
    pub fn learn(&mut self, record: &SessionRecord) {
        self.tokens.extend(record.token());
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
