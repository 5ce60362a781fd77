//! In the background: fetching what is missing, and removing what nobody has named for long.

use super::{Asked, Bodies};
use crate::mailbox::{Mailbox, Stopping};
use metrics::counter;
use rota_docstore::Digest;
use rota_model::{ManagerNumber, SlotId};
use rota_protocol::Input;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status};

/// Bodies that are fetched at once: enough to keep the network busy, few enough to leave room for
/// what clients put.
const UNDER_WAY_MAX: usize = 8;

/// Bodies that wait to be fetched. Those of one chunk of documents, a few times over; what finds no
/// room is asked for again.
const WAITING_MAX: usize = 65_536;

/// Between attempts at bodies that documents here name.
const MEND_EVERY: Duration = Duration::from_secs(1);

/// Most time between looks for bodies that nobody names any more; they stay at most a quarter of their
/// time of grace longer.
const COLLECT_EVERY: Duration = Duration::from_secs(60);

/// Bodies that are removed at a time.
const COLLECT_MAX: usize = 1_024;

/// Fetches bodies, some at a time.
pub struct Fetcher {
    bodies: Bodies,
    mailbox: Mailbox,
    asks: mpsc::Receiver<Asked>,
    /// Each with the slots of whoever waits for it, as the next one.
    waiting: BTreeMap<Digest, BTreeSet<SlotId>>,
    under_way: BTreeMap<Digest, BTreeSet<SlotId>>,
    fetches: JoinSet<(Digest, Result<(), Status>)>,
    /// Slots for which something came since the decisions were told.
    fetched: BTreeSet<SlotId>,
    /// What documents here name and is not here.
    lasting: BTreeMap<Digest, SlotId>,
}

impl Fetcher {
    pub(super) fn new(bodies: Bodies, mailbox: Mailbox, asks: mpsc::Receiver<Asked>) -> Self {
        Self {
            bodies,
            mailbox,
            asks,
            waiting: BTreeMap::new(),
            under_way: BTreeMap::new(),
            fetched: BTreeSet::new(),
            fetches: JoinSet::new(),
            lasting: BTreeMap::new(),
        }
    }

    /// Runs until the process stops. First come bodies that documents on the disk name and that are
    /// not here.
    pub async fn run(mut self, missing: BTreeMap<Digest, SlotId>, stop: CancellationToken) {
        self.lasting = missing;
        let mut mend = interval(MEND_EVERY);
        let grace = Duration::from_millis(self.bodies.shared.attachments.grace_ms());
        let mut collect = interval(COLLECT_EVERY.min(grace / 4));
        mend.set_missed_tick_behavior(MissedTickBehavior::Delay);
        collect.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                asked = self.asks.recv() => match asked {
                    Some(asked) => self.on_asked(asked),
                    None => return,
                },
                Some(ended) = self.fetches.join_next(), if !self.fetches.is_empty() => {
                    if let Ok((sha256, result)) = ended {
                        self.on_ended(sha256, result);
                    }
                }
                _ = mend.tick() => self.mend(),
                _ = collect.tick() => {
                    // There is more: who fetches gets his turn, and then this goes on.
                    if collect_bodies(&self.bodies).await == COLLECT_MAX {
                        collect.reset_immediately();
                    }
                }
            }
            self.begin_some();
            if self.tell().await.is_err() {
                return;
            }
        }
    }

    /// Tells the decisions of slots for which everything has come.
    async fn tell(&mut self) -> Result<(), Stopping> {
        let busy: BTreeSet<SlotId> =
            self.under_way.values().chain(self.waiting.values()).flatten().copied().collect();
        for slot in self.fetched.extract_if(.., |slot| !busy.contains(slot)) {
            let part = ManagerNumber(slot.0);
            self.mailbox.input(Input::BodiesFetched { part }).await?;
        }
        Ok(())
    }

    fn on_asked(&mut self, asked: Asked) {
        for sha256 in asked.bodies {
            if asked.lasting {
                self.lasting.insert(sha256, asked.slot);
            }
            if self.waiting.len() < WAITING_MAX {
                // Who waits for it already is told, too.
                self.waiting.entry(sha256).or_default().insert(asked.slot);
            }
        }
    }

    fn mend(&mut self) {
        let attachments = &self.bodies.shared.attachments;
        let is_missing =
            |sha256: &Digest| attachments.references(sha256) > 0 && !attachments.contains(sha256);
        self.lasting.retain(|sha256, _| is_missing(sha256));
        for (sha256, slot) in &self.lasting {
            self.waiting.entry(*sha256).or_default().insert(*slot);
        }
    }

    fn begin_some(&mut self) {
        while self.under_way.len() < UNDER_WAY_MAX {
            let Some((sha256, slots)) = self.waiting.pop_first() else { return };
            // One that is under way is asked for again if it fails.
            if let Some(others) = self.under_way.get_mut(&sha256) {
                others.extend(slots);
                continue;
            }
            if self.bodies.shared.attachments.contains(&sha256) {
                self.fetched.extend(slots);
                continue;
            }
            let Some(&slot) = slots.first() else { continue };
            self.under_way.insert(sha256, slots);
            let bodies = self.bodies.clone();
            self.fetches.spawn(async move { (sha256, bodies.fetch_now(slot, sha256).await) });
        }
    }

    fn on_ended(&mut self, sha256: Digest, result: Result<(), Status>) {
        let slots = self.under_way.remove(&sha256).unwrap_or_default();
        let outcome = if result.is_ok() { "ok" } else { "failed" };
        counter!("rota_bodies_fetched_total", "result" => outcome).increment(1);
        match result {
            Ok(()) => {
                tracing::debug!(%sha256, "a body was fetched");
                self.fetched.extend(slots);
            }
            Err(status) => {
                let error = status.message();
                tracing::warn!(%sha256, error, "a body cannot be fetched now");
            }
        }
    }
}

impl Bodies {
    /// Fetches a body from whoever has it.
    async fn fetch_now(&self, slot: SlotId, sha256: Digest) -> Result<(), Status> {
        let view = self.view()?;
        let mut failed = Status::not_found(format!("no other manager has body {sha256}"));
        for peer in self.peers(&view, slot) {
            let fetched = match self.remote(&peer, sha256, 0).await {
                Ok(remote) => self.take(remote, sha256).await.map(drop),
                Err(status) => Err(status),
            };
            match fetched {
                Ok(()) => return Ok(()),
                Err(status) if status.code() == Code::NotFound => {}
                Err(status) => failed = status,
            }
        }
        Err(failed)
    }
}

/// Removes what nobody has named for the time of grace, at most [`COLLECT_MAX`]; says how many.
async fn collect_bodies(bodies: &Bodies) -> usize {
    let (attachments, now_ms) = (bodies.shared.attachments.clone(), bodies.now_ms());
    let collected = tokio::task::spawn_blocking(move || attachments.collect(now_ms, COLLECT_MAX));
    match collected.await {
        Ok(Ok(removed)) => {
            let bytes = removed.iter().map(|it| it.size).sum::<u64>();
            removed.iter().for_each(|it| bodies.namers().forget(&it.sha256));
            if !removed.is_empty() {
                tracing::info!(bodies = removed.len(), bytes, "bodies that nobody names are gone");
            }
            counter!("rota_bodies_collected_total").increment(removed.len() as u64);
            removed.len()
        }
        Ok(Err(error)) => {
            tracing::error!(%error, "bodies that nobody names cannot be removed");
            0
        }
        Err(error) => {
            tracing::error!(%error, "the removal of bodies failed");
            0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_model::ClusterName;

    #[tokio::test]
    async fn every_partition_that_misses_a_body_is_told_when_it_has_come() {
        let folder = tempfile::tempdir().unwrap();
        let cluster = ClusterName::parse("c").unwrap();
        let (_bodies, mut fetcher) =
            crate::bodies::of_test(folder.path(), &cluster, ManagerNumber(9));
        let sha256 = Digest([1; 32]);
        let ask = |fetcher: &mut Fetcher, slot| {
            let (bodies, lasting) = (vec![sha256], false);
            fetcher.on_asked(Asked { slot: SlotId(slot), bodies, lasting });
        };
        ask(&mut fetcher, 7);
        ask(&mut fetcher, 3);
        fetcher.begin_some();
        assert_eq!(fetcher.under_way.len(), 1, "it is fetched once");
        ask(&mut fetcher, 5);
        fetcher.begin_some();
        fetcher.on_ended(sha256, Ok(()));
        let told: Vec<u32> = fetcher.fetched.iter().map(|it| it.0).collect();
        assert_eq!(told, [3, 5, 7]);
    }
}
