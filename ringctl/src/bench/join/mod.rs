//! One join and one restore in a ring of its own under a light load: how long, how many bytes, and what
//! clients noticed.
//!
//! ```text
//!   ring, sessions ─▶ newcomer halves the widest arc ─▶ one manager is killed, its disk removed, the
//!   others have taken over ─▶ an empty machine takes its number ─▶ everything is proved
//! ```
//! Bytes are counted by the managers that send them. The minimum are the documents of the partitions of
//! which the newcomer is to hold copies, each once.

mod copied;

use super::load::as_f64;
use super::pulse::{Background, Beat, Pulse};
use super::report::{cores, rounded};
use super::target;
use super::usage;
use crate::dev::{Cluster, ManagerProcess, Settings, with_cluster};
use crate::follow::Follower;
use crate::inspect;
use crate::join::{self, JOIN_WAIT};
use crate::output::{Format, Out, plain_table};
use crate::verify;
use anyhow::Context;
use clap::Args;
use copied::Copied;
use indicatif::ProgressBar;
use rota_client::Client;
use rota_model::{ManagerNumber, Namespace, SessionId, SessionKey, SlotId};
use rota_ring::{View, slot_of_session};
use serde::Serialize;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Between two looks at the ring: what is measured is known to within that.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// How long a newcomer may take until it holds all that it should.
const ARRIVAL_WAIT: Duration = Duration::from_secs(120);
/// How long the ring may take to be at rest again.
const WHOLE_WAIT: Duration = Duration::from_secs(120);
/// How long the proof at the end may take, and one answer for it.
const PROOF_WAIT: Duration = Duration::from_secs(120);
const ANSWER_WAIT: Duration = Duration::from_secs(10);
/// The load runs so long before each measurement, and goes on so long after it.
const BESIDE: Duration = Duration::from_millis(500);

/// `bench join`.
#[derive(Args, Debug)]
pub struct JoinArguments {
    /// Managers of the ring before the join, evenly spread.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(2..=100))]
    managers: u32,
    /// Sessions of the ring.
    #[arg(long, default_value_t = 30_000, value_parser = clap::value_parser!(u32).range(1..=500_000))]
    sessions: u32,
    /// Successors with copies.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=99))]
    replicas: u32,
    /// Slots of the ring.
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(8..=65_536))]
    slots: u32,
    /// Clients of the load. Each reads sessions of the arcs that move, and opens others.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    concurrency: u32,
    /// Requests a second of all of them.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: u32,
    /// Class of the sessions.
    #[arg(long, default_value = "builtin")]
    class: String,
}

/// One manager that came in.
#[derive(Clone, PartialEq, Debug, Default)]
struct Arrival {
    number: u32,
    /// From the order until it owned its arc and held every copy that it should.
    seconds: f64,
    documents_moved: u64,
    documents_minimum: u64,
    bytes_moved: u64,
    bytes_minimum: u64,
    load: Background,
}

#[derive(Serialize, PartialEq, Debug, Default)]
struct Joined {
    managers: u32,
    sessions: u32,
    replicas: u32,
    slots: u32,
    number: u32,
    /// From the order until the newcomer owned its arc and held every copy that it should.
    seconds: f64,
    /// Bytes of the messages that brought copies to whomever, whatever was sent again included.
    bytes_moved: u64,
    /// Bytes of the documents that the newcomer must hold, each once.
    bytes_minimum: u64,
    documents_moved: u64,
    documents_minimum: u64,
    /// Requests of the load that failed, although the clients follow the advice that they are given.
    failed_requests: u64,
    /// The longest time that any client of the load waited for an answer.
    longest_gap_ms: f64,
    requests: u64,
    /// The same of a manager that takes the number of one that is gone, on an empty disk.
    restore_number: u32,
    restore_seconds: f64,
    restore_bytes_moved: u64,
    restore_bytes_minimum: u64,
    restore_documents_moved: u64,
    restore_documents_minimum: u64,
    restore_failed_requests: u64,
    restore_longest_gap_ms: f64,
    restore_requests: u64,
    /// From the first process to a ring that serves.
    ready_seconds: f64,
    opened_per_s: f64,
    /// Resident memory of all managers together, with all sessions.
    managers_rss_bytes: u64,
    cores: usize,
}

/// `bench join`.
pub async fn run(it: &JoinArguments, out: &mut Out) -> anyhow::Result<()> {
    let settings = Settings {
        slots: Some(it.slots),
        managers_max: Some(it.managers + 1),
        ..Settings::roomy(it.managers, it.replicas)
    };
    let joined = with_cluster(&settings, async |cluster| measure(it, cluster).await).await?;
    if out.format() == Format::Json {
        return Ok(out.json(&joined)?);
    }
    let header = ["WHAT", "NUMBER", "SECONDS", "KIB MOVED", "KIB MINIMUM", "FAILED", "GAP MS"];
    let mut table = plain_table(header);
    let kib = |bytes: u64| format!("{:.1}", as_f64(bytes) / 1024.0);
    let Joined { number, seconds, bytes_moved, bytes_minimum, failed_requests, .. } = joined;
    table.add_row([
        "join".to_owned(),
        number.to_string(),
        format!("{seconds:.2}"),
        kib(bytes_moved),
        kib(bytes_minimum),
        failed_requests.to_string(),
        format!("{:.1}", joined.longest_gap_ms),
    ]);
    table.add_row([
        "restore".to_owned(),
        joined.restore_number.to_string(),
        format!("{:.2}", joined.restore_seconds),
        kib(joined.restore_bytes_moved),
        kib(joined.restore_bytes_minimum),
        joined.restore_failed_requests.to_string(),
        format!("{:.1}", joined.restore_longest_gap_ms),
    ]);
    out.table(&table)?;
    let Joined { managers, sessions, replicas, .. } = joined;
    out.text(&format!("\n{managers} managers, {sessions} sessions, {replicas} successors\n"))?;
    Ok(())
}

/// A bench under way.
struct Bench<'a> {
    it: &'a JoinArguments,
    client: Client,
    ids: Vec<String>,
    bar: ProgressBar,
}

/// Who comes in.
struct Newcomer {
    process: ManagerProcess,
    /// `None` halves the widest arc.
    number: Option<u32>,
    /// Where it will be.
    expected: ManagerNumber,
}

async fn measure(it: &JoinArguments, cluster: &mut Cluster) -> anyhow::Result<Joined> {
    let ready_seconds = rounded(cluster.started_in.as_secs_f64(), 2);
    let client = target::client(&cluster.document().endpoints(), 1, false)?;
    let began = Instant::now();
    let ids = target::prepare(&client, &it.class, it.sessions).await?;
    let opened_per_s = f64::from(it.sessions) / began.elapsed().as_secs_f64();
    cluster.whole(WHOLE_WAIT).await?;
    let resident = cluster.document().managers.iter().filter_map(|it| usage::resident(it.pid));
    let managers_rss_bytes = resident.sum();
    let bar = super::load::bar("join", 4);
    let bench = Bench { it, client, ids, bar };
    let join = bench.join(cluster).await?;
    let restore = bench.restore(cluster, join.number).await?;
    let whole = Client::connect(&cluster.document().endpoints())?;
    verify::prove(&whole, ANSWER_WAIT, PROOF_WAIT).await?;
    bench.bar.finish_and_clear();
    let requests = |it: &Background| it.opened + it.read + it.failed;
    Ok(Joined {
        managers: it.managers,
        sessions: it.sessions,
        replicas: it.replicas,
        slots: it.slots,
        number: join.number,
        seconds: join.seconds,
        bytes_moved: join.bytes_moved,
        bytes_minimum: join.bytes_minimum,
        documents_moved: join.documents_moved,
        documents_minimum: join.documents_minimum,
        failed_requests: join.load.failed,
        longest_gap_ms: join.load.longest_gap_ms,
        requests: requests(&join.load),
        restore_number: restore.number,
        restore_seconds: restore.seconds,
        restore_bytes_moved: restore.bytes_moved,
        restore_bytes_minimum: restore.bytes_minimum,
        restore_documents_moved: restore.documents_moved,
        restore_documents_minimum: restore.documents_minimum,
        restore_failed_requests: restore.load.failed,
        restore_longest_gap_ms: restore.load.longest_gap_ms,
        restore_requests: requests(&restore.load),
        ready_seconds,
        opened_per_s: rounded(opened_per_s, 1),
        managers_rss_bytes,
        cores: cores(),
    })
}

impl Bench<'_> {
    async fn view(&self) -> anyhow::Result<View> {
        let answer = self.client.inspect(ANSWER_WAIT).await?;
        let view = answer.view.context("the manager has no View yet")?;
        view.try_into().context("a manager's View cannot be read")
    }

    async fn join(&self, cluster: &mut Cluster) -> anyhow::Result<Arrival> {
        self.bar.set_message("a manager joins");
        let expected = self.view().await?.free_number().context("every slot is a number")?;
        let process = cluster.newcomer("newcomer").await?;
        let newcomer = Newcomer { process, number: None, expected };
        let arrival = self.arrival(cluster, newcomer).await?;
        self.bar.inc(1);
        Ok(arrival)
    }

    /// Of a manager that was there from the start, as far from the newcomer as can be.
    async fn restore(&self, cluster: &mut Cluster, newcomer: u32) -> anyhow::Result<Arrival> {
        self.bar.set_message("a manager is lost");
        let view = self.view().await?;
        let from = view.ring_from(ManagerNumber(newcomer));
        let lost = from.collect::<Vec<_>>().get(view.managers.len() / 2).copied();
        let lost = lost.context("the ring has two managers at least")?;
        cluster.kill_manager(lost.0).await?;
        cluster.unseat(lost.0);
        cluster.whole(WHOLE_WAIT).await?;
        self.bar.inc(1);
        self.bar.set_message("an empty machine takes its number");
        let process = cluster.replacement(lost.0).await?;
        let newcomer = Newcomer { process, number: Some(lost.0), expected: lost };
        let arrival = self.arrival(cluster, newcomer).await?;
        self.bar.inc(1);
        Ok(arrival)
    }

    /// Tells the newcomer its number under load, and measures until it holds all that it should.
    async fn arrival(&self, cluster: &mut Cluster, new: Newcomer) -> anyhow::Result<Arrival> {
        let contact = cluster.document().managers.first().context("a cluster has managers")?;
        let contact = contact.grpc.clone();
        let client = target::client(&cluster.document().endpoints(), 1, false)?;
        let before = copied(cluster, None).await?;
        let beat = Beat {
            clients: self.it.concurrency,
            per_second: self.it.rate,
            class: self.it.class.clone(),
            reads: Arc::new(self.moving(new.expected).await?),
        };
        let pulse = Pulse::start(&client, &beat);
        tokio::time::sleep(BESIDE).await;
        let known = pulse.acknowledged().len();
        pulse.restart();
        let began = Instant::now();
        let told = join::tell(&new.process.grpc, new.number, &contact, JOIN_WAIT).await?;
        let number = ManagerNumber(told.number);
        let follower = Follower {
            what: "the join",
            since: told.epoch,
            until: began + ARRIVAL_WAIT,
            every: LOOK_EVERY,
            format: Format::Json,
        };
        let view = follower.follow(&contact, |view| join::progress(view, number)).await?;
        let seconds = began.elapsed().as_secs_f64();
        tokio::time::sleep(BESIDE).await;
        let load = pulse.background();
        let opened = pulse.stop().await;
        let moved = copied(cluster, Some(&new.process)).await? - before;
        let documents = documents(&client, &view, number).await?;
        // What was opened meanwhile travels in the log.
        let held: BTreeSet<ManagerNumber> = held(&view, number).collect();
        let meanwhile = opened.iter().skip(known).filter(|id| held.contains(&home(&view, id)));
        let documents_minimum = documents.saturating_sub(meanwhile.count() as u64);
        cluster.seat(ManagerProcess { number: number.0, ..new.process });
        cluster.whole(WHOLE_WAIT).await?;
        Ok(Arrival {
            number: number.0,
            seconds: rounded(seconds, 3),
            documents_moved: moved.documents,
            documents_minimum,
            bytes_moved: moved.message_bytes,
            bytes_minimum: moved.bytes_of(documents_minimum),
            load,
        })
    }

    /// Sessions of which copies will move to a number, so that the load reads them.
    async fn moving(&self, number: ManagerNumber) -> anyhow::Result<Vec<String>> {
        let view = self.view().await?;
        // Its own arc lies in that partition, or is it; before it come those of its predecessors.
        let last = view.home(SlotId(number.0));
        let mut parts: Vec<ManagerNumber> = view.parts.keys().copied().collect();
        let at = parts.iter().position(|it| *it == last).context("the home has a partition")?;
        let count = parts.len();
        parts.rotate_left((at + 1) % count);
        let held = parts.split_off(count.saturating_sub(self.it.replicas as usize + 1));
        let is_held = |id: &&String| held.contains(&home(&view, id));
        let ids: Vec<String> = self.ids.iter().filter(is_held).cloned().collect();
        Ok(if ids.is_empty() { self.ids.clone() } else { ids })
    }
}

/// The partition of a session of this bench.
fn home(view: &View, id: &str) -> ManagerNumber {
    let id = SessionId::parse(id).expect("an id that was opened is one");
    view.home(slot_of_session(&SessionKey::new(Namespace::default_space(), id), view.m))
}

/// Partitions of which a number is to hold copies.
fn held(view: &View, number: ManagerNumber) -> impl Iterator<Item = ManagerNumber> {
    view.parts.keys().copied().filter(move |part| view.wanted(*part).contains(&number))
}

/// Documents in those partitions, as their owners count.
async fn documents(client: &Client, view: &View, number: ManagerNumber) -> anyhow::Result<u64> {
    let answers = inspect::ask(client, ANSWER_WAIT).await?;
    let mut documents = 0;
    for part in held(view, number) {
        let owner = view.owner_of(SlotId(part.0));
        let owner = answers.get(&owner.0).and_then(|it| it.as_ref().ok());
        let stats = owner.and_then(|it| it.parts.iter().find(|it| it.number == part.0));
        let stats = stats.with_context(|| format!("the owner of {part} does not answer"))?;
        documents += stats.sessions.values().sum::<u64>();
    }
    Ok(documents)
}

async fn copied(cluster: &Cluster, more: Option<&ManagerProcess>) -> anyhow::Result<Copied> {
    let all = cluster.document().managers.iter().chain(more);
    Copied::ask(all.map(|it| it.http.clone())).await
}
