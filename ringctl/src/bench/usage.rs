//! CPU time, memory and disk of processes, as /proc and the file system tell.

use rota_daemon::processes;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

/// CPU time that a process used so far, of all its threads; `None` when it is gone.
pub fn cpu(pid: u32) -> Option<Duration> {
    processes::stat(i32::try_from(pid).ok()?).map(|it| it.cpu)
}

/// Resident memory of a process in bytes; `None` when it is gone.
pub fn resident(pid: u32) -> Option<u64> {
    resident_of(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
}

fn resident_of(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|it| it.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// Bytes that a process wrote so far, to files and connections; `None` when it is gone.
pub fn written(pid: u32) -> Option<u64> {
    written_of(&fs::read_to_string(format!("/proc/{pid}/io")).ok()?)
}

fn written_of(io: &str) -> Option<u64> {
    io.lines().find_map(|it| it.strip_prefix("wchar:"))?.trim().parse().ok()
}

/// Bytes that passed over this machine's loopback so far, of everything that runs on it.
pub fn loopback_bytes() -> std::io::Result<u64> {
    let wrong = || std::io::Error::other("/proc/net/dev says nothing of lo");
    received_of(&fs::read_to_string("/proc/net/dev")?, "lo").ok_or_else(wrong)
}

fn received_of(devices: &str, device: &str) -> Option<u64> {
    let rest =
        |line: &str| Some(line.trim_start().strip_prefix(device)?.strip_prefix(':')?.to_owned());
    devices.lines().find_map(rest)?.split_whitespace().next()?.parse().ok()
}

/// Bytes that a folder takes on disk, all below it included.
pub fn on_disk(path: &Path) -> u64 {
    let Ok(meta) = fs::symlink_metadata(path) else { return 0 };
    let own = meta.blocks() * 512;
    if !meta.is_dir() {
        return own;
    }
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    own + entries.map(|it| on_disk(&it.path())).sum::<u64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_is_read_from_its_line() {
        assert_eq!(resident_of("Name:\tx\nVmRSS:\t    2048 kB\n"), Some(2 << 20));
        assert_eq!(resident_of("Name:\tx\n"), None);
    }

    #[test]
    fn bytes_written_are_read_from_their_line() {
        assert_eq!(written_of("rchar: 5\nwchar: 77\nwrite_bytes: 3\n"), Some(77));
        assert_eq!(written_of("rchar: 5\n"), None);
        assert!(written(std::process::id()).is_some());
    }

    #[test]
    fn bytes_of_the_loopback_are_read_from_its_line() {
        let devices = "face |bytes packets\n eth0: 3 1\n    lo:  812 7 0\n";
        assert_eq!(received_of(devices, "lo"), Some(812));
        assert_eq!(received_of(" lo2: 5 1\n", "lo"), None);
        assert!(loopback_bytes().is_ok());
    }

    #[test]
    fn this_process_uses_memory() {
        assert!(resident(std::process::id()).unwrap() > 100_000);
        assert!(cpu(std::process::id()).is_some());
        assert_eq!(cpu(u32::MAX), None);
    }

    #[test]
    fn a_folder_is_counted_with_all_below_it() {
        let folder = tempfile::tempdir().unwrap();
        let empty = on_disk(folder.path());
        fs::create_dir(folder.path().join("below")).unwrap();
        fs::write(folder.path().join("below/file"), vec![1; 100_000]).unwrap();
        assert!(on_disk(folder.path()) >= empty + 100_000);
    }
}
