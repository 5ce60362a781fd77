//! The provisioners of this manager, between its decisions and `rota_provision`.

use crate::mailbox::Mailbox;
use crate::options::Options;
use rota_model::{NewNodes, NodeId, PoolName, ProvisionerName};
use rota_protocol::Input;
use rota_provision::command::Program;
use rota_provision::process::{PROCESS, Processes};
use rota_provision::{ClusterOptions, NodeTimes, OldNode, Provisioners};
use rota_ring::View;
use std::sync::Arc;

/// Those that the command line names.
pub fn provisioners(options: &Options) -> Provisioners {
    let timing = &options.timing;
    let cluster = ClusterOptions {
        cluster: options.ring.cluster.clone(),
        consul: options.config_store.consul().map(ToString::to_string),
        times: NodeTimes {
            renew_ms: timing.renew_ms,
            lease_term_ms: timing.lease_term_ms,
            lease_kill_ms: timing.lease_kill_ms,
        },
        log: options.log.clone(),
    };
    let mut all = Provisioners::default();
    if let Some(process) = options.provisioners.process.clone() {
        all.add(PROCESS, Arc::new(Processes { options: process, cluster: cluster.clone() }));
    }
    for (name, program) in &options.provisioners.commands {
        let (program, timeout) = (program.clone(), options.provisioners.command_timeout);
        let program = Program { program, timeout, cluster: cluster.clone() };
        all.add(name.as_str(), Arc::new(program));
    }
    #[cfg(feature = "docker")]
    for (name, docker) in &options.provisioners.docker {
        let (options, cluster) = (docker.clone(), cluster.clone());
        all.add(name.as_str(), Arc::new(rota_provision::docker::Containers { options, cluster }));
    }
    all
}

/// Has nodes started and ended, and says what came of it.
pub struct Provisioner {
    all: Provisioners,
    mailbox: Mailbox,
}

impl Provisioner {
    /// With these.
    pub fn new(all: Provisioners, mailbox: Mailbox) -> Self {
        Self { all, mailbox }
    }

    /// Starts nodes, then gives [`Input::Provisioned`].
    pub fn order(&self, order: u64, nodes: Vec<NodeId>, new: NewNodes, view: Option<&Arc<View>>) {
        let managers: Vec<String> = view.map(|view| addresses(view)).unwrap_or_default();
        let (mailbox, all) = (self.mailbox.clone(), self.all.clone());
        tokio::spawn(async move {
            let (pool, begun) = (new.pool.clone(), all.has(&new.provisioner));
            let (failed, failure) = all.start(nodes, new, managers).await.unzip();
            if let Some(failure) = &failure {
                tracing::warn!(order, %pool, failure, "nodes were not started");
            }
            let failed = failed.unwrap_or_default();
            // A driver that has ended needs no answer.
            let _ = mailbox.input(Input::Provisioned { order, begun, failed, failure }).await;
        });
    }

    /// Ends what is left of a node, then gives [`Input::NodeCleared`].
    pub fn end(&self, pool: PoolName, provisioner: ProvisionerName, node: NodeId) {
        let (mailbox, all) = (self.mailbox.clone(), self.all.clone());
        tokio::spawn(async move {
            let old = OldNode { node: node.clone(), pool: pool.clone() };
            let failure = all.end(&provisioner, old).await;
            if let Some(failure) = &failure {
                tracing::warn!(%node, %pool, failure, "what is left of a node was not ended");
            }
            // A driver that has ended needs no answer.
            let _ = mailbox.input(Input::NodeCleared { pool, node, failure }).await;
        });
    }
}

fn addresses(view: &View) -> Vec<String> {
    let known = view.managers.values().filter(|it| !it.grpc.is_empty());
    known.map(|it| it.grpc.clone()).collect()
}
