//! Which commit the nodes of a pool get.

use crate::record::Hash;
use rota_docstore::{Schema, Singleton};
use rota_model::{FieldError, NodeId, RepositoryName};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// Class of the documents of repositories, in the namespace for configuration.
pub const CONTENT_CLASS: &str = "Content";
/// Class of the documents that say what the nodes of one pool follow; the id is the pool's name.
pub const FOLLOWS_CLASS: &str = "ContentPool";

/// Adds the classes of content.
#[must_use]
pub fn with_content(schema: Schema) -> Schema {
    schema
        .class(CONTENT_CLASS, |class| {
            class.singleton::<crate::Head>().keyed::<crate::Commit>().keyed::<crate::Held>()
        })
        .class(FOLLOWS_CLASS, |it| it.singleton::<Follows>())
}

/// Longest name of a repository, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// Checks the name of a repository: it names a folder on nodes. Field: `repository`.
///
/// # Errors
/// It is too long, or has another character than letters, digits, `-`, `_` and, but at its beginning, `.`.
pub fn check_repository(name: &RepositoryName) -> Result<(), FieldError> {
    let text = name.as_str();
    let is_fine = |it: u8| it.is_ascii_alphanumeric() || b"-_.".contains(&it);
    if text.len() > NAME_BYTES_MAX || text.starts_with('.') || !text.bytes().all(is_fine) {
        let problem = format!(
            "is {text:?}; it must be at most {NAME_BYTES_MAX} letters, digits, -, _ and ., with no . at its beginning"
        );
        return Err(FieldError::new("repository", problem));
    }
    Ok(())
}

/// What the nodes of a pool follow.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Follows {
    /// Which repository.
    pub repository: RepositoryName,
    /// The commit that they get; none: the newest one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<Hash>,
    /// With a commit: of a hundred nodes, how many get the newest one all the same.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub canary_percent: u8,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(number: &u8) -> bool {
    *number == 0
}

impl Singleton for Follows {
    const CLASS: &'static str = "Follows";
}

impl Follows {
    /// What is wrong with it.
    ///
    /// # Errors
    /// Its share is no percentage, or there is none to take it from.
    pub fn check(&self) -> Result<(), FieldError> {
        check_repository(&self.repository)?;
        let percent = self.canary_percent;
        if percent > 100 {
            let problem = format!("is {percent}; it must be 0 to 100");
            return Err(FieldError::new("canary_percent", problem));
        }
        if percent > 0 && self.commit.is_none() {
            let problem = "is given without `commit`: all nodes get the newest one then";
            return Err(FieldError::new("canary_percent", problem));
        }
        Ok(())
    }

    /// Whether a node is among those that get the newest commit ahead of others. A greater share has all nodes of a
    /// smaller one.
    pub fn is_canary(&self, node: &NodeId) -> bool {
        self.draw(node) < u32::from(self.canary_percent)
    }

    /// The smallest share that has one of these nodes. `None`: there are no nodes.
    pub fn smallest_canary<'a>(&self, nodes: impl IntoIterator<Item = &'a NodeId>) -> Option<u8> {
        let draws = nodes.into_iter().map(|it| self.draw(it));
        draws.min().and_then(|it| u8::try_from(it + 1).ok())
    }

    /// 0 to 99: a greater share has the node.
    fn draw(&self, node: &NodeId) -> u32 {
        let mut hash = Sha256::new();
        hash.update(self.repository.as_str());
        hash.update([0]);
        hash.update(node.as_str());
        let digest = hash.finalize();
        u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]) % 100
    }

    /// The commit for a node, or for nobody in particular.
    pub fn target<'a>(&'a self, latest: &'a Hash, node: Option<&NodeId>) -> &'a Hash {
        match &self.commit {
            Some(commit) if !node.is_some_and(|it| self.is_canary(it)) => commit,
            Some(_) | None => latest,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn follows(commit: Option<&str>, canary_percent: u8) -> Follows {
        let repository = RepositoryName::parse("main").unwrap();
        Follows { repository, commit: commit.map(|it| Hash::parse(it).unwrap()), canary_percent }
    }

    #[test]
    fn a_share_of_the_nodes_gets_the_newest_commit_and_a_greater_share_has_them_too() {
        let nodes: Vec<NodeId> =
            (0..1_000).map(|it| NodeId::parse(&format!("n{it}")).unwrap()).collect();
        let latest = Hash::parse("bb").unwrap();
        let of = |follows: &Follows| -> Vec<&NodeId> {
            nodes.iter().filter(|node| *follows.target(&latest, Some(node)) == latest).collect()
        };
        let (few, more) = (of(&follows(Some("aa"), 10)), of(&follows(Some("aa"), 50)));
        assert!((50..200).contains(&few.len()), "{}", few.len());
        assert!((400..600).contains(&more.len()), "{}", more.len());
        assert!(few.iter().all(|it| more.contains(it)));
        assert_eq!(of(&follows(Some("aa"), 0)).len(), 0);
        assert_eq!(of(&follows(Some("aa"), 100)).len(), 1_000);
        assert_eq!(of(&follows(None, 0)).len(), 1_000);
        assert_eq!(follows(Some("aa"), 100).target(&latest, None).as_str(), "aa");
    }

    #[test]
    fn the_smallest_share_has_a_node_and_less_has_none() {
        let nodes: Vec<NodeId> =
            (1..=3).map(|it| NodeId::parse(&format!("n{it}")).unwrap()).collect();
        let least = follows(None, 0).smallest_canary(&nodes).unwrap();
        let has = |percent| nodes.iter().any(|it| follows(Some("aa"), percent).is_canary(it));
        assert!(has(least) && !has(least - 1), "{least}");
        assert_eq!(follows(None, 0).smallest_canary([]), None);
    }

    #[test]
    fn a_repository_has_a_name_that_a_folder_can_have() {
        let of = |text: &str| check_repository(&RepositoryName::parse(text).unwrap()).is_ok();
        for fine in ["main", "a.b-c_D9"] {
            assert!(of(fine), "{fine}");
        }
        for wrong in ["..", ".x", "a/b", "a b", "\u{e4}", &"x".repeat(65)] {
            assert!(!of(wrong), "{wrong}");
        }
    }

    #[test]
    fn a_share_without_a_commit_and_over_a_hundred_is_refused() {
        assert!(follows(Some("aa"), 100).check().is_ok());
        assert!(follows(Some("aa"), 101).check().is_err());
        assert!(follows(None, 1).check().is_err());
    }
}
