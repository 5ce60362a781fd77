//! `ringctl session close --where …`: a task closes what the conditions select, and this command follows it.

use super::show::{self, Shown};
use super::{CloseArguments, OutcomeUnknown, UsageMistake};
use crate::document::request_id as parsed_request_id;
use crate::failure::Reported;
use crate::output::{Format, Out, counted, for_terminals, is_at_terminal, is_wanted};
use crate::task::at::now;
use crate::task::read;
use indicatif::{ProgressBar, ProgressStyle};
use rota_client::docstore::{JsonText, Namespace, codes};
use rota_client::tasks::{Order, Task, TaskState};
use rota_client::{Client, Tasks, v1};
use rota_daemon::Stop;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::time::{Duration, Instant};
use xxhash_rust::xxh3::xxh3_64;

/// The operation of the task.
const OPERATION: &str = "session.close";
/// Sessions asked for at once.
const PAGE_SIZE: u32 = 500;
/// How long nobody may say how far the task is.
const UNHEARD_MAX: Duration = Duration::from_secs(60);
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
#[derive(Serialize, PartialEq, Eq, Debug, Default)]
struct Done {
    /// Sessions that matched before the first was closed.
    matching: usize,
    /// The id of the task; none where nothing matched.
    task: Option<String>,
    /// Whether it has come to its end.
    finished: bool,
    /// Of them, those that are closing and have not ended.
    closing: usize,
    /// Of them, those that nobody asked to end: the task was deleted before.
    untouched: usize,
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
    if !it.dry_run && !it.yes && !is_at_terminal() {
        let text = "this is to close many sessions; say so with --yes, or see which with --dry-run";
        anyhow::bail!(UsageMistake(text.to_owned()));
    }
    if conditions.trim().is_empty() {
        let text = "--where is empty, and would select all; say 'age >= 0s' if that is meant";
        anyhow::bail!(UsageMistake(text.to_owned()));
    }
    let key = it.admin_key.get()?;
    let space = Namespace::parse(&it.call.namespace)
        .map_err(|wrong| UsageMistake(format!("--namespace: {wrong}")))?;
    let found = live(client, it, conditions).await?;
    if it.dry_run {
        return planned(&found, out);
    }
    let matching = found.len();
    if matching == 0 {
        return finish(&Done { matching, ..Done::default() }, out);
    }
    let question = || format!("close {} of namespace {}", sessions_of(matching), space.as_str());
    if !it.yes && !is_wanted(&question())? {
        anyhow::bail!("nothing was closed");
    }
    let tasks = client.tasks().with_admin_key(&key);
    let tasks = tasks.map_err(|mistake| UsageMistake(mistake.to_string()))?;
    let docid = register(client, &tasks, &space, it, conditions).await?;
    let is_over = follow(&tasks, (&space, &docid), matching, it.call.timeout).await?;
    let left = if is_over { live(client, it, conditions).await? } else { Vec::new() };
    let were = |one: &&v1::Session| found.iter().any(|it| it.id == one.id && it.life == one.life);
    let left: Vec<&v1::Session> = left.iter().filter(were).collect();
    let is_closing = |it: &&&v1::Session| it.state() == v1::SessionState::Closing;
    let closing = left.iter().filter(is_closing).count();
    let untouched = left.len() - closing;
    finish(&Done { matching, task: Some(docid), finished: is_over, closing, untouched }, out)
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
    // Managers judge it by their own clocks.
    let operation_time = now().minus_ms(1_000);
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
    let created: Created = read(&answer)?;
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
    eprintln!("task {}/{docid} closes them; cancel it with: {cancel}", space.as_str());
    let (mut heard, mut retry) = (Instant::now(), 0);
    loop {
        match tasks.get(space, docid, timeout).await {
            Ok(task) => {
                heard = Instant::now();
                if task.retry > retry {
                    let why = for_terminals(task.report.as_deref().unwrap_or_default()).to_string();
                    bar.suspend(|| eprintln!("a run failed, and is repeated: {why}"));
                    retry = task.retry;
                }
                tell(&bar, &task, &cancel)?;
            }
            Err(error) if error.reason() == codes::TASK.as_str() => break,
            // Its owner may have died: the next one goes on.
            Err(error) if heard.elapsed() > UNHEARD_MAX => {
                bar.finish_and_clear();
                eprintln!("the task goes on, and nobody says how far it is");
                return Err(error.into());
            }
            Err(_) => {}
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
    if done.closing + done.untouched > 0 {
        anyhow::bail!(Reported("some sessions have not ended"));
    }
    Ok(())
}

fn told(done: &Done) -> String {
    let Done { matching, finished, closing, untouched, task } = done;
    if task.is_none() {
        return "no session matches\n".to_owned();
    }
    if !finished {
        return format!("{} are being closed\n", sessions_of(*matching));
    }
    let mut text = format!("closed {}", sessions_of(matching.saturating_sub(closing + untouched)));
    if *closing > 0 {
        text.push_str(&format!("; {closing} are closing and have not ended"));
    }
    if *untouched > 0 {
        text.push_str(&format!("; {untouched} were left alone, since the task was deleted"));
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_became_of_many_is_told_in_one_line() {
        let done = |finished, closing, untouched| {
            let task = Some("{a}b".to_owned());
            told(&Done { matching: 9, task, finished, closing, untouched })
        };
        assert_eq!(told(&Done::default()), "no session matches\n");
        assert_eq!(done(true, 0, 0), "closed 9 sessions\n");
        assert_eq!(
            done(true, 2, 3),
            "closed 4 sessions; 2 are closing and have not ended; 3 were left alone, since the task was deleted\n"
        );
        assert_eq!(done(false, 0, 0), "9 sessions are being closed\n");
    }
}
