//! A server whose disk is really full: a small tmpfs in a mount namespace of its own.

use crate::crashes::Running;
use crate::open_at;
use crate::server::PostgresServer;
use crate::workload::{Expected, writes};
use rota_storage::{EXIT_STATUS, Engine};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Runs `test` of this program with a tmpfs of `size` on an empty folder.
fn passes_on_small_tmpfs(name: &str, test: &str, size: &str) {
    if !rustix::process::getuid().is_root() {
        let why =
            "a server refuses to run in a mount namespace that its user made; root can make one";
        eprintln!("skipped: {name}: {why}");
        // Counted and named by `deploy/test`.
        if let Some(folder) = std::env::var_os("ROTA_SKIPPED") {
            fs::write(Path::new(&folder).join(name), why).expect("the list can be written");
        }
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    // The server's user passes through.
    let way = fs::Permissions::from_mode(0o711);
    fs::set_permissions(folder.path(), way).expect("it is our own");
    let mount = format!("mount -t tmpfs -o size={size} none \"$ROTA_TEST_FOLDER\"");
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &format!("{mount} && exec \"$0\" \"$@\"")]);
    command.arg(std::env::current_exe().expect("this program"));
    command.args(["--exact", test, "--ignored", "--nocapture"]);
    command.env("ROTA_TEST_FOLDER", folder.path()).stdin(Stdio::null());
    assert!(command.status().expect("starts").success(), "{test} failed");
}

/// Fills the disk, and gives the file that does.
fn fill(disk: &Path) -> PathBuf {
    let filler = disk.join("filler");
    let full = fs::write(&filler, vec![2; 256 * 1024 * 1024]).expect_err("the disk is small");
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    filler
}

#[test]
fn a_process_ends_when_its_servers_disk_is_full_and_nothing_acknowledged_is_lost() {
    let name = "a_process_ends_when_its_servers_disk_is_full_and_nothing_acknowledged_is_lost";
    passes_on_small_tmpfs(name, "full_disk::tables_on_a_small_disk", "8m");
}

#[test]
#[ignore = "run on a small tmpfs by the test above"]
fn tables_on_a_small_disk() {
    let disk = std::env::var("ROTA_TEST_FOLDER").expect("the parent sets it");
    let disk = Path::new(&disk);
    let server = PostgresServer::start();
    let space = disk.join("space");
    fs::create_dir(&space).expect("there is room");
    server.give(&space);
    server.psql(&format!("CREATE TABLESPACE small LOCATION '{}'", space.display()));
    server.psql("ALTER ROLE rota SET default_tablespace = small");
    let folder = tempfile::tempdir().expect("a folder");
    let mut running = Running::start(&server.url(), folder.path());
    running.wait_for_open();
    let before = running.wait_for(1);
    let filler = fill(disk);
    let acknowledged = running.rest().unwrap_or(before);
    let (status, why) = running.ended();
    assert_eq!(status.code(), Some(EXIT_STATUS), "{why}");
    // A part of the last block may still fit: then the server says so, and not what the system said.
    let is_full = ["No space left on device", "Check free disk space"];
    let tells_it = is_full.iter().any(|it| why.contains(it));
    assert!(why.contains("a commit failed") && tells_it, "{why}");
    fs::remove_file(filler).expect("removes");
    goes_on(&server, folder.path(), acknowledged);
}

fn goes_on(server: &PostgresServer, folder: &Path, acknowledged: u64) {
    let mut engine = open_at(&server.url(), folder).expect("opens");
    Expected::default().check(&mut engine, acknowledged..=acknowledged + 64);
    engine.commit(&writes(1)).expect("there is room again");
}

#[test]
fn a_server_that_ends_on_a_full_disk_loses_nothing_acknowledged() {
    let name = "a_server_that_ends_on_a_full_disk_loses_nothing_acknowledged";
    passes_on_small_tmpfs(name, "full_disk::journal_on_a_small_disk", "12m");
}

/// A server without room for its journal ends itself.
#[test]
#[ignore = "run on a small tmpfs by the test above"]
fn journal_on_a_small_disk() {
    let disk = std::env::var("ROTA_TEST_FOLDER").expect("the parent sets it");
    let disk = Path::new(&disk);
    let mut server = PostgresServer::start_with_journal(&disk.join("journal"));
    let folder = tempfile::tempdir().expect("a folder");
    let mut running = Running::start(&server.url(), folder.path());
    running.wait_for_open();
    let before = running.wait_for(1);
    let filler = fill(disk);
    let acknowledged = running.rest().unwrap_or(before);
    let (status, why) = running.ended();
    assert_eq!(status.code(), Some(EXIT_STATUS), "{why}");
    let log = server.log();
    assert!(log.contains("PANIC") && log.contains("No space left on device"), "{log}");
    server.kill();
    fs::remove_file(filler).expect("removes");
    // The journal itself may have filled the disk, and recovery needs room for one piece of it more.
    let grown = Command::new("mount").args(["-o", "remount,size=64m"]).arg(disk).status();
    assert!(grown.expect("mount starts").success(), "the disk cannot grow");
    server.begin();
    goes_on(&server, folder.path(), acknowledged);
}
