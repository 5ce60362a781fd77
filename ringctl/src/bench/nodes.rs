//! What many nodes cost a ring: their renewals at rest, opens among them, memory of managers.

use super::load::{as_f64, bar};
use super::report::{cores, rounded};
use super::target::{CALL_WAIT, client, open_request, prefix};
use super::usage;
use crate::dev::{Cluster, Ground, Settings};
use crate::length_of_time::length_of_time;
use crate::output::{Format, Out, plain_table};
use anyhow::Context as _;
use clap::Args;
use rota_client::Client;
use rota_model::LeaseTimes;
use serde::Serialize;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const MIB: f64 = 1024.0 * 1024.0;
/// How long a ring may take to be at rest.
const WHOLE_WAIT: Duration = Duration::from_secs(180);
/// Nodes tell of what they run with each renewal.
const HEARD_WAIT: Duration = Duration::from_secs(30);
/// Places of a node for each five of its sessions: a full cluster would measure refusals.
const PLACES: (u32, u32) = (7, 5);

/// `bench nodes`.
#[derive(Args, Debug)]
pub struct NodesArguments {
    /// Nodes; beside them a ring with one node is measured.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(2..=200))]
    nodes: u32,
    /// Sessions that are opened for each node; 0: none.
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(0..=2_000))]
    sessions: u32,
    /// Managers of the cluster.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    managers: u32,
    /// Successors with copies.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(0..=99))]
    replicas: u32,
    /// Opens in flight.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    concurrency: u32,
    /// How long the ring is watched at rest.
    #[arg(long, default_value = "10s", value_parser = length_of_time)]
    rest: Duration,
    /// Class of the sessions.
    #[arg(long, default_value = "builtin")]
    class: String,
}

/// A ring at rest.
#[derive(Serialize, Clone, Copy, PartialEq, Debug, Default)]
struct Rest {
    nodes: u32,
    sessions: u32,
    /// Processors that all managers use, and all nodes.
    manager_cores: f64,
    node_cores: f64,
    /// Of everything on this machine's loopback.
    loopback_kib_per_s: f64,
    manager_rss_max_mib: f64,
}

/// Opens among many nodes.
#[derive(Serialize, Clone, PartialEq, Debug, Default)]
struct Opens {
    count: u32,
    per_s: f64,
    p50_ms: f64,
    p99_ms: f64,
    /// Nodes that run any of them, and the most that one runs.
    nodes_used: u32,
    fullest_node: u32,
}

#[derive(Serialize, PartialEq, Debug, Default)]
struct Nodes {
    managers: u32,
    cores: usize,
    /// Each node renews at each manager once in three seconds.
    renewals_per_s: f64,
    /// By what a ring with many nodes uses beyond one with a single node; null: too little to be told from what else
    /// happened meanwhile.
    manager_us_per_renewal: Option<f64>,
    node_us_per_renewal: Option<f64>,
    bytes_per_renewal: Option<f64>,
    opens: Option<Opens>,
    rests: Vec<Rest>,
}

/// `bench nodes`.
pub async fn run(it: &NodesArguments, out: &mut Out) -> anyhow::Result<()> {
    let mut ground = Ground::found()?;
    let places = (it.sessions * PLACES.0).div_ceil(PLACES.1).max(1);
    let settings = |nodes, places| Settings {
        nodes: Some(nodes),
        places: Some(places),
        ..Settings::roomy(it.managers, it.replicas)
    };
    let one = settings(1, 1);
    let alone = ground.with_cluster(&one, async |cluster| at_rest(it, cluster, 0).await).await?;
    let many = settings(it.nodes, places);
    let (opens, mut rests) = ground.with_cluster(&many, async |it_is| all(it, it_is).await).await?;
    rests.insert(0, alone);
    let nodes = Nodes { opens, ..compared(it.managers, rests) };
    if out.format() == Format::Json {
        return Ok(out.json(&nodes)?);
    }
    let header =
        ["NODES", "SESSIONS", "CORES OF MANAGERS", "OF NODES", "LOOPBACK KIB/S", "RSS MAX MIB"];
    let mut table = plain_table(header);
    for rest in &nodes.rests {
        table.add_row([
            rest.nodes.to_string(),
            rest.sessions.to_string(),
            format!("{:.3}", rest.manager_cores),
            format!("{:.3}", rest.node_cores),
            format!("{:.0}", rest.loopback_kib_per_s),
            format!("{:.1}", rest.manager_rss_max_mib),
        ]);
    }
    out.table(&table)?;
    let told = |it: Option<f64>| it.map_or("too few".to_owned(), |it| format!("{it:.0}"));
    out.text(&format!(
        "\na renewal ({:.0} a second): {} us of managers, {} us of nodes, {} bytes; other work on this machine counts, too\n",
        nodes.renewals_per_s,
        told(nodes.manager_us_per_renewal),
        told(nodes.node_us_per_renewal),
        told(nodes.bytes_per_renewal)
    ))?;
    if let Some(it) = &nodes.opens {
        out.text(&format!(
            "{} opens: {:.0} a second, p50 {:.1} ms, p99 {:.1} ms; {} nodes run them, the fullest {}\n",
            it.count, it.per_s, it.p50_ms, it.p99_ms, it.nodes_used, it.fullest_node
        ))?;
    }
    Ok(())
}

/// What a renewal costs, from rings without sessions.
fn compared(managers: u32, rests: Vec<Rest>) -> Nodes {
    let of = |at: usize| rests.get(at).copied().unwrap_or_default();
    let (one, many) = (of(0), of(1));
    let every_s = Duration::from_millis(LeaseTimes::USUAL.renew_ms).as_secs_f64();
    let per_s = f64::from(many.nodes) * f64::from(managers) / every_s;
    let more = f64::from(many.nodes.saturating_sub(one.nodes)) * f64::from(managers) / every_s;
    let each = |all: f64| (all > 0.0 && more > 0.0).then(|| rounded(all / more, 1));
    Nodes {
        managers,
        cores: cores(),
        renewals_per_s: rounded(per_s, 1),
        manager_us_per_renewal: each((many.manager_cores - one.manager_cores) * 1e6),
        node_us_per_renewal: each((many.node_cores - one.node_cores) * 1e6),
        bytes_per_renewal: each((many.loopback_kib_per_s - one.loopback_kib_per_s) * 1024.0),
        opens: None,
        rests,
    }
}

async fn all(
    it: &NodesArguments,
    cluster: &mut Cluster,
) -> anyhow::Result<(Option<Opens>, Vec<Rest>)> {
    let mut rests = vec![at_rest(it, cluster, 0).await?];
    if it.sessions == 0 {
        return Ok((None, rests));
    }
    let count = it.sessions * it.nodes;
    let client = client(&cluster.document().endpoints(), 1, false)?;
    let opens = open_all(it, &client, count).await?;
    rests.push(at_rest(it, cluster, count).await?);
    Ok((Some(opens), rests))
}

async fn open_all(it: &NodesArguments, client: &Client, count: u32) -> anyhow::Result<Opens> {
    let (prefix, progress) = (prefix(), bar("opening", u64::from(count)));
    let (began, mut opening) = (Instant::now(), JoinSet::new());
    let mut took: Vec<Duration> = Vec::new();
    let mut next = 0..count;
    loop {
        while opening.len() < it.concurrency as usize {
            let Some(number) = next.next() else { break };
            let request = open_request(format!("{prefix}-{number}"), &it.class);
            let client = client.clone();
            opening.spawn(async move {
                let began = Instant::now();
                client.open(request, CALL_WAIT).await.map(|_| began.elapsed())
            });
        }
        let Some(opened) = opening.join_next().await else { break };
        took.push(opened?.with_context(|| format!("cannot open {count} sessions"))?);
        progress.inc(1);
    }
    progress.finish_and_clear();
    let seconds = began.elapsed().as_secs_f64();
    took.sort_unstable();
    let used = heard(client, count).await?;
    let ms = |part| rounded(of_sorted(&took, part).as_secs_f64() * 1e3, 2);
    Ok(Opens {
        count,
        per_s: rounded(f64::from(count) / seconds, 1),
        p50_ms: ms(50),
        p99_ms: ms(99),
        nodes_used: u32::try_from(used.iter().filter(|it| **it > 0).count())?,
        fullest_node: used.into_iter().max().unwrap_or(0),
    })
}

/// How many sessions run on each node, when a manager has heard of all of them.
async fn heard(client: &Client, count: u32) -> anyhow::Result<Vec<u32>> {
    let until = Instant::now() + HEARD_WAIT;
    loop {
        let nodes = client.inspect(CALL_WAIT).await?.nodes;
        let used: Vec<u32> = nodes.iter().map(|it| it.used).collect();
        let all: u32 = used.iter().sum();
        if all >= count {
            return Ok(used);
        }
        anyhow::ensure!(
            Instant::now() < until,
            "no manager heard of all {count} sessions from their nodes"
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// The value below which so many percent lie.
fn of_sorted(sorted: &[Duration], percent: usize) -> Duration {
    let at = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(at).copied().unwrap_or_default()
}

/// Watches a ring in which nothing is asked for.
async fn at_rest(it: &NodesArguments, cluster: &Cluster, sessions: u32) -> anyhow::Result<Rest> {
    cluster.whole(WHOLE_WAIT).await?;
    let document = cluster.document();
    let managers: Vec<u32> = document.managers.iter().map(|it| it.pid).collect();
    let nodes: Vec<u32> = document.nodes.iter().map(|it| it.pid).collect();
    let used = |pids: &[u32]| pids.iter().filter_map(|it| usage::cpu(*it)).sum::<Duration>();
    let now = || anyhow::Ok((used(&managers), used(&nodes), usage::loopback_bytes()?));
    let (began, before) = (Instant::now(), now()?);
    tokio::time::sleep(it.rest).await;
    let (seconds, after) = (began.elapsed().as_secs_f64(), now()?);
    let cores = |before: Duration, after: Duration| {
        rounded(after.saturating_sub(before).as_secs_f64() / seconds, 4)
    };
    let rss = managers.iter().filter_map(|it| usage::resident(*it)).max();
    Ok(Rest {
        nodes: u32::try_from(nodes.len())?,
        sessions,
        manager_cores: cores(before.0, after.0),
        node_cores: cores(before.1, after.1),
        loopback_kib_per_s: rounded(as_f64(after.2.saturating_sub(before.2)) / 1024.0 / seconds, 1),
        manager_rss_max_mib: rounded(as_f64(rss.unwrap_or(0)) / MIB, 1),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renewal_costs_what_many_nodes_use_beyond_one() {
        let rest = |nodes, cores, kib| Rest {
            nodes,
            manager_cores: cores,
            node_cores: cores * 2.0,
            loopback_kib_per_s: kib,
            ..Rest::default()
        };
        let nodes = compared(3, vec![rest(1, 0.1, 10.0), rest(4, 0.4, 40.0)]);
        // Three more nodes, three managers, each three seconds.
        assert!((nodes.renewals_per_s - 4.0).abs() < 1e-9, "{nodes:?}");
        assert_eq!(nodes.manager_us_per_renewal, Some(100_000.0));
        assert_eq!(nodes.node_us_per_renewal, Some(200_000.0));
        assert_eq!(nodes.bytes_per_renewal, Some(10_240.0));
        let disturbed = compared(3, vec![rest(1, 0.2, 50.0), rest(4, 0.2, 40.0)]);
        let (us, bytes) = (disturbed.manager_us_per_renewal, disturbed.bytes_per_renewal);
        assert_eq!((us, bytes), (None, None), "nothing costs less than nothing");
    }

    #[test]
    fn a_percentile_is_one_of_the_values() {
        let all: Vec<Duration> = (1..=200).map(Duration::from_millis).collect();
        assert_eq!(of_sorted(&all, 50), Duration::from_millis(100));
        assert_eq!(of_sorted(&all, 99), Duration::from_millis(198));
        assert_eq!(of_sorted(&[], 99), Duration::ZERO);
    }
}
