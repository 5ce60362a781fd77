//! Operations of administrators on content, in the namespace for configuration: `content.commit`, `content.follow`,
//! `content.remove`.

use crate::documents::about;
use crate::documents::administer::{Removed, configured, remove};
use rota_content::{
    BODIES_MAX, COMMITS_KEPT, COMMITS_KEPT_MAX, CONTENT_CLASS, Commit, FOLLOWS_CLASS, Follows,
    Hash, Head, Held, TreeBody, check_repository,
};
use rota_docstore::document::ITEMS_MAX;
use rota_docstore::{
    About, Attachment, DocumentEdit, Exception, FieldError, Keyed, Namespace, Operation, Place,
    Transaction, Wanted, codes,
};
use rota_model::{PoolName, RepositoryName};
use serde::{Deserialize, Serialize};

/// Of attachments that list the files of a commit.
const TREE_MIME: &str = "application/x-protobuf";
/// Items of a repository beside two for each body: its head and its commits.
const SPARE_ITEMS: usize = COMMITS_KEPT_MAX as usize + 8;
/// Of attachments that hold files.
const BODY_MIME: &str = "application/octet-stream";
/// The item class of attachments.
const ATTACHMENT: &str = rota_docstore::name::ATTACHMENT_CLASS;

/// A commit that is to be the newest one. Its files are stored already.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Committing {
    repository: RepositoryName,
    commit: Commit,
    /// The bodies that hold its files.
    bodies: Vec<TreeBody>,
    /// How many commits are kept, this one included; left out: as many as before.
    #[serde(default)]
    keep: Option<u32>,
    /// Commits that pools hold: these stay, and all after them.
    #[serde(default)]
    hold: Vec<Hash>,
}

/// What became of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Committed {
    commit: Hash,
    number: u64,
}

/// Adds a commit to a repository, which is made if it is not there, and lets go of commits that are too old. The
/// commit's parent must be the newest one: of two that are made at once, one is refused.
pub(crate) struct ContentCommit(Committing);

impl Operation for ContentCommit {
    const NAME: &'static str = "content.commit";
    const PLACE: Place = Place::Inline;
    type Parameters = Committing;

    fn about() -> About {
        about::CONTENT_COMMIT
    }

    fn new(committing: Committing) -> Result<Self, Exception> {
        check_repository(&committing.repository)?;
        committing.commit.check()?;
        if let Some(keep) = committing.keep.filter(|it| !(1..=COMMITS_KEPT_MAX).contains(it)) {
            let problem = format!("is {keep}; it must be 1 to {COMMITS_KEPT_MAX}");
            return Err(FieldError::new("keep", problem).into());
        }
        let count = committing.bodies.len();
        if count > BODIES_MAX {
            let problem = format!("are {count}; the limit is {BODIES_MAX}");
            return Err(Exception::of_field(codes::LIMIT, FieldError::new("bodies", problem)));
        }
        Ok(Self(committing))
    }

    fn documents(&self, space: &Namespace) -> Result<Vec<Wanted>, Exception> {
        configured(space, CONTENT_CLASS, ("repository", self.0.repository.as_str()))
    }

    fn work(&mut self, transaction: &mut Transaction<'_>) -> Result<(), Exception> {
        let Committing { repository, commit, bodies, keep, hold: held } = &self.0;
        let document = transaction.name(CONTENT_CLASS, repository.as_str())?;
        if let Some(done) = transaction.repeated::<Committed>(&document)? {
            return transaction.answer_json(&done);
        }
        let edited = transaction.current(&document)?;
        let head = edited.one::<Head>()?;
        let latest = head.as_ref().map(|it| &it.latest);
        if latest == Some(&commit.hash) {
            // Somebody asks again.
            let number = head.map_or(0, |it| it.number);
            return transaction.answer_json(&Committed { commit: commit.hash.clone(), number });
        }
        if latest != commit.parent.as_ref() {
            return Err(overtaken(repository, latest, commit.parent.as_ref()));
        }
        if edited.item::<Commit>(commit.hash.as_str())?.is_some() {
            let problem = format!("{} is a commit of {repository} already", commit.hash);
            return Err(Exception::of_field(
                codes::EXISTS,
                FieldError::new("commit.hash", problem),
            ));
        }
        let number = head.as_ref().map_or(0, |it| it.number) + 1;
        let keep = keep.unwrap_or_else(|| head.as_ref().map_or(COMMITS_KEPT, |it| it.keep));
        edited.ensure();
        hold(edited, &commit.tree, TREE_MIME, number)?;
        for body in bodies {
            hold(edited, body, BODY_MIME, number)?;
        }
        let latest = commit.hash.clone();
        edited.put(latest.as_str(), &Commit { number, ..commit.clone() })?;
        edited.put_one(&Head { latest: latest.clone(), number, keep })?;
        let last = number.saturating_sub(u64::from(keep)).min(before_held(edited, held)?);
        drop_old(edited, last)?;
        let items = edited.existing().count();
        if items > ITEMS_MAX - SPARE_ITEMS {
            let problem = format!(
                "is {keep}, and the commits that are kept have {} bodies; the limit is {}: keep fewer",
                items / 2,
                (ITEMS_MAX - SPARE_ITEMS) / 2
            );
            return Err(Exception::of_field(codes::LIMIT, FieldError::new("keep", problem)));
        }
        let done = Committed { commit: latest, number };
        transaction.remember(&document, &done)?;
        transaction.answer_json(&done)
    }
}

fn overtaken(
    repository: &RepositoryName,
    latest: Option<&Hash>,
    parent: Option<&Hash>,
) -> Exception {
    let text = |it: Option<&Hash>| it.map_or("no commit".to_owned(), ToString::to_string);
    let message = format!(
        "the commit follows {}, and {repository} is at {}: somebody published meanwhile; publish again",
        text(parent),
        text(latest)
    );
    Exception::business("EXPECTED", message)
}

/// The number of the last commit before the oldest one that is held.
fn before_held(edited: &DocumentEdit, held: &[Hash]) -> Result<u64, Exception> {
    let mut oldest = u64::MAX;
    for hash in held {
        // What is not kept any more cannot be held.
        if let Some(commit) = edited.item::<Commit>(hash.as_str())? {
            oldest = oldest.min(commit.number);
        }
    }
    Ok(oldest.saturating_sub(1))
}

/// A body is needed for a commit with this number.
fn hold(
    edited: &mut DocumentEdit,
    body: &TreeBody,
    mime: &str,
    number: u64,
) -> Result<(), Exception> {
    let key = body.sha256.to_string();
    if edited.attachment(&key).is_none() {
        edited.attach(&key, Attachment::new(mime, body.bytes, body.sha256)?)?;
    }
    edited.put(&key, &Held { until: number })
}

/// Commits up to a number go, and bodies that no later one needs.
fn drop_old(edited: &mut DocumentEdit, last: u64) -> Result<(), Exception> {
    let named = |edited: &DocumentEdit, class: &str| -> Vec<String> {
        edited.keys(class).map(str::to_owned).collect()
    };
    for key in named(edited, Commit::CLASS) {
        if edited.item::<Commit>(&key)?.is_some_and(|it| it.number <= last) {
            edited.remove(Commit::CLASS, Some(&key))?;
        }
    }
    for key in named(edited, Held::CLASS) {
        if edited.item::<Held>(&key)?.is_some_and(|it| it.until <= last) {
            edited.remove(Held::CLASS, Some(&key))?;
            edited.remove(ATTACHMENT, Some(&key))?;
        }
    }
    Ok(())
}

/// What the nodes of a pool are to follow; without a repository: nothing.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Following {
    pool: PoolName,
    #[serde(default)]
    repository: Option<RepositoryName>,
    #[serde(default)]
    commit: Option<Hash>,
    #[serde(default)]
    canary_percent: u8,
}

/// Says which repository the nodes of a pool follow.
pub(crate) struct ContentFollow {
    pool: PoolName,
    follows: Option<Follows>,
}

impl Operation for ContentFollow {
    const NAME: &'static str = "content.follow";
    const PLACE: Place = Place::Inline;
    type Parameters = Following;

    fn about() -> About {
        about::CONTENT_FOLLOW
    }

    fn new(following: Following) -> Result<Self, Exception> {
        let Following { pool, repository, commit, canary_percent } = following;
        if repository.is_none() && (commit.is_some() || canary_percent > 0) {
            let problem = "is missing: it is needed with `commit` and `canary_percent`";
            return Err(FieldError::new("repository", problem).into());
        }
        let follows = repository.map(|repository| Follows { repository, commit, canary_percent });
        follows.as_ref().map_or(Ok(()), Follows::check)?;
        Ok(Self { pool, follows })
    }

    fn documents(&self, space: &Namespace) -> Result<Vec<Wanted>, Exception> {
        configured(space, FOLLOWS_CLASS, ("pool", self.pool.as_str()))
    }

    fn work(&mut self, transaction: &mut Transaction<'_>) -> Result<(), Exception> {
        let document = transaction.name(FOLLOWS_CLASS, self.pool.as_str())?;
        let Some(follows) = &self.follows else {
            if let Some(removed) = transaction.repeated::<Removed>(&document)? {
                return transaction.answer_json(&removed);
            }
            return remove(transaction, &document, &document);
        };
        if transaction.repeated::<()>(&document)?.is_some() {
            return Ok(());
        }
        let edited = transaction.current(&document)?;
        edited.ensure();
        edited.put_one(follows)?;
        transaction.remember(&document, &())
    }
}

/// `{"repository": ...}`.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Ending {
    repository: RepositoryName,
}

/// Removes a repository with all its commits. Nodes keep what they have.
pub(crate) struct ContentRemove(Ending);

impl Operation for ContentRemove {
    const NAME: &'static str = "content.remove";
    const PLACE: Place = Place::Inline;
    type Parameters = Ending;

    fn about() -> About {
        about::CONTENT_REMOVE
    }

    fn new(ending: Ending) -> Result<Self, Exception> {
        Ok(Self(ending))
    }

    fn documents(&self, space: &Namespace) -> Result<Vec<Wanted>, Exception> {
        configured(space, CONTENT_CLASS, ("repository", self.0.repository.as_str()))
    }

    fn work(&mut self, transaction: &mut Transaction<'_>) -> Result<(), Exception> {
        let document = transaction.name(CONTENT_CLASS, self.0.repository.as_str())?;
        if let Some(removed) = transaction.repeated::<Removed>(&document)? {
            return transaction.answer_json(&removed);
        }
        remove(transaction, &document, &document)
    }
}
