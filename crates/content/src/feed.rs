//! What a node is told: everything that is active, or what changed since a commit.

use crate::access::Access;
use crate::record::{Hash, Record, Status};
use crate::tree::{Difference, Tree, TreeFile};
use std::collections::BTreeSet;

/// The records of a commit for who has this access, `$latest` last. With an earlier tree: what changed since, and
/// files that are gone as deleted. It must have been seen with the same access.
pub fn feed(tree: &Tree, latest: &Hash, since: Option<&Tree>, access: &Access) -> Vec<Record> {
    let mut told = Told { access, records: Vec::new(), commits: BTreeSet::new() };
    match since {
        None => tree.files().iter().for_each(|it| told.published(it)),
        // Nothing is compared where nothing can differ.
        Some(since) if std::ptr::eq(since, tree) => {}
        Some(since) => {
            tree.told_differences(since).into_iter().for_each(|it| told.difference(it, latest))
        }
    }
    // A commit that only removes files has none, and nodes keep no record of it.
    let Told { mut records, commits, .. } = told;
    records.extend(commits.iter().map(Record::commit));
    for (name, fileset) in tree.filesets().iter().filter(|(name, _)| access.sees(name)) {
        if let Some(commit) = &fileset.commit {
            records.push(Record::fileset(name, commit.clone(), fileset.eager));
        }
    }
    let gone = since.into_iter().flat_map(Tree::filesets).filter(|(name, fileset)| {
        let has_files = tree.filesets().get(*name).is_some_and(|it| it.commit.is_some());
        fileset.commit.is_some() && !has_files
    });
    records.extend(gone.map(|(name, fileset)| Record {
        status: Status::Deleted,
        ..Record::fileset(name, latest.clone(), fileset.eager)
    }));
    records.push(Record::access(access.fingerprint()));
    records.push(Record::latest(latest.clone()));
    records
}

struct Told<'a> {
    access: &'a Access,
    records: Vec<Record>,
    /// To which the files belong.
    commits: BTreeSet<Hash>,
}

impl Told<'_> {
    fn difference(&mut self, it: Difference<'_>, latest: &Hash) {
        match it {
            Difference::Added(to) => self.published(to),
            Difference::Changed { from, to } if self.access.sees(&to.fileset) => {
                debug_assert_eq!(from.path, to.path, "a difference is of one path");
                self.published(to);
            }
            Difference::Changed { from, .. } | Difference::Removed(from) => {
                self.deleted(from, latest);
            }
        }
    }

    fn published(&mut self, it: &TreeFile) {
        if self.access.sees(&it.fileset) {
            self.commits.insert(it.commit.clone());
            self.records.push(record(it));
        }
    }

    fn deleted(&mut self, it: &TreeFile, latest: &Hash) {
        let gone = Record { status: Status::Deleted, commit: latest.clone(), ..record(it) };
        self.records.push(gone);
    }
}

fn record(it: &TreeFile) -> Record {
    Record::file(&it.path, it.fileset.clone(), it.commit.clone(), it.file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::category::Category;
    use crate::draft::tests::{next, tree_of};
    use crate::rules::Rules;

    fn told(records: &[Record]) -> Vec<String> {
        let of = |record: &Record| {
            let mark = if record.status == Status::Deleted { "-" } else { "+" };
            format!("{mark}{} {}", record.path, record.commit)
        };
        records.iter().map(of).collect()
    }

    #[test]
    fn without_an_earlier_commit_everything_active_is_told_and_latest_comes_last() {
        let first = tree_of("aa", &[("a", "1"), ("b", "1")]);
        let second = next(&first, "bb", &[("a", "1"), ("b", "2")]);
        let access = Access::of(&second, None);
        let records = feed(&second, &Hash::parse("bb").unwrap(), None, &access);
        let acm = format!("+.rota/acm/group {}", access.fingerprint());
        let expected = [
            "+a aa",
            "+b bb",
            "+.rota/commit/aa aa",
            "+.rota/commit/bb bb",
            "+.rota/category/default bb",
            &acm,
            "+.rota/commit/$latest bb",
        ];
        assert_eq!(told(&records), expected);
        records.iter().for_each(|it| it.check().unwrap());
    }

    #[test]
    fn since_a_commit_changes_are_told_and_what_is_gone_as_deleted() {
        let first = tree_of("aa", &[("a", "1111"), ("b", "1"), ("c", "1")]);
        let second = next(&first, "bb", &[("a", "1111"), ("b", "2"), ("d", "1")]);
        let access = Access::of(&second, None);
        let records = feed(&second, &Hash::parse("bb").unwrap(), Some(&first), &access);
        assert_eq!(told(&records)[..4], ["+b bb", "-c bb", "+d bb", "+.rota/commit/bb bb"]);
        let again = feed(&second, &Hash::parse("bb").unwrap(), Some(&second), &access);
        assert!(again.iter().all(|it| !matches!(it.category, Category::File(_))), "{again:?}");
    }

    #[test]
    fn a_file_that_lies_elsewhere_is_told_although_it_is_the_same() {
        let first = tree_of("aa", &[("a", "0123456789"), ("b", "x")]);
        let second = next(&first, "bb", &[("a", "other"), ("b", "x")]);
        let access = Access::of(&second, None);
        let records = feed(&second, &Hash::parse("bb").unwrap(), Some(&first), &access);
        assert!(told(&records).contains(&"+b aa".to_owned()), "{records:?}");
    }

    #[test]
    fn a_fileset_that_has_no_file_any_more_is_told_as_deleted() {
        let rules = Rules::parse("fileset = [{ category = \"m\", extensions = [\"m\"] }]").unwrap();
        let first = crate::draft::tests::with(&rules, None, "aa", &[("a", "1"), ("a.m", "1")]);
        let second = crate::draft::tests::with(&rules, Some(&first), "bb", &[("a", "1")]);
        let access = Access::of(&second, None);
        let records = feed(&second, &Hash::parse("bb").unwrap(), Some(&first), &access);
        assert!(told(&records).contains(&"-.rota/category/m bb".to_owned()), "{records:?}");
    }
}
