//! A node's data folder: whose it is, and that only one agent works in it.
//!
//! ```text
//! DIR/node.json    format, node id, cluster
//! DIR/lock         held while an agent runs
//! DIR/boot         the last boots of this folder and where they ran, one a line
//! DIR/place        tells this folder from its copies, by when it was made
//! DIR/journal      what the next agent of this boot goes on from
//! DIR/lease        the node's lease, read by its keepers and its guardian
//! DIR/guardian.log what the guardian logs
//! DIR/guardian.pid which process is the guardian
//! DIR/sessions/    NAMESPACE/ID/LIFE: one folder per program session: output, log of the keeper, working folder,
//!                  pid file, and what a later agent goes on by: terms, news, the keeper's socket
//! ```

use anyhow::{Context, bail};
use rota_model::{ClusterName, NodeId};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Version of the folder's layout.
const FORMAT: u32 = 1;
const IDENTITY_FILE: &str = "node.json";
const LOCK_FILE: &str = "lock";
/// The lease, in a data folder.
pub const LEASE_FILE: &str = "lease";
/// Beside the lock it is all that a folder without an identity may hold: a new file system begins
/// with it.
const LOST_AND_FOUND: &str = "lost+found";

#[derive(PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Identity {
    format: u32,
    node: NodeId,
    cluster: ClusterName,
}

/// An opened data folder. The lock is held until it is dropped.
#[derive(Debug)]
pub struct DataFolder {
    path: PathBuf,
    _lock: File,
}

impl DataFolder {
    /// Opens a node's folder, or makes it. Refuses a folder of another node, cluster or format,
    /// one that holds something else, and one in which an agent runs.
    pub fn open(path: &Path, node: &NodeId, cluster: &ClusterName) -> anyhow::Result<Self> {
        let shown = path.display().to_string();
        fs::create_dir_all(path).with_context(|| format!("cannot make the data folder {shown}"))?;
        let path = path.canonicalize()?;
        if path.to_str().is_none() {
            bail!("the path of the data folder {shown} is not UTF-8");
        }
        let identity = read_identity(&path)?;
        if identity.is_none() {
            refuse_foreign(&path)?;
        }
        let lock = File::create(path.join(LOCK_FILE))
            .with_context(|| format!("cannot write in the data folder {shown}"))?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            bail!("another node-agent runs in the data folder {shown}");
        }
        let wanted = Identity { format: FORMAT, node: node.clone(), cluster: cluster.clone() };
        match identity {
            Some(found) => refuse_other(&shown, &found, &wanted)?,
            None => write_identity(&path, &wanted)
                .with_context(|| format!("cannot write in the data folder {shown}"))?,
        }
        fs::create_dir_all(path.join("sessions"))?;
        Ok(Self { path, _lock: lock })
    }

    /// The folder, absolute and without links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The lease file.
    pub fn lease(&self) -> PathBuf {
        self.path.join(LEASE_FILE)
    }

    /// The folder of session folders.
    pub fn sessions(&self) -> PathBuf {
        self.path.join("sessions")
    }
}

fn read_identity(path: &Path) -> anyhow::Result<Option<Identity>> {
    let file = path.join(IDENTITY_FILE);
    let bytes = match fs::read(&file) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", file.display())),
    };
    // The format first: another one may have other fields.
    let value: serde_json::Value = serde_json::from_slice(&bytes)
        .with_context(|| format!("{} is not a node's identity", file.display()))?;
    if value.get("format").and_then(serde_json::Value::as_u64) != Some(u64::from(FORMAT)) {
        let found = value.get("format").map_or("none".to_owned(), ToString::to_string);
        bail!("{} has format {found}; this program knows format {FORMAT}", file.display());
    }
    let identity = serde_json::from_value(value)
        .with_context(|| format!("{} is not a node's identity", file.display()))?;
    Ok(Some(identity))
}

fn refuse_foreign(path: &Path) -> anyhow::Result<()> {
    let mut names = fs::read_dir(path)?.flatten().map(|entry| entry.file_name());
    if let Some(other) = names.find(|name| name != LOCK_FILE && name != LOST_AND_FOUND) {
        bail!(
            "the data folder {} holds {} and no {IDENTITY_FILE}: it is not a node's folder",
            path.display(),
            other.display()
        );
    }
    Ok(())
}

fn refuse_other(shown: &str, found: &Identity, wanted: &Identity) -> anyhow::Result<()> {
    if found.cluster != wanted.cluster {
        let (found, wanted) = (&found.cluster, &wanted.cluster);
        bail!("the data folder {shown} belongs to cluster {found}, not to {wanted}");
    }
    if found.node != wanted.node {
        let (found, wanted) = (&found.node, &wanted.node);
        bail!("the data folder {shown} belongs to node {found}, not to {wanted}");
    }
    Ok(())
}

fn write_identity(path: &Path, identity: &Identity) -> anyhow::Result<()> {
    let fresh = path.join("node.json.new");
    let mut file = File::create(&fresh)?;
    file.write_all(&serde_json::to_vec_pretty(identity)?)?;
    file.sync_all()?;
    fs::rename(&fresh, path.join(IDENTITY_FILE))?;
    File::open(path)?.sync_all()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(path: &Path, node: &str, cluster: &str) -> anyhow::Result<DataFolder> {
        let node = NodeId::parse(node).unwrap();
        DataFolder::open(path, &node, &ClusterName::parse(cluster).unwrap())
    }

    #[test]
    fn a_folder_belongs_to_one_node_of_one_cluster() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("n1");
        drop(open(&path, "n1", "rota").unwrap());
        drop(open(&path, "n1", "rota").unwrap());
        let error = open(&path, "n2", "rota").unwrap_err().to_string();
        assert!(error.contains("belongs to node n1, not to n2"), "{error}");
        let error = open(&path, "n1", "other").unwrap_err().to_string();
        assert!(error.contains("belongs to cluster rota, not to other"), "{error}");
    }

    #[test]
    fn a_folder_of_another_format_or_kind_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("node.json"), r#"{"format":9}"#).unwrap();
        let error = open(folder.path(), "n1", "rota").unwrap_err().to_string();
        assert!(error.contains("has format 9; this program knows format 1"), "{error}");
        let foreign = tempfile::tempdir().unwrap();
        fs::write(foreign.path().join("manager.redb"), "x").unwrap();
        let error = open(foreign.path(), "n1", "rota").unwrap_err().to_string();
        assert!(error.contains("holds manager.redb and no node.json"), "{error}");
    }

    #[test]
    fn only_one_agent_works_in_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        let first = open(folder.path(), "n1", "rota").unwrap();
        let error = open(folder.path(), "n1", "rota").unwrap_err().to_string();
        assert!(error.contains("another node-agent runs"), "{error}");
        drop(first);
        open(folder.path(), "n1", "rota").unwrap();
    }
}
