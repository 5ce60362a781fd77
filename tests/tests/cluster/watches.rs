//! Watches: no gaps, at least once, from a position on.

use rota_client::{Client, Watch, WatchOptions, v1};
use rota_tests::sessions::{CALL, close, opened};
use rota_tests::{Cluster, PATIENCE, TestFolder};
use std::collections::BTreeSet;
use tokio::time::timeout;
use v1::SessionState;

/// The next answer, within the patience of a test.
async fn next(watch: &mut Watch) -> v1::WatchResponse {
    let answer = timeout(PATIENCE, watch.next()).await.expect("the watch goes on");
    answer.unwrap_or_else(|error| panic!("{error:?}"))
}

fn watch(client: &Client, request: v1::WatchRequest) -> Watch {
    client.watch(request, WatchOptions::default())
}

/// Ids of the first snapshot.
async fn snapshot(watch: &mut Watch) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    loop {
        let answer = next(watch).await;
        seen.extend(answer.session.map(|it| it.id));
        if answer.caught_up {
            return seen;
        }
    }
}

/// Follows until each of these ids was seen in this state.
async fn until_seen(watch: &mut Watch, ids: &BTreeSet<String>, state: SessionState) {
    let mut missing = ids.clone();
    while !missing.is_empty() {
        let answer = timeout(PATIENCE, watch.next()).await;
        let answer = answer.unwrap_or_else(|_| panic!("{missing:?} never became {state:?}"));
        let answer = answer.unwrap_or_else(|error| panic!("{error:?}"));
        if let Some(session) = answer.session.filter(|it| it.state() == state) {
            missing.remove(&session.id);
        }
    }
}

fn names(prefix: &str, count: u32) -> BTreeSet<String> {
    (0..count).map(|it| format!("{prefix}{it}")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_shows_what_is_there_and_then_every_change() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let client = cluster.client();
    let (before, after) = (names("before", 9), names("after", 9));
    for id in &before {
        opened(&client, id, "builtin").await;
    }
    for manager in cluster.clients() {
        let mut watch = watch(&manager, v1::WatchRequest::default());
        let seen = snapshot(&mut watch).await;
        assert!(seen.is_superset(&before), "{seen:?}");
        for id in &after {
            opened(&client, id, "builtin").await;
        }
        until_seen(&mut watch, &after, SessionState::Ready).await;
        for id in &after {
            client.close(close(id), CALL).await.unwrap();
        }
        until_seen(&mut watch, &after, SessionState::Closed).await;
    }
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_goes_on_from_its_position_through_another_manager() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let (client, managers) = (cluster.client(), cluster.clients());
    let mut first = watch(&managers[0], v1::WatchRequest::default());
    snapshot(&mut first).await;
    let position = first.position().to_vec();
    assert!(!position.is_empty());
    drop(first);
    let meanwhile = names("meanwhile", 12);
    for id in &meanwhile {
        opened(&client, id, "builtin").await;
        client.close(close(id), CALL).await.unwrap();
    }
    let request = v1::WatchRequest { position: position.into(), ..Default::default() };
    let mut second = watch(&managers[1], request);
    let (mut ready, mut closed) = (BTreeSet::new(), BTreeSet::new());
    while closed != meanwhile {
        let answer = next(&mut second).await;
        assert!(!answer.snapshot, "the position is new enough: {answer:?}");
        match answer.session {
            Some(it) if it.state() == SessionState::Ready => ready.insert(it.id),
            Some(it) if it.state() == SessionState::Closed => closed.insert(it.id),
            Some(_) | None => false,
        };
    }
    assert_eq!(ready, meanwhile, "each was seen READY before it was seen CLOSED");
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_of_one_id_shows_only_that_one_through_all_its_lives() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let client = cluster.client();
    let request = v1::WatchRequest { id: "mine".to_owned(), ..Default::default() };
    let mut watch = watch(&cluster.client_of(2), request);
    assert_eq!(snapshot(&mut watch).await, BTreeSet::new());
    let mut lives = Vec::new();
    for _ in 0..2 {
        opened(&client, "other", "builtin").await;
        lives.push(opened(&client, "mine", "builtin").await.life);
        client.close(close("mine"), CALL).await.unwrap();
    }
    let mut ended = Vec::new();
    while ended.len() < 2 {
        let Some(session) = next(&mut watch).await.session else { continue };
        assert_eq!(session.id, "mine");
        if session.state() == SessionState::Closed && !ended.contains(&session.life) {
            ended.push(session.life);
        }
    }
    assert_eq!(ended, lives);
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_goes_on_by_its_position_when_its_manager_is_killed() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let endpoints = cluster.endpoints();
    // This client stays with the first manager until that one breaks.
    let sticky = Client::connect(&endpoints).unwrap();
    let mut watch = watch(&sticky, v1::WatchRequest::default());
    snapshot(&mut watch).await;
    let client = cluster.client();
    let (before, after) = (names("before", 6), names("after", 12));
    for id in &before {
        opened(&client, id, "builtin").await;
    }
    until_seen(&mut watch, &before, SessionState::Ready).await;
    cluster.kill_manager(0).await;
    for id in &after {
        opened(&client, id, "builtin").await;
        client.close(close(id), CALL).await.unwrap();
    }
    until_seen(&mut watch, &after, SessionState::Closed).await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_position_from_before_a_restart_is_too_old_and_gets_a_snapshot_that_says_so() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let client = cluster.client();
    let (before, unseen) = (names("before", 9), names("unseen", 9));
    for id in &before {
        opened(&client, id, "builtin").await;
    }
    let mut first = watch(&client, v1::WatchRequest::default());
    snapshot(&mut first).await;
    let position = first.position().to_vec();
    drop(first);
    for id in &unseen {
        opened(&client, id, "builtin").await;
    }
    cluster.end().await;
    let cluster = Cluster::start(&folder, &[]).await;
    let request = v1::WatchRequest { position: position.into(), ..Default::default() };
    let mut second = watch(&cluster.client(), request);
    let mut seen = BTreeSet::new();
    loop {
        let answer = next(&mut second).await;
        if let Some(session) = answer.session {
            assert!(answer.snapshot, "these are no changes since the position: {session:?}");
            assert_ne!(session.state(), SessionState::Ready, "{session:?}");
            seen.insert(session.id);
        }
        if answer.caught_up {
            break;
        }
    }
    assert_eq!(seen, before.union(&unseen).cloned().collect());
    let new = names("new", 3);
    for id in &new {
        opened(&cluster.client(), id, "builtin").await;
    }
    until_seen(&mut second, &new, SessionState::Ready).await;
    cluster.end().await;
}

/// What is wrong with a position.
async fn problem_with(client: &Client, position: Vec<u8>) -> String {
    let request = v1::WatchRequest { position: position.into(), ..Default::default() };
    let mut broken = watch(client, request);
    let error = timeout(PATIENCE, broken.next()).await.unwrap().unwrap_err();
    assert_eq!((error.reason(), &*error.fields()[0].field), ("INVALID_ARGUMENT", "position"));
    error.fields()[0].problem.clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_position_that_is_none_and_one_of_another_cluster_are_refused() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let problem = problem_with(&cluster.client(), b"nonsense".to_vec()).await;
    assert!(problem.contains("garbled"), "{problem}");
    let mut earlier = watch(&cluster.client(), v1::WatchRequest::default());
    snapshot(&mut earlier).await;
    let position = earlier.position().to_vec();
    drop(earlier);
    cluster.end().await;
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let problem = problem_with(&cluster.client(), position).await;
    assert!(problem.contains("is of another cluster than dev-"), "{problem}");
    cluster.end().await;
}
