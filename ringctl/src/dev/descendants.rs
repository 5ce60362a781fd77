//! The processes below this one, as /proc tells.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// A process that runs or waits to be reaped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Descendant {
    /// Its pid.
    pub pid: u32,
    /// True when it ended and was not reaped yet.
    pub is_zombie: bool,
}

/// What is used of /proc/PID/stat.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stat {
    /// Its parent's pid.
    pub parent: u32,
    /// True when it ended and was not reaped yet.
    pub is_zombie: bool,
    /// When it started, in the kernel's ticks since the boot: pids are used again.
    pub started: u64,
}

/// Reads `pid (comm) state ppid … starttime …`. The command can hold blanks and brackets.
fn parsed(stat: &str) -> Option<Stat> {
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let is_zombie = matches!(*fields.first()?, "Z" | "X" | "x");
    let (parent, started) = (fields.get(1)?.parse().ok()?, fields.get(19)?.parse().ok()?);
    Some(Stat { parent, is_zombie, started })
}

/// The process of that pid; `None` when there is none.
pub fn stat(pid: u32) -> Option<Stat> {
    parsed(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Everything that descends from `root` by a table of pid -> parent.
fn below(root: u32, parents: &BTreeMap<u32, u32>) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    let mut edge = vec![root];
    while let Some(parent) = edge.pop() {
        for (pid, of) in parents {
            if *of == parent && *pid != root && found.insert(*pid) {
                edge.push(*pid);
            }
        }
    }
    found
}

/// Every process below this one at this moment. One that is started meanwhile may be missed: look
/// again until there is none.
pub fn all() -> Vec<Descendant> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let (mut parents, mut zombies) = (BTreeMap::new(), BTreeSet::new());
    for entry in entries.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|it| it.parse::<u32>().ok()) else {
            continue;
        };
        // It may be gone since the folder was listed.
        let Some(stat) = stat(pid) else { continue };
        parents.insert(pid, stat.parent);
        if stat.is_zombie {
            zombies.insert(pid);
        }
    }
    let found = below(std::process::id(), &parents);
    found.into_iter().map(|pid| Descendant { pid, is_zombie: zombies.contains(&pid) }).collect()
}

/// Its command line; empty for a zombie and for one that is gone.
pub fn command_line(pid: u32) -> Vec<String> {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let arguments = bytes.split(|it| *it == 0).filter(|it| !it.is_empty());
    arguments.map(|it| String::from_utf8_lossy(it).into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_command_with_brackets_and_blanks_does_not_hide_the_parent() {
        let rest = "12 12 0 -1 4194560 131 0 0 0 1 2 0 0 20 0 1 0 31415 2871296 224";
        let stat = |is_zombie, parent| Some(Stat { parent, is_zombie, started: 31_415 });
        assert_eq!(parsed(&format!("12 (a) b) S 7 {rest}")), stat(false, 7));
        assert_eq!(parsed(&format!("12 (sleep) Z 1 {rest}")), stat(true, 1));
        assert_eq!(parsed("nonsense"), None);
    }

    #[test]
    fn grandchildren_are_below_and_siblings_are_not() {
        let parents = [(2, 1), (3, 2), (4, 3), (5, 1), (6, 5), (1, 0)].into();
        assert_eq!(below(2, &parents), [3, 4].into());
        assert_eq!(below(6, &parents), [].into());
    }

    #[test]
    fn a_child_and_its_child_are_found_by_walking_proc() {
        // The shell starts a sleep and tells its pid, so that nothing is guessed.
        let mut shell = Command::new("sh")
            .args(["-c", "sleep 60 & echo $!; wait"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut stdout = std::io::BufReader::new(shell.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut stdout, &mut line).unwrap();
        let grandchild: u32 = line.trim().parse().unwrap();
        let found: Vec<u32> = all().iter().map(|it| it.pid).collect();
        assert!(found.contains(&shell.id()) && found.contains(&grandchild), "{found:?}");
        assert_eq!(command_line(shell.id()).first().map(String::as_str), Some("sh"));
        let pid = rustix::process::Pid::from_raw(grandchild.try_into().unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        shell.wait().unwrap();
        assert!(all().iter().all(|it| it.pid != shell.id()));
    }
}
