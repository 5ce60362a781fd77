//! The keeper: one small process per program session, single-threaded, without a runtime.
//!
//! ```text
//!  agent ── Order, Stop ──▶ stdin ┌────────┐ ◀── pidfd ─────── program (own process group)
//!        ◀── News ──────── stdout │ keeper │ ◀── outputs ───── ..
//!  a later agent ◀─▶ keeper.sock  │        │ ── asks, kills ─▶ the program, its group
//!  lease file ── re-read when ──▶ └────────┘ ── News ────────▶ file of news
//!                 it runs out
//! ```
//!
//! It outlives its agent: a later agent of the same folder may connect and go on with it ([`link`]). Without an
//! agent nobody renews the lease, and the keeper ends the program when the lease has passed. The program does not outlive the keeper: see [`launch`].
//! As a child subreaper the keeper inherits whatever the program leaves behind, also processes that
//! moved to another group, so "ended" means that nothing of the program is left. A program in a pid
//! namespace leaves that to the namespace's first process, and the kernel ends it all: see [`first`].

mod capture;
mod family;
mod first;
mod launch;
mod link;
pub mod news_file;
pub mod once;
pub mod order;

pub use family::exit_of;
pub use first::run as run_first;
pub use launch::become_program;

use crate::clean;
use crate::lease::{Lease, boottime_ms};
use capture::{Bounds, Capture};
use family::Family;
use launch::Launched;
use link::Link;
use order::{Cause, Command, News, Order, PIDS_FILE, Pids};
use rota_daemon::processes::Process;
use rota_model::{Exit, RequestId, SlotId};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use std::fs;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::{ChildStderr, ChildStdout};

/// Shortest and longest pause between two looks at processes that are being ended and whose end
/// nothing announces.
const LOOK_MS: (u64, u64) = (2, 50);

/// A pipe holds at most 1 MiB, and a read takes up to 64 KiB; more than this comes only from a
/// writer that still lives, and there is none.
const OUTPUT_READS_MAX: usize = 64;

/// Runs a keeper to its end. An error means that there was no usable order or no kernel support;
/// then nothing was started.
pub fn run() -> anyhow::Result<()> {
    // Readable in process lists; without it every keeper is called "exe".
    let _ = rustix::thread::set_name(c"rota-keeper");
    clean::shut_memory();
    let mut link = Link::of_standard_streams()?;
    let order: Order = match link.first() {
        Ok(order) => order,
        Err(error) => {
            link.tell(&News::Failed { detail: error.to_string() });
            return Err(error);
        }
    };
    let request = order.request.as_ref().map_or("", RequestId::as_str);
    let (session, token) = (&order.session, order.token);
    let span = tracing::info_span!("keeper", %session, %token, request);
    let _in_span = span.enter();
    if let Err(detail) = keep(&order, &mut link) {
        tracing::info!(%detail, "not started");
        link.tell(&News::Failed { detail });
    }
    link.close(&order.folder);
    // Last: until then a later agent finds this keeper, and from then on what it told. What could not be written down
    // must not look as if nothing had run.
    if link.has_written_all() {
        drop(fs::remove_file(order.folder.join(PIDS_FILE)));
    }
    Ok(())
}

fn keep(order: &Order, link: &mut Link) -> Result<(), String> {
    let why = |what: &'static str| move |error: io::Error| format!("{what}: {error}");
    let mut pids =
        Pids::of_this_keeper(order.slot, order.own.map(|it| it.user)).ok_or("cannot read /proc")?;
    // Before the pid file: whoever sees that can connect.
    link.open(&order.folder).map_err(why("cannot write the file of news"))?;
    pids.write(&order.folder).map_err(why("cannot write the pid file"))?;
    // From here on a later agent finds this keeper. One that died before could have been followed
    // by an agent that looked before the file was there.
    if rustix::process::getppid() != Pid::from_raw(order.agent) {
        return Err("the agent is gone".to_owned());
    }
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(|error| format!("cannot become a subreaper: {error}"))?;
    let lease = Lease::read_within(&order.lease, order.slot, order.lease_ms_max)
        .map_err(why("cannot read the lease file"))?;
    if lease.term_at_ms <= boottime_ms() {
        return Err("the lease of its slot has passed".to_owned());
    }
    let output = |name: &str, wanted: Option<&str>| {
        let bounds = Bounds { max: order.output_bytes_max, reserve: order.disk_reserve_bytes };
        Capture::create(order.folder.join(name), bounds, wanted)
            .map_err(why("cannot write the output file"))
    };
    let ready_line = order.ready_line.as_deref();
    let (out, err) = (output("stdout.log", ready_line)?, output("stderr.log", ready_line)?);
    let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC)
        .map_err(|error| format!("no timer: {error}"))?;

    let Launched { mut child, first } = launch::launch(&order.launch())?;
    let pid = i32::try_from(child.id()).map_err(|_| "pid out of range".to_owned())?;
    pids.program = Process::of(pid);
    // Without the file this keeper still guards the program; only a later agent could not find it
    // by its pid, and finds it by its user or its environment instead.
    drop(pids.write(&order.folder));
    let pidfd = Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    tracing::info!(pid, "started");
    link.tell(&News::Started { pid });
    let mut watch = Watch {
        link,
        out: child.stdout.take().map(|pipe| (pipe, out)),
        err: child.stderr.take().map(|pipe| (pipe, err)),
        pidfd,
        timer,
        family: Family::new(pid, first, order.stop),
        main_only: order.stop.main_only,
        lease_file: order.lease.clone(),
        lease_ms_max: order.lease_ms_max,
        slot: order.slot,
        lease,
        grace_ms: order.grace_ms,
        ending: None,
        look_ms: LOOK_MS.0,
    };
    watch.until_gone();
    Ok(())
}

/// The program's processes are being ended.
#[derive(Clone, Copy)]
struct Ending {
    cause: Cause,
    kill_at_ms: u64,
    killed: bool,
}

/// What may be read without waiting.
#[derive(Default)]
struct Ready {
    input: bool,
    socket: bool,
    out: bool,
    err: bool,
    first: bool,
}

/// Reads once from a pipe into its capture; a pipe at its end is dropped. True when the line that
/// was waited for came.
fn take<P: Read>(source: &mut Option<(P, Capture)>) -> bool {
    let Some((pipe, capture)) = source else { return false };
    let mut buffer = [0_u8; 64 * 1024];
    match pipe.read(&mut buffer) {
        Ok(0) => *source = None,
        Ok(count) => return capture.take(&buffer[..count]),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
        Err(_) => *source = None,
    }
    false
}

struct Watch<'a> {
    link: &'a mut Link,
    out: Option<(ChildStdout, Capture)>,
    err: Option<(ChildStderr, Capture)>,
    /// Readable when the program itself ended; dropped then.
    pidfd: Option<OwnedFd>,
    timer: OwnedFd,
    family: Family,
    /// Only the program itself is asked to end.
    main_only: bool,
    lease_file: PathBuf,
    lease_ms_max: u64,
    slot: SlotId,
    lease: Lease,
    grace_ms: u64,
    ending: Option<Ending>,
    look_ms: u64,
}

impl Watch<'_> {
    fn until_gone(&mut self) {
        loop {
            self.wait();
            self.family.reap();
            if self.family.program_ended() {
                self.pidfd = None;
                if self.ending.is_some() && self.main_only {
                    self.family.ask_rest();
                }
                self.end(Cause::Own, self.grace_ms);
            }
            self.watch_lease();
            let Some(ending) = self.ending else { continue };
            if let Some(exit) = self.family.gone().cloned() {
                return self.finish(exit, ending.cause);
            }
            let kill = ending.kill_at_ms <= boottime_ms();
            if kill {
                self.kill();
            }
            self.family.end_strays(kill);
        }
    }

    /// Waits for something to do, and takes what the agent and the program wrote.
    fn wait(&mut self) {
        self.arm();
        let ready = self.poll(None);
        if ready.input {
            self.on_input();
        }
        if ready.first {
            self.family.hear();
        }
        let found_out = ready.out && take(&mut self.out);
        let found_err = ready.err && take(&mut self.err);
        if found_out || found_err {
            tracing::debug!("the line that was waited for came");
            self.link.tell(&News::ReadyLine);
        }
        if ready.socket {
            self.link.take_connection();
        }
    }

    fn poll(&self, timeout: Option<&Timespec>) -> Ready {
        let timer = self.timer.as_fd();
        let (input, socket) = (self.link.input(), self.link.socket());
        let out = self.out.as_ref().map(|(pipe, _)| pipe.as_fd());
        let err = self.err.as_ref().map(|(pipe, _)| pipe.as_fd());
        let pidfd = self.pidfd.as_ref().map(AsFd::as_fd);
        let first = self.family.news();
        // What is closed is replaced by the timer, and then not looked at.
        let mut fds = [Some(timer), input, out, err, pidfd, first, socket]
            .map(|fd| PollFd::from_borrowed_fd(fd.unwrap_or(timer), PollFlags::IN));
        if poll(&mut fds, timeout).is_err() {
            return Ready::default();
        }
        let [_, input, out, err, _, first, socket] = fds.map(|fd| !fd.revents().is_empty());
        Ready {
            input: input && self.link.input().is_some(),
            socket: socket && self.link.socket().is_some(),
            out: out && self.out.is_some(),
            err: err && self.err.is_some(),
            first: first && self.family.news().is_some(),
        }
    }

    /// Sets the timer to the next moment at which something is due even if nothing happens.
    fn arm(&mut self) {
        let now = boottime_ms();
        let at = match self.ending {
            None => self.lease.term_at_ms,
            // The end of the program itself wakes the keeper, so there is nothing to look for.
            Some(ending) if !self.family.program_ended() && now < ending.kill_at_ms => {
                ending.kill_at_ms.min(self.lease.kill_at_ms.max(now + LOOK_MS.1))
            }
            Some(_) => {
                self.look_ms = (self.look_ms * 2).min(LOOK_MS.1);
                now + self.look_ms
            }
        };
        // Zero would disarm it; a moment that has passed fires at once.
        let at = i64::try_from(at.max(1)).unwrap_or(i64::MAX);
        let value = Timespec { tv_sec: at / 1000, tv_nsec: at % 1000 * 1_000_000 };
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        let spec = Itimerspec { it_interval: never, it_value: value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &spec)
            .expect("the timer is open and the moment is well-formed");
    }

    fn on_input(&mut self) {
        for command in self.link.hear() {
            match command {
                Command::Stop { grace_ms } => self.end(Cause::Stop, grace_ms),
                Command::Lease { ms_max } => self.lease_ms_max = ms_max,
            }
        }
    }

    /// Once more in every round: the group may still grow.
    fn kill(&mut self) {
        if let Some(ending) = self.ending.as_mut().filter(|it| !it.killed) {
            ending.killed = true;
            tracing::warn!("the time to end is over, and what is left is killed");
        }
        self.family.kill();
    }

    /// Asks the program to end, now; all of it is killed after the grace.
    fn end(&mut self, cause: Cause, grace_ms: u64) {
        let kill_at_ms = boottime_ms().saturating_add(grace_ms);
        match &mut self.ending {
            Some(ending) => ending.kill_at_ms = ending.kill_at_ms.min(kill_at_ms),
            None => {
                tracing::info!(?cause, grace_ms, "asked to end");
                self.ending = Some(Ending { cause, kill_at_ms, killed: false });
                self.family.ask();
            }
        }
    }

    fn watch_lease(&mut self) {
        if boottime_ms() < self.lease.term_at_ms {
            return;
        }
        // A file that cannot be read, or believed, renews nothing.
        if let Ok(lease) = Lease::read_within(&self.lease_file, self.slot, self.lease_ms_max) {
            self.lease = lease;
        }
        let now = boottime_ms();
        if now >= self.lease.term_at_ms {
            self.end(Cause::Lease, self.lease.kill_at_ms.saturating_sub(now));
        }
    }

    fn finish(&mut self, exit: Exit, cause: Cause) {
        // No writer is left, so what the pipes hold is all that will come.
        for _ in 0..OUTPUT_READS_MAX {
            let ready = self.poll(Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
            if ready.out {
                take(&mut self.out);
            }
            if ready.err {
                take(&mut self.err);
            }
            if !ready.out && !ready.err {
                break;
            }
        }
        tracing::info!(%exit, ?cause, "nothing of it is left");
        self.link.tell(&News::Ended { exit, cause });
    }
}
