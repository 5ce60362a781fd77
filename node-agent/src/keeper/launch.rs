//! Starting the program so that it cannot outlive its keeper.
//!
//! ```text
//!  none, or no namespace   keeper ──▶ shim, becomes the program
//!  with a pid namespace    keeper ──▶ first process (see `first`) ──▶ shim, becomes the program
//! ```
//!
//! Between its parent and the program stands a shim (`rota-node-agent exec`), because only the new
//! process itself can ask the kernel to be killed when its parent dies, take another user and give up
//! what it inherited, and doing so in a forked child takes code that is not safe. The kernel forgets the
//! parent when a process changes its user, so the shim asks only then. Its standard input is a pipe to its
//! parent: closed by a successful exec, or told why it failed.

use super::first::{self, First};
use super::order::Own;
use crate::clean;
use crate::cli::ExecArgs;
use crate::limits::Bounds;
use crate::sandbox::{DEFAULT_PATH, program_barrier};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Gid, Pid, Signal, Uid, getuid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_no_new_privs,
    set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// How long a shim may take to become the program; it does some tens of system calls.
const EXEC_MS_MAX: i64 = 10_000;

/// What a keeper started.
pub struct Launched {
    /// The program, or the first process of its namespace. It leads a process group of its own.
    pub child: Child,
    /// The keeper's end of that first process.
    pub first: Option<First>,
}

/// A program to start.
pub struct Launch<'a> {
    /// Program and arguments.
    pub argv: &'a [String],
    /// The whole environment.
    pub env: &'a BTreeMap<String, String>,
    /// Working folder.
    pub cwd: &'a Path,
    /// What it has of its own.
    pub own: Option<Own>,
    /// What it is bound by.
    pub bounds: &'a Bounds,
    /// The file that is its standard input; `None`: it reads nothing.
    pub input: Option<&'a Path>,
}

/// Starts a program. Its outputs are piped.
pub fn launch(order: &Launch<'_>) -> Result<Launched, String> {
    let of_order = |command: &mut Command| {
        command.env_clear().envs(order.env).current_dir(order.cwd);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
    };
    if let Some(own) = order.own.filter(|it| it.pid_namespace) {
        let mut command = first::command(own.user, order.bounds, order.input, order.argv);
        of_order(&mut command);
        let (child, first) = first::start(command)?;
        return Ok(Launched { child, first: Some(first) });
    }
    let user = order.own.map(|it| it.user);
    let argv: Vec<OsString> = order.argv.iter().map(OsString::from).collect();
    let mut command = shim(user, order.bounds, order.input, &argv);
    of_order(&mut command);
    Ok(Launched { child: start_shim(command)?, first: None })
}

/// The command line of a shim whose parent is this process.
pub fn shim(
    user: Option<u32>,
    bounds: &Bounds,
    input: Option<&Path>,
    argv: &[OsString],
) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("rota-node-agent").arg("exec");
    command.arg(format!("--parent={}", std::process::id()));
    command.args(user.map(|user| format!("--user={user}")));
    if let Some(input) = input {
        command.arg("--input").arg(input);
    }
    command.args(bounds.flags());
    command.arg("--").args(argv);
    command
}

/// Starts a shim and waits until it has become the program. The error says why it has not.
pub fn start_shim(mut command: Command) -> Result<Child, String> {
    let (status, status_end) =
        pipe_with(PipeFlags::CLOEXEC).map_err(|error| format!("no pipe: {error}"))?;
    command.stdin(Stdio::from(status_end));
    let child = command.spawn().map_err(|error| format!("cannot start: {error}"))?;
    // This process's own copy of the pipe's end, or the end would never be seen.
    drop(command);
    match exec_failure(status) {
        Ok(None) => Ok(child),
        Ok(Some(why)) => Err(discard(child, why)),
        Err(error) => Err(discard(child, format!("nothing heard of the start: {error}"))),
    }
}

/// `None` once the shim became the program; otherwise why not.
fn exec_failure(status: OwnedFd) -> io::Result<Option<String>> {
    let timeout = Timespec { tv_sec: EXEC_MS_MAX / 1000, tv_nsec: 0 };
    let mut fds = [PollFd::new(&status, PollFlags::IN)];
    loop {
        match poll(&mut fds, Some(&timeout)) {
            // A signal that this process outlives.
            Err(Errno::INTR) => {}
            found if found? == 0 => return Err(io::ErrorKind::TimedOut.into()),
            _ => break,
        }
    }
    let mut text = String::new();
    File::from(status).read_to_string(&mut text)?;
    Ok(if text.is_empty() { None } else { Some(text) })
}

/// Ends a child that never became what it should, and gives back why.
pub fn discard(mut child: Child, why: String) -> String {
    // Both may find it gone already; it must only not be left as a zombie.
    drop(child.kill());
    drop(child.wait());
    why
}

/// The shim: gives up what it inherited, takes its user, ties itself to its parent and becomes the
/// program. Returns only on failure, with the exit code.
pub fn become_program(args: &ExecArgs) -> u8 {
    let status = match free_standard_input() {
        Ok(status) => status,
        Err(_) => return 127,
    };
    // Ahead of the change of user: the file is the node's alone.
    let read = args.input.as_deref().map_or(Ok(()), read_from);
    let read = read.map_err(|error| format!("cannot read its standard input: {error}"));
    let why = match read.and_then(|()| prepare_and_exec(args)) {
        Ok(never) => match never {},
        Err(why) => why,
    };
    drop(File::from(status).write_all(why.as_bytes()));
    127
}

/// Moves the pipe or socket that is standard input to a descriptor that closes on exec; the program
/// reads nothing.
pub fn free_standard_input() -> io::Result<OwnedFd> {
    let status = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    Ok(status)
}

fn read_from(input: &Path) -> io::Result<()> {
    Ok(rustix::stdio::dup2_stdin(File::open(input)?)?)
}

fn prepare_and_exec(args: &ExecArgs) -> Result<Infallible, String> {
    let Some((program, arguments)) = args.argv.split_first() else {
        return Err("argv is empty".to_owned());
    };
    clean::for_program(&args.bounds)?;
    if let Some(user) = args.user {
        take_user(user).map_err(|error| format!("cannot become uid {user}: {error}"))?;
    }
    // After the change of user, which makes the kernel forget it.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| format!("cannot be tied to its keeper: {error}"))?;
    // A parent that died before that call would never be noticed.
    if rustix::process::getppid() != Pid::from_raw(args.parent) {
        return Err("its keeper is gone".to_owned());
    }
    clean::be_bound(&args.bounds)?;
    let error = Command::new(program).args(arguments).exec();
    let denied = args.user.is_some() && error.kind() == io::ErrorKind::PermissionDenied;
    let barrier = denied.then(|| {
        let path = std::env::var("PATH").unwrap_or_else(|_| DEFAULT_PATH.to_owned());
        program_barrier(program.to_str()?, &path)
    });
    let why = barrier.flatten().map(|it| format!(" ({it})")).unwrap_or_default();
    Err(format!("cannot run {}: {error}{why}", program.display()))
}

/// This process, which has one thread, is from now on that user without anybody's rights.
fn take_user(user: u32) -> Result<(), Errno> {
    let (group, owner) = (Gid::from_raw(user), Uid::from_raw(user));
    // Programs open /dev/stdout and /dev/stderr by name, which asks for the owner of the pipe.
    for output in [rustix::stdio::stdout(), rustix::stdio::stderr()] {
        let _ = rustix::fs::fchown(output, Some(owner), Some(group));
    }
    set_thread_groups(&[])?;
    set_thread_res_gid(group, group, group)?;
    set_thread_res_uid(owner, owner, owner)?;
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    set_no_new_privs(true)?;
    // Flags of the caller (securebits) could have kept something.
    let kept = capabilities(None)?;
    if getuid() != owner || !(kept.permitted | kept.inheritable).is_empty() {
        return Err(Errno::PERM);
    }
    Ok(())
}
