//! Starting the program so that it cannot outlive its keeper.
//!
//! Between keeper and program stands a shim (`rota-node-agent exec`), because only the new process
//! itself can ask the kernel to be killed when its parent dies, and asking in a forked child takes
//! code that is not safe. The shim asks, then becomes the program. Its standard input is a pipe to
//! the keeper: closed by a successful exec, or told why the exec failed.

use super::order::Order;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, setrlimit};
use std::convert::Infallible;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// How long the shim may take to become the program; it does a handful of system calls.
const EXEC_MS_MAX: i64 = 10_000;

/// Starts the order's program as leader of a process group of its own. Its outputs are piped.
pub fn launch(order: &Order) -> Result<Child, String> {
    let (status, status_end) =
        pipe_with(PipeFlags::CLOEXEC).map_err(|error| format!("no pipe: {error}"))?;
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0("rota-node-agent")
        .arg("exec")
        .arg("--keeper")
        .arg(std::process::id().to_string())
        .args(order.open_files.map(|limit| format!("--open-files={limit}")))
        .arg("--")
        .args(&order.argv)
        .env_clear()
        .envs(&order.env)
        .current_dir(&order.cwd)
        .process_group(0)
        .stdin(Stdio::from(status_end))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = command.spawn().map_err(|error| format!("cannot start: {error}"))?;
    // The keeper's own copy of the pipe's end, or the end would never be seen.
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

fn discard(mut child: Child, why: String) -> String {
    // Both may find it gone already; it must only not be left as a zombie.
    drop(child.kill());
    drop(child.wait());
    why
}

/// The shim: ties this process to its keeper and becomes the program. Returns only on failure,
/// with the exit code.
pub fn become_program(keeper: i32, open_files: Option<u64>, argv: &[OsString]) -> u8 {
    let status = match free_standard_input() {
        Ok(status) => status,
        Err(_) => return 127,
    };
    if let Some(limit) = open_files {
        lower_open_files(limit);
    }
    let why = match tie_and_exec(keeper, argv) {
        Ok(never) => match never {},
        Err(why) => why,
    };
    drop(File::from(status).write_all(why.as_bytes()));
    127
}

/// Moves the status pipe to a descriptor that closes on exec; the program reads nothing.
fn free_standard_input() -> io::Result<OwnedFd> {
    let status = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    Ok(status)
}

/// Programs that wait with `select` break with large descriptors, so they get the limit that the
/// node itself was started with.
fn lower_open_files(limit: u64) {
    let now = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(limit), maximum: now.maximum });
}

fn tie_and_exec(keeper: i32, argv: &[OsString]) -> Result<Infallible, String> {
    let Some((program, arguments)) = argv.split_first() else {
        return Err("argv is empty".to_owned());
    };
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| format!("cannot be tied to its keeper: {error}"))?;
    // A keeper that died before that call would never be noticed.
    if rustix::process::getppid() != Pid::from_raw(keeper) {
        return Err("its keeper is gone".to_owned());
    }
    let error = Command::new(program).args(arguments).exec();
    Err(format!("cannot run {}: {error}", program.display()))
}
