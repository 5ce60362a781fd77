//! Programs whose keeper was killed. The agent is a child subreaper, so they become its children.

use crate::processes::{self, Process};
use rota_model::Exit;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, getpid, waitpgid, waitpid};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// In the environment of every program: its session's folder, which no two sessions share.
pub const FOLDER_VARIABLE: &str = "ROTA_FOLDER";

/// Kills the group, and whatever else carries the session's folder in its environment, and waits
/// until all of it is gone and reaped. Tells how the group's leader ended, if it was one.
pub async fn end(group: Option<i32>, folder: &Path, keepers: &Keepers) -> Option<Exit> {
    let mut exit = None;
    // Once seen gone, its number may name strangers.
    let mut group = group;
    let mut pause = Duration::from_millis(2);
    loop {
        if let Some(number) = group {
            processes::signal_group(number, Signal::KILL);
            // Looked at first: once nothing runs, this reaping takes the last of them.
            let idle = processes::group_is_idle(number);
            exit = exit.or(reap_group(number));
            group = Some(number).filter(|_| !idle);
        }
        let strays = strays(folder);
        strays.iter().for_each(|it| it.signal(Signal::KILL));
        if group.is_none() && strays.is_empty() {
            break;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(50));
    }
    reap_strays(keepers);
    exit
}

fn reap_group(group: i32) -> Option<Exit> {
    let group = Pid::from_raw(group)?;
    let mut leader = None;
    while let Ok(Some((pid, status))) = waitpgid(group, WaitOptions::NOHANG) {
        if pid == group {
            leader = exit_of(status);
        }
    }
    leader
}

fn exit_of(status: WaitStatus) -> Option<Exit> {
    let signal = status.terminating_signal().map(Exit::Signal);
    status.exit_status().map(Exit::Code).or(signal)
}

fn strays(folder: &Path) -> Vec<Process> {
    let Some(folder) = folder.to_str() else { return Vec::new() };
    let others = processes::all().into_iter().filter(|it| it.runs);
    let mut others: Vec<Process> = others.map(|it| it.process).collect();
    others.retain(|it| processes::has_variable(it.pid, FOLDER_VARIABLE, folder));
    others
}

/// Takes the status of every child that ended and is no keeper: a keeper is waited for by its link.
fn reap_strays(keepers: &Keepers) {
    let me = getpid().as_raw_pid();
    let zombies = processes::all().into_iter().filter(|it| it.parent == me && !it.runs);
    for zombie in zombies.filter(|it| !keepers.contain(it.process.pid)) {
        if let Some(pid) = Pid::from_raw(zombie.process.pid) {
            let _ = waitpid(Some(pid), WaitOptions::NOHANG);
        }
    }
}

/// Pids of the keepers that are not reaped yet.
#[derive(Clone, Default, Debug)]
pub struct Keepers {
    /// A lock because sessions have a task each; it is held for one change only.
    pids: Arc<Mutex<BTreeSet<i32>>>,
}

impl Keepers {
    /// A keeper was started.
    pub fn add(&self, pid: i32) {
        self.locked().insert(pid);
    }

    /// A keeper was reaped.
    pub fn remove(&self, pid: i32) {
        self.locked().remove(&pid);
    }

    fn contain(&self, pid: i32) -> bool {
        self.locked().contains(&pid)
    }

    fn locked(&self) -> MutexGuard<'_, BTreeSet<i32>> {
        self.pids.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
