//! Two agents of one node: the second comes in when nothing of the first can run any more.

use rota_client::v1;
use rota_tests::brief::Brief;
use rota_tests::sessions::{CALL, becomes, open, read};
use rota_tests::{Cluster, Launched, PATIENCE, TestFolder, checkout, eventually, run_to_end};
use v1::SessionState;

fn shipped() -> String {
    checkout().join("deploy/classes").display().to_string()
}

#[tokio::test]
async fn a_second_agent_with_the_same_id_waits_for_the_first_and_ends_when_it_lives_on() {
    let folder = TestFolder::new();
    let brief = Brief::start(&folder).await;
    let line = brief.agent(&folder, &shipped(), "first");
    let mut first = Launched::start(&folder, "first", "rota-node-agent", &line).await;
    let before = brief.opened("s", "counter").await;
    let line = brief.agent(&folder, &shipped(), "second");
    let ended = run_to_end("rota-node-agent", &line).await;
    let boot = format!("node n1 runs as boot {} at {}", first.ready["boot"], first.told("address"));
    ended.expect_refusal(1, &[&boot, "--id", "waiting"]);
    assert!(!ended.stdout.contains("registered"), "{}", ended.stdout);
    assert!(first.runs(), "the first goes on");
    let after = read(&brief.client, "s").await.unwrap();
    assert_eq!((after.state(), after.life), (SessionState::Ready, before.life));
    assert_eq!(after.address, first.told("address"));
    assert_eq!(first.end().await, Some(0));
    brief.end().await;
}

#[tokio::test]
async fn a_node_that_lost_its_folder_gets_in_again_once_its_old_boot_is_lost() {
    let folder = TestFolder::new();
    let brief = Brief::start(&folder).await;
    let line = brief.agent(&folder, &shipped(), "first");
    let first = Launched::start(&folder, "first", "rota-node-agent", &line).await;
    brief.opened("s", "counter").await;
    first.kill().await;
    let line = brief.agent(&folder, &shipped(), "second");
    let second = Launched::start(&folder, "second", "rota-node-agent", &line).await;
    becomes(&brief.client, "s", SessionState::Lost).await;
    let session = brief.opened("t", "counter").await;
    assert_eq!(session.address, second.told("address"));
    let log = std::fs::read_to_string(&second.log).unwrap();
    assert!(log.contains("node n1 runs as boot"), "it says what it waits for: {log}");
    assert_eq!(second.end().await, Some(0));
    brief.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_of_a_whole_cluster_cannot_come_in_twice() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let name = {
        let text = std::fs::read(cluster.document.data.join("dev.json")).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&text).unwrap();
        json["cluster"].as_str().unwrap().to_owned()
    };
    let (data, managers) = (folder.at("second"), cluster.endpoints());
    let line = ["run", "--id", "n1", "--data", &data, "--cluster", &name, "--managers", &managers];
    let second = Launched::start(&folder, "second", "rota-node-agent", &line).await;
    eventually("the second says why it waits", PATIENCE, async || {
        let log = std::fs::read_to_string(&second.log).map_err(|it| it.to_string())?;
        if log.contains("node n1 runs as boot") { Ok(()) } else { Err(log) }
    })
    .await;
    assert_eq!(second.end().await, Some(0), "it leaves when it is asked to");
    let client = cluster.client();
    let answer = client.open(open("s", "counter"), CALL).await.unwrap();
    assert_eq!(answer.session.unwrap().address, cluster.document.nodes[0].address);
    cluster.end().await;
}
