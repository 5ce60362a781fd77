//! What an agent and a keeper say to each other: JSON, one value a line. The agent writes to the
//! keeper's standard input, first an [`Order`], then [`Command`]s; the keeper writes [`News`] to
//! its standard output. A later agent connects to [`SOCKET_FILE`], writes [`Command`]s and reads all [`News`] from
//! the first on.

use super::launch::Launch;
use crate::limits::Bounds;
use rota_daemon::processes::{self, Process};
use rota_model::{Exit, RequestId, SessionKey, SlotId, Token};
use rota_node::class::{KillMode, ProgramClass, StopSignal};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// Longest line that a keeper reads: attributes (64 KiB) may stand in it several times.
pub const LINE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// The file in a session's folder that tells a later agent whom to end.
pub const PIDS_FILE: &str = "pids.json";

/// The socket in a session's folder on which its keeper takes a later agent.
pub const SOCKET_FILE: &str = "keeper.sock";

/// The keeper's socket in that folder, by a path that is short enough for a socket however deep the folder is. It is
/// this process's own, and stands while the folder is open.
pub fn socket_in(folder: &fs::File) -> PathBuf {
    Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(SOCKET_FILE)
}

/// What to run, and how.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Order {
    /// Whose program it is, for the log.
    pub session: SessionKey,
    /// Which attempt, for the log.
    pub token: Token,
    /// The request that caused it, for the log.
    pub request: Option<RequestId>,
    /// The session's folder: pid file and output stand there.
    pub folder: PathBuf,
    /// Program and arguments; never a shell string.
    pub argv: Vec<String>,
    /// The whole environment.
    pub env: BTreeMap<String, String>,
    /// Working folder.
    pub cwd: PathBuf,
    /// Time until KILL when the program leaves processes behind, in milliseconds.
    pub grace_ms: u64,
    /// How it is asked to end.
    pub stop: Stop,
    /// The session's slot: the lease of that is its own.
    pub slot: SlotId,
    /// The node's lease file.
    pub lease: PathBuf,
    /// Most bytes kept of each of the two outputs.
    pub output_bytes_max: u64,
    /// While less is free of their disk, output is dropped.
    pub disk_reserve_bytes: u64,
    /// Tell when a line with this text is printed.
    pub ready_line: Option<String>,
    /// Pid of the agent. A keeper whose agent died before it was written down starts nothing.
    pub agent: i32,
    /// What its processes are bound by.
    pub bounds: Bounds,
    /// What it has of its own; `None`: it is the node's user.
    pub own: Option<Own>,
    /// A lease that goes further than so many milliseconds was not written by the node: no node's does.
    pub lease_ms_max: u64,
}

impl Order {
    /// What is started for it.
    pub fn launch(&self) -> Launch<'_> {
        let Self { argv, env, cwd, own, bounds, .. } = self;
        Launch { argv, env, cwd, own: *own, bounds, input: None }
    }
}

/// How a program is asked to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Stop {
    /// The signal's number.
    pub signal: i32,
    /// Whether the program alone gets it, and the rest of its group once it has ended.
    pub main_only: bool,
}

impl Stop {
    /// As a class says.
    pub fn of(class: &ProgramClass) -> Self {
        let signal = match class.stop_signal {
            StopSignal::Term => Signal::TERM,
            StopSignal::Int => Signal::INT,
            StopSignal::Quit => Signal::QUIT,
            StopSignal::Hup => Signal::HUP,
            StopSignal::Usr1 => Signal::USR1,
            StopSignal::Usr2 => Signal::USR2,
            StopSignal::Winch => Signal::WINCH,
        };
        let main_only = match class.kill_mode {
            KillMode::Group => false,
            KillMode::Main => true,
        };
        Self { signal: signal.as_raw(), main_only }
    }

    /// The signal; TERM for a number that is none.
    pub fn signal(self) -> Signal {
        Signal::from_named_raw(self.signal).unwrap_or(Signal::TERM)
    }

    /// Asks a program that leads its own group.
    pub fn ask(self, program: i32) {
        let Some(pid) = Pid::from_raw(program) else { return };
        // It may have ended.
        let _ = match self.main_only {
            true => kill_process(pid, self.signal()),
            false => kill_process_group(pid, self.signal()),
        };
    }
}

/// What a program has of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Own {
    /// Its uid and gid. No other session of the machine has it.
    pub user: u32,
    /// Whether it gets a pid namespace.
    pub pid_namespace: bool,
}

/// What an agent may still say.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// End the program: its stop signal now, KILL after `grace_ms`. A later one may only shorten the time.
    Stop {
        /// Milliseconds.
        grace_ms: u64,
    },
    /// A later agent says how long its lease goes on at most: what goes further was not written by the node.
    Lease {
        /// Milliseconds.
        ms_max: u64,
    },
}

/// Why a program's processes were ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The program ended on its own.
    Own,
    /// The agent asked for it.
    Stop,
    /// The node's lease passed.
    Lease,
}

/// What a keeper tells.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum News {
    /// The program runs.
    Started {
        /// Pid of the program, or of the first process of its namespace. It leads a process group of
        /// this number.
        pid: i32,
    },
    /// The program could not be started; nothing runs. The keeper ends.
    Failed {
        /// Why.
        detail: String,
    },
    /// The line that was waited for was printed.
    ReadyLine,
    /// The program ended, and no process of its group, and none that it left behind, exists any
    /// more. The keeper ends.
    Ended {
        /// How the program itself ended.
        exit: Exit,
        /// Who began it.
        cause: Cause,
    },
}

/// Content of [`PIDS_FILE`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Pids {
    /// The boot of the machine and the pid namespace in which these pids mean something.
    pub machine_boot: String,
    /// The keeper.
    pub keeper: Process,
    /// The program, or the first process of its namespace, once it was started.
    pub program: Option<Process>,
    /// The session's own uid, from before the program is started: every process of it is the session's.
    pub user: Option<u32>,
    /// The session's slot: the lease of that is its own.
    pub slot: SlotId,
}

impl Pids {
    /// This process as keeper of a session in that slot, with that uid, without a program yet. `None` where there is no
    /// `/proc`.
    pub fn of_this_keeper(slot: SlotId, user: Option<u32>) -> Option<Self> {
        let keeper = Process::of(i32::try_from(std::process::id()).ok()?)?;
        Some(Self { machine_boot: processes::machine_boot(), keeper, program: None, user, slot })
    }

    /// Replaces the file in one step.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        let fresh = folder.join("pids.new");
        fs::write(&fresh, serde_json::to_vec(self)?)?;
        fs::rename(&fresh, folder.join(PIDS_FILE))
    }

    /// What the file of a session's folder holds; `None` without a file.
    pub fn read(folder: &Path) -> io::Result<Option<Self>> {
        match fs::read(folder.join(PIDS_FILE)) {
            Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}
