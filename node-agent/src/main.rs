//! The node-agent: runs sessions on one machine for the managers of a cluster.
//!
//! ```text
//!  managers ── calls ──▶ rpc ──▶ mailbox ──▶ agent (owns rota_node::Node) ──▶ runtime
//!           ◀─ answers ─────────────────────┘ │                               │  machines, here
//!           ◀─ register, renew, report ── managers                            │  programs:
//!  clients of machines ── Send ──▶ rpc ──▶ mailbox            keeper process ◀┘
//!                                                             program, own process group
//! ```
//! Beside it runs a guardian process, for the case that this one and keepers are killed. `journal` has what the next
//! agent goes on from, and `resume` decides whether this one does. `offer` leaves out classes
//! whose program is not there, `class_folder` finds their actions, `actions` runs these, and `disk_reserve` keeps sessions away while the disk is nearly full.

mod actions;
mod agent;
mod boots;
mod catalog;
mod class_folder;
mod clean;
mod cli;
mod content;
mod data_folder;
mod discovery;
mod disk_reserve;
mod files;
mod guardian;
mod journal;
mod keeper;
mod kept_output;
mod lease;
mod leaving;
mod leftovers;
mod limits;
mod looking;
mod machine;
mod mailbox;
mod managers;
mod mark;
mod observe;
mod offer;
mod output_files;
mod ports;
mod reload;
mod resume;
mod rpc;
mod runtime;
mod sandbox;
mod session_folders;
mod session_log;
mod settings;

use actions::Actions;
use agent::{Agent, Parts};
use anyhow::Context;
use boots::Boots;
use catalog::Catalog;
use clap::Parser;
use cli::{Cli, Command, RunArgs};
use content::{ContentStatus, Following};
use data_folder::DataFolder;
use discovery::Discovery;
use disk_reserve::DiskReserve;
use guardian::GuardianLink;
use journal::Journal;
use kept_output::Outputs;
use limits::Limiter;
use mailbox::{Event, Mailbox};
use observe::{Listing, Observer, READERS_MAX};
use resume::Resumed;
use rota_content::Viewer;
use rota_daemon::{
    HangUp, LogArguments, LogFormat, Stop, announce, outlive_stop_signals, raise_open_files,
    refuse, say_fatal,
};
use rota_model::address::join;
use rota_model::{BootId, ClusterName, NodeId, PoolName};
use rota_node::{Node, NodeConfig};
use runtime::{InUse, Keepers, ProgramSettings, Runtime, groups_in};
use rustix::process::{getpid, set_child_subreaper};
use sandbox::Sandboxes;
use serde_json::json;
use settings::Settings;
use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;

/// Of this process, in what it says when it ends.
const NAME: &str = "rota-node-agent";

fn main() -> ExitCode {
    clean::at_start();
    match Cli::parse().command {
        Command::Keeper(log) => beside(&log, keeper::run),
        Command::Guardian(log) => beside(&log, guardian::run),
        Command::Once(log) => beside(&log, keeper::once::run),
        Command::First(args) => ExitCode::from(keeper::run_first(&args)),
        Command::Exec(args) => ExitCode::from(keeper::become_program(&args)),
        Command::Run(args) => start(&args),
        Command::Check(args) => match settings::check_classes(&args.classes) {
            Ok(classes) => {
                if classes.is_empty() {
                    eprintln!("no class files (*.toml) in {}", args.classes.display());
                }
                classes.values().for_each(|it| println!("{} {}", it.name, it.text.digest));
                for (name, why) in offer::missing(&classes) {
                    eprintln!("class {name}: {why}; a node here does not offer it");
                }
                ExitCode::SUCCESS
            }
            Err(mistakes) => refuse(NAME, LogFormat::Text, &mistakes),
        },
    }
}

/// A process beside the node's own, with the log that the node handed on. Programs are ended in time
/// whatever the disk does on which that log is. Who stops the whole service at once tells these processes
/// too, and they stay until what they guard is over: a program has its grace only while its keeper lives.
fn beside(log: &LogArguments, run: fn() -> anyhow::Result<()>) -> ExitCode {
    if let Err(error) = outlive_stop_signals() {
        return report(Err(error.into()), log.asked_format());
    }
    match log.check() {
        Ok(log) => {
            let _last_lines = log.install_without_waiting();
            report(run().map(|()| true), log.format())
        }
        Err(mistakes) => refuse(NAME, log.asked_format(), &mistakes),
    }
}

fn report(result: anyhow::Result<bool>, format: LogFormat) -> ExitCode {
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            say_fatal(NAME, format, &format_args!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Starts a node and runs it.
fn start(args: &RunArgs) -> ExitCode {
    let format = args.log.asked_format();
    let prepare = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listening = {
            let _in_runtime = runtime.enter();
            HangUp::listen()
        };
        anyhow::Ok((runtime, listening.context("cannot listen for signals")?))
    };
    // Before anything that takes time: a reload that comes early must not end this process.
    let (runtime, hang_up) = match prepare() {
        Ok(prepared) => prepared,
        Err(error) => return report(Err(error), format),
    };
    match settings::check(args) {
        Ok(settings) => {
            settings.log.install();
            report(run(settings, runtime, hang_up), format)
        }
        Err(mistakes) => refuse(NAME, format, &mistakes),
    }
}

/// Runs the node until it is told to leave. True when nothing is left running.
fn run(
    mut settings: Settings,
    runtime: tokio::runtime::Runtime,
    hang_up: HangUp,
) -> anyhow::Result<bool> {
    clean::shut_memory();
    // Before the folder is claimed and what an earlier run left is ended: a start that fails for
    // its port changes nothing.
    let places = resume::listen(settings.listen, &settings.data);
    let listener = runtime
        .block_on(TcpListener::bind(&places[..]))
        .with_context(|| format!("cannot listen on {} (--listen)", settings.listen))?;
    let http = settings.http.map(|http| {
        let bound = runtime.block_on(TcpListener::bind(http));
        bound.with_context(|| format!("cannot listen on {http} (--http)"))
    });
    let http = http.transpose()?;
    let best = settings.ability.best();
    sandbox::way::make(&settings.data, best)?;
    let folder = DataFolder::open(&settings.data, &settings.config.node, &settings.cluster)?;
    sandbox::way::open(folder.path(), best)?;
    // Programs whose keepers are killed become children of this process, so that it can end them.
    set_child_subreaper(Some(getpid())).context("cannot become a subreaper")?;
    let address = join(&settings.host, listener.local_addr()?.port());
    settings.begin_with_content(folder.path());
    let boots = Boots::open(folder.path()).context("cannot read the count of boots")?;
    let resumed = resume::resume(&folder, &boots, &settings.config, &address);
    let spare = resumed.as_ref().map(|it| it.spare.clone()).unwrap_or_default();
    let ended = leftovers::end_all(folder.path(), &spare)?;
    if ended.sessions > 0 {
        tracing::warn!(sessions = ended.sessions, "ended what an earlier run had left");
    }
    if let Some(outgoing) = settings.ports.shared_with_outgoing() {
        tracing::warn!(
            session_ports = %settings.ports, %outgoing,
            "outgoing connections of this machine may take ports of --session-ports before programs do"
        );
    }
    // A session takes about five descriptors.
    let open_files = raise_open_files();
    // Before the guardian is started: in version 2, everything of the agent must be in the group below its own.
    let limiter = Limiter::look(folder.path(), &groups_in(&spare));
    let gone = runtime.block_on(async {
        let keepers = Keepers::default();
        let lease_ms_max = settings.config.timing.lease_kill_ms;
        let guardian = GuardianLink::start(folder.path(), lease_ms_max, &keepers, &settings.log)?;
        let start = Start {
            folder: &folder,
            hang_up,
            open_files,
            limiter,
            keepers,
            boots,
            resumed,
            address,
        };
        let gone = serve(settings, (listener, http), start).await;
        // What is left to the next agent is guarded until that one comes.
        if !gone.as_ref().is_ok_and(|it| it.left_running) {
            guardian.leave().await;
        }
        gone
    })?;
    if gone.left_running {
        // What is dropped is stopped, or waited for.
        std::mem::forget(runtime);
    } else {
        // Nothing that still waits (a connection, a file being removed) may hold up the end.
        runtime.shutdown_background();
    }
    gone.refused.map_or(Ok(gone.clean), |why| Err(anyhow::anyhow!(why)))
}

/// What a start prepared before it serves.
struct Start<'a> {
    folder: &'a DataFolder,
    hang_up: HangUp,
    /// The limit of open files before it was raised.
    open_files: Option<u64>,
    limiter: Limiter,
    keepers: Keepers,
    boots: Boots,
    /// The boot that goes on, if one does.
    resumed: Option<Resumed>,
    /// Where managers reach this node.
    address: String,
}

/// What other parts of this process show to operators. Pages are served until the process ends.
fn observer(
    settings: &Settings,
    folder: &DataFolder,
    http: Option<TcpListener>,
) -> anyhow::Result<(Observer, Option<String>)> {
    let observer = Observer {
        cluster: settings.cluster.clone(),
        node: settings.config.node.clone(),
        sessions: folder.sessions(),
        folders_kept_max: settings.folders_kept_max,
        listing: Listing::default(),
        content: ContentStatus::default(),
        readers: Arc::new(Semaphore::new(READERS_MAX)),
        looks: Arc::new(Semaphore::new(1)),
    };
    let Some(http) = http else { return Ok((observer, None)) };
    let port = http.local_addr()?.port();
    let shares = (observer.readers.clone(), observer.looks.clone());
    let names = settings.http_names.clone();
    tokio::spawn(observe::serve_pages(http, observer.listing.clone(), shares, names));
    Ok((observer, Some(join(&settings.host, port))))
}

async fn serve(
    mut settings: Settings,
    (listener, http): (TcpListener, Option<TcpListener>),
    start: Start<'_>,
) -> anyhow::Result<leaving::Gone> {
    let Start { folder, hang_up, open_files, limiter, keepers, boots, resumed, address } = start;
    let timing = settings.config.timing;
    let sandboxes = Sandboxes::new(&settings.ability, lease::boottime_us())?;
    say_what_programs_are_kept_from(&settings, &sandboxes);
    let (sandbox, (observer, http)) = (sandboxes.best, observer(&settings, folder, http)?);
    let (mailbox, events) = Mailbox::new();
    let catalog = catalog(&mut settings, mailbox.clone())?;
    let following = following(&settings, folder, &catalog, &observer)?;
    let (outputs, printed) = Outputs::new();
    let programs = ProgramSettings {
        data: folder.path().to_owned(),
        lease: folder.lease(),
        sessions: folder.sessions(),
        host: settings.host,
        ip: settings.listen.ip(),
        ports: settings.ports,
        output_bytes_max: settings.output_bytes_max,
        disk_reserve_bytes: settings.disk_reserve_bytes,
        lease_grace_ms: timing.lease_kill_ms - timing.lease_term_ms,
        lease_ms_max: timing.lease_kill_ms,
        env_pass: settings.env_pass,
        sandboxes,
        open_files,
        limiter,
        actions: Actions::new(settings.actions),
        in_use: InUse::default(),
        outputs: outputs.clone(),
        keepers,
        listing: observer.listing.clone(),
        log: settings.log,
    };
    let (boots, Resumed { node, spare }) = begin(boots, resumed, settings.config)?;
    let (id, boot) = (node.config().node.clone(), node.config().boot);
    let (adopts, kept) = (node.live().count(), (settings.folders_kept_max, &spare));
    let named = (&settings.cluster, &settings.pool);
    let discovery = discovery(settings.consul.as_ref(), named, node.config(), &address)?;
    let offered = catalog.classes();
    let runtime = Runtime::new(offered, programs, kept, address.clone(), mailbox.clone());
    let agent = Agent::new(Parts {
        node,
        runtime,
        cluster: settings.cluster.clone(),
        address: address.clone(),
        pool: settings.pool,
        sandbox,
        seeds: settings.managers,
        lease: folder.lease(),
        discovery,
        boots,
        journal: Journal::new(folder.path(), &address),
        mailbox: mailbox.clone(),
        disk: DiskReserve::new(folder.path().to_owned(), settings.disk_reserve_bytes),
    });
    leave_on_signals(mailbox.clone())?;
    reload::on_hang_up(hang_up, settings.classes_folder, catalog);
    start_beside(&agent, &id, following, printed)?;
    let server = tokio::spawn(answer(listener, settings.cluster, mailbox, observer));
    tracing::info!(%id, %boot, address, "listening");
    announce(&json!({
        "ready": true, "id": id.as_str(), "address": address, "pid": std::process::id(), "boot": boot.0,
        "sandbox": sandbox.as_str(), "disk_free_bytes": disk_reserve::free_bytes(folder.path()).ok(),
        "disk_reserve_bytes": settings.disk_reserve_bytes, "http": http, "adopts": adopts
    }));
    let gone = agent.run(events).await;
    outputs.sent().await;
    server.abort();
    Ok(gone)
}

/// What goes on beside the agent: it follows content, and sends what programs printed last.
fn start_beside(
    agent: &Agent,
    node: &NodeId,
    following: Option<Following>,
    printed: kept_output::Queue,
) -> anyhow::Result<()> {
    kept_output::start(printed, node.clone(), agent.known_managers());
    following.map_or(Ok(()), |it| content::start(it, agent.known_managers()))
}

/// Answers managers and clients until it is ended.
async fn answer(listener: TcpListener, cluster: ClusterName, mailbox: Mailbox, observer: Observer) {
    if let Err(error) = rpc::serve(listener, cluster, mailbox, observer).await {
        tracing::error!(%error, "the gRPC server ended");
    }
}

/// Where the node registers besides the managers, if it is to.
fn discovery(
    consul: Option<&rota_membership::ConsulAddress>,
    (cluster, pool): (&ClusterName, &PoolName),
    config: &NodeConfig,
    address: &str,
) -> anyhow::Result<Option<Discovery>> {
    let places = config.offers.places;
    consul.map(|it| Discovery::start(it, cluster, &config.node, pool, places, address)).transpose()
}

/// What is offered at the start.
fn catalog(settings: &mut Settings, mailbox: Mailbox) -> anyhow::Result<Catalog> {
    // Programs are told where their class lies, whatever their own folder is.
    let root = settings.classes_folder.as_ref().map(std::path::absolute).transpose()?;
    let (content, content_root) = std::mem::take(&mut settings.content);
    Ok(Catalog::new(
        (settings.offer.classes.clone(), root),
        (content.classes, content_root),
        settings.ability.clone(),
        mailbox,
    ))
}

/// Who follows the content of the node's pool, unless nobody is to.
fn following(
    settings: &Settings,
    folder: &DataFolder,
    catalog: &Catalog,
    observer: &Observer,
) -> anyhow::Result<Option<Following>> {
    let Some(every) = settings.content_every else { return Ok(None) };
    let (pool, labels) = (settings.pool.clone(), settings.config.labels.clone());
    Ok(Some(Following {
        // Versions are compared by their paths.
        data: folder.path().canonicalize()?,
        viewer: Viewer { pool, labels },
        node: settings.config.node.clone(),
        catalog: catalog.clone(),
        listing: observer.listing.clone(),
        status: observer.content.clone(),
        every,
        disk_reserve_bytes: settings.disk_reserve_bytes,
    }))
}

/// The boot that goes on, or the next one with nothing running.
fn begin(
    mut boots: Boots,
    resumed: Option<Resumed>,
    config: NodeConfig,
) -> anyhow::Result<(Boots, Resumed)> {
    if let Some(resumed) = resumed {
        return Ok((boots, resumed));
    }
    boots.unproven().iter().for_each(say_what_is_unproven);
    let (boot, ended_boots) = boots.next().context("cannot write the count of boots")?;
    let node = Node::new(NodeConfig { boot, ended_boots, ..config });
    Ok((boots, Resumed { node, spare: BTreeSet::new() }))
}

fn say_what_is_unproven(before: &BootId) {
    tracing::warn!(
        %before,
        "the data folder was last used under another boot of the kernel, in another pid namespace or at \
         another place (as a copy was): it proves nothing about what ran there, so this node comes in when \
         that boot has signed off or is declared lost"
    );
}

/// Operators hear at each start what a program can do to this node.
fn say_what_programs_are_kept_from(settings: &Settings, sandboxes: &Sandboxes) {
    let (sandbox, pid_namespace) = (sandboxes.best.as_str(), sandboxes.pid_namespace);
    match settings.ability.obstacle() {
        None => {
            tracing::info!(sandbox, pid_namespace, "each program gets a user of its own");
        }
        Some(why) => tracing::warn!(
            sandbox,
            why,
            "programs run as this node's own user: one that wants to can end what watches it, and run on \
             beside its successor"
        ),
    }
    settings.offer.tell();
}

/// SIGTERM or SIGINT: leave in good order; once more: at once. SIGUSR2: end, and leave what runs to the next agent.
fn leave_on_signals(mailbox: Mailbox) -> anyhow::Result<()> {
    let mut stop = Stop::but_for_hang_up().context("cannot listen for signals")?;
    let user = signal(SignalKind::user_defined2()).context("cannot listen for signals");
    let (mut user, given) = (user?, mailbox.clone());
    tokio::spawn(async move {
        while user.recv().await.is_some() {
            given.give(Event::LeaveRunning).await;
        }
    });
    tokio::spawn(async move {
        loop {
            let signal = stop.wished().await;
            mailbox.give(Event::Leave { signal }).await;
        }
    });
    Ok(())
}
