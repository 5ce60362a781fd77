//! The config store in one key of Consul.

use super::address::ConsulAddress;
use super::agent::{Agent, Failure, Until, index_of};
use super::key;
use crate::port::{CasReply, ConfigStore, StoreError, StoreFuture, WAIT_MAX, check_change};
use crate::wire::{Floor, not_older, state_from_json, state_to_json};
use consulrs::api::kv::common::KVPair;
use rota_model::{ClusterName, FieldError};
use rota_ring::{Change, ConfigState};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Largest value, in bytes: what Consul takes by default (`kv_max_value_size`).
pub const VALUE_BYTES_MAX: usize = 512 * 1024;

/// Between two looks at a key that is not there yet. Consul cannot be asked to wait for it: its
/// answer "no such key" says no index to wait on. It ends with the founding of the cluster.
const ABSENT_PAUSE: Duration = Duration::from_millis(100);

/// A client; clones share its connections and what it saw.
#[derive(Clone, Debug)]
pub struct ConsulStore {
    agent: Agent,
    key: String,
    cluster: ClusterName,
    deadline: Duration,
    /// A lock because calls run beside each other; it is held for a look only.
    seen: Arc<Mutex<Seen>>,
}

/// The newest state that this client saw.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// How far it was. A state below it is older than something that was acknowledged.
    floor: Floor,
    /// Consul's index of that very state; `None` when only its writing was seen.
    consul: Option<u64>,
}

/// The key as it was read.
struct Read {
    state: ConfigState,
    /// What a compare-and-set must name; 0 when the key is not there.
    modify_index: u64,
}

impl ConsulStore {
    /// A client of the store at `address`, for `cluster`. Every answer is awaited for `deadline`.
    /// Nothing is sent yet.
    ///
    /// # Errors
    /// See [`Agent::new`].
    pub fn new(
        address: &ConsulAddress,
        cluster: ClusterName,
        deadline: Duration,
    ) -> Result<Self, FieldError> {
        let agent = Agent::new(address, deadline)?;
        Ok(Self { key: address.state_key(), agent, cluster, deadline, seen: Arc::default() })
    }

    fn seen(&self) -> Seen {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, floor: Floor, consul: Option<u64>) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if floor > seen.floor || (floor == seen.floor && consul.is_some()) {
            *seen = Seen { floor, consul };
        }
    }

    async fn fetch(&self, until: Option<Until>) -> Result<Read, StoreError> {
        // Whatever was seen before the request must show in its answer.
        let floor = self.seen().floor;
        let answer = match key::get(&self.agent, &self.key, until).await {
            Ok(answer) => answer,
            Err(Failure::Missing) if floor.index == 0 => {
                return Ok(Read { state: ConfigState::default(), modify_index: 0 });
            }
            Err(Failure::Missing) => {
                return Err(StoreError::Broken(format!(
                    "key {} is gone, and it held a state of index {}: somebody removed it, \
                     or this is another Consul",
                    self.key, floor.index
                )));
            }
            Err(Failure::Other(error)) => return Err(error),
        };
        let consul = index_of(&answer);
        let Some(pair) = answer.response.into_iter().next() else {
            return Err(StoreError::Broken(format!("key {} came without a value", self.key)));
        };
        let modify_index = pair.modify_index;
        let state = self.state_of(pair, floor)?;
        self.note(Floor::of(&state), Some(consul));
        Ok(Read { state, modify_index })
    }

    fn state_of(&self, pair: KVPair, floor: Floor) -> Result<ConfigState, StoreError> {
        let broken = |text: String| StoreError::Broken(format!("key {}: {text}", self.key));
        let value = key::value_of(pair).map_err(broken)?;
        let state = state_from_json(&self.cluster, &value);
        state.and_then(|it| not_older(it, floor)).map_err(broken)
    }

    async fn write(&self, change: &Change) -> CasReply {
        if let Err(error) = self.check(change) {
            return CasReply::Unknown(StoreError::Refused(error.to_string()));
        }
        loop {
            let read = match self.fetch(None).await {
                Ok(read) => read,
                Err(error) => return CasReply::Unknown(error),
            };
            let Some(next) = change.apply(&read.state) else {
                return CasReply::Conflict(read.state);
            };
            match self.put(&next, read.modify_index).await {
                Ok(true) => {
                    self.note(Floor::of(&next), None);
                    return CasReply::Done(next);
                }
                // Somebody else wrote in between, perhaps something that leaves room for this
                // change. Each turn of this loop is somebody's progress.
                Ok(false) => {}
                Err(error) => return CasReply::Unknown(error),
            }
        }
    }

    fn check(&self, change: &Change) -> Result<(), FieldError> {
        check_change(change)?;
        match &change.view {
            Some(view) if view.cluster != self.cluster => {
                let (there, here) = (&view.cluster, &self.cluster);
                Err(FieldError::new("view.cluster", format!("is {there:?}, not {here:?}")))
            }
            Some(_) | None => Ok(()),
        }
    }

    async fn put(&self, state: &ConfigState, modify_index: u64) -> Result<bool, StoreError> {
        let value = state_to_json(&self.cluster, state);
        if value.len() > VALUE_BYTES_MAX {
            let (length, nodes) = (value.len(), state.nodes.len());
            return Err(StoreError::Refused(format!(
                "the state (with {nodes} nodes) would be {length} bytes long; Consul's limit for a \
                 value is {VALUE_BYTES_MAX}"
            )));
        }
        Ok(key::put(&self.agent, &self.key, value.to_vec(), modify_index).await?)
    }

    async fn follow(&self, after_index: u64, wait: Duration) -> Result<ConfigState, StoreError> {
        let until = Instant::now() + wait.min(WAIT_MAX);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let seen = self.seen();
            // Consul can wait for what comes after its own index only; where that of the state is
            // not known, a plain read tells it.
            let index = seen.consul.filter(|_| seen.floor.index == after_index && !left.is_zero());
            let read = self.fetch(index.map(|index| Until { index, wait: left })).await?;
            if read.state.index != after_index || Instant::now() >= until {
                return Ok(read.state);
            }
            if read.modify_index == 0 {
                tokio::time::sleep(ABSENT_PAUSE.min(left)).await;
            }
        }
    }
}

impl ConfigStore for ConsulStore {
    fn read(&self) -> StoreFuture<'_, Result<ConfigState, StoreError>> {
        Box::pin(async { Ok(self.fetch(None).await?.state) })
    }

    fn cas(&self, change: Change) -> StoreFuture<'_, CasReply> {
        Box::pin(async move {
            match tokio::time::timeout(self.deadline, self.write(&change)).await {
                Ok(reply) => reply,
                Err(_) => CasReply::Unknown(StoreError::Timeout(self.deadline)),
            }
        })
    }

    fn next(
        &self,
        after_index: u64,
        wait: Duration,
    ) -> StoreFuture<'_, Result<ConfigState, StoreError>> {
        Box::pin(self.follow(after_index, wait))
    }
}
