//! Many opens at once on a pool without nodes: how many nodes are started, beside how many are needed.

use super::report::rounded;
use super::{load, target};
use crate::dev::{Settings, with_cluster};
use crate::failure::UsageMistake;
use crate::output::{Format, Out, counted};
use anyhow::Context;
use clap::Args;
use rota_client::Client;
use rota_model::{LoadLimit, PoolName};
use serde::Serialize;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// How long an open may wait for its node.
const OPEN_WAIT: Duration = Duration::from_secs(180);

/// How long a look at the pool may take.
const LOOK_WAIT: Duration = Duration::from_secs(10);

/// Most nodes of `ringctl dev`.
const NODES_MAX: u32 = 1_000;

/// T of a pool that says none.
const LOAD_LIMIT: f64 = 0.8;

/// `bench burst`.
#[derive(Args, Debug)]
pub struct BurstArguments {
    /// How many opens, all at once.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    sessions: u32,
    /// Places of each node. At the load limit of 0.8, a node of ten takes eight sessions.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    places: u32,
    /// How many managers.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=20))]
    managers: u32,
    /// Ask one manager for all of them; else each is asked for as many.
    #[arg(long)]
    through_one: bool,
    /// A state machine that nodes offer.
    #[arg(long, default_value = "counter")]
    class: String,
}

#[derive(Serialize, PartialEq, Debug)]
struct Burst {
    sessions: u32,
    managers: u32,
    nodes_started: u32,
    nodes_needed: u32,
    failed: u32,
    /// From the first open to the last answer.
    seconds: f64,
}

/// `bench burst`.
pub async fn run(it: &BurstArguments, out: &mut Out) -> anyhow::Result<()> {
    let limit = LoadLimit::parse(LOAD_LIMIT).expect("within bounds");
    let nodes_needed = it.sessions.div_ceil(limit.room(it.places).max(1));
    if nodes_needed > NODES_MAX {
        anyhow::bail!(UsageMistake(format!(
            "{nodes_needed} nodes are needed, and at most {NODES_MAX} are started: give more --places"
        )));
    }
    let settings = Settings {
        managers: Some(it.managers),
        nodes: Some(0),
        places: Some(it.places),
        // Too many would be seen.
        max_nodes: Some((nodes_needed * 2 + 2).min(NODES_MAX)),
        port_base: Some(0),
        ..Settings::default()
    };
    let burst = with_cluster(&settings, async |cluster| {
        let managers = &cluster.document().managers;
        let endpoints: Vec<String> = managers.iter().map(|it| it.grpc.clone()).collect();
        measure(it, &endpoints, nodes_needed).await
    })
    .await?;
    if out.format() == Format::Json {
        return Ok(out.json(&burst)?);
    }
    let Burst { nodes_started, failed, seconds, .. } = burst;
    out.text(&format!(
        "{} at {}: {nodes_started} of {nodes_needed} nodes that are needed were started, \
         {failed} failed, {seconds} s\n",
        counted(u64::from(it.sessions), "open"),
        counted(u64::from(it.managers), "manager"),
    ))?;
    Ok(())
}

async fn measure(
    it: &BurstArguments,
    endpoints: &[String],
    nodes_needed: u32,
) -> anyhow::Result<Burst> {
    let entries = if it.through_one { &endpoints[..1] } else { endpoints };
    let clients = entries.iter().map(|it| Client::connect(it));
    let clients: Vec<Client> = clients.collect::<Result<_, _>>()?;
    let prefix = target::prefix();
    let bar = load::bar("burst", u64::from(it.sessions));
    let began = Instant::now();
    let mut opening = JoinSet::new();
    for (number, client) in (0..it.sessions).zip(clients.iter().cycle()) {
        let request = target::open_request(format!("{prefix}-{number}"), &it.class);
        let client = client.clone();
        opening.spawn(async move { client.open(request, OPEN_WAIT).await });
    }
    let mut failed = 0;
    while let Some(opened) = opening.join_next().await {
        if let Err(error) = opened? {
            if failed == 0 {
                eprintln!("an open failed: {error}");
            }
            failed += 1;
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    let seconds = rounded(began.elapsed().as_secs_f64(), 2);
    let pools = clients.first().context("a ring has a manager")?.pools();
    let pool = pools.get(&PoolName::default_pool(), LOOK_WAIT).await?;
    let late = pool.orders.map_or(0, |it| it.ordered.len());
    let nodes_started = pool.load.nodes + u32::try_from(late).unwrap_or(u32::MAX);
    let (sessions, managers) = (it.sessions, it.managers);
    Ok(Burst { sessions, managers, nodes_started, nodes_needed, failed, seconds })
}
