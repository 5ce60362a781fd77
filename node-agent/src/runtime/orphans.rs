//! Programs whose keeper was killed. The agent is a child subreaper, so they become its children: whoever
//! descends from it and is neither keeper nor guardian, nor belongs to one, is a stray. What has a user
//! of its own is found by that as well, wherever it is.
//!
//! What an adopted keeper leaves goes to another process than the agent. It is found by its group, its user, its
//! environment and its control groups, and, when the agent kills the keeper itself, by a look before that. What
//! has none of these and outlives a keeper that somebody else killed is found by nobody.

use crate::keeper::exit_of;
use rota_daemon::processes::{self, Process};
use rota_model::Exit;
use rustix::process::{Pid, Signal, WaitOptions, getpid, waitpgid, waitpid};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
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

/// What is left of a session whose keeper is gone.
pub struct Left<'a> {
    /// The group that its keeper started.
    pub group: Option<i32>,
    /// Its own uid.
    pub user: Option<u32>,
    /// Its folder.
    pub folder: &'a Path,
    /// Its control groups.
    pub groups: &'a [PathBuf],
    /// What was seen below its keeper.
    pub seen: &'a [Process],
}

impl Left<'_> {
    fn has(&self, pid: i32) -> bool {
        let folder = self.folder.to_str().unwrap_or_default();
        self.user.is_some_and(|user| processes::user(pid) == Some(user))
            || processes::has_variable(pid, FOLDER_VARIABLE, folder)
    }

    /// Whether a process of the session runs, as its user, its environment or its control groups tell.
    pub fn is_there(&self) -> bool {
        let held = pids_in(self.groups);
        let is_its = |pid: i32| held.contains(&pid) || self.has(pid);
        processes::all().iter().any(|it| it.runs && is_its(it.process.pid))
    }

    /// Whether a process of the session is in that group. Then its number names no strangers.
    pub fn is_in(&self, group: i32) -> bool {
        let all = processes::all();
        all.iter().any(|it| it.runs && it.group == group && self.has(it.process.pid))
    }
}

/// Kills the group and every stray, and waits until all of it is gone and reaped. Tells how the group's
/// leader ended, if it was one.
///
/// What the kernel does not end within 30 s is given up and told as an error. From then on this
/// only looks from time to time: as long as something of the session may run, its end must not be
/// reported, for it would be opened a second time. Its place stays taken, a close of it stays
/// unfinished, and the next start of this node names the pids and refuses to register.
pub async fn end(left: Left<'_>, keepers: &Keepers) -> Option<Exit> {
    let Left { mut group, folder, .. } = left;
    let mut exit = None;
    // A look at all processes takes its time, and one may slip through it by forking. The second look
    // that finds nothing is believed.
    let mut empty_looks = 0;
    let (began, mut pace) = (Instant::now(), Pace::new());
    loop {
        if let Some(number) = group {
            processes::signal_group(number, Signal::KILL);
            // Looked at first: once nothing runs, this reaping takes the last of them.
            let idle = processes::group_is_idle(number);
            exit = exit.or(reap_group(number));
            // Once seen gone, its number may name strangers.
            group = Some(number).filter(|_| !idle);
        }
        let strays = strays(&left, keepers);
        strays.iter().for_each(|it| it.signal(Signal::KILL));
        empty_looks = if group.is_none() && strays.is_empty() { empty_looks + 1 } else { 0 };
        if empty_looks == 2 {
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

fn strays(left: &Left<'_>, keepers: &Keepers) -> Vec<Process> {
    let all = processes::all();
    let me = getpid().as_raw_pid();
    // A stray of another session is one all the same, and its end waits for it too.
    let mut found = processes::descendants_among(&all, me, |it| keepers.contain(it.process.pid));
    let runs = all.iter().filter(|it| it.runs);
    let below = left.seen.iter().filter(|it| it.runs());
    let below = below.flat_map(|it| processes::descendants_among(&all, it.pid, |_| false));
    let below: Vec<Process> = below.collect();
    let held = pids_in(left.groups);
    for other in runs.map(|it| it.process) {
        let is_its = held.contains(&other.pid)
            || left.seen.contains(&other)
            || below.contains(&other)
            || left.has(other.pid);
        if is_its && !found.contains(&other) {
            found.push(other);
        }
    }
    found
}

/// Who is in these control groups.
fn pids_in(groups: &[PathBuf]) -> BTreeSet<i32> {
    let read = |group: &PathBuf| fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    let texts: Vec<String> = groups.iter().map(read).collect();
    texts.iter().flat_map(|it| it.lines()).filter_map(|it| it.parse().ok()).collect()
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

/// Pids of the keepers that are not reaped yet, and of those that an earlier agent started.
#[derive(Clone, Default, Debug)]
pub struct Keepers {
    /// A lock because sessions have a task each; it is held for one change only.
    pids: Arc<Mutex<BTreeSet<i32>>>,
}

impl Keepers {
    /// A keeper was started, or adopted.
    pub fn add(&self, pid: i32) {
        self.locked().insert(pid);
    }

    /// A keeper was reaped, or seen to end.
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
