//! Sessions with a life over HTTP: keep-alives, changes, and life cycles.

use rota_tests::{Cluster, PATIENCE, TestFolder, classes_of, eventually, http_get, http_post};
use serde_json::{Value, json};

/// A machine with a life cycle for which nothing runs.
const MARKED: &str = r#"
name = "marked"
kind = "machine"
states = ["on"]
initial = "on"
[life.cycles.note]
mark_only = true
"#;

/// Posts JSON to a manager, and expects that code.
async fn post(cluster: &Cluster, manager: usize, path: &str, body: &Value, code: u16) -> Value {
    let http = &cluster.document.managers[manager].http;
    let page = http_post(http, path, &body.to_string()).await.expect("an answer");
    assert_eq!(page.code, code, "{path} {body}: {page:?}");
    page.json()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_kept_alive_and_changed_and_its_life_cycles_are_read_over_http() {
    let folder = TestFolder::new();
    let classes = classes_of(&folder, &[("marked", MARKED)]);
    let cluster = Cluster::start(&folder, &["--classes", &classes]).await;
    let at = |verb: &str| format!("/v1/namespaces/default/sessions/room{verb}");
    let open = json!({
        "class": "marked", "attributes": {"a": "1", "b": "2"},
        "life": {"idle_ms": 60_000, "managed_state": ["note soon@+1s"]}
    });
    let opened = post(&cluster, 0, &at(":open"), &open, 200).await;
    assert_eq!((&opened["outcome"], &opened["idle_ms"]), (&"CREATED".into(), &60_000.into()));
    let kept = post(&cluster, 1, &at(":keepalive"), &json!({}), 200).await;
    assert_eq!(kept["session"]["state"], "READY", "{kept}");
    let life = opened["life"].as_u64().expect("a number");
    let other = json!({"life": life + 1});
    let refused = post(&cluster, 2, &at(":keepalive"), &other, 400).await;
    assert_eq!(refused["error"]["details"][0]["reason"], "LIFE_MISMATCH", "{refused}");

    let change = json!({
        "attributes": {"a": null, "c": "3"}, "add_state": ["note later@+1h"], "life": life
    });
    let changed = post(&cluster, 2, &at(":update"), &change, 200).await;
    let text = changed.to_string();
    assert!(text.contains("note later@"), "{text}");
    let page = http_get(&cluster.document.managers[0].http, &at("")).await.expect("an answer");
    let attributes = page.json()["attributes"].clone();
    assert_eq!(attributes, json!({"b": "2", "c": "3"}), "{page:?}");
    let stale = json!({"attributes": {"c": "4"}, "if_version": life});
    let refused = post(&cluster, 0, &at(":update"), &stale, 400).await;
    assert_eq!(refused["error"]["details"][0]["reason"], "VERSION_MISMATCH", "{refused}");
    let wrong = json!({"add_state": ["note"], "colour": "red"});
    let refused = post(&cluster, 0, &at(":update"), &wrong, 400).await.to_string();
    assert!(refused.contains("colour"), "every unknown field is named: {refused}");

    let shown = eventually("the first event fires", PATIENCE, async || {
        let page = http_get(&cluster.document.managers[1].http, &at("/life")).await?.json();
        let all = page.to_string();
        let fired = page["history"].as_array().is_some_and(|it| !it.is_empty())
            || page["items"]
                .as_array()
                .is_some_and(|it| it.iter().any(|it| it["fired_at"].is_u64()));
        if fired { Ok(all) } else { Err(all) }
    })
    .await;
    assert!(shown.contains("note soon@") && shown.contains("note later@"), "{shown}");
    assert!(shown.contains(r#""last_fired":{"note":"#), "{shown}");
    let by_query = http_get(&cluster.document.managers[2].http, "/v1/session/life?id=room").await;
    assert_eq!(by_query.expect("an answer").code, 200);
    let nobody = http_get(&cluster.document.managers[2].http, "/v1/session/life?id=nobody").await;
    assert_eq!(nobody.expect("an answer").code, 404);
    cluster.end().await;
}
