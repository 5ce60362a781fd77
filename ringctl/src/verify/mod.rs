//! Proves on a live cluster that everything is as it should be: `ringctl verify`.
//!
//! ```text
//!   managers ── Inspect ──▶ [`ring`]: owners, copies, digests ──┐
//!   owners ── Placements ─┐                                     ├──▶ what persists ──▶ Report
//!   nodes ── Live ────────┴▶ [`session_counts`]: what runs ─────────────┘
//! ```
//! The cluster moves while it is asked. What looks wrong is asked again, round after round, and only
//! what is found in several rounds one after the other is told as a violation. [`repair`] has it put right. [`account`] is one look at
//! sessions of which it is known that nobody closes them, for `ringctl bench failover`.

mod account;
mod finding;
mod repair;
mod ring;
mod session_counts;
mod waiting;

use crate::connect;
use crate::failure::Reported;
use crate::inspect::{self, Answers, newest_view};
use crate::length_of_time::length_of_time;
use crate::output::{Format, Out, counted};
pub use account::{Account, account};
use anyhow::Context;
use clap::Args;
use finding::{Finding, Findings, Kind};
use repair::{Mender, Repaired};
use ring::Digests;
use rota_client::{Client, v1};
use rota_model::{ManagerNumber, ManagerStatus};
use rota_ring::{ManagerEntry, View};
use serde::Serialize;
pub use session_counts::Key;
use session_counts::{Node, Part, SessionCounts};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Rounds in which something must be found before it is told as a violation.
const ROUNDS: u32 = 4;

/// Between two rounds: longer than a heartbeat, a commit, and the news of a node's session.
const ROUND_EVERY: Duration = Duration::from_millis(700);

/// Most findings that are told to people; JSON has all.
const TOLD_MAX: usize = 50;

/// `verify`.
#[derive(Args, Debug)]
pub struct VerifyArguments {
    /// How long it may take until everything stands still long enough to be judged.
    #[arg(long, default_value = "60s", value_parser = length_of_time)]
    timeout: Duration,
    /// How long one manager or node may take to answer before it is told as silent.
    #[arg(long, default_value = "5s", value_parser = length_of_time)]
    wait: Duration,
    /// Have the owners of sessions put right what is found: what runs and should not is ended, what does not run and
    /// should is written off. Then everything is looked at once more.
    #[arg(long)]
    repair: bool,
    /// With --repair: say what would be done, and change nothing.
    #[arg(long, requires = "repair")]
    dry_run: bool,
}

/// Who did not answer.
#[derive(Serialize, PartialEq, Debug)]
struct Silent {
    /// manager or node.
    kind: &'static str,
    /// The manager's number, or the node's id.
    name: String,
    /// ACTIVE, DOWN, READY, ...
    state: String,
    why: String,
}

/// What was proved and what was not. The JSON document of `ringctl verify`.
#[derive(Serialize, PartialEq, Debug)]
pub struct Report {
    /// Everything was asked, everything holds.
    ok: bool,
    cluster: String,
    epoch: u64,
    /// Partitions with one owner, the wanted copies and no others, and equal digests.
    partitions: usize,
    /// READY sessions that run exactly once.
    sessions: u64,
    /// READY sessions of nodes that did not answer, and whatever changed at each look.
    sessions_unproved: u64,
    /// Sessions that wait for a node, by pool, as the owners that answered say. They run nowhere yet.
    sessions_waiting: BTreeMap<String, u64>,
    /// Managers that answered.
    managers: usize,
    /// Nodes that answered.
    nodes: usize,
    violations: Vec<Finding>,
    /// What changed so often that it could not be judged, or could not be compared.
    unproved: Vec<Finding>,
    unanswered: Vec<Silent>,
    /// Managers that do not reach the config store, by their names. By itself that violates nothing.
    without_config_store: Vec<String>,
    /// What may be behind the violations.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<&'static str>,
    rounds: u32,
    seconds: f64,
    /// Partitions of which the owner did not tell its sessions.
    #[serde(skip)]
    uncounted: BTreeSet<u32>,
}

/// Verifies the cluster. Fails with [`Reported`] unless everything was proved.
pub async fn run(it: &VerifyArguments, endpoint: &str, out: &mut Out) -> anyhow::Result<()> {
    let client = connect::client(endpoint, out.format())?;
    let answers = connect::told(endpoint, inspect::ask(&client, it.wait)).await?;
    let report = Verifier::new(&client, it.wait, it.timeout, answers)?.verify().await?;
    if it.repair {
        return repair(it, &client, report, out).await;
    }
    match out.format() {
        Format::Json => out.json(&report)?,
        Format::Table => out.text(&told(&report))?,
    }
    if report.ok { Ok(()) } else { Err(Reported("not everything was proved").into()) }
}

/// Has what was found put right, and looks once more.
async fn repair(
    it: &VerifyArguments,
    client: &Client,
    report: Report,
    out: &mut Out,
) -> anyhow::Result<()> {
    let (client, dry_run) = (client.clone(), it.dry_run);
    let mender = Mender { client: client.clone(), dry_run, until: Instant::now() + it.timeout };
    let repairs = mender.mend_all(&report.violations).await;
    let repaired = if dry_run || repairs.is_empty() {
        Repaired::of_one_look(repairs, report, dry_run)
    } else {
        let answers = inspect::ask(&client, it.wait).await.context("for the second look")?;
        let second = Verifier::new(&client, it.wait, it.timeout, answers)?.verify().await?;
        Repaired::after(repairs, second)
    };
    match out.format() {
        Format::Json => out.json(&repaired)?,
        Format::Table => out.text(&repaired.told())?,
    }
    if repaired.is_ok() { Ok(()) } else { Err(Reported("not everything was proved").into()) }
}

/// Proves the same within `timeout`, for a bench. Fails with what was not proved.
pub async fn prove(client: &Client, wait: Duration, timeout: Duration) -> anyhow::Result<()> {
    let answers = inspect::ask(client, wait).await?;
    let report = Verifier::new(client, wait, timeout, answers)?.verify().await?;
    anyhow::ensure!(report.ok, "{}", told(&report).trim_end());
    Ok(())
}

/// The work of one command.
struct Verifier<'a> {
    client: &'a Client,
    wait: Duration,
    began: Instant,
    until: Instant,
    /// What managers said last.
    answers: Answers,
    digests: Digests,
    findings: Findings,
    /// Sessions that are asked again, by partition.
    suspects: BTreeMap<u32, BTreeSet<Key>>,
    /// Nodes that did not answer, and why.
    silent_nodes: BTreeMap<String, String>,
    /// Partitions of which the owner did not tell its sessions.
    uncounted: BTreeSet<u32>,
    proved: u64,
    unproved: u64,
    /// Suspects that changed whenever they were looked at.
    moving: u64,
    rounds: u32,
}

fn view_of(answers: &Answers) -> anyhow::Result<View> {
    let view = newest_view(answers).context("no manager has a View yet")?;
    View::try_from(view.clone()).context("a manager's View cannot be read")
}

/// The registry, as whoever knows most of it says: each node by its newest entry. Of one boot those tell most who
/// have the newest View: who does without the config store knows of no verdict.
fn registry(answers: &Answers) -> BTreeMap<String, v1::NodeStats> {
    let mut nodes: BTreeMap<String, v1::NodeStats> = BTreeMap::new();
    let mut told: Vec<_> = answers.values().filter_map(|it| it.as_ref().ok()).collect();
    told.sort_by_key(|it| it.view.as_ref().map(|view| view.epoch));
    for node in told.into_iter().flat_map(|it| &it.nodes) {
        let newer = nodes.get(&node.id).is_none_or(|before| before.boot <= node.boot);
        if newer {
            nodes.insert(node.id.clone(), node.clone());
        }
    }
    nodes
}

fn is_gone(node: &v1::NodeStats) -> bool {
    matches!(node.state.as_str(), "LOST" | "REMOVED")
}

/// Asks the owners and the nodes of which these answers tell.
fn session_counts<'a>(
    client: &'a Client,
    wait: Duration,
    answers: &Answers,
) -> anyhow::Result<SessionCounts<'a>> {
    let node = |node: v1::NodeStats| {
        let gone = is_gone(&node);
        Node { id: node.id, address: node.address, boot: node.boot, gone }
    };
    // What signed off had nothing left; what was declared lost may run all the same.
    let nodes = registry(answers).into_values().filter(|it| it.state != "REMOVED");
    Ok(SessionCounts {
        client,
        cluster: view_of(answers)?.cluster.as_str().to_owned(),
        wait,
        nodes: nodes.map(node).collect(),
        silent: BTreeMap::new(),
    })
}

/// The partitions and where their owners serve.
fn parts(view: &View) -> Vec<Part> {
    let part = |(number, part): (&ManagerNumber, &rota_ring::PartitionEntry)| {
        let owner = view.managers.get(&part.owner)?.grpc.clone();
        Some(Part { number: number.0, first_slot: view.range(*number).first.0, owner })
    };
    view.parts.iter().filter_map(part).collect()
}

impl<'a> Verifier<'a> {
    fn new(
        client: &'a Client,
        wait: Duration,
        timeout: Duration,
        answers: Answers,
    ) -> anyhow::Result<Self> {
        view_of(&answers)?;
        let began = Instant::now();
        Ok(Self {
            client,
            wait,
            began,
            until: began + timeout,
            answers,
            digests: Digests::default(),
            findings: Findings::default(),
            suspects: BTreeMap::new(),
            silent_nodes: BTreeMap::new(),
            uncounted: BTreeSet::new(),
            proved: 0,
            unproved: 0,
            moving: 0,
            rounds: 0,
        })
    }

    async fn verify(mut self) -> anyhow::Result<Report> {
        self.count_all().await?;
        let mut sessions = Vec::new();
        loop {
            self.rounds += 1;
            self.digests.take(&self.answers);
            let view = view_of(&self.answers)?;
            let mut found = ring::check(&view, &self.answers, &self.digests);
            let wrong: BTreeSet<Key> = sessions.iter().filter_map(Finding::session).collect();
            found.append(&mut sessions);
            self.findings.on_round(found);
            // What is neither cleared nor found wrong is asked again.
            let suspects = self.suspects.values().flatten();
            self.moving = suspects.filter(|it| !wrong.contains(it)).count() as u64;
            let judged = self.moving == 0 && self.findings.are_settled(ROUNDS);
            if judged || Instant::now() >= self.until {
                return self.report(&view);
            }
            tokio::time::sleep(ROUND_EVERY).await;
            if let Ok(answers) = inspect::ask(self.client, self.wait).await {
                self.answers = answers;
            }
            sessions = self.look_again().await?;
        }
    }

    fn session_counts(&self) -> anyhow::Result<SessionCounts<'a>> {
        let silent = self.silent_nodes.clone();
        Ok(SessionCounts { silent, ..session_counts(self.client, self.wait, &self.answers)? })
    }

    fn parts(&self) -> anyhow::Result<Vec<Part>> {
        Ok(parts(&view_of(&self.answers)?))
    }

    /// Looks at every session once.
    async fn count_all(&mut self) -> anyhow::Result<()> {
        let mut session_counts = self.session_counts()?;
        for part in self.parts()? {
            self.count(&mut session_counts, &part).await;
        }
        self.silent_nodes = session_counts.silent;
        Ok(())
    }

    async fn count(&mut self, session_counts: &mut SessionCounts<'_>, part: &Part) {
        match session_counts.count(part).await {
            Ok(counted) if !counted.overflow => {
                self.uncounted.remove(&part.number);
                self.proved += counted.proved;
                self.unproved += counted.unproved;
                self.suspects.insert(part.number, counted.suspects);
            }
            // Most of what it runs is wrong, or it could not be asked: from the start next time.
            Ok(counted) => {
                self.uncounted.insert(part.number);
                self.suspects.insert(part.number, counted.suspects);
            }
            Err(error) => {
                tracing::debug!(part = part.number, %error, "its sessions are not told");
                self.uncounted.insert(part.number);
            }
        }
    }

    /// Looks again at what looked wrong, and at whole partitions of which the owner did not tell.
    async fn look_again(&mut self) -> anyhow::Result<Vec<Finding>> {
        let mut session_counts = self.session_counts()?;
        let mut found = Vec::new();
        for part in self.parts()? {
            if self.uncounted.contains(&part.number) {
                self.count(&mut session_counts, &part).await;
            }
            let keys: Vec<Key> =
                self.suspects.get(&part.number).into_iter().flatten().cloned().collect();
            if keys.is_empty() {
                continue;
            }
            let Ok(again) = session_counts.look_again(&part, &keys).await else { continue };
            if !self.uncounted.contains(&part.number) {
                self.proved += again.proved(|node| session_counts.silent.contains_key(node));
            }
            let suspects = self.suspects.entry(part.number).or_default();
            suspects.retain(|key| !again.cleared.contains_key(key));
            found.extend(again.found);
        }
        self.silent_nodes = session_counts.silent;
        Ok(found)
    }

    fn report(self, view: &View) -> anyhow::Result<Report> {
        let (settled, unsettled) = self.findings.split(ROUNDS);
        let (violations, uncompared): (Vec<_>, Vec<_>) =
            settled.into_iter().partition(|it| it.kind.is_violation());
        let unproved: Vec<Finding> = unsettled.into_iter().chain(uncompared).collect();
        let touched: BTreeSet<u32> = violations
            .iter()
            .chain(&unproved)
            .filter(|it| it.id.is_none())
            .filter_map(|it| it.partition)
            .collect();
        let unanswered = unanswered(view, &self.answers, &self.silent_nodes);
        let is_silent =
            |number: &ManagerNumber| !matches!(self.answers.get(&number.0), Some(Ok(_)));
        let proved = view.parts.iter().filter(|(number, part)| {
            let asked = part.isr.iter().all(|it| !is_silent(&it.number));
            asked && !touched.contains(&number.0) && !self.uncounted.contains(&number.0)
        });
        let partitions = proved.count();
        let all = registry(&self.answers);
        let there =
            all.values().filter(|it| !is_gone(it) && !self.silent_nodes.contains_key(&it.id));
        let ok = violations.is_empty()
            && unproved.is_empty()
            && unanswered.is_empty()
            && self.uncounted.is_empty()
            && self.unproved + self.moving == 0
            && partitions == view.parts.len();
        let without_config_store = without_config_store(view, &self.answers);
        let managers = answering(view, &self.answers).count();
        let hint = hint(&violations, &without_config_store, managers);
        Ok(Report {
            ok,
            cluster: view.cluster.as_str().to_owned(),
            epoch: view.epoch.0,
            partitions,
            sessions: self.proved,
            sessions_unproved: self.unproved + self.moving,
            sessions_waiting: waiting::count(view, &self.answers),
            managers,
            nodes: there.count(),
            violations,
            unproved,
            unanswered,
            without_config_store,
            hint,
            rounds: self.rounds,
            seconds: self.began.elapsed().as_secs_f64(),
            uncounted: self.uncounted,
        })
    }
}

/// Members of the ring, each with its answer.
fn answering<'a>(
    view: &'a View,
    answers: &'a Answers,
) -> impl Iterator<Item = (&'a ManagerEntry, &'a v1::InspectResponse)> {
    let answer = |number: &ManagerNumber| answers.get(&number.0)?.as_ref().ok();
    view.managers.iter().filter_map(move |(number, it)| Some((it, answer(number)?)))
}

/// The names of managers that do not reach the config store.
fn without_config_store(view: &View, answers: &Answers) -> Vec<String> {
    let away = answering(view, answers).filter(|(_, it)| !it.config_store_error.is_empty());
    away.map(|(entry, _)| entry.id.as_str().to_owned()).collect()
}

/// When every manager is without the config store, nobody takes the place of one that is gone, and the nodes
/// that it judged get no leases.
fn hint(
    violations: &[Finding],
    without_config_store: &[String],
    managers: usize,
) -> Option<&'static str> {
    let ended = violations.iter().any(|it| it.kind == Kind::NotRunning);
    let all_away = managers > 0 && without_config_store.len() == managers;
    (ended && all_away).then_some(
        "a node ends what it runs when nobody renews its leases, and nobody takes the place of the manager \
         that did so while the config store is away: start the config store again",
    )
}

/// Managers and nodes that did not answer. Who never started, or has left, is nobody.
fn unanswered(
    view: &View,
    answers: &Answers,
    silent_nodes: &BTreeMap<String, String>,
) -> Vec<Silent> {
    let managers = view.managers.iter().filter(|(_, entry)| match entry.status {
        ManagerStatus::Left | ManagerStatus::Joining => false,
        ManagerStatus::Active
        | ManagerStatus::Syncing
        | ManagerStatus::Leaving
        | ManagerStatus::Down => true,
    });
    let managers = managers.filter_map(|(number, entry)| {
        let why = match answers.get(&number.0) {
            Some(Ok(_)) => return None,
            Some(Err(why)) => why.clone(),
            None => "it was not asked: it is new in a View that came meanwhile".to_owned(),
        };
        let state = entry.status.as_str().to_owned();
        Some(Silent { kind: "manager", name: number.to_string(), state, why })
    });
    let known = registry(answers);
    let nodes = silent_nodes.iter().filter_map(|(id, why)| {
        let state = known.get(id).filter(|it| !is_gone(it))?.state.clone();
        Some(Silent { kind: "node", name: id.clone(), state, why: why.clone() })
    });
    managers.chain(nodes).collect()
}

fn told(report: &Report) -> String {
    let Report { partitions, sessions, nodes, rounds, seconds, .. } = report;
    let mut text = String::new();
    for (what, them) in [("violated", &report.violations), ("not proved", &report.unproved)] {
        for finding in them.iter().take(TOLD_MAX) {
            text.push_str(&format!("{what}: {}\n", finding.text));
        }
        if them.len() > TOLD_MAX {
            text.push_str(&format!("{what}: {} more, see -o json\n", them.len() - TOLD_MAX));
        }
    }
    for Silent { kind, name, state, why } in &report.unanswered {
        text.push_str(&format!("not proved: {kind} {name} ({state}) does not answer: {why}\n"));
    }
    if report.sessions_unproved > 0 {
        let count = counted(report.sessions_unproved, "session");
        text.push_str(&format!(
            "not proved: {count}, which changed at each look or are on nodes that do not answer\n"
        ));
    }
    text.push_str(&waiting::told(&report.sessions_waiting));
    if let Some(away) = inspect::without_config_store(&report.without_config_store, report.managers)
    {
        text.push_str(&format!("{away}\n"));
    }
    if let Some(hint) = report.hint {
        text.push_str(&format!("hint: {hint}\n"));
    }
    let verdict = match (report.ok, report.violations.is_empty()) {
        (true, _) => "everything holds",
        (false, true) => "nothing is violated, but not everything could be proved",
        (false, false) => "not everything holds",
    };
    text.push_str(&format!(
        "{verdict}: cluster {}, epoch {}, {} with one owner and equal copies, {}, and {}{} \
         exactly once ({}, {seconds:.1} s)\n",
        report.cluster,
        report.epoch,
        counted(*partitions as u64, "partition"),
        counted(*nodes as u64, "node"),
        counted(*sessions, "session"),
        if *sessions == 1 { " that runs" } else { ", each of which runs" },
        counted((*rounds).into(), "round"),
    ));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn report() -> Report {
        Report {
            ok: true,
            cluster: "c".to_owned(),
            epoch: 4,
            partitions: 3,
            sessions: 1,
            sessions_unproved: 0,
            sessions_waiting: BTreeMap::new(),
            managers: 3,
            nodes: 2,
            violations: Vec::new(),
            unproved: Vec::new(),
            unanswered: Vec::new(),
            without_config_store: Vec::new(),
            hint: None,
            rounds: 1,
            seconds: 0.25,
            uncounted: BTreeSet::new(),
        }
    }

    #[test]
    fn what_was_proved_is_told_in_one_sentence() {
        let text = told(&report());
        assert_eq!(text.lines().count(), 1);
        for part in ["everything holds", "3 partitions", "1 session that runs", "2 nodes"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn who_does_without_the_config_store_is_told_beside_what_holds() {
        let told_without = |away: &[&str]| {
            let without_config_store = away.iter().map(|it| (*it).to_owned()).collect();
            told(&Report { without_config_store, ..report() })
        };
        let text = told_without(&["m1", "m3"]);
        assert!(
            text.starts_with("without the config store: m1, m3; the others have it. "),
            "{text}"
        );
        assert!(text.contains("\neverything holds: "), "{text}");
        let text = told_without(&["m1", "m2", "m3"]);
        assert!(text.starts_with("without the config store: m1, m2, m3. "), "{text}");
        assert!(text.contains("nobody takes over"), "{text}");
    }

    #[test]
    fn sessions_that_ended_for_want_of_leases_are_told_with_a_hint_at_the_config_store() {
        let of = |kind| vec![Finding::new(kind, "it".to_owned())];
        let away = ["m1".to_owned()];
        assert_eq!(hint(&of(Kind::NotRunning), &[], 1), None);
        assert_eq!(hint(&of(Kind::RunsTwice), &away, 1), None);
        assert_eq!(hint(&of(Kind::NotRunning), &away, 2), None, "the other takes over");
        let violations = of(Kind::NotRunning);
        let hint = hint(&violations, &away, 1);
        let report = Report { ok: false, violations, hint, ..report() };
        assert!(told(&report).contains("\nhint: a node ends what it runs"), "{}", told(&report));
    }

    #[test]
    fn each_violation_and_whoever_is_silent_has_a_line() {
        let mut report = Report { ok: false, ..report() };
        report.violations = (0..60)
            .map(|it| Finding::of_partition(Kind::NoOwner, it, None, format!("partition {it}")))
            .collect();
        let state = "DOWN".to_owned();
        let (kind, name, why) = ("manager", "7".to_owned(), "refused".to_owned());
        report.unanswered = vec![Silent { kind, name, state, why }];
        let text = told(&report);
        assert!(text.contains("violated: partition 49\n") && !text.contains("partition 50\n"));
        assert!(
            text.contains("10 more") && text.contains("manager 7 (DOWN) does not answer: refused")
        );
        assert!(text.contains("not everything holds"));
        report.violations.clear();
        assert!(
            told(&report).contains("nothing is violated, but not everything could be proved: ")
        );
    }
}
