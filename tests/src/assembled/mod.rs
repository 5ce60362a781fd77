//! A cluster that a test puts together itself, over real Consul: so each process can be hit by itself,
//! and stand in a network of its own.

mod members;
mod nodes;

use crate::binaries::binary;
use crate::condition::{PATIENCE, eventually};
use crate::folder::TestFolder;
use crate::http::http_get;
use crate::processes::{self, Process};
use crate::recorded::Clients;
use crate::ringctl::{Ran, ringctl};
use crate::servers::{ConsulServer, own_loopback};
use crate::small::{every_copy_is_in_sync, manager, ring};
pub use members::Member;
use nodes::Host;
use rota_client::{Client, Entry, Options};
use rustix::process::Signal;
use serde_json::Value;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;

/// The managers' numbers.
const NUMBERS: [u64; 3] = [340, 681, 1023];

/// How long a node's lease lasts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leases {
    /// As where nothing is said.
    Usual,
    /// Less than half as long: a silent node is LOST after 9 s.
    Short,
}

/// Where the processes stand, and how long nodes may be silent.
#[derive(Clone, Debug)]
pub struct Places {
    /// Consul's servers. A manager asks the one of its own index, as far as there are so many.
    pub servers: Vec<Ipv4Addr>,
    /// The nodes, and whoever else has no place of its own.
    pub nodes: Ipv4Addr,
    /// The managers.
    pub managers: [Ipv4Addr; 3],
    /// What the command line of each begins with: how it gets to its place.
    pub through: [Vec<String>; 3],
    /// Everybody's.
    pub leases: Leases,
}

impl Places {
    /// Everybody on loopback, with so many servers of Consul.
    pub fn loopback(servers: usize) -> Self {
        let servers = (0..servers).map(|_| own_loopback()).collect();
        let managers = [own_loopback(), own_loopback(), own_loopback()];
        let (through, leases) = (Default::default(), Leases::Usual);
        Self { servers, nodes: own_loopback(), managers, through, leases }
    }
}

/// The cluster: Consul, three managers with two copies beside each owner, three nodes.
#[derive(Debug)]
pub struct Assembled {
    /// Where everything is.
    pub folder: TestFolder,
    /// Consul's servers.
    pub servers: Vec<ConsulServer>,
    places: Places,
    members: Vec<Member>,
    hosts: Vec<Host>,
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|it| (*it).to_owned()).collect()
}

fn program(name: &str) -> String {
    binary(name).to_str().expect("the path is UTF-8").to_owned()
}

impl Assembled {
    /// Starts everything, and waits until every copy is in sync and every node is there.
    pub async fn start(places: &Places) -> Self {
        let folder = TestFolder::new();
        let servers = ConsulServer::start(&folder, &places.servers).await;
        let members = (0..NUMBERS.len()).map(|at| Member::of_ring(&folder, places, at)).collect();
        let places = places.clone();
        let mut cluster = Self { folder, servers, places, members, hosts: Vec::new() };
        for at in 0..NUMBERS.len() {
            cluster.start_manager(at).await;
        }
        let managers = cluster.endpoints();
        cluster.hosts = nodes::hosts(&cluster.folder, &cluster.places, &managers);
        for at in 0..cluster.hosts.len() {
            cluster.start_agent(at).await;
        }
        cluster.is_whole().await;
        cluster
    }

    /// How many managers it has.
    pub fn managers(&self) -> usize {
        self.members.len()
    }

    /// Where a manager takes requests.
    pub fn grpc_of(&self, at: usize) -> &str {
        &self.members[at].grpc
    }

    /// Every manager's address, comma-separated.
    pub fn endpoints(&self) -> String {
        let all: Vec<&str> = self.members.iter().map(|it| it.grpc.as_str()).collect();
        all.join(",")
    }

    /// Makes clients that know every manager.
    pub fn clients(&self) -> Clients {
        let all: Vec<String> = self.members.iter().map(|it| it.grpc.clone()).collect();
        Arc::new(move |entry, first| {
            let mut all = all.clone();
            all.rotate_left(first % NUMBERS.len());
            let options = Options { entry, ..Options::default() };
            Client::with_options(&all.join(","), options).expect("the addresses are good")
        })
    }

    /// A client that knows every manager.
    pub fn client(&self, entry: Entry) -> Client {
        self.clients()(entry, 0)
    }

    /// A client of one manager only.
    pub fn client_of(&self, at: usize) -> Client {
        Client::connect(&self.members[at].grpc).expect("the address is good")
    }

    /// Where a manager keeps its records.
    pub fn data_of(&self, at: usize) -> PathBuf {
        self.folder.path().join(&self.members[at].id)
    }

    /// What a manager said on stderr, in all its runs.
    pub fn log_of(&self, at: usize) -> String {
        let log = self.folder.path().join(format!("{}.log", self.members[at].id));
        std::fs::read_to_string(log).unwrap_or_default()
    }

    /// A manager's process.
    pub fn process(&self, at: usize) -> Process {
        let pid = self.members[at].runs.as_ref().expect("it runs").pid();
        processes::process(pid).expect("it runs")
    }

    /// Kills a manager and waits until it is gone.
    pub async fn kill(&mut self, at: usize) {
        self.members[at].kill().await;
    }

    /// Kills these managers at one moment, and waits until they are gone.
    pub async fn kill_at_once(&mut self, managers: &[usize]) {
        let victims: Vec<Process> = managers.iter().map(|at| self.process(*at)).collect();
        processes::cut_power(&victims).await;
        for at in managers {
            self.kill(*at).await;
        }
    }

    /// Waits until a manager has ended by itself, and gives its exit code.
    pub async fn ended(&mut self, at: usize) -> Option<i32> {
        self.members[at].ended().await
    }

    /// Starts a manager with its own command line, so with its own folder; waits until it is ready.
    pub async fn start_manager(&mut self, at: usize) {
        self.members[at].start(&self.folder).await;
    }

    /// The options of a manager that runs through nothing.
    pub fn options_of(&self, at: usize) -> &[String] {
        let (_program, options) = self.members[at].line.split_first().expect("it has a program");
        options
    }

    /// The number of a manager.
    pub fn number_of(&self, at: usize) -> u64 {
        NUMBERS[at]
    }

    /// Waits until another manager says that this one is DOWN.
    pub async fn is_missed(&self, at: usize) {
        let other = &self.members[(at + 1) % self.members.len()].grpc;
        let it = &self.members[at];
        eventually(&format!("{} is missed", it.id), PATIENCE, async || {
            let shown = manager(&ring(other).await?, NUMBERS[at]);
            if shown["status"] == "DOWN" { Ok(()) } else { Err(shown.to_string()) }
        })
        .await;
    }

    /// Waits until every manager says that Consul answers it.
    pub async fn sees_consul(&self) {
        for it in &self.members {
            eventually(&format!("{} sees Consul", it.id), PATIENCE, async || {
                let page = http_get(&it.http, "/healthz").await?;
                let health: Value = serde_json::from_str(&page.body).unwrap_or_default();
                let reachable = health["config_store"]["reachable"] == true;
                if reachable { Ok(()) } else { Err(page.body) }
            })
            .await;
        }
    }

    /// Waits until every copy is in sync and every node is READY.
    pub async fn is_whole(&self) {
        every_copy_is_in_sync(&self.endpoints()).await;
        self.every_node_is_ready().await;
    }

    /// Waits until `ringctl verify` proves everything. Nobody may be at work.
    pub async fn verifies(&self) {
        eventually("everything holds", PATIENCE, async || {
            let ran: Ran = ringctl(&self.endpoints(), &["verify", "-o", "json"]).await;
            if ran.code == 0 { Ok(()) } else { Err(format!("{ran:?}")) }
        })
        .await;
    }

    /// Ends everything; fails unless all of it ends well.
    pub async fn end(mut self) {
        let managers = self.members.drain(..).map(|it| it.runs.expect("it runs"));
        for host in std::mem::take(&mut self.hosts) {
            assert_eq!(host.end().await, Some(0));
        }
        for launched in managers {
            assert_eq!(launched.end().await, Some(0));
        }
        for server in self.servers.drain(..) {
            server.end().await;
        }
        eventually("nothing is left", PATIENCE, async || {
            let left = processes::of_folder(self.folder.path());
            if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
        })
        .await;
    }
}

impl Drop for Assembled {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // A process that is stopped ends only when it goes on.
            let left = processes::of_folder(self.folder.path());
            left.iter().for_each(|it| it.signal(Signal::CONT));
            processes::kill_all_of(self.folder.path());
        }
    }
}
