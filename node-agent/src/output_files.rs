//! The files of a program's output, and where in the whole output each begins.
//!
//! ```text
//!  all that was written:   0 ········ dropped ········ base of .1 ────── base of the newest ──────▶ end
//!  files:                                              stdout.log.1      stdout.log
//! ```
//! A keeper writes them ([`crate::keeper`]); readers come and go. When the newest file is full it becomes the older
//! one. `stdout.log.at` says which file begins where, by their inodes, so a reader sees both names change in any order.

use crate::files::remove_if_there;
use rustix::fs::OFlags;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Ends the name of the older file.
pub const OLD: &str = ".1";

/// Ends the name of the table.
const TABLE: &str = ".at";

/// Ends the name of a table that is being written.
const TABLE_NEW: &str = ".at.new";

/// Files that a table names at most.
const TABLE_FILES_MAX: usize = 2;

/// Most that is read of a table: more than one of two files can have.
const TABLE_BYTES_MAX: u64 = 256;

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

    /// Writes it beside the newest file of an output, as one. What else stands in its place is not written to.
    pub fn write(&self, output: &Path) -> io::Result<()> {
        let text: String = self.0.iter().map(|(inode, base)| format!("{inode} {base}\n")).collect();
        let new = beside(output, TABLE_NEW);
        remove_if_there(&new)?;
        let no_link = OFlags::NOFOLLOW.bits().cast_signed();
        let mut file =
            File::options().write(true).create_new(true).custom_flags(no_link).open(&new)?;
        file.write_all(text.as_bytes())?;
        fs::rename(new, beside(output, TABLE))
    }

    /// Removes that of an output: without one, what is kept is taken for the beginning.
    pub fn forget(output: &Path) -> io::Result<()> {
        let half = remove_if_there(&beside(output, TABLE_NEW));
        remove_if_there(&beside(output, TABLE)).and(half)
    }

    /// Empty before the first file was full, and where it cannot be read or is none.
    fn read(output: &Path) -> Self {
        Self::try_read(&beside(output, TABLE)).unwrap_or_default()
    }

    fn try_read(path: &Path) -> Option<Self> {
        let mut text = String::new();
        open(path).ok()??.take(TABLE_BYTES_MAX).read_to_string(&mut text).ok()?;
        let line = |line: &str| {
            let (inode, base) = line.split_once(' ')?;
            Some((inode.parse().ok()?, base.parse().ok()?))
        };
        let files: Vec<(u64, u64)> = text.lines().map(line).collect::<Option<_>>()?;
        (files.len() <= TABLE_FILES_MAX).then_some(Self(files))
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

impl Part {
    /// Behind its newest byte. [`Kept::of`] has seen that it fits.
    fn end(&self) -> u64 {
        self.base.saturating_add(self.length)
    }
}

/// A file that stands under one of the names.
struct Found {
    file: File,
    inode: u64,
    length: u64,
}

impl Found {
    fn at(path: &Path) -> io::Result<Option<Self>> {
        let Some(file) = open(path)? else { return Ok(None) };
        let found = file.metadata()?;
        Ok(Some(Self { inode: found.ino(), length: found.len(), file }))
    }

    fn beginning_at(self, base: u64) -> Part {
        Part { file: self.file, base, length: self.length }
    }
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
        Self::look_by(output, Found::at)
    }

    fn look_by(
        output: &Path,
        mut found_at: impl FnMut(&Path) -> io::Result<Option<Found>>,
    ) -> io::Result<Self> {
        let mut table = Table::read(output);
        let mut looks = 0;
        loop {
            // In this order: what stops being the newest file meanwhile is met as the older one.
            let newest = found_at(output)?;
            let old = found_at(&beside(output, OLD))?;
            let again = Table::read(output);
            looks += 1;
            let is_there =
                |inode| [&newest, &old].into_iter().flatten().any(|it| it.inode == inode);
            // While names change, one of the files may have none.
            let is_whole = table.0.iter().all(|it| is_there(it.0));
            if (again == table && is_whole) || looks == LOOKS_MAX {
                return Ok(Self::of(old, newest, &table));
            }
            table = again;
        }
    }

    /// A table that does not fit the files is ignored.
    fn of(old: Option<Found>, newest: Option<Found>, table: &Table) -> Self {
        // Between its two names the same file may be met under both.
        let is_same = |newest: &Found| old.as_ref().is_some_and(|old| old.inode == newest.inode);
        let newest = newest.filter(|it| !is_same(it));
        let table = if fits(old.as_ref(), newest.as_ref(), table) { table } else { &Table(vec![]) };
        let old_base = old.as_ref().and_then(|it| old_base(it, table));
        let old = old.zip(old_base).map(|(it, base)| it.beginning_at(base));
        let base = |it: &Found| newest_base(it, old.as_ref().map(Part::end), table);
        let newest = newest.map(|it| (base(&it), it)).map(|(base, it)| it.beginning_at(base));
        Self { parts: old.into_iter().chain(newest).collect() }
    }

    /// Where the oldest byte is that is kept.
    pub fn begin(&self) -> u64 {
        self.parts.first().map_or(0, |it| it.base)
    }

    /// Behind the newest byte.
    pub fn end(&self) -> u64 {
        self.parts.last().map_or(0, Part::end)
    }

    /// Some bytes at that place or, where those are not kept, at the next one that is; and where they were found.
    /// `None` behind the newest byte.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn read(&self, at: u64, bytes_max: usize) -> io::Result<Option<(u64, Vec<u8>)>> {
        let part = self.parts.iter().find(|it| at < it.end());
        let Some(part) = part else { return Ok(None) };
        let from = at.max(part.base);
        let there = part.end() - from;
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
            let until = end.min(part.end());
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

/// Where the older file begins. One that the table lacks was about to be replaced.
fn old_base(old: &Found, table: &Table) -> Option<u64> {
    table.base_of(old.inode).or(table.0.is_empty().then_some(0))
}

/// Where the newest file begins, behind the older one that ends there.
fn newest_base(newest: &Found, behind: Option<u64>, table: &Table) -> u64 {
    let last = || behind.or(table.0.iter().map(|it| it.1).max()).unwrap_or(0);
    table.base_of(newest.inode).unwrap_or_else(last)
}

/// Whether the files end at numbers, and the older one before the newest begins.
fn fits(old: Option<&Found>, newest: Option<&Found>, table: &Table) -> bool {
    let begins = old.and_then(|it| Some((old_base(it, table)?, it.length)));
    let behind = begins.and_then(|(base, length)| base.checked_add(length));
    if begins.is_some() && behind.is_none() {
        return false;
    }
    newest.is_none_or(|newest| {
        let base = newest_base(newest, behind, table);
        behind.is_none_or(|behind| behind <= base) && base.checked_add(newest.length).is_some()
    })
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
    fn what_is_no_table_is_not_read_and_not_written_to() {
        let (folder, _kept) = kept(Some("older"), "newer");
        let path = folder.path().join("stdout.log");
        let (table, new) = (beside(&path, TABLE), beside(&path, TABLE_NEW));
        let all = || text_from(&Kept::look(&path).unwrap(), 0);
        rustix::fs::mkfifoat(rustix::fs::CWD, &table, 0o600.into()).unwrap();
        assert_eq!(all(), "oldernewer");
        fs::remove_file(&table).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &table).unwrap();
        assert_eq!(all(), "oldernewer");
        let secret = folder.path().join("secret");
        fs::write(&secret, "secret").unwrap();
        std::os::unix::fs::symlink(&secret, &new).unwrap();
        let (old_file, file) =
            (File::open(beside(&path, OLD)).unwrap(), File::open(&path).unwrap());
        Table::of([(&old_file, 10), (&file, 15)].into_iter()).write(&path).unwrap();
        let kept = Kept::look(&path).unwrap();
        assert_eq!((kept.begin(), kept.end(), all()), (10, 20, "oldernewer".to_owned()));
        assert_eq!(fs::read_to_string(&secret).unwrap(), "secret");
        Table::forget(&path).unwrap();
        assert!(!table.exists() && !new.exists());
        Table::forget(&path).unwrap();
    }

    #[test]
    fn a_table_that_does_not_fit_is_ignored() {
        let (folder, _kept) = kept(Some("older"), "newer");
        let path = folder.path().join("stdout.log");
        let inode = |path: &Path| fs::metadata(path).unwrap().ino();
        let (old, new) = (inode(&beside(&path, OLD)), inode(&path));
        let last = u64::MAX;
        for text in [
            format!("{old} 10\n{new} 14\n"),
            format!("{old} {last}\n{new} {last}\n"),
            format!("{old} 10\n{new} {last}\n"),
            format!("{old} 10\n{new} 15\n{new} 15\n"),
            format!("{old} 10\nnonsense\n"),
            "1 2\n".repeat(1000),
        ] {
            fs::write(beside(&path, TABLE), &text).unwrap();
            let kept = Kept::look(&path).unwrap();
            assert_eq!((kept.begin(), kept.end()), (0, 10), "{text}");
            assert_eq!(text_from(&kept, 0), "oldernewer");
        }
    }

    #[test]
    fn no_look_drops_a_file_while_names_change() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stdout.log");
        let (new, old) = (beside(&path, ".new"), beside(&path, OLD));
        let begin = |name: &Path, text: &str| {
            fs::write(name, text).unwrap();
            File::open(name).unwrap()
        };
        let table = |was: &File, base: u64, is: &File| {
            Table::of([(was, base), (is, base + 5)].into_iter()).write(&path).unwrap();
        };
        let rename = || {
            fs::rename(&path, &old).unwrap();
            fs::rename(&new, &path).unwrap();
        };
        let (first, second) = (begin(&old, "11111"), begin(&path, "22222"));
        table(&first, 0, &second);
        let third = begin(&new, "33333");
        // Everything changes between the first and the second file of a look, then only the names.
        let mut opened = 0;
        let kept = Kept::look_by(&path, |path| {
            opened += 1;
            if opened == 2 {
                table(&second, 5, &third);
                rename();
            }
            Found::at(path)
        });
        assert_eq!((opened, text_from(&kept.unwrap(), 0)), (4, "2222233333".to_owned()));
        let fourth = begin(&new, "44444");
        table(&third, 10, &fourth);
        let mut opened = 0;
        let kept = Kept::look_by(&path, |path| {
            opened += 1;
            if opened == 2 {
                rename();
            }
            Found::at(path)
        });
        let kept = kept.unwrap();
        assert_eq!((opened, text_from(&kept, 0)), (4, "3333344444".to_owned()));
        assert_eq!((kept.begin(), kept.end()), (10, 20));
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
