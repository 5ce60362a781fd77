//! `ringctl task create`.

use super::at::{At, ahead, now};
use super::show::{Ordered, Shown};
use super::{Answered, CallArguments, Manager, NameArguments, read};
use crate::document::parameters::Parameters;
use crate::namespace::namespace;
use crate::output::{Format, Out};
use clap::Args;
use rota_client::docstore::{JsonText, Namespace};
use rota_client::tasks::{Cron, Order};
use serde::Serialize;
use serde_json::value::RawValue;
use xxhash_rust::xxh3::xxh3_64;

/// `task create`.
#[derive(Args, Debug)]
pub struct CreateArguments {
    /// Namespace, and the operation that is to run; or exec, http, grpc.
    #[arg(value_name = "NAMESPACE/OPERATION", value_parser = place)]
    operation: (Namespace, String),
    /// Parameters of the operation: JSON, @FILE with JSON in it, or - for stdin.
    #[arg(long, value_name = "JSON|@FILE|-")]
    param: Option<Parameters>,
    /// Part in braces of the ids of documents that it works on, or such an id without braces. Default: any,
    /// so that tasks spread over the ring.
    #[arg(long)]
    place: Option<String>,
    /// Text by which administrators find it.
    #[arg(long, default_value = "", hide_default_value = true)]
    info: String,
    /// Not before this moment: 2026-11-28T04:25:00Z, a stamp, or +10m. Default: at once.
    #[arg(long, value_name = "TIME", value_parser = ahead, conflicts_with = "cron")]
    at: Option<At>,
    /// Again and again, in UTC: H25, D0425, W30425 (1 is Monday), M100425, Y11100425.
    #[arg(long, value_parser = cron)]
    cron: Option<Cron>,
    #[command(flatten)]
    name: NameArguments,
    #[command(flatten)]
    call: CallArguments,
}

fn place(text: &str) -> Result<(Namespace, String), String> {
    match text.split_once('/') {
        Some((space, operation)) if !operation.is_empty() => {
            Ok((namespace(space)?, operation.to_owned()))
        }
        Some(_) | None => Err("must be NAMESPACE/OPERATION, as in shop/document.write".to_owned()),
    }
}

fn cron(text: &str) -> Result<Cron, String> {
    Cron::parse(text).map_err(|it| it.to_string())
}

/// What `task.create` takes.
#[derive(Serialize)]
struct Form<'a> {
    operation: &'a str,
    place: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    param: Option<&'a RawValue>,
    info: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    start_at: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cron: Option<String>,
}

/// Registers a task.
pub async fn run(manager: &Manager<'_>, it: &CreateArguments, out: &mut Out) -> anyhow::Result<()> {
    let (space, operation) = &it.operation;
    let param = match &it.param {
        Some(param) => Some(param.read().await?),
        None => None,
    };
    let param = param.as_ref().map(|it| serde_json::from_str::<&RawValue>(it.as_str()));
    let (operation_time, request_id) = manager.name(Some(&it.name));
    // It follows from the name, so that a repetition comes to the same place.
    let any = || format!("{:016x}", xxh3_64(request_id.as_str().as_bytes()));
    let place = it.place.clone().unwrap_or_else(any);
    let form = Form {
        operation,
        place: &place,
        param: param.transpose()?,
        info: &it.info,
        start_at: it.at.map(|it| it.stamp(now()).as_u64()),
        cron: it.cron.map(|it| it.to_string()),
    };
    let order = Order {
        space: space.clone(),
        docid: format!("{{{place}}}"),
        operation: "task.create".to_owned(),
        parameters: JsonText::of(&form).map_err(|it| anyhow::anyhow!("{it}"))?,
        operation_time,
        request_id,
    };
    let answer = manager.order(&order, it.call.timeout).await?;
    let Answered { docid, task } = read(&answer)?;
    let task = task.as_ref().map(Shown::of);
    let ordered = Ordered { namespace: space.as_str().to_owned(), id: docid, task };
    match out.format() {
        Format::Json => out.json(&ordered)?,
        Format::Table => out.text(&created(&ordered))?,
    }
    Ok(())
}

fn created(it: &Ordered) -> String {
    let start = it.task.as_ref().and_then(|it| it.next_run);
    let start = start.map_or_else(String::new, |it| format!(", to run at {it}"));
    format!("created {}/{}{start}\n", it.namespace, it.id)
}
