//! When Consul found out about a manager: what it takes from there on is Rota's own.

use crate::dev::Cluster;
use anyhow::bail;
use rota_membership::ConsulAddress;
use rota_membership::consul::{Agent, PeerHealth};
use rota_model::ClusterName;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// How long Consul may take until its check is critical.
const CRITICAL_WAIT: Duration = Duration::from_secs(30);
/// After a question that was not answered.
const PAUSE: Duration = Duration::from_millis(50);
/// How long a call may take beside what it waits for.
const DEADLINE: Duration = Duration::from_secs(2);

/// Watches the check of one manager in Consul, as managers do.
pub struct Detection(JoinHandle<Instant>);

impl Detection {
    /// Begins to watch. The cluster must be over Consul.
    pub fn of(cluster: &Cluster, number: u32) -> anyhow::Result<Self> {
        let document = cluster.document();
        let at = &document.config_store.address;
        let address = ConsulAddress::parse(at);
        let address = address.map_err(|it| anyhow::anyhow!("{at} {}", it.problem))?;
        let name = ClusterName::parse(&document.cluster);
        let name = name.map_err(|it| anyhow::anyhow!("{} {}", it.field, it.problem))?;
        let mut health = PeerHealth::new(Agent::new(&address, DEADLINE)?, name);
        Ok(Self(tokio::spawn(async move {
            loop {
                match health.next().await {
                    Ok(gone) if gone.iter().any(|it| it.number.0 == number) => {
                        return Instant::now();
                    }
                    Ok(_) => {}
                    Err(_unanswered) => sleep(PAUSE).await,
                }
            }
        })))
    }

    /// When the check turned critical.
    pub async fn at(mut self) -> anyhow::Result<Instant> {
        match timeout(CRITICAL_WAIT, &mut self.0).await {
            Ok(seen) => Ok(seen?),
            Err(_elapsed) => bail!("Consul's check was not critical within {CRITICAL_WAIT:?}"),
        }
    }
}

impl Drop for Detection {
    fn drop(&mut self) {
        self.0.abort();
    }
}
