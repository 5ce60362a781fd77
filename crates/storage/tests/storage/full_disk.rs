//! A file system that is really full: a small tmpfs in a mount namespace of its own.

use crate::documents::kills;
use crate::failing_disk::Fault;
use crate::running::{Program, Running, variable};
use crate::workload::{Expected, writes};
use crate::{ENGINES, attachments, documents, open};
use rota_storage::attachments::{AttachmentError, Stored, digest_of};
use rota_storage::{EXIT_STATUS, Engine, RealDisk};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

/// Runs `test` of this program with a tmpfs of `size` mounted on an empty folder. `None` where the
/// machine allows no such thing.
fn on_small_tmpfs(test: &str, size: &str) -> Option<bool> {
    let folder = tempfile::tempdir().expect("a folder");
    let mount = format!("mount -t tmpfs -o size={size} none \"$ROTA_TEST_FOLDER\"");
    for user in [&[][..], &["--user", "--map-root-user"]] {
        let in_namespace = |script: &str| {
            let mut command = Command::new("unshare");
            command.args(user).args(["--mount", "sh", "-c", script]);
            command.env("ROTA_TEST_FOLDER", folder.path()).stdin(Stdio::null());
            command
        };
        let mut probe = in_namespace(&mount);
        if !probe.stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
            continue;
        }
        let mut command = in_namespace(&format!("{mount} && exec \"$0\" \"$@\""));
        command.arg(std::env::current_exe().expect("this program"));
        command.args(["--exact", test, "--ignored", "--nocapture"]);
        return Some(command.status().expect("starts").success());
    }
    None
}

fn passes_on_small_tmpfs(name: &str, test: &str, size: &str) {
    match on_small_tmpfs(test, size) {
        Some(passed) => assert!(passed, "{test} failed"),
        None => {
            let why = "no mount namespace is allowed here";
            eprintln!("skipped: {name}: {why}");
            // Counted and named by `deploy/test`.
            if let Some(folder) = std::env::var_os("ROTA_SKIPPED") {
                fs::write(Path::new(&folder).join(name), why).expect("the list can be written");
            }
        }
    }
}

#[test]
fn a_process_ends_when_its_file_system_is_full_and_nothing_acknowledged_is_lost() {
    let name = "a_process_ends_when_its_file_system_is_full_and_nothing_acknowledged_is_lost";
    passes_on_small_tmpfs(name, "full_disk::engines_on_a_small_disk", "600k");
}

#[test]
#[ignore = "run on a small tmpfs by the test above"]
fn engines_on_a_small_disk() {
    let disk = variable("ROTA_TEST_FOLDER");
    for kind in ENGINES {
        let ballast = Path::new(&disk).join("ballast");
        // redb keeps a file of some size from the start; the log grows slowly.
        fs::write(&ballast, vec![1; 100 * 1024]).expect("there is room");
        let folder = Path::new(&disk).join(kind.as_str());
        let program = Program::new("processes::child")
            .with("ROTA_TEST_FOLDER", folder.to_str().expect("text"))
            .with("ROTA_TEST_ENGINE", kind.as_str())
            .with("ROTA_TEST_FAULT", "");
        let mut running = Running::start(&program);
        // Something else fills the disk meanwhile.
        let filler = Path::new(&disk).join("filler");
        running.wait_for_open();
        running.wait_for(1);
        let full = fs::write(&filler, vec![2; 1024 * 1024]).expect_err("the disk is small");
        assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
        let acknowledged = running.rest().unwrap_or(1);
        let (status, why) = running.ended();
        assert_eq!(status.code(), Some(EXIT_STATUS), "{kind}: {why}");
        assert!(why.contains("No space left"), "{why}");
        fs::remove_file(&filler).expect("removes");
        fs::remove_file(&ballast).expect("removes");
        let mut engine = open(Arc::new(RealDisk), &folder, kind).expect("opens");
        Expected::default().check(&mut *engine, acknowledged..=acknowledged + 64);
        engine.commit(&writes(1)).expect("there is room again");
        drop(engine);
        fs::remove_dir_all(&folder).expect("removes");
    }
}

#[test]
fn operations_end_with_their_process_when_the_file_system_is_full_and_lose_nothing() {
    let name = "operations_end_with_their_process_when_the_file_system_is_full_and_lose_nothing";
    passes_on_small_tmpfs(name, "full_disk::documents_on_a_small_disk", "600k");
}

#[test]
#[ignore = "run on a small tmpfs by the test above"]
fn documents_on_a_small_disk() {
    let disk = variable("ROTA_TEST_FOLDER");
    let ballast = Path::new(&disk).join("ballast");
    fs::write(&ballast, vec![1; 100 * 1024]).expect("there is room");
    let folder = Path::new(&disk).join("documents");
    let mut running = Running::start(&kills::program(&folder, Some((Fault::Sync, u64::MAX))));
    running.wait_for_open();
    let mut acknowledged = kills::Acknowledged::default();
    acknowledged.note(running.gather(1));
    let filler = Path::new(&disk).join("filler");
    let full = fs::write(&filler, vec![2; 1024 * 1024]).expect_err("the disk is small");
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    acknowledged.note(running.gather_rest());
    let (status, why) = running.ended();
    assert_eq!(status.code(), Some(EXIT_STATUS), "{why}");
    assert!(why.contains("No space left"), "{why}");
    fs::remove_file(&filler).expect("removes");
    fs::remove_file(&ballast).expect("removes");
    acknowledged.check(&documents::open(&folder));
}

#[test]
fn a_put_on_a_full_file_system_is_refused_and_leaves_nothing() {
    let name = "a_put_on_a_full_file_system_is_refused_and_leaves_nothing";
    passes_on_small_tmpfs(name, "full_disk::attachments_on_a_small_disk", "600k");
}

#[test]
#[ignore = "run on a small tmpfs by the test above"]
fn attachments_on_a_small_disk() {
    let folder = Path::new(&variable("ROTA_TEST_FOLDER")).join("attachments");
    let store = attachments::open(Arc::new(RealDisk), &folder).expect("opens");
    let small = vec![7; 100 * 1024];
    let put = |bytes: &[u8]| store.put(digest_of(bytes), bytes.len() as u64, bytes, 0);
    assert_eq!(put(&small).expect("there is room"), Stored::New);
    let error = put(&vec![8; 700 * 1024]).expect_err("the disk is small");
    assert!(
        matches!(&error, AttachmentError::Io { source, .. }
            if source.kind() == std::io::ErrorKind::StorageFull),
        "{error:?}"
    );
    assert_eq!(attachments::bodies_on_disk(&folder), [digest_of(&small).to_string()]);
    assert_eq!(put(&vec![9; 200 * 1024]).expect("there is room"), Stored::New);
    store.verify(&digest_of(&small)).expect("whole");
}
