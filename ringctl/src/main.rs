//! `ringctl`: operators' and users' command line of Rota.
//!
//! * [`session`]: open, get, close, list, watch sessions and send them events.
//! * [`inspect`]: the ring as tables and as a drawing.
//! * [`dev`]: a whole cluster of real processes on one machine.
//! * [`bench`]: what the cluster can do, beside a bare echo.
//!
//! Data goes to stdout, everything else to stderr; exit code 0, 1 (failed) or 2 (usage).

mod bench;
mod cli;
mod dev;
mod failure;
mod inspect;
mod output;
mod session;

use clap::Parser;
use cli::{Cli, Command};
use output::Out;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let filter = tracing_subscriber::EnvFilter::try_from_env("ROTA_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let mut out = Out::stdout(cli.output);
    match run(&cli, &mut out) {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read our output has seen enough.
        Err(error) if output::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            failure::report(&error, cli.output);
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli, out: &mut Out) -> anyhow::Result<()> {
    // One thread: a command does one thing, and the load generator is faster that way.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let done = runtime.block_on(async {
        match &cli.command {
            Command::Session(command) => session::run(command, &cli.endpoint, out).await,
            Command::Inspect(arguments) => inspect::run(arguments, &cli.endpoint, out).await,
            Command::Dev(arguments) => dev::run(arguments, out).await,
            Command::Bench(command) => bench::run(command, &cli.endpoint, out).await,
            Command::Completion { shell } => Ok(cli::completion(*shell, out)?),
            Command::BenchEcho(arguments) => bench::echo::serve(arguments, out).await,
        }
    });
    // Reads of standard input or of names may still block a thread; nothing waits for them.
    runtime.shutdown_background();
    done
}
