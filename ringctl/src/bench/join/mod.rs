//! One join, one restore and one leave in a ring of its own under a light load: how long, how many bytes,
//! and what clients noticed.
//!
//! ```text
//!   ring, sessions ─▶ newcomer halves the widest arc ─▶ one manager is killed, its disk removed, the
//!   others have taken over ─▶ an empty machine takes its number ─▶ the newcomer leaves again, which hands
//!   everything on in an orderly way ─▶ everything is proved
//! ```
//! Bytes are counted by the managers that send them. The minimum are the documents of the partitions of
//! which somebody is to hold copies who did not, each once. For comparison the bytes of the restore go
//! through one bare stream.

mod copied;

use super::echo::{self, EchoClient};
use super::load::as_f64;
use super::pulse::{Beat, Pulse};
use super::report::{cores, rounded};
use super::target;
use super::usage;
use crate::dev::{Cluster, ManagerProcess, Settings, with_cluster};
use crate::follow::{Follower, Progress};
use crate::inspect;
use crate::join::{self, JOIN_WAIT};
use crate::leave::{self, ORDER_WAIT};
use crate::output::{Format, Out, plain_table};
use crate::verify;
use anyhow::Context;
use clap::Args;
use copied::Sent;
use indicatif::ProgressBar;
use rota_client::Client;
use rota_model::{ManagerNumber, Namespace, SessionId, SessionKey, SlotId};
use rota_ring::{View, slot_of_session};
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
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
/// Sessions of each node.
const NODE_SESSIONS: u32 = 500_000;
/// The load runs so long before each measurement, and goes on so long after it.
const BESIDE: Duration = Duration::from_millis(500);

/// `bench join`.
#[derive(Args, Debug)]
pub struct JoinArguments {
    /// Managers of the ring before the join, evenly spread.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(2..=100))]
    managers: u32,
    /// Sessions of the ring.
    #[arg(long, default_value_t = 30_000, value_parser = clap::value_parser!(u32).range(1..=2_000_000))]
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
    /// How long managers are patient with each other's silence, in ms: many of them on one machine wait for
    /// its cores together [default: that of managers, and 5000 from 30 managers on].
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(601..=9_999))]
    suspect_ms: Option<u32>,
}

/// One manager that came in or left.
#[derive(Serialize, Clone, PartialEq, Debug, Default)]
struct Step {
    number: u32,
    /// From the order until it owned its arc and held every copy that it should, or had left.
    seconds: f64,
    /// Bytes of the messages that brought copies to whomever, whatever was sent again included.
    bytes_moved: u64,
    /// Bytes of the documents that somebody is to hold who did not, each once.
    bytes_minimum: u64,
    documents_moved: u64,
    documents_minimum: u64,
    /// Requests of the load that failed, although the clients follow the advice that they are given.
    failed_requests: u64,
    /// The longest time that any client of the load waited for an answer.
    longest_gap_ms: f64,
    requests: u64,
}

/// All of it. On the outside each field of a step has the step's name before it, those of the join none.
#[derive(PartialEq, Debug, Default)]
struct Joined {
    join: Step,
    restore: Step,
    leave: Step,
    ring: Ring,
}

/// What all of that happened to.
#[derive(Serialize, PartialEq, Debug, Default)]
struct Ring {
    managers: u32,
    sessions: u32,
    replicas: u32,
    slots: u32,
    /// How long managers are patient with each other's silence, in ms, if longer than usual.
    #[serde(skip_serializing_if = "Option::is_none")]
    suspect_ms: Option<u32>,
    /// From the first process to a ring that serves.
    ready_seconds: f64,
    opened_per_s: f64,
    /// Resident memory of all managers together, with all sessions.
    managers_rss_bytes: u64,
    /// As many bytes as the restore moved, through one stream to a server that only counts them.
    stream_seconds: f64,
    /// The rate of the restore, as a part of that of the stream.
    restore_to_stream: f64,
    cores: usize,
}

impl Joined {
    fn steps(&self) -> [(&'static str, &Step); 3] {
        [("join", &self.join), ("restore", &self.restore), ("leave", &self.leave)]
    }

    fn document(&self) -> anyhow::Result<Map<String, Value>> {
        let fields = |value: Value| match value {
            Value::Object(fields) => fields,
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_) => Map::new(),
        };
        let mut all = fields(serde_json::to_value(&self.ring)?);
        for (name, step) in self.steps() {
            let named = |it| if name == "join" { it } else { format!("{name}_{it}") };
            let step = fields(serde_json::to_value(step)?);
            all.extend(step.into_iter().map(|(field, value)| (named(field), value)));
        }
        Ok(all)
    }
}

/// `bench join`.
pub async fn run(it: &JoinArguments, out: &mut Out) -> anyhow::Result<()> {
    let roomy = Settings::roomy(it.managers, it.replicas);
    let settings = Settings {
        slots: Some(it.slots),
        managers_max: Some(it.managers + 1),
        // No node takes more than four fifths of its places.
        nodes: Some(1 + it.sessions / NODE_SESSIONS),
        suspect_ms: it.suspect_ms.or(roomy.suspect_ms),
        ..roomy
    };
    let mut joined = with_cluster(&settings, async |cluster| measure(it, cluster).await).await?;
    joined.ring.suspect_ms = settings.suspect_ms;
    if out.format() == Format::Json {
        return Ok(out.json(&joined.document()?)?);
    }
    let header = ["WHAT", "NUMBER", "SECONDS", "KIB MOVED", "KIB MINIMUM", "FAILED", "GAP MS"];
    let mut table = plain_table(header);
    let kib = |bytes: u64| format!("{:.1}", as_f64(bytes) / 1024.0);
    for (name, step) in joined.steps() {
        table.add_row([
            name.to_owned(),
            step.number.to_string(),
            format!("{:.2}", step.seconds),
            kib(step.bytes_moved),
            kib(step.bytes_minimum),
            step.failed_requests.to_string(),
            format!("{:.1}", step.longest_gap_ms),
        ]);
    }
    out.table(&table)?;
    let Ring { managers, sessions, replicas, restore_to_stream, suspect_ms, .. } = joined.ring;
    let patience = suspect_ms.map(|it| format!(", --suspect-ms {it}")).unwrap_or_default();
    out.text(&format!(
        "\n{managers} managers, {sessions} sessions, {replicas} successors{patience}; the restore ran at \
         {restore_to_stream:.2} of a bare stream's rate\n"
    ))?;
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

/// Whom an order is about.
#[derive(Clone, Copy)]
enum Who<'a> {
    Comes(&'a ManagerProcess),
    Goes(&'a ManagerProcess),
}

/// What says that an order is carried out.
struct Watched<'a> {
    what: &'static str,
    contact: &'a str,
    progress: fn(&View, ManagerNumber) -> Progress,
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
    let bar = super::load::bar("join", 5);
    let bench = Bench { it, client, ids, bar };
    let join = bench.join(cluster).await?;
    let restore = bench.restore(cluster, join.number).await?;
    let leave = bench.leave(cluster, join.number).await?;
    let whole = Client::connect(&cluster.document().endpoints())?;
    verify::prove(&whole, ANSWER_WAIT, PROOF_WAIT).await?;
    let stream_seconds = bare_stream(cluster, restore.bytes_moved).await?;
    bench.bar.finish_and_clear();
    let ring = Ring {
        managers: it.managers,
        sessions: it.sessions,
        replicas: it.replicas,
        slots: it.slots,
        suspect_ms: None,
        ready_seconds,
        opened_per_s: rounded(opened_per_s, 1),
        managers_rss_bytes,
        stream_seconds: rounded(stream_seconds, 4),
        restore_to_stream: rounded(stream_seconds / restore.seconds, 3),
        cores: cores(),
    };
    Ok(Joined { join, restore, leave, ring })
}

/// How long so many bytes take through one stream, beside the cluster at rest.
async fn bare_stream(cluster: &Cluster, bytes: u64) -> anyhow::Result<f64> {
    let (address, _pid) = echo::start(cluster).await?;
    let client = EchoClient::new(&address, 1, 0)?;
    // The connection stands, as those of managers do.
    client.stream(0).await?;
    let began = Instant::now();
    client.stream(bytes).await?;
    Ok(began.elapsed().as_secs_f64())
}

impl Bench<'_> {
    async fn view(&self) -> anyhow::Result<View> {
        let answer = self.client.inspect(ANSWER_WAIT).await?;
        let view = answer.view.context("the manager has no View yet")?;
        view.try_into().context("a manager's View cannot be read")
    }

    async fn join(&self, cluster: &mut Cluster) -> anyhow::Result<Step> {
        self.bar.set_message("a manager joins");
        let expected = self.view().await?.arcs().free_number().context("every slot is a number")?;
        let process = cluster.newcomer("newcomer").await?;
        let newcomer = Newcomer { process, number: None, expected };
        let step = self.arrival(cluster, newcomer).await?;
        self.bar.inc(1);
        Ok(step)
    }

    /// Of a manager that was there from the start, as far from the newcomer as can be.
    async fn restore(&self, cluster: &mut Cluster, newcomer: u32) -> anyhow::Result<Step> {
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
        let step = self.arrival(cluster, newcomer).await?;
        self.bar.inc(1);
        Ok(step)
    }

    /// Tells the newcomer its number, until it holds all that it should.
    async fn arrival(&self, cluster: &mut Cluster, new: Newcomer) -> anyhow::Result<Step> {
        let contact = contact(cluster)?;
        let order = async {
            let told = join::tell(&new.process.grpc, new.number, &contact, JOIN_WAIT).await?;
            Ok((ManagerNumber(told.number), told.epoch))
        };
        let watched = Watched { what: "the join", contact: &contact, progress: join::progress };
        let reads = self.moving(new.expected).await?;
        let step =
            Box::pin(self.step(cluster, Who::Comes(&new.process), reads, order, watched)).await?;
        cluster.seat(ManagerProcess { number: step.number, ..new.process });
        cluster.whole(WHOLE_WAIT).await?;
        Ok(step)
    }

    /// Of the one that joined: what it owns and holds is handed on.
    async fn leave(&self, cluster: &mut Cluster, number: u32) -> anyhow::Result<Step> {
        self.bar.set_message("a manager leaves");
        let contact = contact(cluster)?;
        let order = async {
            let told = leave::tell(number, &Client::connect(&contact)?, ORDER_WAIT).await?;
            Ok((ManagerNumber(told.number), told.epoch))
        };
        let watched = Watched { what: "the leave", contact: &contact, progress: leave::leaving };
        let reads = self.moving(ManagerNumber(number)).await?;
        let leaver = Who::Goes(cluster.manager(number)?);
        let step = self.step(cluster, leaver, reads, order, watched).await?;
        // Its process ends by itself, sooner or later than this.
        cluster.kill_manager(number).await?;
        cluster.unseat(number);
        cluster.whole(WHOLE_WAIT).await?;
        self.bar.inc(1);
        Ok(step)
    }

    /// Gives an order under load, and measures until it is carried out.
    async fn step(
        &self,
        cluster: &Cluster,
        who: Who<'_>,
        reads: Vec<String>,
        order: impl Future<Output = anyhow::Result<(ManagerNumber, u64)>>,
        watched: Watched<'_>,
    ) -> anyhow::Result<Step> {
        let client = target::client(&cluster.document().endpoints(), 1, false)?;
        let held_before = self.view().await?;
        let sent = Sent::before(cluster, who).await?;
        let beat = Beat {
            clients: self.it.concurrency,
            per_second: self.it.rate,
            class: self.it.class.clone(),
            reads: Arc::new(reads),
        };
        let pulse = Pulse::start(&client, &beat);
        tokio::time::sleep(BESIDE).await;
        let known = pulse.acknowledged().len();
        pulse.restart();
        let began = Instant::now();
        let (number, since) = order.await?;
        let follower = Follower {
            what: watched.what,
            since,
            until: began + ARRIVAL_WAIT,
            every: LOOK_EVERY,
            serving: None,
            format: Format::Json,
        };
        let view = follower.follow(watched.contact, |it| (watched.progress)(it, number)).await?;
        let seconds = began.elapsed().as_secs_f64();
        tokio::time::sleep(BESIDE).await;
        let (load, opened) = pulse.stop().await;
        let moved = sent.since().await?;
        let copies = new_copies(&held_before, &view);
        let documents = documents(&client, &view, &copies).await?;
        // What was opened meanwhile travels in the log.
        let times = |id: &String| copies.get(&home(&view, id)).copied().unwrap_or(0);
        let meanwhile: u64 = opened.iter().skip(known).map(times).sum();
        let documents_minimum = documents.saturating_sub(meanwhile);
        Ok(Step {
            number: number.0,
            seconds: rounded(seconds, 3),
            documents_moved: moved.documents,
            documents_minimum,
            bytes_moved: moved.message_bytes,
            bytes_minimum: moved.bytes_of(documents_minimum),
            failed_requests: load.failed,
            longest_gap_ms: load.longest_gap_ms,
            requests: load.opened + load.read + load.failed,
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

/// How many managers are to hold each partition that did not before.
fn new_copies(before: &View, after: &View) -> BTreeMap<ManagerNumber, u64> {
    let parts = after.parts.keys().map(|part| {
        // A newcomer's arc was part of another one.
        let held = before.parts.get(&before.home(SlotId(part.0)));
        let is_new = |it: &ManagerNumber| !held.is_some_and(|held| held.has(*it));
        (*part, after.wanted(*part).into_iter().filter(is_new).count() as u64)
    });
    parts.filter(|(_, copies)| *copies > 0).collect()
}

/// Documents in those copies, as the partitions' owners count.
async fn documents(
    client: &Client,
    view: &View,
    copies: &BTreeMap<ManagerNumber, u64>,
) -> anyhow::Result<u64> {
    let answers = inspect::ask(client, ANSWER_WAIT).await?;
    let mut documents = 0;
    for (part, times) in copies {
        let owner = view.owner_of(SlotId(part.0));
        let owner = answers.get(&owner.0).and_then(|it| it.as_ref().ok());
        let stats = owner.and_then(|it| it.parts.iter().find(|it| it.number == part.0));
        let stats = stats.with_context(|| format!("the owner of {part} does not answer"))?;
        documents += stats.documents * times;
    }
    Ok(documents)
}

fn contact(cluster: &Cluster) -> anyhow::Result<String> {
    let contact = cluster.document().managers.first().context("a cluster has managers")?;
    Ok(contact.grpc.clone())
}
