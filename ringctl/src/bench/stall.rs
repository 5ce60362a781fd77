//! The config store and one manager are killed: partitions with a copy at that manager stand still. What ended after a
//! while, and of that, what ended in partitions that served all the time?

use super::{load, target};
use crate::dev::{Cluster, Settings, with_cluster};
use crate::output::{Format, Out, counted, plain_table};
use anyhow::Context;
use clap::Args;
use rota_client::{Client, v1};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long a process may take to say what it knows.
const LOOK_WAIT: Duration = Duration::from_secs(5);

/// Sessions in one page.
const PAGE: u32 = 1_000;

/// `bench stall`.
#[derive(Args, Debug)]
pub struct StallArguments {
    /// Sessions that run.
    #[arg(long, default_value_t = 240, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    sessions: u32,
    /// Managers of the cluster.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(3..=100))]
    managers: u32,
    /// Successors with copies.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(0..=99))]
    replicas: u32,
    /// Nodes that the sessions are on.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    nodes: u32,
    /// How long everything stands still.
    #[arg(long, default_value = "15s", value_parser = crate::length_of_time::length_of_time)]
    after: Duration,
    /// Class of the sessions.
    #[arg(long, default_value = "builtin")]
    class: String,
}

#[derive(Serialize, PartialEq, Eq, Debug, Default)]
struct Stall {
    sessions: u64,
    /// Sessions of partitions without a copy at the manager that was killed.
    served: u64,
    /// Sessions that nothing runs of any more.
    ended: u64,
    /// Those of them whose partition served all the time.
    ended_where_served: u64,
}

/// `bench stall`.
pub async fn run(it: &StallArguments, out: &mut Out) -> anyhow::Result<()> {
    let places = it.sessions.div_ceil(it.nodes) * 2;
    let roomy = Settings::roomy(it.managers, it.replicas);
    let settings = Settings {
        nodes: Some(it.nodes),
        max_nodes: Some(it.nodes),
        places: Some(places),
        ..roomy
    };
    let stall = with_cluster(&settings, async |cluster| measure(it, cluster).await).await?;
    if out.format() == Format::Json {
        return Ok(out.json(&stall)?);
    }
    let mut table = plain_table(["SESSIONS", "SERVED", "ENDED", "ENDED WHERE SERVED"]);
    let Stall { sessions, served, ended, ended_where_served } = stall;
    table.add_row([sessions, served, ended, ended_where_served].map(|it| it.to_string()));
    Ok(out.table(&table)?)
}

async fn measure(it: &StallArguments, cluster: &mut Cluster) -> anyhow::Result<Stall> {
    let client = target::client(&cluster.document().endpoints(), 1, false)?;
    target::prepare(&client, &it.class, it.sessions).await?;
    let view = client.inspect(LOOK_WAIT).await?.view.context("the ring has a View")?;
    let killed = cluster.document().managers.last().context("a ring has a manager")?.clone();
    let has_copy = |part: &v1::Part| part.isr.contains(&killed.number);
    let before = live(&client, cluster, &view.parts).await?;
    let store = cluster.document().config_store.pid;
    cluster.family.kill(store).await;
    cluster.family.kill(killed.pid).await;
    let began = Instant::now();
    let seconds = u64::try_from(it.after.as_millis().div_ceil(100))?;
    let bar = load::bar("stall", seconds);
    while began.elapsed() < it.after {
        tokio::time::sleep(Duration::from_millis(100).min(it.after)).await;
        bar.inc(1);
    }
    bar.finish_and_clear();
    let after = live(&client, cluster, &view.parts).await?;
    let mut stall = Stall::default();
    for part in &view.parts {
        let count = |of: &BTreeMap<u32, u64>| of.get(&part.number).copied().unwrap_or_default();
        let (was, is) = (count(&before), count(&after));
        let ended = was.saturating_sub(is);
        stall.sessions += was;
        stall.ended += ended;
        if !has_copy(part) {
            stall.served += was;
            stall.ended_where_served += ended;
        }
    }
    eprintln!(
        "manager {} was killed, and the config store: {} of {} lie where nobody was missed",
        killed.number,
        stall.served,
        counted(stall.sessions, "session"),
    );
    Ok(stall)
}

/// How many sessions of each partition live on all nodes.
async fn live(
    client: &Client,
    cluster: &Cluster,
    parts: &[v1::Part],
) -> anyhow::Result<BTreeMap<u32, u64>> {
    let document = cluster.document();
    let mut live: BTreeMap<u32, u64> = BTreeMap::new();
    for part in parts {
        for node in &document.nodes {
            let mut after = None;
            loop {
                let request = v1::LiveRequest {
                    cluster: document.cluster.clone(),
                    first_slot: part.first_slot,
                    last_slot: part.number,
                    after: after.take(),
                    page_size: PAGE,
                    keys: Vec::new(),
                };
                let page = client.live_at(&node.address, request, LOOK_WAIT).await;
                let page = page.with_context(|| format!("node {} does not answer", node.id))?;
                *live.entry(part.number).or_default() += u64::try_from(page.sessions.len())?;
                let last = page.sessions.into_iter().next_back().and_then(|it| it.key);
                match last.filter(|_| page.more) {
                    Some(last) => after = Some(last),
                    None => break,
                }
            }
        }
    }
    Ok(live)
}
