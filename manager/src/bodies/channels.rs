//! Connections to other managers for bodies: not those of the protocol, which must not wait behind
//! megabytes.

use super::Peer;
use crate::link::{MESSAGE_BYTES_MAX, connect};
use rota_proto::v1::peers_client::PeersClient;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tonic::Status;
use tonic::transport::Channel;

/// One connection to each address that was asked for. There are as many as managers.
#[derive(Debug, Default)]
pub(super) struct Channels {
    /// LaneBytes for a look, never across an await. A lock, because many streams need it.
    open: Mutex<BTreeMap<String, Channel>>,
}

impl Channels {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Channel>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A client of a manager; connects if need be.
    pub async fn client(&self, peer: &Peer) -> Result<PeersClient<Channel>, Status> {
        let open = self.lock().get(&peer.address).cloned();
        let channel = match open {
            Some(channel) => channel,
            None => {
                let failed = |error: crate::link::ConnectFailed| {
                    let text = format!("manager {} cannot be reached: {}", peer.number, error.text);
                    Status::unavailable(text)
                };
                let channel = connect(&peer.address).await.map_err(failed)?;
                self.lock().insert(peer.address.clone(), channel.clone());
                channel
            }
        };
        Ok(PeersClient::new(channel)
            .max_encoding_message_size(MESSAGE_BYTES_MAX)
            .max_decoding_message_size(MESSAGE_BYTES_MAX))
    }

    /// The next one connects anew.
    pub fn forget(&self, peer: &Peer) {
        self.lock().remove(&peer.address);
    }
}
