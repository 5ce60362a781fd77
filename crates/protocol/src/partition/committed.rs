//! What was committed sets going what waited for it.

use crate::log::env::Env;
use crate::partition::state::Partition;
use rota_messages::DocKey;
use rota_model::{PoolName, SessionState};

impl Partition {
    /// A document was committed: do what its record asks for.
    pub fn on_committed(&mut self, env: &mut Env, key: &DocKey) {
        let Some(doc) = self.replica.docs.get(key) else {
            return;
        };
        if doc.orders().is_some() {
            if let Ok(pool) = PoolName::parse(doc.name().docid()) {
                self.on_pool_committed(env, &pool);
            }
            return;
        }
        // Only the newest write counts; an earlier one is overtaken.
        let overtaken = self.replica.latest.contains_key(key);
        let Some(record) = doc.session().filter(|_| !overtaken).cloned() else {
            return;
        };
        match record.state {
            SessionState::Pending | SessionState::Starting | SessionState::Closing => {
                self.ask_for(env, key, &record);
            }
            SessionState::Closed | SessionState::Failed | SessionState::Lost => {
                self.release(env, &record.key);
            }
            SessionState::Ready => self.rerun_waiters(env, &record.key),
        }
    }
}
