//! The programs of sessions, as the machine sees them: which run, and that none runs twice.

use crate::cluster::Cluster;
use crate::processes::{self, Process};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The folders of sessions that a node's data folder has, with their ids as they stand there: one for each life,
/// the oldest first.
pub fn session_folders(node: &Path) -> Vec<(String, PathBuf)> {
    let below = |folder: PathBuf| {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|it| it.path())
    };
    let lives = below(node.join("sessions")).flat_map(below).flat_map(below);
    let mut lives: Vec<PathBuf> = lives.collect();
    lives.sort();
    let id = |life: &PathBuf| {
        let id = life.parent().and_then(Path::file_name).expect("a life is below its id");
        id.to_string_lossy().into_owned()
    };
    lives.into_iter().map(|life| (id(&life), life)).collect()
}

/// The folder of the newest life of the session with that id.
///
/// # Panics
/// There is none.
pub fn session_folder(node: &Path, id: &str) -> PathBuf {
    let mut folders = session_folders(node).into_iter().rev();
    let found = folders.find(|it| it.0 == id);
    found.unwrap_or_else(|| panic!("session {id} has no folder in {}", node.display())).1
}

/// The processes of sessions that run for a test, by session id: a process is of the session whose
/// id it was started with.
pub fn running(folder: &Path) -> BTreeMap<String, Vec<Process>> {
    let mut running = BTreeMap::<String, Vec<Process>>::new();
    for process in processes::of_folder(folder) {
        if let Some(id) = process.variable("ROTA_SESSION") {
            running.entry(id).or_default().push(process);
        }
    }
    running
}

/// A session of which two programs run at this very moment; `None` when each runs once. A program
/// may be several processes, but it is one group. The node's own process between keeper and program is
/// in another one, and no program.
fn twice(folder: &Path) -> Option<String> {
    for (id, processes) in running(folder).into_iter().filter(|(_, them)| them.len() > 1) {
        // The first may have ended before the second was found: only what still runs counts.
        let still = processes.iter().filter(|it| it.runs() && !it.is_between());
        let still: BTreeSet<u32> = still.map(|it| it.group).collect();
        if still.len() > 1 {
            return Some(format!("session {id} runs as process groups {still:?}"));
        }
    }
    None
}

/// Looks again and again whether a session runs as two programs. A thread, because a look
/// reads much of `/proc`.
#[derive(Debug)]
pub struct NeverTwice {
    stop: Arc<AtomicBool>,
    looks: JoinHandle<Result<u64, String>>,
}

impl NeverTwice {
    /// Begins to look at the programs of a cluster.
    pub fn start(cluster: &Cluster) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (until, folder) = (stop.clone(), cluster.folder().to_owned());
        Self { stop, looks: std::thread::spawn(move || look(&folder, &until)) }
    }

    /// Ends the looking. Fails when a session ran twice.
    pub fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        let looks = self.looks.join().expect("the thread only looks");
        assert!(looks.unwrap_or_else(|twice| panic!("{twice}")) > 1, "it looked more than once");
    }
}

fn look(folder: &Path, stop: &AtomicBool) -> Result<u64, String> {
    let mut looks = 0;
    while !stop.load(Ordering::Relaxed) {
        if let Some(twice) = twice(folder) {
            return Err(twice);
        }
        looks += 1;
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(looks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PATIENCE, eventually};
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command};

    fn sleeper(folder: &Path, id: &str) -> Child {
        let mut command = Command::new("sleep");
        command.arg("600").process_group(0);
        command.env("ROTA_FOLDER", folder).env("ROTA_SESSION", id).spawn().unwrap()
    }

    /// A process is not found while it becomes another program.
    async fn until_running(folder: &Path, count: usize) {
        eventually("all processes run", PATIENCE, async || {
            let found = running(folder).values().map(Vec::len).sum::<usize>();
            if found == count { Ok(()) } else { Err(format!("{found} of {count} run")) }
        })
        .await;
    }

    #[tokio::test]
    async fn two_processes_of_one_session_are_found_and_those_of_two_are_fine() {
        let folder = crate::TestFolder::new();
        let mut children = vec![sleeper(folder.path(), "a"), sleeper(folder.path(), "b")];
        until_running(folder.path(), 2).await;
        assert_eq!(twice(folder.path()), None);
        children.push(sleeper(folder.path(), "b"));
        until_running(folder.path(), 3).await;
        let found = twice(folder.path()).unwrap();
        assert!(found.contains("session b"), "{found}");
        for mut child in children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}
