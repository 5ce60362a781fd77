//! Managers that come into a running ring, and what is refused to them.

use rota_client::{Client, v1};
use rota_model::{Changed, RefusalKind, Retry};
use rota_tests::busy::{Busy, all_are_there};
use rota_tests::sessions::opened;
use rota_tests::small::{Small, join, manager, refused, ring};
use rota_tests::{
    Cluster, Launched, PATIENCE, TestFolder, eventually, http_get, processes, ringctl,
};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeSet;
use tonic::transport::Endpoint;
use v1::documents_client::DocumentsClient;
use v1::nodes_client::NodesClient;
use v1::sessions_client::SessionsClient;

/// Waits until that number is ACTIVE, nobody joins, and each of four partitions is copied by three
/// managers that are in sync, and held by nobody else. Gives the ring.
pub async fn settles(endpoints: &str, number: u64) -> Value {
    eventually("the ring settles", PATIENCE, async || {
        let ring = ring(endpoints).await?;
        let parts = ring["partitions"].as_array().cloned().unwrap_or_default();
        let is_whole = |part: &Value| {
            let copies = part["copies"].as_array().cloned().unwrap_or_default();
            copies.len() == 3 && copies.iter().all(|it| it["in_sync"] == true)
        };
        let is_active = manager(&ring, number)["status"] == "ACTIVE";
        let settled = is_active && ring["transition"].is_null();
        let settled = settled && parts.len() == 4 && parts.iter().all(is_whole);
        if settled { Ok(ring) } else { Err(ring.to_string()) }
    })
    .await
}

/// Ends the load: what it opened is there, through every manager. Gives a client of each, the
/// newcomer's last.
async fn everything_is_kept(busy: Busy, cluster: &Cluster, newcomer: &Launched) -> Vec<Client> {
    let kept = busy.stop().await;
    let mut clients = cluster.clients();
    clients.push(Client::connect(newcomer.told("grpc")).unwrap());
    all_are_there(&kept, &clients).await;
    clients
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newcomer_joins_under_load_and_no_call_fails() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &["--places", "100000"]).await;
    let busy = Busy::start(&cluster);
    busy.more(100).await;
    let newcomer = cluster.newcomer(&folder, "m4").await;
    let health = http_get(newcomer.told("http"), "/healthz").await.unwrap();
    for (path, code) in [("/v1", 503), ("/v1/pools/default", 503), ("/route?session=a", 502)] {
        let refused = http_get(newcomer.told("http"), path).await.unwrap();
        let reason = refused.json()["error"]["details"][0]["reason"].clone();
        assert_eq!((refused.code, reason), (code, "NOT_SERVING".into()), "{path}");
    }
    assert_eq!(health.code, 503, "{health:?}");
    assert!(health.body.contains("\"outside\":true"), "{health:?}");
    let contact = &cluster.document.managers[1].grpc;
    let joined = join(&newcomer, "auto", contact, &["--wait"]).await.json();
    assert_eq!((&joined["state"], &joined["incarnation"]), (&"finished".into(), &1.into()));
    let number = joined["number"].as_u64().unwrap();
    let taken: BTreeSet<u64> =
        cluster.document.managers.iter().map(|it| it.number.into()).collect();
    assert!(!taken.contains(&number), "{number}");
    assert_eq!(joined["copies"].as_array().unwrap().len(), 3, "r + 1 partitions: {joined}");
    busy.more(100).await;
    settles(&cluster.endpoints(), number).await;
    assert_eq!(http_get(newcomer.told("http"), "/healthz").await.unwrap().code, 200);
    let clients = everything_is_kept(busy, &cluster, &newcomer).await;
    opened(&clients[3], "through the newcomer", "counter").await;
    cluster.end_with(vec![newcomer]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newcomer_that_is_killed_while_it_joins_is_taken_out_and_comes_back_by_itself() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &["--places", "100000"]).await;
    let busy = Busy::start(&cluster);
    busy.more(50).await;
    let newcomer = cluster.newcomer(&folder, "m4").await;
    let line = processes::process(newcomer.pid()).unwrap().line;
    let contact = &cluster.document.managers[0].grpc;
    let number = join(&newcomer, "auto", contact, &[]).await.json()["number"].as_u64().unwrap();
    newcomer.kill().await;
    eventually("it is out and nobody joins", PATIENCE, async || {
        let ring = ring(&cluster.endpoints()).await?;
        let is_down = manager(&ring, number)["status"] == "DOWN";
        if is_down && ring["transition"].is_null() { Ok(()) } else { Err(ring.to_string()) }
    })
    .await;
    busy.more(50).await;
    let again = Launched::again(&folder, "m4", &line).await;
    let ring = settles(&cluster.endpoints(), number).await;
    // No peer that found the old port closed took that for the end of the new run.
    assert_eq!(manager(&ring, number)["incarnation"], 2, "{ring}");
    busy.more(50).await;
    everything_is_kept(busy, &cluster, &again).await;
    cluster.end_with(vec![again]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_join_ends_well_although_the_owner_of_the_arc_is_killed() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &["--places", "100000"]).await;
    let busy = Busy::start(&cluster);
    busy.more(50).await;
    let newcomer = cluster.newcomer(&folder, "m4").await;
    let contact = &cluster.document.managers[0].grpc;
    // Just below the last number: its arc is cut out of the last one's.
    let last = cluster.document.managers[2].number;
    let number = (last - 100).to_string();
    let joined = join(&newcomer, &number, contact, &[]).await.json();
    let again = cluster.restart_manager(&folder, 2).await;
    assert_eq!(joined["state"], "joined");
    settles(&cluster.endpoints(), (last - 100).into()).await;
    busy.more(50).await;
    everything_is_kept(busy, &cluster, &newcomer).await;
    cluster.end_with(vec![newcomer, again]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_join_ends_well_although_ringctl_and_then_the_contact_are_killed() {
    let small = Small::for_managers(20).await;
    let contact = small.waiting("b", &[]).await;
    small.join(&contact, "500").await.json();
    let first = small.first.told("grpc");
    nobody_joins(first).await;
    let newcomer = small.waiting("c", &[]).await;
    // The owner of its arc stands still, so the join stays under way.
    processes::send(small.first.pid(), Signal::STOP);
    let begun = eventually("the View has the number", PATIENCE, async || {
        let ring = ring(contact.told("grpc")).await?;
        if manager(&ring, 50).is_null() { Err(ring.to_string()) } else { Ok(()) }
    });
    tokio::select! {
        // A command that is not waited for any more is killed.
        () = begun => {}
        ran = join(&newcomer, "50", contact.told("grpc"), &["--wait"]) => {
            panic!("nobody cut its arc out: {ran:?}")
        }
    }
    contact.kill().await;
    processes::send(small.first.pid(), Signal::CONT);
    let ring = eventually("it owns its arc, and nobody joins", PATIENCE, async || {
        let ring = ring(first).await?;
        let parts = ring["partitions"].as_array().cloned().unwrap_or_default();
        let owns = parts.iter().any(|it| it["number"] == 50 && it["owner"] == 50);
        if owns && ring["transition"].is_null() { Ok(ring) } else { Err(ring.to_string()) }
    })
    .await;
    assert_eq!(manager(&ring, 50)["status"], "ACTIVE", "{ring}");
    small.end(vec![newcomer]).await;
}

async fn nobody_joins(contact: &str) {
    eventually("nobody joins", PATIENCE, async || {
        let ring = ring(contact).await?;
        if ring["transition"].is_null() { Ok(()) } else { Err(ring.to_string()) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_that_join_at_once_one_is_refused_with_the_name_of_the_other_and_goes_on_waiting() {
    // Numbers that they were told, and such that they choose: in the widest arc, which is the first's too.
    for told in [["0", "1"], ["auto", "auto"]] {
        for _ in 0..2 {
            two_join_at_once(told).await;
        }
    }
}

async fn two_join_at_once(told: [&str; 2]) {
    let small = Small::for_managers(20).await;
    let member = small.waiting("b", &[]).await;
    small.join(&member, "500").await.json();
    nobody_joins(member.told("grpc")).await;
    let contact = member.told("grpc").to_owned();
    // The owner of their arcs stands still: who is first, stays under way.
    processes::send(small.first.pid(), Signal::STOP);
    let mut pair = [small.waiting("c", &[]).await, small.waiting("d", &[]).await];
    let (one, two) = tokio::join!(
        join(&pair[0], told[0], &contact, &[]),
        join(&pair[1], told[1], &contact, &[])
    );
    let is_in = [&one, &two].map(|it| it.code == 0);
    assert!(is_in[0] != is_in[1], "{one:?} {two:?}");
    let (first, second) = if is_in[0] { (one, two) } else { (two, one) };
    let number = first.json()["number"].as_u64().unwrap();
    refused(second, &[&format!("the join of number {number}"), "one goes at a time"]);
    let (loser, name) = if is_in[0] { (1, "d") } else { (0, "c") };
    let folder = small.folder.path().join(name);
    assert!(!folder.join("OWNER").exists(), "no folder is left begun: {name}");
    processes::send(small.first.pid(), Signal::CONT);
    nobody_joins(&contact).await;
    let pid = pair[loser].pid();
    let joined = join(&pair[loser], told[loser], &contact, &["--wait"]).await.json();
    assert_eq!(joined["state"], "finished");
    assert_eq!((pair[loser].runs(), pair[loser].pid()), (true, pid), "the same process");
    let [one, two] = pair;
    small.end(vec![member, one, two]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_join_is_told_why_and_goes_on_waiting() {
    let small = Small::start().await;
    let contact = small.first.told("grpc");
    let other_shape = small.waiting("b", &["--slots", "64", "--replicas", "1"]).await;
    let said = ["--slots is 64", "start this manager with --slots 1024", "--replicas is 1"];
    refused(small.join(&other_shape, "7").await, &said);
    let other_cluster = small.waiting("c", &["--cluster", "other"]).await;
    refused(small.join(&other_cluster, "7").await, &["other"]);
    let same_name = small.waiting("a2", &["--id", "a"]).await;
    refused(small.join(&same_name, "7").await, &["has number 100 in this ring already"]);
    let good = small.waiting("d", &[]).await;
    refused(small.join(&good, "100").await, &["number", "belongs to manager", "a"]);
    refused(small.join(&good, "1024").await, &["outside [0, 1024)"]);
    refused(join(&good, "7", "127.0.0.1:1", &[]).await, &["contact", "127.0.0.1:1"]);
    // What answers there is no manager's gRPC.
    for other in [small.store.told("address"), small.first.told("http")] {
        refused(join(&good, "7", other, &[]).await, &["contact", other, "the column GRPC"]);
    }
    // A manager of a ring of the same name, which another config store holds.
    let elsewhere = Small::with(&["--id", "z", "--ring", "100=z", "--managers-max", "3"]).await;
    let stranger = elsewhere.first.told("grpc");
    let said = ["contact", stranger, "the config store of this manager does not know"];
    refused(join(&good, "7", stranger, &[]).await, &said);
    elsewhere.end(vec![]).await;
    let of_waiting = other_shape.told("grpc");
    refused(join(&good, "7", of_waiting, &[]).await, &["contact", "waits outside"]);
    let inspected = ringctl(good.told("grpc"), &["inspect", "-o", "json"]).await;
    refused(inspected, &["waits outside of the ring"]);
    assert!(!small.folder.path().join("d").exists(), "nothing was begun");
    let joined = join(&good, "7", contact, &["--wait"]).await.json();
    assert_eq!((&joined["number"], &joined["state"]), (&7.into(), &"finished".into()));
    refused(small.join(&good, "8").await, &["number 7 of the ring already"]);
    refused(small.join(&small.first, "8").await, &["number 100 of the ring already"]);
    small.end(vec![other_shape, other_cluster, same_name, good]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_outside_refuses_every_service_of_the_ring_as_one_that_does_not_serve_yet() {
    let small = Small::start().await;
    let waiting = small.waiting("b", &[]).await;
    let there = Endpoint::from_shared(format!("http://{}", waiting.told("grpc"))).unwrap();
    let there = there.connect().await.unwrap();
    let mut sessions = SessionsClient::new(there.clone());
    let mut nodes = NodesClient::new(there.clone());
    let mut documents = DocumentsClient::new(there);
    let told = [
        sessions.get(v1::GetRequest::default()).await.unwrap_err(),
        sessions.watch(v1::WatchRequest::default()).await.unwrap_err(),
        nodes.renew(v1::RenewRequest::default()).await.unwrap_err(),
        documents.list_documents(v1::ListDocumentsRequest::default()).await.unwrap_err(),
    ];
    for status in told {
        let refusal = rota_proto::refusal::refusal(&status);
        assert_eq!(refusal.kind, RefusalKind::NotServing, "{status:?}");
        assert_eq!((refusal.retry, refusal.changed), (Retry::AfterMs(100), Changed::No));
        assert!(refusal.message.contains("waits outside of the ring"), "{status:?}");
    }
    // A client that knows a manager of the ring, too, goes there.
    let both = format!("{},{}", waiting.told("grpc"), small.first.told("grpc"));
    let listed = ringctl(&both, &["session", "list", "-o", "json"]).await.json();
    assert_eq!(listed["sessions"], Value::Array(vec![]), "{listed}");
    small.end(vec![waiting]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_number_of_a_manager_that_is_down_is_refused_with_who_may_take_it() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let contact = cluster.document.managers[0].grpc.clone();
    let newcomer = cluster.newcomer(&folder, "m4").await;
    let number = cluster.document.managers[1].number;
    let ran = join(&newcomer, &number.to_string(), &contact, &[]).await;
    let error = ran.error().to_string();
    assert!(error.contains("belongs to manager") && !error.contains("DOWN"), "{error}");
    cluster.kill_manager(1).await;
    eventually("it is DOWN", PATIENCE, async || {
        let status = manager(&ring(&contact).await?, number.into())["status"].clone();
        if status == "DOWN" { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
    let ran = join(&newcomer, &number.to_string(), &contact, &[]).await;
    refused(ran, &["belongs to manager", "is DOWN", "--id m2 and an empty data folder", "auto"]);
    cluster.end_with(vec![newcomer]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_joins_at_a_time_and_no_more_than_the_ring_has_room_for() {
    let small = Small::for_managers(4).await;
    let member = small.waiting("m", &[]).await;
    small.join(&member, "150").await.json();
    let contact = member.told("grpc");
    nobody_joins(contact).await;
    let [one, two, three] = [
        small.waiting("b", &[]).await,
        small.waiting("c", &[]).await,
        small.waiting("d", &[]).await,
    ];
    // The owner of their arcs: who is first, stays under way.
    processes::send(small.first.pid(), Signal::STOP);
    join(&one, "500", contact, &[]).await.json();
    let said = ["the join of number 500", "one goes at a time"];
    refused(join(&two, "700", contact, &[]).await, &said);
    processes::send(small.first.pid(), Signal::CONT);
    nobody_joins(contact).await;
    let joined = join(&two, "auto", contact, &["--wait"]).await.json();
    assert_eq!(joined["number"], 812, "half of the arc from 501 to 100 across slot 0");
    refused(small.join(&three, "auto").await, &["4 managers, which is its limit"]);
    small.end(vec![three, two, one, member]).await;
}
