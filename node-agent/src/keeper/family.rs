//! The processes of one program: its group and whatever left the group, or its namespace.

use super::first::First;
use super::order::Stop;
use rota_daemon::processes;
use rota_model::Exit;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process, wait};
use std::os::fd::BorrowedFd;

/// The processes of a program whose parent is this process, a child subreaper: every one of them
/// is a child of this process, or has such a child among its ancestors.
pub struct Family {
    /// The program, or the first process of its namespace.
    leader: i32,
    /// The other end of that first process.
    first: Option<First>,
    /// How the program itself ended.
    exit: Option<Exit>,
    childless: bool,
    /// Seen empty after the program ended. From then on its number may name strangers, so it is
    /// never signalled again. With a namespace: its first process was reaped.
    group_gone: bool,
    strays_asked: bool,
    stop: Stop,
    rest_asked: bool,
}

impl Family {
    /// The family of that child, which leads its own group.
    pub fn new(leader: i32, first: Option<First>, stop: Stop) -> Self {
        Self {
            leader,
            first,
            exit: None,
            childless: false,
            group_gone: false,
            strays_asked: false,
            stop,
            rest_asked: false,
        }
    }

    /// Readable when the first process of the namespace has told something.
    pub fn news(&self) -> Option<BorrowedFd<'_>> {
        self.first.as_ref()?.fd()
    }

    /// Takes what the first process told.
    pub fn hear(&mut self) {
        let told = self.first.as_mut().and_then(First::hear);
        self.exit = self.exit.take().or(told);
    }

    /// Takes the ends of all children that have ended.
    pub fn reap(&mut self) {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid.as_raw_pid() == self.leader => {
                    // What it told is truer: a first process ends after the program, and differently.
                    self.hear();
                    self.exit.get_or_insert(exit_of(status).unwrap_or(KILLED));
                    self.group_gone |= self.first.is_some();
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
        if self.exit.is_some() && !self.group_gone && self.first.is_none() {
            self.group_gone = processes::group_is_gone(self.leader);
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

    /// Asks the program, or its group, to end; of a program that has ended, what is left of the group.
    pub fn ask(&mut self) {
        match &mut self.first {
            Some(first) => first.ask_to_end(self.stop),
            None if self.group_gone => {}
            None if self.exit.is_some() => self.ask_rest(),
            None => self.stop.ask(self.leader),
        }
    }

    /// Once the program has ended: asks what is left of its group, if only the program was asked before. In
    /// a namespace its first process does that.
    pub fn ask_rest(&mut self) {
        let was_asked = std::mem::replace(&mut self.rest_asked, true);
        if !was_asked && !self.group_gone && self.first.is_none() {
            processes::signal_group(self.leader, self.stop.signal());
        }
    }

    /// Kills the group while it exists; with a namespace, all that is in it.
    pub fn kill(&self) {
        if self.group_gone {
            return;
        }
        if self.first.is_none() {
            return processes::signal_group(self.leader, Signal::KILL);
        }
        // Not reaped yet, so the number is still its own.
        if let Some(first) = Pid::from_raw(self.leader) {
            let _ = kill_process(first, Signal::KILL);
        }
    }

    /// Ends what left the group, once the group itself is gone: politely first. Only then, because
    /// finding them takes a look at every process of the machine. In a namespace its first process
    /// does that.
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

/// How whatever ended counts as ended when the kernel tells nothing of it.
pub const KILLED: Exit = Exit::Signal(Signal::KILL.as_raw());

/// How a child ended that was waited for; `None` when it did not end.
pub fn exit_of(status: WaitStatus) -> Option<Exit> {
    let signal = status.terminating_signal().map(Exit::Signal);
    status.exit_status().map(Exit::Code).or(signal)
}
