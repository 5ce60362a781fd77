//! `ringctl node`: nodes, and which texts of classes they have; those that are gone are forgotten.

use crate::connect;
use crate::drain::{self, NodeArguments};
use crate::inspect::{self, Node, Ring, short_digest};
use crate::output::{Format, Out};
use clap::{Args, Subcommand};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// The commands.
#[derive(Subcommand, Debug)]
pub enum NodeCommand {
    /// List the nodes with state, load, address, and their classes with the digest of each text. Warns of
    /// nodes of one pool that have different texts of a class.
    List(ListArguments),
    /// Show a node no more that is LOST or REMOVED, in `inspect` and here. Refused while it is there, or some
    /// session of it has not ended. Managers do so themselves an hour after they heard of it last. When the
    /// node comes back, it is a new one.
    Forget(NodeArguments),
}

/// `node list`.
#[derive(Args, Debug)]
pub struct ListArguments {
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
    let it = match command {
        NodeCommand::List(it) => it,
        NodeCommand::Forget(it) => return drain::forget(it, endpoint, out).await,
    };
    let client = connect::client(endpoint, out.format())?;
    let answers = connect::told(endpoint, inspect::ask(&client, it.timeout)).await?;
    let Some(ring) = inspect::join(&answers) else { anyhow::bail!("the manager has no View yet") };
    let differing = differing(&ring);
    match out.format() {
        Format::Json => out.json(&List { nodes: &ring.nodes, differing })?,
        Format::Table => {
            out.table(&inspect::node_table(&ring, out.style()))?;
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
