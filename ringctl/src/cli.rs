//! The command line.

use crate::bench::{BenchCommand, echo::EchoArguments};
use crate::dev::DevArguments;
use crate::document::DocumentCommand;
use crate::inspect::InspectArguments;
use crate::namespace::NamespaceArguments;
use crate::output::{Format, Out};
use crate::session::SessionCommand;
use crate::signal::SignalArguments;
use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use std::time::Duration;

/// Above the options that every command takes.
const EVERYWHERE: &str = "Options of every command";

/// Opens sessions on a Rota ring, looks at the ring, and runs one on this machine.
#[derive(Parser, Debug)]
#[command(name = "ringctl", version, max_term_width = 100)]
pub struct Cli {
    /// What stdout gets.
    #[arg(short, long, global = true, value_enum, default_value_t = Format::Table,
          help_heading = EVERYWHERE)]
    pub output: Format,
    /// Managers to ask, `host:port`, comma-separated. Any manager serves any session; the next
    /// one is asked when one does not answer.
    #[arg(long, global = true, env = "ROTA_ENDPOINT", default_value = "127.0.0.1:7400",
          value_name = "HOST:PORT,...", value_parser = endpoint_list, help_heading = EVERYWHERE)]
    pub endpoint: String,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Open, read, close, list and watch sessions; send events to them.
    #[command(subcommand)]
    Session(SessionCommand),
    /// Read and list documents, run operations on them, store and fetch attachments.
    #[command(subcommand)]
    Document(DocumentCommand),
    /// Create, list, switch off and on, export, import and delete namespaces.
    Namespace(NamespaceArguments),
    /// Show the ring: managers, partitions, nodes.
    Inspect(InspectArguments),
    /// Tell every manager which of its peers look gone: the handler of a watch in Consul. It is a
    /// suspicion, never a verdict, and may be repeated.
    Signal(SignalArguments),
    /// Run a whole cluster on this machine until Ctrl-C.
    Dev(DevArguments),
    /// Measure: throughput, latencies, fail-over, memory.
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Print a completion script, as in: source <(ringctl completion bash).
    Completion {
        /// For which shell.
        #[arg(value_enum)]
        shell: Shell,
    },
    /// The bare echo that `bench compare` measures against.
    #[command(hide = true)]
    BenchEcho(EchoArguments),
}

fn endpoint_list(text: &str) -> Result<String, String> {
    let list = rota_client::parse_endpoints(text).map_err(|error| error.to_string())?;
    Ok(list.join(","))
}

/// A length of time as people write it: `10s`, `1m 30s`, `250ms`; above zero.
pub fn length_of_time(text: &str) -> Result<Duration, String> {
    let length = humantime::parse_duration(text)
        .map_err(|error| format!("{error}; a length of time is written as in 10s or 500ms"))?;
    if length.is_zero() { Err("must be longer than 0".to_owned()) } else { Ok(length) }
}

/// Writes the completion script of a shell.
pub fn completion(shell: Shell, out: &mut Out) -> std::io::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "ringctl", &mut script);
    out.text(&String::from_utf8_lossy(&script))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn output_and_endpoint_are_taken_anywhere_on_the_line() {
        let line = ["ringctl", "session", "get", "x", "-o", "json", "--endpoint", "a:1, b:2"];
        let cli = Cli::try_parse_from(line).unwrap();
        assert_eq!(cli.output, Format::Json);
        assert_eq!(cli.endpoint, "a:1,b:2");
    }

    #[test]
    fn a_wrong_endpoint_is_a_usage_mistake() {
        let error = Cli::try_parse_from(["ringctl", "--endpoint", "nowhere", "inspect"]);
        let error = error.unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("nowhere"), "{error}");
    }

    #[test]
    fn times_have_units_and_are_not_zero() {
        assert_eq!(length_of_time("1m 30s"), Ok(Duration::from_secs(90)));
        assert!(length_of_time("0s").is_err());
        assert!(length_of_time("10").is_err());
    }

    #[test]
    fn a_completion_script_names_the_commands() {
        let (mut out, written) = Out::captured(Format::Table);
        completion(Shell::Bash, &mut out).unwrap();
        let script = written.text();
        for command in ["inspect", "session", "document", "namespace", "import"] {
            assert!(script.contains(command), "{command}");
        }
    }
}
