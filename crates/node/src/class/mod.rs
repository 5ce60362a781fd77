//! Classes: what a session can run. A class stands in a TOML file; reading the file is the
//! caller's work, the text is checked here.
//!
//! ```toml
//! name = "door"                        # all kinds
//! kind = "machine"                     # or "program"
//! attributes = { colour = "green" }    # optional: values for attributes that an open leaves out
//!
//! # kind = "machine"
//! states = ["open", "shut", "gone"]
//! initial = "shut"
//! final = ["gone"]                     # optional: reaching one ends the session
//! events = ["push", "pull", "burn"]
//! transitions = [
//!     { from = "shut", event = "push", to = "open" },
//!     { from = "open", event = "pull", to = "shut" },
//!     { from = ["open", "shut"], event = "burn", to = "gone" },
//! ]
//! report_states = true                 # optional; false: managers are not told its state
//!
//! # kind = "program"
//! argv = ["serve", "--port={port}", "--name", "{attr.colour}"]   # never a shell
//! env = { HOME = "{folder}" }          # optional
//! port = true                          # optional: whether it is given a port, its address; by default
//!                                      # where ready or a {port} asks for one
//! ports = ["admin"]                    # optional: names of further ports
//! ready = { port = true }              # optional; or { line = "text in a line of output" }
//! start_timeout = "10s"                # optional: 100ms to 10m
//! grace = "5s"                         # optional: 0s to 5m between stop_signal and KILL
//! stop_signal = "TERM"                 # optional: or INT, QUIT, HUP, USR1, USR2, WINCH; asks it to end
//! kill_mode = "group"                  # optional: its whole process group is asked; or "main": it alone is, and
//!                                      # what it leaves behind once it has ended. KILL is for all in any case
//! options = true                       # optional: a client's value may begin with - (default: false)
//! sandbox = "basic"                    # optional: or "none"; else the best that the node can do
//!
//! [life]                               # optional, all kinds: how long a session lives (see `life`)
//! idle = "30m"
//! ```
//!
//! `argv` and the values of `env` may hold `{session}`, `{namespace}`, `{ip}`, `{port}`, `{port.NAME}`,
//! `{folder}` and `{attr.NAME}`; `{{` and `}}` are braces. What listens at `{ip}`, the node's own,
//! is reached where the node is. A value becomes part of one argument, whatever
//! characters it has.

mod actions;
mod command;
mod given;
mod life;
mod parse;
mod program;
mod source;
mod times;

pub use actions::{ActionFile, ActionFolder, FoundAction, is_action_name};
pub use command::{CommandLine, Piece, StartError, Template, Values};
pub use parse::{parse_classes, parse_classes_with};
pub use source::ClassMistake;

use rota_model::{Attributes, ClassName, ClassText, Sandbox};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Most names of attributes in a remark.
const UNUSED_SHOWN_MAX: usize = 3;

/// What a session runs.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Class {
    /// Its name, as clients give it.
    pub name: ClassName,
    /// Which text it was read from, and what managers decide by of it.
    pub text: ClassText,
    /// Values of attributes that an open leaves out.
    pub attributes: Attributes,
    /// Machine or program.
    pub kind: ClassKind,
    /// How a session that is READY is looked after; `None`: it is not. Programs only.
    pub health: Option<Health>,
    /// Open connections on a session's port count as use of it. Programs with a port only.
    pub idle_connections: bool,
    /// What each process of an action may have of memory, in MiB: by the life cycles of which it is said.
    pub action_memory_mib: BTreeMap<String, u32>,
}

/// How a session that is READY is looked after.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Health {
    /// What is looked at.
    pub check: HealthCheck,
    /// Between two checks, in milliseconds.
    pub every_ms: u64,
    /// How long one may take, in milliseconds.
    pub timeout_ms: u64,
    /// After so many failed ones in a row the session is ended.
    pub failures: u32,
    /// Not sooner than this after the session was READY, in milliseconds.
    pub after_ms: u64,
}

/// By what a session counts as well.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum HealthCheck {
    /// Its port takes a connection.
    Port,
    /// A GET of that path on its port is answered with 2xx or 3xx.
    Http(String),
    /// A program ends with exit code 0.
    Program(Vec<Template>),
}

/// The two kinds of class.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ClassKind {
    /// A state machine inside the node's process.
    Machine(Arc<MachineClass>),
    /// A process of its own.
    Program(Arc<ProgramClass>),
}

impl Class {
    /// Checks the text of one class file. `file` is named in each mistake; all are listed.
    pub fn parse(file: &str, text: &str) -> Result<Self, Vec<ClassMistake>> {
        parse::parse_class(file, text)
    }

    /// The attributes of a session: those of its open, and the class's own for the rest.
    pub fn attributes_with(&self, given: &Attributes) -> Attributes {
        let mut all = self.attributes.clone();
        all.extend(given.iter().map(|(name, value)| (name.clone(), value.clone())));
        all
    }

    /// What an opener is told who gave attributes that this class does not use: mostly a name is misspelt.
    /// Empty when there are none.
    pub fn remark_on(&self, given: &Attributes) -> String {
        let is_used = |name: &str| match &self.kind {
            ClassKind::Machine(_) => false,
            ClassKind::Program(program) => program.uses(name),
        };
        let unused = |name: &&String| !self.attributes.contains_key(*name) && !is_used(name);
        let mut names = given.keys().filter(unused);
        let shown: Vec<String> =
            names.by_ref().take(UNUSED_SHOWN_MAX).map(|name| format!("{name:?}")).collect();
        let more = match names.count() {
            0 => String::new(),
            count => format!(" and {count} more"),
        };
        match shown.as_slice() {
            [] => String::new(),
            shown => {
                format!("class {} does not use attribute {}{more}", self.name, shown.join(", "))
            }
        }
    }
}

/// A state machine's states, events and transitions.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct MachineClass {
    /// Names of the states.
    pub(crate) states: Vec<String>,
    /// Index of the first state.
    pub(crate) initial: usize,
    /// Per state, whether it ends the session.
    pub(crate) finals: Vec<bool>,
    /// Names of the events.
    pub(crate) events: Vec<String>,
    /// From (state, event) to state, as indices.
    pub(crate) transitions: BTreeMap<(usize, usize), usize>,
    /// Whether managers are told of each new state, so that Get shows it.
    pub(crate) report_states: bool,
}

impl MachineClass {
    /// Names of the states, in order of the file.
    pub fn states(&self) -> &[String] {
        &self.states
    }

    /// Names of the events, in order of the file.
    pub fn events(&self) -> &[String] {
        &self.events
    }

    /// The state that a machine starts in.
    pub fn initial(&self) -> &str {
        self.state_name(self.initial)
    }

    /// Whether managers are told of each state (the first one too), so that Get shows it. Each
    /// costs a replicated write; a class for load does without.
    pub fn report_states(&self) -> bool {
        self.report_states
    }

    pub(crate) fn state_name(&self, state: usize) -> &str {
        &self.states[state]
    }

    pub(crate) fn is_final(&self, state: usize) -> bool {
        self.finals[state]
    }

    pub(crate) fn event_index(&self, event: &str) -> Option<usize> {
        self.events.iter().position(|it| it == event)
    }

    pub(crate) fn next(&self, state: usize, event: usize) -> Option<usize> {
        self.transitions.get(&(state, event)).copied()
    }

    pub(crate) fn events_from(&self, state: usize) -> Vec<String> {
        let leading = self.transitions.range((state, 0)..=(state, usize::MAX));
        leading.map(|((_, event), _)| self.events[*event].clone()).collect()
    }
}

/// How a program is started, known to be ready, and stopped.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ProgramClass {
    /// Program and arguments. The first holds no attributes.
    pub argv: Vec<Template>,
    /// Variables beside those that every program gets.
    pub env: BTreeMap<String, Template>,
    /// Whether it is given a port, which is its address.
    pub port: bool,
    /// Names of further ports that it is given.
    pub ports: BTreeSet<String>,
    /// When it counts as ready.
    pub ready: ReadyWhen,
    /// How long it may take to get ready before it is killed.
    pub start_timeout_ms: u64,
    /// Between the stop signal and KILL.
    pub grace_ms: u64,
    /// Whether an argument that begins with a client's value may begin with `-`.
    pub options: bool,
    /// What asks it to end.
    pub stop_signal: StopSignal,
    /// Whom that reaches.
    pub kill_mode: KillMode,
    /// What it must be kept from, no more and no less; `None`: the best that its node can do.
    pub sandbox: Option<Sandbox>,
    /// What it may use at most.
    pub limits: Limits,
    /// What is kept at the ring of what it printed, after its end.
    pub kept_output: Option<KeptOutput>,
}

/// What is kept at the ring of what a program printed, after its end.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct KeptOutput {
    /// How long, in milliseconds.
    pub keep_ms: u64,
    /// The end of each output, at most so many KiB of it.
    pub kib: u32,
}

/// What the processes of a session may use at most; `None`: as much as they find.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Limits {
    /// Memory, in MiB.
    pub memory_mib: Option<u32>,
    /// Processors, in thousandths.
    pub cpu_millis: Option<u32>,
    /// Processes and threads.
    pub processes: Option<u32>,
}

macro_rules! words {
    ($(#[$doc:meta])* $type:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum $type { $($(#[$vdoc])* $variant,)* }

        impl $type {
            /// Every one.
            pub const ALL: &'static [$type] = &[$($type::$variant),*];
            /// As in a class file.
            pub fn as_str(self) -> &'static str {
                match self { $($type::$variant => $text,)* }
            }
            /// Reads what a class file says.
            ///
            /// # Errors
            /// What is wrong with the text: "is ...; it must be ...".
            pub fn parse(text: &str) -> Result<Self, String> {
                let found = Self::ALL.iter().copied().find(|it| it.as_str() == text);
                found.ok_or_else(|| {
                    let known: Vec<&str> = Self::ALL.iter().map(|it| it.as_str()).collect();
                    format!("is {text:?}; it must be one of {}", known.join(", "))
                })
            }
        }
    };
}

words!(
    /// The signal by which a program is asked to end: a name of signal(7), here without its SIG.
    StopSignal {
        /// The usual one.
        Term = "TERM",
        /// As Ctrl-C does.
        Int = "INT",
        /// As Ctrl and the backslash do.
        Quit = "QUIT",
        /// A hang-up.
        Hup = "HUP",
        /// One of the program's own.
        Usr1 = "USR1",
        /// Another one.
        Usr2 = "USR2",
        /// Of a window's size; some servers end well by it.
        Winch = "WINCH",
    }
);

words!(
    /// Whom the stop signal reaches. KILL reaches every process of the session in any case.
    KillMode {
        /// The program's process group.
        Group = "group",
        /// The program alone; when it has ended, what is left of its group.
        Main = "main",
    }
);

/// When a program counts as ready.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ReadyWhen {
    /// Its port takes connections, and it is its own processes that take them.
    Port,
    /// It printed a line that contains this text (standard output or standard error).
    Line(String),
}
