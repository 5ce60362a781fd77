//! Of three servers of Consul the leader is killed, and a manager before there is peace again.

use crate::rounds::rounds;
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
    rounds(&Places::loopback(3), async |cluster, load, _| {
        let gone = leader(cluster).await;
        cluster.servers[gone].kill().await;
        load.more(200).await;
        let next = leader(cluster).await;
        assert_ne!(next, gone);
        // Its successor takes over although the manager of the dead server cannot see that.
        let victim = (gone + 1) % cluster.managers();
        cluster.kill(victim).await;
        cluster.is_missed(victim).await;
        load.more(100).await;
        cluster.start_manager(victim).await;
        load.more(100).await;
        let folder = &cluster.folder;
        cluster.servers[gone].start_again(folder).await;
        load.more(100).await;
    })
    .await;
}
