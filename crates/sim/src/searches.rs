//! The commands that search models of the shipped code.

use crate::Form;
use clap::ValueEnum;
use rota_sim::model::shipped::{Bounds, Explored, explore_telling, suite};
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
    /// Form of the report.
    #[arg(short, long, value_enum, default_value_t = Form::Table)]
    output: Form,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Which {
    /// A few minutes on one core.
    Ci,
    /// Hours.
    Nightly,
}

/// Searches; fails when something is broken, or bounds were not exhausted.
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
        let explored = explore_telling(&bounds, None, |it| {
            if options.progress {
                eprintln!("{it:?}");
            }
        });
        let seconds = begun.elapsed().as_secs_f64();
        fine &= explored.exhausted && explored.broken.is_none();
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
            "seconds": (seconds * 10.0).round() / 10.0,
            "broken": explored.broken.as_ref().map(|it| serde_json::json!({
                "rule": it.violation.rule,
                "text": it.violation.text,
                "steps": it.trace.len(),
                "trace": it.trace,
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
    let Explored { name, states, steps, fair_runs, .. } = explored;
    let fate = match (&explored.broken, explored.exhausted) {
        (Some(broken), _) => format!("breaks {}", broken.violation.rule),
        (None, true) => "exhausted, no violation".into(),
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
