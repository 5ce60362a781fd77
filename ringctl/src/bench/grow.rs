//! What an open costs as the ring grows: processor time of all processes together, so that it means the
//! same on a machine with few cores.

use super::report::{cores, rounded};
use super::target::{self, Pace};
use super::usage;
use crate::dev::{Cluster, Ground, Settings};
use crate::failure::UsageMistake;
use crate::output::{Format, Out, plain_table};
use anyhow::bail;
use clap::Args;
use serde::Serialize;
use std::time::{Duration, Instant};

/// How long a ring may take to be at rest.
const WHOLE_WAIT: Duration = Duration::from_secs(120);
/// Sessions that are opened before anything counts: connections stand and caches are warm.
const WARM_UP: u32 = 300;

/// `bench grow`.
#[derive(Args, Debug)]
pub struct GrowArguments {
    /// Sizes of the ring, one after the other.
    #[arg(long, value_name = "N,...", default_value = "3,10,30,100", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..=100))]
    managers: Vec<u32>,
    /// Successors with copies, each with each size that has so many.
    #[arg(long, value_name = "R,...", default_value = "2", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(0..=99))]
    replicas: Vec<u32>,
    /// Sessions that are opened in each ring.
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(1..=500_000))]
    sessions: u32,
    /// Calls in flight.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    concurrency: u32,
    /// Opens that begin in a second for each manager of the ring: equal load for each of them.
    /// Without it opens follow each other at once, and few managers have more of them to put
    /// together than many.
    #[arg(long, value_name = "PER_S", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rate_per_manager: Option<u32>,
    /// How long the ring is watched at rest: what it uses then is taken off.
    #[arg(long, default_value = "3s", value_parser = crate::length_of_time::length_of_time)]
    rest: Duration,
    /// Class of the sessions.
    #[arg(long, default_value = "builtin")]
    class: String,
    /// Go to the owners directly instead of through any manager.
    #[arg(long)]
    route: bool,
}

/// One size of the ring.
#[derive(Serialize, Clone, PartialEq, Debug, Default)]
struct Row {
    managers: u32,
    replicas: u32,
    /// Processor time of managers, nodes and config store for one open, less what they use at rest.
    cpu_us_per_open: f64,
    /// With it.
    cpu_us_per_open_with_rest: f64,
    /// Cores that the ring uses at rest.
    cores_at_rest: f64,
    per_s: f64,
    ready_seconds: f64,
}

#[derive(Serialize, PartialEq, Debug, Default)]
struct Grown {
    sessions: u32,
    concurrency: u32,
    rate_per_manager: Option<u32>,
    class: String,
    routed: bool,
    cores: usize,
    rows: Vec<Row>,
}

/// `bench grow`.
pub async fn run(it: &GrowArguments, out: &mut Out) -> anyhow::Result<()> {
    let sizes = it.managers.iter().flat_map(|n| it.replicas.iter().map(|r| (*n, *r)));
    let sizes: Vec<(u32, u32)> = sizes.filter(|(managers, replicas)| replicas < managers).collect();
    if sizes.is_empty() {
        bail!(UsageMistake("--replicas: no ring of --managers has so many successors".to_owned()));
    }
    let mut ground = Ground::found()?;
    let mut rows = Vec::new();
    for (managers, replicas) in sizes {
        let settings = Settings::roomy(managers, replicas);
        let row =
            ground.with_cluster(&settings, async |cluster| measure(it, cluster).await).await?;
        rows.push(Row { managers, replicas, ..row });
    }
    let grown = Grown {
        sessions: it.sessions,
        concurrency: it.concurrency,
        rate_per_manager: it.rate_per_manager,
        class: it.class.clone(),
        routed: it.route,
        cores: cores(),
        rows,
    };
    if out.format() == Format::Json {
        return Ok(out.json(&grown)?);
    }
    let header = ["MANAGERS", "SUCCESSORS", "CPU US PER OPEN", "WITH REST", "AT REST", "PER S"];
    let mut table = plain_table(header);
    for row in &grown.rows {
        table.add_row([
            row.managers.to_string(),
            row.replicas.to_string(),
            format!("{:.0}", row.cpu_us_per_open),
            format!("{:.0}", row.cpu_us_per_open_with_rest),
            format!("{:.3}", row.cores_at_rest),
            format!("{:.0}", row.per_s),
        ]);
    }
    Ok(out.table(&table)?)
}

/// Processor time of everyone but the load generator.
fn used(cluster: &Cluster) -> Duration {
    let document = cluster.document();
    let managers = document.managers.iter().map(|it| it.pid);
    let nodes = document.nodes.iter().map(|it| it.pid);
    let all = managers.chain(nodes).chain([document.config_store.pid]);
    all.filter_map(usage::cpu).sum()
}

async fn measure(it: &GrowArguments, cluster: &mut Cluster) -> anyhow::Result<Row> {
    let client = target::client(&cluster.document().endpoints(), 1, it.route)?;
    let managers = u32::try_from(cluster.document().managers.len())?;
    let every = it.rate_per_manager.map(|rate| Duration::from_secs(1) / (rate * managers));
    let pace = Pace { concurrency: it.concurrency as usize, every };
    target::prepare(&client, &it.class, WARM_UP).await?;
    cluster.whole(WHOLE_WAIT).await?;
    let (began, before) = (Instant::now(), used(cluster));
    tokio::time::sleep(it.rest).await;
    let rest = (used(cluster).saturating_sub(before)).as_secs_f64() / began.elapsed().as_secs_f64();
    let (began, before) = (Instant::now(), used(cluster));
    target::prepare_with(&client, &it.class, it.sessions, &pace).await?;
    let seconds = began.elapsed().as_secs_f64();
    let all = used(cluster).saturating_sub(before).as_secs_f64();
    let us = |seconds: f64| rounded(seconds * 1e6 / f64::from(it.sessions), 1);
    Ok(Row {
        cpu_us_per_open: us((all - rest * seconds).max(0.0)),
        cpu_us_per_open_with_rest: us(all),
        cores_at_rest: rounded(rest, 4),
        per_s: rounded(f64::from(it.sessions) / seconds, 1),
        ready_seconds: rounded(cluster.started_in.as_secs_f64(), 2),
        ..Row::default()
    })
}
