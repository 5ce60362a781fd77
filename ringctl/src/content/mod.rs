//! Content that nodes run: `ringctl content …`.
//!
//! ```text
//!  publish: scan (a folder) ──▶ draft ──▶ bodies, the list of files ──▶ content.commit
//!  list, log, diff, get, rules, rollback: repository (its document, trees of its commits)
//!  status, rollout: what each node has, and sessions that run with older versions
//! ```

mod change;
mod classes;
mod publish;
mod repository;
mod rollout;
mod rules;
mod scan;
mod show;
mod status;

use crate::connect;
use crate::length_of_time::length_of_time;
use crate::output::Out;
use crate::secret::AdminKey;
use clap::{Args, Subcommand};
use rota_client::docstore::Namespace;
use rota_content::{Hash, check_repository};
use rota_model::{PoolName, RepositoryName};
use std::path::PathBuf;
use std::time::Duration;

/// The repository where none is named.
const REPOSITORY: &str = "main";
/// How long is waited where --wait says no time.
const WAIT: &str = "10m";

/// What to do with content.
#[derive(Subcommand, Debug)]
pub enum ContentCommand {
    /// Make a commit of a folder: its classes (NAME.toml) with their programs and actions (NAME/...). Nodes that
    /// follow the repository get it. In a git work tree: the files that git knows, and new ones that it does not ignore.
    #[command(after_help = PUBLISH_EXAMPLES)]
    Publish(PublishArguments),
    /// List the files of a commit; without a repository, list the repositories.
    List(ListArguments),
    /// List the commits of a repository, the newest first.
    Log(LogArguments),
    /// Show what differs between two commits.
    Diff(DiffArguments),
    /// Make a new commit with the files of an earlier one.
    Rollback(RollbackArguments),
    /// Write one file of a commit to a file, or to stdout.
    Get(GetArguments),
    /// Show the rules of a commit: its content.toml, or with -o json also its filesets.
    Rules(RulesArguments),
    /// Say which repository the nodes of a pool follow, and which commit of it they get.
    #[command(after_help = FOLLOW_EXAMPLES)]
    Follow(FollowArguments),
    /// Let the nodes of a pool follow nothing. They offer no class of content then, and sessions go on.
    Unfollow(UnfollowArguments),
    /// Show which commit each node has, and how many sessions run with older ones.
    Status(StatusArguments),
    /// Show how far nodes are; with --restart, close sessions that run with older versions, node by node.
    #[command(after_help = ROLLOUT_EXAMPLES)]
    Rollout(RolloutArguments),
    /// Remove a repository with all its commits. Nodes that follow it keep what they have. Without --yes: say who uses it.
    Remove(RemoveArguments),
}

/// What `content publish --help` ends with.
const PUBLISH_EXAMPLES: &str = r#"A file content.toml at the root says which files belong to which fileset. Without it all files are one fileset, which
every node downloads.

Examples:
  ringctl content publish deploy/classes
  ringctl content publish . --message "counter 2" --dry-run
  # content.toml: pictures are for nodes of the pool gpu, and downloaded by whoever asks
  [[fileset]]
  category = "pictures"
  under = ["shop/media"]
  extensions = ["png", "jpg"]
  eager = false
  pools = ["gpu"]"#;

/// What `content follow --help` ends with.
const FOLLOW_EXAMPLES: &str = r#"Examples:
  # Every node of the pool gets each new commit.
  ringctl content follow main --pool default
  # A tenth of the nodes gets new commits, the others keep this one.
  ringctl content follow main --pool default --commit 0a1b2c3d4e5f --canary 10%"#;

/// What `content rollout --help` ends with.
const ROLLOUT_EXAMPLES: &str = r#"Sessions whose class says disturb = "never" are named and left; with --wait they are waited for.

Examples:
  # Which sessions would be closed?
  ringctl content rollout --dry-run
  # Wait for all nodes of a pool, then close what runs with older versions.
  ringctl content rollout --pool default --wait 10m --restart"#;

/// What every command takes.
#[derive(Args, Debug, Default)]
struct Common {
    #[command(flatten)]
    admin_key: AdminKey,
    /// How long nothing may go on before it is given up.
    #[arg(long, default_value = "30s", value_parser = length_of_time)]
    patience: Duration,
}

/// `content publish`.
#[derive(Args, Debug)]
pub struct PublishArguments {
    /// The folder.
    folder: PathBuf,
    /// The repository; it is made if it is not there.
    #[arg(long, default_value = REPOSITORY, value_parser = repository)]
    repository: RepositoryName,
    /// What to say of the commit.
    #[arg(short, long, default_value = "")]
    message: String,
    /// Who makes it. Default: that of git, else the user's name.
    #[arg(long)]
    author: Option<String>,
    /// How many commits are kept from now on, 1 to 200. Default: as before, or 20. Those that a pool holds stay.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=200))]
    keep: Option<u32>,
    /// Publish also a folder without any class (*.toml), where there were some.
    #[arg(long)]
    allow_no_classes: bool,
    /// Publish also classes with mistakes, which nodes of this version would not use.
    #[arg(long)]
    allow_mistakes: bool,
    /// Store nothing: show what would change.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    common: Common,
}

/// `content list`.
#[derive(Args, Debug)]
pub struct ListArguments {
    /// The repository.
    #[arg(value_parser = repository)]
    repository: Option<RepositoryName>,
    /// The commit. Default: the newest.
    #[arg(long, value_parser = hash)]
    commit: Option<Hash>,
    /// Only files of this fileset.
    #[arg(long)]
    fileset: Option<String>,
    /// Only files whose path begins so.
    #[arg(long, default_value = "", hide_default_value = true)]
    prefix: String,
    #[command(flatten)]
    common: Common,
}

/// `content log`.
#[derive(Args, Debug)]
pub struct LogArguments {
    /// The repository.
    #[arg(default_value = REPOSITORY, value_parser = repository)]
    repository: RepositoryName,
    #[command(flatten)]
    common: Common,
}

/// `content diff`.
#[derive(Args, Debug)]
pub struct DiffArguments {
    /// The earlier commit.
    #[arg(value_parser = hash)]
    from: Hash,
    /// The later one. Default: the newest.
    #[arg(value_parser = hash)]
    to: Option<Hash>,
    /// The repository.
    #[arg(long, default_value = REPOSITORY, value_parser = repository)]
    repository: RepositoryName,
    #[command(flatten)]
    common: Common,
}

/// `content rollback`.
#[derive(Args, Debug)]
pub struct RollbackArguments {
    /// The commit whose files are to be there again.
    #[arg(value_parser = hash)]
    commit: Hash,
    /// The repository.
    #[arg(long, default_value = REPOSITORY, value_parser = repository)]
    repository: RepositoryName,
    /// What to say of the new commit.
    #[arg(short, long, default_value = "")]
    message: String,
    /// Who makes it. Default: the user's name.
    #[arg(long)]
    author: Option<String>,
    /// How many commits are kept from now on, 1 to 200. Default: as before.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=200))]
    keep: Option<u32>,
    #[command(flatten)]
    common: Common,
}

/// `content get`.
#[derive(Args, Debug)]
pub struct GetArguments {
    /// The path of the file in the repository.
    path: String,
    /// Where to: a file, which is there only when it is whole, or - for stdout.
    #[arg(default_value = "-")]
    file: PathBuf,
    /// The repository.
    #[arg(long, default_value = REPOSITORY, value_parser = repository)]
    repository: RepositoryName,
    /// The commit. Default: the newest.
    #[arg(long, value_parser = hash)]
    commit: Option<Hash>,
    /// Replace the file if there is one.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    common: Common,
}

/// `content rules`.
#[derive(Args, Debug)]
pub struct RulesArguments {
    /// The repository.
    #[arg(default_value = REPOSITORY, value_parser = repository)]
    repository: RepositoryName,
    /// The commit. Default: the newest.
    #[arg(long, value_parser = hash)]
    commit: Option<Hash>,
    #[command(flatten)]
    common: Common,
}

/// `content follow`.
#[derive(Args, Debug)]
pub struct FollowArguments {
    /// The repository.
    #[arg(default_value = REPOSITORY, value_parser = repository)]
    repository: RepositoryName,
    /// The pool.
    #[arg(long, default_value = "default", value_parser = pool)]
    pool: PoolName,
    /// The commit that its nodes get. Default: always the newest.
    #[arg(long, value_parser = hash)]
    commit: Option<Hash>,
    /// With --commit: of a hundred nodes, how many get the newest commit all the same, as in 10%.
    #[arg(long, requires = "commit", value_parser = percent)]
    canary: Option<u8>,
    #[command(flatten)]
    common: Common,
}

/// `content unfollow`.
#[derive(Args, Debug)]
pub struct UnfollowArguments {
    /// The pool.
    #[arg(long, default_value = "default", value_parser = pool)]
    pool: PoolName,
    #[command(flatten)]
    common: Common,
}

/// `content status`.
#[derive(Args, Debug)]
pub struct StatusArguments {
    /// Only nodes of this pool.
    #[arg(long, value_parser = pool)]
    pool: Option<PoolName>,
    /// Also name the sessions that run with older versions, at most 1000 of each node.
    #[arg(long)]
    sessions: bool,
    /// Wait for so long until every node has the commit that it should have, or none where its pool follows nothing;
    /// exit code 1 if one does not. Without a time: 10m.
    #[arg(
        long,
        value_name = "TIME",
        num_args = 0..=1,
        default_missing_value = WAIT,
        value_parser = length_of_time
    )]
    wait: Option<Duration>,
    /// How long each node may take to answer.
    #[arg(long, default_value = "5s", value_parser = length_of_time)]
    timeout: Duration,
}

/// `content rollout`.
#[derive(Args, Debug)]
#[group(id = "closing", multiple = true, args = ["restart", "dry_run"])]
pub struct RolloutArguments {
    /// Only nodes of this pool.
    #[arg(long, value_parser = pool)]
    pool: Option<PoolName>,
    /// Close sessions that run with older versions, on each node that has the commit that it should have.
    #[arg(long)]
    restart: bool,
    /// Wait for so long until every node has its commit, and with --restart until sessions that are left have ended;
    /// exit code 1 if that is not so then. Without a time: 10m.
    #[arg(
        long,
        value_name = "TIME",
        num_args = 0..=1,
        default_missing_value = WAIT,
        value_parser = length_of_time
    )]
    wait: Option<Duration>,
    /// Close also sessions whose class says disturb = "never".
    #[arg(long, requires = "closing")]
    force: bool,
    /// Close nothing: show what --restart would close.
    #[arg(long)]
    dry_run: bool,
    /// How long each node may take to answer, and each session to end.
    #[arg(long, default_value = "30s", value_parser = length_of_time)]
    timeout: Duration,
    #[command(flatten)]
    admin_key: AdminKey,
}

impl RolloutArguments {
    /// Whether sessions of older versions are closed, or shown as such.
    fn closes(&self) -> bool {
        self.restart || self.dry_run
    }
}

/// `content remove`.
#[derive(Args, Debug)]
pub struct RemoveArguments {
    /// The repository.
    #[arg(value_parser = repository)]
    repository: RepositoryName,
    /// Needed: all its commits go.
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    common: Common,
}

fn repository(text: &str) -> Result<RepositoryName, String> {
    let name = RepositoryName::parse_new(text).and_then(|it| check_repository(&it).map(|()| it));
    name.map_err(|it| it.problem)
}

fn pool(text: &str) -> Result<PoolName, String> {
    PoolName::parse(text).map_err(|it| it.problem)
}

fn hash(text: &str) -> Result<Hash, String> {
    Hash::parse(text).map_err(|it| it.problem)
}

fn percent(text: &str) -> Result<u8, String> {
    let number = text.strip_suffix('%').unwrap_or(text).parse::<u8>().ok();
    number
        .filter(|it| *it <= 100)
        .ok_or_else(|| "must be a number of percent, as in 10%".to_owned())
}

/// The namespace for configuration.
fn configuration() -> Namespace {
    Namespace::parse("z").expect("z is a name")
}

/// Who makes a commit where nobody says so.
fn user_name() -> String {
    let named = ["USER", "LOGNAME"].into_iter().find_map(|it| std::env::var(it).ok());
    named.unwrap_or_default()
}

/// Runs a command on content.
pub async fn run(command: &ContentCommand, endpoint: &str, out: &mut Out) -> anyhow::Result<()> {
    let client = connect::client(endpoint, out.format())?;
    match command {
        ContentCommand::Publish(it) => {
            Box::pin(connect::told_when_gone(publish::publish(&client, it, out))).await
        }
        ContentCommand::List(it) => {
            Box::pin(connect::told(endpoint, show::list(&client, it, out))).await
        }
        ContentCommand::Log(it) => {
            Box::pin(connect::told(endpoint, show::log(&client, it, out))).await
        }
        ContentCommand::Diff(it) => {
            Box::pin(connect::told(endpoint, show::diff(&client, it, out))).await
        }
        ContentCommand::Rollback(it) => {
            Box::pin(connect::told(endpoint, change::rollback(&client, it, out))).await
        }
        ContentCommand::Get(it) => {
            Box::pin(connect::told_when_gone(show::get(&client, it, out))).await
        }
        ContentCommand::Rules(it) => {
            Box::pin(connect::told(endpoint, rules::rules(&client, it, out))).await
        }
        ContentCommand::Follow(it) => {
            Box::pin(connect::told(endpoint, change::follow(&client, it, out))).await
        }
        ContentCommand::Unfollow(it) => {
            Box::pin(connect::told(endpoint, change::unfollow(&client, it, out))).await
        }
        ContentCommand::Status(it) => {
            Box::pin(connect::told(endpoint, status::status(&client, it, out))).await
        }
        ContentCommand::Rollout(it) => {
            Box::pin(connect::told_when_gone(rollout::rollout(&client, it, out))).await
        }
        ContentCommand::Remove(it) => {
            Box::pin(connect::told(endpoint, change::remove(&client, it, out))).await
        }
    }
}
