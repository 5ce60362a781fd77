//! Bounded waiting for conditions.

use rota_daemon::processes;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// Longest wait for anything. Far above what a busy machine needs; only a failure takes this long.
pub const LIMIT: Duration = Duration::from_secs(30);

/// Waits until `look` finds something.
pub async fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    let mut turn = tokio::time::interval(Duration::from_millis(5));
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < LIMIT, "waited {LIMIT:?} for {what}");
        turn.tick().await;
    }
}

/// Whether a process does anything; one that only waits to be reaped does not.
pub fn runs(pid: i32) -> bool {
    processes::stat(pid).is_some_and(|it| it.runs)
}

/// Waits until a process does nothing any more.
pub async fn until_gone(pid: i32) {
    until(&format!("the end of process {pid}"), || (!runs(pid)).then_some(())).await;
}

/// Waits until a file holds numbers, one a line, and gives them once there are `count`.
pub async fn numbers_in(file: &Path, count: usize) -> Vec<i32> {
    until(&format!("{count} numbers in {}", file.display()), || {
        let text = fs::read_to_string(file).ok()?;
        let complete = text.rsplit_once('\n')?.0;
        let numbers: Vec<i32> = complete.lines().filter_map(|line| line.parse().ok()).collect();
        (numbers.len() >= count).then_some(numbers)
    })
    .await
}

/// Pids of processes that do something and whose environment names the folder.
pub fn running_for(folder: &Path) -> Vec<i32> {
    let wanted = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let wanted = wanted.to_str().unwrap();
    let there = processes::all().into_iter().filter(|it| it.runs).map(|it| it.process.pid);
    there.filter(|pid| processes::has_variable(*pid, "ROTA_NODE_DATA", wanted)).collect()
}

/// Pids of a process's children, also of those that only wait to be reaped.
pub fn children_of(parent: i32) -> Vec<i32> {
    let children = processes::all().into_iter().filter(|it| it.parent == parent);
    children.map(|it| it.process.pid).collect()
}
