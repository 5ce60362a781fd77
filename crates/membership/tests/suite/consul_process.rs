//! Real Consul agents, as tests start and end them. Each has a loopback address of its own, so the
//! ports can be Consul's usual ones and nobody takes them between two runs.

use crate::conformance::{PATIENCE, name};
use crate::consul_command::{own_loopback, server};
use crate::process::Folder;
use rota_membership::{ConfigStore, ConsulAddress, ConsulStore};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use std::net::Ipv4Addr;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

/// Between two looks at an agent that is not ready.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// How long a killed agent may take to be gone.
const END_WAIT: Duration = Duration::from_secs(5);

/// Consul's own words are worth a look when an agent does not start.
const LOG: &str = "consul.log";

/// A server with its folder; killed when dropped.
pub struct ConsulAgent {
    folder: Folder,
    pub ip: Ipv4Addr,
    /// Addresses of all servers, this one's included.
    servers: Vec<Ipv4Addr>,
    child: Option<Child>,
}

impl ConsulAgent {
    /// A server of its own; waits until it has a leader.
    pub async fn start() -> Self {
        let ip = own_loopback();
        let mut agent = Self::of(ip, vec![ip]);
        agent.run().await;
        agent
    }

    /// Three servers of one cluster; waits until each sees a leader.
    pub async fn three() -> [Self; 3] {
        let ips = [own_loopback(), own_loopback(), own_loopback()];
        let mut agents = ips.map(|ip| Self::of(ip, ips.to_vec()));
        agents.iter_mut().for_each(Self::spawn);
        for agent in &mut agents {
            agent.ready().await;
        }
        agents
    }

    fn of(ip: Ipv4Addr, servers: Vec<Ipv4Addr>) -> Self {
        Self { folder: Folder::new(), ip, servers, child: None }
    }

    /// Starts it (again) with what its folder holds; waits until it has a leader.
    pub async fn run(&mut self) {
        self.spawn();
        self.ready().await;
    }

    fn spawn(&mut self) {
        let log = self.folder.path().join(LOG);
        let log = std::fs::File::options().create(true).append(true).open(log).unwrap();
        let data = self.folder.path().join("data");
        let mut command = Command::from(server(self.ip, &self.servers, &data));
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let child = command.kill_on_drop(true).spawn();
        self.child = Some(child.expect("`consul` is not installed; run deploy/install-consul"));
    }

    async fn ready(&mut self) {
        let until = Instant::now() + PATIENCE;
        while let Err(why) = self.look().await {
            let ended = self.child.as_mut().unwrap().try_wait().unwrap();
            if ended.is_some() || Instant::now() > until {
                let log = std::fs::read_to_string(self.folder.path().join(LOG)).unwrap();
                panic!("{why}, ended: {ended:?}\n{log}");
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// Whether it answers a consistent read.
    async fn look(&self) -> Result<(), String> {
        let store = self.client_within(Duration::from_secs(2), "look");
        store.read().await.map(drop).map_err(|error| error.to_string())
    }

    /// Forgets all that it held.
    pub fn wipe(&self) {
        std::fs::remove_dir_all(self.folder.path().join("data")).unwrap();
    }

    pub fn address(&self, prefix: &str) -> ConsulAddress {
        ConsulAddress::parse(&format!("consul://{}:8500/{prefix}", self.ip)).unwrap()
    }

    pub fn client(&self) -> ConsulStore {
        self.client_within(PATIENCE, "rota")
    }

    pub fn client_within(&self, deadline: Duration, prefix: &str) -> ConsulStore {
        ConsulStore::new(&self.address(prefix), name("suite"), deadline).unwrap()
    }

    /// Asks its HTTP; gives code and body.
    pub async fn http(&self, method: &str, path: &str, body: Vec<u8>) -> (u16, String) {
        let url = format!("http://{}:8500{path}", self.ip);
        let client = reqwest::Client::builder().no_proxy().timeout(PATIENCE).build().unwrap();
        let request = client.request(method.parse().unwrap(), url).body(body);
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    }

    pub async fn json(&self, path: &str) -> serde_json::Value {
        let (code, text) = self.http("GET", path, Vec::new()).await;
        assert_eq!(code, 200, "{path}: {text}");
        serde_json::from_str(&text).unwrap()
    }

    /// Whether this one leads now.
    pub async fn leads(&self) -> bool {
        self.json("/v1/status/leader").await == format!("{}:8300", self.ip).as_str()
    }

    fn pid(&self) -> Pid {
        let pid = self.child.as_ref().and_then(Child::id).expect("it runs");
        Pid::from_raw(i32::try_from(pid).unwrap()).unwrap()
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Stops it, and waits until all of it stands still: until then it may answer.
    pub async fn stop(&self) {
        self.signal(Signal::STOP);
        let now = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
        let stops = async {
            while waitid(WaitId::Pid(self.pid()), now).unwrap().is_none() {
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, stops).await.expect("it stops");
    }

    /// kill -9.
    pub async fn kill(&mut self) {
        self.signal(Signal::KILL);
        let mut child = self.child.take().expect("it runs");
        timeout(PATIENCE, child.wait()).await.expect("it ends").unwrap();
    }
}

impl Drop for ConsulAgent {
    /// Waits for the end: an agent that still writes would leave its folder behind.
    fn drop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        child.start_kill().ok();
        let until = std::time::Instant::now() + END_WAIT;
        while matches!(child.try_wait(), Ok(None)) && std::time::Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
