//! Sessions and documents that are found by conditions, in pages.

use rota_client::{CallError, Client, Watch, WatchOptions, v1};
use rota_model::RefusalKind;
use rota_tests::sessions::{CALL, close, open};
use rota_tests::{Cluster, PATIENCE, TestFolder, eventually, http_get, run_to_end};
use serde_json::{Value, json};
use tokio::time::timeout;

/// Opens a session of this user.
async fn opened_by(client: &Client, id: &str, user: &str) {
    let rank = id.to_owned();
    let attributes = [("user".to_owned(), user.to_owned()), ("rank".to_owned(), rank)].into();
    let request = v1::OpenRequest { attributes, ..open(id, "builtin") };
    client.open(request, CALL).await.unwrap_or_else(|error| panic!("open {id}: {error:?}"));
}

fn seeking(conditions: &str, sort: &str, descending: bool) -> v1::ListRequest {
    let (r#where, sort) = (conditions.to_owned(), sort.to_owned());
    v1::ListRequest { r#where, sort, descending, ..Default::default() }
}

fn ids(sessions: &[v1::Session]) -> Vec<&str> {
    sessions.iter().map(|it| it.id.as_str()).collect()
}

/// The fields that a refusal names, and what it says.
fn refused(answer: Result<v1::ListResponse, CallError>) -> (Vec<String>, String) {
    let Err(CallError::Refused { refusal, .. }) = answer else { panic!("{answer:?}") };
    assert_eq!(refusal.kind, RefusalKind::InvalidArgument);
    (refusal.fields.iter().map(|it| it.field.clone()).collect(), refusal.message)
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_sessions_in_order_show_each_once_while_an_owner_is_killed_and_others_come_and_go()
{
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let client = cluster.client();
    for number in 0..60 {
        let user = if number % 3 == 0 { "y" } else { "x" };
        opened_by(&client, &format!("s{number:02}"), user).await;
    }
    let stays: Vec<String> =
        (0..60).filter(|it| it % 3 != 0).map(|it| format!("s{it:02}")).collect();
    for descending in [false, true] {
        let mut request = seeking("attr.user = x and state = READY", "attr.rank", descending);
        request.page_size = 7;
        let (mut seen, mut pages) = (Vec::new(), 0);
        loop {
            let page = client.list(request.clone(), CALL).await.unwrap();
            assert!(!page.stale && page.sessions.len() <= 7);
            seen.extend(page.sessions.into_iter().map(|it| it.id));
            if page.next_page_token.is_empty() {
                break;
            }
            request.page_token = page.next_page_token;
            pages += 1;
            if pages == 2 && !descending {
                cluster.kill_manager(0).await;
            }
            let passing = format!("s{pages:02}-meanwhile");
            opened_by(&client, &passing, "x").await;
            client.close(close(&passing), CALL).await.unwrap();
        }
        assert!(pages >= 5, "{pages}");
        seen.retain(|it| !it.ends_with("-meanwhile"));
        let mut expected = stays.clone();
        if descending {
            expected.reverse();
        }
        assert_eq!(seen, expected);
    }
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_are_listed_by_conditions_and_mistakes_in_these_are_told_with_their_columns() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let client = cluster.client();
    for (id, user) in [("a", "x"), ("b", "y"), ("c", "x"), ("d", "x")] {
        opened_by(&client, id, user).await;
    }
    client.close(close("a"), CALL).await.unwrap();
    let found = async |request| client.list_all(request, CALL).await.unwrap().sessions;
    let by_user = found(seeking("attr.user = x", "", false)).await;
    assert_eq!(ids(&by_user), ["c", "d"], "what has ended has no attributes");
    let youngest = found(seeking("", "age", false)).await;
    assert_eq!(ids(&youngest), ["d", "c", "b", "a"]);
    assert_eq!(ids(&found(seeking("", "age", true)).await), ["a", "b", "c", "d"]);
    let ready = v1::Filter { states: vec![v1::SessionState::Ready.into()], ..Default::default() };
    let both = v1::ListRequest { filter: Some(ready), ..seeking("class = builtin", "", false) };
    assert_eq!(ids(&found(both.clone()).await), ["b", "c", "d"], "the filter holds as well");
    let closed = ["session", "list", "--where", "docid < c and state = closed", "-o", "json"];
    let closed = cluster.ringctl(&closed).await.json();
    assert_eq!((&closed["sessions"][0]["id"], &closed["sessions"][1]), (&json!("a"), &Value::Null));
    let first = ["session", "list", "--sort", "-attr.rank", "--limit", "2", "-o", "json"];
    let first = cluster.ringctl(&first).await.json();
    let shown = [0, 1, 2].map(|it| first["sessions"][it]["id"].clone());
    assert_eq!(shown, [json!("d"), json!("c"), Value::Null]);
    let path = "/v1/namespaces/default/sessions?where=attr.user%20%3D%20x&sort=age&page_size=1";
    let http = &cluster.document.managers[1].http;
    let page = http_get(http, path).await.unwrap().json();
    assert_eq!(page["sessions"][0]["id"], "d", "{page}");
    let next = http_get(http, page["links"]["next"].as_str().unwrap()).await.unwrap().json();
    assert_eq!(next["sessions"][0]["id"], "c", "{next}");

    let list = async |request| client.list(request, CALL).await;
    let (fields, told) = refused(list(seeking("state = READY or age > 1m", "", false)).await);
    assert_eq!(fields, ["where"]);
    assert!(told.contains("column 15: `or` cannot stand here; expected `and`"), "{told}");
    assert_eq!(refused(list(seeking("", "colour", false)).await).0, ["sort"]);
    assert_eq!(refused(list(seeking("", "", true)).await).0, ["descending"]);
    let stale = v1::ListRequest { stale_ok: true, ..both.clone() };
    assert_eq!(refused(list(stale).await).0, ["stale_ok"]);
    let one = v1::ListRequest { page_size: 1, ..seeking("", "age", false) };
    let page_token = list(one).await.unwrap().next_page_token;
    let other = v1::ListRequest { page_token, ..both };
    assert_eq!(refused(list(other).await).0, ["page_token"]);
    cluster.end().await;
}

async fn next(watch: &mut Watch) -> v1::WatchResponse {
    let answer = timeout(PATIENCE, watch.next()).await.expect("the watch goes on");
    answer.unwrap_or_else(|error| panic!("{error:?}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_with_conditions_tells_what_fulfils_them_and_its_position_moves_all_the_same() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let client = cluster.client();
    opened_by(&client, "x0", "x").await;
    opened_by(&client, "y0", "y").await;
    let request = v1::WatchRequest {
        r#where: "attr.user = x and state = READY".to_owned(),
        ..Default::default()
    };
    let mut watch = cluster.client_of(1).watch(request.clone(), WatchOptions::default());
    let mut seen = Vec::new();
    loop {
        let answer = next(&mut watch).await;
        seen.extend(answer.session.map(|it| it.id));
        if answer.caught_up {
            break;
        }
    }
    assert_eq!(seen, ["x0"]);
    let position = watch.position().to_vec();
    opened_by(&client, "y1", "y").await;
    while watch.position() == position {
        // What the snapshot showed early is told once more when it is committed.
        let again = next(&mut watch).await.session;
        assert!(again.as_ref().is_none_or(|it| it.id == "x0"), "{again:?}");
    }
    opened_by(&client, "x1", "x").await;
    client.close(close("x0"), CALL).await.unwrap();
    opened_by(&client, "x2", "x").await;
    let mut told = Vec::new();
    while told.len() < 2 {
        let session = next(&mut watch).await.session.filter(|it| it.id != "x0");
        told.extend(session.map(|it| (it.id.clone(), it.state())));
    }
    told.sort();
    let ready = v1::SessionState::Ready;
    assert_eq!(told, [("x1".to_owned(), ready), ("x2".to_owned(), ready)]);
    let wrong = v1::WatchRequest { r#where: "attr.user".to_owned(), ..request };
    let refused = client.watch(wrong, WatchOptions::default()).next().await.unwrap_err();
    let CallError::Refused { refusal, .. } = refused else { panic!("{refused:?}") };
    assert_eq!(refusal.fields[0].field, "where");
    cluster.end().await;
}

/// Writes a cart with one line.
async fn written(cluster: &Cluster, docid: &str, line: &Value) -> rota_tests::Ran {
    let put = json!({"class": "Line", "key": "1", "json": line});
    let change = json!({"class": "Cart", "docid": docid, "life": "ensure", "put": [put]});
    let place = format!("shop/{docid}");
    let parameters = json!({"changes": [change]}).to_string();
    cluster
        .ringctl(&["document", "operate", &place, "document.write", &parameters, "-o", "json"])
        .await
}

fn docids(found: &Value) -> Vec<&str> {
    let hits = found["hits"].as_array().expect("there are hits");
    hits.iter().map(|it| it["docid"].as_str().expect("it is a text")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_are_found_by_fields_of_a_file_until_their_namespace_is_switched_off() {
    let folder = TestFolder::new();
    let fields = folder.at("fields.toml");
    std::fs::write(&fields, "[Cart.Line]\nprice = \"double\"\ntags = \"strings\"\n").unwrap();
    let cluster = Cluster::start(&folder, &["--fields-file", &fields]).await;
    cluster.ringctl(&["namespace", "create", "shop"]).await.expect_success();
    for number in 0..20 {
        let tag = if number % 2 == 0 { "even" } else { "odd" };
        let line = json!({"price": f64::from(number) + 0.5, "tags": ["all", tag]});
        written(&cluster, &format!("c{number:02}"), &line).await.expect_success();
    }
    let wrong = written(&cluster, "c00", &json!({"price": "cheap"})).await.error();
    assert_eq!(wrong["reason"], "A-INVALID", "{wrong}");
    assert!(wrong["message"].as_str().unwrap().contains("price is \"cheap\""), "{wrong}");
    let search = async |more: &[&str]| {
        let line = ["document", "search", "shop/Cart", "--item", "Line", "-o", "json"];
        cluster.ringctl(&[&line[..], more].concat()).await
    };
    let dear = ["--where", "price >= 14 and tags = even", "--sort", "-price", "--page-size", "2"];
    let found = search(&dear).await.json();
    assert_eq!(docids(&found), ["c18", "c16", "c14"]);
    let found = search(&["--where", "price in (2, 5)", "--items", "--limit", "2"]).await.json();
    assert_eq!(docids(&found), ["c02", "c03"]);
    assert_eq!(found["hits"][0]["json"]["price"], 2.5);
    let listed = ["document", "list", "shop/Cart", "--prefix", "c1", "-o", "json"];
    let expected: Vec<String> = (10..20).map(|it| format!("c{it}")).collect();
    assert_eq!(docids(&cluster.ringctl(&listed).await.json()), expected);
    let mistake = search(&["--where", "price = cheap"]).await.error();
    let told = mistake["message"].as_str().unwrap();
    assert!(told.contains("filter column 9: `cheap` is no value of price"), "{told}");
    let page = v1::SearchRequest {
        namespace: "shop".to_owned(),
        class: "Cart".to_owned(),
        page_size: 1,
        ..Default::default()
    };
    let page_token = cluster.client().documents().search(page.clone(), CALL).await.unwrap();
    let other = v1::SearchRequest {
        filter: "docid starts c1".to_owned(),
        page_token: page_token.next_page_token,
        ..page
    };
    let refused = cluster.client().documents().search(other, CALL).await.unwrap_err();
    assert!(refused.to_string().contains("page_token is of another search"), "{refused}");

    cluster.ringctl(&["namespace", "off", "shop", "-m", "Back at noon"]).await.expect_success();
    let sessions = ["session", "list", "--namespace", "shop", "--sort", "age", "-o", "json"];
    for manager in 0..3 {
        let documents = ["document", "search", "shop/Cart", "-o", "json"];
        for (line, reason) in [(&documents[..], "O-OFF"), (&sessions, "NAMESPACE_OFF")] {
            eventually("it is refused", PATIENCE, async || {
                let ran = cluster.ringctl_at(manager, line).await;
                if ran.code == 0 {
                    return Err(ran.stdout);
                }
                let error = ran.error();
                let is_it = error["reason"] == reason;
                if is_it { Ok(()) } else { Err(error.to_string()) }
            })
            .await;
        }
    }
    let all = ["session", "list", "--where", "namespace = shop"];
    cluster.ringctl(&all).await.expect_success();
    let metrics = http_get(&cluster.document.managers[0].http, "/metrics").await.unwrap().body;
    let held = metrics.lines().find_map(|it| it.strip_prefix("rota_index_values "));
    assert!(held.is_some_and(|it| it != "0"), "{metrics}");
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manager_does_not_start_with_declared_fields_that_are_wrong() {
    let folder = TestFolder::new();
    let fields = folder.at("fields.toml");
    for (text, told) in [
        ("[Cart.Line]\nprice = \"money\"\n", "Cart.Line: price is \"money\"; it must be one of"),
        ("[session.session]\nage = \"long\"\n", "declares fields of session, a class that"),
    ] {
        std::fs::write(&fields, text).unwrap();
        let data = folder.at("data");
        let line = ["--data", &data, "--number", "1", "--id", "a", "--cluster", "c"];
        let store = ["--config-store", "127.0.0.1:1", "--fields-file", &fields];
        let ended = run_to_end("rota-manager", &[&line[..], &store].concat()).await;
        ended.expect_refusal(2, &["--fields-file", told]);
    }
}
