//! The next commit: which files are new, and in which bodies they go.

use crate::category::FilesetName;
use crate::path::{Clashes, FILES_MAX, FilePath};
use crate::record::{File, Hash};
use crate::rules::Rules;
use crate::tree::{Difference, Fileset, Tree, TreeFile, is_same};
use rota_docstore::Digest;
use rota_model::FieldError;
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, BTreeSet};

/// A body of many files ends when it has so many bytes.
pub const PACK_BYTES: u64 = 4 * 1024 * 1024;
/// A file of so many bytes is a body of its own.
pub const WHOLE_FROM_BYTES: u64 = 1024 * 1024;
/// Most bodies of a commit: each is an item of the repository's document.
pub const BODIES_MAX: usize = 6_000;

/// The body that has a file, and where it begins there.
type Place = (Digest, u64);

/// A file that is to be part of a commit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scanned {
    /// Where it lies.
    pub path: FilePath,
    /// Of its bytes.
    pub sha256: Digest,
    /// How many these are.
    pub bytes: u64,
    /// Whether it can be run.
    pub executable: bool,
}

/// A body to make: these files, one after the other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pack {
    /// Which of the draft's files, in this order.
    pub files: Vec<usize>,
    /// How many bytes they have together.
    pub bytes: u64,
    body: Option<Digest>,
}

/// A commit that is being made.
#[derive(Debug)]
pub struct Draft {
    /// With the place of its bytes, where these are stored.
    files: Vec<(Scanned, FilesetName, Option<Place>)>,
    filesets: BTreeMap<FilesetName, Fileset>,
    bodies: BTreeMap<Digest, u64>,
    packs: Vec<Pack>,
    rules: String,
}

impl Draft {
    /// All files of the next commit. What an earlier tree has is not stored again, unless most of its body is not
    /// needed any more.
    ///
    /// # Errors
    /// All files with wrong names, and those that two filesets take.
    pub fn new(
        rules: &Rules,
        mut scanned: Vec<Scanned>,
        earlier: &[&Tree],
    ) -> Result<Self, Vec<FieldError>> {
        scanned.sort_by(|one, other| one.path.cmp(&other.path));
        let count = scanned.len();
        if count > FILES_MAX {
            let problem = format!("are {count}; the limit is {FILES_MAX}");
            return Err(vec![FieldError::new("files", problem)]);
        }
        let mut mistakes = Vec::new();
        let mut clashes = Clashes::default();
        let mut files = Vec::with_capacity(count);
        for it in scanned {
            mistakes.extend(clashes.take(&it.path).err());
            match rules.fileset_of(&it.path) {
                Ok(fileset) => files.push((it, fileset, None)),
                Err(mistake) => mistakes.push(mistake),
            }
        }
        if !mistakes.is_empty() {
            return Err(mistakes);
        }
        let bodies = place(&mut files, earlier);
        let packs = packs(&files);
        let (filesets, rules) = (rules.filesets().clone(), rules.text().to_owned());
        Ok(Self { files, filesets, bodies, packs, rules })
    }

    /// The bodies that are to be made.
    pub fn packs(&self) -> &[Pack] {
        &self.packs
    }

    /// One of its files.
    pub fn file(&self, at: usize) -> &Scanned {
        &self.files[at].0
    }

    /// How many files it has.
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// A body was made.
    pub fn made(&mut self, pack: usize, body: Digest) {
        self.packs[pack].body = Some(body);
    }

    /// A hash of all names and bytes, for the name of the commit.
    pub fn digest(&self) -> Digest {
        let mut hash = Sha256::new();
        for (it, fileset, _) in &self.files {
            hash.update(it.path.as_str());
            hash.update([0, u8::from(it.executable)]);
            hash.update(it.sha256.0);
            hash.update(fileset.as_str());
            hash.update([0]);
        }
        Digest(hash.finalize().into())
    }

    /// The tree of the commit, which follows another.
    ///
    /// # Errors
    /// There are too many bodies.
    pub fn finish(mut self, parent: Option<&Tree>, commit: &Hash) -> Result<Tree, FieldError> {
        for pack in &self.packs {
            let body = pack.body.expect("every body is made before the draft is finished");
            self.bodies.insert(body, pack.bytes);
            let mut offset = 0;
            for at in &pack.files {
                let (file, _, place) = &mut self.files[*at];
                *place = Some((body, offset));
                offset += file.bytes;
            }
        }
        let count = self.bodies.len();
        if count > BODIES_MAX {
            let problem = format!(
                "lie in {count} bodies; the limit is {BODIES_MAX}: a file of {WHOLE_FROM_BYTES} bytes is one alone"
            );
            return Err(FieldError::new("files", problem));
        }
        let files = self.files.into_iter().map(|(scanned, fileset, place)| {
            let (body, offset) = place.expect("it is in a body");
            let Scanned { path, sha256, bytes, executable } = scanned;
            let file = File { sha256, bytes, executable, body, offset };
            let mut new = TreeFile { path, fileset, commit: commit.clone(), file };
            if let Some(old) = parent.and_then(|it| it.file(new.path.as_str()))
                && is_same(old, &new)
            {
                new.commit = old.commit.clone();
            }
            new
        });
        let files: Vec<TreeFile> = files.collect();
        let filesets = filesets(self.filesets, &files, parent, commit);
        Ok(Tree::new(files, filesets, self.bodies)?.with_rules(self.rules))
    }
}

/// A tree with the files of an earlier commit, which follows another. Its bytes are where they are.
///
/// # Errors
/// None, as long as the earlier tree is whole.
pub fn restored(earlier: &Tree, parent: &Tree, commit: &Hash) -> Result<Tree, FieldError> {
    let again = |file: &TreeFile| {
        let now = parent.file(file.path.as_str()).filter(|now| is_same(now, file));
        let commit = now.map_or_else(|| commit.clone(), |now| now.commit.clone());
        TreeFile { commit, ..file.clone() }
    };
    let files: Vec<TreeFile> = earlier.files().iter().map(again).collect();
    let filesets = filesets(earlier.filesets().clone(), &files, Some(parent), commit);
    let tree = Tree::new(files, filesets, earlier.bodies().clone())?;
    Ok(tree.with_rules(earlier.rules().to_owned()))
}

/// Gives places to files that earlier commits have, and gives the bodies of these: their own place, else that of an
/// equal file of the fileset. A body of which less than half is needed is let go of, and what it has is stored again.
fn place(
    files: &mut [(Scanned, FilesetName, Option<Place>)],
    earlier: &[&Tree],
) -> BTreeMap<Digest, u64> {
    let mut equal: BTreeMap<(&FilesetName, Digest), Place> = BTreeMap::new();
    let mut bodies = BTreeMap::new();
    for tree in earlier {
        bodies.extend(tree.bodies());
        for it in tree.files() {
            let place = (it.file.body, it.file.offset);
            equal.entry((&it.fileset, it.file.sha256)).or_insert(place);
        }
    }
    let mut needed: BTreeMap<Place, u64> = BTreeMap::new();
    for (it, fileset, place) in files.iter_mut() {
        let own = earlier.iter().filter_map(|tree| tree.file(it.path.as_str()));
        let mut own = own.filter(|had| had.fileset == *fileset && had.file.sha256 == it.sha256);
        let own = own.next().map(|had| (had.file.body, had.file.offset));
        *place = own.or_else(|| equal.get(&(&*fileset, it.sha256)).copied());
        needed.extend(place.map(|place| (place, it.bytes)));
    }
    let mut live: BTreeMap<Digest, u64> = BTreeMap::new();
    for ((body, _), bytes) in needed {
        *live.entry(body).or_default() += bytes;
    }
    bodies.retain(|body, bytes| live.get(body).is_some_and(|live| live * 2 >= *bytes));
    for (_, _, place) in files.iter_mut() {
        *place = place.filter(|(body, _)| bodies.contains_key(body));
    }
    bodies
}

/// The bodies for files that are not stored: each holds files of one fileset, so that who may not see that has
/// nothing of it.
fn packs(files: &[(Scanned, FilesetName, Option<Place>)]) -> Vec<Pack> {
    let mut open: BTreeMap<&FilesetName, Pack> = BTreeMap::new();
    let mut done = Vec::new();
    for (at, (file, fileset, place)) in files.iter().enumerate() {
        if place.is_some() {
            continue;
        }
        let alone = Pack { files: vec![at], bytes: file.bytes, body: None };
        if file.bytes >= WHOLE_FROM_BYTES {
            done.push(alone);
            continue;
        }
        let pack = open.entry(fileset).or_insert(Pack { files: Vec::new(), bytes: 0, body: None });
        pack.files.push(at);
        pack.bytes += file.bytes;
        if pack.bytes >= PACK_BYTES {
            done.extend(open.remove(fileset));
        }
    }
    done.extend(open.into_values());
    done
}

/// The filesets with the newest commit that changed each.
fn filesets(
    mut filesets: BTreeMap<FilesetName, Fileset>,
    files: &[TreeFile],
    parent: Option<&Tree>,
    commit: &Hash,
) -> BTreeMap<FilesetName, Fileset> {
    let occupied: BTreeSet<&FilesetName> = files.iter().map(|it| &it.fileset).collect();
    let empty = Tree::default();
    let parent = parent.unwrap_or(&empty);
    let now = Tree::of_files(files.to_vec());
    let mut changed: BTreeSet<FilesetName> = BTreeSet::new();
    for difference in now.differences(parent) {
        match difference {
            Difference::Added(it) | Difference::Removed(it) => {
                changed.insert(it.fileset.clone());
            }
            Difference::Changed { from, to } => {
                changed.extend([from.fileset.clone(), to.fileset.clone()]);
            }
        }
    }
    for (name, fileset) in &mut filesets {
        let earlier = parent.filesets().get(name);
        let is_changed =
            changed.contains(name) || earlier.is_none_or(|it| it.eager != fileset.eager);
        fileset.commit = match earlier.and_then(|it| it.commit.clone()) {
            _ if !occupied.contains(name) => None,
            Some(earlier) if !is_changed => Some(earlier),
            Some(_) | None => Some(commit.clone()),
        };
    }
    filesets
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn digest(text: &str) -> Digest {
        Digest(Sha256::digest(text).into())
    }

    pub fn scanned(files: &[(&str, &str)]) -> Vec<Scanned> {
        let of = |(path, text): &(&str, &str)| Scanned {
            path: FilePath::parse(path).unwrap(),
            sha256: digest(text),
            bytes: text.len() as u64,
            executable: false,
        };
        files.iter().map(of).collect()
    }

    pub fn with(
        rules: &Rules,
        parent: Option<&Tree>,
        commit: &str,
        files: &[(&str, &str)],
    ) -> Tree {
        let earlier: Vec<&Tree> = parent.into_iter().collect();
        let mut draft = Draft::new(rules, scanned(files), &earlier).unwrap();
        for at in 0..draft.packs().len() {
            let name: String =
                draft.packs()[at].files.iter().map(|it| draft.file(*it).path.as_str()).collect();
            draft.made(at, digest(&format!("{commit}{at}{name}")));
        }
        draft.finish(parent, &Hash::parse(commit).unwrap()).unwrap()
    }

    pub fn tree_of(commit: &str, files: &[(&str, &str)]) -> Tree {
        with(&Rules::default(), None, commit, files)
    }

    pub fn next(parent: &Tree, commit: &str, files: &[(&str, &str)]) -> Tree {
        with(&Rules::default(), Some(parent), commit, files)
    }

    #[test]
    fn a_file_that_stays_keeps_its_commit_and_its_bytes_and_a_new_one_gets_a_body() {
        let first = tree_of("aa", &[("a", "one"), ("b", "two"), ("c", "three")]);
        assert_eq!(first.bodies().len(), 1);
        let second =
            next(&first, "bb", &[("a", "one"), ("b", "other"), ("c", "three"), ("d", "one")]);
        let of = |path: &str| second.file(path).unwrap();
        assert_eq!((of("a").commit.as_str(), of("b").commit.as_str()), ("aa", "bb"));
        assert_eq!(of("a").file.body, first.file("a").unwrap().file.body);
        assert_eq!((of("d").file.body, of("d").file.offset), (of("a").file.body, 0));
        assert_eq!(of("c").file.offset, 6);
        assert_eq!(second.bodies().len(), 2);
        assert_eq!(
            second.filesets()[&FilesetName::default_name()].commit.as_ref(),
            Some(&of("b").commit)
        );
    }

    #[test]
    fn a_body_of_which_little_is_needed_is_made_again() {
        let first = tree_of("aa", &[("a", "0123456789"), ("b", "x")]);
        let second = next(&first, "bb", &[("a", "other"), ("b", "x")]);
        assert_eq!(second.bodies().len(), 1);
        assert!(!second.bodies().contains_key(&first.file("b").unwrap().file.body));
        assert_eq!(second.file("b").unwrap().commit.as_str(), "aa");
    }

    #[test]
    fn large_files_are_bodies_of_their_own_and_filesets_share_none() {
        let rules = Rules::parse("fileset = [{ category = \"m\", extensions = [\"m\"] }]").unwrap();
        let large = Scanned { bytes: WHOLE_FROM_BYTES, ..scanned(&[("l", "l")]).remove(0) };
        let mut files = scanned(&[("a", "1"), ("b.m", "2"), ("c", "3")]);
        files.push(large);
        let draft = Draft::new(&rules, files, &[]).unwrap();
        let paths = |pack: &Pack| -> Vec<&str> {
            pack.files.iter().map(|at| draft.file(*at).path.as_str()).collect()
        };
        let packs: Vec<Vec<&str>> = draft.packs().iter().map(paths).collect();
        assert_eq!(packs, [vec!["l"], vec!["a", "c"], vec!["b.m"]]);
    }

    #[test]
    fn a_fileset_names_the_last_commit_that_touched_it() {
        let rules = Rules::parse("fileset = [{ category = \"m\", extensions = [\"m\"] }]").unwrap();
        let of = |tree: &Tree, name: &str| {
            let commit = tree.filesets()[&FilesetName::parse(name).unwrap()].commit.clone();
            commit.map(|it| it.to_string())
        };
        let first = with(&rules, None, "aa", &[("a", "1")]);
        assert_eq!((of(&first, "default"), of(&first, "m")), (Some("aa".to_owned()), None));
        let second = with(&rules, Some(&first), "bb", &[("a", "1"), ("a.m", "1")]);
        assert_eq!(of(&second, "default"), Some("aa".to_owned()));
        assert_eq!(of(&second, "m"), Some("bb".to_owned()));
        let third = with(&rules, Some(&second), "cc", &[("a.m", "1")]);
        assert_eq!((of(&third, "default"), of(&third, "m")), (None, Some("bb".to_owned())));
        let lazy = "fileset = [{ category = \"m\", extensions = [\"m\"], eager = false }]";
        let fourth = with(&Rules::parse(lazy).unwrap(), Some(&third), "dd", &[("a.m", "1")]);
        assert_eq!(of(&fourth, "m"), Some("dd".to_owned()));
    }

    #[test]
    fn a_commit_that_brings_back_earlier_files_is_a_commit_of_its_own() {
        let first = tree_of("aa", &[("a", "1"), ("b", "1"), ("c", "1")]);
        let second = next(&first, "bb", &[("a", "1"), ("b", "2")]);
        let third = restored(&first, &second, &Hash::parse("cc").unwrap()).unwrap();
        let commits: Vec<String> =
            third.files().iter().map(|it| format!("{} {}", it.path, it.commit)).collect();
        assert_eq!(commits, ["a aa", "b cc", "c cc"]);
        assert!(third.differences(&first).is_empty());
        let name = FilesetName::default_name();
        assert_eq!(third.filesets()[&name].commit.as_ref().unwrap().as_str(), "cc");
    }

    #[test]
    fn all_files_with_wrong_names_are_told_at_once() {
        let files = scanned(&[("a", "1"), ("A", "2"), ("b", "3"), ("b/c", "4")]);
        let mistakes = Draft::new(&Rules::default(), files, &[]).unwrap_err();
        assert_eq!(mistakes.len(), 2, "{mistakes:?}");
    }
}
