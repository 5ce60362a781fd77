//! Tasks: `ringctl task …`.
//!
//! ```text
//!   list, bulk ──▶ the service of tasks, page by page
//!   create, orders, suspend, unsuspend ──▶ operations on documents, each with a name of its own
//!   what is suspended ◀── descriptions of namespaces
//! ```

pub mod at;
mod bulk;
mod create;
mod filter;
mod order;
mod queues;
mod show;
mod suspended;

use crate::connect;
use crate::document::{request_id, stamp};
use crate::failure::{OutcomeUnknown, UsageMistake};
use crate::length_of_time::length_of_time;
use crate::output::{Format, Out};
use crate::secret::AdminKey;
use anyhow::Context;
use clap::{Args, Subcommand};
use filter::FilterArguments;
use order::Verb;
use rota_client::docstore::{Answer, Body, JsonText, Namespace, Stamp};
use rota_client::tasks::{Filter, Order, TASKS_PAGE_MAX, Task};
use rota_client::{CallError, Client, Tasks};
use rota_model::RequestId;
use serde::Deserialize;
use show::{Shown, ShownAll};
use std::time::Duration;

/// What to do with tasks.
#[derive(Subcommand, Debug)]
pub enum TaskCommand {
    /// Register a task: an operation that runs later.
    Create(create::CreateArguments),
    /// List the tasks that a filter selects.
    List(ListArguments),
    /// Show one task.
    Show(ShowArguments),
    /// Delete tasks. A run that is under way changes nothing any more.
    Delete(order::OrderArguments),
    /// Run tasks now, also those that were given up. Refused while they run or are paused.
    #[command(visible_alias = "run")]
    Retry(order::OrderArguments),
    /// Start tasks earlier. Refused while they run.
    Advance(order::TimedArguments),
    /// Start tasks later. Refused while they run, and of those that were given up.
    Postpone(order::TimedArguments),
    /// Hold periodic tasks back. A run that is under way comes to its end.
    Pause(order::OrderArguments),
    /// Let periodic tasks go on with their next run. Queues go on by `unsuspend`.
    Resume(order::OrderArguments),
    /// Start no task of a queue or namespace until `unsuspend`. What runs goes on.
    Suspend(queues::QueueArguments),
    /// Let a queue or namespace go on.
    Unsuspend(queues::QueueArguments),
    /// Show what the queues of all partitions have.
    Backlog(CallArguments),
}

/// `task`.
#[derive(Args, Debug)]
pub struct TaskArguments {
    #[command(flatten)]
    admin_key: AdminKey,
    #[command(subcommand)]
    command: TaskCommand,
}

/// How long to wait.
#[derive(Args, Debug)]
pub struct CallArguments {
    /// How long each answer may take.
    #[arg(long, default_value = "10s", value_parser = length_of_time)]
    timeout: Duration,
}

/// The name of an order, by which its repetition is known.
#[derive(Args, Debug)]
pub struct NameArguments {
    /// Time of the order in UTC, YYMMDDhhmmssmmm: repeated with the same request id, it changes
    /// nothing more (for 10 minutes). Default: now.
    #[arg(long, value_parser = stamp)]
    operation_time: Option<Stamp>,
    /// Name of this very order. Default: a new one for each call.
    #[arg(long, requires = "operation_time", value_parser = request_id)]
    request_id: Option<RequestId>,
}

/// `task list`.
#[derive(Args, Debug)]
pub struct ListArguments {
    #[command(flatten)]
    filter: FilterArguments,
    /// At most so many.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    limit: u32,
    #[command(flatten)]
    call: CallArguments,
}

/// `task show`.
#[derive(Args, Debug)]
pub struct ShowArguments {
    /// Namespace and id of the task's document.
    #[arg(value_name = "NAMESPACE/ID", value_parser = task_name)]
    task: TaskName,
    #[command(flatten)]
    call: CallArguments,
}

/// Which task.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct TaskName {
    space: Namespace,
    docid: String,
}

impl std::fmt::Display for TaskName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.space, self.docid)
    }
}

impl TaskName {
    fn of(task: &Task) -> Self {
        Self { space: task.ns.clone(), docid: task.docid() }
    }
}

/// A task of the command line.
fn task_name(text: &str) -> Result<TaskName, String> {
    let (space, docid) = text.split_once('/').unwrap_or((text, ""));
    if !docid.starts_with('{') || !docid.contains('}') {
        let expected = "must be NAMESPACE/ID, as in shop/{cart-7}4f1c2d3e4a5b6c7d; `ringctl task list` shows it";
        return Err(expected.to_owned());
    }
    Ok(TaskName { space: crate::namespace::namespace(space)?, docid: docid.to_owned() })
}

/// The answer of managers to an order about one task.
#[derive(Deserialize)]
struct Answered {
    docid: String,
    task: Option<Task>,
}

/// The tasks of a cluster, for orders.
struct Manager<'a> {
    client: Client,
    tasks: Tasks,
    endpoint: &'a str,
}

impl Manager<'_> {
    /// The name of an order that no other order has, unless the command line says one.
    fn name(&self, given: Option<&NameArguments>) -> (Stamp, RequestId) {
        let made = || RequestId::parse(&self.client.request_id()).expect("its names are short");
        let id = given.and_then(|it| it.request_id.clone()).unwrap_or_else(made);
        // Managers judge it by their own clocks.
        let time = given.and_then(|it| it.operation_time);
        (time.unwrap_or_else(|| at::now().minus_ms(1_000)), id)
    }

    /// Gives an order; says how to find out what became of it, if nobody knows.
    async fn order(&self, order: &Order, wait: Duration) -> anyhow::Result<Answer> {
        let named = Some((order.operation_time, order.request_id.clone()));
        let sent = Box::pin(self.tasks.order(order, wait));
        let answer = connect::told(self.endpoint, sent).await;
        answer.map_err(|error| OutcomeUnknown::Operation(named).unless_refused(error))
    }

    /// The tasks that a filter selects, at most so many, and whether there are more.
    async fn list(
        &self,
        filter: &Filter,
        limit: usize,
        wait: Duration,
        mut found: impl FnMut(usize),
    ) -> Result<(Vec<Task>, bool), CallError> {
        let (mut tasks, mut token) = (Vec::new(), String::new());
        loop {
            // One more says whether there are more.
            let left = u32::try_from(limit + 1 - tasks.len()).unwrap_or(TASKS_PAGE_MAX);
            let page = self.tasks.list(filter, left.min(TASKS_PAGE_MAX), token, wait).await?;
            tasks.extend(page.tasks);
            token = page.next_page_token;
            found(tasks.len());
            if tasks.len() > limit || token.is_empty() {
                let more = tasks.len() > limit;
                tasks.truncate(limit);
                return Ok((tasks, more));
            }
        }
    }
}

/// The result of an operation, which is JSON.
pub fn read<'a, T: Deserialize<'a>>(answer: &'a Answer) -> anyhow::Result<T> {
    let text = match &answer.body {
        Body::Json(text) => Some(text),
        Body::Nothing | Body::Binary { .. } => None,
    };
    let text = text.map(JsonText::as_str).context("the answer has no JSON")?;
    serde_json::from_str(text).context("the answer is not what an order about tasks gives")
}

/// Runs a command on tasks.
pub async fn run(it: &TaskArguments, endpoint: &str, out: &mut Out) -> anyhow::Result<()> {
    let key = it.admin_key.get()?;
    let client = connect::client(endpoint, out.format())?;
    let tasks = client.tasks().with_admin_key(&key);
    let tasks = tasks.map_err(|error| UsageMistake(error.to_string()))?;
    let manager = &Manager { client, tasks, endpoint };
    match &it.command {
        TaskCommand::Create(it) => create::run(manager, it, out).await,
        TaskCommand::List(it) => connect::told(endpoint, list(manager, it, out)).await,
        TaskCommand::Show(it) => connect::told(endpoint, show_one(manager, it, out)).await,
        TaskCommand::Delete(it) => order::run(manager, Verb::Delete, it, out).await,
        TaskCommand::Retry(it) => order::run(manager, Verb::Retry, it, out).await,
        TaskCommand::Advance(it) => order::run(manager, Verb::Advance(it.at), &it.order, out).await,
        TaskCommand::Postpone(it) => {
            order::run(manager, Verb::Postpone(it.at), &it.order, out).await
        }
        TaskCommand::Pause(it) => order::run(manager, Verb::Pause, it, out).await,
        TaskCommand::Resume(it) => order::run(manager, Verb::Resume, it, out).await,
        TaskCommand::Suspend(it) => queues::switch(manager, "queue.suspend", it, out).await,
        TaskCommand::Unsuspend(it) => queues::switch(manager, "queue.resume", it, out).await,
        TaskCommand::Backlog(it) => queues::backlog(manager, it.timeout, out).await,
    }
}

async fn list(manager: &Manager<'_>, it: &ListArguments, out: &mut Out) -> anyhow::Result<()> {
    let limit = it.limit as usize;
    let found = manager.list(&it.filter.filter(), limit, it.call.timeout, |_| ()).await;
    let (tasks, more) = found?;
    let tasks: Vec<Shown> = tasks.iter().map(Shown::of).collect();
    let waits = suspended::waits(&tasks);
    match out.format() {
        Format::Json => out.json(&ShownAll { tasks, more })?,
        Format::Table => {
            out.table(&show::many(&tasks))?;
            if more {
                eprintln!("these are the first {limit}; --limit shows more");
            }
        }
    }
    suspended::remark(manager, &waits, it.call.timeout).await;
    Ok(())
}

async fn show_one(manager: &Manager<'_>, it: &ShowArguments, out: &mut Out) -> anyhow::Result<()> {
    let TaskName { space, docid } = &it.task;
    let task = manager.tasks.get(space, docid, it.call.timeout).await?;
    let shown = Shown::of(&task);
    match out.format() {
        Format::Json => out.json(&shown)?,
        Format::Table => out.table(&show::one(&shown))?,
    }
    suspended::remark(manager, &suspended::waits([&shown]), it.call.timeout).await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_named_by_its_namespace_and_the_id_of_its_document() {
        let name = task_name("shop/{cart/7}4f").unwrap();
        assert_eq!((name.space.as_str(), name.docid.as_str()), ("shop", "{cart/7}4f"));
        assert_eq!(name.to_string(), "shop/{cart/7}4f");
        for wrong in ["", "shop", "shop/cart-7", "{a}b", "shop/{a"] {
            assert!(task_name(wrong).unwrap_err().contains("must be NAMESPACE/ID"), "{wrong}");
        }
        assert!(task_name("a\nb/{a}b").unwrap_err().contains("control character"));
    }
}
