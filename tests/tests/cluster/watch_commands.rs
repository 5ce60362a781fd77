//! `ringctl session watch`, as people and scripts use it.

use rota_tests::sessions::{CALL, close, opened};
use rota_tests::{Cluster, Following, TestFolder, ringctl};
use rustix::process::Signal;
use serde_json::Value;

/// Follows until the watch has shown all that there was.
async fn caught_up(watch: &mut Following) -> Vec<Value> {
    let mut snapshot = Vec::new();
    loop {
        let line = watch.json().await;
        let done = line["caught_up"] == true;
        snapshot.push(line);
        if done {
            return snapshot;
        }
    }
}

/// Follows until this session is in this state. Gives the lines on the way.
async fn until(watch: &mut Following, id: &str, state: &str) -> Vec<Value> {
    let mut lines = Vec::new();
    loop {
        let line = watch.json().await;
        let found = line["session"]["id"] == id && line["session"]["state"] == state;
        lines.push(line);
        if found {
            return lines;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_of_one_id_prints_one_document_a_line_and_ends_well_on_each_signal() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let client = cluster.client();
    for (number, signal) in [Signal::INT, Signal::TERM, Signal::HUP].into_iter().enumerate() {
        let mine = format!("mine {number}");
        let line = ["session", "watch", &mine, "-o", "json"];
        let mut watch = Following::start(&cluster.endpoints(), &line);
        let before = caught_up(&mut watch).await;
        assert!(before.iter().all(|it| it["session"].is_null()), "{before:?}");
        opened(&client, &format!("other {number}"), "counter").await;
        let session = opened(&client, &mine, "counter").await;
        client.close(close(&mine), CALL).await.unwrap();
        for line in until(&mut watch, &mine, "CLOSED").await {
            let fields: Vec<&String> = line.as_object().unwrap().keys().collect();
            assert_eq!(fields, ["caught_up", "position", "session", "snapshot"], "{line}");
            assert!(line["position"].as_str().is_some_and(|it| !it.is_empty()), "{line}");
            let shown = &line["session"];
            assert!(shown.is_null() || shown["id"] == mine.as_str(), "{line}");
            assert!(shown.is_null() || shown["life"] == session.life, "{line}");
        }
        let ended = watch.end(signal).await;
        assert_eq!((ended.code, ended.stderr.as_str()), (0, ""), "{signal:?}");
    }
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ring_wide_watch_with_a_filter_goes_on_from_the_position_in_its_file() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let client = cluster.client();
    opened(&client, "before", "counter").await;
    opened(&client, "of another class", "builtin").await;
    let position = folder.at("position");
    let line = ["session", "watch", "--class", "counter", "--state", "closed,ready"];
    let line = [&line[..], &["--position", &position, "-o", "json"]].concat();
    let mut watch = Following::start(&cluster.document.managers[0].grpc, &line);
    let (mut ready, mut complete) = (false, false);
    while !ready || !complete {
        // That it is READY may be written only after the snapshot.
        let line = watch.json().await;
        ready |= line["session"]["id"] == "before" && line["session"]["state"] == "READY";
        complete |= line["caught_up"] == true;
    }
    assert_eq!(watch.end(Signal::TERM).await.code, 0);

    opened(&client, "of another class, too", "builtin").await;
    opened(&client, "meanwhile", "counter").await;
    client.close(close("meanwhile"), CALL).await.unwrap();
    let mut watch = Following::start(&cluster.document.managers[1].grpc, &line);
    let lines = until(&mut watch, "meanwhile", "CLOSED").await;
    for line in &lines {
        assert_eq!(line["snapshot"], false, "the position is new enough: {line}");
        let shown = &line["session"];
        assert!(shown.is_null() || shown["class"] == "counter", "{line}");
    }
    assert_eq!(watch.end(Signal::INT).await.code, 0);
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_for_people_says_when_what_follows_are_changes() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let client = cluster.client();
    opened(&client, "before", "builtin").await;
    client.close(close("before"), CALL).await.unwrap();
    let mut watch = Following::start(&cluster.endpoints(), &["session", "watch"]);
    assert!(watch.line().await.ends_with("default/before is CLOSED  CLOSED_BY_CLIENT  n1"));
    assert!(watch.line().await.starts_with("-- caught up"));
    let session = opened(&client, "after", "builtin").await;
    loop {
        let line = watch.line().await;
        if line.contains("  default/after -> READY  ") {
            assert!(line.ends_with(&format!("  {}  n1", session.address)), "{line}");
            break;
        }
    }
    client.close(close("after"), CALL).await.unwrap();
    while !watch.line().await.ends_with("default/after -> CLOSED  CLOSED_BY_CLIENT  n1") {}
    let ended = watch.end(Signal::INT).await;
    assert_eq!((ended.code, ended.stderr.as_str()), (0, ""));
    cluster.end().await;
}

#[tokio::test]
async fn a_watch_that_cannot_be_is_told_with_its_exit_code() {
    let nobody = "127.0.0.1:1";
    for wrong in [["--state", "open"], ["--position", "%%"], ["--patience", "0s"]] {
        let ran = ringctl(nobody, &[&["session", "watch"], &wrong[..]].concat()).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{wrong:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(wrong[0]), "{}", ran.stderr);
    }
    let line = ["session", "watch", "--patience", "200ms", "-o", "json"];
    let error = ringctl(nobody, &line).await.error();
    assert_eq!(error["reason"], "UNREACHABLE", "{error}");
}
