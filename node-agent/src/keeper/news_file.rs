//! What a keeper told, in a file of its session's folder: an agent that comes when the keeper is gone learns
//! the end from it.

use super::order::{LINE_BYTES_MAX, News};
use rustix::fs::OFlags;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Its name: one JSON value a line, in the order in which it was told.
pub const NEWS_FILE: &str = "news";

/// The file, written by the session's keeper alone.
#[derive(Debug)]
pub struct NewsFile {
    file: File,
    length: u64,
}

impl NewsFile {
    /// A new one.
    ///
    /// # Errors
    /// It cannot be made, or there is one: of another keeper, and no two are in one folder.
    pub fn create(folder: &Path) -> io::Result<Self> {
        let mut options = File::options();
        let file =
            options.append(true).create_new(true).mode(0o600).open(folder.join(NEWS_FILE))?;
        Ok(Self { file, length: 0 })
    }

    /// Takes a line. A full disk costs the line, never the program: false then.
    pub fn append(&mut self, line: &[u8]) -> bool {
        let written = self.file.write_all(line);
        match &written {
            Ok(()) => self.length += line.len() as u64,
            Err(error) => {
                tracing::warn!(%error, "cannot be written down for a later agent");
                // A part of it would spoil the next line.
                drop(self.file.set_len(self.length));
            }
        }
        written.is_ok()
    }
}

/// What the keeper of that folder told; `None` without a file. Half a line at the end is left out.
///
/// # Errors
/// The file cannot be read.
pub fn read(folder: &Path) -> io::Result<Option<Vec<News>>> {
    // What is there is the keeper's; whatever else stands in its place is not waited for.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(folder.join(NEWS_FILE));
    let file = match file {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let mut bytes = Vec::new();
    file.take(LINE_BYTES_MAX as u64).read_to_end(&mut bytes)?;
    let lines = bytes.split_inclusive(|byte| *byte == b'\n').filter(|it| it.ends_with(b"\n"));
    Ok(Some(lines.filter_map(|it| serde_json::from_slice(it).ok()).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keeper::order::Cause;
    use rota_model::Exit;
    use std::fs;

    #[test]
    fn what_was_told_is_read_in_order_and_half_a_line_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read(folder.path()).unwrap(), None);
        let told = [
            News::Started { pid: 7 },
            News::ReadyLine,
            News::Ended { exit: Exit::Code(3), cause: Cause::Own },
        ];
        let mut file = NewsFile::create(folder.path()).unwrap();
        for news in &told {
            assert!(file.append(format!("{}\n", serde_json::to_string(news).unwrap()).as_bytes()));
        }
        assert!(file.append(b"{\"failed\":{\"det"));
        assert_eq!(read(folder.path()).unwrap().unwrap(), told);
        assert!(NewsFile::create(folder.path()).is_err(), "no two keepers share a folder");
    }

    #[test]
    fn a_link_in_its_place_is_not_followed() {
        let (folder, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(target.path().join("other"), "\"ready_line\"\n").unwrap();
        let link = folder.path().join(NEWS_FILE);
        std::os::unix::fs::symlink(target.path().join("other"), link).unwrap();
        assert!(read(folder.path()).is_err() && NewsFile::create(folder.path()).is_err());
    }
}
