//! A manager whose disk is full.

use rota_tests::{PATIENCE, TestFolder, binary, skipped};
use std::process::Stdio;
use tokio::process::Command;
use tokio::time::timeout;

#[tokio::test]
async fn a_manager_on_a_full_disk_says_so_before_it_serves_anybody() {
    let folder = TestFolder::new();
    let small = folder.at("small");
    std::fs::create_dir(&small).unwrap();
    let mount = "mount -t tmpfs -o size=4m none \"$ROTA_TEST_FOLDER\"";
    let in_namespace = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", script]).env("ROTA_TEST_FOLDER", &small);
        command.stdin(Stdio::null()).kill_on_drop(true);
        command
    };
    if !in_namespace(mount).stderr(Stdio::null()).status().await.is_ok_and(|it| it.success()) {
        return skipped(
            "a_manager_on_a_full_disk_says_so_before_it_serves_anybody",
            "no mount namespace is allowed here",
        );
    }
    let mut command = in_namespace(&format!("{mount} && exec \"$0\" \"$@\""));
    command.arg(binary("rota-manager"));
    command.args(["--data", &format!("{small}/m1"), "--number", "1", "--id", "a"]);
    command.args(["--cluster", "c", "--config-store", "127.0.0.1:1"]);
    let ended = timeout(PATIENCE, command.output()).await.expect("it ends").unwrap();
    let [told, said] = [&ended.stderr, &ended.stdout].map(|it| String::from_utf8_lossy(it));
    assert_eq!(ended.status.code(), Some(1), "{told}");
    assert_eq!(said, "");
    assert!(told.contains("/small/m1 is full: 4096 KiB are free"), "{told}");
}
