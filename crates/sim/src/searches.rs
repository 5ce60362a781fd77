//! The commands that search models of the shipped code.

use crate::{Form, bug_of, caught_by};
use clap::ValueEnum;
use rota_sim::Bug;
use rota_sim::modelcheck::{Bounds, Explored, explore, explore_telling, explore_watching, suite};
use std::io::Write;
use std::time::Instant;

#[derive(clap::Args)]
pub struct ModelOptions {
    /// Which searches: those for every change of the code, or the larger ones.
    #[arg(long, value_enum, default_value_t = Which::Ci)]
    bounds: Which,
    /// Only those with this in their names.
    #[arg(long)]
    only: Option<String>,
    /// Say on stderr how far each search is.
    #[arg(long)]
    progress: bool,
    /// Keep answers that come too late, and fail when one of them matters after all.
    #[arg(long)]
    watch_late: bool,
    /// Form of the report.
    #[arg(short, long, value_enum, default_value_t = Form::Table)]
    output: Form,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Which {
    /// A few minutes on one core.
    Ci,
    /// Half an hour on one core.
    Nightly,
}

/// Searches; fails when something is broken, bounds were not exhausted, or what a search is there for never
/// came about.
#[expect(clippy::disallowed_methods, reason = "only to say how long it took; no search sees it")]
pub fn model(options: &ModelOptions) -> std::io::Result<bool> {
    let searches = match options.bounds {
        Which::Ci => suite::ci(),
        Which::Nightly => suite::nightly(),
    };
    let wanted = |it: &Bounds| options.only.as_ref().is_none_or(|only| it.name.contains(only));
    let (mut list, mut fine) = (Vec::new(), true);
    for bounds in searches.into_iter().filter(wanted) {
        let begun = Instant::now();
        let explored = if options.watch_late {
            explore_watching(&bounds)
        } else {
            explore_telling(&bounds, None, |progress| {
                if options.progress {
                    eprintln!("{progress:?}");
                }
            })
        };
        let seconds = begun.elapsed().as_secs_f64();
        fine &= explored.is_fine();
        if options.output == Form::Table {
            tell(&explored, seconds)?;
        }
        list.push(serde_json::json!({
            "name": explored.name,
            "states": explored.states,
            "steps": explored.steps,
            "exhausted": explored.exhausted,
            "violations": u8::from(explored.broken.is_some()),
            "fair_runs": explored.fair_runs,
            "transitions": explored.came,
            "unshown": explored.unshown,
            "seconds": (seconds * 10.0).round() / 10.0,
            "broken": explored.broken.as_ref().map(|broken| serde_json::json!({
                "rule": broken.violation.rule,
                "text": broken.violation.text,
                "steps": broken.trace.len(),
                "trace": broken.trace,
            })),
        }));
    }
    if options.output == Form::Json {
        writeln!(std::io::stdout().lock(), "{}", serde_json::Value::from(list))?;
    }
    Ok(fine)
}

fn tell(explored: &Explored, seconds: f64) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    let Explored { name, states, steps, fair_runs, unshown, .. } = explored;
    let fate = match (&explored.broken, explored.exhausted) {
        (Some(broken), _) => format!("breaks {}", broken.violation.rule),
        (None, true) if unshown.is_empty() => "exhausted, no violation".into(),
        (None, true) => format!("exhausted, and NEVER came to {}", unshown.join(", ")),
        (None, false) => "NOT exhausted".into(),
    };
    writeln!(
        out,
        "{name}: {fate}; {states} states, {steps} steps, {fair_runs} fair runs, {seconds:.1} s"
    )?;
    let Some(broken) = &explored.broken else { return Ok(()) };
    writeln!(out, "  {}", broken.violation.text)?;
    for (index, step) in broken.trace.iter().enumerate() {
        writeln!(out, "  {:>2}. {step}", index + 1)?;
    }
    Ok(())
}

#[derive(clap::Args)]
pub struct MutantsOptions {
    /// Only this rule.
    #[arg(long, value_parser = bug_of)]
    rule: Option<Bug>,
    /// Only those that a search notices, not those that need the simulator.
    #[arg(long)]
    searched: bool,
    /// Search the same bounds with the rules in force: nothing may be found.
    #[arg(long)]
    sound: bool,
    /// Most seeds that are tried for one that no search notices.
    #[arg(long, default_value_t = 400)]
    seeds: u64,
    /// Tell on stderr the shortest way to each broken promise.
    #[arg(long)]
    traces: bool,
    /// Form of the report.
    #[arg(short, long, value_enum, default_value_t = Form::Table)]
    output: Form,
}

/// Removes every rule, one at a time; fails when nothing notices.
pub fn mutants(options: &MutantsOptions) -> std::io::Result<bool> {
    let mut out = std::io::stdout().lock();
    let (mut list, mut all) = (Vec::new(), true);
    for bug in Bug::ALL.iter().filter(|it| options.rule.is_none_or(|only| only == **it)) {
        let (rule, bounds) = (bug.as_str(), suite::bounds_for(*bug));
        if bounds.is_none() && (options.searched || options.sound) {
            continue;
        }
        let row = match bounds {
            Some(bounds) => searched(*bug, !options.sound, &bounds, options.traces),
            None => {
                let caught = caught_by(*bug, 1, options.seeds);
                serde_json::json!({
                    "rule": rule,
                    "words": bug.words(),
                    "caught": caught.is_some(),
                    "by": caught.map(|it| format!("simulator: {} by seed {}", it.1, it.0)),
                })
            }
        };
        all &= row["caught"] != options.sound;
        if options.output == Form::Table {
            let by = row["by"].as_str().unwrap_or("NOT CAUGHT");
            writeln!(out, "{rule:<22}{by}")?;
        }
        list.push(row);
    }
    if options.output == Form::Json {
        writeln!(out, "{}", serde_json::Value::from(list))?;
    }
    Ok(all)
}

/// Searches the bounds of a bug; unless it is planted, nothing is removed.
fn searched(bug: Bug, planted: bool, bounds: &Bounds, traces: bool) -> serde_json::Value {
    let explored = explore(bounds, planted.then_some(bug));
    let broken = explored.broken.as_ref();
    if let Some(broken) = broken.filter(|_| traces) {
        broken.trace.iter().for_each(|step| eprintln!("  {step}"));
        eprintln!("  {}: {}", broken.violation.rule, broken.violation.text);
    }
    let by = match broken {
        Some(it) => Some(format!("search: {} in {} steps", it.violation.rule, it.trace.len())),
        None if planted => None,
        None => {
            let most = if explored.exhausted { "all" } else { "the first" };
            Some(format!("holds in {most} {} states", explored.states))
        }
    };
    serde_json::json!({
        "rule": bug.as_str(),
        "words": bug.words(),
        "caught": broken.is_some(),
        "by": by,
        "property": broken.map(|it| it.violation.rule),
        "steps": broken.map(|it| it.trace.len()),
        "states": explored.states,
        "exhausted": explored.exhausted,
    })
}
