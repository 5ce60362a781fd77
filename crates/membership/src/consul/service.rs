//! Managers and node-agents as services of Consul: registered, kept registered, taken out.

use super::address::{ConsulAddress, in_a_path};
use super::agent::{Agent, Failure};
use crate::port::StoreError;
use consulrs::api::ApiResponse;
use consulrs::api::check::common::AgentServiceCheck;
use consulrs::api::service::requests::{
    DeregisterServiceRequest, ReadServiceRequest, RegisterServiceRequest,
};
use rota_model::FieldError;
use rota_model::address::Address;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// How often Consul asks for the health, and how long it waits for the answer. With these a
/// process that was killed is seen after about half a second, one that hangs after about 1.2 s.
const CHECK_INTERVAL: &str = "1s";
const CHECK_TIMEOUT: &str = "1s";

/// A service that stays critical is forgotten after this: long enough for people and scripts to
/// see who is gone, short enough that nodes of a pool do not pile up.
const FORGET_AFTER: &str = "1h";

/// Between two looks whether the agent still knows the service. An agent whose data was removed
/// has forgotten it.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// First and longest pause after a failure; it doubles in between.
const PAUSE_MS: (u64, u64) = (250, 5_000);

/// How long one call may take.
const DEADLINE: Duration = Duration::from_secs(2);

/// How long the end may take: nothing depends on it but how soon Consul shows it.
const END_WAIT: Duration = Duration::from_secs(1);

/// What kind of process serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ServiceKind {
    /// A manager.
    Manager,
    /// A node-agent.
    Node,
}

impl ServiceKind {
    fn as_str(self) -> &'static str {
        match self {
            ServiceKind::Manager => "manager",
            ServiceKind::Node => "node",
        }
    }

    /// The service's name at an address: `PREFIX-manager` or `PREFIX-node`.
    pub fn name(self, address: &ConsulAddress) -> String {
        address.service_name(self.as_str())
    }
}

/// A process that serves gRPC, with the standard health service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Service {
    /// What it is.
    pub kind: ServiceKind,
    /// Its name, unique among its kind.
    pub id: String,
    /// Where it serves: `host:port`.
    pub address: String,
    /// What others may want to know: names of letters, digits, `-` and `_`; values of at most 512
    /// bytes.
    pub meta: BTreeMap<&'static str, String>,
}

impl Service {
    /// Unique at the agent, and made of characters that every path may hold.
    fn service_id(&self, address: &ConsulAddress) -> String {
        format!("{}-{}", self.kind.name(address), in_a_path(&self.id))
    }

    fn request(&self, address: &ConsulAddress) -> RegisterServiceRequest {
        let here = Address::parse(&self.address);
        let id = self.service_id(address);
        let check = AgentServiceCheck {
            check_id: Some(format!("{id}:grpc")),
            name: Some("gRPC health".into()),
            grpc: Some(self.address.clone()),
            interval: Some(CHECK_INTERVAL.into()),
            timeout: Some(CHECK_TIMEOUT.into()),
            deregister_critical_service_after: Some(FORGET_AFTER.into()),
            // Without it, a process would look gone until its first check.
            status: Some("passing".into()),
            ..AgentServiceCheck::default()
        };
        let meta = self.meta.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
        RegisterServiceRequest {
            id: Some(id),
            name: Some(self.kind.name(address)),
            address: here.as_ref().map(|it| it.host().to_owned()),
            port: here.map(|it| it.port().into()),
            meta: Some(meta.collect()),
            check: Some(check),
            ..RegisterServiceRequest::default()
        }
    }
}

/// Keeps a service registered at the local agent, until its end.
#[derive(Debug)]
pub struct Registration {
    wanted: watch::Sender<Option<Service>>,
    task: JoinHandle<()>,
}

impl Registration {
    /// Starts the task, which registers nothing yet. It needs a tokio runtime.
    ///
    /// # Errors
    /// See [`Agent::new`].
    pub fn start(address: &ConsulAddress) -> Result<Self, FieldError> {
        let agent = Agent::new(address, DEADLINE)?;
        let (wanted, told) = watch::channel(None);
        let task = tokio::spawn(Keeper { agent, registered: None }.run(told));
        Ok(Self { wanted, task })
    }

    /// Registers this from now on, instead of what was wanted before.
    pub fn want(&self, service: Option<Service>) {
        self.wanted.send_if_modified(|now| {
            let differs = *now != service;
            *now = service;
            differs
        });
    }

    /// Takes the service out, within a second or not at all.
    pub async fn end(self) {
        drop(self.wanted);
        if tokio::time::timeout(END_WAIT, self.task).await.is_err() {
            tracing::warn!("Consul did not take the service out within {END_WAIT:?}");
        }
    }
}

/// The task.
struct Keeper {
    agent: Agent,
    /// What the agent was told last.
    registered: Option<Service>,
}

impl Keeper {
    async fn run(mut self, mut wanted: watch::Receiver<Option<Service>>) {
        let mut pause_ms = PAUSE_MS.0;
        let mut well = true;
        loop {
            let service = wanted.borrow_and_update().clone();
            let pause = match self.bring(service).await {
                Ok(()) => {
                    if !std::mem::replace(&mut well, true) {
                        tracing::info!("Consul takes the registration again");
                    }
                    pause_ms = PAUSE_MS.0;
                    LOOK_EVERY
                }
                Err(error) => {
                    if std::mem::replace(&mut well, false) {
                        tracing::warn!(%error, "not registered in Consul; trying on");
                    }
                    let pause = Duration::from_millis(pause_ms);
                    pause_ms = (pause_ms * 2).min(PAUSE_MS.1);
                    pause
                }
            };
            let changed = tokio::time::timeout(pause, wanted.changed()).await;
            if matches!(changed, Ok(Err(_))) {
                break;
            }
        }
        if let Some(service) = self.registered.take()
            && let Err(error) = self.take_out(&service).await
        {
            tracing::warn!(%error, "not taken out of Consul");
        }
    }

    /// Makes the agent know exactly what is wanted.
    async fn bring(&mut self, wanted: Option<Service>) -> Result<(), StoreError> {
        if let Some(old) = self.registered.clone()
            && wanted.as_ref() != Some(&old)
        {
            self.take_out(&old).await?;
            self.registered = None;
        }
        let Some(service) = wanted else { return Ok(()) };
        if self.registered.is_none() {
            // The check of an earlier run would hand on its state: as if this run were gone.
            self.take_out(&service).await?;
        } else if self.is_known(&service).await? {
            return Ok(());
        } else {
            tracing::warn!("the Consul agent forgot this service; registering it again");
        }
        let request = service.request(self.agent.address());
        let call = consulrs::api::exec_with_empty(self.agent.consul(), request);
        self.agent.within(Duration::ZERO, call).await?;
        self.registered = Some(service);
        Ok(())
    }

    async fn take_out(&self, service: &Service) -> Result<(), StoreError> {
        let id = service.service_id(self.agent.address());
        let request = DeregisterServiceRequest { id, ..DeregisterServiceRequest::default() };
        let call = consulrs::api::exec_with_empty(self.agent.consul(), request);
        told(self.agent.within(Duration::ZERO, call).await).map(drop)
    }

    async fn is_known(&self, service: &Service) -> Result<bool, StoreError> {
        let name = service.service_id(self.agent.address());
        let request = ReadServiceRequest { name, ..ReadServiceRequest::default() };
        // Raw: what it says of the service is more than consulrs can parse.
        let call = consulrs::api::exec_with_raw(self.agent.consul(), request);
        told(self.agent.within(Duration::ZERO, call).await)
    }
}

/// Whether the thing was there.
fn told<T>(answer: Result<ApiResponse<T>, Failure>) -> Result<bool, StoreError> {
    match answer {
        Ok(_) => Ok(true),
        Err(Failure::Missing) => Ok(false),
        Err(Failure::Other(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_id_tells_names_apart_and_has_only_harmless_characters() {
        let address = ConsulAddress::parse("consul://h:1/a/b").unwrap();
        let service = |id: &str| Service {
            kind: ServiceKind::Node,
            id: id.to_owned(),
            address: "[::1]:7".into(),
            meta: BTreeMap::new(),
        };
        assert_eq!(service("n 1/é").service_id(&address), "a-b-node-n:201:2f:c3:a9");
        assert_ne!(service(":20").service_id(&address), service(" ").service_id(&address));
        let request = service("n").request(&address);
        assert_eq!((request.address.as_deref(), request.port), (Some("::1"), Some(7)));
    }
}
