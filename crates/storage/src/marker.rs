//! Small text files that say what a folder or a file is.
//!
//! ```text
//! rota data folder          the title
//! format 1
//! engine log                fields, in a fixed order
//! check 91f2c0d35a7be604    xxh3 of everything above
//! ```
//! They are replaced as a whole, and no changed byte in them goes unnoticed.

use crate::disk::{Disk, replace_file};
use crate::error::EngineError;
use std::io;
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::xxh3_64;

/// A marker is three names of at most 255 bytes and a few words.
const BYTES_MAX: u64 = 4 * 1024;

/// Title and format of one sort of marker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Marker {
    pub title: &'static str,
    pub format: u32,
}

impl Marker {
    /// Writes the file, durably: after a loss of power there is the old one or the new one.
    pub fn write(
        self,
        disk: &dyn Disk,
        file: &Path,
        fields: &[(&str, &str)],
    ) -> Result<(), EngineError> {
        let Self { title, format } = self;
        let mut text = format!("{title}\nformat {format}\n");
        for (name, value) in fields {
            text.push_str(name);
            text.push(' ');
            text.push_str(value);
            text.push('\n');
        }
        let check = xxh3_64(text.as_bytes());
        text.push_str(&format!("check {check:016x}\n"));
        replace_file(disk, file, text.as_bytes()).map_err(EngineError::io("write", file))
    }

    /// Reads the file and verifies title, format and check, in this order: another format may
    /// have other lines and another check.
    pub fn read(self, disk: &dyn Disk, file: &Path) -> Result<Fields, EngineError> {
        let damaged = |what: &str| EngineError::missing(file, what);
        let bytes = read_small(disk, file).map_err(EngineError::io("read", file))?;
        let text = String::from_utf8(bytes).map_err(|_| damaged("it is no text"))?;
        let (body, check) =
            text.rsplit_once("check ").ok_or_else(|| damaged("it has no last line"))?;
        let mut lines: Vec<String> = body.lines().map(str::to_owned).collect();
        if lines.first().map(String::as_str) != Some(self.title) {
            return Err(damaged("it does not begin as such a file does"));
        }
        lines.reverse();
        lines.pop();
        let mut fields = Fields { file: file.to_owned(), lines };
        let found = fields.next("format")?;
        if found != self.format.to_string() {
            let (file, wanted) = (file.to_owned(), self.format);
            return Err(EngineError::OtherFormat { file, found, wanted });
        }
        if check.trim_end() != format!("{:016x}", xxh3_64(body.as_bytes())) {
            return Err(damaged("its text does not match its last line"));
        }
        Ok(fields)
    }
}

/// The fields of a marker that was read, taken one after the other.
#[derive(Debug)]
pub(crate) struct Fields {
    file: PathBuf,
    /// The next is the last.
    lines: Vec<String>,
}

impl Fields {
    /// The value of the next field, which must have this name.
    pub fn next(&mut self, name: &str) -> Result<String, EngineError> {
        let line = self.lines.pop();
        let value = line.as_deref().and_then(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.map(str::to_owned).ok_or_else(|| self.damaged(&format!("it has no line \"{name}\"")))
    }

    /// The error for a value that cannot be.
    pub fn damaged(&self, what: &str) -> EngineError {
        EngineError::missing(&self.file, what)
    }
}

fn read_small(disk: &dyn Disk, file: &Path) -> io::Result<Vec<u8>> {
    let opened = disk.open(file)?;
    let length = opened.len()?.min(BYTES_MAX);
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
    opened.read_at(0, &mut bytes)?;
    Ok(bytes)
}
