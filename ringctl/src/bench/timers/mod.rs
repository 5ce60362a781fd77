//! Timers of life cycles: what they cost in memory, how late marks fire that are due at the same moment, how soon a
//! manager serves again that has them, what it costs to keep sessions alive, and how many actions run in a second.
//!
//! ```text
//!   cluster 1: sessions without timers ──▶ memory
//!   cluster 2: sessions with two timers each ──▶ memory ─▶ marks due together ─▶ KeepAlives ─▶ a manager starts again
//!   cluster 3: programs with actions that are due together
//! ```

mod actions;

use super::load::{as_f64, bar};
use super::report::rounded;
use super::target::{CALL_WAIT, client, open_request, prefix};
use super::usage;
use crate::dev::{Cluster, Ground, Settings};
use crate::length_of_time::length_of_time;
use crate::output::{Format, Out, plain_table};
use crate::task::at::now;
use anyhow::{Context, bail, ensure};
use clap::Args;
use hdrhistogram::Histogram;
use rota_client::docstore::Stamp;
use rota_client::{CallError, Client, v1};
use serde::Serialize;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio::time::sleep;

/// A machine: nothing is forked for it, and its life cycles are only marked.
const CLASS_TEXT: &str = r#"name = "timed"
kind = "machine"
states = ["on"]
initial = "on"
report_states = false
[life.cycles.first]
mark_only = true
[life.cycles.second]
mark_only = true
[life.cycles.together]
mark_only = true
"#;
/// Its name.
const CLASS: &str = "timed";
/// Timers of each session.
const TIMERS_EACH: u32 = 2;
/// The life cycle of the marks that are due together.
const TOGETHER: &str = "together";
/// Calls under way while sessions are opened, changed or read.
const CONCURRENCY: usize = 64;
/// From so many sessions on, managers get more patience: to take over what one had may take them more than a second in
/// a build without optimisation.
const CROWD: u32 = 30_000;
/// How long they may be silent then.
const CROWD_SUSPECT_MS: u32 = 5_000;
/// KeepAlives under way at once: a ring that cannot follow slows down who asks.
const KEEP_ALIVES_MAX: usize = 512;
/// Between two looks at the clock while KeepAlives are sent.
const PACE: Duration = Duration::from_millis(5);
/// So many times longer than opens of sessions, changes of them may take.
const SLOWER: f64 = 3.0;
/// Without an end for so long, it is given up.
const PATIENCE: Duration = Duration::from_secs(300);
/// Between two looks at sessions whose mark has not fired.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Longest lateness that is told apart, in milliseconds.
const LATE_MS_MAX: u64 = 3_600_000;
const DAY_MS: u64 = 86_400_000;
/// Sessions whose timers are read after the start.
const READ_AGAIN: usize = 100;

/// `bench timers`.
#[derive(Args, Debug)]
pub struct TimersArguments {
    /// Sessions with two timers each.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=500_000))]
    sessions: u32,
    /// Sessions of which each gets one more mark, all due at the same moment; at most all.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=500_000))]
    together: u32,
    /// KeepAlives in a minute.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(60..=6_000_000))]
    keep_alives: u32,
    /// How long they are sent, and how long the ring is watched at rest before.
    #[arg(long, default_value = "10s", value_parser = length_of_time)]
    duration: Duration,
    /// Actions that are due at the same moment: programs that end at once, of up to twenty to a session.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    actions: u32,
    /// Managers of the cluster.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    managers: u32,
    /// Successors with copies.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(0..=99))]
    replicas: u32,
}

#[derive(Serialize, Debug)]
struct Figures {
    sessions: u32,
    timers: u64,
    /// Copies of each session and its timers.
    copies: u32,
    /// Growth of resident memory of all managers beyond that with sessions alone, per timer; and per timer and copy.
    bytes_per_timer: f64,
    bytes_per_timer_and_copy: f64,
    /// Opens each second, without timers and with them.
    opens_per_s: f64,
    opens_with_timers_per_s: f64,
    marks_due_together: u32,
    /// From the time of a mark to when its session says that it fired.
    late_p50_ms: f64,
    late_p99_ms: f64,
    late_max_ms: f64,
    keep_alives_per_s: f64,
    /// Processor time of all managers for each KeepAlive, without what they use at rest.
    keep_alive_cpu_us: f64,
    /// Processor time of all managers in a second at rest.
    rest_cpu_ms_per_s: f64,
    /// From the start of a manager that was killed until it serves its partition again and all copies are in sync.
    serve_after_restart_ms: f64,
    /// Actions of life cycles that ended well in a second, of programs that end at once.
    actions_per_s: f64,
}

/// `bench timers`.
pub async fn run(it: &TimersArguments, out: &mut Out) -> anyhow::Result<()> {
    let classes = tempfile::tempdir().context("no folder for a class")?;
    fs::write(classes.path().join("timed.toml"), CLASS_TEXT)?;
    actions::write_class(classes.path())?;
    let figures = measure(it, classes.path()).await?;
    if out.format() == Format::Json {
        return Ok(out.json(&figures)?);
    }
    let mut table = plain_table(["FIGURE", "VALUE"]);
    let value = serde_json::to_value(&figures)?;
    for (name, value) in value.as_object().into_iter().flatten() {
        table.add_row([name.clone(), value.to_string()]);
    }
    Ok(out.table(&table)?)
}

async fn measure(it: &TimersArguments, classes: &Path) -> anyhow::Result<Figures> {
    let roomy = Settings::roomy(it.managers, it.replicas.min(it.managers - 1));
    let patience = (it.sessions >= CROWD).then_some(CROWD_SUSPECT_MS);
    let suspect_ms = patience.or(roomy.suspect_ms);
    let classes = Some(classes.to_owned());
    let settings = Settings { nodes: Some(1), classes, suspect_ms, ..roomy };
    let mut ground = Ground::found()?;
    let plain = async |cluster: &mut Cluster| {
        let client = client(&cluster.document().endpoints(), 1, false)?;
        opened(cluster, &client, it.sessions, &[]).await.map(|(_, grown)| grown)
    };
    let plain = ground.with_cluster(&settings, plain).await?;
    let timed = async |cluster: &mut Cluster| with_timers(it, plain, cluster).await;
    let figures = ground.with_cluster(&settings, timed).await?;
    let actions_per_s = actions::rate(&mut ground, &settings, it.actions).await?;
    Ok(Figures { actions_per_s, ..figures })
}

async fn with_timers(
    it: &TimersArguments,
    plain: Grown,
    cluster: &mut Cluster,
) -> anyhow::Result<Figures> {
    let client = client(&cluster.document().endpoints(), 1, false)?;
    let far = [(1, "first"), (2, "second")];
    let far = far.map(|(days, cycle)| item(cycle, now().plus_ms(days * DAY_MS)));
    let (ids, timed) = opened(cluster, &client, it.sessions, &far).await?;
    let (copies, together) = ((it.replicas + 1).min(it.managers), it.together.min(it.sessions));
    let some = ids.get(..usize::try_from(together)?).unwrap_or(&ids);
    let late = late(&client, some, timed.per_s).await?;
    let kept = kept_alive(it, cluster, &client, &ids).await?;
    let serve_after_restart_ms = restarted(cluster, &client, &ids).await?;
    let timers = u64::from(it.sessions) * u64::from(TIMERS_EACH);
    let per_timer = bytes_per_timer(plain.bytes, timed.bytes, timers);
    let at = |part: f64| as_f64(late.value_at_quantile(part));
    Ok(Figures {
        sessions: it.sessions,
        timers,
        copies,
        bytes_per_timer: rounded(per_timer, 1),
        bytes_per_timer_and_copy: rounded(per_timer / f64::from(copies), 1),
        opens_per_s: plain.per_s,
        opens_with_timers_per_s: timed.per_s,
        marks_due_together: together,
        late_p50_ms: at(0.5),
        late_p99_ms: at(0.99),
        late_max_ms: at(1.0),
        keep_alives_per_s: kept.per_s,
        keep_alive_cpu_us: kept.cpu_us,
        rest_cpu_ms_per_s: kept.rest_ms_per_s,
        serve_after_restart_ms,
        actions_per_s: 0.0,
    })
}

/// An item that fires at that time.
fn item(life_cycle: &str, at: Stamp) -> String {
    item_of(life_cycle, "note", at)
}

/// The same of an event with a name.
fn item_of(life_cycle: &str, event: &str, at: Stamp) -> String {
    format!("{life_cycle} {event}@{:015}", at.as_u64())
}

/// How much more memory each timer takes, where so many bytes were added without timers and with them.
fn bytes_per_timer(plain: u64, timed: u64, timers: u64) -> f64 {
    (as_f64(timed) - as_f64(plain)) / as_f64(timers.max(1))
}

/// What opens came to.
#[derive(Clone, Copy, Debug)]
struct Grown {
    /// Growth of resident memory of all managers.
    bytes: u64,
    per_s: f64,
}

/// Opens sessions with such items.
async fn opened(
    cluster: &Cluster,
    client: &Client,
    count: u32,
    items: &[String],
) -> anyhow::Result<(Vec<String>, Grown)> {
    let (before, began, prefix) = (resident(cluster)?, Instant::now(), prefix());
    let ids: Vec<String> = (0..count).map(|it| format!("{prefix}-{it}")).collect();
    each("opening", client, &ids, |client, id| {
        let managed_state = items.to_vec();
        let life = v1::LifeOptions { managed_state, ..Default::default() };
        let request = v1::OpenRequest { life: Some(life), ..open_request(id, CLASS) };
        async move { client.open(request, CALL_WAIT).await.map(drop) }
    })
    .await?;
    let per_s = rounded(f64::from(count) / began.elapsed().as_secs_f64(), 1);
    Ok((ids, Grown { bytes: resident(cluster)?.saturating_sub(before), per_s }))
}

/// Makes one call for each id, many at a time.
async fn each<T: Send + 'static, C>(
    name: &str,
    client: &Client,
    ids: &[String],
    call: impl Fn(Client, String) -> C,
) -> anyhow::Result<Vec<T>>
where
    C: Future<Output = Result<T, CallError>> + Send + 'static,
{
    let progress = bar(name, u64::try_from(ids.len())?);
    let (mut calls, mut next, mut answers) = (JoinSet::new(), ids.iter(), Vec::new());
    loop {
        while calls.len() < CONCURRENCY {
            let Some(id) = next.next() else { break };
            calls.spawn(call(client.clone(), id.clone()));
        }
        let Some(answer) = calls.join_next().await else { break };
        answers.push(answer?.with_context(|| format!("{name} failed"))?);
        progress.inc(1);
    }
    progress.finish_and_clear();
    Ok(answers)
}

fn of_managers<T: std::iter::Sum>(
    cluster: &Cluster,
    of: impl Fn(u32) -> Option<T>,
) -> anyhow::Result<T> {
    let managers = cluster.document().managers.iter();
    managers.map(|it| of(it.pid).context("a manager has gone")).sum()
}

fn resident(cluster: &Cluster) -> anyhow::Result<u64> {
    of_managers(cluster, usage::resident)
}

/// Gives sessions a mark each that is due at one moment. How late they fired.
async fn late(client: &Client, ids: &[String], per_s: f64) -> anyhow::Result<Histogram<u64>> {
    let count = u64::try_from(ids.len())?;
    let lead = Duration::from_secs_f64(3.0 + as_f64(count) * SLOWER / per_s.max(1.0));
    let due = now().plus_ms(u64::try_from(lead.as_millis())?);
    each("changing", client, ids, |client, id| {
        let add_state = vec![item(TOGETHER, due)];
        let request = v1::UpdateRequest { id, add_state, ..Default::default() };
        async move { client.update(request, CALL_WAIT).await.map(drop) }
    })
    .await?;
    let is_early = now() < due;
    ensure!(is_early, "the machine is too slow: marks were due before all were there");
    // Nothing else is asked of the managers while they fire.
    let ahead = due.plus_ms(1_000).ms_since(now()).unwrap_or_default();
    sleep(Duration::from_millis(ahead)).await;
    let mut late = Histogram::new_with_bounds(1, LATE_MS_MAX, 3)?;
    for at in all_fired(client, ids, fired).await? {
        late.saturating_record(at.ms_since(due).unwrap_or_default().max(1));
    }
    Ok(late)
}

/// Reads sessions until of each `fired` tells when that was. Gives these times.
async fn all_fired(
    client: &Client,
    ids: &[String],
    fired: impl Fn(&v1::Life) -> anyhow::Result<Option<Stamp>>,
) -> anyhow::Result<Vec<Stamp>> {
    let (mut times, mut waiting, began) = (Vec::new(), ids.to_vec(), Instant::now());
    while !waiting.is_empty() {
        let lives = each("reading", client, &waiting, |client, id| {
            let request = v1::GetLifeRequest { id: id.clone(), ..Default::default() };
            async move { Ok((id, client.life(request, CALL_WAIT).await?)) }
        });
        let lives = lives.await?;
        waiting.clear();
        for (id, life) in lives {
            match fired(&life)? {
                Some(at) => times.push(at),
                None => waiting.push(id),
            }
        }
        if began.elapsed() > PATIENCE {
            bail!("the events of {} of {} sessions have not fired", waiting.len(), ids.len());
        }
        if !waiting.is_empty() {
            sleep(LOOK_EVERY).await;
        }
    }
    Ok(times)
}

/// When the mark fired that is due together with others.
fn fired(life: &v1::Life) -> anyhow::Result<Option<Stamp>> {
    let mut items = life.items.iter().chain(&life.history);
    let found = items.find(|it| it.life_cycle == TOGETHER).context("a session lost its mark")?;
    Ok((found.fired_at > 0).then(|| Stamp::parse(found.fired_at)).transpose()?)
}

/// What KeepAlives came to.
#[derive(PartialEq, Debug)]
struct Kept {
    per_s: f64,
    cpu_us: f64,
    rest_ms_per_s: f64,
}

impl Kept {
    /// So many calls in a time that used so much, where the managers use `rest` of each second anyway.
    fn of(calls: u64, seconds: f64, used: Duration, rest: f64) -> Self {
        let more = used.as_secs_f64() - rest * seconds;
        Self {
            per_s: rounded(as_f64(calls) / seconds, 1),
            cpu_us: rounded(more * 1_000_000.0 / as_f64(calls.max(1)), 1),
            rest_ms_per_s: rounded(rest * 1_000.0, 1),
        }
    }
}

/// Sends KeepAlives at a steady rate, to one session after the other.
async fn kept_alive(
    it: &TimersArguments,
    cluster: &Cluster,
    client: &Client,
    ids: &[String],
) -> anyhow::Result<Kept> {
    let used = || of_managers(cluster, usage::cpu);
    let (before, began) = (used()?, Instant::now());
    sleep(it.duration).await;
    let rest = used()?.saturating_sub(before).as_secs_f64() / began.elapsed().as_secs_f64();
    let (before, began, mut sent) = (used()?, Instant::now(), 0_u64);
    let progress = bar("keeping", u64::try_from(it.duration.as_millis())?);
    let (mut calls, mut next) = (JoinSet::new(), ids.iter().cycle());
    while began.elapsed() < it.duration {
        let due = began.elapsed().as_secs_f64() * f64::from(it.keep_alives) / 60.0;
        while as_f64(sent) < due && calls.len() < KEEP_ALIVES_MAX {
            let Some(id) = next.next() else { break };
            let request = v1::KeepAliveRequest { id: id.clone(), ..Default::default() };
            let client = client.clone();
            calls.spawn(async move { client.keep_alive(request, CALL_WAIT).await.map(drop) });
            sent += 1;
        }
        sleep(PACE).await;
        while let Some(answer) = calls.try_join_next() {
            answer?.context("a session cannot be kept alive")?;
        }
        progress.set_position(u64::try_from(began.elapsed().as_millis())?);
    }
    while let Some(answer) = calls.join_next().await {
        answer?.context("a session cannot be kept alive")?;
    }
    progress.finish_and_clear();
    let seconds = began.elapsed().as_secs_f64();
    Ok(Kept::of(sent, seconds, used()?.saturating_sub(before), rest))
}

/// Kills a manager and starts it again. How long from its start until it serves its partition.
async fn restarted(cluster: &mut Cluster, client: &Client, ids: &[String]) -> anyhow::Result<f64> {
    let first = cluster.document().managers.first().context("a ring has a manager")?.number;
    cluster.kill_manager(first).await?;
    let began = Instant::now();
    cluster.restart_manager(first).await?;
    cluster.whole(PATIENCE).await?;
    let took = rounded(began.elapsed().as_secs_f64() * 1_000.0, 1);
    let some = ids.get(..ids.len().min(READ_AGAIN)).unwrap_or(ids);
    let lives = each("reading", client, some, |client, id| {
        let request = v1::GetLifeRequest { id, ..Default::default() };
        async move { client.life(request, CALL_WAIT).await }
    });
    let lost = |life: &&v1::Life| life.items.len() != 2 || life.next_at == 0;
    if let Some(life) = lives.await?.iter().find(lost) {
        let session = life.session.clone().unwrap_or_default();
        let (state, reason) = (session.state(), session.reason());
        bail!("timers are lost: a session is {state:?} ({reason:?}, {})", session.detail);
    }
    Ok(took)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_takes_what_sessions_with_timers_take_beyond_those_without() {
        assert!((bytes_per_timer(1_000, 5_000, 10) - 400.0).abs() < 1e-9);
        assert!((bytes_per_timer(1_000, 500, 10) + 50.0).abs() < 1e-9);
    }

    #[test]
    fn what_managers_use_at_rest_is_no_part_of_a_keep_alive() {
        let kept = Kept::of(1_000, 10.0, Duration::from_secs(1), 0.05);
        let expected = Kept { per_s: 100.0, cpu_us: 500.0, rest_ms_per_s: 50.0 };
        assert_eq!(kept, expected);
    }

    #[test]
    fn a_mark_has_fired_when_its_session_says_so() {
        let at = Stamp::parse(261_128_000_000_050).unwrap();
        let held = |fired_at| v1::LifeItem {
            life_cycle: TOGETHER.to_owned(),
            text: item(TOGETHER, at),
            fired_at,
            ..Default::default()
        };
        let life = |items, history| v1::Life { items, history, ..Default::default() };
        assert_eq!(fired(&life(vec![held(0)], vec![])).unwrap(), None);
        assert_eq!(fired(&life(vec![], vec![held(at.as_u64())])).unwrap(), Some(at));
        assert!(fired(&life(vec![], vec![])).is_err());
        assert_eq!(item("a", at), "a note@261128000000050");
    }

    #[test]
    fn the_class_has_every_life_cycle_that_sessions_get() {
        let class: toml::Value = toml::from_str(CLASS_TEXT).unwrap();
        assert_eq!(class["name"].as_str(), Some(CLASS));
        let cycles = class["life"]["cycles"].as_table().unwrap();
        assert!(["first", "second", TOGETHER].iter().all(|it| cycles.contains_key(*it)));
    }
}
