//! What programs use of the machine: by their control groups where they have some, else by their processes.

use super::listing::{Listed, Listing, OfClass};
use crate::lease::boottime_us;
use rota_daemon::processes::{self, Stat};
use rota_model::{SessionKey, Token};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// What some processes use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Used {
    /// CPU time since the start, that of ended ones included.
    pub cpu: Duration,
    /// Bytes of memory now.
    pub memory_bytes: u64,
    /// How many they are.
    pub processes: u32,
}

impl Used {
    fn add(&mut self, other: Used) {
        self.cpu += other.cpu;
        self.memory_bytes += other.memory_bytes;
        self.processes += other.processes;
    }
}

/// What is used at one moment.
pub struct Sample {
    /// When, on the clock of leases.
    pub at_us: u64,
    /// By the node's own processes.
    pub own: Used,
    /// By all programs, those that have ended included.
    pub programs: Used,
    /// By each that runs, in order of namespace and id.
    pub sessions: Vec<((SessionKey, Token), Listed, Used)>,
    /// By the programs of each class.
    pub classes: BTreeMap<String, OfClass>,
}

/// Looks at every process of the machine; blocks.
pub fn sample(listing: &Listing) -> Sample {
    let listed = listing.all();
    let at_us = boottime_us();
    let below = Below::of(&processes::all());
    let (mut sessions, mut memory) = (Vec::with_capacity(listed.len()), BTreeMap::new());
    for (name, listed) in listed {
        let seen = below.of_program(&listed);
        let used = Used { cpu: listing.saw(&name, seen.cpu), ..seen };
        memory.insert(name.clone(), used.memory_bytes);
        sessions.push((name, listed, used));
    }
    let mut programs = Used { cpu: listing.ended_cpu(), ..Used::default() };
    sessions.iter().for_each(|(_, _, used)| programs.add(*used));
    let classes = listing.by_class(&memory);
    Sample { at_us, own: below.own(), programs, sessions, classes }
}

/// What a program used in all, when its keeper has waited for everything of it and was not reaped yet.
pub fn cpu_at_the_end(listed: &Listed) -> Duration {
    let by_keeper = || Some(processes::stat(listed.keeper?)?.reaped_cpu);
    cpu_of_groups(listed).or_else(by_keeper).unwrap_or_default()
}

/// Processes by who started them.
struct Below(BTreeMap<i32, Vec<Stat>>);

impl Below {
    fn of(all: &[Stat]) -> Self {
        let mut below: BTreeMap<i32, Vec<Stat>> = BTreeMap::new();
        all.iter().for_each(|it| below.entry(it.parent).or_default().push(*it));
        Self(below)
    }

    fn children(&self, pid: i32) -> &[Stat] {
        self.0.get(&pid).map_or(&[], Vec::as_slice)
    }

    /// What a keeper has below it. CPU time of what has ended is with whoever waited for it, at last with the keeper.
    fn of_program(&self, listed: &Listed) -> Used {
        let mut used = Used::default();
        let mut edge: Vec<i32> = listed.keeper.into_iter().collect();
        // The list was made in some moments, in which a number may have been used twice.
        let mut left = self.0.values().map(Vec::len).sum::<usize>();
        while let Some(parent) = edge.pop() {
            for child in self.children(parent).iter().take(left) {
                left -= 1;
                edge.push(child.process.pid);
                used.add(Used {
                    cpu: child.cpu + child.reaped_cpu,
                    memory_bytes: processes::resident_bytes(child.process.pid),
                    processes: u32::from(child.runs),
                });
            }
        }
        let reaped = listed.keeper.and_then(processes::stat).map(|it| it.reaped_cpu);
        used.cpu += reaped.unwrap_or_default();
        Used {
            cpu: cpu_of_groups(listed).unwrap_or(used.cpu),
            memory_bytes: memory_of_groups(listed).unwrap_or(used.memory_bytes),
            ..used
        }
    }

    /// This process and those that it started, without what these started.
    fn own(&self) -> Used {
        let me = i32::try_from(std::process::id()).unwrap_or_default();
        let children = self.children(me).iter().filter(|it| it.runs).copied();
        let mut used = Used::default();
        for it in processes::stat(me).into_iter().chain(children) {
            let memory_bytes = processes::resident_bytes(it.process.pid);
            used.add(Used { cpu: it.cpu, memory_bytes, processes: 1 });
        }
        used
    }
}

fn cpu_of_groups(listed: &Listed) -> Option<Duration> {
    listed.groups.iter().find_map(|group| {
        let version_2 = counted(&group.join("cpu.stat"), "usage_usec").map(Duration::from_micros);
        let version_1 = || number(&group.join("cpuacct.usage")).map(Duration::from_nanos);
        version_2.or_else(version_1)
    })
}

/// Without what the kernel may take back from its caches.
fn memory_of_groups(listed: &Listed) -> Option<u64> {
    listed.groups.iter().find_map(|group| {
        let stat = group.join("memory.stat");
        let of = |all: &str, cache: &str| {
            let all = number(&group.join(all))?;
            Some(all.saturating_sub(counted(&stat, cache).unwrap_or(0)))
        };
        let version_2 = of("memory.current", "inactive_file");
        version_2.or_else(|| of("memory.usage_in_bytes", "total_inactive_file"))
    })
}

fn number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// A number behind a name, on a line of its own.
fn counted(file: &Path, name: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find_map(|it| it.strip_prefix(name)?.strip_prefix(' '))?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_model::{ClassName, Stamp};
    use rota_node::class::Limits;
    use std::process::{Command, Stdio};

    fn listed(keeper: Option<i32>, groups: &[&Path]) -> Listed {
        Listed {
            life: Stamp::MIN,
            class: ClassName::parse("c").unwrap(),
            limits: Limits::default(),
            folder: "/f".into(),
            root: None,
            keeper,
            groups: groups.iter().map(|it| (*it).to_owned()).collect(),
            cpu: Duration::ZERO,
        }
    }

    #[test]
    fn groups_of_both_versions_tell_what_is_used_without_caches() {
        let (two, one) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (cpu, memory) = (one.path().join("cpu"), one.path().join("memory"));
        [&cpu, &memory].iter().for_each(|it| fs::create_dir(it).unwrap());
        for (file, text) in [
            (two.path().join("cpu.stat"), "usage_usec 1500000\nuser_usec 7\n"),
            (two.path().join("memory.current"), "1000\n"),
            (two.path().join("memory.stat"), "anon 600\ninactive_file 300\n"),
            (cpu.join("cpuacct.usage"), "2500000000\n"),
            (memory.join("memory.usage_in_bytes"), "5000\n"),
            (memory.join("memory.stat"), "inactive_file 1\ntotal_inactive_file 1000\n"),
        ] {
            fs::write(file, text).unwrap();
        }
        let below = Below::of(&[]);
        let by = |groups: &[&Path]| {
            let used = below.of_program(&listed(None, groups));
            (used.cpu.as_millis(), used.memory_bytes)
        };
        assert_eq!(by(&[two.path()]), (1_500, 700));
        assert_eq!(by(&[&cpu, &memory]), (2_500, 4_000));
        assert_eq!(by(&[]), (0, 0));
    }

    #[test]
    fn without_groups_it_is_what_the_keeper_has_below_it_and_has_waited_for() {
        let script = "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done & wait; echo; read line";
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut keeper = command.spawn().unwrap();
        let mut said = [0];
        std::io::Read::read_exact(keeper.stdout.as_mut().unwrap(), &mut said).unwrap();
        let pid = i32::try_from(keeper.id()).unwrap();
        let of = |pid| Below::of(&processes::all()).of_program(&listed(Some(pid), &[]));
        let used = of(pid);
        assert_eq!((used.processes, used.memory_bytes), (0, 0), "its child has ended");
        assert_eq!(used.cpu, cpu_at_the_end(&listed(Some(pid), &[])));
        assert!(!used.cpu.is_zero(), "and what that used is not forgotten");
        let below_me = of(i32::try_from(std::process::id()).unwrap());
        assert!(below_me.processes >= 1 && below_me.memory_bytes > 100_000, "{below_me:?}");
        assert!(below_me.cpu >= used.cpu);
        drop(keeper.stdin.take());
        keeper.wait().unwrap();
    }
}
