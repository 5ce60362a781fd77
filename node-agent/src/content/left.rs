//! Repositories that the node follows no more: their folders go once no session has one of their versions.

use super::version::{folders, remove};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Begins the names of folders that are being removed; no repository has such a name.
const GONE: &str = ".gone-";

/// What is left of repositories.
#[derive(Debug, Default)]
pub struct Left {
    /// Since when each of them is not followed. A start that is under way may have taken a version of it.
    since: BTreeMap<String, Instant>,
    /// The last removal.
    removal: Option<JoinHandle<()>>,
}

impl Left {
    /// Removes the folders of all repositories but the one that is followed: those that have not been for so long,
    /// and in which no session and no version in use lies. Many files take long: nothing waits for them.
    ///
    /// # Errors
    /// The folder of all repositories cannot be read.
    pub fn remove(
        &mut self,
        all: &Path,
        followed: Option<&str>,
        used: &BTreeSet<PathBuf>,
        after: Duration,
    ) -> io::Result<()> {
        let going = self.put_away(all, followed, used, after)?;
        if !going.is_empty() && self.removal.as_ref().is_none_or(JoinHandle::is_finished) {
            let removal = tokio::task::spawn_blocking(move || going.iter().for_each(|it| gone(it)));
            self.removal = Some(removal);
        }
        Ok(())
    }

    /// Gives the folders that are to be removed.
    fn put_away(
        &mut self,
        all: &Path,
        followed: Option<&str>,
        used: &BTreeSet<PathBuf>,
        after: Duration,
    ) -> io::Result<Vec<PathBuf>> {
        let (before, mut going) = (std::mem::take(&mut self.since), Vec::new());
        for name in folders(all)? {
            if name.starts_with(GONE) {
                going.push(all.join(name));
                continue;
            }
            if followed == Some(&name) {
                continue;
            }
            let since = before.get(&name).copied().unwrap_or_else(Instant::now);
            let (from, to) = (all.join(&name), all.join(format!("{GONE}{name}")));
            let is_used = used.iter().any(|it| it.starts_with(&from));
            if since.elapsed() < after || is_used || to.exists() {
                self.since.insert(name, since);
            } else {
                fs::rename(from, &to)?;
                going.push(to);
            }
        }
        Ok(going)
    }
}

fn gone(folder: &Path) {
    match remove(folder) {
        Ok(()) => {
            tracing::info!(folder = %folder.display(), "content that is followed no more is removed")
        }
        Err(error) => tracing::warn!(%error, "content that is followed no more cannot be removed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_repository_goes_a_while_after_it_was_followed_and_not_while_a_session_has_it() {
        let folder = tempfile::tempdir().unwrap();
        let all = folder.path().join("content");
        let (mut left, after) = (Left::default(), Duration::from_secs(30));
        let nothing = BTreeSet::new();
        assert_eq!(left.put_away(&all, None, &nothing, after).unwrap(), [] as [PathBuf; 0]);
        for name in ["main", "main-2", "other", ".gone-earlier"] {
            fs::create_dir_all(all.join(name).join("versions/v")).unwrap();
        }
        let used = BTreeSet::from([all.join("main-2/versions/v")]);
        let earlier = all.join(".gone-earlier");
        let going = left.put_away(&all, Some("other"), &used, after).unwrap();
        assert_eq!(going, [earlier], "a start may be under way");
        tokio::time::advance(after).await;
        left.remove(&all, Some("other"), &used, after).unwrap();
        left.removal.take().unwrap().await.unwrap();
        let names = BTreeSet::from_iter(folders(&all).unwrap());
        assert_eq!(names, ["main-2", "other"].map(str::to_owned).into());
        assert_eq!(left.put_away(&all, None, &nothing, after).unwrap(), [all.join(".gone-main-2")]);
        tokio::time::advance(after).await;
        left.put_away(&all, Some("other"), &nothing, after).unwrap();
        assert!(all.join("other").exists(), "it is followed again");
        assert_eq!(left.since, BTreeMap::new());
    }
}
