//! Kills one manager of a cluster under load, and measures how long it takes until every session
//! can be opened and read again through the managers that are left.

use super::load::as_f64;
use super::report::rounded;
use super::target;
use crate::dev::{Cluster, Settings, with_cluster};
use crate::output::{Format, Out, plain_table};
use anyhow::{Context, bail};
use clap::Args;
use rota_client::{Client, v1};
use rustix::process::Signal;
use serde::Serialize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::{AbortHandle, JoinSet};

/// Every session must be served again within this time, or the measurement fails.
const SERVED_WAIT: Duration = Duration::from_secs(60);
/// How long one try may take before the next manager is asked.
const TRY_WAIT: Duration = Duration::from_secs(1);
/// The load runs so long before the kill.
const BEFORE_KILL: Duration = Duration::from_secs(1);
/// Sessions that are tried at the same time.
const TRIES_IN_FLIGHT: usize = 64;

/// `bench failover`.
#[derive(Args, Debug)]
pub struct FailoverArguments {
    /// Sessions that must be served again.
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..))]
    sessions: u32,
    /// Opens in flight in the background, before, during and after.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    concurrency: u32,
    /// Managers of the cluster.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(2..=100))]
    managers: u32,
    /// Successors with copies.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=99))]
    replicas: u32,
    /// Class of the sessions.
    #[arg(long, default_value = "builtin")]
    class: String,
}

#[derive(Serialize, PartialEq, Debug, Default)]
struct Killed {
    number: u32,
    pid: u32,
}

#[derive(Serialize, PartialEq, Debug, Default)]
struct Background {
    concurrency: u32,
    opened: u64,
    failed: u64,
    /// Longest time in which no open of the background succeeded, after the kill.
    longest_gap_ms: f64,
}

#[derive(Serialize, PartialEq, Debug, Default)]
struct FailedOver {
    sessions: u32,
    killed: Killed,
    /// From the kill until the last session was opened and read again.
    all_served_ms: f64,
    p50_ms: f64,
    p99_ms: f64,
    /// Sessions that came back with another life: must be 0.
    lost: u64,
    managers: u32,
    replicas: u32,
    background: Background,
    cores: usize,
}

/// What the background load did.
#[derive(Debug)]
struct Pulse {
    opened: AtomicU64,
    failed: AtomicU64,
    /// Last success and longest gap since the kill. A lock because all calls in flight share it.
    gap: Mutex<(Instant, Duration)>,
}

impl Pulse {
    fn beat(&self) {
        self.opened.fetch_add(1, Ordering::Relaxed);
        let mut gap = self.gap.lock().unwrap_or_else(PoisonError::into_inner);
        gap.1 = gap.1.max(gap.0.elapsed());
        gap.0 = Instant::now();
    }

    fn restart(&self) {
        *self.gap.lock().unwrap_or_else(PoisonError::into_inner) = (Instant::now(), Duration::ZERO);
    }

    fn longest_gap(&self) -> Duration {
        let gap = self.gap.lock().unwrap_or_else(PoisonError::into_inner);
        gap.1.max(gap.0.elapsed())
    }
}

/// `bench failover`.
pub async fn run(it: &FailoverArguments, out: &mut Out) -> anyhow::Result<()> {
    let settings = Settings::roomy(it.managers, it.replicas);
    let done = with_cluster(&settings, async |cluster| measure(it, cluster).await).await?;
    match out.format() {
        Format::Json => out.json(&done)?,
        Format::Table => {
            let mut table = plain_table(["SESSIONS", "ALL SERVED MS", "P50 MS", "P99 MS", "LOST"]);
            table.add_row([
                done.sessions.to_string(),
                format!("{:.1}", done.all_served_ms),
                format!("{:.1}", done.p50_ms),
                format!("{:.1}", done.p99_ms),
                done.lost.to_string(),
            ]);
            out.table(&table)?;
            let (opened, failed) = (done.background.opened, done.background.failed);
            let gap = done.background.longest_gap_ms;
            out.text(&format!(
                "\nbackground: {opened} opened, {failed} failed, longest gap {gap:.1} ms\n"
            ))?;
        }
    }
    if done.lost > 0 { bail!("{} sessions came back as other lives", done.lost) } else { Ok(()) }
}

async fn measure(it: &FailoverArguments, cluster: &mut Cluster) -> anyhow::Result<FailedOver> {
    let document = cluster.document().clone();
    let everyone = target::client(&document.endpoints(), 2, false)?;
    let ids = target::prepare(&everyone, &it.class, it.sessions).await?;
    let lives = lives(&everyone, &ids).await?;
    let pulse = Arc::new(Pulse {
        opened: AtomicU64::new(0),
        failed: AtomicU64::new(0),
        gap: Mutex::new((Instant::now(), Duration::ZERO)),
    });
    let mut background = JoinSet::new();
    for _ in 0..it.concurrency {
        background.spawn(pulsing(everyone.clone(), it.class.clone(), pulse.clone()));
    }
    tokio::time::sleep(BEFORE_KILL).await;
    let victim = document.managers.first().context("a cluster has managers")?;
    let left: Vec<String> =
        document.managers.iter().skip(1).map(|manager| manager.grpc.clone()).collect();
    pulse.restart();
    let killed_at = Instant::now();
    cluster.family.signal(victim.pid, Signal::KILL);
    let served = serve_all(&everyone, &it.class, &lives, &left, killed_at).await?;
    let gap = pulse.longest_gap();
    background.abort_all();
    while background.join_next().await.is_some() {}
    let mut times: Vec<f64> = served.iter().map(|(time, _)| time.as_secs_f64() * 1000.0).collect();
    times.sort_by(f64::total_cmp);
    let at = |percent: usize| {
        let index = (times.len() * percent / 100).min(times.len().saturating_sub(1));
        rounded(times.get(index).copied().unwrap_or(0.0), 1)
    };
    let lost = served.iter().filter(|(_, same)| !same).count();
    Ok(FailedOver {
        sessions: it.sessions,
        killed: Killed { number: victim.number, pid: victim.pid },
        all_served_ms: at(100),
        p50_ms: at(50),
        p99_ms: at(99),
        lost: u64::try_from(lost)?,
        managers: it.managers,
        replicas: it.replicas,
        background: Background {
            concurrency: it.concurrency,
            opened: pulse.opened.load(Ordering::Relaxed),
            failed: pulse.failed.load(Ordering::Relaxed),
            longest_gap_ms: rounded(as_f64(u64::try_from(gap.as_micros())?) / 1000.0, 1),
        },
        cores: std::thread::available_parallelism().map_or(1, usize::from),
    })
}

/// Each id with its life and address before the kill.
async fn lives(client: &Client, ids: &[String]) -> anyhow::Result<Vec<v1::Session>> {
    let mut lives = Vec::new();
    for id in ids {
        let request = v1::GetRequest { id: id.clone(), ..Default::default() };
        let answer = client.get(request, target::CALL_WAIT).await?;
        lives.push(answer.session.context("the answer has no session")?);
    }
    Ok(lives)
}

/// Opens sessions one after the other until it is aborted.
async fn pulsing(client: Client, class: String, pulse: Arc<Pulse>) {
    let prefix = target::prefix();
    for number in 0_u64.. {
        let request = target::open_request(format!("{prefix}-{number}"), &class);
        match client.open(request, target::CALL_WAIT).await {
            Ok(_) => pulse.beat(),
            Err(error) => {
                tracing::debug!("background: {error}");
                pulse.failed.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// Tries every session until it was opened and read; gives each one's time since the kill, and
/// whether it still was the same life at the same address.
async fn serve_all(
    client: &Client,
    class: &str,
    lives: &[v1::Session],
    left: &[String],
    killed_at: Instant,
) -> anyhow::Result<Vec<(Duration, bool)>> {
    let mut served = Vec::new();
    let mut trying: JoinSet<anyhow::Result<(Duration, bool)>> = JoinSet::new();
    let mut next = lives.iter().enumerate();
    loop {
        while trying.len() < TRIES_IN_FLIGHT {
            let Some((index, before)) = next.next() else { break };
            let (client, class, before) = (client.clone(), class.to_owned(), before.clone());
            let left = left.to_vec();
            let _handle: AbortHandle = trying.spawn(async move {
                serve_one(&client, &class, &before, &left, index, killed_at).await
            });
        }
        match trying.join_next().await {
            Some(done) => served.push(done??),
            None => return Ok(served),
        }
    }
}

async fn serve_one(
    client: &Client,
    class: &str,
    before: &v1::Session,
    left: &[String],
    index: usize,
    killed_at: Instant,
) -> anyhow::Result<(Duration, bool)> {
    // One request id for all tries: the answer of a try that was lost counts as well.
    let mut open = target::open_request(before.id.clone(), class);
    open.request_id = client.request_id();
    let get = v1::GetRequest { id: before.id.clone(), ..Default::default() };
    for attempt in index.. {
        let address = left.get(attempt % left.len().max(1)).context("no manager is left")?;
        let tried = async {
            let opened = client.open_at(address, open.clone(), TRY_WAIT).await?;
            let got = client.get_at(address, get.clone(), TRY_WAIT).await?;
            Ok::<_, rota_client::CallError>((opened.session, got.session))
        };
        match tried.await {
            Ok((Some(opened), Some(got))) => {
                let same =
                    |it: &v1::Session| it.life == before.life && it.address == before.address;
                return Ok((killed_at.elapsed(), same(&opened) && same(&got)));
            }
            Ok(_) => bail!("an answer has no session"),
            Err(error) if killed_at.elapsed() > SERVED_WAIT => {
                return Err(error).context(format!("session {} is not served", before.id));
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
    bail!("session {} is not served", before.id)
}
