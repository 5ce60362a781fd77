//! One manager with times in which a node is lost soon: for what agents do to each other.

use crate::condition::{PATIENCE, eventually};
use crate::folder::TestFolder;
use crate::http::http_get;
use crate::launched::Launched;
use crate::sessions::{CALL, open};
use rota_client::{Client, v1};

/// Times in which a boot is lost soon, and not on a machine that is merely busy.
const MANAGER_TIMES: [&str; 8] = [
    "--renew-ms",
    "500",
    "--lease-term-ms",
    "4000",
    "--lease-kill-ms",
    "5000",
    "--node-lost-ms",
    "7000",
];

/// The same as a node is told them.
const NODE_TIMES: [&str; 6] = ["--renew", "500ms", "--lease-term", "4s", "--lease-kill", "5s"];

/// A config store and one manager with those times, and the manager's client.
#[derive(Debug)]
pub struct Brief {
    store: Launched,
    manager: Launched,
    /// A client of the manager.
    pub client: Client,
}

impl Brief {
    /// Starts both, and waits until the manager has its number.
    pub async fn start(folder: &TestFolder) -> Self {
        let line = ["--data", &folder.at("store"), "--cluster", "brief"];
        let store = Launched::start(folder, "store", "rota-config-store", &line).await;
        let data = folder.at("manager");
        let line = ["--data", &data, "--number", "100", "--id", "a", "--ring", "100=a"];
        let shape = ["--replicas", "0", "--cluster", "brief", "--config-store"];
        let line = [&line[..], &shape, &[store.told("address")], &MANAGER_TIMES].concat();
        let manager = Launched::start(folder, "manager", "rota-manager", &line).await;
        eventually("the manager holds its number", PATIENCE, async || {
            let page = http_get(manager.told("http"), "/healthz").await?;
            if page.body.contains("\"claimed\":true") { Ok(()) } else { Err(page.body) }
        })
        .await;
        let client = Client::connect(manager.told("grpc")).expect("the address is good");
        Self { store, manager, client }
    }

    /// The manager's address.
    pub fn endpoint(&self) -> &str {
        self.manager.told("grpc")
    }

    /// The manager's pages, `host:port`.
    pub fn http(&self) -> &str {
        self.manager.told("http")
    }

    /// The command line of an agent of node n1 with that data folder and those classes.
    pub fn agent(&self, folder: &TestFolder, classes: &str, data: &str) -> Vec<String> {
        let (data, managers) = (folder.at(data), self.endpoint());
        let line = ["run", "--id", "n1", "--data", &data, "--cluster", "brief"];
        let more = ["--managers", managers, "--classes", classes];
        [&line[..], &more, &NODE_TIMES].concat().into_iter().map(str::to_owned).collect()
    }

    /// Opens a session as soon as a node takes it.
    pub async fn opened(&self, id: &str, class: &str) -> v1::Session {
        eventually("a node takes a session", PATIENCE, async || {
            let answer = self.client.open(open(id, class), CALL).await;
            let answer = answer.map_err(|error| format!("{error:?}"))?;
            answer.session.ok_or_else(|| "no session".to_owned())
        })
        .await
    }

    /// Ends both.
    pub async fn end(self) {
        assert_eq!(self.manager.end().await, Some(0));
        assert_eq!(self.store.end().await, Some(0));
    }
}
