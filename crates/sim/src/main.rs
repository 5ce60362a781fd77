//! `rota-sim`: runs seeds, replays one, proves that planted bugs are caught, shows why the ring is not
//! built as its first text says.

mod searches;

use clap::{Parser, Subcommand, ValueEnum};
use rota_protocol::Transition;
use rota_sim::paper::counterexample;
use rota_sim::{Bug, Corner, Counters, Fault, Outcome};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Seeds that run before fresh ones, one a line; `#` begins a remark.
const SAVED_SEEDS: &str = include_str!("../seeds.txt");

/// Whole clusters in one thread from one seed.
#[derive(Parser)]
#[command(name = "rota-sim", version)]
struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs seeds; fails when a rule is broken, or when a fault or a step never happened.
    Run(RunOptions),
    /// Plants bugs one by one; fails when one is not caught.
    Planted(PlantedOptions),
    /// Shows how the ring breaks its promises if it is built as its first text says.
    Paper(PaperOptions),
    /// Searches every order of events within bounds, with the code that ships.
    Model(searches::ModelOptions),
    /// Removes every rule, one at a time; fails when neither a search nor a seed notices.
    Mutants(searches::MutantsOptions),
}

#[derive(clap::Args)]
struct RunOptions {
    /// How many seeds.
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// The first of them. Default: the saved seeds, then those from 1 on.
    #[arg(long)]
    from: Option<u64>,
    /// Only this one.
    #[arg(long, conflicts_with_all = ["seeds", "from", "seconds"])]
    seed: Option<u64>,
    /// Plant this bug.
    #[arg(long, value_parser = bug_of)]
    bug: Option<Bug>,
    /// Write the trace of a single seed to this file.
    #[arg(long, requires = "seed")]
    trace: Option<PathBuf>,
    /// Begin no further seed after this many seconds.
    #[arg(long)]
    seconds: Option<u64>,
    /// Seeds at a time; each has a thread of its own. Default: one for each core.
    #[arg(long)]
    jobs: Option<usize>,
    /// Form of the report.
    #[arg(short, long, value_enum, default_value_t = Form::Table)]
    output: Form,
}

#[derive(clap::Args)]
struct PlantedOptions {
    /// Only this bug.
    #[arg(long, value_parser = bug_of)]
    bug: Option<Bug>,
    /// Most seeds that are tried for each.
    #[arg(long, default_value_t = 400)]
    seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// Bugs at a time; each has a thread of its own. Default: one for each core.
    #[arg(long)]
    jobs: Option<usize>,
    /// Form of the report.
    #[arg(short, long, value_enum, default_value_t = Form::Table)]
    output: Form,
}

#[derive(clap::Args)]
struct PaperOptions {
    /// Form of the report.
    #[arg(short, long, value_enum, default_value_t = Form::Table)]
    output: Form,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    /// For people.
    Table,
    /// For programs.
    Json,
}

fn bug_of(text: &str) -> Result<Bug, String> {
    Bug::parse(text).ok_or_else(|| {
        let names: Vec<&str> = Bug::ALL.iter().map(|it| it.as_str()).collect();
        format!("must be one of {}", names.join(", "))
    })
}

fn main() -> ExitCode {
    let done = match Options::parse().command {
        Command::Run(options) => run(&options),
        Command::Planted(options) => planted(&options),
        Command::Paper(options) => paper(&options),
        Command::Model(options) => searches::model(&options),
        Command::Mutants(options) => searches::mutants(&options),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rota-sim: {error}");
            ExitCode::FAILURE
        }
    }
}

fn seeds_of(options: &RunOptions) -> Vec<u64> {
    if let Some(seed) = options.seed {
        return vec![seed];
    }
    let mut seeds = Vec::new();
    if options.from.is_none() {
        let lines = SAVED_SEEDS.lines().map(|it| it.split('#').next().unwrap_or("").trim());
        seeds.extend(lines.filter_map(|it| it.parse::<u64>().ok()));
    }
    let from = options.from.unwrap_or(1);
    let known = seeds.len();
    let fresh = (from..)
        .filter(|it| !seeds.contains(it))
        .take(usize::try_from(options.seeds).unwrap_or(usize::MAX).saturating_sub(known));
    let fresh: Vec<u64> = fresh.collect();
    seeds.truncate(usize::try_from(options.seeds).unwrap_or(usize::MAX));
    seeds.extend(fresh);
    seeds
}

/// What a run of many seeds came to.
#[derive(Default)]
struct Total {
    seeds: u64,
    violations: u64,
    requests: u64,
    counters: Counters,
    failed: Vec<u64>,
}

/// Does something with each item, begun in order, so many at a time; `None`: one for each core.
fn side_by_side<T: Sync>(jobs: Option<usize>, items: &[T], each: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..jobs.unwrap_or(cores).max(1) {
            scope.spawn(|| {
                while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                    each(item);
                }
            });
        }
    });
}

#[expect(clippy::disallowed_methods, reason = "only to stop in time; no seed sees it")]
fn run(options: &RunOptions) -> std::io::Result<bool> {
    let seeds = seeds_of(options);
    let (begun, total) = (Instant::now(), Mutex::new(Total::default()));
    let limit = options.seconds.map(Duration::from_secs);
    side_by_side(options.jobs, &seeds, |seed| {
        if limit.is_none_or(|limit| begun.elapsed() < limit) {
            let outcome = rota_sim::run(*seed, options.trace.is_some(), options.bug);
            take(outcome, options, &mut total.lock().expect("no seed panics with it"));
        }
    });
    let total = total.into_inner().expect("no seed panics with it");
    let took = begun.elapsed();
    report(&total, options, took)
}

fn take(outcome: Outcome, options: &RunOptions, total: &mut Total) {
    total.seeds += 1;
    total.requests += u64::try_from(outcome.requests).unwrap_or(0);
    total.counters.add(&outcome.counters);
    total.violations += u64::from(!outcome.violations.is_empty());
    for (at_us, violation) in outcome.violations.iter().take(2) {
        eprintln!(
            "seed {}: {} broken at {} us: {}",
            outcome.seed, violation.rule, at_us, violation.text
        );
    }
    if !outcome.violations.is_empty() {
        total.failed.push(outcome.seed);
        let bug = options.bug.map(|it| format!(" --bug {}", it.as_str())).unwrap_or_default();
        eprintln!(
            "replay: cargo run --profile ci -p rota-sim -- run --seed {}{bug} --trace trace.txt",
            outcome.seed
        );
    }
    if let Some(path) = &options.trace
        && let Err(error) = std::fs::write(path, outcome.trace.join("\n") + "\n")
    {
        eprintln!("rota-sim: cannot write {}: {error}", path.display());
    }
}

fn report(total: &Total, options: &RunOptions, took: Duration) -> std::io::Result<bool> {
    let counters = &total.counters;
    let named = |it: &Fault| (it.as_str(), counters.faults.get(it).copied().unwrap_or_default());
    let faults: BTreeMap<&str, u64> = Fault::ALL.iter().map(named).collect();
    let named =
        |it: &Transition| (it.as_str(), counters.transitions.get(it).copied().unwrap_or_default());
    let transitions: BTreeMap<&str, u64> = Transition::ALL.iter().map(named).collect();
    let named = |it: &Corner| (it.as_str(), counters.corners.get(it).copied().unwrap_or_default());
    let corners: BTreeMap<&str, u64> = Corner::ALL.iter().map(named).collect();
    let mut out = std::io::stdout().lock();
    if options.output == Form::Json {
        let document = serde_json::json!({
            "seeds": total.seeds,
            "violations": total.violations,
            "failed_seeds": total.failed,
            "requests": total.requests,
            "faults": faults,
            "transitions": transitions,
            "limits": corners,
            "answers": counters.answers,
        });
        writeln!(out, "{document}")?;
    } else {
        let rate = f64::from(u32::try_from(total.seeds).unwrap_or(u32::MAX)) / took.as_secs_f64();
        writeln!(out, "seeds {} ({rate:.1}/s)  violations {}", total.seeds, total.violations)?;
        for (title, counts) in [("faults", &faults), ("steps", &transitions), ("limits", &corners)]
            .into_iter()
            .chain([("answers", &counters.answers)])
        {
            writeln!(out, "{title}")?;
            for (name, count) in counts {
                writeln!(out, "  {name:<22}{count:>10}")?;
            }
        }
    }
    // One seed, or a planted bug, cannot be expected to reach everything.
    let whole = options.seed.is_none() && options.bug.is_none();
    let missing = if whole { counters.missing() } else { Vec::new() };
    if !missing.is_empty() {
        eprintln!("never happened in {} seeds: {}", total.seeds, missing.join(", "));
    }
    Ok(total.violations == 0 && missing.is_empty())
}

/// The first seed that catches a bug, and the rule that it breaks.
fn caught_by(bug: Bug, from: u64, seeds: u64) -> Option<(u64, &'static str)> {
    (from..from.saturating_add(seeds)).find_map(|seed| {
        let outcome = rota_sim::run(seed, false, Some(bug));
        let rule = outcome.violations.first().map(|(_, violation)| violation.rule)?;
        if !bug.is_proved_by(rule) {
            return None;
        }
        // It is the bug that was caught only if the seed breaks no rule without it.
        let clean = rota_sim::run(seed, false, None).violations.is_empty();
        clean.then_some((seed, rule))
    })
}

fn planted(options: &PlantedOptions) -> std::io::Result<bool> {
    let wanted = |it: &Bug| options.bug.map_or(!it.is_for_searches(), |only| only == *it);
    let bugs: Vec<Bug> = Bug::ALL.iter().copied().filter(wanted).collect();
    let rows = Mutex::new(Vec::new());
    side_by_side(options.jobs, &bugs, |bug| {
        let caught = caught_by(*bug, options.from, options.seeds);
        match caught {
            Some((seed, rule)) => eprintln!("{}: caught by seed {seed} ({rule})", bug.as_str()),
            None => eprintln!("{}: NOT caught in {} seeds", bug.as_str(), options.seeds),
        }
        rows.lock().expect("no seed panics with it").push((*bug, caught));
    });
    let mut rows = rows.into_inner().expect("no seed panics with it");
    rows.sort_by_key(|(bug, _)| bugs.iter().position(|known| known == bug));
    let mut out = std::io::stdout().lock();
    if options.output == Form::Json {
        let list = rows.iter().map(|(bug, caught)| {
            serde_json::json!({
                "bug": bug.as_str(),
                "caught": caught.is_some(),
                "seed": caught.map(|it| it.0),
                "rule": caught.map(|it| it.1),
            })
        });
        let list: Vec<_> = list.collect();
        writeln!(out, "{}", serde_json::Value::from(list))?;
    } else {
        for (bug, caught) in &rows {
            let fate = caught.map_or("NOT CAUGHT".into(), |it| format!("seed {} ({})", it.0, it.1));
            writeln!(out, "{:<22}{fate}", bug.as_str())?;
        }
    }
    Ok(rows.iter().all(|(_, caught)| caught.is_some()))
}

fn paper(options: &PaperOptions) -> std::io::Result<bool> {
    let mut out = std::io::stdout().lock();
    let (mut list, mut all) = (Vec::new(), true);
    for scenario in counterexample::ALL {
        let searched = scenario.search();
        let Some(trace) = searched.trace else {
            eprintln!("{}: nothing breaks in {} states", scenario.name, searched.states);
            all = false;
            continue;
        };
        if options.output == Form::Table {
            let (name, property) = (scenario.name, scenario.property.as_str());
            writeln!(out, "{name}: breaks {property} in {} steps", trace.len())?;
            for (index, step) in trace.iter().enumerate() {
                writeln!(out, "  {:>2}. {step}", index + 1)?;
            }
        }
        list.push(serde_json::json!({
            "name": scenario.name,
            "property": scenario.property.as_str(),
            "steps": trace.len(),
            "states": searched.states,
            "trace": trace,
        }));
    }
    if options.output == Form::Json {
        writeln!(out, "{}", serde_json::Value::from(list))?;
    }
    Ok(all)
}
