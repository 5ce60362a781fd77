//! A watch: one long poll per partition, joined into one stream.
//!
//! ```text
//!   poller of a partition ─┐
//!   poller of a partition ─┼─▶ joiner (merge) ─▶ stream to the client
//!   poller of a partition ─┘
//! ```
//!
//! Every channel is bounded, so a client that reads slowly slows its pollers down, and nothing is
//! lost: what was not taken stays in the owners' logs, and becomes a snapshot when it falls out.

use super::Shared;
use super::merge::{Ask, Item, Merge};
use super::search::now;
use rota_model::{Filter, ManagerNumber, PullOp, Pulled, Refusal, RefusalKind, Retry, SlotId};
use rota_proto::{Position, Watch, refusal, session, v1};
use rota_protocol::session_search::SessionValues;
use rota_protocol::{Answer, Op};
use rota_ring::{View, slot_of_session};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

/// Most events that are asked of a partition at once.
const PULL_EVENTS_MAX: u32 = 250;

/// How long an owner holds a poll that has nothing to tell. Also how old a position of an idle
/// partition may become.
const PULL_WAIT: Duration = Duration::from_secs(15);

/// How long a poll may take beyond its wait: redirects, a change of owner.
const PULL_PATIENCE: Duration = Duration::from_secs(10);

/// Pause after a refusal that advises none, and the longest that is kept.
const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// Answers that wait for the joiner: one of each of a few partitions.
const ANSWERS_MAX: usize = 8;

/// Messages that wait for the client: about one answer.
const ITEMS_MAX: usize = 256;

/// Most watches at one manager. Each has a task per partition and up to 256 messages of about 1 KB
/// that its client has not read; an owner holds 4,096 polls per partition, which a few managers share.
pub const WATCHES_MAX: usize = 1_024;

/// Advice to a client that finds no room for its watch, in milliseconds.
const FULL_RETRY_MS: u64 = 1_000;

/// The stream of a watch.
pub type Changes = ReceiverStream<Result<v1::WatchResponse, Status>>;

/// Starts a watch. It ends when the client leaves, its namespace is switched off or the process
/// stops. Refused with a position of another cluster, and while there are [`WATCHES_MAX`] of them.
pub fn start(shared: Arc<Shared>, watch: Watch) -> Result<Changes, Refusal> {
    let Watch { filter, selected, position } = watch;
    let position = position.unwrap_or_else(|| Position::start(&shared.cluster));
    position.check_cluster(&shared.cluster)?;
    let place = take_place(&shared.watches)?;
    let (items, stream) = mpsc::channel(ITEMS_MAX);
    tokio::spawn(async move {
        let _place = place;
        let stopping = shared.stopping.clone();
        tokio::select! {
            () = join(shared, (filter, selected), position, &items) => {}
            () = stopping.cancelled() => {
                let text = "this manager is stopping; go on at another one";
                let refused = Refusal::new(RefusalKind::NotServing, Retry::Now, text);
                // A client that has left, or reads too slowly to be told, finds out anyway.
                let _ = items.try_send(Err(refusal::status(&refused)));
            }
            () = items.closed() => {}
        }
    });
    Ok(ReceiverStream::new(stream))
}

fn take_place(watches: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Refusal> {
    watches.clone().try_acquire_owned().map_err(|_| {
        let text = format!("this manager serves {WATCHES_MAX} watches, its limit; ask another one");
        Refusal::new(RefusalKind::Overloaded, Retry::AfterMs(FULL_RETRY_MS), text)
    })
}

/// The partitions that a watch needs, each with a slot of it.
fn parts_of(view: &View, filter: &Filter) -> Vec<(ManagerNumber, SlotId)> {
    match &filter.key {
        Some(key) => {
            let slot = slot_of_session(key, view.m);
            vec![(view.home(slot), slot)]
        }
        None => view.parts.keys().map(|part| (*part, SlotId(part.0))).collect(),
    }
}

/// The pollers of a watch. They end with it.
struct Pollers {
    shared: Arc<Shared>,
    filter: Filter,
    answers: mpsc::Sender<Result<Pulled, Refusal>>,
    tasks: JoinSet<()>,
    by_part: BTreeMap<ManagerNumber, AbortHandle>,
}

impl Pollers {
    /// Starts and ends pollers, so that there is one for each partition of the View.
    fn follow(&mut self, view: &View, merge: &mut Merge) {
        // Those that have ended hold memory until they are asked for.
        while self.tasks.try_join_next().is_some() {}
        let parts = parts_of(view, &self.filter);
        let slots: BTreeMap<ManagerNumber, SlotId> = parts.into_iter().collect();
        let new = merge.set_parts(slots.keys().copied());
        self.by_part.retain(|part, task| {
            let stays = slots.contains_key(part);
            if !stays {
                task.abort();
            }
            stays
        });
        for (part, ask) in new {
            let Some(slot) = slots.get(&part) else { continue };
            let poller = Poller {
                shared: self.shared.clone(),
                filter: self.filter.clone(),
                part,
                slot: *slot,
            };
            let task = self.tasks.spawn(poller.run(ask, self.answers.clone()));
            self.by_part.insert(part, task);
        }
    }
}

async fn join(
    shared: Arc<Shared>,
    (filter, selected): (Filter, rota_search::Filter),
    position: Position,
    items: &mpsc::Sender<Result<v1::WatchResponse, Status>>,
) {
    let (answers, mut answered) = mpsc::channel(ANSWERS_MAX);
    let mut seen = shared.seen.clone();
    let mut merge = Merge::new(position);
    let mut pollers = Pollers {
        shared: shared.clone(),
        filter,
        answers,
        tasks: JoinSet::new(),
        by_part: BTreeMap::new(),
    };
    loop {
        let view = seen.borrow_and_update().view.clone();
        if let Some(view) = view {
            pollers.follow(&view, &mut merge);
        }
        tokio::select! {
            changed = seen.changed() => if changed.is_err() { return },
            Some(pulled) = answered.recv() => {
                let pulled = match pulled {
                    Ok(pulled) => passing(pulled, &selected),
                    Err(refused) => {
                        // A reader that is gone finds nothing to miss.
                        let _ = items.send(Err(refusal::status(&refused))).await;
                        return;
                    }
                };
                for item in merge.take(pulled) {
                    if items.send(Ok(response(&shared, item))).await.is_err() {
                        return;
                    }
                }
            }
        }
    }
}

/// An answer without the sessions that do not fulfil the conditions now. Its position stays.
fn passing(mut pulled: Pulled, selected: &rota_search::Filter) -> Pulled {
    if !selected.conditions.is_empty() {
        let now = now();
        pulled.events.retain(|it| selected.matches(&SessionValues(&it.record), now));
    }
    pulled
}

fn response(shared: &Shared, item: Item) -> v1::WatchResponse {
    let session = item.session.map(|view| {
        let placement = view.record.placement.as_ref();
        let address = placement.map_or_else(String::new, |it| shared.node_address(&it.node));
        session::session(view, address)
    });
    v1::WatchResponse {
        session,
        position: item.position.to_bytes(),
        snapshot: item.snapshot,
        caught_up: item.caught_up,
    }
}

/// Why a poll brought nothing.
enum Unpulled {
    /// Ask again after this pause.
    Again(Duration),
    /// The namespace is switched off: the watch ends with this.
    Off(Refusal),
}

/// Asks one partition again and again.
struct Poller {
    shared: Arc<Shared>,
    filter: Filter,
    part: ManagerNumber,
    slot: SlotId,
}

impl Poller {
    async fn run(self, mut ask: Ask, answers: mpsc::Sender<Result<Pulled, Refusal>>) {
        // The first answer comes at once, so that the client soon learns that it has caught up.
        let mut wait = Duration::ZERO;
        loop {
            match self.pull(&ask, wait).await {
                Ok(pulled) => {
                    ask = Ask::after(&pulled);
                    wait = PULL_WAIT;
                    if answers.send(Ok(pulled)).await.is_err() {
                        return;
                    }
                }
                Err(Unpulled::Again(pause)) => tokio::time::sleep(pause).await,
                Err(Unpulled::Off(refused)) => {
                    // The joiner ends the watch, unless that has ended already.
                    let _ = answers.send(Err(refused)).await;
                    return;
                }
            }
        }
    }

    /// One long poll. A watch outlives every change of owner, so a refusal only makes it pause,
    /// unless the namespace is off.
    async fn pull(&self, ask: &Ask, wait: Duration) -> Result<Pulled, Unpulled> {
        let op = PullOp {
            slot: self.slot,
            from: ask.from,
            snapshot_after: ask.snapshot_after.clone(),
            limit: PULL_EVENTS_MAX,
            wait_ms: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
            filter: self.filter.clone(),
        };
        let deadline = Instant::now() + wait + PULL_PATIENCE;
        match self.shared.mailbox.call(Op::Pull(op), deadline).await {
            // The ring changed under the poll; the next View says who is asked for what.
            Ok(Answer::Pulled(pulled)) if pulled.part != self.part => Err(Unpulled::Again(PAUSE.0)),
            Ok(Answer::Pulled(pulled)) => Ok(pulled),
            Ok(other) => {
                tracing::warn!(?other, "the answer to a pull is of another kind");
                Err(Unpulled::Again(PAUSE.1))
            }
            Err(refused) if refused.kind == RefusalKind::NamespaceOff => {
                Err(Unpulled::Off(refused))
            }
            Err(refused) => {
                tracing::debug!(part = %self.part, %refused, "a poll was refused");
                Err(Unpulled::Again(match refused.retry {
                    Retry::AfterMs(ms) => Duration::from_millis(ms).clamp(PAUSE.0, PAUSE.1),
                    Retry::Now | Retry::AtOwner(_) => PAUSE.0,
                    Retry::Never | Retry::WhenChanged => PAUSE.1,
                }))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_beyond_the_limit_is_refused_until_another_ends() {
        let watches = Arc::new(Semaphore::new(WATCHES_MAX));
        let mut places: Vec<_> = (0..WATCHES_MAX).map(|_| take_place(&watches).unwrap()).collect();
        let refusal = take_place(&watches).unwrap_err();
        assert_eq!(refusal.kind, RefusalKind::Overloaded);
        assert_eq!(refusal.retry, Retry::AfterMs(FULL_RETRY_MS));
        assert!(refusal.message.contains("1024"), "{}", refusal.message);
        places.pop();
        assert!(take_place(&watches).is_ok());
    }
}
