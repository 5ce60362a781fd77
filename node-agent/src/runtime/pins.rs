//! Which versions of content machines began with. The next agent goes on with the class of that version.
//!
//! ```text
//! DIR/machines/<namespace>/<id>     leads to the version
//! ```
//! Programs have it in their terms. A machine of a class of `--classes` has no link.

use crate::content::content_of_version;
use crate::files::remove_if_there;
use crate::observe::{Listing, Rooted};
use crate::settings::read_classes;
use rota_model::{ClassName, SessionKey, Stamp};
use rota_node::class::Class;
use rota_node::folder_name;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// The links of this node.
pub struct Pins {
    folder: PathBuf,
    listing: Listing,
    /// What was read of versions, each once.
    read: BTreeMap<PathBuf, BTreeMap<ClassName, Class>>,
}

impl Pins {
    /// Those in a folder. A version with a machine stays as long as that is in the listing.
    pub fn new(folder: PathBuf, listing: Listing) -> Self {
        Self { folder, listing, read: BTreeMap::new() }
    }

    fn link(&self, key: &SessionKey) -> PathBuf {
        let namespace = self.folder.join(folder_name(key.namespace.as_str()));
        namespace.join(folder_name(key.id.as_str()))
    }

    /// A machine runs, of a class in this folder.
    pub fn pin(&self, key: &SessionKey, (life, class): (Stamp, &ClassName), root: &Path) {
        let link = self.link(key);
        let removed = remove_if_there(&link);
        if content_of_version(root).is_none() {
            return;
        }
        let rooted = Rooted { life, class: class.clone(), root: root.to_owned() };
        self.listing.pin(key.clone(), rooted);
        if let Err(error) = removed.and_then(|()| linked(root, &link)) {
            tracing::warn!(session = %key, %error, "the next agent takes the newest class of this machine");
        }
    }

    /// It has ended.
    pub fn unpin(&self, key: &SessionKey) {
        if self.listing.unpin(key)
            && let Err(error) = remove_if_there(&self.link(key))
        {
            tracing::warn!(session = %key, %error, "a link to its version stays");
        }
    }

    /// The folder that a machine of an earlier agent began with, and its class there, if that is known.
    pub fn earlier(&mut self, key: &SessionKey, class: &ClassName) -> Option<(PathBuf, Class)> {
        let root = fs::read_link(self.link(key)).ok()?;
        if !self.read.contains_key(&root) {
            let read = read_classes(&root);
            let read = read.inspect_err(|mistakes| {
                let (version, mistakes) = (root.display(), mistakes.join("; "));
                tracing::warn!(%version, mistakes, "a version with machines cannot be read");
            });
            self.read.insert(root.clone(), read.unwrap_or_default());
        }
        let class = self.read.get(&root)?.get(class)?.clone();
        Some((root, class))
    }
}

fn linked(root: &Path, link: &Path) -> io::Result<()> {
    match (symlink(root, link), link.parent()) {
        (Err(error), Some(folder)) if error.kind() == io::ErrorKind::NotFound => {
            fs::create_dir_all(folder)?;
            symlink(root, link)
        }
        (linked, _) => linked,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_model::{Namespace, SessionId};

    #[test]
    fn a_machine_is_pinned_to_its_version_until_it_ends_and_one_of_no_version_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("content/main/versions/aa-bb");
        fs::create_dir_all(&root).unwrap();
        let text = "name = \"m\"\nkind = \"machine\"\nstates = [\"on\"]\ninitial = \"on\"";
        fs::write(root.join("m.toml"), text).unwrap();
        let key = SessionKey {
            namespace: Namespace::parse("n").unwrap(),
            id: SessionId::parse("../x").unwrap(),
        };
        let name = ClassName::parse("m").unwrap();
        let pins = || Pins::new(folder.path().join("machines"), Listing::default());
        let first = pins();
        let of = (Stamp::MIN, &name);
        first.pin(&key, of, &root);
        first.pin(&key, of, &root);
        assert_eq!(first.listing.roots(), [root.clone()].into());
        let mut next = pins();
        let (found, class) = next.earlier(&key, &name).unwrap();
        assert_eq!((found, class.name), (root.clone(), name.clone()));
        first.unpin(&key);
        assert_eq!((first.listing.roots().len(), next.earlier(&key, &name).is_some()), (0, false));
        first.pin(&key, of, &root);
        pins().pin(&key, of, folder.path());
        assert!(next.earlier(&key, &name).is_none(), "a later machine has its class elsewhere");
    }
}
