//! Managers that leave a running ring, joins and leaves that are taken back, and what is refused.

use rota_client::Client;
use rota_model::Changed;
use rota_proto::v1;
use rota_tests::busy::{Busy, all_are_there};
use rota_tests::sessions::{opened, read};
use rota_tests::small::{Small, join, manager, refused, ring};
use rota_tests::{
    Cluster, Launched, PATIENCE, Ran, TestFolder, eventually, http_get, processes, ringctl,
};
use rustix::process::Signal;
use serde_json::Value;
use std::error::Error;
use tokio::time::timeout;
use tonic::transport::Endpoint;
use v1::sessions_client::SessionsClient;

/// Tells a number to leave, by way of these managers.
async fn leave(endpoints: &str, number: u64, more: &[&str]) -> Ran {
    let number = number.to_string();
    let line = ["leave", "--number", &number, "-o", "json"];
    ringctl(endpoints, &[&line, more].concat()).await
}

async fn cancel(endpoints: &str, more: &[&str]) -> Ran {
    ringctl(endpoints, &[&["cancel", "-o", "json"], more].concat()).await
}

/// Waits until that number has left and nothing is under way, and each partition has so many copies.
pub async fn has_left(endpoints: &str, number: u64, copies: usize) {
    eventually("the number has left", PATIENCE, async || {
        let ring = ring(endpoints).await?;
        let parts = ring["partitions"].as_array().cloned().unwrap_or_default();
        let in_sync = |part: &Value| {
            let all = part["copies"].as_array().cloned().unwrap_or_default();
            all.iter().filter(|it| it["in_sync"] == true).count()
        };
        let is_left = manager(&ring, number)["status"] == "LEFT" && ring["transition"].is_null();
        let whole = parts.iter().all(|it| in_sync(it) == copies && it["owner"] != number);
        if is_left && whole { Ok(()) } else { Err(ring.to_string()) }
    })
    .await;
}

/// A cluster of three with a fourth that has joined, and its number.
async fn four(folder: &TestFolder) -> (Cluster, Launched, u64) {
    let cluster = Cluster::start(folder, &["--places", "100000"]).await;
    let fourth = cluster.newcomer(folder, "m4").await;
    let contact = cluster.document.managers[0].grpc.clone();
    let joined = join(&fourth, "auto", &contact, &["--wait"]).await.json();
    let number = joined["number"].as_u64().unwrap();
    (cluster, fourth, number)
}

#[tokio::test(flavor = "multi_thread")]
async fn members_leave_under_load_and_no_call_fails() {
    let folder = TestFolder::new();
    let (cluster, fourth, number) = four(&folder).await;
    let busy = Busy::start(&cluster);
    busy.more(50).await;
    // One that `ringctl dev` started, with clients of its own, told by itself.
    let second = &cluster.document.managers[1];
    let line = ["leave", "--target", &second.grpc, "--wait", "-o", "json"];
    let left = ringctl("", &line).await.json();
    assert_eq!((&left["state"], &left["number"]), (&"left".into(), &second.number.into()));
    assert_eq!((&left["copies"], &left["copies_wanted"]), (&3.into(), &3.into()));
    eventually("its process ends", PATIENCE, async || {
        let process = processes::process(second.pid).filter(processes::Process::runs);
        process.map_or(Ok(()), |it| Err(format!("{it:?}")))
    })
    .await;
    busy.more(50).await;
    let contact = cluster.document.managers[0].grpc.clone();
    has_left(&contact, second.number.into(), 3).await;
    // And one after which too few are left.
    let left = leave(&contact, number, &["--wait"]).await.json();
    assert_eq!((&left["copies"], &left["copies_wanted"]), (&2.into(), &3.into()));
    assert_eq!(fourth.ended().await, Some(0));
    busy.more(50).await;
    has_left(&contact, number, 2).await;
    let kept = busy.stop().await;
    all_are_there(&kept, &[cluster.client_of(0), cluster.client_of(2)]).await;
    refused(leave(&contact, number, &[]).await, &["has left this ring already"]);
    cluster.end_with(vec![]).await;
}

/// Asks one manager for a session, again and again, until it takes no more. Gives what it left open.
async fn asks_until_it_ends(grpc: String) -> Vec<String> {
    let channel = Endpoint::from_shared(format!("http://{grpc}")).unwrap().connect().await.unwrap();
    let mut sessions = SessionsClient::new(channel);
    let mut open = Vec::new();
    loop {
        let mut request =
            tonic::Request::new(v1::GetRequest { id: "s".to_owned(), ..Default::default() });
        request.set_timeout(PATIENCE);
        let Err(status) = sessions.get(request).await else { continue };
        if status.source().is_some() {
            // Not an answer: nobody is there any more.
            return open;
        }
        let refusal = rota_proto::refusal::refusal(&status);
        if refusal.changed == Changed::Unknown {
            open.push(refusal.message);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_leaves_answers_the_calls_that_are_under_way_before_its_process_ends() {
    let folder = TestFolder::new();
    let (cluster, fourth, number) = four(&folder).await;
    opened(&cluster.client(), "s", "counter").await;
    let callers = (0..32).map(|_| tokio::spawn(asks_until_it_ends(fourth.told("grpc").to_owned())));
    let callers: Vec<_> = callers.collect();
    let contact = cluster.document.managers[0].grpc.clone();
    leave(&contact, number, &["--wait"]).await.json();
    for caller in callers {
        let open = timeout(PATIENCE, caller).await.expect("it ends").unwrap();
        assert_eq!(open, Vec::<String>::new());
    }
    assert_eq!(fourth.ended().await, Some(0));
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_has_left_waits_outside_when_it_is_started_again_and_may_return() {
    let folder = TestFolder::new();
    let (cluster, fourth, number) = four(&folder).await;
    let busy = Busy::start(&cluster);
    busy.more(50).await;
    let contact = cluster.document.managers[0].grpc.clone();
    let line = processes::process(fourth.pid()).unwrap().line;
    leave(&contact, number, &[]).await.json();
    assert_eq!(fourth.ended().await, Some(0));
    let again = Launched::again(&folder, "m4", &line).await;
    let health = http_get(again.told("http"), "/healthz").await.unwrap();
    assert!(health.code == 503 && health.body.contains("\"outside\":true"), "{health:?}");
    let joined = join(&again, "auto", &contact, &["--wait"]).await.json();
    // More than 2 when somebody took it for gone meanwhile.
    assert!(joined["number"] == number && joined["incarnation"].as_u64() >= Some(2), "{joined}");
    busy.more(50).await;
    let kept = busy.stop().await;
    let mut clients = cluster.clients();
    clients.push(Client::connect(again.told("grpc")).unwrap());
    all_are_there(&kept, &clients).await;
    cluster.end_with(vec![again]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leave_ends_although_the_leaver_is_killed_in_the_middle() {
    let folder = TestFolder::new();
    let (cluster, fourth, number) = four(&folder).await;
    let busy = Busy::start(&cluster);
    busy.more(50).await;
    let contact = cluster.document.managers[0].grpc.clone();
    // It cannot hand on anything.
    processes::send(fourth.pid(), Signal::STOP);
    leave(&contact, number, &[]).await.json();
    fourth.kill().await;
    has_left(&contact, number, 3).await;
    busy.more(50).await;
    let kept = busy.stop().await;
    all_are_there(&kept, &cluster.clients()).await;
    cluster.end_with(vec![]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_leave_or_be_cancelled_is_told_why() {
    let small = Small::start().await;
    let contact = small.first.told("grpc").to_owned();
    refused(cancel(&contact, &[]).await, &["nothing is under way"]);
    refused(leave(&contact, 101, &[]).await, &["101 is not reserved", "100"]);
    refused(leave(&contact, 100, &[]).await, &["100 is the last manager"]);
    let second = small.waiting("b", &[]).await;
    join(&second, "500", &contact, &["--wait"]).await.json();
    let outside = small.waiting("c", &[]).await;
    let ran = ringctl(outside.told("grpc"), &["leave", "--number", "100", "-o", "json"]).await;
    refused(ran, &["waits outside of the ring"]);
    // Nobody can take what the first one has: it goes on leaving.
    processes::send(second.pid(), Signal::STOP);
    let first = leave(&contact, 100, &[]).await.json();
    assert_eq!((&first["state"], &first["copies"]), (&"leaving".into(), &1.into()));
    let named = ["the leave of number 100", "one goes at a time"];
    refused(leave(&contact, 500, &[]).await, &named);
    refused(small.join(&outside, "700").await, &named);
    refused(cancel(&contact, &["--number", "500"]).await, &["the leave of number 100"]);
    let shown = ring(&contact).await.unwrap();
    assert_eq!(shown["transition"]["kind"], "leave", "{shown}");
    assert_eq!(manager(&shown, 100)["status"], "LEAVING");
    let cancelled = cancel(&contact, &["--wait"]).await.json();
    assert_eq!((&cancelled["cancelled"], &cancelled["number"]), (&"leave".into(), &100.into()));
    assert_eq!(cancelled["state"], "finished");
    refused(cancel(&contact, &[]).await, &["nothing is under way"]);
    processes::send(second.pid(), Signal::CONT);
    small.end(vec![outside, second]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_join_that_is_cancelled_is_undone_and_its_process_ends() {
    let small = Small::start().await;
    let contact = small.first.told("grpc").to_owned();
    let second = small.waiting("b", &[]).await;
    join(&second, "500", &contact, &[]).await.json();
    processes::send(second.pid(), Signal::STOP);
    let under_way = ring(&contact).await.unwrap()["transition"]["kind"] == "join";
    let ran = cancel(&contact, &["--number", "500"]).await;
    processes::send(second.pid(), Signal::CONT);
    if !under_way {
        // It was quicker than the test.
        refused(ran, &["nothing is under way"]);
        return small.end(vec![second]).await;
    }
    let cancelled = ran.json();
    assert_eq!((&cancelled["cancelled"], &cancelled["number"]), (&"join".into(), &500.into()));
    assert_eq!(second.ended().await, Some(0));
    has_left(&contact, 500, 1).await;
    let third = small.waiting("c", &[]).await;
    join(&third, "700", &contact, &["--wait"]).await.json();
    small.end(vec![third]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_keeps_its_lease_when_all_managers_that_it_knows_are_replaced_within_moments() {
    let folder = TestFolder::new();
    let only = ["--managers", "1", "--replicas", "0", "--nodes", "1"];
    let cluster = Cluster::start(&folder, &only).await;
    opened(&cluster.client(), "stays", "builtin").await;
    let lease = cluster.document.data.join("nodes").join("n1").join("lease");
    let first = &cluster.document.managers[0];
    let second = cluster.newcomer(&folder, "m2").await;
    join(&second, "auto", &first.grpc, &["--wait"]).await.json();
    leave(second.told("grpc"), first.number.into(), &["--wait"]).await.json();
    eventually("its process ends", PATIENCE, async || {
        let process = processes::process(first.pid).filter(processes::Process::runs);
        process.map_or(Ok(()), |it| Err(format!("{it:?}")))
    })
    .await;
    // Nobody but the newcomer can renew it from now on.
    let before = std::fs::read(&lease).expect("the node has a lease");
    eventually("the lease is renewed", PATIENCE, async || match std::fs::read(&lease) {
        Ok(now) if now != before => Ok(()),
        same => Err(format!("{same:?}")),
    })
    .await;
    let client = Client::connect(second.told("grpc")).unwrap();
    let session = read(&client, "stays").await.expect("it is there");
    assert_eq!(session.state(), v1::SessionState::Ready);
    cluster.end_with(vec![second]).await;
}
