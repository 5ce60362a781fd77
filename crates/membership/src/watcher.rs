//! A task that follows a config store: every new state into one channel, trouble into another.

use crate::port::{ConfigStore, StoreError};
use crate::wire::{Floor, not_older};
use rota_ring::ConfigState;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// How long one blocking query waits, in ms. It bounds how long a store that hangs goes unnoticed.
const WAIT_MS: u64 = 5_000;

/// First and longest pause after a failure, in ms; it doubles in between.
const PAUSE_MS: (u64, u64) = (50, 1_000);

/// A store that does not answer as it should.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trouble {
    /// Since when.
    pub since: Instant,
    /// The newest error.
    pub error: StoreError,
}

/// Follows a store until it is dropped.
#[derive(Debug)]
pub struct Watcher {
    states: watch::Receiver<Option<Arc<ConfigState>>>,
    trouble: watch::Receiver<Option<Trouble>>,
    task: JoinHandle<()>,
}

impl Watcher {
    /// Starts the task. It needs a tokio runtime.
    pub fn start(store: Arc<dyn ConfigStore>) -> Self {
        let (states_out, states) = watch::channel(None);
        let (trouble_out, trouble) = watch::channel(None);
        let task = tokio::spawn(follow(store, states_out, trouble_out));
        Self { states, trouble, task }
    }

    /// The newest state; `None` before the first. The index never falls. A reader that is slow
    /// skips states, never the newest.
    pub fn states(&self) -> watch::Receiver<Option<Arc<ConfigState>>> {
        self.states.clone()
    }

    /// What is wrong and since when; `None` while the store answers.
    pub fn trouble(&self) -> watch::Receiver<Option<Trouble>> {
        self.trouble.clone()
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn follow(
    store: Arc<dyn ConfigStore>,
    states: watch::Sender<Option<Arc<ConfigState>>>,
    trouble: watch::Sender<Option<Trouble>>,
) {
    let mut seen = None;
    let mut pause_ms = PAUSE_MS.0;
    loop {
        // After trouble the question is whether the store answers at all, so it must not wait.
        let wait_ms = if trouble.borrow().is_some() { 0 } else { WAIT_MS };
        match advance(store.as_ref(), seen, Duration::from_millis(wait_ms)).await {
            Ok(state) => {
                pause_ms = PAUSE_MS.0;
                settle(&trouble);
                if seen != Some(Floor::of(&state)) {
                    seen = Some(Floor::of(&state));
                    states.send_replace(Some(Arc::new(state)));
                }
            }
            Err(error) => {
                note(&trouble, error);
                tokio::time::sleep(Duration::from_millis(pause_ms)).await;
                pause_ms = (pause_ms * 2).min(PAUSE_MS.1);
            }
        }
    }
}

async fn advance(
    store: &dyn ConfigStore,
    seen: Option<Floor>,
    wait: Duration,
) -> Result<ConfigState, StoreError> {
    let Some(seen) = seen else {
        return store.read().await;
    };
    let state = store.next(seen.index, wait).await?;
    not_older(state, seen).map_err(StoreError::Broken)
}

fn settle(trouble: &watch::Sender<Option<Trouble>>) {
    trouble.send_if_modified(|now| match now.take() {
        Some(was) => {
            let away_ms = was.since.elapsed().as_millis();
            tracing::info!(away_ms, "the config store answers again");
            true
        }
        None => false,
    });
}

fn note(trouble: &watch::Sender<Option<Trouble>>, error: StoreError) {
    trouble.send_modify(|now| {
        let since = now.as_ref().map_or_else(Instant::now, |it| it.since);
        if now.as_ref().is_none_or(|it| it.error != error) {
            tracing::warn!(%error, "no answer from the config store");
        }
        *now = Some(Trouble { since, error });
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{FakeStore, Outage};

    fn at(index: u64) -> ConfigState {
        ConfigState { index, ..ConfigState::default() }
    }

    #[tokio::test]
    async fn the_watcher_says_since_when_the_store_is_away_and_goes_on_afterwards() {
        let store = FakeStore::new(at(4));
        let watcher = Watcher::start(Arc::new(store.clone()));
        let (mut states, mut trouble) = (watcher.states(), watcher.trouble());
        states.wait_for(|it| it.as_ref().is_some_and(|it| it.index == 4)).await.unwrap();

        store.set_outage(Outage::Away);
        let first = trouble.wait_for(Option::is_some).await.unwrap().clone().unwrap();
        trouble.changed().await.unwrap();
        assert_eq!(trouble.borrow().as_ref().unwrap().since, first.since);

        store.set_outage(Outage::None);
        trouble.wait_for(Option::is_none).await.unwrap();
    }

    #[tokio::test]
    async fn a_store_that_went_back_is_trouble_and_never_a_new_state() {
        let newer = FakeStore::new(at(9));
        let older = FakeStore::new(at(2));
        assert!(advance(&newer, Some(Floor::of(&at(9))), Duration::ZERO).await.is_ok());
        let error = advance(&older, Some(Floor::of(&at(9))), Duration::ZERO).await.unwrap_err();
        assert!(matches!(error, StoreError::Broken(text) if text.contains("from index 9 to 2")));
    }

    #[tokio::test]
    async fn a_dropped_watcher_ends_its_task() {
        let watcher = Watcher::start(Arc::new(FakeStore::default()));
        let mut states = watcher.states();
        states.wait_for(Option::is_some).await.unwrap();
        drop(watcher);
        states.mark_unchanged();
        assert!(states.changed().await.is_err());
    }
}
