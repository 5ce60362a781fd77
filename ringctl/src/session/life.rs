//! `ringctl session life` and `ringctl session update`: life cycles of a session, and what changes them.

use super::{CallArguments, Shown, attribute};
use crate::failure::{OutcomeUnknown, UsageMistake};
use crate::output::{Format, Out, for_terminals, plain_table};
use anyhow::Context;
use clap::Args;
use rota_client::{Client, v1};
use rota_lifecycle::LifeItem;
use rota_model::Stamp;
use serde::Serialize;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// `session life`.
#[derive(Args, Debug)]
pub struct LifeArguments {
    /// Id of the session.
    id: String,
    /// Try an event again at once whose action failed: its life cycle, and the last word of its item.
    #[arg(long, num_args = 2, value_names = ["LIFE_CYCLE", "WORD"], conflicts_with = "skip")]
    retry: Vec<String>,
    /// Let an event count as fired whose action failed.
    #[arg(long, num_args = 2, value_names = ["LIFE_CYCLE", "WORD"])]
    skip: Vec<String>,
    #[command(flatten)]
    call: CallArguments,
}

/// `session update`.
#[derive(Args, Debug)]
pub struct UpdateArguments {
    /// Id of the session.
    id: String,
    /// Set an attribute; may be given several times.
    #[arg(long = "attr", value_name = "NAME=VALUE", value_parser = attribute)]
    attributes: Vec<(String, String)>,
    /// Remove an attribute; may be given several times.
    #[arg(long = "no-attr", value_name = "NAME")]
    remove_attributes: Vec<String>,
    /// Add a life-cycle item, as in `reminder note@+2h`; may be given several times.
    #[arg(long = "life", value_name = "ITEM")]
    add: Vec<String>,
    /// Remove a life-cycle item by its whole text, or all items of a life cycle by its name.
    #[arg(long = "no-life", value_name = "ITEM")]
    remove: Vec<String>,
    /// Move a life cycle to the history, whatever is left of it.
    #[arg(long, value_name = "LIFE_CYCLE")]
    finish: Vec<String>,
    /// Only if the session has this version (see `session get`).
    #[arg(long, value_name = "VERSION", default_value_t = 0, hide_default_value = true)]
    if_version: u64,
    /// Only this life (see `session get`). Inside an action it is the life that the action is for.
    #[arg(
        long,
        value_name = "LIFE",
        env = "ROTA_LIFE",
        default_value_t = 0,
        hide_default_value = true,
        hide_env_values = true
    )]
    if_life: u64,
    #[command(flatten)]
    call: CallArguments,
}

/// A life-cycle item.
#[derive(Serialize, PartialEq, Eq, Debug)]
struct ShownItem {
    text: String,
    life_cycle: String,
    /// WAITING, FIRED, SKIPPED, FAILED, or MARK.
    status: &'static str,
    #[serde(skip_serializing_if = "is_zero")]
    due_at: u64,
    #[serde(skip_serializing_if = "String::is_empty")]
    waits_for: String,
    #[serde(skip_serializing_if = "is_zero")]
    fired_at: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<ShownFailure>,
    #[serde(skip_serializing_if = "is_zero")]
    moved_at: u64,
}

/// Why an action failed, and what is done about it.
#[derive(Serialize, PartialEq, Eq, Debug)]
struct ShownFailure {
    failures: u32,
    code: String,
    report: String,
    task: String,
    task_state: String,
    #[serde(skip_serializing_if = "is_zero")]
    retry_at: u64,
}

/// The life cycles of a session.
#[derive(Serialize, PartialEq, Eq, Debug)]
struct ShownLife {
    session: Option<Shown>,
    items: Vec<ShownItem>,
    history: Vec<ShownItem>,
    /// Life cycles that wait for each other.
    cycles: Vec<String>,
    #[serde(skip_serializing_if = "is_zero")]
    next_at: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn item(it: &v1::LifeItem) -> ShownItem {
    let failed = it.failures > 0 && it.fired_at == 0;
    let status = match (it.fired_at, it.skipped) {
        (1.., true) => "SKIPPED",
        (1.., false) => "FIRED",
        (0, _) if failed => "FAILED",
        (0, _) if it.due_at == 0 && it.waits_for.is_empty() && it.moved_at == 0 => "MARK",
        (0, _) if it.moved_at > 0 => "LEFT",
        (0, _) => "WAITING",
    };
    let failure = failed.then(|| ShownFailure {
        failures: it.failures,
        code: it.code.clone(),
        report: it.report.clone(),
        task: it.task.clone(),
        task_state: it.task_state.clone(),
        retry_at: it.retry_at,
    });
    ShownItem {
        text: it.text.clone(),
        life_cycle: it.life_cycle.clone(),
        status,
        due_at: it.due_at,
        waits_for: it.waits_for.clone(),
        fired_at: it.fired_at,
        failure,
        moved_at: it.moved_at,
    }
}

impl ShownLife {
    fn of(life: &v1::Life) -> Self {
        Self {
            session: life.session.as_ref().map(Shown::of),
            items: life.items.iter().map(item).collect(),
            history: life.history.iter().map(item).collect(),
            cycles: life.cycles.clone(),
            next_at: life.next_at,
        }
    }
}

/// A stamp as a person reads it: when, and how far away that is.
fn when(stamp: u64, now_ms: u64) -> String {
    let Some(at_ms) = Stamp::parse(stamp).ok().map(Stamp::to_epoch_ms) else {
        return String::new();
    };
    let at = UNIX_EPOCH + Duration::from_millis(at_ms);
    let away = |ms: u64| humantime::format_duration(Duration::from_secs(ms / 1_000)).to_string();
    let far = match at_ms.checked_sub(now_ms) {
        Some(ms) => format!("in {}", away(ms)),
        None => format!("{} ago", away(now_ms - at_ms)),
    };
    format!("{} ({far})", humantime::format_rfc3339_millis(at))
}

/// What a person reads of an item beside its text.
fn told(it: &ShownItem, now_ms: u64) -> String {
    match &it.failure {
        Some(failure) => {
            let next = match (failure.task_state.as_str(), failure.retry_at) {
                ("", _) => "nothing tries it again".to_owned(),
                ("PARKED", _) => format!("PARKED: --retry or --skip it (task {})", failure.task),
                (state, 0) => format!("{state} again (task {})", failure.task),
                (_, at) => format!("again at {}", when(at, now_ms)),
            };
            let times = if failure.failures == 1 { "once" } else { "times" };
            let count = if failure.failures == 1 {
                String::new()
            } else {
                format!("{} ", failure.failures)
            };
            format!("failed {count}{times}, {}: {}; {next}", failure.code, failure.report.trim())
        }
        None if it.fired_at > 0 => when(it.fired_at, now_ms),
        None if it.due_at > 0 => when(it.due_at, now_ms),
        None if !it.waits_for.is_empty() => format!("waits for {}", it.waits_for),
        None => String::new(),
    }
}

fn show(life: &v1::Life, out: &mut Out) -> anyhow::Result<()> {
    let shown = ShownLife::of(life);
    if out.format() == Format::Json {
        out.json(&shown)?;
        return Ok(());
    }
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
    let mut table = plain_table(["ITEM", "STATUS", ""]);
    for it in shown.items.iter().chain(&shown.history) {
        let place = if it.moved_at > 0 { ", history" } else { "" };
        table.add_row([it.text.clone(), format!("{}{place}", it.status), told(it, now_ms)]);
    }
    out.table(&table)?;
    for cycle in &shown.cycles {
        let text =
            format!("warning: {cycle} wait for each other, and none of them can fire by itself");
        eprintln!("{}", for_terminals(&text));
    }
    Ok(())
}

/// Items with absolute times: the same ones however often they are sent.
pub fn absolute(items: &[String]) -> anyhow::Result<Vec<String>> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = Stamp::from_epoch_ms(u64::try_from(since.as_millis()).unwrap_or(u64::MAX));
    let read = items.iter().map(|it| {
        let item = LifeItem::parse_entry(it, now).map(|it| it.to_string());
        item.map_err(|mistake| UsageMistake(format!("--life {it:?} {}", mistake.problem)).into())
    });
    read.collect()
}

fn event(given: &[String]) -> Vec<v1::LifeEvent> {
    match given {
        [life_cycle, word] => {
            vec![v1::LifeEvent { life_cycle: life_cycle.clone(), word: word.clone() }]
        }
        _ => Vec::new(),
    }
}

async fn change(
    client: &Client,
    request: v1::UpdateRequest,
    wait: Duration,
    out: &mut Out,
) -> anyhow::Result<()> {
    let unknown = OutcomeUnknown::Change;
    let answer = client.update(request, wait).await;
    let answer = answer.map_err(|error| unknown.unless_refused(error))?;
    show(answer.life.as_ref().context("the answer has no life cycles")?, out)
}

/// `session life`.
pub async fn life(client: &Client, it: &LifeArguments, out: &mut Out) -> anyhow::Result<()> {
    let (namespace, id) = (it.call.namespace.clone(), it.id.clone());
    if !it.retry.is_empty() || !it.skip.is_empty() {
        let (retry, skip) = (event(&it.retry), event(&it.skip));
        let request = v1::UpdateRequest { namespace, id, retry, skip, ..Default::default() };
        return change(client, request, it.call.timeout, out).await;
    }
    let answer = client.life(v1::GetLifeRequest { namespace, id }, it.call.timeout).await?;
    show(answer.life.as_ref().context("the answer has no life cycles")?, out)
}

/// `session update`.
pub async fn update(client: &Client, it: &UpdateArguments, out: &mut Out) -> anyhow::Result<()> {
    let (namespace, id) = (it.call.namespace.clone(), it.id.clone());
    // A name stands for all items of its life cycle, as they are now.
    let (texts, names): (Vec<&String>, Vec<&String>) =
        it.remove.iter().partition(|it| it.contains(' '));
    let mut remove_state: Vec<String> = texts.into_iter().cloned().collect();
    if !names.is_empty() {
        let asked = v1::GetLifeRequest { namespace: namespace.clone(), id: id.clone() };
        let life = client.life(asked, it.call.timeout).await?.life.unwrap_or_default();
        for name in names {
            let items = life.items.iter().filter(|it| it.life_cycle == *name);
            let before = remove_state.len();
            remove_state.extend(items.map(|it| it.text.clone()));
            if remove_state.len() == before {
                let text = format!("--no-life {name}: session {id:?} has no such life cycle");
                anyhow::bail!(UsageMistake(text));
            }
        }
    }
    let request = v1::UpdateRequest {
        namespace,
        id,
        life: it.if_life,
        if_version: it.if_version,
        attributes: super::attributes_once(&it.attributes)?,
        remove_attributes: it.remove_attributes.clone(),
        add_state: absolute(&it.add)?,
        remove_state,
        finish: it.finish.clone(),
        skip: Vec::new(),
        retry: Vec::new(),
    };
    let empty = v1::UpdateRequest {
        namespace: request.namespace.clone(),
        id: request.id.clone(),
        life: request.life,
        if_version: request.if_version,
        ..Default::default()
    };
    if request == empty {
        let told =
            "nothing is to be changed: give --attr, --no-attr, --life, --no-life or --finish";
        anyhow::bail!(UsageMistake(told.to_owned()));
    }
    change(client, request, it.call.timeout, out).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire(text: &str) -> v1::LifeItem {
        let life_cycle = text.split(' ').next().unwrap_or_default().to_owned();
        v1::LifeItem { text: text.to_owned(), life_cycle, ..Default::default() }
    }

    #[test]
    fn each_item_says_how_it_stands() {
        let stamp = 261128000000000;
        let statuses = [
            (v1::LifeItem { due_at: stamp, ..wire("a x@261128000000000") }, "WAITING"),
            (v1::LifeItem { waits_for: "b?y".to_owned(), ..wire("a b?y") }, "WAITING"),
            (wire("a done"), "MARK"),
            (v1::LifeItem { fired_at: stamp, ..wire("a x@261128000000000") }, "FIRED"),
            (v1::LifeItem { fired_at: stamp, skipped: true, ..wire("a b?y") }, "SKIPPED"),
            (v1::LifeItem { failures: 2, ..wire("a b?y") }, "FAILED"),
            (v1::LifeItem { moved_at: stamp, ..wire("a b?y") }, "LEFT"),
        ];
        for (it, status) in statuses {
            assert_eq!(item(&it).status, status, "{it:?}");
        }
    }

    #[test]
    fn a_failure_says_when_it_is_tried_again_or_what_an_operator_may_do() {
        let failed = |task_state: &str| v1::LifeItem {
            failures: 2,
            code: "EXIT-3".to_owned(),
            report: "no\n".to_owned(),
            task: "{a}act-1".to_owned(),
            task_state: task_state.to_owned(),
            ..wire("a b?y")
        };
        let text = told(&item(&failed("PARKED")), 0);
        assert_eq!(
            text,
            "failed 2 times, EXIT-3: no; PARKED: --retry or --skip it (task {a}act-1)"
        );
        let text = told(&item(&failed("RUNNING")), 0);
        assert_eq!(text, "failed 2 times, EXIT-3: no; RUNNING again (task {a}act-1)");
    }

    #[test]
    fn a_time_is_told_with_its_distance() {
        let at_ms = Stamp::parse(261128000000000).unwrap().to_epoch_ms();
        assert_eq!(when(261128000000000, at_ms - 90_500), "2026-11-28T00:00:00.000Z (in 1m 30s)");
        assert_eq!(when(261128000000000, at_ms + 5_000), "2026-11-28T00:00:00.000Z (5s ago)");
        assert_eq!(when(0, at_ms), "");
    }
}
