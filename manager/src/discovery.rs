//! This manager in Consul: registered while it runs, and told which peers look gone.

use crate::driver_state::DriverState;
use crate::mailbox::Mailbox;
use anyhow::Result;
use rota_membership::ConsulAddress;
use rota_membership::consul::{Agent, PeerHealth, Registration, Service, ServiceKind};
use rota_model::{ClusterName, ManagerId, MemberId};
use rota_protocol::Input;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// How long Consul may take to answer; see the config store's deadline.
const DEADLINE: Duration = Duration::from_secs(2);

/// Between two attempts to ask a Consul that is away.
const PAUSE: Duration = Duration::from_secs(1);

/// Who this manager is.
#[derive(Clone, Debug)]
pub struct Me {
    /// The cluster.
    pub cluster: ClusterName,
    /// Its name.
    pub id: ManagerId,
    /// Where it serves gRPC.
    pub grpc: String,
    /// Where it serves HTTP.
    pub http: String,
}

/// The tasks.
pub struct Discovery {
    stop: CancellationToken,
    registering: JoinHandle<()>,
    listening: JoinHandle<()>,
}

impl Discovery {
    /// Starts them.
    pub fn start(
        address: &ConsulAddress,
        me: Me,
        seen: watch::Receiver<DriverState>,
        mailbox: Mailbox,
    ) -> Result<Self> {
        let stop = CancellationToken::new();
        let health = PeerHealth::new(Agent::new(address, DEADLINE)?, me.cluster.clone());
        let registration = Registration::start(address)?;
        let registering = tokio::spawn(register(registration, me, seen, stop.clone()));
        let listening = tokio::spawn(listen(health, mailbox));
        Ok(Self { stop, registering, listening })
    }

    /// Takes this manager out of Consul, in bounded time.
    pub async fn end(self) {
        self.listening.abort();
        self.stop.cancel();
        if let Err(error) = self.registering.await {
            tracing::warn!(%error, "the registration in Consul failed");
        }
    }
}

/// From the first claim on. A manager that was taken out stays registered: its health says that it
/// does not serve, and its incarnation, that it is the run that was taken out.
async fn register(
    registration: Registration,
    me: Me,
    mut seen: watch::Receiver<DriverState>,
    stop: CancellationToken,
) {
    loop {
        let member = seen.borrow_and_update().member;
        if let Some(member) = member {
            registration.want(Some(service(&me, member)));
        }
        tokio::select! {
            () = stop.cancelled() => break,
            changed = seen.changed() => if changed.is_err() { break },
        }
    }
    registration.end().await;
}

fn service(me: &Me, member: MemberId) -> Service {
    let meta = BTreeMap::from([
        ("cluster", me.cluster.as_str().to_owned()),
        ("id", me.id.as_str().to_owned()),
        ("number", member.number.to_string()),
        ("incarnation", member.incarnation.to_string()),
        ("grpc", me.grpc.clone()),
        ("http", me.http.clone()),
        ("version", env!("CARGO_PKG_VERSION").to_owned()),
    ]);
    let id = me.id.as_str().to_owned();
    Service { kind: ServiceKind::Manager, id, address: me.grpc.clone(), meta }
}

/// Hands on which peers look gone, until the driver ends. While Consul is away nobody is accused.
async fn listen(mut health: PeerHealth, mailbox: Mailbox) {
    loop {
        match health.next().await {
            Ok(gone) => {
                for member in gone {
                    if mailbox.input(Input::Signal { member }).await.is_err() {
                        return;
                    }
                }
            }
            Err(error) => {
                tracing::debug!(%error, "Consul does not tell who looks gone");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}
