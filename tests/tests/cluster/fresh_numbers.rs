//! Numbers that are taken anew: those that have left, by managers of any name, and those of managers
//! that are lost with nobody left to say so. And those that are taken late for the first time.

use rota_tests::small::{Small, join, manager, refused, ring};
use rota_tests::{Launched, PATIENCE, TestFolder, eventually, ringctl};

#[tokio::test(flavor = "multi_thread")]
async fn ten_managers_come_and_go_in_a_ring_for_three_and_the_next_still_finds_room() {
    let small = Small::start().await;
    let contact = small.first.told("grpc").to_owned();
    let mut before: Option<u64> = None;
    for index in 0..10 {
        let newcomer = small.waiting(&format!("fresh-{index}"), &[]).await;
        let joined = join(&newcomer, "auto", &contact, &["--wait"]).await.json();
        let number = joined["number"].as_u64().unwrap();
        let shown = manager(&ring(&contact).await.unwrap(), number);
        assert_eq!(shown["id"], format!("fresh-{index}"));
        if let Some(before) = before.replace(number) {
            // The number that the one before gave back.
            assert_eq!((number, &shown["incarnation"]), (before, &(index + 1).into()));
        }
        let leave = ["leave", "--number", &number.to_string(), "--wait", "-o", "json"];
        assert_eq!(ringctl(&contact, &leave).await.json()["state"], "left");
        assert_eq!(newcomer.ended().await, Some(0));
    }
    small.end(vec![]).await;
}

/// Short, so that silence is found out soon.
const TIMES: [&str; 10] = [
    "--suspect-ms",
    "1000",
    "--renew-ms",
    "200",
    "--lease-term-ms",
    "2100",
    "--lease-kill-ms",
    "2600",
    "--node-lost-ms",
    "3300",
];

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_for_a_forced_join_waits_until_what_is_found_again_serves() {
    let small = Small::with(&TIMES).await;
    // No node is there, so it looks for what runs as long as it is told to.
    let soon = ["--recover-after-ms", "2000"];
    let again = small.waiting("a2", &[&["--id", "a"][..], &soon].concat()).await;
    let target = again.told("grpc").to_owned();
    let Small { folder, store, first, .. } = small;
    first.kill().await;
    std::fs::remove_dir_all(folder.path().join("a")).unwrap();
    let line = ["join", "--target", &target, "--force-lost", "--number", "100", "--wait"];
    let ran = ringctl("", &line).await.expect_success();
    // Its View may have it before it has found out that everything is lost.
    let is_early = |it: &&str| it.starts_with("number 100 does not serve partition 100 yet: ");
    let stages: Vec<&str> = ran.stderr.lines().skip_while(is_early).collect();
    assert_eq!(
        stages,
        [
            "number 100 finds 1 partition again from the nodes: 100",
            "number 100 owns its arc and holds every copy"
        ]
    );
    let ring = ring(&target).await.unwrap();
    let partition = &ring["partitions"][0];
    assert_eq!(
        (&partition["state"], &partition["copies"][0]["role"]),
        (&"active".into(), &"serving".into())
    );
    for launched in [again, store] {
        assert_eq!(launched.end().await, Some(0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_number_of_a_lost_manager_that_nobody_is_left_to_miss_is_taken_when_an_operator_says_so()
 {
    let small = Small::with(&TIMES).await;
    // The same name on another machine.
    let again = small.waiting("a2", &["--id", "a"]).await;
    let contact = small.first.told("grpc").to_owned();
    let target = again.told("grpc").to_owned();
    let forced = async |more: &[&str]| {
        let line = ["join", "--target", &target, "--force-lost", "-o", "json"];
        ringctl("", &[&line, more].concat()).await
    };
    let mine = ["--number", "100"];
    refused(forced(&mine).await, &["it is not lost", "accepts connections", &contact]);
    refused(forced(&["--number", "7"]).await, &["number", "nobody has"]);
    assert_eq!(forced(&["--number", "auto"]).await.code, 2);
    // A process that stands still may go on.
    rota_tests::processes::send(small.first.pid(), rustix::process::Signal::STOP);
    refused(forced(&mine).await, &["it is not lost", "accepts connections"]);
    rota_tests::processes::send(small.first.pid(), rustix::process::Signal::CONT);
    let stranger = small.waiting("b", &[]).await;
    let line = ["join", "--target", stranger.told("grpc"), "--force-lost", "--number", "100"];
    let ran = ringctl("", &[&line[..], &["-o", "json"]].concat()).await;
    refused(ran, &["belongs to manager", "a"]);

    let Small { folder, store, first, .. } = small;
    first.kill().await;
    std::fs::remove_dir_all(folder.path().join("a")).unwrap();
    let joined = forced(&mine).await.json();
    assert_eq!((&joined["number"], &joined["incarnation"]), (&100.into(), &2.into()));
    eventually("it serves as that number", PATIENCE, async || {
        let ring = ring(&target).await?;
        let shown = manager(&ring, 100);
        let is_in = shown["status"] == "ACTIVE" && shown["incarnation"] == 2;
        if is_in { Ok(()) } else { Err(ring.to_string()) }
    })
    .await;
    for launched in [stranger, again, store] {
        assert_eq!(launched.end().await, Some(0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn managers_of_a_founded_ring_that_were_given_up_before_they_ever_ran_come_late() {
    let folder = TestFolder::new();
    let line = ["--data", &folder.at("store"), "--cluster", "c"];
    let store = Launched::start(&folder, "store", "rota-config-store", &line).await;
    let start = async |id: &str, number: &str| {
        let data = folder.at(id);
        let mut line = vec!["--data", &data, "--id", id, "--number", number, "--cluster", "c"];
        line.extend(["--ring", "100=a,300=b,600=c,900=d", "--config-store", store.told("address")]);
        line.extend(["--suspect-ms", "250", "--heartbeat-ms", "50"]);
        Launched::start(&folder, id, "rota-manager", &line).await
    };
    let second = start("b", "300").await;
    let contact = second.told("grpc").to_owned();
    eventually("the others are given up", PATIENCE, async || {
        let ring = ring(&contact).await?;
        let is_down = |number| manager(&ring, number)["status"] == "DOWN";
        if [100, 600, 900].into_iter().all(is_down) { Ok(()) } else { Err(ring.to_string()) }
    })
    .await;
    let late = [start("c", "600").await, start("a", "100").await, start("d", "900").await];
    eventually("every copy is in sync", PATIENCE, async || {
        let ran = ringctl(&contact, &["verify", "-o", "json"]).await;
        if ran.code == 0 { Ok(()) } else { Err(format!("{}{}", ran.stdout, ran.stderr)) }
    })
    .await;
    for launched in late.into_iter().chain([second, store]) {
        assert_eq!(launched.end().await, Some(0));
    }
}
