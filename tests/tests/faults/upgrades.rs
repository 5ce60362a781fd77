//! The agents of all nodes are upgraded, one after the other, while clients open, close and send events. Nothing that
//! runs ends, and no event that was answered is forgotten.

use crate::rounds::rounds_of;
use rota_client::{Client, Entry, v1};
use rota_model::{Changed, Retry};
use rota_tests::processes::Process;
use rota_tests::programs::running;
use rota_tests::recorded::{Classes, Load, Outage, now_us};
use rota_tests::sessions::{CALL, close, opened, read};
use rota_tests::{Assembled, PATIENCE, Places};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use tokio::time::{Interval, MissedTickBehavior, interval};

/// Sessions that live through all upgrades: machines that are sent events, and programs. The load leaves room for so many.
const MACHINES: usize = 6;
const PROGRAMS: usize = 8;
/// Each agent is upgraded so often: what the first new file started is there when it is replaced, too.
const PASSES: usize = 2;
/// Between two events of a client, repetitions too.
const PACE: Duration = Duration::from_millis(20);

/// What a client sent to a machine of its own, and was told.
#[derive(Clone, Copy, Default, Debug)]
struct Sent {
    answered: u64,
    /// They may have moved the machine.
    unknown: u64,
    /// They have not.
    refused: u64,
    /// The machine's own count.
    changes: u64,
}

impl Sent {
    /// Sends an event. The same is sent again, as long as the advice says so, until one is answered.
    async fn one(&mut self, client: &Client, session: &v1::Session, pace: &mut Interval) {
        let until = Instant::now() + PATIENCE;
        loop {
            pace.tick().await;
            let (id, event) = (session.id.clone(), "next".to_owned());
            let event = v1::SendRequest { id, event, life: session.life, ..Default::default() };
            match client.send_event(&session.address, event, CALL).await {
                Ok(moved) => return self.is_told(moved.changes),
                Err(error) => {
                    let advised = !matches!(error.retry(), Retry::Never | Retry::WhenChanged);
                    assert!(advised && Instant::now() < until, "{error:?}");
                    self.unknown += u64::from(error.changed() == Changed::Unknown);
                    self.refused += u64::from(error.changed() == Changed::No);
                }
            }
        }
    }

    /// The machine has counted every event that was answered, and none that was not sent.
    fn is_told(&mut self, changes: u64) {
        self.answered += 1;
        let possible = self.answered..=self.answered + self.unknown;
        assert!(changes > self.changes && possible.contains(&changes), "{changes} after {self:?}");
        self.changes = changes;
    }
}

/// A client that sends events to a machine of its own until it is told to stop.
struct Sender {
    stop: Arc<AtomicBool>,
    task: JoinHandle<Sent>,
}

impl Sender {
    async fn start(cluster: &Assembled, id: &str) -> Self {
        let client = cluster.client(Entry::RoundRobin);
        let session = opened(&client, id, "traffic-light").await;
        let stop = Arc::new(AtomicBool::new(false));
        let until = stop.clone();
        let task = tokio::spawn(async move {
            let mut sent = Sent::default();
            let mut pace = interval(PACE);
            pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
            while !until.load(Ordering::Relaxed) {
                sent.one(&client, &session, &mut pace).await;
            }
            let now = read(&client, &session.id).await.expect("it runs");
            assert_eq!((now.state(), now.life), (v1::SessionState::Ready, session.life));
            sent
        });
        Self { stop, task }
    }

    async fn stop(self) -> Sent {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.expect("every event of it is answered")
    }
}

/// The programs of these sessions, by their sessions' order.
fn programs_of(cluster: &Assembled, ids: &[String]) -> Vec<Vec<Process>> {
    let mut all = running(cluster.folder.path());
    ids.iter().map(|id| all.remove(id).expect("its program runs")).collect()
}

/// Upgrades the agent of every node; gives how many sessions the next ones went on with.
async fn upgrade_all(cluster: &mut Assembled, load: &Load) -> u64 {
    let mut adopted = 0;
    for at in 0..3 {
        let from_us = now_us();
        adopted += cluster.upgrade_agent(at).await;
        let still_us = now_us();
        load.more(100).await;
        cluster.is_whole().await;
        let (node, until_us) = (cluster.node(at).to_owned(), now_us());
        let (is_empty, is_adopted) = (false, true);
        load.book.outage(Outage { node, from_us, still_us, is_empty, until_us, is_adopted });
    }
    adopted
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_that_are_upgraded_one_after_the_other_under_load_lose_nothing() {
    rounds_of(Classes::AlsoPrograms, &Places::loopback(1), async |cluster, load, round| {
        let client = cluster.client(Entry::RoundRobin);
        let ids: Vec<String> = (0..PROGRAMS).map(|it| format!("program {round}.{it}")).collect();
        let mut programs = Vec::new();
        for id in &ids {
            programs.push(opened(&client, id, "sleeper").await);
        }
        let before = programs_of(cluster, &ids);
        let lights: Vec<String> = (0..MACHINES).map(|it| format!("light {round}.{it}")).collect();
        let mut senders = Vec::new();
        for id in &lights {
            senders.push(Sender::start(cluster, id).await);
        }
        for pass in 0..PASSES {
            let adopted = upgrade_all(cluster, load).await;
            let stay = u64::try_from(MACHINES + PROGRAMS).expect("a few");
            assert!(adopted >= stay, "pass {pass}: {adopted} were adopted, and {stay} stayed");
            eprintln!("pass {pass}: {adopted} sessions were adopted");
        }
        for sender in senders {
            let sent = sender.stop().await;
            assert!(sent.answered > 100, "{sent:?}");
            eprintln!("{sent:?}");
        }
        for (id, opened) in ids.iter().zip(&programs) {
            let now = read(&client, id).await.expect("it runs");
            assert_eq!((now.state(), now.life), (v1::SessionState::Ready, opened.life), "{id}");
        }
        assert_eq!(programs_of(cluster, &ids), before, "the same processes run");
        for id in ids.iter().chain(&lights) {
            assert!(client.close(close(id), CALL).await.expect("it runs").finished, "{id}");
        }
    })
    .await;
}
