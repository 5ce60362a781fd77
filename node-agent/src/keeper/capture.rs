//! A program's output, kept in files of bounded size, and searched for one line.

use crate::disk_reserve::free_bytes;
use crate::output_files::{OLD, Table, beside};
use rustix::fs::OFlags;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Longest beginning of a line that is searched for the text that means "ready".
const LINE_SEARCHED_BYTES_MAX: usize = 4096;

/// The disk is looked at once so much was written to it.
const LOOK_BYTES: u64 = 64 * 1024;

/// Ends the name of a file that is about to become the newest.
const NEW: &str = ".new";

/// How much of a disk output may take, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Most that is kept of one output.
    pub max: u64,
    /// While less of the disk is free, nothing is kept.
    pub reserve: u64,
}

/// Keeps the newest output: `NAME.log`, and before it `NAME.log.1`, each at most half of the
/// limit.
pub struct Capture {
    path: PathBuf,
    file: Option<File>,
    written: u64,
    /// What was written before the file began.
    base: u64,
    half_bytes: u64,
    /// What the disk is to keep free.
    reserve: u64,
    /// Written since the disk was looked at; `None`: it had too little.
    unseen: Option<u64>,
    wanted: Option<Vec<u8>>,
    line: Vec<u8>,
}

impl Capture {
    /// Captures into `path`; `wanted` is the text whose line is looked for.
    pub fn create(path: PathBuf, bounds: Bounds, wanted: Option<&str>) -> io::Result<Self> {
        let file = Some(create(&path)?);
        let wanted = wanted.map(|text| text.as_bytes().to_vec());
        let Bounds { max, reserve } = bounds;
        let (half_bytes, unseen) = (max.max(2) / 2, None);
        Ok(Self {
            path,
            file,
            written: 0,
            base: 0,
            half_bytes,
            reserve,
            unseen,
            wanted,
            line: vec![],
        })
    }

    /// Takes some output. True when the wanted line was completed (or begun, if the text is
    /// already in it) for the first time.
    pub fn take(&mut self, bytes: &[u8]) -> bool {
        if self.has_room() {
            self.keep(bytes);
            self.unseen = self.unseen.map(|it| it + bytes.len() as u64);
        }
        self.search(bytes)
    }

    /// Whether the disk has more than its reserve. It is asked again while it has less, and after some bytes.
    fn has_room(&mut self) -> bool {
        if self.unseen.is_some_and(|it| it < LOOK_BYTES) {
            return true;
        }
        let free = self.path.parent().and_then(|it| free_bytes(it).ok());
        // One that cannot be asked is tried.
        let room = free.is_none_or(|it| it >= self.reserve);
        if !room && self.unseen.is_some() {
            let path = self.path.display();
            tracing::warn!(%path, "the disk has less free than its reserve: output is dropped");
        }
        self.unseen = room.then_some(0);
        room
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

    /// Begins a new file. Readers know from the table where in the whole output each file begins: it is
    /// written while both files are there and before either has its new name.
    fn turn(&mut self) {
        let (old_base, old_file) = (self.base, self.file.take());
        self.base += self.written;
        self.written = 0;
        let new = beside(&self.path, NEW);
        self.file = create(&new).ok();
        let files = [(&old_file, old_base), (&self.file, self.base)];
        let files = files.into_iter().filter_map(|(it, base)| Some((it.as_ref()?, base)));
        if Table::of(files).write(&self.path).is_err() {
            // An old one would tell wrong places. Without any, readers take what is kept for the beginning.
            drop(Table::forget(&self.path));
        }
        // Without the old file's new name the content is cut all the same: the bound holds.
        drop(fs::rename(&self.path, beside(&self.path, OLD)));
        if self.file.is_some() {
            drop(fs::rename(&new, &self.path));
        }
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
    use crate::output_files::Kept;

    fn bounds() -> Bounds {
        Bounds { max: 100, reserve: 0 }
    }

    #[test]
    fn a_disk_below_its_reserve_costs_the_output_and_not_the_line_that_means_ready() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stdout.log");
        let none = Bounds { reserve: u64::MAX, ..bounds() };
        let mut capture = Capture::create(path.clone(), none, Some("ready")).unwrap();
        assert!(capture.take(b"it is ready\n"));
        assert_eq!(fs::read_to_string(&path).unwrap(), "");
        capture.reserve = 0;
        capture.take(b"there is room again\n");
        assert_eq!(fs::read_to_string(&path).unwrap(), "there is room again\n");
    }

    #[test]
    fn the_newest_output_is_kept_within_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stdout.log");
        let mut capture = Capture::create(path.clone(), bounds(), None).unwrap();
        for number in 0..1000 {
            assert!(!capture.take(format!("{number:04}\n").as_bytes()));
        }
        let new = fs::read_to_string(&path).unwrap();
        let old = fs::read_to_string(folder.path().join("stdout.log.1")).unwrap();
        assert!(new.ends_with("0999\n"));
        assert!(old.len() + new.len() <= 100 && old.len() == 50);
        let mut names: Vec<_> = fs::read_dir(folder.path()).unwrap().flatten().collect();
        names.sort_by_key(fs::DirEntry::file_name);
        let names: Vec<_> = names.iter().map(fs::DirEntry::file_name).collect();
        assert_eq!(names, ["stdout.log", "stdout.log.1", "stdout.log.at"]);
        // Who reads from any place gets what was written there, and from the oldest on what is kept.
        let kept = Kept::look(&path).unwrap();
        assert_eq!((kept.begin(), kept.end()), (4_900, 5_000));
        for at in [0, 4_900, 4_949, 4_950, 4_999] {
            let (from, bytes) = kept.read(at, 7).unwrap().unwrap();
            assert_eq!(from, at.max(4_900));
            let all: String = (0..1000).map(|it| format!("{it:04}\n")).collect();
            assert_eq!(bytes, all.as_bytes()[usize::try_from(from).unwrap()..][..bytes.len()]);
            assert!(!bytes.is_empty());
        }
    }

    #[test]
    fn a_table_that_cannot_be_written_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stdout.log");
        let mut capture = Capture::create(path.clone(), bounds(), None).unwrap();
        capture.take(&[b'a'; 120]);
        assert_eq!(Kept::look(&path).unwrap().end(), 120);
        let in_the_way = beside(&path, ".at.new");
        fs::create_dir(&in_the_way).unwrap();
        capture.take(&[b'b'; 40]);
        let kept = Kept::look(&path).unwrap();
        assert_eq!((kept.begin(), kept.end()), (0, 60));
        fs::remove_dir(&in_the_way).unwrap();
        capture.take(&[b'c'; 50]);
        let kept = Kept::look(&path).unwrap();
        assert_eq!((kept.begin(), kept.end()), (150, 210), "the next table tells the right places");
    }

    #[test]
    fn a_link_in_the_place_of_an_output_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (target, path) = (folder.path().join("target"), folder.path().join("stdout.log"));
        fs::write(&target, "precious").unwrap();
        std::os::unix::fs::symlink(&target, &path).unwrap();
        assert!(Capture::create(path, bounds(), None).is_err());
        assert_eq!(fs::read_to_string(&target).unwrap(), "precious");
    }

    #[test]
    fn a_line_is_found_across_reads_and_only_once() {
        let folder = tempfile::tempdir().unwrap();
        let mut capture =
            Capture::create(folder.path().join("out"), bounds(), Some("ready")).unwrap();
        assert!(!capture.take(b"rea\ndy\n"));
        assert!(!capture.take(b"it is re"));
        assert!(capture.take(b"ady now\n"));
        assert!(!capture.take(b"ready\n"));
    }

    #[test]
    fn a_line_that_never_ends_takes_no_memory() {
        let folder = tempfile::tempdir().unwrap();
        let mut capture =
            Capture::create(folder.path().join("out"), bounds(), Some("xyz")).unwrap();
        for _ in 0..100 {
            capture.take(&[b'a'; 1000]);
        }
        assert!(capture.line.len() <= LINE_SEARCHED_BYTES_MAX);
        assert!(capture.take(b"\nxyz\n"));
    }
}
