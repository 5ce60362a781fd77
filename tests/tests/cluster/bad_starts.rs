//! Processes that must refuse to start: each names what is wrong, and nothing is touched.

use rota_tests::sessions::opened;
use rota_tests::{
    Cluster, Ended, Launched, PATIENCE, TestFolder, binary, checkout, eventually, http_get,
    run_to_end,
};
use serde_json::Value;
use std::net::TcpListener;
use std::path::Path;

fn owned(line: &[&str]) -> Vec<String> {
    line.iter().map(|it| (*it).to_owned()).collect()
}

fn store_line(data: &str, cluster: &str) -> Vec<String> {
    owned(&["--data", data, "--cluster", cluster])
}

/// A manager of the ring 100=a, 400=b.
fn manager_line(store: &str, data: &str, number: &str, id: &str, cluster: &str) -> Vec<String> {
    owned(&[
        "--data",
        data,
        "--number",
        number,
        "--id",
        id,
        "--config-store",
        store,
        "--cluster",
        cluster,
        "--ring",
        "100=a,400=b",
        "--replicas",
        "1",
    ])
}

fn agent_line(data: &str, id: &str, cluster: &str) -> Vec<String> {
    owned(&["run", "--id", id, "--data", data, "--cluster", cluster, "--managers", "127.0.0.1:1"])
}

async fn store(folder: &TestFolder, name: &str, cluster: &str) -> Launched {
    let line = store_line(&folder.at(name), cluster);
    Launched::start(folder, name, "rota-config-store", &line).await
}

/// A manager that fails to start.
async fn manager_fails(line: &[String]) -> Ended {
    run_to_end("rota-manager", line).await
}

/// Everything below a folder, by path and content, but for locks: they hold nothing.
fn content(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(next) = open.pop() {
        for entry in std::fs::read_dir(&next).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                open.push(path);
            } else if !path.to_string_lossy().to_lowercase().ends_with("lock") {
                files.push((path.display().to_string(), std::fs::read(&path).unwrap()));
            }
        }
    }
    files.sort();
    files
}

#[tokio::test]
async fn wrong_flags_are_all_listed_and_end_with_code_2() {
    let folder = TestFolder::new();
    let mut line = manager_line("nowhere", &folder.at("m"), "4000", "", "c");
    line.extend(owned(&["--grpc", "x", "--load-limit", "2", "--suspect-ms", "9999"]));
    let times = "--suspect-ms is 9999 ms; 2 times that must be below --lease-term-ms (8000 ms)";
    let parts = ["--config-store", "--number", "1023", "--id", "--grpc", "--load-limit", times];
    run_to_end("rota-manager", &line).await.expect_refusal(2, &parts);
    let mut line = agent_line(&folder.at("n"), "\n", "c");
    line.extend(owned(&["--places", "0", "--lease-kill", "1s", "--load-limit", "7"]));
    let parts = ["--id", "--places", "below --lease-kill (1000 ms)", "--load-limit"];
    run_to_end("rota-node-agent", &line).await.expect_refusal(2, &parts);
    let line = owned(&["--data", &folder.at("s"), "--listen", "nowhere"]);
    run_to_end("rota-config-store", &line).await.expect_refusal(2, &["--listen", "nowhere"]);
    for name in ["m", "n", "s"] {
        assert!(
            !folder.path().join(name).exists(),
            "{name}: nothing is made before all is checked"
        );
    }
}

#[tokio::test]
async fn listening_for_other_machines_needs_a_flag_that_says_insecure() {
    let folder = TestFolder::new();
    let outside = ["--insecure-bind"];
    let mut line = manager_line("127.0.0.1:1", &folder.at("m"), "100", "a", "c");
    line.extend(owned(&["--grpc", "192.0.2.1:0"]));
    run_to_end("rota-manager", &line).await.expect_refusal(2, &outside);
    let mut line = agent_line(&folder.at("n"), "n1", "c");
    line.extend(owned(&["--listen", "192.0.2.1:0"]));
    run_to_end("rota-node-agent", &line).await.expect_refusal(2, &outside);
    let line = owned(&["--data", &folder.at("s"), "--listen", "192.0.2.1:0"]);
    run_to_end("rota-config-store", &line).await.expect_refusal(2, &outside);
    let line = ["bench-echo", "--listen", "192.0.2.1:0"];
    run_to_end("ringctl", &line).await.expect_refusal(2, &["--listen", "--insecure-bind"]);
}

/// A folder with wrong class files, and what must be said of them.
fn malformed_classes(folder: &TestFolder) -> (String, [&'static str; 7]) {
    let classes = folder.path().join("classes");
    std::fs::create_dir(&classes).unwrap();
    let write = |name: &str, text: &str| std::fs::write(classes.join(name), text).unwrap();
    write(
        "a.toml",
        "name = \"a\"\nkind = \"machine\"\nstates = [\"x\"]\ninitial = \"y\"\nodd = 1\n",
    );
    write("b.toml", "name = \"b\"\nkind = \"program\"\nargv = []\n");
    write("c.toml", "this is not TOML");
    let twice = "name = \"t\"\nkind = \"machine\"\nstates = [\"x\"]\ninitial = \"x\"\n";
    write("d.toml", twice);
    write("e.toml", twice);
    let parts = ["a.toml", "initial", "odd", "b.toml", "argv", "c.toml", "e.toml"];
    (folder.at("classes"), parts)
}

#[tokio::test]
async fn malformed_class_files_are_refused_with_every_mistake_before_anything_is_there() {
    let folder = TestFolder::new();
    let (classes, parts) = malformed_classes(&folder);
    let mut line = agent_line(&folder.at("n"), "n1", "c");
    line.extend(owned(&["--classes", &classes]));
    run_to_end("rota-node-agent", &line).await.expect_refusal(2, &parts);
    let line = ["check", "--classes", &classes];
    run_to_end("rota-node-agent", &line).await.expect_refusal(2, &parts);
    // Also where nobody would read them before a pool grows.
    for nodes in [&["--nodes", "1"][..], &["--nodes", "0", "--max-nodes", "2"]] {
        let line = ["dev", "--port-base", "0", "--data", &folder.at("dev"), "--classes", &classes];
        run_to_end("ringctl", &[&line[..], nodes].concat()).await.expect_refusal(2, &parts);
    }
    let store = store(&folder, "store", "c").await;
    let mut line = manager_line(store.told("address"), &folder.at("m"), "100", "a", "c");
    let agent = binary("rota-node-agent").display().to_string();
    line.extend(owned(&["--process-agent", &agent, "--process-data", &folder.at("pool")]));
    line.extend(owned(&["--process-classes", &classes]));
    manager_fails(&line).await.expect_refusal(2, &parts);
    for name in ["n", "m", "dev/dev.json", "dev/store", "pool"] {
        assert!(!folder.path().join(name).exists(), "{name}");
    }
    store.end().await;
}

#[tokio::test]
async fn a_port_in_use_is_named_by_whoever_wants_it() {
    let folder = TestFolder::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let store = store(&folder, "store", "c").await;
    for flag in ["--grpc", "--http"] {
        let mut line = manager_line(store.told("address"), &folder.at("m"), "100", "a", "c");
        line.extend(owned(&[flag, &address]));
        manager_fails(&line).await.expect_refusal(1, &[flag, &address]);
    }
    let mut line = agent_line(&folder.at("n"), "n1", "c");
    line.extend(owned(&["--listen", &address]));
    run_to_end("rota-node-agent", &line).await.expect_refusal(1, &[&address]);
    let line = owned(&["--data", &folder.at("s"), "--listen", &address]);
    run_to_end("rota-config-store", &line).await.expect_refusal(1, &["--listen", &address]);
    let port = address.rsplit(':').next().unwrap();
    let line = owned(&["dev", "--data", &folder.at("dev"), "--port-base", port]);
    let parts = ["port-base", port];
    run_to_end("ringctl", &line).await.expect_refusal(1, &parts);
    for name in ["m", "n", "s", "dev"] {
        assert!(!folder.path().join(name).exists(), "{name}: the port comes before the folder");
    }
    assert_eq!(store.end().await, Some(0));
}

#[tokio::test]
async fn a_data_folder_with_too_long_a_name_is_refused_with_the_limit() {
    let folder = TestFolder::new();
    let data = format!("{}{}", folder.at("d"), "/d".repeat(2_000));
    let parts = ["--data is", "bytes long", "the limit is 3072"];
    let line = manager_line("127.0.0.1:1", &data, "100", "a", "c");
    manager_fails(&line).await.expect_refusal(2, &parts);
    let line = agent_line(&data, "n1", "c");
    run_to_end("rota-node-agent", &line).await.expect_refusal(2, &parts);
    run_to_end("rota-config-store", &store_line(&data, "c")).await.expect_refusal(2, &parts);
    let line = owned(&["dev", "--data", &data, "--port-base", "0"]);
    run_to_end("ringctl", &line).await.expect_refusal(2, &parts);
    assert!(!folder.path().join("d").exists());
}

/// Fails unless a start was refused with this code, these words, and nothing but JSON on stderr.
async fn refused_in_json(program: &str, line: &[String], code: i32, parts: &[&str]) {
    let line = [line, &owned(&["--log-format", "json"])].concat();
    let ended = run_to_end(program, &line).await;
    ended.expect_refusal(code, parts);
    for line in ended.stderr.lines() {
        let line: Value =
            serde_json::from_str(line).unwrap_or_else(|_| panic!("{program}: {line}"));
        assert!(line["message"].is_string() && line["level"].is_string(), "{line}");
    }
}

#[tokio::test]
async fn a_process_whose_log_is_json_says_in_json_why_it_does_not_start() {
    let folder = TestFolder::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let manager = manager_line("127.0.0.1:1", &folder.at("m"), "100", "a", "c");
    let agent = agent_line(&folder.at("n"), "n1", "c");
    let store = store_line(&folder.at("s"), "c");
    for (program, line, listen) in [
        ("rota-manager", manager, "--grpc"),
        ("rota-node-agent", agent, "--listen"),
        ("rota-config-store", store, "--listen"),
    ] {
        let in_use = [&line[..], &owned(&[listen, &address])].concat();
        refused_in_json(program, &in_use, 1, &[&address]).await;
        let outside = [&line[..], &owned(&[listen, "192.0.2.1:0", "--log", "=,="])].concat();
        refused_in_json(program, &outside, 2, &["--insecure-bind", "--log"]).await;
    }
}

#[tokio::test]
async fn two_managers_cannot_hold_one_number() {
    let folder = TestFolder::new();
    let store = store(&folder, "store", "c").await;
    let address = store.told("address").to_owned();
    let line = manager_line(&address, &folder.at("a"), "100", "a", "c");
    let mut first = Launched::start(&folder, "a", "rota-manager", &line).await;
    eventually("the first holds its number", PATIENCE, async || {
        let page = http_get(first.told("http"), "/healthz").await?;
        let health: Value = serde_json::from_str(&page.body).map_err(|it| it.to_string())?;
        if health["claimed"] == true { Ok(()) } else { Err(page.body) }
    })
    .await;
    for (id, data) in [("other", "a2"), ("a", "a3")] {
        let line = manager_line(&address, &folder.at(data), "100", id, "c");
        manager_fails(&line).await.expect_refusal(1, &["100"]);
    }
    let line = manager_line(&address, &folder.at("x"), "500", "x", "c");
    manager_fails(&line).await.expect_refusal(1, &["500"]);
    for refused in ["a2", "a3", "x"] {
        assert!(!folder.path().join(refused).exists(), "{refused}: nothing was begun");
    }
    let line = manager_line(&address, &folder.at("a"), "100", "a", "c");
    let same_folder = manager_fails(&line).await;
    same_folder.expect_refusal(1, &["in use", &folder.at("a")]);
    assert!(first.runs(), "the one that holds the number goes on");
    let line = manager_line(&address, &folder.at("a2"), "400", "b", "c");
    let second = Launched::start(&folder, "a2", "rota-manager", &line).await;
    assert_eq!(second.end().await, Some(0), "a refused start takes the right number at once");
    assert_eq!(first.end().await, Some(0));
    assert_eq!(store.end().await, Some(0));
}

#[tokio::test]
async fn a_manager_with_other_lease_times_or_another_limit_of_managers_does_not_come_in() {
    let folder = TestFolder::new();
    let store = store(&folder, "store", "c").await;
    let address = store.told("address").to_owned();
    let line = manager_line(&address, &folder.at("a"), "100", "a", "c");
    let first = Launched::start(&folder, "a", "rota-manager", &line).await;
    let line = manager_line(&address, &folder.at("b"), "400", "b", "c");
    let other = ["--managers-max", "1", "--renew-ms", "300", "--lease-term-ms", "2100"];
    let later = ["--lease-kill-ms", "2600", "--node-lost-ms", "3400"];
    let different = [&line[..], &owned(&other), &owned(&later)].concat();
    let parts = [
        "--managers-max is 1, but the View has 100",
        "--renew-ms is 300, but the View has 3000",
        "--lease-term-ms is 2100, but the View has 8000",
        "--lease-kill-ms is 2600, but the View has 12000",
        "--node-lost-ms is 3400, but the View has 20000",
    ];
    manager_fails(&different).await.expect_refusal(1, &parts);
    assert!(!folder.path().join("b").exists(), "nothing was begun");
    let second = Launched::start(&folder, "b", "rota-manager", &line).await;
    assert_eq!(second.end().await, Some(0), "with the cluster's times it comes in");
    assert_eq!(first.end().await, Some(0));
    assert_eq!(store.end().await, Some(0));
}

#[tokio::test]
async fn a_node_that_no_manager_takes_in_says_whom_it_asks_and_what_to_check() {
    let folder = TestFolder::new();
    let line = agent_line(&folder.at("n1"), "n1", "c");
    let node = Launched::start(&folder, "n1", "rota-node-agent", &line).await;
    let log = eventually("its log says so", PATIENCE, async || {
        let log = std::fs::read_to_string(&node.log).unwrap();
        if log.contains("no manager takes this node in") { Ok(log) } else { Err(log) }
    })
    .await;
    let said: Vec<&str> = log.lines().filter(|it| it.contains("no manager takes")).collect();
    assert_eq!(said.len(), 1, "{log}");
    for part in
        ["WARN", "asked=\"127.0.0.1:1\"", "managers of cluster c", "--managers", "127.0.0.1:1: "]
    {
        assert!(said[0].contains(part), "{part} is not in {said:?}");
    }
    assert_eq!(node.end().await, Some(0));
}

/// A node-agent that a manager does not let in.
async fn node_fails(manager: &Launched, data: &str, cluster: &str, more: &[&str]) -> Ended {
    let mut line = agent_line(data, "n1", cluster);
    line.pop();
    line.push(manager.told("grpc").to_owned());
    line.extend(owned(more));
    let ended = run_to_end("rota-node-agent", &line).await;
    assert!(!ended.stdout.contains("registered"), "{}", ended.stdout);
    ended
}

#[tokio::test]
async fn a_node_whose_programs_may_outlive_the_verdict_of_managers_is_refused_and_ends() {
    let folder = TestFolder::new();
    let store = store(&folder, "store", "c").await;
    let line = manager_line(store.told("address"), &folder.at("a"), "100", "a", "c");
    let manager = Launched::start(&folder, "a", "rota-manager", &line).await;
    let lease = ["--lease-term", "100s", "--lease-kill", "200s"];
    let ended = node_fails(&manager, &folder.at("n"), "c", &lease).await;
    ended.expect_refusal(1, &["lease_kill_ms", "200000 ms", "node_lost_ms", "20000 ms"]);
    assert_eq!(manager.end().await, Some(0));
    assert_eq!(store.end().await, Some(0));
}

#[tokio::test]
async fn an_agent_of_another_cluster_is_refused_and_says_why() {
    let folder = TestFolder::new();
    let store = store(&folder, "store", "c").await;
    let line = manager_line(store.told("address"), &folder.at("a"), "100", "a", "c");
    let manager = Launched::start(&folder, "a", "rota-manager", &line).await;
    let ended = node_fails(&manager, &folder.at("n"), "other", &[]).await;
    let address = manager.told("grpc");
    ended.expect_refusal(1, &[address, "RegisterRequest.cluster", "\"other\"", "\"c\""]);
    assert_eq!(manager.end().await, Some(0));
    assert_eq!(store.end().await, Some(0));
}

#[tokio::test]
async fn a_managers_folder_of_another_manager_cluster_or_format_is_refused_and_not_touched() {
    let folder = TestFolder::new();
    let (mine, other) = (store(&folder, "store", "c").await, store(&folder, "store2", "d").await);
    let (mine_at, other_at) = (mine.told("address").to_owned(), other.told("address").to_owned());
    let line = manager_line(&mine_at, &folder.at("a"), "100", "a", "c");
    let first = Launched::start(&folder, "a", "rota-manager", &line).await;
    let at = folder.at("a");
    let joins = |store: &str, id: &str, cluster: &str| {
        let line = ["--join", "--id", id, "--data", &at, "--config-store", store];
        owned(&[&line[..], &["--cluster", cluster]].concat())
    };
    manager_fails(&joins(&mine_at, "a", "c")).await.expect_refusal(1, &[&at, "in use"]);
    assert_eq!(first.end().await, Some(0));
    let before = content(&folder.path().join("a"));
    let parts = [at.as_str(), "manager a", "manager b"];
    let line = manager_line(&mine_at, &at, "400", "b", "c");
    manager_fails(&line).await.expect_refusal(1, &parts);
    // Who waits outside is told at once, and not when an operator has it join.
    manager_fails(&joins(&mine_at, "b", "c")).await.expect_refusal(1, &parts);
    let parts = [at.as_str(), "cluster c", "cluster d"];
    manager_fails(&joins(&other_at, "a", "d")).await.expect_refusal(1, &parts);
    let line = manager_line(&other_at, &folder.at("a"), "100", "a", "d");
    manager_fails(&line).await.expect_refusal(1, &[&folder.at("a"), "cluster c", "cluster d"]);
    let line = manager_line(&other_at, &folder.at("new"), "100", "a", "c");
    manager_fails(&line).await.expect_refusal(1, &["cluster"]);
    assert_eq!(content(&folder.path().join("a")), before);
    let owner = folder.path().join("a/OWNER");
    let text = std::fs::read_to_string(&owner).unwrap();
    std::fs::write(&owner, text.replace("format 6", "format 77")).unwrap();
    let line = manager_line(&mine_at, &folder.at("a"), "100", "a", "c");
    manager_fails(&line).await.expect_refusal(1, &["OWNER"]);
    std::fs::write(&owner, text).unwrap();
    let again = Launched::start(&folder, "a", "rota-manager", &line).await;
    assert_eq!(again.end().await, Some(0), "with its own folder it starts as before");
    assert_eq!((mine.end().await, other.end().await), (Some(0), Some(0)));
}

#[tokio::test]
async fn a_nodes_folder_of_another_node_cluster_or_format_is_refused_and_not_touched() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    opened(&cluster.client(), "a", "http").await;
    let data = cluster.document.data.join("nodes/n1").display().to_string();
    let name = {
        let text = std::fs::read(cluster.document.data.join("dev.json")).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&text).unwrap();
        json["cluster"].as_str().unwrap().to_owned()
    };
    let line = agent_line(&data, "n1", &name);
    run_to_end("rota-node-agent", &line).await.expect_refusal(1, &["another node-agent", &data]);
    cluster.end().await;
    let before = content(Path::new(&data));
    let refused = async |id: &str, cluster: &str, parts: &[&str]| {
        let line = agent_line(&data, id, cluster);
        run_to_end("rota-node-agent", &line).await.expect_refusal(1, parts);
    };
    refused("n2", &name, &[&data, "n1", "n2"]).await;
    refused("n1", "other", &[&data, "other", &name]).await;
    assert_eq!(content(Path::new(&data)), before);
    let file = Path::new(&data).join("node.json");
    let text = std::fs::read_to_string(&file).unwrap();
    let mut json: serde_json::Value = serde_json::from_str(&text).unwrap();
    json["format"] = 77.into();
    std::fs::write(&file, json.to_string()).unwrap();
    refused("n1", &name, &["77"]).await;
}

#[tokio::test]
async fn a_config_stores_folder_of_another_cluster_or_in_use_is_refused() {
    let folder = TestFolder::new();
    let first = store(&folder, "store", "c").await;
    let line = store_line(&folder.at("store"), "c");
    run_to_end("rota-config-store", &line).await.expect_refusal(1, &[&folder.at("store")]);
    assert_eq!(first.end().await, Some(0));
    let before = content(&folder.path().join("store"));
    let line = store_line(&folder.at("store"), "d");
    run_to_end("rota-config-store", &line).await.expect_refusal(1, &[&folder.at("store")]);
    assert_eq!(content(&folder.path().join("store")), before);
}

#[tokio::test]
async fn a_folder_of_another_program_is_refused_also_while_that_one_runs_and_not_touched() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    opened(&cluster.client(), "a", "http").await;
    let store = store(&folder, "store", "c").await;
    let store_at = store.told("address").to_owned();
    let other = folder.path().join("other");
    std::fs::create_dir(&other).unwrap();
    std::fs::write(other.join("notes.txt"), "mine").unwrap();
    let data = &cluster.document.data;
    let (node, manager) = (data.join("nodes/n1"), data.join("managers/m1"));
    let names = |path: &Path| {
        let names = std::fs::read_dir(path).unwrap().flatten().map(|it| it.file_name());
        names.collect::<std::collections::BTreeSet<_>>()
    };
    for used in [&node, &folder.path().join("store"), &other] {
        let before = names(used);
        let at = used.display().to_string();
        let parts = [at.as_str(), "holds", "no OWNER", "an empty one"];
        let line = manager_line(&store_at, &at, "100", "a", "c");
        manager_fails(&line).await.expect_refusal(1, &parts);
        let line = ["--join", "--id", "x", "--data", &at, "--config-store", &store_at];
        let line = owned(&[&line[..], &["--cluster", "c"]].concat());
        manager_fails(&line).await.expect_refusal(1, &parts);
        assert_eq!(names(used), before, "{at}");
    }
    for used in [&node, &manager, &other] {
        let before = names(used);
        let line = store_line(&used.display().to_string(), "c");
        let parts = [used.to_str().unwrap(), "holds", "no config-store.log", "an empty one"];
        run_to_end("rota-config-store", &line).await.expect_refusal(1, &parts);
        assert_eq!(names(used), before, "{}", used.display());
    }
    let line = manager_line(&store_at, &folder.at("a"), "100", "a", "c");
    let first = Launched::start(&folder, "a", "rota-manager", &line).await;
    assert_eq!(first.end().await, Some(0), "the number was not taken by those that were refused");
    assert_eq!(store.end().await, Some(0));
    cluster.end().await;
}

#[tokio::test]
async fn a_dev_folder_of_another_shape_format_or_in_use_is_refused() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let data = folder.at("data");
    let classes = checkout().join("deploy/classes").display().to_string();
    let dev = async |more: &[&str]| {
        let line = ["dev", "--port-base", "0", "--data", &data, "--classes", &classes];
        run_to_end("ringctl", &[&line[..], more].concat()).await
    };
    dev(&[]).await.expect_refusal(1, &[&data, "another"]);
    cluster.end().await;
    let other = dev(&["--managers", "5", "--replicas", "1", "--slots", "64"]).await;
    other.expect_refusal(1, &["--managers is 5", "--replicas is 1", "--slots is 64"]);
    let file = folder.path().join("data/dev.json");
    let text = std::fs::read_to_string(&file).unwrap();
    let mut json: serde_json::Value = serde_json::from_str(&text).unwrap();
    json["format"] = 77.into();
    std::fs::write(&file, json.to_string()).unwrap();
    dev(&[]).await.expect_refusal(1, &["format 77"]);
    std::fs::write(&file, text).unwrap();
    Cluster::start(&folder, &[]).await.end().await;
}

#[tokio::test]
async fn a_cluster_whose_config_store_lost_its_data_says_that_and_nothing_of_earlier_runs() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    opened(&cluster.client(), "a", "http").await;
    cluster.end().await;
    std::fs::remove_dir_all(folder.path().join("data/store")).unwrap();
    let line = ["dev", "--port-base", "0", "--data", &folder.at("data"), "-o", "json"];
    let ended = run_to_end("ringctl", &line).await;
    ended.expect_refusal(1, &["ended with exit code 1 before it was ready: ", "--number"]);
    let message = &ended.stderr;
    let cause = message.find("the config store is new, or its data is an old copy").unwrap();
    assert!(message.find("before that, in").is_none_or(|it| cause < it), "{message}");
    let stops = message.matches("this manager stops").count();
    assert_eq!(stops, 0, "the end of the earlier run is no part of it: {message}");
}
