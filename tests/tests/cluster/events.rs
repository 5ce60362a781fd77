//! What happened lately in a cluster, as `ringctl events`, `ringctl session events` and HTTP tell it.

use rota_client::v1::SessionState;
use rota_tests::sessions::{CALL, becomes, close, opened};
use rota_tests::{
    Cluster, EventStream, Following, HttpRequest, PATIENCE, TestFolder, eventually, http_get,
};
use rustix::process::Signal;
use serde_json::Value;

fn kinds(events: &Value) -> Vec<String> {
    let events = events["events"].as_array().expect("a list");
    events.iter().map(|it| it["kind"].as_str().expect("a text").to_owned()).collect()
}

async fn of_session(cluster: &Cluster, id: &str) -> Value {
    cluster.ringctl(&["session", "events", id, "-o", "json"]).await.json()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_happened_to_a_session_is_told_by_its_owner_whomever_one_asks() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let client = cluster.client();
    opened(&client, "room", "builtin").await;
    let line = ["session", "events", "room", "-f", "-o", "json"];
    let mut following = Following::start(&cluster.endpoints(), &line);
    for kind in ["session_placed", "session_opened"] {
        assert_eq!(following.json().await["kind"], kind);
    }
    opened(&client, "other", "builtin").await;
    client.close(close("room"), CALL).await.expect("an answer");
    for kind in ["session_closing", "session_closed"] {
        let told = following.json().await;
        assert_eq!((&told["kind"], &told["reason"]), (&kind.into(), &"CLOSED_BY_CLIENT".into()));
        assert_eq!((&told["namespace"], &told["id"]), (&"default".into(), &"room".into()));
    }
    let ended = following.end(Signal::INT).await;
    assert_eq!((ended.code, ended.stderr.as_str()), (0, ""), "{ended:?}");
    let all = of_session(&cluster, "room").await;
    let whole = ["session_placed", "session_opened", "session_closing", "session_closed"];
    assert_eq!(kinds(&all), whole, "{all}");
    let last = cluster.ringctl(&["session", "events", "room", "--last", "1"]).await;
    let last = last.expect_success().stdout;
    assert!(last.contains("session_closed") && !last.contains("session_closing"), "{last}");
    let nothing = cluster.ringctl(&["session", "events", "nobody"]).await.expect_success();
    assert!(nothing.stderr.contains("no manager keeps such an event"), "{nothing:?}");
    let wrong = cluster.ringctl(&["events", "--kind", "opened"]).await;
    assert_eq!(wrong.code, 2, "{wrong:?}");
    assert!(wrong.stderr.contains("session_opened"), "{wrong:?}");
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_take_over_is_told_and_a_silent_manager_is_named() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let client = cluster.client();
    let session = opened(&client, "room", "builtin").await;
    let line = ["events", "-f", "--last", "1", "-o", "json"];
    let mut following = Following::start(&cluster.endpoints(), &line);
    following.json().await;
    let managers = &cluster.document.managers;
    let gone = managers.iter().position(|it| it.number == session.owner).expect("its owner");
    let number = managers[gone].number;
    cluster.kill_manager(gone).await;
    let mut missing: Vec<&str> = vec!["manager_silent", "taken_out", "serving"];
    while !missing.is_empty() {
        let told = following.json().await;
        let is_it = |kind: &str| {
            told["kind"] == kind
                && match kind {
                    "manager_silent" => told["manager"] == number,
                    "taken_out" => told["text"].as_str().is_some_and(|it| it.contains("manager")),
                    _ => told["partition"] == number && told["manager"] != number,
                }
        };
        missing.retain(|kind| !is_it(kind));
    }
    following.end(Signal::INT).await;
    client.close(close("room"), CALL).await.expect("an answer");
    becomes(&client, "room", SessionState::Closed).await;
    let all = of_session(&cluster, "room").await;
    let told = kinds(&all);
    // The new owner may tell the open again.
    assert!(told.ends_with(&["session_closing", "session_closed"].map(str::to_owned)), "{all}");
    assert_eq!(all["remarks"][0]["kind"], "manager_silent", "{all}");
    let lost = ["events", "--kind", "taken_out,session_closed", "-o", "json"];
    let told = kinds(&cluster.ringctl(&lost).await.json());
    assert_eq!(told, ["taken_out", "session_closed"]);
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_comes_back_over_http_with_the_last_position_misses_nothing() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let client = cluster.client();
    let session = opened(&client, "room", "builtin").await;
    let managers = &cluster.document.managers;
    let http = managers.iter().find(|it| it.number == session.owner).map(|it| it.http.clone());
    let http = http.expect("its owner");
    let page = eventually("the open is told", PATIENCE, async || {
        let page = http_get(&http, "/v1/events?id=room&kind=session_opened").await?.json();
        if page["events"].as_array().is_some_and(|it| it.len() == 1) {
            Ok(page)
        } else {
            Err(page.to_string())
        }
    })
    .await;
    assert_eq!(page["missed"], false, "{page}");
    let position = page["events"][0]["position"].as_str().expect("a position").to_owned();
    client.close(close("room"), CALL).await.expect("an answer");
    let headers = [("Last-Event-ID", position.as_str())];
    let watch = HttpRequest::get("/v1/events:watch?id=room", &headers);
    let mut stream = EventStream::open(&http, watch).await.expect("a stream");
    for kind in ["session_closing", "session_closed"] {
        let event = stream.next().await.expect("an answer").expect("the stream goes on");
        let told: Value = serde_json::from_str(&event.data).expect("JSON");
        assert_eq!((&told["kind"], &told["position"]), (&kind.into(), &event.id.into()));
    }
    let garbled =
        http_get(&http, "/v1/events?after=yesterday&kind=no&last=x").await.expect("an answer");
    let text = garbled.json().to_string();
    assert_eq!(garbled.code, 400, "{text}");
    assert!(text.contains("last"), "{text}");
    let garbled =
        http_get(&http, "/v1/events?after=yesterday&kind=no").await.expect("an answer").json();
    for field in ["after", "kinds"] {
        assert!(garbled.to_string().contains(field), "{garbled}");
    }
    cluster.end().await;
}
