//! Content: trees and records come back as they were, and what is none is refused.

use proptest::prelude::*;
use rota_content::{
    Detail, File, FilePath, Fileset, FilesetName, Hash, Record, Status, Tree, TreeFile, Viewer,
};
use rota_docstore::Digest;
use rota_model::{Labels, NodeId, PoolName, RepositoryName};
use rota_proto::content::{Updates, tree_bytes, tree_of};
use rota_proto::v1;

fn digest() -> impl Strategy<Value = Digest> {
    any::<[u8; 32]>().prop_map(Digest)
}

fn hash() -> impl Strategy<Value = Hash> {
    "[0-9a-f]{1,16}".prop_map(|it| Hash::parse(&it).expect("these are hexadecimal digits"))
}

fn fileset_name() -> impl Strategy<Value = FilesetName> {
    "[a-z0-9_-]{1,8}".prop_map(|it| FilesetName::parse(&it).expect("these may stand there"))
}

fn fileset() -> impl Strategy<Value = Fileset> {
    let pool = "[a-z]{1,5}".prop_map(|it| PoolName::parse(&it).expect("letters are a name"));
    let pools = prop::collection::btree_set(pool, 0..3);
    (any::<bool>(), pools, prop::option::of(hash())).prop_map(|(eager, pools, commit)| Fileset {
        eager,
        pools,
        labels: Labels::default(),
        commit,
    })
}

/// The bytes of a file, without a place.
fn of_file() -> impl Strategy<Value = (Digest, u64, bool)> {
    (digest(), 0u64..1_000_000, any::<bool>())
}

fn tree() -> impl Strategy<Value = Tree> {
    let filesets = prop::collection::btree_map(fileset_name(), fileset(), 1..4);
    let bodies = prop::collection::btree_map(digest(), 2_000_000u64..3_000_000, 1..4);
    let file = (any::<prop::sample::Index>(), any::<prop::sample::Index>(), hash(), of_file());
    let files = prop::collection::btree_map("[a-z]{1,4}(/[a-z]{1,4}){0,2}", file, 0..20);
    (filesets, bodies, files, "[ -~]{0,20}").prop_map(|(filesets, bodies, files, rules)| {
        let names: Vec<&FilesetName> = filesets.keys().collect();
        let all: Vec<Digest> = bodies.keys().copied().collect();
        let mut list = Vec::with_capacity(files.len());
        for (path, (fileset, body, commit, (sha256, bytes, executable))) in files {
            let body = all[body.index(all.len())];
            list.push(TreeFile {
                path: FilePath::parse(&path).expect("letters are a path"),
                fileset: names[fileset.index(names.len())].clone(),
                commit,
                file: File { sha256, bytes, executable, body, offset: bytes },
            });
        }
        list.sort_by(|one, other| one.path.cmp(&other.path));
        Tree::new(list, filesets.clone(), bodies).expect("it is whole").with_rules(rules)
    })
}

proptest! {
    #[test]
    fn trees_come_back_from_their_bytes_and_no_bytes_make_a_panic(
        tree in tree(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut bytes = tree_bytes(&tree);
        prop_assert_eq!(tree_of(&bytes).expect("it was one"), tree);
        let at = at.index(bytes.len());
        bytes[at] = byte;
        drop(tree_of(&bytes));
    }

    #[test]
    fn records_come_back(tree in tree(), commit in hash(), deleted in any::<bool>()) {
        let status = if deleted { Status::Deleted } else { Status::Published };
        let files = tree.files().iter().map(|file| {
            let (path, fileset) = (&file.path, file.fileset.clone());
            let record = Record::file(path, fileset, file.commit.clone(), file.file);
            Record { status, ..record }
        });
        let control = [
            Record::commit(&commit),
            Record::latest(commit.clone()),
            Record::access(commit.clone()),
            Record::fileset(&FilesetName::default_name(), commit.clone(), deleted),
        ];
        for record in files.chain(control) {
            let wire = v1::ContentRecord::from(&record);
            prop_assert_eq!(Record::try_from(wire).expect("it was one"), record);
        }
    }

    #[test]
    fn questions_for_updates_come_back(
        repository in prop::option::of("[a-z]{1,5}"),
        since in prop::option::of(hash()),
        viewer in prop::option::of(("[a-z]{1,5}", prop::option::of("[a-z]{1,5}"))),
        category in prop::option::of(fileset_name()),
    ) {
        let name = |it: String| RepositoryName::parse(&it).expect("letters are a name");
        let viewer = viewer.map(|(pool, node)| {
            let pool = PoolName::parse(&pool).expect("letters are a name");
            let node = node.map(|it| NodeId::parse(&it).expect("letters are a name"));
            (Viewer { pool, labels: Labels::default() }, node)
        });
        let asked = Updates { repository: repository.map(name), since, viewer, category };
        let back = Updates::try_from(v1::ContentUpdatesRequest::from(&asked));
        if asked.repository.is_none() && asked.viewer.is_none() {
            prop_assert!(back.is_err(), "nobody says which repository");
        } else {
            prop_assert_eq!(back.expect("it was one"), asked);
        }
    }
}

#[test]
fn a_record_of_a_nodes_own_or_with_another_path_is_refused() {
    let commit = Hash::parse("aa").expect("these are hexadecimal digits");
    let wire = |it: &Record| v1::ContentRecord::from(it);
    let latest = wire(&Record::latest(commit.clone()));
    assert_eq!(Record::latest(commit).detail, Detail::None);
    let with = |change: &dyn Fn(&mut v1::ContentRecord)| {
        let mut changed = latest.clone();
        change(&mut changed);
        Record::try_from(changed)
    };
    assert!(with(&|_| {}).is_ok());
    type Change = dyn Fn(&mut v1::ContentRecord);
    let of_file = |category: &str, path: &'static str| {
        let category = category.to_owned();
        move |record: &mut v1::ContentRecord| {
            (record.category, record.path) = (category.clone(), path.to_owned());
        }
    };
    let changes: [(&str, &Change); 7] = [
        ("own", &|it| it.category = "$fingerprint".to_owned()),
        ("path", &|it| it.path = ".rota/acm/group".to_owned()),
        ("outside", &of_file("default", "../x")),
        ("no file", &of_file("default", "x")),
        ("status", &|it| it.status = "gone".to_owned()),
        ("deleted", &|it| it.status = "deleted".to_owned()),
        ("commit", &|it| it.commit = "AA".to_owned()),
    ];
    for (what, change) in changes {
        assert!(with(change).is_err(), "{what}");
    }
    assert!(tree_of(b"no tree").is_err());
}
