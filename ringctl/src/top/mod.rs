//! `ringctl top`: what the programs of sessions use, and the nodes.
//!
//! Nodes tell sums of CPU time. Two samples make a rate: whoever watches takes one a time.

mod show;

use crate::connect;
use crate::failure::UsageMistake;
use crate::length_of_time::length_of_time;
use crate::output::{Format, Out};
use anyhow::bail;
use clap::{Args, Subcommand, ValueEnum};
use rota_client::{Client, v1};
use rota_daemon::Stop;
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// Nodes that are asked at once.
const ASKED_AT_ONCE_MAX: usize = 16;

/// Clears a terminal.
const CLEAR: &str = "\u{1b}[H\u{1b}[2J";

/// What is looked at.
#[derive(Subcommand, Debug)]
pub enum TopCommand {
    /// The programs of sessions: CPU and memory of their processes, and the limits of their classes.
    Session(SessionArguments),
    /// Nodes: CPU and memory of all their programs, and of the node's own processes.
    Node(NodeArguments),
}

/// Of both.
#[derive(Args, Debug)]
struct TopArguments {
    /// Only on this node.
    #[arg(long, default_value = "", hide_default_value = true)]
    node: String,
    /// What comes first: the most of this.
    #[arg(long, value_enum, default_value_t = By::Cpu)]
    by: By,
    /// Between the two samples of which the CPU is told, in milliseconds.
    #[arg(long, default_value_t = 1_000, value_name = "MS", value_parser = clap::value_parser!(u64).range(100..=60_000))]
    interval_ms: u64,
    /// Show it again after each interval, until Ctrl-C.
    #[arg(long)]
    watch: bool,
    /// How long each node may take to answer.
    #[arg(long, default_value = "5s", value_parser = length_of_time)]
    timeout: Duration,
}

/// `top session`.
#[derive(Args, Debug)]
pub struct SessionArguments {
    #[command(flatten)]
    top: TopArguments,
    /// Only in this namespace; without it, in every one.
    #[arg(long, default_value = "", hide_default_value = true)]
    namespace: String,
    /// Only of this class.
    #[arg(long, default_value = "", hide_default_value = true)]
    class: String,
    /// Only so many, 1 to 100000.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: Option<u32>,
}

/// `top node`.
#[derive(Args, Debug)]
pub struct NodeArguments {
    #[command(flatten)]
    top: TopArguments,
}

/// What rows are ordered by.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum By {
    /// CPU.
    Cpu,
    /// Memory.
    Memory,
}

/// What the nodes said at one time.
#[derive(Default)]
struct Sample {
    /// Of each node every page.
    pages: BTreeMap<String, Vec<v1::UsageResponse>>,
    /// Why a node said nothing.
    silent: BTreeMap<String, String>,
}

/// Runs a command.
pub async fn run(command: &TopCommand, endpoint: &str, out: &mut Out) -> anyhow::Result<()> {
    let top = match command {
        TopCommand::Session(it) => &it.top,
        TopCommand::Node(it) => &it.top,
    };
    let client = connect::client(endpoint, out.format())?;
    let mut stop = Stop::listen()?;
    let work = async {
        let nodes = nodes(&client, top).await?;
        let first = sample(&client, &nodes, top.timeout).await;
        anyhow::Ok((nodes, first))
    };
    let (mut nodes, mut before) = tokio::select! {
        first = connect::told(endpoint, work) => first?,
        _ = stop.wished() => return Ok(()),
    };
    let interval = Duration::from_millis(top.interval_ms);
    loop {
        let next = async {
            tokio::time::sleep(interval).await;
            sample(&client, &nodes, top.timeout).await
        };
        let now = tokio::select! {
            now = next => now,
            _ = stop.wished() => return Ok(()),
        };
        if let (true, Some((node, why))) = (now.pages.is_empty(), now.silent.first_key_value()) {
            bail!("no node answers; {node}: {why}");
        }
        if top.watch && out.format() == Format::Table && std::io::stdout().is_terminal() {
            out.drawn(CLEAR)?;
        }
        match command {
            TopCommand::Session(it) => show::sessions(&before, &now, it, out)?,
            TopCommand::Node(it) => show::nodes(&nodes, &before, &now, it, out)?,
        }
        if !top.watch {
            return Ok(());
        }
        before = now;
        // Nodes come and go; while no manager answers, those that were known are asked.
        if let Ok(known) = self::nodes(&client, top).await {
            nodes = known;
        }
    }
}

/// Nodes that are there, as some manager knows them.
async fn nodes(client: &Client, top: &TopArguments) -> anyhow::Result<Vec<v1::NodeStats>> {
    let known = client.inspect(top.timeout).await?.nodes;
    let is_gone = |it: &v1::NodeStats| matches!(it.state.as_str(), "LOST" | "REMOVED");
    if top.node.is_empty() {
        return Ok(known.into_iter().filter(|it| !is_gone(it)).collect());
    }
    let Some(found) = known.iter().find(|it| it.id == top.node) else {
        let ids: Vec<&str> = known.iter().map(|it| it.id.as_str()).collect();
        let text = format!("--node {} is not registered; nodes: {}", top.node, ids.join(", "));
        return Err(UsageMistake(text).into());
    };
    if is_gone(found) {
        bail!("node {} is {}: nothing runs there", found.id, found.state);
    }
    Ok(vec![found.clone()])
}

/// Asks each node.
async fn sample(client: &Client, nodes: &[v1::NodeStats], wait: Duration) -> Sample {
    let places = Arc::new(Semaphore::new(ASKED_AT_ONCE_MAX));
    let mut asked = JoinSet::new();
    for node in nodes {
        let (client, node, places) = (client.clone(), node.id.clone(), places.clone());
        asked.spawn(async move {
            let _place = places.acquire().await;
            let answer = client.usage(&node, wait).await;
            (node, answer)
        });
    }
    let mut sample = Sample::default();
    while let Some(answer) = asked.join_next().await {
        match answer {
            Ok((node, Ok(pages))) => drop(sample.pages.insert(node, pages)),
            Ok((node, Err(error))) => drop(sample.silent.insert(node, error.to_string())),
            Err(_) => {}
        }
    }
    sample
}
