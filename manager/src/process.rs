//! The process: everything put together at the start, and taken apart in order at the end.

mod enter;

use crate::application::Application;
use crate::bodies::{self, Bodies, Ledger};
use crate::clock::Clock;
use crate::config_link::{self, ConfigLink};
use crate::discovery::{Discovery, Me};
use crate::disk::{self, DiskWriter};
use crate::driver::{Driver, Ended, Outputs};
use crate::driver_state::DriverState;
use crate::events::EventLog;
use crate::http::{self, Pages};
use crate::mailbox::{Lanes, Mailbox, mailbox};
use crate::metrics::{self, Exposition, Metrics};
use crate::node_link::NodeLinks;
use crate::numbers::NumbersCopy;
use crate::options::{EngineOptions, Options};
use crate::outside::{Addresses, Outside};
use crate::peer::PeerLinks;
use crate::provisioner::{Provisioner, provisioners};
use crate::rpc::Shared;
use crate::rpc::content::Feeds;
use crate::rpc::names::FreshNames;
use crate::rpc::watch::{WATCHES_MAX, unread_room};
use crate::server::{self, Services};
use crate::start::{CONFIG_STORE_PATIENCE, again, begun, claim_of, founded, listen};
use crate::store_wait::StoreWait;
use crate::tasks::{TaskEnds, Tasks};
use crate::workers::Workers;
use anyhow::{Context, Result};
use rota_daemon::accept::{Gate, Places};
use rota_daemon::{Stop, announce};
use rota_docstore::About;
use rota_membership::{ConfigStore, Watcher};
use rota_model::ManagerNumber;
use rota_protocol::Searchable;
use rota_protocol::{Disk, Manager, ManagerConfig, Sizes};
use rota_ring::{Claim, ClaimRefused};
use rota_storage::attachments::Attachments;
use rota_storage::{Engine, Label};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinError, JoinHandle};
use tokio_util::sync::CancellationToken;

/// Every request to the config store is given up after this. Above its slowest durable write on a
/// busy disk; while one hangs, others go on.
const CONFIG_STORE_DEADLINE: Duration = Duration::from_secs(2);

/// How long calls under way may take to end once the process was told to stop.
const DRAIN_PATIENCE: Duration = Duration::from_secs(3);

/// How long the disk may take to close.
const DISK_PATIENCE: Duration = Duration::from_secs(10);

/// The line on standard output that tells that the listeners are up.
#[derive(Serialize)]
struct Ready<'a> {
    ready: bool,
    grpc: &'a str,
    http: &'a str,
    pid: u32,
}

/// Where a manager listens and where its View is.
struct Listeners {
    grpc: TcpListener,
    http: TcpListener,
    addresses: Addresses,
    store: Arc<dyn ConfigStore>,
    exposition: Exposition,
}

/// What an operator said with a number: the manager may come into the ring with it, for the first time or
/// again.
#[derive(Clone, Copy)]
struct JoinOrder {
    /// The disk that the number had is gone for good.
    force_lost: bool,
}

/// What was found and opened before anything runs.
struct Opened {
    options: Options,
    number: ManagerNumber,
    said: Option<JoinOrder>,
    listeners: Listeners,
    engine: Box<dyn Engine>,
    disk: Disk,
    attachments: Attachments,
    /// The data folder was given to this manager in this very start.
    new_folder: bool,
}

/// The decisions run, and nobody can reach them yet.
struct Working {
    options: Options,
    number: ManagerNumber,
    listeners: (TcpListener, TcpListener),
    server_parts: ServerParts,
    running: Running,
}

/// What runs.
struct Running {
    driver: JoinHandle<Ended>,
    /// Ends programs and calls of tasks.
    task_ends: TaskEnds,
    /// Keeps the readable copy of the stable numbers.
    numbers: JoinHandle<()>,
    /// What the driver ended with, if it has.
    ended: Option<Result<Ended, JoinError>>,
    /// Once somebody can reach it.
    servers: Vec<Server>,
    /// Where Consul is the config store.
    discovery: Option<Discovery>,
    /// The data folder and whose it is, if it is new.
    new_folder: Option<(PathBuf, Label, EngineOptions)>,
    /// Tells everything but the driver and the gRPC server to stop.
    stop: CancellationToken,
    /// Tells the gRPC server to stop: by it come the answers to the last calls.
    stop_grpc: CancellationToken,
    /// Knows which calls are under way.
    mailbox: Mailbox,
    /// Tells the driver to stop, once nobody waits for it any more.
    stop_driver: CancellationToken,
}

/// Runs a manager until it is told to stop. An error is why it could not start, or go on.
pub async fn run(options: Options, application: Application) -> Result<()> {
    // First, so that a signal during the start is not lost.
    let mut asked = Stop::listen().context("cannot listen for signals")?;
    let started = tokio::select! {
        started = start(options, application) => started?,
        _ = asked.wished() => return Ok(()),
    };
    let (working, is_announced) = match started {
        Started::Inside(working) => (*working, false),
        Started::Outside(waiting) => {
            announce_at(&waiting.listeners.addresses);
            let Some(working) = waiting.enter(&mut asked).await? else { return Ok(()) };
            (working, true)
        }
    };
    let addresses = working.server_parts.addresses.clone();
    let mut seen = working.server_parts.seen.clone();
    let mut running = working.serve();
    if !is_announced {
        announce_at(&addresses);
    }
    if running.ended.is_none() {
        tokio::select! {
            signal = asked.wished() => tracing::info!(signal, "this manager stops"),
            ended = &mut running.driver => running.ended = Some(ended),
            Ok(_) = seen.wait_for(|it| it.left) => {
                tracing::info!("this manager's number has left the ring; the process ends");
            }
        }
    }
    match stop(running).await? {
        Some(refused) => Err(refused).context("--number"),
        None => Ok(()),
    }
}

/// What a start came to.
enum Started {
    /// The number is known.
    Inside(Box<Working>),
    /// It must be told.
    Outside(Box<Waiting>),
}

/// A manager that waits outside of the ring.
struct Waiting {
    options: Options,
    application: Application,
    listeners: Listeners,
    outside: Outside,
    /// The number that the data folder was begun for.
    begun: Option<ManagerNumber>,
}

async fn start(options: Options, application: Application) -> Result<Started> {
    if let Some(process) = &options.provisioners.process {
        rota_provision::process::check_classes(process).await?;
    }
    let listeners = Listeners::open(&options).await?;
    let begun = match options.number {
        Some(number) => Some((number, true)),
        None => begun(&*listeners.store, &options, &mut listeners.wait(&options)).await?,
    };
    if let Some((number, true)) = begun {
        let working = begin(open(options, number, listeners, None).await?, application)?;
        return Ok(Started::Inside(Box::new(working)));
    }
    disk::check_room(&options.data)?;
    let outside = Outside::start(&options, again(&listeners.grpc)?, again(&listeners.http)?);
    let begun = begun.map(|it| it.0);
    Ok(Started::Outside(Box::new(Waiting { options, application, listeners, outside, begun })))
}

impl Listeners {
    async fn open(options: &Options) -> Result<Self> {
        let (grpc, grpc_address) = listen("--grpc", options.grpc).await?;
        let (http, http_address) = listen("--http", options.http).await?;
        let cluster = options.ring.cluster.clone();
        let store = options.config_store.open(cluster, CONFIG_STORE_DEADLINE);
        let store = store.context("--config-store")?;
        let addresses = Addresses { grpc: grpc_address, http: http_address };
        let exposition = metrics::install()?;
        Ok(Self { grpc, http, addresses, store, exposition })
    }

    /// A wait for the config store, at these listeners.
    fn wait<'a>(&'a self, options: &'a Options) -> StoreWait<'a> {
        StoreWait::served(options, &self.grpc, &self.http)
    }

    /// The same listeners once more.
    fn again(&self) -> Result<Self> {
        Ok(Self {
            grpc: again(&self.grpc)?,
            http: again(&self.http)?,
            addresses: self.addresses.clone(),
            store: self.store.clone(),
            exposition: self.exposition.clone(),
        })
    }
}

fn announce_at(addresses: &Addresses) {
    let Addresses { grpc, http } = addresses;
    announce(&Ready { ready: true, grpc, http, pid: std::process::id() });
}

/// `said`: it was told the number just now.
async fn open(
    options: Options,
    number: ManagerNumber,
    listeners: Listeners,
    said: Option<JoinOrder>,
) -> Result<Opened> {
    disk::check_room(&options.data)?;
    let cluster = &options.ring.cluster;
    let open_disk = || {
        on_thread(&options, number, |options, label| {
            disk::open(&options.data, &label.cluster, &label.manager, label.number, &options.engine)
        })
    };
    let new_folder =
        on_thread(&options, number, |it, label| disk::is_new(&it.data, &label, &it.engine)).await?;
    // A folder that has an owner is looked at before anything is founded or claimed; a new one gets
    // its owner only when nothing speaks against the claim, so that a wrong number can be put right.
    let known = if new_folder { None } else { Some(open_disk().await?) };
    let mut wait = match said {
        // Other servers are at these listeners, and somebody waits.
        Some(_) => StoreWait::at_most(CONFIG_STORE_PATIENCE),
        None => listeners.wait(&options),
    };
    let view = founded(listeners.store.as_ref(), &options.ring, &mut wait).await?;
    let empty = Disk::default();
    let disk = known.as_ref().map_or(&empty, |(_, disk)| disk);
    let claim = claim_of(&options, number, &listeners.addresses, disk);
    let claimed = match said {
        Some(JoinOrder { force_lost }) => view.claimed_or_joined(&Claim { force_lost, ..claim }),
        None => view.claimed(&claim),
    };
    claimed.context("--number")?;
    let (engine, disk) = match known {
        Some(known) => known,
        None => open_disk().await?,
    };
    let settings = options.bodies;
    let attachments = bodies::open(&options.data, cluster, &options.id, number, settings)?;
    Ok(Opened { options, number, said, listeners, engine, disk, attachments, new_folder })
}

/// Runs what may wait for a disk or a server on a thread that may wait.
async fn on_thread<T: Send + 'static>(
    options: &Options,
    number: ManagerNumber,
    work: impl FnOnce(&Options, Label) -> Result<T> + Send + 'static,
) -> Result<T> {
    let (label, options) = (label(options, number), options.clone());
    tokio::task::spawn_blocking(move || work(&options, label)).await?
}

/// The data folder, whose it is, and what keeps its records.
fn own_folder(options: &Options, number: ManagerNumber) -> (PathBuf, Label, EngineOptions) {
    (options.data.clone(), label(options, number), options.engine.clone())
}

fn label(options: &Options, number: ManagerNumber) -> Label {
    Label { cluster: options.ring.cluster.clone(), manager: options.id.clone(), number }
}

fn manager_config(
    options: &Options,
    number: ManagerNumber,
    addresses: &Addresses,
) -> ManagerConfig {
    ManagerConfig {
        number,
        id: options.id.clone(),
        ring: options.ring.shape(),
        grpc: addresses.grpc.clone(),
        http: addresses.http.clone(),
        load_limit: options.load_limit,
        timing: options.timing.clone(),
        sizes: Sizes { session_bytes: options.memory.sessions_bytes_max, ..Sizes::default() },
        documents: options.documents.clone(),
        numbers: Some(options.numbers),
        tasks: options.tasks.config.clone(),
    }
}

fn peer_links(options: &Options, mailbox: &Mailbox, metrics: &Metrics) -> PeerLinks {
    let (late, copied) = (metrics.peer_late.clone(), metrics.copied.clone());
    PeerLinks::new(options.ring.cluster.clone(), mailbox.clone(), late, copied)
}

/// Starts everything but the servers.
fn begin(opened: Opened, application: Application) -> Result<Working> {
    let Opened { options, number, said, listeners, engine, disk, attachments, new_folder } = opened;
    let Listeners { grpc, http, addresses, store, exposition } = listeners;
    // First of all: nothing that is reported is to be made invalid.
    let numbers = NumbersCopy::start(&options.data, options.numbers);
    let new_folder = new_folder.then(|| own_folder(&options, number));
    let metrics = Metrics::new();
    let (mailbox, lanes) = mailbox();
    let config = manager_config(&options, number, &addresses);
    let cluster = options.ring.cluster.clone();
    let put_bytes_max = options.bodies.body_bytes_max;
    let (bodies, fetcher) =
        Bodies::new(attachments, cluster, number, mailbox.clone(), put_bytes_max);
    let (ledger, missing) = Ledger::new(bodies.clone(), &disk.docs);
    let clock = Clock::start();
    let outputs = Outputs {
        peers: peer_links(&options, &mailbox, &metrics),
        nodes: NodeLinks::new(options.ring.cluster.clone(), mailbox.clone()),
        disk: DiskWriter::start(engine, &metrics)?,
        bodies: bodies.clone(),
        ledger,
        config: ConfigLink::new(store.clone(), mailbox.clone()),
        provisioner: Provisioner::new(provisioners(&options), mailbox.clone()),
        workers: Workers::new(mailbox.clone()),
        tasks: Tasks::new(options.tasks.world.clone(), mailbox.clone())?,
        events: EventLog::new(number, clock.now().wall_ms),
        metrics,
    };
    let (task_ends, events) = (outputs.tasks.ends(), outputs.events.clone());
    let stop_driver = CancellationToken::new();
    let operations = application.abouts();
    let searchable = application.searchable();
    let manager = decisions((config, disk), &clock, application, said)?;
    let (driver, seen) = start_driver(manager, clock, lanes, outputs, stop_driver.clone());
    bodies.follow(seen.clone());
    tokio::spawn(fetcher.run(missing, stop_driver.clone()));
    let watcher = Arc::new(Watcher::start(store));
    tokio::spawn(config_link::follow(watcher.clone(), mailbox.clone()));
    let me = me(&options, &addresses);
    let consul = options.config_store.consul();
    let discovery = consul.map(|it| Discovery::start(it, me, seen.clone(), mailbox.clone()));
    let discovery = discovery.transpose().context("--config-store")?;
    let (stop, stop_grpc) = (CancellationToken::new(), CancellationToken::new());
    let running = Running {
        driver,
        task_ends,
        numbers: numbers.follow(seen.clone(), stop.clone()),
        ended: None,
        servers: Vec::new(),
        discovery,
        new_folder,
        stop,
        stop_grpc,
        mailbox: mailbox.clone(),
        stop_driver,
    };
    let server_parts = ServerParts {
        addresses,
        mailbox,
        seen,
        config: watcher,
        events,
        exposition,
        bodies,
        operations,
        searchable,
    };
    Ok(Working { options, number, listeners: (grpc, http), server_parts, running })
}

fn me(options: &Options, addresses: &Addresses) -> Me {
    Me {
        cluster: options.ring.cluster.clone(),
        id: options.id.clone(),
        grpc: addresses.grpc.clone(),
        http: addresses.http.clone(),
    }
}

/// Everything that decides, before it begins.
fn decisions(
    (config, disk): (ManagerConfig, Disk),
    clock: &Clock,
    application: Application,
    said: Option<JoinOrder>,
) -> Result<Manager> {
    let seed = uuid::Uuid::new_v4().as_u64_pair().0;
    let mut manager = Manager::new(config, disk, seed, clock.now());
    application.embed(&mut manager).context("what the application offers")?;
    if let Some(JoinOrder { force_lost }) = said {
        manager.may_join();
        if force_lost {
            manager.force_lost();
        }
    }
    Ok(manager)
}

fn start_driver(
    mut manager: Manager,
    clock: Clock,
    lanes: Lanes,
    outputs: Outputs,
    stop: CancellationToken,
) -> (JoinHandle<Ended>, watch::Receiver<DriverState>) {
    manager.keep_bodies(Arc::new(outputs.bodies.clone()));
    let (driver, seen) = Driver::new(manager, clock, lanes, outputs);
    (tokio::spawn(driver.run(stop)), seen)
}

type Server = JoinHandle<Result<()>>;

/// What the servers look at.
struct ServerParts {
    addresses: Addresses,
    mailbox: Mailbox,
    seen: watch::Receiver<DriverState>,
    config: Arc<Watcher>,
    events: EventLog,
    exposition: Exposition,
    bodies: Bodies,
    operations: BTreeMap<&'static str, About>,
    searchable: Searchable,
}

impl Working {
    /// Lets everybody in, unless the driver has ended.
    fn serve(self) -> Running {
        let Self { options, number, listeners, server_parts, mut running } = self;
        if running.ended.is_none() {
            let stops = (&running.stop, &running.stop_grpc);
            running.servers = serve((options, number), server_parts, listeners, stops);
        }
        running
    }
}

fn serve(
    (options, number): (Options, ManagerNumber),
    server_parts: ServerParts,
    (grpc, http): (TcpListener, TcpListener),
    (stop, stop_grpc): (&CancellationToken, &CancellationToken),
) -> Vec<Server> {
    let ServerParts {
        mailbox,
        seen,
        config,
        events,
        exposition,
        bodies,
        operations,
        searchable,
        ..
    } = server_parts;
    tokio::spawn(exposition.clone().keep_up());
    let shared = Arc::new(Shared {
        events,
        feeds: Feeds::default(),
        cluster: options.ring.cluster.clone(),
        mailbox: mailbox.clone(),
        seen,
        trouble: config.trouble(),
        names: FreshNames::new(),
        watches: Arc::new(Semaphore::new(WATCHES_MAX)),
        unread: unread_room(),
        admin_key: options.documents.admin_key.clone(),
        bodies,
        operations,
        searchable,
        provisioners: provisioners(&options).names(),
        stopping: stop.clone(),
    });
    let answers_bytes_max = options.memory.answers_bytes_max;
    let gate = Gate::new(Places { answers_bytes_max, ..Places::for_grpc() });
    let services = Services {
        cluster: options.ring.cluster.clone(),
        number,
        mailbox,
        shared: shared.clone(),
        gate: gate.clone(),
        stop_grpc: stop_grpc.clone(),
    };
    let (cluster, id) = (options.ring.cluster, options.id);
    let pages = Pages { cluster, number, id, shared, exposition, gate };
    let pages = http::serve(http, pages, options.http_names, stop.clone());
    vec![
        tokio::spawn(server::serve(grpc, services, stop.clone())),
        tokio::spawn(async {
            pages.await;
            Ok(())
        }),
    ]
}

/// New calls, watches and HTTP first, then calls under way (each step of one that has several), then gRPC, then
/// the decisions, then the disk. Peers may still come while calls are under way: they bring the answers. Gives why
/// the number was refused, if it was: somebody else took it since it was checked. A folder that was begun for
/// it is nobody's again.
async fn stop(running: Running) -> Result<Option<ClaimRefused>> {
    running.stop.cancel();
    let stop_grpc = running.stop_grpc;
    let signed_off = async {
        if let Some(discovery) = running.discovery {
            discovery.end().await;
        }
    };
    let served = async {
        running.mailbox.last_calls().await;
        stop_grpc.cancel();
        for server in running.servers {
            if let Ok(Err(error)) = server.await {
                tracing::warn!(error = format!("{error:#}"), "a server did not end well");
            }
        }
    };
    let drained = async { tokio::join!(signed_off, served) };
    if tokio::time::timeout(DRAIN_PATIENCE, drained).await.is_err() {
        tracing::warn!("calls were still under way after {DRAIN_PATIENCE:?}");
    }
    // Whoever is still there is to see that nobody answers any more.
    stop_grpc.cancel();
    running.stop_driver.cancel();
    let ended = match running.ended {
        Some(ended) => ended,
        None => tokio::time::timeout(DISK_PATIENCE, running.driver)
            .await
            .context("the driver did not stop: the disk hangs")?,
    };
    running.task_ends.end().await;
    if tokio::time::timeout(DISK_PATIENCE, running.numbers).await.is_err() {
        tracing::warn!("the readable copy of the stable numbers did not end: its disk hangs");
    }
    let Ended { disk, refused } = ended.context("the driver failed")?;
    disk.close(DISK_PATIENCE)?;
    if let (Some(_), Some((folder, label, engine))) = (&refused, running.new_folder) {
        tokio::task::spawn_blocking(move || disk::give_up(&folder, &label, &engine)).await??;
    }
    Ok(refused)
}
