//! Resident memory and disk of managers with many sessions.

use super::load::as_f64;
use super::report::rounded;
use super::{target, usage};
use crate::dev::{Cluster, Settings, with_cluster};
use crate::output::{Format, Out, plain_table};
use clap::Args;
use serde::Serialize;

const MIB: f64 = 1024.0 * 1024.0;

/// `bench memory`.
#[derive(Args, Debug)]
pub struct MemoryArguments {
    /// Sessions that are opened.
    #[arg(long, default_value_t = 30_000, value_parser = clap::value_parser!(u32).range(1..=500_000))]
    sessions: u32,
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

#[derive(Serialize, Clone, PartialEq, Debug, Default)]
struct ManagerUsage {
    number: u32,
    rss_empty_bytes: u64,
    rss_bytes: u64,
    disk_bytes: u64,
}

#[derive(Serialize, PartialEq, Debug, Default)]
struct Memory {
    sessions: u32,
    /// Copies of each session's record.
    copies: u32,
    managers: Vec<ManagerUsage>,
    rss_max_mib: f64,
    /// Growth of resident memory per record held, over all managers.
    rss_bytes_per_copy: f64,
    /// Of all managers together, per session and per record held.
    disk_bytes_per_session: f64,
    disk_bytes_per_copy: f64,
    node_rss_bytes: u64,
    config_store_rss_bytes: u64,
}

/// `bench memory`.
pub async fn run(it: &MemoryArguments, out: &mut Out) -> anyhow::Result<()> {
    let settings = Settings::roomy(it.managers, it.replicas);
    let memory = with_cluster(&settings, async |cluster| measure(it, cluster).await).await?;
    if out.format() == Format::Json {
        return Ok(out.json(&memory)?);
    }
    let mut table = plain_table(["MANAGER", "EMPTY MIB", "FULL MIB", "DISK MIB"]);
    for it in &memory.managers {
        let mib = |bytes: u64| format!("{:.1}", as_f64(bytes) / MIB);
        let (empty, full) = (mib(it.rss_empty_bytes), mib(it.rss_bytes));
        table.add_row([it.number.to_string(), empty, full, mib(it.disk_bytes)]);
    }
    out.table(&table)?;
    out.text(&format!(
        "\n{} sessions: {:.0} bytes of memory and {:.0} bytes of disk per copy, {:.0} bytes of \
         disk per session\n",
        memory.sessions,
        memory.rss_bytes_per_copy,
        memory.disk_bytes_per_copy,
        memory.disk_bytes_per_session,
    ))?;
    Ok(())
}

fn usages(cluster: &Cluster) -> Vec<ManagerUsage> {
    let document = cluster.document();
    let usage = |(manager, id): (&crate::dev::ManagerProcess, &str)| {
        let rss = usage::resident(manager.pid).unwrap_or(0);
        let disk = usage::on_disk(&cluster.folder().join("managers").join(id));
        let number = manager.number;
        ManagerUsage { number, rss_empty_bytes: rss, rss_bytes: rss, disk_bytes: disk }
    };
    document.managers.iter().zip(cluster.manager_ids()).map(usage).collect()
}

async fn measure(it: &MemoryArguments, cluster: &mut Cluster) -> anyhow::Result<Memory> {
    let empty = usages(cluster);
    let client = target::client(&cluster.document().endpoints(), 2, false)?;
    target::prepare(&client, &it.class, it.sessions).await?;
    let mut full = usages(cluster);
    for (now, before) in full.iter_mut().zip(&empty) {
        now.rss_empty_bytes = before.rss_bytes;
    }
    let copies = (it.replicas + 1).min(it.managers);
    let resident = |pid: u32| usage::resident(pid).unwrap_or(0);
    let document = cluster.document();
    let node_rss_bytes = document.nodes.iter().map(|node| resident(node.pid)).sum();
    let config_store_rss_bytes = resident(document.config_store.pid);
    let whole = summed(it.sessions, copies, full);
    Ok(Memory { node_rss_bytes, config_store_rss_bytes, ..whole })
}

fn summed(sessions: u32, copies: u32, managers: Vec<ManagerUsage>) -> Memory {
    let held = f64::from(sessions) * f64::from(copies);
    let disk: u64 = managers.iter().map(|it| it.disk_bytes).sum();
    let grown: u64 =
        managers.iter().map(|it| it.rss_bytes.saturating_sub(it.rss_empty_bytes)).sum();
    let largest = managers.iter().map(|it| it.rss_bytes).max().unwrap_or(0);
    Memory {
        sessions,
        copies,
        rss_max_mib: rounded(as_f64(largest) / MIB, 1),
        rss_bytes_per_copy: rounded(as_f64(grown) / held, 1),
        disk_bytes_per_session: rounded(as_f64(disk) / f64::from(sessions), 1),
        disk_bytes_per_copy: rounded(as_f64(disk) / held, 1),
        managers,
        ..Memory::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_and_disk_are_divided_among_all_copies() {
        let manager =
            ManagerUsage { number: 1, rss_empty_bytes: 100, rss_bytes: 400, disk_bytes: 600 };
        let memory = summed(10, 3, vec![manager.clone(), manager.clone(), manager]);
        assert!((memory.rss_bytes_per_copy - 30.0).abs() < 1e-9);
        assert!((memory.disk_bytes_per_session - 180.0).abs() < 1e-9);
        assert!((memory.disk_bytes_per_copy - 60.0).abs() < 1e-9);
    }
}
