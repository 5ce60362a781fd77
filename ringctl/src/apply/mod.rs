//! `ringctl apply`: makes pools be what a file says of them.

mod file;
mod plan;

use crate::connect;
use crate::failure::UsageMistake;
use crate::output::{Format, Out, STANDARD};
use crate::pool::{CallArguments, pools};
use crate::secret::AdminKey;
use crate::source;
use anyhow::Context;
use clap::Args;
use file::Wanted;
use plan::{Action, Plan};
use rota_client::CallError;
use rota_client::pools::SetPool;
use std::path::{Path, PathBuf};
use tokio::io::AsyncReadExt;

/// What `apply --help` ends with.
const EXAMPLE: &str = r#"Example of a file:
  [pool.small]
  provisioner = "process"  # one that managers were started with
  places = 10              # of each node
  max_nodes = 5
  # Also: description, load_limit, policy, min_nodes, warm_places, warm_nodes,
  # scale_in_delay_s, scale_in_below, namespaces, labels, cpu_millis, memory_mib.
  [[pool.small.schedules]]
  at = "D0600"             # each day at 06:00, UTC
  min_nodes = 3            # and/or warm_places or warm_nodes"#;

/// `apply`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLE)]
pub struct ApplyArguments {
    #[command(flatten)]
    admin_key: AdminKey,
    /// TOML with a table [pool.NAME] for each pool, or - for stdin. A field that is left out gets its
    /// default.
    #[arg(short, long)]
    file: PathBuf,
    /// Change nothing, and say what would be changed.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    call: CallArguments,
}

async fn wanted(path: &Path) -> anyhow::Result<Wanted> {
    let place = match path {
        _ if path == Path::new(STANDARD) => "standard input".to_owned(),
        _ => path.display().to_string(),
    };
    let mut text = String::new();
    let read = source::to_read_again(path).await?.read_to_string(&mut text).await;
    read.with_context(|| place.clone())?;
    let pools = file::read(&text).map_err(|mistakes| {
        let each = mistakes.iter().flat_map(|it| it.lines());
        UsageMistake(format!("{place}:{}", each.map(|it| format!("\n  {it}")).collect::<String>()))
    })?;
    Ok(pools)
}

/// Runs the command. Pools that the file does not name are left alone.
pub async fn run(it: &ApplyArguments, endpoint: &str, out: &mut Out) -> anyhow::Result<()> {
    let wanted = wanted(&it.file).await?;
    let pools = pools(&it.admin_key, endpoint, out.format())?;
    let there = connect::told(endpoint, pools.list(it.call.timeout)).await?;
    let plan = Plan { dry_run: it.dry_run, pools: plan::steps(&wanted, &there) };
    let mut applied = Vec::new();
    for (step, (name, settings)) in plan.pools.iter().zip(&wanted) {
        if !it.dry_run && step.action != Action::Unchanged {
            let (name, settings) = (name.clone(), settings.clone());
            let set = SetPool { name, settings, fields: Vec::new(), allow_missing: true };
            let done = Box::pin(pools.set(&set, it.call.timeout));
            let done = connect::told(endpoint, done).await;
            done.map_err(|error| stopped(error, &step.name, &applied, out.format()))?;
            applied.push(&*step.name);
        }
        match out.format() {
            Format::Json => {}
            Format::Table => out.text(&step.told(it.dry_run))?,
        }
    }
    match out.format() {
        Format::Json => out.json(&plan)?,
        Format::Table if plan.pools.is_empty() => eprintln!("the file describes no pool"),
        Format::Table => {}
    }
    Ok(())
}

/// The failure of one pool, with what was applied before it.
fn stopped(error: CallError, name: &str, applied: &[&str], format: Format) -> anyhow::Error {
    let before = if applied.is_empty() { "nothing".to_owned() } else { applied.join(", ") };
    let text = format!("stopped at pool {name}; applied before it: {before}");
    match format {
        // The error document has it.
        Format::Json => {}
        Format::Table => eprintln!("{text}"),
    }
    anyhow::Error::from(error).context(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;
    use rota_client::v1;
    use rota_model::Stamp;
    use std::sync::{Arc, Mutex};
    use tokio_stream::wrappers::TcpListenerStream;
    use tonic::{Request, Response, Status};
    use v1::pools_server::{Pools, PoolsServer};

    /// A manager that has pool `a`, and refuses `c`.
    #[derive(Clone, Default)]
    struct Manager(Arc<Mutex<Vec<v1::SetPoolRequest>>>);

    #[tonic::async_trait]
    impl Pools for Manager {
        async fn list_pools(
            &self,
            _request: Request<v1::ListPoolsRequest>,
        ) -> Result<Response<v1::ListPoolsResponse>, Status> {
            let settings =
                Some(v1::PoolSettings { description: "it".into(), ..Default::default() });
            let version = Stamp::MIN.as_u64();
            let a = v1::PoolInfo { name: "a".into(), settings, version, ..Default::default() };
            Ok(Response::new(v1::ListPoolsResponse { pools: vec![a], more: false }))
        }

        async fn set_pool(
            &self,
            request: Request<v1::SetPoolRequest>,
        ) -> Result<Response<v1::PoolInfo>, Status> {
            let set = request.into_inner();
            let (name, settings) = (set.name.clone(), set.settings.clone());
            let version = Stamp::MIN.as_u64();
            self.0.lock().unwrap().push(set);
            if name == "c" {
                return Err(Status::permission_denied("not that one"));
            }
            Ok(Response::new(v1::PoolInfo { name, settings, version, ..Default::default() }))
        }

        async fn create_pool(
            &self,
            _request: Request<v1::CreatePoolRequest>,
        ) -> Result<Response<v1::PoolInfo>, Status> {
            Err(Status::unimplemented("create"))
        }

        async fn get_pool(
            &self,
            _request: Request<v1::GetPoolRequest>,
        ) -> Result<Response<v1::PoolInfo>, Status> {
            Err(Status::unimplemented("get"))
        }

        async fn delete_pool(
            &self,
            _request: Request<v1::DeletePoolRequest>,
        ) -> Result<Response<v1::DeletePoolResponse>, Status> {
            Err(Status::unimplemented("delete"))
        }
    }

    /// How it ended, what stdout got, and which pools were set.
    struct Ran {
        done: anyhow::Result<()>,
        written: String,
        set: Vec<v1::SetPoolRequest>,
    }

    async fn ran(text: &str, flags: &[&str], format: Format) -> Ran {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = listener.local_addr().unwrap().to_string();
        let manager = Manager::default();
        let server =
            tonic::transport::Server::builder().add_service(PoolsServer::new(manager.clone()));
        tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pools.toml");
        std::fs::write(&file, text).unwrap();
        let line = [&["ringctl", "apply", "-f", file.to_str().unwrap()], flags].concat();
        let Command::Apply(arguments) = Cli::try_parse_from(line).unwrap().command else {
            panic!("another command")
        };
        let (mut out, written) = Out::captured(format);
        let done = Box::pin(run(&arguments, &endpoint, &mut out)).await;
        let set = manager.0.lock().unwrap().clone();
        Ran { done, written: written.text(), set }
    }

    const TWO: &str = "[pool.b]\npolicy = \"spread\"\n[pool.a]\ndescription = \"it\"\n";

    #[tokio::test]
    async fn only_pools_that_differ_are_set_each_with_all_of_its_fields() {
        let ran = ran(TWO, &[], Format::Table).await;
        ran.done.unwrap();
        assert_eq!(ran.written, "pool a: unchanged\npool b: created\n");
        let [set] = &ran.set[..] else { panic!("not one: {:?}", ran.set) };
        assert_eq!((&*set.name, set.fields.len(), set.allow_missing), ("b", 0, true));
        assert_eq!(set.settings.as_ref().unwrap().policy, "spread");
    }

    #[tokio::test]
    async fn a_dry_run_changes_nothing() {
        let told = ran(TWO, &["--dry-run"], Format::Table).await;
        told.done.unwrap();
        assert_eq!(told.written, "pool a: unchanged\npool b: would be created\n");
        let json = ran(TWO, &["--dry-run"], Format::Json).await;
        assert!(json.written.starts_with("{\"dry_run\":true,\"pools\":[{\"name\":\"a\","));
        assert_eq!((told.set.len(), json.set.len()), (0, 0));
    }

    #[tokio::test]
    async fn the_first_failure_stops_and_tells_what_was_applied_before() {
        let text = format!("{TWO}[pool.c]\n[pool.d]\n");
        let table = ran(&text, &[], Format::Table).await;
        assert_eq!(table.written, "pool a: unchanged\npool b: created\n");
        let error = table.done.unwrap_err();
        assert_eq!(error.to_string(), "stopped at pool c; applied before it: b");
        assert!(error.downcast_ref::<CallError>().is_some(), "{error:#}");
        assert!(table.set.iter().all(|it| it.name != "d"), "{:?}", table.set);
        let json = ran("[pool.c]\n", &[], Format::Json).await;
        let text = json.done.unwrap_err().to_string();
        assert!(text.ends_with("applied before it: nothing") && json.written.is_empty(), "{text}");
    }

    #[tokio::test]
    async fn mistakes_of_the_file_are_told_before_anybody_is_asked() {
        let ran = ran("[pool.a]\nsize = 3\n[pool.b]\nmin_nodes = 1\n", &[], Format::Table).await;
        let error = ran.done.unwrap_err();
        assert!(crate::failure::is_usage(&error), "{error}");
        let text = error.to_string();
        for says in ["pools.toml:\n  pool a: size is no field", "\n  pool b: min_nodes starts"] {
            assert!(text.contains(says), "{text}");
        }
    }

    #[test]
    fn a_file_is_needed_and_may_be_standard_input() {
        assert!(Cli::try_parse_from(["ringctl", "apply"]).is_err());
        let cli = Cli::try_parse_from(["ringctl", "apply", "--file", "-", "--dry-run"]).unwrap();
        let Command::Apply(arguments) = cli.command else { panic!("another command") };
        assert!(arguments.file == Path::new(STANDARD) && arguments.dry_run);
    }
}
