//! Processes of this machine that work for a test, as `/proc` tells of them.

use crate::condition::{PATIENCE, eventually};
use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;

/// A process: its pid, and when it started, since pids are used again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Process {
    /// Pid.
    pub pid: u32,
    /// Parent at the time of the look.
    pub parent: u32,
    /// Process group: each program of a session has one of its own.
    pub group: u32,
    /// Command line.
    pub line: Vec<String>,
    start_ticks: u64,
}

/// What is used of `/proc/PID/stat`.
struct Stat {
    parent: u32,
    group: u32,
    start_ticks: u64,
    /// Whether it is more than a zombie.
    runs: bool,
}

fn stat(pid: u32) -> Option<Stat> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything, also parentheses: the last one ends it.
    let (_, rest) = text.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let runs = !matches!(*fields.first()?, "Z" | "X" | "x");
    let number = |index: usize| fields.get(index)?.parse().ok();
    let start_ticks = fields.get(19)?.parse().ok()?;
    Some(Stat { parent: number(1)?, group: number(2)?, start_ticks, runs })
}

fn texts(pid: u32, file: &str) -> Vec<String> {
    let bytes = std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let parts = bytes.split(|byte| *byte == 0).filter(|part| !part.is_empty());
    parts.map(|part| String::from_utf8_lossy(part).into_owned()).collect()
}

/// The process with that pid, if it runs.
pub fn process(pid: u32) -> Option<Process> {
    let Stat { parent, group, start_ticks, runs } = stat(pid)?;
    let process = Process { pid, parent, group, line: texts(pid, "cmdline"), start_ticks };
    runs.then_some(process)
}

/// Every process that names the folder in its command line or in its environment: whatever a test
/// started in it, however far down, also what has lost its parent.
pub fn of_folder(folder: &Path) -> Vec<Process> {
    let folder = folder.to_str().expect("the path is UTF-8");
    let me = std::process::id();
    let entries = std::fs::read_dir("/proc").expect("this system has /proc").flatten();
    let pids = entries.filter_map(|it| it.file_name().to_str()?.parse().ok());
    let names = |pid: &u32| {
        ["cmdline", "environ"]
            .iter()
            .any(|file| texts(*pid, file).iter().any(|text| text.contains(folder)))
    };
    pids.filter(|pid| *pid != me).filter(names).filter_map(process).collect()
}

/// Waits until none of them runs: what they listened on is free then.
pub async fn gone(what: &str, processes: &[Process]) {
    eventually(what, PATIENCE, async || {
        let left: Vec<u32> = processes.iter().filter(|it| it.runs()).map(|it| it.pid).collect();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?} run")) }
    })
    .await;
}

impl Process {
    /// Whether exactly this process still runs.
    pub fn runs(&self) -> bool {
        stat(self.pid).is_some_and(|it| it.runs && it.start_ticks == self.start_ticks)
    }

    /// True for a keeper of a program.
    pub fn is_keeper(&self) -> bool {
        self.line.get(1).is_some_and(|it| it == "keeper")
    }

    /// True for a node-agent that serves.
    pub fn is_agent(&self) -> bool {
        let program = self.line.first().and_then(|it| it.rsplit('/').next());
        program == Some("rota-node-agent") && self.line.get(1).is_some_and(|it| it == "run")
    }

    /// The value of an option of its command line.
    pub fn option(&self, name: &str) -> Option<&str> {
        let at = self.line.iter().position(|it| it == name)?;
        self.line.get(at + 1).map(String::as_str)
    }

    /// The value of a variable of the environment that it was started with.
    pub fn variable(&self, name: &str) -> Option<String> {
        let texts = texts(self.pid, "environ").into_iter();
        texts.filter_map(|it| Some(it.strip_prefix(name)?.strip_prefix('=')?.to_owned())).next()
    }

    /// Sends a signal, unless the process is gone.
    pub fn signal(&self, signal: Signal) {
        if self.runs() {
            send(self.pid, signal);
        }
    }
}

/// Sends a signal to a pid that is known to be ours. One that is gone already needs none.
pub fn send(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let _gone_already = kill_process(pid.expect("a pid is a positive number"), signal);
}

/// Kills whatever works for the folder until nothing does. For the end of a failed test.
pub(crate) fn kill_all_of(folder: &Path) {
    // Each round finds what was started during the one before; a few hundred rounds are seconds.
    for _ in 0..500 {
        let left = of_folder(folder);
        if left.is_empty() {
            return;
        }
        left.iter().for_each(|it| it.signal(Signal::KILL));
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    eprintln!("some processes of {} cannot be killed", folder.display());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_found_and_a_strange_start_time_is_another_process() {
        let me = process(std::process::id()).unwrap();
        assert!(me.runs());
        assert!(!Process { start_ticks: me.start_ticks + 1, ..me }.runs());
    }

    /// Reads what never comes, and ends with this test: its input closes then.
    fn reader() -> std::process::Command {
        let mut command = std::process::Command::new("cat");
        command.arg("-").stdin(std::process::Stdio::piped());
        command
    }

    #[tokio::test]
    async fn a_process_is_found_by_the_folder_in_its_environment_and_by_that_in_its_command_line() {
        let folder = crate::TestFolder::new();
        let mut by_environment = reader().env("X", folder.at("a")).spawn().unwrap();
        let mut by_line = reader().arg(folder.at("b")).spawn().unwrap();
        // A process is not found while it becomes another program.
        crate::eventually("both are found", crate::PATIENCE, async || {
            let found = of_folder(folder.path());
            let is_found = |pid: u32| found.iter().any(|it| it.pid == pid);
            let both = is_found(by_environment.id()) && is_found(by_line.id());
            both.then_some(()).ok_or_else(|| format!("found: {found:?}"))
        })
        .await;
        kill_all_of(folder.path());
        assert_eq!(of_folder(folder.path()), vec![]);
        by_environment.wait().unwrap();
        by_line.wait().unwrap();
    }
}
