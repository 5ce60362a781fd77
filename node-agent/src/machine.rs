//! What the machine has for sessions: its processors, and its memory as far as this process may use it.

use rota_model::Resources;
use std::fs::read_to_string;
use std::path::{Path, PathBuf};

/// Processors in thousandths and memory in MiB; 0: that could not be found out, and is not counted.
pub fn machine() -> Resources {
    let processors = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let groups = read_to_string("/proc/self/cgroup").unwrap_or_default();
    let files = memory_files(&groups);
    let limits = files.iter().filter_map(|it| read_to_string(it).ok()?.trim().parse().ok());
    let all = read_to_string("/proc/meminfo").ok().and_then(|it| memory_bytes(&it));
    // A group without a limit says "max", or more than there is.
    let memory: Option<u64> = all.into_iter().chain(limits).min();
    let within = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    Resources {
        places: 0,
        cpu_millis: within(processors as u64 * 1_000),
        memory_mib: within(memory.unwrap_or(0) / (1024 * 1024)),
    }
}

/// The files that say how much memory the group of this process may have, and each group above it.
fn memory_files(groups: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for line in groups.lines() {
        let Some((names, path)) = line.split_once(':').and_then(|it| it.1.split_once(":/")) else {
            continue;
        };
        let (root, file) = match names {
            "" => ("/sys/fs/cgroup", "memory.max"),
            "memory" => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            _ => continue,
        };
        let folders = Path::new(path).ancestors();
        files.extend(folders.map(|it| Path::new(root).join(it).join(file)));
    }
    files
}

/// All of the machine's memory, by the text of /proc/meminfo.
fn memory_bytes(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|it| it.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1_024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_as_the_kernel_writes_it() {
        assert_eq!(memory_bytes("MemTotal:       16384 kB\nMemFree: 1 kB\n"), Some(16 << 20));
        assert_eq!(memory_bytes("MemFree: 1 kB\n"), None);
        assert_eq!(memory_bytes("MemTotal: many kB\n"), None);
    }

    #[test]
    fn every_group_above_this_process_may_limit_its_memory() {
        let files = memory_files("4:memory:/a/b\n3:cpu:/a\n0::/c\n");
        let files: Vec<_> = files.iter().filter_map(|it| it.to_str()).collect();
        let expected = [
            "/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/a/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            "/sys/fs/cgroup/c/memory.max",
            "/sys/fs/cgroup/memory.max",
        ];
        assert_eq!(files, expected);
    }

    #[test]
    fn this_machine_has_processors_and_memory() {
        let found = machine();
        assert!(found.cpu_millis >= 1_000 && found.memory_mib > 0, "{found:?}");
    }
}
