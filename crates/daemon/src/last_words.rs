//! Why a process ends, on standard error.

use crate::LogFormat;
use serde_json::json;
use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

/// Exit code for a command line with mistakes, or with files that have some.
pub const USAGE: u8 = 2;

/// Exit code of a manager whose number has left the ring: to start it again in the same way is in
/// vain, which whoever starts it can tell from every other failure.
pub const HAS_LEFT: u8 = 3;

/// Says why this process ends, or what is wrong with its command line, in the form of its log: text
/// or one JSON object on a line. Not through the log itself: no filter may hide it, and a command
/// line with mistakes has none. `program` is the name of the process.
pub fn say_fatal(program: &str, format: LogFormat, message: &dyn Display) {
    let line = match format {
        LogFormat::Text => format!("{program}: {message}"),
        LogFormat::Json => json_line(program, message),
    };
    // Nobody is left to be told that standard error is closed.
    let _told = writeln!(std::io::stderr().lock(), "{line}");
}

/// Says all mistakes of a command line, and that nothing was started; gives the exit code of those.
pub fn refuse(program: &str, format: LogFormat, mistakes: &[impl Display]) -> ExitCode {
    mistakes.iter().for_each(|mistake| say_fatal(program, format, mistake));
    let count = mistakes.len();
    say_fatal(program, format, &format_args!("mistakes: {count}; nothing was started"));
    ExitCode::from(USAGE)
}

/// The fields that lines of the log have.
fn json_line(program: &str, message: &dyn Display) -> String {
    let mut now = String::new();
    let _written = SystemTime.format_time(&mut Writer::new(&mut now));
    let message = message.to_string();
    json!({ "timestamp": now, "level": "ERROR", "message": message, "target": program }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_words_of_several_lines_are_one_line_of_json() {
        let line = json_line("rota-manager", &"first\nsecond \"x\"");
        assert!(!line.contains('\n'), "{line}");
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(line["message"], "first\nsecond \"x\"");
        assert_eq!((&line["level"], &line["target"]), (&"ERROR".into(), &"rota-manager".into()));
        assert!(line["timestamp"].as_str().unwrap().starts_with("20"), "{line}");
    }
}
