//! Programs, requests and calls of tasks, against a real server.

use super::*;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::{any, get};
use rota_model::{Namespace, Stamp};
use rota_protocol::outside::Run;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Mutex;

fn job(operation: &str, param: Value) -> TaskJob {
    TaskJob {
        ns: Namespace::parse("shop").unwrap(),
        docid: "{cart ä}1".to_owned(),
        operation: operation.to_owned(),
        param,
        run: Run { start_time: Stamp::parse(261_127_120_000_007).unwrap(), retry: 2 },
        quota_ms: 20_000,
    }
}

fn runner(world: TaskWorld) -> Runner {
    let clients = HttpClients::new(&world.targets).unwrap();
    Runner { world, clients }
}

fn script(folder: &Path, text: &str) -> PathBuf {
    let path = folder.join("program");
    std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

async fn runs(text: &str, param: Value, quota_ms: u64) -> TaskOutcome {
    let folder = tempfile::tempdir().unwrap();
    let programs = [("p".to_owned(), script(folder.path(), text))].into();
    let runner = runner(TaskWorld { programs, ..TaskWorld::default() });
    runner.run(&TaskJob { quota_ms, ..job("exec", param) }).await
}

fn failed(outcome: TaskOutcome) -> (String, String) {
    outcome.expect_err("it fails")
}

#[tokio::test]
async fn a_program_gets_its_arguments_its_input_and_its_task_and_nothing_secret() {
    let text = "echo \"$# $1 $(cat) $ROTA_TASK $ROTA_TASK_NAMESPACE $ROTA_TASK_RETRY $ROTA_TASK_START_TIME\" >&2\n\
                env | cut -d= -f1 | grep -v ^ROTA_TASK | sort | tr '\\n' ' ' >&2; exit 7";
    let param = json!({"program": "p", "args": ["$HOME; ls", "b"], "stdin": {"n": 1}});
    let (code, report) = failed(runs(text, param, 20_000).await);
    assert_eq!(code, "EXIT-7");
    let (first, names) = report.split_once('\n').unwrap();
    assert_eq!(first, "2 $HOME; ls {\"n\":1} {cart ä}1 shop 2 261127120000007");
    let may_be = |name: &str| {
        [
            "HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "PWD", "TMPDIR", "TZ", "USER", "_",
            "OLDPWD", "SHLVL",
        ]
        .contains(&name)
    };
    assert!(names.split_whitespace().all(may_be), "{names}");
}

#[tokio::test]
async fn how_a_program_ends_is_told() {
    let program = || json!({"program": "p"});
    assert_eq!(runs("exit 0", program(), 20_000).await, Ok(()));
    assert_eq!(failed(runs("kill -15 $$", program(), 20_000).await).0, "SIGNAL-15");
    let (code, report) = failed(runs("echo so far >&2; sleep 600", program(), 300).await);
    assert_eq!((code.as_str(), report.contains("it said: so far")), ("TIMEOUT", true), "{report}");
    let much = "head -c 9000 /dev/zero | tr '\\0' x >&2; echo last >&2; exit 1";
    let (code, report) = failed(runs(much, program(), 20_000).await);
    assert_eq!((code.as_str(), report.len()), ("EXIT-1", SAID_BYTES - 1));
    assert!(report.ends_with("xlast"));
    let unknown = failed(runs("exit 0", json!({"program": "q"}), 20_000).await);
    assert!(unknown.1.contains("stands in no --task-program"), "{unknown:?}");
    let runner = runner(TaskWorld {
        programs: [("p".to_owned(), PathBuf::from("/no/such"))].into(),
        ..TaskWorld::default()
    });
    let gone = failed(runner.run(&job("exec", program())).await);
    assert!(gone.0 == "NOT-STARTED" && gone.1.contains("/no/such"), "{gone:?}");
}

type Seen = Arc<Mutex<Vec<(String, HeaderMap, Bytes)>>>;

/// Answers as the path says, and notes what came.
async fn server() -> (String, Seen) {
    let seen = Seen::default();
    async fn note(
        State(seen): State<Seen>,
        request: axum::extract::Request,
    ) -> (StatusCode, [(&'static str, &'static str); 1], String) {
        let (parts, body) = request.into_parts();
        let status = parts.uri.path().rsplit('/').next().unwrap_or_default().parse().unwrap_or(200);
        let body = axum::body::to_bytes(body, 1 << 20).await.expect("it is short");
        let line = format!("{} {}", parts.method, parts.uri);
        seen.lock().expect("nobody panicked").push((line, parts.headers, body));
        let status = StatusCode::from_u16(status).expect("a status");
        (status, [("location", "/elsewhere/200")], "no stock".repeat(1_000))
    }
    let hang = get(|| async { std::future::pending::<()>().await });
    let app = Router::new().route("/hang", hang).fallback(any(note)).with_state(seen.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    (format!("http://{address}"), seen)
}

fn reaching(url: &str) -> Runner {
    let target = Target::new(url, Some("secret".to_owned()), None).unwrap();
    runner(TaskWorld { targets: [("t".to_owned(), target)].into(), ..TaskWorld::default() })
}

#[tokio::test]
async fn a_request_carries_its_body_its_key_and_its_task_and_is_judged_by_the_status() {
    let (url, seen) = server().await;
    let runner = reaching(&format!("{url}/base/"));
    let param = json!({"target": "t", "path": "/202?a=b", "method": "PUT", "body": {"n": 1},
        "headers": {"X-Shop": "north"}});
    assert_eq!(runner.run(&job("http", param)).await, Ok(()));
    let (line, headers, body) = seen.lock().unwrap().remove(0);
    assert_eq!((line.as_str(), &body[..]), ("PUT /base/202?a=b", &b"{\"n\":1}"[..]));
    for (name, value) in [
        ("authorization", "Bearer secret"),
        ("content-type", "application/json"),
        ("x-shop", "north"),
        ("x-rota-task", "{cart %C3%A4}1"),
        ("x-rota-task-namespace", "shop"),
        ("x-rota-task-retry", "2"),
        ("x-rota-task-start-time", "261127120000007"),
    ] {
        assert_eq!(headers.get(name).and_then(|it| it.to_str().ok()), Some(value), "{name}");
    }
    // A redirection is not followed: it could lead anywhere.
    for status in [302, 404, 500] {
        let param = json!({"target": "t", "path": format!("/{status}")});
        let (code, report) = failed(runner.run(&job("http", param)).await);
        assert_eq!((code, report.len()), (format!("HTTP-{status}"), SAID_BYTES));
        assert!(report.starts_with("no stock"));
    }
    assert!(seen.lock().unwrap().iter().all(|it| !it.0.contains("elsewhere")));
}

#[tokio::test]
async fn servers_that_are_not_there_or_say_nothing_are_told_apart() {
    let (url, _) = server().await;
    let hang = json!({"target": "t", "path": "/hang", "method": "GET"});
    let brief = TaskJob { quota_ms: 300, ..job("http", hang) };
    assert_eq!(failed(reaching(&url).run(&brief).await).0, "TIMEOUT");
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let free = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    for (operation, param) in [
        ("http", json!({"target": "t"})),
        ("grpc", json!({"target": "t", "method": "grpc.health.v1.Health/Check"})),
    ] {
        let (code, report) = failed(reaching(&free).run(&job(operation, param)).await);
        assert_eq!(code, "UNREACHABLE");
        assert!(report.contains("refused"), "{report}");
    }
    let unknown = json!({"target": "u"});
    let unknown = failed(reaching(&url).run(&job("http", unknown)).await);
    assert!(unknown.1.contains("stands in no --task-target"), "{unknown:?}");
}

#[tokio::test]
async fn a_call_of_grpc_is_judged_by_its_status() {
    let (reporter, health) = tonic_health::server::health_reporter();
    reporter.set_service_status("shop", tonic_health::ServingStatus::Serving).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let incoming = tokio_stream::wrappers::TcpListenerStream::new(listener);
    tokio::spawn(
        tonic::transport::Server::builder().add_service(health).serve_with_incoming(incoming),
    );
    let runner = reaching(&url);
    let call = async |method: &str, service: &str| {
        // A message of one text.
        let bytes = [&[10, u8::try_from(service.len()).unwrap()], service.as_bytes()].concat();
        let message = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, bytes);
        let param = json!({"target": "t", "method": method, "message": message});
        runner.run(&job("grpc", param)).await
    };
    let check = "grpc.health.v1.Health/Check";
    assert_eq!(call(check, "shop").await, Ok(()));
    let (code, report) = failed(call(check, "mill").await);
    assert_eq!((code.as_str(), report.is_empty()), ("GRPC-NOT_FOUND", false));
    assert_eq!(failed(call("grpc.health.v1.Health/Dance", "shop").await).0, "GRPC-UNIMPLEMENTED");
}

#[tokio::test]
async fn work_that_nobody_waits_for_ends_and_so_does_all_of_it_with_the_manager() {
    let folder = tempfile::tempdir().unwrap();
    let text = "echo $$ >> \"$(dirname \"$0\")/pids\"; sleep 600";
    let programs = [("p".to_owned(), script(folder.path(), text))].into();
    let world = TaskWorld { programs, ..TaskWorld::default() };
    let (mailbox, _lanes) = crate::mailbox::mailbox();
    let mut tasks = Tasks::new(world, mailbox).unwrap();
    for work in [1, 2] {
        tasks.run(ManagerNumber(7), work, Box::new(job("exec", json!({"program": "p"}))));
    }
    let pids = || -> Vec<i32> {
        let text = std::fs::read_to_string(folder.path().join("pids")).unwrap_or_default();
        text.lines().map(|it| it.parse().unwrap()).collect()
    };
    let until = std::time::Instant::now() + Duration::from_secs(20);
    let running = || {
        let runs =
            |it: &&i32| rota_daemon::processes::Process::of(**it).is_some_and(|it| it.runs());
        pids().iter().filter(runs).count()
    };
    let wait = async |count: usize| {
        while pids().len() != 2 || running() != count {
            assert!(std::time::Instant::now() < until, "{} run, not {count}", running());
            tokio::task::yield_now().await;
        }
    };
    wait(2).await;
    tasks.stop(1);
    wait(1).await;
    tasks.ends().end().await;
    wait(0).await;
}

#[tokio::test]
async fn the_program_is_told_of_one_task_after_the_other() {
    let folder = tempfile::tempdir().unwrap();
    let told = folder.path().join("told");
    let text = "cat >> \"$(dirname \"$0\")/told\"; exit 1";
    let world = TaskWorld { given_up: Some(script(folder.path(), text)), ..TaskWorld::default() };
    let (mailbox, _lanes) = crate::mailbox::mailbox();
    let tasks = Tasks::new(world, mailbox).unwrap();
    for n in 0..3 {
        tasks.given_up(json!({"taskid": n}));
    }
    let until = std::time::Instant::now() + Duration::from_secs(20);
    let read = || std::fs::read_to_string(&told).unwrap_or_default();
    while read().lines().count() < 3 {
        assert!(std::time::Instant::now() < until, "{:?}", read());
        tokio::task::yield_now().await;
    }
    assert_eq!(read(), "{\"taskid\":0}\n{\"taskid\":1}\n{\"taskid\":2}\n");
    tasks.ends().end().await;
}
