//! Requests that are refused: each names the field and the limit, and changes nothing.

use rota_client::v1;
use rota_tests::sessions::{CALL, close, get, listed, open, opened};
use rota_tests::{Cluster, TestFolder};
use std::collections::BTreeMap;

/// A wrong open: what is wrong, the field that must be named, and a part of the text.
struct Wrong {
    request: v1::OpenRequest,
    field: &'static str,
    part: &'static str,
}

fn wrong(request: v1::OpenRequest, field: &'static str, part: &'static str) -> Wrong {
    Wrong { request, field, part }
}

fn with_attributes(attributes: BTreeMap<String, String>) -> v1::OpenRequest {
    v1::OpenRequest { attributes, ..open("a", "counter") }
}

fn wrong_opens() -> Vec<Wrong> {
    let (long, attribute) = ("x".repeat(256), |value: String| ("k".to_owned(), value));
    let most = 64 * 1024 - 1;
    vec![
        wrong(open("", "counter"), "id", "empty"),
        wrong(open(&long, "counter"), "id", "255"),
        wrong(open("a\nb", "counter"), "id", "control"),
        wrong(open("a\u{7f}b", "counter"), "id", "control"),
        wrong(open("a", ""), "class", "empty"),
        wrong(open("a", &long), "class", "255"),
        wrong(
            v1::OpenRequest { namespace: long.clone(), ..open("a", "counter") },
            "namespace",
            "255",
        ),
        wrong(v1::OpenRequest { pool: "\t".to_owned(), ..open("a", "counter") }, "pool", "control"),
        wrong(
            v1::OpenRequest { request_id: long.clone(), ..open("a", "counter") },
            "request_id",
            "255",
        ),
        wrong(with_attributes([attribute("v".repeat(most + 1))].into()), "attributes", "65536"),
        wrong(with_attributes([(String::new(), "v".to_owned())].into()), "attributes", "empty"),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_open_is_refused_with_its_field_and_limit_and_leaves_nothing() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let client = cluster.client();
    for Wrong { request, field, part } in wrong_opens() {
        let error = client.open(request.clone(), CALL).await.unwrap_err();
        assert_eq!(error.reason(), "INVALID_ARGUMENT", "{error:?}");
        assert_eq!(error.retry(), rota_model::Retry::Never);
        let named = error.fields().iter().find(|it| it.field == field);
        let named = named.unwrap_or_else(|| panic!("{field} is not named in {error:?}"));
        assert!(named.problem.contains(part), "{part:?} is not in {named}");
    }
    let most = "v".repeat(64 * 1024 - 1);
    let request = with_attributes([("k".to_owned(), most.clone())].into());
    let kept = client.open(request, CALL).await.unwrap().session.unwrap();
    assert_eq!(kept.attributes["k"], most, "attributes of exactly the limit are taken");
    let longest = "x".repeat(255);
    opened(&client, &longest, "counter").await;
    let there = listed(&client, v1::Filter::default()).await;
    assert_eq!(there.len(), 2, "what was refused is nowhere");
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_mistake_of_a_request_is_listed() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let request =
        v1::OpenRequest { namespace: "\n".to_owned(), class: String::new(), ..open("", "") };
    let error = cluster.client().open(request, CALL).await.unwrap_err();
    let mut fields: Vec<&str> = error.fields().iter().map(|it| it.field.as_str()).collect();
    fields.sort_unstable();
    assert_eq!(fields, ["class", "id", "namespace"], "{error:?}");
    let line = ["session", "open", "", "--class", "c", "-o", "json"];
    let refused = cluster.ringctl(&line).await.error();
    assert_eq!(
        (&refused["reason"], &refused["retry"]),
        (&"INVALID_ARGUMENT".into(), &"never".into())
    );
    assert_eq!((&refused["fields"][0]["field"], &refused["changed"]), (&"id".into(), &"no".into()));
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_class_and_a_reused_request_id_are_refused_and_leave_nothing() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    for client in cluster.clients() {
        let error = client.open(open("a", "no-such-class"), CALL).await.unwrap_err();
        assert_eq!(error.reason(), "UNKNOWN_CLASS");
        assert!(error.to_string().contains("no-such-class"), "{error}");
    }
    let client = cluster.client();
    let named = v1::OpenRequest { request_id: "r".to_owned(), ..open("b", "counter") };
    client.open(named, CALL).await.unwrap();
    let request = v1::CloseRequest { request_id: "r".to_owned(), ..close("b") };
    let error = client.close(request, CALL).await.unwrap_err();
    assert_eq!(error.reason(), "REQUEST_ID_REUSED", "{error:?}");
    let there = listed(&client, v1::Filter::default()).await;
    let there: Vec<&str> = there.iter().map(|it| it.id.as_str()).collect();
    assert_eq!(there, ["b"]);
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_gets_closes_lists_and_watches_name_their_fields() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let client = cluster.client();
    let long = "x".repeat(256);
    let got = client.get(get(&long), CALL).await.unwrap_err();
    let closed =
        client.close(v1::CloseRequest { life: 1, ..close("a\0") }, CALL).await.unwrap_err();
    let sized = v1::ListRequest { page_size: 1001, ..Default::default() };
    let sized = client.list(sized, CALL).await.unwrap_err();
    let paged = v1::ListRequest { page_token: "nonsense".to_owned(), ..Default::default() };
    let paged = client.list(paged, CALL).await.unwrap_err();
    for (error, field, part) in [
        (&got, "id", "255"),
        (&closed, "id", "control"),
        (&closed, "life", ""),
        (&sized, "page_size", "1000"),
        (&paged, "page_token", ""),
    ] {
        assert_eq!(error.reason(), "INVALID_ARGUMENT", "{error:?}");
        let named = error.fields().iter().find(|it| it.field == field);
        let named = named.unwrap_or_else(|| panic!("{field} is not named in {error:?}"));
        assert!(named.problem.contains(part), "{part:?} is not in {named}");
    }
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_over_the_limit_is_refused_with_the_limit_and_the_manager_goes_on() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let client = cluster.client_of(0);
    let huge = [("k".to_owned(), "v".repeat(32 * 1024 * 1024))];
    let refused =
        client.open_at(&cluster.document.managers[0].grpc, with_attributes(huge.into()), CALL);
    let refused = refused.await.unwrap_err().to_string();
    assert!(refused.contains("limit"), "{refused}");
    opened(&client, "a", "counter").await;
    cluster.end().await;
}
