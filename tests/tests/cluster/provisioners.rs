//! Nodes that a program starts for a pool, and the programs that are shipped.

use rota_client::Client;
use rota_tests::processes::{Process, of_folder};
use rota_tests::sessions::{CALL, close, open, opened};
use rota_tests::small::{Small, refused, ring};
use rota_tests::{
    PATIENCE, Ran, TestFolder, binary, checkout, eventually, http_get, ringctl, run_to_end,
};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

fn shipped(path: &str) -> PathBuf {
    checkout().join("deploy").join(path)
}

/// A manager whose pools may name provisioner `test`, which is that script.
async fn with_program(folder: &TestFolder, text: &str) -> Small {
    let command = format!("test={}", folder.script("program", text));
    Small::with(&["--managers-max", "3", "--provision-command", &command]).await
}

async fn at(small: &Small, arguments: &[&str]) -> Ran {
    ringctl(small.first.told("grpc"), arguments).await
}

async fn describe(small: &Small, more: &[&str]) {
    let create = ["pool", "create", "default", "--provisioner", "test", "--places", "2"];
    at(small, &[&create[..], &["--max-nodes", "3"], more].concat()).await.expect_success();
}

async fn states(small: &Small) -> Vec<(String, String)> {
    let ring = ring(small.first.told("grpc")).await.expect("the manager answers");
    let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
    let nodes = ring["nodes"].as_array().cloned().unwrap_or_default();
    nodes.iter().map(|it| (text(&it["id"]), text(&it["state"]))).collect()
}

/// What the shipped program for processes is told where things are.
fn settings(nodes: &str) -> String {
    let (agent, classes) = (binary("rota-node-agent"), shipped("classes"));
    let (agent, classes) = (agent.display(), classes.display());
    format!("export ROTA_AGENT='{agent}' ROTA_DATA='{nodes}' ROTA_CLASSES='{classes}'")
}

fn local() -> String {
    shipped("provisioners/local").display().to_string()
}

fn agents(nodes: &str) -> Vec<Process> {
    of_folder(Path::new(nodes)).into_iter().filter(Process::is_agent).collect()
}

/// No agent of the folder runs, and the program has cleared away all of its nodes.
async fn nothing_is_left(nodes: &str) {
    eventually("nothing is left of the nodes", PATIENCE, async || {
        let left = std::fs::read_dir(nodes).map(Iterator::count).unwrap_or_default();
        let agents = agents(nodes).len();
        if left + agents == 0 { Ok(()) } else { Err(format!("{left} folders, {agents} agents")) }
    })
    .await;
}

/// Waits until a node has that state.
async fn is(small: &Small, node: &str, state: &str) {
    eventually(&format!("{node} is {state}"), PATIENCE, async || {
        let states = states(small).await;
        let is_it = states.iter().any(|it| it.0 == node && it.1 == state);
        if is_it { Ok(()) } else { Err(format!("{states:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_comes_after_it_was_given_up_is_ended_and_not_leaked() {
    let folder = TestFolder::new();
    let (nodes, go, asked) = (folder.at("nodes"), folder.at("go"), folder.at("asked"));
    // The first node starts when the test says so, or not at all.
    let text = format!(
        "{}\nrequest=$(cat); echo \"$request\" >> '{asked}'\n\
         run() {{ echo \"$request\" | '{local}'; }}\n\
         late() {{ for i in $(seq 600); do if [ -e '{go}' ]; then run; exit; fi; sleep 0.1; done; }}\n\
         case $request in\n\
         *'\"start\"'*default-1-0*|*default-1-0*'\"start\"'*) late &\n\
           echo '{{\"ok\": true}}' ;;\n\
         *) run ;;\n\
         esac",
        settings(&nodes),
        local = local(),
    );
    let command = format!("test={}", folder.script("program", &text));
    let more = ["--managers-max", "3", "--provision-command", &command, "--provision-ms", "2000"];
    let small = Small::with(&more).await;
    describe(&small, &["--scale-in-delay", "1s"]).await;
    let client = Client::connect(small.first.told("grpc")).expect("an address");
    let session = opened(&client, "a", "counter").await;
    assert_ne!(session.node_id, "default-1-0", "that one has not come");
    eventually("the first node is given up", PATIENCE, async || {
        let asked = std::fs::read_to_string(&asked).unwrap_or_default();
        let ends = |it: &str| it.contains("\"end\"") && it.contains("default-1-0");
        if asked.lines().any(ends) { Ok(()) } else { Err(asked) }
    })
    .await;
    std::fs::write(&go, "").expect("the test's folder takes it");
    // It serves for a moment, is not needed, and ends.
    is(&small, "default-1-0", "REMOVED").await;
    client.close(close("a"), CALL).await.expect("it runs");
    nothing_is_left(&nodes).await;
    small.end(Vec::new()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_whose_nodes_end_again_and_again_waits_and_says_so() {
    let folder = TestFolder::new();
    let nodes = folder.at("nodes");
    let done = folder.at("done");
    let text = format!(
        "{}\nrequest=$(cat); echo \"$request\" | '{}'\n\
         case $request in *'\"start\"'*) echo done >> '{done}' ;; esac",
        settings(&nodes),
        local(),
    );
    let small = with_program(&folder, &text).await;
    describe(&small, &[]).await;
    let starts = || std::fs::read_to_string(&done).unwrap_or_default().lines().count();
    let client = Client::connect(small.first.told("grpc")).expect("an address");
    for (before, node) in ["default-1-0", "default-2-0"].into_iter().enumerate() {
        assert_eq!(opened(&client, node, "counter").await.node_id, node);
        eventually("the program is done with it", PATIENCE, async || {
            if starts() > before { Ok(()) } else { Err(format!("{} starts", starts())) }
        })
        .await;
        agents(&nodes).first().expect("it runs").signal(Signal::TERM);
        is(&small, node, "REMOVED").await;
    }
    let told = "nodes of the last 2 orders ended within a minute of their coming, node default-2-0";
    let error = client.open(open("a", "counter"), Duration::from_secs(2)).await.unwrap_err();
    assert!(error.to_string().contains(told), "{error:?}");
    let shown = at(&small, &["pool", "show", "default", "-o", "json"]).await.json();
    assert!(shown["failure"].as_str().unwrap_or_default().contains(told), "{shown}");
    // Somebody mended it, and says so.
    at(&small, &["pool", "set", "default", "--places", "3"]).await.expect_success();
    assert_eq!(opened(&client, "b", "counter").await.node_id, "default-3-0");
    at(&small, &["pool", "set", "default", "--scale-in-delay", "1s"]).await.expect_success();
    client.close(close("b"), CALL).await.expect("it runs");
    nothing_is_left(&nodes).await;
    small.end(Vec::new()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_shipped_program_starts_nodes_as_processes_and_clears_away_those_that_have_ended() {
    let folder = TestFolder::new();
    let nodes = folder.at("nodes");
    let text = format!("{}\nexec '{}'", settings(&nodes), local());
    let small = with_program(&folder, &text).await;
    describe(&small, &["--scale-in-delay", "1s"]).await;
    let client = Client::connect(small.first.told("grpc")).expect("an address");
    let session = opened(&client, "a", "counter").await;
    assert_eq!(session.node_id, "default-1-0");
    let agents = || agents(&nodes).len();
    assert_eq!(agents(), 1);
    client.close(close("a"), CALL).await.expect("it runs");
    eventually("the node ends, and its folder goes", PATIENCE, async || {
        let left = std::fs::read_dir(&nodes).map(Iterator::count).unwrap_or_default();
        let states = states(&small).await;
        let removed = states == [("default-1-0".to_owned(), "REMOVED".to_owned())];
        if removed && left == 0 && agents() == 0 {
            Ok(())
        } else {
            Err(format!("{states:?}, {left} folders, {} agents", agents()))
        }
    })
    .await;
    assert_eq!(opened(&client, "a", "counter").await.node_id, "default-2-0");
    client.close(close("a"), CALL).await.expect("it runs");
    eventually("the second one ends, too", PATIENCE, async || {
        if agents() == 0 { Ok(()) } else { Err(format!("{} agents", agents())) }
    })
    .await;
    small.end(Vec::new()).await;
}

/// Operators see how many sessions wait for a node that does not come.
async fn who_waits_is_counted(small: &Small, client: &Client) {
    let (asking, asked) = (client.clone(), open("waits", "counter"));
    let waits = tokio::spawn(async move { asking.open(asked, PATIENCE).await });
    eventually("it is counted", PATIENCE, async || {
        let verified = at(small, &["verify", "-o", "json"]).await.json();
        let explained = at(small, &["explain", "waits", "-o", "json"]).await.json();
        let counted = (&verified["sessions_waiting"], &explained["partition"]["waiting"]);
        let one = json!({"default": 1});
        let page = http_get(small.first.told("http"), "/metrics").await.expect("it serves");
        let told = page.body.lines().any(|it| it == "rota_pool_waiting{pool=\"default\"} 1");
        if counted == (&one, &one) && told { Ok(()) } else { Err(format!("{counted:?} {told}")) }
    })
    .await;
    let verified = at(small, &["verify"]).await.expect_success().stdout;
    assert!(verified.starts_with("waiting for a node: 1 in pool default\n"), "{verified}");
    let explained = at(small, &["explain", "waits"]).await.expect_success().stdout;
    assert!(explained.contains("for a node: 1 in pool default\n"), "{explained}");
    assert!(!waits.is_finished());
    waits.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_is_told_what_the_program_says_when_it_starts_nothing() {
    let folder = TestFolder::new();
    let text = "echo '{\"ok\": false, \"message\": \"no quota\"}'";
    let small = with_program(&folder, text).await;
    describe(&small, &[]).await;
    let client = Client::connect(small.first.told("grpc")).expect("an address");
    let error = client.open(open("a", "counter"), Duration::from_secs(3)).await.unwrap_err();
    assert!(error.to_string().contains("no quota"), "{error:?}");
    let shown = at(&small, &["pool", "show", "default", "-o", "json"]).await.json();
    let failure = shown["failure"].as_str().unwrap_or_default();
    assert!(failure.contains("for node default-1-0") && failure.contains("no quota"), "{shown}");
    who_waits_is_counted(&small, &client).await;
    let unknown = ["pool", "set", "default", "--provisioner", "cloud"];
    at(&small, &unknown).await.expect_success();
    let shown = at(&small, &["pool", "show", "default", "-o", "json"]).await.json();
    let warning = shown["warning"].as_str().unwrap_or_default();
    assert!(
        warning.contains("no provisioner \"cloud\"") && warning.contains("it has test"),
        "{shown}"
    );
    refused(at(&small, &["node", "replace", "n1", "-o", "json"]).await, &["is not registered"]);
    small.end(Vec::new()).await;
}

/// Runs a shipped program with a stand-in for the command that it calls, which writes down what it is given. Gives
/// the answer, and that.
async fn asked(
    program: &str,
    tool: &str,
    variables: &[(&str, &str)],
    ask: &Value,
) -> (Value, String) {
    let folder = TestFolder::new();
    let log = folder.at("asked");
    folder.script(tool, &format!("echo \"$@\" >> '{log}'; cat >> '{log}'"));
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new(shipped("provisioners").join(program));
    command.env("PATH", path).envs(variables.iter().copied());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().expect("it is executable");
    let mut stdin = child.stdin.take().expect("it is piped");
    stdin.write_all(ask.to_string().as_bytes()).await.expect("it reads");
    drop(stdin);
    let output = tokio::time::timeout(PATIENCE, child.wait_with_output()).await;
    let output = output.expect("it ends").expect("it is waited for");
    let answer = serde_json::from_slice(&output.stdout).expect("an answer");
    (answer, std::fs::read_to_string(&log).unwrap_or_default())
}

fn ask(action: &str) -> Value {
    json!({"action": action, "request_id": "c/small-1-0/start", "cluster": "c", "pool": "small",
        "node": "small-1-0", "managers": ["10.0.0.1:7100"], "consul": null, "places": 5,
        "load_limit": 0.8, "labels": {"zone": "a"}, "cpu_millis": 500, "memory_mib": 64,
        "renew_ms": 2000, "lease_term_ms": 8000, "lease_kill_ms": 12000})
}

/// What follows the first line.
fn manifest(asked: &str) -> Value {
    let (_, text) = asked.split_once('\n').expect("a line of arguments");
    serde_json::from_str(text).expect("JSON")
}

// There is no cluster of Kubernetes or Nomad here: what the programs would give to its command is looked at.
#[tokio::test(flavor = "multi_thread")]
async fn the_program_for_kubernetes_applies_a_pod_that_is_never_restarted_and_deletes_it() {
    let variables = [
        ("ROTA_IMAGE", "agent:1"),
        ("ROTA_KUBE_NAMESPACE", "rota"),
        ("ROTA_CLASSES_CONFIGMAP", "m"),
    ];
    let (answer, given) = asked("kubernetes", "kubectl", &variables, &ask("start")).await;
    assert_eq!(answer["ok"], true, "{answer}");
    assert!(
        given.starts_with("--namespace rota --request-timeout 30s apply --filename -\n"),
        "{given}"
    );
    let pod = manifest(&given);
    assert_eq!((&pod["kind"], &pod["metadata"]["name"]), (&json!("Pod"), &json!("c-small-1-0")));
    assert_eq!(pod["spec"]["restartPolicy"], "Never");
    let container = &pod["spec"]["containers"][0];
    assert_eq!(container["image"], "agent:1");
    assert_eq!(container["resources"]["limits"], json!({"cpu": "500m", "memory": "64Mi"}));
    understood(&container["args"]).await;
    let (answer, given) = asked("kubernetes", "kubectl", &variables, &ask("end")).await;
    assert_eq!(answer["ok"], true, "{answer}");
    assert!(given.contains("delete pod c-small-1-0 --ignore-not-found"), "{given}");
    let (answer, given) = asked("kubernetes", "kubectl", &variables[1..], &ask("start")).await;
    assert_eq!((&answer["message"], given.as_str()), (&json!("ROTA_IMAGE is not set"), ""));
    let large = json!({"node": "Small_1", "cluster": "c", "action": "end"});
    let (answer, _) = asked("kubernetes", "kubectl", &variables, &large).await;
    assert!(answer["message"].to_string().contains("no name of a pod"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_program_for_nomad_runs_a_job_that_is_never_restarted_and_stops_it() {
    let variables = [("ROTA_AGENT", "/usr/bin/rota-node-agent"), ("ROTA_CLASSES", "/etc/classes")];
    let (answer, given) = asked("nomad", "nomad", &variables, &ask("start")).await;
    assert_eq!(answer["ok"], true, "{answer}");
    assert!(given.starts_with("job run -detach -json -\n"), "{given}");
    let job = &manifest(&given)["Job"];
    assert_eq!((&job["ID"], &job["Type"]), (&json!("rota-c-small-1-0-node"), &json!("batch")));
    let group = &job["TaskGroups"][0];
    assert_eq!(group["RestartPolicy"]["Attempts"], 0);
    understood(&group["Tasks"][0]["Config"]["args"]).await;
    let (answer, given) = asked("nomad", "nomad", &variables, &ask("end")).await;
    assert_eq!(answer["ok"], true, "{answer}");
    assert!(given.starts_with("job stop -detach -purge -yes rota-c-small-1-0-node\n"), "{given}");
}

/// The node-agent knows each of these flags, and has nothing against them but that there is no such folder.
async fn understood(arguments: &Value) {
    let words = arguments.as_array().cloned().unwrap_or_default();
    let word = |it: &Value| it.as_str().unwrap_or_default().to_owned();
    let known =
        |it: String| it.replace("$(POD_IP)", "10.0.0.9").replace("${NOMAD_IP_grpc}", "10.0.0.9");
    let folder = TestFolder::new();
    let line: Vec<String> = words
        .iter()
        .map(word)
        .map(known)
        .map(|it| it.replace("${NOMAD_PORT_grpc}", "7500"))
        .map(|it| if it.contains("/data") { folder.at("data") } else { it })
        .map(|it| if it.contains("/classes") { folder.at("no-classes") } else { it })
        .collect();
    let ended = run_to_end("rota-node-agent", &line).await;
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains("no-classes"), "{}", ended.stderr);
    assert!(!ended.stderr.contains("unexpected argument"), "{}", ended.stderr);
}
