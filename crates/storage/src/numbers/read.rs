//! How a folder is read.

use super::error::{NumbersError, Why};
use super::{ENDING, SET_ASIDE, STICKY};
use crate::disk::NEW;
use crate::folder::HARMLESS;
use rota_ids::{Change, Entry, Name, NumberError, Numbers};
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::num::NonZero;
use std::os::unix::fs::MetadataExt as _;
use std::panic::resume_unwind;
use std::path::Path;
use std::thread;

/// Bytes of the longest number.
const NUMBER_BYTES_MAX: usize = 20;
/// Threads that read. Fewer, and a start with many entries takes longer; more find no disk that serves them.
const READERS_MAX: usize = 4;
/// Files for which a thread is worth its start.
const FILES_MIN: usize = 1_000;

/// What lies in a folder.
#[derive(Debug, Default)]
pub(super) struct Found {
    entries: Vec<(Name, Entry)>,
    /// What is no entry, by its name.
    wrong: Vec<(OsString, Why)>,
    /// Lasts whose content is wrong, as far as the rest tells.
    lost: Vec<(Name, Entry)>,
}

/// What one file is.
enum Content {
    Entry(Entry),
    /// Its number is not to be read; here it is 0.
    Broken(Entry),
    NotRegular,
    /// It was removed meanwhile.
    Gone,
}

/// Reads every entry of a folder. What takes time are calls of the operating system, so several threads make
/// them.
pub(super) fn read(folder: &Path) -> Result<Found, NumbersError> {
    let opened = File::open(folder).map_err(NumbersError::io("open", folder))?;
    let mut files = Vec::new();
    for file in fs::read_dir(folder).map_err(NumbersError::io("list", folder))? {
        let file = file.map_err(NumbersError::io("list", folder))?;
        files.push((file.file_name(), file.file_type().is_ok_and(|it| it.is_file())));
    }
    let readers = thread::available_parallelism().map_or(1, NonZero::get).min(READERS_MAX);
    let share = files.len().div_ceil(readers).max(FILES_MIN);
    let read = |files: &[(OsString, bool)]| {
        let mut found = Found::default();
        for (name, is_regular) in files {
            let taken = found.take(&opened, name, *is_regular);
            taken.map_err(|source| NumbersError::io("read", &folder.join(name))(source))?;
        }
        Ok(found)
    };
    let mut shares = files.chunks(share);
    let first = shares.next().unwrap_or_default();
    thread::scope(|scope| {
        let others: Vec<_> = shares.map(|files| scope.spawn(|| read(files))).collect();
        let mut all = read(first)?;
        for other in others {
            let found = other.join().unwrap_or_else(|panic| resume_unwind(panic))?;
            all.entries.extend(found.entries);
            all.wrong.extend(found.wrong);
            all.lost.extend(found.lost);
        }
        Ok(all)
    })
}

impl Found {
    fn take(&mut self, folder: &File, file: &OsStr, is_regular: bool) -> io::Result<()> {
        let text = file.to_string_lossy();
        if text == SET_ASIDE || HARMLESS.contains(&&*text) {
            return Ok(());
        }
        let mut wrong = |why| {
            self.wrong.push((file.to_owned(), why));
            Ok(())
        };
        if !is_regular {
            return wrong(Why::NotRegular);
        }
        let Some(stem) = text.strip_suffix(ENDING) else {
            let cut_off = text.strip_suffix(NEW).is_some_and(|it| Name::parse(it).is_ok());
            return wrong(if cut_off { Why::CutOff } else { Why::Ending });
        };
        let name = match Name::parse(stem) {
            Ok(name) => name,
            Err(error) => return wrong(Why::Name(error)),
        };
        match content(folder, file)? {
            Content::Entry(entry) => self.entries.push((name, entry)),
            Content::Broken(entry) => {
                wrong(Why::Content)?;
                match name {
                    Name::Last(_) => self.lost.push((name, entry)),
                    Name::Entry(_) => {}
                }
            }
            Content::NotRegular => return wrong(Why::NotRegular),
            Content::Gone => {}
        }
        Ok(())
    }

    /// Puts the entries together. Returns them, what is wrong, and the lasts that are made anew.
    pub fn restore(mut self, outdate_ms: u64) -> (Numbers, Vec<(OsString, Why)>, Vec<Change>) {
        let mut numbers = Numbers::new(outdate_ms);
        // Of two with one number the first one keeps it.
        let rank = |entry: &Entry| (!entry.valid, entry.changed_ms);
        self.entries.sort_by(|left, right| {
            rank(&left.1).cmp(&rank(&right.1)).then_with(|| left.0.cmp(&right.0))
        });
        for (name, entry) in self.entries {
            if let Err(NumberError::Taken { key, by, .. }) = numbers.restore(name, entry) {
                self.wrong.push((OsString::from(format!("{key}{ENDING}")), Why::Taken { by }));
            }
        }
        let mut made_anew = Vec::new();
        for (name, entry) in self.lost {
            let highest = match &name {
                Name::Last(group) => numbers.highest(group),
                Name::Entry(_) => None,
            };
            let entry = Entry { number: highest.unwrap_or(0), ..entry };
            if numbers.restore(name.clone(), entry).is_ok() {
                made_anew.push(Change::Put(name, entry));
            }
        }
        self.wrong.sort_by(|left, right| left.0.cmp(&right.0));
        (numbers, self.wrong, made_anew)
    }
}

/// Opens a file of the folder for reading; a link is not followed, and a pipe is not waited for. The time of
/// the last access stays, where the file is ours: else each read would write to the disk.
pub(super) fn open_in(folder: &File, file: &OsStr) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = match openat(folder, file, flags | OFlags::NOATIME, Mode::empty()) {
        Err(Errno::PERM) => openat(folder, file, flags, Mode::empty()),
        opened => opened,
    };
    Ok(File::from(opened?))
}

fn content(folder: &File, file: &OsStr) -> io::Result<Content> {
    let opened = match open_in(folder, file) {
        Ok(opened) => opened,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Content::Gone),
        Err(error) => return Err(error),
    };
    let data = opened.metadata()?;
    if !data.is_file() {
        return Ok(Content::NotRegular);
    }
    let changed_ms =
        data.mtime().saturating_mul(1_000).saturating_add(data.mtime_nsec() / 1_000_000);
    let changed_ms = u64::try_from(changed_ms).unwrap_or(0);
    let valid = data.mode() & STICKY != 0;
    let entry = |number| Entry { number, valid, changed_ms };
    Ok(match number(&opened, data.len())? {
        Some(number) => Content::Entry(entry(number)),
        None => Content::Broken(entry(0)),
    })
}

/// The number that a file of so many bytes holds, if it holds nothing else. A line end is fine: a person may
/// have written it.
pub(super) fn number(mut file: &File, length: u64) -> io::Result<Option<u64>> {
    let mut bytes = [0; NUMBER_BYTES_MAX + 1];
    let Some(bytes) = usize::try_from(length).ok().and_then(|it| bytes.get_mut(..it)) else {
        return Ok(None);
    };
    file.read_exact(bytes)?;
    let text = std::str::from_utf8(bytes).unwrap_or_default();
    let text = text.strip_suffix('\n').unwrap_or(text);
    // No sign and no zero in front.
    let is_written = !text.starts_with('0') && text.bytes().all(|it| it.is_ascii_digit());
    Ok(text.parse().ok().filter(|_| is_written))
}
