//! This node in Consul, for people and programs that look for nodes there. Managers know nodes by
//! their registry and leases; nothing of what they decide depends on this.

use anyhow::Result;
use rota_membership::ConsulAddress;
use rota_membership::consul::{Registration, Service, ServiceKind};
use rota_model::{BootId, ClusterName, NodeId, PoolName};
use std::collections::BTreeMap;

/// Keeps the node registered as a service.
pub struct Discovery {
    registration: Registration,
    service: Service,
}

impl Discovery {
    /// A node that serves at `address` (`host:port`). Nothing is registered yet.
    pub fn start(
        consul: &ConsulAddress,
        cluster: &ClusterName,
        node: &NodeId,
        pool: &PoolName,
        places: u32,
        address: &str,
    ) -> Result<Self> {
        let meta = BTreeMap::from([
            ("cluster", cluster.as_str().to_owned()),
            ("id", node.as_str().to_owned()),
            ("pool", pool.as_str().to_owned()),
            ("places", places.to_string()),
            ("version", env!("CARGO_PKG_VERSION").to_owned()),
        ]);
        let id = node.as_str().to_owned();
        let address = address.to_owned();
        let service = Service { kind: ServiceKind::Node, id, address, meta };
        Ok(Self { registration: Registration::start(consul)?, service })
    }

    /// The managers know this boot now.
    pub fn on_registered(&mut self, boot: BootId) {
        self.service.meta.insert("boot", boot.0.to_string());
        self.registration.want(Some(self.service.clone()));
    }

    /// Takes the node out, in bounded time.
    pub async fn end(self) {
        self.registration.end().await;
    }
}
