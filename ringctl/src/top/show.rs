//! Two samples as they are shown.

use super::{By, NodeArguments, Sample, SessionArguments, TopArguments};
use crate::output::{Format, Out, plain_table};
use rota_client::v1;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// What the processes of a session use.
#[derive(Serialize, PartialEq, Eq, Debug)]
struct Session {
    namespace: String,
    id: String,
    life: u64,
    class: String,
    node: String,
    /// Thousandths of a processor, over the interval.
    cpu_millis: u64,
    memory_bytes: u64,
    processes: u32,
    limits: Limits,
}

/// Those of its class; left out: none.
#[derive(Serialize, PartialEq, Eq, Debug, Default)]
struct Limits {
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_millis: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    processes: Option<u32>,
}

/// What a node's processes use.
#[derive(Serialize, PartialEq, Eq, Debug)]
struct Node {
    node: String,
    pool: String,
    state: String,
    /// Programs that run.
    programs: u64,
    cpu_millis: u64,
    memory_bytes: u64,
    processes: u32,
    /// The agent's own, its guardian's and its keepers'.
    own_cpu_millis: u64,
    own_memory_bytes: u64,
    /// What the node has for sessions; 0: not counted.
    capacity: Capacity,
}

#[derive(Serialize, PartialEq, Eq, Debug)]
struct Capacity {
    cpu_millis: u32,
    memory_bytes: u64,
}

/// A document.
#[derive(Serialize)]
struct Top<'a, T> {
    #[serde(flatten)]
    rows: BTreeMap<&'static str, &'a [T]>,
    interval_ms: u64,
    /// Nodes that did not answer, and why.
    silent: &'a BTreeMap<String, String>,
}

/// One measured moment of a session: when, and the CPU time so far.
type Moments = BTreeMap<(String, String, u64), (u64, u64)>;

fn moments(pages: Option<&Vec<v1::UsageResponse>>) -> Moments {
    let mut all = Moments::new();
    for page in pages.into_iter().flatten() {
        for it in &page.sessions {
            let key = it.key.clone().unwrap_or_default();
            let cpu_us = it.used.as_ref().map_or(0, |it| it.cpu_us);
            all.insert((key.namespace, key.id, it.life), (page.at_us, cpu_us));
        }
    }
    all
}

/// Thousandths of a processor between two moments.
fn millis(before: (u64, u64), now: (u64, u64)) -> u64 {
    let (us, cpu_us) = (now.0.saturating_sub(before.0), now.1.saturating_sub(before.1));
    (cpu_us * 1_000 + us / 2).checked_div(us).unwrap_or(0)
}

fn all_sessions(before: &Sample, now: &Sample) -> Vec<Session> {
    let mut rows = Vec::new();
    for (node, pages) in &now.pages {
        let earlier = moments(before.pages.get(node));
        let began = before.pages.get(node).and_then(|it| it.first()).map(|it| it.at_us);
        for (page, it) in
            pages.iter().flat_map(|page| page.sessions.iter().map(move |it| (page, it)))
        {
            let key = it.key.clone().unwrap_or_default();
            let used = it.used.unwrap_or_default();
            let name = (key.namespace.clone(), key.id.clone(), it.life);
            // One that was not there had used nothing.
            let at = earlier.get(&name).copied().or(began.map(|at_us| (at_us, 0)));
            let cpu_millis = at.map_or(0, |at| millis(at, (page.at_us, used.cpu_us)));
            rows.push(Session {
                namespace: key.namespace,
                id: key.id,
                life: it.life,
                class: it.class.clone(),
                node: node.clone(),
                cpu_millis,
                memory_bytes: used.memory_bytes,
                processes: used.processes,
                limits: limits(it),
            });
        }
    }
    rows
}

fn limits(it: &v1::UsedBySession) -> Limits {
    let given = |most: u32| Some(most).filter(|it| *it > 0);
    Limits {
        cpu_millis: given(it.cpu_millis_max),
        memory_bytes: given(it.memory_mib_max).map(mib),
        processes: given(it.processes_max),
    }
}

fn mib(count: u32) -> u64 {
    u64::from(count) * 1024 * 1024
}

/// Bytes for people.
fn bytes(count: u64) -> String {
    let tenths = count * 10 / (1024 * 1024);
    format!("{}.{} MiB", tenths / 10, tenths % 10)
}

fn or_dash<T>(value: Option<T>, text: impl Fn(T) -> String) -> String {
    value.map_or("-".to_owned(), text)
}

/// Writes rows as a document, or as the table that `table` makes of them.
fn write<T: Serialize>(
    (name, rows): (&'static str, &[T]),
    now: &Sample,
    top: &TopArguments,
    out: &mut Out,
    table: impl Fn(&[T]) -> comfy_table::Table,
) -> anyhow::Result<()> {
    match out.format() {
        Format::Json => {
            let rows = BTreeMap::from([(name, rows)]);
            out.json(&Top { rows, interval_ms: top.interval_ms, silent: &now.silent })?;
        }
        Format::Table => {
            out.table(&table(rows))?;
            for (node, why) in &now.silent {
                eprintln!("node {node} did not answer: {why}");
            }
        }
    }
    Ok(())
}

/// Shows what sessions use.
pub fn sessions(
    before: &Sample,
    now: &Sample,
    it: &SessionArguments,
    out: &mut Out,
) -> anyhow::Result<()> {
    let mut rows = all_sessions(before, now);
    rows.retain(|row| it.namespace.is_empty() || row.namespace == it.namespace);
    rows.retain(|row| it.class.is_empty() || row.class == it.class);
    match it.top.by {
        By::Cpu => rows.sort_by_key(|it| Reverse((it.cpu_millis, it.memory_bytes))),
        By::Memory => rows.sort_by_key(|it| Reverse((it.memory_bytes, it.cpu_millis))),
    }
    rows.truncate(it.limit.map_or(usize::MAX, |it| it as usize));
    write(("sessions", &rows), now, &it.top, out, session_table)
}

fn session_table(rows: &[Session]) -> comfy_table::Table {
    let mut table = plain_table([
        "NAMESPACE",
        "ID",
        "CLASS",
        "NODE",
        "CPU(m)",
        "LIMIT",
        "MEMORY",
        "LIMIT",
        "PROCESSES",
    ]);
    for it in rows {
        table.add_row([
            it.namespace.clone(),
            it.id.clone(),
            it.class.clone(),
            it.node.clone(),
            it.cpu_millis.to_string(),
            or_dash(it.limits.cpu_millis, |it| it.to_string()),
            bytes(it.memory_bytes),
            or_dash(it.limits.memory_bytes, bytes),
            it.processes.to_string(),
        ]);
    }
    table
}

fn node(stats: &v1::NodeStats, before: &Sample, now: &Sample) -> Option<Node> {
    let first = |sample: &Sample| sample.pages.get(&stats.id)?.first().cloned();
    let last = first(now)?;
    let programs = now.pages.get(&stats.id)?.iter().map(|it| it.sessions.len() as u64).sum();
    let earlier = first(before).unwrap_or_default();
    let rate = |of: fn(&v1::UsageResponse) -> u64| {
        if earlier.at_us == 0 {
            return 0;
        }
        millis((earlier.at_us, of(&earlier)), (last.at_us, of(&last)))
    };
    let (own, all) = (last.own.unwrap_or_default(), last.programs.unwrap_or_default());
    Some(Node {
        node: stats.id.clone(),
        pool: stats.pool.clone(),
        state: stats.state.clone(),
        programs,
        cpu_millis: rate(|it| it.programs.unwrap_or_default().cpu_us),
        memory_bytes: all.memory_bytes,
        processes: all.processes,
        own_cpu_millis: rate(|it| it.own.unwrap_or_default().cpu_us),
        own_memory_bytes: own.memory_bytes,
        capacity: Capacity { cpu_millis: stats.cpu_millis, memory_bytes: mib(stats.memory_mib) },
    })
}

/// Shows what nodes use.
pub fn nodes(
    known: &[v1::NodeStats],
    before: &Sample,
    now: &Sample,
    it: &NodeArguments,
    out: &mut Out,
) -> anyhow::Result<()> {
    let mut rows: Vec<Node> = known.iter().filter_map(|it| node(it, before, now)).collect();
    match it.top.by {
        By::Cpu => rows.sort_by_key(|it| Reverse((it.cpu_millis, it.memory_bytes))),
        By::Memory => rows.sort_by_key(|it| Reverse((it.memory_bytes, it.cpu_millis))),
    }
    write(("nodes", &rows), now, &it.top, out, node_table)
}

fn node_table(rows: &[Node]) -> comfy_table::Table {
    let mut table = plain_table([
        "NODE",
        "POOL",
        "STATE",
        "PROGRAMS",
        "CPU(m)",
        "OF",
        "MEMORY",
        "OF",
        "AGENT CPU(m)",
        "AGENT MEMORY",
    ]);
    for it in rows {
        let of_cpu = Some(it.capacity.cpu_millis).filter(|it| *it > 0);
        let of_memory = Some(it.capacity.memory_bytes).filter(|it| *it > 0);
        table.add_row([
            it.node.clone(),
            it.pool.clone(),
            it.state.clone(),
            it.programs.to_string(),
            it.cpu_millis.to_string(),
            or_dash(of_cpu, |it| it.to_string()),
            bytes(it.memory_bytes),
            or_dash(of_memory, bytes),
            it.own_cpu_millis.to_string(),
            bytes(it.own_memory_bytes),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use crate::top::TopCommand;
    use clap::Parser;

    fn used(cpu_us: u64, memory_bytes: u64) -> Option<v1::Used> {
        Some(v1::Used { cpu_us, memory_bytes, processes: 1 })
    }

    fn session(id: &str, life: u64, cpu_us: u64, memory_bytes: u64) -> v1::UsedBySession {
        let key = Some(v1::SessionKey { namespace: "default".into(), id: id.into() });
        let (class, memory_mib_max) = ("c".to_owned(), 64);
        let used = used(cpu_us, memory_bytes);
        v1::UsedBySession { key, life, class, used, memory_mib_max, ..Default::default() }
    }

    fn sample(at_us: u64, programs_us: u64, sessions: Vec<v1::UsedBySession>) -> Sample {
        let page = v1::UsageResponse {
            node: "n1".into(),
            at_us,
            own: used(at_us / 100, 5 << 20),
            programs: used(programs_us, 9 << 20),
            sessions,
            more: false,
        };
        Sample { pages: BTreeMap::from([("n1".to_owned(), vec![page])]), ..Sample::default() }
    }

    fn arguments(line: &[&str]) -> TopCommand {
        let cli = Cli::try_parse_from([&["ringctl", "top"], line].concat()).unwrap();
        let Command::Top(command) = cli.command else { panic!("another command") };
        command
    }

    fn shown(format: Format, line: &[&str]) -> String {
        let before = sample(1_000_000, 500_000, vec![session("a", 1, 300_000, 7)]);
        let sessions = vec![session("a", 1, 400_000, 7 << 20), session("b", 2, 1_000_000, 1 << 20)];
        let now = sample(3_000_000, 1_700_000, sessions);
        let (mut out, written) = Out::captured(format);
        match arguments(line) {
            TopCommand::Session(it) => sessions_of(&before, &now, &it, &mut out),
            TopCommand::Node(it) => {
                let stats = v1::NodeStats {
                    id: "n1".into(),
                    pool: "default".into(),
                    state: "READY".into(),
                    cpu_millis: 2_000,
                    ..Default::default()
                };
                nodes(&[stats], &before, &now, &it, &mut out).unwrap();
            }
        }
        written.text()
    }

    fn sessions_of(before: &Sample, now: &Sample, it: &SessionArguments, out: &mut Out) {
        sessions(before, now, it, out).unwrap();
    }

    #[test]
    fn sessions_come_in_order_of_their_cpu_or_memory_with_their_limits() {
        let table = shown(Format::Table, &["session"]);
        let rows: Vec<Vec<&str>> =
            table.lines().map(|it| it.split_whitespace().collect()).collect();
        let row = ["default", "b", "c", "n1", "500", "-", "1.0", "MiB", "64.0", "MiB", "1"];
        assert_eq!(rows[1], row, "one that was not there had used nothing: {table}");
        assert_eq!(rows[2][1..5], ["a", "c", "n1", "50"]);
        let by_memory = shown(Format::Table, &["session", "--by", "memory", "--limit", "1"]);
        assert!(by_memory.lines().count() == 2 && by_memory.contains(" a "), "{by_memory}");
        let none = shown(Format::Table, &["session", "--class", "other"]);
        assert_eq!(none.lines().count(), 1, "{none}");
    }

    #[test]
    fn a_document_has_numbers_and_their_units_in_its_names() {
        let text = shown(Format::Json, &["session", "--namespace", "default"]);
        let document: serde_json::Value = serde_json::from_str(&text).unwrap();
        let first = &document["sessions"][0];
        assert_eq!((&first["id"], &first["cpu_millis"]), (&"b".into(), &500.into()));
        assert_eq!(first["limits"], serde_json::json!({"memory_bytes": 64 << 20}));
        assert_eq!(document["interval_ms"], 1_000);
        let text = shown(Format::Json, &["node"]);
        let document: serde_json::Value = serde_json::from_str(&text).unwrap();
        let node = &document["nodes"][0];
        assert_eq!((&node["cpu_millis"], &node["own_cpu_millis"]), (&600.into(), &10.into()));
        assert_eq!(
            (&node["programs"], &node["capacity"]["cpu_millis"]),
            (&2.into(), &2_000.into())
        );
    }

    #[test]
    fn two_samples_of_one_moment_are_no_rate() {
        assert_eq!(millis((5, 1), (5, 9)), 0);
        assert_eq!(millis((0, 9), (1_000, 5)), 0, "a sum that fell");
        assert_eq!(millis((0, 0), (1_000, 1_500)), 1_500);
    }
}
