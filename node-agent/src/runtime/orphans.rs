//! Programs whose keeper was killed. The agent is a child subreaper, so they become its children.

use rota_daemon::processes::{self, Process};
use rota_model::Exit;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, getpid, waitpgid, waitpid};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// In the environment of every program: its session's folder, which no two sessions share.
pub const FOLDER_VARIABLE: &str = "ROTA_FOLDER";

/// After this long with KILL the kernel does not end them (a broken disk, a debugger), as in
/// [`crate::leftovers`].
const GIVE_UP: Duration = Duration::from_secs(30);

/// Between two looks at what cannot be killed.
const STUCK_PAUSE: Duration = Duration::from_secs(5);

/// The pauses between two rounds of killing.
struct Pace {
    pause: Duration,
    stuck: bool,
}

impl Pace {
    const FIRST: Duration = Duration::from_millis(2);
    const MOST: Duration = Duration::from_millis(50);

    fn new() -> Self {
        Self { pause: Self::FIRST, stuck: false }
    }

    /// The next pause, `waited` after the first round. True, once, when killing has been in vain
    /// for too long.
    fn next(&mut self, waited: Duration) -> (Duration, bool) {
        if waited >= GIVE_UP {
            return (STUCK_PAUSE, !std::mem::replace(&mut self.stuck, true));
        }
        let pause = self.pause;
        self.pause = (pause * 2).min(Self::MOST);
        (pause, false)
    }
}

/// Kills the group, and whatever else carries the session's folder in its environment, and waits
/// until all of it is gone and reaped. Tells how the group's leader ended, if it was one.
///
/// What the kernel does not end within 30 s is given up and told as an error. From then on this
/// only looks from time to time: as long as something of the session may run, its end must not be
/// reported, for it would be opened a second time. Its place stays taken, a close of it stays
/// unfinished, and the next start of this node names the pids and refuses to register.
pub async fn end(group: Option<i32>, folder: &Path, keepers: &Keepers) -> Option<Exit> {
    let mut exit = None;
    // Once seen gone, its number may name strangers.
    let mut group = group;
    let (began, mut pace) = (Instant::now(), Pace::new());
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
        let (pause, gave_up) = pace.next(began.elapsed());
        if gave_up {
            let pids: Vec<i32> = strays.iter().map(|it| it.pid).collect();
            tracing::error!(?group, ?pids, folder = %folder.display(),
                "a session's processes cannot be killed; it counts as running until they are gone");
        }
        tokio::time::sleep(pause).await;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn killing_slows_down_and_is_given_up_once() {
        let mut pace = Pace::new();
        let pauses: Vec<u128> =
            (0..7).map(|_| pace.next(Duration::from_secs(1)).0.as_millis()).collect();
        assert_eq!(pauses, [2, 4, 8, 16, 32, 50, 50]);
        assert_eq!(pace.next(GIVE_UP), (STUCK_PAUSE, true));
        assert_eq!(pace.next(GIVE_UP * 2), (STUCK_PAUSE, false));
    }
}
