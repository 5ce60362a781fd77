//! The guardian: one small process per agent that outlives it, single-threaded, without a runtime.
//!
//! ```text
//!  agent ── a pipe, until it ends ──▶ ┌──────────┐ ── KILL ──▶ what killed keepers left
//!  pid files of the sessions ───────▶ │ guardian │
//!  lease file, pidfds of keepers ───▶ └──────────┘ ── KILL ──▶ everything, when the lease is over
//! ```
//!
//! What a killed keeper leaves, the agent ends; what a killed agent leaves, the keepers end. The
//! guardian is for both at once: the kernel kills only the program's first process with its keeper,
//! and what that one forked would live on after the node is LOST. It also ends what a keeper that
//! hangs does not end in time. While the agent lives it only waits, and sessions cost it nothing.
//! It ends with the last session. A later agent that goes on with sessions has a guardian of its own, and this one
//! leaves when that one is there ([`post`]). An agent that goes on with none ends this one, where it can read its
//! environment; one that it cannot see ends when the lease is over.

mod link;
mod post;
mod ward;

pub use link::GuardianLink;

use crate::clean;
use crate::data_folder::LEASE_FILE;
use crate::lease::{Leases, boottime_ms};
use crate::leftovers::{DATA_VARIABLE, folders_of};
use crate::limits::remove_groups_of;
use anyhow::Context;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use ward::{Look, Ward};

/// The poll's clock and that of the lease differ while the machine is suspended, so it never sleeps
/// longer than this.
const SLEEP_MS_MAX: u64 = 1_000;

/// Shortest and longest pause between two rounds of killing.
const ROUND_MS: (u64, u64) = (2, 50);

/// In a guardian's environment: how long a lease of its node goes on at most, in milliseconds.
const LEASE_VARIABLE: &str = "ROTA_LEASE_MS_MAX";

/// Runs a guardian to its end.
pub fn run() -> anyhow::Result<()> {
    // Readable in process lists; without it every guardian is called "exe".
    let _ = rustix::thread::set_name(c"rota-guardian");
    clean::shut_memory();
    let data = std::env::var_os(DATA_VARIABLE).context("no data folder in the environment")?;
    let data = PathBuf::from(data);
    let lease_ms_max = std::env::var(LEASE_VARIABLE).ok().and_then(|it| it.parse().ok());
    let lease_ms_max = lease_ms_max.context("no longest lease in the environment")?;
    tracing::info!(data = %data.display(), "waiting for the end of the node's agent");
    // A later agent's guardian may have come first.
    if !(agent_is_gone() && post::is_anothers(&data))
        && let Err(error) = post::take(&data)
    {
        tracing::warn!(%error, "cannot be written down: a later guardian does not end this one");
    }
    // Nothing is ever written: the pipe's end is the agent's.
    io::copy(&mut io::stdin().lock(), &mut io::sink()).context("cannot read from the agent")?;
    guard(&data, lease_ms_max)?;
    remove_groups_of(&data, || !post::is_anothers(&data));
    tracing::debug!("nothing is left to guard");
    Ok(())
}

fn agent_is_gone() -> bool {
    let mut fds = [PollFd::from_borrowed_fd(rustix::stdio::stdin(), PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut fds, Some(&now)).is_ok_and(|found| found > 0)
}

/// After the agent's end: looks after every session until none is left, or until another guardian does.
fn guard(data: &Path, lease_ms_max: u64) -> anyhow::Result<()> {
    let read = || Leases::read_within(&data.join(LEASE_FILE), lease_ms_max);
    // Without a lease that the node wrote nothing was started, or nothing may run.
    let mut leases = read().unwrap_or_default();
    // Read once: a keeper that writes its file only now sees that its agent is gone, and ends. What a later agent
    // starts is for the guardian of that one.
    let folders = folders_of(data)?;
    let mut wards: Vec<Ward> = folders.into_iter().filter_map(Ward::of).collect();
    if !wards.is_empty() {
        let kill_at_ms = leases.latest().map_or(0, |it| it.kill_at_ms);
        let lease_ms = kill_at_ms.saturating_sub(boottime_ms());
        tracing::warn!(
            sessions = wards.len(),
            lease_ms,
            "the agent is gone, and its sessions are not"
        );
    }
    let mut round_ms = ROUND_MS.0;
    loop {
        if post::is_anothers(data) {
            tracing::debug!("another guardian is there");
            return Ok(());
        }
        // A later agent may renew it. What cannot be believed renews nothing.
        leases = read().unwrap_or(leases);
        wards.iter_mut().for_each(|it| it.look(&leases));
        wards.retain(|it| !it.has_ended());
        let ending = wards.iter().any(Ward::is_ending);
        if ending {
            let look = Look::now();
            wards.retain_mut(|it| !it.end(&look));
        }
        if wards.is_empty() {
            return Ok(());
        }
        let next_ms = wards.iter().map(|it| it.kill_at_ms(&leases)).min().unwrap_or_default();
        let pause = if ending { round_ms } else { next_ms.saturating_sub(boottime_ms()) };
        round_ms = if ending { (round_ms * 2).min(ROUND_MS.1) } else { ROUND_MS.0 };
        wait(&mut wards, pause.min(SLEEP_MS_MAX));
    }
}

/// Until a keeper ends, but not longer than that.
fn wait(wards: &mut [Ward], pause_ms: u64) {
    let keepers = wards.iter().filter_map(Ward::keeper);
    let mut fds: Vec<PollFd<'_>> = keepers.map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
    let millis = i64::try_from(pause_ms).expect("at most a second");
    let timeout = Timespec { tv_sec: millis / 1000, tv_nsec: millis % 1000 * 1_000_000 };
    if poll(&mut fds, Some(&timeout)).is_err() {
        // Interrupted; the next look tells.
        return;
    }
    let ended: Vec<bool> = fds.iter().map(|it| !it.revents().is_empty()).collect();
    let polled = wards.iter_mut().filter(|it| it.keeper().is_some());
    for (ward, _) in polled.zip(ended).filter(|(_, ended)| *ended) {
        ward.keeper_ended();
    }
}

/// Forgets what a later boot would have to end: nothing is left of it.
fn forget(pid_file: &Path) {
    drop(fs::remove_file(pid_file));
}
