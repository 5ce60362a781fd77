//! The first process of a session's pid namespace, between keeper and program.
//!
//! ```text
//!  keeper ── Order ──▶ stdin ┌───────┐ ── asks ──▶ the program, or its group
//!         ◀── Told ───────── │ first │ ── reaps ─▶ whatever is left to it
//!         ── KILL ─────────▶ └───────┘   the kernel ends the whole namespace with it
//! ```
//!
//! It stays the node's own user, so the program cannot touch it, and the kernel's tie to the keeper is
//! not lost by a change of user. A program itself is never that process: as the first one it would have
//! no default actions, and ignore TERM. When the program ends, what it left is asked to end; the keeper
//! kills the first process when that takes too long. When this process can be reaped, nothing of the
//! namespace is left: the kernel sees to that.

use super::launch::{discard, free_standard_input, shim, start_shim};
use super::order::Stop;
use crate::cli::FirstArgs;
use crate::limits::Bounds;
use crate::{clean, sandbox::namespace};
use rota_daemon::processes;
use rota_model::Exit;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Signal, WaitOptions, set_parent_process_death_signal, setsid, wait};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// How long the program may take to begin. Above the time that the shim has.
const START_MS_MAX: i64 = 12_000;

/// The pid of a namespace's first process.
const FIRST_PID: u32 = 1;

/// What the keeper asks for: one JSON value a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Order {
    /// The program is asked to end.
    End(Stop),
}

/// What the first process tells: one JSON value a line.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Told {
    /// The program runs.
    Started,
    /// Nothing runs, and this process ends.
    Failed { detail: String },
    /// The program itself ended; what it left may go on for a while.
    Ended { exit: Exit },
}

/// The keeper's end.
#[derive(Debug)]
pub struct First {
    control: UnixStream,
    pending: Vec<u8>,
    /// Nothing is heard any more.
    closed: bool,
}

/// The command line of a first process.
pub fn command(user: u32, bounds: &Bounds, input: Option<&Path>, argv: &[String]) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("rota-node-agent").arg("first").arg(format!("--user={user}"));
    if let Some(input) = input {
        command.arg("--input").arg(input);
    }
    command.args(bounds.flags());
    command.arg("--").args(argv);
    command
}

/// Starts it in a pid namespace, and waits until the program runs there. The error says why it does not.
pub fn start(mut command: Command) -> Result<(Child, First), String> {
    let pair = UnixStream::pair().and_then(|(ours, theirs)| {
        ours.set_nonblocking(true)?;
        Ok((ours, theirs))
    });
    let (ours, theirs) = pair.map_err(|error| format!("no socket: {error}"))?;
    namespace::of_next_child().map_err(|error| format!("no pid namespace: {error}"))?;
    command.stdin(Stdio::from(OwnedFd::from(theirs)));
    let child = command.spawn().map_err(|error| format!("cannot start: {error}"))?;
    // This process's own copy of the other end, or its end would never be seen.
    drop(command);
    let mut first = First { control: ours, pending: Vec::new(), closed: false };
    match first.wait_for_start() {
        Ok(()) => Ok((child, first)),
        Err(why) => Err(discard(child, why)),
    }
}

impl First {
    /// Readable when something was told.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        (!self.closed).then(|| self.control.as_fd())
    }

    /// The program is asked to end.
    pub fn ask_to_end(&mut self, stop: Stop) {
        // One that takes no more is gone or hangs; the keeper kills it in time.
        drop(write_line(&mut self.control, &Order::End(stop)));
    }

    /// Takes what was told without waiting: how the program ended, if it has.
    pub fn hear(&mut self) -> Option<Exit> {
        self.read();
        while let Some(told) = self.next() {
            if let Told::Ended { exit } = told {
                return Some(exit);
            }
        }
        None
    }

    fn wait_for_start(&mut self) -> Result<(), String> {
        let timeout = Timespec { tv_sec: START_MS_MAX / 1000, tv_nsec: 0 };
        loop {
            match self.next() {
                Some(Told::Failed { detail }) => return Err(detail),
                Some(Told::Started | Told::Ended { .. }) => return Ok(()),
                None if self.closed => {
                    return Err("the first process of its namespace ended before it began".into());
                }
                None => {}
            }
            let mut fds = [PollFd::new(&self.control, PollFlags::IN)];
            match poll(&mut fds, Some(&timeout)) {
                Ok(0) => return Err("nothing heard of the start".to_owned()),
                Ok(_) | Err(Errno::INTR) => self.read(),
                Err(error) => return Err(format!("nothing heard of the start: {error}")),
            }
        }
    }

    fn read(&mut self) {
        let mut buffer = [0_u8; 4096];
        match self.control.read(&mut buffer) {
            Ok(0) => self.closed = true,
            Ok(count) => self.pending.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => self.closed = true,
        }
    }

    fn next(&mut self) -> Option<Told> {
        let end = self.pending.iter().position(|byte| *byte == b'\n')?;
        let line: Vec<u8> = self.pending.drain(..=end).collect();
        let told = serde_json::from_slice(&line);
        told.inspect_err(|_| self.closed = true).ok()
    }
}

fn write_line(to: &mut UnixStream, value: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    to.write_all(&line)
}

/// Runs a first process to its end; gives its exit code.
pub fn run(args: &FirstArgs) -> u8 {
    if std::process::id() != FIRST_PID {
        eprintln!("rota-node-agent first: only a keeper starts this, in a pid namespace");
        return 2;
    }
    if args.probe {
        return u8::from(namespace::show_only_this().is_err());
    }
    let Ok(control) = free_standard_input() else { return 127 };
    let mut control = UnixStream::from(control);
    let told = match begin(&control, args) {
        Ok(program) => write_line(&mut control, &Told::Started).map(|()| program),
        Err(detail) => {
            drop(write_line(&mut control, &Told::Failed { detail }));
            return 127;
        }
    };
    // A keeper that is gone takes this namespace along.
    match told.and_then(|program| watch(control, program)) {
        Ok(()) => 0,
        Err(_) => 1,
    }
}

/// Starts the program; gives its pid in this namespace.
fn begin(control: &UnixStream, args: &FirstArgs) -> Result<i32, String> {
    let _ = rustix::thread::set_name(c"rota-first");
    clean::shut_memory();
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| format!("cannot be tied to its keeper: {error}"))?;
    // A keeper that died before that call would never be noticed. Its pid is not known in here.
    if has_hung_up(control) {
        return Err("its keeper is gone".to_owned());
    }
    setsid().map_err(|error| format!("no session of its own: {error}"))?;
    namespace::show_only_this().map_err(|error| format!("no /proc of its own: {error}"))?;
    let argv: Vec<OsString> = args.argv.clone();
    let child = start_shim(shim(args.user, &args.bounds, args.input.as_deref(), &argv))?;
    // The outputs are the program's alone: their ends are seen by the keeper.
    let null = File::options().write(true).open("/dev/null");
    let replaced = null.and_then(|null| {
        rustix::stdio::dup2_stdout(&null)?;
        rustix::stdio::dup2_stderr(&null)?;
        Ok(())
    });
    replaced.map_err(|error| format!("no /dev/null: {error}"))?;
    i32::try_from(child.id()).map_err(|_| "pid out of range".to_owned())
}

fn has_hung_up(control: &UnixStream) -> bool {
    let mut fds = [PollFd::new(control, PollFlags::OUT)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let gone = PollFlags::HUP | PollFlags::ERR;
    poll(&mut fds, Some(&now)).is_err() || fds[0].revents().intersects(gone)
}

/// Until nothing is left in the namespace.
fn watch(mut control: UnixStream, program: i32) -> io::Result<()> {
    let orders = control.try_clone()?;
    std::thread::Builder::new().name("orders".to_owned()).spawn(move || obey(orders, program))?;
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid.as_raw_pid() == program => {
                let exit = super::family::exit_of(status).unwrap_or(super::family::KILLED);
                write_line(&mut control, &Told::Ended { exit })?;
                ask_the_rest();
            }
            Ok(_) | Err(Errno::INTR) => {}
            // Nobody is left.
            Err(_) => return Ok(()),
        }
    }
}

/// Passes orders on. Ends this process, and so the namespace, with the keeper.
fn obey(orders: UnixStream, program: i32) {
    for line in BufReader::new(orders).lines() {
        let Ok(line) = line else { break };
        match serde_json::from_str(&line) {
            // The number can only be the session's: there is nobody else in here.
            Ok(Order::End(stop)) => stop.ask(program),
            Err(_) => break,
        }
    }
    std::process::exit(1);
}

fn ask_the_rest() {
    let me = i32::try_from(FIRST_PID).unwrap_or(1);
    for other in processes::all().iter().filter(|it| it.process.pid != me) {
        other.process.signal(Signal::TERM);
    }
}
