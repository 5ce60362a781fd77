//! What a process takes over from the one that started it, and what of that is given up: in one place,
//! for Rota's own processes and for programs. `docs/program-environment.md` has the whole list.

use crate::limits::Bounds;
use rota_daemon::private::keep_private;
use rota_daemon::unblock_signals;
use rustix::process::{
    DumpableBehavior, Resource, Rlimit, getpriority_process, getrlimit, set_dumpable_behavior,
    setpriority_process, setrlimit, setsid,
};
use std::fs;
use std::io;
use std::path::PathBuf;
use tokio::signal::unix::{SignalKind, signal};

/// The first descriptor after standard input, output and error.
const FIRST_DESCRIPTOR: i32 = 3;

/// `SIGPIPE`. The standard library ignores it, and gives the default back to what it starts.
const PIPE: i32 = 13;

/// The first thing that any process of this program does: nothing that it inherited is handed on, and
/// what it writes is its user's alone.
pub fn at_start() {
    unblock_signals();
    close_fds::set_fds_cloexec(FIRST_DESCRIPTOR, &[]);
    keep_private();
}

/// No process of the same user may trace this one or read its memory, and it leaves no core file.
pub fn shut_memory() {
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        tracing::warn!(%error, "other processes of this user can trace this one");
    }
}

/// Of a process that is about to become a program. Its limit of open files is the one that the node itself was
/// started with: programs that wait with `select` break with large descriptors.
///
/// # Errors
/// What could not be given up. Nothing runs then.
pub fn for_program(bounds: &Bounds) -> Result<(), String> {
    // Again: something may have been opened since the start.
    at_start();
    take_signals_back().map_err(|error| format!("ignored signals stay ignored: {error}"))?;
    enter_groups(&bounds.groups)?;
    if let Some(limit) = bounds.open_files {
        let now = getrlimit(Resource::Nofile);
        // As it is now is the second best.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(limit), maximum: now.maximum });
    }
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })
        .map_err(|error| format!("core files cannot be switched off: {error}"))?;
    be_no_favourite();
    // Fails only for the leader of a process group, and the process was just started in another's.
    setsid().map_err(|error| format!("no session of its own: {error}"))?;
    Ok(())
}

/// The limits that no group holds, at last: this process needs memory, too.
///
/// # Errors
/// What could not be set. Nothing runs then.
pub fn be_bound(bounds: &Bounds) -> Result<(), String> {
    let limits = [
        (Resource::Nproc, bounds.processes, "processes"),
        (Resource::As, bounds.memory_bytes, "memory"),
    ];
    for (resource, limit, name) in limits {
        let Some(limit) = limit else { continue };
        setrlimit(resource, Rlimit { current: Some(limit), maximum: Some(limit) })
            .map_err(|error| format!("its limit of {name} cannot be set: {error}"))?;
    }
    Ok(())
}

/// Enters the control groups of its session.
fn enter_groups(groups: &[PathBuf]) -> Result<(), String> {
    for group in groups {
        let file = group.join("cgroup.procs");
        // Zero is this process, whatever its pid is called where the group was made.
        fs::write(&file, "0")
            .map_err(|error| format!("cannot enter {}: {error}", file.display()))?;
    }
    Ok(())
}

/// A node that is preferred (`nice`, `oom_score_adj` below zero) does not prefer its programs. One that
/// stands back may lack the right to undo that, and then its programs stand back as well.
fn be_no_favourite() {
    if getpriority_process(None).is_ok_and(|nice| nice != 0) {
        let _ = setpriority_process(None, 0);
    }
    const FILE: &str = "/proc/self/oom_score_adj";
    let score = fs::read_to_string(FILE).ok().and_then(|it| it.trim().parse::<i32>().ok());
    if score.is_some_and(|score| score < 0) {
        drop(fs::write(FILE, "0"));
    }
}

/// An ignored signal stays ignored over an exec (`nohup`, a shell's background job). One that is handled
/// is the default again after it: so each that is ignored gets a handler for the time until then.
fn take_signals_back() -> io::Result<()> {
    let ignored = ignored_signals(&fs::read_to_string("/proc/self/status")?);
    if ignored.is_empty() {
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let _in_runtime = runtime.enter();
    for number in ignored {
        // The C library keeps two real-time signals to itself, and refuses them.
        drop(signal(SignalKind::from_raw(number)));
    }
    Ok(())
}

/// The numbers of the signals that are ignored, without `SIGPIPE`: by the mask in `/proc/PID/status`.
fn ignored_signals(status: &str) -> Vec<i32> {
    let mask = status.lines().find_map(|it| it.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|it| u64::from_str_radix(it.trim(), 16).ok()).unwrap_or(0);
    (1..=64).filter(|number| mask >> (number - 1) & 1 == 1 && *number != PIPE).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_from_the_mask_without_the_pipes() {
        assert_eq!(ignored_signals("Name:\tx\nSigIgn:\t0000000000001003\n"), [1, 2]);
        assert_eq!(ignored_signals("SigIgn:\t8000000000000000\n"), [64]);
        assert_eq!(ignored_signals("SigIgn:\t0000000000000000\n"), [0_i32; 0]);
        assert_eq!(ignored_signals("nothing"), [0_i32; 0]);
        assert_eq!(ignored_signals("SigBlk:\t2\nSigIgn:\t0000000000004000\n"), [15]);
    }
}
