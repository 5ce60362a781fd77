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

use clap::Parser;
use journal::{Journal, JournalError};
use rota_daemon::private::keep_private;
use rota_daemon::{
    HttpNames, Log, LogArguments, Stop, announce, may_hold_data, may_listen, raise_open_files,
    say_fatal,
};
use rota_model::{ClusterName, FieldError};
use serde_json::json;
use serve::Shared;
use std::fmt::Display;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};
use writer::{Job, Published};

/// Changes that wait for the writer: one batch. More would only wait in memory instead of at the
/// connection; each may be 4 MiB.
const QUEUE: usize = 64;

/// How long the writer may take to finish what it has when the process ends.
const WRITER_PATIENCE: Duration = Duration::from_secs(10);

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
    /// A name under which it is asked, beside this machine's own, localhost and IP addresses
    #[arg(long = "http-name", value_name = "NAME,...", value_delimiter = ',')]
    http_names: Vec<String>,
    #[command(flatten)]
    log: LogArguments,
    /// Allow an address that other machines can reach; everybody there can change the cluster
    #[arg(long)]
    insecure_bind: bool,
}

fn cluster_name(text: &str) -> Result<ClusterName, String> {
    ClusterName::parse_new(text).map_err(|error| error.problem)
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
    #[error("the disk hangs: a write did not end within {WRITER_PATIENCE:?}")]
    WriterHangs,
}

fn main() -> ExitCode {
    keep_private();
    let flags = Flags::parse();
    let format = flags.log.asked_format();
    let say = |text: &dyn Display| say_fatal("rota-config-store", format, text);
    let log = match check(&flags) {
        Ok(log) => log,
        Err(mistakes) => {
            mistakes.iter().for_each(|mistake| say(mistake));
            return ExitCode::from(2);
        }
    };
    log.install();
    match run(&flags) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&error);
            ExitCode::FAILURE
        }
    }
}

/// What clap does not check; gives every mistake.
fn check(flags: &Flags) -> Result<Log, Vec<FieldError>> {
    let mut mistakes = Vec::new();
    mistakes.extend(may_listen("--listen", flags.listen, flags.insecure_bind).err());
    mistakes.extend(may_hold_data("--data", &flags.data).err());
    let log = flags.log.check().map_err(|list| mistakes.extend(list)).ok();
    log.filter(|_| mistakes.is_empty()).ok_or(mistakes)
}

fn system(doing: &'static str) -> impl FnOnce(io::Error) -> Fatal {
    move |source| Fatal::System { doing, source }
}

fn run(flags: &Flags) -> Result<(), Fatal> {
    raise_open_files();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(system("start the runtime"))?;
    // Before the folder is touched: a start that fails for its port leaves nothing behind.
    let listener = runtime
        .block_on(TcpListener::bind(flags.listen))
        .map_err(|source| Fatal::Listen { address: flags.listen, source })?;
    let (journal, state) = Journal::open(&flags.data, &flags.cluster, flags.compact_after)?;
    let (published, published_rx) = watch::channel(Published::new(&journal, &state));
    let (jobs, jobs_rx) = mpsc::channel::<Job>(QUEUE);
    let (ended, writer_ended) = oneshot::channel::<()>();
    let (stop, stopping) = watch::channel(false);
    let cluster = flags.cluster.clone();
    let shared = Shared { cluster, published: published_rx, jobs, stopping };
    let names = HttpNames::new(&flags.http_names);
    let writer = thread::Builder::new().name("writer".into()).spawn(move || {
        // Dropped when the thread ends, for whatever reason.
        let _ended = ended;
        writer::run(journal, state, jobs_rx, &published)
    });
    let writer = writer.map_err(system("start the writer"))?;
    runtime.block_on(async {
        let mut asked = Stop::listen().map_err(system("catch signals"))?;
        let address = listener.local_addr().map_err(system("tell the address"))?.to_string();
        announce(&json!({ "ready": true, "address": address, "pid": std::process::id() }));
        tracing::info!(cluster = %flags.cluster, data = %flags.data.display(), "listens");
        let stopped = async {
            let signal = asked.wished().await;
            tracing::info!(signal, "ends");
            stop.send_replace(true);
        };
        let served = async { tokio::join!(serve::serve(listener, names, shared), stopped) };
        tokio::select! {
            _ = served => {}
            _ = writer_ended => {}
        }
        Ok::<(), Fatal>(())
    })?;
    // Ends the tasks that still hold the queue, so that the writer finishes what it has and ends.
    drop(runtime);
    end_writer(writer)
}

/// Finishes what the writer has. Its thread ends by itself once nobody can give it more; a disk
/// that hangs does not hold up the end for longer than [`WRITER_PATIENCE`].
fn end_writer(writer: JoinHandle<Result<(), JournalError>>) -> Result<(), Fatal> {
    let deadline = Instant::now() + WRITER_PATIENCE;
    while !writer.is_finished() {
        if Instant::now() >= deadline {
            return Err(Fatal::WriterHangs);
        }
        thread::sleep(Duration::from_millis(5));
    }
    writer.join().map_err(|_| Fatal::WriterPanicked)?.map_err(Fatal::Journal)
}
