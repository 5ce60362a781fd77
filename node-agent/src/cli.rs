//! The command line.

use crate::limits::Bounds;
use clap::{Args, Parser, Subcommand};
use rota_daemon::LogArguments;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

/// No disk is larger: one PiB.
const DISK_BYTES_MAX: u64 = 1 << 50;

/// Runs sessions on this machine for the managers of a Rota cluster.
#[derive(Parser, Debug)]
#[command(name = "rota-node-agent", version)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Run a node.
    Run(Box<RunArgs>),
    /// Check class files, start nothing: prints the name of each class and the digest of its
    /// text, or all mistakes.
    Check(CheckArgs),
    /// Guard one program; started by a node, which gives the order on standard input.
    #[command(hide = true)]
    Keeper(LogArguments),
    /// End what killed keepers leave when the node is killed too; started by a node.
    #[command(hide = true)]
    Guardian(LogArguments),
    /// Run one program beside a session's own, to its end; started by a node, which gives the order on standard
    /// input.
    #[command(hide = true)]
    Once(LogArguments),
    /// Be the first process of a session's pid namespace; started by a keeper.
    #[command(hide = true)]
    First(FirstArgs),
    /// Become a program that dies with its parent; started by a keeper or a first process.
    #[command(hide = true)]
    Exec(ExecArgs),
}

/// What to check.
#[derive(Args, Debug)]
pub struct CheckArgs {
    /// Folder with class files (*.toml).
    #[arg(long)]
    pub classes: PathBuf,
}

/// How a node runs.
#[derive(Args, Debug)]
pub struct RunArgs {
    /// The node's id, stable over its boots: 1 to 255 bytes, no control characters.
    #[arg(long)]
    pub id: String,
    /// Data folder. It belongs to this node of this cluster; made when it is not there.
    #[arg(long)]
    pub data: PathBuf,
    /// Where managers and clients of machines reach the node. Port 0: any free one.
    #[arg(long, default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,
    /// The host in the addresses that are told to others; needed with --listen 0.0.0.0 or [::].
    /// Default: the address of --listen.
    #[arg(long)]
    pub advertise: Option<String>,
    /// Allow --listen and --http on an address that other machines reach. There is no encryption and no
    /// access control yet.
    #[arg(long)]
    pub insecure_bind: bool,
    /// Where to serve `/metrics` for Prometheus: what the programs of each class use. Default: nowhere.
    #[arg(long, value_name = "ADDRESS")]
    pub http: Option<SocketAddr>,
    /// A name under which HTTP is asked, beside the host in the node's address, this machine's own, `localhost` and
    /// IP addresses. Requests under other names are refused: a web page could have its own name lead here.
    #[arg(long = "http-name", value_name = "NAME,...", value_delimiter = ',')]
    pub http_names: Vec<String>,
    /// Managers to register with, host:port, several separated by commas. Later the managers tell
    /// who they are.
    #[arg(long, required = true, value_delimiter = ',')]
    pub managers: Vec<String>,
    /// A Consul agent to register with as a service, consul://HOST:PORT/PREFIX, besides the
    /// managers; the prefix is the managers'. Default: none.
    #[arg(long, value_name = "ADDRESS")]
    pub consul: Option<String>,
    /// The cluster's name.
    #[arg(long, default_value = "rota")]
    pub cluster: String,
    /// The pool that the node belongs to.
    #[arg(long, default_value = "default")]
    pub pool: String,
    /// How many sessions the node can hold, 1 to 1000000. `ringctl dev` gives its nodes 1000.
    #[arg(long, default_value_t = 100)]
    pub places: u32,
    /// Processors for sessions, in thousandths. Without it those of the machine; 0: not counted. Only sessions whose
    /// class needs some take any.
    #[arg(long)]
    pub cpu_millis: Option<u32>,
    /// Memory for sessions, in MiB. Without it that of the machine; 0: not counted. Only sessions whose class needs
    /// some take any.
    #[arg(long)]
    pub memory_mib: Option<u32>,
    /// What the node is, `NAME=VALUE`; may be given several times. A class may need labels of its node.
    #[arg(long = "label", value_name = "NAME=VALUE")]
    pub labels: Vec<String>,
    /// Load (the largest part in use of places, CPU and memory) from which on the node takes no more, above 0 to 1. A
    /// pool with a limit of its own goes before.
    #[arg(long, default_value_t = 0.8)]
    pub load_limit: f64,
    /// Folder with class files (*.toml), which are read again at SIGHUP: new opens get the new text, and what
    /// runs keeps its own. Without it the node offers no class.
    #[arg(long)]
    pub classes: Option<PathBuf>,
    /// Do not follow the content of the pool: offer the classes of --classes alone.
    #[arg(long)]
    pub no_content: bool,
    /// How often managers are asked whether there is new content, 100ms to 1h.
    #[arg(long, default_value = "5s")]
    pub content_every: humantime::Duration,
    /// The ports that are given to programs, FROM-TO: those that a firewall lets through. Nodes of one
    /// machine may share them. Best outside of those of outgoing connections
    /// (/proc/sys/net/ipv4/ip_local_port_range), as the default is on Linux.
    #[arg(long, default_value = "30000-31999")]
    pub session_ports: String,
    /// Most bytes kept of each of a program's two outputs; the newest are kept.
    #[arg(long, default_value_t = 16 * 1024 * 1024, value_parser = clap::value_parser!(u64).range(4096..))]
    pub output_bytes_max: u64,
    /// Bytes that sessions leave free of the disk of --data: below that the node takes no session, and what
    /// programs print is dropped. It keeps the log of managers on that disk going. What programs write
    /// themselves is not bounded.
    #[arg(long, default_value_t = 256 * 1024 * 1024, value_parser = clap::value_parser!(u64).range(..=DISK_BYTES_MAX))]
    pub disk_reserve_bytes: u64,
    /// How many folders of ended programs are kept for their output.
    #[arg(long, default_value_t = 100)]
    pub folders_kept_max: usize,
    /// How many actions of sessions run at a time; the rest wait. They are programs that classes have for the life
    /// cycles of their sessions.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub actions_max: u16,
    /// Run no actions: each is told as NOT-STARTED.
    #[arg(long)]
    pub no_actions: bool,
    /// What programs must be kept from at least: none or basic. A class that asks for less, and a machine
    /// on which the node can do less, are refused.
    #[arg(long, value_name = "SANDBOX", default_value = "none")]
    pub sandbox_min: String,
    /// The uids, and gids, that sessions may have with sandbox basic. Nobody else of the machine should
    /// have any of them.
    #[arg(long, value_name = "FIRST-LAST", default_value = "200000-265535")]
    pub program_users: String,
    /// Variables of the node's own environment that programs get too, several separated by commas, besides
    /// PATH, LANG and TZ.
    #[arg(long, value_name = "NAME,NAME", value_delimiter = ',')]
    pub env_pass: Vec<String>,
    /// Time between signs of life. Twice this must be below --lease-term.
    #[arg(long, default_value = "3s")]
    pub renew: humantime::Duration,
    /// Without an answer of the managers for this long, programs are ended.
    #[arg(long, default_value = "8s")]
    pub lease_term: humantime::Duration,
    /// Without an answer for this long, programs are killed. Managers refuse a node for which this is
    /// not below the time after which they declare a node lost (their --node-lost-ms).
    #[arg(long, default_value = "12s")]
    pub lease_kill: humantime::Duration,
    /// The log.
    #[command(flatten)]
    pub log: LogArguments,
}

/// What the first process of a pid namespace is told.
#[derive(Args, Debug)]
pub struct FirstArgs {
    /// Only try whether one comes up.
    #[arg(long)]
    pub probe: bool,
    /// Uid and gid of the program.
    #[arg(long)]
    pub user: Option<u32>,
    /// The file that is the program's standard input.
    #[arg(long)]
    pub input: Option<PathBuf>,
    /// What it is bound by.
    #[command(flatten)]
    pub bounds: Bounds,
    /// Program and arguments.
    #[arg(last = true)]
    pub argv: Vec<OsString>,
}

/// What the shim is told.
#[derive(Args, Debug)]
pub struct ExecArgs {
    /// Pid of its parent.
    #[arg(long)]
    pub parent: i32,
    /// Uid and gid to take.
    #[arg(long)]
    pub user: Option<u32>,
    /// The file that becomes standard input; without it nothing can be read.
    #[arg(long)]
    pub input: Option<PathBuf>,
    /// What it is bound by.
    #[command(flatten)]
    pub bounds: Bounds,
    /// Program and arguments.
    #[arg(last = true, required = true)]
    pub argv: Vec<OsString>,
}
