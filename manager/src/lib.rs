//! One manager of a ring, as a process: the program `rota-manager`, or a program of an application's
//! own that offers its operations on documents and checks its accounts.
//!
//! ```text
//!   fn main() -> ExitCode {
//!       let schema = operate::schema().class("Acc", |it| it.singleton::<Balance>());
//!       let operations = operate::operations().with::<Transfer>();
//!       match Application::new(operations, schema) {
//!           Ok(it) => rota_manager::main(it.checked_by(Arc::new(Accounts))),
//!           Err(mistake) => ...
//!       }
//!   }
//! ```
//! (`examples/bank.rs` is a whole one.) Such a program takes the options of `rota-manager` and
//! behaves like it; all managers of a ring must be the same program. It sets its own allocator, if it
//! wants another than the system's.
//!
//! ```text
//!            gRPC                    mailbox                        effects
//!  clients ── rpc ─────┐                                  ┌──▶ peer ────────▶ peers
//!  nodes ──── nodes ───┼──▶ driver: owns the decisions ───┼──▶ node_link ───▶ nodes
//!  peers ──── peer ────┘    (rota_protocol::Manager)      ├──▶ disk ────────▶ data folder
//!  Consul ─── discovery ┘                                 ├──▶ config_link ─▶ config store
//!                                                         ├──▶ bodies ──────▶ attachments
//!  browsers ── http: /v1, /route, /metrics                ├──▶ provisioner ─▶ new nodes
//!                                                         ├──▶ workers ─────▶ operations of applications
//!                                                         └──▶ tasks ───────▶ programs and calls of tasks
//! ```
//!
//! None of this runs at first with `--join`: [`outside`] listens, until somebody tells the number. Nor while the
//! config store does not answer at the start: then `store_wait` says so at both doors.
//!
//! One thread runs all of it, but for the writes to disk, which have their own, and for the work of an
//! application's operations, which may take seconds: each has one for that time.

mod application;
mod bodies;
mod clock;
mod config_link;
mod discovery;
mod disk;
mod driver;
mod driver_state;
mod events;
mod http;
mod link;
mod links;
mod mailbox;
mod metrics;
mod node_link;
mod nodes;
mod numbers;
mod options;
mod outbox;
mod outside;
mod peer;
mod process;
mod provisioner;
mod rpc;
mod server;
mod start;
mod store_wait;
mod tasks;
mod trace;
mod workers;

pub use application::Application;

use clap::Parser;
use options::{Arguments, Options};
use rota_daemon::private::keep_private;
use rota_daemon::{HAS_LEFT, USAGE, raise_open_files, refuse, say_fatal};
use rota_provision::process::WrongClasses;
use rota_ring::ClaimRefused;
use std::process::ExitCode;
use std::time::Duration;

/// Of this process, in what it says when it ends.
const NAME: &str = "rota-manager";

/// How long tasks that block may hold up the process's end: an operation that works, for one.
const LAST_PATIENCE: Duration = Duration::from_secs(1);

/// Runs a manager until it is told to stop, with the command line of this process: see
/// `rota-manager --help`. Says on stderr why it did not start, or could not go on; exit code 2 for
/// mistakes in the command line or in class files, 3 for a number that has left the ring, 1 for everything else.
pub fn main(application: Application) -> ExitCode {
    keep_private();
    let arguments = Arguments::parse();
    let format = arguments.log.asked_format();
    let options = match arguments.check() {
        Ok(options) => options,
        Err(mistakes) => return refuse(NAME, format, &mistakes),
    };
    let application = match application.with_fields(&options.fields) {
        Ok(application) => application,
        Err(mistakes) => return refuse(NAME, format, &mistakes),
    };
    match run(options, application) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say_fatal(NAME, format, &format_args!("{error:#}"));
            if error.is::<WrongClasses>() {
                return ExitCode::from(USAGE);
            }
            match error.downcast_ref() {
                Some(ClaimRefused::HasLeft(_)) => ExitCode::from(HAS_LEFT),
                Some(_) | None => ExitCode::FAILURE,
            }
        }
    }
}

fn run(options: Options, application: Application) -> anyhow::Result<()> {
    options.log.install();
    raise_open_files();
    // One thread: a manager's work is one stream of small steps, and passing them between threads
    // costs more than the second thread gives.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outcome = runtime.block_on(process::run(options, application));
    runtime.shutdown_timeout(LAST_PATIENCE);
    outcome
}
