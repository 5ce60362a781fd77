//! The one thread that writes: takes what is queued, one sync for all of it, then answers.

use crate::journal::{Journal, JournalError};
use bytes::Bytes;
use rota_membership::wire::state_to_json;
use rota_ring::{Change, ConfigState};
use tokio::sync::{mpsc, oneshot, watch};

/// Most changes in one write: with requests of 4 MiB, a record stays below the 4 GiB that its
/// length field can say.
const BATCH_MAX: usize = 64;

/// A state that is on disk, serialised once for everybody who asks.
#[derive(Clone, Debug)]
pub struct Published {
    /// Its index.
    pub index: u64,
    /// Its epoch, for the log and the health check.
    pub epoch: u64,
    /// Its JSON.
    pub json: Bytes,
}

impl Published {
    /// Serialises a state.
    pub fn new(journal: &Journal, state: &ConfigState) -> Self {
        let json = state_to_json(journal.cluster(), state);
        Self { index: state.index, epoch: state.epoch().0, json }
    }
}

/// A change on its way to the disk.
#[derive(Debug)]
pub struct Job {
    /// What to write, checked.
    pub change: Change,
    /// Gets the answer when the disk has it. Dropped unanswered when the disk failed.
    pub answer: oneshot::Sender<Outcome>,
}

/// What became of a change.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Whether it was written; false when an expectation did not hold.
    pub written: bool,
    /// A state on disk that shows it.
    pub state: Published,
}

/// Writes until every sender of `jobs` is gone. A conflict is answered after the sync too: the
/// change that it lost to may be in the same batch.
///
/// # Errors
/// The first failed write or sync; nothing of its batch was answered, and the process must end.
pub fn run(
    mut journal: Journal,
    mut state: ConfigState,
    mut jobs: mpsc::Receiver<Job>,
    published: &watch::Sender<Published>,
) -> Result<(), JournalError> {
    let mut batch = Vec::with_capacity(BATCH_MAX);
    while jobs.blocking_recv_many(&mut batch, BATCH_MAX) > 0 {
        let first = state.index + 1;
        let mut written = Vec::with_capacity(batch.len());
        for job in &batch {
            let next = job.change.apply(&state);
            written.push(next.is_some());
            if let Some(next) = next {
                state = next;
            }
        }
        let winners: Vec<&Change> = (batch.iter().zip(&written))
            .filter(|(_, written)| **written)
            .map(|(job, _)| &job.change)
            .collect();
        if !winners.is_empty() {
            journal.append(first, &winners)?;
            published.send_replace(Published::new(&journal, &state));
        }
        let now = published.borrow().clone();
        tracing::debug!(index = now.index, epoch = now.epoch, changes = winners.len(), "written");
        for (job, written) in batch.drain(..).zip(written) {
            // Whoever asked may have gone; the change stands all the same.
            job.answer.send(Outcome { written, state: now.clone() }).ok();
        }
        journal.compact_if_due(&now.json)?;
    }
    Ok(())
}
