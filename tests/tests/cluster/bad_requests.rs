//! Requests that are refused: each names the field and the limit, and changes nothing.

use rota_client::{WatchOptions, v1};
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

/// Largest request that a manager takes; `manager/src/rpc.rs`.
const REQUEST_BYTES_MAX: usize = 1024 * 1024;

#[tokio::test(flavor = "multi_thread")]
async fn a_message_over_the_limit_is_refused_by_its_name_and_limit_and_the_manager_goes_on() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let client = cluster.client_of(0);
    let manager = &cluster.document.managers[0].grpc;
    for size in [REQUEST_BYTES_MAX, 32 * 1024 * 1024] {
        let huge = with_attributes([("k".to_owned(), "v".repeat(size))].into());
        let error = client.open_at(manager, huge, CALL).await.unwrap_err();
        assert_eq!(error.reason(), "INVALID_ARGUMENT", "{error:?}");
        assert_eq!(error.retry(), rota_model::Retry::Never);
        assert_eq!(error.changed(), rota_model::Changed::No);
        let [named] = error.fields() else { panic!("one mistake: {error:?}") };
        assert_eq!(named.field, "OpenRequest");
        assert!(named.problem.contains("1048576 bytes"), "{named}");
    }
    let below = with_attributes([("k".to_owned(), "v".repeat(REQUEST_BYTES_MAX / 2))].into());
    let error = client.open(below, CALL).await.unwrap_err();
    assert_eq!(error.fields()[0].field, "attributes", "what can be read is refused by its field");

    let listing =
        v1::ListRequest { page_token: "x".repeat(REQUEST_BYTES_MAX), ..Default::default() };
    let error = client.list(listing, CALL).await.unwrap_err();
    assert_eq!(error.fields()[0].field, "ListRequest", "{error:?}");
    let watching =
        v1::WatchRequest { position: vec![7; REQUEST_BYTES_MAX].into(), ..Default::default() };
    let error = client.watch(watching, WatchOptions::default()).next().await.unwrap_err();
    assert_eq!(error.fields()[0].field, "WatchRequest", "{error:?}");
    let session = opened(&client, "a", "counter").await;
    let event =
        v1::SendRequest { id: "a".to_owned(), event: "e".repeat(1 << 20), ..Default::default() };
    let error = client.send_event(&session.address, event, CALL).await.unwrap_err();
    assert_eq!(error.fields()[0].field, "SendRequest", "{error:?}");
    assert!(error.to_string().contains("65536 bytes"), "{error}");
    assert_eq!(listed(&client, v1::Filter::default()).await.len(), 1, "nothing else is there");
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_about_documents_over_the_limit_is_an_exception_with_its_name_and_limit() {
    use rota_proto::documents::{MESSAGE_BYTES_MAX, REQUEST_BYTES_MAX, exception};
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &["--managers", "1", "--replicas", "0"]).await;
    let address = format!("http://{}", cluster.document.managers[0].grpc);
    let channel = tonic::transport::Endpoint::from_shared(address).unwrap().connect_lazy();
    let mut documents = v1::documents_client::DocumentsClient::new(channel.clone());
    let mut namespaces = v1::namespaces_client::NamespacesClient::new(channel);
    let operate = |bytes: usize| v1::OperateRequest {
        docid: "a".to_owned(),
        operation: "document.read".to_owned(),
        parameters: " ".repeat(bytes),
        ..Default::default()
    };
    let put = v1::PutBodyRequest {
        part: Some(v1::put_body_request::Part::Bytes(vec![0; REQUEST_BYTES_MAX].into())),
    };
    let description = "x".repeat(MESSAGE_BYTES_MAX);
    let set = v1::SetNamespaceRequest { description: Some(description), ..Default::default() };
    for (status, field, limit) in [
        (
            documents.operate(operate(REQUEST_BYTES_MAX)).await.unwrap_err(),
            "OperateRequest",
            "2097152",
        ),
        (documents.operate(operate(1024 * 1024 + 1)).await.unwrap_err(), "parameters", "1048576"),
        (
            documents.put_body(tonic::codegen::tokio_stream::once(put)).await.unwrap_err(),
            "PutBodyRequest",
            "2097152",
        ),
        (namespaces.set_namespace(set).await.unwrap_err(), "SetNamespaceRequest", "33554432"),
    ] {
        let raised = exception(&status).unwrap_or_else(|| panic!("no exception: {status:?}"));
        assert_eq!(raised.code().as_str(), "A-INVALID", "{raised:?}");
        assert_eq!(raised.phase(), rota_docstore::Phase::Before);
        assert_eq!(raised.retry(), rota_model::Retry::Never);
        let [named] = raised.details().fields.as_slice() else { panic!("one mistake: {raised:?}") };
        assert_eq!(named.field, field);
        assert!(named.problem.contains(limit), "{named}");
    }
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ringctl_tells_a_message_over_the_limit_as_every_other_mistake() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    // The system limits one argument to 128 KiB.
    let attributes: Vec<String> =
        (0..9).map(|it| format!("k{it}={}", "v".repeat(120_000))).collect();
    let mut line = vec!["session", "open", "a", "--class", "counter", "-o", "json"];
    line.extend(attributes.iter().flat_map(|it| ["--attr", it]));
    let refused = cluster.ringctl(&line).await.error();
    assert_eq!(
        (&refused["reason"], &refused["retry"], &refused["changed"]),
        (&"INVALID_ARGUMENT".into(), &"never".into(), &"no".into())
    );
    assert_eq!(refused["fields"][0]["field"], "OpenRequest", "{refused}");
    assert!(refused["message"].as_str().unwrap().contains("1048576 bytes"), "{refused}");
    cluster.end().await;
}
