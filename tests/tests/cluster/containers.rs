//! Nodes that are containers of a real engine.

use rota_client::Client;
use rota_daemon::Log;
use rota_model::{ClusterName, LoadLimit, NewNodes, NodeId, PoolName, ProvisionerName};
use rota_provision::docker::{Containers, DockerOptions};
use rota_provision::{ClusterOptions, NewNode, NodeTimes, OldNode, Provision};
use rota_tests::sessions::{CALL, close, open, opened};
use rota_tests::small::Small;
use rota_tests::{
    Engine, PATIENCE, TestFolder, classes_of, eventually, http_get, ringctl, skipped,
};
use serde_json::Value;
use std::time::Duration;

const AGENT: &str = "rota-node-agent:test";

/// A web server in a container, which says whose it is.
const WEB: &str = "name = \"web\"\nkind = \"program\"\n\
    argv = [\"sh\", \"-c\", \"echo $ROTA_SESSION > index.html; exec httpd -f -p {ip}:{port}\"]\n\
    ready = { port = true }\nstart_timeout = \"10s\"\ngrace = \"2s\"\n";

const COUNTER: &str = include_str!("../../../deploy/classes/counter.toml");

/// An agent that begins when there is a file of its name.
const UNTIL_TOLD: &str = "trap 'exit 0' TERM; last=; for it; do [ \"$last\" = --id ] && id=$it; last=$it; done; \
    while [ ! -e \"/go/$id\" ]; do sleep 0.1; done; exec rota-entry \"$@\"";

/// A manager whose pool has provisioner `box`: that image, with the classes of these tests. The engine's containers
/// reach it, unless later options say otherwise.
async fn manager(engine: &Engine, folder: &TestFolder, image: &str, more: &[&str]) -> Small {
    let classes = classes_of(folder, &[("web", WEB), ("counter", COUNTER)]);
    let (grpc, image) = (format!("{}:0", engine.gateway()), format!("box={image}"));
    let (socket, mount) = (engine.socket(), format!("box={classes}:/classes:ro"));
    let line = ["--managers-max", "3", "--grpc", &grpc, "--insecure-bind"];
    let docker = ["--provision-docker", &image, "--provision-docker-socket", &socket];
    let small = [&line[..], &docker, &["--provision-docker-mount", &mount], more].concat();
    let small = Small::with(&small).await;
    let create = ["pool", "create", "default", "--provisioner", "box", "--places", "1"];
    let create = [&create[..], &["--max-nodes", "4", "--scale-in-delay", "1s"]].concat();
    ringctl(small.first.told("grpc"), &create).await.expect_success();
    small
}

async fn pool(small: &Small) -> Value {
    ringctl(small.first.told("grpc"), &["pool", "show", "default", "-o", "json"]).await.json()
}

/// Waits until a node was ordered, and its container runs.
async fn is_ordered(engine: &Engine, small: &Small, node: &str) {
    eventually(&format!("{node} is ordered"), PATIENCE, async || {
        let (shown, runs) = (pool(small).await, engine.containers());
        let ordered = shown["ordered"].to_string().contains(node);
        let runs = runs.contains(&format!("rota-c-{node}"));
        if ordered && runs { Ok(()) } else { Err(shown.to_string()) }
    })
    .await;
}

async fn no_containers(engine: &Engine) {
    eventually("no container is left", PATIENCE, async || {
        let left = engine.containers();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
}

/// Ends all, and fails when anything is left.
async fn end(engine: Engine, small: Small) {
    no_containers(&engine).await;
    small.end(Vec::new()).await;
    engine.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_runs_in_a_container_that_is_removed_when_its_pool_shrinks() {
    if let Some(why) = Engine::impossible() {
        return skipped("a_session_runs_in_a_container_that_is_removed_when_its_pool_shrinks", why);
    }
    let (engine, folder) = (Engine::start(), TestFolder::new());
    engine.agent(AGENT);
    let small = manager(&engine, &folder, AGENT, &[]).await;
    let client = Client::connect(small.first.told("grpc")).expect("an address");
    let session = opened(&client, "a", "web").await;
    assert_eq!(session.node_id, "default-1-0");
    assert!(session.address.starts_with(&engine.prefix()), "{}", session.address);
    let page = http_get(&session.address, "/").await.expect("the session answers");
    assert_eq!(page.body.trim(), "a");
    assert_eq!(engine.containers(), ["rota-c-default-1-0"]);
    let labels = ["ps", "--filter", "label=rota.cluster=c", "--filter", "label=rota.pool=default"];
    let listed = engine.docker(&[&labels[..], &["--format", "{{.Image}}"]].concat());
    assert_eq!(listed.trim(), AGENT);
    client.close(close("a"), CALL).await.expect("it runs");
    no_containers(&engine).await;
    // A node that has ended is not started again: the pool orders another one.
    assert_eq!(opened(&client, "b", "counter").await.node_id, "default-2-0");
    client.close(close("b"), CALL).await.expect("it runs");
    end(engine, small).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_is_absent_or_ends_at_once_is_told_and_leaves_no_container() {
    if let Some(why) = Engine::impossible() {
        return skipped(
            "an_image_that_is_absent_or_ends_at_once_is_told_and_leaves_no_container",
            why,
        );
    }
    let (engine, folder) = (Engine::start(), TestFolder::new());
    engine.script("broken:test", &engine.base(), "echo no disk for this one; exit 3");
    let more = ["--provision-docker", "absent=no-such-image:1"];
    let small = manager(&engine, &folder, "broken:test", &more).await;
    let client = Client::connect(small.first.told("grpc")).expect("an address");
    let error = client.open(open("a", "counter"), Duration::from_secs(5)).await.unwrap_err();
    let told = error.to_string();
    let parts = ["image broken:test", "ended at once with code 3", "no disk for this one"];
    assert!(parts.iter().all(|it| told.contains(it)), "{told}");
    no_containers(&engine).await;
    let other = ["pool", "set", "default", "--provisioner", "absent"];
    ringctl(small.first.told("grpc"), &other).await.expect_success();
    // The order is repeated for the open that asks.
    eventually("the absent image is told", PATIENCE, async || {
        let _ = client.open(open("b", "counter"), Duration::from_secs(2)).await;
        let shown = pool(&small).await;
        let failure = shown["failure"].as_str().unwrap_or_default();
        let told = ["no-such-image:1", "never pulled", "docker pull no-such-image:1"];
        if told.iter().all(|it| failure.contains(it)) { Ok(()) } else { Err(shown.to_string()) }
    })
    .await;
    end(engine, small).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_never_registers_is_removed_and_one_that_comes_late_is_used() {
    if let Some(why) = Engine::impossible() {
        return skipped(
            "a_container_that_never_registers_is_removed_and_one_that_comes_late_is_used",
            why,
        );
    }
    let (engine, folder) = (Engine::start(), TestFolder::new());
    engine.agent(AGENT);
    engine.script("waits:test", AGENT, UNTIL_TOLD);
    let go = folder.at("go");
    std::fs::create_dir(&go).expect("the test's folder takes it");
    let begins = |node: &str| std::fs::write(format!("{go}/{node}"), "").expect("it is our own");
    let mount = format!("box={go}:/go:ro");
    let more = ["--provision-docker-mount", &mount, "--provision-ms", "1500"];
    let small = manager(&engine, &folder, "waits:test", &more).await;
    let client = Client::connect(small.first.told("grpc")).expect("an address");
    begins("default-2-0");
    assert_eq!(opened(&client, "a", "web").await.node_id, "default-2-0");
    let late = tokio::spawn({
        let client = Client::connect(small.first.told("grpc")).expect("an address");
        async move { opened(&client, "b", "counter").await }
    });
    // One that is overdue counts no more, and another one is ordered.
    is_ordered(&engine, &small, "default-4-0").await;
    begins("default-3-0");
    assert_eq!(late.await.expect("it is opened").node_id, "default-3-0");
    eventually("only what came is left", PATIENCE, async || {
        let left = engine.containers();
        let came = ["rota-c-default-3-0", "rota-c-default-2-0"];
        if left == came { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
    for id in ["a", "b"] {
        client.close(close(id), CALL).await.expect("it runs");
    }
    end(engine, small).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_the_machines_own_network_managers_on_loopback_are_reached_and_in_another_one_they_say_so()
 {
    if let Some(why) = Engine::impossible() {
        return skipped(
            "in_the_machines_own_network_managers_on_loopback_are_reached_and_in_another_one_they_say_so",
            why,
        );
    }
    let (engine, folder) = (Engine::start(), TestFolder::new());
    engine.agent(AGENT);
    let own = format!("own={AGENT}");
    let own = ["--provision-docker", &own, "--provision-docker-network", "own=host"];
    let classes = folder.at("classes");
    let mount = format!("own={classes}:/classes:ro");
    std::fs::create_dir(&classes).expect("the test's folder takes it");
    let more = ["--grpc", "127.0.0.1:0", "--provision-docker-mount", &mount];
    let small = manager(&engine, &folder, AGENT, &[&own[..], &more].concat()).await;
    let client = Client::connect(small.first.told("grpc")).expect("an address");
    let error = client.open(open("a", "web"), Duration::from_secs(3)).await.unwrap_err();
    let told = error.to_string();
    assert!(told.contains("no container in network bridge reaches"), "{told}");
    let other = ["pool", "set", "default", "--provisioner", "own"];
    ringctl(small.first.told("grpc"), &other).await.expect_success();
    let session = opened(&client, "a", "web").await;
    assert!(session.address.starts_with("127.0.0.1:"), "{}", session.address);
    let page = http_get(&session.address, "/").await.expect("the session answers");
    assert_eq!(page.body.trim(), "a");
    client.close(close("a"), CALL).await.expect("it runs");
    end(engine, small).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_is_built_on_what_the_engine_has_and_nothing_is_pulled() {
    if let Some(why) = Engine::impossible() {
        let name = "an_image_is_built_on_what_the_engine_has_and_nothing_is_pulled";
        return skipped(name, why);
    }
    let engine = Engine::start();
    let told = engine.build(AGENT, "no-such-base:1").unwrap_err();
    assert!(told.contains("no base image no-such-base:1: have `docker pull"), "{told}");
    let told = engine.build("--help-me", "no-such-base:1").unwrap_err();
    assert!(told.contains("usage: deploy/docker/build"), "{told}");
    assert_eq!(engine.docker(&["images", "--quiet"]), "");
    engine.end();
}

fn new_node() -> NewNode {
    NewNode {
        node: NodeId::parse("small-1-0").unwrap(),
        new: NewNodes {
            pool: PoolName::parse("small").unwrap(),
            provisioner: ProvisionerName::parse("box").unwrap(),
            places: 5,
            labels: Default::default(),
            cpu_millis: 100,
            memory_mib: 64,
            load_limit: LoadLimit::parse(0.8).unwrap(),
        },
        managers: vec!["192.0.2.9:7100".to_owned()],
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_and_an_end_that_come_again_find_what_was_done() {
    if let Some(why) = Engine::impossible() {
        return skipped("a_start_and_an_end_that_come_again_find_what_was_done", why);
    }
    let engine = Engine::start();
    engine.script("waits:test", &engine.base(), "trap 'exit 0' TERM; while :; do sleep 0.1; done");
    let options = DockerOptions {
        socket: engine.socket().into(),
        image: "waits:test".to_owned(),
        network: "bridge".to_owned(),
        mounts: Vec::new(),
    };
    let cluster = ClusterOptions {
        cluster: ClusterName::parse("c").unwrap(),
        consul: None,
        times: NodeTimes { renew_ms: 1, lease_term_ms: 2, lease_kill_ms: 3 },
        log: Log::text("info").unwrap(),
    };
    let it = Containers { options, cluster };
    let id = || engine.docker(&["ps", "--all", "--quiet"]);
    // Two managers ask at once, and one asks again.
    let (first, second) = tokio::join!(it.start(new_node()), it.start(new_node()));
    assert_eq!((first, second), (Ok(()), Ok(())));
    let before = id();
    assert_eq!(it.start(new_node()).await, Ok(()));
    assert_eq!((id(), engine.containers().len()), (before, 1));
    let old = || OldNode { node: new_node().node, pool: new_node().new.pool };
    let other = OldNode { node: NodeId::parse("small-1-1").unwrap(), pool: old().pool };
    it.end(other).await.unwrap();
    assert_eq!(engine.containers(), ["rota-c-small-1-0"]);
    // It has ended, and is not started a second time.
    engine.docker(&["stop", "rota-c-small-1-0"]);
    let told = it.start(new_node()).await.unwrap_err();
    assert!(told.contains("has ended with code 0, and a node is started once"), "{told}");
    assert_eq!((it.end(old()).await, it.end(old()).await), (Ok(()), Ok(())));
    // What somebody else has under that name is nobody's to end.
    engine.docker(&["create", "--name", "rota-c-small-1-0", "waits:test"]);
    let told = it.start(new_node()).await.unwrap_err();
    assert!(told.contains("is not this node's"), "{told}");
    it.end(old()).await.unwrap();
    assert_eq!(engine.containers(), ["rota-c-small-1-0"]);
    engine.docker(&["rm", "rota-c-small-1-0"]);
    engine.end();
}
