//! `ringctl session close --where …`: a task closes what the conditions select, and this command follows it.

use super::show::{self, Shown};
use super::{CloseArguments, OutcomeUnknown, UsageMistake};
use crate::document::request_id as parsed_request_id;
use crate::failure::Reported;
use crate::output::{Format, Out, counted};
use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use rota_client::docstore::{JsonText, Namespace, Stamp, codes};
use rota_client::tasks::{Order, Task, TaskState};
use rota_client::{Client, Tasks, v1};
use rota_daemon::Stop;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::io::{BufRead, IsTerminal, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use xxhash_rust::xxh3::xxh3_64;

/// The operation of the task.
const OPERATION: &str = "session.close";
/// Sessions asked for at once.
const PAGE_SIZE: u32 = 500;
/// Between two looks at the task.
const LOOK_EVERY: Duration = Duration::from_millis(300);

/// What would be closed.
#[derive(Serialize)]
struct Planned {
    dry_run: bool,
    matching: usize,
    sessions: Vec<Shown>,
}

/// What became of it.
#[derive(Serialize, PartialEq, Eq, Debug)]
struct Done {
    /// Sessions that matched before the first was closed.
    matching: usize,
    /// The id of the task; none where nothing matched.
    task: Option<String>,
    /// Whether it has come to its end.
    finished: bool,
    /// Sessions that match and lived before, and live still.
    left: usize,
}

/// What `task.create` answers.
#[derive(Deserialize)]
struct Created {
    docid: String,
}

/// Closes what the conditions select.
pub async fn run(
    client: &Client,
    it: &CloseArguments,
    conditions: &str,
    out: &mut Out,
) -> anyhow::Result<()> {
    let at_terminal = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    if !it.dry_run && !it.yes && !at_terminal {
        let text = "this is to close many sessions; say so with --yes, or see which with --dry-run";
        anyhow::bail!(UsageMistake(text.to_owned()));
    }
    let space = Namespace::parse(&it.call.namespace)
        .map_err(|wrong| UsageMistake(format!("--namespace: {wrong}")))?;
    let found = live(client, it, conditions).await?;
    if it.dry_run {
        return planned(&found, out);
    }
    let matching = found.len();
    if matching == 0 {
        return finish(&Done { matching, task: None, finished: true, left: 0 }, out);
    }
    if !it.yes && !is_wanted(matching, space.as_str())? {
        anyhow::bail!("nothing was closed");
    }
    let tasks = client.tasks().with_admin_key(&it.admin_key.get()?);
    let tasks = tasks.map_err(|mistake| UsageMistake(mistake.to_string()))?;
    let docid = register(client, &tasks, &space, it, conditions).await?;
    let is_over = follow(&tasks, (&space, &docid), matching, it.call.timeout).await?;
    let left = if is_over { live(client, it, conditions).await? } else { Vec::new() };
    let were = |one: &&v1::Session| found.iter().any(|it| it.id == one.id && it.life == one.life);
    let left = left.iter().filter(were).count();
    finish(&Done { matching, task: Some(docid), finished: is_over, left }, out)
}

/// Sessions that match and have not ended.
async fn live(
    client: &Client,
    it: &CloseArguments,
    conditions: &str,
) -> anyhow::Result<Vec<v1::Session>> {
    let namespace = it.call.namespace.clone();
    let request = v1::ListRequest {
        filter: Some(v1::Filter { namespace, ..v1::Filter::default() }),
        page_size: PAGE_SIZE,
        r#where: conditions.to_owned(),
        sort: "docid".to_owned(),
        ..v1::ListRequest::default()
    };
    let all = client.list_first(request, usize::MAX, it.call.timeout).await?;
    let lives = |session: &v1::Session| match session.state() {
        v1::SessionState::Pending
        | v1::SessionState::Starting
        | v1::SessionState::Ready
        | v1::SessionState::Closing => true,
        v1::SessionState::Unspecified
        | v1::SessionState::Closed
        | v1::SessionState::Failed
        | v1::SessionState::Lost => false,
    };
    Ok(all.sessions.into_iter().filter(lives).collect())
}

fn planned(found: &[v1::Session], out: &mut Out) -> anyhow::Result<()> {
    let sessions: Vec<Shown> = found.iter().map(Shown::of).collect();
    let matching = sessions.len();
    match out.format() {
        Format::Json => out.json(&Planned { dry_run: true, matching, sessions })?,
        Format::Table => {
            out.table(&show::many(&sessions))?;
            eprintln!("would be closed: {}", sessions_of(matching));
        }
    }
    Ok(())
}

fn sessions_of(count: usize) -> String {
    counted(u64::try_from(count).unwrap_or(u64::MAX), "session")
}

/// Asks a person.
fn is_wanted(count: usize, space: &str) -> anyhow::Result<bool> {
    let mut stderr = std::io::stderr();
    write!(stderr, "close {} of namespace {space}? [y/N] ", sessions_of(count))?;
    stderr.flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// Registers the task; gives the id of its document.
async fn register(
    client: &Client,
    tasks: &Tasks,
    space: &Namespace,
    it: &CloseArguments,
    conditions: &str,
) -> anyhow::Result<String> {
    let name = super::request_id(client, &it.request_id);
    let request_id = parsed_request_id(&name).map_err(UsageMistake)?;
    // It follows from the name, so that a repetition comes to the same place.
    let place = format!("{:016x}", xxh3_64(name.as_bytes()));
    let mut param = json!({"where": conditions});
    if let Some(ms) = it.grace_ms() {
        param["grace_ms"] = json!(ms);
    }
    let info = conditions.chars().take(200).collect::<String>();
    let form = json!({"operation": OPERATION, "place": place, "param": param, "info": info});
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
    // Managers judge it by their own clocks.
    let operation_time = Stamp::from_epoch_ms(now_ms.saturating_sub(1_000));
    let order = Order {
        space: space.clone(),
        docid: format!("{{{place}}}"),
        operation: "task.create".to_owned(),
        parameters: JsonText::of(&form).map_err(|wrong| anyhow::anyhow!("{wrong}"))?,
        operation_time,
        request_id: request_id.clone(),
    };
    let answer = tasks.order(&order, it.call.timeout).await.map_err(|error| {
        OutcomeUnknown::Operation(Some((operation_time, request_id))).unless_refused(error)
    })?;
    let text = match &answer.body {
        rota_client::docstore::Body::Json(text) => Some(text.as_str()),
        rota_client::docstore::Body::Nothing | rota_client::docstore::Body::Binary { .. } => None,
    };
    let created: Created = serde_json::from_str(text.context("the answer has no JSON")?)?;
    Ok(created.docid)
}

/// Shows how far the task is, until it has ended or somebody waits no longer. Whether it has ended.
async fn follow(
    tasks: &Tasks,
    (space, docid): (&Namespace, &str),
    matching: usize,
    timeout: Duration,
) -> anyhow::Result<bool> {
    let mut stop = Stop::listen()?;
    let style = ProgressStyle::with_template("{elapsed} {bar:40} {pos} of {len} closed");
    let length = u64::try_from(matching).unwrap_or(u64::MAX);
    let bar = ProgressBar::new(length).with_style(style.expect("the template is valid"));
    let cancel = format!("ringctl task delete '{}/{docid}'", space.as_str());
    loop {
        match tasks.get(space, docid, timeout).await {
            Ok(task) => tell(&bar, &task, &cancel)?,
            Err(error) if error.reason() == codes::TASK.as_str() => break,
            Err(error) => {
                eprintln!("the task goes on; cancel it with: {cancel}");
                return Err(error.into());
            }
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK_EVERY) => {}
            _ = stop.wished() => {
                bar.finish_and_clear();
                eprintln!("the task goes on; cancel it with: {cancel}");
                return Ok(false);
            }
        }
    }
    bar.finish_and_clear();
    Ok(true)
}

fn tell(bar: &ProgressBar, task: &Task, cancel: &str) -> anyhow::Result<()> {
    bar.set_position(task.progress.unwrap_or_default().done);
    match task.state() {
        TaskState::Parked => {
            bar.finish_and_clear();
            let why = task.report.clone().unwrap_or_default();
            anyhow::bail!(
                "the task failed too often and was given up: {why}; delete it with: {cancel}"
            );
        }
        TaskState::Paused => {
            bar.finish_and_clear();
            anyhow::bail!("an administrator holds the task back; delete it with: {cancel}");
        }
        TaskState::Waiting | TaskState::Running | TaskState::Lost => Ok(()),
    }
}

fn finish(done: &Done, out: &mut Out) -> anyhow::Result<()> {
    match out.format() {
        Format::Json => out.json(done)?,
        Format::Table => out.text(&told(done))?,
    }
    if done.left > 0 {
        anyhow::bail!(Reported("some sessions have not ended"));
    }
    Ok(())
}

fn told(done: &Done) -> String {
    match done {
        Done { matching: 0, .. } => "no session matches\n".to_owned(),
        Done { matching, finished: false, .. } => {
            format!("{} are being closed\n", sessions_of(*matching))
        }
        Done { matching, left: 0, .. } => format!("closed {}\n", sessions_of(*matching)),
        Done { matching, left, .. } => {
            let closed = sessions_of(matching.saturating_sub(*left));
            format!("closed {closed}; {left} are closing and have not ended\n")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_became_of_many_is_told_in_one_line() {
        let done = |matching, finished, left| {
            told(&Done { matching, task: Some("{a}b".to_owned()), finished, left })
        };
        assert_eq!(done(0, true, 0), "no session matches\n");
        assert_eq!(done(1, true, 0), "closed 1 session\n");
        assert_eq!(done(9, true, 2), "closed 7 sessions; 2 are closing and have not ended\n");
        assert_eq!(done(9, false, 0), "9 sessions are being closed\n");
    }
}
