//! What an earlier run of the same data folder left running here, ended before a new boot registers. What
//! runs under another kernel or in another pid namespace is out of reach: [`crate::boots`] counts with that.

use crate::keeper::order::{PIDS_FILE, Pids};
use crate::session_folders;
use anyhow::{Context, bail};
use rota_daemon::processes::{self, Process, Stat};
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// In the environment of every keeper, program and guardian: the data folder of its node. It finds what was
/// not written down, where it can be read: a program may clear it, and of keepers and guardians only root sees
/// it. What must not be missed is found by its user, and a keeper ends by itself without its agent.
pub const DATA_VARIABLE: &str = "ROTA_NODE_DATA";

/// Time between TERM and KILL. Short: the sessions are lost already, and the node takes no others
/// before they are gone.
const GRACE: Duration = Duration::from_secs(2);

/// After this long with KILL the kernel does not end them (a broken disk, a debugger).
const GIVE_UP: Duration = Duration::from_secs(30);

/// What was found and ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ended {
    /// Sessions with a keeper or program that still ran.
    pub sessions: usize,
}

/// Ends every keeper and program that an earlier run left, and waits until they are gone. Blocks.
pub fn end_all(data: &Path) -> anyhow::Result<Ended> {
    let folders = folders_of(data)?;
    let mut left = Vec::new();
    let boot = processes::machine_boot();
    for folder in &folders {
        // Half a file cannot be there: it is renamed into place. What cannot be read is found by
        // its environment.
        if let Ok(Some(pids)) = Pids::read(folder)
            && pids.machine_boot == boot
        {
            left.push(pids);
        }
    }
    let sessions = left.iter().filter(|pids| !running_of(pids, &processes::all()).is_empty());
    let ended = Ended { sessions: sessions.count() };
    wait_until_gone(data, &left)?;
    for folder in &folders {
        let file = folder.join(PIDS_FILE);
        // Who is of another boot of the machine, or another pid namespace, cannot be seen from here.
        let is_elsewhere =
            matches!(Pids::read(folder), Ok(Some(pids)) if pids.machine_boot != boot);
        if file.exists() && !is_elsewhere {
            fs::remove_file(&file).with_context(|| format!("cannot remove {}", file.display()))?;
        }
    }
    Ok(ended)
}

/// The folders of all sessions that a data folder has.
pub fn folders_of(data: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let sessions = data.join("sessions");
    session_folders::all(&sessions).with_context(|| format!("cannot read {}", sessions.display()))
}

fn wait_until_gone(data: &Path, left: &[Pids]) -> anyhow::Result<()> {
    let began = Instant::now();
    let mut asked = false;
    let mut pause = Duration::from_millis(5);
    loop {
        let all = processes::all();
        let mut running = marked(data, &all);
        left.iter().for_each(|it| running.extend(running_of(it, &all)));
        if running.is_empty() {
            return Ok(());
        }
        let waited = began.elapsed();
        if waited > GIVE_UP {
            let list: Vec<String> = running.iter().map(|it| it.pid.to_string()).collect();
            bail!("processes of an earlier run cannot be ended: pids {}", list.join(", "));
        }
        if waited > GRACE {
            signal_groups(left, Signal::KILL);
            running.iter().for_each(|it| it.signal(Signal::KILL));
        } else if !asked {
            asked = true;
            signal_groups(left, Signal::TERM);
            // The first process of a namespace takes no TERM, and its program is in another group.
            let users: BTreeSet<u32> = left.iter().filter_map(|it| it.user).collect();
            let is_ours =
                |it: &&Process| processes::user(it.pid).is_some_and(|user| users.contains(&user));
            running.iter().filter(is_ours).for_each(|it| it.signal(Signal::TERM));
            // A keeper ends when its program has; a keeper that still starts one has to be killed,
            // and its program dies with it.
            let keepers = left.iter().filter(|it| it.program.is_none());
            keepers.for_each(|it| it.keeper.signal(Signal::KILL));
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(100));
    }
}

/// A group is signalled only while its leader is the very process that was written down, or is
/// still held by its keeper; then its number cannot have been used again.
fn signal_groups(left: &[Pids], signal: Signal) {
    for pids in left {
        if let Some(program) = pids.program
            && (program.runs() || pids.keeper.runs())
        {
            processes::signal_group(program.pid, signal);
        }
    }
}

/// What runs of a session: its keeper, its program, what descends from them, and every process of its
/// user.
fn running_of(pids: &Pids, all: &[Stat]) -> Vec<Process> {
    let written = [Some(pids.keeper), pids.program].into_iter().flatten();
    let mut running: Vec<Process> = written.filter(|it| it.runs()).collect();
    for ancestor in running.clone() {
        running.extend(processes::descendants_among(all, ancestor.pid, |_| false));
    }
    if let Some(user) = pids.user {
        let others = all.iter().filter(|it| it.runs).map(|it| it.process);
        running.extend(others.filter(|it| processes::user(it.pid) == Some(user)));
    }
    running
}

/// Every process of this data folder by its environment, except this one.
fn marked(data: &Path, all: &[Stat]) -> Vec<Process> {
    let Some(data) = data.to_str() else { return Vec::new() };
    let me = i32::try_from(std::process::id()).ok();
    let others = all.iter().filter(|it| it.runs && Some(it.process.pid) != me);
    others
        .map(|it| it.process)
        .filter(|it| processes::has_variable(it.pid, DATA_VARIABLE, data))
        .collect()
}
