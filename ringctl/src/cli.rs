//! The command line.

use crate::apply::ApplyArguments;
use crate::bench::{BenchCommand, echo::EchoArguments};
use crate::content::ContentCommand;
use crate::dev::DevArguments;
use crate::document::DocumentCommand;
use crate::events::EventsArguments;
use crate::explain::ExplainArguments;
use crate::failure::UsageMistake;
use crate::inspect::InspectArguments;
use crate::join::JoinArguments;
use crate::leave::{CancelArguments, LeaveArguments};
use crate::namespace::NamespaceArguments;
use crate::node::NodeCommand;
use crate::output::{Format, Out};
use crate::pool::PoolArguments;
use crate::session::SessionCommand;
use crate::signal::SignalArguments;
use crate::task::TaskArguments;
use crate::top::TopCommand;
use crate::verify::VerifyArguments;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;
use rota_client::EndpointsError;
use std::ffi::OsString;

/// Above the options that every command takes.
const EVERYWHERE: &str = "Options of every command";

/// What says where managers are.
const OPTION: &str = "--endpoint";
const VARIABLE: &str = "ROTA_ENDPOINT";
const OF_PROGRAMS: &str = "ROTA_MANAGERS";

/// Opens sessions on a Rota ring, looks at the ring, and runs one on this machine.
#[derive(Parser, Debug)]
#[command(name = "ringctl", version, max_term_width = 100)]
pub struct Cli {
    /// What stdout gets.
    #[arg(short, long, global = true, value_enum, default_value_t = Format::Table,
          help_heading = EVERYWHERE)]
    pub output: Format,
    /// Managers to ask, `host:port`, comma-separated. Any manager serves any session; the next
    /// one is asked when one does not answer. Where nothing says so, those of ROTA_MANAGERS, which
    /// programs and actions of sessions have.
    #[arg(long, global = true, env = VARIABLE, default_value = "127.0.0.1:7400",
          value_name = "HOST:PORT,...", help_heading = EVERYWHERE)]
    endpoint: String,
    /// Where that came from, by its name.
    #[arg(skip = OPTION)]
    source: &'static str,
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
    /// Publish what nodes run (classes, programs, actions), list and compare its commits, roll back.
    #[command(subcommand)]
    Content(ContentCommand),
    /// Create, list, switch off and on, export, import and delete namespaces.
    Namespace(NamespaceArguments),
    /// Create, list and show tasks, change one or many of them, suspend queues and show their backlog.
    Task(TaskArguments),
    /// Describe, list, change and delete pools of nodes.
    Pool(PoolArguments),
    /// Make pools be what a file says of them. Pools that it does not name are left alone. The first
    /// failure stops it; repeating it is safe.
    Apply(ApplyArguments),
    /// Show the ring: managers, partitions, nodes.
    Inspect(InspectArguments),
    /// Show what happened lately in the cluster: opens, ends with their reasons, take-overs, joins, nodes that were lost.
    /// Managers keep the latest 8,192 events each, in memory.
    Events(EventsArguments),
    /// Say where a session belongs, who holds it, where it runs, and why.
    Explain(ExplainArguments),
    /// Ask every manager and node, and prove that everything is as it should be: one owner and equal
    /// copies of each partition, each READY session running exactly once, and nothing unknown.
    Verify(VerifyArguments),
    /// Take a manager that was started with --join into the ring.
    Join(JoinArguments),
    /// Tell a manager to hand on what it holds and to leave the ring.
    Leave(LeaveArguments),
    /// Take back the join or the leave that is under way.
    Cancel(CancelArguments),
    /// List, show, cordon, drain, replace, uncordon and forget nodes.
    #[command(subcommand)]
    Node(NodeCommand),
    /// Show what uses most CPU or memory: programs of sessions, or nodes.
    #[command(subcommand)]
    Top(TopCommand),
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

/// How managers are given.
const ENDPOINTS: &str = "managers are given as host:port, several with commas between them, as in \
    127.0.0.1:7400,127.0.0.1:7401";

impl Cli {
    /// Reads a command line.
    pub fn read<I: IntoIterator<Item = OsString>>(line: I) -> Result<Self, clap::Error> {
        let line: Vec<OsString> = line.into_iter().collect();
        let command = || every_option(Self::command(), &takes_negative_numbers);
        let matches = command().try_get_matches_from(&line).map_err(|error| {
            let wrong = error.use_stderr();
            let bare = || every_option(command(), &|it| it.env(None));
            let plain = || bare().try_get_matches_from(&line).err();
            wrong.then(plain).flatten().unwrap_or(error)
        })?;
        let cli = Self::from_arg_matches(&matches)?;
        let managers = std::env::var(OF_PROGRAMS).unwrap_or_default();
        Ok(cli.of_source(matches.value_source("endpoint"), managers))
    }

    /// `managers`: those that a program is given by whom its session runs.
    fn of_source(self, source: Option<ValueSource>, managers: String) -> Self {
        match source {
            Some(ValueSource::EnvVariable) => Self { source: VARIABLE, ..self },
            Some(ValueSource::DefaultValue) if !managers.is_empty() => {
                Self { source: OF_PROGRAMS, endpoint: managers, ..self }
            }
            Some(_) | None => Self { source: OPTION, ..self },
        }
    }

    /// Where managers are. Looked at by the commands that ask one: the others run whatever
    /// ROTA_ENDPOINT says.
    pub fn endpoints(&self) -> Result<String, UsageMistake> {
        let source = self.source;
        match rota_client::parse_endpoints(&self.endpoint) {
            Ok(list) => Ok(list.join(",")),
            Err(EndpointsError::Empty) => {
                Err(UsageMistake(format!("{source} is given but empty; {ENDPOINTS}")))
            }
            Err(EndpointsError::NotAnAddress(wrong)) => {
                Err(UsageMistake(format!("{source}: {wrong:?} is not host:port; {ENDPOINTS}")))
            }
        }
    }
}

/// The command line with a change to every argument. One without environment variables is for errors:
/// the usage below a mistake shows every option that has a value, and an option that a variable gives
/// would look as if it were required.
fn every_option(command: clap::Command, change: &dyn Fn(Arg) -> Arg) -> clap::Command {
    let below: Vec<String> = command.get_subcommands().map(|it| it.get_name().to_owned()).collect();
    let command = command.mut_args(change);
    below.into_iter().fold(command, |all, name| {
        all.mut_subcommand(name, |command| every_option(command, change))
    })
}

/// No option is called by a digit, so `-1` is a value: its own check tells what is wrong with it.
fn takes_negative_numbers(argument: Arg) -> Arg {
    let takes_values = argument.get_action().takes_values();
    argument.allow_negative_numbers(takes_values)
}

/// Whether a command line asks for JSON, as far as it can be told of one that is wrong.
pub fn wants_json(line: &[OsString]) -> bool {
    let texts = line.iter().map(|it| it.to_str().unwrap_or_default());
    let texts: Vec<&str> = texts.take_while(|it| *it != "--").collect();
    let after = |pair: &[&str]| ["-o", "--output"].contains(&pair[0]) && pair[1] == "json";
    let in_one = ["-ojson", "-o=json", "--output=json"];
    texts.windows(2).any(after) || texts.iter().any(|it| in_one.contains(it))
}

/// A mistake of the command line in one sentence, without the usage below it.
pub fn in_one_sentence(error: &clap::Error) -> String {
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return "a command is missing; --help lists them".to_owned();
    }
    let text = error.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let end =
        ["\nUsage:", "\nFor more information"].into_iter().filter_map(|it| text.find(it)).min();
    let words: Vec<&str> = text[..end.unwrap_or(text.len())].split_whitespace().collect();
    words.join(" ")
}

/// The command line without its hidden commands: completion would offer them.
fn offered() -> clap::Command {
    let all = Cli::command();
    clap::Command::new("ringctl")
        .args(all.get_arguments().cloned())
        .subcommands(all.get_subcommands().filter(|it| !it.is_hide_set()).cloned())
}

/// Writes the completion script of a shell.
pub fn completion(shell: Shell, out: &mut Out) -> std::io::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut offered(), "ringctl", &mut script);
    out.drawn(&String::from_utf8_lossy(&script))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    /// `session open`, `inspect`, ...: all that help shows.
    fn commands() -> BTreeSet<String> {
        let seen = |it: &&clap::Command| !it.is_hide_set() && it.get_name() != "help";
        let mut all = BTreeSet::new();
        for command in Cli::command().get_subcommands().filter(seen) {
            let name = command.get_name();
            let below = command.get_subcommands().filter(seen);
            let below: Vec<String> = below.map(|it| format!("{name} {}", it.get_name())).collect();
            // The measurements stand on a page of their own.
            match below.as_slice() {
                [] => all.extend([name.to_owned()]),
                _ if name == "bench" => all.extend([name.to_owned()]),
                below => all.extend(below.iter().cloned()),
            }
        }
        all
    }

    #[test]
    fn the_page_of_operations_lists_every_command() {
        let page = include_str!("../../docs/operations.md");
        let list = page.split_once("\nThe commands: ").expect("the list").1;
        let list = list.split_once("\n\n").expect("its end").0.replace('\n', " ");
        let mut listed = BTreeSet::new();
        for group in list.split('`').skip(1).step_by(2) {
            let words = group.split(" / ").map(str::trim);
            let first = group.split(' ').next().expect("it has a word");
            let below = words.map(|it| it.trim_start_matches(first).trim());
            listed.extend(below.map(|it| format!("{first} {it}").trim().to_owned()));
        }
        assert_eq!(listed, commands());
    }

    #[test]
    fn output_and_endpoint_are_taken_anywhere_on_the_line() {
        let line = ["ringctl", "session", "get", "x", "-o", "json", "--endpoint", "a:1, b:2"];
        let cli = Cli::try_parse_from(line).unwrap();
        assert_eq!(cli.output, Format::Json);
        assert_eq!(cli.endpoints().unwrap(), "a:1,b:2");
    }

    #[test]
    fn a_wrong_endpoint_is_named_with_its_flag_and_the_expected_form() {
        for wrong in ["foo", "http//x", "host:", "a:1,foo", "", " , "] {
            let cli = Cli::read(line(&["inspect", "--endpoint", wrong])).unwrap();
            let text = cli.endpoints().unwrap_err().to_string();
            let named = wrong.trim_start_matches("a:1,");
            let says = if named.trim_matches([' ', ',']).is_empty() { "empty" } else { named };
            assert!(text.starts_with("--endpoint") && text.contains(says), "{text}");
            assert!(text.contains("as in 127.0.0.1:7400"), "{text}");
        }
        let by_variable = Cli { source: VARIABLE, endpoint: String::new(), ..anything() };
        let text = by_variable.endpoints().unwrap_err().to_string();
        assert!(text.starts_with("ROTA_ENDPOINT is given but empty"), "{text}");
    }

    #[test]
    fn a_program_of_a_session_asks_the_managers_that_it_was_given_unless_something_else_says_so() {
        let of = |source, managers: &str| {
            let cli = anything().of_source(Some(source), managers.to_owned());
            (cli.source, cli.endpoints().unwrap())
        };
        let own = anything().endpoint;
        let given = of(ValueSource::DefaultValue, "a:1,b:2");
        assert_eq!(given, ("ROTA_MANAGERS", "a:1,b:2".to_owned()));
        assert_eq!(of(ValueSource::DefaultValue, "").1, own);
        assert_eq!(of(ValueSource::EnvVariable, "a:1"), ("ROTA_ENDPOINT", own.clone()));
        assert_eq!(of(ValueSource::CommandLine, "a:1"), ("--endpoint", own));
    }

    fn line(arguments: &[&str]) -> Vec<OsString> {
        [&["ringctl"], arguments].concat().into_iter().map(OsString::from).collect()
    }

    fn anything() -> Cli {
        Cli::read(line(&["inspect"])).unwrap()
    }

    #[test]
    fn json_is_asked_for_in_each_of_its_forms() {
        for yes in
            [&["-o", "json"][..], &["x", "-ojson"], &["--output=json"], &["--output", "json"]]
        {
            assert!(wants_json(&line(yes)), "{yes:?}");
        }
        for no in [&["-o", "table"][..], &["json"], &["--", "-o", "json"], &[]] {
            assert!(!wants_json(&line(no)), "{no:?}");
        }
    }

    #[test]
    fn a_mistake_is_told_in_one_sentence() {
        let told = |arguments: &[&str]| in_one_sentence(&Cli::read(line(arguments)).unwrap_err());
        let missing = told(&["session", "open", "a"]);
        assert_eq!(missing, "the following required arguments were not provided: --class <CLASS>");
        let unknown = told(&["session", "list", "--nod", "n1"]);
        assert!(unknown.starts_with("unexpected argument '--nod' found"), "{unknown}");
        assert!(!unknown.contains("Usage"), "{unknown}");
        let negative = told(&["join", "--target", "a:1", "--contact", "b:1", "--number", "-1"]);
        let wanted = "invalid value '-1' for '--number <N|auto>': must be a whole number, or auto";
        assert_eq!(negative, wanted);
        assert_eq!(told(&["session"]), "a command is missing; --help lists them");
    }

    #[test]
    fn a_completion_script_names_the_commands() {
        let (mut out, written) = Out::captured(Format::Table);
        completion(Shell::Bash, &mut out).unwrap();
        let script = written.text();
        let some =
            "inspect session document namespace task import pool apply drain uncordon verify top";
        for command in some.split(' ') {
            assert!(script.contains(command), "{command}");
        }
        assert!(!script.contains("bench-echo") && !script.contains("bench__echo"), "{script}");
    }
}
