//! A node that refreshes comes to the right end, also when it is cut off at any of its effects and begins anew.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use proptest::prelude::*;
use rota_content::refresh::{
    CacheName, Change, Intake, Needed, TakeError, adopt, begin, eager_files,
};
use rota_content::steps::{self, Ended, Host, NotUsed, Version};
use rota_content::{
    Access, Category, Detail, Draft, File, FileDb, FilePath, Hash, MemoryDb, Record, Rules,
    Scanned, Status, Tree, Viewer, feed,
};
use rota_docstore::Digest;
use rota_model::{Labels, PoolName};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeSet;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

const RULES: &str = r#"
    fileset = [
        { category = "eager", under = ["e"] },
        { category = "lazy", under = ["l"], eager = false },
        { category = "small", under = ["s"], pools = ["small"] },
    ]"#;

fn digest(text: &str) -> Digest {
    Digest(Sha256::digest(text).into())
}

fn hash(number: usize) -> Hash {
    Hash::parse(&format!("{number:02x}")).unwrap()
}

/// Files by path and content; the content also says whether it can be run.
type Files = Vec<(&'static str, u8)>;

/// All commits of a repository, the oldest first; of the first ones only the rest is kept.
struct Origin {
    trees: Vec<Tree>,
    kept_from: usize,
}

impl Origin {
    fn of(commits: &[Files]) -> Self {
        let rules = Rules::parse(RULES).unwrap();
        let mut trees: Vec<Tree> = Vec::new();
        for (at, files) in commits.iter().enumerate() {
            let scanned = files.iter().map(|(path, content)| Scanned {
                path: FilePath::parse(path).unwrap(),
                sha256: digest(&(content / 2).to_string()),
                bytes: 1,
                executable: content % 2 == 1,
            });
            let earlier: Vec<&Tree> = trees.last().into_iter().collect();
            let mut draft = Draft::new(&rules, scanned.collect(), &earlier).unwrap();
            for pack in 0..draft.packs().len() {
                draft.made(pack, digest(&format!("{at} {pack}")));
            }
            trees.push(draft.finish(trees.last(), &hash(at)).unwrap());
        }
        Self { trees, kept_from: 0 }
    }

    /// The feed up to a commit, and whether it tells everything.
    fn feed(&self, to: usize, since: Option<&Hash>, viewer: &Viewer) -> (bool, Vec<Record>) {
        let known = (self.kept_from..self.trees.len()).find(|at| Some(&hash(*at)) == since);
        let access = Access::of(&self.trees[to], Some(viewer));
        let since = known.map(|at| &self.trees[at]);
        (since.is_none(), feed(&self.trees[to], &hash(to), since, &access))
    }
}

fn viewer(pool: &str) -> Viewer {
    Viewer { pool: PoolName::parse(pool).unwrap(), labels: Labels::default() }
}

/// The node was cut off.
#[derive(Debug)]
struct Cut;

impl From<TakeError<Cut>> for Cut {
    fn from(error: TakeError<Cut>) -> Self {
        match error {
            TakeError::Db(cut) => cut,
            wrong @ (TakeError::Wrong(_) | TakeError::Cut | TakeError::NoAccess) => {
                panic!("{wrong:?}")
            }
        }
    }
}

/// A node's database, cache and version in use, which bear so many more effects.
#[derive(Clone, Default)]
struct Node {
    db: MemoryDb,
    cache: BTreeSet<String>,
    version: Option<Version>,
    left: usize,
    /// What the version in use has.
    linked: BTreeSet<String>,
    /// How many files its disk holds; `None`: any number.
    room: Option<usize>,
    /// Files that came.
    came: usize,
}

impl Node {
    fn effect(&mut self) -> Result<(), Cut> {
        self.left = self.left.checked_sub(1).ok_or(Cut)?;
        Ok(())
    }
}

impl FileDb for Node {
    type Error = Cut;

    fn get(&self, path: &str) -> Result<Option<Record>, Cut> {
        Ok(self.db.get(path).unwrap())
    }

    fn each_under(&self, prefix: &str, see: &mut dyn FnMut(Record)) -> Result<(), Cut> {
        self.db.each_under(prefix, see).unwrap();
        Ok(())
    }

    fn change(&mut self, changes: Vec<Change>) -> Result<(), Cut> {
        self.effect()?;
        self.db.change(changes).unwrap();
        Ok(())
    }
}

/// A node in a refresh to a commit, of which each effect may be the last one.
struct Refreshing<'a> {
    node: &'a mut Node,
    origin: &'a Origin,
    to: usize,
    who: &'a Viewer,
    /// What is left of the feed, in pages; the last one comes first.
    pages: Vec<Vec<Record>>,
}

impl Host for Refreshing<'_> {
    type Error = Cut;
    type Db = Node;

    async fn with<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut Node) -> Result<T, Cut> + Send + 'static,
    ) -> Result<T, Cut> {
        work(self.node)
    }

    async fn ask(&mut self, since: Option<&Hash>) -> Result<Option<bool>, Cut> {
        let (is_full, records) = self.origin.feed(self.to, since, self.who);
        self.pages = records.chunks(3).rev().map(<[Record]>::to_vec).collect();
        Ok(Some(is_full))
    }

    async fn records(&mut self) -> Result<Option<Vec<Record>>, Cut> {
        Ok(self.pages.pop())
    }

    fn uses(&self, version: &Version) -> bool {
        self.node.version.as_ref() == Some(version)
    }

    fn has(&self) -> impl Fn(&CacheName, &File) -> bool + Send + 'static {
        let cache = self.node.cache.clone();
        move |name, _| cache.contains(name.as_str())
    }

    async fn prepare(&mut self, filesets: &[Needed]) -> Result<(), Cut> {
        let coming: usize = filesets.iter().map(|it| it.files.len()).sum();
        let there = self.node.cache.union(&self.node.linked).count();
        let fits = self.node.room.is_none_or(|it| there + coming <= it);
        fits.then_some(()).ok_or(Cut)
    }

    async fn download(&mut self, fileset: &Needed) -> Result<(), Cut> {
        for (_, file) in &fileset.files {
            self.node.effect()?;
            self.node.came += 1;
            self.node.cache.insert(CacheName::of(file).as_str().to_owned());
        }
        Ok(())
    }

    async fn use_version(&mut self, version: &Version) -> Result<(), NotUsed<Cut>> {
        for (path, file) in eager_files(self.node).unwrap() {
            assert!(self.node.cache.contains(CacheName::of(&file).as_str()), "{path} is missing");
        }
        let done = self.node.effect();
        done.map_err(|why| NotUsed { lacks_a_file: false, why })?;
        let files = eager_files(self.node).unwrap();
        self.node.linked =
            files.iter().map(|(_, it)| CacheName::of(it).as_str().to_owned()).collect();
        self.node.version = Some(version.clone());
        Ok(())
    }

    async fn make_room(&mut self, cached: &BTreeSet<CacheName>) -> Result<(), Cut> {
        let linked = self.node.linked.clone();
        for name in cached.iter().filter(|it| !linked.contains(it.as_str())) {
            self.node.effect()?;
            self.node.cache.remove(name.as_str());
        }
        Ok(())
    }

    async fn remove(&mut self, cached: &BTreeSet<CacheName>) -> Result<(), Cut> {
        for name in cached {
            self.node.effect()?;
            self.node.cache.remove(name.as_str());
        }
        Ok(())
    }
}

/// What nothing waits for is there at the first look.
fn at_once<T>(work: impl Future<Output = T>) -> T {
    match pin!(work).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => done,
        Poll::Pending => panic!("it waits"),
    }
}

/// One refresh, and the one that must follow it at once.
fn refresh(node: &mut Node, origin: &Origin, to: usize, who: &Viewer) -> Result<(), Cut> {
    for _ in 0..2 {
        let mut host = Refreshing { node, origin, to, who, pages: Vec::new() };
        match at_once(steps::refresh(&mut host))? {
            Ended::Current(version) => {
                assert_eq!(node.version, Some(version));
                return Ok(());
            }
            Ended::Again => {}
            Ended::NoFeed => panic!("there is a feed"),
        }
    }
    panic!("a full refresh settles what the node may see");
}

/// What a node must have of a commit.
fn check(node: &Node, origin: &Origin, to: usize, who: &Viewer) -> Result<(), String> {
    let (tree, access) = (&origin.trees[to], Access::of(&origin.trees[to], Some(who)));
    let (mut files, mut cached, mut used) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for it in tree.files().iter().filter(|it| access.sees(&it.fileset)) {
        files.insert((it.path.to_string(), it.commit.to_string(), CacheName::of(&it.file)));
        used.insert(it.commit.clone());
        if tree.filesets()[&it.fileset].eager {
            cached.insert(CacheName::of(&it.file).as_str().to_owned());
        }
    }
    let (mut has, mut commits, mut odd) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
    node.db
        .each_under("", &mut |record| match &record.category {
            Category::File(_) if record.status == Status::Published => {
                let name = CacheName::of(record.as_file().unwrap());
                has.insert((record.path.to_string(), record.commit.to_string(), name));
            }
            Category::Commit if record.detail == Detail::None => {
                drop(commits.replace(record.commit));
            }
            Category::Latest if record.commit == hash(to) => {}
            Category::Access | Category::Fingerprint if record.path.contains("acm") => {
                if record.commit != access.fingerprint() {
                    odd.push(record);
                }
            }
            Category::Fileset | Category::Fingerprint => {}
            Category::File(_)
            | Category::Commit
            | Category::Latest
            | Category::Access
            | Category::Refresh
            | Category::Obsolete => odd.push(record),
        })
        .unwrap();
    let named: BTreeSet<String> = files.iter().map(|it| it.2.as_str().to_owned()).collect();
    // What another fileset left there may stay while a file names it.
    let is_cached = cached.is_subset(&node.cache) && node.cache.is_subset(&named);
    for (what, is_fine) in [
        (format!("files {has:?}, not {files:?}"), has == files),
        (format!("cache {:?}, not {cached:?}", node.cache), is_cached),
        (format!("commits {commits:?}, not {used:?}"), commits == used),
        (format!("odd {odd:?}"), odd.is_empty()),
    ] {
        if !is_fine {
            return Err(what);
        }
    }
    Ok(())
}

const PATHS: [&str; 6] = ["a", "e/a", "e/b", "l/a", "s/a", "s/b"];

fn files() -> impl Strategy<Value = Files> {
    prop::collection::vec(prop::option::weighted(0.7, 0u8..6), PATHS.len()).prop_map(|contents| {
        let present = PATHS.into_iter().zip(contents);
        present.filter_map(|(path, content)| Some((path, content?))).collect()
    })
}

/// To which commit, as a node of which pool, from which kept commit on, and after how many effects it is cut off.
type Step = (prop::sample::Index, bool, prop::sample::Index, Option<usize>);

fn step() -> impl Strategy<Value = Step> {
    let cut = prop::option::weighted(0.7, 0usize..25);
    (any::<prop::sample::Index>(), any::<bool>(), any::<prop::sample::Index>(), cut)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn a_node_has_what_its_commit_has_after_whatever_came_before_and_wherever_it_was_cut_off(
        commits in prop::collection::vec(files(), 1..5),
        steps in prop::collection::vec(step(), 1..8),
    ) {
        let mut origin = Origin::of(&commits);
        let mut node = Node::default();
        for (to, is_small, kept_from, cut_after) in steps {
            let (to, who) = (to.index(commits.len()), viewer(if is_small { "small" } else { "large" }));
            origin.kept_from = kept_from.index(commits.len() + 1);
            node.left = cut_after.unwrap_or(usize::MAX);
            if refresh(&mut node, &origin, to, &who).is_ok() {
                prop_assert_eq!(check(&node, &origin, to, &who), Ok(()));
            }
        }
        let (last, who) = (commits.len() - 1, viewer("large"));
        origin.kept_from = 0;
        node.left = usize::MAX;
        prop_assert!(refresh(&mut node, &origin, last, &who).is_ok());
        prop_assert_eq!(check(&node, &origin, last, &who), Ok(()));
        // Nothing is left to do.
        node.left = 0;
        prop_assert!(refresh(&mut node, &origin, last, &who).is_ok());
    }
}

#[test]
fn a_node_that_is_cut_off_at_each_effect_of_each_kind_of_refresh_ends_as_one_that_was_not() {
    let commits: [Files; 4] = [
        vec![("a", 0), ("e/a", 2), ("e/b", 4), ("l/a", 1), ("s/a", 3)],
        vec![("a", 0), ("e/a", 4), ("e/c", 2), ("l/a", 2), ("s/b", 3)],
        vec![("a", 1), ("e/b", 4), ("s/a", 3)],
        vec![("a", 0), ("e/a", 2), ("e/b", 4), ("l/a", 1), ("s/a", 3)],
    ];
    let mut origin = Origin::of(&commits);
    let kinds = [
        ("the first", None, 0, "large", 0),
        ("changes", Some((0, "large")), 1, "large", 0),
        ("changes of several commits", Some((0, "large")), 2, "large", 0),
        ("back again", Some((1, "large")), 0, "large", 0),
        ("another view", Some((1, "large")), 1, "small", 0),
        ("another view of another commit", Some((1, "small")), 2, "large", 0),
        ("since a commit that is not kept", Some((0, "large")), 3, "large", 2),
    ];
    let mut cuts = 0;
    for (name, had, to, pool, kept_from) in kinds {
        origin.kept_from = 0;
        let mut start = Node::default();
        if let Some((had, pool)) = had {
            start.left = usize::MAX;
            refresh(&mut start, &origin, had, &viewer(pool)).unwrap();
        }
        origin.kept_from = kept_from;
        let who = viewer(pool);
        for left in 0.. {
            let mut node = Node { left, ..start.clone() };
            let is_whole = refresh(&mut node, &origin, to, &who).is_ok();
            node.left = usize::MAX;
            refresh(&mut node, &origin, to, &who).unwrap();
            assert_eq!(check(&node, &origin, to, &who), Ok(()), "{name}, cut off after {left}");
            if is_whole {
                break;
            }
            cuts += 1;
        }
    }
    assert!(cuts > 50, "{cuts} effects");
}

#[test]
fn a_disk_that_is_full_gives_up_what_neither_a_record_nor_a_version_has_and_nothing_else() {
    let commits: [Files; 3] = [
        vec![("e/a", 0), ("s/a", 2)],
        vec![("e/a", 4), ("e/b", 6), ("s/a", 8)],
        vec![("e/a", 10), ("s/a", 12)],
    ];
    let (origin, who) = (Origin::of(&commits), viewer("small"));
    let mut node = Node { left: usize::MAX, ..Node::default() };
    refresh(&mut node, &origin, 0, &who).unwrap();
    // All came of the next commit, and it was not used.
    node.left = 0;
    while node.came < 5 {
        node.left += 1;
        let mut tried = node.clone();
        if refresh(&mut tried, &origin, 1, &who).is_err() && tried.came == 5 {
            node = Node { left: usize::MAX, ..tried };
        }
    }
    assert_eq!((node.cache.len(), node.linked.len()), (5, 2));
    node.room = Some(3);
    refresh(&mut node, &origin, 2, &who).unwrap_err();
    assert_eq!(node.cache, node.linked, "what its version has frees nothing");
    // So the way back needs no room.
    refresh(&mut node, &origin, 0, &who).unwrap();
    assert_eq!((node.came, check(&node, &origin, 0, &who)), (5, Ok(())));
    node.room = Some(4);
    refresh(&mut node, &origin, 2, &who).unwrap();
    assert_eq!(check(&node, &origin, 2, &who), Ok(()));
}

#[test]
fn a_view_that_changes_alone_is_settled_at_once() {
    let origin = Origin::of(&[vec![("s/a", 1), ("a", 1)]]);
    let mut node = Node { left: usize::MAX, ..Node::default() };
    refresh(&mut node, &origin, 0, &viewer("large")).unwrap();
    refresh(&mut node, &origin, 0, &viewer("small")).unwrap();
    assert_eq!(check(&node, &origin, 0, &viewer("small")), Ok(()));
    assert_eq!(begin(&node).unwrap(), Some(hash(0)));
}

#[test]
fn everything_is_asked_for_unless_both_records_of_what_the_node_may_see_are_there_and_agree() {
    const ACCESS: &str = ".rota/acm/group";
    const FINGERPRINT: &str = ".rota/fingerprint/acm/group";
    let origin = Origin::of(&[vec![("e/a", 0), ("s/a", 2)]]);
    let mut settled = Node { left: usize::MAX, ..Node::default() };
    refresh(&mut settled, &origin, 0, &viewer("small")).unwrap();
    assert_eq!(begin(&settled).unwrap(), Some(hash(0)));
    for gone in [&[ACCESS][..], &[FINGERPRINT], &[ACCESS, FINGERPRINT]] {
        let mut node = settled.clone();
        node.change(gone.iter().map(|it| Change::Delete((*it).into())).collect()).unwrap();
        assert_eq!(begin(&node).unwrap(), None, "without {gone:?}");
        refresh(&mut node, &origin, 0, &viewer("small")).unwrap();
        assert_eq!(check(&node, &origin, 0, &viewer("small")), Ok(()));
    }
    let mut other = settled;
    let access = other.get(ACCESS).unwrap().unwrap();
    other.change(vec![Change::Put(Record { commit: hash(7), ..access })]).unwrap();
    assert_eq!(begin(&other).unwrap(), None, "they differ");
}

#[test]
fn a_feed_that_is_cut_names_no_latest_commit_and_is_taken_again() {
    let origin = Origin::of(&[vec![("a", 1), ("e/a", 1)], vec![("a", 2)]]);
    let who = viewer("large");
    let mut node = Node { left: usize::MAX, ..Node::default() };
    refresh(&mut node, &origin, 0, &who).unwrap();
    let since = begin(&node).unwrap();
    let (_, mut records) = origin.feed(1, since.as_ref(), &who);
    records.pop();
    let mut intake = Intake::new(since.as_ref());
    intake.take(&mut node, records).unwrap();
    let error = intake.end(&mut node).unwrap_err();
    assert!(matches!(error, TakeError::Cut), "{error:?}");
    assert_eq!(begin(&node).unwrap(), None, "what is stored is of two commits");
    refresh(&mut node, &origin, 1, &who).unwrap();
    assert_eq!(check(&node, &origin, 1, &who), Ok(()));
}

#[test]
fn a_node_that_lost_its_database_downloads_nothing_that_it_has_and_keeps_nothing_else() {
    let origin = Origin::of(&[vec![("a", 0), ("e/a", 2), ("e/b", 5)], vec![("a", 0), ("e/b", 5)]]);
    let who = viewer("large");
    let mut start = Node { left: usize::MAX, ..Node::default() };
    refresh(&mut start, &origin, 0, &who).unwrap();
    for left in 0.. {
        let mut node = Node { db: MemoryDb::default(), came: 0, left, ..start.clone() };
        let is_whole = lost(&mut node).and_then(|()| refresh(&mut node, &origin, 1, &who)).is_ok();
        node.left = usize::MAX;
        lost(&mut node).unwrap();
        refresh(&mut node, &origin, 1, &who).unwrap();
        assert_eq!((check(&node, &origin, 1, &who), node.came), (Ok(()), 0), "after {left}");
        if is_whole {
            break;
        }
    }
}

/// What a node does when it opens its database.
fn lost(node: &mut Node) -> Result<(), Cut> {
    let mut records = 0;
    node.db.each_under("", &mut |_| records += 1).unwrap();
    let names = node.cache.iter().filter_map(|it| CacheName::parse(it));
    let names = names.collect();
    if records == 0 { adopt(node, names) } else { Ok(()) }
}
