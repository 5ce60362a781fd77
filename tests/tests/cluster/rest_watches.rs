//! Changes of sessions as server-sent events.

use rota_tests::sessions::{CALL, close, open, opened};
use rota_tests::{Cluster, Event, EventStream, HttpRequest, TestFolder, http_get};
use serde_json::Value;

async fn events(cluster: &Cluster, manager: usize, path: &str, last: Option<&str>) -> EventStream {
    let headers: Vec<(&str, &str)> = last.map(|it| ("Last-Event-ID", it)).into_iter().collect();
    let http = &cluster.document.managers[manager].http;
    let stream = EventStream::open(http, HttpRequest::get(path, &headers)).await;
    stream.unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Reads up to the first event for which this holds, and gives that one and all before it.
async fn until(stream: &mut EventStream, holds: impl Fn(&Value) -> bool) -> (Event, Vec<Value>) {
    let mut before = Vec::new();
    loop {
        let event = stream.next().await.unwrap().expect("the stream goes on");
        let line: Value = serde_json::from_str(&event.data).unwrap();
        if holds(&line) {
            return (event, before);
        }
        before.push(line);
    }
}

fn is_in(id: &str, state: &str) -> impl Fn(&Value) -> bool {
    move |line| line["session"]["id"] == id && line["session"]["state"] == state
}

#[tokio::test(flavor = "multi_thread")]
async fn who_comes_back_with_the_id_of_the_last_event_misses_nothing() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let client = cluster.client();
    opened(&client, "early", "builtin").await;
    let path = "/v1/namespaces/default/sessions:watch";
    let mut stream = events(&cluster, 0, path, None).await;
    let (_, before) = until(&mut stream, |it| it["caught_up"] == true).await;
    assert!(before.iter().any(|it| it["snapshot"] == true && it["session"]["id"] == "early"));
    opened(&client, "first", "builtin").await;
    let (seen, _) = until(&mut stream, is_in("first", "READY")).await;
    assert!(!seen.id.is_empty(), "{seen:?}");
    drop(stream);
    client.close(close("first"), CALL).await.unwrap();
    opened(&client, "second", "builtin").await;
    let mut stream = events(&cluster, 1, path, Some(&seen.id)).await;
    let mut missed = Vec::new();
    while missed.len() < 2 {
        let ends = |it: &Value| is_in("first", "CLOSED")(it) || is_in("second", "READY")(it);
        let (event, before) = until(&mut stream, ends).await;
        assert!(before.iter().all(|it| it["snapshot"] == false), "{before:?}");
        missed.push(event);
    }
    // The same by the query.
    let again = format!("{path}?position={}", seen.id);
    until(&mut events(&cluster, 2, &again, None).await, is_in("second", "READY")).await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_of_one_session_tells_nothing_of_others_and_survives_a_take_over() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let client = cluster.client_of(0);
    let owner = opened(&client, "{x}one", "builtin").await.owner;
    opened(&client, "other", "builtin").await;
    let index = cluster.document.managers.iter().position(|it| it.number == owner).unwrap();
    let asked = (index + 1) % 3;
    let path = "/v1/namespaces/default/sessions/%7Bx%7Done:watch";
    let mut stream = events(&cluster, asked, path, None).await;
    let (_, before) = until(&mut stream, |it| it["caught_up"] == true).await;
    assert!(before.iter().all(|it| it["session"]["id"] == "{x}one"), "{before:?}");
    cluster.kill_manager(index).await;
    let client = cluster.client();
    client.close(close("{x}one"), CALL).await.unwrap();
    until(&mut stream, is_in("{x}one", "CLOSED")).await;
    client.open(open("{x}one", "builtin"), CALL).await.unwrap();
    until(&mut stream, is_in("{x}one", "READY")).await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manager_that_stops_says_so_and_another_one_goes_on() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let client = cluster.client();
    opened(&client, "one", "builtin").await;
    let path = "/v1/namespaces/default/sessions/one:watch";
    let mut stream = events(&cluster, 0, path, None).await;
    let (seen, _) = until(&mut stream, |it| it["caught_up"] == true).await;
    rota_tests::processes::send(cluster.document.managers[0].pid, rustix::process::Signal::TERM);
    let mut last = Event::default();
    while let Some(event) = stream.next().await.unwrap() {
        last = event;
    }
    assert_eq!(last.name, "refused", "{last:?}");
    let told: Value = serde_json::from_str(&last.data).unwrap();
    assert_eq!(told["error"]["details"][0]["reason"], "NOT_SERVING", "{told}");
    let mut stream = events(&cluster, 1, path, Some(&seen.id)).await;
    client.close(close("one"), CALL).await.unwrap();
    let (_, before) = until(&mut stream, is_in("one", "CLOSED")).await;
    assert!(before.iter().all(|it| it["snapshot"] == false), "{before:?}");
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_that_cannot_begin_is_refused_and_one_of_too_many_as_well() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &["--managers", "1"]).await;
    let http = &cluster.document.managers[0].http;
    for (path, field) in [
        ("/v1/sessions:watch?position=%21", "position"),
        ("/v1/sessions:watch?state=BLUE", "state"),
        ("/v1/session:watch", "id"),
        ("/v1/session:watch?id=a&timeout_ms=9", "timeout_ms"),
    ] {
        let page = http_get(http, path).await.unwrap();
        assert_eq!(page.code, 400, "{page:?}");
        let told = page.json();
        let wrong = &told["error"]["details"][1]["fieldViolations"][0]["field"];
        assert_eq!(wrong, field, "{told}");
    }
    let mut all = Vec::new();
    for _ in 0..128 {
        all.push(events(&cluster, 0, "/v1/sessions:watch", None).await);
    }
    let page = http_get(http, "/v1/sessions:watch").await.unwrap();
    assert_eq!((page.code, page.header("retry-after")), (429, Some("1")), "{page:?}");
    assert_eq!(http_get(http, "/healthz").await.unwrap().code, 200, "others are served");
    cluster.end().await;
}
