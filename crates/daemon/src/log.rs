//! Where log lines go: standard error, as text or as JSON.

use clap::Args;
use rota_model::FieldError;
use std::io::IsTerminal;
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;

/// Lines that may wait for [`Log::install_without_waiting`]'s thread.
const LINES_WAITING_MAX: usize = 1_000;

/// The options of the log. Any text is taken, so that a process can list these mistakes with all
/// the others of its command line.
#[derive(Args, Clone, PartialEq, Eq, Debug)]
pub struct LogArguments {
    /// What to log to standard error: info, debug, rota_manager=debug,tonic=warn, ...
    #[arg(long, value_name = "FILTER", env = "ROTA_LOG", default_value = "info")]
    pub log: String,
    /// How log lines look: text (for people) or json (one object a line).
    #[arg(long, value_name = "FORMAT", env = "ROTA_LOG_FORMAT", default_value = "text")]
    pub log_format: String,
}

/// How log lines look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

impl LogFormat {
    /// As on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            LogFormat::Text => "text",
            LogFormat::Json => "json",
        }
    }
}

/// A checked log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Log {
    filter: String,
    format: LogFormat,
}

fn filter_of(text: &str) -> Result<EnvFilter, FieldError> {
    let mistake = |why: String| FieldError::new("--log", format!("is {text:?}, no filter: {why}"));
    // A mistyped level would be taken for a target, and switch everything else off.
    let words = text.split(',').map(str::trim);
    if let Some(word) = words.into_iter().find(|it| is_bare(it) && !is_level(it)) {
        return Err(mistake(format!(
            "{word:?} is no level (off, error, warn, info, debug, trace); a part of the program has one, \
             as in {word}=debug"
        )));
    }
    EnvFilter::try_new(text).map_err(|error| mistake(error.to_string()))
}

/// Neither a target with its level nor a span.
fn is_bare(word: &str) -> bool {
    !word.is_empty() && !word.contains(['=', '[', ']', '{', '}'])
}

fn is_level(word: &str) -> bool {
    word.parse::<LevelFilter>().is_ok()
}

impl LogArguments {
    /// How lines shall look, for what is said before both options are checked: text unless JSON
    /// was asked for.
    pub fn asked_format(&self) -> LogFormat {
        if self.log_format == LogFormat::Json.as_str() { LogFormat::Json } else { LogFormat::Text }
    }

    /// Checks both options; gives every mistake.
    pub fn check(&self) -> Result<Log, Vec<FieldError>> {
        let mut mistakes = Vec::new();
        mistakes.extend(filter_of(&self.log).err());
        let known = [LogFormat::Text, LogFormat::Json];
        match known.into_iter().find(|it| it.as_str() == self.log_format) {
            Some(format) if mistakes.is_empty() => {
                return Ok(Log { filter: self.log.clone(), format });
            }
            Some(_) => {}
            None => {
                let problem = format!("is {:?}; it must be text or json", self.log_format);
                mistakes.push(FieldError::new("--log-format", problem));
            }
        }
        Err(mistakes)
    }
}

impl Log {
    /// A log for people.
    pub fn text(filter: &str) -> Result<Self, FieldError> {
        filter_of(filter).map(|_| Self { filter: filter.to_owned(), format: LogFormat::Text })
    }

    /// How its lines look.
    pub fn format(&self) -> LogFormat {
        self.format
    }

    /// The options that make the same log in another process.
    pub fn options(&self) -> [&str; 4] {
        ["--log", &self.filter, "--log-format", self.format.as_str()]
    }

    /// Makes it the log of this process. Panics when there is one already.
    pub fn install(&self) {
        self.write_to(std::io::stderr, std::io::stderr().is_terminal());
    }

    /// The same for a process that must not wait for a log's disk: a thread of its own writes the lines,
    /// and those that it cannot take are lost. When what is given back is dropped, the last ones have a
    /// second to be written.
    pub fn install_without_waiting(&self) -> WorkerGuard {
        let lines = NonBlockingBuilder::default().buffered_lines_limit(LINES_WAITING_MAX);
        let (writer, guard) = lines.lossy(true).finish(std::io::stderr());
        self.write_to(writer, false);
        guard
    }

    fn write_to<W>(&self, writer: W, ansi: bool)
    where
        W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
    {
        let filter = filter_of(&self.filter).expect("it was checked when this was made");
        // What the library says of a line that could not be written, it says to the same standard
        // error, and panics when that fails too: a full disk behind a log must end nobody.
        let log = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(writer)
            .log_internal_errors(false);
        match self.format {
            LogFormat::Text => log.with_ansi(ansi).init(),
            LogFormat::Json => log.json().flatten_event(true).init(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(log: &str, log_format: &str) -> Result<Log, Vec<FieldError>> {
        LogArguments { log: log.to_owned(), log_format: log_format.to_owned() }.check()
    }

    #[test]
    fn a_log_is_handed_on_with_the_options_that_made_it() {
        let log = check("info,rota_manager=debug", "json").unwrap();
        assert_eq!(log.format(), LogFormat::Json);
        assert_eq!(log.options(), ["--log", "info,rota_manager=debug", "--log-format", "json"]);
    }

    #[test]
    fn both_options_are_checked_and_named() {
        let mistakes = check("=,=", "xml").unwrap_err();
        let fields: Vec<&str> = mistakes.iter().map(|it| it.field.as_str()).collect();
        assert_eq!(fields, ["--log", "--log-format"]);
        assert!(mistakes[1].problem.contains("xml"), "{mistakes:?}");
    }

    #[test]
    fn a_word_that_is_no_level_is_refused_and_levels_of_parts_and_spans_are_taken() {
        for wrong in ["nonsense", "info,debgu", "rota_manager", "info, h2"] {
            let mistakes = check(wrong, "text").unwrap_err();
            assert!(mistakes[0].problem.contains("no level (off, error"), "{mistakes:?}");
        }
        for right in
            ["off", "DEBUG", "3", "info,h2=off", "[call{kind=open}]=trace", "warn,a::b=debug"]
        {
            assert!(check(right, "text").is_ok(), "{right}");
        }
    }

    #[test]
    fn lines_are_json_when_that_was_asked_for_even_beside_a_wrong_filter() {
        let asked = |log_format: &str| {
            LogArguments { log: "=,=".to_owned(), log_format: log_format.to_owned() }.asked_format()
        };
        assert_eq!((asked("json"), asked("xml")), (LogFormat::Json, LogFormat::Text));
    }
}
