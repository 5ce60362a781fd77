//! `ringctl node`: nodes, and which texts of classes they have; what operators want of them stands in `drain`.

use crate::connect;
use crate::drain::replace::{self, ReplaceArguments};
use crate::drain::{self, DrainArguments, NodeArguments};
use crate::inspect::{self, Node, Ring, class_texts, short_digest};
use crate::output::{Format, Out, pairs, plain_table};
use anyhow::Context;
use clap::{Args, Subcommand};
use comfy_table::Table;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, UNIX_EPOCH};

/// The commands.
#[derive(Subcommand, Debug)]
pub enum NodeCommand {
    /// List the nodes with state, load, address, and their classes with the digest of each text. Warns of
    /// nodes of one pool that have different texts of a class.
    List(ListArguments),
    /// Show one node with all that is known of it.
    Show(ShowArguments),
    /// Place nothing more on a node; what runs there runs on. Stops a drain.
    Cordon(NodeArguments),
    /// Empty a node: place nothing more there, and close what runs there.
    Drain(DrainArguments),
    /// Start another node of its pool first, then drain a node; it ends when it is empty. The pool needs a
    /// provisioner.
    Replace(ReplaceArguments),
    /// Let a node take sessions again.
    Uncordon(NodeArguments),
    /// Show a node no more that is LOST or REMOVED, in `inspect` and here. Refused while it is there, or some
    /// session of it has not ended. Managers do so themselves an hour after they heard of it last. When the
    /// node comes back, it is a new one.
    Forget(NodeArguments),
}

/// `node list`.
#[derive(Args, Debug)]
pub struct ListArguments {
    /// Only nodes of this pool.
    #[arg(long, value_name = "POOL")]
    pool: Option<String>,
    /// Also nodes that are REMOVED: they ended within the last hour. JSON always has them.
    #[arg(long)]
    all: bool,
    /// How long a manager may take to answer.
    #[arg(long, default_value = "2s", value_parser = crate::length_of_time::length_of_time)]
    timeout: Duration,
}

/// `node show`.
#[derive(Args, Debug)]
pub struct ShowArguments {
    /// The node's id.
    #[arg(value_name = "NODE")]
    node: String,
    /// How long a manager may take to answer.
    #[arg(long, default_value = "2s", value_parser = crate::length_of_time::length_of_time)]
    timeout: Duration,
}

/// Nodes of one pool have different texts of a class.
#[derive(Serialize, PartialEq, Eq, Debug)]
pub struct Differing {
    pub pool: String,
    pub class: String,
    /// The nodes that have each text, by its digest.
    pub nodes: BTreeMap<String, Vec<String>>,
}

#[derive(Serialize)]
struct List<'a> {
    nodes: &'a [Node],
    differing: Vec<Differing>,
}

/// Whether something may still be placed there, now or later.
fn is_there(node: &Node) -> bool {
    !matches!(&*node.state, "LOST" | "REMOVED")
}

/// The classes whose texts differ between nodes of a pool.
pub fn differing(ring: &Ring) -> Vec<Differing> {
    let mut texts = BTreeMap::<(&str, &str), BTreeMap<String, Vec<String>>>::new();
    for node in ring.nodes.iter().filter(|it| is_there(it)) {
        for (class, digest) in &node.digests {
            let nodes = texts.entry((&node.pool, class)).or_default();
            nodes.entry(digest.clone()).or_default().push(node.id.clone());
        }
    }
    let differ = texts.into_iter().filter(|(_, nodes)| nodes.len() > 1);
    let differing = differ.map(|((pool, class), nodes)| {
        let (pool, class) = (pool.to_owned(), class.to_owned());
        Differing { pool, class, nodes }
    });
    differing.collect()
}

/// The same for people.
pub fn warning(it: &Differing) -> String {
    let nodes = it.nodes.iter();
    let each =
        nodes.map(|(digest, nodes)| format!("{} on {}", short_digest(digest), nodes.join(", ")));
    let each: Vec<String> = each.collect();
    format!(
        "warning: class {:?} has {} texts in pool {:?}: {}",
        it.class,
        it.nodes.len(),
        it.pool,
        each.join("; ")
    )
}

/// Runs a command.
pub async fn run(command: &NodeCommand, endpoint: &str, out: &mut Out) -> anyhow::Result<()> {
    match command {
        NodeCommand::List(it) => list(it, endpoint, out).await,
        NodeCommand::Show(it) => show(it, endpoint, out).await,
        NodeCommand::Cordon(it) => drain::cordon(it, endpoint, out).await,
        NodeCommand::Drain(it) => drain::run(it, endpoint, out).await,
        NodeCommand::Replace(it) => replace::run(it, endpoint, out).await,
        NodeCommand::Uncordon(it) => drain::uncordon(it, endpoint, out).await,
        NodeCommand::Forget(it) => drain::forget(it, endpoint, out).await,
    }
}

async fn ring(timeout: Duration, endpoint: &str, out: &Out) -> anyhow::Result<Ring> {
    let client = connect::client(endpoint, out.format())?;
    let answers = connect::told(endpoint, inspect::ask(&client, timeout)).await?;
    inspect::join(&answers).context("the manager has no View yet")
}

async fn show(it: &ShowArguments, endpoint: &str, out: &mut Out) -> anyhow::Result<()> {
    let ring = ring(it.timeout, endpoint, out).await?;
    let Some(node) = ring.nodes.iter().find(|node| node.id == it.node) else {
        let known: Vec<&str> = ring.nodes.iter().map(|it| it.id.as_str()).collect();
        let known = if known.is_empty() { "there is none".to_owned() } else { known.join(", ") };
        anyhow::bail!("node {} is not registered; nodes: {known}", it.node);
    };
    match out.format() {
        Format::Json => out.json(node)?,
        Format::Table => out.table(&one(node))?,
    }
    Ok(())
}

/// One node, a property a row.
fn one(it: &Node) -> Table {
    let mut table = plain_table(["NODE", &it.id]);
    let amount = |used: u32, of: u32| match of {
        0 => "not counted".to_owned(),
        of => format!("{used} of {of}"),
    };
    let closes = it.closes_at_ms.map(|at_ms| match at_ms {
        0 => "at once".to_owned(),
        at_ms => {
            let at = UNIX_EPOCH + Duration::from_millis(at_ms);
            humantime::format_rfc3339_seconds(at).to_string()
        }
    });
    let rows = [
        ("pool", it.pool.clone()),
        ("stable number", inspect::stable_number(it.stable_number)),
        ("UUID", it.uuid.clone().unwrap_or_default()),
        ("state", it.state.clone()),
        ("wanted", it.wish.clone()),
        ("sessions are closed", closes.unwrap_or_default()),
        ("when it is empty", if it.retires { "it ends".to_owned() } else { String::new() }),
        ("address", it.address.clone()),
        ("boot", it.boot.clone()),
        ("load", format!("{:.0}%", it.load * 100.0)),
        ("places", amount(it.used, it.places)),
        ("CPU in thousandths", amount(it.used_cpu_millis, it.cpu_millis)),
        ("memory in MiB", amount(it.used_memory_mib, it.memory_mib)),
        ("sessions", it.sessions.to_string()),
        ("labels", pairs(&it.labels).join(" ")),
        ("sandbox", it.sandbox.clone()),
        ("classes", class_texts(it)),
    ];
    for (property, value) in rows.into_iter().filter(|(_, value)| !value.is_empty()) {
        table.add_row([property.to_owned(), value]);
    }
    table
}

/// Leaves those out that are REMOVED. Gives how many.
fn hide_removed(nodes: &mut Vec<Node>) -> usize {
    let all = nodes.len();
    nodes.retain(|it| it.state != "REMOVED");
    all - nodes.len()
}

async fn list(it: &ListArguments, endpoint: &str, out: &mut Out) -> anyhow::Result<()> {
    let mut ring = ring(it.timeout, endpoint, out).await?;
    if let Some(pool) = &it.pool {
        let pools: BTreeSet<String> = ring.nodes.iter().map(|it| it.pool.clone()).collect();
        ring.nodes.retain(|it| it.pool == *pool);
        if !pools.contains(pool) {
            let pools = pools.into_iter().collect::<Vec<_>>().join(", ");
            eprintln!("no node is or was in pool {pool:?}; nodes are in: {pools}");
        }
    }
    let differing = differing(&ring);
    match out.format() {
        Format::Json => out.json(&List { nodes: &ring.nodes, differing })?,
        Format::Table => {
            let hidden = if it.all { 0 } else { hide_removed(&mut ring.nodes) };
            out.table(&inspect::node_table(&ring, out.style()))?;
            if hidden > 0 {
                eprintln!("{hidden} REMOVED left out; --all shows them");
            }
            differing.iter().for_each(|it| eprintln!("{}", warning(it)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Style;

    fn node(id: &str, pool: &str, state: &str, digest: &str) -> Node {
        Node {
            id: id.to_owned(),
            pool: pool.to_owned(),
            state: state.to_owned(),
            classes: vec!["http".to_owned(), "old".to_owned()],
            digests: BTreeMap::from([("http".to_owned(), digest.to_owned())]),
            ..Node::default()
        }
    }

    #[test]
    fn a_node_is_shown_with_what_is_known_of_it_and_nothing_else() {
        let node = Node {
            stable_number: Some(7),
            used: 3,
            places: 10,
            used_memory_mib: 64,
            memory_mib: 512,
            load: 0.3,
            labels: BTreeMap::from([("zone".to_owned(), "a".to_owned())]),
            ..node("n1", "p", "READY", "0123456789abcdef")
        };
        let shown = one(&node).to_string();
        for text in ["3 of 10", "64 of 512", "not counted", "30%", "zone=a", "http@01234567 old"] {
            assert!(shown.contains(text), "{text}: {shown}");
        }
        let number = shown.lines().find(|it| it.starts_with("stable number")).unwrap_or_default();
        assert!(number.trim_end().ends_with(" 7"), "{shown}");
        assert!(!shown.contains("are closed") && !shown.contains("sandbox"), "{shown}");
    }

    #[test]
    fn nodes_that_have_ended_in_order_are_left_out_and_counted() {
        let states = ["READY", "REMOVED", "LOST", "REMOVED", "DRAINING"];
        let mut nodes: Vec<Node> =
            states.iter().zip(1..).map(|(it, at)| node(&format!("n{at}"), "a", it, "")).collect();
        assert_eq!(hide_removed(&mut nodes), 2);
        let left: Vec<&str> = nodes.iter().map(|it| it.id.as_str()).collect();
        assert_eq!(left, ["n1", "n3", "n5"]);
    }

    #[test]
    fn different_texts_are_told_within_a_pool_and_among_nodes_that_are_there() {
        let (one, two) = ("0123456789abcdef", "fedcba9876543210");
        let nodes = vec![
            node("n1", "a", "READY", one),
            node("n2", "a", "CORDONED", two),
            node("n3", "a", "READY", one),
            node("n4", "b", "READY", two),
            node("n5", "b", "LOST", one),
        ];
        let ring = Ring { nodes, ..Ring::default() };
        let differing = differing(&ring);
        let told: Vec<String> = differing.iter().map(warning).collect();
        let expected = "warning: class \"http\" has 2 texts in pool \"a\": 01234567 on n1, n3; \
                        fedcba98 on n2";
        assert_eq!(told, [expected]);
        let shown = inspect::node_table(&ring, Style::PLAIN).to_string();
        assert!(shown.contains("http@01234567 old"), "{shown}");
    }
}
