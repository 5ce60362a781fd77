//! The processes of one program: its group, and whatever left the group.

use rota_daemon::processes;
use rota_model::Exit;
use rustix::io::Errno;
use rustix::process::{Signal, WaitOptions, WaitStatus, getpid, wait};

/// The processes of a program whose parent is this process, a child subreaper: every one of them
/// is a child of this process, or has such a child among its ancestors.
pub struct Family {
    program: i32,
    /// How the program itself ended.
    exit: Option<Exit>,
    childless: bool,
    /// Seen empty after the program ended. From then on its number may name strangers, so it is
    /// never signalled again.
    group_gone: bool,
    strays_asked: bool,
}

impl Family {
    /// The family of that child, which leads its own group.
    pub fn new(program: i32) -> Self {
        Self { program, exit: None, childless: false, group_gone: false, strays_asked: false }
    }

    /// Takes the ends of all children that have ended.
    pub fn reap(&mut self) {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid.as_raw_pid() == self.program => {
                    self.exit = Some(exit_of(status));
                }
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => {
                    self.childless = false;
                    break;
                }
                Err(_) => {
                    self.childless = true;
                    break;
                }
            }
        }
        if self.exit.is_some() && !self.group_gone {
            self.group_gone = processes::group_is_gone(self.program);
        }
    }

    /// Whether the program itself ended; others may be left.
    pub fn program_ended(&self) -> bool {
        self.exit.is_some()
    }

    /// How the program ended, once nothing of it is left.
    pub fn gone(&self) -> Option<&Exit> {
        self.exit.as_ref().filter(|_| self.childless && self.group_gone)
    }

    /// Signals the group while it exists.
    pub fn signal_group(&self, signal: Signal) {
        if !self.group_gone {
            processes::signal_group(self.program, signal);
        }
    }

    /// Ends what left the group, once the group itself is gone: politely first. Only then, because
    /// finding them takes a look at every process of the machine.
    pub fn end_strays(&mut self, kill: bool) {
        if !self.group_gone || self.childless || (self.strays_asked && !kill) {
            return;
        }
        self.strays_asked = true;
        let me = getpid().as_raw_pid();
        let signal = if kill { Signal::KILL } else { Signal::TERM };
        // Children that were not reaped keep their pids, so no stranger is hit.
        for stray in processes::all().iter().filter(|it| it.parent == me) {
            stray.process.signal(signal);
        }
    }
}

fn exit_of(status: WaitStatus) -> Exit {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Exit::Code(code),
        (None, Some(signal)) => Exit::Signal(signal),
        (None, None) => Exit::Signal(Signal::KILL.as_raw()),
    }
}
