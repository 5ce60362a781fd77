//! One key of Consul's key-value store.

use super::agent::{Agent, Failure, Until, consistent};
use consulrs::api::ApiResponse;
use consulrs::api::kv::common::KVPair;
use consulrs::api::kv::requests::{ReadKeyRequest, SetKeyRequest};
use std::time::Duration;

/// Reads it consistently. [`Failure::Missing`] when it is not there.
pub async fn get(
    agent: &Agent,
    key: &str,
    until: Option<Until>,
) -> Result<ApiResponse<Vec<KVPair>>, Failure> {
    let mut request = ReadKeyRequest::builder();
    request.features(consistent(until));
    let call = consulrs::kv::read(agent.consul(), key, Some(&mut request));
    agent.within(until.map_or(Duration::ZERO, |it| it.wait), call).await
}

/// What it holds.
pub fn value_of(pair: KVPair) -> Result<Vec<u8>, String> {
    let value: Result<Vec<u8>, _> = pair.value.unwrap_or_default().try_into();
    value.map_err(|error| format!("its value is no base64: {error}"))
}

/// Writes it if it is still as it was at that index; 0: if it is not there. `false`: it is not so.
pub async fn put(
    agent: &Agent,
    key: &str,
    value: Vec<u8>,
    modify_index: u64,
) -> Result<bool, Failure> {
    let request = SetKeyRequest {
        key: key.to_owned(),
        value,
        cas: Some(modify_index),
        ..SetKeyRequest::default()
    };
    let call = consulrs::api::exec_with_result(agent.consul(), request);
    Ok(agent.within(Duration::ZERO, call).await?.response)
}
