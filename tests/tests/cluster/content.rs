//! Content: published by operators, fed to nodes, run by sessions, rolled back.

use rota_tests::sessions::{opened, read};
use rota_tests::{Cluster, PATIENCE, TestFolder, classes_of, eventually, http_get};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Prints which version it is, and has an action.
fn speaker(version: &str) -> [(&'static str, String, u32); 4] {
    let class = r#"
name = "speaker"
kind = "program"
argv = ["{class}/bin/speak", "{folder}"]
ready = { line = "up" }
"#;
    [
        ("speaker.toml", class.to_owned(), 0o644),
        (
            "speaker/bin/speak",
            format!("#!/bin/sh\necho {version} > $1/version\necho up\nexec sleep 1000\n"),
            0o755,
        ),
        (
            "speaker/actions/tell",
            format!(
                "#!/bin/sh\necho '{{\"attributes\":{{\"told\":\"{version} '$(cat $ROTA_CLASS_FOLDER/data/words)'\"}}}}'\n"
            ),
            0o755,
        ),
        ("speaker/data/words", format!("words of {version}\n"), 0o644),
    ]
}

fn write(root: &Path, files: &[(&str, String, u32)]) {
    for (path, text, mode) in files {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("it lies in a folder"))
            .expect("the folder can be made");
        fs::write(&path, text).expect("the file can be written");
        fs::set_permissions(&path, fs::Permissions::from_mode(*mode)).expect("the file is ours");
    }
}

async fn run(cluster: &Cluster, line: &[&str]) -> Value {
    cluster.ringctl(&[line, &["-o", "json"]].concat()).await.json()
}

async fn refused(cluster: &Cluster, line: &[&str]) -> String {
    let ran = cluster.ringctl(line).await;
    assert_ne!(ran.code, 0, "{ran:?}");
    ran.stderr
}

async fn publish(cluster: &Cluster, root: &Path, more: &[&str]) -> Value {
    let line = [&["content", "publish", root.to_str().expect("the path is text")], more].concat();
    run(cluster, &line).await
}

/// Waits until every node has a commit.
async fn all_have(cluster: &Cluster, commit: &Value) -> Value {
    eventually("every node has the commit", PATIENCE, async || {
        let status = run(cluster, &["content", "status"]).await;
        let nodes = status["nodes"].as_array().expect("it is a list");
        let has = |it: &Value| it["commit"] == *commit && it["state"] == "current";
        if !nodes.is_empty() && nodes.iter().all(has) {
            Ok(status)
        } else {
            Err(status.to_string())
        }
    })
    .await
}

/// What a session of the speaker wrote into its folder.
fn version_of(cluster: &Cluster, id: &str) -> String {
    let folders = glob_versions(cluster.folder(), id);
    fs::read_to_string(&folders[0]).expect("it can be read").trim().to_owned()
}

/// The files `version` in the folders of a session, the newest life last.
fn glob_versions(folder: &Path, id: &str) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(at) = folders.pop() {
        for entry in fs::read_dir(&at).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.ends_with("work/version") && path.to_string_lossy().contains(id) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn a_class_that_is_published_runs_on_nodes_and_a_session_keeps_its_version() {
    let folder = TestFolder::new();
    let classes = classes_of(&folder, &[]);
    let cluster = Cluster::start(&folder, &["--nodes", "2", "--classes", &classes]).await;
    let root = folder.path().join("content");
    write(&root, &speaker("one"));
    let first = publish(&cluster, &root, &["--message", "first"]).await;
    assert_eq!((&first["number"], &first["files"]), (&json!(1), &json!(4)), "{first}");
    run(&cluster, &["content", "follow", "main"]).await;
    all_have(&cluster, &first["commit"]).await;
    let client = cluster.client();
    opened(&client, "old", "speaker").await;
    assert_eq!(version_of(&cluster, "old"), "one");

    write(&root, &speaker("two"));
    let second = publish(&cluster, &root, &[]).await;
    assert_eq!(second["changed"], 3, "the class file is as it was: {second}");
    let status = all_have(&cluster, &second["commit"]).await;
    let nodes = status["nodes"].as_array().unwrap();
    let older: u64 = nodes.iter().map(|it| it["sessions_older"].as_u64().unwrap()).sum();
    assert_eq!(older, 1, "{status}");
    let named = run(&cluster, &["content", "status", "--sessions"]).await.to_string();
    assert!(named.contains("\"id\":\"old\""), "{named}");
    opened(&client, "new", "speaker").await;
    assert_eq!(version_of(&cluster, "new"), "two");
    // The action of the old session is that of its version, also after two more refreshes.
    for id in ["old", "new"] {
        let line = ["session", "update", id, "--life", "tell x@+0s"];
        run(&cluster, &line).await;
    }
    for (id, told) in [("old", "one words of one"), ("new", "two words of two")] {
        eventually(&format!("{id} tells"), PATIENCE, async || {
            let session = read(&client, id).await.expect("it was opened");
            match session.attributes.get("told") {
                Some(it) if it == told => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
    }

    let line = ["content", "rollback", first["commit"].as_str().unwrap()];
    let third = run(&cluster, &line).await;
    all_have(&cluster, &third["commit"]).await;
    let again = run(&cluster, &line).await;
    assert_eq!((&again["commit"], &again["changed"]), (&third["commit"], &json!(0)), "{again}");
    opened(&client, "again", "speaker").await;
    assert_eq!(version_of(&cluster, "again"), "one");
    let log = run(&cluster, &["content", "log"]).await;
    let restores = &log["commits"][0]["restores"];
    assert_eq!(
        (log["commits"].as_array().unwrap().len(), restores),
        (3, &first["commit"]),
        "{log}"
    );
    let diff = ["content", "diff", second["commit"].as_str().unwrap()];
    assert_eq!(run(&cluster, &diff).await["changes"].as_array().unwrap().len(), 3);
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_goes_by_the_life_cycles_of_its_own_version() {
    let folder = TestFolder::new();
    let classes = classes_of(&folder, &[]);
    let cluster = Cluster::start(&folder, &["--nodes", "1", "--classes", &classes]).await;
    let root = folder.path().join("content");
    let marked = |life_cycle: &str, mut files: [(&'static str, String, u32); 4]| {
        files[0].1.push_str(&format!("[life.cycles.{life_cycle}]\nmark_only = true\n"));
        files
    };
    write(&root, &marked("note", speaker("one")));
    let first = publish(&cluster, &root, &[]).await;
    run(&cluster, &["content", "follow", "main"]).await;
    all_have(&cluster, &first["commit"]).await;
    let client = cluster.client();
    opened(&client, "old", "speaker").await;
    // What has a program there is marked here, and the other way round.
    let [class, speak, (_, tell, mode), words] = marked("tell", speaker("two"));
    fs::remove_file(root.join("speaker/actions/tell")).expect("it was written");
    write(&root, &[class, speak, ("speaker/actions/note", tell, mode), words]);
    let second = publish(&cluster, &root, &[]).await;
    all_have(&cluster, &second["commit"]).await;
    opened(&client, "new", "speaker").await;
    for id in ["old", "new"] {
        let items = ["--life", "tell x@+0s", "--life", "note x@+0s"];
        run(&cluster, &[&["session", "update", id], &items[..]].concat()).await;
    }
    for (id, told) in [("old", "one words of one"), ("new", "two words of two")] {
        eventually(&format!("all of {id} has fired"), PATIENCE, async || {
            let session = read(&client, id).await.expect("it was opened");
            let life = run(&cluster, &["session", "life", id]).await;
            let past = life["history"].as_array().map_or(0, Vec::len);
            match session.attributes.get("told") {
                Some(it) if it == told && past == 2 => Ok(()),
                other => Err(format!("{other:?}, {life}")),
            }
        })
        .await;
    }
    // Also when the node offers the class no more.
    run(&cluster, &["content", "unfollow"]).await;
    eventually("the class is not offered", PATIENCE, async || {
        let status = run(&cluster, &["content", "status"]).await;
        let is_left = status["nodes"][0]["state"] == "nothing";
        is_left.then_some(()).ok_or(status.to_string())
    })
    .await;
    run(&cluster, &["session", "update", "old", "--attr", "told=nothing"]).await;
    run(&cluster, &["session", "update", "old", "--life", "tell y@+0s"]).await;
    eventually("its action runs", PATIENCE, async || {
        let told = read(&client, "old").await.expect("it lives").attributes["told"].clone();
        (told == "one words of one").then_some(()).ok_or(told)
    })
    .await;
    let new = ["session", "update", "old", "--life", "other y@+0s"];
    assert!(refused(&cluster, &new).await.contains("neither has a program nor says mark_only"));
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_published_changes_nothing_and_two_at_once_are_told_apart() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &["--nodes", "1"]).await;
    let root = folder.path().join("content");
    write(&root, &[("a", "1".to_owned(), 0o644)]);
    let first = publish(&cluster, &root, &[]).await;
    let again = publish(&cluster, &root, &[]).await;
    assert_eq!(
        (&again["commit"], &again["stored_bytes"]),
        (&first["commit"], &json!(0)),
        "{again}"
    );
    let path = root.to_str().unwrap();
    for (file, part) in [("A", "are one file"), (".rota/x", "")] {
        write(&root, &[(file, "2".to_owned(), 0o644)]);
        if !part.is_empty() {
            let why = refused(&cluster, &["content", "publish", path]).await;
            assert!(why.contains(part), "{why}");
        }
        fs::remove_file(root.join(file)).unwrap();
    }
    std::os::unix::fs::symlink("/etc/passwd", root.join("out")).unwrap();
    let why = refused(&cluster, &["content", "publish", path]).await;
    assert!(why.contains("leads out"), "{why}");
    fs::remove_file(root.join("out")).unwrap();
    let rules =
        "fileset = [{ category = \"x\", under = [\"a\"] }, { category = \"y\", under = [\"a\"] }]";
    write(&root, &[("content.toml", rules.to_owned(), 0o644)]);
    let why = refused(&cluster, &["content", "publish", path]).await;
    assert!(why.contains("two filesets, x and y"), "{why}");
    fs::remove_file(root.join("content.toml")).unwrap();
    let class = "name = \"room\"\nkind = \"program\"\nargs = [\"{class}/run\"]\n".to_owned();
    write(&root, &[("room.toml", class, 0o644)]);
    let why = refused(&cluster, &["content", "publish", path]).await;
    assert!(why.contains("room.toml: args") && why.contains("--allow-mistakes"), "{why}");
    publish(&cluster, &root, &["--allow-mistakes", "--dry-run"]).await;
    fs::remove_file(root.join("room.toml")).unwrap();
    // A commit that follows another than the newest one.
    let commit = json!({"repository": "main", "bodies": [], "commit": {"hash": "abcd", "at_ms": 1, "files": 0,
        "bytes": 0, "changed": 0, "tree": {"sha256": "0".repeat(64), "bytes": 0}}});
    let line = ["document", "operate", "z/main", "content.commit", &commit.to_string()];
    let why = refused(&cluster, &line).await;
    assert!(why.contains("A-EXPECTED") || why.contains("somebody published meanwhile"), "{why}");
    let listed = run(&cluster, &["content", "list", "main"]).await;
    assert_eq!(listed["commit"], first["commit"], "{listed}");
    assert_eq!(listed["files"].as_array().unwrap().len(), 1, "{listed}");
    for (line, part) in [
        (&["content", "log", "none"][..], "there is no content none"),
        (&["content", "diff", "abcd"], "keeps no commit abcd"),
        (&["content", "follow", "none"], "there is no content none"),
        (&["content", "publish", path, "--repository", "a/b"], "letters, digits"),
        (&["content", "follow", "main", "--pool", "typo"], "there is no pool typo"),
        (&["content", "unfollow", "--pool", "typo"], "there is no pool typo"),
        (&["content", "status", "--pool", "typo"], "reason: NOT_FOUND"),
        (&["content", "rollout", "--pool", "typo"], "there is no pool typo"),
    ] {
        let why = refused(&cluster, line).await;
        assert!(why.contains(part), "{why}");
    }
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_updates_feed_is_served_over_http_and_since_a_commit() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &["--nodes", "1"]).await;
    let root = folder.path().join("content");
    let file = |path, text: &str| (path, text.to_owned(), 0o644);
    write(&root, &[file("a", "1"), file("b", "1"), file("c.png", "1")]);
    let rules = "fileset = [{ category = \"pics\", extensions = [\"png\"], pools = [\"gpu\"] }]";
    write(&root, &[file("content.toml", rules)]);
    let first = publish(&cluster, &root, &[]).await;
    write(&root, &[file("b", "2")]);
    fs::remove_file(root.join("a")).unwrap();
    let second = publish(&cluster, &root, &[]).await;
    let ring = run(&cluster, &["inspect"]).await;
    let http = ring["managers"][0]["http"].as_str().expect("it serves HTTP").to_owned();
    let feed = async |query: &str| -> Vec<Value> {
        let path = format!("/v1/content/main/updates{query}");
        let page = http_get(&http, &path).await.expect("it answers");
        assert_eq!(page.code, 200, "{}", page.body);
        page.body.lines().map(|it| serde_json::from_str(it).unwrap()).collect()
    };
    let paths = |lines: &[Value]| -> Vec<String> {
        let of = |line: &Value| {
            format!("{} {}", line["path"].as_str().unwrap(), line["status"].as_str().unwrap())
        };
        lines[1..].iter().filter(|it| it["file"].is_object()).map(of).collect()
    };
    let all = feed("").await;
    assert_eq!((&all[0]["commit"], &all[0]["full"]), (&second["commit"], &json!(true)));
    assert_eq!(paths(&all), ["b published", "c.png published"]);
    assert_eq!(all.last().unwrap()["category"], "$latest");
    assert_eq!(paths(&feed("?pool=default").await), ["b published"]);
    assert_eq!(paths(&feed("?pool=gpu&category=pics").await), ["c.png published"]);
    let since = format!("?since={}", first["commit"].as_str().unwrap());
    let changes = feed(&since).await;
    assert_eq!(changes[0]["full"], false, "{changes:?}");
    assert_eq!(paths(&changes), ["a deleted", "b published"]);
    assert_eq!(feed("?since=abcd").await[0]["full"], true, "it is not known");
    let page = http_get(&http, "/v1/content/none/updates").await.expect("it answers");
    assert_eq!(page.code, 404, "{}", page.body);
    cluster.end().await;
}
