//! Boot ids that grow: a later boot of a node has a higher number, so that nobody takes a late
//! registration of an earlier boot for news.

use rota_model::BootId;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Counts a node's boots. The number is the wall clock's milliseconds or, should that clock have
/// stepped back, one more than the last number in the data folder. It stays below 2^53, so that it
/// is exact wherever JSON numbers are floats.
#[derive(Debug)]
pub struct Boots {
    file: PathBuf,
    last: u64,
}

impl Boots {
    /// Takes up the count of a data folder.
    pub fn open(folder: &Path) -> io::Result<Self> {
        let file = folder.join("boot");
        let last = match fs::read_to_string(&file) {
            Ok(text) => text.trim().parse().map_err(|_| {
                let text = format!("{} does not hold a number", file.display());
                io::Error::new(io::ErrorKind::InvalidData, text)
            })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            Err(error) => return Err(error),
        };
        Ok(Self { file, last })
    }

    /// The next boot id; it is on disk before it is used.
    pub fn next(&mut self) -> io::Result<BootId> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        self.last = u64::try_from(now).unwrap_or(u64::MAX).max(self.last + 1);
        let fresh = self.file.with_extension("new");
        let mut file = File::create(&fresh)?;
        writeln!(file, "{}", self.last)?;
        file.sync_all()?;
        fs::rename(&fresh, &self.file)?;
        Ok(BootId(self.last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boot_ids_grow_even_when_the_clock_steps_back() {
        let folder = tempfile::tempdir().unwrap();
        let ahead = u64::MAX >> 11;
        fs::write(folder.path().join("boot"), format!("{ahead}\n")).unwrap();
        let mut boots = Boots::open(folder.path()).unwrap();
        assert_eq!(boots.next().unwrap(), BootId(ahead + 1));
        let mut again = Boots::open(folder.path()).unwrap();
        assert_eq!(again.next().unwrap(), BootId(ahead + 2));
    }

    #[test]
    fn a_damaged_count_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("boot"), "many").unwrap();
        assert!(Boots::open(folder.path()).unwrap_err().to_string().contains("boot"));
    }
}
