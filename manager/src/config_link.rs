//! The config store, as inputs and effects see it.

use crate::mailbox::Mailbox;
use rota_membership::{CasReply, ConfigStore, Watcher};
use rota_protocol::{CasOutcome, Input};
use rota_ring::Change;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Reads and compare-and-sets under way at once. The decisions have few open at a time; a store
/// that hangs must not gather tasks without end.
const UNDER_WAY_MAX: usize = 64;

/// Carries out reads and compare-and-sets. The store's client puts a deadline on each.
pub struct ConfigLink {
    store: Arc<dyn ConfigStore>,
    mailbox: Mailbox,
    room: Arc<Semaphore>,
}

impl ConfigLink {
    /// A link to `store`.
    pub fn new(store: Arc<dyn ConfigStore>, mailbox: Mailbox) -> Self {
        Self { store, mailbox, room: Arc::new(Semaphore::new(UNDER_WAY_MAX)) }
    }

    /// Reads consistently, then gives [`Input::ConfigRead`].
    pub fn read(&self, read: u64) {
        let (store, mailbox) = (self.store.clone(), self.mailbox.clone());
        let room = self.room.clone().try_acquire_owned();
        tokio::spawn(async move {
            let state = match &room {
                Ok(_room) => store.read().await.map_err(|error| error.to_string()),
                Err(_) => Err(format!("{UNDER_WAY_MAX} requests wait for it already")),
            };
            if let Err(error) = &state {
                tracing::debug!(read, error, "the config store was not read");
            }
            // A driver that has ended needs no answer.
            let _ = mailbox.input(Input::ConfigRead { read, state: state.ok() }).await;
        });
    }

    /// Compares and sets, then gives [`Input::CasDone`].
    pub fn cas(&self, cas: u64, change: Change) {
        let (store, mailbox) = (self.store.clone(), self.mailbox.clone());
        let room = self.room.clone().try_acquire_owned();
        tokio::spawn(async move {
            let outcome = match &room {
                Ok(_room) => outcome(store.cas(change).await),
                // It was never sent; to say that less is known is safe.
                Err(_) => CasOutcome::Unknown,
            };
            let _ = mailbox.input(Input::CasDone { cas, outcome }).await;
        });
    }
}

fn outcome(reply: CasReply) -> CasOutcome {
    match reply {
        CasReply::Done(state) => CasOutcome::Done(state),
        CasReply::Conflict(state) => CasOutcome::Conflict(state),
        CasReply::Unknown(error) => {
            tracing::debug!(%error, "a compare-and-set has an unknown outcome");
            CasOutcome::Unknown
        }
    }
}

/// Hands every new state of the config store to the driver, until the driver ends.
pub async fn follow(watcher: Arc<Watcher>, mailbox: Mailbox) {
    let mut states = watcher.states();
    loop {
        let state = states.borrow_and_update().clone();
        if let Some(state) = state
            && mailbox.input(Input::Config((*state).clone())).await.is_err()
        {
            return;
        }
        if states.changed().await.is_err() {
            return;
        }
    }
}
