//! Keepers and node-agents that are killed while clients run.

use rota_client::{Client, v1};
use rota_tests::busy::Busy;
use rota_tests::processes::Process;
use rota_tests::programs::{NeverTwice, running};
use rota_tests::sessions::{CALL, becomes, close, listed, open, opened, read};
use rota_tests::{Cluster, PATIENCE, TestFolder, eventually, http_get};
use rustix::process::Signal;
use std::collections::BTreeMap;
use v1::{Outcome, SessionState};

/// Fails unless this session is still READY, in the same life at the same place, and answers.
async fn untouched(client: &Client, before: &v1::Session) {
    let now = read(client, &before.id).await.unwrap();
    assert_eq!(
        (now.state(), now.life, &now.address),
        (SessionState::Ready, before.life, &before.address)
    );
    assert_eq!(http_get(&now.address, "/").await.unwrap().code, 200, "{}", now.id);
}

/// Fails unless exactly these sessions are READY, by lists through every manager.
async fn only_these_are_ready(cluster: &Cluster, sessions: &[v1::Session]) {
    let places = |them: &[v1::Session]| -> BTreeMap<String, String> {
        them.iter().map(|it| (it.id.clone(), it.address.clone())).collect()
    };
    for client in cluster.clients() {
        eventually("exactly these sessions are READY", PATIENCE, async || {
            let ready = vec![SessionState::Ready.into()];
            let there = listed(&client, v1::Filter { states: ready, ..Default::default() }).await;
            let (there, wanted) = (places(&there), places(sessions));
            if there == wanted { Ok(()) } else { Err(format!("{there:?}, not {wanted:?}")) }
        })
        .await;
    }
}

/// The keeper of a session's program.
fn keeper_of(cluster: &Cluster, id: &str) -> Process {
    let programs = running(cluster.folder()).remove(id).expect("its program runs");
    let parents: Vec<u32> = programs.iter().map(|it| it.parent).collect();
    let keeper = cluster.keepers().into_iter().find(|it| parents.contains(&it.pid));
    keeper.expect("its program has a keeper")
}

async fn no_program_of(cluster: &Cluster, id: &str) {
    eventually("nothing of it runs", PATIENCE, async || match running(cluster.folder()).get(id) {
        None => Ok(()),
        Some(left) => Err(format!("{left:?}")),
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keepers_that_are_killed_under_load_end_their_own_session_and_no_other() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &["--places", "100000"]).await;
    let client = cluster.client();
    let mut sessions = Vec::new();
    for id in ["a", "b", "c", "d"] {
        sessions.push(opened(&client, id, "http").await);
    }
    let never_twice = NeverTwice::start(&cluster);
    let busy = [Busy::start(&cluster), Busy::with_losses(&cluster, "http", 2)];
    for clients in &busy {
        clients.more(4).await;
    }
    for before in &mut sessions[..2] {
        keeper_of(&cluster, &before.id).signal(Signal::KILL);
        let ended = eventually("the session ends", PATIENCE, async || {
            let session = read(&client, &before.id).await.map_err(|error| format!("{error:?}"))?;
            let ended = [SessionState::Failed, SessionState::Lost].contains(&session.state());
            if ended { Ok(session) } else { Err(format!("{session:?}")) }
        })
        .await;
        assert_eq!((ended.life, ended.address.as_str()), (before.life, ""));
        assert_eq!(running(cluster.folder()).get(&before.id), None, "it ended before it was told");
        let again = client.open(open(&before.id, "http"), CALL).await.unwrap();
        assert_eq!(again.outcome(), Outcome::Created);
        let again = again.session.unwrap();
        assert!(again.life > before.life);
        *before = again;
    }
    for clients in &busy {
        clients.more(4).await;
    }
    let [machines, programs] = busy;
    assert!(programs.stop().await.is_empty());
    let kept = machines.stop().await;
    never_twice.stop();
    for session in &sessions {
        untouched(&client, session).await;
    }
    for (id, address) in &kept {
        let session = read(&client, id).await.unwrap();
        assert_eq!((session.state(), &session.address), (SessionState::Ready, address), "{id}");
        sessions.push(session);
    }
    only_these_are_ready(&cluster, &sessions).await;
    cluster.end().await;
}

/// Sessions of class `http` on two nodes of twenty places: one on the first, three on the second,
/// where every further one goes, since the most loaded node that has room is taken. Room ends at
/// sixteen.
async fn on_two_nodes(client: &Client) -> (v1::Session, Vec<v1::Session>) {
    let stays = opened(client, "stays", "http").await;
    let mut fill = Vec::new();
    let mut lost: Vec<v1::Session> = Vec::new();
    for number in 0..40 {
        let class = if fill.len() < 15 { "counter" } else { "http" };
        let session = opened(client, &format!("s{number}"), class).await;
        if session.node_id == stays.node_id {
            fill.push(session);
        } else if session.class == "http" {
            lost.push(session);
        }
        if lost.len() == 3 {
            break;
        }
    }
    assert_eq!(lost.len(), 3, "the first node is full with {} sessions", fill.len() + 1);
    for session in fill {
        assert!(client.close(close(&session.id), CALL).await.unwrap().finished);
    }
    (stays, lost)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_is_killed_under_load_loses_its_sessions_only_and_no_call_fails() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &["--nodes", "2", "--places", "20"]).await;
    let client = cluster.client();
    let (stays, lost) = on_two_nodes(&client).await;
    let node = lost[0].node_id.clone();
    let elsewhere = opened(&client, "elsewhere", "counter").await;
    assert_eq!(elsewhere.node_id, node, "clients use the node that is to be killed");
    let never_twice = NeverTwice::start(&cluster);
    let busy = [Busy::with_losses(&cluster, "counter", 3), Busy::with_losses(&cluster, "http", 1)];
    for clients in &busy {
        clients.more(5).await;
    }
    let victim = cluster.document.nodes.iter().find(|it| it.id == node).unwrap();
    rota_tests::processes::send(victim.pid, Signal::KILL);
    for before in lost.iter().chain([&elsewhere]) {
        let after = becomes(&client, &before.id, SessionState::Lost).await;
        assert_eq!((after.life, after.reason()), (before.life, v1::Reason::NodeLost));
        assert_eq!(after.address, "");
        assert_eq!(running(cluster.folder()).get(&before.id), None, "LOST is told when it is gone");
        untouched(&client, &stays).await;
    }
    let mut sessions = vec![stays.clone()];
    for before in &lost {
        let answer = client.open(open(&before.id, "http"), CALL).await.unwrap();
        assert_eq!(answer.outcome(), Outcome::Created);
        let again = answer.session.unwrap();
        assert!(again.life > before.life);
        assert_ne!(again.node_id, node, "a lost node gets no sessions");
        sessions.push(again);
    }
    for clients in &busy {
        clients.more(20).await;
    }
    for clients in busy {
        assert!(clients.stop().await.is_empty());
    }
    never_twice.stop();
    for session in &sessions {
        untouched(&client, session).await;
    }
    only_these_are_ready(&cluster, &sessions).await;
    no_program_of(&cluster, &elsewhere.id).await;
    cluster.end().await;
}
