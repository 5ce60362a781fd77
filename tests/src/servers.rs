//! Real Consul servers, one or three, that a test kills and starts again. The program must be on PATH:
//! deploy/install-consul puts it there.

use crate::condition::{PATIENCE, eventually};
use crate::folder::TestFolder;
use crate::http::http_get;
use crate::processes;
use rustix::process::Signal;
use std::fs::File;
use std::net::Ipv4Addr;
use std::process::Stdio;
use tokio::process::{Child, Command};

#[path = "../../crates/membership/tests/suite/consul_command.rs"]
mod command;

pub use command::own_loopback;

/// A server, with its data in the test's folder. Killed when dropped.
#[derive(Debug)]
pub struct ConsulServer {
    ip: Ipv4Addr,
    all: Vec<Ipv4Addr>,
    child: Option<Child>,
}

impl ConsulServer {
    /// Starts one at each of these addresses, and waits until all have the same leader.
    pub async fn start(folder: &TestFolder, ips: &[Ipv4Addr]) -> Vec<Self> {
        let mut servers = Vec::new();
        for ip in ips {
            let mut server = Self { ip: *ip, all: ips.to_vec(), child: None };
            server.spawn(folder);
            servers.push(server);
        }
        for server in &servers {
            server.until_led().await;
        }
        servers
    }

    fn spawn(&mut self, folder: &TestFolder) {
        let name = format!("consul-{}", self.ip);
        let log = folder.path().join(format!("{name}.log"));
        let log = File::options().create(true).append(true).open(log).expect("the log can be made");
        let mut command =
            Command::from(command::server(self.ip, &self.all, &folder.path().join(name)));
        command.env("ROTA_TEST_FOLDER", folder.path()).stdin(Stdio::null());
        command.stdout(log.try_clone().expect("a file can be shared")).stderr(log);
        let child = command.kill_on_drop(true).spawn();
        self.child = Some(child.expect("`consul` is not installed; run deploy/install-consul"));
    }

    /// What managers are told of it.
    pub fn address(&self) -> String {
        format!("consul://{}:8500/rota", self.ip)
    }

    /// The address of the leader that it knows, if any.
    async fn leader(&self) -> Result<String, String> {
        let page = http_get(&format!("{}:8500", self.ip), "/v1/status/leader").await?;
        let leader = page.body.trim().trim_matches('"').to_owned();
        if leader.ends_with(":8300") { Ok(leader) } else { Err(format!("no leader: {page:?}")) }
    }

    /// Waits until it knows a leader.
    async fn until_led(&self) {
        let what = format!("{} knows a leader", self.ip);
        eventually(&what, PATIENCE, async || self.leader().await.map(drop)).await;
    }

    /// Whether it runs, and leads as far as it knows.
    pub async fn leads(&self) -> bool {
        self.child.is_some() && self.leader().await == Ok(format!("{}:8300", self.ip))
    }

    /// Kills it, and waits until it is gone.
    pub async fn kill(&mut self) {
        let mut child = self.child.take().expect("it runs");
        child.kill().await.expect("a child can be killed");
    }

    /// Starts it again on its data, and waits until it knows a leader.
    pub async fn start_again(&mut self, folder: &TestFolder) {
        self.spawn(folder);
        self.until_led().await;
    }

    /// Asks it to end, and waits for that.
    pub async fn end(mut self) {
        let mut child = self.child.take().expect("it runs");
        processes::send(child.id().expect("it was not waited for"), Signal::TERM);
        let ended = tokio::time::timeout(PATIENCE, child.wait()).await;
        ended.expect("it ends when it is asked to").expect("a child can be waited for");
    }
}
