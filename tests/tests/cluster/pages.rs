//! What a manager shows of itself: metrics, health.

use rota_tests::sessions::{CALL, close, open, opened};
use rota_tests::{Cluster, PATIENCE, TestFolder, eventually, http_get};
use serde_json::Value;
use std::time::Duration;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

/// The sum of all samples of a metric whose labels hold all of these.
fn sum(text: &str, name: &str, labels: &[&str]) -> f64 {
    let samples = text.lines().filter(|line| {
        let end = line.find(['{', ' ']).unwrap_or(line.len());
        &line[..end] == name && labels.iter().all(|it| line.contains(it))
    });
    samples.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_count_opens_closes_sessions_and_commits() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let client = cluster.client();
    for number in 0..12 {
        opened(&client, &format!("s{number}"), "builtin").await;
    }
    for number in 0..4 {
        client.close(close(&format!("s{number}")), CALL).await.unwrap();
    }
    client.open(open("s5", "builtin"), CALL).await.unwrap();
    client.open(open("x", "no-such-class"), CALL).await.unwrap_err();
    client.close(close("never opened"), CALL).await.unwrap_err();
    client.close(close(""), CALL).await.unwrap_err();
    let mut all = String::new();
    for manager in &cluster.document.managers {
        let page = http_get(&manager.http, "/metrics").await.unwrap();
        assert_eq!(page.code, 200);
        all.push_str(&page.body);
    }
    let count = |name: &str, labels: &[&str]| sum(&all, name, labels);
    assert_eq!(count("rota_opens_total", &["CREATED"]), 12.0, "{all}");
    assert_eq!(count("rota_opens_total", &["EXISTED"]), 1.0);
    assert_eq!(count("rota_opens_total", &[]), 13.0, "a refused open is no open");
    assert_eq!(count("rota_closes_total", &["FINISHED"]), 4.0);
    assert_eq!(count("rota_closes_total", &[]), 4.0, "a refused close is no close");
    assert_eq!(count("rota_refusals_total", &["\"open\"", "UNKNOWN_CLASS"]), 1.0);
    assert_eq!(count("rota_refusals_total", &["\"close\"", "NOT_FOUND"]), 1.0);
    assert_eq!(count("rota_refusals_total", &["\"open\""]), 1.0);
    // Each begins at 0, so that the first one is an increase.
    let full = |it: &&str| it.starts_with("rota_refusals_total{") && it.contains("NO_CAPACITY");
    let mut full = all.lines().filter(full).peekable();
    assert!(full.peek().is_some() && full.all(|it| it.ends_with(" 0")), "{all}");
    assert_eq!(count("rota_refusals_total", &["\"close\"", "INVALID_ARGUMENT"]), 1.0);
    assert_eq!(count("rota_refusals_total", &["\"close\""]), 2.0);
    assert_eq!(count("rota_driver_answers", &[]), 3.0);
    for way in ["peer", "peer_late", "node"] {
        assert_eq!(count("rota_dropped_total", &[&format!("\"{way}\"")]), 0.0, "{way}");
        assert!(all.contains(&format!("way=\"{way}\"")), "{way} in {all}");
    }
    assert_eq!(count("rota_sessions", &["READY"]), 8.0);
    assert_eq!(count("rota_sessions", &["CLOSED"]), 4.0);
    let ended = ["class=\"builtin\"", "from=\"CLOSING\"", "state=\"CLOSED\"", "CLOSED_BY_CLIENT"];
    assert_eq!(count("rota_session_ends_total", &ended), 4.0, "{all}");
    assert_eq!(count("rota_session_ends_total", &[]), 4.0);
    assert_eq!(count("rota_node_places", &["n1"]), 1000.0, "one manager tells of a node");
    assert!(count("rota_node_used", &["n1"]) >= 8.0, "{all}");
    assert!(count("rota_call_seconds_count", &["open"]) >= 14.0);
    for name in ["rota_commit_seconds_sum", "rota_commit_batch_count", "rota_view_epoch"] {
        assert!(count(name, &[]) > 0.0, "{name} in {all}");
    }
    let sync = count("rota_commit_sync_seconds_sum", &[]);
    assert!(sync > 0.0 && sync < count("rota_commit_seconds_sum", &[]), "{all}");
    let lags = all.lines().filter(|it| it.starts_with("rota_replication_lag_entries{"));
    assert_eq!(lags.count(), 6, "each of three owners has two copies: {all}");
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn health_says_whether_a_manager_holds_its_number_and_reaches_the_config_store() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let health = async |manager: usize| {
        let page = http_get(&cluster.document.managers[manager].http, "/healthz").await?;
        let body: Value = serde_json::from_str(&page.body).map_err(|error| error.to_string())?;
        Ok::<_, String>((page.code, body))
    };
    for (index, manager) in cluster.document.managers.iter().enumerate() {
        let (code, body) = health(index).await.unwrap();
        assert_eq!((code, &body["claimed"]), (200, &true.into()), "{body}");
        assert_eq!(body["number"], manager.number);
        assert_eq!(body["config_store"]["reachable"], true);
    }
    assert_eq!(http_get(&cluster.document.managers[0].http, "/nothing").await.unwrap().code, 404);
    let store = http_get(&cluster.document.config_store.address, "/healthz").await.unwrap();
    assert_eq!(store.code, 200);
    rota_tests::processes::send(cluster.document.config_store.pid, rustix::process::Signal::KILL);
    eventually("the missing config store is noticed", PATIENCE, async || {
        let (_, body) = health(0).await?;
        let reachable = &body["config_store"]["reachable"];
        if *reachable == false { Ok(()) } else { Err(body.to_string()) }
    })
    .await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_config_store_a_complete_ring_still_serves() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let client = cluster.client();
    let before = opened(&client, "before", "counter").await;
    rota_tests::processes::send(cluster.document.config_store.pid, rustix::process::Signal::KILL);
    for client in cluster.clients() {
        let seen = rota_tests::sessions::read(&client, "before").await.unwrap();
        assert_eq!(seen.address, before.address);
    }
    for number in 0..6 {
        let id = format!("after {number}");
        opened(&client, &id, "counter").await;
        assert!(client.close(close(&id), CALL).await.unwrap().finished);
    }
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn managers_and_nodes_answer_the_health_checks_of_grpc() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let mut asked = vec![(cluster.document.nodes[0].address.clone(), "rota.v1.Machines")];
    for manager in &cluster.document.managers {
        asked.push((manager.grpc.clone(), "rota.v1.Sessions"));
        asked.push((manager.grpc.clone(), ""));
    }
    for (address, service) in asked {
        let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{address}"));
        let endpoint = endpoint.unwrap().timeout(Duration::from_secs(10));
        let mut client = HealthClient::new(endpoint.connect().await.unwrap());
        let request = HealthCheckRequest { service: service.to_owned() };
        let answer = client.check(request).await;
        let answer = answer.unwrap_or_else(|error| panic!("{address} {service:?}: {error}"));
        assert_eq!(answer.into_inner().status(), ServingStatus::Serving, "{address} {service:?}");
    }
    cluster.end().await;
}
