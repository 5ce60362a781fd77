//! `ringctl inspect`, completion, and usage mistakes.

use rota_tests::sessions::opened;
use rota_tests::{Cluster, PATIENCE, TestFolder, eventually, ringctl};

#[tokio::test(flavor = "multi_thread")]
async fn inspect_shows_managers_partitions_and_nodes_and_who_is_gone() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &["--nodes", "2"]).await;
    for number in 0..9 {
        opened(&cluster.client(), &format!("s{number}"), "builtin").await;
    }
    // That a session is READY is written with the next entry, or a moment later.
    let ring = eventually("nine sessions are READY", PATIENCE, async || {
        let ring = cluster.ringctl(&["inspect", "-o", "json"]).await.json();
        let partitions = ring["partitions"].as_array().cloned().unwrap_or_default();
        let ready: u64 = partitions.iter().filter_map(|it| it["sessions"]["READY"].as_u64()).sum();
        if ready == 9 { Ok(ring) } else { Err(format!("{ready} are READY")) }
    })
    .await;
    let list = |field: &str| ring[field].as_array().cloned().unwrap_or_default();
    assert_eq!((list("managers").len(), list("partitions").len(), list("nodes").len()), (3, 3, 2));
    let shares: f64 = list("partitions").iter().filter_map(|it| it["share"].as_f64()).sum();
    assert!((shares - 1.0).abs() < 1e-9, "the shares make the whole ring: {shares}");
    assert!(list("partitions").iter().all(|it| it["home"] == it["owner"]));
    let text = cluster.ringctl(&["inspect"]).await.expect_success().stdout;
    for part in ["340", "681", "1023", "n1", "n2", "ACTIVE", "serving", "9 sessions READY"] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
    cluster.kill_manager(2).await;
    eventually("inspect shows the take-over", PATIENCE, async || {
        let ring = cluster.ringctl(&["inspect", "-o", "json"]).await;
        let ring: serde_json::Value =
            serde_json::from_str(&ring.stdout).map_err(|_| ring.stderr.clone())?;
        let partitions = ring["partitions"].as_array().cloned().unwrap_or_default();
        let taken = partitions.iter().find(|it| it["home"] == 1023).map(|it| it["owner"] == 340);
        let silent = ring["managers"][2]["answers"] == false;
        if taken == Some(true) && silent { Ok(()) } else { Err(ring.to_string()) }
    })
    .await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn explain_names_slot_owner_copies_and_node_and_follows_a_take_over() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let session = opened(&cluster.client(), "s1", "builtin").await;
    let ask = async || cluster.ringctl(&["explain", "s1", "-o", "json"]).await.json();
    let told = ask().await;
    assert_eq!(told["owner"]["number"], session.owner);
    assert_eq!(told["partition"]["home"], session.owner);
    let slot = told["slot"].as_u64().expect("a slot");
    let (first, last) = (&told["partition"]["first_slot"], &told["partition"]["last_slot"]);
    let (first, last) = (first.as_u64().expect("a slot"), last.as_u64().expect("a slot"));
    let is_inside =
        if first <= last { (first..=last).contains(&slot) } else { slot >= first || slot <= last };
    assert!(is_inside, "{told}");
    assert_eq!((&told["node"]["id"], &told["session"]["state"]), (&"n1".into(), &"READY".into()));
    let in_sync = told["copies"].as_array().expect("copies").iter();
    assert_eq!(in_sync.filter(|it| it["in_sync"] == true).count(), 3, "{told}");
    let text = cluster.ringctl(&["explain", "s1"]).await.expect_success().stdout;
    for part in ["default/s1", "it is the home", "its node answered that it runs", "node      n1"] {
        assert!(text.contains(part), "{part:?} is missing in\n{text}");
    }
    let none = cluster.ringctl(&["explain", "nobody", "-o", "json"]).await.json();
    assert!(none["session"].is_null() && none["node"].is_null(), "{none}");

    let home = [340, 681, 1023].iter().position(|it| *it == session.owner);
    cluster.kill_manager(home.expect("a number of this cluster")).await;
    eventually("explain shows the take-over", PATIENCE, async || {
        let told = ask().await;
        let why = told["owner"]["why"].as_str().unwrap_or_default().to_owned();
        let is_taken = told["partition"]["home_status"] == "DOWN" && why.contains("is not active");
        if is_taken && told["session"]["state"] == "READY" { Ok(()) } else { Err(told.to_string()) }
    })
    .await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_mistakes_end_with_code_2_and_name_what_is_wrong() {
    for (line, part) in [
        (&["session", "open", "a"][..], "--class"),
        (&["session", "list", "--page-size", "1001"], "1000"),
        (&["session", "list", "--state", "sleepy"], "READY"),
        (&["session", "get", "a", "--timeout", "0s"], "--timeout"),
        (&["namespace", "delete", "shop"], "--yes"),
        (&["namespace", "create", ""], "must not be empty"),
        (&["document", "get", "shop/Cart"], "NAMESPACE/CLASS/ID"),
        (&["document", "operate", "shop/a", "add", "{"], "does not parse"),
        (&["--endpoint", "nowhere", "inspect"], "nowhere"),
        (&["dev", "--managers", "0"], "--managers"),
        (&["dev", "--managers", "101"], "100"),
        (&["no-such-command"], "no-such-command"),
    ] {
        let ran = ringctl("127.0.0.1:1", line).await;
        assert_eq!(ran.code, 2, "{line:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(part), "{part:?} is not in: {}", ran.stderr);
        assert_eq!(ran.stdout, "");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_where_nobody_listens_is_a_failure_that_says_so() {
    let line = ["session", "get", "a", "--timeout", "1s", "-o", "json"];
    let error = ringctl("127.0.0.1:1", &line).await.error();
    assert_eq!(error["reason"], "UNREACHABLE");
    assert!(error["message"].as_str().unwrap().contains("127.0.0.1:1"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn completion_scripts_are_printed_for_the_usual_shells() {
    for shell in ["bash", "zsh", "fish"] {
        let script = ringctl("127.0.0.1:1", &["completion", shell]).await.expect_success().stdout;
        assert!(script.contains("ringctl") && script.contains("inspect"), "{shell}");
    }
}
