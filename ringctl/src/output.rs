//! What goes to stdout: one JSON document (or one a line, for streams), or text for people.

use clap::ValueEnum;
use comfy_table::{ContentArrangement, Table, presets};
use rota_model::text::misleads;
use serde::Serialize;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::os::fd::BorrowedFd;
use tokio::fs::File;

/// Stands for standard input or output where a file is asked for.
pub const STANDARD: &str = "-";

/// Standard input or output as a file: bytes go through as they are.
pub fn standard(fd: BorrowedFd<'_>) -> io::Result<File> {
    Ok(File::from_std(std::fs::File::from(fd.try_clone_to_owned()?)))
}

/// What stdout gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Format {
    /// Tables for people.
    Table,
    /// JSON for programs.
    Json,
}

/// Standard output. Every write reports its failure: a reader that went away is no panic.
pub struct Out {
    format: Format,
    sink: Box<dyn Write>,
    style: Style,
}

/// What the reader of the text can show.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Style {
    /// Lines and blocks beyond ASCII.
    pub unicode: bool,
    /// Colours.
    pub colour: bool,
    /// Columns of the terminal.
    pub columns: u16,
}

impl Style {
    /// For files and pipes.
    pub const PLAIN: Style = Style { unicode: false, colour: false, columns: 100 };

    fn of_stdout() -> Self {
        if !io::stdout().is_terminal() {
            return Self::PLAIN;
        }
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
            .iter()
            .find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()));
        let unicode =
            locale.is_some_and(|it| it.to_ascii_lowercase().replace('-', "").contains("utf8"));
        let colour = std::env::var_os("NO_COLOR").is_none();
        let size = rustix::termios::tcgetwinsize(io::stdout());
        let columns = size.map_or(100, |size| size.ws_col).max(60);
        Self { unicode, colour, columns }
    }
}

impl Out {
    /// The process's own.
    pub fn stdout(format: Format) -> Self {
        Self { format, sink: Box::new(io::stdout().lock()), style: Style::of_stdout() }
    }

    /// The format that was asked for.
    pub fn format(&self) -> Format {
        self.format
    }

    /// What the reader can show.
    pub fn style(&self) -> Style {
        self.style
    }

    /// One document on one line.
    pub fn json<T: Serialize>(&mut self, document: &T) -> io::Result<()> {
        let line = serde_json::to_string(document)?;
        self.drawn(&format!("{}\n", json_for_terminals(&line)))
    }

    /// Text, with control characters shown instead of sent: clients choose what stands in a session
    /// or a document, and must not write into the terminal of whoever looks at it.
    pub fn text(&mut self, text: &str) -> io::Result<()> {
        self.drawn(&for_terminals(text))
    }

    /// Text of this program alone, as it is: colours may stand in it.
    pub fn drawn(&mut self, text: &str) -> io::Result<()> {
        self.sink.write_all(text.as_bytes())?;
        self.sink.flush()
    }

    /// What a program printed, as it is.
    pub fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sink.write_all(bytes)?;
        self.sink.flush()
    }

    /// A table.
    pub fn table(&mut self, table: &Table) -> io::Result<()> {
        let text: String = table.lines().map(|line| format!("{}\n", line.trim_end())).collect();
        self.text(&text)
    }

    /// Writes into memory.
    #[cfg(test)]
    pub fn captured(format: Format) -> (Self, Written) {
        let written = Written::default();
        (Self { format, sink: Box::new(written.clone()), style: Style::PLAIN }, written)
    }
}

/// Shows control characters and those that turn the direction of writing, but for ends of lines and tabs, as
/// `\u{1b}`.
pub fn for_terminals(text: &str) -> Cow<'_, str> {
    let is_sent = |it: char| !misleads(it) || matches!(it, '\n' | '\t');
    if text.chars().all(is_sent) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for it in text.chars() {
        if is_sent(it) { shown.push(it) } else { shown.extend(it.escape_unicode()) }
    }
    Cow::Owned(shown)
}

/// JSON has escaped the control characters of ASCII, and no others that mislead: they are escaped as JSON does, so
/// the document stays the same.
fn json_for_terminals(line: &str) -> Cow<'_, str> {
    if !line.contains(misleads) {
        return Cow::Borrowed(line);
    }
    let mut shown = String::with_capacity(line.len());
    for it in line.chars() {
        if misleads(it) {
            // Writing to a String cannot fail.
            let _ = write!(shown, "\\u{:04x}", u32::from(it));
        } else {
            shown.push(it);
        }
    }
    Cow::Owned(shown)
}

/// A table without borders: rows can be cut with `awk`.
pub fn plain_table<'a>(header: impl IntoIterator<Item = &'a str>) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header);
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table
}

/// Names and values as operators write them: `zone=a`.
pub fn pairs(all: &BTreeMap<String, String>) -> Vec<String> {
    all.iter().map(|(name, value)| format!("{name}={value}")).collect()
}

/// "1 node", "2 nodes", "3 copies".
pub fn counted(count: u64, noun: &str) -> String {
    match noun.strip_suffix('y') {
        _ if count == 1 => format!("1 {noun}"),
        Some(stem) => format!("{count} {stem}ies"),
        None => format!("{count} {noun}s"),
    }
}

/// True when an error comes from a reader of stdout that went away.
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let io = cause.downcast_ref::<io::Error>().map(io::Error::kind);
        let json =
            cause.downcast_ref::<serde_json::Error>().and_then(serde_json::Error::io_error_kind);
        io.or(json) == Some(io::ErrorKind::BrokenPipe)
    })
}

/// What was written by an [`Out`] of a test.
#[cfg(test)]
#[derive(Clone, Default)]
pub struct Written(std::rc::Rc<std::cell::RefCell<Vec<u8>>>);

#[cfg(test)]
impl Written {
    /// All of it.
    pub fn text(&self) -> String {
        String::from_utf8(self.0.borrow().clone()).unwrap()
    }
}

#[cfg(test)]
impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Whether a person can be asked.
pub fn is_at_terminal() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Asks a person, who may say yes.
pub fn is_wanted(question: &str) -> anyhow::Result<bool> {
    let mut stderr = io::stderr();
    write!(stderr, "{question}? [y/N] ")?;
    stderr.flush()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nouns_have_their_plural() {
        assert_eq!(counted(1, "copy"), "1 copy");
        assert_eq!([counted(0, "copy"), counted(2, "node")], ["0 copies", "2 nodes"]);
    }

    #[test]
    fn a_document_is_one_line() {
        let (mut out, written) = Out::captured(Format::Json);
        out.json(&serde_json::json!({"a": [1, 2]})).unwrap();
        assert_eq!(written.text(), "{\"a\":[1,2]}\n");
    }

    #[test]
    fn a_table_has_no_borders_and_no_trailing_blanks() {
        let (mut out, written) = Out::captured(Format::Table);
        let mut table = plain_table(["ID", "STATE"]);
        table.add_row(["a", "READY"]);
        out.table(&table).unwrap();
        assert_eq!(written.text(), "ID  STATE\na   READY\n");
    }

    #[test]
    fn what_clients_wrote_reaches_no_terminal_as_a_command() {
        let evil = "adm\u{202e}in k=\u{1b}[31mred\u{1b}]0;evil\u{7}\r \u{9b}31m \u{7f} gr\u{fc}n";
        let (mut out, written) = Out::captured(Format::Table);
        let mut table = plain_table(["ID", "ATTRIBUTES"]);
        table.add_row(["a", evil]);
        out.table(&table).unwrap();
        out.text(&format!("{evil}\n")).unwrap();
        let text = written.text();
        assert!(!text.contains(|it: char| misleads(it) && it != '\n'), "{text:?}");
        assert!(text.contains("adm\\u{202e}in k=\\u{1b}[31mred\\u{1b}]0;evil\\u{7}"), "{text}");
        assert!(text.contains("gr\u{fc}n"), "{text}");
        let (mut out, written) = Out::captured(Format::Json);
        let document = serde_json::json!({ "k": evil });
        out.json(&document).unwrap();
        let text = written.text();
        assert!(!text.trim_end().contains(misleads), "{text:?}");
        let read: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read, document, "and nothing else changes");
    }

    #[test]
    fn only_a_reader_that_went_away_is_a_broken_pipe() {
        let gone = io::Error::from(io::ErrorKind::BrokenPipe);
        assert!(is_broken_pipe(&anyhow::Error::from(gone).context("writing")));
        let other = io::Error::from(io::ErrorKind::NotFound);
        assert!(!is_broken_pipe(&anyhow::Error::from(other)));
    }
}
