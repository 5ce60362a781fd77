//! What `/proc` tells of processes, and the signals that end them.
//!
//! A pid alone names nothing for long: it is used again. Here a process is a pid with its start
//! time, and a process that is only waiting to be reaped counts as gone.

use rustix::io::Errno;
use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize};
use std::fs;
use std::time::Duration;

/// A process: its pid and when it started, in clock ticks since the machine booted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Process {
    /// The pid.
    pub pid: i32,
    /// Field 22 of `/proc/PID/stat`.
    pub start_ticks: u64,
}

/// What is used of `/proc/PID/stat`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stat {
    /// Pid and start time.
    pub process: Process,
    /// Parent.
    pub parent: i32,
    /// Process group.
    pub group: i32,
    /// True while it still does something: neither zombie nor dead.
    pub runs: bool,
    /// CPU time that it used so far, of all its threads.
    pub cpu: Duration,
}

/// The kernel's clock tick in ms, as user space is told.
const TICK_MS: u64 = 10;

fn parse_stat(text: &str) -> Option<Stat> {
    let (pid, rest) = text.split_once(' ')?;
    // The name in parentheses may hold anything, also parentheses: the last one ends it.
    let (_, rest) = rest.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let ticks = |index: usize| fields.get(index)?.parse::<u64>().ok();
    Some(Stat {
        process: Process { pid: pid.parse().ok()?, start_ticks: ticks(19)? },
        parent: fields.get(1)?.parse().ok()?,
        group: fields.get(2)?.parse().ok()?,
        runs: !matches!(*fields.first()?, "Z" | "X" | "x"),
        cpu: Duration::from_millis((ticks(11)? + ticks(12)?) * TICK_MS),
    })
}

/// One process, if it exists.
pub fn stat(pid: i32) -> Option<Stat> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Every process that can be seen. Costs one file per process of the machine: for ends and
/// starts, not for every day.
pub fn all() -> Vec<Stat> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    names.filter_map(stat).collect()
}

/// Its command line; empty for a zombie and for one that is gone.
pub fn command_line(pid: i32) -> Vec<String> {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let arguments = bytes.split(|it| *it == 0).filter(|it| !it.is_empty());
    arguments.map(|it| String::from_utf8_lossy(it).into_owned()).collect()
}

/// The value of a variable in the environment that a process was started with.
pub fn variable(pid: i32, name: &str) -> Option<Vec<u8>> {
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let mut entries = environment.split(|byte| *byte == 0);
    entries.find_map(|it| Some(it.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?.to_vec()))
}

/// Whether the environment that a process was started with holds `name=value`.
pub fn has_variable(pid: i32, name: &str, value: &str) -> bool {
    variable(pid, name).is_some_and(|it| it == value.as_bytes())
}

/// Names this boot of the machine: start times of another boot mean nothing.
pub fn machine_boot() -> String {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    text.trim().to_owned()
}

impl Process {
    /// The process with that pid, if there is one.
    pub fn of(pid: i32) -> Option<Self> {
        stat(pid).map(|it| it.process)
    }

    /// Whether exactly this process still does something.
    pub fn runs(self) -> bool {
        stat(self.pid).is_some_and(|it| it.runs && it.process == self)
    }

    /// Sends a signal, unless the pid belongs to another process by now.
    pub fn signal(self, signal: Signal) {
        if self.runs() {
            send(self.pid, signal);
        }
    }
}

fn send(pid: i32, signal: Signal) {
    // ESRCH is the wanted result come early; EPERM (a set-uid program) shows as "still there".
    if let Some(pid) = Pid::from_raw(pid) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// Sends a signal to every process of a group.
pub fn signal_group(group: i32, signal: Signal) {
    if let Some(group) = Pid::from_raw(group) {
        let _ = rustix::process::kill_process_group(group, signal);
    }
}

/// True once no process of the group exists, not even one that waits to be reaped.
pub fn group_is_gone(group: i32) -> bool {
    Pid::from_raw(group)
        .is_none_or(|group| rustix::process::test_kill_process_group(group) == Err(Errno::SRCH))
}

/// True once no process of the group does anything. For watchers that are not the parent and so
/// cannot reap.
pub fn group_is_idle(group: i32) -> bool {
    group_is_gone(group) || !all().iter().any(|it| it.runs && it.group == group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stat_line_is_read_whatever_the_name_is() {
        let tail = "0 -1 4194560 1 0 0 0 12 30 0 0 20 0 1 0 4242 1 2";
        let stat = parse_stat(&format!("17 (a) b (c) S 3 5 7 {tail}")).unwrap();
        assert_eq!(stat.process, Process { pid: 17, start_ticks: 4242 });
        assert_eq!((stat.parent, stat.group, stat.runs), (3, 5, true));
        assert_eq!(stat.cpu, Duration::from_millis(420));
        assert!(!parse_stat(&format!("17 (x) Z 3 5 7 {tail}")).unwrap().runs);
        assert_eq!(parse_stat("17 (x"), None);
    }

    #[test]
    fn this_process_is_found_with_its_start_time() {
        let pid = i32::try_from(std::process::id()).unwrap();
        let me = Process::of(pid).unwrap();
        assert!(me.runs());
        assert!(!Process { start_ticks: me.start_ticks + 1, ..me }.runs());
        assert!(all().iter().any(|it| it.process == me));
        let program = std::env::args().next().unwrap();
        assert_eq!(command_line(pid).first(), Some(&program));
    }
}
