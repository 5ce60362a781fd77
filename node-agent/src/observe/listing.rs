//! Which programs this node runs, for whoever looks at them.

use super::usage;
use rota_model::{ClassName, SessionKey, Stamp, Token};
use rota_node::class::Limits;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Most classes that are counted by their names. What an operator reloads again and again may have ever new ones.
const CLASSES_MAX: usize = 200;

/// What stands for the classes beyond.
const OTHER: &str = "other";

/// One program, from its order on until nothing of it runs.
#[derive(Clone, Debug)]
pub struct Listed {
    /// Its life.
    pub life: Stamp,
    /// Its class.
    pub class: ClassName,
    /// Its limits.
    pub limits: Limits,
    /// The session's folder.
    pub folder: PathBuf,
    /// The folder of class files with which it began; unknown of what an earlier build began.
    pub root: Option<PathBuf>,
    /// Its keeper, once that was started.
    pub keeper: Option<i32>,
    /// Its control groups.
    pub groups: Vec<PathBuf>,
    /// CPU time as it was seen last. What is seen later is never less.
    pub cpu: Duration,
}

/// What a class came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OfClass {
    /// Programs that run.
    pub programs: u64,
    /// CPU time of all that ever ran.
    pub cpu: Duration,
    /// Bytes of memory of those that run.
    pub memory_bytes: u64,
}

/// A session, and the folder of class files with which it began.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rooted {
    /// Its life.
    pub life: Stamp,
    /// Its class.
    pub class: ClassName,
    /// That folder.
    pub root: PathBuf,
}

#[derive(Default)]
struct Inner {
    live: BTreeMap<(SessionKey, Token), Listed>,
    /// Machines that began with a version of content.
    pinned: BTreeMap<SessionKey, Rooted>,
    /// CPU time of those that have ended.
    ended_cpu: BTreeMap<String, Duration>,
}

/// All of them. Clones share it: a lock because sessions have a task each; it is held for one change only.
#[derive(Clone, Default)]
pub struct Listing(Arc<Mutex<Inner>>);

impl std::fmt::Debug for Listing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listing").field("live", &self.locked().live.len()).finish()
    }
}

/// A program's place in the listing; dropped when nothing of it runs.
#[derive(Debug)]
pub struct Entry {
    listing: Listing,
    name: (SessionKey, Token),
}

impl Listing {
    /// A program is about to start.
    pub fn begin(&self, key: SessionKey, token: Token, listed: Listed) -> Entry {
        let name = (key, token);
        self.locked().live.insert(name.clone(), listed);
        Entry { listing: self.clone(), name }
    }

    /// Whether something of the session with that folder may run.
    pub fn runs(&self, folder: &Path) -> bool {
        self.locked().live.values().any(|it| it.folder == folder)
    }

    /// All of them, in order of namespace and id.
    pub fn all(&self) -> Vec<((SessionKey, Token), Listed)> {
        let inner = self.locked();
        inner.live.iter().map(|(name, listed)| (name.clone(), listed.clone())).collect()
    }

    /// A machine began with a version of content.
    pub fn pin(&self, key: SessionKey, rooted: Rooted) {
        self.locked().pinned.insert(key, rooted);
    }

    /// It has ended. Whether it was pinned.
    pub fn unpin(&self, key: &SessionKey) -> bool {
        self.locked().pinned.remove(key).is_some()
    }

    /// The folders of class files that sessions began with.
    pub fn roots(&self) -> BTreeSet<PathBuf> {
        let inner = self.locked();
        let programs = inner.live.values().filter_map(|it| it.root.clone());
        programs.chain(inner.pinned.values().map(|it| it.root.clone())).collect()
    }

    /// Programs and machines of which it is known what they began with. Each session once, in order.
    pub fn rooted(&self) -> BTreeMap<SessionKey, Rooted> {
        let inner = self.locked();
        let programs = inner.live.iter().filter_map(|((key, _), program)| {
            let (life, class) = (program.life, program.class.clone());
            Some((key.clone(), Rooted { life, class, root: program.root.clone()? }))
        });
        let machines = inner.pinned.iter().map(|(key, it)| (key.clone(), it.clone()));
        machines.chain(programs).collect()
    }

    /// CPU time of programs that have ended.
    pub fn ended_cpu(&self) -> Duration {
        self.locked().ended_cpu.values().sum()
    }

    /// CPU time was seen. Gives what is told: no less than before.
    pub fn saw(&self, name: &(SessionKey, Token), cpu: Duration) -> Duration {
        let mut inner = self.locked();
        let Some(listed) = inner.live.get_mut(name) else { return cpu };
        listed.cpu = listed.cpu.max(cpu);
        listed.cpu
    }

    /// What each class came to, where the memory of those that run is `memory`.
    pub fn by_class(
        &self,
        memory: &BTreeMap<(SessionKey, Token), u64>,
    ) -> BTreeMap<String, OfClass> {
        let inner = self.locked();
        let mut all: BTreeMap<String, OfClass> = BTreeMap::new();
        for (class, cpu) in &inner.ended_cpu {
            all.entry(class.clone()).or_default().cpu = *cpu;
        }
        for (name, listed) in &inner.live {
            let of = all.entry(label(&all, listed.class.as_str())).or_default();
            of.programs += 1;
            of.cpu += listed.cpu;
            of.memory_bytes += memory.get(name).copied().unwrap_or(0);
        }
        all
    }

    fn locked(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How a class is called beside those.
fn label<T>(known: &BTreeMap<String, T>, class: &str) -> String {
    let fits = known.len() < CLASSES_MAX || known.contains_key(class);
    if fits { class.to_owned() } else { OTHER.to_owned() }
}

impl Entry {
    /// Its keeper was started.
    pub fn started(&self, keeper: Option<i32>, groups: &[PathBuf]) {
        if let Some(listed) = self.listing.locked().live.get_mut(&self.name) {
            (listed.keeper, listed.groups) = (keeper, groups.to_vec());
        }
    }

    /// Its keeper told the end, and was not reaped yet: the last moment at which it is known what it used.
    pub fn over(&self) {
        let listed = self.listing.locked().live.get(&self.name).cloned();
        if let Some(listed) = listed {
            self.listing.saw(&self.name, usage::cpu_at_the_end(&listed));
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut inner = self.listing.locked();
        if let Some(listed) = inner.live.remove(&self.name) {
            let class = label(&inner.ended_cpu, listed.class.as_str());
            *inner.ended_cpu.entry(class).or_default() += listed.cpu;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_model::{Epoch, LogPos, Namespace, Seq, SessionId};

    fn name(number: u64) -> (SessionKey, Token) {
        let id = SessionId::parse(&format!("s{number}")).unwrap();
        let token = Token(LogPos::new(Epoch(1), Seq(number)));
        (SessionKey::new(Namespace::default_space(), id), token)
    }

    fn begin(listing: &Listing, number: u64, class: &str) -> Entry {
        let listed = Listed {
            life: Stamp::MIN,
            class: ClassName::parse(class).unwrap(),
            limits: Limits::default(),
            root: None,
            folder: format!("/{number}").into(),
            keeper: None,
            groups: Vec::new(),
            cpu: Duration::ZERO,
        };
        let (key, token) = name(number);
        listing.begin(key, token, listed)
    }

    #[test]
    fn what_a_program_used_stays_with_its_class_and_is_never_less_than_it_was() {
        let listing = Listing::default();
        let seconds = Duration::from_secs;
        let (one, two) = (begin(&listing, 1, "a"), begin(&listing, 2, "a"));
        assert!(listing.runs(Path::new("/1")) && !listing.runs(Path::new("/3")));
        assert_eq!(listing.saw(&name(1), seconds(3)), seconds(3));
        assert_eq!(listing.saw(&name(1), seconds(2)), seconds(3));
        listing.saw(&name(2), seconds(1));
        let memory = BTreeMap::from([(name(2), 7)]);
        let all = OfClass { programs: 2, cpu: seconds(4), memory_bytes: 7 };
        assert_eq!(listing.by_class(&memory), BTreeMap::from([("a".to_owned(), all)]));
        drop(one);
        assert!(!listing.runs(Path::new("/1")));
        let left = OfClass { programs: 1, ..all };
        assert_eq!(listing.by_class(&memory), BTreeMap::from([("a".to_owned(), left)]));
        drop(two);
        let none = OfClass { cpu: seconds(4), ..OfClass::default() };
        assert_eq!(listing.by_class(&memory), BTreeMap::from([("a".to_owned(), none)]));
        assert_eq!(listing.ended_cpu(), seconds(4));
    }

    #[test]
    fn ever_new_classes_are_counted_together_beyond_some_number() {
        let listing = Listing::default();
        let classes = CLASSES_MAX as u64 + 50;
        let entries: Vec<Entry> =
            (0..classes).map(|it| begin(&listing, it, &format!("c{it:04}"))).collect();
        let by_class = listing.by_class(&BTreeMap::new());
        assert_eq!((by_class.len(), by_class[OTHER].programs), (CLASSES_MAX + 1, 50));
        drop(entries);
        assert_eq!(listing.by_class(&BTreeMap::new()).len(), CLASSES_MAX + 1);
    }
}
