//! The config store's process dies, and comes back with its folder.

use rota_client::v1;
use rota_tests::busy::{Busy, all_are_there};
use rota_tests::sessions::{CALL, close, get, open, opened, read};
use rota_tests::{Cluster, Launched, PATIENCE, TestFolder, eventually};
use serde_json::Value;
use std::time::Duration;
use v1::{Outcome, SessionState};

#[tokio::test(flavor = "multi_thread")]
async fn clients_notice_neither_the_end_of_the_config_store_nor_its_return() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &["--places", "100000"]).await;
    let busy = Busy::start(&cluster);
    busy.more(100).await;
    let line = cluster.kill_store().await;
    busy.more(100).await;
    let again = Launched::again(&folder, "store-again", &line).await;
    busy.more(100).await;
    // It serves its purpose again: somebody takes over.
    cluster.kill_manager(1).await;
    busy.more(100).await;
    let kept = busy.stop().await;
    all_are_there(&kept, &[cluster.client_of(0), cluster.client_of(2)]).await;
    cluster.end_with(vec![again]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_config_store_nobody_takes_over_and_once_it_is_back_somebody_does() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let client = cluster.client();
    let ids: Vec<String> = (0..9).map(|it| format!("s{it}")).collect();
    let mut addresses = Vec::new();
    for id in &ids {
        addresses.push(opened(&client, id, "counter").await.address);
    }
    let line = cluster.kill_store().await;
    cluster.kill_manager(0).await;
    // Each partition has lost a copy and cannot say so: it refuses rather than to do without it.
    let last = cluster.client_of(2);
    let short = Duration::from_secs(2);
    let request = v1::OpenRequest { request_id: "r".to_owned(), ..open("new", "counter") };
    last.open(request.clone(), short).await.expect_err("a copy is missing");
    last.get(get(&ids[0]), short).await.expect_err("nobody can confirm that the owner owns it");
    let again = Launched::again(&folder, "store-again", &line).await;
    let answer = last.open(request.clone(), CALL).await.unwrap();
    assert_eq!(answer.outcome(), Outcome::Created);
    let repeated = cluster.client_of(1).open(request, CALL).await.unwrap();
    assert_eq!(repeated.session.unwrap().life, answer.session.unwrap().life);
    for (id, address) in ids.iter().zip(&addresses) {
        let session = read(&last, id).await.unwrap();
        assert_eq!((session.state(), &session.address), (SessionState::Ready, address), "{id}");
        assert!(last.close(close(id), CALL).await.unwrap().finished);
    }
    cluster.end_with(vec![again]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_are_told_which_managers_do_without_the_config_store() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let verified = cluster.ringctl(&["verify", "-o", "json"]).await.json();
    assert_eq!(verified["without_config_store"], Value::Array(vec![]), "{verified}");
    let line = cluster.kill_store().await;
    let away = eventually("all three say so", PATIENCE, async || {
        let verified = cluster.ringctl(&["verify", "-o", "json"]).await.json();
        let away = verified["without_config_store"].as_array().cloned().unwrap_or_default();
        if away.len() == 3 { Ok(verified) } else { Err(verified.to_string()) }
    })
    .await;
    // Nothing is violated by that, and everything was proved.
    assert_eq!((&away["ok"], &away["without_config_store"][0]), (&true.into(), &"m1".into()));
    let shown = cluster.ringctl(&["inspect", "-o", "json"]).await.json();
    let said = shown["managers"][0]["config_store_error"].as_str().unwrap_or_default();
    assert!(said.starts_with("for "), "{shown}");
    for command in [&["inspect"][..], &["verify"]] {
        let told = cluster.ringctl(command).await.expect_success().stdout;
        let text = "without the config store: m1, m2, m3. Complete partitions serve on";
        assert!(told.contains(text), "{told}");
    }
    let again = Launched::again(&folder, "store-again", &line).await;
    eventually("nobody says so any more", PATIENCE, async || {
        let verified = cluster.ringctl(&["verify", "-o", "json"]).await.json();
        let away = verified["without_config_store"].as_array().map(Vec::len);
        if away == Some(0) { Ok(()) } else { Err(verified.to_string()) }
    })
    .await;
    cluster.end_with(vec![again]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lone_manager_without_the_config_store_shows_only_what_may_be_stale() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &["--managers", "1"]).await;
    let client = cluster.client();
    opened(&client, "a", "counter").await;
    let line = cluster.kill_store().await;
    let short = Duration::from_secs(2);
    let error = client.get(get("a"), short).await.unwrap_err();
    assert_eq!(error.reason(), "CONFIG_STORE_AWAY", "{error:?}");
    let error = client.list(v1::ListRequest::default(), short).await.unwrap_err();
    assert_eq!(error.reason(), "CONFIG_STORE_AWAY", "{error:?}");
    let stale = v1::GetRequest { stale_ok: true, ..get("a") };
    assert!(client.get(stale, short).await.unwrap().stale);
    let all = ["session", "list", "--stale-ok", "-o", "json"];
    let all = cluster.ringctl(&all).await.json();
    assert_eq!((&all["stale"], &all["sessions"][0]["id"]), (&true.into(), &"a".into()));
    let again = Launched::again(&folder, "store-again", &line).await;
    eventually("confirmed reads work again", PATIENCE, async || {
        let seen = client.get(get("a"), short).await.map_err(|error| format!("{error:?}"))?;
        if seen.stale { Err(format!("{seen:?}")) } else { Ok(()) }
    })
    .await;
    cluster.end_with(vec![again]).await;
}
