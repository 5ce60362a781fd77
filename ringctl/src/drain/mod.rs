//! Says what is wanted of a node: `ringctl node cordon`, `ringctl node drain`, `ringctl node uncordon`, `ringctl node forget`.
//!
//! ```text
//!   any manager ── OrderNode ──▶ the registry has it ──▶ every manager, again and again ──▶ empty
//! ```
//! The managers drain by themselves: whoever waits here only watches, and may go.

mod left;
pub mod replace;

use crate::connect;
use crate::failure::OutcomeUnknown;
use crate::inspect;
use crate::length_of_time::length_of_time;
use crate::output::{Format, Out, counted};
use anyhow::bail;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use left::{Look, look};
use rota_client::{Client, v1};
use serde::Serialize;
use std::time::{Duration, Instant};
use tokio::time::timeout;
use v1::order_node_request::{Cordon, Drain, Forget, Order, Uncordon, drain::Time};

/// How long a manager may take to answer. It gives up before.
const ORDER_WAIT: Duration = Duration::from_secs(15);

/// How long one manager may take to say what it has.
const LOOK_WAIT: Duration = Duration::from_secs(2);

/// Between two looks at the managers.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// How long to look for what is left where nobody waits for its end.
const GLANCE: Duration = Duration::from_secs(2);

/// Between two lines of progress, where no bar can be drawn.
const LINE_EVERY: Duration = Duration::from_secs(1);

/// `cordon` and `uncordon`.
#[derive(Args, Debug)]
pub struct NodeArguments {
    /// The node's id.
    #[arg(value_name = "NODE")]
    node: String,
}

/// `drain`.
#[derive(Args, Debug)]
pub struct DrainArguments {
    /// The node's id.
    #[arg(value_name = "NODE")]
    node: String,
    #[command(flatten)]
    closing: Closing,
    /// Wait until the node has no session left, and show progress.
    #[arg(long)]
    wait: bool,
    /// How long that may take; the drain goes on.
    #[arg(long, default_value = "1h", value_parser = length_of_time)]
    timeout: Duration,
}

/// When sessions of the node are closed.
#[derive(Args, Debug)]
pub struct Closing {
    /// How long sessions may end by themselves before they are closed (DRAINED); each has the grace
    /// of its class then. Default: that of the drain that is under way, else 0s. With 0s, sessions whose
    /// class says disturb = "never" are only waited for; after a longer time all are closed.
    #[arg(long, value_name = "TIME", value_parser = time_or_none)]
    deadline: Option<Duration>,
    /// Close nothing: wait for the sessions to end, however long that takes.
    #[arg(long, conflicts_with = "deadline")]
    wait_for_sessions: bool,
    /// Close all sessions at once, also those whose class says disturb = "never".
    #[arg(long, conflicts_with_all = ["deadline", "wait_for_sessions"])]
    force: bool,
}

impl Closing {
    fn drain(&self) -> Drain {
        let within = self.deadline.map(|it| u64::try_from(it.as_millis()).unwrap_or(u64::MAX));
        let unlimited = self.wait_for_sessions.then_some(Time::Unlimited(true));
        let force = self.force.then_some(Time::Force(true));
        Drain { time: force.or(unlimited).or(within.map(Time::WithinMs)) }
    }
}

/// A length of time that may be 0.
fn time_or_none(text: &str) -> Result<Duration, String> {
    if ["0", "0s", "0ms", "0m", "0h"].contains(&text) {
        return Ok(Duration::ZERO);
    }
    length_of_time(text)
}

/// What came of a cordon, or of its end.
#[derive(Serialize, PartialEq, Debug)]
struct Ordered {
    node: String,
    /// READY, CORDONED, DRAINING, LOST or REMOVED.
    state: String,
    /// False when it was so before.
    changed: bool,
}

/// What came of a drain.
#[derive(Serialize, PartialEq, Debug, Default)]
struct Drained {
    node: String,
    /// DRAINING; LOST or REMOVED when it went meanwhile; another one when the drain was taken back.
    state: String,
    /// False when the same drain was under way before.
    changed: bool,
    /// When what runs there is closed, in ms since 1970; `null`: never.
    closes_at_ms: Option<u64>,
    /// `null`: not every owner could be asked, or the drain was taken back.
    empty: Option<bool>,
    /// Sessions that were there when all owners could be asked first; `null`: they could not.
    sessions: Option<u64>,
    /// Classes whose sessions are only waited for.
    waits_for: Vec<String>,
    /// From the order until the end, looks included.
    seconds: f64,
}

async fn give(
    client: &Client,
    node: &str,
    order: Order,
    out: &Out,
) -> anyhow::Result<v1::OrderNodeResponse> {
    let request = v1::OrderNodeRequest { node: node.to_owned(), order: Some(order) };
    let answer = client.order_node(request, ORDER_WAIT);
    let answer = connect::told_of_order(out.format(), ORDER_WAIT, answer).await;
    answer.map_err(|error| OutcomeUnknown::NodeOrder.unless_refused(error))
}

/// Cordons a node.
pub async fn cordon(it: &NodeArguments, endpoints: &str, out: &mut Out) -> anyhow::Result<()> {
    let client = connect::client(endpoints, out.format())?;
    let answer = give(&client, &it.node, Order::Cordon(Cordon {}), out).await?;
    let text = format!(
        "node {0} is {1}: nothing more is placed there, and what runs there runs on, until `ringctl node \
         uncordon {0}`\n",
        answer.node, answer.state
    );
    show(answer, &text, out)
}

/// Lets a node take sessions again.
pub async fn uncordon(it: &NodeArguments, endpoints: &str, out: &mut Out) -> anyhow::Result<()> {
    let order = Order::Uncordon(Uncordon {});
    let answer = give(&connect::client(endpoints, out.format())?, &it.node, order, out).await?;
    let text = match answer.state.as_str() {
        "LOST" | "REMOVED" => format!(
            "node {} is {}; it takes sessions when it comes back\n",
            answer.node, answer.state
        ),
        state => format!("node {} is {state}: it takes sessions\n", answer.node),
    };
    show(answer, &text, out)
}

/// Forgets a node that is gone, once no session of it is left.
pub async fn forget(it: &NodeArguments, endpoints: &str, out: &mut Out) -> anyhow::Result<()> {
    let client = connect::client(endpoints, out.format())?;
    let answers = connect::told(endpoints, inspect::ask(&client, LOOK_WAIT)).await?;
    // Of one that is there the managers say so.
    if let Some(gone) = inspect::join(&answers)
        .and_then(|ring| ring.nodes.into_iter().find(|node| node.id == it.node))
        .filter(|node| ["LOST", "REMOVED"].contains(&node.state.as_str()))
    {
        let (node, state) = (&it.node, gone.state);
        match left::count(&answers, node) {
            Ok(0) => {}
            Ok(sessions) => bail!(
                "node {node} is {state}, and its {} did not end yet: forget it once `ringctl inspect` \
                 shows none; nothing was changed",
                counted(sessions, "session")
            ),
            Err(why) => bail!(
                "whether a session of node {node} is left is not known: {why}; try again once every \
                 owner serves; nothing was changed"
            ),
        }
    }
    let answer = give(&client, &it.node, Order::Forget(Forget {}), out).await?;
    let text = format!("node {} ({}) is forgotten\n", answer.node, answer.state);
    show(answer, &text, out)
}

fn show(answer: v1::OrderNodeResponse, text: &str, out: &mut Out) -> anyhow::Result<()> {
    let v1::OrderNodeResponse { node, state, changed, .. } = answer;
    match out.format() {
        Format::Json => out.json(&Ordered { node, state, changed })?,
        Format::Table => out.text(text)?,
    }
    Ok(())
}

/// Drains a node, and waits if that is wished.
pub async fn run(it: &DrainArguments, endpoints: &str, out: &mut Out) -> anyhow::Result<()> {
    let began = Instant::now();
    let client = connect::client(endpoints, out.format())?;
    let answer = give(&client, &it.node, Order::Drain(it.closing.drain()), out).await?;
    let v1::OrderNodeResponse { node, state, closes_at_ms, changed } = answer;
    let mut done = Drained { node, state, changed, closes_at_ms, ..Drained::default() };
    if it.wait {
        let (state, sessions) = follow(&client, &done.node, began + it.timeout, out).await?;
        (done.state, done.sessions, done.empty) = (state, Some(sessions), Some(true));
    } else {
        match timeout(GLANCE, glance(&client, &done.node)).await {
            Ok(Look::Empty(state)) => {
                (done.state, done.sessions, done.empty) = (state, Some(0), Some(true));
            }
            Ok(Look::Left(count, waits_for)) => {
                (done.sessions, done.empty) = (Some(count), Some(false));
                done.waits_for = left::there(&client, &done.node, waits_for).await;
            }
            Ok(Look::TakenBack(state)) => done.state = state,
            Ok(Look::Unsure(_)) | Err(_) => {}
        }
    }
    done.seconds = began.elapsed().as_secs_f64();
    match out.format() {
        Format::Json => out.json(&done)?,
        Format::Table => out.text(&told(&done))?,
    }
    Ok(())
}

fn told(done: &Drained) -> String {
    let Drained { node, state, sessions, seconds, .. } = done;
    let count = counted(sessions.unwrap_or(0), "session");
    let left = sessions.map(|_| format!(" ({count} there)")).unwrap_or_default();
    match (done.empty == Some(true), done.closes_at_ms) {
        (false, _) if !["DRAINING", "LOST", "REMOVED"].contains(&state.as_str()) => {
            format!("node {node} is {state}: the drain was taken back\n")
        }
        (true, _) if state != "DRAINING" => {
            format!("node {node} is {state}, and no session of it is left\n")
        }
        (true, _) => format!(
            "node {node} is empty after {seconds:.1} s ({count} ended), and takes nothing until `ringctl node \
             uncordon {node}`\n"
        ),
        (false, Some(_)) => format!(
            "node {node} is {state}{left}: nothing more is placed there, and what runs there when its time \
             is over is closed{}; `ringctl node drain {node} --wait` shows how far it is\n",
            spared(&done.waits_for, node)
        ),
        (false, None) => format!(
            "node {node} is {state}{left}: nothing more is placed there, and nothing is closed; `ringctl \
             node drain {node} --wait` shows how far it is\n"
        ),
    }
}

/// What is said of classes whose sessions are only waited for.
fn spared(classes: &[String], node: &str) -> String {
    if classes.is_empty() {
        return String::new();
    }
    let classes = classes.join(", ");
    format!(
        ", but sessions of {classes} are waited for (disturb = \"never\"): `ringctl node drain {node} --force` \
         closes them, too"
    )
}

/// Looks until every owner has heard of the drain.
async fn glance(client: &Client, node: &str) -> Look {
    loop {
        let answers = inspect::ask(client, GLANCE / 4).await;
        match answers.map(|it| look(&it, node)) {
            Ok(Look::Unsure(_)) | Err(_) => tokio::time::sleep(LOOK_EVERY).await,
            Ok(seen @ (Look::Empty(_) | Look::Left(..) | Look::TakenBack(_))) => return seen,
        }
    }
}

/// Looks at the managers until the node has no session left. Gives its state then, and how many
/// sessions there were at first.
async fn follow(
    client: &Client,
    node: &str,
    until: Instant,
    out: &Out,
) -> anyhow::Result<(String, u64)> {
    let mut shown = Shown::new(out.format());
    loop {
        let answers = inspect::ask(client, LOOK_WAIT).await.ok();
        let seen = answers.map(|it| look(&it, node));
        let text = match &seen {
            None => "no manager answers".to_owned(),
            Some(Look::Empty(state)) => {
                shown.end();
                return Ok((state.clone(), shown.first.unwrap_or(0)));
            }
            Some(Look::TakenBack(state)) => {
                shown.end();
                bail!("node {node} is {state}: the drain was taken back");
            }
            Some(Look::Unsure(why)) => why.clone(),
            Some(Look::Left(count, waits_for)) => {
                shown.count(*count);
                let waits_for = left::there(client, node, waits_for.clone()).await;
                let spared = spared(&waits_for, node);
                format!("node {node} has {} left{spared}", counted(*count, "session"))
            }
        };
        shown.tell(&text);
        if Instant::now() >= until {
            shown.end();
            bail!(
                "{text}; the time of --timeout is over, and the drain goes on without being watched"
            );
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Progress on stderr: a bar at a terminal, lines in a log, nothing beside an error document.
struct Shown {
    bar: ProgressBar,
    format: Format,
    /// Sessions when they were counted first.
    first: Option<u64>,
    line: Option<(Instant, String)>,
}

impl Shown {
    fn new(format: Format) -> Self {
        let style = ProgressStyle::with_template("{elapsed} [{bar:40}] {pos}/{len} {msg}");
        let style = style.expect("the template is valid").progress_chars("=> ");
        let bar = ProgressBar::new(0).with_style(style);
        Self { bar, format, first: None, line: None }
    }

    fn count(&mut self, left: u64) {
        let first = *self.first.get_or_insert(left);
        self.bar.set_length(first.max(left));
        self.bar.set_position(first.max(left) - left);
    }

    fn tell(&mut self, text: &str) {
        self.bar.set_message(text.to_owned());
        let is_due = self.line.as_ref().is_none_or(|(at, _)| at.elapsed() >= LINE_EVERY);
        let is_new = self.line.as_ref().is_none_or(|(_, before)| before != text);
        if self.format == Format::Table && self.bar.is_hidden() && is_due && is_new {
            eprintln!("{text}");
            self.line = Some((Instant::now(), text.to_owned()));
        }
    }

    fn end(&self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use crate::node::NodeCommand;
    use clap::Parser;

    fn parsed(line: &[&str]) -> Result<DrainArguments, clap::Error> {
        let line = [&["ringctl", "node", "drain"], line].concat();
        let parsed = Cli::try_parse_from(line)?.command;
        let Command::Node(NodeCommand::Drain(arguments)) = parsed else {
            panic!("another command")
        };
        Ok(arguments)
    }

    #[test]
    fn a_deadline_may_be_nothing_at_all_but_not_beside_waiting_for_ever() {
        let time = |line: &[&str]| parsed(line).unwrap().closing.drain().time;
        assert_eq!(time(&["n1"]), None);
        assert_eq!(time(&["n1", "--deadline", "0s"]), Some(Time::WithinMs(0)));
        assert_eq!(time(&["n1", "--deadline", "5m"]), Some(Time::WithinMs(300_000)));
        assert_eq!(time(&["n1", "--wait-for-sessions"]), Some(Time::Unlimited(true)));
        assert_eq!(time(&["n1", "--force"]), Some(Time::Force(true)));
        assert!(parsed(&["n1", "--deadline", "5m", "--force"]).is_err());
        assert!(parsed(&["n1", "--deadline", "5"]).is_err());
        assert!(parsed(&["n1", "--deadline", "5m", "--wait-for-sessions"]).is_err());
        assert!(parsed(&[]).is_err());
    }

    #[test]
    fn what_came_of_a_drain_is_told_with_the_way_back() {
        let mut done = Drained {
            node: "n1".to_owned(),
            state: "DRAINING".to_owned(),
            changed: true,
            closes_at_ms: Some(5),
            empty: Some(true),
            sessions: Some(3),
            waits_for: Vec::new(),
            seconds: 1.25,
        };
        assert!(told(&done).contains("empty after 1.2 s (3 sessions ended)"), "{}", told(&done));
        assert!(told(&done).contains("`ringctl node uncordon n1`"));
        done.empty = Some(false);
        assert!(told(&done).contains("is DRAINING (3 sessions there): nothing"), "{}", told(&done));
        done.waits_for = vec!["match".to_owned()];
        let text = told(&done);
        assert!(text.contains("sessions of match are waited for"), "{text}");
        (done.state, done.empty) = ("LOST".to_owned(), Some(true));
        assert!(told(&done).contains("is LOST, and no session"));
        (done.sessions, done.closes_at_ms, done.empty) = (None, None, None);
        assert!(told(&done).contains("is LOST: ") && told(&done).contains("nothing is closed"));
        done.state = "READY".to_owned();
        assert!(told(&done).contains("is READY: the drain was taken back"), "{}", told(&done));
    }
}
