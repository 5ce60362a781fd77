//! State machines: events at the session's address, the state in Get.

use rota_client::{Client, v1};
use rota_model::Retry;
use rota_tests::processes::process;
use rota_tests::sessions::{CALL, becomes, opened, read};
use rota_tests::{Cluster, PATIENCE, TestFolder, eventually};
use rustix::process::Signal;
use serde_json::Value;
use v1::SessionState;

fn event(id: &str, event: &str) -> v1::SendRequest {
    v1::SendRequest { id: id.to_owned(), event: event.to_owned(), ..Default::default() }
}

async fn shows(client: &Client, id: &str, state: &str) {
    eventually(&format!("get shows {id} in {state}"), PATIENCE, async || {
        let session = read(client, id).await.map_err(|error| format!("{error:?}"))?;
        if session.machine_state == state { Ok(()) } else { Err(session.machine_state) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_move_a_machine_and_its_state_shows_in_get() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let client = cluster.client();
    let light = opened(&client, "light", "traffic-light").await;
    let states = ["red", "red-amber", "green", "amber", "red"];
    for (turn, pair) in (1..).zip(states.windows(2)) {
        let moved = client.send_event(&light.address, event("light", "next"), CALL).await.unwrap();
        assert_eq!([moved.from.as_str(), moved.to.as_str()], pair);
        assert_eq!((moved.changes, moved.r#final), (turn, false));
    }
    shows(&client, "light", "red").await;
    client.send_event(&light.address, event("light", "fail"), CALL).await.unwrap();
    shows(&client, "light", "blinking").await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_final_state_ends_the_session_and_is_its_exit() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let client = cluster.client();
    let light = opened(&client, "light", "traffic-light").await;
    let moved = client.send_event(&light.address, event("light", "remove"), CALL).await.unwrap();
    assert!(moved.r#final);
    let ended = becomes(&client, "light", SessionState::Closed).await;
    assert_eq!(ended.reason(), v1::Reason::Exited);
    let exit = ended.exit.and_then(|it| it.how);
    assert_eq!(exit, Some(v1::exit::How::FinalState("removed".to_owned())));
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_does_not_fit_is_refused_by_name_and_moves_nothing() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let client = cluster.client();
    let light = opened(&client, "light", "traffic-light").await;
    let unknown = client.send_event(&light.address, event("light", "explode"), CALL).await;
    let unknown = unknown.unwrap_err();
    assert_eq!(unknown.retry(), Retry::Never, "a class never changes");
    assert_eq!(
        (unknown.reason(), unknown.fields()[0].field.as_str()),
        ("INVALID_ARGUMENT", "event")
    );
    assert!(unknown.to_string().contains("next, fail, repair, remove"), "{unknown}");
    let unfit = client.send_event(&light.address, event("light", "repair"), CALL).await;
    let unfit = unfit.unwrap_err();
    assert_eq!((unfit.reason(), unfit.retry()), ("NO_TRANSITION", Retry::WhenChanged));
    assert_eq!(unfit.fields()[0].field, "event");
    let unfit = unfit.to_string();
    assert!(unfit.contains("\"red\"") && unfit.contains("next"), "{unfit}");
    let absent = client.send_event(&light.address, event("nobody", "next"), CALL).await;
    assert_eq!(absent.unwrap_err().reason(), "NOT_FOUND");
    let other = v1::SendRequest { life: light.life + 1, ..event("light", "next") };
    let other = client.send_event(&light.address, other, CALL).await.unwrap_err();
    assert_eq!(other.reason(), "LIFE_MISMATCH", "{other:?}");
    let this = v1::SendRequest { life: light.life, ..event("light", "next") };
    let moved = client.send_event(&light.address, this, CALL).await.unwrap();
    assert_eq!((moved.from.as_str(), moved.changes), ("red", 1));
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ringctl_sends_events() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    opened(&cluster.client(), "c", "counter").await;
    let line = ["session", "send", "c", "increment", "-o", "json"];
    let moved = cluster.ringctl_at(1, &line).await.json();
    assert_eq!((&moved["from"], &moved["to"]), (&"zero".into(), &"one".into()));
    let refused = cluster.ringctl(&["session", "send", "c", "explode", "-o", "json"]).await.error();
    assert_eq!(refused["fields"][0]["field"], "event", "{refused}");
    cluster.ringctl(&["session", "close", "c", "-o", "json"]).await.json();
    let ended = cluster.ringctl(&line).await.error();
    assert_eq!((&ended["reason"], &ended["changed"]), (&"NOT_FOUND".into(), &"no".into()));
    let text = ended["message"].as_str().unwrap();
    assert!(text.contains("is CLOSED and has no address to send to"), "{text}");
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_close_that_its_silent_node_keeps_waiting_is_told_and_ends_with_1() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    opened(&cluster.client(), "slow", "counter").await;
    let agent = process(cluster.document.nodes[0].pid).unwrap();
    agent.signal(Signal::STOP);
    // Both end long before the node is LOST, and the session CLOSED with it.
    let line = ["session", "close", "slow", "--timeout", "2s"];
    let ran = cluster.ringctl(&[&line[..], &["-o", "json"]].concat()).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (1, ""), "{}", ran.stdout);
    let closed: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((&closed["finished"], &closed["state"]), (&false.into(), &"CLOSING".into()));
    let ran = cluster.ringctl(&line).await;
    assert_eq!(ran.code, 1, "{}", ran.stdout);
    assert!(ran.stderr.contains("its owner keeps at it"), "{}", ran.stderr);
    agent.signal(Signal::CONT);
    let closed = cluster.ringctl(&["session", "close", "slow", "-o", "json"]).await.json();
    assert_eq!((&closed["finished"], &closed["state"]), (&true.into(), &"CLOSED".into()));
    cluster.end().await;
}
