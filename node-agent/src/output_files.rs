//! The files of a program's output, and where in the whole output each begins.
//!
//! ```text
//!  all that was written:   0 ········ dropped ········ base of .1 ────── base of the newest ──────▶ end
//!  files:                                              stdout.log.1      stdout.log
//! ```
//! A keeper writes them ([`crate::keeper`]); readers come and go. When the newest file is full it becomes the older
//! one. `stdout.log.at` says which file begins where, by their inodes, so a reader sees both names change in any order.

use rustix::fs::OFlags;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Ends the name of the older file.
pub const OLD: &str = ".1";

/// Ends the name of the table.
const TABLE: &str = ".at";

/// Ends the name of a table that is being written.
const TABLE_NEW: &str = ".at.new";

/// How often a reader looks again when the files changed while it looked. They change once in half of what is kept.
const LOOKS_MAX: usize = 20;

/// Bytes that are searched for ends of lines at once.
const SEARCH_BYTES: usize = 64 * 1024;

/// The name of a file beside that one, which begins with its name.
pub fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(end);
    name.into()
}

/// Which file begins where: inode and offset, one file a line.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Table(Vec<(u64, u64)>);

impl Table {
    /// Of these files. One that cannot be looked at is left out.
    pub fn of<'a>(files: impl Iterator<Item = (&'a File, u64)>) -> Self {
        Self(files.filter_map(|(file, base)| Some((file.metadata().ok()?.ino(), base))).collect())
    }

    /// Writes it beside the newest file of an output, as one.
    pub fn write(&self, output: &Path) -> io::Result<()> {
        let text: String = self.0.iter().map(|(inode, base)| format!("{inode} {base}\n")).collect();
        let new = beside(output, TABLE_NEW);
        fs::write(&new, text)?;
        fs::rename(new, beside(output, TABLE))
    }

    /// Empty before the first file was full, and where it cannot be read.
    fn read(output: &Path) -> Self {
        let text = fs::read_to_string(beside(output, TABLE)).unwrap_or_default();
        let number = |it: Option<&str>| it?.parse().ok();
        let line = |it: &str| {
            let mut words = it.split(' ');
            Some((number(words.next())?, number(words.next())?))
        };
        Self(text.lines().filter_map(line).collect())
    }

    fn base_of(&self, inode: u64) -> Option<u64> {
        self.0.iter().find(|it| it.0 == inode).map(|it| it.1)
    }
}

/// A file and where it begins.
struct Part {
    file: File,
    base: u64,
    length: u64,
}

/// What is kept of an output, as it was at one moment.
pub struct Kept {
    /// The oldest first; at most two.
    parts: Vec<Part>,
}

impl Kept {
    /// Now. `output` is the path of the newest file.
    ///
    /// # Errors
    /// The files are there and cannot be read. Where there are none, nothing is kept.
    pub fn look(output: &Path) -> io::Result<Self> {
        let mut table = Table::read(output);
        let mut looks = 0;
        loop {
            let (old, newest) = (open(&beside(output, OLD))?, open(output)?);
            let again = Table::read(output);
            looks += 1;
            // While names change, the newest file may have none.
            let is_whole = newest.is_some() || table.0.is_empty();
            if (again == table && is_whole) || looks == LOOKS_MAX {
                return Self::of(old, newest, &table);
            }
            table = again;
        }
    }

    fn of(old: Option<File>, newest: Option<File>, table: &Table) -> io::Result<Self> {
        let mut parts: Vec<Part> = Vec::new();
        if let Some(file) = old {
            let found = file.metadata()?;
            // One that the table lacks was about to be replaced.
            let base = table.base_of(found.ino()).or(table.0.is_empty().then_some(0));
            let length = found.len();
            parts.extend(base.map(|base| Part { file, base, length }));
        }
        if let Some(file) = newest {
            let found = file.metadata()?;
            let behind = parts.last().map(|it| it.base + it.length);
            let last = || behind.or(table.0.iter().map(|it| it.1).max()).unwrap_or(0);
            let base = table.base_of(found.ino()).unwrap_or_else(last);
            // Between its two names the same file may be met under both.
            if parts.last().is_none_or(|it| it.base < base) {
                parts.push(Part { file, base, length: found.len() });
            }
        }
        Ok(Self { parts })
    }

    /// Where the oldest byte is that is kept.
    pub fn begin(&self) -> u64 {
        self.parts.first().map_or(0, |it| it.base)
    }

    /// Behind the newest byte.
    pub fn end(&self) -> u64 {
        self.parts.last().map_or(0, |it| it.base + it.length)
    }

    /// Some bytes at that place or, where those are not kept, at the next one that is; and where they were found.
    /// `None` behind the newest byte.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn read(&self, at: u64, bytes_max: usize) -> io::Result<Option<(u64, Vec<u8>)>> {
        let part = self.parts.iter().find(|it| at < it.base + it.length);
        let Some(part) = part else { return Ok(None) };
        let from = at.max(part.base);
        let there = part.base + part.length - from;
        let mut bytes = vec![0; usize::try_from(there).unwrap_or(usize::MAX).min(bytes_max)];
        part.file.read_exact_at(&mut bytes, from - part.base)?;
        Ok(Some((from, bytes)))
    }

    /// Where the last so many lines begin. The last one may lack its end.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn tail(&self, lines: u64) -> io::Result<u64> {
        let mut end = self.end();
        if lines == 0 {
            return Ok(end);
        }
        let (newest, mut left) = (end, lines);
        while end > self.begin() {
            let Some(part) = self.parts.iter().rfind(|it| it.base < end) else { break };
            let until = end.min(part.base + part.length);
            let from = part.base.max(until.saturating_sub(SEARCH_BYTES as u64));
            let mut bytes = vec![0; usize::try_from(until - from).unwrap_or(SEARCH_BYTES)];
            part.file.read_exact_at(&mut bytes, from - part.base)?;
            for at in (0..bytes.len()).rev().filter(|at| bytes[*at] == b'\n') {
                let behind = from + at as u64 + 1;
                if behind == newest {
                    continue;
                }
                left -= 1;
                if left == 0 {
                    return Ok(behind);
                }
            }
            end = from;
        }
        Ok(self.begin())
    }
}

/// What stands there, if it is a file: what is there is the keeper's, or else nobody's that is read here.
fn open(path: &Path) -> io::Result<Option<File>> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    match File::options().read(true).custom_flags(flags).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        opened => {
            let file = opened?;
            Ok(file.metadata()?.is_file().then_some(file))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(old: Option<&str>, new: &str) -> (tempfile::TempDir, Kept) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stdout.log");
        old.iter().for_each(|it| fs::write(beside(&path, OLD), it).unwrap());
        fs::write(&path, new).unwrap();
        let kept = Kept::look(&path).unwrap();
        (folder, kept)
    }

    fn text_from(kept: &Kept, mut at: u64) -> String {
        let mut text = Vec::new();
        while let Some((from, bytes)) = kept.read(at, 3).unwrap() {
            at = from + bytes.len() as u64;
            text.extend(bytes);
        }
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn the_last_lines_are_found_in_both_files() {
        let (_folder, both) = kept(Some("one\ntwo\nth"), "ree\nfour\n");
        let tail = |lines| text_from(&both, both.tail(lines).unwrap());
        assert_eq!(tail(0), "");
        assert_eq!(tail(1), "four\n");
        assert_eq!(tail(2), "three\nfour\n");
        assert_eq!(tail(3), "two\nthree\nfour\n");
        assert_eq!(tail(9), "one\ntwo\nthree\nfour\n");
        let (_folder, open) = kept(None, "one\ntwo\nthr");
        assert_eq!(text_from(&open, open.tail(2).unwrap()), "two\nthr");
        let long = "x".repeat(3 * SEARCH_BYTES);
        let (_folder, long) = kept(None, &format!("{long}\n\n{long}"));
        assert_eq!(long.tail(1).unwrap(), 3 * SEARCH_BYTES as u64 + 2);
        assert_eq!(long.tail(2).unwrap(), 3 * SEARCH_BYTES as u64 + 1);
        assert_eq!(long.tail(3).unwrap(), 0);
    }

    #[test]
    fn nothing_is_kept_where_there_is_no_file_and_no_link_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stdout.log");
        let none = Kept::look(&path).unwrap();
        assert_eq!((none.begin(), none.end(), none.tail(3).unwrap()), (0, 0, 0));
        assert_eq!(none.read(0, 9).unwrap(), None);
        fs::write(folder.path().join("secret"), "secret").unwrap();
        std::os::unix::fs::symlink(folder.path().join("secret"), &path).unwrap();
        assert!(Kept::look(&path).is_err());
    }

    #[test]
    fn in_the_middle_of_a_change_nothing_is_met_twice() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stdout.log");
        fs::write(&path, "older").unwrap();
        let new = beside(&path, ".new");
        fs::write(&new, "").unwrap();
        let (old_file, new_file) = (File::open(&path).unwrap(), File::open(&new).unwrap());
        let table = Table::of([(&old_file, 10), (&new_file, 15)].into_iter());
        table.write(&path).unwrap();
        let look = || {
            let kept = Kept::look(&path).unwrap();
            (kept.begin(), kept.end(), text_from(&kept, 0))
        };
        let expected = (10, 15, "older".to_owned());
        assert_eq!(look(), expected);
        fs::rename(&path, beside(&path, OLD)).unwrap();
        assert_eq!(look(), expected);
        fs::rename(&new, &path).unwrap();
        assert_eq!(look(), expected);
        fs::write(&path, "newer").unwrap();
        assert_eq!(look(), (10, 20, "oldernewer".to_owned()));
    }
}
