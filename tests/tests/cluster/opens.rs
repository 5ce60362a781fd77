//! Opening, reading and closing through any manager.

use rota_client::v1;
use rota_model::RefusalKind;
use rota_tests::sessions::{CALL, becomes, close, get, listed, open, opened, read};
use rota_tests::{Cluster, PATIENCE, TestFolder, eventually};
use v1::{Outcome, SessionState};

#[tokio::test(flavor = "multi_thread")]
async fn a_session_opened_through_one_manager_is_read_and_closed_through_others() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let managers = cluster.clients();
    // Enough ids that each manager owns some of them and forwards others.
    let ids: Vec<String> = (0..12).map(|it| format!("session {it}")).collect();
    let mut owners = Vec::new();
    for (turn, id) in ids.iter().enumerate() {
        let at = |more: usize| &managers[(turn + more) % managers.len()];
        let answer = at(0).open(open(id, "counter"), CALL).await.unwrap();
        assert_eq!(answer.outcome(), Outcome::Created);
        let session = answer.session.unwrap();
        assert_eq!(session.state(), SessionState::Ready);
        assert_eq!(session.node_id, "n1");
        assert_eq!(session.node_address, cluster.document.nodes[0].address);
        assert!(!session.address.is_empty() && session.life > 0 && session.version > 0);
        owners.push(session.owner);
        let seen = read(at(1), id).await.unwrap();
        assert_eq!((seen.address, seen.life), (session.address, session.life));
        let closed = at(2).close(close(id), CALL).await.unwrap();
        assert!(closed.finished);
        for manager in &managers {
            let after = read(manager, id).await.unwrap();
            assert_eq!(after.state(), SessionState::Closed);
            assert_eq!(after.reason(), v1::Reason::ClosedByClient);
            assert_eq!(after.address, "", "nothing runs there any more");
        }
    }
    owners.sort_unstable();
    owners.dedup();
    assert_eq!(owners.len(), 3, "twelve ids have three owners");
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_opens_of_one_id_through_several_managers_give_one_session() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &["--nodes", "2"]).await;
    let managers = cluster.clients();
    for round in 0..10 {
        let id = format!("wanted {round}");
        let mut opening = Vec::new();
        for turn in 0..24 {
            let (client, request) = (managers[turn % 3].clone(), open(&id, "counter"));
            opening.push(tokio::spawn(async move { client.open(request, CALL).await }));
        }
        let mut answers = Vec::new();
        for it in opening {
            answers.push(it.await.unwrap().unwrap());
        }
        let created = answers.iter().filter(|it| it.outcome() == Outcome::Created).count();
        assert_eq!(created, 1, "{answers:?}");
        let mut places: Vec<(String, u64)> = Vec::new();
        for answer in answers {
            let session = answer.session.unwrap();
            places.push((session.address, session.life));
        }
        places.sort();
        places.dedup();
        assert_eq!(places.len(), 1, "one session has one address and one life");
    }
    // A load is heard of with the node's next renewal.
    eventually("no node runs a session that nobody knows", PATIENCE, async || {
        let ring = cluster.ringctl(&["inspect", "-o", "json"]).await.json();
        let nodes = ring["nodes"].as_array().cloned().unwrap_or_default();
        let used: u64 = nodes.iter().filter_map(|it| it["used"].as_u64()).sum();
        if used == 10 { Ok(()) } else { Err(format!("{used} places are used: {ring}")) }
    })
    .await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_request_id_gets_the_same_answer_also_from_another_manager() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let managers = cluster.clients();
    let request = |id: &str, name: &str| v1::OpenRequest {
        request_id: name.to_owned(),
        ..open(id, "counter")
    };
    let first = managers[0].open(request("a", "r1"), CALL).await.unwrap();
    assert_eq!(first.outcome(), Outcome::Created);
    let first = first.session.unwrap();
    for manager in &managers {
        let again = manager.open(request("a", "r1"), CALL).await.unwrap();
        assert_eq!(again.outcome(), Outcome::Created, "it is the answer to the same request");
        let again = again.session.unwrap();
        assert_eq!((again.life, &again.address), (first.life, &first.address));
        let other = manager.open(request("a", "r2"), CALL).await.unwrap();
        assert_eq!(other.outcome(), Outcome::Existed);
    }
    let closing = v1::CloseRequest { request_id: "r3".to_owned(), ..close("a") };
    assert!(managers[1].close(closing.clone(), CALL).await.unwrap().finished);
    let again = managers[2].open(request("a", "r1"), CALL).await.unwrap();
    assert_eq!(again.outcome(), Outcome::Created);
    assert_eq!(again.session.unwrap().life, first.life, "a repeated open starts no new life");
    let other = v1::OpenRequest { class: "http".to_owned(), ..request("a", "r4") };
    let fresh = managers[0].open(other, CALL).await.unwrap().session.unwrap();
    assert!(fresh.life > first.life && fresh.class == "http");
    let again = managers[2].open(request("a", "r1"), CALL).await.unwrap().session.unwrap();
    assert_eq!((again.life, again.class.as_str()), (first.life, "counter"));
    let again = managers[0].close(closing, CALL).await.unwrap();
    assert!(again.finished, "the repeated close was finished before");
    assert_eq!(again.session.unwrap().class, "counter");
    let seen = read(&managers[1], "a").await.unwrap();
    assert_eq!(seen.state(), SessionState::Ready, "a repeated close ends no later life");
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_after_the_end_starts_a_new_life_and_a_close_may_name_the_life_it_means() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let client = cluster.client();
    let first = opened(&client, "a", "counter").await;
    assert!(client.close(close("a"), CALL).await.unwrap().finished);
    let answer = client.open(open("a", "counter"), CALL).await.unwrap();
    assert_eq!(answer.outcome(), Outcome::Created);
    let second = answer.session.unwrap();
    assert!(second.life > first.life && second.version > first.version);
    let of_life = |life| v1::CloseRequest { life, ..close("a") };
    let error = client.close(of_life(first.life), CALL).await.unwrap_err();
    assert_eq!(error.reason(), "LIFE_MISMATCH", "{error:?}");
    assert_eq!(read(&client, "a").await.unwrap().state(), SessionState::Ready);
    assert!(client.close(of_life(second.life), CALL).await.unwrap().finished);
    assert!(client.close(of_life(second.life), CALL).await.unwrap().finished, "closed already");
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn namespaces_keep_equal_ids_apart() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let client = cluster.client();
    let in_space = |namespace: &str| v1::OpenRequest {
        namespace: namespace.to_owned(),
        ..open("a", "counter")
    };
    let plain = opened(&client, "a", "counter").await;
    let named = client.open(in_space("default"), CALL).await.unwrap();
    assert_eq!(named.outcome(), Outcome::Existed, "without a name it is the space `default`");
    let other = client.open(in_space("other"), CALL).await.unwrap();
    assert_eq!(other.outcome(), Outcome::Created);
    assert_ne!(other.session.unwrap().life, plain.life);
    let closing = v1::CloseRequest { namespace: "other".to_owned(), ..close("a") };
    assert!(client.close(closing, CALL).await.unwrap().finished);
    assert_eq!(read(&client, "a").await.unwrap().state(), SessionState::Ready);
    let filter = v1::Filter { namespace: "other".to_owned(), ..Default::default() };
    assert_eq!(listed(&client, filter).await.len(), 1);
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_get_of_nothing_says_not_found_and_a_stale_get_says_that_it_is_stale() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    for manager in cluster.clients() {
        let error = read(&manager, "nothing").await.unwrap_err();
        assert_eq!(error.reason(), "NOT_FOUND", "{error:?}");
        let error = manager.close(close("nothing"), CALL).await.unwrap_err();
        assert_eq!(error.reason(), "NOT_FOUND", "{error:?}");
    }
    let client = cluster.client();
    opened(&client, "a", "counter").await;
    let confirmed = client.get(get("a"), CALL).await.unwrap();
    assert!(!confirmed.stale);
    let request = v1::GetRequest { stale_ok: true, ..get("a") };
    let answer = client.get(request, CALL).await.unwrap();
    assert!(answer.stale);
    assert_eq!(answer.session.unwrap().id, "a");
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ringctl_opens_reads_lists_and_closes_through_any_manager() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let line = ["session", "open", "a b", "--class", "counter", "--attr", "k=v", "-o", "json"];
    let created = cluster.ringctl_at(0, &line).await.json();
    let fields = ["id", "outcome", "state", "address", "node", "owner", "epoch", "version"];
    for field in fields {
        assert!(!created[field].is_null(), "{field} is missing in {created}");
    }
    assert_eq!((&created["id"], &created["outcome"]), (&"a b".into(), &"CREATED".into()));
    assert_eq!(created["node"]["id"], "n1");
    let existed = cluster.ringctl_at(1, &line).await.json();
    assert_eq!(existed["outcome"], "EXISTED");
    assert_eq!(existed["address"], created["address"]);
    let got = cluster.ringctl_at(2, &["session", "get", "a b", "-o", "json"]).await.json();
    assert_eq!(got["attributes"]["k"], "v");
    assert_eq!((&got["class"], &got["stale"]), (&"counter".into(), &false.into()));
    let table = cluster.ringctl(&["session", "list"]).await.expect_success().stdout;
    assert!(table.contains("a b") && table.contains("READY"), "{table}");
    let closed = cluster.ringctl_at(1, &["session", "close", "a b", "-o", "json"]).await.json();
    assert_eq!((&closed["finished"], &closed["state"]), (&true.into(), &"CLOSED".into()));
    let client = cluster.client();
    assert_eq!(becomes(&client, "a b", SessionState::Closed).await.owner, created["owner"]);
    let absent = cluster.ringctl(&["session", "get", "nothing", "-o", "json"]).await.error();
    assert_eq!(
        (&absent["reason"], &absent["retry"]),
        (&"NOT_FOUND".into(), &"when_changed".into())
    );
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_kept_alive_through_any_manager_as_long_as_it_lives() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let managers = cluster.clients();
    let used = |life| v1::KeepAliveRequest { id: "room".to_owned(), life, ..Default::default() };
    let refusal = managers[0].keep_alive(used(0), CALL).await.unwrap_err();
    assert_eq!(refusal.refusal().unwrap().kind, RefusalKind::NotFound);
    let session = managers[0].open(open("room", "counter"), CALL).await.unwrap().session.unwrap();
    let first = managers[1].keep_alive(used(0), CALL).await.unwrap();
    assert_eq!((first.session.unwrap().life, first.idle_ms), (session.life, None));
    let second = managers[2].keep_alive(used(session.life), CALL).await.unwrap();
    assert!(second.idle_ms.is_some(), "the owner heard of the first one");
    let refusal = managers[2].keep_alive(used(session.life + 1), CALL).await.unwrap_err();
    assert_eq!(refusal.refusal().unwrap().kind, RefusalKind::LifeMismatch);
    let told = cluster.ringctl(&["session", "keepalive", "room", "-o", "json"]).await.json();
    assert!(told["unused_ms"].is_u64() && told["state"] == "READY", "{told}");
    managers[1].close(close("room"), CALL).await.unwrap();
    let refusal = managers[0].keep_alive(used(0), CALL).await.unwrap_err();
    let refusal = refusal.refusal().unwrap();
    assert_eq!(refusal.kind, RefusalKind::NotFound, "{refusal:?}");
    assert!(refusal.message.contains("CLOSED"), "{refusal:?}");
    cluster.end().await;
}
