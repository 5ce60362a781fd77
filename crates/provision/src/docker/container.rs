//! What a container of a node is: its name, its labels, and what its agent is told.

use crate::{ClusterOptions, NewNode};
use bollard::models::{
    ContainerCreateBody, HostConfig, Mount as EngineMount, MountType, RestartPolicy,
    RestartPolicyNameEnum,
};
use rota_model::{ClusterName, NodeId};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// The network of this machine itself.
pub const HOST_NETWORK: &str = "host";

/// Where an agent listens in a network of its own.
const LISTEN: &str = "0.0.0.0:7406";

/// The image's entry point adds the container's own address when this is set (`deploy/docker/entry`).
const ADVERTISE: &str = "ROTA_ADVERTISE=container";

const CLUSTER_LABEL: &str = "rota.cluster";
const POOL_LABEL: &str = "rota.pool";
const NODE_LABEL: &str = "rota.node";

/// Longest name of a container.
const NAME_CHARS_MAX: usize = 128;

/// How containers are made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DockerOptions {
    /// The engine's UNIX socket.
    pub socket: PathBuf,
    /// The image. Its entry point runs the node-agent with the arguments that it gets.
    pub image: String,
    /// A network of the engine, or [`HOST_NETWORK`].
    pub network: String,
    /// What containers see of this machine.
    pub mounts: Vec<Mount>,
}

/// A folder or file of this machine in each container.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mount {
    /// Here.
    pub source: String,
    /// In the container.
    pub target: String,
    /// Whether it may only be read there.
    pub read_only: bool,
}

/// The name of a node's container. What engines do not take for one is refused.
pub(super) fn name_of(cluster: &ClusterName, node: &NodeId) -> Result<String, String> {
    let name = format!("rota-{cluster}-{node}");
    let fits = |it: char| it.is_ascii_alphanumeric() || "_.-".contains(it);
    if name.len() > NAME_CHARS_MAX || !name.chars().all(fits) {
        return Err(format!(
            "{name:?} is no name of a container: name cluster and pool in letters, digits, '_', '.' and '-', \
             at most {NAME_CHARS_MAX} in all"
        ));
    }
    Ok(name)
}

/// The labels by which all containers of a node are found.
pub(super) fn labels(cluster: &ClusterName, node: &NodeId) -> [(String, String); 2] {
    [(CLUSTER_LABEL.to_owned(), cluster.to_string()), (NODE_LABEL.to_owned(), node.to_string())]
}

/// Whether these labels say so.
pub(super) fn is_of(
    labels_found: &HashMap<String, String>,
    cluster: &ClusterName,
    node: &NodeId,
) -> bool {
    labels(cluster, node).iter().all(|(name, value)| labels_found.get(name) == Some(value))
}

impl DockerOptions {
    /// Whether a container of this network can reach one of the managers.
    pub(super) fn reaches(&self, managers: &[String]) -> Result<(), String> {
        let loopback =
            |it: &String| it.parse::<SocketAddr>().is_ok_and(|it| IpAddr::is_loopback(&it.ip()));
        if self.network == HOST_NETWORK || !managers.iter().all(loopback) {
            return Ok(());
        }
        Err(format!(
            "managers are at {}, which no container in network {} reaches: start managers with --grpc at \
             an address that it reaches, or use network {HOST_NETWORK}",
            managers.join(","),
            self.network
        ))
    }

    /// What the engine is told to make.
    pub(super) fn container(&self, cluster: &ClusterOptions, it: &NewNode) -> ContainerCreateBody {
        let host = self.network == HOST_NETWORK;
        let mut arguments: Vec<String> =
            ["run", "--data", "/data", "--classes", "/classes"].map(str::to_owned).into();
        // On the machine's own network the agent stays on loopback, as the managers do.
        arguments.extend(
            (!host)
                .then(|| ["--listen", LISTEN, "--insecure-bind"].map(str::to_owned))
                .into_iter()
                .flatten(),
        );
        arguments.extend(cluster.arguments(it));
        let mut all_labels: HashMap<String, String> =
            labels(&cluster.cluster, &it.node).into_iter().collect();
        all_labels.insert(POOL_LABEL.to_owned(), it.new.pool.to_string());
        let (cpu, memory) = (i64::from(it.new.cpu_millis), i64::from(it.new.memory_mib));
        let host_config = HostConfig {
            network_mode: Some(self.network.clone()),
            mounts: Some(self.mounts.iter().map(Mount::for_engine).collect()),
            nano_cpus: (cpu > 0).then_some(cpu * 1_000_000),
            memory: (memory > 0).then_some(memory << 20),
            // A node that has ended is not needed, and a pool orders another one for one that is lost.
            restart_policy: Some(RestartPolicy {
                name: Some(RestartPolicyNameEnum::NO),
                maximum_retry_count: None,
            }),
            ..Default::default()
        };
        ContainerCreateBody {
            image: Some(self.image.clone()),
            cmd: Some(arguments),
            env: (!host).then(|| vec![ADVERTISE.to_owned()]),
            labels: Some(all_labels),
            host_config: Some(host_config),
            ..Default::default()
        }
    }
}

impl Mount {
    fn for_engine(&self) -> EngineMount {
        EngineMount {
            typ: Some(MountType::BIND),
            source: Some(self.source.clone()),
            target: Some(self.target.clone()),
            read_only: Some(self.read_only),
            ..Default::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodeTimes;
    use rota_daemon::Log;
    use rota_model::{LoadLimit, NewNodes, PoolName, ProvisionerName};

    fn options(network: &str) -> DockerOptions {
        let mount =
            Mount { source: "/etc/c".to_owned(), target: "/classes".to_owned(), read_only: true };
        DockerOptions {
            socket: PathBuf::from("/run/engine.sock"),
            image: "agent:1".to_owned(),
            network: network.to_owned(),
            mounts: vec![mount],
        }
    }

    fn cluster() -> ClusterName {
        ClusterName::parse("c").unwrap()
    }

    fn node(id: &str) -> NodeId {
        NodeId::parse(id).unwrap()
    }

    fn made(network: &str, memory_mib: u32) -> ContainerCreateBody {
        let cluster = ClusterOptions {
            cluster: cluster(),
            consul: None,
            times: NodeTimes { renew_ms: 1, lease_term_ms: 2, lease_kill_ms: 3 },
            log: Log::text("info").unwrap(),
        };
        let new = NewNodes {
            pool: PoolName::parse("small").unwrap(),
            provisioner: ProvisionerName::parse("box").unwrap(),
            places: 5,
            labels: Default::default(),
            cpu_millis: 500,
            memory_mib,
            load_limit: LoadLimit::parse(0.8).unwrap(),
        };
        let managers = vec!["10.0.0.1:7100".to_owned()];
        options(network).container(&cluster, &NewNode { node: node("small-1-0"), new, managers })
    }

    #[test]
    fn a_containers_name_and_labels_follow_from_the_node_and_strange_names_are_refused() {
        assert_eq!(name_of(&cluster(), &node("small-1-0")).unwrap(), "rota-c-small-1-0");
        for strange in ["a/b", "a b", "größe", &"n".repeat(130)] {
            let told = name_of(&cluster(), &node(strange)).unwrap_err();
            assert!(told.contains("is no name of a container"), "{told}");
        }
        let found = made("bridge", 0).labels.unwrap();
        assert_eq!(found["rota.pool"], "small");
        assert!(is_of(&found, &cluster(), &node("small-1-0")));
        assert!(!is_of(&found, &cluster(), &node("small-1-1")));
        assert!(!is_of(&found, &ClusterName::parse("d").unwrap(), &node("small-1-0")));
    }

    #[test]
    fn in_a_network_of_its_own_an_agent_tells_the_containers_address_and_else_stays_on_loopback() {
        let own = made("bridge", 64);
        let arguments = own.cmd.unwrap().join(" ");
        assert!(
            arguments.starts_with(
                "run --data /data --classes /classes --listen 0.0.0.0:7406 --insecure-bind --id small-1-0"
            ),
            "{arguments}"
        );
        assert_eq!(own.env.unwrap(), ["ROTA_ADVERTISE=container"]);
        let limits = own.host_config.unwrap();
        assert_eq!((limits.nano_cpus, limits.memory), (Some(500_000_000), Some(64 << 20)));
        let mount = &limits.mounts.unwrap()[0];
        assert_eq!((mount.typ, mount.read_only), (Some(MountType::BIND), Some(true)));
        let host = made("host", 0);
        assert_eq!(host.env, None);
        assert!(!host.cmd.unwrap().join(" ").contains("--insecure-bind"));
        assert_eq!(host.host_config.unwrap().memory, None);
    }

    #[test]
    fn managers_that_only_this_machine_reaches_are_told_before_a_container_waits_for_them() {
        let (near, far) = ("127.0.0.1:7".to_owned(), "10.0.0.1:7".to_owned());
        let told = options("bridge").reaches(std::slice::from_ref(&near)).unwrap_err();
        assert!(told.contains("127.0.0.1:7") && told.contains("--grpc"), "{told}");
        assert_eq!(options("bridge").reaches(&[near.clone(), far]), Ok(()));
        assert_eq!(options("host").reaches(&[near]), Ok(()));
    }
}
