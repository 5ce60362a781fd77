//! The embedded config store: a process of its own that holds the View and the node registry in
//! one durable file and serves them over HTTP/1.1 with JSON.
//!
//! * `GET /v1/state`, `GET /v1/state?index=N&wait_ms=W`: the state; with an index, once it is
//!   another than N or W has passed.
//! * `POST /v1/cas`: `{cluster, change}`; 200 with a state that shows it, 409 with the state that
//!   it does not fit, other codes with one line for people.
//! * `GET /healthz`.

mod frame;
mod journal;
mod serve;
mod writer;

use clap::{Parser, ValueEnum};
use journal::{Journal, JournalError};
use rota_model::ClusterName;
use serve::Shared;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot, watch};
use tracing_subscriber::EnvFilter;
use writer::{Job, Published};

/// Changes that wait for the writer: one batch. More would only wait in memory instead of at the
/// connection; each may be 4 MiB.
const QUEUE: usize = 64;

/// Holds a cluster's View and node registry in one durable file.
#[derive(Parser, Debug)]
#[command(name = "rota-config-store", version)]
struct Flags {
    /// Folder of the file; made when it is not there
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Where to listen; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Name of the cluster; a file of another cluster is refused
    #[arg(long, value_name = "NAME", default_value = "rota", value_parser = cluster_name)]
    cluster: ClusterName,
    /// Write the file anew when its changes are longer than this and four times the state
    #[arg(long, value_name = "BYTES", default_value_t = 4 << 20)]
    compact_after: usize,
    /// What to log, as in RUST_LOG: info, rota_config_store=debug
    #[arg(long, value_name = "FILTER", default_value = "info", value_parser = log_filter)]
    log: String,
    /// How to log, to stderr
    #[arg(long, value_enum, default_value = "text")]
    log_format: LogFormat,
    /// Allow an address that other machines can reach; everybody there can change the cluster
    #[arg(long)]
    insecure_bind: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

fn cluster_name(text: &str) -> Result<ClusterName, String> {
    ClusterName::parse(text).map_err(|error| error.problem)
}

fn log_filter(text: &str) -> Result<String, String> {
    EnvFilter::try_new(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

/// Why the process ends with code 1.
#[derive(Debug, thiserror::Error)]
enum Fatal {
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error("cannot listen on {address}: {source}; give another --listen address")]
    Listen { address: SocketAddr, source: io::Error },
    #[error("cannot {doing}: {source}")]
    System { doing: &'static str, source: io::Error },
    #[error("the writing thread panicked; its message stands above")]
    WriterPanicked,
}

fn main() -> ExitCode {
    let flags = Flags::parse();
    if !flags.listen.ip().is_loopback() && !flags.insecure_bind {
        let address = flags.listen;
        eprintln!(
            "error: --listen {address} can be reached from other machines, and nothing asks them \
             who they are: use a loopback address, or add --insecure-bind"
        );
        return ExitCode::from(2);
    }
    start_log(&flags);
    match run(&flags) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say_fatal(flags.log_format, &error);
            ExitCode::FAILURE
        }
    }
}

fn start_log(flags: &Flags) {
    let log = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(&flags.log))
        .with_writer(io::stderr)
        .with_ansi(false);
    match flags.log_format {
        LogFormat::Text => log.init(),
        LogFormat::Json => log.json().init(),
    }
}

/// Not through the log: no filter may hide why the process ended.
fn say_fatal(format: LogFormat, error: &Fatal) {
    match format {
        LogFormat::Text => eprintln!("error: {error}"),
        LogFormat::Json => {
            let fields = serde_json::json!({ "message": error.to_string() });
            eprintln!("{}", serde_json::json!({ "level": "ERROR", "fields": fields }));
        }
    }
}

fn system(doing: &'static str) -> impl FnOnce(io::Error) -> Fatal {
    move |source| Fatal::System { doing, source }
}

fn run(flags: &Flags) -> Result<(), Fatal> {
    let (journal, state) = Journal::open(&flags.data, &flags.cluster, flags.compact_after)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(system("start the runtime"))?;
    let (published, published_rx) = watch::channel(Published::new(&journal, &state));
    let (jobs, jobs_rx) = mpsc::channel::<Job>(QUEUE);
    let (ended, writer_ended) = oneshot::channel::<()>();
    let (stop, stopping) = watch::channel(false);
    let cluster = flags.cluster.clone();
    let shared = Shared { cluster, published: published_rx, jobs, stopping };
    let writer = thread::Builder::new().name("writer".into()).spawn(move || {
        // Dropped when the thread ends, for whatever reason.
        let _ended = ended;
        writer::run(journal, state, jobs_rx, &published)
    });
    let writer = writer.map_err(system("start the writer"))?;
    runtime.block_on(async {
        let listener = TcpListener::bind(flags.listen)
            .await
            .map_err(|source| Fatal::Listen { address: flags.listen, source })?;
        let mut term = signal(SignalKind::terminate()).map_err(system("catch signals"))?;
        let mut int = signal(SignalKind::interrupt()).map_err(system("catch signals"))?;
        say_ready(&listener).map_err(system("say on stdout that the store listens"))?;
        tracing::info!(cluster = %flags.cluster, data = %flags.data.display(), "listens");
        let stopped = stop_on_signal(&mut term, &mut int, stop);
        let served = async { tokio::join!(serve::serve(listener, shared), stopped) };
        tokio::select! {
            _ = served => {}
            _ = writer_ended => {}
        }
        Ok::<(), Fatal>(())
    })?;
    // Ends the tasks that still hold the queue, so that the writer finishes what it has and ends.
    drop(runtime);
    writer.join().map_err(|_| Fatal::WriterPanicked)?.map_err(Fatal::Journal)
}

fn say_ready(listener: &TcpListener) -> io::Result<()> {
    let address = listener.local_addr()?.to_string();
    let pid = std::process::id();
    let mut stdout = io::stdout().lock();
    // An address holds nothing that JSON would escape.
    writeln!(stdout, r#"{{"ready":true,"address":"{address}","pid":{pid}}}"#)?;
    stdout.flush()
}

async fn stop_on_signal(term: &mut Signal, int: &mut Signal, stop: watch::Sender<bool>) {
    tokio::select! {
        _ = term.recv() => tracing::info!("ends: SIGTERM"),
        _ = int.recv() => tracing::info!("ends: SIGINT"),
    }
    stop.send_replace(true);
}
