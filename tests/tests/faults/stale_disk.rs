//! A manager is started on what its folder held before its last run.

use crate::rounds::rounds;
use rota_tests::{Places, run_to_end};
use std::fs;
use std::path::Path;

/// Copies a folder with all below it.
pub fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder can be made");
    for entry in fs::read_dir(from).expect("the folder is there").flatten() {
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() {
            copy(&from, &to);
        } else {
            fs::copy(&from, &to).expect("a file can be copied");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn managers_refuse_a_disk_that_went_back_and_break_no_promise() {
    rounds(&Places::loopback(1), async |cluster, load, round| {
        let victim = round % cluster.managers();
        let data = cluster.data_of(victim);
        let (older, newer) = (data.with_extension("older"), data.with_extension("newer"));
        cluster.kill(victim).await;
        copy(&data, &older);
        cluster.start_manager(victim).await;
        cluster.is_whole().await;
        load.more(100).await;
        cluster.kill(victim).await;
        if round % 2 == 1 {
            cluster.is_missed(victim).await;
        }
        fs::rename(&data, &newer).expect("the folder is free");
        fs::rename(&older, &data).expect("the folder is free");
        let ended = run_to_end("rota-manager", cluster.options_of(victim)).await;
        ended.expect_refusal(1, &["or the folder is an old copy"]);
        load.more(100).await;
        fs::remove_dir_all(&data).expect("the folder is free");
        fs::rename(&newer, &data).expect("the folder is free");
        cluster.start_manager(victim).await;
    })
    .await;
}
