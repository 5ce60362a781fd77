//! A node's data folder that appears on another machine while the old one hangs.

use rota_tests::brief::Brief;
use rota_tests::processes::send;
use rota_tests::programs::session_folders;
use rota_tests::sessions::{CALL, open};
use rota_tests::{Launched, PATIENCE, TestFolder, classes_of, eventually, skipped};
use rustix::process::Signal;
use std::path::Path;
use std::process::{Command, Stdio};

/// Tells the time of the machine that all share, again and again.
const BEAT: &str = r#"
name = "beat"
kind = "program"
argv = ["python3", "-u", "-c", """
import time
print("ready")
while True:
    print(time.clock_gettime(time.CLOCK_BOOTTIME))
    time.sleep(0.02)
"""]
ready = { line = "ready" }
"#;

/// What makes a process believe that it is on another machine: other pids, another boot of the kernel.
const ELSEWHERE: [&str; 7] =
    ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh"];
const OTHER_BOOT: &str = "mount --bind \"$0\" /proc/sys/kernel/random/boot_id && exec \"$@\"";

/// A file with a boot id of no machine.
fn boot_id(folder: &TestFolder) -> String {
    let file = folder.at("boot_id");
    std::fs::write(&file, "5b0c9a36-0b7e-4c4f-9d0a-3f1f6f3a7c11\n").unwrap();
    file
}

/// A command line as it is run on another machine.
fn elsewhere(folder: &TestFolder, line: &[String]) -> Vec<String> {
    let before = ELSEWHERE.map(str::to_owned);
    let more = ["-c".to_owned(), OTHER_BOOT.to_owned(), boot_id(folder)];
    [&before[..], &more, line].concat()
}

/// Whether this machine lets a test pretend that.
fn may_be_elsewhere(folder: &TestFolder) -> bool {
    let line = elsewhere(folder, &["true".to_owned()]);
    let mut probe = Command::new(&line[0]);
    probe.args(&line[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    probe.status().is_ok_and(|it| it.success())
}

/// The first and the last moment at which a program of session `b` wrote, by the outputs in a node's folder
/// that `except` has not.
fn beats(data: &Path, except: &Path) -> Option<(f64, f64)> {
    let mut times = Vec::new();
    for (_, folder) in session_folders(data) {
        if except.join(folder.strip_prefix(data).expect("it is in there")).exists() {
            continue;
        }
        let text = std::fs::read_to_string(folder.join("stdout.log")).unwrap_or_default();
        times.extend(text.lines().filter_map(|it| it.parse::<f64>().ok()));
    }
    Some((*times.first()?, *times.last()?))
}

#[tokio::test]
async fn a_copy_of_a_nodes_folder_on_another_machine_waits_until_the_first_boot_is_lost() {
    let folder = TestFolder::new();
    if !may_be_elsewhere(&folder) {
        let test = "a_copy_of_a_nodes_folder_on_another_machine_waits_until_the_first_boot_is_lost";
        return skipped(test, "this machine allows no pid namespace with mounts of its own");
    }
    let brief = Brief::start(&folder).await;
    let classes = classes_of(&folder, &[("beat", BEAT)]);
    let line = brief.agent(&folder, &classes, "first");
    let first = Launched::start(&folder, "first", "rota-node-agent", &line).await;
    let before = brief.opened("b", "beat").await;

    send(first.pid(), Signal::STOP);
    let copied =
        Command::new("cp").arg("-a").args([folder.at("first"), folder.at("copy")]).status();
    assert!(copied.unwrap().success());
    let mut line = brief.agent(&folder, &classes, "copy");
    line.insert(0, rota_tests::binary("rota-node-agent").display().to_string());
    let copy = Launched::again(&folder, "copy", &elsewhere(&folder, &line)).await;
    let after = eventually("the session lives anew", PATIENCE, async || {
        let answer = brief.client.open(open("b", "beat"), CALL).await;
        let session = answer.map_err(|error| format!("{error:?}"))?.session.ok_or("no session")?;
        if session.life == before.life {
            Err("it is the first life".to_owned())
        } else {
            Ok(session)
        }
    })
    .await;
    assert_ne!(after.node_address, before.node_address);
    let nothing = folder.path().join("nothing");
    let begun = eventually("the new program writes", PATIENCE, async || {
        let begun = beats(&folder.path().join("copy"), &folder.path().join("first"));
        begun.map(|(first, _)| first).ok_or_else(|| "it wrote nothing".to_owned())
    })
    .await;
    let (_, ended) = beats(&folder.path().join("first"), &nothing).expect("the first one wrote");
    assert!(ended < begun, "the first program wrote at {ended}, the second from {begun} on");
    let log = std::fs::read_to_string(&copy.log).unwrap();
    for part in ["it proves nothing about what ran there", "does not prove that this one is over"] {
        assert!(log.contains(part), "{part:?} is not in {log}");
    }

    send(first.pid(), Signal::CONT);
    first.kill().await;
    copy.kill().await;
    brief.end().await;
}

#[tokio::test]
async fn a_nodes_own_folder_proves_at_once_what_ran_here_before() {
    let folder = TestFolder::new();
    let brief = Brief::start(&folder).await;
    let classes = classes_of(&folder, &[("beat", BEAT)]);
    let line = brief.agent(&folder, &classes, "first");
    let first = Launched::start(&folder, "first", "rota-node-agent", &line).await;
    let before = brief.opened("b", "beat").await;
    first.kill().await;
    let again = Launched::start(&folder, "again", "rota-node-agent", &line).await;
    let after = brief.opened("c", "beat").await;
    assert!(after.life > before.life);
    let log = std::fs::read_to_string(&again.log).unwrap();
    assert!(!log.contains("waiting until that boot is declared lost"), "{log}");
    assert_eq!(again.end().await, Some(0));
    brief.end().await;
}
