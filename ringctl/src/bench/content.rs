//! Content: how long a node takes for all files of a commit, for a few that changed, and for none; beside `rsync` of the
//! same files on the same disk.

use super::report::rounded;
use super::target::{CALL_WAIT, client};
use crate::dev::{Cluster, Settings, with_cluster};
use crate::output::{Format, Out, plain_table};
use anyhow::{Context, bail};
use clap::Args;
use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rota_client::{Client, v1};
use serde::Serialize;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};
use tokio::process::Command;
use tokio::time::sleep;

/// Files of one folder.
const IN_FOLDER: u32 = 100;
/// How often the node is asked how it stands.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Without an end for so long, it is given up.
const PATIENCE: Duration = Duration::from_secs(300);
/// The node of the cluster.
const NODE: &str = "n1";

/// `bench content`.
#[derive(Args, Debug)]
pub struct ContentArguments {
    /// Files of a commit.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    files: u32,
    /// Bytes of all of them, in MiB.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    mib: u32,
    /// Files that change between two commits.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    changed: u32,
    /// Managers of the cluster.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    managers: u32,
}

#[derive(Serialize, Debug)]
struct Figures {
    files: u32,
    mib: u32,
    /// `ringctl content publish`, of everything and of what changed.
    publish_ms: f64,
    publish_changed_ms: f64,
    /// The refresh of a node that has nothing, as the node measures it; and `rsync`.
    full_ms: f64,
    /// None where there is no `rsync`.
    rsync_ms: Option<f64>,
    full_ratio_to_rsync: Option<f64>,
    /// From a commit in which a few files changed to its use.
    changed_ms: f64,
    /// A refresh that finds nothing new, as the node measures it.
    unchanged_ms: f64,
}

/// `bench content`.
pub async fn run(it: &ContentArguments, out: &mut Out) -> anyhow::Result<()> {
    let settings =
        Settings { nodes: Some(1), ..Settings::roomy(it.managers, 2.min(it.managers - 1)) };
    let figures = with_cluster(&settings, async |cluster| measure(it, cluster).await).await?;
    if out.format() == Format::Json {
        return Ok(out.json(&figures)?);
    }
    let columns = [
        "FILES",
        "MIB",
        "PUBLISH MS",
        "FULL MS",
        "RSYNC MS",
        "RATIO",
        "CHANGED MS",
        "UNCHANGED MS",
    ];
    let mut table = plain_table(columns);
    let optional = |it: Option<f64>| it.map_or("-".to_owned(), |it| it.to_string());
    table.add_row([
        figures.files.to_string(),
        figures.mib.to_string(),
        figures.publish_ms.to_string(),
        figures.full_ms.to_string(),
        optional(figures.rsync_ms),
        optional(figures.full_ratio_to_rsync),
        figures.changed_ms.to_string(),
        figures.unchanged_ms.to_string(),
    ]);
    Ok(out.table(&table)?)
}

async fn measure(it: &ContentArguments, cluster: &mut Cluster) -> anyhow::Result<Figures> {
    let endpoints = cluster.document().endpoints();
    let client = client(&endpoints, 1, false)?;
    let folder = cluster.folder().join("bench-content");
    let (from, to) = (folder.join("from"), folder.join("to"));
    let mut random = ChaCha8Rng::seed_from_u64(1);
    for number in 0..it.files {
        write(&from, it, number, &mut random)?;
    }
    let path = from.to_str().context("the path of the folder is no text")?;
    let publish = ["content", "publish", path];
    let (publish_ms, published) = ringctl(&endpoints, &publish).await?;
    ringctl(&endpoints, &["content", "follow", "main"]).await?;
    let full_ms = has(&client, &published).await?;
    let rsync_ms = rsync(&from, &to).await?;
    for number in 0..it.changed.min(it.files) {
        write(&from, it, number * (it.files / it.changed.min(it.files)), &mut random)?;
    }
    let (publish_changed_ms, published) = ringctl(&endpoints, &publish).await?;
    let began = Instant::now();
    has(&client, &published).await?;
    // Part of it went by while the program that published came to its end.
    let changed_ms = ms(began);
    let unchanged_ms = unchanged(&client).await?;
    let ratio = rsync_ms.map(|it| rounded(full_ms / it, 2));
    Ok(Figures {
        files: it.files,
        mib: it.mib,
        publish_ms,
        publish_changed_ms,
        full_ms,
        rsync_ms,
        full_ratio_to_rsync: ratio,
        changed_ms,
        unchanged_ms,
    })
}

fn ms(since: Instant) -> f64 {
    rounded(since.elapsed().as_secs_f64() * 1_000.0, 1)
}

fn write(
    root: &Path,
    it: &ContentArguments,
    number: u32,
    random: &mut ChaCha8Rng,
) -> anyhow::Result<()> {
    let folder = root.join(format!("d{}", number / IN_FOLDER));
    fs::create_dir_all(&folder)?;
    let bytes = u64::from(it.mib) * 1024 * 1024 / u64::from(it.files);
    let mut content = vec![0; usize::try_from(bytes)?];
    random.fill_bytes(&mut content);
    Ok(fs::write(folder.join(format!("f{number}")), content)?)
}

/// Runs a command of this program. How long it took, and its answer.
async fn ringctl(endpoints: &str, line: &[&str]) -> anyhow::Result<(f64, Value)> {
    let began = Instant::now();
    let mut command = Command::new(std::env::current_exe()?);
    command.args(line).args(["-o", "json", "--endpoint", endpoints]).stdin(Stdio::null());
    let done = command.kill_on_drop(true).output().await?;
    if !done.status.success() {
        bail!("{}: {}", line.join(" "), String::from_utf8_lossy(&done.stderr).trim());
    }
    Ok((ms(began), serde_json::from_slice(&done.stdout)?))
}

async fn status(client: &Client) -> anyhow::Result<v1::ContentStatusResponse> {
    Ok(client.content_status(NODE, false, CALL_WAIT).await?)
}

/// How long the node's last refresh took.
#[expect(clippy::cast_precision_loss, reason = "some seconds")]
fn node_ms(told: &v1::ContentStatusResponse) -> f64 {
    rounded(told.refresh_us as f64 / 1_000.0, 1)
}

/// Waits until the node uses what was published. Gives how long its refresh took.
async fn has(client: &Client, published: &Value) -> anyhow::Result<f64> {
    let began = Instant::now();
    loop {
        let told = status(client).await?;
        if published["commit"] == *told.commit && told.state == "current" {
            return Ok(node_ms(&told));
        }
        if began.elapsed() > PATIENCE {
            bail!("the node does not come to the commit: {} {}", told.state, told.failure);
        }
        sleep(LOOK_EVERY).await;
    }
}

/// How long a refresh takes that finds nothing new.
async fn unchanged(client: &Client) -> anyhow::Result<f64> {
    // The one under way ends, and another one follows.
    let mut last = status(client).await?.refreshed_at_ms;
    let (began, mut seen) = (Instant::now(), 0);
    loop {
        let told = status(client).await?;
        if told.refreshed_at_ms != last && told.state == "current" {
            (last, seen) = (told.refreshed_at_ms, seen + 1);
            if seen == 2 {
                return Ok(node_ms(&told));
            }
        }
        if began.elapsed() > PATIENCE {
            bail!("no refresh ends: {} {}", told.state, told.failure);
        }
        sleep(LOOK_EVERY).await;
    }
}

async fn rsync(from: &Path, to: &Path) -> anyhow::Result<Option<f64>> {
    if which::which("rsync").is_err() {
        return Ok(None);
    }
    fs::create_dir_all(to)?;
    let began = Instant::now();
    let mut command = Command::new("rsync");
    command.arg("-a").arg(from.join("")).arg(to).stdin(Stdio::null()).kill_on_drop(true);
    let done = command.status().await?;
    if !done.success() {
        bail!("rsync failed: {done}");
    }
    Ok(Some(ms(began)))
}
