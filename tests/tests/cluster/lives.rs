//! Sessions with a life: idle times, longest lives, life cycles, restarts, and what `ringctl` shows and changes of them.

use rota_client::{CachedSession, CachedSessionOptions, SessionCopy, v1};
use rota_model::{Namespace, SessionId, SessionKey};
use rota_tests::sessions::{CALL, becomes, open, read};
use rota_tests::{
    Cluster, Following, PATIENCE, TestFolder, binary, eventually, http_get, shipped_classes_and,
};
use rustix::process::Signal;
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};
use v1::{Reason, SessionState};

/// A machine with life cycles for which nothing runs.
const MARKED: &str = r#"
name = "marked"
kind = "machine"
states = ["on"]
initial = "on"
[life.cycles.note]
mark_only = true
[life.cycles.other]
mark_only = true
"#;

/// Its action fails, and is not tried again by itself.
const PRINTER: &str = r#"
name = "printer"
kind = "program"
argv = ["sh", "-c", "echo up; exec sleep 1000"]
ready = { line = "up" }
[life.cycles.letter]
retries = 0
"#;

/// Ends badly once the file of the attribute `until` is there, and takes that away.
const RISER: &str = r#"
name = "riser"
kind = "program"
argv = ["sh", "-c", "echo up; until [ -e \"$1.$ROTA_LIFE\" ]; do sleep 0.02; done; exit 7", "sh", "{attr.until}"]
ready = { line = "up" }
[life]
restart = { times = 1, delay = "100ms" }
"#;

async fn run(cluster: &Cluster, line: &[&str]) -> Value {
    cluster.ringctl(&[line, &["-o", "json"]].concat()).await.json()
}

async fn refused(cluster: &Cluster, line: &[&str]) -> Value {
    cluster.ringctl(&[line, &["-o", "json"]].concat()).await.error()
}

/// Waits until the life cycles of a session stand like this.
async fn life_where(
    cluster: &Cluster,
    id: &str,
    what: &str,
    holds: impl Fn(&Value) -> bool,
) -> Value {
    eventually(&format!("{id}: {what}"), PATIENCE, async || {
        let life = run(cluster, &["session", "life", id]).await;
        if holds(&life) { Ok(life) } else { Err(life.to_string()) }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_lives_while_it_is_kept_alive_and_is_closed_when_nobody_uses_it_any_more() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let client = cluster.client();
    run(&cluster, &["session", "open", "room", "--class", "counter", "--idle", "2s"]).await;
    let shown = run(&cluster, &["session", "get", "room"]).await;
    assert_eq!(shown["idle_ms"], 2_000, "{shown}");
    let line = ["session", "keepalive", "room", "--every", "200ms", "-o", "json"];
    let mut keeping = Following::start(&cluster.endpoints(), &line);
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(4) {
        let told = keeping.json().await;
        assert_eq!(told["state"], "READY", "{told}");
    }
    let ended = keeping.end(Signal::INT).await;
    assert_eq!(ended.code, 0, "{ended:?}");
    let closed = becomes(&client, "room", SessionState::Closed).await;
    assert_eq!(closed.reason(), Reason::IdleTimeout);
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_closed_at_the_end_of_its_longest_life_although_it_is_used() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let began = Instant::now();
    run(&cluster, &["session", "open", "game", "--class", "counter", "--max-life", "3s"]).await;
    let shown = cluster.ringctl(&["session", "list"]).await.expect_success().stdout;
    assert!(shown.contains("max 3s"), "{shown}");
    let line = ["session", "keepalive", "game", "--every", "100ms"];
    let ended = Following::start(&cluster.endpoints(), &line).over().await;
    assert_eq!(ended.code, 1, "{ended:?}");
    let why = "session \"game\" is CLOSED: MAX_LIFETIME";
    // The close may be under way when it is told.
    let closing = "session \"game\" is CLOSING: MAX_LIFETIME";
    assert!(ended.stderr.contains(why) || ended.stderr.contains(closing), "{ended:?}");
    assert!(ended.stdout.starts_with("ID "), "{ended:?}");
    assert!(began.elapsed() >= Duration::from_secs(3), "it is not closed too early");
    let closed = becomes(&cluster.client(), "game", SessionState::Closed).await;
    assert_eq!(closed.reason(), Reason::MaxLifetime);
    let never = cluster.ringctl(&["session", "keepalive", "nobody", "--every", "1s"]).await;
    assert_eq!(never.code, 1, "{never:?}");
    assert!(never.stderr.contains("NOT_FOUND"), "{never:?}");
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_that_asks_for_more_than_its_class_has_is_refused_by_name() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let open = ["session", "open", "a", "--class", "counter"];
    let error = refused(&cluster, &[&open[..], &["--life", "letter print@+1h"]].concat()).await;
    assert!(error["message"].as_str().unwrap().contains("letter"), "{error}");
    let error = refused(&cluster, &[&open[..], &["--restarts", "3"]].concat()).await;
    assert!(error["message"].as_str().unwrap().contains("life.restarts is 3"), "{error}");
    let wrong = ["--life", "note soon@", "--life", "note a", "--life", "note"];
    let wrong = cluster.ringctl(&[&open[..], &wrong].concat()).await;
    assert_eq!(wrong.code, 2, "{}", wrong.stderr);
    for told in ["--life \"note soon@\" (item 1): column 11", "--life \"note\" (item 3): column 5"]
    {
        assert!(wrong.stderr.contains(told), "{}", wrong.stderr);
    }
    let unheard = cluster.ringctl(&[&open[..], &["--life", "letter print@+1h"]].concat()).await;
    assert!(unheard.stderr.starts_with("error: --life letter print@"), "{}", unheard.stderr);
    assert_eq!(refused(&cluster, &["session", "get", "a"]).await["reason"], "NOT_FOUND");
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn attributes_change_in_one_commit_and_only_in_the_version_and_life_that_are_meant() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let client = cluster.client();
    let attributes = ["--attr", "colour=red", "--attr", "size=1"];
    let open = ["session", "open", "a", "--class", "builtin"];
    run(&cluster, &[&open[..], &attributes].concat()).await;
    let session = read(&client, "a").await.unwrap();
    let (version, life) = (session.version.to_string(), session.life.to_string());
    let change = ["session", "update", "a", "--attr", "colour=blue", "--no-attr", "size"];
    let exactly = ["--if-version", &version, "--if-life", &life];
    let told = run(&cluster, &[&change[..], &exactly].concat()).await;
    assert_eq!(told["session"]["attributes"], serde_json::json!({"colour": "blue"}), "{told}");
    let session = read(&client, "a").await.unwrap();
    assert_eq!(session.attributes, [("colour".to_owned(), "blue".to_owned())].into());
    // A repetition finds what it wishes, and changes nothing.
    let again = run(&cluster, &[&change[..], &exactly].concat()).await;
    assert_eq!(again["session"]["version"], session.version, "{again}");
    let other = ["session", "update", "a", "--attr", "colour=green", "--if-version", &version];
    let error = refused(&cluster, &other).await;
    assert_eq!(error["reason"], "VERSION_MISMATCH", "{error}");
    let wrong = cluster.ringctl(&[&change[..], &["--if-version", "1"]].concat()).await;
    assert!(wrong.stderr.starts_with("error: --if-version "), "{}", wrong.stderr);
    let error = refused(&cluster, &[&change[..], &["--if-life", "261122152849840"]].concat()).await;
    assert_eq!(error["reason"], "LIFE_MISMATCH", "{error}");
    let nothing = cluster.ringctl(&["session", "update", "a"]).await;
    assert_eq!(nothing.code, 2, "{nothing:?}");
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn marks_fire_at_their_time_and_items_are_added_removed_and_finished() {
    let folder = TestFolder::new();
    let classes = shipped_classes_and(&folder, &[("marked", MARKED)]);
    let cluster = Cluster::start(&folder, &["--classes", &classes]).await;
    let open = ["session", "open", "a", "--class", "marked"];
    run(&cluster, &[&open[..], &["--life", "note early@+1s", "--life", "note late@+1h"]].concat())
        .await;
    let life = life_where(&cluster, "a", "the early one fires", |life| {
        life["items"].as_array().unwrap().iter().any(|it| it["fired_at"].is_u64())
    })
    .await;
    assert_eq!(life["items"].as_array().unwrap().len(), 2, "the late one is left: {life}");
    assert!(life["next_at"].is_u64(), "{life}");
    // Two that wait for each other.
    let waits = ["--life", "note other?y", "--life", "other note?x"];
    let told = cluster.ringctl(&[&["session", "update", "a"][..], &waits].concat()).await;
    let told = told.expect_success();
    assert!(told.stdout.contains("other?y") && told.stdout.contains("*early@"), "{told:?}");
    assert!(told.stderr.contains("none can fire by itself: note, other"), "{told:?}");
    let early = life["items"].as_array().unwrap().iter().find(|it| it["fired_at"].is_u64());
    let time = early.unwrap()["text"].as_str().unwrap().split_once('@').unwrap().1;
    assert!(told.stdout.contains("note: all is done up to"), "{told:?}");
    assert!(
        told.stdout.lines().any(|it| it.starts_with("note: ") && it.contains(time)),
        "{told:?}"
    );
    let last = life["last_fired"].as_object().unwrap();
    assert!(last["note"].is_u64() && last.len() == 1, "{life}");
    let removed = run(&cluster, &["session", "update", "a", "--no-life", "note"]).await;
    let items = removed["items"].as_array().unwrap();
    assert!(items.iter().all(|it| it["life_cycle"] != "note"), "{removed}");
    let history = removed["history"].to_string();
    assert!(history.contains("early@") && !history.contains("late@"), "{removed}");
    let unknown = cluster.ringctl(&["session", "update", "a", "--finish", "nosuch"]).await;
    let told = "session \"a\" has no item of life cycle \"nosuch\"; no life cycle of it is open";
    assert!(unknown.stderr.contains(told), "{unknown:?}");
    let finish = ["session", "update", "a", "--finish", "other"];
    let finished = run(&cluster, &finish).await;
    assert_eq!(finished["items"], serde_json::json!([]), "{finished}");
    let again = cluster.ringctl(&finish).await.expect_success();
    assert!(!again.stderr.contains("has no item"), "{again:?}");
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_with_life_cycles_that_wait_for_each_other_is_warned_of_and_one_that_exists_is_not()
{
    let folder = TestFolder::new();
    let classes = shipped_classes_and(&folder, &[("marked", MARKED)]);
    let cluster = Cluster::start(&folder, &["--classes", &classes]).await;
    let waits = ["--life", "note other?y", "--life", "other note?x"];
    let open = |id| [&["session", "open", id, "--class", "marked"], &waits[..]].concat();
    let told = cluster.ringctl(&open("a")).await.expect_success();
    let warning =
        "warning: life cycles wait for each other, and none can fire by itself: note, other";
    assert!(told.stderr.contains(warning), "{told:?}");
    let told = cluster.ringctl(&[&open("a")[..], &["--idle", "5m"]].concat()).await;
    assert!(!told.stderr.contains("wait for each other"), "{told:?}");
    let not_taken = "lived already and stays as it is: it does not take --idle, --life";
    assert!(told.stderr.contains(not_taken), "{told:?}");
    let json = run(&cluster, &open("a")).await;
    assert_eq!(json["not_taken"], serde_json::json!(["--life"]));
    let otherwise = ["session", "open", "a", "--class", "counter", "--attr", "x=y"];
    let json = run(&cluster, &otherwise).await;
    assert_eq!(json["not_taken"], serde_json::json!(["--class", "--attr"]));
    let json = cluster.ringctl(&[&open("b")[..], &["-o", "json"]].concat()).await.expect_success();
    assert!(json.stderr.contains(warning), "{json:?}");
    assert_eq!(json.json()["cycles"], serde_json::json!(["note, other"]));
    let one = ["session", "open", "c", "--class", "marked", "--life", "note other?y"];
    assert_eq!(run(&cluster, &one).await.get("cycles"), None);
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_never_fired_is_shown_as_left_once_its_session_has_ended() {
    let folder = TestFolder::new();
    let classes = shipped_classes_and(&folder, &[("marked", MARKED)]);
    let cluster = Cluster::start(&folder, &["--classes", &classes]).await;
    let items = ["--life", "note made late@+1h", "--life", "other signed"];
    let open = ["session", "open", "a", "--class", "marked"];
    run(&cluster, &[&open[..], &items].concat()).await;
    run(&cluster, &["session", "close", "a"]).await;
    let ended = |life: &Value| life["history"].as_array().is_some_and(|it| it.len() == 2);
    let life = life_where(&cluster, "a", "its life cycles are history", ended).await;
    let left = life["history"].as_array().unwrap().iter().filter(|it| it["left"] == true);
    let left: Vec<&str> = left.map(|it| it["life_cycle"].as_str().unwrap()).collect();
    assert_eq!(left, ["note"], "{life}");
    let shown = cluster.ringctl(&["session", "life", "a"]).await.expect_success().stdout;
    let row = |name: &str| shown.lines().find(|it| it.starts_with(name)).expect("its row");
    assert!(row("note").contains("LEFT") && !row("other").contains("LEFT"), "{shown}");
    cluster.end().await;
}

/// A session of the printer whose action is this, and how its letter failed.
async fn printed(cluster: &Cluster, folder: &TestFolder, script: &str, update: &[&str]) -> String {
    let letter = folder.path().join("classes/printer/actions/letter");
    std::fs::write(&letter, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&letter, std::fs::Permissions::from_mode(0o755)).unwrap();
    let open = ["session", "open", "a", "--class", "printer", "--attr", "colour=red"];
    run(cluster, &open).await;
    run(cluster, &[&["session", "update", "a", "--life", "letter print@+1s"], update].concat())
        .await;
    let life = life_where(cluster, "a", "the action has failed", |life| {
        life["items"][0]["failed"]["code"] == "EXIT-3"
    })
    .await;
    life["items"][0]["failed"]["report"].as_str().unwrap().to_owned()
}

async fn with_printer(folder: &TestFolder) -> Cluster {
    // It runs `ringctl` where it was built, which other users may not reach.
    let printer = PRINTER.replace("kind =", "sandbox = \"none\"\nkind =");
    let classes = shipped_classes_and(folder, &[("printer", &printer)]);
    let actions = folder.path().join("classes/printer/actions");
    std::fs::create_dir_all(&actions).unwrap();
    let letter = actions.join("letter");
    std::fs::write(&letter, "#!/bin/sh\nexit 3\n").unwrap();
    std::fs::set_permissions(&letter, std::fs::Permissions::from_mode(0o755)).unwrap();
    Cluster::start(folder, &["--classes", &classes]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_action_is_given_the_attributes_as_they_are_and_not_as_they_were_at_the_open() {
    let folder = TestFolder::new();
    let cluster = with_printer(&folder).await;
    let script = "echo \"$ROTA_ATTRIBUTES\" >&2; cat >&2; exit 3";
    let report = printed(&cluster, &folder, script, &["--attr", "colour=blue"]).await;
    let (variable, document) = report.split_once('\n').expect("two lines");
    let document: Value = serde_json::from_str(document).expect("a session");
    assert_eq!(document["attributes"], serde_json::json!({"colour": "blue"}));
    assert_eq!(serde_json::from_str::<Value>(variable).unwrap(), document["attributes"]);
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_action_orders_its_own_life_through_ringctl_and_no_other_life_of_its_session() {
    let folder = TestFolder::new();
    let cluster = with_printer(&folder).await;
    let ringctl = binary("ringctl");
    let script = format!(
        "ringctl() {{ {} session \"$@\" 2>&1; }}\n\
         ringctl update a --attr seen=yes > /dev/null || exit 4\n\
         ringctl keepalive a > /dev/null || exit 5\n\
         # As one does that comes late, when another life of its session has begun.\n\
         export ROTA_LIFE=261122152849840\n\
         for what in close keepalive update; do\n\
           ringctl $what a $([ $what != update ] || echo --attr seen=no) | grep -q LIFE_MISMATCH && echo $what >&2\n\
         done\n\
         exit 3",
        ringctl.display()
    );
    let report = printed(&cluster, &folder, &script, &[]).await;
    assert_eq!(report.lines().collect::<Vec<_>>(), ["close", "keepalive", "update"], "{report}");
    let session = run(&cluster, &["session", "get", "a"]).await;
    assert_eq!(
        (&session["state"], &session["attributes"]["seen"]),
        (&"READY".into(), &"yes".into())
    );
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attribute_that_changes_is_seen_by_a_copy_a_watch_and_a_list() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let client = cluster.client_of(1);
    let open = ["session", "open", "a", "--class", "builtin", "--attr", "colour=red"];
    run(&cluster, &open).await;
    let blue = ["--where", "attr.colour = blue", "-o", "json"];
    let list = [&["session", "list"], &blue[..]].concat();
    assert_eq!(cluster.ringctl(&list).await.json()["sessions"], serde_json::json!([]));
    let key = SessionKey::new(Namespace::default_space(), SessionId::parse("a").unwrap());
    let mut copy =
        CachedSession::open(&client, &key, CachedSessionOptions::default()).await.unwrap();
    copy.wait_until(PATIENCE, |it| it.state().unwrap().is_some()).await.unwrap();
    let watch = [&["session", "watch"], &blue[..]].concat();
    let mut watch = Following::start(&cluster.endpoints(), &watch);
    while watch.json().await["caught_up"] != true {}
    run(&cluster, &["session", "update", "a", "--attr", "colour=blue"]).await;
    let is_blue = |copy: &SessionCopy| {
        let spec = copy.spec().unwrap().unwrap();
        spec.attributes.get("colour").is_some_and(|it| it == "blue")
    };
    copy.wait_until(PATIENCE, is_blue).await.unwrap();
    loop {
        let told = watch.json().await;
        if told["session"]["id"] == "a" {
            assert_eq!(told["session"]["attributes"]["colour"], "blue", "{told}");
            break;
        }
    }
    let listed = cluster.ringctl(&list).await.json();
    assert_eq!(listed["sessions"][0]["id"], "a", "{listed}");
    assert_eq!(watch.end(Signal::INT).await.code, 0);
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reminder_of_the_shipped_class_runs_its_program() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let open = ["session", "open", "desk", "--class", "notes", "--life", "reminder note@+1s"];
    let opened = run(&cluster, &open).await;
    let life = life_where(&cluster, "desk", "the reminder has fired", |life| {
        life["history"].as_array().unwrap().iter().any(|it| it["fired_at"].is_u64())
    })
    .await;
    assert_eq!(life["history"][0]["life_cycle"], "reminder", "{life}");
    let address = opened["address"].as_str().unwrap();
    let page = http_get(address, "/notes.txt").await.expect("its server answers");
    assert!(page.body.starts_with("note of session desk"), "{}", page.body);
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_action_that_failed_is_shown_retried_and_skipped() {
    let folder = TestFolder::new();
    let classes = shipped_classes_and(&folder, &[("printer", PRINTER)]);
    let actions = folder.path().join("classes/printer/actions");
    std::fs::create_dir_all(&actions).unwrap();
    let letter = actions.join("letter");
    std::fs::write(&letter, "#!/bin/sh\necho no ink at $(date +%s%N) >&2\nexit 3\n").unwrap();
    std::fs::set_permissions(&letter, std::fs::Permissions::from_mode(0o755)).unwrap();
    let cluster = Cluster::start(&folder, &["--classes", &classes]).await;
    let open = ["session", "open", "a", "--class", "printer", "--life", "letter print@+1s"];
    run(&cluster, &open).await;
    let has_failed = |life: &Value| life["items"][0]["failed"]["code"] == "EXIT-3";
    let life = life_where(&cluster, "a", "the action has failed", has_failed).await;
    assert!(life["items"][0]["failed"]["report"].to_string().contains("no ink"), "{life}");
    let text = life["items"][0]["text"].as_str().unwrap();
    let word = text.strip_prefix("letter ").unwrap();
    let events = ["session", "events", "a", "--kind", "action_failed,task_given_up"];
    let events = run(&cluster, &events).await["events"].clone();
    let kinds: Vec<&Value> = events.as_array().unwrap().iter().map(|it| &it["kind"]).collect();
    assert_eq!(kinds, ["action_failed", "task_given_up"], "{events}");
    assert!(events[1]["text"].as_str().unwrap().starts_with(text), "{events}");
    run(&cluster, &["session", "life", "a", "--retry", "letter", word]).await;
    let first = life["items"][0]["failed"]["report"].clone();
    life_where(&cluster, "a", "the action has failed again", |life| {
        has_failed(life) && life["items"][0]["failed"]["report"] != first
    })
    .await;
    let shown = cluster.ringctl(&["session", "life", "a"]).await.expect_success().stdout;
    assert!(shown.contains("EXIT-3") && shown.contains("no ink"), "{shown}");
    let life = run(&cluster, &["session", "life", "a", "--skip", "letter", word]).await;
    assert_eq!(life["items"], serde_json::json!([]), "{life}");
    assert_eq!(life["history"][0]["skipped"], true, "{life}");
    let vain = cluster.ringctl(&["session", "life", "a", "--retry", "letter", word]).await;
    assert!(vain.expect_success().stderr.contains("has fired already"));
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_ended_badly_is_started_again_and_shows_how_often() {
    let folder = TestFolder::new();
    let classes = shipped_classes_and(&folder, &[("riser", RISER)]);
    let cluster = Cluster::start(&folder, &["--classes", &classes]).await;
    let client = cluster.client();
    let until = folder.at("go");
    let attributes = [("until".to_owned(), until.clone())].into();
    let request = v1::OpenRequest { attributes, ..open("phoenix", "riser") };
    let first = client.open(request, CALL).await.unwrap().session.unwrap();
    let end = |life: u64| std::fs::write(format!("{until}.{life}"), "").unwrap();
    end(first.life);
    let next = eventually("another life begins", PATIENCE, async || {
        let session = read(&client, "phoenix").await.map_err(|error| format!("{error:?}"))?;
        let is_next = session.life > first.life && session.state() == SessionState::Ready;
        if is_next { Ok(session) } else { Err(format!("{session:?}")) }
    })
    .await;
    assert_eq!((next.restarts, &next.attributes), (1, &first.attributes));
    let shown = run(&cluster, &["session", "get", "phoenix"]).await;
    assert_eq!(shown["restarts"], 1, "{shown}");
    end(next.life);
    let failed = becomes(&client, "phoenix", SessionState::Failed).await;
    assert_eq!(failed.reason(), Reason::Exited, "once is all that its class allows: {failed:?}");
    cluster.end().await;
}
