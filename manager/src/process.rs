//! The process: everything put together at the start, and taken apart in order at the end.

use crate::application::Application;
use crate::bodies::{self, Bodies, Ledger};
use crate::clock::Clock;
use crate::config_link::{self, ConfigLink};
use crate::discovery::{Discovery, Me};
use crate::disk::{self, DiskWriter};
use crate::driver::{Driver, Ended, Rim, Seen};
use crate::http::{self, Pages};
use crate::mailbox::{Lanes, Mailbox, mailbox};
use crate::metrics::{self, Exposition};
use crate::node_link::NodeLinks;
use crate::options::Options;
use crate::peer::PeerLinks;
use crate::provisioner::{self, NodeOptions, Provisioner};
use crate::rpc::Shared;
use crate::rpc::names::FreshNames;
use crate::rpc::watch::WATCHES_MAX;
use crate::server::{self, Services};
use crate::start::{check_claim, founded, listen};
use anyhow::{Context, Result, anyhow};
use rota_daemon::{Stop, announce};
use rota_membership::{ConfigStore, Watcher};
use rota_protocol::{Disk, Manager, ManagerConfig, Sizes};
use rota_storage::attachments::Attachments;
use rota_storage::{Engine, is_unclaimed};
use serde::Serialize;
use std::collections::BTreeSet;
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

/// What was found and opened before anything runs.
struct Opened {
    options: Options,
    grpc: (TcpListener, String),
    http: (TcpListener, String),
    store: Arc<dyn ConfigStore>,
    engine: Box<dyn Engine>,
    disk: Disk,
    attachments: Attachments,
    /// The data folder was given to this manager in this very start.
    new_folder: bool,
}

/// What runs.
struct Running {
    driver: JoinHandle<Ended>,
    grpc: JoinHandle<Result<()>>,
    http: JoinHandle<Result<()>>,
    /// Where Consul is the config store.
    discovery: Option<Discovery>,
    /// The data folder, if it is new.
    new_folder: Option<PathBuf>,
    /// Tells everything but the driver to stop.
    stop: CancellationToken,
    /// Tells the driver to stop, once nobody waits for it any more.
    stop_driver: CancellationToken,
}

/// Runs a manager until it is told to stop. An error is why it could not start, or go on.
pub async fn run(options: Options, application: Application) -> Result<()> {
    // First, so that a signal during the start is not lost.
    let mut asked = Stop::listen().context("cannot listen for signals")?;
    let opened = tokio::select! {
        opened = open(options) => opened?,
        _ = asked.wished() => return Ok(()),
    };
    let (grpc, http) = (opened.grpc.1.clone(), opened.http.1.clone());
    let mut running = start(opened, application)?;
    announce(&Ready { ready: true, grpc: &grpc, http: &http, pid: std::process::id() });
    let ended = tokio::select! {
        signal = asked.wished() => {
            tracing::info!(signal, "this manager stops");
            None
        }
        ended = &mut running.driver => Some(ended),
    };
    stop(running, ended).await
}

async fn open(options: Options) -> Result<Opened> {
    if let Some(pool) = &options.pool {
        provisioner::check_classes(pool).await.map_err(|why| anyhow!("--pool-classes: {why}"))?;
    }
    let grpc = listen("--grpc", options.grpc).await?;
    let http = listen("--http", options.http).await?;
    let cluster = &options.ring.cluster;
    let open_disk = || disk::open(&options.data, cluster, &options.id, options.number);
    let store = options.config_store.open(cluster.clone(), CONFIG_STORE_DEADLINE);
    let store = store.context("--config-store")?;
    let new_folder = is_unclaimed(&options.data);
    // A folder that has an owner is looked at before anything is founded or claimed; a new one gets
    // its owner only when nothing speaks against the claim, so that a wrong number can be put right.
    let known = if new_folder { None } else { Some(open_disk()?) };
    let view = founded(store.as_ref(), &options.ring).await?;
    if let Some((_, disk)) = &known {
        check_claim(&view, &options, &grpc.1, &http.1, disk)?;
    } else {
        check_claim(&view, &options, &grpc.1, &http.1, &Disk::default())?;
    }
    let (engine, disk) = known.map_or_else(open_disk, Ok)?;
    let settings = options.bodies;
    let attachments = bodies::open(&options.data, cluster, &options.id, options.number, settings)?;
    Ok(Opened { options, grpc, http, store, engine, disk, attachments, new_folder })
}

fn manager_config(options: &Options, grpc: &str, http: &str) -> ManagerConfig {
    ManagerConfig {
        number: options.number,
        id: options.id.clone(),
        grpc: grpc.to_owned(),
        http: http.to_owned(),
        load_limit_permille: options.load_limit_permille,
        pools: options.pool.iter().map(|it| it.config.clone()).collect(),
        timing: options.timing.clone(),
        sizes: Sizes::default(),
        documents: options.documents.clone(),
    }
}

/// What every new node is told.
fn node_options(options: &Options) -> Option<NodeOptions> {
    let pool = options.pool.clone()?;
    Some(NodeOptions {
        pool,
        cluster: options.ring.cluster.clone(),
        consul: options.config_store.consul().cloned(),
        load_limit_permille: options.load_limit_permille,
        timing: options.timing.clone(),
        log: options.log.clone(),
    })
}

fn start(opened: Opened, application: Application) -> Result<Running> {
    let Opened { options, grpc, http, store, engine, disk, attachments, new_folder } = opened;
    let new_folder = new_folder.then(|| options.data.clone());
    let (metrics, exposition) = metrics::install()?;
    let (mailbox, lanes) = mailbox();
    let config = manager_config(&options, &grpc.1, &http.1);
    let cluster = options.ring.cluster.clone();
    let put_bytes_max = options.bodies.body_bytes_max;
    let (bodies, fetcher) =
        Bodies::new(attachments, cluster, options.number, mailbox.clone(), put_bytes_max);
    let rim = Rim {
        peers: PeerLinks::new(
            options.ring.cluster.clone(),
            mailbox.clone(),
            metrics.peer_late.clone(),
        ),
        nodes: NodeLinks::new(options.ring.cluster.clone(), mailbox.clone()),
        disk: DiskWriter::start(engine, &metrics)?,
        bodies: bodies.clone(),
        ledger: Ledger::new(bodies.clone(), &disk.docs),
        config: ConfigLink::new(store.clone(), mailbox.clone()),
        provisioner: Provisioner::new(node_options(&options), mailbox.clone()),
        metrics,
    };
    let stop_driver = CancellationToken::new();
    let operations = application.names();
    let seed = uuid::Uuid::new_v4().as_u64_pair().0;
    let clock = Clock::start();
    let mut manager = Manager::new(config, disk, seed, clock.now());
    application.embed(&mut manager).context("what the application offers")?;
    let (driver, seen) = start_driver(manager, clock, lanes, rim, stop_driver.clone());
    bodies.follow(seen.clone());
    tokio::spawn(fetcher.run(stop_driver.clone()));
    let watcher = Arc::new(Watcher::start(store));
    tokio::spawn(config_link::follow(watcher.clone(), mailbox.clone()));
    let me = Me {
        cluster: options.ring.cluster.clone(),
        id: options.id.clone(),
        grpc: grpc.1,
        http: http.1,
    };
    let consul = options.config_store.consul();
    let discovery = consul.map(|it| Discovery::start(it, me, seen.clone(), mailbox.clone()));
    let discovery = discovery.transpose().context("--config-store")?;
    let looks = Looks { mailbox, seen, config: watcher, exposition, bodies, operations };
    let (grpc, http, stop) = serve(options, looks, (grpc.0, http.0));
    Ok(Running { driver, grpc, http, discovery, new_folder, stop, stop_driver })
}

fn start_driver(
    mut manager: Manager,
    clock: Clock,
    lanes: Lanes,
    rim: Rim,
    stop: CancellationToken,
) -> (JoinHandle<Ended>, watch::Receiver<Seen>) {
    manager.keep_bodies(Arc::new(rim.bodies.clone()));
    let (driver, seen) = Driver::new(manager, clock, lanes, rim);
    (tokio::spawn(driver.run(stop)), seen)
}

type Server = JoinHandle<Result<()>>;

/// What the servers look at.
struct Looks {
    mailbox: Mailbox,
    seen: watch::Receiver<Seen>,
    config: Arc<Watcher>,
    exposition: Exposition,
    bodies: Bodies,
    operations: BTreeSet<&'static str>,
}

fn serve(
    options: Options,
    looks: Looks,
    (grpc, http): (TcpListener, TcpListener),
) -> (Server, Server, CancellationToken) {
    let Looks { mailbox, seen, config, exposition, bodies, operations } = looks;
    let stop = CancellationToken::new();
    tokio::spawn(exposition.clone().keep_up());
    let shared = Arc::new(Shared {
        cluster: options.ring.cluster.clone(),
        mailbox: mailbox.clone(),
        seen,
        config: config.states(),
        trouble: config.trouble(),
        names: FreshNames::new(),
        watches: Arc::new(Semaphore::new(WATCHES_MAX)),
        admin_key: options.documents.admin_key.clone(),
        bodies,
        operations,
        stopping: stop.clone(),
    });
    let services = Services {
        cluster: options.ring.cluster.clone(),
        number: options.number,
        mailbox,
        shared: shared.clone(),
    };
    let pages = Pages {
        cluster: options.ring.cluster,
        number: options.number,
        id: options.id,
        shared,
        exposition,
    };
    let grpc = tokio::spawn(server::serve(grpc, services, stop.clone()));
    let http = tokio::spawn(http::serve(http, pages, stop.clone()));
    (grpc, http, stop)
}

/// Listeners first, then calls under way, then the decisions, then the disk. `ended` is given when
/// the driver ended by itself.
async fn stop(running: Running, ended: Option<Result<Ended, JoinError>>) -> Result<()> {
    running.stop.cancel();
    let drained = async {
        if let Some(discovery) = running.discovery {
            discovery.end().await;
        }
        for server in [running.grpc, running.http] {
            if let Ok(Err(error)) = server.await {
                tracing::warn!(error = format!("{error:#}"), "a server did not end well");
            }
        }
    };
    if tokio::time::timeout(DRAIN_PATIENCE, drained).await.is_err() {
        tracing::warn!("calls were still under way after {DRAIN_PATIENCE:?}");
    }
    running.stop_driver.cancel();
    let ended = match ended {
        Some(ended) => ended,
        None => tokio::time::timeout(DISK_PATIENCE, running.driver)
            .await
            .context("the driver did not stop: the disk hangs")?,
    };
    let Ended { disk, refused } = ended.context("the driver failed")?;
    disk.close(DISK_PATIENCE)?;
    let Some(refused) = refused else { return Ok(()) };
    // Somebody else took the number since it was checked.
    let remove = running.new_folder.map(|it| {
        let folder = it.display();
        format!(
            "; data folder {folder} was begun for it and holds nothing: remove it to take another"
        )
    });
    Err(refused).context(format!("--number{}", remove.unwrap_or_default()))
}
