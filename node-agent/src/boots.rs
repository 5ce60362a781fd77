//! Boot ids that grow: a later boot of a node has a higher number, so that nobody takes a late
//! registration of an earlier boot for news. The data folder remembers the last ones: it held what
//! they ran, and its agent has ended that before it registers, so it proves that they are over.

use rota_model::BootId;
use rota_model::node_msg::ENDED_BOOTS_MAX;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// The lowest bits of a boot id are drawn, so that two machines that start agents of one node in the
/// same millisecond do not make the same one.
const DRAWN_BITS: u32 = 10;

/// How far the first boot after one that was refused for its number goes ahead of the clock.
const AHEAD_MS: u64 = 1_000;

/// Counts a node's boots. The number is the wall clock's milliseconds with some drawn bits or, should
/// that clock have stepped back, one more than the last number in the data folder. It stays below
/// 2^53 for two centuries, so that it is exact wherever JSON numbers are floats.
#[derive(Debug)]
pub struct Boots {
    file: PathBuf,
    /// Those of this folder, newest last; at most [`ENDED_BOOTS_MAX`].
    boots: Vec<BootId>,
    ahead_ms: u64,
}

impl Boots {
    /// Takes up the count of a data folder. Nothing of what earlier agents left in it may run.
    pub fn open(folder: &Path) -> io::Result<Self> {
        let file = folder.join("boot");
        let boots = match fs::read_to_string(&file) {
            Ok(text) => numbers(&text).ok_or_else(|| {
                let text = format!("{} does not hold a number in each line", file.display());
                io::Error::new(io::ErrorKind::InvalidData, text)
            })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        Ok(Self { file, boots, ahead_ms: 0 })
    }

    /// The next boot id, and those before it that this folder proves to be over. It is on disk before
    /// it is used.
    pub fn next(&mut self) -> io::Result<(BootId, Vec<BootId>)> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let now_ms = u64::try_from(now).unwrap_or(u64::MAX).saturating_add(self.ahead_ms);
        let drawn = uuid::Uuid::new_v4().as_u64_pair().1 & ((1 << DRAWN_BITS) - 1);
        let last = self.boots.last().map_or(0, |it| it.0);
        let boot = BootId((now_ms.saturating_mul(1 << DRAWN_BITS) | drawn).max(last + 1));
        let ended = self.boots.clone();
        self.boots.push(boot);
        let surplus = self.boots.len().saturating_sub(ENDED_BOOTS_MAX);
        self.boots.drain(..surplus);
        self.write()?;
        Ok((boot, ended))
    }

    /// The same after a boot that was refused because a later one was registered, whose number is not
    /// known: each time twice as far ahead of the clock.
    pub fn next_beyond(&mut self) -> io::Result<(BootId, Vec<BootId>)> {
        self.ahead_ms = self.ahead_ms.saturating_mul(2).max(AHEAD_MS);
        self.next()
    }

    fn write(&self) -> io::Result<()> {
        let fresh = self.file.with_extension("new");
        let mut file = File::create(&fresh)?;
        let lines: String = self.boots.iter().map(|it| format!("{}\n", it.0)).collect();
        file.write_all(lines.as_bytes())?;
        file.sync_all()?;
        fs::rename(&fresh, &self.file)?;
        // What was registered and is not known here any more would have to be waited for.
        self.file.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
    }
}

/// A number in each line, at least one; the newest if they are too many.
fn numbers(text: &str) -> Option<Vec<BootId>> {
    let mut boots = Vec::new();
    for line in text.lines() {
        boots.push(BootId(line.trim().parse().ok()?));
    }
    boots.drain(..boots.len().saturating_sub(ENDED_BOOTS_MAX));
    (!boots.is_empty()).then_some(boots)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boot_ids_grow_even_when_the_clock_steps_back_and_the_folder_remembers_them() {
        let folder = tempfile::tempdir().unwrap();
        // One line: as agents wrote it that remembered the last one only.
        let ahead = u64::MAX >> 11;
        fs::write(folder.path().join("boot"), format!("{ahead}\n")).unwrap();
        let mut boots = Boots::open(folder.path()).unwrap();
        assert_eq!(boots.next().unwrap(), (BootId(ahead + 1), vec![BootId(ahead)]));
        let mut again = Boots::open(folder.path()).unwrap();
        let ended = vec![BootId(ahead), BootId(ahead + 1)];
        assert_eq!(again.next().unwrap(), (BootId(ahead + 2), ended));
    }

    #[test]
    fn a_fresh_folder_proves_nothing_and_an_old_one_the_newest_boots() {
        let folder = tempfile::tempdir().unwrap();
        let mut boots = Boots::open(folder.path()).unwrap();
        let (mut last, ended) = boots.next().unwrap();
        assert_eq!(ended, vec![]);
        for _ in 0..2 * ENDED_BOOTS_MAX {
            let (boot, ended) = boots.next().unwrap();
            assert!(boot > last && ended.last() == Some(&last) && ended.len() <= ENDED_BOOTS_MAX);
            last = boot;
        }
        let (_, ended) = Boots::open(folder.path()).unwrap().next().unwrap();
        assert_eq!((ended.len(), ended.last()), (ENDED_BOOTS_MAX, Some(&last)));
    }

    #[test]
    fn a_boot_that_was_refused_for_its_number_is_followed_by_ever_higher_ones() {
        let folder = tempfile::tempdir().unwrap();
        let mut boots = Boots::open(folder.path()).unwrap();
        let first = boots.next().unwrap().0;
        // Some machine whose clock is a year ahead was registered.
        let registered = first.0 + ((365 * 24 * 3_600_000) << DRAWN_BITS);
        let tries = (1..100).find(|_| boots.next_beyond().unwrap().0.0 > registered);
        assert!(tries.is_some_and(|it| it < 30), "{tries:?}");
    }

    #[test]
    fn a_damaged_count_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        for damaged in ["many", "17\nx\n", ""] {
            fs::write(folder.path().join("boot"), damaged).unwrap();
            assert!(Boots::open(folder.path()).unwrap_err().to_string().contains("boot"));
        }
    }
}
