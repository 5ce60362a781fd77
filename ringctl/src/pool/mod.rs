//! Pools of nodes: `ringctl pool …`.

mod flags;
mod schedules;
mod show;

use crate::connect;
use crate::failure::UsageMistake;
use crate::length_of_time::length_of_time;
use crate::output::{Format, Out};
use crate::secret::AdminKey;
use clap::{Args, Subcommand};
use flags::SettingFlags;
use rota_client::docstore::codes;
use rota_client::pools::PoolState;
use rota_client::{CallError, Client, Pools};
use rota_model::{PoolName, Refusal, RefusalKind, Retry};
use show::{Deleted, Shown, ShownAll};
use std::time::Duration;

/// What to do with pools.
#[derive(Subcommand, Debug)]
pub enum PoolCommand {
    /// Describe a pool. Repeating it with the same options changes nothing.
    Create(CreateArguments),
    /// List the pools: those that are described, and those of which nodes say that they are.
    List(CallArguments),
    /// Show one pool: its settings, its nodes, and what was ordered.
    Show(OneArguments),
    /// Change settings of a pool; what is not given stays.
    Set(SetArguments),
    /// Take the description of a pool away. Refused while nodes of it are there, may come, or are not ended.
    Delete(OneArguments),
}

/// `pool`.
#[derive(Args, Debug)]
pub struct PoolArguments {
    #[command(flatten)]
    admin_key: AdminKey,
    #[command(subcommand)]
    command: PoolCommand,
}

/// How long to wait.
#[derive(Args, Debug)]
pub struct CallArguments {
    /// How long the answer may take.
    #[arg(long, default_value = "10s", value_parser = length_of_time)]
    pub timeout: Duration,
}

/// `pool show`, `pool delete`.
#[derive(Args, Debug)]
pub struct OneArguments {
    /// The pool: 1 to 255 bytes, no control characters.
    #[arg(value_parser = pool)]
    name: PoolName,
    #[command(flatten)]
    call: CallArguments,
}

/// `pool create`.
#[derive(Args, Debug)]
pub struct CreateArguments {
    #[command(flatten)]
    one: OneArguments,
    #[command(flatten)]
    flags: SettingFlags,
}

/// `pool set`.
#[derive(Args, Debug)]
#[group(id = "changes", required = true, multiple = true, args = [
    "description", "provisioner", "places", "load_limit", "policy", "min_nodes", "max_nodes",
    "warm_places", "warm_nodes", "scale_in_delay_s", "scale_in_below", "namespaces", "labels", "cpu_millis", "memory_mib",
    "schedules", "no_schedules",
])]
pub struct SetArguments {
    #[command(flatten)]
    one: OneArguments,
    #[command(flatten)]
    flags: SettingFlags,
}

fn pool(text: &str) -> Result<PoolName, String> {
    PoolName::parse_new(text).map_err(|error| error.problem)
}

/// The pools of a cluster, with the administrator's key if there is one.
pub fn pools(key: &AdminKey, endpoint: &str, format: Format) -> anyhow::Result<Pools> {
    let key = key.get()?;
    let pools = connect::client(endpoint, format)?.pools().with_admin_key(&key);
    Ok(pools.map_err(|error| UsageMistake(error.to_string()))?)
}

/// Refuses the name of a pool that is not there: it is not described, and no node is or was of it. The default pool is
/// always there, also before its first node.
pub async fn check_there(client: &Client, name: &PoolName, wait: Duration) -> anyhow::Result<()> {
    if *name == PoolName::default_pool() {
        return Ok(());
    }
    let Err(error) = client.pools().get(name, wait).await else { return Ok(()) };
    if error.reason() != codes::DOCUMENT.as_str() {
        return Err(error.into());
    }
    // A node that is lost is of its pool all the same.
    let nodes = client.inspect(wait).await?.nodes;
    if nodes.iter().any(|it| it.pool == name.as_str()) { Ok(()) } else { Err(not_there(name)) }
}

fn not_there(name: &PoolName) -> anyhow::Error {
    let text = format!(
        "there is no pool {name}: it is not described, and no node says that it is of it; `ringctl pool list` shows \
         those that are there"
    );
    let refusal = Box::new(Refusal::new(RefusalKind::NotFound, Retry::WhenChanged, text));
    // No manager said it so.
    CallError::Refused { refusal, endpoint: String::new(), attempts: 0 }.into()
}

/// Runs a command on pools.
pub async fn run(it: &PoolArguments, endpoint: &str, out: &mut Out) -> anyhow::Result<()> {
    let pools = &pools(&it.admin_key, endpoint, out.format())?;
    let state = match &it.command {
        PoolCommand::Create(it) => {
            let create = flags::create(&it.one, &it.flags)?;
            connect::told(endpoint, Box::pin(pools.create(&create, it.one.call.timeout))).await
        }
        PoolCommand::Set(it) => {
            let set = flags::set(&it.one, &it.flags)?;
            connect::told(endpoint, Box::pin(pools.set(&set, it.one.call.timeout))).await
        }
        PoolCommand::Show(it) => {
            connect::told(endpoint, pools.get(&it.name, it.call.timeout)).await
        }
        PoolCommand::List(it) => {
            let states = connect::told(endpoint, pools.list(it.timeout)).await?;
            return list(&states, out);
        }
        PoolCommand::Delete(it) => {
            let existed = connect::told(endpoint, pools.delete(&it.name, it.call.timeout)).await?;
            return deleted(&Deleted { name: it.name.as_str().to_owned(), existed }, out);
        }
    };
    show_one(&state?, out)
}

/// Says on stderr why it is not shown what was ordered.
fn note_unknown<'a>(mut states: impl Iterator<Item = &'a PoolState>) {
    if let Some((name, why)) = states.find_map(|it| Some((&it.name, it.orders.as_ref().err()?))) {
        eprintln!("{}", orders_unknown(name, why));
    }
}

fn orders_unknown(name: &PoolName, why: &str) -> String {
    format!("what was ordered for pool {name} is not known, as its owner could not be asked: {why}")
}

fn show_one(state: &PoolState, out: &mut Out) -> anyhow::Result<()> {
    note_unknown(std::iter::once(state));
    if !state.warning.is_empty() {
        eprintln!("warning: pool {}: {}", state.name, state.warning);
    }
    let shown = Shown::of(state);
    match out.format() {
        Format::Json => out.json(&shown)?,
        Format::Table => out.table(&show::one(&shown))?,
    }
    Ok(())
}

fn list(states: &[PoolState], out: &mut Out) -> anyhow::Result<()> {
    note_unknown(states.iter());
    let all: Vec<Shown> = states.iter().map(Shown::of).collect();
    match out.format() {
        Format::Json => out.json(&ShownAll { pools: all })?,
        Format::Table => out.table(&show::many(&all))?,
    }
    Ok(())
}

fn deleted(it: &Deleted, out: &mut Out) -> anyhow::Result<()> {
    match out.format() {
        Format::Json => out.json(it)?,
        Format::Table => out.text(&show::deleted(it))?,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;

    #[tokio::test]
    async fn a_pool_that_cannot_be_is_refused_without_a_manager() {
        let line = ["ringctl", "pool", "create", "small", "--provisioner", "process"];
        let Command::Pool(arguments) = Cli::try_parse_from(line).unwrap().command else {
            panic!("another command")
        };
        let (mut out, written) = Out::captured(Format::Table);
        let error = run(&arguments, "127.0.0.1:1", &mut out).await.unwrap_err();
        assert!(crate::failure::is_usage(&error), "{error}");
        let text = error.to_string();
        assert!(text.contains("--places is needed") && text.contains("--max-nodes is"), "{text}");
        assert_eq!(written.text(), "");
    }

    #[test]
    fn what_was_deleted_is_told_with_whether_it_was_there() {
        for (existed, text) in
            [(true, "deleted pool small\n"), (false, "pool small was not described\n")]
        {
            let it = Deleted { name: "small".to_owned(), existed };
            let (mut out, written) = Out::captured(Format::Table);
            deleted(&it, &mut out).unwrap();
            assert_eq!(written.text(), text);
            let (mut out, written) = Out::captured(Format::Json);
            deleted(&it, &mut out).unwrap();
            assert_eq!(written.text(), format!("{{\"name\":\"small\",\"existed\":{existed}}}\n"));
        }
    }
}
