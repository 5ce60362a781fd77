//! What an earlier run of the same data folder left running here, ended before a new boot registers; but for those
//! sessions with which this agent goes on. What runs under another kernel or in another pid namespace is out of reach:
//! [`crate::boots`] counts with that.

use crate::keeper::order::{PIDS_FILE, Pids};
use crate::runtime::FOLDER_VARIABLE;
use crate::session_folders;
use anyhow::{Context, bail};
use rota_daemon::processes::{self, Process, Stat};
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
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

/// The first argument of a guardian.
const GUARDIAN: &str = "guardian";

/// What was found and ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ended {
    /// Sessions with a keeper or program that still ran.
    pub sessions: usize,
}

/// Ends every keeper and program that an earlier run left, and waits until they are gone. Blocks. What belongs to
/// the sessions of the folders in `spare` is left alone, and then guardians are as well: one of these leaves when
/// that of this agent is there.
pub fn end_all(data: &Path, spare: &BTreeSet<PathBuf>) -> anyhow::Result<Ended> {
    let (spared, folders): (Vec<PathBuf>, Vec<PathBuf>) =
        folders_of(data)?.into_iter().partition(|it| spare.contains(it));
    let spared = Spared::of(spared);
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
    wait_until_gone(data, &left, &spared)?;
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

fn wait_until_gone(data: &Path, left: &[Pids], spared: &Spared) -> anyhow::Result<()> {
    let began = Instant::now();
    let mut asked = false;
    let mut pause = Duration::from_millis(5);
    loop {
        let all = processes::all();
        let mut running = marked(data, &all);
        left.iter().for_each(|it| running.extend(running_of(it, &all)));
        spared.leave_out(&mut running, &all);
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

/// What stays.
struct Spared {
    folders: Vec<PathBuf>,
    pids: Vec<Pids>,
}

impl Spared {
    fn of(folders: Vec<PathBuf>) -> Self {
        let boot = processes::machine_boot();
        let pids = folders.iter().filter_map(|it| Pids::read(it).ok().flatten());
        let pids = pids.filter(|it| it.machine_boot == boot).collect();
        Self { folders, pids }
    }

    /// Leaves those processes in `running` that do not stay.
    fn leave_out(&self, running: &mut Vec<Process>, all: &[Stat]) {
        if self.folders.is_empty() || running.is_empty() {
            return;
        }
        let written = self.pids.iter().flat_map(|it| [Some(it.keeper), it.program]).flatten();
        let mut theirs: BTreeSet<i32> = BTreeSet::new();
        for process in written.filter(|it| it.runs()) {
            theirs.insert(process.pid);
            let below = processes::descendants_among(all, process.pid, |_| false);
            theirs.extend(below.iter().map(|it| it.pid));
        }
        let users: BTreeSet<u32> = self.pids.iter().filter_map(|it| it.user).collect();
        // Only of those few is anything read that stands in files of their own.
        let has_their_user = |pid: i32| processes::user(pid).is_some_and(|it| users.contains(&it));
        let is_in_theirs = |pid: i32| {
            let folder = processes::variable(pid, FOLDER_VARIABLE);
            folder.is_some_and(|it| self.folders.iter().any(|own| own.as_os_str().as_bytes() == it))
        };
        running.retain(|process| {
            let stays = theirs.contains(&process.pid) || has_their_user(process.pid);
            !stays && !is_in_theirs(process.pid) && !is_guardian(process.pid)
        });
    }
}

/// By its command line, which everybody may read. No guardian is of a session.
fn is_guardian(pid: i32) -> bool {
    let line = processes::command_line(pid);
    let is_called_so = line.first().is_some_and(|it| it == "rota-node-agent")
        && line.get(1).is_some_and(|it| it == GUARDIAN);
    is_called_so && processes::variable(pid, FOLDER_VARIABLE).is_none()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session_folders::of_attempt;
    use rota_model::{Namespace, SessionId, SessionKey, SlotId, Stamp};
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command};

    /// A process that is ended with this value.
    struct Left(Child);

    impl Left {
        /// `marks` are variables.
        fn start(marks: &[(&str, &Path)]) -> Self {
            let mut command = Command::new("sleep");
            command.arg("1000").env_clear().envs(marks.iter().copied()).process_group(0);
            Self(command.spawn().unwrap())
        }

        fn process(&self) -> Process {
            Process::of(i32::try_from(self.0.id()).unwrap()).unwrap()
        }

        fn runs(&self) -> bool {
            self.process().runs()
        }
    }

    impl Drop for Left {
        fn drop(&mut self) {
            drop(self.0.kill());
            drop(self.0.wait());
        }
    }

    fn folder(data: &Path, id: &str) -> PathBuf {
        let key = SessionKey::new(Namespace::default_space(), SessionId::parse(id).unwrap());
        let folder = of_attempt(&data.join("sessions"), &key, Stamp::MIN, 1);
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn what_is_spared_stays_with_its_pid_file_and_all_else_ends() {
        let data = tempfile::tempdir().unwrap();
        let data = data.path();
        let [one, two] = ["one", "two"].map(|id| folder(data, id));
        // Their environments tell nothing, as those of keepers that only root may read.
        let keeper = |folder: &Path| {
            let keeper = Left::start(&[]);
            let pids = Pids {
                machine_boot: processes::machine_boot(),
                keeper: keeper.process(),
                program: None,
                user: None,
                slot: SlotId(1),
            };
            pids.write(folder).unwrap();
            keeper
        };
        let (of_one, of_two) = (keeper(&one), keeper(&two));
        let marked = Left::start(&[(DATA_VARIABLE, data), (FOLDER_VARIABLE, &one)]);
        let ended = end_all(data, &BTreeSet::from([one.clone()])).unwrap();
        assert_eq!(ended.sessions, 1);
        assert!(of_one.runs() && marked.runs() && one.join(PIDS_FILE).exists());
        assert!(!of_two.runs() && !two.join(PIDS_FILE).exists());
        drop(marked);
        end_all(data, &BTreeSet::new()).unwrap();
        assert!(!of_one.runs() && !one.join(PIDS_FILE).exists());
    }
}
