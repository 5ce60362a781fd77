//! A program's output, kept in files of bounded size, and searched for one line.

use rustix::fs::OFlags;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Longest beginning of a line that is searched for the text that means "ready".
const LINE_SEARCHED_BYTES_MAX: usize = 4096;

/// Keeps the newest output: `NAME.log`, and before it `NAME.log.1`, each at most half of the
/// limit.
pub struct Capture {
    path: PathBuf,
    file: Option<File>,
    written: u64,
    half_bytes: u64,
    wanted: Option<Vec<u8>>,
    line: Vec<u8>,
}

impl Capture {
    /// Captures into `path`; `wanted` is the text whose line is looked for.
    pub fn create(path: PathBuf, bytes_max: u64, wanted: Option<&str>) -> io::Result<Self> {
        let file = Some(create(&path)?);
        let wanted = wanted.map(|text| text.as_bytes().to_vec());
        Ok(Self { path, file, written: 0, half_bytes: bytes_max.max(2) / 2, wanted, line: vec![] })
    }

    /// Takes some output. True when the wanted line was completed (or begun, if the text is
    /// already in it) for the first time.
    pub fn take(&mut self, bytes: &[u8]) -> bool {
        self.keep(bytes);
        self.search(bytes)
    }

    /// A full disk costs the output, never the program: what cannot be written is dropped.
    fn keep(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.written >= self.half_bytes {
                self.turn();
            }
            let room = usize::try_from(self.half_bytes - self.written).unwrap_or(usize::MAX);
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            if let Some(file) = &mut self.file
                && file.write_all(now).is_err()
            {
                self.file = None;
            }
            self.written += now.len() as u64;
            bytes = later;
        }
    }

    fn turn(&mut self) {
        self.written = 0;
        let mut old = self.path.clone().into_os_string();
        old.push(".1");
        // Without the old file's new name the content is cut all the same: the bound holds.
        drop(fs::rename(&self.path, old));
        self.file = create(&self.path).ok();
    }

    fn search(&mut self, bytes: &[u8]) -> bool {
        let Some(wanted) = &self.wanted else { return false };
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let room = LINE_SEARCHED_BYTES_MAX - self.line.len();
            self.line.extend_from_slice(&part[..room.min(part.len())]);
            let found = wanted.is_empty() || self.line.windows(wanted.len()).any(|it| it == wanted);
            if found {
                self.wanted = None;
                self.line = Vec::new();
                return true;
            }
            if part.ends_with(b"\n") {
                self.line.clear();
            }
        }
        false
    }
}

/// An empty file there; a link that stands there instead is not followed.
fn create(path: &Path) -> io::Result<File> {
    let no_link = OFlags::NOFOLLOW.bits().cast_signed();
    File::options().write(true).create(true).truncate(true).custom_flags(no_link).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_output_is_kept_within_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stdout.log");
        let mut capture = Capture::create(path.clone(), 100, None).unwrap();
        for number in 0..1000 {
            assert!(!capture.take(format!("{number:04}\n").as_bytes()));
        }
        let new = fs::read_to_string(&path).unwrap();
        let old = fs::read_to_string(folder.path().join("stdout.log.1")).unwrap();
        assert!(new.ends_with("0999\n"));
        assert!(old.len() + new.len() <= 100 && old.len() == 50);
    }

    #[test]
    fn a_link_in_the_place_of_an_output_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (target, path) = (folder.path().join("target"), folder.path().join("stdout.log"));
        fs::write(&target, "precious").unwrap();
        std::os::unix::fs::symlink(&target, &path).unwrap();
        assert!(Capture::create(path, 100, None).is_err());
        assert_eq!(fs::read_to_string(&target).unwrap(), "precious");
    }

    #[test]
    fn a_line_is_found_across_reads_and_only_once() {
        let folder = tempfile::tempdir().unwrap();
        let mut capture = Capture::create(folder.path().join("out"), 100, Some("ready")).unwrap();
        assert!(!capture.take(b"rea\ndy\n"));
        assert!(!capture.take(b"it is re"));
        assert!(capture.take(b"ady now\n"));
        assert!(!capture.take(b"ready\n"));
    }

    #[test]
    fn a_line_that_never_ends_takes_no_memory() {
        let folder = tempfile::tempdir().unwrap();
        let mut capture = Capture::create(folder.path().join("out"), 100, Some("xyz")).unwrap();
        for _ in 0..100 {
            capture.take(&[b'a'; 1000]);
        }
        assert!(capture.line.len() <= LINE_SEARCHED_BYTES_MAX);
        assert!(capture.take(b"\nxyz\n"));
    }
}
