//! One order about all tasks that a filter selects. They are named before the first one is changed, so a task that comes
//! meanwhile is left alone. What was done stays done: it may be interrupted, and repeated.

use super::order::{OrderArguments, Verb, order_of};
use super::show::{self, Shown};
use super::{Manager, TaskName, at, suspended};
use crate::connect;
use crate::failure::{Reported, UsageMistake};
use crate::output::{Format, Out, counted, is_at_terminal, is_wanted};
use indicatif::{ProgressBar, ProgressStyle};
use rota_client::CallError;
use rota_client::docstore::codes;
use rota_daemon::Stop;
use serde::Serialize;
use std::time::Duration;
use tokio::task::JoinSet;

/// Most tasks of one bulk. Each takes some hundred bytes here.
const MATCHING_MAX: usize = 1_000_000;
/// Orders under way at once. More would crowd out the tasks themselves.
const CONCURRENCY: usize = 16;
/// Failures that are told one by one.
const FAILURES_MAX: usize = 20;

/// What became of a bulk.
#[derive(Serialize, PartialEq, Eq, Debug, Default)]
struct Done {
    matching: usize,
    changed: usize,
    /// Not there any more when their turn came.
    gone: usize,
    failed: usize,
    /// Left alone, as it was interrupted.
    left: usize,
    failures: Vec<Failure>,
    /// Whether there are more than one bulk takes.
    more: bool,
}

/// A task that could not be changed.
#[derive(Serialize, PartialEq, Eq, Debug)]
struct Failure {
    task: String,
    reason: String,
    message: String,
}

/// What would be changed.
#[derive(Serialize, PartialEq, Debug)]
struct Planned {
    dry_run: bool,
    matching: usize,
    tasks: Vec<Shown>,
    more: bool,
}

impl Done {
    fn note(&mut self, task: &TaskName, answer: Result<(), CallError>) {
        match answer {
            Ok(()) => self.changed += 1,
            Err(error) if error.reason() == codes::TASK.as_str() => self.gone += 1,
            Err(error) => {
                self.failed += 1;
                if self.failures.len() < FAILURES_MAX {
                    let (reason, message) = (error.reason().to_owned(), error.to_string());
                    self.failures.push(Failure { task: task.to_string(), reason, message });
                }
            }
        }
    }

    /// In one line.
    fn told(&self, verb: Verb) -> String {
        let mut text = format!("{} {}", verb.words().1, counted(number(self.changed), "task"));
        for (count, what) in [
            (self.gone, "had gone meanwhile"),
            (self.failed, "could not be changed"),
            (self.left, "left alone"),
        ] {
            if count > 0 {
                text.push_str(&format!("; {count} {what}"));
            }
        }
        text + "\n"
    }
}

fn number(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// Carries an order out about all tasks that the filter selects.
pub async fn run(
    manager: &Manager<'_>,
    verb: Verb,
    it: &OrderArguments,
    out: &mut Out,
) -> anyhow::Result<()> {
    let (word, _) = verb.words();
    if !it.dry_run && !it.yes && !is_at_terminal() {
        anyhow::bail!(UsageMistake(format!(
            "this is to {word} many tasks; say so with --yes, or see which with --dry-run"
        )));
    }
    let progress = spinner();
    let tell = |found| progress.set_message(format!("{} found", counted(number(found), "task")));
    let filter = it.filter.filter();
    let found = manager.list(&filter, MATCHING_MAX, it.call.timeout, tell);
    let found = connect::told_when_gone(found).await;
    progress.finish_and_clear();
    let (tasks, more) = found?;
    if it.dry_run {
        let tasks: Vec<Shown> = tasks.iter().map(Shown::of).collect();
        return planned(verb, Planned { dry_run: true, matching: tasks.len(), tasks, more }, out);
    }
    let mut names: Vec<TaskName> = tasks.iter().map(TaskName::of).collect();
    let moved = tasks.iter().filter(|_| verb.starts());
    let waits = moved.map(|task| (task.ns.as_str().to_owned(), task.qn)).collect();
    drop(tasks);
    let question = || format!("{word} {}", counted(number(names.len()), "task"));
    if !it.yes && !names.is_empty() && !is_wanted(&question())? {
        anyhow::bail!("nothing was changed");
    }
    // The first page begins at slot 0: spread them over all owners.
    names.sort_by_cached_key(|it| xxhash_rust::xxh3::xxh3_64(it.docid.as_bytes()));
    let done = change(manager, verb, it, &names).await?;
    if done.changed > 0 && out.format() == Format::Table {
        suspended::remark(manager, &waits, it.call.timeout).await;
    }
    finish(verb, &Done { more, ..done }, out)
}

fn planned(verb: Verb, it: Planned, out: &mut Out) -> anyhow::Result<()> {
    match out.format() {
        Format::Json => out.json(&it)?,
        Format::Table => {
            out.table(&show::many(&it.tasks))?;
            let tasks = counted(number(it.matching), "task");
            eprintln!("would be {}: {tasks}", verb.words().1);
        }
    }
    tell_more(it.more);
    Ok(())
}

fn tell_more(more: bool) {
    if more {
        eprintln!("there are more than {MATCHING_MAX}: repeat it for the rest");
    }
}

/// Changes one after the other, some at a time, until all are done or it is interrupted.
async fn change(
    manager: &Manager<'_>,
    verb: Verb,
    it: &OrderArguments,
    names: &[TaskName],
) -> anyhow::Result<Done> {
    let mut stop = Stop::listen()?;
    let bar = bar(names.len(), verb.words().1);
    let at = verb.at(at::now());
    let mut done = Done { matching: names.len(), ..Done::default() };
    let (mut orders, mut next, mut stopped) = (JoinSet::new(), names.iter(), false);
    loop {
        while !stopped && orders.len() < CONCURRENCY {
            let Some(name) = next.next() else { break };
            let order = order_of(manager, (verb, at), name, None)?;
            let (tasks, name, wait) = (manager.tasks.clone(), name.clone(), it.call.timeout);
            orders.spawn(async move { (tasks.order(&order, wait).await.map(drop), name) });
        }
        tokio::select! {
            ended = orders.join_next() => {
                let Some(ended) = ended else { break };
                let (answer, name) = ended?;
                done.note(&name, answer);
                bar.inc(1);
            }
            // What is under way comes to its end: nobody has to ask what became of it.
            _ = stop.wished(), if !stopped => stopped = true,
        }
    }
    bar.finish_and_clear();
    done.left = next.len();
    Ok(done)
}

fn finish(verb: Verb, done: &Done, out: &mut Out) -> anyhow::Result<()> {
    match out.format() {
        Format::Json => out.json(done)?,
        Format::Table => out.text(&done.told(verb))?,
    }
    for it in done.failures.iter().filter(|_| out.format() == Format::Table) {
        eprintln!("{}: {}", it.task, crate::output::for_terminals(&it.message));
    }
    tell_more(done.more);
    if done.failed > 0 || done.left > 0 {
        anyhow::bail!(Reported("not all tasks were changed"));
    }
    Ok(())
}

/// What goes on, for a person at a terminal; nothing is drawn elsewhere.
fn spinner() -> ProgressBar {
    let style = ProgressStyle::with_template("{elapsed} {msg}").expect("the template is valid");
    let spinner = ProgressBar::new_spinner().with_style(style);
    spinner.enable_steady_tick(Duration::from_millis(200));
    spinner
}

fn bar(length: usize, message: &str) -> ProgressBar {
    let style = ProgressStyle::with_template("{elapsed} {bar:40} {pos} of {len} {msg}");
    let style = style.expect("the template is valid");
    ProgressBar::new(number(length)).with_style(style).with_message(message.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_client::docstore::{Exception, Namespace};
    use rota_model::Changed;

    fn raised(exception: Exception) -> Result<(), CallError> {
        let (exception, endpoint) = (Box::new(exception), "a:1".to_owned());
        Err(CallError::Raised { exception, endpoint, attempts: 1, changed: Changed::No })
    }

    #[test]
    fn what_became_of_each_is_counted_and_told() {
        let space = Namespace::parse("shop").unwrap();
        let name = TaskName { space, docid: "{a}b".to_owned() };
        let mut done = Done { matching: 4, left: 1, ..Done::default() };
        done.note(&name, Ok(()));
        done.note(&name, raised(Exception::new(codes::TASK, "it ended")));
        done.note(&name, raised(Exception::new(codes::INVALID, "startTime is set")));
        assert_eq!((done.changed, done.gone, done.failed), (1, 1, 1));
        assert_eq!(done.failures[0].task, "shop/{a}b");
        let told = "retried 1 task; 1 had gone meanwhile; 1 could not be changed; 1 left alone\n";
        assert_eq!(done.told(Verb::Retry), told);
        let (mut out, written) = Out::captured(Format::Json);
        let error = finish(Verb::Retry, &done, &mut out).unwrap_err();
        assert!(error.is::<Reported>());
        assert!(written.text().contains("\"changed\":1,\"gone\":1,\"failed\":1,\"left\":1"));
    }

    #[test]
    fn no_more_failures_are_kept_than_anybody_reads() {
        let space = Namespace::parse("shop").unwrap();
        let name = TaskName { space, docid: "{a}b".to_owned() };
        let mut done = Done::default();
        for _ in 0..FAILURES_MAX + 5 {
            done.note(&name, raised(Exception::new(codes::INVALID, "startTime is set")));
        }
        assert_eq!((done.failed, done.failures.len()), (FAILURES_MAX + 5, FAILURES_MAX));
    }
}
