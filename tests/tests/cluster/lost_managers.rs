//! A manager that is killed while clients run.

use rota_client::{CallError, Client, v1};
use rota_tests::sessions::{CALL, close, listed, open, opened, read};
use rota_tests::{Cluster, PATIENCE, TestFolder, eventually, http_get};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use v1::SessionState;

/// What a busy client did: its sessions that must live now, by id, with their addresses.
type Kept = BTreeMap<String, String>;

/// Opens sessions, reads them through whichever manager, and closes every third, until it is told
/// to stop. Nothing may fail: the client repeats by the advice that it is given.
async fn busy(
    client: Client,
    name: usize,
    stop: Arc<AtomicBool>,
    rounds: Arc<AtomicU64>,
) -> Result<Kept, CallError> {
    let mut kept = Kept::new();
    for round in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let id = format!("client {name} session {round}");
        let answer = client.open(open(&id, "counter"), CALL).await?;
        let address = answer.session.expect("the client checks it").address;
        let seen = read(&client, &id).await?;
        assert_eq!((seen.state(), &seen.address), (SessionState::Ready, &address), "{id}");
        if round % 3 == 0 {
            let closed = client.close(close(&id), CALL).await?;
            assert!(closed.finished, "{id}");
            assert_eq!(read(&client, &id).await?.state(), SessionState::Closed, "{id}");
        } else {
            kept.insert(id, address);
        }
        rounds.fetch_add(1, Ordering::Relaxed);
    }
    Ok(kept)
}

async fn rounds_reach(rounds: &AtomicU64, wanted: u64) {
    eventually(&format!("{wanted} rounds"), PATIENCE * 2, async || {
        let done = rounds.load(Ordering::Relaxed);
        if done >= wanted { Ok(()) } else { Err(format!("{done} rounds")) }
    })
    .await;
}

async fn killing_under_load(victim: usize) {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &["--places", "100000"]).await;
    let (stop, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let clients = (0..8).map(|name| {
        let (client, stop, rounds) = (cluster.client(), stop.clone(), rounds.clone());
        tokio::spawn(busy(client, name, stop, rounds))
    });
    let clients: Vec<_> = clients.collect();
    rounds_reach(&rounds, 100).await;
    cluster.kill_manager(victim).await;
    let at_kill = rounds.load(Ordering::Relaxed);
    rounds_reach(&rounds, at_kill + 200).await;
    stop.store(true, Ordering::Relaxed);
    let mut kept = Kept::new();
    for client in clients {
        let done = client.await.unwrap();
        kept.extend(done.unwrap_or_else(|error| panic!("no error is allowed: {error:?}")));
    }
    let survivors: Vec<Client> =
        (0..3).filter(|it| *it != victim).map(|it| cluster.client_of(it)).collect();
    for (id, address) in &kept {
        for client in &survivors {
            let session = read(client, id).await.unwrap();
            assert_eq!((session.state(), &session.address), (SessionState::Ready, address), "{id}");
        }
    }
    for client in &survivors {
        let filter = v1::Filter { states: vec![SessionState::Ready.into()], ..Default::default() };
        let there = listed(client, filter).await;
        let there: Kept = there.into_iter().map(|it| (it.id, it.address)).collect();
        assert_eq!(there, kept);
    }
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manager_that_is_killed_under_load_loses_no_session_and_no_call() {
    killing_under_load(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_manager_that_is_killed_under_load_loses_no_session_and_no_call() {
    killing_under_load(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_of_three_managers_may_die_one_after_the_other() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let client = cluster.client();
    let ids: Vec<String> = (0..12).map(|it| format!("s{it}")).collect();
    let mut addresses = Vec::new();
    for id in &ids {
        addresses.push(opened(&client, id, "http").await.address);
    }
    let last = cluster.client_of(2);
    for victim in [0, 1] {
        cluster.kill_manager(victim).await;
        for (id, address) in ids.iter().zip(&addresses) {
            let session = read(&last, id).await.unwrap();
            assert_eq!((session.state(), &session.address), (SessionState::Ready, address), "{id}");
            assert_eq!(http_get(address, "/").await.unwrap().code, 200);
        }
        opened(&last, &format!("after {victim}"), "counter").await;
    }
    assert!(last.close(close("s0"), CALL).await.unwrap().finished);
    cluster.end().await;
}
