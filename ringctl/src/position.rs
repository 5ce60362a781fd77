//! Positions of watches: where one begins, the file that keeps the newest, and what people are told of it.

use crate::destination::Destination;
use crate::failure::UsageMistake;
use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use std::path::{Path, PathBuf};
use tokio::io::AsyncWriteExt;

/// Where to begin, and the file that keeps the newest position.
#[derive(PartialEq, Eq, Debug, Default)]
pub struct Start {
    /// Empty: with a snapshot.
    pub position: Vec<u8>,
    file: Option<PathBuf>,
}

/// A position as it is printed.
pub fn to_text(position: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(position)
}

fn decode(text: &str) -> anyhow::Result<Vec<u8>> {
    let wrong = "--position is neither a position that was printed nor a file";
    URL_SAFE_NO_PAD.decode(text.trim()).map_err(|_| UsageMistake(wrong.to_owned()).into())
}

/// From `--position`: a position, or a file (any value with a `/` or `.`, or the name of an existing file).
pub fn start(given: Option<&str>) -> anyhow::Result<Start> {
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

impl Start {
    /// Keeps a position in the file, if there is one: as one, so that a crash leaves the old position or the
    /// new one. An empty position says nothing.
    pub async fn keep(&self, position: &str) -> anyhow::Result<()> {
        let Some(file) = self.file.as_ref().filter(|_| !position.is_empty()) else {
            return Ok(());
        };
        let write = async {
            let to = Destination::own(file, |_| true)?;
            let mut new = to.open().await?;
            new.write_all(format!("{position}\n").as_bytes()).await?;
            new.flush().await?;
            to.finish(new).await
        };
        write.await.with_context(|| format!("cannot keep the position in {}", file.display()))
    }
}

/// What a reader of the text knows already.
#[derive(Default)]
pub struct WatchProgress {
    /// The watch did not begin with a snapshot, or its first one is complete.
    resumed: bool,
    /// A later snapshot is being shown: a position was too old.
    too_old: bool,
    caught_up: bool,
}

impl WatchProgress {
    /// A watch that begins there.
    pub fn from(position: &[u8]) -> Self {
        Self { resumed: !position.is_empty(), ..Self::default() }
    }

    /// The lines for an answer with a line of its own, or without one.
    pub fn text(&mut self, snapshot: bool, caught_up: bool, line: Option<String>) -> String {
        let mut text = String::new();
        if snapshot && self.resumed && !self.too_old {
            text.push_str("-- the position was too old: what follows is what there is now\n");
            (self.too_old, self.caught_up) = (true, false);
        }
        if let Some(line) = line {
            text.push_str(&line);
            text.push('\n');
        }
        if caught_up {
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
        fresh.keep(&to_text(b"here")).await.unwrap();
        fresh.keep("").await.unwrap();
        let kept = Start { position: b"here".to_vec(), file: Some(file.clone()) };
        assert_eq!(start(Some(name)).unwrap(), kept);
        let direct = Start { position: b"here".to_vec(), file: None };
        assert_eq!(start(Some(&to_text(b"here"))).unwrap(), direct);
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

    #[test]
    fn an_answer_that_only_moves_the_position_prints_no_text() {
        assert_eq!(WatchProgress::default().text(false, false, None), "");
    }

    #[test]
    fn only_a_snapshot_that_nobody_asked_for_is_told_as_one() {
        let line = || Some("a".to_owned());
        let mut fresh = WatchProgress::default();
        assert!(!fresh.text(true, false, line()).contains("too old"));
        assert!(fresh.text(false, true, None).contains("caught up"));
        assert_eq!(fresh.text(false, true, None), "", "another manager goes on");
        assert!(fresh.text(true, false, line()).contains("too old"));
        let mut resumed = WatchProgress::from(b"here");
        assert!(resumed.text(true, false, None).contains("too old"));
        assert!(!resumed.text(true, false, line()).contains("too old"), "told once");
        assert!(resumed.text(false, true, None).contains("caught up"));
    }
}
