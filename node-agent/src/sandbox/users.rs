//! Users for sessions: a range of uids that belong to nobody else, of which each live session has one.

use crate::mark::Mark;
use rota_daemon::processes;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Below this, systems number their own users and people.
const FIRST_MIN: u32 = 10_000;

/// Most uids of a range: each is looked up at the start, and a node has at most so many places.
const COUNT_MAX: u32 = 1_000_000;

/// A look at every process of the machine counts for so long. Nodes that run reserve their users by
/// other means; the look finds those of nodes that were killed.
const LOOK_COUNTS: Duration = Duration::from_secs(1);

/// Uids that sessions may have, and gids of the same numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UserRange {
    first: u32,
    last: u32,
}

impl FromStr for UserRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = || format!("{text:?} is no range of uids like 200000-265535");
        let (first, last) = text.split_once('-').ok_or_else(form)?;
        let number = |text: &str| text.parse::<u32>().map_err(|_| form());
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return Err(format!("{text:?} begins after its end"));
        }
        if first < FIRST_MIN || last == u32::MAX {
            return Err(format!("{text:?} must lie within {FIRST_MIN} and {}", u32::MAX - 1));
        }
        if last - first >= COUNT_MAX {
            return Err(format!("{text:?} has more than {COUNT_MAX} uids"));
        }
        Ok(Self { first, last })
    }
}

impl UserRange {
    /// The uids of the range that belong to nobody: no user or group of the machine, none that a user may
    /// give to containers, and known in this user namespace.
    pub fn free(self) -> Vec<u32> {
        let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
        let mut taken = ids(&read("/etc/passwd"));
        taken.extend(ids(&read("/etc/group")));
        let mut spans = spans(&read("/etc/subuid"));
        spans.extend(self::spans(&read("/etc/subgid")));
        let known = [mapped(&read("/proc/self/uid_map")), mapped(&read("/proc/self/gid_map"))];
        let is_in = |span: &(u64, u64), id: u32| {
            (span.0..span.0.saturating_add(span.1)).contains(&u64::from(id))
        };
        let is_free = |id: &u32| {
            !taken.contains(id)
                && !spans.iter().any(|it| is_in(it, *id))
                && known.iter().all(|it| it.iter().any(|span| is_in(span, *id)))
        };
        (self.first..=self.last).filter(is_free).collect()
    }
}

/// The third field of each line: the id of a user or group.
fn ids(text: &str) -> BTreeSet<u32> {
    text.lines().filter_map(|it| it.split(':').nth(2)?.parse().ok()).collect()
}

/// First and count of what `/etc/subuid` gives away.
fn spans(text: &str) -> Vec<(u64, u64)> {
    let span = |line: &str| {
        let mut fields = line.split(':').skip(1).map(str::parse);
        Some((fields.next()?.ok()?, fields.next()?.ok()?))
    };
    text.lines().filter_map(span).collect()
}

/// First and count of the ids that a user namespace knows.
fn mapped(text: &str) -> Vec<(u64, u64)> {
    let span = |line: &str| {
        let fields: Vec<u64> = line.split_whitespace().filter_map(|it| it.parse().ok()).collect();
        Some((*fields.first()?, *fields.get(2)?))
    };
    text.lines().filter_map(span).collect()
}

/// A uid that no other session has while this value lives.
#[derive(Debug)]
pub struct User {
    number: u32,
    /// `None`: somebody else of this machine marked it while no agent of this node ran.
    _mark: Option<Mark>,
}

impl User {
    /// That of a program which runs. Nobody chooses it while a process of it lives; the mark keeps it until
    /// all of the session is over.
    pub fn again(number: u32) -> Self {
        let mark = Mark::take(&mark_name(number)).ok().flatten();
        if mark.is_none() {
            tracing::warn!(number, "the uid of a program that runs has another mark");
        }
        Self { number, _mark: mark }
    }

    /// The uid, and the gid.
    pub fn number(&self) -> u32 {
        self.number
    }
}

/// Gives uids out.
#[derive(Debug)]
pub struct Users {
    free: Vec<u32>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Where the next choice begins: what a session left behind is not met by the next one.
    next: usize,
    /// Uids with a live process at the last look.
    seen: BTreeSet<u32>,
    looked: Option<Instant>,
}

impl Users {
    /// Of these uids, which are not empty, beginning somewhere: several nodes share a range.
    pub fn new(free: Vec<u32>, somewhere: u64) -> Self {
        let count = u64::try_from(free.len()).unwrap_or(1).max(1);
        let next = usize::try_from(somewhere % count).unwrap_or(0);
        Self { free, state: Mutex::new(State { next, seen: BTreeSet::new(), looked: None }) }
    }

    /// Chooses one that has no process. Every node of a machine marks its choice, as it does for
    /// ports; the mark vanishes with the node, and then its processes tell.
    pub fn choose(&self) -> io::Result<User> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.looked.is_none_or(|it| it.elapsed() > LOOK_COUNTS) {
            let all = processes::all();
            state.seen = all.iter().filter_map(|it| processes::user(it.process.pid)).collect();
            state.looked = Some(Instant::now());
        }
        for _ in 0..self.free.len() {
            let number = self.free[state.next];
            state.next = (state.next + 1) % self.free.len();
            if state.seen.contains(&number) {
                continue;
            }
            if let Some(mark) = Mark::take(&mark_name(number))? {
                return Ok(User { number, _mark: Some(mark) });
            }
        }
        let count = self.free.len();
        let text = format!("each of the {count} uids for sessions is taken (--program-users)");
        Err(io::Error::other(text))
    }
}

fn mark_name(number: u32) -> String {
    format!("rota-user-{number}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(text: &str) -> Result<UserRange, String> {
        text.parse()
    }

    #[test]
    fn a_range_is_two_numbers_in_order_above_those_of_people() {
        assert_eq!(range("200000-265535"), Ok(UserRange { first: 200_000, last: 265_535 }));
        for wrong in [
            "",
            "1",
            "a-b",
            "300000-200000",
            "0-100000",
            "200000-4294967295",
            "-5-7",
            "10000-4000000000",
        ] {
            assert!(range(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_files_of_the_system_are_read() {
        assert_eq!(ids("root:x:0:0::/:/bin/sh\nme:x:1000:1000::/:\nodd\n"), [0, 1000].into());
        assert_eq!(spans("me:100000:65536\nodd\n"), [(100_000, 65_536)]);
        assert_eq!(mapped("         0     100000      65536\n"), [(0, 65_536)]);
    }

    #[test]
    fn a_uid_is_given_once_while_it_is_held_and_not_at_once_again() {
        // Far from those that nodes of this machine use.
        let free: Vec<u32> = (3_900_000_000..3_900_000_003).collect();
        let users = Users::new(free.clone(), 1);
        let first = users.choose().unwrap();
        let second = users.choose().unwrap();
        assert_eq!((first.number(), second.number()), (free[1], free[2]));
        let other_node = Users::new(free.clone(), 1);
        let third = other_node.choose().unwrap();
        assert_eq!(third.number(), free[0]);
        let full = users.choose().unwrap_err().to_string();
        assert!(full.contains("--program-users"), "{full}");
        drop(second);
        let again = User::again(free[2]);
        assert!(users.choose().is_err(), "a session that goes on has it");
        drop(again);
        assert_eq!(users.choose().unwrap().number(), free[2]);
    }
}
