//! Documents and namespaces, through any manager.

use rota_client::v1;
use rota_docstore::{Caller, Held, Namespace, Request, Stamp, SyncRequest, Update, apply};
use rota_model::{Changed, RequestId};
use rota_proto::documents::request::{Create, Operate, Switch, Sync};
use rota_tests::sessions::{CALL, open, read};
use rota_tests::{Cluster, PATIENCE, TestFolder, eventually, http_get};
use serde_json::{Value, json};

fn shop() -> Namespace {
    Namespace::parse("shop").unwrap()
}

fn operate_in(space: &str, docid: &str, operation: &str, parameters: &Value) -> Operate {
    let request = Request::new(Namespace::parse(space).unwrap(), operation);
    Operate { request: request.with(parameters).unwrap(), docid: docid.to_owned() }
}

fn write(docid: &str, n: u32) -> Operate {
    let put = json!([{"class": "Ln", "key": "1", "json": n}]);
    let change = json!({"class": "Cart", "docid": docid, "life": "ensure", "put": put});
    operate_in("shop", docid, "document.write", &json!({"changes": [change]}))
}

fn name(docid: &str) -> rota_docstore::DocName {
    rota_docstore::DocName::new(&shop(), "Cart", docid).unwrap()
}

/// A time of an operation's caller: a moment ago, since clocks differ.
pub fn now() -> Stamp {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    Stamp::from_epoch_ms(u64::try_from(now.as_millis()).unwrap() - 1_000)
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_outlive_their_owner_and_are_the_same_through_any_manager() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let managers = cluster.clients();
    let docids: Vec<String> = (0..12).map(|it| format!("cart {it}")).collect();
    let mut written = Vec::new();
    for (turn, docid) in docids.iter().enumerate() {
        let mut operate = write(docid, 7);
        operate.request.operation_time = Some(now());
        operate.request.request_id = RequestId::parse(&format!("write-{turn}")).ok();
        let documents = managers[turn % 3].documents();
        let answer = documents.operate(&operate, CALL).await.unwrap();
        written.push((operate, answer));
    }
    let syncs = |held: Option<Held>| {
        docids.iter().map(|it| SyncRequest { name: name(it), held }).collect::<Vec<_>>()
    };
    let caller = Caller::default();
    let sync = Sync { space: shop(), documents: syncs(None), stale_ok: false, caller };
    for manager in &managers {
        let updates = manager.documents().sync(&sync, CALL).await.unwrap();
        for ((name, update), (_, answer)) in updates.iter().zip(&written) {
            let document = apply(name, None, update).unwrap().unwrap();
            assert_eq!(document.version(), answer.version);
        }
    }
    let list = |page_token: String| v1::ListDocumentsRequest {
        namespace: "shop".into(),
        class: String::new(),
        page_size: 5,
        page_token,
        ..Default::default()
    };
    let (mut found, mut token) = (0, String::new());
    loop {
        let page = managers[1].documents().list(list(token), CALL).await.unwrap();
        found += page.documents.len();
        token = page.next_page_token;
        if token.is_empty() {
            break;
        }
    }
    assert_eq!(found, 12);
    cluster.kill_manager(0).await;
    for (operate, answer) in &written {
        let again = managers[1].documents().operate(operate, PATIENCE).await.unwrap();
        assert_eq!((again.version, &again.body), (answer.version, &answer.body));
    }
    let updates = managers[2].documents().sync(&sync, PATIENCE).await.unwrap();
    assert!(updates.iter().all(|(_, update)| matches!(update, Update::Full(_))));
    let metrics = http_get(&cluster.document.managers[1].http, "/metrics").await.unwrap();
    let counted = "rota_operations_total{operation=\"document.write\",result=\"ok\"}";
    assert!(metrics.body.contains(counted), "{}", metrics.body);
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_is_switched_off_everywhere_exported_and_deleted() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let managers = cluster.clients();
    managers[0].open(open("running", "counter"), CALL).await.unwrap();
    for n in 0..30 {
        managers[1].documents().operate(&write(&format!("c{n}"), n), CALL).await.unwrap();
    }
    for space in ["shop", "default"] {
        let name = Namespace::parse(space).unwrap();
        let create = Create { name: name.clone(), description: Default::default() };
        managers[2].namespaces().create(&create, CALL).await.unwrap();
        let refused = managers[2].namespaces().delete(&name, CALL, |_| {}).await.unwrap_err();
        assert_eq!(refused.reason(), "A-ON");
        let switch = Switch { name, off: Some("Back at noon".into()) };
        managers[0].namespaces().switch(&switch, CALL).await.unwrap();
    }
    let state = managers[1].namespaces().get(&shop(), CALL).await.unwrap();
    assert_eq!(
        (state.usage.map(|it| it.documents), state.description.off.as_deref()),
        (Ok(30), Some("Back at noon"))
    );
    for manager in &managers {
        eventually("the manager refuses its clients", PATIENCE, async || {
            let wait = std::time::Duration::from_millis(500);
            let get = v1::GetRequest { id: "running".into(), ..Default::default() };
            let refused = manager.get(get, wait).await.err().ok_or("it reads")?;
            let raised = manager.documents().operate(&write("c1", 1), wait).await;
            let raised = raised.err().ok_or("it operates")?;
            let both = (refused.reason(), raised.reason());
            if both == ("NAMESPACE_OFF", "O-OFF") { Ok(()) } else { Err(format!("{both:?}")) }
        })
        .await;
    }
    let mut export = managers[0].namespaces().export(&shop(), CALL).await.unwrap();
    let mut documents = 0;
    while let Some((_, part)) = export.next().await.unwrap() {
        let is_document = matches!(part, Some(rota_proto::documents::export::Part::Document(_)));
        documents += usize::from(is_document);
    }
    assert_eq!(documents, 30);
    let default = Namespace::default_space();
    let refused = managers[1].namespaces().delete(&default, CALL, |_| {}).await.unwrap_err();
    assert_eq!(refused.reason(), "A-SESSIONS");
    assert_eq!(managers[1].namespaces().delete(&shop(), CALL, |_| {}).await.unwrap(), 30);
    assert_eq!(managers[2].namespaces().delete(&shop(), CALL, |_| {}).await.unwrap(), 0);
    let names: Vec<_> = managers[0].namespaces().list(CALL).await.unwrap();
    assert_eq!(names.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(), ["default"]);
    let on = Switch { name: default, off: None };
    managers[0].namespaces().switch(&on, CALL).await.unwrap();
    eventually("the session is still there", PATIENCE, async || {
        let session = read(&managers[1], "running").await.map_err(|it| it.to_string())?;
        (session.state() == v1::SessionState::Ready).then_some(()).ok_or("not ready".to_owned())
    })
    .await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_web_resource_is_served_by_every_manager() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let put = json!({"path": "a/hello.txt", "mime": "text/x-greeting", "body": "aGVsbG8="});
    let operate = operate_in("z", "a/hello.txt", "web.put", &put);
    cluster.clients()[1].documents().operate(&operate, CALL).await.unwrap();
    for manager in &cluster.document.managers {
        let page = http_get(&manager.http, "/web/a/hello.txt").await.unwrap();
        assert_eq!((page.code, page.body.as_str()), (200, "hello"));
        assert_eq!(page.header("content-type"), Some("text/x-greeting"));
        assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
        let policy = page.header("content-security-policy");
        assert_eq!(policy, Some("sandbox; default-src 'none'"));
        assert_eq!(http_get(&manager.http, "/web/other").await.unwrap().code, 404);
    }
    cluster.end().await;
}

/// Waits until every manager says this of a resource: copies are served, so one may be behind.
async fn served_everywhere(cluster: &Cluster, path: &str, expected: (u16, &str, Option<&str>)) {
    for manager in &cluster.document.managers {
        eventually("the resource is served as it is now", PATIENCE, async || {
            let page = http_get(&manager.http, path).await?;
            let told = (page.code, page.header("content-type"));
            let is_it = told == (expected.0, Some(expected.1))
                && expected.2.is_none_or(|body| page.body == body);
            if is_it { Ok(()) } else { Err(page.head) }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_web_resource_is_replaced_and_removed_everywhere_and_one_too_large_changes_nothing() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let documents = cluster.clients()[0].documents();
    let put = |mime: &str, base64: &str| {
        let put = json!({"path": "page", "mime": mime, "body": base64});
        operate_in("z", "page", "web.put", &put)
    };
    let text = "text/plain; charset=utf-8";
    documents.operate(&put("text/x-greeting", "aGVsbG8="), CALL).await.unwrap();
    served_everywhere(&cluster, "/web/page", (200, "text/x-greeting", Some("hello"))).await;
    documents.operate(&put("text/html", "PGI+"), CALL).await.unwrap();
    served_everywhere(&cluster, "/web/page", (200, "text/html", Some("<b>"))).await;
    // Parameters have at most 1 MiB, and four characters of base64 are three bytes.
    let large = "x".repeat(780_000);
    documents.operate(&put("text/x-large", &"eHh4".repeat(260_000)), CALL).await.unwrap();
    served_everywhere(&cluster, "/web/page", (200, "text/x-large", Some(&large))).await;
    let long = "p".repeat(256);
    let body = json!({"path": long, "mime": "text/html", "body": ""});
    let far = operate_in("z", "page", "web.put", &body);
    let wrong = json!({"path": "page", "mime": "a\nb", "body": ""});
    let wrong = operate_in("z", "page", "web.put", &wrong);
    for (operate, field, limit) in [(far, "path", "255"), (wrong, "mime", "255")] {
        let error = documents.operate(&operate, CALL).await.unwrap_err();
        assert_eq!((error.reason(), error.changed()), ("A-INVALID", Changed::No), "{error:?}");
        let [named] = error.fields() else { panic!("one mistake: {error:?}") };
        assert!(named.field == field && named.problem.contains(limit), "{named}");
    }
    let mut too_large = v1::OperateRequest::from(&put("text/html", "BODY"));
    too_large.parameters = too_large.parameters.replace("BODY", &"eHh4".repeat(263_000));
    // Our own client would not send it.
    let address = format!("http://{}", cluster.document.managers[0].grpc);
    let channel = tonic::transport::Endpoint::from_shared(address).unwrap().connect_lazy();
    let mut service = v1::documents_client::DocumentsClient::new(channel);
    let status = service.operate(too_large).await.unwrap_err();
    let raised = rota_proto::documents::exception(&status).expect("an exception");
    let field = &raised.details().fields[0];
    assert_eq!((raised.code().as_str(), field.field.as_str()), ("A-INVALID", "parameters"));
    assert!(field.problem.contains("1048576"), "{field}");
    served_everywhere(&cluster, "/web/page", (200, "text/x-large", Some(&large))).await;
    let remove = operate_in("z", "page", "web.remove", &json!({"path": "page"}));
    documents.operate(&remove, CALL).await.unwrap();
    served_everywhere(&cluster, "/web/page", (404, text, None)).await;
    documents.operate(&put("text/x-again", "aGVsbG8="), CALL).await.unwrap();
    served_everywhere(&cluster, "/web/page", (200, "text/x-again", Some("hello"))).await;
    cluster.end().await;
}
