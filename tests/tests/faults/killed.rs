//! Managers are killed, and started again with their folders.

use crate::rounds::rounds;
use rota_tests::Places;

#[tokio::test(flavor = "multi_thread")]
async fn managers_that_are_killed_and_come_back_break_no_promise() {
    rounds(&Places::loopback(1), async |cluster, load, round| {
        let victim = round % cluster.managers();
        let next = (victim + 1) % cluster.managers();
        // Missed; back before anybody misses it; two at once.
        match round % 4 {
            0 | 2 => {
                cluster.kill(victim).await;
                load.more(100).await;
                cluster.is_missed(victim).await;
                load.more(100).await;
            }
            1 => cluster.kill(victim).await,
            _ => {
                cluster.kill_at_once(&[victim, next]).await;
                load.more(100).await;
                cluster.start_manager(next).await;
            }
        }
        cluster.start_manager(victim).await;
        load.more(100).await;
    })
    .await;
}
