//! The nodes of an assembled cluster: how they are started, and what befalls their agents.

use super::{Assembled, Leases, Places, owned, program};
use crate::binaries::binary;
use crate::classes::shipped_classes_and;
use crate::condition::{PATIENCE, eventually};
use crate::folder::TestFolder;
use crate::launched::Launched;
use crate::processes::{self, Process};
use crate::recorded::{Execution, executions};
use crate::small::ring;
use rustix::process::Signal;
use serde_json::Value;
use std::path::PathBuf;

/// The nodes' names.
const NAMES: [&str; 3] = ["n1", "n2", "n3"];
/// Each has room for so few that more than one is used, and two of them for all that clients have open.
const PLACES: &str = "20";
/// A program that costs little and ends when it is asked to.
const SLEEPER: (&str, &str) = (
    "sleeper",
    "name = \"sleeper\"\nkind = \"program\"\nargv = [\"sh\", \"-c\", \"echo up; exec sleep 86400\"]\n\
     ready = { line = \"up\" }\nstart_timeout = \"10s\"\ngrace = \"2s\"\n",
);

/// A node, and how its agent was started.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) id: &'static str,
    line: Vec<String>,
    log: PathBuf,
    runs: Option<Launched>,
}

pub(super) fn hosts(folder: &TestFolder, places: &Places, managers: &str) -> Vec<Host> {
    let classes = shipped_classes_and(folder, &[SLEEPER]);
    let host = |(at, id): (usize, &'static str)| {
        let mut line = vec![program("rota-node-agent")];
        line.extend(owned(&["run", "--id", id, "--data", &folder.at(id), "--cluster", "c"]));
        line.extend(owned(&["--listen", &format!("{}:{}", places.nodes, 7410 + at)]));
        line.extend(owned(&["--insecure-bind", "--managers", managers]));
        line.extend(owned(&["--places", PLACES, "--classes", &classes]));
        line.extend(owned(&["--consul", &format!("consul://{}:8500/rota", places.servers[0])]));
        line.extend(owned(&["--log", "info,sessions=debug", "--log-format", "json"]));
        if let Leases::Short = places.leases {
            line.extend(owned(&["--renew", "1s", "--lease-term", "4s", "--lease-kill", "6s"]));
        }
        Host { id, line, log: folder.path().join(format!("{id}.log")), runs: None }
    };
    NAMES.into_iter().enumerate().map(host).collect()
}

impl Host {
    pub(super) async fn end(mut self) -> Option<i32> {
        self.runs.take().expect("it runs").end().await
    }
}

impl Assembled {
    /// Starts an agent with its own command line, so with its own folder; waits until it is ready.
    pub async fn start_agent(&mut self, at: usize) {
        let it = &mut self.hosts[at];
        it.runs = Some(Launched::again(&self.folder, it.id, &it.line).await);
    }

    /// Kills an agent and waits until it is gone. Its keepers go on.
    pub async fn kill_agent(&mut self, at: usize) {
        self.hosts[at].runs.take().expect("it runs").kill().await;
    }

    /// Puts another file in the place of the agents' program, tells an agent to leave what runs, and starts the next one
    /// from that file. Gives how many sessions it went on with.
    pub async fn upgrade_agent(&mut self, at: usize) -> u64 {
        let (folder, new) = (self.folder.at("installed"), self.folder.at("new-program"));
        std::fs::create_dir_all(&folder).expect("it is the test's own");
        // Agents of other nodes may run from the earlier file, and keepers do.
        std::fs::copy(binary("rota-node-agent"), &new).expect("there is room for a program");
        let installed = format!("{folder}/rota-node-agent");
        std::fs::rename(&new, &installed).expect("it is the test's own");
        let it = &mut self.hosts[at];
        let leaves = it.runs.take().expect("it runs");
        processes::send(leaves.pid(), Signal::USR2);
        assert_eq!(leaves.ended().await, Some(0), "{} leaves what runs", it.id);
        it.line[0] = installed;
        self.start_agent(at).await;
        let next = self.hosts[at].runs.as_ref().expect("it was started");
        next.ready["adopts"].as_u64().expect("an agent says how many it adopts")
    }

    /// An agent's process.
    pub fn agent(&self, at: usize) -> Process {
        let pid = self.hosts[at].runs.as_ref().expect("it runs").pid();
        processes::process(pid).expect("it runs")
    }

    /// A node's name.
    pub fn node(&self, at: usize) -> &'static str {
        self.hosts[at].id
    }

    /// The index of the node with that name.
    pub fn node_named(&self, id: &str) -> usize {
        self.hosts.iter().position(|it| it.id == id).expect("a node of this cluster")
    }

    /// Waits until no program of a node runs, and no keeper.
    pub async fn runs_no_program(&self, at: usize) {
        let data = self.folder.at(self.hosts[at].id);
        eventually("no program of the node runs", PATIENCE, async || {
            let mut left = processes::of_folder(self.folder.path());
            left.retain(|it| it.variable("ROTA_NODE_DATA").as_deref() == Some(&data));
            // It waits for the end of its agent, which may only stand still.
            left.retain(|it| it.line.get(1).is_none_or(|it| it != "guardian"));
            if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
        })
        .await;
    }

    /// Waits until the managers have declared a node lost.
    pub async fn is_lost(&self, at: usize) {
        let id = self.hosts[at].id;
        eventually(&format!("{id} is LOST"), PATIENCE, async || {
            let node = self.nodes().await?.into_iter().find(|it| it["id"] == id);
            let node = node.unwrap_or_default();
            if node["state"] == "LOST" { Ok(()) } else { Err(node.to_string()) }
        })
        .await;
    }

    pub(super) async fn every_node_is_ready(&self) {
        eventually("every node is READY", PATIENCE, async || {
            let nodes = self.nodes().await?;
            let ready = nodes.iter().filter(|it| it["state"] == "READY").count();
            if ready == NAMES.len() { Ok(()) } else { Err(format!("{nodes:?}")) }
        })
        .await;
    }

    async fn nodes(&self) -> Result<Vec<Value>, String> {
        let shown = ring(&self.endpoints()).await?;
        Ok(shown["nodes"].as_array().cloned().unwrap_or_default())
    }

    /// What the nodes logged of all that ran.
    pub fn executions(&self) -> Vec<Execution> {
        self.hosts.iter().flat_map(|it| executions(it.id, &it.log)).collect()
    }
}
