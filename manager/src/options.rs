//! The command line: every mistake is found and listed before anything is started.

#[cfg(feature = "docker")]
mod docker;
mod engine;
mod fields;
mod memory;
mod provisioners;
mod tasks;

#[cfg(feature = "docker")]
pub use docker::DockerArguments;
pub use engine::{EngineArguments, EngineOptions};
pub use fields::{DeclaredField, FLAG as FIELDS_FLAG};
pub use memory::{MemoryArguments, MemoryOptions};
pub use provisioners::{ProvisionerArguments, ProvisionerOptions};
pub use tasks::{TaskArguments, TaskOptions};

use crate::bodies::BODY_BYTES_MAX;
use clap::Parser;
use rota_daemon::private::{read_secret, secret_on_the_line};
use rota_daemon::{HttpNames, Log, LogArguments, may_hold_data, may_listen};
use rota_docstore::checker::CREDENTIAL_BYTES_MAX;
use rota_membership::StoreAddress;
use rota_model::{
    ClusterName, ClusterTimes, FieldError, LoadLimit, ManagerId, ManagerNumber, REQUEST_MEMORY_MS,
};
use rota_protocol::operate::AdminKey;
use rota_protocol::{DocumentsConfig, NumbersConfig, Timing};
use rota_ring::RingShape;
use rota_storage::attachments::AttachmentSettings;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Below this a body goes before its client has named it in an operation.
const GRACE_MS_MIN: u64 = 10_000;
/// A year: what nobody names for so long is kept by mistake.
const GRACE_MS_MAX: u64 = 365 * 24 * 3_600_000;

/// Every single document fits: 8 MiB of contents, 4 MiB of memories, names of what was destroyed, and
/// what 32,768 items take around that.
const CACHE_BYTES_MIN: u64 = 32 * 1024 * 1024;
/// A PiB: what is more is a slip of the pen.
const DISK_BYTES_MAX: u64 = 1 << 50;
/// A GiB: room for a log that is folded while the disk is being emptied.
const BODY_RESERVE_BYTES: u64 = 1 << 30;
/// Two full documents.
const DOCUMENTS_BYTES_MIN: u64 = 16 * 1024 * 1024;
/// A TiB: what is more is a slip of the pen.
const MEMORY_BYTES_MAX: u64 = 1 << 40;
/// Below this a copy that missed a minute gets the list of all its items.
const DESTROYED_MS_MIN: u64 = 60_000;
/// An hour: as far apart as clocks may lie.
const DELETED_MS_MIN: u64 = 3_600_000;
/// Each is a thread; beside them the process needs some for files.
const WORKS_MAX: u32 = 256;
/// Ten years.
const REMEMBERED_MS_MAX: u64 = 10 * GRACE_MS_MAX;

/// A manager of a Rota ring.
#[derive(Parser, Debug)]
#[command(name = "rota-manager", version, max_term_width = 100)]
#[command(args_override_self = true)]
pub struct Arguments {
    /// Folder for this manager's records; made when it does not exist.
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,
    /// This manager's reserved number, in [0, slots).
    #[arg(long, value_name = "N", required_unless_present = "join", conflicts_with = "join")]
    pub number: Option<String>,
    /// Wait outside of the ring until `ringctl join` tells the number. Once joined, it is
    /// remembered.
    #[arg(long)]
    pub join: bool,
    /// This manager's name.
    #[arg(long)]
    pub id: String,
    /// Where to serve gRPC. Port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:0", value_name = "IP:PORT")]
    pub grpc: String,
    /// Where to serve /metrics and /healthz. Port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:0", value_name = "IP:PORT")]
    pub http: String,
    /// A name under which HTTP is asked, beside this machine's own, `localhost` and IP addresses. Requests
    /// under other names are refused: a web page could have its own name lead here.
    #[arg(long = "http-name", value_name = "NAME,...", value_delimiter = ',')]
    pub http_names: Vec<String>,
    /// The config store: HOST:PORT of a rota-config-store, or consul://HOST:PORT/PREFIX, the local
    /// Consul agent and a prefix for this cluster's key and services (default rota).
    #[arg(long, value_name = "ADDRESS")]
    pub config_store: String,
    /// Name of the cluster.
    #[arg(long)]
    pub cluster: String,
    /// Reserved numbers and their managers, for founding the cluster: "100=a,400=b,800=c".
    #[arg(long, default_value = "", value_name = "N=ID,...")]
    pub ring: String,
    /// Slots of the ring, 1 to 65536.
    #[arg(long, default_value = "1024", value_name = "M")]
    pub slots: String,
    /// Successors that hold copies of a partition.
    #[arg(long, default_value = "2", value_name = "R")]
    pub replicas: String,
    /// Most managers of the ring. The same at all managers.
    #[arg(long, default_value = "100", value_name = "N")]
    pub managers_max: String,
    /// Load at which a node takes no more sessions, above 0 and at most 1.
    #[arg(long, default_value = "0.8", value_name = "T")]
    pub load_limit: String,
    /// Who starts nodes.
    #[command(flatten)]
    pub provisioners: ProvisionerArguments,
    /// The log.
    #[command(flatten)]
    pub log: LogArguments,
    /// Allow listeners outside of loopback although nothing is encrypted or authenticated yet.
    #[arg(long)]
    pub insecure_bind: bool,
    /// File with the key that operations of administrators need; without it they need none. Nobody else
    /// may be able to read it.
    #[arg(long, value_name = "FILE")]
    pub admin_key_file: Option<PathBuf>,
    /// Refused: a command line is no place for a secret.
    #[arg(long, hide = true, allow_hyphen_values = true)]
    pub admin_key: Option<String>,
    /// Oldest build of clients that may run operations on documents.
    #[arg(long, default_value = "0", value_name = "BUILD")]
    pub client_build_min: String,
    /// Largest body of an attachment that clients may put through this manager, in bytes.
    #[arg(long, value_name = "BYTES")]
    pub body_bytes_max: Option<String>,
    /// How long a body that no item names (any more) stays readable, in milliseconds [default: a
    /// day].
    #[arg(long, value_name = "MS")]
    pub body_grace_ms: Option<String>,
    /// Most bytes of bodies at this manager that no item names (yet, or any more) [default: 64 GiB].
    #[arg(long, value_name = "BYTES")]
    pub body_free_bytes_max: Option<String>,
    /// Bytes of the data folder's disk that bodies leave to everything else [default: 1 GiB].
    #[arg(long, value_name = "BYTES")]
    pub body_reserve_bytes: Option<String>,
    /// Most bytes of applications' documents in all copies at this manager; the same at all managers
    /// [default: 4 GiB].
    #[arg(long, value_name = "BYTES")]
    pub documents_bytes_max: Option<String>,
    /// Memory for copies of documents that other managers own, in bytes [default: 64 MiB].
    #[arg(long, value_name = "BYTES")]
    pub documents_cache_bytes: Option<String>,
    /// File that declares fields by which documents are searched, as TOML: `[Cart.Line]` and below it
    /// `article = "string"`. The same at all managers, since each refuses values of another type.
    #[arg(long, value_name = "FILE")]
    pub fields_file: Option<PathBuf>,
    /// How long items of documents that were destroyed stay known to copies, in milliseconds
    /// [default: a week].
    #[arg(long, value_name = "MS")]
    pub documents_destroyed_ms: Option<String>,
    /// How long the ends of documents and of namespaces stay known, in milliseconds [default: a
    /// week].
    #[arg(long, value_name = "MS")]
    pub documents_deleted_ms: Option<String>,
    /// How long a manager, pool, node or session that is gone keeps its stable number, in milliseconds; 0: not at all.
    /// The same at all managers [default: a week].
    #[arg(long, value_name = "MS")]
    pub number_retention_ms: Option<String>,
    /// Give sessions no stable numbers: nothing is told and written for them. The same at all managers.
    #[arg(long)]
    pub no_session_numbers: bool,
    /// Most operations of applications that work at once beside this manager's decisions [default: 8].
    #[arg(long, value_name = "N")]
    pub works_max: Option<String>,
    /// How long one of them may work before its caller is told X-QUOTA, in milliseconds [default:
    /// 10000].
    #[arg(long, value_name = "MS")]
    pub work_ms: Option<String>,
    /// The engine.
    #[command(flatten)]
    pub engine: EngineArguments,
    #[command(flatten)]
    pub memory: MemoryArguments,
    #[command(flatten)]
    pub tasks: TaskArguments,
    /// Times of the protocol. Last, since their heading holds for all that follows.
    #[command(flatten)]
    pub timing: TimingArguments,
}

macro_rules! timing_arguments {
    ($($(#[doc = $doc:literal])* $field:ident,)*) => {
        /// Times, in milliseconds.
        #[derive(clap::Args, Debug, Default)]
        #[command(next_help_heading = "Timing (milliseconds)")]
        pub struct TimingArguments {
            $($(#[doc = $doc])* #[arg(long, value_name = "MS", hide_short_help = true)]
            #[arg(help = with_default(concat!($($doc),*), Timing::default().$field))]
            pub $field: Option<String>,)*
        }
        impl TimingArguments {
            fn check(&self, mistakes: &mut Vec<FieldError>) -> Timing {
                let (mut timing, before) = (Timing::default(), mistakes.len());
                $(if let Some(text) = &self.$field {
                    let name = flag(stringify!($field));
                    timing.$field = number(&name, text, 1, u64::MAX / 4, mistakes);
                })*
                // What is no time has no order among the others.
                if mistakes.len() == before {
                    mistakes.extend(timing.mistakes(&flag));
                    mistakes.extend(forgets_early(&timing));
                }
                timing
            }
        }
    };
}

/// What an option is, and its value where nothing is said.
fn with_default(what: &str, default_ms: u64) -> String {
    format!("{} [default: {default_ms}]", what.trim().trim_end_matches('.'))
}

/// Request ids live in the records of sessions, and clients are promised that they are remembered.
fn forgets_early(timing: &Timing) -> Option<FieldError> {
    let tombstone_ms = timing.tombstone_ms;
    (tombstone_ms < REQUEST_MEMORY_MS).then(|| {
        let problem = format!(
            "is {tombstone_ms}; it must be at least {REQUEST_MEMORY_MS}, for which time request ids \
             are remembered"
        );
        FieldError::new("--tombstone-ms", problem)
    })
}

timing_arguments!(
    /// Between heartbeats to a peer.
    heartbeat_ms,
    /// Silence after which a peer is suspected.
    suspect_ms,
    /// Between repetitions of an unanswered message to a peer.
    resend_ms,
    /// Between repetitions of an unanswered message to a node.
    node_resend_ms,
    /// How long a new session may wait at a node before it is started.
    create_deadline_ms,
    /// How long new operations wait for an active manager that cannot be copied to.
    copy_deadline_ms,
    /// How long a copy may be missing at an active manager before another one gets it too.
    repair_ms,
    /// How long a manager keeps what was copied to it in vain.
    abandon_ms,
    /// How long a join or a leave may go without any progress before another number may.
    join_ms,
    /// How long a partition whose last copy is gone waits for somebody who holds more, before it is found
    /// again from the nodes.
    recover_after_ms,
    /// Between renewals of a node's lease. The same at all managers, like the next three.
    renew_ms,
    /// Without a renewal for this long, a node ends its programs politely.
    lease_term_ms,
    /// Without a renewal for this long, a node kills its programs.
    lease_kill_ms,
    /// Silence after which a node is declared lost. Nodes whose programs might run longer are refused.
    node_lost_ms,
    /// How long ended sessions are kept; at least 600000, the time for which request ids are remembered.
    tombstone_ms,
    /// How long ordered nodes may take to register.
    provision_ms,
    /// Advice to a caller who should come again soon.
    retry_ms,
);

/// The shape of the ring that the command line asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RingOptions {
    /// Name of the cluster.
    pub cluster: ClusterName,
    /// Slots.
    pub m: u32,
    /// Successors with copies.
    pub r: u32,
    /// Most managers.
    pub managers_max: u32,
    /// Times that all managers share.
    pub times: ClusterTimes,
    /// Reserved numbers for a founding; may be empty.
    pub numbers: Vec<(ManagerNumber, ManagerId)>,
}

impl RingOptions {
    /// What the ring never changes.
    pub fn shape(&self) -> RingShape {
        RingShape { cluster: self.cluster.clone(), m: self.m, r: self.r }
    }
}

/// A checked command line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// Data folder.
    pub data: PathBuf,
    /// What keeps the records.
    pub engine: EngineOptions,
    /// Reserved number; `None` waits outside of the ring until one is told.
    pub number: Option<ManagerNumber>,
    /// Own name.
    pub id: ManagerId,
    /// gRPC listener.
    pub grpc: SocketAddr,
    /// HTTP listener.
    pub http: SocketAddr,
    /// Names under which HTTP is asked.
    pub http_names: HttpNames,
    /// Where the config store is.
    pub config_store: StoreAddress,
    /// What may fill the memory.
    pub memory: MemoryOptions,
    /// The ring.
    pub ring: RingOptions,
    /// T of pools that say none.
    pub load_limit: LoadLimit,
    /// Who starts nodes.
    pub provisioners: ProvisionerOptions,
    /// Times.
    pub timing: Timing,
    /// What is decided about documents.
    pub documents: DocumentsConfig,
    /// Fields by which documents are searched, beside those that the program declares.
    pub fields: Vec<DeclaredField>,
    /// What is decided about stable numbers.
    pub numbers: NumbersConfig,
    /// What is decided about bodies of attachments.
    pub bodies: AttachmentSettings,
    /// What is decided about tasks.
    pub tasks: TaskOptions,
    /// The log.
    pub log: Log,
}

/// The flag of a field.
pub fn flag(field: &str) -> String {
    format!("--{}", field.replace('_', "-"))
}

fn number(flag: &str, text: &str, low: u64, high: u64, mistakes: &mut Vec<FieldError>) -> u64 {
    match text.parse::<u64>() {
        Ok(value) if (low..=high).contains(&value) => value,
        Ok(value) => {
            let problem = format!("is {value}; it must lie in [{low}, {high}]");
            mistakes.push(FieldError::new(flag, problem));
            low
        }
        Err(_) => {
            mistakes.push(FieldError::new(flag, format!("is {text:?}, not a whole number")));
            low
        }
    }
}

fn number_u32(flag: &str, text: &str, low: u32, high: u32, mistakes: &mut Vec<FieldError>) -> u32 {
    let value = number(flag, text, low.into(), high.into(), mistakes);
    u32::try_from(value).expect("number() keeps to a range of u32")
}

fn named<T>(
    flag: &str,
    parsed: Result<T, FieldError>,
    mistakes: &mut Vec<FieldError>,
) -> Option<T> {
    parsed.map_err(|error| mistakes.push(FieldError::new(flag, error.problem))).ok()
}

fn listener(
    flag: &str,
    text: &str,
    insecure: bool,
    mistakes: &mut Vec<FieldError>,
) -> Option<SocketAddr> {
    let Ok(address) = text.parse::<SocketAddr>() else {
        mistakes.push(FieldError::new(flag, format!("is {text:?}, not an IP:PORT")));
        return None;
    };
    if address.ip().is_unspecified() {
        let problem = format!("is {address}, which nobody can connect to: name one address");
        mistakes.push(FieldError::new(flag, problem));
        return None;
    }
    match may_listen(flag, address, insecure) {
        Ok(()) => Some(address),
        Err(mistake) => {
            mistakes.push(mistake);
            None
        }
    }
}

/// Reads "100=a,400=b". The rules between the entries are the View's.
fn ring_numbers(text: &str, mistakes: &mut Vec<FieldError>) -> Vec<(ManagerNumber, ManagerId)> {
    let mut numbers = Vec::new();
    for item in text.split(',').filter(|it| !it.is_empty()) {
        let Some((left, right)) = item.split_once('=') else {
            mistakes.push(FieldError::new("--ring", format!("has {item:?}, not N=ID")));
            continue;
        };
        let parsed = left.parse::<u32>().map_err(|_| format!("has {left:?}, not a number"));
        match (parsed, ManagerId::parse_new(right)) {
            (Ok(number), Ok(id)) => numbers.push((ManagerNumber(number), id)),
            (Err(problem), _) => mistakes.push(FieldError::new("--ring", problem)),
            (_, Err(error)) => {
                let problem = format!("has a name for {left} that {}", error.problem);
                mistakes.push(FieldError::new("--ring", problem));
            }
        }
    }
    numbers
}

fn load_limit(text: &str, mistakes: &mut Vec<FieldError>) -> LoadLimit {
    let least = LoadLimit::of_permille(1).expect("within bounds");
    let limit = text.parse::<f64>().ok().filter(|it| *it > 0.0 && *it <= 1.0);
    let Some(limit) = limit else {
        let problem = format!("is {text:?}; it must be above 0 and at most 1");
        mistakes.push(FieldError::new("--load-limit", problem));
        return least;
    };
    // At least 1: a limit that rounds to nothing would refuse every session without a word.
    LoadLimit::parse(limit).unwrap_or(least)
}

impl Arguments {
    /// Checks everything. Gives all mistakes when there is one.
    pub fn check(&self) -> Result<Options, Vec<FieldError>> {
        let mut wrong = Vec::new();
        let m = number_u32("--slots", &self.slots, 1, 65_536, &mut wrong);
        let n = self.number.as_ref().map(|text| {
            ManagerNumber(number_u32("--number", text, 0, m.saturating_sub(1), &mut wrong))
        });
        let id = named("--id", ManagerId::parse_new(&self.id), &mut wrong);
        let grpc = listener("--grpc", &self.grpc, self.insecure_bind, &mut wrong);
        let http = listener("--http", &self.http, self.insecure_bind, &mut wrong);
        let store = StoreAddress::parse(&self.config_store);
        let store = named("--config-store", store, &mut wrong);
        let cluster = named("--cluster", ClusterName::parse_new(&self.cluster), &mut wrong);
        let r = number_u32("--replicas", &self.replicas, 0, 100, &mut wrong);
        let managers_max = number_u32("--managers-max", &self.managers_max, 1, 10_000, &mut wrong);
        let numbers = ring_numbers(&self.ring, &mut wrong);
        let load_limit = load_limit(&self.load_limit, &mut wrong);
        let provisioners = self.provisioners.check(&mut wrong);
        let timing = self.timing.check(&mut wrong);
        let times = timing.of_cluster();
        let documents = self.check_documents(&mut wrong);
        let fields = fields::check(self.fields_file.as_deref(), &mut wrong);
        let stable_numbers = self.check_numbers(&mut wrong);
        let bodies = self.check_bodies(&mut wrong);
        let engine = self.engine.check(&mut wrong);
        let memory = self.memory.check(&mut wrong);
        let tasks = self.tasks.check(&mut wrong);
        let log = self.log.check().map_err(|mistakes| wrong.extend(mistakes)).ok();
        wrong.extend(may_hold_data("--data", &self.data).err());
        match (id, cluster, grpc, http, store, log) {
            (Some(id), Some(cluster), Some(grpc), Some(http), Some(config_store), Some(log))
                if wrong.is_empty() =>
            {
                Ok(Options {
                    data: self.data.clone(),
                    engine,
                    number: n,
                    id,
                    grpc,
                    http,
                    http_names: HttpNames::new(&self.http_names),
                    config_store,
                    ring: RingOptions { cluster, m, r, managers_max, times, numbers },
                    load_limit,
                    provisioners,
                    timing,
                    documents,
                    fields,
                    numbers: stable_numbers,
                    bodies,
                    memory,
                    tasks,
                    log,
                })
            }
            _ => Err(wrong),
        }
    }

    fn check_documents(&self, wrong: &mut Vec<FieldError>) -> DocumentsConfig {
        let mut config = DocumentsConfig::default();
        if let Some(text) = &self.documents_bytes_max {
            let (low, high) = (DOCUMENTS_BYTES_MIN, MEMORY_BYTES_MAX);
            config.bytes_max = number("--documents-bytes-max", text, low, high, wrong);
        }
        if let Some(text) = &self.documents_cache_bytes {
            let (low, high) = (CACHE_BYTES_MIN, MEMORY_BYTES_MAX);
            config.cache_bytes = number("--documents-cache-bytes", text, low, high, wrong);
        }
        if let Some(text) = &self.documents_destroyed_ms {
            let (low, high) = (DESTROYED_MS_MIN, REMEMBERED_MS_MAX);
            config.destroyed_ms = number("--documents-destroyed-ms", text, low, high, wrong);
        }
        if let Some(text) = &self.documents_deleted_ms {
            let (low, high) = (DELETED_MS_MIN, REMEMBERED_MS_MAX);
            config.deleted_ms = number("--documents-deleted-ms", text, low, high, wrong);
        }
        if let Some(text) = &self.works_max {
            let works = number_u32("--works-max", text, 1, WORKS_MAX, wrong);
            config.works_max = usize::try_from(works).expect("it is below 300");
        }
        if let Some(text) = &self.work_ms {
            config.work_ms = number("--work-ms", text, 1, rota_protocol::REQUEST_MS, wrong);
        }
        let build = number("--client-build-min", &self.client_build_min, 0, u64::MAX, wrong);
        let admin_key = self.check_admin_key(wrong);
        DocumentsConfig { admin_key, client_build_min: build, ..config }
    }

    fn check_numbers(&self, wrong: &mut Vec<FieldError>) -> NumbersConfig {
        let sessions = !self.no_session_numbers;
        let mut config = NumbersConfig { sessions, ..NumbersConfig::default() };
        if let Some(text) = &self.number_retention_ms {
            let high = REMEMBERED_MS_MAX;
            config.retention_ms = number("--number-retention-ms", text, 0, high, wrong);
        }
        config
    }

    fn check_admin_key(&self, wrong: &mut Vec<FieldError>) -> AdminKey {
        if self.admin_key.is_some() {
            wrong.push(secret_on_the_line("--admin-key", "--admin-key-file", None));
        }
        let Some(path) = &self.admin_key_file else { return AdminKey::default() };
        match read_secret("--admin-key-file", path, CREDENTIAL_BYTES_MAX) {
            Ok(key) => AdminKey::new(&key),
            Err(mistake) => {
                wrong.push(mistake);
                AdminKey::default()
            }
        }
    }

    fn check_bodies(&self, wrong: &mut Vec<FieldError>) -> AttachmentSettings {
        let mut bodies = AttachmentSettings {
            reserve_bytes: BODY_RESERVE_BYTES,
            ..AttachmentSettings::default()
        };
        if let Some(text) = &self.body_bytes_max {
            bodies.body_bytes_max = number("--body-bytes-max", text, 1, BODY_BYTES_MAX, wrong);
        }
        if let Some(text) = &self.body_grace_ms {
            bodies.grace_ms = number("--body-grace-ms", text, GRACE_MS_MIN, GRACE_MS_MAX, wrong);
        }
        if let Some(text) = &self.body_free_bytes_max {
            bodies.free_bytes_max = number("--body-free-bytes-max", text, 1, DISK_BYTES_MAX, wrong);
        }
        if let Some(text) = &self.body_reserve_bytes {
            bodies.reserve_bytes = number("--body-reserve-bytes", text, 0, DISK_BYTES_MAX, wrong);
        }
        bodies
    }
}

#[cfg(test)]
mod tests;
