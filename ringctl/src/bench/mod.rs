//! What a cluster can do: `ringctl bench …`.
//!
//! ```text
//!   open, get            ─ load ─▶ the cluster at --endpoint
//!   compare              ─ load ─▶ own cluster | bare echo, in turns
//!   failover, dead-node, stall, adopt, join, grow, memory, nodes, cold, hot, burst, tasks, search, content, timers ──▶ own cluster
//! ```
//!
//! One load generator for all (closed loop, one thread, few connections), so that ratios compare
//! servers. Progress goes to stderr, figures to stdout.

mod adopt;
mod burst;
mod cold;
mod compare;
mod content;
mod dead_node;
pub mod echo;
mod failover;
mod grow;
mod hot;
mod join;
mod load;
mod memory;
mod nodes;
mod packing;
mod pulse;
mod report;
mod search;
mod stall;
mod target;
mod tasks;
mod timers;
mod usage;

use crate::failure::UsageMistake;
use crate::length_of_time::length_of_time;
use crate::output::Out;
use clap::{Args, Subcommand};
use std::time::Duration;

/// What to measure.
#[derive(Subcommand, Debug)]
pub enum BenchCommand {
    /// Open sessions as fast as they are opened, at --endpoint. They are closed afterwards.
    Open(target::OpenArguments),
    /// Read sessions through any manager, at --endpoint.
    Get(target::GetArguments),
    /// Open and get on a cluster of its own, beside a bare echo in the same program and minute.
    Compare(compare::CompareArguments),
    /// Kill or stop managers of a cluster of its own under load, and wait until all sessions are served.
    Failover(failover::FailoverArguments),
    /// Kill the agent of the fuller one of two nodes of a cluster of its own: how long do opens of new ids wait?
    DeadNode(dead_node::DeadNodeArguments),
    /// Kill the config store and a manager of a cluster of its own: what ends in partitions that serve all the time?
    Stall(stall::StallArguments),
    /// End the agent of a node of a cluster of its own and start another one: how much of what ran goes on?
    Adopt(adopt::AdoptArguments),
    /// A join and a restore in a ring of its own under a light load: how long, how many bytes.
    Join(join::JoinArguments),
    /// Processor time of an open as the ring grows, in rings of its own.
    Grow(grow::GrowArguments),
    /// Resident memory and disk of the managers of a cluster of its own.
    Memory(memory::MemoryArguments),
    /// What many nodes cost a ring of its own: renewals, opens among them, memory of managers.
    Nodes(nodes::NodesArguments),
    /// Time from an open to an answering program, beside a bare spawn of the same program.
    Cold(cold::ColdArguments),
    /// Many opens at once on a pool without nodes, in a cluster of its own: nodes started, beside nodes needed.
    Burst(burst::BurstArguments),
    /// Nodes over time for random arrivals, beside a best fit that knows all. A calculation: nothing is started.
    Packing(packing::PackingArguments),
    /// Bytes written for each of many opens of one session, and operations on one document.
    Hot(hot::HotArguments),
    /// Tasks of a cluster of its own: started each second, how late, lost and doubled effects.
    Tasks(tasks::TasksArguments),
    /// Content of a cluster of its own: how long a node takes for all files of a commit, for a few, for none; beside rsync.
    Content(content::ContentArguments),
    /// Timers of life cycles in clusters of their own: memory, how late marks are that are due together, KeepAlives, a start.
    Timers(timers::TimersArguments),
    /// Searches by an indexed field: the first page at a single manager, and over a ring, in clusters of their own.
    Search(search::SearchArguments),
}

/// How much load, and how long.
#[derive(Args, Debug, Clone)]
pub struct LoadArguments {
    /// Calls in flight.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub concurrency: u32,
    /// How long is measured.
    #[arg(long, default_value = "5s", value_parser = length_of_time)]
    pub duration: Duration,
    /// Connections to each manager. More cost CPU time: each carries fewer calls per packet.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub connections: u32,
}

/// Runs a measurement.
pub async fn run(
    command: &BenchCommand,
    endpoint: Result<String, UsageMistake>,
    out: &mut Out,
) -> anyhow::Result<()> {
    match command {
        BenchCommand::Open(it) => Box::pin(target::open(it, &endpoint?, out)).await,
        BenchCommand::Get(it) => Box::pin(target::get(it, &endpoint?, out)).await,
        BenchCommand::Compare(it) => Box::pin(compare::run(it, out)).await,
        BenchCommand::Failover(it) => Box::pin(failover::run(it, out)).await,
        BenchCommand::DeadNode(it) => Box::pin(dead_node::run(it, out)).await,
        BenchCommand::Stall(it) => Box::pin(stall::run(it, out)).await,
        BenchCommand::Adopt(it) => Box::pin(adopt::run(it, out)).await,
        BenchCommand::Join(it) => Box::pin(join::run(it, out)).await,
        BenchCommand::Grow(it) => Box::pin(grow::run(it, out)).await,
        BenchCommand::Memory(it) => Box::pin(memory::run(it, out)).await,
        BenchCommand::Nodes(it) => Box::pin(nodes::run(it, out)).await,
        BenchCommand::Cold(it) => Box::pin(cold::run(it, out)).await,
        BenchCommand::Burst(it) => Box::pin(burst::run(it, out)).await,
        BenchCommand::Packing(it) => packing::run(it, out),
        BenchCommand::Hot(it) => Box::pin(hot::run(it, out)).await,
        BenchCommand::Tasks(it) => Box::pin(tasks::run(it, out)).await,
        BenchCommand::Content(it) => Box::pin(content::run(it, out)).await,
        BenchCommand::Timers(it) => Box::pin(timers::run(it, out)).await,
        BenchCommand::Search(it) => Box::pin(search::run(it, out)).await,
    }
}
