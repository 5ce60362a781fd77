//! Marks: small values under keys of their own, beside a cluster's state, each written by
//! compare-and-set. Whoever wants something done once in the whole cluster agrees on one with all
//! others that want the same.

use super::address::ConsulAddress;
use super::agent::{Agent, Failure};
use super::key;
use crate::port::StoreError;
use rota_model::FieldError;
use std::time::Duration;

/// A mark that is there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mark {
    /// What it says.
    pub value: Vec<u8>,
    /// Names this very writing of it, never 0.
    pub index: u64,
}

/// The marks of a cluster.
#[derive(Clone, Debug)]
pub struct Marks {
    agent: Agent,
}

impl Marks {
    /// Marks below the prefix at `address`. Every answer is awaited for `deadline`. Nothing is sent
    /// yet.
    ///
    /// # Errors
    /// See [`Agent::new`].
    pub fn new(address: &ConsulAddress, deadline: Duration) -> Result<Self, FieldError> {
        Ok(Self { agent: Agent::new(address, deadline)? })
    }

    /// Reads a mark consistently. Its name is in parts, of any text.
    ///
    /// # Errors
    /// Consul does not answer, or with nonsense.
    pub async fn read(&self, name: &[&str]) -> Result<Option<Mark>, StoreError> {
        let name = self.agent.address().mark_key(name);
        let pair = match key::get(&self.agent, &name, None).await {
            Ok(answer) => answer.response.into_iter().next(),
            Err(Failure::Missing) => None,
            Err(Failure::Other(error)) => return Err(error),
        };
        let Some(pair) = pair else { return Ok(None) };
        let index = pair.modify_index;
        let value = key::value_of(pair);
        let value = value.map_err(|text| StoreError::Broken(format!("key {name}: {text}")))?;
        Ok(Some(Mark { value, index }))
    }

    /// Writes a mark if it is still as `index` says; 0: if it is not there. `false`: somebody else was
    /// quicker.
    ///
    /// # Errors
    /// Consul does not answer: nobody knows whether it is written.
    pub async fn write(
        &self,
        name: &[&str],
        value: Vec<u8>,
        index: u64,
    ) -> Result<bool, StoreError> {
        let name = self.agent.address().mark_key(name);
        Ok(key::put(&self.agent, &name, value, index).await?)
    }
}
