//! `ringctl session watch`: one line per change, and a position to go on from.

use super::FilterArguments;
use super::show::Shown;
use crate::destination::Destination;
use crate::failure::UsageMistake;
use crate::output::{Format, Out};
use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use clap::Args;
use rota_client::{Client, WatchOptions, v1};
use rota_daemon::Stop;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::AsyncWriteExt;

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

/// Where to begin, and the file that keeps the newest position.
#[derive(PartialEq, Eq, Debug, Default)]
struct Start {
    position: Vec<u8>,
    file: Option<PathBuf>,
}

fn decode(text: &str) -> anyhow::Result<Vec<u8>> {
    let wrong = "--position is neither a position that was printed nor a file";
    URL_SAFE_NO_PAD.decode(text.trim()).map_err(|_| UsageMistake(wrong.to_owned()).into())
}

fn start(given: Option<&str>) -> anyhow::Result<Start> {
    let Some(given) = given else { return Ok(Start::default()) };
    let path = Path::new(given);
    if !given.contains(['/', '.']) && !path.is_file() {
        return Ok(Start { position: decode(given)?, file: None });
    }
    if path.exists() && !path.is_file() {
        let wrong = format!("--position {given} is not a file; give the path of one");
        return Err(UsageMistake(wrong).into());
    }
    let position = match std::fs::read_to_string(path) {
        Ok(text) => decode(&text)?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error).context(format!("--position {given}")),
    };
    Ok(Start { position, file: Some(path.to_owned()) })
}

/// Replaces the file as one, so that a crash leaves the old position or the new one.
async fn keep(file: &Path, position: &str) -> anyhow::Result<()> {
    let write = async {
        let to = Destination::own(file, |_| true)?;
        let mut new = to.open().await?;
        new.write_all(format!("{position}\n").as_bytes()).await?;
        new.flush().await?;
        to.finish(new).await
    };
    write.await.with_context(|| format!("cannot keep the position in {}", file.display()))
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
        position: start.position.into(),
        r#where: it.filter.conditions.clone(),
    };
    let mut told = Told { resumed: !request.position.is_empty(), ..Told::default() };
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
            position: URL_SAFE_NO_PAD.encode(&answer.position),
        };
        match out.format() {
            Format::Json => out.json(&line)?,
            Format::Table => out.text(&told.as_text(&line))?,
        }
        // After the line is out: a crash in between repeats the line, it does not lose it.
        if let (Some(file), false) = (&start.file, line.position.is_empty()) {
            keep(file, &line.position).await?;
        }
    }
}

/// What a reader of the text knows already.
#[derive(Default)]
struct Told {
    /// The watch did not begin with a snapshot, or its first one is complete.
    resumed: bool,
    /// A later snapshot is being shown: a position was too old.
    too_old: bool,
    caught_up: bool,
}

impl Told {
    fn as_text(&mut self, line: &Line) -> String {
        let mut text = String::new();
        if line.snapshot && self.resumed && !self.too_old {
            text.push_str("-- the position was too old: what follows is what there is now\n");
            (self.too_old, self.caught_up) = (true, false);
        }
        if let Some(it) = &line.session {
            let kind = if line.snapshot { "is" } else { "->" };
            let (namespace, id, state) = (&it.namespace, &it.id, &it.state);
            text.push_str(&format!("{}  {namespace}/{id} {kind} {state}", it.version));
            let exit = it.exit_text();
            let notes = [&it.machine_state, &it.reason, &exit, &it.address, &it.node.id];
            for note in notes.into_iter().filter(|note| !note.is_empty()) {
                text.push_str(&format!("  {note}"));
            }
            text.push('\n');
        }
        if line.caught_up {
            // Said again by every manager that takes the watch over; news only after a snapshot.
            if !self.caught_up {
                text.push_str("-- caught up: what follows are changes\n");
            }
            *self = Self { resumed: true, too_old: false, caught_up: true };
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_position_is_text_or_the_name_of_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("position");
        let name = file.to_str().unwrap();
        let fresh = Start { position: Vec::new(), file: Some(file.clone()) };
        assert_eq!(start(Some(name)).unwrap(), fresh);
        keep(&file, &URL_SAFE_NO_PAD.encode(b"here")).await.unwrap();
        let kept = Start { position: b"here".to_vec(), file: Some(file.clone()) };
        assert_eq!(start(Some(name)).unwrap(), kept);
        let direct = Start { position: b"here".to_vec(), file: None };
        assert_eq!(start(Some(&URL_SAFE_NO_PAD.encode(b"here"))).unwrap(), direct);
    }

    #[test]
    fn a_position_in_what_is_no_file_is_refused() {
        let error = start(Some("/dev/null")).unwrap_err();
        assert!(crate::failure::is_usage(&error) && error.to_string().contains("--position"));
    }

    #[test]
    fn a_broken_position_is_refused() {
        assert!(start(Some("%%")).unwrap_err().to_string().contains("--position"));
    }

    fn line(session: Option<&str>, snapshot: bool, caught_up: bool) -> Line {
        let session =
            session.map(|id| Shown::of(&v1::Session { id: id.to_owned(), ..Default::default() }));
        Line { session, snapshot, caught_up, position: String::new() }
    }

    #[test]
    fn an_answer_that_only_moves_the_position_prints_no_text() {
        assert_eq!(Told::default().as_text(&line(None, false, false)), "");
    }

    #[test]
    fn only_a_snapshot_that_nobody_asked_for_is_told_as_one() {
        let mut fresh = Told::default();
        assert!(!fresh.as_text(&line(Some("a"), true, false)).contains("too old"));
        assert!(fresh.as_text(&line(None, false, true)).contains("caught up"));
        assert_eq!(fresh.as_text(&line(None, false, true)), "", "another manager goes on");
        assert!(fresh.as_text(&line(Some("a"), true, false)).contains("too old"));
        let mut resumed = Told { resumed: true, ..Told::default() };
        assert!(resumed.as_text(&line(None, true, false)).contains("too old"));
        assert!(!resumed.as_text(&line(Some("a"), true, false)).contains("too old"), "told once");
        assert!(resumed.as_text(&line(None, false, true)).contains("caught up"));
    }
}
