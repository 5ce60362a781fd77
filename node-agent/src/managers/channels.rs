//! Connections to managers, one per address.

use rota_model::ClusterName;
use rota_proto::v1::nodes_client::NodesClient;
use rota_proto::v1::sessions_client::SessionsClient;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tonic::transport::{Channel, Endpoint};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Without these, a connection over a healed network partition can hang for ever.
const KEEPALIVE: Duration = Duration::from_secs(2);

/// Connections that are made when first used, and again when they broke.
#[derive(Clone)]
pub struct Channels {
    /// Every call names it.
    cluster: ClusterName,
    /// A lock because several tasks call managers; it is held for a look-up only.
    open: Arc<Mutex<BTreeMap<String, Channel>>>,
}

impl Channels {
    /// No connections yet, for a node of that cluster.
    pub fn new(cluster: ClusterName) -> Self {
        Self { cluster, open: Arc::default() }
    }

    /// The cluster that managers must belong to.
    pub fn cluster(&self) -> &ClusterName {
        &self.cluster
    }

    /// A client of the manager at `host:port`.
    pub fn to(&self, address: &str) -> Result<NodesClient<Channel>, tonic::transport::Error> {
        self.channel(address).map(NodesClient::new)
    }

    /// The same, for what clients say about sessions.
    pub fn sessions_of(
        &self,
        address: &str,
    ) -> Result<SessionsClient<Channel>, tonic::transport::Error> {
        self.channel(address).map(SessionsClient::new)
    }

    fn channel(&self, address: &str) -> Result<Channel, tonic::transport::Error> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(channel) = open.get(address) {
            return Ok(channel.clone());
        }
        let channel = Endpoint::from_shared(format!("http://{address}"))?
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(KEEPALIVE)
            .keep_alive_timeout(KEEPALIVE)
            .keep_alive_while_idle(true)
            .connect_lazy();
        open.insert(address.to_owned(), channel.clone());
        Ok(channel)
    }

    /// Forgets connections to all other addresses.
    pub fn keep_only(&self, addresses: &[String]) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|address, _| addresses.contains(address));
    }
}
