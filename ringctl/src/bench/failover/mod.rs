//! Kills or stops one manager after the other under load, and measures how long it takes until the
//! sessions that it owned are served by the managers that are left.
//!
//! ```text
//!   round: fault ─▶ every session is opened and read again ─▶ account ─▶ heal ─▶ whole ─▶ account
//! ```
//! The account asks owners and nodes: what was acknowledged must be there, and run once. After the last
//! round everything is proved as by `ringctl verify`.

mod detection;
mod round;

use super::load;
use super::pulse::{Background, Beat, Pulse};
use super::report::{cores, ms, rounded};
use super::target;
use crate::dev::{Cluster, Settings, with_cluster};
use crate::output::{Format, Out, counted, plain_table};
use crate::verify;
use anyhow::bail;
use clap::Args;
use round::{Fault, Round};
use serde::Serialize;
use std::collections::BTreeSet;
use std::time::Duration;

/// The load runs so long before the first fault.
const BEFORE_FAULT: Duration = Duration::from_secs(1);
/// The peers' patience when Consul alone is to notice: the longest that managers take.
const PATIENT_MS: u32 = 9_999;
/// How long the proof at the end may take, and one answer for it.
const PROOF_WAIT: Duration = Duration::from_secs(60);
const ANSWER_WAIT: Duration = Duration::from_secs(5);

/// `bench failover`.
#[derive(Args, Debug)]
pub struct FailoverArguments {
    /// Kill the manager (SIGKILL), and start it again from its folder after the round. This is what is
    /// done without --stop.
    #[arg(long, conflicts_with = "stop")]
    kill: bool,
    /// Stop it (SIGSTOP) until it was taken out of the ring, then let it go on (SIGCONT).
    #[arg(long)]
    stop: bool,
    /// How many faults, each at the next manager, when the cluster is whole again.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: u32,
    /// Time between the end of one round and the next fault. Nodes renew their leases every 3 s: with
    /// less, fault after fault may keep them from it until they end their sessions.
    #[arg(long, default_value = "4s", value_parser = crate::length_of_time::length_of_time)]
    pause: Duration,
    /// Take a Consul agent of this cluster's own as the config store.
    #[arg(long)]
    consul: bool,
    /// Let only Consul notice a stopped manager: its peers are patient for longer than Consul's check
    /// takes (--suspect-ms 9999, with leases that last longer still). What is served is then measured from
    /// the moment at which that check turned critical, too.
    #[arg(long, requires = "stop", requires = "consul")]
    signal_alone: bool,
    /// Sessions that must be served again.
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    sessions: u32,
    /// Clients that open sessions in the background, before, during and after.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    concurrency: u32,
    /// Opens a second of all of them.
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: u32,
    /// Managers of the cluster.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(2..=100))]
    managers: u32,
    /// Successors with copies.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=99))]
    replicas: u32,
    /// Nodes of the cluster.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=100))]
    nodes: u32,
    /// Class of the sessions.
    #[arg(long, default_value = "builtin")]
    class: String,
}

/// What happened to one manager.
#[derive(Serialize, Clone, PartialEq, Debug, Default)]
struct Struck {
    number: u32,
    pid: u32,
}

/// One round.
#[derive(Serialize, Clone, PartialEq, Debug, Default)]
struct RoundTimes {
    number: u32,
    /// From the fault until Consul's check was critical, if Consul alone was to notice.
    #[serde(skip_serializing_if = "Option::is_none")]
    detected_ms: Option<f64>,
    /// From the fault until the first of its sessions was opened again.
    first_served_ms: f64,
    /// Until every session was opened and read again, those of others too.
    all_served_ms: f64,
    /// From its restart, or its going on, until the ring was as it was before.
    whole_ms: f64,
}

#[derive(Serialize, PartialEq, Debug, Default)]
struct FailedOver {
    fault: &'static str,
    rounds: u32,
    sessions: u32,
    /// The manager of the last round.
    killed: Struck,
    /// From the fault until the last session was opened and read again, in the slowest round.
    all_served_ms: f64,
    /// From the fault until a session was opened again that the manager owned: all of those, of all
    /// rounds.
    p50_ms: f64,
    p99_ms: f64,
    /// The same from the moment at which Consul's check was critical, if Consul alone was to notice.
    #[serde(skip_serializing_if = "Option::is_none")]
    after_detection_p50_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    after_detection_p99_ms: Option<f64>,
    /// Sessions that were acknowledged and are not there any more, or came back with another life.
    lost: u64,
    /// Sessions with two live instances, by the nodes' own answers.
    duplicates: u64,
    managers: u32,
    replicas: u32,
    nodes: u32,
    consul: bool,
    /// Sessions of owners that were struck, of all rounds: what the percentiles are of.
    measured: u64,
    /// Since the first fault.
    background: Background,
    times: Vec<RoundTimes>,
    cores: usize,
}

/// `bench failover`.
pub async fn run(it: &FailoverArguments, out: &mut Out) -> anyhow::Result<()> {
    let roomy = Settings::roomy(it.managers, it.replicas);
    let settings = Settings {
        nodes: Some(it.nodes),
        consul: it.consul,
        suspect_ms: it.signal_alone.then_some(PATIENT_MS).or(roomy.suspect_ms),
        ..roomy
    };
    let done = with_cluster(&settings, async |cluster| measure(it, cluster).await).await?;
    match out.format() {
        Format::Json => out.json(&done)?,
        Format::Table => show(&done, out)?,
    }
    if done.lost + done.duplicates > 0 {
        bail!(
            "{} lost, {} with two live instances",
            counted(done.lost, "session"),
            counted(done.duplicates, "session")
        );
    }
    Ok(())
}

fn show(done: &FailedOver, out: &mut Out) -> anyhow::Result<()> {
    let header = ["SESSIONS", "ALL SERVED MS", "P50 MS", "P99 MS", "LOST", "DUPLICATES", "ROUNDS"];
    let mut table = plain_table(header);
    table.add_row([
        done.sessions.to_string(),
        format!("{:.1}", done.all_served_ms),
        format!("{:.1}", done.p50_ms),
        format!("{:.1}", done.p99_ms),
        done.lost.to_string(),
        done.duplicates.to_string(),
        done.rounds.to_string(),
    ]);
    out.table(&table)?;
    let Background { opened, failed, longest_gap_ms: gap, .. } = done.background;
    out.text(&format!(
        "\nbackground: {opened} opened, {failed} failed, longest gap {gap:.1} ms\n"
    ))?;
    if let Some((p50, p99)) = done.after_detection_p50_ms.zip(done.after_detection_p99_ms) {
        out.text(&format!(
            "after Consul's check was critical: p50 {p50:.1} ms, p99 {p99:.1} ms\n"
        ))?;
    }
    Ok(())
}

async fn measure(it: &FailoverArguments, cluster: &mut Cluster) -> anyhow::Result<FailedOver> {
    let everyone = target::client(&cluster.document().endpoints(), 2, false)?;
    let ids = target::prepare(&everyone, &it.class, it.sessions).await?;
    let beat = Beat {
        clients: it.concurrency,
        per_second: it.rate,
        class: it.class.clone(),
        reads: Vec::new().into(),
    };
    let pulse = Pulse::start(&everyone, &beat);
    tokio::time::sleep(BEFORE_FAULT).await;
    pulse.restart();
    let bar = load::bar("failover", it.rounds.into());
    let fault = if it.stop { Fault::Stop } else { Fault::Kill };
    let mut rounds = Vec::new();
    for number in 0..it.rounds {
        if number > 0 {
            tokio::time::sleep(it.pause).await;
        }
        let class = &it.class;
        let by_signal = it.signal_alone;
        let round =
            Round { client: &everyone, class, ids: &ids, pulse: &pulse, fault, by_signal, number };
        rounds.push(round.run(cluster).await?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    let (background, _opened) = pulse.stop().await;
    verify::prove(&everyone, ANSWER_WAIT, PROOF_WAIT).await?;
    Ok(FailedOver { background, ..summed(it, fault, &rounds) })
}

#[derive(Clone, Copy)]
struct Percentiles {
    p50_ms: f64,
    p99_ms: f64,
}

fn percentiles(times: impl Iterator<Item = Duration>) -> Option<Percentiles> {
    let mut times: Vec<Duration> = times.collect();
    times.sort_unstable();
    let at = |percent: usize| {
        let index = (times.len() * percent / 100).min(times.len().checked_sub(1)?);
        Some(rounded(ms(*times.get(index)?), 1))
    };
    Some(Percentiles { p50_ms: at(50)?, p99_ms: at(99)? })
}

fn summed(it: &FailoverArguments, fault: Fault, rounds: &[round::Outcome]) -> FailedOver {
    let opened = percentiles(rounds.iter().flat_map(|it| it.opened.iter().copied()));
    let detected = rounds.iter().filter_map(|it| Some((it.detected?, &it.opened)));
    let after =
        percentiles(detected.flat_map(|(detected, opened)| {
            opened.iter().map(move |it| it.saturating_sub(detected))
        }));
    let times = rounds.iter().map(|round| RoundTimes {
        number: round.struck.number,
        detected_ms: round.detected.map(|it| rounded(ms(it), 1)),
        first_served_ms: rounded(ms(round.opened.iter().min().copied().unwrap_or_default()), 1),
        all_served_ms: rounded(ms(round.all), 1),
        whole_ms: rounded(ms(round.whole), 1),
    });
    let all = rounds.iter().map(|it| it.all).max().unwrap_or_default();
    let lost: BTreeSet<_> = rounds.iter().flat_map(|it| &it.lost).collect();
    let twice: BTreeSet<_> = rounds.iter().flat_map(|it| &it.twice).collect();
    FailedOver {
        fault: fault.as_str(),
        rounds: it.rounds,
        sessions: it.sessions,
        killed: rounds.last().map(|it| it.struck.clone()).unwrap_or_default(),
        all_served_ms: rounded(ms(all), 1),
        p50_ms: opened.map_or(0.0, |it| it.p50_ms),
        p99_ms: opened.map_or(0.0, |it| it.p99_ms),
        after_detection_p50_ms: after.map(|it| it.p50_ms),
        after_detection_p99_ms: after.map(|it| it.p99_ms),
        lost: lost.len() as u64,
        duplicates: twice.len() as u64,
        managers: it.managers,
        replicas: it.replicas,
        nodes: it.nodes,
        consul: it.consul,
        measured: rounds.iter().map(|it| it.opened.len() as u64).sum(),
        background: Background::default(),
        times: times.collect(),
        cores: cores(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_summed_session_by_session_and_what_was_lost_twice_counts_once() {
        let key = |id: &str| ("default".to_owned(), id.to_owned());
        let round = |number, times: [u64; 2], lost: &[&str]| round::Outcome {
            struck: Struck { number, pid: 1 },
            detected: (number == 7).then_some(Duration::from_millis(25)),
            opened: times.map(Duration::from_millis).to_vec(),
            all: Duration::from_millis(times[1] + 1),
            whole: Duration::from_millis(500),
            lost: lost.iter().map(|it| key(it)).collect(),
            twice: BTreeSet::new(),
        };
        let it = FailoverArguments {
            kill: true,
            stop: false,
            rounds: 2,
            pause: Duration::ZERO,
            consul: false,
            signal_alone: false,
            sessions: 9,
            concurrency: 1,
            rate: 1,
            managers: 3,
            replicas: 2,
            nodes: 1,
            class: "builtin".to_owned(),
        };
        let rounds = [round(4, [10, 20], &["a"]), round(7, [30, 40], &["a", "b"])];
        let done = summed(&it, Fault::Kill, &rounds);
        assert_eq!((done.lost, done.measured, done.killed.number), (2, 4, 7));
        assert!((done.p50_ms - 30.0).abs() < 1e-9 && (done.p99_ms - 40.0).abs() < 1e-9);
        assert!((done.all_served_ms - 41.0).abs() < 1e-9);
        assert!((done.times[1].first_served_ms - 30.0).abs() < 1e-9);
        // Of the round in which somebody looked when Consul noticed.
        assert_eq!((done.times[0].detected_ms, done.times[1].detected_ms), (None, Some(25.0)));
        assert_eq!(done.after_detection_p99_ms, Some(15.0));
    }
}
