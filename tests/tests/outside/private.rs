//! What others of the machine can read: nothing that Rota keeps, and no key.

use rota_tests::{Cluster, TestFolder, run_to_end};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777
}

/// What of a folder others can read or write. A folder that they can pass through is none of that.
fn open_to_others(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let (path, kind) = entry.map(|it| (it.path(), it.file_type().unwrap())).unwrap();
        let allowed = if kind.is_dir() { 0o711 } else { 0o600 };
        if (kind.is_dir() || kind.is_file()) && mode(&path) & !allowed != 0 {
            found.push(format!("{:04o} {}", mode(&path), path.display()));
        }
        if kind.is_dir() {
            open_to_others(&path, found);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn others_read_nothing_of_a_cluster_whatever_the_umask_of_its_starter() {
    let folder = TestFolder::new();
    let data = folder.path().join("data");
    // As an earlier version left them.
    let log = data.join("logs/m1.log");
    fs::create_dir_all(data.join("logs")).unwrap();
    fs::create_dir(data.join("managers")).unwrap();
    fs::write(&log, "an earlier word\n").unwrap();
    for (path, mode) in
        [(&log, 0o644), (&data.join("logs"), 0o755), (&data.join("managers"), 0o755)]
    {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }
    let cluster = Cluster::start_under(&folder, "000", &["--max-nodes", "2"]).await;
    cluster.ringctl(&["session", "open", "a", "--class", "http"]).await.expect_success();
    cluster.ringctl(&["namespace", "create", "shop"]).await.expect_success();
    let (body, exported) = (folder.at("body"), folder.at("shop.export"));
    fs::write(&body, "tea").unwrap();
    cluster.ringctl(&["document", "put-body", "shop/c1", &body]).await.expect_success();
    cluster.ringctl(&["namespace", "export", "shop", &exported]).await.expect_success();
    let mut open = Vec::new();
    open_to_others(&data, &mut open);
    assert!(open.is_empty(), "others can get at {open:#?}");
    for below in ["managers", "managers/m1", "store", "logs"] {
        assert_eq!(mode(&data.join(below)), 0o700, "{below}");
    }
    assert_eq!(mode(Path::new(&exported)), 0o600);
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_others_can_read_or_that_stands_on_the_line_is_refused_at_start() {
    let folder = TestFolder::new();
    let key = folder.secret("key", "sesame");
    fs::set_permissions(&key, Permissions::from_mode(0o644)).unwrap();
    let remedy = format!("chmod 0600 {key}");
    let data = folder.at("m1");
    let manager = ["--data", &data, "--number", "1", "--id", "a", "--cluster", "c"];
    let manager = [&manager[..], &["--config-store", "127.0.0.1:1"]].concat();
    let started =
        async |more: &[&str]| run_to_end("rota-manager", &[&manager, more].concat()).await;
    started(&["--admin-key-file", &key]).await.expect_refusal(2, &["--admin-key-file", &remedy]);
    let told = started(&["--admin-key", "sesame"]).await;
    told.expect_refusal(2, &["--admin-key", "give --admin-key-file FILE"]);
    assert!(!told.stderr.contains("sesame"), "{}", told.stderr);
    let token = ["--config-store", "consul://me:sesame@127.0.0.1:8500/rota"];
    let told = run_to_end("rota-manager", &[&manager[..8], &token].concat()).await;
    told.expect_refusal(2, &["CONSUL_HTTP_TOKEN_FILE"]);
    assert!(!told.stderr.contains("sesame"), "{}", told.stderr);
    for (line, parts) in [
        (["--admin-key-file", &key], ["--admin-key-file", &remedy]),
        (["--admin-key", "sesame"], ["--admin-key-file FILE", "ROTA_ADMIN_KEY"]),
    ] {
        let line = [&["namespace", "list"], &line[..]].concat();
        run_to_end("ringctl", &line).await.expect_refusal(2, &parts);
    }
    let line = ["session", "close", "a", "--although-off", "--admin-key", "sesame"];
    run_to_end("ringctl", &line).await.expect_refusal(2, &["--admin-key-file FILE"]);
    let line = ["document", "list", "shop", "--key", "sesame"];
    run_to_end("ringctl", &line).await.expect_refusal(2, &["--key-file FILE", "ROTA_KEY"]);
    assert!(!Path::new(&data).exists(), "a refused start leaves nothing");
}
