//! What holds one program to its limits.

use super::Bounds;
use super::ways::{Hierarchy, Ways};
use rota_node::class::Limits;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

/// The kernel's usual period, in microseconds.
const CPU_PERIOD_US: u64 = 100_000;

const MIB: u64 = 1024 * 1024;

/// How often a group whose processes have just ended is tried to be removed, and how long it is waited between.
const REMOVALS: (u32, Duration) = (20, Duration::from_millis(5));

/// [`Limits`] as they are written down.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Limits")]
struct LimitsWritten {
    memory_mib: Option<u32>,
    cpu_millis: Option<u32>,
    processes: Option<u32>,
}

/// What holds one program to its limits, as it is written down for a later agent.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Held {
    #[serde(with = "LimitsWritten")]
    limits: Limits,
    bounds: Bounds,
    /// Groups that count what went beyond memory, and beyond the number of processes.
    memory: Option<(PathBuf, u8)>,
    pids: Option<PathBuf>,
    /// Limits that nothing holds.
    unheld: Vec<String>,
}

impl Held {
    /// What its class allows.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Its control groups.
    pub fn groups(&self) -> &[PathBuf] {
        &self.bounds.groups
    }

    /// What its processes are bound by.
    pub fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    /// What its opener should know: which limits nothing holds. Empty: all are held.
    pub fn remark(&self) -> String {
        if self.unheld.is_empty() {
            return String::new();
        }
        format!("this node cannot hold it to {}", self.unheld.join(", "))
    }
}

/// What holds one program to its limits. Its groups go with it.
#[derive(Debug, Default)]
pub struct Limited {
    held: Held,
}

impl Limited {
    /// That of a program which an earlier agent started.
    pub fn again(held: Held) -> Self {
        Self { held }
    }

    /// To be written down.
    pub fn held(&self) -> &Held {
        &self.held
    }

    pub(super) fn make(
        ways: &Ways,
        limits: &Limits,
        name: &str,
        own_user: bool,
    ) -> Result<Self, String> {
        let mut made = Self { held: Held { limits: *limits, ..Held::default() } };
        if let Some(mib) = limits.memory_mib {
            made.hold_memory(ways.memory.as_ref(), name, u64::from(mib) * MIB)?;
        }
        match (limits.cpu_millis, &ways.cpu) {
            (Some(millis), Some(way)) => {
                let quota = u64::from(millis) * CPU_PERIOD_US / 1_000;
                let group = made.enter(way, name)?;
                match way.version {
                    2 => set(&group, "cpu.max", &format!("{quota} {CPU_PERIOD_US}"))?,
                    _ => {
                        set(&group, "cpu.cfs_period_us", &CPU_PERIOD_US.to_string())?;
                        set_below(&group, "cpu.cfs_quota_us", quota)?;
                    }
                }
            }
            (Some(_), None) => made.held.unheld.push("limits.cpu_millis".to_owned()),
            (None, _) => {}
        }
        match (limits.processes, &ways.pids) {
            (Some(most), Some(way)) => {
                let group = made.enter(way, name)?;
                set(&group, "pids.max", &most.to_string())?;
                made.held.pids = Some(group);
            }
            (Some(most), None) if own_user => made.held.bounds.processes = Some(u64::from(most)),
            (Some(_), None) => made.held.unheld.push("limits.processes".to_owned()),
            (None, _) => {}
        }
        Ok(made)
    }

    fn hold_memory(
        &mut self,
        way: Option<&Hierarchy>,
        name: &str,
        bytes: u64,
    ) -> Result<(), String> {
        let Some(way) = way else {
            self.held.bounds.memory_bytes = Some(bytes);
            return Ok(());
        };
        let group = self.enter(way, name)?;
        let (memory, swap) = match way.version {
            2 => (("memory.max", bytes), ("memory.swap.max", 0)),
            _ => (("memory.limit_in_bytes", bytes), ("memory.memsw.limit_in_bytes", bytes)),
        };
        set(&group, memory.0, &memory.1.to_string())?;
        // A kernel without swap has no such file.
        drop(fs::write(group.join(swap.0), swap.1.to_string()));
        self.held.memory = Some((group, way.version));
        Ok(())
    }

    /// The session's group in a hierarchy.
    fn enter(&mut self, way: &Hierarchy, name: &str) -> Result<PathBuf, String> {
        let group = way.folder.join(name);
        if !self.held.bounds.groups.contains(&group) {
            fs::create_dir(&group).map_err(|error| wrong(&group, &error))?;
            self.held.bounds.groups.push(group.clone());
        }
        Ok(group)
    }

    /// What the program's process is told.
    pub fn bounds(&self) -> &Bounds {
        &self.held.bounds
    }

    /// Which limit it came up against while it ran, as far as its groups know. `was_killed`: its first process was
    /// ended by KILL.
    pub fn broken(&self, was_killed: bool) -> Option<String> {
        let memory = self.held.memory.as_ref().is_some_and(|(group, version)| {
            let file = if *version == 2 { "memory.events" } else { "memory.oom_control" };
            counted(&group.join(file), "oom_kill") > 0
        });
        if let (true, Some(mib)) = (memory, self.held.limits.memory_mib) {
            return Some(match was_killed {
                true => format!("it went beyond its limit of memory ({mib} MiB)"),
                false => {
                    format!("a process of it had been ended at its limit of memory ({mib} MiB)")
                }
            });
        }
        let group =
            self.held.pids.as_ref().filter(|it| counted(&it.join("pids.events"), "max") > 0);
        let most = group.and(self.held.limits.processes)?;
        Some(format!("it had reached its limit of processes ({most})"))
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        self.held.bounds.groups.iter().for_each(|it| remove(it));
    }
}

/// Removes a group whose processes have ended.
pub(super) fn remove(group: &Path) {
    let (times, pause) = REMOVALS;
    let is_gone = (0..times).any(|_| match fs::remove_dir(group) {
        // The kernel lets go of what has just ended.
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
            sleep(pause);
            false
        }
        Ok(()) | Err(_) => true,
    });
    if !is_gone {
        tracing::warn!(group = %group.display(), "a control group is left: something is in it");
    }
}

fn set(group: &Path, file: &str, value: &str) -> Result<(), String> {
    let path = group.join(file);
    fs::write(&path, value).map_err(|error| wrong(&path, &error))
}

/// The kernel refuses more than the group above has; then that holds.
fn set_below(group: &Path, file: &str, value: u64) -> Result<(), String> {
    let path = group.join(file);
    match fs::write(&path, value.to_string()) {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        done => done.map_err(|error| wrong(&path, &error)),
    }
}

fn wrong(path: &Path, error: &io::Error) -> String {
    format!("no control group for its limits: {}: {error}", path.display())
}

/// A number behind a name, on a line of its own.
fn counted(file: &Path, name: &str) -> u64 {
    let text = fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find_map(|it| it.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|it| it.trim().parse().ok()).unwrap_or(0)
}
