//! What `/proc` tells of processes, and the signals that end them.
//!
//! A pid alone names nothing for long: it is used again. Here a process is a pid with its start
//! time, and a process that is only waiting to be reaped counts as gone.
//!
//! `/proc/PID` shows the first thread of a process. A program may end that one and go on in others, and
//! of a process that is killed with many threads the first may end before one that holds its port. Such
//! a process is shown as a zombie and still runs, so a zombie counts as gone only when no other
//! thread of it does anything.

use rustix::io::Errno;
use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
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
    /// True while a thread of it still does something: is neither zombie nor dead.
    pub runs: bool,
    /// CPU time that it used so far, of all its threads.
    pub cpu: Duration,
    /// The same of its children that have ended and were waited for, and of theirs.
    pub reaped_cpu: Duration,
}

/// The kernel's clock tick in ms, as user space is told.
const TICK_MS: u64 = 10;

/// A process as its line tells, where `runs` is said of its first thread; and how many threads it has.
fn parse_stat(text: &str) -> Option<(Stat, u64)> {
    let (pid, rest) = text.split_once(' ')?;
    // The name in parentheses may hold anything, also parentheses: the last one ends it.
    let (_, rest) = rest.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let ticks = |index: usize| fields.get(index)?.parse::<u64>().ok();
    let stat = Stat {
        process: Process { pid: pid.parse().ok()?, start_ticks: ticks(19)? },
        parent: fields.get(1)?.parse().ok()?,
        group: fields.get(2)?.parse().ok()?,
        runs: !matches!(*fields.first()?, "Z" | "X" | "x"),
        cpu: Duration::from_millis((ticks(11)? + ticks(12)?) * TICK_MS),
        reaped_cpu: Duration::from_millis((ticks(13)? + ticks(14)?) * TICK_MS),
    };
    Some((stat, ticks(17)?))
}

/// One process, if it exists.
pub fn stat(pid: i32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (stat, threads) = parse_stat(&text)?;
    // Most zombies have no other thread, and cost no second look.
    let runs = stat.runs || (threads > 1 && another_thread(pid).is_some());
    Some(Stat { runs, ..stat })
}

/// The ids of a process's threads, also of those that ended and are still there.
fn threads(pid: i32) -> BTreeSet<i32> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/task")) else { return BTreeSet::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// A thread that does something, beside the first one.
fn another_thread(pid: i32) -> Option<i32> {
    let acts = |thread: &i32| {
        let text = fs::read_to_string(format!("/proc/{pid}/task/{thread}/stat"));
        text.is_ok_and(|it| parse_stat(&it).is_some_and(|(stat, _)| stat.runs))
    };
    // One may start another and end between the list and the look at it. Once a list has only threads
    // that were seen to have ended, nobody is left who could have started one.
    let mut ended = BTreeSet::from([pid]);
    loop {
        let unseen: Vec<i32> = threads(pid).difference(&ended).copied().collect();
        if unseen.is_empty() {
            return None;
        }
        if let Some(found) = unseen.iter().find(|it| acts(it)) {
            return Some(*found);
        }
        ended.extend(unseen);
    }
}

/// A file of `/proc/PID` that tells of the whole process; empty for a zombie, for one that is gone and
/// for one that may not be looked at. By a thread that ended it cannot be read, not even by the first.
fn file(pid: i32, name: &str) -> Vec<u8> {
    let bytes = fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
    if !bytes.is_empty() {
        return bytes;
    }
    let by_another = |thread| fs::read(format!("/proc/{pid}/task/{thread}/{name}")).ok();
    another_thread(pid).and_then(by_another).unwrap_or_default()
}

/// Bytes of memory of a process that are resident, those that it shares with others included; 0 for one that is gone.
pub fn resident_bytes(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|it| it.strip_prefix("VmRSS:")?.strip_suffix("kB"));
    line.and_then(|it| it.trim().parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// Every process that can be seen. Costs one file per process of the machine: for ends and
/// starts, not for every day.
pub fn all() -> Vec<Stat> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    names.filter_map(stat).collect()
}

/// Every process below one: its children, theirs and so on, as this process sees their pids; those in
/// pid namespaces of their own, too. One that is started meanwhile may be missed: look again.
pub fn descendants(pid: i32) -> Vec<i32> {
    if !fs::exists("/proc/thread-self/children").unwrap_or(false) {
        // The kernel keeps no list of children: one look at everything.
        let below = descendants_among(&all(), pid, |_| false);
        return below.into_iter().map(|it| it.pid).collect();
    }
    let (mut found, mut edge) = (Vec::new(), vec![pid]);
    while let Some(parent) = edge.pop() {
        let of_thread = |thread| children_of(parent, thread);
        let below: Vec<i32> = threads(parent).into_iter().flat_map(of_thread).collect();
        edge.extend(&below);
        found.extend(below);
    }
    found
}

/// The children that a thread has started, and those that it was given by a parent that ended.
fn children_of(pid: i32, thread: i32) -> Vec<i32> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{thread}/children"));
    text.unwrap_or_default().split_ascii_whitespace().filter_map(|it| it.parse().ok()).collect()
}

fn texts(pid: i32, name: &str) -> Vec<String> {
    let bytes = file(pid, name);
    let texts = bytes.split(|it| *it == 0).filter(|it| !it.is_empty());
    texts.map(|it| String::from_utf8_lossy(it).into_owned()).collect()
}

/// Its command line; empty for a zombie and for one that is gone.
pub fn command_line(pid: i32) -> Vec<String> {
    texts(pid, "cmdline")
}

/// The environment that it was started with, as `NAME=value`; empty as its command line is.
pub fn environment(pid: i32) -> Vec<String> {
    texts(pid, "environ")
}

/// The value of a variable in the environment that a process was started with.
pub fn variable(pid: i32, name: &str) -> Option<Vec<u8>> {
    let environment = file(pid, "environ");
    let mut entries = environment.split(|byte| *byte == 0);
    entries.find_map(|it| Some(it.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?.to_vec()))
}

/// Whether the environment that a process was started with holds `name=value`.
pub fn has_variable(pid: i32, name: &str, value: &str) -> bool {
    variable(pid, name).is_some_and(|it| it == value.as_bytes())
}

/// The user that a process runs as (its real uid); `None` for one that is gone.
pub fn user(pid: i32) -> Option<u32> {
    uids(pid).map(|[real, ..]| real)
}

/// The user as whom a process makes files and sockets; `None` for one that is gone.
pub fn maker(pid: i32) -> Option<u32> {
    uids(pid).map(|[.., of_files]| of_files)
}

/// Real, effective, saved, and that of files.
fn uids(pid: i32) -> Option<[u32; 4]> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|it| it.strip_prefix("Uid:"))?;
    let uids = line.split_ascii_whitespace().map(str::parse);
    uids.collect::<Result<Vec<u32>, _>>().ok()?.try_into().ok()
}

/// Of these processes, the descendants of `ancestor` that run, but for those that `apart` holds for, and
/// their descendants.
pub fn descendants_among(
    all: &[Stat],
    ancestor: i32,
    apart: impl Fn(&Stat) -> bool,
) -> Vec<Process> {
    let mut found = Vec::new();
    let mut parents = BTreeSet::from([ancestor]);
    // Each round finds one generation more. Whoever was seen is not looked at again: while the list was
    // made a number may have been used twice.
    let mut left: Vec<&Stat> = all.iter().collect();
    while !parents.is_empty() {
        let (children, others): (Vec<&Stat>, Vec<&Stat>) =
            left.into_iter().partition(|it| parents.contains(&it.parent));
        let children: Vec<&Stat> = children.into_iter().filter(|it| !apart(it)).collect();
        found.extend(children.iter().filter(|it| it.runs).map(|it| it.process));
        parents = children.iter().map(|it| it.process.pid).collect();
        left = others;
    }
    found
}

/// Names this boot of the kernel and this process's pid namespace, `BOOT_ID INODE`: pids and start times
/// of another one mean nothing here. Empty when `/proc` does not tell both.
///
/// The number of a namespace is used again once it is gone, and with it all its processes. So the same
/// name twice means the same processes, or none of the earlier ones.
pub fn machine_boot() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let namespace = fs::metadata("/proc/self/ns/pid").map(|it| it.ino());
    match (boot.trim(), namespace) {
        ("", _) | (_, Err(_)) => String::new(),
        (boot, Ok(namespace)) => format!("{boot} {namespace}"),
    }
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
    use rustix::process::{WaitId, WaitIdOptions, waitid};
    use std::io::{BufRead, BufReader};
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    #[test]
    fn a_stat_line_is_read_whatever_the_name_is() {
        let tail = "0 -1 4194560 1 0 0 0 12 30 5 6 20 0 1 0 4242 1 2";
        let (stat, threads) = parse_stat(&format!("17 (a) b (c) S 3 5 7 {tail}")).unwrap();
        assert_eq!(stat.process, Process { pid: 17, start_ticks: 4242 });
        assert_eq!((stat.parent, stat.group, stat.runs), (3, 5, true));
        assert_eq!((stat.cpu, threads), (Duration::from_millis(420), 1));
        assert_eq!(stat.reaped_cpu, Duration::from_millis(110));
        assert!(!parse_stat(&format!("17 (x) Z 3 5 7 {tail}")).unwrap().0.runs);
        assert_eq!(parse_stat("17 (x"), None);
    }

    #[test]
    fn descendants_are_found_in_every_generation_without_those_set_apart() {
        let of = |pid: i32, parent: i32| Stat {
            process: Process { pid, start_ticks: 1 },
            parent,
            group: 1,
            runs: pid != 5,
            cpu: Duration::ZERO,
            reaped_cpu: Duration::ZERO,
        };
        // 7 came back as a child of its own grandchild's number.
        let all = [of(3, 2), of(5, 3), of(6, 5), of(7, 2), of(8, 7), of(9, 1), of(2, 8)];
        let pids = |found: Vec<Process>| found.iter().map(|it| it.pid).collect::<Vec<_>>();
        assert_eq!(pids(descendants_among(&all, 2, |it| it.process.pid == 7)), [3, 6]);
        assert_eq!(pids(descendants_among(&all, 2, |_| false)), [3, 7, 8, 6, 2]);
        assert_eq!(pids(descendants_among(&all, 4, |_| false)), [0_i32; 0]);
    }

    #[test]
    fn the_user_of_a_process_is_told() {
        let me = i32::try_from(std::process::id()).unwrap();
        assert_eq!(user(me), Some(rustix::process::getuid().as_raw()));
        assert_eq!(maker(me), Some(rustix::process::geteuid().as_raw()));
        assert_eq!((user(-1), maker(-1)), (None, None));
    }

    #[test]
    fn the_memory_of_a_process_is_told() {
        let me = i32::try_from(std::process::id()).unwrap();
        assert!(resident_bytes(me) > 100_000);
        assert_eq!(resident_bytes(-1), 0);
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

    #[test]
    fn descendants_are_children_and_theirs_and_no_siblings() {
        let script = "sleep 60 & echo $!; read line; kill $!";
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut shell = command.spawn().unwrap();
        let mut sibling = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(shell.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let grandchild: i32 = line.trim().parse().unwrap();
        let signed = |pid: u32| i32::try_from(pid).unwrap();
        assert_eq!(descendants(signed(shell.id())), [grandchild]);
        let below = descendants(signed(std::process::id()));
        for pid in [signed(shell.id()), grandchild, signed(sibling.id())] {
            assert!(below.contains(&pid), "{pid} is not in {below:?}");
        }
        drop((shell.stdin.take(), sibling.stdin.take()));
        shell.wait().unwrap();
        sibling.wait().unwrap();
        assert!(descendants(grandchild).is_empty());
    }

    #[test]
    fn this_boot_of_the_machine_is_named_by_kernel_and_pid_namespace() {
        let boot = machine_boot();
        let (kernel, namespace) = boot.split_once(' ').unwrap();
        assert!(kernel.len() == 36 && namespace.parse::<u64>().is_ok(), "{boot}");
        let link = fs::read_link("/proc/self/ns/pid").unwrap();
        assert_eq!(link.to_str(), Some(&*format!("pid:[{namespace}]")));
    }

    /// Ends its first thread. Another one waits for that, says so, and goes on until its input ends.
    const FIRST_THREAD_ENDS: &str = r#"
import ctypes, os, sys, threading, time
def rest():
    until = time.monotonic() + 60
    while open("/proc/self/stat").read().rsplit(") ", 1)[1][0] != "Z":
        if time.monotonic() > until:
            os._exit(1)
        time.sleep(0.001)
    print("the first thread ended", flush=True)
    sys.stdin.read()
threading.Thread(target=rest).start()
ctypes.CDLL(None).pthread_exit(None)
"#;

    #[test]
    fn a_process_whose_first_thread_ended_runs_as_long_as_another_one_does() {
        let mut command = Command::new("python3");
        command.args(["-c", FIRST_THREAD_ENDS, "its last word"]).env("ROTA_MARK", "here");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut child = command.spawn().unwrap();
        let mut said = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut said).unwrap();
        assert_eq!(said, "the first thread ended\n");
        let pid = i32::try_from(child.id()).unwrap();
        let line = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        assert!(!parse_stat(&line).unwrap().0.runs, "its first thread is a zombie: {line}");

        let process = Process::of(pid).unwrap();
        assert!(process.runs());
        assert!(all().iter().any(|it| it.process == process && it.runs));
        assert!(!group_is_idle(pid));
        assert!(has_variable(pid, "ROTA_MARK", "here"));
        assert_eq!(command_line(pid).last().map(String::as_str), Some("its last word"));

        process.signal(Signal::KILL);
        // Until all of it is a zombie; it is not reaped yet.
        let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(Pid::from_raw(pid).unwrap()), ended).unwrap();
        assert_eq!(stat(pid).map(|it| it.runs), Some(false));
        assert!(!process.runs() && group_is_idle(pid) && !group_is_gone(pid));
        assert_eq!(command_line(pid), Vec::<String>::new());
        child.wait().unwrap();
        assert_eq!(Process::of(pid), None);
    }
}
