//! One session that a guardian looks after.

use crate::keeper::order::{PIDS_FILE, Pids};
use crate::lease::{Leases, boottime_ms};
use crate::runtime::FOLDER_VARIABLE;
use rota_daemon::processes::{self, Process, Stat};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// One look at every process of the machine, for all sessions.
pub struct Look {
    all: Vec<Stat>,
    carriers: Vec<Carrier>,
}

/// What tells whose a process is.
struct Carrier {
    process: Process,
    group: i32,
    user: Option<u32>,
    /// The session's folder, as its environment has it.
    folder: Option<Vec<u8>>,
}

impl Look {
    /// Now.
    pub fn now() -> Self {
        let all = processes::all();
        let carrier = |stat: &Stat| Carrier {
            process: stat.process,
            group: stat.group,
            user: processes::user(stat.process.pid),
            folder: processes::variable(stat.process.pid, FOLDER_VARIABLE),
        };
        let carriers = all.iter().filter(|it| it.runs).map(carrier).collect();
        Self { all, carriers }
    }
}

/// A session with a pid file: its keeper has not said that nothing of it is left.
pub struct Ward {
    folder: PathBuf,
    pids: Pids,
    /// Readable when the keeper ends; `None` once it has.
    keeper: Option<OwnedFd>,
    /// The number of the program's group names no strangers: its keeper ran at the first look, and
    /// held it, or something of the session was seen in it. Until the group is gone.
    group_is_ours: bool,
    /// Rounds of killing so far; `None` while its keeper looks after it.
    rounds: Option<u32>,
}

impl Ward {
    /// The session of that folder; `None` when it has ended, or ran before the machine's boot.
    pub fn of(folder: PathBuf) -> Option<Self> {
        let pids = read(&folder)?;
        let pid = Pid::from_raw(pids.keeper.pid)?;
        let keeper = pidfd_open(pid, PidfdFlags::empty()).ok();
        // Looked at after it is held: before that the pid could have become somebody else's.
        let keeper = keeper.filter(|_| pids.keeper.runs());
        let group_is_ours = keeper.is_some();
        Some(Self { folder, pids, keeper, group_is_ours, rounds: None })
    }

    /// The keeper, while it runs.
    pub fn keeper(&self) -> Option<&OwnedFd> {
        self.keeper.as_ref()
    }

    /// The keeper was seen to end.
    pub fn keeper_ended(&mut self) {
        self.keeper = None;
    }

    /// When the lease of its slot is over.
    pub fn kill_at_ms(&self, leases: &Leases) -> u64 {
        leases.of(self.pids.slot).map_or(0, |it| it.kill_at_ms)
    }

    /// From here on it is to be ended here if the keeper is gone, or the lease.
    pub fn look(&mut self, leases: &Leases) {
        let is_over = boottime_ms() >= self.kill_at_ms(leases);
        if self.rounds.is_none() && (is_over || self.keeper.is_none()) {
            self.rounds = Some(0);
            let (folder, keeper_gone) = (self.folder.display(), self.keeper.is_none());
            tracing::warn!(%folder, keeper_gone, lease_over = is_over, "killing what is left of a session");
            // The program may have been written down only after the first look.
            if let Some(pids) = read(&self.folder) {
                self.pids = pids;
            }
        }
    }

    /// The keeper ended it: such a keeper removes the pid file, and ends.
    pub fn has_ended(&self) -> bool {
        self.keeper.is_none() && !self.pid_file().exists()
    }

    /// Whether it is being ended here.
    pub fn is_ending(&self) -> bool {
        self.rounds.is_some()
    }

    /// One round of killing, if it is to be ended here. True once nothing of it was left.
    pub fn end(&mut self, look: &Look) -> bool {
        let Some(rounds) = self.rounds else { return false };
        self.rounds = Some(rounds.saturating_add(1));
        let strays = self.strays(look);
        let group_gone = self.end_group(&strays);
        strays.iter().for_each(|it| it.process.signal(Signal::KILL));
        let keeper_gone = self.keeper.is_none();
        // In the first round it may still see the program's end, and keep its last words.
        if !keeper_gone && rounds > 0 {
            self.pids.keeper.signal(Signal::KILL);
        }
        let gone = group_gone && strays.is_empty() && keeper_gone;
        if gone {
            tracing::info!(folder = %self.folder.display(), rounds, "nothing is left of it");
            super::forget(&self.pid_file());
        }
        gone
    }

    /// What belongs to the session: by its user, by the environment, or since its keeper or its program
    /// started it. That keeper is not among them.
    fn strays<'a>(&self, look: &'a Look) -> Vec<&'a Carrier> {
        let folder = self.folder.as_os_str().as_encoded_bytes();
        let ancestors = [Some(self.pids.keeper), self.pids.program].into_iter().flatten();
        let ancestors = ancestors.filter(|it| it.runs());
        let below: Vec<Process> = ancestors
            .flat_map(|it| processes::descendants_among(&look.all, it.pid, |_| false))
            .collect();
        let is_its = |carrier: &&Carrier| {
            carrier.folder.as_deref() == Some(folder)
                || (carrier.user.is_some() && carrier.user == self.pids.user)
                || below.contains(&carrier.process)
        };
        look.carriers.iter().filter(is_its).collect()
    }

    /// Kills the program's group, also what is there without the environment. True once it was seen
    /// without a running process, or is not known to be this session's.
    fn end_group(&mut self, strays: &[&Carrier]) -> bool {
        let Some(program) = self.pids.program else { return true };
        let group = program.pid;
        self.group_is_ours |= program.runs() || strays.iter().any(|it| it.group == group);
        if self.group_is_ours {
            // Looked at first: what is idle now needs no signal, and never gets one again.
            self.group_is_ours = !processes::group_is_idle(group);
        }
        if self.group_is_ours {
            processes::signal_group(group, Signal::KILL);
        }
        !self.group_is_ours
    }

    fn pid_file(&self) -> PathBuf {
        self.folder.join(PIDS_FILE)
    }
}

/// Pids that mean something in this boot of the machine.
fn read(folder: &Path) -> Option<Pids> {
    let pids = Pids::read(folder).ok()??;
    (pids.machine_boot == processes::machine_boot()).then_some(pids)
}
