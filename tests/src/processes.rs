//! Processes of this machine that work for a test, as `/proc` tells of them.

use crate::condition::{PATIENCE, eventually};
use rota_daemon::processes as proc;
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
    itself: proc::Process,
}

fn signed(pid: u32) -> i32 {
    i32::try_from(pid).expect("a pid is a positive number")
}

/// The process with that pid, if it runs.
pub fn process(pid: u32) -> Option<Process> {
    of_stat(proc::stat(signed(pid))?)
}

fn of_stat(stat: proc::Stat) -> Option<Process> {
    let number = |it: i32| u32::try_from(it).ok();
    let itself = stat.process;
    let process = Process {
        pid: number(itself.pid)?,
        parent: number(stat.parent)?,
        group: number(stat.group)?,
        line: proc::command_line(itself.pid),
        itself,
    };
    stat.runs.then_some(process)
}

/// Every process that names the folder in its command line or in its environment: whatever a test
/// started in it, however far down, also what has lost its parent.
pub fn of_folder(folder: &Path) -> Vec<Process> {
    let folder = folder.to_str().expect("the path is UTF-8");
    let me = signed(std::process::id());
    let names = |stat: &proc::Stat| {
        let pid = stat.process.pid;
        let mut texts = proc::command_line(pid);
        texts.extend(proc::environment(pid));
        texts.iter().any(|text| text.contains(folder))
    };
    let others = proc::all().into_iter().filter(|it| it.process.pid != me);
    // It may have ended since.
    others.filter(names).filter_map(|it| of_stat(proc::stat(it.process.pid)?)).collect()
}

/// Waits until none of them runs: what they listened on is free then.
pub async fn gone(what: &str, processes: &[Process]) {
    eventually(what, PATIENCE, async || {
        let left: Vec<u32> = processes.iter().filter(|it| it.runs()).map(|it| it.pid).collect();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?} run")) }
    })
    .await;
}

/// Kills all of them at one moment, as a power cut does, and waits until they are gone. Killed one after
/// the other, the last would still see the end of the first, and might do something about it: so all
/// of them stand still before any is killed.
pub async fn cut_power(victims: &[Process]) {
    victims.iter().for_each(|it| it.signal(Signal::STOP));
    eventually("all of them stand still", PATIENCE, async || {
        let moving: Vec<u32> =
            victims.iter().filter(|it| it.runs() && !it.stands_still()).map(|it| it.pid).collect();
        if moving.is_empty() { Ok(()) } else { Err(format!("{moving:?} do not")) }
    })
    .await;
    victims.iter().for_each(|it| it.signal(Signal::KILL));
    gone("they are gone", victims).await;
}

impl Process {
    /// Whether no thread of it does anything, since it was stopped or has ended.
    fn stands_still(&self) -> bool {
        let Ok(threads) = std::fs::read_dir(format!("/proc/{}/task", self.pid)) else {
            return true;
        };
        let still = |text: String| {
            let state = text.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
            state.is_some_and(|it| "TZX".contains(it))
        };
        let mut lines = threads.flatten().map(|it| std::fs::read_to_string(it.path().join("stat")));
        // A thread that is gone by now does nothing either.
        lines.all(|it| it.map_or(true, still))
    }

    /// Whether exactly this process still runs.
    pub fn runs(&self) -> bool {
        self.itself.runs()
    }

    /// True for a keeper of a program.
    pub fn is_keeper(&self) -> bool {
        self.line.get(1).is_some_and(|it| it == "keeper")
    }

    /// True for what a keeper starts to become, or to hold, its program.
    pub fn is_between(&self) -> bool {
        let what = self.line.get(1).is_some_and(|it| it == "first" || it == "exec");
        what && self.line.first().is_some_and(|it| it == "rota-node-agent")
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
        let value = proc::variable(signed(self.pid), name)?;
        Some(String::from_utf8_lossy(&value).into_owned())
    }

    /// Sends a signal, unless the process is gone.
    pub fn signal(&self, signal: Signal) {
        self.itself.signal(signal);
    }
}

/// Sends a signal to a pid that is known to be ours. One that is gone already needs none.
pub fn send(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(signed(pid));
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
        let start_ticks = me.itself.start_ticks + 1;
        let other = Process { itself: proc::Process { start_ticks, ..me.itself }, ..me };
        assert!(!other.runs());
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

    #[tokio::test]
    async fn who_is_cut_off_from_power_does_not_see_the_end_of_others() {
        let folder = crate::TestFolder::new();
        // So many that the last would have time to see the end of the first.
        let mut children: Vec<_> = (0..30).map(|_| reader().spawn().unwrap()).collect();
        let mut watcher = std::process::Command::new("sh");
        let script = "echo >\"$0.begun\"; while [ -e /proc/$1/cwd ]; do :; done; echo >\"$0.seen\"";
        watcher.args(["-c", script, &folder.at("end"), &children[0].id().to_string()]);
        children.push(watcher.spawn().unwrap());
        let written = |name: &str| folder.path().join(name).exists();
        crate::eventually("it watches", crate::PATIENCE, async || {
            if written("end.begun") { Ok(()) } else { Err("it has not begun".to_owned()) }
        })
        .await;
        let victims: Vec<Process> = children.iter().map(|it| process(it.id()).unwrap()).collect();
        cut_power(&victims).await;
        assert!(!victims.iter().any(Process::runs) && !written("end.seen"));
        for mut child in children {
            child.wait().unwrap();
        }
    }
}
