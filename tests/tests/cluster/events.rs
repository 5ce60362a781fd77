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
    let closed = ["session", "events", "room", "--kind", "session_closed", "--since", "1h"];
    let closed = cluster.ringctl(&[&closed[..], &["-o", "json"]].concat()).await.json();
    assert_eq!(kinds(&closed), ["session_closed"], "{closed}");
    let lost = cluster.ringctl(&["session", "events", "room", "--kind", "session_lost"]).await;
    let lost = lost.expect_success();
    assert!(lost.stderr.contains("no manager keeps such an event"), "{lost:?}");
    let nobody = cluster.ringctl(&["session", "events", "nobody", "-o", "json"]).await;
    assert_eq!((nobody.code, nobody.stdout.as_str()), (1, ""), "{nobody:?}");
    assert!(nobody.stderr.contains(r#""reason":"NOT_FOUND""#), "{nobody:?}");
    let wrong = cluster.ringctl(&["events", "--kind", "opened"]).await;
    assert_eq!(wrong.code, 2, "{wrong:?}");
    assert!(wrong.stderr.contains("session_opened"), "{wrong:?}");
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manager_that_was_started_anew_is_named_with_since_when_it_remembers() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let session = opened(&cluster.client(), "room", "builtin").await;
    let fresh = cluster.ringctl(&["events", "-o", "json"]).await.json();
    assert_eq!(fresh["remarks"].as_array().map(Vec::len), Some(0), "{fresh}");
    let managers = &cluster.document.managers;
    let owner = managers.iter().position(|it| it.number == session.owner).expect("its owner");
    let again = cluster.restart_manager(&folder, owner).await;
    let told = eventually("it tells its events again", PATIENCE, async || {
        let told = of_session(&cluster, "room").await;
        let kinds = told["remarks"].as_array().into_iter().flatten().map(|it| &it["kind"]);
        if kinds.eq(["events_forgotten"]) { Ok(told) } else { Err(told.to_string()) }
    })
    .await;
    assert_eq!(told["remarks"][0]["manager"], session.owner, "{told}");
    assert!(told["remarks"][0]["at"].as_u64() > Some(session.life), "{told}");
    let ran = cluster.ringctl(&["events"]).await.expect_success();
    assert!(ran.stderr.contains("it remembers since 2"), "{ran:?}");
    assert!(!ran.stdout.contains("events_forgotten"), "{ran:?}");
    let short = cluster.ringctl(&["events", "--since", "1ms", "-o", "json"]).await.json();
    assert_eq!(short["remarks"].as_array().map(Vec::len), Some(0), "{short}");
    cluster.end_with(vec![again]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_done_to_nodes_and_to_content_is_told_with_the_node() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let node = cluster.document.nodes[0].id.clone();
    for order in ["cordon", "uncordon"] {
        cluster.ringctl(&["node", order, &node]).await.expect_success();
    }
    let line = ["events", "--kind", "node_registered,node_ordered", "-o", "json"];
    let of_nodes = cluster.ringctl(&line).await.json();
    assert_eq!(kinds(&of_nodes), ["node_registered", "node_ordered", "node_ordered"]);
    let events = of_nodes["events"].as_array().expect("a list");
    assert!(events.iter().all(|it| it["node"] == *node), "{of_nodes}");
    let root = folder.path().join("content");
    std::fs::create_dir_all(&root).expect("the folder can be made");
    let mut commits = Vec::new();
    for text in ["one", "two"] {
        std::fs::write(root.join("readme"), text).expect("it can be written");
        let line = ["content", "publish", root.to_str().expect("the path is text"), "-o", "json"];
        let commit = cluster.ringctl(&line).await.json()["commit"].clone();
        commits.push(commit.as_str().expect("a hash").to_owned());
    }
    for line in [
        &["content", "rollback", &commits[0]][..],
        &["content", "follow", "main"],
        &["content", "unfollow"],
        &["content", "remove", "main", "--yes"],
    ] {
        cluster.ringctl(line).await.expect_success();
    }
    let told = ["published", "published", "rolled_back", "followed", "unfollowed", "removed"];
    let told = told.map(|it| format!("content_{it}"));
    let line = ["events", "--kind", &told[1..].join(","), "-o", "json"];
    let of_content = eventually("all of it is told", PATIENCE, async || {
        let all = cluster.ringctl(&line).await.json();
        if kinds(&all) == told { Ok(all) } else { Err(all.to_string()) }
    })
    .await;
    let first = &of_content["events"][0];
    assert!(first["version"].is_u64(), "{first}");
    assert!(first["text"].as_str().is_some_and(|it| it.contains(&commits[0])), "{first}");
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
    assert_eq!((&page["missed"], &page["dropped"]), (&false.into(), &0.into()), "{page}");
    assert!(page["since"].as_u64() < page["events"][0]["at"].as_u64(), "{page}");
    let all = of_session(&cluster, "room").await;
    assert_eq!(page["events"][0]["version"], all["events"][1]["version"], "{page} {all}");
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
