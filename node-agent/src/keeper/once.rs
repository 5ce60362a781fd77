//! One run of a program beside a session's own, to its end: an action, or a look whether the session is well.
//!
//! ```text
//!  agent ── Order ──▶ stdin ┌──────┐ ◀── pidfd ──── program (own process group, the session's user and limits)
//!        (closed: kill)     │ once │ ◀── outputs ── ..
//!        ◀── End ── stdout  └──────┘ ── KILL ─────▶ the program, its group, whatever left that
//! ```
//!
//! It lives as long as the run. When its standard input is closed, by an agent that wants the end or is gone, it kills
//! the program. It does so as well when the time is over, when too much is printed, when the lease of the session's
//! slot has passed, and with what the program left behind. It tells the end when nothing of the run is left.

use super::family::Family;
use super::launch::{Launch, Launched, launch};
use super::order::{LINE_BYTES_MAX, Own, Stop};
use crate::clean;
use crate::lease::{Lease, boottime_ms};
use crate::limits::Bounds;
use rota_model::{Exit, SlotId};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File};
use std::io::{self, BufRead, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

/// Shortest and longest pause between two looks at what is being killed.
const LOOK_MS: (u64, u64) = (2, 50);

/// Longest wait without a look at the clock: the machine may have been suspended.
const WAIT_MS_MAX: u64 = 1_000;

/// Kept of the end of standard error, in bytes.
const REPORT_BYTES_MAX: usize = 4 * 1024;

/// Read at once from an output.
const PART_BYTES: usize = 64 * 1024;

/// Most reads of what a pipe still holds when no writer is left.
const READS_MAX: usize = 64;

/// What to run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OnceOrder {
    /// The session's folder.
    pub folder: PathBuf,
    /// Names the run among those of the session.
    pub name: String,
    /// Program and arguments; never a shell string.
    pub argv: Vec<String>,
    /// The whole environment.
    pub env: BTreeMap<String, String>,
    /// Working folder.
    pub cwd: PathBuf,
    /// What stands on its standard input.
    pub input: Option<String>,
    /// How long it may take, in milliseconds.
    pub timeout_ms: u64,
    /// Most bytes that it may print on its standard output; `None`: what it prints is of no use.
    pub output_bytes_max: Option<usize>,
    /// What the session has of its own.
    pub own: Option<Own>,
    /// What the session's processes are bound by.
    pub bounds: Bounds,
    /// Pid of the agent. A minder whose agent died ahead of it starts nothing.
    pub agent: i32,
    /// The session's slot.
    pub slot: SlotId,
    /// The node's lease file.
    pub lease: PathBuf,
    /// No lease of this node goes on for longer.
    pub lease_ms_max: u64,
}

/// How a run came to its end. Nothing of it is left.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnceEnd {
    /// It was never started, and why.
    NotStarted(String),
    /// The program ended.
    Ended {
        /// How.
        exit: Exit,
        /// What it printed on its standard output; `None` when that is no UTF-8.
        output: Option<String>,
        /// What it said last on its standard error.
        report: String,
    },
    /// It was killed when its time was over.
    TimedOut(String),
    /// It was killed when it printed too much.
    TooMuch(String),
    /// It was killed because its agent wanted that, or the lease of its slot had passed.
    Cancelled,
}

/// Why everything is being killed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// The program itself ended.
    Own,
    TimedOut,
    TooMuch,
    Cancelled,
}

/// Runs a minder to its end.
///
/// # Errors
/// There was no usable order, or nobody to tell the end.
pub fn run() -> anyhow::Result<()> {
    let _ = rustix::thread::set_name(c"rota-once");
    clean::shut_memory();
    let mut line = String::new();
    // Nothing follows the order, so nothing is lost in the buffer.
    let limit = u64::try_from(LINE_BYTES_MAX).unwrap_or(u64::MAX);
    io::stdin().lock().take(limit).read_line(&mut line)?;
    let order: OnceOrder = serde_json::from_str(&line)?;
    drop(line);
    let end = carry_out(&order).unwrap_or_else(OnceEnd::NotStarted);
    let mut told = serde_json::to_vec(&end)?;
    told.push(b'\n');
    io::stdout().write_all(&told)?;
    Ok(())
}

fn carry_out(order: &OnceOrder) -> Result<OnceEnd, String> {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(|error| format!("cannot become a subreaper: {error}"))?;
    // One that died after this closes standard input.
    if rustix::process::getppid() != Pid::from_raw(order.agent) {
        return Err("the agent is gone".to_owned());
    }
    let lease = Lease::read_within(&order.lease, order.slot, order.lease_ms_max)
        .map_err(|error| format!("cannot read the lease file: {error}"))?;
    if lease.term_at_ms <= boottime_ms() {
        return Err("the lease of its slot has passed".to_owned());
    }
    let input = order.input.as_deref().map(|text| write_input(order, text)).transpose();
    let input = input.map_err(|error| format!("cannot write its standard input: {error}"))?;
    let launched = launch(&Launch {
        argv: &order.argv,
        env: &order.env,
        cwd: &order.cwd,
        own: order.own,
        bounds: &order.bounds,
        input: input.as_deref(),
    });
    // The program has it open, or never will.
    if let Some(input) = &input {
        drop(fs::remove_file(input));
    }
    let Launched { mut child, first } = launched?;
    let pid = i32::try_from(child.id()).map_err(|_| "pid out of range".to_owned())?;
    let stop = Stop { signal: Signal::KILL.as_raw(), main_only: false };
    let watch = Watch {
        order,
        lease,
        input_open: true,
        out: child.stdout.take().map(OwnedFd::from).map(File::from),
        err: child.stderr.take().map(OwnedFd::from).map(File::from),
        pidfd: Pid::from_raw(pid).and_then(|it| pidfd_open(it, PidfdFlags::empty()).ok()),
        family: Family::new(pid, first, stop),
        until_ms: boottime_ms().saturating_add(order.timeout_ms),
        output: Vec::new(),
        report: VecDeque::new(),
        cause: None,
        look_ms: LOOK_MS.0,
    };
    Ok(watch.until_gone())
}

/// A file and not a pipe: a program that reads nothing holds nobody up, and takes no memory.
fn write_input(order: &OnceOrder, text: &str) -> io::Result<PathBuf> {
    let path = order.folder.join(format!("{}.in", order.name));
    drop(fs::remove_file(&path));
    let no_link = OFlags::NOFOLLOW.bits().cast_signed();
    let mut options = File::options();
    let options = options.write(true).create_new(true).mode(0o600).custom_flags(no_link);
    let mut file = options.open(&path)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.write_all(b"\n"));
    if written.is_err() {
        drop(fs::remove_file(&path));
    }
    written.map(|()| path)
}

struct Watch<'a> {
    order: &'a OnceOrder,
    lease: Lease,
    /// The agent did not close standard input.
    input_open: bool,
    out: Option<File>,
    err: Option<File>,
    /// Readable when the program itself ended; dropped then.
    pidfd: Option<OwnedFd>,
    family: Family,
    until_ms: u64,
    output: Vec<u8>,
    report: VecDeque<u8>,
    cause: Option<Cause>,
    look_ms: u64,
}

impl Watch<'_> {
    fn until_gone(mut self) -> OnceEnd {
        loop {
            self.wait();
            self.family.reap();
            if self.family.program_ended() {
                self.pidfd = None;
                self.kill_for(Cause::Own);
            }
            self.look_at_the_time();
            let Some(cause) = self.cause else { continue };
            if let Some(exit) = self.family.gone().cloned() {
                self.drain();
                // What the pipes still held may be too much.
                let cause = if self.too_much() { Cause::TooMuch } else { cause };
                return self.end(cause, exit);
            }
            self.family.kill();
            self.family.end_strays(true);
        }
    }

    /// The first cause stands.
    fn kill_for(&mut self, cause: Cause) {
        if self.cause.is_none() {
            self.cause = Some(cause);
            self.family.kill();
        }
    }

    fn look_at_the_time(&mut self) {
        let now = boottime_ms();
        if now >= self.until_ms {
            self.kill_for(Cause::TimedOut);
        }
        if now >= self.lease.term_at_ms {
            let Self { order, .. } = *self;
            // A file that cannot be read, or believed, renews nothing.
            if let Ok(lease) = Lease::read_within(&order.lease, order.slot, order.lease_ms_max) {
                self.lease = lease;
            }
            if now >= self.lease.term_at_ms {
                self.kill_for(Cause::Cancelled);
            }
        }
    }

    fn wait(&mut self) {
        let wait_ms = match self.cause {
            Some(_) => {
                self.look_ms = (self.look_ms * 2).min(LOOK_MS.1);
                self.look_ms
            }
            None => {
                let until = self.until_ms.min(self.lease.term_at_ms);
                until.saturating_sub(boottime_ms()).min(WAIT_MS_MAX)
            }
        };
        self.take_what_is_there(wait_ms);
    }

    /// What the pipes hold when nobody writes any more.
    fn drain(&mut self) {
        for _ in 0..READS_MAX {
            if self.too_much() || !self.take_what_is_there(0) {
                return;
            }
        }
    }

    /// Waits so long for something to read, and takes it. True when an output had something.
    fn take_what_is_there(&mut self, wait_ms: u64) -> bool {
        let [input, out, err, first, _] = self.poll(wait_ms);
        if input {
            self.hear();
        }
        if first {
            self.family.hear();
        }
        if out {
            self.take_output();
        }
        if err {
            let part = read(&mut self.err);
            self.report.extend(part);
            let beyond = self.report.len().saturating_sub(REPORT_BYTES_MAX);
            self.report.drain(..beyond);
        }
        out || err
    }

    /// Which of these may be read: standard input, both outputs, the first process, the program's end.
    fn poll(&self, wait_ms: u64) -> [bool; 5] {
        let stdin = io::stdin();
        let input = self.input_open.then(|| stdin.as_fd());
        let fds = [
            input,
            self.out.as_ref().map(AsFd::as_fd),
            self.err.as_ref().map(AsFd::as_fd),
            self.family.news(),
            self.pidfd.as_ref().map(AsFd::as_fd),
        ];
        let open: Vec<_> = fds.iter().flatten().collect();
        let mut polled: Vec<PollFd<'_>> =
            open.iter().map(|it| PollFd::from_borrowed_fd(**it, PollFlags::IN)).collect();
        let wait_ms = i64::try_from(wait_ms).unwrap_or(i64::MAX);
        let timeout = Timespec { tv_sec: wait_ms / 1000, tv_nsec: wait_ms % 1000 * 1_000_000 };
        // A signal that this process outlives, or no kernel memory: looked at again.
        let found = poll(&mut polled, Some(&timeout)).unwrap_or(0) > 0;
        let mut told = polled.iter().map(|it| found && !it.revents().is_empty());
        fds.map(|it| it.is_some() && told.next() == Some(true))
    }

    fn hear(&mut self) {
        let mut byte = [0; 1];
        match io::stdin().read(&mut byte) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // Whatever an agent says after its order means that it wants the end.
            Ok(_) | Err(_) => {
                self.input_open = false;
                self.kill_for(Cause::Cancelled);
            }
        }
    }

    fn take_output(&mut self) {
        let part = read(&mut self.out);
        let Some(max) = self.order.output_bytes_max else { return };
        let room = max.saturating_add(1).saturating_sub(self.output.len());
        self.output.extend_from_slice(&part[..room.min(part.len())]);
        if self.too_much() {
            self.kill_for(Cause::TooMuch);
        }
    }

    fn too_much(&self) -> bool {
        self.order.output_bytes_max.is_some_and(|max| self.output.len() > max)
    }

    fn end(self, cause: Cause, exit: Exit) -> OnceEnd {
        let report = String::from_utf8_lossy(&Vec::from(self.report)).trim().to_owned();
        match cause {
            Cause::Own => {
                OnceEnd::Ended { exit, output: String::from_utf8(self.output).ok(), report }
            }
            Cause::TimedOut => OnceEnd::TimedOut(report),
            Cause::TooMuch => OnceEnd::TooMuch(report),
            Cause::Cancelled => OnceEnd::Cancelled,
        }
    }
}

/// Reads once; an output at its end is dropped.
fn read(from: &mut Option<File>) -> Vec<u8> {
    let Some(file) = from else { return Vec::new() };
    let mut part = vec![0; PART_BYTES];
    match file.read(&mut part) {
        Ok(count) if count > 0 => part.truncate(count),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => part.clear(),
        Ok(_) | Err(_) => {
            *from = None;
            part.clear();
        }
    }
    part
}
