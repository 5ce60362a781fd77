//! Orders about one task: `ringctl task delete`, `retry`, `advance`, `postpone`, `pause`, `resume`. Those about many
//! tasks at once are in [`super::bulk`].

use super::at::{At, ahead, now};
use super::filter::FilterArguments;
use super::show::{Ordered, Shown};
use super::{
    Answered, CallArguments, Manager, NameArguments, TaskName, bulk, read, suspended, task_name,
};
use crate::failure::UsageMistake;
use crate::output::{Format, Out};
use clap::Args;
use rota_client::docstore::{JsonText, Stamp};
use rota_client::tasks::Order;
use serde_json::json;

/// What is ordered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verb {
    Delete,
    Retry,
    Advance(At),
    Postpone(At),
    Pause,
    Resume,
}

/// Which tasks.
#[derive(Args, Debug)]
pub struct OrderArguments {
    /// Namespace and id of the task's document.
    #[arg(value_name = "NAMESPACE/ID", value_parser = task_name,
          required_unless_present = "all_matching", conflicts_with = "all_matching")]
    task: Option<TaskName>,
    /// All tasks that the filter selects, instead of one. May be interrupted and repeated.
    #[arg(long, conflicts_with_all = ["operation_time", "request_id"])]
    all_matching: bool,
    #[command(flatten)]
    pub filter: FilterArguments,
    /// Change nothing, and say which tasks would be changed.
    #[arg(long, requires = "all_matching")]
    pub dry_run: bool,
    /// Really: do not ask.
    #[arg(long, requires = "all_matching")]
    pub yes: bool,
    #[command(flatten)]
    name: NameArguments,
    #[command(flatten)]
    pub call: CallArguments,
}

/// Which tasks, and when.
#[derive(Args, Debug)]
pub struct TimedArguments {
    #[command(flatten)]
    pub order: OrderArguments,
    /// Their new start: 2026-11-28T04:25:00Z, a stamp, or +10m.
    #[arg(long, value_name = "TIME", value_parser = ahead)]
    pub at: At,
}

impl Verb {
    /// What a person is asked, and is told.
    pub fn words(self) -> (&'static str, &'static str) {
        match self {
            Verb::Delete => ("delete", "deleted"),
            Verb::Retry => ("retry", "retried"),
            Verb::Advance(_) => ("advance", "advanced"),
            Verb::Postpone(_) => ("postpone", "postponed"),
            Verb::Pause => ("pause", "paused"),
            Verb::Resume => ("resume", "resumed"),
        }
    }

    /// Whether tasks are to start by it that would not have yet.
    pub fn starts(self) -> bool {
        match self {
            Verb::Retry | Verb::Advance(_) => true,
            Verb::Delete | Verb::Postpone(_) | Verb::Pause | Verb::Resume => false,
        }
    }

    /// The time that goes with it.
    pub fn at(self, now: Stamp) -> Option<Stamp> {
        match self {
            Verb::Advance(at) | Verb::Postpone(at) => Some(at.stamp(now)),
            Verb::Delete | Verb::Retry | Verb::Pause | Verb::Resume => None,
        }
    }
}

/// The order about a task. `at`: the time that goes with it.
pub fn order_of(
    manager: &Manager<'_>,
    (verb, at): (Verb, Option<Stamp>),
    task: &TaskName,
    name: Option<&NameArguments>,
) -> anyhow::Result<Order> {
    let (operation_time, request_id) = manager.name(name);
    let parameters = match at {
        Some(at) => json!({"docid": task.docid, "at": at.as_u64()}),
        None => json!({"docid": task.docid}),
    };
    Ok(Order {
        space: task.space.clone(),
        docid: task.docid.clone(),
        operation: format!("task.{}", verb.words().0),
        parameters: JsonText::of(&parameters).map_err(|it| anyhow::anyhow!("{it}"))?,
        operation_time,
        request_id,
    })
}

/// Carries an order out, about one task or many.
pub async fn run(
    manager: &Manager<'_>,
    verb: Verb,
    it: &OrderArguments,
    out: &mut Out,
) -> anyhow::Result<()> {
    let Some(task) = &it.task else { return bulk::run(manager, verb, it, out).await };
    if it.filter.is_given() {
        let told =
            "a filter goes with --all-matching, and not with one task; leave one of them out";
        anyhow::bail!(UsageMistake(told.to_owned()));
    }
    // What requires --all-matching is not looked at where something conflicts with that.
    if it.dry_run || it.yes {
        let told = "--dry-run and --yes go with --all-matching, and not with one task";
        anyhow::bail!(UsageMistake(told.to_owned()));
    }
    let order = order_of(manager, (verb, verb.at(now())), task, Some(&it.name))?;
    let answer = manager.order(&order, it.call.timeout).await?;
    let Answered { docid, task: left } = read(&answer)?;
    let left = left.as_ref().map(Shown::of);
    let ordered = Ordered { namespace: task.space.as_str().to_owned(), id: docid, task: left };
    match out.format() {
        Format::Json => out.json(&ordered)?,
        Format::Table => out.text(&told(verb, &ordered))?,
    }
    if verb.starts() {
        let waits = suspended::waits(&ordered.task);
        suspended::remark(manager, &waits, it.call.timeout).await;
    }
    Ok(())
}

fn told(verb: Verb, it: &Ordered) -> String {
    let next = it.task.as_ref().and_then(|it| it.next_run);
    let next = next.map_or_else(String::new, |it| format!(", to run at {it}"));
    format!("{} {}/{}{next}\n", verb.words().1, it.namespace, it.id)
}
