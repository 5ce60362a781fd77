//! A config store inside this process, for tests, with a switch for outages.

use crate::port::{CasReply, ConfigStore, StoreError, StoreFuture, WAIT_MAX, check_change};
use rota_ring::{Change, ConfigState};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// What a fake store does with calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Outage {
    /// It answers.
    #[default]
    None,
    /// Nothing arrives: every call fails at once, waiting queries too.
    Away,
    /// Everything arrives and no answer comes back: changes happen, their callers learn nothing.
    AnswersLost,
}

/// A store that lives as long as its clones, which share it.
#[derive(Clone, Debug)]
pub struct FakeStore {
    // The channel's own lock makes each change one step.
    states: Arc<watch::Sender<ConfigState>>,
    outage: Arc<watch::Sender<Outage>>,
}

impl Default for FakeStore {
    fn default() -> Self {
        Self::new(ConfigState::default())
    }
}

impl FakeStore {
    /// A store that holds `state`.
    pub fn new(state: ConfigState) -> Self {
        Self {
            states: Arc::new(watch::Sender::new(state)),
            outage: Arc::new(watch::Sender::new(Outage::None)),
        }
    }

    /// Turns an outage on or off. Queries that wait meanwhile notice.
    pub fn set_outage(&self, outage: Outage) {
        self.outage.send_replace(outage);
    }

    /// The state as it is, outage or not.
    pub fn state(&self) -> ConfigState {
        self.states.borrow().clone()
    }

    fn answers(&self) -> Result<(), StoreError> {
        match *self.outage.borrow() {
            Outage::None => Ok(()),
            Outage::Away => Err(StoreError::Unreachable("the fake store is away".into())),
            Outage::AnswersLost => Err(StoreError::Unreachable("the answer was lost".into())),
        }
    }

    fn apply(&self, change: &Change) -> CasReply {
        let mut reply = None;
        self.states.send_if_modified(|state| match change.apply(state) {
            Some(next) => {
                state.clone_from(&next);
                reply = Some(CasReply::Done(next));
                true
            }
            None => {
                reply = Some(CasReply::Conflict(state.clone()));
                false
            }
        });
        reply.expect("the closure ran once and both ways set it")
    }
}

impl ConfigStore for FakeStore {
    fn read(&self) -> StoreFuture<'_, Result<ConfigState, StoreError>> {
        Box::pin(async { self.answers().map(|()| self.state()) })
    }

    fn cas(&self, change: Change) -> StoreFuture<'_, CasReply> {
        Box::pin(async move {
            if *self.outage.borrow() == Outage::Away {
                return CasReply::Unknown(StoreError::Unreachable("the fake store is away".into()));
            }
            let reply = match check_change(&change) {
                Ok(()) => self.apply(&change),
                Err(error) => CasReply::Unknown(StoreError::Refused(error.to_string())),
            };
            match self.answers() {
                Ok(()) => reply,
                Err(error) => CasReply::Unknown(error),
            }
        })
    }

    fn next(
        &self,
        after_index: u64,
        wait: Duration,
    ) -> StoreFuture<'_, Result<ConfigState, StoreError>> {
        Box::pin(async move {
            self.answers()?;
            let mut states = self.states.subscribe();
            let mut outage = self.outage.subscribe();
            let changed = async {
                tokio::select! {
                    _ = states.wait_for(|state| state.index != after_index) => {}
                    _ = outage.wait_for(|outage| *outage != Outage::None) => {}
                }
            };
            // Its error only says that the wait has passed; the state is answered either way.
            tokio::time::timeout(wait.min(WAIT_MAX), changed).await.ok();
            self.answers().map(|()| self.state())
        })
    }
}
