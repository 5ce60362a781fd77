//! The agent of a node is killed, or stands still for longer than its lease. The next agent goes on with what runs. Where none
//! comes in time, what it ran ends before anybody runs it again: programs by their keepers, machines with their agent or
//! behind its lease.

use crate::rounds::rounds_of;
use rota_client::{CallError, Client, Entry, v1};
use rota_tests::recorded::{Classes, Load, Outage, Recording, now_us};
use rota_tests::sessions::{CALL, read};
use rota_tests::{Assembled, Leases, PATIENCE, Places, eventually};
use rustix::process::Signal;
use tokio::task::JoinSet;

fn places() -> Places {
    Places { leases: Leases::Short, ..Places::loopback(1) }
}

/// Who opens sessions beside the load, on the record.
const WITNESS: usize = 100;
/// So many events wait for an agent that stands still.
const EVENTS: usize = 20;

/// A machine that runs, and nobody closes it.
struct Witness {
    recording: Recording,
    client: Client,
    session: v1::Session,
}

impl Witness {
    async fn open(cluster: &Assembled, load: &Load, id: &str) -> Self {
        let client = cluster.client(Entry::Sticky);
        let recording = Recording::new(client.clone(), WITNESS, &load.book);
        recording.open(id, "counter").await;
        let session = read(&client, id).await.expect("it was opened");
        Self { recording, client, session }
    }

    /// Nothing has happened to it.
    async fn goes_on(&self) {
        let life = self.recording.open(&self.session.id, "counter").await;
        assert_eq!(life, Some(self.session.life), "{:?}", self.session);
        self.recording.close(&self.session.id, None).await;
    }

    /// Opens it until that begins another life, and closes it.
    async fn is_opened_again(&self) {
        eventually("it lives again", PATIENCE, async || {
            let again = self.recording.open(&self.session.id, "counter").await;
            let is_new = again.is_some_and(|it| it > self.session.life);
            if is_new { Ok(()) } else { Err(format!("{again:?}")) }
        })
        .await;
        self.recording.close(&self.session.id, None).await;
    }

    /// Asks the machine itself, where it once was, again and again; gives the answers.
    fn is_sent_events(&self) -> JoinSet<Result<v1::SendResponse, CallError>> {
        let send = |_| {
            let (client, address) = (self.client.clone(), self.session.address.clone());
            let (id, event) = (self.session.id.clone(), "increment".to_owned());
            let event = v1::SendRequest { id, event, ..Default::default() };
            async move { client.send_event(&address, event, CALL).await }
        };
        (0..EVENTS).map(send).collect()
    }
}

/// The agent of the node where this witness runs is killed, and nobody hears of it for so long.
async fn killed(cluster: &mut Assembled, load: &Load, id: &str, until_lost: bool) {
    let witness = Witness::open(cluster, load, id).await;
    let at = cluster.node_named(&witness.session.node_id);
    let from_us = now_us();
    cluster.kill_agent(at).await;
    if until_lost {
        load.more(100).await;
        cluster.runs_no_program(at).await;
    }
    let still_us = now_us();
    if until_lost {
        cluster.is_lost(at).await;
        load.more(100).await;
        witness.is_opened_again().await;
    }
    cluster.start_agent(at).await;
    load.more(100).await;
    cluster.is_whole().await;
    let (node, until_us) = (cluster.node(at).to_owned(), now_us());
    let (is_empty, is_adopted) = (until_lost, !until_lost);
    load.book.outage(Outage { node, from_us, still_us, is_empty, until_us, is_adopted });
    if !until_lost {
        witness.goes_on().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn node_agents_that_are_killed_and_come_back_break_no_promise() {
    rounds_of(Classes::AlsoPrograms, &places(), async |cluster, load, round| {
        killed(cluster, load, &format!("witness {round}.0"), false).await;
        killed(cluster, load, &format!("witness {round}.1"), true).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn node_agents_that_are_stopped_until_they_are_lost_and_go_on_break_no_promise() {
    rounds_of(Classes::AlsoPrograms, &places(), async |cluster, load, round| {
        let witness = Witness::open(cluster, load, &format!("witness {round}")).await;
        let at = cluster.node_named(&witness.session.node_id);
        let (from_us, agent) = (now_us(), cluster.agent(at));
        agent.signal(Signal::STOP);
        load.more(100).await;
        cluster.runs_no_program(at).await;
        let still_us = now_us();
        cluster.is_lost(at).await;
        load.more(100).await;
        witness.is_opened_again().await;
        // What waits for the agent when it goes on comes before anything else can tell it the time.
        let asked = witness.is_sent_events();
        load.more(20).await;
        agent.signal(Signal::CONT);
        let told = asked.join_all().await;
        let refused = |it: &Result<_, CallError>| matches!(it, Err(CallError::Refused { .. }));
        assert!(told.iter().all(refused), "its lease was over: {told:?}");
        cluster.is_whole().await;
        load.more(100).await;
        let (node, until_us) = (cluster.node(at).to_owned(), now_us());
        let (is_empty, is_adopted) = (true, false);
        load.book.outage(Outage { node, from_us, still_us, is_empty, until_us, is_adopted });
    })
    .await;
}
