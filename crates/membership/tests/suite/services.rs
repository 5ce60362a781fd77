//! Managers and nodes as services of a real Consul.

use crate::conformance::{PATIENCE, name};
use crate::consul_process::ConsulAgent;
use rota_membership::StoreError;
use rota_membership::consul::{Agent, PeerHealth, Registration, Service, ServiceKind};
use rota_model::{Incarnation, ManagerNumber, MemberId};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// A manager whose port nobody serves: its check fails at the first try.
fn manager(id: &str, number: u32, incarnation: u64) -> Service {
    let meta = BTreeMap::from([
        ("cluster", "suite".to_owned()),
        ("number", number.to_string()),
        ("incarnation", incarnation.to_string()),
    ]);
    let address = "127.0.0.1:1".to_owned();
    Service { kind: ServiceKind::Manager, id: id.to_owned(), address, meta }
}

fn member(number: u32, incarnation: u64) -> MemberId {
    MemberId { number: ManagerNumber(number), incarnation: Incarnation(incarnation) }
}

/// Services of that name, with their checks.
async fn listed(agent: &ConsulAgent, service: &str) -> Vec<Value> {
    let answer = agent.json(&format!("/v1/health/service/{service}")).await;
    answer.as_array().unwrap().clone()
}

/// Looks until there are so many.
async fn until_listed(agent: &ConsulAgent, service: &str, count: usize) -> Vec<Value> {
    let until = Instant::now() + PATIENCE;
    loop {
        let there = listed(agent, service).await;
        if there.len() == count {
            return there;
        }
        assert!(Instant::now() < until, "not {count}: {there:?}");
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_service_is_there_with_its_metadata_from_the_start_to_the_end() {
    let agent = ConsulAgent::start().await;
    let registration = Registration::start(&agent.address("p/q")).unwrap();
    let node = Service { kind: ServiceKind::Node, ..manager("n \"1\" é", 1, 1) };
    registration.want(Some(node));
    let there = until_listed(&agent, "p-q-node", 1).await;
    assert_eq!(there[0]["Service"]["Meta"]["number"], "1");
    assert_eq!(there[0]["Service"]["Port"], 1);
    assert_eq!(listed(&agent, "rota-node").await, Vec::<Value>::new());
    registration.end().await;
    assert_eq!(listed(&agent, "p-q-node").await, Vec::<Value>::new());
}

#[tokio::test]
async fn a_new_run_is_not_blamed_for_the_end_of_the_one_before() {
    let agent = ConsulAgent::start().await;
    let registration = Registration::start(&agent.address("rota")).unwrap();
    let client = Agent::new(&agent.address("rota"), PATIENCE).unwrap();
    let mut health = PeerHealth::new(client, name("suite"));
    // It takes calls and answers none, so that each check fails a second after it began, and what
    // was before can be seen.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let run = |incarnation| Service { address: address.clone(), ..manager("a", 7, incarnation) };
    registration.want(Some(run(1)));
    let until = Instant::now() + PATIENCE;
    while health.next().await.unwrap() != [member(7, 1)] {
        assert!(Instant::now() < until);
    }
    registration.want(Some(run(2)));
    // Its first state is passing: the check of the new run has not failed yet.
    let mut first = Value::Null;
    while first.is_null() {
        assert!(Instant::now() < until);
        let there = listed(&agent, "rota-manager").await;
        let new = there.iter().find(|it| it["Service"]["Meta"]["incarnation"] == "2");
        first = new.cloned().unwrap_or_default();
    }
    let checks = first["Checks"].as_array().unwrap();
    assert!(checks.iter().any(|it| it["Name"] == "gRPC health"), "{checks:?}");
    let statuses: Vec<_> = checks.iter().map(|it| it["Status"].as_str().unwrap()).collect();
    assert!(statuses.iter().all(|it| *it == "passing"), "{statuses:?}");
    // What is really gone is told again and again.
    for _ in 0..2 {
        while health.next().await.unwrap() != [member(7, 2)] {
            assert!(Instant::now() < until);
        }
    }
    registration.end().await;
    while !health.next().await.unwrap().is_empty() {
        assert!(Instant::now() < until);
    }
}

#[tokio::test]
async fn an_agent_that_lost_its_data_is_told_again() {
    let mut agent = ConsulAgent::start().await;
    let registration = Registration::start(&agent.address("rota")).unwrap();
    registration.want(Some(manager("a", 7, 1)));
    until_listed(&agent, "rota-manager", 1).await;
    let client = Agent::new(&agent.address("rota"), Duration::from_secs(2)).unwrap();
    let mut health = PeerHealth::new(client, name("suite"));
    health.next().await.unwrap();
    agent.kill().await;
    assert!(matches!(health.next().await, Err(StoreError::Unreachable(_))));
    agent.wipe();
    agent.run().await;
    until_listed(&agent, "rota-manager", 1).await;
    // The indexes of the new history are lower; the watch goes on all the same.
    let until = Instant::now() + PATIENCE;
    while health.next().await.unwrap() != [member(7, 1)] {
        assert!(Instant::now() < until);
    }
    registration.end().await;
}
