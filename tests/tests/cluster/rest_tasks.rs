//! Tasks over HTTP.

use rota_tests::{Cluster, HttpRequest, Page, TestFolder, http_ask};
use serde_json::{Value, json};

const LIST: &str = "/v1/namespaces/shop/tasks";

/// Asks a manager, and expects that code.
async fn asked(cluster: &Cluster, method: &str, path: &str, body: Option<&str>, code: u16) -> Page {
    let headers = &[("Content-Type", "application/json")];
    let request = HttpRequest { method, path, headers, body };
    let page = http_ask(&cluster.document.managers[1].http, request).await;
    let page = page.unwrap_or_else(|error| panic!("{path}: {error}"));
    assert_eq!(page.code, code, "{method} {path}: {page:?}");
    page
}

async fn created(cluster: &Cluster, place: &str, more: &[&str]) -> Value {
    let param = json!({"changes": [{"class": "Cart", "docid": place, "life": "ensure"}]});
    let param = param.to_string();
    let line = ["task", "create", "shop/document.write", "--place", place, "--param", &param];
    cluster.ringctl(&[&line[..], more, &["-o", "json"]].concat()).await.json()
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_are_listed_shown_ordered_about_and_deleted() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &["--nodes", "0"]).await;
    created(&cluster, "cart/1", &["--cron", "D0425", "--info", "carts/1"]).await;
    for number in 2..5 {
        let (place, info) = (format!("cart/{number}"), format!("carts/{number}"));
        created(&cluster, &place, &["--at", "+1h", "--info", &info]).await;
    }
    // Pages follow each other, and keep their filter.
    let (mut next, mut found) = (format!("{LIST}?page_size=1&info=carts&state=WAITING"), 0);
    while !next.is_empty() {
        let page = asked(&cluster, "GET", &next, None, 200).await.json();
        found += page["tasks"].as_array().unwrap().len();
        next = page["links"]["next"].as_str().unwrap_or_default().to_owned();
    }
    assert_eq!(found, 4);
    let list = asked(&cluster, "GET", &format!("{LIST}?periodic=true"), None, 200).await.json();
    let task = &list["tasks"][0];
    assert_eq!((list["tasks"].as_array().unwrap().len(), &task["info"]), (1, &json!("carts/1")));
    let path = task["links"]["self"].as_str().unwrap();
    assert!(path.starts_with(&format!("{LIST}/%7Bcart%2F1%7D")), "{path}");
    assert_eq!(asked(&cluster, "GET", path, None, 200).await.json(), *task);
    let shown = ["task", "show", &format!("shop/{}", task["id"].as_str().unwrap()), "-o", "json"];
    let mut shown = cluster.ringctl(&shown).await.json();
    shown["links"] = task["links"].clone();
    assert_eq!(shown, *task, "both have the same fields");

    let at = |verb: &str| format!("{path}:{verb}");
    let paused = asked(&cluster, "POST", &at("pause"), Some("{}"), 200).await.json();
    assert_eq!(paused["task"]["state"], "PAUSED", "{paused}");
    let refused = asked(&cluster, "POST", &at("retry"), Some("{}"), 400).await.json();
    assert_eq!(refused["error"]["message"], "paused is set; resume it first", "{refused}");
    asked(&cluster, "POST", &at("resume"), Some("{}"), 200).await;
    let later = r#"{"at": 980101000000000}"#;
    let moved = asked(&cluster, "POST", &at("postpone"), Some(later), 200).await.json();
    assert_eq!(moved["task"]["start_at"], 980_101_000_000_000_u64, "{moved}");
    let deleted = asked(&cluster, "DELETE", path, None, 200).await.json();
    assert_eq!(deleted["task"], Value::Null);
    let gone = asked(&cluster, "DELETE", path, None, 404).await.json();
    assert_eq!(gone["error"]["details"][0]["reason"], "N-TASK", "{gone}");
    asked(&cluster, "GET", path, None, 404).await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_a_call_about_tasks_is_told_by_its_field() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &["--managers", "2", "--nodes", "0"]).await;
    let message = async |method: &str, path: &str, body: Option<&str>| {
        let page = asked(&cluster, method, path, body, 400).await.json();
        page["error"]["message"].as_str().unwrap().to_owned()
    };
    let wrong = format!("{LIST}?state=GONE&page_size=201&colour=red");
    assert_eq!(
        message("GET", &wrong, None).await,
        "state is \"GONE\"; it must be one of WAITING, RUNNING, LOST, PARKED, PAUSED; page_size is \
         201; it must be 1 to 200; colour is not known here"
    );
    let started = format!("{LIST}?started_from=7");
    assert!(message("GET", &started, None).await.starts_with("started_from 7 is no stamp"));
    let task = format!("{LIST}/%7Ba%7Db");
    let told = message("POST", &format!("{task}:advance"), Some("{}")).await;
    assert_eq!(told, "at is missing: the new start, a stamp (YYMMDDhhmmssmmm, UTC)");
    let told = message("POST", &format!("{task}:pause"), Some(r#"{"at": 1}"#)).await;
    assert_eq!(told, "at is not known here");
    let page = asked(&cluster, "PUT", &task, None, 405).await;
    assert_eq!(page.header("allow"), Some("GET,HEAD,DELETE"));
    cluster.end().await;
}
