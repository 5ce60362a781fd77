//! What sessions leave free of the disk of the data folder.
//!
//! A full disk ends every manager that has its log there, and the node itself cannot write its lease. So a
//! node takes no session while less than its reserve is free, and keepers drop what programs print. What a
//! program writes into its folder is bounded by nobody. A download of content that would leave less is not begun.

use anyhow::ensure;
use std::io;
use std::path::{Path, PathBuf};

/// How long a look counts, in milliseconds.
const LOOK_MS: u64 = 250;

/// Bytes that are free on the disk of a folder, for who is not root.
pub fn free_bytes(folder: &Path) -> io::Result<u64> {
    let disk = rustix::fs::statvfs(folder)?;
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// Whether a folder may take so many bytes more.
///
/// # Errors
/// Less than the reserve would be free then.
pub fn may_take(folder: &Path, bytes: u64, reserve: u64) -> anyhow::Result<()> {
    let free = free_bytes(folder)?;
    let at = folder.display();
    ensure!(
        bytes == 0 || free >= bytes.saturating_add(reserve),
        "{bytes} bytes are to come, the disk of {at} has {free} bytes free, and --disk-reserve-bytes is {reserve}"
    );
    Ok(())
}

/// A disk, and what is to stay free of it.
#[derive(Debug)]
pub struct DiskReserve {
    folder: PathBuf,
    bytes: u64,
    looked_ms: Option<u64>,
    /// Why nothing is taken, if so.
    low: Option<String>,
}

impl DiskReserve {
    /// The disk of that folder. Nobody has looked yet.
    pub fn new(folder: PathBuf, bytes: u64) -> Self {
        Self { folder, bytes, looked_ms: None, low: None }
    }

    /// Why the node takes no session now, if so: a look of the last moments counts. A change is logged.
    pub fn look(&mut self, now_ms: u64) -> Option<&str> {
        let fresh = self.looked_ms.is_some_and(|it| now_ms < it.saturating_add(LOOK_MS));
        if !fresh {
            self.looked_ms = Some(now_ms);
            let low = self.found();
            let folder = self.folder.display();
            match (&self.low, &low) {
                (None, Some(why)) => tracing::warn!(why, "no session is taken, and no output kept"),
                (Some(_), None) => tracing::info!(%folder, "there is room again on the disk"),
                (Some(_), Some(_)) | (None, None) => {}
            }
            self.low = low;
        }
        self.low.as_deref()
    }

    fn found(&self) -> Option<String> {
        // A disk that cannot be asked is no reason: starts will tell.
        let free = free_bytes(&self.folder).ok().filter(|free| *free < self.bytes)?;
        let (folder, reserve) = (self.folder.display(), self.bytes);
        Some(format!(
            "the disk of {folder} has {free} bytes free, and --disk-reserve-bytes is {reserve}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_with_less_than_the_reserve_is_a_reason_until_it_has_more() {
        let folder = tempfile::tempdir().unwrap();
        let mut disk = DiskReserve::new(folder.path().to_owned(), u64::MAX);
        let why = disk.look(5).unwrap().to_owned();
        assert!(why.contains(folder.path().to_str().unwrap()), "{why}");
        disk.bytes = 0;
        assert_eq!(disk.look(6), Some(&*why), "that was looked at a moment ago");
        assert_eq!(disk.look(5 + LOOK_MS), None);
        let nowhere = folder.path().join("nowhere");
        assert_eq!(DiskReserve::new(nowhere, u64::MAX).look(0), None);
    }

    #[test]
    fn a_download_is_refused_while_it_would_leave_less_than_the_reserve() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        may_take(at, 1, 0).unwrap();
        may_take(at, 0, u64::MAX).unwrap();
        let why = may_take(at, 7, u64::MAX).unwrap_err().to_string();
        let named = [&*at.display().to_string(), "7 bytes", "--disk-reserve-bytes is 1844"];
        assert!(named.iter().all(|it| why.contains(it)), "{why}");
        assert!(may_take(&at.join("nowhere"), 1, 0).is_err());
    }
}
