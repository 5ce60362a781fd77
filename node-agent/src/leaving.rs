//! How long an agent that was asked to leave waits for what it runs, and for managers.

use crate::runtime::Runtime;
use rota_node::StopHow;

/// A leaving node waits at least so long, and so much longer than the longest grace of what it runs; then
/// it kills. After that it goes. `ringctl dev` says so a second time after the first of these, and waits
/// longer than the last (`AGENTS_HURRY` and `AGENTS_WAIT` in its `ending.rs`).
const LEAVE_KILL_MS: u64 = 7_000;
const LEAVE_SPARE_MS: u64 = 2_000;
const LEAVE_GIVE_UP_MS: u64 = 3_000;

/// How long a leaving node with nothing running waits for its reports to be taken.
const LEAVE_REPORT_MS: u64 = 2_000;

/// How a leaving node went.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Gone {
    /// Whether nothing runs any more.
    pub clean: bool,
    /// What runs was left to the next agent.
    pub left_running: bool,
    /// Why managers do not let this node in, for people.
    pub refused: Option<String>,
}

/// A leaving node.
pub struct Leaving {
    kill_at_ms: u64,
    /// When it was killed, or the second wish came.
    killed_at_ms: Option<u64>,
    /// Since when nothing runs.
    empty_since_ms: Option<u64>,
    /// All reports were taken.
    pub left: bool,
}

impl Leaving {
    /// It was asked to.
    pub fn begin(now_ms: u64, runtime: &Runtime) -> Self {
        let patience_ms = LEAVE_KILL_MS.max(runtime.longest_grace_ms() + LEAVE_SPARE_MS);
        let kill_at_ms = now_ms + patience_ms;
        Self { kill_at_ms, killed_at_ms: None, empty_since_ms: None, left: false }
    }

    /// Until the next step is due.
    pub fn due_in_ms(&self, now_ms: u64) -> u64 {
        let at = match (self.empty_since_ms, self.killed_at_ms) {
            (Some(since_ms), _) => since_ms + LEAVE_REPORT_MS,
            (None, Some(killed_at_ms)) => killed_at_ms + LEAVE_GIVE_UP_MS,
            (None, None) => self.kill_at_ms,
        };
        at.saturating_sub(now_ms)
    }

    /// Kills what still runs, once.
    pub fn hurry(&mut self, now_ms: u64, runtime: &Runtime) {
        if self.killed_at_ms.is_none() {
            tracing::warn!("killing what still runs");
            self.killed_at_ms = Some(now_ms);
            runtime.stop_programs(StopHow::Kill);
        }
    }

    /// Whether the node may go now.
    pub fn step(&mut self, empty: bool, now_ms: u64, runtime: &Runtime) -> bool {
        if empty {
            let since_ms = *self.empty_since_ms.get_or_insert(now_ms);
            return self.left || now_ms >= since_ms + LEAVE_REPORT_MS;
        }
        if now_ms >= self.kill_at_ms {
            self.hurry(now_ms, runtime);
        }
        self.killed_at_ms.is_some_and(|it| now_ms >= it + LEAVE_GIVE_UP_MS)
    }
}
