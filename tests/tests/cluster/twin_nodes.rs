//! Two agents of one node: the second comes in when nothing of the first can run any more.

use rota_client::{Client, v1};
use rota_tests::sessions::{CALL, becomes, open, read};
use rota_tests::{
    Cluster, Launched, PATIENCE, TestFolder, checkout, eventually, http_get, run_to_end,
};
use v1::SessionState;

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
struct Small {
    store: Launched,
    manager: Launched,
    client: Client,
}

impl Small {
    async fn start(folder: &TestFolder) -> Self {
        let line = ["--data", &folder.at("store"), "--cluster", "small"];
        let store = Launched::start(folder, "store", "rota-config-store", &line).await;
        let data = folder.at("manager");
        let line = ["--data", &data, "--number", "100", "--id", "a", "--ring", "100=a"];
        let shape = ["--replicas", "0", "--cluster", "small", "--config-store"];
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

    /// The command line of an agent of node n1 with that data folder.
    fn agent(&self, folder: &TestFolder, data: &str) -> Vec<String> {
        let classes = checkout().join("deploy/classes").display().to_string();
        let (data, managers) = (folder.at(data), self.manager.told("grpc"));
        let line = ["run", "--id", "n1", "--data", &data, "--cluster", "small"];
        let more = ["--managers", managers, "--classes", &classes];
        [&line[..], &more, &NODE_TIMES].concat().into_iter().map(str::to_owned).collect()
    }

    /// Opens a session as soon as a node takes it.
    async fn opened(&self, id: &str) -> v1::Session {
        eventually("a node takes a session", PATIENCE, async || {
            let answer = self.client.open(open(id, "counter"), CALL).await;
            let answer = answer.map_err(|error| format!("{error:?}"))?;
            answer.session.ok_or_else(|| "no session".to_owned())
        })
        .await
    }

    async fn end(self) {
        assert_eq!(self.manager.end().await, Some(0));
        assert_eq!(self.store.end().await, Some(0));
    }
}

#[tokio::test]
async fn a_second_agent_with_the_same_id_waits_for_the_first_and_ends_when_it_lives_on() {
    let folder = TestFolder::new();
    let small = Small::start(&folder).await;
    let line = small.agent(&folder, "first");
    let mut first = Launched::start(&folder, "first", "rota-node-agent", &line).await;
    let before = small.opened("s").await;
    let line = small.agent(&folder, "second");
    let ended = run_to_end("rota-node-agent", &line).await;
    let boot = format!("node n1 runs as boot {} at {}", first.ready["boot"], first.told("address"));
    ended.expect_refusal(1, &[&boot, "--id", "waiting"]);
    assert!(!ended.stdout.contains("registered"), "{}", ended.stdout);
    assert!(first.runs(), "the first goes on");
    let after = read(&small.client, "s").await.unwrap();
    assert_eq!((after.state(), after.life), (SessionState::Ready, before.life));
    assert_eq!(after.address, first.told("address"));
    assert_eq!(first.end().await, Some(0));
    small.end().await;
}

#[tokio::test]
async fn a_node_that_lost_its_folder_gets_in_again_once_its_old_boot_is_lost() {
    let folder = TestFolder::new();
    let small = Small::start(&folder).await;
    let line = small.agent(&folder, "first");
    let first = Launched::start(&folder, "first", "rota-node-agent", &line).await;
    small.opened("s").await;
    first.kill().await;
    let line = small.agent(&folder, "second");
    let second = Launched::start(&folder, "second", "rota-node-agent", &line).await;
    becomes(&small.client, "s", SessionState::Lost).await;
    let session = small.opened("t").await;
    assert_eq!(session.address, second.told("address"));
    let log = std::fs::read_to_string(&second.log).unwrap();
    assert!(log.contains("node n1 runs as boot"), "it says what it waits for: {log}");
    assert_eq!(second.end().await, Some(0));
    small.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_of_a_whole_cluster_cannot_come_in_twice() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let name = {
        let text = std::fs::read(cluster.document.data.join("dev.json")).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&text).unwrap();
        json["cluster"].as_str().unwrap().to_owned()
    };
    let (data, managers) = (folder.at("second"), cluster.endpoints());
    let line = ["run", "--id", "n1", "--data", &data, "--cluster", &name, "--managers", &managers];
    let second = Launched::start(&folder, "second", "rota-node-agent", &line).await;
    eventually("the second says why it waits", PATIENCE, async || {
        let log = std::fs::read_to_string(&second.log).map_err(|it| it.to_string())?;
        if log.contains("node n1 runs as boot") { Ok(()) } else { Err(log) }
    })
    .await;
    assert_eq!(second.end().await, Some(0), "it leaves when it is asked to");
    let client = cluster.client();
    let answer = client.open(open("s", "counter"), CALL).await.unwrap();
    assert_eq!(answer.session.unwrap().address, cluster.document.nodes[0].address);
    cluster.end().await;
}
