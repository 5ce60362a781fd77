//! The readable copy of the stable numbers: the folder `numbers` of the data folder, one file for each entry.
//!
//! ```text
//!   start: remove what is outdated, make all the rest invalid     before anything else runs
//!   then:  follow what the ring says, remove what is outdated     as it changes, and periodically
//!   stop:  make everything invalid
//! ```
//!
//! The ring assigns numbers and keeps them without this copy. So whatever goes wrong here is told in the log and
//! tried again, and stops nothing.

use crate::clock::Clock;
use crate::driver_state::DriverState;
use rota_ids::{Change, Followed, Name, Numbers, Swept, Told};
use rota_protocol::NumbersConfig;
use rota_storage::numbers::{NumbersError, NumbersFolder, Opened};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio_util::sync::CancellationToken;

/// The folder in the data folder.
const FOLDER: &str = "numbers";

/// Between two removals of what is outdated, and two attempts after a failure: a quarter of the retention within
/// these bounds. Longer, and files stay that long after they are outdated. Shorter, and it is looked at for nothing.
const PERIOD_MS_MIN: u64 = 1_000;
const PERIOD_MS_MAX: u64 = 60_000;

/// The copy, and what follows the ring with it.
pub struct NumbersCopy {
    path: PathBuf,
    retention_ms: u64,
    /// `None`: it is not there yet, or could not be opened.
    open: Option<Open>,
    /// What went wrong last; told once.
    trouble: Option<String>,
    /// What it follows by now: what the ring says, and the sessions that this manager numbers.
    told: [Arc<Told>; 2],
}

struct Open {
    folder: NumbersFolder,
    numbers: Numbers,
    /// Not on the disk yet, by name: the last change counts.
    unwritten: BTreeMap<Name, Change>,
}

impl Open {
    fn persist(&mut self) -> Result<(), NumbersError> {
        // Lasts first: what is cut off leaves no number above them.
        let is_last = |change: &&Change| match change.name() {
            Name::Last(_) => true,
            Name::Entry(_) => false,
        };
        let (lasts, entries): (Vec<&Change>, Vec<&Change>) =
            self.unwritten.values().partition(is_last);
        let changes: Vec<Change> = lasts.into_iter().chain(entries).cloned().collect();
        self.folder.persist(&changes)?;
        self.unwritten.clear();
        Ok(())
    }

    fn take(&mut self, changes: impl IntoIterator<Item = Change>) {
        self.unwritten.extend(changes.into_iter().map(|it| (it.name().clone(), it)));
    }
}

impl NumbersCopy {
    /// Starts with the folder, if it is there: removes what is outdated, and makes the rest invalid. A new one is
    /// made when the manager has its number.
    pub fn start(data: &Path, config: NumbersConfig) -> Self {
        let path = data.join(FOLDER);
        let NumbersConfig { retention_ms, .. } = config;
        let (open, trouble, told) = (None, None, Default::default());
        let mut copy = Self { path, retention_ms, open, trouble, told };
        if copy.path.exists() {
            copy.opened();
        }
        copy
    }

    /// Follows the ring until it is told to stop.
    pub fn follow(
        self,
        seen: watch::Receiver<DriverState>,
        stop: CancellationToken,
    ) -> JoinHandle<()> {
        tokio::spawn(run(self, seen, stop))
    }

    /// Opens the folder, unless it is open. Says whether it is.
    fn opened(&mut self) -> bool {
        if self.open.is_some() {
            return true;
        }
        // What is set aside is told by the folder itself.
        let Opened { folder, mut numbers, .. } =
            match NumbersFolder::open(&self.path, self.retention_ms) {
                Ok(opened) => opened,
                Err(error) => {
                    self.failed(&error);
                    return false;
                }
            };
        let Swept { removed, invalidated, changes } = numbers.start(wall_ms());
        let mut open = Open { folder, numbers, unwritten: BTreeMap::new() };
        open.take(changes);
        self.open = Some(open);
        let folder = self.path.display();
        tracing::info!(%folder, removed, invalidated, "the stable numbers of this manager start");
        self.persist();
        true
    }

    /// What the ring says now, and time passed.
    fn step(&mut self, told: [Arc<Told>; 2]) {
        if !self.opened() {
            return;
        }
        let is_news = told.iter().zip(&self.told).any(|(it, was)| !Arc::ptr_eq(it, was));
        self.told = told;
        let Some(open) = &mut self.open else { return };
        if is_news {
            let [of_ring, of_sessions] = &self.told;
            let told = of_ring.with(of_sessions);
            let Followed { adopted, purged, changes } = open.numbers.follow(&told, wall_ms());
            open.take(changes);
            let Swept { removed, invalidated, .. } = purged;
            if adopted + removed + invalidated > 0 {
                tracing::debug!(adopted, invalidated, removed, "stable numbers changed");
            }
        }
        let Swept { removed, changes, .. } = open.numbers.remove_outdated(wall_ms());
        open.take(changes);
        if removed > 0 {
            tracing::info!(removed, "stable numbers were outdated and are removed");
        }
        self.persist();
    }

    /// Makes everything invalid.
    fn stop(&mut self) {
        let Some(open) = &mut self.open else { return };
        let Swept { removed, invalidated, changes } = open.numbers.stop(wall_ms());
        open.take(changes);
        tracing::info!(removed, invalidated, "the stable numbers of this manager stop");
        self.persist();
    }

    fn persist(&mut self) {
        let Some(open) = &mut self.open else { return };
        match open.persist() {
            Ok(()) => self.trouble = None,
            Err(error) => self.failed(&error),
        }
    }

    fn failed(&mut self, error: &NumbersError) {
        let text = error.to_string();
        if self.trouble.as_ref() != Some(&text) {
            tracing::warn!(
                error = %text,
                "the readable copy of the stable numbers is old: the ring has them all the same, and the copy \
                 is tried again"
            );
            self.trouble = Some(text);
        }
    }

    fn period(&self) -> Duration {
        Duration::from_millis((self.retention_ms / 4).clamp(PERIOD_MS_MIN, PERIOD_MS_MAX))
    }
}

async fn run(
    mut copy: NumbersCopy,
    mut seen: watch::Receiver<DriverState>,
    stop: CancellationToken,
) {
    let period = copy.period();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            changed = seen.changed() => if changed.is_err() {
                // The driver has ended, and the process is about to.
                stop.cancelled().await;
                break;
            },
            () = tokio::time::sleep(period) => {}
        }
        let told = {
            let seen = seen.borrow_and_update();
            // A folder that was begun for a number which is refused is nobody's again.
            if seen.member.is_none() && copy.open.is_none() {
                continue;
            }
            [seen.numbers.clone(), seen.session_numbers.clone()]
        };
        let stepped = spawn_blocking(move || {
            copy.step(told);
            copy
        });
        copy = match stepped.await {
            Ok(copy) => copy,
            Err(error) => {
                tracing::error!(%error, "the readable copy of the stable numbers ends");
                return;
            }
        };
    }
    if let Err(error) = spawn_blocking(move || copy.stop()).await {
        tracing::error!(%error, "the readable copy of the stable numbers did not end well");
    }
}

fn wall_ms() -> u64 {
    Clock::start().now().wall_ms
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_model::{NodeId, PoolName};
    use rota_protocol::stable_numbers::{of_node, of_session};
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    const HOUR: NumbersConfig = NumbersConfig { retention_ms: 3_600_000, sessions: true };

    /// What the ring tells when these nodes are there, and no session.
    fn told(nodes: &[&str]) -> [Arc<Told>; 2] {
        let node = |id: &&str| of_node(&PoolName::default_pool(), &NodeId::parse(id).unwrap());
        let there: Vec<_> = nodes.iter().map(node).collect();
        let settled = Numbers::new(0).settle(&there, 1_000, 0);
        let mut told = Told::default();
        for (name, entry) in rota_ids::collapse(settled.changes) {
            told.learn(name, entry);
        }
        [Arc::new(told), Arc::default()]
    }

    /// The numbers in the files of entries, lasts left out, and how many files are valid.
    fn files(data: &Path) -> (Vec<String>, usize) {
        let (mut numbers, mut valid) = (Vec::new(), 0);
        for file in fs::read_dir(data.join(FOLDER)).unwrap() {
            let path = file.unwrap().path();
            let Some(name) = path.file_name().and_then(|it| it.to_str()) else { continue };
            if !name.ends_with(".db") {
                continue;
            }
            valid += usize::from(path.metadata().unwrap().permissions().mode() & 0o1000 != 0);
            if !name.contains("last") {
                numbers.push(fs::read_to_string(&path).unwrap());
            }
        }
        numbers.sort();
        (numbers, valid)
    }

    #[test]
    fn the_folder_follows_the_ring_and_is_invalid_after_a_stop_and_a_start() {
        let data = tempfile::tempdir().unwrap();
        let mut copy = NumbersCopy::start(data.path(), HOUR);
        assert!(!data.path().join(FOLDER).exists(), "it is made when the number is taken");
        copy.step(told(&["a", "b"]));
        assert_eq!(files(data.path()), (vec!["1".into(), "2".into()], 3));
        copy.step(told(&["a"]));
        assert_eq!(files(data.path()), (vec!["1".into(), "2".into()], 2));
        copy.stop();
        assert_eq!(files(data.path()).1, 0);
        drop(copy);
        let mut copy = NumbersCopy::start(data.path(), HOUR);
        assert_eq!(files(data.path()), (vec!["1".into(), "2".into()], 0));
        copy.step(told(&["a", "b"]));
        assert_eq!(files(data.path()).1, 3);
    }

    #[test]
    fn sessions_that_this_manager_numbers_stand_beside_what_the_ring_says() {
        let data = tempfile::tempdir().unwrap();
        let mut copy = NumbersCopy::start(data.path(), HOUR);
        let [of_ring, _] = told(&["a"]);
        let id = rota_model::SessionId::parse("s").unwrap();
        let session = rota_model::SessionKey::new(rota_model::Namespace::parse("x").unwrap(), id);
        let key = of_session(&PoolName::default_pool(), &NodeId::parse("a").unwrap(), &session);
        let mut sessions = Told::default();
        let entry = rota_ids::Entry { number: 7, valid: true, changed_ms: 0 };
        sessions.learn(Name::Entry(key.clone()), Some(entry));
        copy.step([of_ring.clone(), Arc::new(sessions)]);
        // A last comes with each of the two groups.
        assert_eq!(files(data.path()), (vec!["1".into(), "7".into()], 4));
        assert!(data.path().join(FOLDER).join(format!("{key}.db")).exists());
        // Another manager numbers them now.
        copy.step([of_ring, Arc::default()]);
        assert_eq!(files(data.path()).1, 3, "the last of its group stays as it was");
    }

    #[test]
    fn a_start_after_kill_makes_all_invalid_and_without_an_interval_they_go() {
        let data = tempfile::tempdir().unwrap();
        let mut copy = NumbersCopy::start(data.path(), HOUR);
        copy.step(told(&["a"]));
        drop(copy);
        assert_eq!(files(data.path()).1, 2);
        drop(NumbersCopy::start(data.path(), HOUR));
        assert_eq!(files(data.path()), (vec!["1".into()], 0));
        drop(NumbersCopy::start(data.path(), NumbersConfig { retention_ms: 0, ..HOUR }));
        assert_eq!(files(data.path()), (vec![], 0));
    }

    #[test]
    fn foreign_and_broken_files_are_set_aside_and_stop_nothing() {
        let data = tempfile::tempdir().unwrap();
        let mut copy = NumbersCopy::start(data.path(), HOUR);
        copy.step(told(&["a"]));
        drop(copy);
        let folder = data.path().join(FOLDER);
        fs::write(folder.join("notes.txt"), "mine").unwrap();
        for file in fs::read_dir(&folder).unwrap() {
            let path = file.unwrap().path();
            if path.to_string_lossy().ends_with(".db") {
                fs::write(path, "many").unwrap();
            }
        }
        let mut copy = NumbersCopy::start(data.path(), HOUR);
        copy.step(told(&["a"]));
        assert_eq!(files(data.path()), (vec!["1".into()], 2));
        assert_eq!(fs::read_dir(folder.join("set-aside")).unwrap().count(), 3);
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_tried_again() {
        let data = tempfile::tempdir().unwrap();
        let in_its_place = data.path().join(FOLDER);
        let mut copy = NumbersCopy::start(data.path(), HOUR);
        fs::write(&in_its_place, "a file").unwrap();
        copy.step(told(&["a"]));
        assert!(copy.trouble.is_some());
        fs::remove_file(&in_its_place).unwrap();
        copy.step(told(&["a"]));
        assert_eq!((files(data.path()).1, copy.trouble.is_none()), (2, true));
    }
}
