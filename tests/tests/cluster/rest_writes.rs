//! Opening, closing and sending over HTTP.

use rota_tests::sessions::opened;
use rota_tests::{Cluster, HttpRequest, Page, TestFolder, http_ask, http_get, http_post};

/// Sends JSON to a manager, and expects that code.
async fn posted(cluster: &Cluster, manager: usize, path: &str, body: &str, code: u16) -> Page {
    let page = http_post(&cluster.document.managers[manager].http, path, body).await;
    let page = page.unwrap_or_else(|error| panic!("{path}: {error}"));
    assert_eq!(page.code, code, "{path} {body}: {page:?}");
    page
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_opened_found_sent_to_and_closed() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let at = |verb: &str| format!("/v1/namespaces/default/sessions/crossing{verb}");
    let body = r#"{"class": "traffic-light"}"#;
    let page = posted(&cluster, 0, &at(":open"), body, 200).await.json();
    assert_eq!((&page["outcome"], &page["state"]), (&"CREATED".into(), &"READY".into()), "{page}");
    let found = posted(&cluster, 1, &at(":open"), body, 200).await.json();
    assert_eq!((&found["outcome"], &found["life"]), (&"EXISTED".into(), &page["life"]));
    let moved = posted(&cluster, 2, &at(":send"), r#"{"event": "next"}"#, 200).await.json();
    assert_eq!((&moved["from"], &moved["to"]), (&"red".into(), &"red-amber".into()), "{moved}");
    assert_eq!((&moved["id"], &moved["final"]), (&"crossing".into(), &false.into()));
    let error = posted(&cluster, 2, &at(":send"), r#"{"event": "repair"}"#, 400).await.json();
    assert_eq!(error["error"]["details"][0]["reason"], "NO_TRANSITION", "{error}");
    let other = format!("{{\"life\": {}}}", page["life"].as_u64().unwrap() + 1);
    let error = posted(&cluster, 0, &at(":close"), &other, 400).await.json();
    assert_eq!(error["error"]["details"][0]["reason"], "LIFE_MISMATCH", "{error}");
    let closed = posted(&cluster, 1, &at(":close"), "", 200).await.json();
    assert_eq!((&closed["finished"], &closed["state"]), (&true.into(), &"CLOSED".into()));
    let error = posted(&cluster, 0, &at(":send"), r#"{"event": "next"}"#, 404).await.json();
    assert_eq!(error["error"]["details"][0]["reason"], "NOT_FOUND", "{error}");
    opened(&cluster.client(), "program", "http").await;
    let to = "/v1/namespaces/default/sessions/program:send";
    posted(&cluster, 0, to, r#"{"event": "next"}"#, 400).await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idempotency_key_repeats_the_answer() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let ask = async |manager: usize, path: &str, body: &str| {
        let headers = &[("Content-Type", "application/json"), ("Idempotency-Key", "\"k1\"")];
        let request = HttpRequest { method: "POST", path, headers, body: Some(body) };
        http_ask(&cluster.document.managers[manager].http, request).await.unwrap()
    };
    let open = "/v1/session:open?namespace=default&id=..";
    let body = r#"{"class": "builtin", "attributes": {"a": "1"}}"#;
    let first = ask(0, open, body).await.json();
    assert_eq!(first["outcome"], "CREATED", "{first}");
    assert_eq!(first["links"]["close"], "/v1/session:close?namespace=default&id=..");
    let again = ask(1, open, body).await.json();
    assert_eq!((&again["outcome"], &again["life"]), (&"CREATED".into(), &first["life"]));
    let reused = ask(2, open, r#"{"class": "counter"}"#).await;
    assert_eq!(
        (reused.code, &*reused.json()["error"]["status"].to_string()),
        (409, "\"ALREADY_EXISTS\"")
    );
    let send = ask(0, "/v1/session:send?id=..", r#"{"event": "x"}"#).await;
    assert_eq!(send.code, 400, "{send:?}");
    assert!(send.body.contains("Idempotency-Key"), "{send:?}");
    posted(&cluster, 0, "/v1/session:close?id=..", "{}", 200).await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_write_is_refused_by_the_name_of_its_field_and_does_nothing() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let open = "/v1/namespaces/default/sessions/never:open";
    for (body, field) in [
        ("{}", "class"),
        (r#"{"class": 5}"#, "class"),
        (r#"{"class": "builtin", "pol": "x"}"#, "pol"),
        (r#"{"class": "builtin", "attributes": {"a": 1}}"#, "attributes"),
        ("[]", "body"),
        ("{", "body"),
    ] {
        let error = posted(&cluster, 0, open, body, 400).await.json();
        let wrong = error["error"]["details"][1]["fieldViolations"].as_array().unwrap().clone();
        assert!(wrong.iter().any(|it| it["field"] == field), "{body}: {error}");
    }
    let large = format!("{{\"class\": \"builtin\", \"x\": \"{}\"}}", "x".repeat(1024 * 1024));
    let page = posted(&cluster, 0, open, &large, 400).await;
    assert!(page.body.contains("1048576 bytes"), "{page:?}");
    posted(&cluster, 0, "/v1/namespaces/default/sessions/never", "{}", 405).await;
    let grace = r#"{"grace_ms": 999999}"#;
    posted(&cluster, 0, "/v1/namespaces/default/sessions/never:close", grace, 400).await;
    let http = &cluster.document.managers[0].http;
    let body = Some(r#"{"class": "builtin"}"#);
    for (headers, code) in [
        (&[("Content-Type", "text/plain")][..], 415),
        (&[("Content-Type", "application/json"), ("Origin", "https://evil.example")], 403),
        (&[("Content-Type", "application/json"), ("Host", "evil.example")], 421),
    ] {
        let request = HttpRequest { method: "POST", path: open, headers, body };
        assert_eq!(http_ask(http, request).await.unwrap().code, code, "{headers:?}");
    }
    let never = http_get(http, "/v1/namespaces/default/sessions/never").await.unwrap();
    assert_eq!(never.code, 404, "nothing was opened");
    cluster.end().await;
}
