//! Tasks: operations, programs and calls that run later, at the owner of their slot.

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use rota_client::v1;
use rota_docstore::{Body, Namespace, Request, Stamp};
use rota_proto::documents::request::Operate;
use rota_tests::processes::process;
use rota_tests::sessions::CALL;
use rota_tests::{Cluster, PATIENCE, TestFolder, checkout, eventually};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};
use tokio::net::TcpListener;
use tonic::transport::Endpoint;

/// So long after now, as tasks are told.
fn in_ms(ms: u64) -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    Stamp::from_epoch_ms(u64::try_from(now.as_millis()).unwrap() + ms).as_u64()
}

/// Options of `ringctl dev` that hand these over to each manager.
fn to_managers(flags: &[String]) -> Vec<String> {
    flags.iter().map(|it| format!("--manager-option={it}")).collect()
}

async fn with(folder: &TestFolder, flags: &[String], variables: &[(&str, &str)]) -> Cluster {
    let options = to_managers(flags);
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    Cluster::start_in(folder, &options, variables).await
}

/// Runs an operation at a document of the namespace `shop`.
async fn operate(
    cluster: &Cluster,
    docid: &str,
    operation: &str,
    parameters: &Value,
) -> Result<Value, String> {
    let request = Request::new(Namespace::parse("shop").unwrap(), operation);
    let request = request.with(parameters).unwrap();
    let operate = Operate { request, docid: docid.to_owned() };
    let answer = cluster.client().documents().operate(&operate, CALL).await;
    match answer.map_err(|it| format!("{it:?}"))?.body {
        Body::Json(text) => Ok(text.read().unwrap()),
        Body::Nothing | Body::Binary { .. } => Ok(Value::Null),
    }
}

fn new_document(docid: &str) -> Value {
    json!({"changes": [{"class": "Cart", "docid": docid, "life": "create"}]})
}

/// Registers a task, and gives the id of its document.
async fn create(cluster: &Cluster, operation: &str, place: &str, param: &Value) -> String {
    let task = json!({"operation": operation, "place": place, "param": param});
    let created = operate(cluster, place, "task.create", &task).await.expect("it is taken");
    created["docid"].as_str().unwrap().to_owned()
}

/// Every task of the ring, asked of that manager.
async fn tasks_at(cluster: &Cluster, manager: usize) -> Result<Vec<v1::Task>, String> {
    let address = format!("http://{}", cluster.document.managers[manager].grpc);
    let endpoint = Endpoint::from_shared(address).map_err(|it| it.to_string())?;
    let channel = endpoint.connect().await.map_err(|it| it.to_string())?;
    let mut client = v1::tasks_client::TasksClient::new(channel);
    let (mut tasks, mut page_token) = (Vec::new(), String::new());
    loop {
        let request = v1::ListTasksRequest { page_token, ..Default::default() };
        let page = client.list_tasks(request).await.map_err(|it| it.to_string())?.into_inner();
        tasks.extend(page.tasks);
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return Ok(tasks);
        }
    }
}

/// Waits until no task is left, as that manager sees it.
async fn all_end(cluster: &Cluster, manager: usize) {
    eventually("no task is left", PATIENCE, async || {
        let left = tasks_at(cluster, manager).await?;
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
}

/// Waits until the only task was given up, and gives it.
async fn parked(cluster: &Cluster) -> v1::Task {
    eventually("the task is given up", PATIENCE, async || {
        let tasks = tasks_at(cluster, 0).await?;
        match tasks.as_slice() {
            [task] if task.state() == v1::TaskState::Parked => Ok(task.clone()),
            _ => Err(format!("{tasks:?}")),
        }
    })
    .await
}

async fn file(path: &str, is_whole: impl Fn(&str) -> bool) -> String {
    eventually(path, PATIENCE, async || {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        if is_whole(&text) { Ok(text) } else { Err(text) }
    })
    .await
}

async fn is_there(cluster: &Cluster, docid: &str) -> Result<(), String> {
    let which = json!({"class": "Cart", "docid": docid});
    let read = operate(cluster, docid, "document.read", &json!({"documents": [which]})).await?;
    let exists = read["documents"][0]["exists"] == true;
    if exists { Ok(()) } else { Err(format!("{docid}: {read}")) }
}

/// A task that waits in a suspended queue says why, and what there is not cannot be suspended.
async fn what_is_suspended_is_told(cluster: &Cluster) {
    let param = new_document("{c}3");
    let task = json!({"operation": "document.write", "place": "c", "param": param, "start_at": in_ms(3_600_000)});
    operate(cluster, "c", "task.create", &task).await.expect("it is taken");
    let suspended = json!({"namespace": null, "all_queues": false, "queues": [0]});
    let line = ["task", "suspend", "--queue", "0", "-o", "json"];
    assert_eq!(cluster.ringctl(&line).await.json(), suspended);
    let backlog = cluster.ringctl(&["task", "backlog", "-o", "json"]).await.json();
    assert_eq!(backlog["suspended"], json!([suspended]), "{backlog}");
    let listed = cluster.ringctl(&["task", "list"]).await.expect_success();
    let remark = "queue 0 is suspended for all namespaces: ringctl task unsuspend --queue 0\n";
    assert_eq!(listed.stderr, remark);
    let no_queue =
        cluster.ringctl(&["task", "suspend", "--queue", "7", "-o", "json"]).await.error();
    let told = no_queue["message"].as_str().unwrap();
    assert!(told.contains("queue is 7; the queues are 0, 1, 2"), "{told}");
    let no_space = cluster.ringctl(&["task", "suspend", "--namespace", "nosuch"]).await;
    assert_eq!(no_space.code, 2, "{}", no_space.stderr);
    let told = "there is no namespace nosuch; there are default";
    assert!(no_space.stderr.contains(told), "{}", no_space.stderr);
    cluster.ringctl(&["task", "unsuspend", "--queue", "0"]).await.expect_success();
    let listed = cluster.ringctl(&["task", "list"]).await.expect_success();
    assert_eq!(listed.stderr, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_a_write_registers_runs_and_is_gone_and_one_that_no_flag_allows_is_refused() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let later = json!({"operation": "document.write", "place": "c", "param": new_document("{c}2")});
    let write = json!({"changes": new_document("{c}1")["changes"], "tasks": [later]});
    let written = operate(&cluster, "{c}1", "document.write", &write).await.unwrap();
    assert!(written["tasks"][0].as_str().unwrap().starts_with("{c}"), "{written}");
    all_end(&cluster, 1).await;
    is_there(&cluster, "{c}2").await.unwrap();
    for (operation, param, why) in [
        ("exec", json!({"program": "sh"}), "which no flag allows"),
        ("http", json!({"target": "shop"}), "which no flag allows"),
        ("dance", json!({}), "no operation for tasks"),
    ] {
        let task = json!({"operation": operation, "place": "c", "param": param});
        let refused = operate(&cluster, "c", "task.create", &task).await.unwrap_err();
        assert!(refused.contains(why), "{refused}");
    }
    what_is_suspended_is_told(&cluster).await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_fails_runs_again_is_given_up_and_mailed_to_the_administrator() {
    let folder = TestFolder::new();
    let text = format!(
        "echo \"$ROTA_TASK_RETRY $1 $(cat)\" >> '{}'; echo no ink >&2; exit 3",
        folder.at("runs")
    );
    let print = folder.script("print", &text);
    folder
        .script("bin/sendmail", &format!("cat > '{0}.new'; mv '{0}.new' '{0}'", folder.at("mail")));
    let shipped = checkout().join("deploy/hooks/mail-task");
    let text = format!("export ROTA_MAIL_TO=admin@example.org\nexec '{}'", shipped.display());
    let hook = folder.script("hook", &text);
    let flags = [
        format!("--task-program=print={print}"),
        format!("--task-given-up={hook}"),
        "--task-retries=1".to_owned(),
        "--task-first-delay-ms=50".to_owned(),
    ];
    let path = format!("{}:{}", folder.at("bin"), std::env::var("PATH").unwrap_or_default());
    let cluster = with(&folder, &flags, &[("PATH", &path)]).await;
    let param = json!({"program": "print", "args": ["page one"], "stdin": {"n": 1}});
    create(&cluster, "exec", "c", &param).await;
    let task = parked(&cluster).await;
    assert_eq!((task.exception.as_str(), task.report.as_str()), ("EXIT-3", "no ink"));
    let runs = std::fs::read_to_string(folder.at("runs")).unwrap();
    assert_eq!(runs, "0 page one {\"n\":1}\n1 page one {\"n\":1}\n");
    let mail = file(&folder.at("mail"), |it| !it.is_empty()).await;
    assert!(mail.starts_with("To: admin@example.org\nSubject: a task of Rota was given up\n"));
    let record: Value = serde_json::from_str(mail.trim_end().lines().last().unwrap()).unwrap();
    let told = [&record["taskid"], &record["exc"], &record["opName"], &record["ns"]];
    assert_eq!(told, [&json!(task.task_id), &json!("EXIT-3"), &json!("exec"), &json!("shop")]);
    cluster.end().await;
}

type Seen = Arc<Mutex<Vec<(HeaderMap, String)>>>;

/// An application that has no stock at first.
async fn shop(seen: Seen) -> String {
    async fn order(
        State(seen): State<Seen>,
        headers: HeaderMap,
        body: String,
    ) -> (StatusCode, &'static str) {
        let mut seen = seen.lock().expect("nobody panicked");
        seen.push((headers, body));
        if seen.len() == 1 { (StatusCode::CONFLICT, "no stock") } else { (StatusCode::OK, "") }
    }
    let app = Router::new().route("/api/order", post(order)).with_state(seen);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/api", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await });
    url
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_over_http_and_grpc_are_judged_by_their_status_and_repeated_until_it_is_good() {
    let folder = TestFolder::new();
    let seen = Seen::default();
    let url = shop(seen.clone()).await;
    let (reporter, health) = tonic_health::server::health_reporter();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let grpc = format!("http://{}", listener.local_addr().unwrap());
    let incoming = tonic::transport::server::TcpIncoming::from(listener);
    let server = tonic::transport::Server::builder().add_service(health);
    tokio::spawn(server.serve_with_incoming(incoming));
    let key = folder.secret("key", "s3cret\n");
    let flags = [
        format!("--task-target=shop={url},key-file={key}"),
        format!("--task-target=mill={grpc}"),
        "--task-first-delay-ms=200".to_owned(),
        "--task-delay-ms-max=200".to_owned(),
    ];
    let cluster = with(&folder, &flags, &[]).await;
    let param = json!({"target": "shop", "path": "/order", "body": {"n": 1}});
    let docid = create(&cluster, "http", "c", &param).await;
    all_end(&cluster, 0).await;
    let (first, second) = {
        let seen = seen.lock().unwrap();
        assert_eq!(seen.len(), 2);
        (seen[0].clone(), seen[1].clone())
    };
    for ((headers, body), retry) in [(first, "0"), (second, "1")] {
        let header = |name: &str| headers[name].to_str().unwrap().to_owned();
        assert_eq!(header("x-rota-task"), docid);
        assert_eq!((header("x-rota-task-retry").as_str(), body.as_str()), (retry, "{\"n\":1}"));
        assert_eq!(header("authorization"), "Bearer s3cret");
        assert_eq!(header("x-rota-task-start-time").len(), 15);
    }
    // HealthCheckRequest of the service "wheel", which nobody knows yet.
    let param = json!({"target": "mill", "method": "grpc.health.v1.Health/Check", "message": "CgV3aGVlbA=="});
    create(&cluster, "grpc", "c", &param).await;
    eventually("the call fails", PATIENCE, async || {
        let tasks = tasks_at(&cluster, 0).await?;
        let has_failed = tasks.iter().any(|it| it.exception == "GRPC-NOT_FOUND");
        if has_failed { Ok(()) } else { Err(format!("{tasks:?}")) }
    })
    .await;
    reporter.set_service_status("wheel", tonic_health::ServingStatus::Serving).await;
    all_end(&cluster, 0).await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_task_of_an_owner_that_is_killed_has_its_effect_exactly_once() {
    let folder = TestFolder::new();
    // A second run of a task that has ended would find its document, fail, and stay.
    let cluster = with(&folder, &["--task-retries=2".to_owned()], &[]).await;
    cluster.every_copy_is_in_sync().await;
    let places: Vec<String> = (0..60).map(|it| format!("c{it}")).collect();
    for (n, place) in places.iter().enumerate() {
        let param = new_document(&format!("{{{place}}}done"));
        let mut task = json!({"operation": "document.write", "place": place, "param": param});
        // Some wait at the kill, some are due, some have run.
        if n % 2 == 0 {
            task["start_at"] = json!(in_ms(1_000 + u64::try_from(n).unwrap() * 20));
        }
        operate(&cluster, place, "task.create", &task).await.expect("it is taken");
    }
    cluster.kill_manager(0).await;
    all_end(&cluster, 1).await;
    for place in &places {
        is_there(&cluster, &format!("{{{place}}}done")).await.unwrap();
    }
    cluster.end().await;
}

/// A program that hangs with two others, one of them in a session of its own; and where their pids stand.
fn hang(folder: &TestFolder) -> (String, String) {
    let pids = folder.at("pids");
    let text = format!(
        "sleep 1000 & a=$!; setsid sleep 1000 & echo $$ $a $! > '{pids}.new'; mv '{pids}.new' '{pids}'; wait"
    );
    (format!("--task-program=hang={}", folder.script("hang", &text)), pids)
}

async fn nothing_is_left(pids: &str) {
    let pids: BTreeSet<u32> = pids.split_whitespace().map(|it| it.parse().unwrap()).collect();
    assert_eq!(pids.len(), 3);
    eventually("nothing of it is left", Duration::from_secs(5), async || {
        let left: Vec<u32> = pids.iter().copied().filter(|it| process(*it).is_some()).collect();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?} run")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_hangs_is_killed_at_its_quota_and_nothing_of_it_is_left() {
    let folder = TestFolder::new();
    let (program, pids) = hang(&folder);
    let flags = [program, "--task-quota-ms=3000".to_owned(), "--task-retries=0".to_owned()];
    let cluster = with(&folder, &flags, &[]).await;
    create(&cluster, "exec", "c", &json!({"program": "hang"})).await;
    let task = parked(&cluster).await;
    assert_eq!(task.exception, "TIMEOUT");
    assert!(task.report.contains("did not end within 3s, and was killed"), "{}", task.report);
    nothing_is_left(&std::fs::read_to_string(pids).unwrap()).await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_end_with_a_manager_that_stops() {
    let folder = TestFolder::new();
    let (program, pids) = hang(&folder);
    let cluster = with(&folder, &[program], &[]).await;
    create(&cluster, "exec", "c", &json!({"program": "hang"})).await;
    let pids = file(&pids, |it| !it.is_empty()).await;
    cluster.end().await;
    nothing_is_left(&pids).await;
}
