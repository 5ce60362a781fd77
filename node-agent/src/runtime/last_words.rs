//! What a program printed last, for the detail of its end.

use rota_model::text::misleads;
use rustix::fs::OFlags;
use std::fmt::Write;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Most bytes of each output that go into a detail. Records are copied, and kept for minutes.
const BYTES_MAX: u64 = 400;

/// Most lines of each output.
const LINES_MAX: usize = 5;

/// The last lines of both outputs, and where these stand; begins with `; `.
pub fn last_words(folder: &Path) -> String {
    let mut text = String::new();
    for name in ["stderr", "stdout"] {
        let lines = last_lines(&folder.join(format!("{name}.log"))).unwrap_or_default();
        if !lines.is_empty() {
            write!(text, "; last on {name}: {lines}").expect("a text takes all");
        }
    }
    if text.is_empty() {
        text.push_str("; it printed nothing");
    }
    let folder = folder.display();
    write!(text, "; its stdout.log and stderr.log are in {folder}").expect("a text takes all");
    text
}

/// One line, with ` | ` between those of the file.
fn last_lines(file: &Path) -> io::Result<String> {
    // What is there is the keeper's, or else nobody's that is read here.
    let no_link = OFlags::NOFOLLOW.bits().cast_signed();
    let mut file = File::options().read(true).custom_flags(no_link).open(file)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(BYTES_MAX)))?;
    let mut bytes = Vec::new();
    file.take(BYTES_MAX).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let lines = text.lines().map(|line| line.replace(misleads, " ").trim().to_owned());
    let lines: Vec<String> = lines.filter(|it| !it.is_empty()).collect();
    Ok(lines[lines.len().saturating_sub(LINES_MAX)..].join(" | "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_last_lines_of_both_outputs_are_told_with_their_folder() {
        let folder = tempfile::tempdir().unwrap();
        let (out, err) = (folder.path().join("stdout.log"), folder.path().join("stderr.log"));
        let nothing = last_words(folder.path());
        assert!(nothing.starts_with("; it printed nothing; its stdout.log"), "{nothing}");
        let many: String = (1..100).map(|it| format!("line {it}\n\n")).collect();
        fs::write(&out, many).unwrap();
        fs::write(&err, "FATAL:\u{1b}[31m no\u{202e} luck\r\n").unwrap();
        let told = last_words(folder.path());
        let lines = "line 95 | line 96 | line 97 | line 98 | line 99";
        let path = folder.path().display();
        assert_eq!(
            told,
            format!(
                "; last on stderr: FATAL: [31m no  luck; last on stdout: {lines}; its stdout.log and \
                 stderr.log are in {path}"
            )
        );
    }

    #[test]
    fn a_long_line_is_told_by_its_end() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("stderr.log"), format!("{}end", "é".repeat(1_000))).unwrap();
        let told = last_words(folder.path());
        assert!(told.contains("éend;") && told.len() < 1_000, "{told}");
    }
}
