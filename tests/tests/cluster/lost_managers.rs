//! A manager that is killed while clients run.

use rota_client::v1::SessionState;
use rota_tests::busy::{Busy, all_are_there};
use rota_tests::sessions::{CALL, close, get, open, opened, read};
use rota_tests::small::{join, manager, refused, ring};
use rota_tests::{Cluster, Launched, PATIENCE, TestFolder, eventually, http_get};
use std::sync::atomic::{AtomicUsize, Ordering};

async fn killing_under_load(victim: usize) {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &["--places", "100000"]).await;
    let busy = Busy::start(&cluster);
    busy.more(100).await;
    cluster.kill_manager(victim).await;
    busy.more(200).await;
    let kept = busy.stop().await;
    let survivors = (0..3).filter(|it| *it != victim).map(|it| cluster.client_of(it));
    all_are_there(&kept, &survivors.collect::<Vec<_>>()).await;
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

/// A client that never repeats a call, as a plain gRPC client is: managers do that for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_repeats_nothing_sees_no_failure_while_another_manager_is_killed() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &["--places", "100000"]).await;
    let (client, entry) = (cluster.client(), cluster.document.managers[0].grpc.clone());
    let asked = AtomicUsize::new(0);
    let ask = async |number: usize| {
        let id = format!("s{number}");
        let opened = client.open_at(&entry, open(&id, "builtin"), CALL).await;
        let opened = opened.unwrap_or_else(|error| panic!("open {id}: {error}"));
        let key = get(&id);
        let got = client.get_at(&entry, key, CALL).await;
        let got = got.unwrap_or_else(|error| panic!("get {id}: {error}")).session.unwrap();
        assert_eq!(got.address, opened.session.unwrap().address, "{id}");
        asked.store(number, Ordering::Relaxed);
    };
    let calls = async {
        for number in 1..=300 {
            ask(number).await;
        }
    };
    let kill = async {
        eventually("clients run", PATIENCE, async || {
            let done = asked.load(Ordering::Relaxed);
            if done >= 50 { Ok(()) } else { Err(format!("{done} calls")) }
        })
        .await;
        cluster.kill_manager(1).await;
    };
    tokio::join!(calls, kill);
    cluster.end().await;
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

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_manager_comes_back_with_its_folder_as_a_copy_and_then_all_others_may_die() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &["--places", "100000"]).await;
    let busy = Busy::start(&cluster);
    busy.more(100).await;
    let again = cluster.restart_manager(&folder, 0).await;
    busy.more(100).await;
    cluster.every_copy_is_in_sync().await;
    cluster.kill_manager(1).await;
    busy.more(100).await;
    let kept = busy.stop().await;
    all_are_there(&kept, &[cluster.client_of(0), cluster.client_of(2)]).await;
    cluster.kill_manager(2).await;
    let last = cluster.client_of(0);
    all_are_there(&kept, std::slice::from_ref(&last)).await;
    opened(&last, "afterwards", "counter").await;
    cluster.end_with(vec![again]).await;
}

/// Two machines with their disks, which is one more than the copies beside the owner: of some sessions
/// nobody holds a record any more, and they run on.
#[tokio::test(flavor = "multi_thread")]
async fn sessions_of_which_every_copy_is_lost_are_found_again_where_they_run() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &["--replicas", "1"]).await;
    let (client, contact) = (cluster.client(), cluster.document.managers[2].grpc.clone());
    let mut before = Vec::new();
    for number in 0..30 {
        let class = if number == 0 { "http" } else { "counter" };
        before.push(opened(&client, &format!("s{number}"), class).await);
    }
    assert!(client.close(close("s29"), CALL).await.unwrap().finished);
    let victims = cluster.kill_managers(&[0, 1]).await;
    let (mut again, mut said) = (Vec::new(), 0);
    for victim in &victims {
        let [id, data, number] =
            ["--id", "--data", "--number"].map(|it| victim.option(it).unwrap());
        eventually("it is missed", PATIENCE, async || {
            let is_down =
                manager(&ring(&contact).await?, number.parse().unwrap())["status"] == "DOWN";
            if is_down { Ok(()) } else { Err(format!("{id} is not DOWN")) }
        })
        .await;
        std::fs::remove_dir_all(data).unwrap();
        let at = victim.line.iter().position(|it| it == "--number").unwrap();
        let mut line = victim.line.clone();
        // Number and ring are what it is told from outside.
        line.splice(at..at + 4, ["--join", "--recover-after-ms", "2000"].map(str::to_owned));
        let target = Launched::again(&folder, &format!("{id}-again"), &line).await;
        // Who is the last member of some group holds what nobody else has: an operator must say that it
        // is gone.
        let unsaid = join(&target, number, &contact, &[]).await;
        if unsaid.code != 0 {
            refused(unsaid, &["last copy of partition", "start it again", "--force-lost"]);
            join(&target, number, &contact, &["--force-lost"]).await.expect_success();
            said += 1;
        }
        again.push(target);
    }
    assert!(said > 0, "some last copy was lost");
    for was in &before[..29] {
        let now = eventually("it is found again", PATIENCE, async || {
            read(&client, &was.id).await.map_err(|error| error.to_string())
        })
        .await;
        assert_eq!((now.state(), &now.address), (SessionState::Ready, &was.address), "{}", was.id);
        assert_eq!(now.life, was.life, "{}", was.id);
    }
    assert_eq!(http_get(&before[0].address, "/").await.unwrap().code, 200);
    // What is lost is told.
    let told = cluster.ringctl(&["inspect"]).await.expect_success().stdout;
    assert!(told.contains("its last copy was lost, and it was found again"), "{told}");
    let other = opened(&client, "s29", "counter").await;
    assert!(other.life > before[29].life);
    cluster.end_with(again).await;
}
