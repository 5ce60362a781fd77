//! The processes below this one, as /proc tells.

use rota_daemon::processes::{self, Stat};
use std::collections::{BTreeMap, BTreeSet};

/// A process that runs or waits to be reaped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Descendant {
    /// Its pid.
    pub pid: u32,
    /// True when it ended and was not reaped yet.
    pub is_zombie: bool,
}

/// A pid as the kernel takes it; that of no process when there can be none.
pub fn signed(pid: u32) -> i32 {
    i32::try_from(pid).unwrap_or(0)
}

/// Everything that descends from `root` by a table of pid -> parent, but for children of `root` that are spared and what is
/// below them.
fn below(
    root: i32,
    parents: &BTreeMap<i32, i32>,
    is_spared: impl Fn(i32) -> bool,
) -> BTreeSet<i32> {
    let mut found = BTreeSet::new();
    let mut edge = vec![root];
    while let Some(parent) = edge.pop() {
        for (pid, of) in parents {
            let is_below = *of == parent && *pid != root;
            if is_below && !(*of == root && is_spared(*pid)) && found.insert(*pid) {
                edge.push(*pid);
            }
        }
    }
    found
}

/// Every process below this one at this moment. One that is started meanwhile may be missed: look
/// again until there is none.
pub fn all() -> Vec<Descendant> {
    all_but(|_| false)
}

/// The same without children that are spared by their command lines, and without what is below these.
pub fn all_but(is_spared: impl Fn(&[String]) -> bool) -> Vec<Descendant> {
    let there = processes::all();
    let parents = there.iter().map(|it| (it.process.pid, it.parent)).collect();
    let is_spared = |pid| is_spared(&processes::command_line(pid));
    let below = below(signed(std::process::id()), &parents, is_spared);
    let ours = there.into_iter().filter(|it| below.contains(&it.process.pid));
    let descendant = |stat: Stat| {
        let pid = u32::try_from(stat.process.pid).ok()?;
        Some(Descendant { pid, is_zombie: !stat.runs })
    };
    ours.filter_map(descendant).collect()
}

/// Its command line; empty for a zombie and for one that is gone.
pub fn command_line(pid: u32) -> Vec<String> {
    processes::command_line(signed(pid))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn grandchildren_are_below_and_siblings_are_not() {
        let parents = [(2, 1), (3, 2), (4, 3), (5, 1), (6, 5), (1, 0)].into();
        assert_eq!(below(2, &parents, |_| false), [3, 4].into());
        assert_eq!(below(6, &parents, |_| false), [].into());
        assert_eq!(below(1, &parents, |pid| pid == 2), [5, 6].into());
        assert_eq!(below(1, &parents, |pid| pid == 3), [2, 3, 4, 5, 6].into());
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
