//! Wrong command lines of `ringctl`, and questions that have another answer than was hoped for.

use rota_tests::sessions::opened;
use rota_tests::{Cluster, Ran, TestFolder, binary, ringctl};
use serde_json::Value;
use tokio::process::Command;

/// The error document of a wrong command line: exit code 2, and nothing else on stderr.
fn usage(ran: &Ran) -> String {
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{ran:?}");
    let told: Value = serde_json::from_str(&ran.stderr).unwrap_or_else(|_| panic!("{ran:?}"));
    told["error"]["message"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_wrong_command_line_is_told_in_json_when_json_was_asked_for() {
    let ran = ringctl("127.0.0.1:1", &["session", "open", "a", "-o", "json"]).await;
    assert!(usage(&ran).contains("--class"), "{ran:?}");
    let ran = ringctl("127.0.0.1:1", &["session", "open", "a"]).await;
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.starts_with("error: ") && ran.stderr.contains("Usage:"), "{}", ran.stderr);
}

#[tokio::test]
async fn a_log_that_cannot_be_is_told_with_the_variable_that_asked_for_it() {
    for (name, wrong) in [("ROTA_LOG", "=,="), ("ROTA_LOG_FORMAT", "xml")] {
        let mut command = Command::new(binary("ringctl"));
        command.args(["session", "get", "a"]).env(name, wrong).kill_on_drop(true);
        let output = command.output().await.unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{stderr}");
        assert!(stderr.starts_with(&format!("error: {name} is {wrong:?}")), "{stderr}");
    }
}

#[tokio::test]
async fn wrong_endpoints_are_told_with_where_they_were_given_and_their_form() {
    let get = ["session", "get", "a", "-o", "json"];
    let text = usage(&ringctl("", &get).await);
    assert!(text.starts_with("ROTA_ENDPOINT is given but empty"), "{text}");
    for wrong in ["foo", "http//x", "localhost", "localhost:"] {
        let text = usage(&ringctl(wrong, &get).await);
        assert!(text.starts_with("ROTA_ENDPOINT: ") && text.contains(wrong), "{text}");
        assert!(text.contains("as in 127.0.0.1:7400"), "{text}");
        let line = [&get[..], &["--endpoint", wrong]].concat();
        let text = usage(&ringctl("127.0.0.1:1", &line).await);
        assert!(text.starts_with("--endpoint: ") && text.contains(wrong), "{text}");
    }
    let ran = ringctl("", &["completion", "bash"]).await.expect_success();
    assert!(!ran.stdout.contains("bench-echo"));
}

#[tokio::test]
async fn the_usage_below_a_mistake_shows_what_is_required_and_not_what_a_variable_gives() {
    let ran = ringctl("127.0.0.1:1", &["session", "open"]).await;
    assert_eq!(ran.code, 2);
    let usage = ran.stderr.lines().find(|it| it.starts_with("Usage:"));
    assert_eq!(usage, Some("Usage: ringctl session open --class <CLASS> <ID>"), "{}", ran.stderr);
}

#[tokio::test]
async fn while_no_manager_answers_a_log_is_told_and_json_is_one_document() {
    let get = ["session", "get", "a", "--timeout", "2s"];
    let ran = ringctl("127.0.0.1:1", &get).await;
    let lines: Vec<&str> = ran.stderr.lines().collect();
    assert!(lines[0].starts_with("no manager answers: 127.0.0.1:1: "), "{}", ran.stderr);
    assert!(lines[0].ends_with("; trying on") && lines[1].starts_with("error: "), "{}", ran.stderr);
    let watched = ringctl("127.0.0.1:1", &["session", "watch", "--patience", "2s"]).await;
    assert!(watched.stderr.starts_with("no manager answers: "), "{}", watched.stderr);
    let told = ringctl("127.0.0.1:1", &[&get[..], &["-o", "json"]].concat()).await.error();
    assert_eq!(told["reason"], "UNREACHABLE");
}

#[tokio::test]
async fn a_target_of_a_join_that_does_not_answer_is_told_by_its_own_flag() {
    let line = ["join", "--target", "127.0.0.1:1", "--contact", "127.0.0.1:2", "--number", "5"];
    let ran = ringctl("", &line).await;
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("hint: --target is where"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("--endpoint"), "{}", ran.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_of_a_live_session_of_another_class_warns_a_person_and_tells_a_program() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    opened(&cluster.client(), "a", "counter").await;
    let line = ["session", "open", "a", "--class", "http"];
    let ran = cluster.ringctl(&line).await.expect_success();
    assert!(ran.stdout.contains("EXISTED"), "{ran:?}");
    assert!(ran.stderr.contains("its class is counter, not http"), "{ran:?}");
    let found = cluster.ringctl(&[&line[..], &["-o", "json"]].concat()).await.json();
    assert_eq!((&found["outcome"], &found["class"]), (&"EXISTED".into(), &"counter".into()));
    let ran = cluster.ringctl(&["session", "open", "a", "--class", "counter"]).await;
    assert_eq!(ran.expect_success().stderr, "");
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_class_or_pool_is_answered_at_once_with_what_there_is() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let refused = async |more: &[&str]| {
        let line = [&["session", "open", "a", "-o", "json"][..], more].concat();
        cluster.ringctl(&line).await.error()
    };
    let class = refused(&["--class", "nonesuch"]).await;
    assert_eq!(
        (&class["reason"], &class["retry"]),
        (&"UNKNOWN_CLASS".into(), &"when_changed".into())
    );
    let text = class["message"].as_str().unwrap();
    assert!(text.contains("they offer builtin, counter, http"), "{text}");
    let pool = refused(&["--class", "counter", "--pool", "nonesuch"]).await;
    assert_eq!((&pool["reason"], &pool["retry"]), (&"NO_CAPACITY".into(), &"when_changed".into()));
    assert!(pool["message"].as_str().unwrap().contains("the pools are default"), "{pool}");
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_id_with_other_parameters_is_refused_by_its_field() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let line = ["session", "open", "a", "--request-id", "r", "-o", "json", "--class"];
    let created = cluster.ringctl_at(0, &[&line[..], &["counter"]].concat()).await.json();
    let refused = cluster.ringctl_at(1, &[&line[..], &["builtin"]].concat()).await.error();
    assert_eq!(
        (&refused["reason"], &refused["fields"][0]["field"]),
        (&"REQUEST_ID_REUSED".into(), &"request_id".into())
    );
    assert_eq!((&refused["retry"], &refused["changed"]), (&"never".into(), &"no".into()));
    assert!(refused["message"].as_str().unwrap().contains("class \"counter\""), "{refused}");
    let again = cluster.ringctl_at(2, &[&line[..], &["counter"]].concat()).await.json();
    assert_eq!((&again["outcome"], &again["life"]), (&"CREATED".into(), &created["life"]));
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_to_a_node_that_is_gone_is_told_as_that() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    opened(&cluster.client(), "c", "counter").await;
    let agent = cluster.processes().into_iter().find(|it| it.is_agent()).unwrap();
    agent.signal(rustix::process::Signal::KILL);
    let line = ["session", "send", "c", "increment", "--timeout", "1s"];
    let ran = cluster.ringctl(&line).await;
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("hint: node n1 runs the session"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("ROTA_ENDPOINT"), "{}", ran.stderr);
    cluster.end().await;
}
