//! The end of a cluster: politely in order, then by force, and never without an end.
//!
//! TERM to node-agents (which end their sessions; once more when that takes long), then to managers, then to the config store;
//! after at most about 20 s in all everything that is left below us is killed and reaped.

use super::descendants::{self, Descendant};
use super::{earlier, family::Family, programs};
use anyhow::bail;
use rota_daemon::Stop;
use rustix::process::Signal;
use std::path::Path;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout_at};

/// How long node-agents may take to end their sessions: programs get a grace period. Longer than the
/// time after which an agent gives up that was told to hurry (`LEAVE_GIVE_UP_MS` in its `agent.rs`): managers that
/// ended before would hear of no end, and the sessions would be LOST instead of closed.
const AGENTS_WAIT: Duration = Duration::from_secs(12);
/// When they are told once more, and kill what still runs: a class may ask for a longer grace.
const AGENTS_HURRY: Duration = Duration::from_secs(7);
/// How long managers may take: longer than the 3 s that they give to calls under way.
const MANAGERS_WAIT: Duration = Duration::from_secs(4);
/// The same for the config store, and for whatever else was started.
const STORE_WAIT: Duration = Duration::from_secs(1);
/// How long killed processes may take to be gone.
const KILL_WAIT: Duration = Duration::from_secs(3);
/// How often /proc is looked at for processes that are not our own children.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The process is a node-agent that serves: not one of its keepers.
pub(super) fn is_agent(line: &[String]) -> bool {
    is(line, programs::NODE_AGENT) && line.get(1).is_some_and(|it| it == "run")
}

/// The process looks after a program for its node-agent, or after what is left of these.
fn is_keeper(line: &[String]) -> bool {
    let is_one = line.get(1).is_some_and(|it| it == "keeper" || it == "guardian");
    is_one && is(line, programs::NODE_AGENT)
}

fn is(line: &[String], name: &str) -> bool {
    line.first().is_some_and(|it| it.rsplit('/').next() == Some(name))
}

/// Picks processes by their command lines.
type Which = fn(&[String]) -> bool;

/// Which of the processes below this one are to end.
#[derive(Clone, Copy)]
struct Ours {
    /// Somebody started a node-agent in the folder that is not below this process. Keepers whose agent was killed came to
    /// this process, and may be that agent's by now: each ends with its agent or with its lease.
    spares_keepers: bool,
}

impl Ours {
    fn of(folder: &Path) -> Self {
        let below: Vec<u32> = descendants::all().iter().map(|it| it.pid).collect();
        let mut others = earlier::found(folder).into_iter().filter(|(_, pid)| !below.contains(pid));
        Self { spares_keepers: others.any(|(_, pid)| is_agent(&descendants::command_line(pid))) }
    }

    fn left(self) -> Vec<Descendant> {
        descendants::all_but(|line| self.spares_keepers && is_keeper(line))
    }

    fn running(self, which: Which) -> Vec<u32> {
        let alive = self.left().into_iter().filter(|it| !it.is_zombie).map(|it| it.pid);
        alive.filter(|pid| which(&descendants::command_line(*pid))).collect()
    }
}

/// Ends everything below this process, but for what a node-agent of somebody else in the folder took over. A second wish
/// to stop skips the polite part. Fails when something cannot be killed.
pub async fn end(family: &Family, folder: &Path, stop: &mut Stop) -> anyhow::Result<()> {
    family.expect_endings();
    let ours = Ours::of(folder);
    tokio::select! {
        () = politely(family, ours) => {}
        _ = stop.wished() => {}
    }
    by_force(family, ours).await
}

async fn politely(family: &Family, ours: Ours) {
    let stages: [(Which, Duration, Option<Duration>); 3] = [
        (is_agent, AGENTS_WAIT, Some(AGENTS_HURRY)),
        (|line| is(line, programs::MANAGER), MANAGERS_WAIT, None),
        (|line| !is(line, programs::NODE_AGENT) && !line.is_empty(), STORE_WAIT, None),
    ];
    for (which, wait, mut hurry) in stages {
        let began = Instant::now();
        let deadline = began + wait;
        let mut told = Vec::new();
        // Looked at again and again: a manager may start a node-agent until it ends itself.
        loop {
            let left = ours.running(which);
            if left.is_empty() || Instant::now() >= deadline {
                break;
            }
            let again = hurry.take_if(|it| began.elapsed() >= *it).is_some();
            for pid in left {
                if again || !told.contains(&pid) {
                    family.signal(pid, Signal::TERM);
                    told.push(pid);
                }
            }
            pause(family, deadline).await;
        }
    }
}

/// Until a process ends, but not long: those that are not our children end silently.
async fn pause(family: &Family, deadline: Instant) {
    let until = (Instant::now() + LOOK_EVERY).min(deadline);
    if timeout_at(until, family.next_end()).await.is_err() {
        family.reap();
    }
}

async fn by_force(family: &Family, ours: Ours) -> anyhow::Result<()> {
    let deadline = Instant::now() + KILL_WAIT;
    loop {
        family.reap();
        let left = ours.left();
        if left.is_empty() {
            return Ok(());
        }
        if Instant::now() >= deadline {
            let pids: Vec<String> = left.iter().map(|it| it.pid.to_string()).collect();
            bail!("processes {} could not be ended", pids.join(", "));
        }
        for it in left.iter().filter(|it| !it.is_zombie) {
            family.signal(it.pid, Signal::KILL);
        }
        sleep(Duration::from_millis(2)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn an_agent_is_told_from_its_keepers() {
        assert!(is_agent(&line("/x/rota-node-agent run --id n1")));
        let keeper = line("/x/rota-node-agent keeper --log info");
        assert!(!is_agent(&keeper) && is_keeper(&keeper));
        assert!(!is_keeper(&line("/x/rota-node-agent run --id n1")));
        assert!(!is_agent(&line("rota-manager run")));
        assert!(!is_agent(&[]));
    }

    #[tokio::test]
    async fn everything_below_is_ended_even_what_ignores_the_polite_signal() {
        let folder = tempfile::tempdir().unwrap();
        let family = Family::found().unwrap();
        let mut stop = Stop::listen().unwrap();
        let mut shell = std::process::Command::new("sh");
        // An orphan that ignores TERM, below a shell that ends at once.
        shell.args(["-c", "(trap '' TERM; echo '{}'; exec sleep 600) & exit 0"]);
        let process = family.start("shell", shell, &folder.path().join("shell.log")).unwrap();
        process.first_line.await.unwrap();
        family.wait_for_end(process.pid).await;
        assert!(!family.is_gone());
        end(&family, folder.path(), &mut stop).await.unwrap();
        assert!(family.is_gone());
    }
}
