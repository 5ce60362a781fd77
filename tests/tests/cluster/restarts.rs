//! The whole cluster again, from its own data folder.

use rota_client::{Client, v1};
use rota_tests::processes::Process;
use rota_tests::sessions::{CALL, close, listed, open, opened, read};
use rota_tests::{Cluster, Launched, TestFolder, http_get};
use std::collections::BTreeMap;
use v1::{Outcome, SessionState};

/// Sessions before the end, by id.
type Before = BTreeMap<String, v1::Session>;

/// Sessions of every kind, one of them closed.
async fn fill(client: &Client) -> Before {
    let mut before = Before::new();
    for (prefix, class, count) in [("machine", "counter", 9), ("program", "http", 4)] {
        for number in 0..count {
            let id = format!("{prefix} {number}");
            before.insert(id.clone(), opened(client, &id, class).await);
        }
    }
    client.close(close("machine 0"), CALL).await.unwrap();
    before
}

/// After a restart: every record is there, nothing of the old run has an address, and each id can
/// be opened again into a new life.
async fn check(cluster: &Cluster, before: &Before) {
    let there = listed(&cluster.client(), v1::Filter::default()).await;
    let ids: Vec<&str> = there.iter().map(|it| it.id.as_str()).collect();
    assert_eq!(ids.len(), before.len(), "{ids:?}");
    for client in cluster.clients() {
        for (id, old) in before {
            let session = read(&client, id).await.unwrap();
            assert_eq!(session.life, old.life, "{id}");
            let ended = [SessionState::Closed, SessionState::Lost].contains(&session.state());
            assert!(ended, "nothing of the old run runs any more: {session:?}");
            assert_eq!(session.address, "", "{session:?}");
        }
        let closed = read(&client, "machine 0").await.unwrap();
        assert_eq!(closed.reason(), v1::Reason::ClosedByClient, "an acknowledged close stays");
    }
    for old in before.values().filter(|it| it.class == "http") {
        assert!(http_get(&old.address, "/").await.is_err(), "{} still answers", old.address);
    }
    let client = cluster.client();
    for (id, old) in before {
        let answer = client.open(open(id, &old.class), CALL).await.unwrap();
        assert_eq!(answer.outcome(), Outcome::Created, "{id}");
        let new = answer.session.unwrap();
        assert!(new.life > old.life && new.version > old.version, "{id}");
        if old.class == "http" {
            assert_eq!(http_get(&new.address, "/").await.unwrap().code, 200);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_was_ended_comes_back_with_its_records_and_no_false_address() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let before = fill(&cluster.client()).await;
    cluster.end().await;
    let cluster = Cluster::start(&folder, &[]).await;
    check(&cluster, &before).await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_of_which_everything_was_killed_comes_back_with_every_acknowledged_record() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &["--nodes", "2"]).await;
    let before = fill(&cluster.client()).await;
    cluster.crash(|_| true).await;
    let cluster = Cluster::start(&folder, &[]).await;
    check(&cluster, &before).await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_that_outlived_their_cluster_are_ended_before_it_answers_again() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let before = fill(&cluster.client()).await;
    let keepers = cluster.keepers();
    let programs: Vec<Process> = keepers.iter().flat_map(|it| cluster.programs_of(it)).collect();
    assert_eq!((keepers.len(), programs.len()), (4, 4));
    let outlives = |it: &Process| keepers.contains(it) || programs.contains(it);
    cluster.crash(|it| !outlives(it)).await;
    let cluster = Cluster::start(&folder, &[]).await;
    assert!(programs.iter().all(|it| !it.runs()));
    check(&cluster, &before).await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_id_is_remembered_over_a_restart() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let request = v1::OpenRequest { request_id: "r".to_owned(), ..open("a", "counter") };
    let first = cluster.client().open(request.clone(), CALL).await.unwrap();
    cluster.end().await;
    let cluster = Cluster::start(&folder, &[]).await;
    let again = cluster.client_of(1).open(request, CALL).await.unwrap();
    assert_eq!(again.outcome(), Outcome::Created);
    assert_eq!(again.session.unwrap().life, first.session.unwrap().life);
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_managers_started_come_back_too_or_their_sessions_are_lost() {
    let folder = TestFolder::new();
    let options = ["--places", "2", "--max-nodes", "3"];
    let cluster = Cluster::start(&folder, &options).await;
    let client = cluster.client();
    let mut before = Before::new();
    for number in 0..5 {
        let id = format!("machine {number}");
        before.insert(id.clone(), opened(&client, &id, "counter").await);
    }
    client.close(close("machine 0"), CALL).await.unwrap();
    cluster.end().await;
    let cluster = Cluster::start(&folder, &[]).await;
    check(&cluster, &before).await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_power_cut_the_ring_serves_without_the_manager_that_stays_away() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let client = cluster.client();
    let mut before = Before::new();
    for number in 0..9 {
        let id = format!("machine {number}");
        before.insert(id.clone(), opened(&client, &id, "counter").await);
    }
    cluster.every_copy_is_in_sync().await;
    let killed = cluster.kill_managers(&[0, 1, 2]).await;
    let mut again = Vec::new();
    for (index, it) in killed.iter().enumerate().take(2) {
        again.push(Launched::again(&folder, &format!("manager-{index}-again"), &it.line).await);
    }
    for index in 0..2 {
        let client = cluster.client_of(index);
        for (id, old) in &before {
            let session = read(&client, id).await.unwrap();
            assert_eq!((session.state(), &session.address), (SessionState::Ready, &old.address));
        }
        opened(&client, &format!("new {index}"), "counter").await;
    }
    // It comes back after all.
    again.push(Launched::again(&folder, "manager-2-again", &killed[2].line).await);
    cluster.every_copy_is_in_sync().await;
    let client = cluster.client_of(2);
    for (id, old) in &before {
        let session = read(&client, id).await.unwrap();
        assert_eq!((session.state(), session.life), (SessionState::Ready, old.life), "{id}");
    }
    cluster.end_with(again).await;
}
