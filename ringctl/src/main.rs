//! `ringctl`: operators' and users' command line of Rota.
//!
//! * [`session`]: open, get, close, list, watch sessions and send them events.
//! * [`document`]: read and list documents, list and run operations, store and fetch attachments, export.
//! * [`content`]: publish what nodes run: classes, programs, actions; list, compare, roll back.
//! * [`namespace`]: create, list, switch off and on, export, import, delete namespaces.
//! * [`task`]: create, list and show tasks, change one or many, suspend queues.
//! * [`pool`]: describe, list, change and delete pools of nodes.
//! * [`apply`]: make pools be what a file says of them.
//! * [`inspect`]: the ring as tables and as a drawing.
//! * [`events`]: what happened lately in the cluster.
//! * [`explain`]: where a session belongs, who holds it, and why.
//! * [`verify`]: whether everything is as it should be, proved.
//! * [`join`]: take a manager into the ring that waits outside.
//! * [`leave`]: tell one to leave it; take a join or a leave back.
//! * [`node`]: list nodes, and which texts of classes they have; forget one that is gone.
//! * [`top`]: what sessions and nodes use of CPU and memory.
//! * [`drain`]: cordon, drain and uncordon a node.
//! * [`signal`]: tell managers which of their peers look gone.
//! * [`dev`]: a whole cluster of real processes on one machine.
//! * [`bench`]: what the cluster can do, beside a bare echo.
//!
//! Data goes to stdout, everything else to stderr; exit code 0, 1 (failed) or 2 (usage).

mod apply;
mod bench;
mod cli;
mod connect;
mod content;
mod destination;
mod dev;
mod document;
mod drain;
mod events;
mod explain;
mod failure;
mod follow;
mod http;
mod inspect;
mod join;
mod leave;
mod length_of_time;
mod namespace;
mod node;
mod output;
mod pool;
mod position;
mod restore;
#[cfg(test)]
mod ring_example;
mod secret;
mod session;
mod signal;
mod source;
mod task;
mod top;
mod verify;

use cli::{Cli, Command};
use failure::UsageMistake;
use output::{Format, Out};
use rota_daemon::LogArguments;
use rota_daemon::private::keep_private;
use std::ffi::OsString;
use std::process::ExitCode;

/// Exit code for a wrong command line.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    // Exports, positions of watches, a cluster's folders: what it writes is its user's alone.
    keep_private();
    let cli = match Cli::read(std::env::args_os()) {
        Ok(cli) => cli,
        Err(error) => return on_wrong_line(&error),
    };
    // Its own log is for finding out what it does: ROTA_LOG=rota_client=debug, for instance.
    let wanted = |name: &str, otherwise: &str| std::env::var(name).unwrap_or(otherwise.to_owned());
    let log = wanted("ROTA_LOG", "warn");
    match (LogArguments { log, log_format: wanted("ROTA_LOG_FORMAT", "text") }).check() {
        Ok(log) => log.install(),
        Err(mistakes) => {
            let text = mistakes.iter().map(|it| format!("{} {}", variable(&it.field), it.problem));
            let text = text.collect::<Vec<_>>().join("; ");
            failure::report(&UsageMistake(text).into(), cli.output);
            return ExitCode::from(USAGE);
        }
    }
    let mut out = Out::stdout(cli.output);
    match run(&cli, &mut out) {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read our output has seen enough.
        Err(error) if output::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) if error.is::<failure::Reported>() => ExitCode::FAILURE,
        Err(error) => {
            failure::report(&error, cli.output);
            if failure::is_usage(&error) { ExitCode::from(USAGE) } else { ExitCode::FAILURE }
        }
    }
}

/// The environment variable in the place of which processes take that flag.
fn variable(flag: &str) -> String {
    format!("ROTA_{}", flag.trim_start_matches('-').replace('-', "_").to_uppercase())
}

/// A command line that cannot be read, or one that asked for help only.
fn on_wrong_line(error: &clap::Error) -> ExitCode {
    let line: Vec<OsString> = std::env::args_os().collect();
    if !error.use_stderr() || !cli::wants_json(&line) {
        error.exit();
    }
    let mistake = UsageMistake(cli::in_one_sentence(error));
    failure::report(&mistake.into(), Format::Json);
    ExitCode::from(USAGE)
}

fn run(cli: &Cli, out: &mut Out) -> anyhow::Result<()> {
    // One thread: a command does one thing, and the load generator is faster that way.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let done = runtime.block_on(async {
        match &cli.command {
            Command::Session(command) => session::run(command, &cli.endpoints()?, out).await,
            Command::Top(command) => Box::pin(top::run(command, &cli.endpoints()?, out)).await,
            Command::Document(command) => {
                Box::pin(document::run(command, &cli.endpoints()?, out)).await
            }
            Command::Content(command) => {
                Box::pin(content::run(command, &cli.endpoints()?, out)).await
            }
            Command::Namespace(arguments) => {
                namespace::run(arguments, &cli.endpoints()?, out).await
            }
            Command::Task(arguments) => {
                Box::pin(task::run(arguments, &cli.endpoints()?, out)).await
            }
            Command::Pool(arguments) => pool::run(arguments, &cli.endpoints()?, out).await,
            Command::Apply(arguments) => apply::run(arguments, &cli.endpoints()?, out).await,
            Command::Events(arguments) => {
                Box::pin(events::run(arguments, &cli.endpoints()?, out)).await
            }
            Command::Inspect(arguments) => inspect::run(arguments, &cli.endpoints()?, out).await,
            Command::Explain(arguments) => explain::run(arguments, &cli.endpoints()?, out).await,
            Command::Verify(arguments) => verify::run(arguments, &cli.endpoints()?, out).await,
            Command::Join(arguments) => join::run(arguments, out).await,
            Command::Leave(arguments) => leave::run(arguments, cli.endpoints(), out).await,
            Command::Cancel(arguments) => leave::cancel(arguments, &cli.endpoints()?, out).await,
            Command::Node(command) => node::run(command, &cli.endpoints()?, out).await,
            Command::Signal(arguments) => signal::run(arguments, out).await,
            Command::Dev(arguments) => dev::run(arguments, out).await,
            Command::Bench(command) => bench::run(command, cli.endpoints(), out).await,
            Command::Completion { shell } => Ok(cli::completion(*shell, out)?),
            Command::BenchEcho(arguments) => bench::echo::serve(arguments, out).await,
        }
    });
    // Reads of standard input or of names may still block a thread; nothing waits for them.
    runtime.shutdown_background();
    done
}
