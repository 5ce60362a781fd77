//! Content that nodes run: the updates feed, and the trees of commits.

use crate::documents::document::{digest, digest_bytes};
use crate::offers::{label_texts, labels};
use crate::v1;
use crate::wire::{WireError, named, required};
use prost::Message as _;
use rota_content::{
    Category, Detail, File, FilePath, Fileset, FilesetName, Hash, Record, Status, Tree, TreeFile,
    Viewer,
};
use rota_docstore::Digest;
use rota_model::{NodeId, PoolName, RepositoryName};
use std::collections::BTreeMap;

const PUBLISHED: &str = "published";
const DELETED: &str = "deleted";

/// What is asked of the updates feed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Updates {
    /// Which repository; none: the one of the viewer's pool.
    pub repository: Option<RepositoryName>,
    /// Since which commit.
    pub since: Option<Hash>,
    /// Who looks; none: somebody who sees everything.
    pub viewer: Option<(Viewer, Option<NodeId>)>,
    /// Only files of this fileset.
    pub category: Option<FilesetName>,
}

impl TryFrom<v1::ContentUpdatesRequest> for Updates {
    type Error = WireError;
    fn try_from(wire: v1::ContentUpdatesRequest) -> Result<Self, WireError> {
        let viewer = wire.viewer.map(|viewer| {
            let pool = named("ContentViewer.pool", PoolName::parse(&viewer.pool))?;
            let labels = named("ContentViewer.labels", labels(&viewer.labels))?;
            let node = given("ContentViewer.node_id", &viewer.node_id, NodeId::parse)?;
            Ok::<_, WireError>((Viewer { pool, labels }, node))
        });
        let viewer = viewer.transpose()?;
        let field = "ContentUpdatesRequest.repository";
        let repository = given(field, &wire.repository, RepositoryName::parse)?;
        if repository.is_none() && viewer.is_none() {
            return Err(WireError::new(field, "is missing: name it, or the pool of the viewer"));
        }
        Ok(Self {
            repository,
            since: given("ContentUpdatesRequest.since", &wire.since, Hash::parse)?,
            viewer,
            category: given("ContentUpdatesRequest.category", &wire.category, FilesetName::parse)?,
        })
    }
}

impl From<&Updates> for v1::ContentUpdatesRequest {
    fn from(it: &Updates) -> Self {
        let text = |it: Option<&str>| it.unwrap_or_default().to_owned();
        Self {
            repository: text(it.repository.as_ref().map(RepositoryName::as_str)),
            since: text(it.since.as_ref().map(Hash::as_str)),
            viewer: it.viewer.as_ref().map(|(viewer, node)| v1::ContentViewer {
                pool: viewer.pool.to_string(),
                labels: label_texts(&viewer.labels),
                node_id: text(node.as_ref().map(NodeId::as_str)),
            }),
            category: text(it.category.as_ref().map(FilesetName::as_str)),
        }
    }
}

fn given<T>(
    field: &'static str,
    text: &str,
    parse: impl FnOnce(&str) -> Result<T, rota_model::FieldError>,
) -> Result<Option<T>, WireError> {
    if text.is_empty() { Ok(None) } else { named(field, parse(text)).map(Some) }
}

impl From<&Record> for v1::ContentRecord {
    fn from(it: &Record) -> Self {
        let status = match it.status {
            Status::Published => PUBLISHED,
            Status::Deleted => DELETED,
        };
        Self {
            path: it.path.to_string(),
            category: it.category.to_string(),
            commit: it.commit.to_string(),
            status: status.to_owned(),
            file: it.as_file().map(|file| v1::ContentFile {
                sha256: digest_bytes(file.sha256),
                bytes: file.bytes,
                executable: file.executable,
                body: digest_bytes(file.body),
                offset: file.offset,
            }),
            eager: it.detail == Detail::Fileset { eager: true },
        }
    }
}

impl TryFrom<v1::ContentRecord> for Record {
    type Error = WireError;
    fn try_from(wire: v1::ContentRecord) -> Result<Self, WireError> {
        let category = named("ContentRecord.category", Category::parse(&wire.category))?;
        let status = match &*wire.status {
            PUBLISHED => Status::Published,
            DELETED => Status::Deleted,
            other => {
                let problem = format!("is {other:?}; it must be \"published\" or \"deleted\"");
                return Err(WireError::new("ContentRecord.status", problem));
            }
        };
        let detail = match (&category, wire.file) {
            (_, Some(file)) => Detail::File(File::try_from(file)?),
            (Category::Fileset, None) => Detail::Fileset { eager: wire.eager },
            (
                Category::Commit
                | Category::Latest
                | Category::Access
                | Category::Fingerprint
                | Category::Refresh
                | Category::Obsolete
                | Category::File(_),
                None,
            ) => Detail::None,
        };
        let commit = named("ContentRecord.commit", Hash::parse(&wire.commit))?;
        let record = Self { path: wire.path.into(), category, commit, status, detail };
        named("ContentRecord.path", record.check())?;
        Ok(record)
    }
}

impl TryFrom<v1::ContentFile> for File {
    type Error = WireError;
    fn try_from(wire: v1::ContentFile) -> Result<Self, WireError> {
        Ok(Self {
            sha256: named("ContentFile.sha256", digest(&wire.sha256))?,
            bytes: wire.bytes,
            executable: wire.executable,
            body: named("ContentFile.body", digest(&wire.body))?,
            offset: wire.offset,
        })
    }
}

/// A tree as the bytes of its attachment: equal trees have equal bytes.
pub fn tree_bytes(tree: &Tree) -> Vec<u8> {
    let mut commits = BTreeMap::new();
    for it in tree.files() {
        let next = index(commits.len());
        commits.entry(it.commit.as_str()).or_insert(next);
    }
    let places = |names: Vec<Digest>| -> BTreeMap<Digest, u32> {
        names.into_iter().enumerate().map(|(at, it)| (it, index(at))).collect()
    };
    let bodies = places(tree.bodies().keys().copied().collect());
    let filesets: BTreeMap<&FilesetName, u32> =
        tree.filesets().keys().enumerate().map(|(at, it)| (it, index(at))).collect();
    let file = |file: &TreeFile| v1::content_tree::File {
        path: file.path.to_string(),
        fileset: filesets[&file.fileset],
        commit: commits[file.commit.as_str()],
        sha256: digest_bytes(file.file.sha256),
        bytes: file.file.bytes,
        executable: file.file.executable,
        body: bodies[&file.file.body],
        offset: file.file.offset,
    };
    let mut names: Vec<(&str, u32)> = commits.iter().map(|(name, at)| (*name, *at)).collect();
    names.sort_by_key(|it| it.1);
    let wire = v1::ContentTree {
        filesets: tree.filesets().iter().map(fileset_wire).collect(),
        commits: names.into_iter().map(|it| it.0.to_owned()).collect(),
        bodies: tree
            .bodies()
            .iter()
            .map(|(body, bytes)| v1::content_tree::Body {
                sha256: digest_bytes(*body),
                bytes: *bytes,
            })
            .collect(),
        files: tree.files().iter().map(file).collect(),
        rules: tree.rules().to_owned(),
    };
    wire.encode_to_vec()
}

fn index(at: usize) -> u32 {
    u32::try_from(at).expect("trees have fewer than a million files")
}

fn fileset_wire((name, it): (&FilesetName, &Fileset)) -> v1::content_tree::Fileset {
    v1::content_tree::Fileset {
        name: name.to_string(),
        eager: it.eager,
        pools: it.pools.iter().map(ToString::to_string).collect(),
        labels: label_texts(&it.labels),
        commit: it.commit.as_ref().map(ToString::to_string).unwrap_or_default(),
    }
}

/// A tree from the bytes of its attachment.
///
/// # Errors
/// They are no tree.
pub fn tree_of(bytes: &[u8]) -> Result<Tree, WireError> {
    let wire = v1::ContentTree::decode(bytes)
        .map_err(|it| WireError::new("ContentTree", format!("cannot be read: {it}")))?;
    let mut filesets = BTreeMap::new();
    let mut names = Vec::new();
    for it in wire.filesets {
        let name = named("ContentTree.filesets", FilesetName::parse(&it.name))?;
        let pools = it.pools.iter().map(|it| named("ContentTree.pools", PoolName::parse(it)));
        let fileset = Fileset {
            eager: it.eager,
            pools: pools.collect::<Result<_, _>>()?,
            labels: named("ContentTree.labels", labels(&it.labels))?,
            commit: given("ContentTree.commit", &it.commit, Hash::parse)?,
        };
        names.push(name.clone());
        filesets.insert(name, fileset);
    }
    let mut bodies = Vec::new();
    for it in &wire.bodies {
        bodies.push((named("ContentTree.bodies", digest(&it.sha256))?, it.bytes));
    }
    let commits = wire.commits.iter().map(|it| named("ContentTree.commits", Hash::parse(it)));
    let commits = commits.collect::<Result<Vec<_>, _>>()?;
    let mut files = Vec::with_capacity(wire.files.len());
    for it in wire.files {
        let fileset = required("ContentTree.File.fileset", names.get(it.fileset as usize))?;
        let commit = required("ContentTree.File.commit", commits.get(it.commit as usize))?;
        let body = required("ContentTree.File.body", bodies.get(it.body as usize))?;
        let sha256 = named("ContentTree.File.sha256", digest(&it.sha256))?;
        let (bytes, executable, offset) = (it.bytes, it.executable, it.offset);
        files.push(TreeFile {
            path: named("ContentTree.File.path", FilePath::parse(&it.path))?,
            fileset: fileset.clone(),
            commit: commit.clone(),
            file: File { sha256, bytes, executable, body: body.0, offset },
        });
    }
    let tree = Tree::new(files, filesets, bodies.into_iter().collect());
    Ok(named("ContentTree", tree)?.with_rules(wire.rules))
}
