//! `ringctl task suspend`, `unsuspend` and `backlog`.

use super::show::{self, Backlog};
use super::suspended::{self, ShownSuspended};
use super::{CallArguments, Manager, NameArguments, read};
use crate::connect;
use crate::namespace::namespace;
use crate::output::{Format, Out, plain_table};
use clap::Args;
use rota_client::docstore::{JsonText, Namespace, Suspended};
use rota_client::tasks::Order;
use serde_json::Map;
use std::time::Duration;

/// The namespace for configuration.
pub const CONFIGURATION: &str = "z";
/// The id at which its operations run.
const SPACES: &str = "spaces";

/// `task suspend`, `task unsuspend`.
#[derive(Args, Debug)]
#[group(id = "which", required = true, multiple = true, args = ["queue", "namespace", "all"])]
pub struct QueueArguments {
    /// Tasks of this queue; without it, of all queues.
    #[arg(long)]
    queue: Option<u8>,
    /// Tasks of this namespace; without it, of all namespaces.
    #[arg(long, value_parser = namespace)]
    namespace: Option<Namespace>,
    /// All tasks.
    #[arg(long, conflicts_with_all = ["queue", "namespace"])]
    all: bool,
    #[command(flatten)]
    name: NameArguments,
    #[command(flatten)]
    call: CallArguments,
}

/// Suspends queues, or lets them go on.
pub async fn switch(
    manager: &Manager<'_>,
    operation: &str,
    it: &QueueArguments,
    out: &mut Out,
) -> anyhow::Result<()> {
    if let Some(namespace) = &it.namespace {
        suspended::check_namespace(manager, namespace, it.call.timeout).await?;
    }
    let mut parameters = Map::new();
    if let Some(queue) = it.queue {
        parameters.insert("queue".to_owned(), queue.into());
    }
    if let Some(namespace) = &it.namespace {
        parameters.insert("namespace".to_owned(), namespace.as_str().into());
    }
    let (operation_time, request_id) = manager.name(Some(&it.name));
    let order = Order {
        space: Namespace::parse(CONFIGURATION).expect("z is a name"),
        docid: SPACES.to_owned(),
        operation: operation.to_owned(),
        parameters: JsonText::of(&parameters).map_err(|it| anyhow::anyhow!("{it}"))?,
        operation_time,
        request_id,
    };
    let answer = manager.order(&order, it.call.timeout).await?;
    let namespace = it.namespace.as_ref().map(|it| it.as_str().to_owned());
    let shown = ShownSuspended::of(namespace, read::<Suspended>(&answer)?);
    match out.format() {
        Format::Json => out.json(&shown)?,
        Format::Table => {
            let mut table = plain_table(["NAMESPACE", "SUSPENDED QUEUES"]);
            table.add_row([shown.namespace.clone().unwrap_or("all".to_owned()), queues_of(&shown)]);
            out.table(&table)?;
        }
    }
    Ok(())
}

fn queues_of(it: &ShownSuspended) -> String {
    let numbers: Vec<String> = it.queues.iter().map(ToString::to_string).collect();
    match (it.all_queues, numbers.is_empty()) {
        (true, _) => "all".to_owned(),
        (false, true) => "none".to_owned(),
        (false, false) => numbers.join(","),
    }
}

/// Shows what queues have.
pub async fn backlog(manager: &Manager<'_>, wait: Duration, out: &mut Out) -> anyhow::Result<()> {
    let answer = connect::told(manager.endpoint, manager.tasks.backlog(wait)).await?;
    let suspended = suspended::read(manager, wait).await;
    let backlog = Backlog::of(answer, suspended.as_ref());
    match out.format() {
        Format::Json => out.json(&backlog)?,
        Format::Table => {
            let [counts, queues] = show::backlog(&backlog, suspended.as_ref());
            out.table(&counts)?;
            out.text("\n")?;
            out.table(&queues)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_suspended_is_told_by_its_numbers() {
        let of = |all_queues, queues: &[u8]| {
            let queues = queues.iter().copied().collect();
            queues_of(&ShownSuspended { namespace: None, all_queues, queues })
        };
        assert_eq!([of(false, &[]), of(false, &[1, 2]), of(true, &[1])], ["none", "1,2", "all"]);
    }
}
