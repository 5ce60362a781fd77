//! A whole cluster of real processes on one machine: `ringctl dev`, and the ground under `bench`.
//!
//! ```text
//!   Settings ─▶ Layout (DIR/dev.json) ─▶ Ports ─▶ Family: store ─▶ managers, node-agents ─▶ ready
//!                                                   │ every child and orphan below us is reaped here
//!                                                   └─▶ ending: agents, managers, store, KILL the rest
//! ```
//!
//! Ports from `--port-base B` on, all on 127.0.0.1: managers' gRPC at B, B+1, …; then their HTTP;
//! then the nodes; then the config store (a Consul agent takes two more). Nodes that a pool starts later take free ports.
//! Folders: DIR/managers/ID, DIR/nodes/ID, DIR/store, DIR/pool, DIR/logs/NAME.log. DIR/processes.json
//! says what was started, for a later run that must not begin beside what is left of this one.

mod cluster;
mod consul;
mod descendants;
mod document;
mod earlier;
mod ending;
mod engine;
mod family;
mod launch;
mod layout;
mod members;
mod pool;
mod ports;
mod programs;
mod readiness;

pub use cluster::Cluster;
pub use document::{Document, ManagerProcess};
pub use family::Family;
pub use layout::Settings;
pub use programs::shipped_classes;

use crate::output::{Format, Out, plain_table};
use anyhow::Context;
use clap::Args;
use rota_daemon::Stop;
use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;

/// `dev`.
#[derive(Args, Debug, Clone, Default)]
pub struct DevArguments {
    /// How many managers, evenly spread over the slots [default: 3].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub managers: Option<u32>,
    /// Successors of each manager that hold copies of its sessions [default: 2].
    #[arg(long, value_parser = clap::value_parser!(u32).range(0..=99))]
    pub replicas: Option<u32>,
    /// How many nodes are started [default: 1].
    #[arg(long, value_parser = clap::value_parser!(u32).range(0..=100))]
    pub nodes: Option<u32>,
    /// Where everything is kept. Started again with the same folder, the cluster has its records
    /// and documents again; sessions that ran are closed (DRAINED), or LOST if they were killed.
    /// Without it: a temporary folder that is removed at the end.
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// First port: managers' gRPC from here on, then their HTTP, then nodes, then the config
    /// store. 0 takes free ones [default: 7400].
    #[arg(long, value_name = "PORT")]
    pub port_base: Option<u16>,
    /// Places of each node [default: 1000]. A node takes no more sessions from 0.8 of them on.
    #[arg(long, value_name = "P", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub places: Option<u32>,
    /// Folder of class files [default: deploy/classes of the checkout; elsewhere `classes` of the data
    /// folder, which gets the machines builtin, counter and traffic-light].
    #[arg(long, value_name = "DIR")]
    pub classes: Option<PathBuf>,
    /// Lets managers start more nodes when all are full, up to this many in all [default: none].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub max_nodes: Option<u32>,
    /// A program that starts nodes, for pools that name it (`ringctl pool create --provisioner NAME`); every manager
    /// gets it. May be given several times. The folder keeps them until others are given.
    #[arg(long = "provision-command", value_name = "NAME=PROGRAM")]
    pub provision_commands: Vec<String>,
    /// Slots of the ring [default: 1024].
    #[arg(long, value_name = "M", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub slots: Option<u32>,
    /// Take a Consul agent of this cluster's own as the config store, and register everybody
    /// there. A folder that was made so stays so.
    #[arg(long)]
    pub consul: bool,
    /// What keeps the managers' records: files of their folders, or a schema for each in one PostgreSQL server
    /// [default: log]. A folder that was made so stays so; the schemas stay when the folder goes.
    #[arg(long, value_enum, value_name = "ENGINE")]
    pub engine: Option<engine::EngineName>,
    /// File with the server's URL, postgresql://USER:PASSWORD@HOST:PORT/DATABASE. Nobody else may be able to read
    /// it.
    #[arg(long, value_name = "FILE")]
    pub engine_url_file: Option<PathBuf>,
    /// File that declares fields of documents for every manager, as TOML: `[Cart.Line]` and below it
    /// `article = "string"`. The folder keeps it until another is given.
    #[arg(long, value_name = "FILE")]
    pub fields_file: Option<PathBuf>,
    /// An option for every manager, such as `--manager-option=--no-session-numbers`. May be given
    /// more than once. `rota-manager --help` tells which there are. Those of the last start with a folder are kept
    /// unless others are given.
    #[arg(long, value_name = "FLAG[=VALUE]", allow_hyphen_values = true)]
    pub manager_option: Vec<String>,
}

impl From<&DevArguments> for Settings {
    fn from(it: &DevArguments) -> Self {
        Self {
            managers: it.managers,
            replicas: it.replicas,
            nodes: it.nodes,
            slots: it.slots,
            data: it.data.clone(),
            port_base: it.port_base,
            places: it.places,
            classes: it.classes.clone(),
            max_nodes: it.max_nodes,
            provision_commands: it.provision_commands.clone(),
            consul: it.consul,
            engine: it.engine,
            engine_url_file: it.engine_url_file.clone(),
            fields_file: it.fields_file.clone(),
            managers_max: None,
            manager_options: it.manager_option.clone(),
            suspect_ms: None,
        }
    }
}

/// Runs `work` on a cluster of its own, and ends the cluster whatever came of it.
pub async fn with_cluster<T>(
    settings: &Settings,
    work: impl AsyncFnOnce(&mut Cluster) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    Ground::found()?.with_cluster(settings, work).await
}

/// What clusters stand on that follow each other. Once per process.
pub struct Ground {
    stop: Stop,
    family: Family,
}

impl Ground {
    /// From here on signals end clusters and not this process by itself.
    pub fn found() -> anyhow::Result<Self> {
        let stop = Stop::whatever_ends().context("cannot listen for signals")?;
        let family = Family::found().context("cannot become the reaper of orphans")?;
        Ok(Self { stop, family })
    }

    /// Runs `work` on a cluster, and ends the cluster whatever came of it.
    pub async fn with_cluster<T>(
        &mut self,
        settings: &Settings,
        work: impl AsyncFnOnce(&mut Cluster) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let Self { stop, family } = self;
        let done = async {
            let mut cluster = Cluster::start(settings, family).await?;
            work(&mut cluster).await
        };
        let result = tokio::select! {
            result = Box::pin(done) => result,
            _ = stop.wished() => Err(anyhow::anyhow!("stopped by a signal")),
        };
        let ended = ending::end(family, &settings.folder(), stop).await;
        settings.leave_folder(family);
        // What ended here is none of the next cluster's.
        family.forget_ended();
        ended.and(result)
    }
}

/// Runs a cluster until it is told to stop.
pub async fn run(it: &DevArguments, out: &mut Out) -> anyhow::Result<()> {
    let settings = Settings::from(it);
    let Ground { mut stop, family } = Ground::found()?;
    let started = tokio::select! {
        started = Box::pin(Cluster::start(&settings, &family)) => Some(started),
        _ = stop.wished() => None,
    };
    let done = match started {
        Some(Ok(cluster)) => {
            match show(cluster.document(), cluster.classes(), out, &mut std::io::stderr()) {
                // A reader that went away does not end the cluster: it was started to run.
                Err(error) if !crate::output::is_broken_pipe(&error) => Err(error),
                Ok(()) | Err(_) => {
                    family.announce_endings();
                    stop.wished().await;
                    Ok(())
                }
            }
        }
        Some(Err(error)) => Err(error),
        None => Err(anyhow::anyhow!("stopped before it was ready")),
    };
    let ended = ending::end(&family, &settings.folder(), &mut stop).await;
    settings.leave_folder(&family);
    ended.and(done)
}

/// What runs goes to stdout; for people, what to do next goes to `hints`.
fn show(
    document: &Document,
    classes: &BTreeSet<String>,
    out: &mut Out,
    hints: &mut dyn Write,
) -> anyhow::Result<()> {
    if out.format() == Format::Json {
        return Ok(out.json(document)?);
    }
    let mut table = plain_table(["PROCESS", "GRPC", "HTTP", "PID"]);
    for it in &document.managers {
        let name = format!("manager {} ({})", it.number, it.id);
        table.add_row([name, it.grpc.clone(), it.http.clone(), it.pid.to_string()]);
    }
    for it in &document.nodes {
        let name = format!("node {}", it.id);
        table.add_row([name, it.address.clone(), String::new(), it.pid.to_string()]);
    }
    let store = &document.config_store;
    let name = "config store".to_owned();
    table.add_row([name, store.address.clone(), String::new(), store.pid.to_string()]);
    out.table(&table)?;
    let Document { cluster, data, .. } = document;
    out.text(&format!("\ncluster {cluster}, data and logs in {data}\n"))?;
    // A terminal that went away does not end the cluster.
    let _told = write!(
        hints,
        "ready; Ctrl-C ends everything. In another terminal:\n  export ROTA_ENDPOINT={}\n  {}\n",
        document.endpoints(),
        first_step(classes),
    );
    Ok(())
}

/// What to begin with: a session of a class that there is. Nothing is known of those of nodes that
/// are started later.
fn first_step(classes: &BTreeSet<String>) -> String {
    let counter = classes.get("counter");
    match counter.or(classes.first()) {
        Some(class) => format!("ringctl session open demo --class {class}"),
        None => "ringctl inspect".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_step_is_a_session_of_a_class_that_there_is() {
        let of =
            |classes: &[&str]| first_step(&classes.iter().map(|it| (*it).to_owned()).collect());
        assert!(of(&["builtin", "counter", "http"]).ends_with("--class counter"));
        assert!(of(&["mine", "others"]).ends_with("--class mine"));
        assert_eq!(of(&[]), "ringctl inspect");
    }

    fn shown(format: Format) -> (String, String) {
        let manager = ManagerProcess { grpc: "127.0.0.1:7".to_owned(), ..Default::default() };
        let document = Document {
            cluster: "dev-1".to_owned(),
            managers: vec![manager],
            data: "/d".to_owned(),
            ..Default::default()
        };
        let ((mut out, written), mut hints) = (Out::captured(format), Vec::new());
        show(&document, &BTreeSet::new(), &mut out, &mut hints).unwrap();
        (written.text(), String::from_utf8(hints).unwrap())
    }

    #[test]
    fn what_runs_goes_to_stdout_and_what_to_do_next_to_stderr() {
        let (data, hints) = shown(Format::Table);
        assert!(
            data.starts_with("PROCESS") && data.ends_with("\ncluster dev-1, data and logs in /d\n"),
            "{data}"
        );
        assert!(hints.contains("export ROTA_ENDPOINT=127.0.0.1:7\n"), "{hints}");
        let (data, hints) = shown(Format::Json);
        assert_eq!((data.lines().count(), hints.as_str()), (1, ""));
    }
}
