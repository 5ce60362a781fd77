//! `ringctl content rollout`: how far nodes are, and an end for sessions that run with older versions, one node after
//! the other.
//!
//! ```text
//!   each node, by name: has its target? ── no ──▶ told, and left alone
//!                         └─ yes ─▶ closes what may be closed, each by its life ─▶ looks until it is gone ─▶ next node
//! ```

use super::RolloutArguments;
use super::status::{Asked, Failures, Older, Shown, UNKNOWN, all};
use crate::failure::{Reported, UsageMistake};
use crate::output::{Format, Out, counted, plain_table};
use rota_client::documents::Namespaces;
use rota_client::{Client, v1};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// Sessions that are closed at once.
const CLOSED_AT_ONCE_MAX: usize = 8;
/// Between two looks while something is waited for.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// One life of a session.
type Life = (String, String, u64);

fn life_of(it: &Older) -> Life {
    (it.namespace.clone(), it.id.clone(), it.life)
}

/// What became of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum Fate {
    /// It was closed, and its node says that it is gone.
    Closed,
    /// It would be closed.
    Closes,
    /// Its class says `disturb = "never"`.
    Left,
    /// It runs on although it was to be closed.
    Failed,
}

/// A session that ran with an older version.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
struct Session {
    namespace: String,
    id: String,
    life: u64,
    class: String,
    commit: String,
    fate: Fate,
    #[serde(skip_serializing_if = "String::is_empty")]
    why: String,
}

impl Session {
    fn of(it: &Older, fate: Fate, why: &str) -> Self {
        Self {
            namespace: it.namespace.clone(),
            id: it.id.clone(),
            life: it.life,
            class: it.class.clone(),
            commit: it.commit.clone(),
            fate,
            why: why.to_owned(),
        }
    }
}

/// What came of a node.
#[derive(PartialEq, Eq, Debug, Serialize)]
struct Node {
    node: String,
    pool: String,
    /// As in `content status`.
    state: String,
    commit: String,
    target: String,
    /// Whether it has its target.
    #[serde(skip)]
    is_current: bool,
    /// Sessions that run with older versions at the end.
    older: u64,
    failure: String,
    sessions: Vec<Session>,
}

impl Node {
    fn of(it: &Shown) -> Self {
        Self {
            node: it.node.clone(),
            pool: it.pool.clone(),
            state: it.state.clone(),
            commit: it.commit.clone(),
            target: it.target.clone(),
            is_current: it.is_there(),
            older: it.sessions_older,
            failure: it.failure.clone(),
            sessions: Vec::new(),
        }
    }

    fn count(&self, fate: Fate) -> usize {
        self.sessions.iter().filter(|it| it.fate == fate).count()
    }
}

/// All of it.
#[derive(PartialEq, Eq, Debug, Serialize)]
struct Rollout {
    restart: bool,
    dry_run: bool,
    /// Nodes that have the commit that they should have, and all whose pool follows something.
    current: usize,
    of: usize,
    closed: usize,
    left: usize,
    failed: usize,
    nodes: Vec<Node>,
}

impl Rollout {
    fn of(it: &RolloutArguments, nodes: Vec<Node>) -> Self {
        let count = |fate| nodes.iter().map(|it: &Node| it.count(fate)).sum();
        let following = nodes.iter().filter(|it| !it.target.is_empty());
        Self {
            restart: it.closes(),
            dry_run: it.dry_run,
            current: following.clone().filter(|it| it.is_current).count(),
            of: following.count(),
            closed: count(Fate::Closed),
            left: count(Fate::Left),
            failed: count(Fate::Failed),
            nodes,
        }
    }

    /// What is not as it was asked for.
    fn shortage(&self, waits: bool) -> Option<&'static str> {
        let Self { restart, dry_run, current, of, left, failed, .. } = self;
        if *failed > 0 {
            return Some("some sessions were to be closed and run on");
        }
        if current < of && ((*restart && !dry_run) || waits) {
            return Some("some nodes have not the commit that they should have");
        }
        (waits && !dry_run && *left > 0).then_some("some sessions run with older versions")
    }
}

/// Shows how far nodes are; closes sessions of older versions if that is asked for. Where that fails midway, what was
/// done so far is shown all the same.
pub async fn rollout(client: &Client, it: &RolloutArguments, out: &mut Out) -> anyhow::Result<()> {
    let until = it.wait.map(|wait| Instant::now() + wait);
    let operator = client.namespaces().with_admin_key(&it.admin_key.get()?);
    let operator = operator.map_err(|mistake| UsageMistake(mistake.to_string()))?;
    let shown = following(client, it, until, out).await?;
    let mut nodes: Vec<Node> = shown.iter().map(Node::of).collect();
    let ended = carry_out((client, &operator), it, until, &mut nodes, out).await;
    let done = Rollout::of(it, nodes);
    show(&done, it, out)?;
    ended?;
    match done.shortage(it.wait.is_some()) {
        Some(shortage) => Err(Reported(shortage).into()),
        None => Ok(()),
    }
}

/// Goes from node to node, and waits for what is left if that is asked for.
async fn carry_out(
    (client, operator): (&Client, &Namespaces),
    it: &RolloutArguments,
    until: Option<Instant>,
    nodes: &mut [Node],
    out: &Out,
) -> anyhow::Result<()> {
    let may_restart = |node: &&mut Node| it.closes() && !node.target.is_empty() && node.is_current;
    for node in nodes.iter_mut().filter(may_restart) {
        let mut fates = BTreeMap::new();
        let ended = restart((client, operator), it, node, &mut fates, out).await;
        node.sessions.extend(fates.into_values());
        ended?;
    }
    let Some(until) = until.filter(|_| it.restart && !it.dry_run) else { return Ok(()) };
    let left = |nodes: &[Node]| nodes.iter().any(|it| it.count(Fate::Left) > 0);
    while left(nodes) && Instant::now() < until {
        sleep(LOOK_EVERY).await;
        for node in nodes.iter_mut() {
            leave(client, it, node).await?;
        }
    }
    Ok(())
}

/// The nodes, sorted by name. Waits until all have what they should have, or until then.
async fn following(
    client: &Client,
    it: &RolloutArguments,
    until: Option<Instant>,
    out: &Out,
) -> anyhow::Result<Vec<Shown>> {
    let (pool, timeout) = (it.pool.as_ref(), it.timeout);
    let asked = Asked { pool, node: None, sessions: false, silent: false, timeout };
    let (mut told, mut failures) = (None, Failures::default());
    loop {
        let nodes = all(client, &asked).await?;
        if until.is_some() {
            failures.tell(&nodes);
        }
        // Nodes whose pool follows nothing are no part of it.
        let current = nodes.iter().filter(|it| it.target.is_empty() || it.is_there()).count();
        let is_over = until.is_none_or(|until| Instant::now() >= until);
        if current == nodes.len() || is_over {
            return Ok(nodes);
        }
        if told != Some(current) {
            say(out, &format!("current: {current} of {}", counted_nodes(nodes.len())));
            told = Some(current);
        }
        sleep(LOOK_EVERY).await;
    }
}

fn counted_nodes(count: usize) -> String {
    counted(u64::try_from(count).unwrap_or(u64::MAX), "node")
}

/// Progress: nothing beside an error document.
fn say(out: &Out, text: &str) {
    if out.format() == Format::Table {
        eprintln!("{text}");
    }
}

/// The node as it stands, with the sessions that it names; `None`: it has gone.
async fn look(client: &Client, it: &RolloutArguments, node: &str) -> anyhow::Result<Option<Shown>> {
    let (node, timeout) = (Some(node), it.timeout);
    let asked = Asked { pool: None, node, sessions: true, silent: false, timeout };
    Ok(all(client, &asked).await?.into_iter().next())
}

/// Closes what runs with older versions on a node that has its target. `fates`: what was closed, or could not be.
async fn restart(
    (client, operator): (&Client, &Namespaces),
    it: &RolloutArguments,
    done: &mut Node,
    fates: &mut BTreeMap<Life, Session>,
    out: &Out,
) -> anyhow::Result<()> {
    while let Some(now) = look(client, it, &done.node).await? {
        *done = Node::of(&now);
        let is_new = |older: &&Older| !fates.contains_key(&life_of(older));
        let (spared, closes): (Vec<&Older>, Vec<&Older>) = now
            .older
            .iter()
            .filter(is_new)
            .partition(|older| !it.force && now.spares(&older.class));
        let because = |older: &Older| match now.spared.contains(&older.class) {
            true => "its class says disturb = \"never\"",
            false => "the node has its class no more, so nobody knows whether it may be disturbed",
        };
        done.sessions = spared.iter().map(|it| Session::of(it, Fate::Left, because(it))).collect();
        if it.dry_run {
            done.sessions.extend(closes.iter().map(|it| Session::of(it, Fate::Closes, "")));
            break;
        }
        // It may have got another target meanwhile.
        if !now.is_there() {
            break;
        }
        if closes.is_empty() {
            done.sessions.extend(unnamed(&now));
            break;
        }
        let count = u64::try_from(closes.len())?;
        say(out, &format!("node {}: closing {}", now.node, counted(count, "session")));
        let closed = close((client, operator), it, &closes).await;
        // More are named once these are gone.
        match gone(client, it, &now.node, &closed).await {
            Ok(gone) => fates.extend(gone),
            Err(error) => {
                fates.extend(closed.into_iter().map(unsure));
                return Err(error);
            }
        }
    }
    Ok(())
}

/// A session that was told to end when nothing more could be learned.
fn unsure((session, why): (Session, Option<String>)) -> (Life, Session) {
    let why = why.unwrap_or_else(|| "it was told to end, and may end yet".to_owned());
    let life = (session.namespace.clone(), session.id.clone(), session.life);
    (life, Session { fate: Fate::Failed, why, ..session })
}

/// What a node has beyond the sessions that it names, none of which can be closed.
fn unnamed(now: &Shown) -> Option<Session> {
    let named = u64::try_from(now.older.len()).unwrap_or(u64::MAX);
    let more = now.sessions_older.saturating_sub(named);
    let why = format!("{} more that the node does not name", counted(more, "session"));
    let nobody = Older::default();
    (more > 0).then(|| Session::of(&nobody, Fate::Failed, &why))
}

/// Closes sessions, some at once. Gives each that was asked to end, with why that failed.
async fn close(
    (client, operator): (&Client, &Namespaces),
    it: &RolloutArguments,
    closes: &[&Older],
) -> Vec<(Session, Option<String>)> {
    let places = Arc::new(Semaphore::new(CLOSED_AT_ONCE_MAX));
    let mut closing = JoinSet::new();
    for older in closes {
        let (operator, places, wait) = (operator.clone(), places.clone(), it.timeout);
        let session = Session::of(older, Fate::Closed, "");
        let request = v1::CloseRequest {
            namespace: session.namespace.clone(),
            id: session.id.clone(),
            // A later life began with a later version.
            life: session.life,
            request_id: client.request_id(),
            ..Default::default()
        };
        closing.spawn(async move {
            let _place = places.acquire().await;
            // An operator's order: its end says so.
            let why = match operator.close(request, wait).await {
                Ok(_) => None,
                // It has ended, or another life goes on: neither is this one.
                Err(error) if ["NOT_FOUND", "LIFE_MISMATCH"].contains(&error.reason()) => None,
                Err(error) => Some(error.to_string()),
            };
            (session, why)
        });
    }
    let mut closed = Vec::new();
    while let Some(one) = closing.join_next().await {
        closed.extend(one);
    }
    closed
}

/// Waits until the node does not name them any more. What came of each.
async fn gone(
    client: &Client,
    it: &RolloutArguments,
    node: &str,
    closed: &[(Session, Option<String>)],
) -> anyhow::Result<BTreeMap<Life, Session>> {
    let began = Instant::now();
    let life = |it: &Session| (it.namespace.clone(), it.id.clone(), it.life);
    loop {
        let now = look(client, it, node).await?;
        // Of a node that is silent nothing is known.
        let is_known = now.as_ref().is_none_or(|it| it.state != UNKNOWN);
        let named = now.map(|it| it.older).unwrap_or_default();
        let named: BTreeSet<Life> = named.iter().map(life_of).collect();
        let runs = |session: &Session| !is_known || named.contains(&life(session));
        let waits = closed.iter().any(|(session, why)| why.is_none() && runs(session));
        if !waits || began.elapsed() >= it.timeout {
            let fate = |(session, why): &(Session, Option<String>)| {
                let late = "it has not ended within the time of --timeout".to_owned();
                let why = why.clone().unwrap_or(late);
                let session = session.clone();
                let done = match runs(&session) {
                    true => Session { fate: Fate::Failed, why, ..session },
                    false => session,
                };
                (life(&done), done)
            };
            return Ok(closed.iter().map(fate).collect());
        }
        sleep(LOOK_EVERY).await;
    }
}

/// What was left and has ended meanwhile is named no more.
async fn leave(client: &Client, it: &RolloutArguments, node: &mut Node) -> anyhow::Result<()> {
    if node.count(Fate::Left) == 0 {
        return Ok(());
    }
    let Some(now) = look(client, it, &node.node).await? else {
        // Nothing runs there any more.
        node.older = 0;
        node.sessions.retain(|it| it.fate != Fate::Left);
        return Ok(());
    };
    if now.state == UNKNOWN {
        return Ok(());
    }
    let named: BTreeSet<Life> = now.older.iter().map(life_of).collect();
    node.older = now.sessions_older;
    node.sessions.retain(|session| {
        session.fate != Fate::Left
            || named.contains(&(session.namespace.clone(), session.id.clone(), session.life))
    });
    Ok(())
}

fn show(done: &Rollout, it: &RolloutArguments, out: &mut Out) -> anyhow::Result<()> {
    if out.format() == Format::Json {
        return Ok(out.json(done)?);
    }
    let columns =
        ["NODE", "POOL", "STATE", "COMMIT", "TARGET", "OLDER", "CLOSED", "LEFT", "FAILED"];
    let mut table = plain_table(columns.into_iter().chain(["WHY"]));
    for node in &done.nodes {
        let counts = [Fate::Closed, Fate::Left, Fate::Failed].map(|it| node.count(it).to_string());
        let Node { node, pool, state, commit, target, older, failure, .. } = node;
        let first = [node, pool, state, commit, target].map(Clone::clone);
        let [closed, left, failed] = counts;
        let more = [older.to_string(), closed, left, failed, failure.clone()];
        table.add_row(first.into_iter().chain(more));
    }
    out.table(&table)?;
    let named = |it: &&Session| it.fate != Fate::Closed;
    if done.nodes.iter().any(|it| it.sessions.iter().any(|it| named(&it))) {
        let mut table = plain_table(["NODE", "NAMESPACE", "ID", "CLASS", "COMMIT", "WHAT", "WHY"]);
        for node in &done.nodes {
            for session in node.sessions.iter().filter(named) {
                let Session { namespace, id, class, commit, fate, why, .. } = session;
                let what = match fate {
                    Fate::Closed => "closed",
                    Fate::Closes => "would be closed",
                    Fate::Left => "left",
                    Fate::Failed => "failed",
                };
                table.add_row([&node.node, namespace, id, class, commit, what, why]);
            }
        }
        out.text("\n")?;
        out.table(&table)?;
    }
    out.text(&format!("\n{}", told(done, it.force)))?;
    Ok(())
}

/// What came of it, and what to do next.
fn told(done: &Rollout, force: bool) -> String {
    let Rollout { restart, dry_run, current, of, closed, left, failed, .. } = done;
    if *of == 0 {
        return "no pool of these nodes follows content, so nothing is rolled out\n".to_owned();
    }
    let mut text = format!("current: {current} of {}", counted_nodes(*of));
    let closes: usize = done.nodes.iter().map(|it| it.count(Fate::Closes)).sum();
    let sessions = |count: usize| counted(u64::try_from(count).unwrap_or(u64::MAX), "session");
    match (restart, dry_run) {
        (true, false) => text.push_str(&format!("; closed {}", sessions(*closed))),
        (true, true) => text.push_str(&format!("; would close {}", sessions(closes))),
        (false, _) => {}
    }
    if *left > 0 {
        let why = if *left == 1 { "as its row says" } else { "as their rows say" };
        text.push_str(&format!("; {left} left, {why}"));
        if !force {
            text.push_str(", which --force closes, too");
        }
    }
    if *failed > 0 {
        text.push_str(&format!("; {failed} failed"));
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use crate::content::ContentCommand;
    use clap::Parser;

    fn done(counts: (usize, usize), left: usize, failed: usize) -> Rollout {
        Rollout {
            restart: true,
            dry_run: false,
            current: counts.0,
            of: counts.1,
            closed: 2,
            left,
            failed,
            nodes: Vec::new(),
        }
    }

    #[test]
    fn what_came_of_a_rollout_is_told_in_one_line() {
        assert_eq!(told(&done((3, 3), 0, 0), false), "current: 3 of 3 nodes; closed 2 sessions\n");
        let text = told(&done((2, 3), 1, 1), false);
        assert!(text.contains("1 left, as its row says, which --force closes, too; 1 failed"));
        assert!(told(&done((0, 0), 0, 0), false).starts_with("no pool of these nodes follows"));
        let only_shown = Rollout { restart: false, ..done((1, 1), 0, 0) };
        assert_eq!(told(&only_shown, false), "current: 1 of 1 node\n");
        let planned = Rollout { dry_run: true, ..done((1, 1), 0, 0) };
        assert_eq!(told(&planned, false), "current: 1 of 1 node; would close 0 sessions\n");
    }

    #[test]
    fn what_is_left_is_a_failure_only_where_it_is_waited_for() {
        assert_eq!(done((3, 3), 1, 0).shortage(false), None);
        assert!(done((3, 3), 1, 0).shortage(true).is_some());
        assert!(done((3, 3), 0, 1).shortage(false).is_some());
        assert!(done((2, 3), 0, 0).shortage(false).is_some());
        let only_shown = Rollout { restart: false, ..done((2, 3), 0, 0) };
        assert_eq!(only_shown.shortage(false), None);
        assert!(only_shown.shortage(true).is_some());
        let planned = Rollout { dry_run: true, ..done((2, 3), 1, 0) };
        assert_eq!(planned.shortage(false), None);
    }

    #[test]
    fn a_session_of_which_nothing_more_could_be_learned_is_told_as_one_that_may_run() {
        let session = Session::of(&Older { life: 7, ..Older::default() }, Fate::Closed, "");
        let (life, told) = unsure((session.clone(), None));
        assert_eq!((life.2, told.fate), (7, Fate::Failed));
        assert_eq!(told.why, "it was told to end, and may end yet");
        assert_eq!(unsure((session, Some("refused".to_owned()))).1.why, "refused");
    }

    #[test]
    fn a_wait_takes_a_time_or_none_and_a_dry_run_needs_no_restart() {
        let parsed = |line: &str| {
            let line = format!("ringctl content {line}");
            let cli = Cli::try_parse_from(line.split(' ')).ok()?;
            let Command::Content(it) = cli.command else { panic!("another command") };
            Some(it)
        };
        for (line, seconds) in [("--wait 5s", 5), ("--wait=5s", 5), ("--wait", 600)] {
            for line in [format!("rollout {line} --restart"), format!("status {line} --sessions")] {
                let wait = match parsed(&line) {
                    Some(ContentCommand::Rollout(it)) => it.wait,
                    Some(ContentCommand::Status(it)) => it.wait,
                    other => panic!("{other:?}"),
                };
                assert_eq!(wait, Some(Duration::from_secs(seconds)), "{line}");
            }
        }
        let Some(ContentCommand::Rollout(it)) = parsed("rollout --dry-run --force") else {
            panic!("another command")
        };
        assert!(it.closes() && !it.restart);
        assert!(parsed("rollout --force").is_none());
    }

    #[test]
    fn sessions_that_a_node_does_not_name_are_told_with_their_number() {
        let mut now =
            Shown { sessions_older: 1, older: vec![Older::default()], ..Shown::default() };
        assert_eq!(unnamed(&now), None);
        now.sessions_older = 3;
        let told = unnamed(&now).unwrap();
        assert_eq!((told.fate, told.why.starts_with("2 sessions more")), (Fate::Failed, true));
    }
}
