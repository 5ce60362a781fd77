//! What an agent does with downloads that end early, that its disk has no room for, and whose content it follows no
//! more.

use rota_tests::brief::Brief;
use rota_tests::sessions::{CALL, open};
use rota_tests::{Launched, PATIENCE, TestFolder, classes_of, eventually, ringctl};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

/// Of a file that takes a while.
const LARGE_BYTES: usize = 96 * 1024 * 1024;
/// After so much of it the agent is killed.
const KILLED_AFTER: u64 = 4 * 1024 * 1024;

async fn run(brief: &Brief, line: &[&str]) -> Value {
    ringctl(brief.endpoint(), &[line, &["-o", "json"]].concat()).await.json()
}

async fn publish(brief: &Brief, root: &Path, repository: &str) -> String {
    let root = root.to_str().expect("it is text");
    let line = ["content", "publish", root, "--repository", repository];
    run(brief, &line).await["commit"].as_str().expect("it is text").to_owned()
}

/// What the only node tells of its content, as soon as it is so.
async fn node_with(brief: &Brief, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    eventually(what, PATIENCE, async || {
        let status = run(brief, &["content", "status"]).await;
        let node = &status["nodes"][0];
        if is_so(node) { Ok(node.clone()) } else { Err(status.to_string()) }
    })
    .await
}

/// A file that nothing makes smaller.
fn write_noise(path: &Path, seed: u64) {
    let (mut bytes, mut state) = (Vec::with_capacity(LARGE_BYTES), seed);
    while bytes.len() < LARGE_BYTES {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        bytes.extend_from_slice(&state.to_be_bytes());
    }
    fs::write(path, bytes).expect("it can be written");
}

/// Bytes of files that are not whole.
fn partial_bytes(coming: &Path) -> u64 {
    let entries = fs::read_dir(coming).into_iter().flatten().flatten();
    entries.filter_map(|it| it.metadata().ok()).map(|it| it.len()).sum()
}

/// A number that the log has told of the last download.
fn logged(log: &Path, name: &str) -> Option<u64> {
    let text = fs::read_to_string(log).expect("there is a log");
    let line = text.lines().rfind(|it| it.contains("a fileset of content has come"))?;
    let (_, rest) = line.rsplit_once(name)?;
    let digits: String = rest
        .chars()
        .skip_while(|it| !it.is_ascii_digit())
        .take_while(char::is_ascii_digit)
        .collect();
    digits.parse().ok()
}

/// Managers, a folder to publish, and how an agent is started beside them.
struct Scene {
    brief: Brief,
    line: Vec<String>,
    /// What is published.
    root: PathBuf,
    /// The agent's data.
    node: PathBuf,
    folder: TestFolder,
}

impl Scene {
    async fn new() -> Self {
        let folder = TestFolder::new();
        let brief = Brief::start(&folder).await;
        let classes = classes_of(&folder, &[]);
        let line = brief.agent(&folder, &classes, "node");
        let (root, node) = (folder.path().join("content"), folder.path().join("node"));
        fs::create_dir_all(&root).expect("it can be made");
        Self { brief, line, root, node, folder }
    }

    /// Starts the agent. The name is that of its log.
    async fn agent(&self, name: &str) -> Launched {
        Launched::start(&self.folder, name, "rota-node-agent", &self.line).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_is_killed_within_a_large_file_fetches_only_the_rest_of_it() {
    let scene = Scene::new().await;
    let Scene { brief, root, node, .. } = &scene;
    let coming = node.join("content/main/cache/coming");
    let mut seed = 0;
    let (commit, kept) = loop {
        seed += 1;
        assert!(seed < 6, "every file came whole before the agent was killed");
        write_noise(&root.join("large"), seed);
        let commit = publish(brief, root, "main").await;
        run(brief, &["content", "follow", "main"]).await;
        let agent = scene.agent("agent").await;
        let versions = node.join("content/main/versions");
        eventually("a part has come, or everything", PATIENCE, async || {
            let names = fs::read_dir(&versions).into_iter().flatten().flatten();
            let mut names = names.map(|it| it.file_name().to_string_lossy().into_owned());
            let is_whole = names.any(|it| it.starts_with(&commit));
            let bytes = partial_bytes(&coming);
            if is_whole || bytes >= KILLED_AFTER { Ok(()) } else { Err(format!("{bytes} bytes")) }
        })
        .await;
        agent.kill().await;
        let kept = partial_bytes(&coming);
        if kept > 0 && kept < LARGE_BYTES as u64 {
            break (commit, kept);
        }
    };
    let agent = scene.agent("again").await;
    node_with(brief, "the node has the commit", |node| {
        node["state"] == "current" && node["commit"] == *commit
    })
    .await;
    assert_eq!(logged(&agent.log, "came_earlier"), Some(kept));
    assert_eq!(logged(&agent.log, "bytes"), Some(LARGE_BYTES as u64 - kept));
    let has = fs::read(node.join("content/main/current/large")).expect("it is there");
    assert!(has == fs::read(root.join("large")).expect("it was written"));
    assert_eq!(partial_bytes(&coming), 0);
    agent.end().await;
    scene.brief.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn content_that_the_disk_has_no_room_for_is_not_downloaded_and_operators_see_why() {
    let scene = Scene::new().await;
    let Scene { brief, root, node, .. } = &scene;
    fs::write(root.join("readme"), "12345").expect("it can be written");
    let commit = publish(brief, root, "main").await;
    run(brief, &["content", "follow", "main"]).await;
    let reserve = (1_u64 << 50).to_string();
    let low = [&scene.line[..], &["--disk-reserve-bytes".to_owned(), reserve.clone()]].concat();
    let agent = Launched::start(&scene.folder, "agent", "rota-node-agent", &low).await;
    let told = node_with(brief, "the refresh fails", |it| it["state"] == "failed").await;
    let why = told["failure"].as_str().expect("it is told");
    let place = node.join("content/main/cache");
    let place = place.to_str().expect("it is text");
    for part in ["5 bytes are to come", place, &format!("--disk-reserve-bytes is {reserve}")] {
        assert!(why.contains(part), "{why}");
    }
    agent.end().await;
    let agent = scene.agent("agent").await;
    node_with(brief, "there is room", |it| it["state"] == "current" && it["commit"] == *commit)
        .await;
    agent.end().await;
    scene.brief.end().await;
}

/// A class whose program runs until it is told to end.
const SLEEPER: &str = r#"
name = "sleeper"
kind = "program"
argv = ["sh", "-c", "echo up; exec sleep 1000"]
ready = { line = "up" }
"#;

#[tokio::test(flavor = "multi_thread")]
async fn content_that_is_followed_no_more_is_removed_when_no_session_has_it() {
    let scene = Scene::new().await;
    let Scene { brief, root, node, .. } = &scene;
    fs::write(root.join("sleeper.toml"), SLEEPER).expect("it can be written");
    for repository in ["main", "other"] {
        publish(brief, root, repository).await;
    }
    run(brief, &["content", "follow", "main"]).await;
    let agent = scene.agent("agent").await;
    brief.opened("s", "sleeper").await;
    run(brief, &["content", "follow", "other"]).await;
    node_with(brief, "it follows the other", |node| {
        node["repository"] == "other" && node["state"] == "current"
    })
    .await;
    run(brief, &["content", "unfollow"]).await;
    let is_nothing = |it: &Value| it["state"] == "nothing" && it["commit"].as_str() == Some("");
    node_with(brief, "it follows nothing", is_nothing).await;
    let [main, other] = ["main", "other"].map(|it| node.join("content").join(it));
    assert!(!other.join("current").exists(), "the next agent would begin with it");
    eventually("what no session has is removed", PATIENCE, async || {
        if other.exists() { Err("it is there".to_owned()) } else { Ok(()) }
    })
    .await;
    let versions = fs::read_dir(main.join("versions")).expect("a session has one").count();
    assert_eq!(versions, 1);
    run(brief, &["session", "close", "s"]).await;
    eventually("the session has ended, and the rest is removed", PATIENCE, async || {
        let left = fs::read_dir(node.join("content")).expect("it is there").count();
        if left == 0 { Ok(()) } else { Err(format!("{left} are there")) }
    })
    .await;
    let refused = brief.client.open(open("t", "sleeper"), CALL).await;
    assert!(refused.is_err(), "nobody offers it: {refused:?}");
    agent.end().await;
    scene.brief.end().await;
}

/// A machine with these states, of which the first event leads to the second state.
fn machine(states: [&str; 2]) -> String {
    let [from, to] = states;
    format!(
        "name = \"mill\"\nkind = \"machine\"\nstates = [\"{from}\", \"{to}\"]\ninitial = \"{from}\"\n\
         events = [\"turn\"]\ntransitions = [{{ from = \"{from}\", event = \"turn\", to = \"{to}\" }}]\n"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_keeps_the_version_that_it_began_with_when_its_agent_is_killed() {
    let scene = Scene::new().await;
    let Scene { brief, root, node, .. } = &scene;
    fs::write(root.join("mill.toml"), machine(["still", "turned"])).expect("it can be written");
    publish(brief, root, "main").await;
    run(brief, &["content", "follow", "main"]).await;
    let agent = scene.agent("agent").await;
    let opened = brief.opened("m", "mill").await;
    fs::write(root.join("mill.toml"), machine(["idle", "busy"])).expect("it can be written");
    let commit = publish(brief, root, "main").await;
    let is_there = |it: &Value| it["state"] == "current" && it["commit"] == *commit;
    node_with(brief, "the node has the second version", is_there).await;
    agent.kill().await;
    let agent = scene.agent("again").await;
    let turned = eventually("the machine goes on", PATIENCE, async || {
        let ran = ringctl(brief.endpoint(), &["session", "send", "m", "turn", "-o", "json"]).await;
        if ran.code == 0 { Ok(ran.json()) } else { Err(ran.stderr) }
    })
    .await;
    assert_eq!((&turned["from"], &turned["to"]), (&json!("still"), &json!("turned")), "{turned}");
    let session = run(brief, &["session", "get", "m"]).await;
    assert_eq!(session["life"], json!(opened.life), "{session}");
    run(brief, &["session", "close", "m"]).await;
    eventually("nothing pins the first version", PATIENCE, async || {
        let left = fs::read_dir(node.join("machines/default"));
        let left = left.into_iter().flatten().count();
        if left == 0 { Ok(()) } else { Err(format!("{left} links")) }
    })
    .await;
    agent.end().await;
    scene.brief.end().await;
}
