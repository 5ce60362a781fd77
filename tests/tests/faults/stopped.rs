//! A manager stands still for longer than others wait for a sign of life, and goes on.

use crate::rounds::rounds;
use rota_tests::Places;
use rustix::process::Signal;

#[tokio::test(flavor = "multi_thread")]
async fn managers_that_are_stopped_until_they_are_missed_and_go_on_break_no_promise() {
    rounds(&Places::loopback(1), async |cluster, load, round| {
        let victim = round % cluster.managers();
        let process = cluster.process(victim);
        process.signal(Signal::STOP);
        cluster.is_missed(victim).await;
        load.more(100).await;
        // Every second time its successor is gone when it goes on.
        let successor = (victim + 1) % cluster.managers();
        let also_killed = round % 2 == 1;
        if also_killed {
            cluster.kill(successor).await;
        }
        process.signal(Signal::CONT);
        load.more(100).await;
        if also_killed {
            cluster.start_manager(successor).await;
            load.more(100).await;
        }
    })
    .await;
}
