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
use rota_model::{ManagerNumber, Pulled, Refusal, RefusalKind, Retry, SlotId};
use rota_proto::Position;
use rota_protocol::{Answer, Op};
use rota_ring::View;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, timeout};
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

/// Most events that are asked of a partition at once.
const PULL_EVENTS_MAX: u32 = 250;

/// How long an owner holds a poll that has nothing to tell. Also how old a position of an idle
/// partition may become.
const PULL_WAIT: Duration = Duration::from_secs(15);

/// How long a poll may take beyond its wait: redirects, a change of owner.
const PULL_PATIENCE: Duration = Duration::from_secs(10);

/// How long a client may read nothing while something waits for it: then its watch ends, and it goes on from its position.
const UNREAD_MAX: Duration = Duration::from_secs(60);

/// Pause after a refusal that advises none, and the longest that is kept.
const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// Answers that wait for the joiner: one of each of a few partitions.
const ANSWERS_MAX: usize = 8;

/// Messages that wait for the client: about one answer.
const ITEMS_MAX: usize = 256;

/// Most watches at one manager, of sessions and of documents together. Each has a task per partition; an owner
/// holds 4,096 polls per partition and kind, which a few managers share.
pub const WATCHES_MAX: usize = 1_024;

/// Advice to a client that finds no room for its watch, in milliseconds.
const FULL_RETRY_MS: u64 = 1_000;

/// Most that answers hold which the client of one watch has not read, and those of all watches, in KiB. What
/// would be more is thrown away, and asked for again when there is room. One answer is half a MiB and the last
/// event of it, which is a document of 8 MiB at most.
const UNREAD_KIB: (usize, usize) = (4 * 1024, 256 * 1024);

/// Room for what clients of watches have not read, in KiB.
pub fn unread_room() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(UNREAD_KIB.1))
}

/// What can be watched.
pub trait Watched: Send + Sync + 'static {
    /// What an owner tells.
    type Event: Send + Sync + 'static;
    /// Where a snapshot goes on.
    type Cursor: Clone + Send + Sync + 'static;
    /// A message to the client.
    type Response: Send + 'static;

    /// Where it lies, if one thing is watched.
    fn slot(&self, view: &View) -> Option<SlotId>;

    /// A long poll of a partition: of that many events, for that long.
    fn op(&self, slot: SlotId, ask: &Ask<Self::Cursor>, limit: u32, wait_ms: u64) -> Op;

    /// The answer to it.
    fn pulled(answer: Answer) -> Result<Pulled<Self::Event, Self::Cursor>, Unpulled>;

    /// About how many bytes an event holds.
    fn bytes(event: &Self::Event) -> usize;

    /// Whether the client is told of an event at all, of a snapshot or a change; its position moves either way.
    fn passes(&self, _: &Self::Event, _is_snapshot: bool) -> bool {
        true
    }

    /// What the client is told.
    fn response(&self, shared: &Shared, item: Item<Self::Event>) -> Self::Response;

    /// What the client is told that finds its watch refused.
    fn refused(refusal: Refusal) -> Status;
}

/// Room that an answer takes until its last message was read.
type Held = Arc<Vec<OwnedSemaphorePermit>>;

type Told<W> = (Result<<W as Watched>::Response, Status>, Option<Held>);
type Answered<W> = Result<(Pulled<<W as Watched>::Event, <W as Watched>::Cursor>, Held), Status>;

/// The stream of a watch.
pub type Changes<W> = std::pin::Pin<
    Box<dyn tokio_stream::Stream<Item = Result<<W as Watched>::Response, Status>> + Send>,
>;

/// Starts a watch, from a position of this cluster. It ends when the client leaves, its namespace is switched
/// off or the process stops. Refused while there are [`WATCHES_MAX`] of them.
pub fn start<W: Watched>(
    shared: Arc<Shared>,
    watched: W,
    position: Option<Position>,
) -> Result<Changes<W>, Refusal> {
    let is_resumed = position.is_some();
    let position = position.unwrap_or_else(|| Position::start(&shared.cluster));
    let merge = Merge::new(position, is_resumed);
    let place = take_place(&shared.watches)?;
    let (items, stream) = mpsc::channel(ITEMS_MAX);
    tokio::spawn(async move {
        let _place = place;
        let stopping = shared.stopping.clone();
        tokio::select! {
            () = join(shared, Arc::new(watched), merge, &items) => {}
            () = stopping.cancelled() => {
                let text = "this manager is stopping; go on at another one";
                let refused = Refusal::new(RefusalKind::NotServing, Retry::Now, text);
                // A client that has left, or reads too slowly to be told, finds out anyway.
                let _ = items.try_send((Err(W::refused(refused)), None));
            }
            () = items.closed() => {}
        }
    });
    Ok(Box::pin(ReceiverStream::new(stream).map(|(told, _held)| told)))
}

fn take_place(watches: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Refusal> {
    watches.clone().try_acquire_owned().map_err(|_| {
        let text = format!("this manager serves {WATCHES_MAX} watches, its limit; ask another one");
        Refusal::new(RefusalKind::Overloaded, Retry::AfterMs(FULL_RETRY_MS), text)
    })
}

/// Room for answers that the client has not read: of one watch, and of all.
#[derive(Clone)]
struct Room([Arc<Semaphore>; 2]);

impl Room {
    fn new(all: Arc<Semaphore>) -> Self {
        Self([Arc::new(Semaphore::new(UNREAD_KIB.0)), all])
    }

    /// Room for so many bytes, or none. What is larger than a watch may hold takes all of that.
    fn take(&self, bytes: usize) -> Option<Held> {
        let kib = bytes.div_ceil(1024).clamp(1, UNREAD_KIB.0);
        let kib = u32::try_from(kib).expect("it was bounded");
        let take = |it: &Arc<Semaphore>| it.clone().try_acquire_many_owned(kib).ok();
        let held = self.0.iter().map(take).collect::<Option<Vec<_>>>()?;
        Some(Arc::new(held))
    }

    /// Until the client has read half of what it may leave unread.
    async fn wait(&self) {
        let half = u32::try_from(UNREAD_KIB.0 / 2).expect("it is small");
        let read = self.0[0].acquire_many(half);
        // Nobody closes it, and a watch whose client has left is ended.
        drop(read.await);
    }
}

/// The partitions that a watch needs, each with a slot of it.
fn parts_of(view: &View, one: Option<SlotId>) -> BTreeMap<ManagerNumber, SlotId> {
    match one {
        Some(slot) => [(view.home(slot), slot)].into(),
        None => view.parts.keys().map(|part| (*part, SlotId(part.0))).collect(),
    }
}

/// The pollers of a watch. They end with it.
struct Pollers<W: Watched> {
    shared: Arc<Shared>,
    watched: Arc<W>,
    room: Room,
    answers: mpsc::Sender<Answered<W>>,
    tasks: JoinSet<()>,
    by_part: BTreeMap<ManagerNumber, AbortHandle>,
}

impl<W: Watched> Pollers<W> {
    /// Starts and ends pollers, so that there is one for each partition of the View.
    fn follow(&mut self, view: &View, merge: &mut Merge) {
        // Those that have ended hold memory until they are asked for.
        while self.tasks.try_join_next().is_some() {}
        let slots = parts_of(view, self.watched.slot(view));
        let new = merge.set_parts(slots.keys().copied());
        self.by_part.retain(|part, task| {
            let stays = slots.contains_key(part);
            if !stays {
                task.abort();
            }
            stays
        });
        for (part, start) in new {
            let Some(slot) = slots.get(&part) else { continue };
            let poller = Poller {
                shared: self.shared.clone(),
                watched: self.watched.clone(),
                room: self.room.clone(),
                part,
                slot: *slot,
            };
            let task = self.tasks.spawn(poller.run(Ask::first(start), self.answers.clone()));
            self.by_part.insert(part, task);
        }
    }
}

async fn join<W: Watched>(
    shared: Arc<Shared>,
    watched: Arc<W>,
    mut merge: Merge,
    items: &mpsc::Sender<Told<W>>,
) {
    let (answers, mut answered) = mpsc::channel(ANSWERS_MAX);
    let mut seen = shared.seen.clone();
    let mut pollers = Pollers {
        shared: shared.clone(),
        watched: watched.clone(),
        room: Room::new(shared.unread.clone()),
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
                let (mut pulled, held) = match pulled {
                    Ok(pulled) => pulled,
                    Err(refused) => {
                        // A reader that is gone finds nothing to miss.
                        let _ = items.send((Err(refused), None)).await;
                        return;
                    }
                };
                let is_snapshot = pulled.snapshot;
                pulled.events.retain(|it| watched.passes(it, is_snapshot));
                for item in merge.take(pulled) {
                    let told = watched.response(&shared, item);
                    // Who reads nothing holds room that others need.
                    let sent = items.send((Ok(told), Some(held.clone())));
                    if !matches!(timeout(UNREAD_MAX, sent).await, Ok(Ok(()))) {
                        return;
                    }
                }
            }
        }
    }
}

/// Why a poll brought nothing.
pub enum Unpulled {
    /// Ask again after this pause.
    Again(Duration),
    /// Its client has to read first.
    Full,
    /// The watch ends with this.
    Ended(Box<Status>),
}

/// The answer is of another kind.
pub fn mixed_up(answer: &Answer) -> Unpulled {
    tracing::warn!(?answer, "the answer to a pull is of another kind");
    Unpulled::Again(PAUSE.1)
}

/// Asks one partition again and again.
struct Poller<W: Watched> {
    shared: Arc<Shared>,
    watched: Arc<W>,
    room: Room,
    part: ManagerNumber,
    slot: SlotId,
}

impl<W: Watched> Poller<W> {
    async fn run(self, mut ask: Ask<W::Cursor>, answers: mpsc::Sender<Answered<W>>) {
        // The first answer comes at once, so that the client soon learns that it has caught up.
        let mut wait = Duration::ZERO;
        loop {
            match self.pull(&ask, wait).await {
                Ok((pulled, held)) => {
                    ask = ask.after(&pulled);
                    wait = PULL_WAIT;
                    if answers.send(Ok((pulled, held))).await.is_err() {
                        return;
                    }
                }
                Err(Unpulled::Again(pause)) => tokio::time::sleep(pause).await,
                Err(Unpulled::Full) => {
                    self.room.wait().await;
                    // Clients of other watches may leave everything unread.
                    tokio::time::sleep(PAUSE.1).await;
                }
                Err(Unpulled::Ended(refused)) => {
                    // The joiner ends the watch, unless that has ended already.
                    let _ = answers.send(Err(*refused)).await;
                    return;
                }
            }
        }
    }

    /// One long poll. A watch outlives every change of owner, so a refusal only makes it pause,
    /// unless the namespace is off.
    async fn pull(
        &self,
        ask: &Ask<W::Cursor>,
        wait: Duration,
    ) -> Result<(Pulled<W::Event, W::Cursor>, Held), Unpulled> {
        let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        let op = self.watched.op(self.slot, ask, PULL_EVENTS_MAX, wait_ms);
        let deadline = Instant::now() + wait + PULL_PATIENCE;
        let pulled = match self.shared.mailbox.call(op, deadline).await {
            Ok(answer) => W::pulled(answer)?,
            Err(refused) if refused.kind == RefusalKind::NamespaceOff => {
                return Err(Unpulled::Ended(Box::new(W::refused(refused))));
            }
            Err(refused) => {
                tracing::debug!(part = %self.part, %refused, "a poll was refused");
                return Err(Unpulled::Again(match refused.retry {
                    Retry::AfterMs(ms) => Duration::from_millis(ms).clamp(PAUSE.0, PAUSE.1),
                    Retry::Now | Retry::AtOwner(_) => PAUSE.0,
                    Retry::Never | Retry::WhenChanged => PAUSE.1,
                }));
            }
        };
        if pulled.part != self.part {
            // The ring changed under the poll; the next View says who is asked for what.
            return Err(Unpulled::Again(PAUSE.0));
        }
        let bytes = pulled.events.iter().map(W::bytes).sum();
        // Its client does not read: the owner has what is thrown away here.
        let held = self.room.take(bytes).ok_or(Unpulled::Full)?;
        Ok((pulled, held))
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

    #[test]
    fn what_clients_have_not_read_is_bounded_for_one_watch_and_for_all() {
        let all = unread_room();
        let rooms: Vec<_> = (0..100).map(|_| Room::new(all.clone())).collect();
        let large = rooms[0].take(9 * 1024 * 1024).expect("one answer always has room");
        assert!(rooms[0].take(1).is_none(), "its client reads first");
        let mut held: Vec<_> = rooms[1..].iter().map_while(|it| it.take(usize::MAX)).collect();
        assert_eq!(held.len() + 1, UNREAD_KIB.1 / UNREAD_KIB.0);
        assert!(rooms[99].take(1).is_none(), "others hold all");
        held.pop();
        assert!(rooms[99].take(1).is_some());
        drop(large);
        assert!(rooms[0].take(1).is_some());
    }
}
