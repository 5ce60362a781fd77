//! `ringctl dev` itself: its document, and its end.

use rota_tests::processes::{Process, of_folder, send};
use rota_tests::sessions::opened;
use rota_tests::{Cluster, Launched, PATIENCE, TestFolder, eventually, ringctl, run_to_end};
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::net::TcpListener;
use std::time::Duration;
use tokio::time::timeout;

/// A cluster with everything that could be left behind: programs, and nodes that managers started.
async fn full(folder: &TestFolder) -> Cluster {
    let options = ["--nodes", "1", "--places", "2", "--max-nodes", "2"];
    let cluster = Cluster::start(folder, &options).await;
    for id in ["a", "b", "c"] {
        opened(&cluster.client(), id, "http").await;
    }
    let processes = cluster.processes();
    let agents = processes.iter().filter(|it| it.is_agent()).count();
    let keepers = processes.iter().filter(|it| it.is_keeper()).count();
    assert_eq!((agents, keepers), (2, 3), "{processes:?}");
    cluster
}

#[tokio::test(flavor = "multi_thread")]
async fn the_document_tells_every_process_and_each_of_them_runs() {
    let folder = TestFolder::new();
    let options = ["--managers", "4", "--replicas", "1", "--nodes", "2"];
    let cluster = Cluster::start(&folder, &options).await;
    let document = &cluster.document;
    assert!(document.ready);
    assert_eq!((document.managers.len(), document.nodes.len()), (4, 2));
    assert!(document.managers.is_sorted_by_key(|it| it.number));
    let mut pids: Vec<u32> = document.managers.iter().map(|it| it.pid).collect();
    pids.extend(document.nodes.iter().map(|it| it.pid));
    pids.push(document.config_store.pid);
    let running: Vec<u32> = cluster.processes().into_iter().map(|it| it.pid).collect();
    assert!(pids.iter().all(|pid| running.contains(pid)), "{pids:?} {running:?}");
    assert_eq!(document.data, folder.path().join("data"));
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_polite_end_leaves_no_process() {
    let folder = TestFolder::new();
    full(&folder).await.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_and_a_hang_up_end_everything_too() {
    for signal in [Signal::INT, Signal::HUP, Signal::QUIT, Signal::USR1] {
        let folder = TestFolder::new();
        let mut cluster = full(&folder).await;
        send(cluster.pid(), signal);
        let status = cluster.ends().await;
        assert!(status.success(), "{signal:?}: {status}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_ctrl_c_ends_at_once_and_still_leaves_nothing() {
    let folder = TestFolder::new();
    let mut cluster = full(&folder).await;
    send(cluster.pid(), Signal::INT);
    send(cluster.pid(), Signal::INT);
    cluster.ends().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_is_stopped_while_it_starts_leaves_nothing() {
    let folder = TestFolder::new();
    let mut dev = Cluster::spawn(&folder, &[]);
    eventually("a manager has been started", PATIENCE, async || {
        let managers = of_folder(folder.path());
        let any = managers.iter().any(|it| it.option("--number").is_some());
        if any { Ok(()) } else { Err(format!("{managers:?}")) }
    })
    .await;
    send(dev.id().unwrap(), Signal::TERM);
    timeout(PATIENCE, dev.wait()).await.expect("it ends").unwrap();
    assert_eq!(of_folder(folder.path()), vec![]);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_data_folder_nothing_is_left_on_disk_either() {
    let folder = TestFolder::new();
    let mut command = tokio::process::Command::new(rota_tests::binary("ringctl"));
    command.args(["dev", "-o", "json", "--port-base", "0"]).env("TMPDIR", folder.path());
    command.stdout(std::process::Stdio::piped()).kill_on_drop(true);
    let mut dev = command.spawn().unwrap();
    let mut lines = tokio::io::AsyncBufReadExt::lines(tokio::io::BufReader::new(
        dev.stdout.take().expect("stdout is piped"),
    ));
    let line = timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap().unwrap();
    let told: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(told["ready"], true, "{line}");
    let contact = told["managers"][0]["grpc"].as_str().unwrap();
    let shown = ringctl(contact, &["inspect", "-o", "json"]).await.json();
    assert_eq!(told["cluster"], shown["cluster"], "{line}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    send(dev.id().unwrap(), Signal::TERM);
    assert!(timeout(PATIENCE, dev.wait()).await.unwrap().unwrap().success());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    assert_eq!(of_folder(folder.path()), vec![]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_ringctl_outside_of_the_checkout_has_classes_of_its_own() {
    let folder = TestFolder::new();
    let copy = folder.path().join("ringctl");
    let programs = rota_tests::binary("ringctl");
    std::fs::copy(&programs, &copy).unwrap();
    let mut command = tokio::process::Command::new(&copy);
    command.args(["dev", "-o", "json", "--port-base", "0", "--data", &folder.at("data")]);
    command.env("ROTA_BIN_DIR", programs.parent().unwrap());
    command.stdout(std::process::Stdio::piped()).kill_on_drop(true);
    let mut dev = command.spawn().unwrap();
    let mut lines = tokio::io::AsyncBufReadExt::lines(tokio::io::BufReader::new(
        dev.stdout.take().expect("stdout is piped"),
    ));
    let line = timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap().unwrap();
    let told: serde_json::Value = serde_json::from_str(&line).unwrap();
    let contact = told["managers"][0]["grpc"].as_str().unwrap();
    let open = ringctl(contact, &["session", "open", "a", "--class", "counter", "-o", "json"]);
    assert_eq!(open.await.json()["outcome"], "CREATED");
    send(dev.id().unwrap(), Signal::TERM);
    assert!(timeout(PATIENCE, dev.wait()).await.unwrap().unwrap().success());
    assert_eq!(of_folder(folder.path()), vec![]);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_restarted_by_itself_and_the_rest_goes_on() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    cluster.kill_manager(1).await;
    opened(&cluster.client(), "a", "counter").await;
    let dead = ringctl(
        &cluster.document.managers[1].grpc,
        &["session", "get", "a", "--timeout", "500ms", "-o", "json"],
    );
    let error = dead.await.error();
    assert!(["UNREACHABLE", "TIMED_OUT"].contains(&error["reason"].as_str().unwrap()), "{error}");
    let managers = cluster.processes();
    let managers = managers.iter().filter(|it| it.option("--number").is_some()).count();
    assert_eq!(managers, 2);
    eventually("ringctl dev says which process ended", Duration::from_secs(10), async || {
        let log = std::fs::read_to_string(folder.at("dev.log")).unwrap_or_default();
        if log.contains("m2 (pid ") { Ok(()) } else { Err(log) }
    })
    .await;
    // With the line that it told the manager is started again; dev names it at its end, and leaves it.
    let log = || std::fs::read_to_string(folder.at("dev.log")).unwrap();
    let told = log();
    let line = told.lines().rfind(|it| it.contains("--id m2")).expect("a command line");
    let line: Vec<String> = line.trim().split(' ').map(str::to_owned).collect();
    let again = Launched::again(&folder, "m2-again", &line).await;
    let pid = again.pid();
    cluster.every_copy_is_in_sync().await;
    cluster.end_with(vec![again]).await;
    let goes_on = format!("rota-manager (pid {pid}) was not started here and goes on");
    assert!(log().contains(&goes_on), "{}", log());
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_that_another_agent_took_over_go_on_when_dev_ends() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &["--managers", "1", "--nodes", "1"]).await;
    opened(&cluster.client(), "web", "http").await;
    let agents: Vec<Process> = cluster.processes().into_iter().filter(Process::is_agent).collect();
    agents[0].signal(Signal::KILL);
    let line = eventually("dev tells what starts the agent again", PATIENCE, async || {
        let log = std::fs::read_to_string(folder.at("dev.log")).unwrap_or_default();
        let line = log.lines().rfind(|it| it.contains("rota-node-agent run"));
        line.map(|it| it.trim().split(' ').map(str::to_owned).collect::<Vec<_>>()).ok_or(log)
    })
    .await;
    let again = Launched::again(&folder, "n1-again", &line).await;
    let log = || std::fs::read_to_string(folder.at("n1-again.log")).unwrap();
    eventually("it took over what runs", PATIENCE, async || {
        let told = log();
        if told.contains("\"adopts\":1") || again.ready["adopts"] == 1 { Ok(()) } else { Err(told) }
    })
    .await;
    cluster.end_with(vec![again]).await;
    assert!(!log().contains("keeper was killed"), "{}", log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_data_folder_of_which_a_part_came_from_elsewhere_is_refused_with_what_to_do() {
    let folder = TestFolder::new();
    Cluster::start(&folder, &["--managers", "1"]).await.end().await;
    let data = folder.path().join("data");
    std::fs::remove_dir_all(data.join("store")).unwrap();
    let line = ["dev", "--data", &folder.at("data"), "--port-base", "0"];
    let remedy = ["m1 ended", "belongs together", "restore all of it", "another --data"];
    run_to_end("ringctl", &line).await.expect_refusal(1, &remedy);
    std::fs::remove_file(data.join("dev.json")).unwrap();
    let remedy = ["store has data", "no dev.json", "another --data"];
    run_to_end("ringctl", &line).await.expect_refusal(1, &remedy);
    assert_eq!(of_folder(folder.path()), vec![]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_dev_left_running_is_named_before_another_begins_in_its_folder() {
    let folder = TestFolder::new();
    let cluster = full(&folder).await;
    let (dev, endpoints) = (cluster.pid(), cluster.endpoints());
    let left = cluster.processes().into_iter().filter(|it| it.pid != dev && !it.is_keeper());
    let left: Vec<Process> = left.filter(|it| it.option("--data").is_some()).collect();
    assert_eq!(left.len(), 6, "a store, three managers, two node-agents: {left:?}");
    cluster.crash(|it| it.pid == dev).await;
    let ended = run_to_end("ringctl", &["dev", "--data", &folder.at("data")]).await;
    let named = left.iter().all(|it| ended.stderr.contains(&format!("(pid {})", it.pid)));
    // The commands that it tells end them, the nodes first, and nothing stands in the way any more.
    let commands = ended.stderr.lines().filter_map(|it| it.strip_prefix("  kill "));
    let told = commands.map(|it| it.split(' ').map(|pid| pid.parse().unwrap()).collect());
    let told: Vec<BTreeSet<u32>> = told.collect();
    let (agents, others): (Vec<&Process>, Vec<&Process>) =
        left.iter().partition(|it| it.is_agent());
    let pids = |these: &[&Process]| these.iter().map(|it| it.pid).collect::<BTreeSet<u32>>();
    let expected = [pids(&agents), pids(&others)];
    agents.iter().for_each(|it| it.signal(Signal::TERM));
    let signed_off = eventually("the nodes have signed off", PATIENCE, async || {
        let running = agents.iter().filter(|it| it.runs()).count();
        let ring = ringctl(&endpoints, &["inspect", "-o", "json"]).await.json();
        let nodes = ring["nodes"].as_array().unwrap();
        let gone = nodes.iter().filter(|it| it["state"] == "REMOVED").count();
        if (running, gone) == (0, 2) { Ok(()) } else { Err(format!("{running} run; {ring}")) }
    });
    signed_off.await;
    others.iter().for_each(|it| it.signal(Signal::TERM));
    eventually("they end", PATIENCE, async || {
        let left = of_folder(folder.path());
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
    ended.expect_refusal(1, &["no `ringctl dev` looks after", &folder.at("data")]);
    assert!(named && !ended.stderr.contains("goes on in"), "{}", ended.stderr);
    assert_eq!(told, expected);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let line = ["dev", "--data", &folder.at("data"), "--port-base", &port];
    run_to_end("ringctl", &line)
        .await
        .expect_refusal(1, &["is another `ringctl dev` running", "--port-base"]);
}
