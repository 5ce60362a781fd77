//! Boot ids that grow: a later boot of a node has a higher number, so that nobody takes a late
//! registration of an earlier boot for news.
//!
//! The data folder remembers the last ones, each with the [`Place`] that it ran at. A boot of the same
//! place is over: the lock of the folder was free, and its agent has ended what that boot ran before it
//! registers. Of a boot of another place nobody here can see whether it runs, so the folder proves
//! nothing about it.

use rota_daemon::processes;
use rota_model::BootId;
use rota_model::node_msg::ENDED_BOOTS_MAX;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// The lowest bits of a boot id are drawn, so that two machines that start agents of one node in the
/// same millisecond do not make the same one.
const DRAWN_BITS: u32 = 10;

/// How far the first boot after one that was refused for its number goes ahead of the clock.
const AHEAD_MS: u64 = 1_000;

/// The file whose time of change tells a folder from its copies.
const MARK: &str = "place";

/// Where a boot runs, as far as another boot can see whether it runs.
///
/// It is the boot of the kernel and the pid namespace, whose processes `/proc` shows, and the folder itself,
/// since a copy of it has another lock, and lacks what began since. Device and inode name the folder, and
/// the time of the last change of one file in it that is written once: an inode is used again, and no copy gets
/// that time, whatever else of a file it keeps. A name of the machine would prove less, since images and
/// clones share it.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Place(String);

impl Place {
    /// The place of a boot that runs here. `None` where `/proc` does not tell it.
    fn here(folder: &Path) -> io::Result<Option<Self>> {
        let (found, mark) = (fs::metadata(folder)?, folder.join(MARK));
        if let Err(error) = File::create_new(&mark)
            && error.kind() != io::ErrorKind::AlreadyExists
        {
            return Err(error);
        }
        let mark = fs::metadata(mark)?;
        let machine = processes::machine_boot();
        let changed = format!("{}.{:09}", mark.ctime(), mark.ctime_nsec());
        let place =
            || format!("{machine} {}:{} {}:{changed}", found.dev(), found.ino(), mark.ino());
        Ok((!machine.is_empty()).then(place).map(Self))
    }
}

/// A boot of the folder.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Boot {
    id: BootId,
    /// `None` where it was not known.
    place: Option<Place>,
}

impl Boot {
    /// A line of the file: the number and, where it was known, the place.
    fn read(line: &str) -> Option<Self> {
        let (id, place) = line.split_once(' ').unwrap_or((line, ""));
        let place = (!place.is_empty()).then(|| Place(place.to_owned()));
        Some(Self { id: BootId(id.parse().ok()?), place })
    }

    fn line(&self) -> String {
        match &self.place {
            Some(Place(place)) => format!("{} {place}\n", self.id.0),
            None => format!("{}\n", self.id.0),
        }
    }
}

/// Counts a node's boots. The number is the wall clock's milliseconds with some drawn bits or, should
/// that clock have stepped back, one more than the last number in the data folder. It stays below
/// 2^53 for two centuries, so that it is exact wherever JSON numbers are floats.
#[derive(Debug)]
pub struct Boots {
    file: PathBuf,
    /// Those of this folder, newest last; at most [`ENDED_BOOTS_MAX`].
    boots: Vec<Boot>,
    here: Option<Place>,
    ahead_ms: u64,
}

impl Boots {
    /// Takes up the count of a data folder. Before [`Self::next`], nothing of what earlier agents left in it here may run
    /// any more.
    pub fn open(folder: &Path) -> io::Result<Self> {
        Self::open_at(folder, Place::here(folder)?)
    }

    fn open_at(folder: &Path, here: Option<Place>) -> io::Result<Self> {
        let file = folder.join("boot");
        let boots = match fs::read_to_string(&file) {
            Ok(text) => read(&text).ok_or_else(|| {
                let text = format!("{} does not hold a number in each line", file.display());
                io::Error::new(io::ErrorKind::InvalidData, text)
            })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        Ok(Self { file, boots, here, ahead_ms: 0 })
    }

    /// The folder's last boot, when the folder does not prove here that it is over.
    pub fn unproven(&self) -> Option<BootId> {
        self.boots.last().filter(|it| !self.proves(it)).map(|it| it.id)
    }

    /// The folder's last boot, when it ran here: an agent that comes after it may go on with it.
    pub fn last_here(&self) -> Option<BootId> {
        self.boots.last().filter(|it| self.proves(it)).map(|it| it.id)
    }

    fn proves(&self, boot: &Boot) -> bool {
        self.here.is_some() && boot.place == self.here
    }

    /// The next boot id, and those before it that this folder proves to be over. It is on disk before
    /// it is used.
    pub fn next(&mut self) -> io::Result<(BootId, Vec<BootId>)> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let now_ms = u64::try_from(now).unwrap_or(u64::MAX).saturating_add(self.ahead_ms);
        let drawn = uuid::Uuid::new_v4().as_u64_pair().1 & ((1 << DRAWN_BITS) - 1);
        let last = self.boots.last().map_or(0, |it| it.id.0);
        let id = BootId((now_ms.saturating_mul(1 << DRAWN_BITS) | drawn).max(last + 1));
        let ended = self.boots.iter().filter(|it| self.proves(it)).map(|it| it.id).collect();
        self.boots.push(Boot { id, place: self.here.clone() });
        let surplus = self.boots.len().saturating_sub(ENDED_BOOTS_MAX);
        self.boots.drain(..surplus);
        self.write()?;
        Ok((id, ended))
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
        let lines: String = self.boots.iter().map(Boot::line).collect();
        file.write_all(lines.as_bytes())?;
        file.sync_all()?;
        fs::rename(&fresh, &self.file)?;
        // What was registered and is not known here any more would have to be waited for.
        self.file.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
    }
}

/// A boot in each line, at least one; the newest if they are too many.
fn read(text: &str) -> Option<Vec<Boot>> {
    let mut boots = text.lines().map(|it| Boot::read(it.trim())).collect::<Option<Vec<Boot>>>()?;
    boots.drain(..boots.len().saturating_sub(ENDED_BOOTS_MAX));
    (!boots.is_empty()).then_some(boots)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boot_ids_grow_even_when_the_clock_steps_back_and_the_folder_remembers_them() {
        let folder = tempfile::tempdir().unwrap();
        // A number alone, as older agents wrote it, does not say where that boot ran.
        let ahead = u64::MAX >> 11;
        fs::write(folder.path().join("boot"), format!("{ahead}\n")).unwrap();
        let mut boots = Boots::open(folder.path()).unwrap();
        assert_eq!(boots.unproven(), Some(BootId(ahead)));
        assert_eq!(boots.next().unwrap(), (BootId(ahead + 1), vec![]));
        let mut again = Boots::open(folder.path()).unwrap();
        assert_eq!((again.unproven(), again.last_here()), (None, Some(BootId(ahead + 1))));
        assert_eq!(again.next().unwrap(), (BootId(ahead + 2), vec![BootId(ahead + 1)]));
    }

    #[test]
    fn a_folder_proves_only_boots_of_the_same_kernel_boot_pid_namespace_and_folder() {
        let folder = tempfile::tempdir().unwrap();
        let at = |place: &str| {
            let place = (!place.is_empty()).then(|| Place(place.to_owned()));
            Boots::open_at(folder.path(), place).unwrap()
        };
        let (first, _) = at("kernel-a 17 1:2").next().unwrap();
        for other in ["kernel-b 17 1:2", "kernel-a 18 1:2", "kernel-a 17 1:3", ""] {
            let mut boots = at(other);
            assert!(boots.unproven().is_some() && boots.last_here().is_none(), "{other}");
            assert!(boots.next().unwrap().1.is_empty(), "{other}");
        }
        // Back where the first one ran, it is over; the others are still elsewhere.
        assert_eq!(at("kernel-a 17 1:2").next().unwrap().1, [first]);
    }

    #[test]
    fn a_copy_of_a_folder_proves_nothing_and_a_folder_that_was_moved_does() {
        let folder = tempfile::tempdir().unwrap();
        let (first, copy) = (folder.path().join("first"), folder.path().join("copy"));
        fs::create_dir(&first).unwrap();
        let (boot, _) = Boots::open(&first).unwrap().next().unwrap();
        fs::create_dir(&copy).unwrap();
        fs::copy(first.join("boot"), copy.join("boot")).unwrap();
        let copied = Boots::open(&copy).unwrap();
        assert_eq!(copied.unproven(), Some(boot));
        // A copy that took the place, and mostly the inode, of what it was made from.
        let restored = folder.path().join("restored");
        let copy_all = |from: &Path, to: &Path| {
            let mut copy = std::process::Command::new("cp");
            assert!(copy.arg("-a").args([from, to]).status().unwrap().success());
        };
        copy_all(&first, &restored);
        let kept = folder.path().join("kept");
        copy_all(&restored, &kept);
        let (boot_there, _) = Boots::open(&restored).unwrap().next().unwrap();
        fs::copy(restored.join("boot"), kept.join("boot")).unwrap();
        fs::remove_dir_all(&restored).unwrap();
        copy_all(&kept, &restored);
        assert_eq!(Boots::open(&restored).unwrap().unproven(), Some(boot_there));
        let moved = folder.path().join("moved");
        fs::rename(&first, &moved).unwrap();
        assert_eq!(Boots::open(&moved).unwrap().next().unwrap().1, [boot]);
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
