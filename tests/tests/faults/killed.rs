//! A manager is killed, and started again with its folder.

use crate::rounds::rounds;
use rota_tests::Places;

#[tokio::test(flavor = "multi_thread")]
async fn managers_that_are_killed_and_come_back_break_no_promise() {
    rounds(&Places::loopback(1), async |cluster, load, round| {
        let victim = round % cluster.managers();
        cluster.kill(victim).await;
        load.more(100).await;
        cluster.is_missed(victim).await;
        load.more(100).await;
        cluster.start_manager(victim).await;
        load.more(100).await;
    })
    .await;
}
