//! Programs and machines through a node's services.

use crate::agent::Home;
use crate::manager::{Line, Manager, channel, key, never_started, running, token};
use crate::waiting::{numbers_in, runs};
use rota_model::node_msg::{DeadToken, NodeAnswer, ScanFate};
use rota_model::{Exit, Reason, RefusalKind};
use rota_proto::refusal::refusal;
use serde_json::Value;
use std::fs;
use std::path::Path;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

async fn http_get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.0\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}

#[tokio::test]
async fn a_program_answers_at_its_address_until_it_is_destroyed() {
    let (home, manager) = (Home::new(), Manager::start().await);
    let agent = home.start(&manager.address, &[]).await;
    let register = manager.registration(1).await;
    assert_eq!(register.address, agent.ready["address"]);
    let mut line = Line::to(&register).await;

    let (address, _) = running(&line.create("web", "http", 1).await);
    assert_eq!(manager.ready("web").await, address);
    fs::write(home.work("web").join("hello.txt"), "hello from the session").unwrap();
    let answer = http_get(&address, "/hello.txt").await;
    assert!(answer.starts_with("HTTP/1.0 200") && answer.contains("hello from the session"));

    // The same token again: the same answer. Another one: refused while this one lives.
    assert_eq!(running(&line.create("web", "http", 1).await), (address.clone(), true));
    let other = line.create("web", "http", 2).await;
    assert_eq!(other, NodeAnswer::OtherLive { token: token(1) });
    let scanned = line.scan().await;
    assert_eq!(scanned.len(), 2, "{scanned:?}");
    let is_there = |item: &rota_model::node_msg::ScanItem| {
        let at = matches!(&item.fate, ScanFate::Live(it) if it.address == address && it.ready);
        item.key == key("web") && at
    };
    assert!(scanned.iter().any(is_there), "{scanned:?}");

    let destroyed = line.destroy("web", 1).await;
    assert!(matches!(destroyed, NodeAnswer::Destroyed { exit: Some(_), .. }), "{destroyed:?}");
    assert!(TcpStream::connect(&address).await.is_err());
    assert_eq!(line.destroy("web", 1).await, destroyed);
    home.until_empty().await;
    assert!(agent.leave().await.success());
}

#[tokio::test]
async fn a_scraper_is_told_what_the_programs_of_each_class_use() {
    let (home, manager) = (Home::new(), Manager::start().await);
    let agent = home.start(&manager.address, &["--http", "127.0.0.1:0"]).await;
    let mut line = Line::to(&manager.registration(1).await).await;
    running(&line.create("b", "brief", 1).await);
    manager.ready("b").await;
    let http = agent.ready["http"].as_str().unwrap();
    let page = http_get(http, "/metrics").await;
    assert!(page.starts_with("HTTP/1.0 200") || page.starts_with("HTTP/1.1 200"), "{page}");
    let value = |page: &str, series: &str| {
        let line = page.lines().find_map(|it| it.strip_prefix(series)?.strip_prefix(' '));
        let line = line.unwrap_or_else(|| panic!("no {series} in {page}"));
        line.trim().parse::<f64>().unwrap()
    };
    assert!((value(&page, "rota_programs{class=\"brief\"}") - 1.0).abs() < 0.1, "{page}");
    assert!(value(&page, "rota_program_memory_bytes{class=\"brief\"}") > 100_000.0, "{page}");
    fs::write(home.work("b").join("stop"), "").unwrap();
    manager.end_of("b").await;
    home.until_empty().await;
    let page = http_get(http, "/metrics").await;
    // Its shell looked for a file again and again.
    let cpu = value(&page, "rota_program_cpu_seconds_total{class=\"brief\"}");
    assert!(cpu >= 0.0 && !page.contains("rota_programs{class=\"brief\"} 1"), "{page}");
    assert!(agent.leave().await.success());
}

#[tokio::test]
async fn many_programs_at_once_each_answer_at_their_own_address() {
    let (home, manager) = (Home::new(), Manager::start().await);
    let agent = home.start(&manager.address, &[]).await;
    let mut line = Line::to(&manager.registration(1).await).await;
    let calls = (1..=8).map(|it| line.create_call(&format!("s{it}"), "family", it, &[])).collect();
    let answers = line.ask_all(calls).await;
    let mut addresses: Vec<String> = answers.iter().map(|it| running(it).0).collect();
    addresses.sort();
    addresses.dedup();
    assert_eq!(addresses.len(), 8);
    for number in 1..=8 {
        manager.ready(&format!("s{number}")).await;
    }
    assert!(agent.leave().await.success());
    home.until_empty().await;
}

#[tokio::test]
async fn a_destroy_ends_grandchildren_before_it_is_answered() {
    let (home, manager) = (Home::new(), Manager::start().await);
    let agent = home.start(&manager.address, &[]).await;
    let mut line = Line::to(&manager.registration(1).await).await;
    running(&line.create("f", "family", 1).await);
    manager.ready("f").await;
    let pids = numbers_in(&home.work("f").join("pids"), 3).await;
    let destroyed = line.destroy("f", 1).await;
    assert_eq!(
        destroyed,
        NodeAnswer::Destroyed { exit: Some(Exit::Signal(15)), detail: String::new() }
    );
    assert!(!pids.iter().any(|it| runs(*it)));
    drop(agent);
}

#[tokio::test]
async fn a_program_that_ends_by_itself_is_reported_with_its_code() {
    let (home, manager) = (Home::new(), Manager::start().await);
    let _agent = home.start(&manager.address, &[]).await;
    let mut line = Line::to(&manager.registration(1).await).await;
    running(&line.create("b", "brief", 1).await);
    manager.ready("b").await;
    fs::write(home.work("b").join("stop"), "").unwrap();
    let (reason, exit, detail) = manager.end_of("b").await;
    assert_eq!((reason, exit), (Reason::Exited, Some(Exit::Code(5))));
    assert!(
        detail.starts_with("it ended by itself after it was ready; last on stdout: up; "),
        "{detail}"
    );
    let again = line.create("b", "brief", 1).await;
    let ended =
        matches!(again, NodeAnswer::Dead(DeadToken::Ended { exit: Some(Exit::Code(5)), .. }));
    assert!(ended, "{again:?}");
}

#[tokio::test]
async fn starts_that_fail_say_why() {
    let (home, manager) = (Home::new(), Manager::start().await);
    let _agent = home.start(&manager.address, &[]).await;
    let mut line = Line::to(&manager.registration(1).await).await;

    let detail = never_started(&line.create("m", "missing", 1).await);
    assert!(detail.contains("no-such-program-here"), "{detail}");
    let detail = never_started(&line.create("a", "broken", 2).await);
    assert!(detail.contains("\"thing\"") && detail.contains("argv[4]"), "{detail}");

    let call = line.create_call("x", "broken", 3, &[("thing", "a \"unicorn\"; exit 9")]);
    line.ask(call).await;
    let (reason, exit, detail) = manager.end_of("x").await;
    assert_eq!((reason, exit), (Reason::Exited, Some(Exit::Code(4))));
    assert!(detail.contains("before it was ready"), "{detail}");
    assert!(detail.contains("no such thing as a \"unicorn\"; exit 9"), "{detail}");

    running(&line.create("s", "slow", 4).await);
    let pids = numbers_in(&home.work("s").join("pids"), 1).await;
    let (reason, exit, detail) = manager.end_of("s").await;
    assert_eq!(reason, Reason::StartTimeout);
    assert!(matches!(exit, Some(Exit::Signal(9 | 15))), "{exit:?}");
    assert!(detail.contains("300 ms") && detail.contains("listened on no port"), "{detail}");
    assert!(!runs(pids[0]));
}

#[tokio::test]
async fn a_machine_takes_events_at_the_address_of_its_node_and_ends_in_a_final_state() {
    let (home, manager) = (Home::new(), Manager::start().await);
    let agent = home.start(&manager.address, &[]).await;
    let register = manager.registration(1).await;
    let mut line = Line::to(&register).await;
    let created = line.create("d", "door", 1).await;
    assert_eq!(running(&created), (register.address.clone(), true));
    assert_eq!(manager.state("d", "shut").await, 0);

    let step = line.send("d", "push").await.unwrap();
    assert_eq!((step.from.as_str(), step.to.as_str()), ("shut", "open"));
    assert_eq!((step.changes, step.r#final), (1, false));
    assert_eq!(manager.state("d", "open").await, 1);

    let wrong = line.send("d", "push").await.unwrap_err();
    assert_eq!(refusal(&wrong).kind, RefusalKind::NoTransition);
    let text = wrong.message();
    assert!(text.contains("\"open\"") && text.contains("pull, burn"), "{text}");
    let unknown = line.send("d", "kick").await.unwrap_err();
    assert_eq!(refusal(&unknown).kind, RefusalKind::InvalidArgument);
    assert!(unknown.message().contains("push, pull, burn"), "{unknown:?}");
    let nobody = line.send("nobody", "push").await.unwrap_err();
    assert_eq!(refusal(&nobody).kind, RefusalKind::NotFound);
    assert!(nobody.message().contains("default/nobody"), "{nobody:?}");

    let step = line.send("d", "burn").await.unwrap();
    assert!(step.r#final);
    let end = manager.end_of("d").await;
    assert_eq!((end.0, end.1), (Reason::Exited, Some(Exit::FinalState("gone".into()))));
    assert_eq!(refusal(&line.send("d", "push").await.unwrap_err()).kind, RefusalKind::NotFound);

    running(&line.create("e", "door", 2).await);
    assert_eq!(
        line.destroy("e", 2).await,
        NodeAnswer::Destroyed { exit: None, detail: String::new() }
    );
    assert_eq!(refusal(&line.send("e", "push").await.unwrap_err()).kind, RefusalKind::NotFound);
    assert!(agent.leave().await.success());
}

#[tokio::test]
async fn a_node_whose_disk_is_below_its_reserve_takes_no_session_and_says_so() {
    let (home, manager) = (Home::new(), Manager::start().await);
    let reserve = (1_u64 << 50).to_string();
    let agent = home.start(&manager.address, &["--disk-reserve-bytes", &reserve]).await;
    assert_eq!(agent.ready["disk_reserve_bytes"].to_string(), reserve);
    assert!(agent.ready["disk_free_bytes"].as_u64().is_some_and(|it| it > 0));
    let mut line = Line::to(&manager.registration(1).await).await;
    let detail = never_started(&line.create("b", "brief", 1).await);
    let told = format!("bytes free, and --disk-reserve-bytes is {reserve}");
    assert!(detail.contains(&told), "{detail}");
    assert!(agent.leave().await.success());
}

#[tokio::test]
async fn a_full_node_refuses_and_remembers_it() {
    let (home, manager) = (Home::new(), Manager::start().await);
    let flags = ["--places", "2", "--load-limit", "1"];
    let _agent = home.start(&manager.address, &flags).await;
    let mut line = Line::to(&manager.registration(1).await).await;
    running(&line.create("a", "door", 1).await);
    running(&line.create("b", "door", 2).await);
    assert_eq!(line.create("c", "door", 3).await, NodeAnswer::Full);
    line.destroy("a", 1).await;
    let again = line.create("c", "door", 3).await;
    assert!(!matches!(again, NodeAnswer::Running { .. }), "{again:?}");
    running(&line.create("c", "door", 4).await);
}

/// The services that one version of reflection lists, sorted. Both versions have the same messages, in
/// types of their own.
macro_rules! listed_by {
    ($version:ident, $address:expr) => {{
        use tonic_reflection::pb::$version::{
            ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
            server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
        };
        let asked = MessageRequest::ListServices(String::new());
        let asked = ServerReflectionRequest { message_request: Some(asked), ..Default::default() };
        let mut client = ServerReflectionClient::new(channel($address).await);
        let answers = client.server_reflection_info(tokio_stream::once(asked)).await.unwrap();
        let answer = answers.into_inner().message().await.unwrap().unwrap().message_response;
        let Some(MessageResponse::ListServicesResponse(list)) = answer else {
            panic!("{answer:?}")
        };
        let mut names: Vec<String> = list.service.into_iter().map(|it| it.name).collect();
        names.sort();
        names
    }};
}

#[tokio::test]
async fn health_and_reflection_are_served() {
    let (home, manager) = (Home::new(), Manager::start().await);
    let agent = home.start(&manager.address, &[]).await;
    let address = agent.ready["address"].as_str().unwrap().to_owned();
    let mut health = tonic_health::pb::health_client::HealthClient::new(channel(&address).await);
    for service in
        ["", "rota.v1.NodeAgent", "rota.v1.Machines", "rota.v1.NodeOperator", "rota.v1.Programs"]
    {
        let request = tonic_health::pb::HealthCheckRequest { service: service.to_owned() };
        let status = health.check(request).await.unwrap().into_inner().status();
        assert_eq!(status, tonic_health::ServingStatus::Serving.into(), "{service}");
    }
    let served = [
        "grpc.health.v1.Health",
        "rota.v1.Machines",
        "rota.v1.NodeAgent",
        "rota.v1.NodeOperator",
        "rota.v1.Programs",
    ];
    assert_eq!(listed_by!(v1, &address), served);
    assert_eq!(listed_by!(v1alpha, &address), served);
    assert!(agent.leave().await.success());
}

/// What a log says of the sessions of its node: session, token, what, why.
fn of_sessions(log: &Path) -> Vec<Value> {
    let text = fs::read_to_string(log).unwrap();
    let lines = text.lines().filter_map(|it| serde_json::from_str::<Value>(it).ok());
    lines.filter(|it| it["target"] == "sessions").collect()
}

#[tokio::test]
async fn the_log_tells_when_each_session_began_and_when_nothing_of_it_ran_any_more() {
    let (home, manager) = (Home::new(), Manager::start().await);
    let log = home.data().with_file_name("log");
    let agent = home.start_logging_to(&manager.address, &log).await;
    let mut line = Line::to(&manager.registration(1).await).await;
    running(&line.create("e", "door", 1).await);
    assert_eq!(
        line.destroy("e", 1).await,
        NodeAnswer::Destroyed { exit: None, detail: String::new() }
    );
    running(&line.create("b", "brief", 2).await);
    manager.ready("b").await;
    fs::write(home.work("b").join("stop"), "").unwrap();
    manager.end_of("b").await;
    never_started(&line.create("m", "missing", 3).await);
    let told = of_sessions(&log);
    let words = |entry: &Value| {
        let text = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
        [text("session"), text("message"), text("why")].join(" ")
    };
    let expected = [
        " boots ",
        "default/e begins ",
        "default/e over STOPPED",
        "default/b begins ",
        "default/b over EXITED",
        "default/m begins ",
        "default/m over NOT_STARTED",
    ];
    assert_eq!(told.iter().map(words).collect::<Vec<_>>(), expected);
    let times: Vec<u64> = told.iter().map(|it| it["at_us"].as_u64().unwrap()).collect();
    assert!(times.is_sorted(), "{times:?}");
    assert!(told.iter().all(|it| it["boot"].is_u64()), "{told:?}");
    assert!(told[1..].iter().all(|it| it["token"].is_string()), "{told:?}");
    assert!(told.iter().filter(|it| it["message"] == "begins").all(|it| it["life"].is_u64()));
    assert!(agent.leave().await.success());
}
