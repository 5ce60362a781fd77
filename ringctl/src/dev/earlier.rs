//! Processes of an earlier run in the same folder: they go on when its `ringctl dev` was killed.
//!
//! Each process that is started is written down in `processes.json` of the folder, with its start
//! time and the boot of the machine, so that a pid that was given to somebody else is never taken
//! for it. What managers or people started there is found by its command line. Keepers and programs
//! do not count: the next start of their node-agent ends them.

use super::consul;
use super::descendants::{command_line, signed};
use super::ending::is_agent;
use super::programs;
use anyhow::{Context, bail};
use rota_daemon::processes::{self, Process, machine_boot};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// A process that was started for the folder.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
struct Started {
    /// As in its log's file name.
    name: String,
    pid: u32,
    /// When it started, in the kernel's ticks since the boot.
    started: u64,
}

/// `processes.json`: what was started last in the folder. Most of it has usually ended.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default)]
struct Record {
    /// The kernel's name for the boot of the machine.
    boot_id: String,
    processes: Vec<Started>,
}

fn file(folder: &Path) -> PathBuf {
    folder.join("processes.json")
}

/// Nothing is known of a folder without a record, or with one that cannot be read.
fn read(folder: &Path) -> Record {
    let bytes = std::fs::read(file(folder)).unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or_default()
}

fn write(folder: &Path, record: &Record) -> anyhow::Result<()> {
    let beside = folder.join("processes.json.new");
    let written = std::fs::write(&beside, serde_json::to_vec_pretty(record)?)
        .and_then(|()| std::fs::rename(&beside, file(folder)));
    written.with_context(|| format!("cannot write {}", file(folder).display()))
}

/// Begins a record of this run.
pub fn begin(folder: &Path) -> anyhow::Result<()> {
    write(folder, &Record { boot_id: machine_boot(), processes: Vec::new() })
}

/// Adds a process that was just started. One that is gone already needs no record.
pub fn note(folder: &Path, name: &str, pid: u32) -> anyhow::Result<()> {
    let Some(process) = Process::of(signed(pid)) else { return Ok(()) };
    let mut record = read(folder);
    record.processes.push(Started { name: name.to_owned(), pid, started: process.start_ticks });
    write(folder, &record)
}

/// Refuses to go on while somebody works for the folder whose `ringctl dev` is gone.
pub fn refuse_running(folder: &Path) -> anyhow::Result<()> {
    let mut running = recorded(&read(folder), &machine_boot());
    running.extend(found(folder));
    running.sort_by_key(|it| it.1);
    running.dedup_by_key(|it| it.1);
    if running.is_empty() {
        return Ok(());
    }
    let named: Vec<String> =
        running.iter().map(|(name, pid)| format!("{name} (pid {pid})")).collect();
    let is_node = |pid: &u32| is_agent(&command_line(*pid));
    let (nodes, others): (Vec<u32>, Vec<u32>) = running.iter().map(|it| it.1).partition(is_node);
    bail!(
        "--data {}: processes that no `ringctl dev` looks after still run there: {}; {}",
        folder.display(),
        named.join(", "),
        how_to_end(&nodes, &others)
    )
}

/// The commands that end processes. Nodes sign off at managers, which must still run then.
fn how_to_end(nodes: &[u32], others: &[u32]) -> String {
    let kill = |pids: &[u32]| {
        let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
        format!("kill {}", pids.join(" "))
    };
    if nodes.is_empty() || others.is_empty() {
        let all = if nodes.is_empty() { others } else { nodes };
        return format!("this ends them:\n  {}", kill(all));
    }
    format!(
        "this ends the nodes, which sign off at their managers:\n  {}\nand this the others, once the \
         nodes have ended:\n  {}",
        kill(nodes),
        kill(others)
    )
}

/// Those of the record that run: the very same processes.
fn recorded(record: &Record, boot_id: &str) -> Vec<(String, u32)> {
    if record.boot_id != boot_id {
        return Vec::new();
    }
    let runs = |it: &&Started| Process { pid: signed(it.pid), start_ticks: it.started }.runs();
    record.processes.iter().filter(runs).map(|it| (it.name.clone(), it.pid)).collect()
}

/// Those that keep their data below the folder, by their command lines.
pub fn found(folder: &Path) -> Vec<(String, u32)> {
    let pids = processes::all().into_iter().filter_map(|it| u32::try_from(it.process.pid).ok());
    let name = |pid| works_in(folder, &folder_of(pid), &command_line(pid));
    pids.filter_map(|pid| Some((name(pid)?, pid))).collect()
}

/// Where a process stands: relative paths of its command line begin there. Empty when it is gone, or is
/// somebody else's.
fn folder_of(pid: u32) -> PathBuf {
    std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default()
}

/// The name of the program, if the command line, given in the folder `at`, is that of one of ours with
/// its data below `folder`.
fn works_in(folder: &Path, at: &Path, line: &[String]) -> Option<String> {
    let program = line.first()?.rsplit('/').next()?;
    let does = |what: &str| line.get(1).is_some_and(|it| it == what);
    let (serves, flag) = match program {
        programs::MANAGER | programs::CONFIG_STORE => (true, "--data"),
        programs::NODE_AGENT => (does("run"), "--data"),
        consul::PROGRAM => (does("agent"), "-data-dir"),
        _ => return None,
    };
    let data = value(line, flag)?;
    let data = at.join(data);
    // The folder is known without links and dots; of one that is gone the name has to do.
    let data = std::fs::canonicalize(&data).unwrap_or(data);
    (serves && data.starts_with(folder)).then(|| program.to_owned())
}

/// The value of a flag, as the next word or behind `=`.
fn value<'a>(line: &'a [String], flag: &str) -> Option<&'a str> {
    let behind = |word: &'a String| word.strip_prefix(flag)?.strip_prefix('=');
    line.iter().enumerate().find_map(|(at, word)| match behind(word) {
        None if word == flag => line.get(at + 1).map(String::as_str),
        found => found,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn a_process_of_the_record_is_named_with_the_command_that_ends_it() {
        let folder = tempfile::tempdir().unwrap();
        begin(folder.path()).unwrap();
        refuse_running(folder.path()).unwrap();
        let me = std::process::id();
        note(folder.path(), "m1", me).unwrap();
        let error = refuse_running(folder.path()).unwrap_err().to_string();
        assert!(error.contains(&format!("m1 (pid {me})")), "{error}");
        assert!(error.ends_with(&format!("kill {me}")), "{error}");
    }

    #[test]
    fn nodes_are_ended_before_the_managers_at_which_they_sign_off() {
        let told = how_to_end(&[7, 8], &[3, 9]);
        let commands: Vec<&str> = told.lines().filter(|it| it.starts_with("  kill")).collect();
        assert_eq!(commands, ["  kill 7 8", "  kill 3 9"], "{told}");
        assert_eq!(how_to_end(&[], &[3]), "this ends them:\n  kill 3");
        assert_eq!(how_to_end(&[7], &[]), "this ends them:\n  kill 7");
    }

    #[test]
    fn a_pid_that_was_given_to_another_process_is_not_taken_for_the_old_one() {
        let (me, boot) = (std::process::id(), machine_boot());
        let started = Process::of(signed(me)).unwrap().start_ticks;
        let record = |boot_id: &str, started| Record {
            boot_id: boot_id.to_owned(),
            processes: vec![Started { name: "m1".to_owned(), pid: me, started }],
        };
        assert_eq!(recorded(&record(&boot, started), &boot), [("m1".to_owned(), me)]);
        assert_eq!(recorded(&record(&boot, started + 1), &boot), []);
        assert_eq!(recorded(&record("another boot", started), &boot), []);
    }

    #[test]
    fn a_process_that_was_given_a_relative_folder_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        std::fs::create_dir_all(folder.join("nodes/n1")).unwrap();
        let dotted = line("rota-node-agent run --data ./nodes/../nodes/n1");
        assert!(works_in(&folder, &folder, &dotted).is_some());
        assert_eq!(folder_of(std::process::id()), std::env::current_dir().unwrap());
    }

    #[test]
    fn whoever_keeps_data_in_the_folder_is_found_and_keepers_and_neighbours_are_not() {
        let works = |text: &str| works_in(Path::new("/d/one"), Path::new("/d"), &line(text));
        let manager = works("/bin/rota-manager --number 4 --data /d/one/managers/m1");
        assert_eq!(manager.as_deref(), Some("rota-manager"));
        assert!(works("rota-node-agent run --id p --data /d/one/pool/p").is_some());
        assert!(works("rota-node-agent keeper --data /d/one/pool/p").is_none());
        assert!(works("rota-manager --data /d/one-more/managers/m1").is_none());
        assert!(works("tail --data /d/one/logs").is_none());
        assert!(works("rota-manager --data").is_none());
        assert!(works("rota-manager --data=/d/one/managers/m1 --number 4").is_some());
        assert!(works("rota-node-agent run --data one/nodes/n1").is_some());
        assert!(works("rota-node-agent run --data two/nodes/n1").is_none());
        let consul = works("/usr/local/bin/consul agent -server -data-dir /d/one/store -bind x");
        assert_eq!(consul.as_deref(), Some("consul"));
        assert!(works("consul agent -data-dir /d/two/store").is_none());
        assert!(works("consul members -data-dir /d/one/store").is_none());
    }
}
