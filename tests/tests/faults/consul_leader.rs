//! Of three servers of Consul the leader is killed, and a manager under the next one.

use crate::rounds::rounds;
use rota_client::Entry;
use rota_client::v1::SessionState;
use rota_tests::sessions::{opened, read};
use rota_tests::{Assembled, PATIENCE, Places, eventually};

/// Waits until one of Consul's servers that run leads, and says which.
async fn leader(cluster: &Assembled) -> usize {
    eventually("a server leads", PATIENCE, async || {
        for (at, server) in cluster.servers.iter().enumerate() {
            if server.leads().await {
                return Ok(at);
            }
        }
        Err("none leads".to_owned())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn leaders_of_consul_that_are_killed_and_come_back_break_no_promise() {
    rounds(&Places::loopback(3), async |cluster, load, round| {
        let gone = leader(cluster).await;
        cluster.servers[gone].kill().await;
        load.more(200).await;
        let next = leader(cluster).await;
        assert_ne!(next, gone);
        load.more(200).await;
        cluster.servers[gone].start_again(&cluster.folder).await;
        cluster.sees_consul().await;
        let victim = round % cluster.managers();
        cluster.kill(victim).await;
        cluster.is_missed(victim).await;
        load.more(100).await;
        cluster.start_manager(victim).await;
        load.more(100).await;
    })
    .await;
}

/// The server of one manager stays away, and another manager dies: the third sees Consul, and can do
/// without both.
#[tokio::test(flavor = "multi_thread")]
async fn a_manager_whose_own_server_of_consul_is_away_holds_nobody_up() {
    let mut cluster = Assembled::start(&Places::loopback(3)).await;
    opened(&cluster.client(Entry::Sticky), "before", "counter").await;
    let sees = leader(&cluster).await;
    let [blind, victim] = [(sees + 1) % 3, (sees + 2) % 3];
    cluster.servers[blind].kill().await;
    cluster.kill(victim).await;
    cluster.is_missed(victim).await;
    let client = cluster.client_of(sees);
    let told = read(&client, "before").await.expect("whoever sees Consul serves");
    assert_eq!(told.state(), SessionState::Ready);
    opened(&client, "meanwhile", "counter").await;
    cluster.servers[blind].start_again(&cluster.folder).await;
    cluster.start_manager(victim).await;
    cluster.is_whole().await;
    cluster.end().await;
}
