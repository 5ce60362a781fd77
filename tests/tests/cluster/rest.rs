//! The tree of resources over HTTP: what it shows, and how it refuses.

use rota_tests::sessions::{CALL, close, opened};
use rota_tests::{
    Cluster, HttpRequest, PATIENCE, Page, TestFolder, eventually, http_ask, http_get,
};
use serde_json::Value;
use std::collections::BTreeSet;

/// Asks a manager, and expects that code.
async fn asked(cluster: &Cluster, manager: usize, path: &str, code: u16) -> Page {
    let page = http_get(&cluster.document.managers[manager].http, path).await;
    let page = page.unwrap_or_else(|error| panic!("{path}: {error}"));
    assert_eq!(page.code, code, "{path}: {page:?}");
    page
}

async fn shown(cluster: &Cluster, manager: usize, path: &str) -> Value {
    asked(cluster, manager, path, 200).await.json()
}

/// The names of the fields of an object, but for its links.
fn names(of: &Value) -> BTreeSet<&str> {
    let fields = of.as_object().expect("it is an object").keys().map(String::as_str);
    fields.filter(|it| *it != "links").collect()
}

/// What `ringctl` prints.
async fn printed(cluster: &Cluster, arguments: &[&str]) -> Value {
    let ran = cluster.ringctl(&[arguments, &["-o", "json"]].concat()).await;
    serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran:?}"))
}

/// The stable numbers come soon after the start.
async fn is_numbered(cluster: &Cluster) {
    eventually("managers and nodes have numbers", PATIENCE, async || {
        for manager in &cluster.document.managers {
            for path in ["/v1/managers/3", "/v1/pools/default/nodes/1", "/v1/pools/1"] {
                let page = http_get(&manager.http, path).await?;
                if page.code != 200 {
                    return Err(page.body);
                }
            }
        }
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_resource_is_reached_by_links_and_named_as_ringctl_names_it() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    is_numbered(&cluster).await;
    opened(&cluster.client(), "a/b :open", "builtin").await;
    let index = shown(&cluster, 0, "/v1").await;
    let link = |of: &Value, name: &str| of["links"][name].as_str().unwrap().to_owned();
    let ring = printed(&cluster, &["inspect"]).await;

    let managers = shown(&cluster, 1, &link(&index, "managers")).await;
    assert_eq!(managers["managers"].as_array().unwrap().len(), 3);
    let first = &managers["managers"][0];
    assert_eq!((&first["id"], &first["links"]["self"]), (&"m1".into(), &"/v1/managers/1".into()));
    assert_eq!(&shown(&cluster, 2, "/v1/managers/1").await, first, "each manager tells the same");
    assert_eq!(&shown(&cluster, 2, "/v1/managers/m1").await, first);
    let known = names(&ring["managers"][0]);
    assert!(names(first).is_subset(&known), "{first} {known:?}");

    let pools = shown(&cluster, 0, &link(&index, "pools")).await;
    let pool = shown(&cluster, 1, &link(&pools["pools"][0], "self")).await;
    let listed = printed(&cluster, &["pool", "list"]).await;
    assert_eq!(names(&pool), names(&listed["pools"][0]));
    let classes = (&pool["classes"]["http"], &listed["pools"][0]["classes"]["http"]);
    assert_eq!(names(classes.0), names(classes.1));

    let nodes = shown(&cluster, 0, &link(&pool, "nodes")).await;
    let node = shown(&cluster, 2, &link(&nodes["nodes"][0], "self")).await;
    assert_eq!(node["links"]["self"], "/v1/pools/default/nodes/1");
    let listed = printed(&cluster, &["node", "show", "n1"]).await;
    // What runs on a node is a list of its own.
    let known: BTreeSet<&str> = names(&listed).into_iter().filter(|it| *it != "sessions").collect();
    assert_eq!(names(&node), known);
    assert_eq!(shown(&cluster, 0, "/v1/pools/default/nodes/n1").await["uuid"], node["uuid"]);

    let sessions = shown(&cluster, 0, &link(&node, "sessions")).await;
    let session = shown(&cluster, 1, &link(&sessions["sessions"][0], "self")).await;
    assert_eq!(session["id"], "a/b :open");
    let got = printed(&cluster, &["session", "get", "a/b :open"]).await;
    assert_eq!(names(&session), names(&got));
    for field in ["class", "pool", "state", "address", "owner", "epoch", "life", "version"] {
        assert_eq!(session[field], got[field], "{field}");
    }
    let by_query = shown(&cluster, 0, "/v1/session?id=a%2Fb%20:open").await;
    assert_eq!(by_query["life"], session["life"]);
    let openapi = |page: Page| page.header("content-type") == Some("application/json");
    assert!(openapi(asked(&cluster, 0, "/v1/sessions", 200).await));
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_comes_in_pages_with_the_same_filter() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &["--nodes", "3"]).await;
    let client = cluster.client();
    for number in 0..7 {
        opened(&client, &format!("s{number}"), "builtin").await;
    }
    client.close(close("s0"), CALL).await.unwrap();
    let mut path =
        "/v1/namespaces/default/sessions?state=READY&class=builtin&page_size=2".to_owned();
    let (mut ids, mut pages) = (BTreeSet::new(), 0);
    loop {
        let page = shown(&cluster, pages % 3, &path).await;
        let sessions = page["sessions"].as_array().unwrap();
        assert!(sessions.len() <= 2, "{page}");
        ids.extend(sessions.iter().map(|it| it["id"].as_str().unwrap().to_owned()));
        pages += 1;
        let Some(next) = page["links"]["next"].as_str() else { break };
        path = next.to_owned();
    }
    assert_eq!(ids, (1..7).map(|it| format!("s{it}")).collect());
    assert!(pages >= 3);
    let mut path = "/v1/pools/default/nodes?page_size=2".to_owned();
    let mut nodes = Vec::new();
    loop {
        let page = shown(&cluster, 0, &path).await;
        let ids = page["nodes"].as_array().unwrap().iter();
        nodes.extend(ids.map(|it| it["id"].as_str().unwrap().to_owned()));
        let Some(next) = page["links"]["next"].as_str() else { break };
        path = next.to_owned();
    }
    assert_eq!(nodes, ["n1", "n2", "n3"]);
    let by_id = shown(&cluster, 0, "/v1/pools/default/nodes?id=n2").await;
    assert_eq!(by_id["nodes"].as_array().unwrap().len(), 1);
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_pool_has_a_list_of_nodes_and_a_deleted_one_has_none() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    printed(&cluster, &["pool", "create", "fresh", "--policy", "spread"]).await;
    let pool = shown(&cluster, 1, "/v1/pools/fresh").await;
    let nodes = pool["links"]["nodes"].as_str().unwrap();
    for manager in 0..3 {
        let listed = shown(&cluster, manager, nodes).await;
        assert_eq!(listed["nodes"].as_array().map(Vec::len), Some(0), "{listed}");
    }
    let by_id = shown(&cluster, 0, "/v1/pools?id=fresh").await;
    assert_eq!(by_id["pools"].as_array().map(Vec::len), Some(1), "{by_id}");
    printed(&cluster, &["pool", "delete", "fresh"]).await;
    asked(&cluster, 0, nodes, 404).await;
    let by_id = shown(&cluster, 0, "/v1/pools?id=fresh").await;
    assert_eq!(by_id["pools"].as_array().map(Vec::len), Some(0), "{by_id}");
    let first = shown(&cluster, 0, "/v1/pools?page_size=1").await;
    assert_eq!(first["pools"][0]["name"], "default", "{first}");
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_is_the_status_of_grpc_as_json() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let refused = async |path: &str, code: u16, reason: &str| {
        let error = asked(&cluster, 0, path, code).await.json();
        assert_eq!(error["error"]["code"], code);
        assert_eq!(error["error"]["details"][0]["reason"], reason, "{path}: {error}");
        error
    };
    refused("/v1/namespaces/default/sessions/none", 404, "NOT_FOUND").await;
    refused("/v1/managers/77", 404, "NOT_FOUND").await;
    refused("/v1/managers/nobody", 404, "NOT_FOUND").await;
    refused("/v1/pools/none", 404, "N-DOCUMENT").await;
    refused("/v1/pools/none/nodes", 404, "N-DOCUMENT").await;
    refused("/v1/pools/77/nodes", 404, "NOT_FOUND").await;
    refused("/v1/pools/default/nodes/none", 404, "NOT_FOUND").await;
    refused("/v1/pools/default/nodes/none/sessions", 404, "NOT_FOUND").await;
    refused("/v1/colours", 404, "NOT_FOUND").await;
    for (path, fields) in [
        ("/v1/session", &["id"][..]),
        ("/v1/sessions?state=BLUE&page_size=0&colour=red", &["state", "page_size", "colour"]),
        ("/v1/sessions?page_size=5000", &["page_size"]),
        ("/v1/sessions?page_token=x", &["page_token"]),
        ("/v1/managers?page_token=%21", &["page_token"]),
        ("/v1/namespaces/default/sessions/a?timeout_ms=0", &["timeout_ms"]),
        ("/v1/namespaces/default/sessions/%FF", &["path"]),
    ] {
        let error = refused(path, 400, "INVALID_ARGUMENT").await;
        let wrong = error["error"]["details"][1]["fieldViolations"].as_array().unwrap();
        let wrong: Vec<&str> = wrong.iter().map(|it| it["field"].as_str().unwrap()).collect();
        assert_eq!(wrong, fields, "{path}");
    }
    let put = HttpRequest { method: "PUT", path: "/v1/pools", headers: &[], body: None };
    let http = &cluster.document.managers[0].http;
    let page = http_ask(http, put).await.unwrap();
    assert_eq!((page.code, page.header("allow")), (405, Some("GET,HEAD")), "{page:?}");
    let error = page.json()["error"].clone();
    assert_eq!((&error["code"], &error["status"]), (&405.into(), &"UNIMPLEMENTED".into()));
    let info = &error["details"][0];
    assert_eq!((&info["reason"], &info["domain"]), (&"METHOD_NOT_ALLOWED".into(), &"rota".into()));
    assert_eq!(info["metadata"], serde_json::json!({"retry": "never", "changed": "no"}));
    let verb = "/v1/namespaces/default/sessions/a:close";
    let get = http_ask(http, HttpRequest::get(verb, &[])).await.unwrap();
    assert_eq!((get.code, get.header("allow")), (405, Some("POST")), "{get:?}");
    assert_eq!(get.json()["error"]["details"][0]["reason"], "METHOD_NOT_ALLOWED");
    let foreign = HttpRequest::get("/v1/pools", &[("Host", "evil.example")]);
    assert_eq!(http_ask(http, foreign).await.unwrap().code, 421);
    cluster.end().await;
}

/// Waits until an answer stays as it is for a moment, and is not sent again. Gives its tag.
async fn not_sent_again(cluster: &Cluster, path: &str) -> String {
    let http = &cluster.document.managers[0].http;
    let mut tag = String::new();
    // The load may change while a node tells that a session has ended.
    eventually("it stays as it is", PATIENCE, async || {
        let page = asked(cluster, 0, path, 200).await;
        page.header("etag").expect("it has a tag").clone_into(&mut tag);
        let headers = [("If-None-Match", tag.as_str())];
        let again = http_ask(http, HttpRequest::get(path, &headers)).await?;
        let is_same = (again.code, again.body.as_str(), again.header("etag"));
        if is_same == (304, "", Some(tag.as_str())) { Ok(()) } else { Err(format!("{again:?}")) }
    })
    .await;
    tag
}

/// Waits until an answer with another tag is sent whose field says that.
async fn sent_again(cluster: &Cluster, (path, tag): (&str, &str), (field, says): (&str, &str)) {
    let http = &cluster.document.managers[0].http;
    eventually("another one is sent", PATIENCE, async || {
        let page = http_ask(http, HttpRequest::get(path, &[("If-None-Match", tag)])).await?;
        let is_new = page.code == 200 && page.json()[field] == says;
        if is_new && page.header("etag") != Some(tag) { Ok(()) } else { Err(format!("{page:?}")) }
    })
    .await;
}

async fn a_pool_a_node_and_a_manager_that_did_not_change_are_not_sent_again(cluster: &Cluster) {
    let pool = "/v1/pools/default";
    let tag = not_sent_again(cluster, pool).await;
    printed(cluster, &["pool", "create", "default", "--description", "other"]).await;
    sent_again(cluster, (pool, &tag), ("description", "other")).await;
    let node = "/v1/pools/default/nodes/n1";
    let tag = not_sent_again(cluster, node).await;
    printed(cluster, &["node", "cordon", "n1"]).await;
    sent_again(cluster, (node, &tag), ("state", "CORDONED")).await;
    not_sent_again(cluster, "/v1/managers/1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_did_not_change_is_not_sent_again() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let client = cluster.client();
    opened(&client, "same", "builtin").await;
    let path = "/v1/namespaces/default/sessions/same";
    let tag = asked(&cluster, 0, path, 200).await.header("etag").unwrap().to_owned();
    let again = async |manager: usize| {
        let headers = &[("If-None-Match", tag.as_str())];
        let http = &cluster.document.managers[manager].http;
        http_ask(http, HttpRequest::get(path, headers)).await.unwrap()
    };
    let page = again(1).await;
    assert_eq!((page.code, page.body.as_str()), (304, ""), "{page:?}");
    assert_eq!(page.header("etag"), Some(tag.as_str()));
    assert_eq!(page.header("cache-control"), Some("no-cache"));
    client.close(close("same"), CALL).await.unwrap();
    let page = again(2).await;
    assert_eq!((page.code, &page.json()["state"]), (200, &"CLOSED".into()));
    assert_ne!(page.header("etag"), Some(tag.as_str()));
    a_pool_a_node_and_a_manager_that_did_not_change_are_not_sent_again(&cluster).await;
    cluster.end().await;
}
