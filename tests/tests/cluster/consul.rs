//! Clusters over a real Consul. The program must be on PATH: deploy/install-consul puts it there.

use rota_client::{CallError, v1};
use rota_tests::processes::{self, Process};
use rota_tests::sessions::{CALL, close, get, open, opened, read};
use rota_tests::small::{join, ring};
use rota_tests::{Cluster, PATIENCE, TestFolder, binary, checkout, eventually, http_get, ringctl};
use rustix::process::Signal;
use serde_json::Value;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};
use v1::SessionState;

/// Where the HTTP of the cluster's Consul listens.
pub fn http_of(cluster: &Cluster) -> &str {
    let address = &cluster.document.config_store.address;
    let authority = address.strip_prefix("consul://").and_then(|it| it.split('/').next());
    authority.expect("it is a Consul's")
}

/// Asks it.
pub async fn consul(cluster: &Cluster, path: &str) -> Result<Value, String> {
    let page = http_get(http_of(cluster), path).await?;
    serde_json::from_str(&page.body).map_err(|error| format!("{error}: {}", page.body))
}

/// Number (or id) and whether all checks pass, of each instance of a service.
async fn instances(cluster: &Cluster, service: &str) -> Result<Vec<(String, bool)>, String> {
    let all = consul(cluster, &format!("/v1/health/service/{service}")).await?;
    let all = all.as_array().cloned().unwrap_or_default();
    let mut instances: Vec<(String, bool)> = all
        .iter()
        .map(|instance| {
            let meta = &instance["Service"]["Meta"];
            let name = meta["number"].as_str().or(meta["id"].as_str()).unwrap_or_default();
            let checks = instance["Checks"].as_array().cloned().unwrap_or_default();
            (name.to_owned(), checks.iter().all(|it| it["Status"] == "passing"))
        })
        .collect();
    instances.sort();
    Ok(instances)
}

pub async fn until_instances(cluster: &Cluster, service: &str, wanted: &[(&str, bool)]) {
    eventually(&format!("{service} is {wanted:?}"), PATIENCE, async || {
        let there = instances(cluster, service).await?;
        let same = there.iter().map(|(name, passes)| (name.as_str(), *passes)).eq(wanted.to_vec());
        if same { Ok(()) } else { Err(format!("{there:?}")) }
    })
    .await;
}

pub async fn health(cluster: &Cluster, manager: usize) -> Result<(u16, Value), String> {
    let page = http_get(&cluster.document.managers[manager].http, "/healthz").await?;
    let body = serde_json::from_str(&page.body).map_err(|error| error.to_string())?;
    Ok((page.code, body))
}

pub async fn until_reachable(cluster: &Cluster, manager: usize, wanted: bool) {
    eventually("health says whether Consul answers", PATIENCE, async || {
        let (code, body) = health(cluster, manager).await?;
        let reachable = body["config_store"]["reachable"] == wanted;
        if reachable && code == 200 { Ok(()) } else { Err(format!("{code}: {body}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn over_consul_sessions_open_everybody_is_registered_and_a_dead_manager_is_replaced() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &["--consul", "--nodes", "2"]).await;
    let mut addresses = Vec::new();
    for number in 0..9 {
        let session = opened(&cluster.client(), &format!("s{number}"), "counter").await;
        addresses.push(session.address);
    }
    until_instances(&cluster, "rota-node", &[("n1", true), ("n2", true)]).await;
    let all = [("1023", true), ("340", true), ("681", true)];
    until_instances(&cluster, "rota-manager", &all).await;
    let key = consul(&cluster, "/v1/kv/rota/state?raw").await.unwrap();
    assert_eq!(
        (key["view"]["m"].as_u64(), key["nodes"].as_array().map(Vec::len)),
        (Some(1024), Some(2))
    );

    cluster.kill_manager(1).await;
    for client in [cluster.client_of(0), cluster.client_of(2)] {
        for (number, address) in addresses.iter().enumerate() {
            let session = read(&client, &format!("s{number}")).await.unwrap();
            assert_eq!((session.state(), &session.address), (SessionState::Ready, address));
        }
        assert_eq!(open_outcome(&client, "s3").await, v1::Outcome::Existed);
    }
    let gone = [("1023", true), ("340", true), ("681", false)];
    until_instances(&cluster, "rota-manager", &gone).await;
    // Who ends in good order is taken out at once.
    processes::send(cluster.document.nodes[1].pid, Signal::TERM);
    until_instances(&cluster, "rota-node", &[("n1", true)]).await;
    processes::send(cluster.document.managers[2].pid, Signal::TERM);
    until_instances(&cluster, "rota-manager", &[("340", true), ("681", false)]).await;
    cluster.end().await;
}

async fn open_outcome(client: &rota_client::Client, id: &str) -> v1::Outcome {
    client.open(open(id, "counter"), CALL).await.unwrap().outcome()
}

/// Whether the call was refused for the sake of safety: nothing else is an answer here.
fn refused<T: std::fmt::Debug>(result: Result<T, CallError>) -> bool {
    match result {
        Ok(answer) => panic!("answered with {answer:?}"),
        Err(error) => ["NOT_SERVING", "DEADLINE_EXCEEDED", "CONFIG_STORE_AWAY", "IN_PROGRESS"]
            .contains(&error.reason()),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn while_consul_hangs_a_complete_ring_serves_and_nobody_takes_over() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &["--consul"]).await;
    let client = cluster.client();
    let first = cluster.document.managers[0].number;
    let mut before = opened(&client, "before", "counter").await;
    for number in 0.. {
        if before.owner == first {
            break;
        }
        before = opened(&client, &format!("before {number}"), "counter").await;
    }
    let id = before.id.as_str();
    let store = cluster.document.config_store.pid;
    processes::send(store, Signal::STOP);
    for manager in 0..3 {
        until_reachable(&cluster, manager, false).await;
    }
    for client in cluster.clients() {
        assert_eq!(read(&client, id).await.unwrap().address, before.address);
    }
    for number in 0..6 {
        let id = format!("meanwhile {number}");
        opened(&client, &id, "counter").await;
        assert!(client.close(close(&id), CALL).await.unwrap().finished);
    }
    // Now every partition lacks a copy, and nobody may say who is in.
    cluster.kill_manager(1).await;
    let short = Duration::from_secs(1);
    for manager in [0, 2] {
        let client = cluster.client_of(manager);
        let stale = v1::GetRequest { stale_ok: true, ..get(id) };
        let (opened, seen, stale) = tokio::join!(
            client.open(open("refused", "counter"), short),
            client.get(get(id), short),
            client.get(stale, CALL),
        );
        assert!(refused(opened) && refused(seen));
        let stale = stale.expect("its owner may show what it has").session.unwrap();
        assert_eq!(stale.life, before.life);
        until_reachable(&cluster, manager, false).await;
    }
    processes::send(store, Signal::CONT);
    for manager in [0, 2] {
        until_reachable(&cluster, manager, true).await;
        let client = cluster.client_of(manager);
        // Meanwhile nobody could renew the node's lease: if it took long, the session ended.
        let seen = read(&client, id).await.unwrap();
        assert_eq!(seen.life, before.life);
        assert!(seen.state() != SessionState::Ready || seen.address == before.address, "{seen:?}");
        opened(&client, &format!("after {manager}"), "counter").await;
    }
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_consul_hangs_nobody_joins_or_leaves_and_no_node_is_started_cordoned_or_drained() {
    let folder = TestFolder::new();
    // At a load limit of 0.8, a node of two places takes both.
    let options = ["--consul", "--places", "2", "--max-nodes", "2"];
    let cluster = Cluster::start(&folder, &options).await;
    let client = cluster.client();
    opened(&client, "one", "counter").await;
    opened(&client, "two", "counter").await;
    let newcomer = cluster.newcomer(&folder, "m4").await;
    let [contact, leaver, _] = &cluster.document.managers[..] else { panic!("three managers") };
    let store = cluster.document.config_store.pid;
    processes::send(store, Signal::STOP);
    for manager in 0..3 {
        until_reachable(&cluster, manager, false).await;
    }
    let number = leaver.number.to_string();
    let leave = ["leave", "--number", &number, "-o", "json"];
    let target = newcomer.told("grpc");
    let forced = ["join", "--force-lost", "--target", target, "--number", &number, "-o", "json"];
    let node = cluster.document.nodes[0].id.as_str();
    let (cordon, drain) =
        (["node", "cordon", node, "-o", "json"], ["node", "drain", node, "-o", "json"]);
    let (joined, forced, left, cordoned, drained, opening) = tokio::join!(
        join(&newcomer, "auto", &contact.grpc, &[]),
        cluster.ringctl(&forced),
        cluster.ringctl(&leave),
        cluster.ringctl(&cordon),
        cluster.ringctl(&drain),
        client.open(open("three", "counter"), Duration::from_secs(3)),
    );
    for ran in [joined, forced, left, cordoned, drained] {
        let error = ran.error();
        assert_eq!(error["reason"], "CONFIG_STORE_AWAY", "{error}");
    }
    let full = opening.expect_err("there is no room, and no node can be registered");
    assert!(
        ["NO_CAPACITY", "PROVISIONING", "DEADLINE_EXCEEDED"].contains(&full.reason()),
        "{full:?}"
    );
    let ring = ring(&contact.grpc).await.unwrap();
    assert!(ring["transition"].is_null(), "{ring}");
    assert_eq!(ring["managers"].as_array().map(Vec::len), Some(3), "{ring}");
    processes::send(store, Signal::CONT);
    opened(&client, "three", "counter").await;
    // What was asked of Consul last may be done when it goes on: then the leave has its turn first.
    eventually("the newcomer joins", PATIENCE, async || {
        let ran = join(&newcomer, "auto", &contact.grpc, &["--wait"]).await;
        if ran.code != 0 && ran.stderr.contains("the leave of number") {
            return Err(ran.stderr);
        }
        assert_eq!(ran.json()["state"], "finished");
        Ok(())
    })
    .await;
    cluster.end_with(vec![newcomer]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_consul_hangs_a_lone_manager_opens_closes_and_shows_only_what_may_be_stale() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &["--consul", "--managers", "1"]).await;
    let client = cluster.client();
    let life = opened(&client, "a", "counter").await.life;
    let store = cluster.document.config_store.pid;
    processes::send(store, Signal::STOP);
    // Whether it is the owner still, its node's fence decides; as long as the node has its lease.
    assert_eq!(open_outcome(&client, "b").await, v1::Outcome::Created);
    assert!(client.close(close("b"), CALL).await.unwrap().finished);
    until_reachable(&cluster, 0, false).await;
    let short = Duration::from_millis(500);
    // What is there may be closed by an owner of which this manager does not know. (At once: its node renews
    // no lease meanwhile.)
    let (seen, again) =
        tokio::join!(client.get(get("a"), short), client.open(open("a", "counter"), short));
    assert!(refused(seen) && refused(again));
    let stale = v1::GetRequest { stale_ok: true, ..get("a") };
    let seen = client.get(stale, CALL).await.unwrap();
    assert_eq!((seen.stale, seen.session.unwrap().life), (true, life));
    processes::send(store, Signal::CONT);
    until_reachable(&cluster, 0, true).await;
    assert_eq!(read(&client, "a").await.unwrap().life, life);
    assert_eq!(open_outcome(&client, "a").await, v1::Outcome::Existed);
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_over_consul_comes_back_from_its_folder() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &["--consul"]).await;
    let life = opened(&cluster.client(), "s", "counter").await.life;
    cluster.end().await;
    // The folder knows that it is Consul's; the ports are others.
    let cluster = Cluster::start(&folder, &[]).await;
    assert!(cluster.document.config_store.address.starts_with("consul://"));
    assert_eq!(read(&cluster.client(), "s").await.unwrap().life, life);
    opened(&cluster.client(), "t", "counter").await;
    cluster.end().await;
}

/// A Consul agent without a server of its own, with watches that ship.
pub struct Watching {
    agent: Child,
}

impl Watching {
    /// Joins it to the cluster's Consul. Its `ringctl` notes in `signals` what it says. `more` are
    /// variables of its environment.
    pub async fn start(
        folder: &TestFolder,
        cluster: &Cluster,
        watch: &str,
        more: &[(&str, String)],
    ) -> Self {
        let bin = folder.at("bin");
        std::fs::create_dir_all(&bin).unwrap();
        let script = format!(
            "#!/bin/sh\nexec >>{} 2>&1\nexec {} \"$@\"\n",
            folder.at("signals"),
            binary("ringctl").display()
        );
        let ringctl = format!("{bin}/ringctl");
        std::fs::write(&ringctl, script).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&ringctl, mode).unwrap();
        let members = consul(cluster, "/v1/agent/members").await.unwrap();
        let server = format!("127.0.0.1:{}", members[0]["Port"]);
        // An address of this test process alone: nobody else takes Consul's usual ports there.
        let pid = std::process::id();
        let ip = format!("127.99.{}.{}", pid / 254 % 254 + 1, pid % 254 + 1);
        let log = std::fs::File::create(folder.at("watching.log")).unwrap();
        let programs = binary("ringctl").parent().unwrap().display().to_string();
        let ours = checkout().join("deploy/consul").display().to_string();
        let path = format!("{bin}:{programs}:{ours}:{}", std::env::var("PATH").unwrap());
        let mut agent = Command::new("consul");
        agent.args(["agent", "-node", "watching", "-bind", &ip, "-join", &server]);
        agent.args(["-data-dir", &folder.at("watching")]);
        // The watch asks the agent's own HTTP.
        agent.args(["-client", &ip]);
        agent.args(["-dns-port", "-1", "-grpc-port", "-1"]);
        agent.arg("-config-file").arg(checkout().join("deploy/consul").join(watch));
        agent.envs(more.iter().map(|(name, value)| (name, value)));
        agent.env("PATH", path).env("ROTA_TEST_FOLDER", folder.path());
        agent.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let agent = agent.kill_on_drop(true).spawn().expect("run deploy/install-consul");
        Self { agent }
    }

    pub async fn end(mut self) {
        self.agent.start_kill().unwrap();
        self.agent.wait().await.unwrap();
    }
}

/// Waits until the handler of the watching agent has said that.
pub async fn signalled(folder: &TestFolder, wanted: impl Fn(&Value) -> bool) -> Value {
    eventually("the handler says it", PATIENCE, async || {
        let text = std::fs::read_to_string(folder.at("signals")).unwrap_or_default();
        let log = || std::fs::read_to_string(folder.at("watching.log")).unwrap_or_default();
        let lines: Vec<Value> =
            text.lines().filter_map(|it| serde_json::from_str(it).ok()).collect();
        let found = lines.into_iter().find(|it| wanted(it));
        found.ok_or_else(|| format!("{text}\n{}", log()))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_watch_that_ships_tells_the_other_managers_who_looks_gone() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &["--consul"]).await;
    let all = [("1023", true), ("340", true), ("681", true)];
    until_instances(&cluster, "rota-manager", &all).await;
    let watching = Watching::start(&folder, &cluster, "watch.hcl", &[]).await;
    signalled(&folder, |it| it["gone"] == serde_json::json!([])).await;
    cluster.kill_manager(1).await;
    let told = signalled(&folder, |it| it["gone"][0]["number"] == 681).await;
    assert_eq!(told["gone"].as_array().unwrap().len(), 1, "{told}");
    assert_eq!(told["told"].as_array().unwrap().len(), 2, "{told}");
    assert_eq!(told["failed"], serde_json::json!([]));
    opened(&cluster.client_of(0), "s", "counter").await;
    watching.end().await;
    cluster.end().await;
}

/// Runs `ringctl signal --from-consul` with this on stdin; gives exit code, stdout and stderr.
async fn signal(text: &str) -> (Option<i32>, String, String) {
    signal_with(text, &[]).await
}

/// The same with more options.
pub async fn signal_with(text: &str, more: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(binary("ringctl"));
    command.args(["signal", "--from-consul", "-o", "json"]).args(more).kill_on_drop(true);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // Who refuses its command line reads nothing, and may have ended by now.
    match child.stdin.take().unwrap().write_all(text.as_bytes()).await {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => panic!("{error}"),
        Ok(()) | Err(_) => {}
    }
    let ended = tokio::time::timeout(PATIENCE, child.wait_with_output()).await.unwrap().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (ended.status.code(), text(ended.stdout), text(ended.stderr))
}

fn instance(cluster: &str, number: u32, incarnation: u64, grpc: &str, status: &str) -> Value {
    let meta = serde_json::json!({
        "cluster": cluster, "id": format!("m{number}"), "number": number.to_string(),
        "incarnation": incarnation.to_string(), "grpc": grpc,
    });
    serde_json::json!({
        "Service": {"ID": format!("x-{number}"), "Meta": meta}, "Checks": [{"Status": status}],
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_about_a_manager_that_is_heard_changes_nothing_and_rubbish_tells_nobody() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let name = ringctl_cluster(&cluster).await;
    let managers = &cluster.document.managers;
    let epoch = health(&cluster, 0).await.unwrap().1["epoch"].clone();
    let lie = serde_json::json!([
        instance(&name, managers[0].number, 1, &managers[0].grpc, "passing"),
        instance(&name, managers[1].number, 1, &managers[1].grpc, "critical"),
        instance(&name, managers[2].number, 1, &managers[2].grpc, "passing"),
    ]);
    // An instance that is none of ours silences nothing.
    let mut with_stray = lie.as_array().unwrap().clone();
    with_stray.push(serde_json::json!({"Service": {"ID": "web-1"}, "Checks": []}));
    let with_stray = Value::from(with_stray);
    for _ in 0..3 {
        let (code, stdout, stderr) = signal(&with_stray.to_string()).await;
        assert_eq!(code, Some(0), "{stderr}");
        let told: Value = serde_json::from_str(&stdout).unwrap();
        assert!(told["strays"][0].as_str().unwrap().contains("web-1"), "{stdout}");
        let told = told["told"].as_array().unwrap();
        assert_eq!(told.iter().filter(|it| it["suspected"] == 1).count(), 2, "{stdout}");
    }
    // Who looks gone and is well is told of the others, too.
    let all = lie.to_string().replace("\"passing\"", "\"critical\"");
    let (code, stdout, stderr) = signal(&all).await;
    let told: Value = serde_json::from_str(&stdout).unwrap();
    let told: Vec<&Value> =
        told["told"].as_array().unwrap().iter().map(|it| &it["suspected"]).collect();
    assert_eq!((code, told), (Some(0), vec![&Value::from(2); 3]), "{stdout} {stderr}");
    assert_eq!(health(&cluster, 0).await.unwrap().1["epoch"], epoch, "nobody was taken out");

    let stranger = serde_json::json!([
        instance("other", managers[0].number, 1, &managers[0].grpc, "passing"),
        instance("other", managers[1].number, 1, &managers[1].grpc, "critical"),
    ]);
    let alone = serde_json::json!([instance(&name, 1, 1, "127.0.0.1:1", "critical")]);
    for (text, words) in [
        ("hello".to_owned(), "watch of type"),
        ("[{}]".to_owned(), "watch of type"),
        (stranger.to_string(), "could be told"),
        (alone.to_string(), "could be told"),
    ] {
        let (code, _, stderr) = signal(&text).await;
        assert_eq!(code, Some(1), "{text}");
        assert!(stderr.contains(words), "{stderr}");
    }
    let ran = ringctl("127.0.0.1:1", &["signal"]).await;
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("--from-consul"), "{}", ran.stderr);
    cluster.end().await;
}

async fn ringctl_cluster(cluster: &Cluster) -> String {
    let (_, body) = health(cluster, 0).await.unwrap();
    body["cluster"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn consul_takes_the_configuration_that_ships_as_one_folder() {
    let folder = checkout().join("deploy/consul");
    let checked = Command::new("consul").arg("validate").arg(&folder).output();
    let checked = tokio::time::timeout(PATIENCE, checked).await.expect("in time").unwrap();
    assert!(checked.status.success(), "{checked:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_program_dev_says_how_to_install_it() {
    let folder = TestFolder::new();
    let mut command = Command::new(binary("ringctl"));
    command.args(["dev", "--consul", "--port-base", "0", "--data", &folder.at("data")]);
    command.env("PATH", folder.path()).env_remove("ROTA_BIN_DIR").kill_on_drop(true);
    let ended = tokio::time::timeout(PATIENCE, command.output()).await.unwrap().unwrap();
    let stderr = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("deploy/install-consul"), "{stderr}");
    let left: Vec<Process> = processes::of_folder(folder.path());
    assert_eq!(left, vec![]);
}
