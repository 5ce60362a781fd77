//! `ringctl session watch`: one line per change, and a position to go on from.

use super::FilterArguments;
use super::show::Shown;
use crate::output::{Format, Out};
use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use clap::Args;
use rota_client::{Client, WatchOptions, v1};
use serde::Serialize;
use std::path::{Path, PathBuf};
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
    #[arg(long, default_value = "30s", value_parser = crate::cli::length_of_time)]
    patience: Duration,
}

#[derive(Serialize)]
struct Line {
    session: Option<Shown>,
    snapshot: bool,
    caught_up: bool,
    position: String,
}

/// Where to begin, and the file that keeps the newest position.
#[derive(PartialEq, Eq, Debug, Default)]
struct Start {
    position: Vec<u8>,
    file: Option<PathBuf>,
}

fn decode(text: &str) -> anyhow::Result<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text.trim()).context("--position is not a position that was printed")
}

fn start(given: Option<&str>) -> anyhow::Result<Start> {
    let Some(given) = given else { return Ok(Start::default()) };
    let path = Path::new(given);
    if !given.contains(['/', '.']) && !path.is_file() {
        return Ok(Start { position: decode(given)?, file: None });
    }
    let position = match std::fs::read_to_string(path) {
        Ok(text) => decode(&text)?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error).context(format!("--position {given}")),
    };
    Ok(Start { position, file: Some(path.to_owned()) })
}

/// Replaces the file as one, so that a crash leaves the old position or the new one.
fn keep(file: &Path, position: &str) -> anyhow::Result<()> {
    let beside = file.with_extension("new");
    let write = || {
        std::fs::write(&beside, format!("{position}\n"))?;
        std::fs::rename(&beside, file)
    };
    write().with_context(|| format!("cannot keep the position in {}", file.display()))
}

/// Follows changes until Ctrl-C.
pub async fn watch(client: &Client, it: &WatchArguments, out: &mut Out) -> anyhow::Result<()> {
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
        position: start.position.into(),
    };
    let mut watch = client.watch(request, WatchOptions { patience: it.patience });
    loop {
        let answer = tokio::select! {
            answer = watch.next() => answer?,
            stopped = tokio::signal::ctrl_c() => return Ok(stopped?),
        };
        let line = Line {
            session: answer.session.as_ref().map(Shown::of),
            snapshot: answer.snapshot,
            caught_up: answer.caught_up,
            position: URL_SAFE_NO_PAD.encode(&answer.position),
        };
        match out.format() {
            Format::Json => out.json(&line)?,
            Format::Table => out.text(&as_text(&line))?,
        }
        // After the line is out: a crash in between repeats the line, it does not lose it.
        if let (Some(file), false) = (&start.file, line.position.is_empty()) {
            keep(file, &line.position)?;
        }
    }
}

fn as_text(line: &Line) -> String {
    let mut text = String::new();
    if let Some(it) = &line.session {
        let kind = if line.snapshot { "is" } else { "->" };
        text.push_str(&format!("{}  {}/{} {kind} {}", it.version, it.namespace, it.id, it.state));
        let notes = [&it.machine_state, &it.reason, &it.address, &it.node.id];
        for note in notes.into_iter().filter(|note| !note.is_empty()) {
            text.push_str(&format!("  {note}"));
        }
        text.push('\n');
    }
    if line.caught_up {
        text.push_str("-- caught up: what follows are changes\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_text_or_the_name_of_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("position");
        let name = file.to_str().unwrap();
        let fresh = Start { position: Vec::new(), file: Some(file.clone()) };
        assert_eq!(start(Some(name)).unwrap(), fresh);
        keep(&file, &URL_SAFE_NO_PAD.encode(b"here")).unwrap();
        let kept = Start { position: b"here".to_vec(), file: Some(file.clone()) };
        assert_eq!(start(Some(name)).unwrap(), kept);
        let direct = Start { position: b"here".to_vec(), file: None };
        assert_eq!(start(Some(&URL_SAFE_NO_PAD.encode(b"here"))).unwrap(), direct);
    }

    #[test]
    fn a_broken_position_is_refused() {
        assert!(start(Some("%%")).unwrap_err().to_string().contains("--position"));
    }

    #[test]
    fn an_answer_that_only_moves_the_position_prints_no_text() {
        let line =
            Line { session: None, snapshot: false, caught_up: false, position: String::new() };
        assert_eq!(as_text(&line), "");
    }
}
