//! `ringctl session logs`: what a program prints, and printed.
//!
//! Bytes of its standard output go to ours, those of its standard error to ours, as they are. A terminal gets text
//! with control characters shown instead of sent. JSON has one document a line of output, from which every byte can
//! be had again.

use super::forget::forget;
use super::show::Shown;
use super::silence::{Awaited, whom};
use crate::length_of_time::length_of_time;
use crate::output::{Format, Out, for_terminals};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::{Args, ValueEnum};
use rota_client::v1::Output;
use rota_client::v1::logs_response::Begin;
use rota_client::{Client, Logs, Printed, v1};
use rota_daemon::Stop;
use serde::Serialize;
use std::io::{IsTerminal, Write};
use std::ops::Range;
use std::time::Duration;
use tokio::time::timeout;

/// Longest line of output in one document; a longer one is cut into several.
const LINE_BYTES_MAX: usize = 64 * 1024;

/// How long it may take to learn how a program ended that was followed to its end.
const EXIT_WAIT: Duration = Duration::from_secs(3);

/// Who has heard nothing for so long is told.
const SILENCE: Duration = Duration::from_secs(2);

/// `session logs`.
#[derive(Args, Debug)]
pub struct LogsArguments {
    /// Id of the session.
    id: String,
    /// Namespace of the id.
    #[arg(long, default_value = "default")]
    namespace: String,
    /// Go on with what is printed later, until the program has ended; ends on Ctrl-C, too, with exit code 0.
    #[arg(short, long)]
    follow: bool,
    /// Only the last so many lines of each output.
    #[arg(short = 'n', long, value_name = "LINES", value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    tail: Option<u32>,
    /// Of this life (see `session get`); without it, of the newest.
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    life: u64,
    /// Ask this node; without it, the one where the life ran, or every node when no record tells.
    #[arg(long, default_value = "", hide_default_value = true)]
    node: String,
    /// Only this output.
    #[arg(long, value_enum, value_name = "OUTPUT")]
    only: Option<Only>,
    /// Remove what the ring keeps of it, instead of showing it: of one life with --life, else of all.
    #[arg(long, conflicts_with_all = ["follow", "tail", "node", "only", "raw"])]
    forget: bool,
    /// Send control characters to a terminal, as the program did.
    #[arg(long)]
    raw: bool,
    /// Give up when no manager or node serves it for this long.
    #[arg(long, default_value = "30s", value_parser = length_of_time)]
    patience: Duration,
}

/// One of the outputs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Only {
    Stdout,
    Stderr,
}

impl LogsArguments {
    /// Whether it may be silent for long.
    pub fn follows(&self) -> bool {
        self.follow
    }

    fn request(&self) -> v1::LogsRequest {
        let only = match self.only {
            None => Output::Unspecified,
            Some(Only::Stdout) => Output::Stdout,
            Some(Only::Stderr) => Output::Stderr,
        };
        v1::LogsRequest {
            namespace: self.namespace.clone(),
            id: self.id.clone(),
            life: self.life,
            node: self.node.clone(),
            only: only.into(),
            tail: self.tail,
            follow: self.follow,
            ..v1::LogsRequest::default()
        }
    }
}

/// Shows it until its end, or until a signal ends it.
pub async fn run(client: &Client, it: &LogsArguments, out: &mut Out) -> anyhow::Result<()> {
    if it.forget {
        return forget(client, (&it.namespace, &it.id, it.life), it.patience, out).await;
    }
    let mut stop = Stop::listen()?;
    let mut logs = client.logs(it.request(), it.patience);
    let mut show = Show::new(out.format(), it);
    let mut silence = Some(SILENCE);
    loop {
        let next = first_or_told(logs.next(), silence.take(), (client, it));
        let printed = tokio::select! {
            printed = next => printed?,
            _ = stop.wished() => return Ok(()),
        };
        match printed {
            Some(printed) => {
                if let (Printed::Begins(begin), Format::Table) = (&printed, out.format())
                    && begin.kept_by_ring
                {
                    tell_kept(client, it, begin).await;
                }
                show.printed(&printed, out)?;
            }
            None => break,
        }
    }
    show.end(out)?;
    if it.follow {
        ended(client, it, &logs, &show, out).await?;
    }
    Ok(())
}

/// Says that the output comes from the ring, and how its node is.
async fn tell_kept(client: &Client, it: &LogsArguments, begin: &Begin) {
    let Begin { node, life, .. } = begin;
    let awaited = Awaited { namespace: &it.namespace, id: &it.id, life: *life, node };
    let how = whom(client, &awaited).await.unwrap_or_else(|| format!("node {node} is gone"));
    eprintln!(
        "-- {how}, and does not tell it: this is the end of what life {life} printed there, as the ring keeps it"
    );
}

/// Waits for the answer. Whoever waits is told when it takes longer than that.
async fn first_or_told<T>(
    answer: impl Future<Output = T>,
    silence: Option<Duration>,
    (client, it): (&Client, &LogsArguments),
) -> T {
    let Some(silence) = silence else { return answer.await };
    tokio::pin!(answer);
    if let Ok(answer) = timeout(silence, &mut answer).await {
        return answer;
    }
    let awaited = Awaited { namespace: &it.namespace, id: &it.id, life: it.life, node: &it.node };
    let (patience, id) = (it.patience, &it.id);
    let told = tokio::select! {
        biased;
        answer = &mut answer => return answer,
        told = whom(client, &awaited) => told,
    };
    let told = told.unwrap_or_else(|| {
        format!(
            "`ringctl session get {id}` tells the node, and `ringctl node list` whether that node answers"
        )
    });
    eprintln!("no answer yet; asking for up to {patience:?} (--patience). {told}");
    answer.await
}

/// The program that was followed has ended. How, if its record is still there.
async fn ended(
    client: &Client,
    it: &LogsArguments,
    logs: &Logs,
    show: &Show,
    out: &mut Out,
) -> anyhow::Result<()> {
    let (namespace, id) = (it.namespace.clone(), it.id.clone());
    let get = v1::GetRequest { namespace, id, stale_ok: true };
    let session = client.get(get, EXIT_WAIT).await.ok().and_then(|it| it.session);
    let life = show.begun.life;
    let shown = session.as_ref().map(Shown::of).filter(|it| it.life == life);
    let exit = shown.as_ref().map(Shown::exit_text).filter(|it| !it.is_empty());
    match out.format() {
        Format::Json => {
            let running = logs.running().unwrap_or(false);
            out.json(&Note::End { running, life, exit: shown.and_then(|it| it.exit) })?;
        }
        Format::Table => {
            let how = exit.map(|it| format!(": {it}")).unwrap_or_default();
            eprintln!("-- the program of life {life} has ended{how}");
        }
    }
    Ok(())
}

/// A document that is no output.
#[derive(Serialize)]
#[serde(rename_all = "snake_case", tag = "note")]
enum Note<'a> {
    Begin { node: &'a str, life: u64, running: bool, kept_by_ring: bool },
    Missing { output: &'static str, bytes: u64 },
    End { running: bool, life: u64, exit: Option<super::show::ShownExit> },
}

/// A line of output: its text, or its bytes where they are none.
#[derive(Serialize, PartialEq, Eq, Debug)]
struct Line {
    output: &'static str,
    /// Of its first byte in the whole output.
    offset: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
    /// It has no end of line: the program printed none, or the line goes on in the next document.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    partial: bool,
}

/// One output on its way to whoever reads.
struct Flow {
    name: &'static str,
    /// What waits for the rest of its line, or of its character.
    pending: Vec<u8>,
    /// Where that begins.
    offset: u64,
    is_terminal: bool,
}

impl Flow {
    fn new(name: &'static str, is_terminal: bool) -> Self {
        Self { name, pending: Vec::new(), offset: 0, is_terminal }
    }

    /// Bytes that begin at `offset`: complete lines as documents.
    fn lines(&mut self, offset: u64, bytes: &[u8]) -> Vec<Line> {
        if self.pending.is_empty() {
            self.offset = offset;
        }
        // What waits has no end of line.
        let (mut begin, mut searched) = (0, self.pending.len());
        self.pending.extend_from_slice(bytes);
        let mut lines = Vec::new();
        loop {
            let most = self.pending.len().min(begin + LINE_BYTES_MAX);
            let end = self.pending[searched..most].iter().position(|it| *it == b'\n');
            let is_full = most == begin + LINE_BYTES_MAX;
            let (until, end) = match end {
                Some(end) => (searched + end, 1),
                None if is_full => (most, 0),
                None => break,
            };
            lines.push(self.line(begin..until, end == 0));
            begin = until + end;
            searched = begin;
        }
        self.pending.drain(..begin);
        self.offset += begin as u64;
        lines
    }

    /// What is left at the end, or before bytes that are missing.
    fn last_line(&mut self) -> Option<Line> {
        let length = self.pending.len();
        let line = (length > 0).then(|| self.line(0..length, true));
        self.pending.clear();
        line
    }

    /// Of these bytes that wait.
    fn line(&self, range: Range<usize>, partial: bool) -> Line {
        let offset = self.offset + range.start as u64;
        let bytes = &self.pending[range];
        let (text, base64) = match std::str::from_utf8(bytes) {
            Ok(text) => (Some(text.to_owned()), None),
            Err(_) => (None, Some(STANDARD.encode(bytes))),
        };
        Line { output: self.name, offset, text, base64, partial }
    }

    /// Writes what waits although its line, or its character, has no end.
    fn write_rest(&mut self, out: &mut Out) -> anyhow::Result<()> {
        let rest = self.last_line();
        match out.format() {
            Format::Json => rest.iter().try_for_each(|it| out.json(it))?,
            // Half a character is left.
            Format::Table if rest.is_some() => eprintln!("\u{fffd}"),
            Format::Table => {}
        }
        Ok(())
    }

    /// The same bytes as text for a terminal. A character that is cut waits for its rest.
    fn text(&mut self, bytes: &[u8]) -> String {
        self.pending.extend_from_slice(bytes);
        let is_cut =
            |error: std::str::Utf8Error| error.error_len().is_none().then(|| error.valid_up_to());
        let whole = match self.pending.utf8_chunks().last() {
            Some(chunk) => match std::str::from_utf8(chunk.invalid()).err().and_then(is_cut) {
                Some(_) => self.pending.len() - chunk.invalid().len(),
                None => self.pending.len(),
            },
            None => 0,
        };
        let rest = self.pending.split_off(whole);
        let bytes = std::mem::replace(&mut self.pending, rest);
        for_terminals(&String::from_utf8_lossy(&bytes).replace("\r\n", "\n")).into_owned()
    }
}

/// What was begun, and both outputs.
struct Show {
    begun: Begin,
    is_tail: bool,
    only: Option<Only>,
    out: Flow,
    err: Flow,
}

impl Show {
    fn new(format: Format, it: &LogsArguments) -> Self {
        let shows = |is_terminal: bool| is_terminal && format == Format::Table && !it.raw;
        Self {
            begun: Begin::default(),
            is_tail: it.tail.is_some(),
            only: it.only,
            out: Flow::new("stdout", shows(std::io::stdout().is_terminal())),
            err: Flow::new("stderr", shows(std::io::stderr().is_terminal())),
        }
    }

    fn printed(&mut self, printed: &Printed, out: &mut Out) -> anyhow::Result<()> {
        match printed {
            Printed::Begins(begin) => {
                self.begun = begin.clone();
                if out.format() == Format::Json {
                    let Begin { node, life, running, kept_by_ring, .. } = begin;
                    let (life, running, kept_by_ring) = (*life, *running, *kept_by_ring);
                    out.json(&Note::Begin { node, life, running, kept_by_ring })?;
                }
                // What went before the oldest that is kept is not what somebody asked for who wants the last lines.
                let missing = [
                    ("stdout", begin.stdout_from, Only::Stdout),
                    ("stderr", begin.stderr_from, Only::Stderr),
                ];
                for (output, bytes, name) in missing {
                    let is_asked = self.only.is_none_or(|it| it == name);
                    if is_asked && bytes > 0 && !self.is_tail {
                        tell_missing(output, bytes, out)?;
                    }
                }
            }
            Printed::Missing { output, bytes } => {
                let flow = self.flow(*output);
                flow.write_rest(out)?;
                tell_missing(flow.name, *bytes, out)?;
            }
            Printed::Piece(piece) => {
                let is_err = piece.output() == Output::Stderr;
                let flow = self.flow(piece.output());
                if out.format() == Format::Json {
                    for line in flow.lines(piece.offset, &piece.bytes) {
                        out.json(&line)?;
                    }
                    return Ok(());
                }
                let shown = flow.is_terminal.then(|| flow.text(&piece.bytes));
                let bytes = shown.as_ref().map_or(&piece.bytes[..], String::as_bytes);
                if is_err { std::io::stderr().write_all(bytes)? } else { out.bytes(bytes)? }
            }
        }
        Ok(())
    }

    fn flow(&mut self, output: Output) -> &mut Flow {
        match output {
            Output::Stderr => &mut self.err,
            Output::Stdout | Output::Unspecified => &mut self.out,
        }
    }

    fn end(&mut self, out: &mut Out) -> anyhow::Result<()> {
        self.out.write_rest(out)?;
        self.err.write_rest(out)
    }
}

fn tell_missing(output: &'static str, bytes: u64, out: &mut Out) -> anyhow::Result<()> {
    match out.format() {
        Format::Json => out.json(&Note::Missing { output, bytes })?,
        Format::Table => eprintln!(
            "-- {bytes} bytes of {output} are not kept any more (--output-bytes-max of the node says how many are)"
        ),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(offset: u64, text: &str, partial: bool) -> Line {
        let (output, text, base64) = ("stdout", Some(text.to_owned()), None);
        Line { output, offset, text, base64, partial }
    }

    #[test]
    fn each_line_is_a_document_from_which_its_bytes_can_be_had_again() {
        let mut flow = Flow::new("stdout", false);
        assert_eq!(flow.lines(7, b"on"), []);
        assert_eq!(
            flow.lines(9, b"e\n\ntwo\n\xff\nth"),
            [
                text(7, "one", false),
                text(11, "", false),
                text(12, "two", false),
                Line { base64: Some("/w==".into()), text: None, ..text(16, "", false) },
            ]
        );
        assert_eq!(flow.last_line(), Some(text(18, "th", true)));
        assert_eq!(flow.last_line(), None);
        let long = flow.lines(20, &vec![b'x'; LINE_BYTES_MAX + 1]);
        assert!(long.len() == 1 && long[0].partial, "a line that never ends takes no memory");
        let begin = 20 + LINE_BYTES_MAX as u64;
        assert_eq!(flow.lines(begin + 1, b"y\nz"), [text(begin, "xy", false)]);
        assert_eq!(flow.last_line(), Some(text(begin + 3, "z", true)));
    }

    fn show(only: Option<Only>) -> Show {
        let flow = |name| Flow::new(name, false);
        let (out, err) = (flow("stdout"), flow("stderr"));
        Show { begun: Begin::default(), is_tail: false, only, out, err }
    }

    fn documents(show: &mut Show, printed: &[Printed]) -> Vec<serde_json::Value> {
        let (mut out, written) = Out::captured(Format::Json);
        printed.iter().for_each(|it| show.printed(it, &mut out).unwrap());
        written.text().lines().map(|it| serde_json::from_str(it).unwrap()).collect()
    }

    #[test]
    fn what_waits_comes_before_the_word_of_missing_bytes() {
        let piece = |offset, bytes: &'static str| {
            let output = Output::Stdout.into();
            Printed::Piece(v1::logs_response::Piece { output, offset, bytes: bytes.into() })
        };
        let missing = Printed::Missing { output: Output::Stdout, bytes: 10 };
        let printed = [piece(0, "one\ntw"), missing, piece(16, "e\n")];
        let documents = documents(&mut show(None), &printed);
        let line = |offset, text: &str| serde_json::json!({"output": "stdout", "offset": offset, "text": text});
        let mut partial = line(4, "tw");
        partial["partial"] = true.into();
        let missing = serde_json::json!({"note": "missing", "output": "stdout", "bytes": 10});
        assert_eq!(documents, [line(0, "one"), partial, missing, line(16, "e")]);
    }

    #[test]
    fn who_asks_for_one_output_hears_nothing_of_the_other() {
        let begin = Begin { stdout_from: 5, stderr_from: 7, ..Begin::default() };
        let missing = |only| {
            let documents = documents(&mut show(only), &[Printed::Begins(begin.clone())]);
            let of = documents.iter().filter(|it| it["note"] == "missing");
            of.map(|it| it["bytes"].as_u64().unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(missing(None), [5, 7]);
        assert_eq!(missing(Some(Only::Stderr)), [7]);
        assert_eq!(missing(Some(Only::Stdout)), [5]);
    }

    #[test]
    fn a_terminal_gets_whole_characters_and_no_commands() {
        let mut flow = Flow::new("stdout", true);
        assert_eq!(flow.text(b"gr\xc3"), "gr");
        assert_eq!(flow.text(b"\xbcn\r\n\x1b[31m"), "\u{fc}n\n\\u{1b}[31m");
        assert_eq!(flow.text(b"\xff\xe2\x82"), "\u{fffd}");
        assert_eq!(flow.text(b"\xac\t!"), "\u{20ac}\t!");
    }
}
