//! Clients that never rest, and for which nothing may fail.

use crate::cluster::Cluster;
use crate::condition::{PATIENCE, eventually};
use crate::sessions::{CALL, close, listed, open, read};
use rota_client::{CallError, Client, v1};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use v1::{Reason, SessionState};

/// How long a call may take that waits for the verdict on a killed node: 20 s by default, and the
/// machine may be busy.
const LOSS: Duration = Duration::from_secs(60);

/// What busy clients left open: the addresses of their sessions by id.
pub type Kept = BTreeMap<String, String>;

/// Clients that open sessions, read them through whichever manager, and close every third.
#[derive(Debug)]
pub struct Busy {
    clients: Vec<JoinHandle<Result<Kept, CallError>>>,
    stop: Arc<AtomicBool>,
    rounds: Arc<AtomicU64>,
}

/// One client until it is told to stop. No call may fail: it is repeated by the advice that comes
/// with a refusal.
async fn work(
    client: Client,
    name: usize,
    stop: Arc<AtomicBool>,
    rounds: Arc<AtomicU64>,
) -> Result<Kept, CallError> {
    let mut kept = Kept::new();
    for round in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let id = format!("client {name} session {round}");
        let answer = client.open(open(&id, "counter"), CALL).await?;
        let address = answer.session.expect("the client checks it").address;
        let seen = read(&client, &id).await?;
        assert_eq!((seen.state(), &seen.address), (SessionState::Ready, &address), "{id}");
        if round % 3 == 0 {
            let closed = client.close(close(&id), CALL).await?;
            assert!(closed.finished, "{id}");
            assert_eq!(read(&client, &id).await?.state(), SessionState::Closed, "{id}");
        } else {
            kept.insert(id, address);
        }
        rounds.fetch_add(1, Ordering::Relaxed);
    }
    Ok(kept)
}

/// One client whose sessions may be lost, until it is told to stop: it closes each of them, and
/// keeps none. No call may fail all the same: an open that waits for a node that was killed is
/// answered by another one.
async fn work_with_losses(
    client: Client,
    name: String,
    class: String,
    stop: Arc<AtomicBool>,
    rounds: Arc<AtomicU64>,
) -> Result<Kept, CallError> {
    for round in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let id = format!("{name} session {round}");
        let answer = client.open(open(&id, &class), LOSS).await?;
        let opened = answer.session.expect("the client checks it");
        let seen = read(&client, &id).await?;
        match seen.state() {
            SessionState::Ready => {
                assert_eq!((seen.life, &seen.address), (opened.life, &opened.address))
            }
            SessionState::Lost => assert_eq!((seen.life, seen.address.as_str()), (opened.life, "")),
            SessionState::Closing | SessionState::Closed if seen.reason() == Reason::Drained => {
                assert_eq!((seen.life, seen.address.as_str()), (opened.life, ""));
            }
            SessionState::Unspecified
            | SessionState::Pending
            | SessionState::Starting
            | SessionState::Closing
            | SessionState::Closed
            | SessionState::Failed => panic!("{seen:?} was open and nobody closed it"),
        }
        // Unfinished while its node is silent: its owner keeps at it, and ends it with the node.
        let until = Instant::now() + LOSS;
        let mut closed = client.close(close(&id), LOSS).await?;
        while !closed.finished {
            assert!(Instant::now() < until, "{id} is not closed");
            closed = client.close(close(&id), LOSS).await?;
        }
        let state = closed.session.expect("the client checks it").state();
        assert!([SessionState::Closed, SessionState::Lost].contains(&state), "{id}: {state:?}");
        rounds.fetch_add(1, Ordering::Relaxed);
    }
    Ok(Kept::new())
}

impl Busy {
    /// Starts eight of them. The cluster needs room: `--places 100000`.
    pub fn start(cluster: &Cluster) -> Self {
        let (stop, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let clients = (0..8)
            .map(|name| tokio::spawn(work(cluster.client(), name, stop.clone(), rounds.clone())));
        Self { clients: clients.collect(), stop, rounds }
    }

    /// Starts some whose sessions, of that class, may be lost with their node, or drained.
    pub fn with_losses(cluster: &Cluster, class: &str, clients: usize) -> Self {
        let (stop, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let work = |number: usize| {
            let (name, class) = (format!("{class} client {number}"), class.to_owned());
            work_with_losses(cluster.client(), name, class, stop.clone(), rounds.clone())
        };
        let clients = (0..clients).map(|number| tokio::spawn(work(number))).collect();
        Self { clients, stop, rounds }
    }

    /// Waits until they have done that many rounds more.
    pub async fn more(&self, rounds: u64) {
        let wanted = self.rounds.load(Ordering::Relaxed) + rounds;
        eventually(&format!("{wanted} rounds"), PATIENCE * 2, async || {
            let done = self.rounds.load(Ordering::Relaxed);
            // One that ended has failed: its reason is in what it gives back.
            let failed = self.clients.iter().any(JoinHandle::is_finished);
            if done >= wanted || failed { Ok(()) } else { Err(format!("{done} rounds")) }
        })
        .await;
    }

    /// Stops them. Fails when any call of theirs failed.
    pub async fn stop(self) -> Kept {
        self.stop.store(true, Ordering::Relaxed);
        let mut kept = Kept::new();
        for client in self.clients {
            let done = client.await.expect("a client sees what it did");
            kept.extend(done.unwrap_or_else(|error| panic!("no error is allowed: {error:?}")));
        }
        kept
    }
}

/// Fails unless exactly these sessions are READY at these addresses, by gets and by lists through
/// each of the clients.
pub async fn all_are_there(kept: &Kept, clients: &[Client]) {
    for (id, address) in kept {
        for client in clients {
            let session = read(client, id).await.unwrap_or_else(|error| panic!("{id}: {error:?}"));
            assert_eq!((session.state(), &session.address), (SessionState::Ready, address), "{id}");
        }
    }
    for client in clients {
        let filter = v1::Filter { states: vec![SessionState::Ready.into()], ..Default::default() };
        let there = listed(client, filter).await;
        let there: Kept = there.into_iter().map(|it| (it.id, it.address)).collect();
        assert_eq!(there, *kept);
    }
}
