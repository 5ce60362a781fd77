//! Limits of programs, as their classes say.
//!
//! ```text
//!  class: limits ──▶ Limiter ──▶ Limited: groups and limits of processes ──▶ the shim, before it becomes the program
//! ```
//! Each limit is enforced by the best that the machine has. A control group holds the whole session. Without one, a limit
//! of processes holds each process for itself (memory), or all processes of the session's own user. What cannot be
//! enforced is told with the session.

mod group;
mod ways;

pub use group::{Held, Limited};

use crate::limits::ways::Ways;
use rota_node::class::Limits;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use xxhash_rust::xxh3::xxh3_64;

/// The file of a data folder that says where the groups of its programs are.
const GROUPS_FILE: &str = "groups.json";

/// What a process is told to be bound by before it becomes a program.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, clap::Args)]
pub struct Bounds {
    /// Limit of open files to set.
    #[arg(long)]
    pub open_files: Option<u64>,
    /// Control groups to enter.
    #[arg(long = "group")]
    pub groups: Vec<PathBuf>,
    /// Bytes of memory that one process may have.
    #[arg(long)]
    pub memory_bytes: Option<u64>,
    /// Processes that its user may have.
    #[arg(long)]
    pub processes: Option<u64>,
}

impl Bounds {
    /// As flags of a command line.
    pub fn flags(&self) -> Vec<String> {
        let numbers = [
            ("open-files", self.open_files),
            ("memory-bytes", self.memory_bytes),
            ("processes", self.processes),
        ];
        let numbers =
            numbers.into_iter().filter_map(|(name, it)| Some(format!("--{name}={}", it?)));
        let groups = self.groups.iter().map(|it| format!("--group={}", it.display()));
        numbers.chain(groups).collect()
    }
}

/// What this machine can hold programs to.
#[derive(Debug)]
pub struct Limiter {
    ways: Ways,
    /// How groups of this data folder begin.
    prefix: String,
    count: AtomicU64,
}

impl Limiter {
    /// Looks what the machine has, and removes groups that an earlier agent of this data folder left, but for
    /// those of `spare`.
    pub fn look(data: &Path, spare: &BTreeSet<PathBuf>) -> Self {
        let ways = Ways::look();
        tracing::info!(held = ways.shown(), "limits of classes");
        Self::of(ways, data, spare)
    }

    /// Of a machine that can hold programs to nothing.
    #[cfg(test)]
    pub fn of_nothing() -> Self {
        Self::of(Ways::default(), Path::new("/nowhere"), &BTreeSet::new())
    }

    fn of(ways: Ways, data: &Path, spare: &BTreeSet<PathBuf>) -> Self {
        let data = fs::canonicalize(data).unwrap_or_else(|_| data.to_owned());
        let prefix = format!("rota-{:016x}-", xxh3_64(data.as_os_str().as_encoded_bytes()));
        let folders: Vec<PathBuf> =
            ways.hierarchies().into_iter().map(|it| it.folder.clone()).collect();
        folders.iter().for_each(|it| remove_left(it, &prefix, |group| !spare.contains(group)));
        let written = Written { prefix: prefix.clone(), folders };
        if let Ok(text) = serde_json::to_vec(&written)
            && let Err(error) = fs::write(data.join(GROUPS_FILE), text)
        {
            tracing::warn!(%error, "control groups stay where this agent is killed");
        }
        Self { ways, prefix, count: AtomicU64::new(0) }
    }

    /// Makes what holds one program to these limits. `own_user`: whether the session has a user of its own.
    ///
    /// # Errors
    /// A group that could not be made. Nothing is to run then.
    pub fn limit(&self, limits: &Limits, own_user: bool) -> Result<Limited, String> {
        if *limits == Limits::default() {
            return Ok(Limited::default());
        }
        // The count may be that of a group that an earlier process with this pid left.
        let is_free = |name: &String| {
            let all = self.ways.hierarchies();
            all.iter().all(|it| !it.folder.join(name).exists())
        };
        let name = std::iter::repeat_with(|| self.count.fetch_add(1, Ordering::Relaxed))
            .map(|count| format!("{}{}-{count}", self.prefix, std::process::id()))
            .find(is_free);
        Limited::make(&self.ways, limits, &name.unwrap_or_default(), own_user)
    }
}

/// Where the groups of a data folder's programs are, for whoever outlives the agent.
#[derive(Serialize, Deserialize)]
struct Written {
    prefix: String,
    folders: Vec<PathBuf>,
}

/// Removes the groups of programs that an agent of that data folder left: what was in them has ended. `may` is
/// asked before each: an agent that came meanwhile has groups of the same kind.
pub fn remove_groups_of(data: &Path, may: impl Fn() -> bool) {
    let text = fs::read(data.join(GROUPS_FILE)).unwrap_or_default();
    let Ok(written) = serde_json::from_slice::<Written>(&text) else { return };
    written.folders.iter().for_each(|it| remove_left(it, &written.prefix, |_| may()));
}

/// Groups whose processes are gone, and that may go. One that holds some stays: the kernel refuses.
fn remove_left(folder: &Path, prefix: &str, may: impl Fn(&Path) -> bool) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let left = entries.filter(|it| it.file_name().to_string_lossy().starts_with(prefix));
    left.map(|it| it.path()).filter(|it| may(it)).for_each(|it| group::remove(&it));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_become_flags_and_come_back() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            bounds: Bounds,
        }
        let bounds = Bounds {
            open_files: Some(64),
            groups: vec!["/a b".into(), "/c".into()],
            memory_bytes: Some(1 << 20),
            processes: Some(3),
        };
        let line = std::iter::once("x".to_owned()).chain(bounds.flags());
        assert_eq!(<Line as clap::Parser>::parse_from(line).bounds, bounds);
        assert_eq!(Bounds::default().flags(), [] as [String; 0]);
    }

    /// A tree of files as the kernel shows groups of version 2.
    fn version_2(folder: &Path) -> Ways {
        Ways::of_version_2(folder.to_owned())
    }

    #[test]
    fn a_group_of_version_2_gets_the_limits_and_goes_with_its_session() {
        let folder = tempfile::tempdir().unwrap();
        let limiter =
            Limiter::of(version_2(folder.path()), Path::new("/nowhere"), &BTreeSet::new());
        let limits = Limits { memory_mib: Some(64), cpu_millis: Some(1_500), processes: Some(9) };
        let limited = limiter.limit(&limits, false).unwrap();
        let [group] = &limited.bounds().groups[..] else { panic!("{limited:?}") };
        let read = |name: &str| fs::read_to_string(group.join(name)).unwrap();
        assert_eq!(read("memory.max"), "67108864");
        assert_eq!(read("pids.max"), "9");
        assert_eq!(read("cpu.max"), "150000 100000");
        assert_eq!((limited.bounds().memory_bytes, limited.bounds().processes), (None, None));
        assert_eq!(limited.held().remark(), "");
        assert_eq!(limited.broken(true), None);
        fs::write(group.join("memory.events"), "low 0\noom 1\noom_kill 2\n").unwrap();
        assert_eq!(limited.broken(true).unwrap(), "it went beyond its limit of memory (64 MiB)");
        let child = "a process of it had been ended at its limit of memory (64 MiB)";
        assert_eq!(limited.broken(false).unwrap(), child);
        fs::write(group.join("memory.events"), "oom_kill 0\n").unwrap();
        fs::write(group.join("pids.events"), "max 1\n").unwrap();
        assert_eq!(limited.broken(false).unwrap(), "it had reached its limit of processes (9)");
        // Files of a real group are no files of their folder.
        for entry in fs::read_dir(group).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
        }
        let group = group.clone();
        drop(limited);
        assert!(!group.exists());
    }

    #[test]
    fn groups_that_an_earlier_agent_of_the_folder_left_are_removed_and_no_others() {
        let (folder, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let ways = || version_2(folder.path());
        let limits = Limits { processes: Some(9), ..Limits::default() };
        let none = BTreeSet::new();
        let left = Limiter::of(ways(), data.path(), &none).limit(&limits, false).unwrap();
        let [group] = &left.bounds().groups[..] else { panic!("{left:?}") };
        let group = group.clone();
        std::mem::forget(left);
        fs::remove_file(group.join("pids.max")).unwrap();
        drop(Limiter::of(ways(), Path::new("/nowhere"), &BTreeSet::new()));
        assert!(group.exists());
        remove_groups_of(data.path(), || false);
        assert!(group.exists(), "another agent is there");
        remove_groups_of(data.path(), || true);
        assert!(!group.exists());
        fs::create_dir(&group).unwrap();
        drop(Limiter::of(ways(), data.path(), &BTreeSet::from([group.clone()])));
        assert!(group.exists(), "a program that goes on is in it");
        drop(Limiter::of(ways(), data.path(), &none));
        assert!(!group.exists());
    }

    #[test]
    fn what_holds_a_program_is_written_down_and_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let limiter =
            Limiter::of(version_2(folder.path()), Path::new("/nowhere"), &BTreeSet::new());
        let limits = Limits { memory_mib: Some(64), ..Limits::default() };
        let limited = limiter.limit(&limits, false).unwrap();
        let text = serde_json::to_string(limited.held()).unwrap();
        let held: Held = serde_json::from_str(&text).unwrap();
        assert_eq!((&held, held.limits()), (limited.held(), limits));
        std::mem::forget(limited);
        let group = held.groups()[0].clone();
        let again = Limited::again(held);
        fs::write(group.join("memory.events"), "oom_kill 1\n").unwrap();
        assert_eq!(again.broken(true).unwrap(), "it went beyond its limit of memory (64 MiB)");
        // Files of a real group are no files of their folder.
        fs::read_dir(&group).unwrap().flatten().for_each(|it| fs::remove_file(it.path()).unwrap());
        drop(again);
        assert!(!group.exists());
    }

    #[test]
    fn without_groups_processes_have_limits_and_what_nothing_holds_is_told() {
        let limiter = Limiter::of(Ways::default(), Path::new("/nowhere"), &BTreeSet::new());
        let limits = Limits { memory_mib: Some(1), cpu_millis: Some(500), processes: Some(4) };
        let limited = limiter.limit(&limits, true).unwrap();
        let bounds = limited.bounds();
        assert_eq!((bounds.memory_bytes, bounds.processes), (Some(1 << 20), Some(4)));
        assert_eq!(limited.held().remark(), "this node cannot hold it to limits.cpu_millis");
        let shared = limiter.limit(&limits, false).unwrap();
        assert_eq!(shared.bounds().processes, None);
        let text = "this node cannot hold it to limits.cpu_millis, limits.processes";
        assert_eq!(shared.held().remark(), text);
        assert_eq!(limiter.limit(&Limits::default(), true).unwrap().held().remark(), "");
    }
}
