//! A real Consul agent as the config store of a cluster: one server, on loopback, its data kept.

use super::layout::Folder;
use super::ports::Ports;
use super::programs;
use crate::http;
use anyhow::Context;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// The program.
pub const PROGRAM: &str = "consul";
/// What the names of the cluster begin with. The agent is this cluster's alone.
const PREFIX: &str = "rota";
/// Between two looks at an agent that has no leader yet.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long one look may take.
const LOOK_WAIT: Duration = Duration::from_secs(1);

/// Settings that have no flag. One server elects itself at once with the shorter times; a
/// hundred managers hold several connections each; no look at the network for news.
const SETTINGS: &str = "performance { raft_multiplier = 1 } \
    limits { http_max_conns_per_client = 4096 } disable_update_check = true";

/// Where the program is.
pub fn program() -> anyhow::Result<PathBuf> {
    programs::program(PROGRAM)
        .context("--consul needs Consul; deploy/install-consul puts it on this machine")
}

/// How managers and nodes are told to reach it.
pub fn address(ports: &Ports) -> String {
    format!("consul://{}/{PREFIX}", ports.store)
}

/// Its command line.
pub fn command(program: &PathBuf, folder: &Folder, ports: &Ports) -> Command {
    let port = |address: Option<&SocketAddr>| address.map_or(0, SocketAddr::port).to_string();
    let mut command = Command::new(program);
    command.args(["agent", "-server", "-bootstrap-expect", "1", "-node"]);
    command.arg(&folder.layout.cluster).arg("-data-dir").arg(folder.path.join("store"));
    command.args(["-bind", "127.0.0.1", "-client", "127.0.0.1", "-log-level", "warn"]);
    command.args(["-http-port", &ports.store.port().to_string()]);
    command.args(["-server-port", &port(ports.consul.first())]);
    command.args(["-serf-lan-port", &port(ports.consul.get(1))]);
    for unused in ["-serf-wan-port", "-dns-port", "-grpc-port"] {
        command.args([unused, "-1"]);
    }
    command.args(["-hcl", SETTINGS]);
    command
}

/// Waits until it has a leader: before, it takes no write. The caller has the deadline.
pub async fn ready(address: SocketAddr) {
    loop {
        if let Ok(Ok(true)) = timeout(LOOK_WAIT, leads(address)).await {
            return;
        }
        sleep(LOOK_EVERY).await;
    }
}

async fn leads(address: SocketAddr) -> std::io::Result<bool> {
    // The address of the leader as a JSON string; empty while there is none.
    let body = http::get(&address.to_string(), "/v1/status/leader").await?;
    let leader = body.trim();
    Ok(leader.starts_with('"') && leader.len() > 2)
}
