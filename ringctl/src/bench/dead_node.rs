//! Kills the agent of the fuller one of two nodes, and measures how long opens of new ids wait for it
//! until the ring has declared the node LOST.

use super::report::{ms, rounded};
use super::{load, target};
use crate::dev::{Cluster, Settings, with_cluster};
use crate::output::{Format, Out, plain_table};
use anyhow::{Context, bail};
use clap::Args;
use rota_client::{CallError, Client};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

/// Longer than any time after which a node is LOST: an open that waits for that ends.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a manager may take to say what it knows of nodes.
const LOOK_WAIT: Duration = Duration::from_secs(5);

/// `bench dead-node`.
#[derive(Args, Debug)]
pub struct DeadNodeArguments {
    /// Sessions that run when the agent is killed: they are all on one node.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    sessions: u32,
    /// Between two opens of new ids.
    #[arg(long, default_value = "50ms", value_parser = crate::length_of_time::length_of_time)]
    every: Duration,
    /// Managers of the cluster.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    managers: u32,
    /// Successors with copies.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(0..=99))]
    replicas: u32,
    /// Class of the sessions.
    #[arg(long, default_value = "builtin")]
    class: String,
}

#[derive(Serialize, PartialEq, Debug, Default)]
struct DeadNode {
    /// The longest that an open of a new id took, of those that began from the kill until the node was LOST.
    slowest_open_ms: f64,
    /// From the kill until a manager showed the node as LOST.
    node_lost_ms: f64,
    /// How many opens that are.
    opens: u64,
}

/// `bench dead-node`.
pub async fn run(it: &DeadNodeArguments, out: &mut Out) -> anyhow::Result<()> {
    let roomy = Settings::roomy(it.managers, it.replicas);
    let settings = Settings { nodes: Some(2), max_nodes: Some(2), ..roomy };
    let done = with_cluster(&settings, async |cluster| measure(it, cluster).await).await?;
    if out.format() == Format::Json {
        return Ok(out.json(&done)?);
    }
    let mut table = plain_table(["SLOWEST OPEN MS", "NODE LOST MS", "OPENS"]);
    let DeadNode { slowest_open_ms, node_lost_ms, opens } = done;
    table.add_row([
        format!("{slowest_open_ms:.1}"),
        format!("{node_lost_ms:.1}"),
        opens.to_string(),
    ]);
    Ok(out.table(&table)?)
}

async fn measure(it: &DeadNodeArguments, cluster: &mut Cluster) -> anyhow::Result<DeadNode> {
    let client = target::client(&cluster.document().endpoints(), 2, false)?;
    let ids = target::prepare(&client, &it.class, it.sessions).await?;
    let node = fuller(&client, &ids).await?;
    let known = cluster.document().nodes.iter().find(|it| it.id == node);
    let pid = known.with_context(|| format!("node {node} was not started here"))?.pid;
    let killed_at = Instant::now();
    cluster.family.kill(pid).await;
    let lost = is_lost(&client, &node);
    tokio::pin!(lost);
    let mut beat = tokio::time::interval(it.every);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut opening, prefix, mut opens) = (JoinSet::new(), target::prefix(), 0_u64);
    let bar = load::bar("dead node", 1);
    let node_lost = loop {
        tokio::select! {
            lost = &mut lost => {
                lost?;
                break killed_at.elapsed();
            }
            _ = beat.tick() => {
                let request = target::open_request(format!("{prefix}-new-{opens}"), &it.class);
                opens += 1;
                let client = client.clone();
                opening.spawn(async move { opened(&client, request).await });
            }
        }
    };
    let mut slowest = Duration::ZERO;
    while let Some(took) = opening.join_next().await {
        slowest = slowest.max(took?.context("an open of a new id failed")?);
    }
    bar.finish_and_clear();
    let rounded = |time| rounded(ms(time), 1);
    Ok(DeadNode { slowest_open_ms: rounded(slowest), node_lost_ms: rounded(node_lost), opens })
}

async fn opened(
    client: &Client,
    request: rota_client::v1::OpenRequest,
) -> Result<Duration, CallError> {
    let began = Instant::now();
    client.open(request, PATIENCE).await?;
    Ok(began.elapsed())
}

/// The node that most of these sessions are on.
async fn fuller(client: &Client, ids: &[String]) -> anyhow::Result<String> {
    let mut nodes: BTreeMap<String, usize> = BTreeMap::new();
    for id in ids {
        let request = rota_client::v1::GetRequest { id: id.clone(), ..Default::default() };
        let session = client.get(request, target::CALL_WAIT).await?.session.unwrap_or_default();
        *nodes.entry(session.node_id).or_default() += 1;
    }
    let fuller = nodes.into_iter().max_by_key(|it| it.1);
    Ok(fuller.context("there is no session")?.0)
}

/// Resolves when a manager shows the node as LOST.
async fn is_lost(client: &Client, node: &str) -> anyhow::Result<()> {
    let until = Instant::now() + PATIENCE;
    loop {
        let seen = client.inspect(LOOK_WAIT).await?;
        if seen.nodes.iter().any(|it| it.id == node && it.state == "LOST") {
            return Ok(());
        }
        if Instant::now() > until {
            bail!("node {node} is not LOST after {} s", PATIENCE.as_secs());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
