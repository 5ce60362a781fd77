//! A pool whose program for nodes answers badly in every way, and then works.

use rota_client::{Client, v1};
use rota_model::Retry;
use rota_tests::processes::Process;
use rota_tests::sessions::{CALL, close, open};
use rota_tests::{Cluster, PATIENCE, TestFolder, binary, checkout, eventually};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

/// What the program does wrong, a piece of shell each, and what is told of it.
const MISTAKES: [(&str, &str); 5] = [
    ("echo fine", "does not read"),
    ("echo no quota here >&2; exit 3", "exit status: 3; it said: no quota here"),
    ("sleep 86400", "did not end within 4s, and was killed"),
    ("echo '{\"ok\": true}'; echo '{\"ok\": true}'", "answered more than once"),
    // The node comes all the same.
    ("echo \"$request\" | \"$local\"; echo '{\"ok\": true}'", "answered more than once"),
];

/// The program does this when it makes no mistake.
const WORKS: &str = "echo \"$request\" >> \"$done\"; echo \"$request\" | \"$local\"";

/// How long an open waits that is to be told why there is no node.
const WAIT: Duration = Duration::from_secs(4);

/// Managers with less patience than usual: for a program, and for a node. Starting one takes a program half a second.
const MANAGER: &str = "exec \"$manager\" \"$@\" --provision-command-ms 4000 --provision-ms 4000";

struct Scene {
    folder: TestFolder,
    cluster: Cluster,
    /// What runs when no node does, and no program.
    without_nodes: Vec<Process>,
}

/// A program that writes down what it is asked, and does what the file `how` says.
fn program(folder: &TestFolder) -> String {
    let (agent, root) = (binary("rota-node-agent"), checkout());
    let text = format!(
        "export ROTA_AGENT='{}' ROTA_DATA='{}' ROTA_CLASSES='{}'\n\
         local='{}' done='{}'; request=$(cat); echo \"$request\" >> '{}'; . '{}'",
        agent.display(),
        folder.at("nodes"),
        root.join("deploy/classes").display(),
        root.join("deploy/provisioners/local").display(),
        folder.at("done"),
        folder.at("asked"),
        folder.at("how"),
    );
    folder.script("program", &text)
}

impl Scene {
    async fn start() -> Self {
        let folder = TestFolder::new();
        let command = format!("test={}", program(&folder));
        std::fs::create_dir(folder.at("programs")).expect("the test's folder takes it");
        let manager = format!("manager='{}'\n{MANAGER}", binary("rota-manager").display());
        folder.script("programs/rota-manager", &manager);
        let options = ["--nodes", "0", "--provision-command", &command];
        let programs = [("ROTA_BIN_DIR", folder.at("programs"))];
        let programs = programs.each_ref().map(|(name, value)| (*name, value.as_str()));
        let cluster = Cluster::start_in(&folder, &options, &programs).await;
        let scene = Self { without_nodes: cluster.processes(), cluster, folder };
        let create = ["pool", "create", "small", "--provisioner", "test", "--places", "2"];
        let create = [&create[..], &["--max-nodes", "3", "--scale-in-delay", "1s"]].concat();
        scene.cluster.ringctl(&create).await.expect_success();
        scene
    }

    /// From now on the program does this. It is another file at once, and never half of one.
    fn does(&self, how: &str) {
        let new = self.folder.at("new");
        std::fs::write(&new, how).expect("the test's folder takes it");
        std::fs::rename(&new, self.folder.at("how")).expect("it is our own");
    }

    async fn pool(&self) -> Value {
        self.cluster.ringctl(&["pool", "show", "small", "-o", "json"]).await.json()
    }

    /// Opens a session until the answer names the pool and tells of the mistake.
    async fn is_told(&self, client: &Client, id: &str, told: &str) {
        eventually(&format!("an open is told: {told}"), PATIENCE, async || {
            let Err(error) = client.open(asks(id), WAIT).await else {
                return Err("it was answered".to_owned());
            };
            let text = error.to_string();
            // A busy manager may answer too late to say more than that.
            let is_late = ["DEADLINE_EXCEEDED", "TIMED_OUT"].contains(&error.reason());
            assert!(is_late || error.reason() == "PROVISIONING", "{error:?}");
            assert!(is_late || matches!(error.retry(), Retry::AfterMs(1..)), "{error:?}");
            let is_told = text.contains("pool \"small\"") && text.contains(told);
            if is_told { Ok(()) } else { Err(text) }
        })
        .await;
    }

    /// Operators see it as well, with the node that did not start.
    async fn is_shown(&self, told: &str) {
        eventually(&format!("the pool shows: {told}"), PATIENCE, async || {
            let shown = self.pool().await;
            let failure = shown["failure"].as_str().unwrap_or_default();
            let is_shown = failure.contains("for node small-") && failure.contains(told);
            if is_shown { Ok(()) } else { Err(shown.to_string()) }
        })
        .await;
    }

    fn agents(&self) -> Vec<Process> {
        self.cluster.processes().into_iter().filter(Process::is_agent).collect()
    }

    /// The nodes of such requests in that file.
    fn nodes_in(&self, file: &str, action: &str) -> BTreeSet<String> {
        let text = std::fs::read_to_string(self.folder.at(file)).unwrap_or_default();
        let requests = text.lines().map(|it| serde_json::from_str(it).expect("a request"));
        let these = requests.filter(|it: &Value| it["action"] == action);
        these.map(|it| it["node"].as_str().expect("a node").to_owned()).collect()
    }

    /// What could not be cleared away is shown, too.
    async fn its_end_is_shown(&self) {
        eventually("the pool shows what was not ended", PATIENCE, async || {
            let shown = self.pool().await;
            let failure = shown["end_failure"].as_str().unwrap_or_default();
            let is_shown = failure.starts_with("what is left of node small-");
            if is_shown { Ok(()) } else { Err(shown.to_string()) }
        })
        .await;
    }

    /// Each node that was ordered was cleared away in the end, and nothing is on its way.
    async fn nothing_is_left(&self) {
        eventually("nothing is left of any node", PATIENCE * 2, async || {
            let folders = std::fs::read_dir(self.folder.at("nodes")).map_or(0, Iterator::count);
            let mut others = self.cluster.processes();
            others.retain(|it| !self.without_nodes.contains(it));
            let (begun, ended) = (self.nodes_in("asked", "start"), self.nodes_in("done", "end"));
            let open: Vec<_> = begun.difference(&ended).collect();
            let shown = self.pool().await;
            let counted = (&shown["nodes"], &shown["ordered"], &shown["end_failure"]);
            let is_clear = counted == (&json!(0), &json!([]), &Value::Null);
            if folders + others.len() + open.len() == 0 && is_clear {
                return Ok(());
            }
            Err(format!("{folders} folders, {others:?}, {open:?}, {shown}"))
        })
        .await;
    }
}

fn asks(id: &str) -> v1::OpenRequest {
    v1::OpenRequest { pool: "small".to_owned(), ..open(id, "counter") }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provisioner_that_answers_badly_in_every_way_leaks_nothing_and_the_open_waits_until_it_works()
 {
    let scene = Scene::start().await;
    let clients = scene.cluster.clients();
    scene.does(MISTAKES[0].0);
    let patient = clients[0].clone();
    let waits = tokio::spawn(async move { patient.open(asks("patient"), PATIENCE * 4).await });
    for (number, (how, told)) in MISTAKES[..4].iter().enumerate() {
        scene.does(how);
        scene.is_told(&clients[number % 3], &format!("told {number}"), told).await;
        scene.is_shown(told).await;
        assert_eq!(scene.agents(), vec![], "{how} starts no node");
    }
    scene.its_end_is_shown().await;
    assert!(!waits.is_finished());
    let (how, told) = MISTAKES[4];
    scene.does(how);
    let session = waits.await.expect("it only asks").expect("a node comes").session;
    let node = session.expect("the client checks it").node_id;
    scene.is_shown(told).await;
    assert!(!scene.nodes_in("asked", "end").contains(&node), "a node that serves is not ended");
    scene.does(WORKS);
    for id in ["a", "b", "c", "d"] {
        let answer = clients[1].open(asks(id), CALL).await;
        answer.unwrap_or_else(|error| panic!("{id}: {error:?}"));
    }
    assert_eq!(scene.agents().len(), 3, "five sessions are on nodes of two places");
    for id in ["patient", "a", "b", "c", "d"] {
        clients[2].close(close(id), CALL).await.expect("it runs");
    }
    scene.nothing_is_left().await;
    assert!(scene.nodes_in("asked", "start").len() > MISTAKES.len(), "each mistake was made");
    scene.cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn opens_and_operators_are_told_of_nodes_that_a_provisioner_says_it_began_and_that_do_not_come()
 {
    let scene = Scene::start().await;
    scene.does("echo '{\"ok\": true}'");
    let told = "provisioner test was asked for nodes that did not register within 4 s";
    scene.is_told(&scene.cluster.clients()[0], "late", told).await;
    eventually("the pool names the nodes that are late", PATIENCE, async || {
        let shown = scene.pool().await;
        let failure = shown["failure"].as_str().unwrap_or_default();
        let is_shown =
            failure.starts_with("not registered in time: small-") && failure.contains(told);
        if is_shown { Ok(()) } else { Err(shown.to_string()) }
    })
    .await;
    assert_eq!(scene.agents(), vec![]);
    scene.cluster.end().await;
}
