//! `ringctl node replace`: another node is started first, then this one is drained, and ends.
//!
//! ```text
//!   any manager ── OrderNode(replace) ──▶ CORDONED ── its successor is READY ──▶ DRAINING ── empty ──▶ REMOVED
//! ```
//! Managers do so by themselves: whoever waits here only watches, and may go.

use super::{Closing, LOOK_EVERY, LOOK_WAIT, NodeArguments, Shown, give, left, spared};
use crate::connect;
use crate::inspect::{self, Answers};
use crate::length_of_time::length_of_time;
use crate::output::{Format, Out, counted};
use anyhow::bail;
use clap::Args;
use rota_client::{Client, v1};
use serde::Serialize;
use std::time::{Duration, Instant};
use v1::order_node_request::{Order, Replace};

/// `node replace`.
#[derive(Args, Debug)]
pub struct ReplaceArguments {
    #[command(flatten)]
    one: NodeArguments,
    #[command(flatten)]
    closing: Closing,
    /// Wait until the node has ended, and show progress.
    #[arg(long)]
    wait: bool,
    /// How long that may take; the replacement goes on.
    #[arg(long, default_value = "1h", value_parser = length_of_time)]
    timeout: Duration,
}

/// What came of it.
#[derive(Serialize, PartialEq, Debug)]
struct Replaced {
    node: String,
    /// CORDONED while its successor is awaited, then DRAINING, at last REMOVED or LOST.
    state: String,
    /// False when it was replaced already.
    changed: bool,
    /// From the order until the end.
    seconds: f64,
}

/// How far it is.
#[derive(PartialEq, Eq, Debug)]
enum Progress {
    /// Its pool starts another node.
    Awaits(String),
    /// It is drained; how many sessions are left, if all owners can tell, and the classes that are waited for.
    Drains(Option<u64>, Vec<String>),
    /// It has ended. Its state.
    Gone(String),
    /// It was lost while it waited for another one.
    LostBefore,
    /// No manager that answers knows it.
    Unknown,
    /// Something else is wanted of it. Its state.
    TakenBack(String),
}

/// Replaces a node, and waits if that is wished.
pub async fn run(it: &ReplaceArguments, endpoints: &str, out: &mut Out) -> anyhow::Result<()> {
    let began = Instant::now();
    let client = connect::client(endpoints, out.format())?;
    let order = Order::Replace(Replace { drain: Some(it.closing.drain()) });
    let answer = give(&client, &it.one.node, order, out).await?;
    let v1::OrderNodeResponse { node, mut state, changed, .. } = answer;
    if it.wait {
        state = follow(&client, &node, began + it.timeout, out).await?;
    }
    let done = Replaced { node, state, changed, seconds: began.elapsed().as_secs_f64() };
    match out.format() {
        Format::Json => out.json(&done)?,
        Format::Table => out.text(&told(&done))?,
    }
    Ok(())
}

fn told(done: &Replaced) -> String {
    let Replaced { node, state, seconds, .. } = done;
    match state.as_str() {
        "REMOVED" | "LOST" => {
            format!("node {node} is replaced after {seconds:.1} s: it is {state}\n")
        }
        "DRAINING" => format!(
            "node {node} is DRAINING: its successor has come; it ends when it is empty (`ringctl node replace \
             {node} --wait` shows how far it is)\n"
        ),
        _ => format!(
            "node {node} is {state}: its pool starts another node, then this one is drained and ends; `ringctl \
             node replace {node} --wait` shows how far it is, `ringctl node uncordon {node}` takes it back\n"
        ),
    }
}

/// Looks at the managers until the node has ended. Gives its state then.
async fn follow(client: &Client, node: &str, until: Instant, out: &Out) -> anyhow::Result<String> {
    let mut shown = Shown::new(out.format());
    loop {
        let answers = inspect::ask(client, LOOK_WAIT).await.ok();
        let text = match answers.map(|it| progress(&it, node)) {
            None => "no manager answers".to_owned(),
            Some(Progress::Awaits(pool)) => format!(
                "node {node} waits for another node of pool {pool} (`ringctl pool show {pool}` tells why \
                 none comes)"
            ),
            Some(Progress::Drains(None, _)) => format!("node {node} is DRAINING"),
            Some(Progress::Drains(Some(count), waits_for)) => {
                shown.count(count);
                let waits_for = left::there(client, node, waits_for).await;
                let (count, spared) = (counted(count, "session"), spared(&waits_for, node));
                format!("node {node} is DRAINING, and has {count} left{spared}")
            }
            Some(Progress::Gone(state)) => {
                shown.end();
                return Ok(state);
            }
            Some(Progress::LostBefore) => {
                shown.end();
                bail!("node {node} is LOST, and no other one has come for it");
            }
            Some(Progress::Unknown) => format!("no manager that answers knows node {node}"),
            Some(Progress::TakenBack(state)) => {
                shown.end();
                bail!("node {node} is {state}: it is not replaced any more");
            }
        };
        shown.tell(&text);
        if Instant::now() >= until {
            shown.end();
            bail!("{text}; the time of --timeout is over, and the replacement goes on");
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Joins the answers: who is ahead tells how far it is. Only when all that answer say so it is taken back.
fn progress(answers: &Answers, node: &str) -> Progress {
    let heard = answers.values().filter_map(|it| it.as_ref().ok());
    let known = heard.filter_map(|it| it.nodes.iter().find(|it| it.id == node));
    let known: Vec<&v1::NodeStats> = known.collect();
    let find = |says: fn(&v1::NodeStats) -> bool| known.iter().copied().find(|it| says(it));
    let gone = find(|it| ["LOST", "REMOVED"].contains(&it.state.as_str()));
    let drains = find(|it| it.wish == "drained" && it.retires);
    let waits = find(|it| it.wish == "replaced");
    match (gone, drains, waits, known.first()) {
        (Some(it), None, ..) if it.state == "LOST" => Progress::LostBefore,
        (Some(it), ..) => Progress::Gone(it.state.clone()),
        (None, Some(it), ..) => {
            Progress::Drains(left::count(answers, node).ok(), left::waits_for(it))
        }
        (None, None, Some(it), _) => Progress::Awaits(it.pool.clone()),
        (None, None, None, Some(other)) => Progress::TakenBack(other.state.clone()),
        (None, None, None, None) => Progress::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(number: u32, state: &str, wish: &str) -> (u32, Result<v1::InspectResponse, String>) {
        let node = v1::NodeStats {
            id: "n".to_owned(),
            pool: "small".to_owned(),
            state: state.to_owned(),
            wish: wish.to_owned(),
            retires: wish == "drained",
            ..Default::default()
        };
        (number, Ok(v1::InspectResponse { number, nodes: vec![node], ..Default::default() }))
    }

    #[test]
    fn the_manager_that_is_ahead_tells_how_far_a_replacement_is() {
        let seen = |one: (&str, &str), two: (&str, &str)| {
            progress(&[answer(1, one.0, one.1), answer(2, two.0, two.1)].into(), "n")
        };
        let (waits, drains) = (("CORDONED", "replaced"), ("DRAINING", "drained"));
        assert_eq!(seen(waits, ("READY", "")), Progress::Awaits("small".to_owned()));
        assert_eq!(seen(waits, drains), Progress::Drains(None, Vec::new()));
        assert_eq!(seen(("REMOVED", "drained"), drains), Progress::Gone("REMOVED".to_owned()));
        let back = Progress::TakenBack("READY".to_owned());
        assert_eq!(seen(("READY", ""), ("READY", "")), back);
        assert_eq!(seen(("LOST", "replaced"), waits), Progress::LostBefore);
        assert_eq!(seen(("LOST", "drained"), drains), Progress::Gone("LOST".to_owned()));
        assert_eq!(progress(&Answers::new(), "n"), Progress::Unknown);
    }

    #[test]
    fn what_came_of_a_replacement_is_told_with_what_to_do_next() {
        let done = |state: &str| {
            let (node, state) = ("n1".to_owned(), state.to_owned());
            told(&Replaced { node, state, changed: true, seconds: 2.0 })
        };
        assert!(done("CORDONED").contains("`ringctl node uncordon n1` takes it back"));
        assert!(done("DRAINING").contains("its successor has come"));
        assert_eq!(done("REMOVED"), "node n1 is replaced after 2.0 s: it is REMOVED\n");
    }
}
