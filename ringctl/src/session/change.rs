//! `ringctl session watch`: one line per change, and a position to go on from.

use super::FilterArguments;
use super::show::Shown;
use crate::output::{Format, Out};
use crate::position::{WatchProgress, start, to_text};
use clap::Args;
use rota_client::{Client, WatchOptions, v1};
use rota_daemon::Stop;
use serde::Serialize;
use std::time::Duration;

/// `session watch`.
#[derive(Args, Debug)]
pub struct WatchArguments {
    /// Only this session; without it, all that pass the conditions.
    id: Option<String>,
    #[command(flatten)]
    filter: FilterArguments,
    /// Go on from here instead of beginning with a snapshot: a position that was printed
    /// before, or a file (any value with a `/` or `.`, or the name of an existing file) that is
    /// read if it exists and holds the newest position from then on.
    #[arg(long, value_name = "POSITION|FILE")]
    position: Option<String>,
    /// Give up when no manager serves the watch for this long.
    #[arg(long, default_value = "30s", value_parser = crate::length_of_time::length_of_time)]
    patience: Duration,
}

#[derive(Serialize)]
struct Line {
    session: Option<Shown>,
    snapshot: bool,
    caught_up: bool,
    position: String,
}

/// Follows changes until Ctrl-C or another signal that ends: that is how it is meant to end.
pub async fn watch(client: &Client, it: &WatchArguments, out: &mut Out) -> anyhow::Result<()> {
    let mut stop = Stop::listen()?;
    let start = start(it.position.as_deref())?;
    let mut filter = it.filter.to_wire();
    let namespace = match it.id {
        Some(_) => std::mem::take(&mut filter.namespace),
        None => String::new(),
    };
    let request = v1::WatchRequest {
        id: it.id.clone().unwrap_or_default(),
        namespace,
        filter: Some(filter),
        position: start.position.clone().into(),
        r#where: it.filter.conditions.clone(),
    };
    let mut told = WatchProgress::from(&request.position);
    let mut watch = client.watch(request, WatchOptions { patience: it.patience });
    loop {
        let answer = tokio::select! {
            answer = watch.next() => answer?,
            _ = stop.wished() => return Ok(()),
        };
        let line = Line {
            session: answer.session.as_ref().map(Shown::of),
            snapshot: answer.snapshot,
            caught_up: answer.caught_up,
            position: to_text(&answer.position),
        };
        match out.format() {
            Format::Json => out.json(&line)?,
            Format::Table => {
                out.text(&told.text(answer.snapshot, answer.caught_up, as_text(&line)))?
            }
        }
        // After the line is out: a crash in between repeats the line, it does not lose it.
        start.keep(&line.position).await?;
    }
}

/// A line for people, if there is something to say.
fn as_text(line: &Line) -> Option<String> {
    let it = line.session.as_ref()?;
    let kind = if line.snapshot { "is" } else { "->" };
    let (namespace, id, state) = (&it.namespace, &it.id, &it.state);
    let mut text = format!("{}  {namespace}/{id} {kind} {state}", it.version);
    let exit = it.exit_text();
    let notes = [&it.machine_state, &it.reason, &exit, &it.address, &it.node.id];
    for note in notes.into_iter().filter(|note| !note.is_empty()) {
        text.push_str(&format!("  {note}"));
    }
    Some(text)
}
