//! The disk of a manager is full.

use crate::rounds::rounds;
use crate::stale_disk::copy;
use rota_tests::Places;
use rota_tests::namespaces::{SmallDisk, own_namespaces};
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::Path;

/// A disk of that size holds what the load of a test writes.
const SIZE: &str = "256m";
const PIECE: usize = 64 * 1024;

/// Writes to a file of the disk until nothing more fits.
fn fill(ballast: &Path) {
    let mut file = fs::File::create(ballast).expect("there is room for a name");
    let piece = vec![1; PIECE];
    loop {
        match file.write(&piece) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::StorageFull => break,
            Err(error) => panic!("{}: {error}", ballast.display()),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn managers_end_when_their_disk_is_full_and_break_no_promise() {
    if !own_namespaces("full_disk::managers_end_when_their_disk_is_full_and_break_no_promise") {
        return;
    }
    rounds(&Places::loopback(1), async |cluster, load, round| {
        let victim = round % cluster.managers();
        let data = cluster.data_of(victim);
        let (aside, ballast) = (data.with_extension("aside"), data.join("ballast"));
        cluster.kill(victim).await;
        fs::rename(&data, &aside).expect("the folder is free");
        fs::create_dir(&data).expect("the name is free");
        let disk = SmallDisk::on(&data, SIZE);
        copy(&aside, &data);
        cluster.start_manager(victim).await;
        cluster.is_whole().await;
        load.more(50).await;
        fill(&ballast);
        let code = cluster.ended(victim).await;
        assert!(code.is_some_and(|code| code != 0), "it ends with {code:?}");
        assert!(cluster.log_of(victim).contains("No space left"), "it says why");
        load.more(100).await;
        fs::remove_file(&ballast).expect("there is one");
        cluster.start_manager(victim).await;
        cluster.is_whole().await;
        // Back to the large disk, for the rounds that follow.
        cluster.kill(victim).await;
        fs::remove_dir_all(&aside).expect("it is there");
        copy(&data, &aside);
        drop(disk);
        fs::remove_dir(&data).expect("nothing is mounted there any more");
        fs::rename(&aside, &data).expect("the name is free");
        cluster.start_manager(victim).await;
    })
    .await;
}
