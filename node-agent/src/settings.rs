//! From command line and class files to checked settings. Every mistake is found before anything
//! is touched.

use crate::actions::ActionSettings;
use crate::class_folder;
use crate::cli::RunArgs;
use crate::content::version_at_start;
use crate::machine::machine;
use crate::offer::Offer;
use crate::ports::PortRange;
use crate::sandbox::{Ability, UserRange, unreachable_in};
use rota_content::RULES_FILE;
use rota_daemon::{HttpNames, Log, may_hold_data, may_listen};
use rota_membership::ConsulAddress;
use rota_model::address::Address;
use rota_model::{
    BootId, ClassName, ClassText, ClusterName, FieldError, LABELS_MAX, Labels, LoadLimit, NodeId,
    PoolName, Resources, Sandbox, parse_label,
};
use rota_node::class::{Class, ClassKind, parse_classes_with};
use rota_node::{NodeBounds, NodeConfig, NodeTiming};
use rustix::process::getuid;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Least and most time between two looks for new content.
const CONTENT_EVERY_MIN: Duration = Duration::from_millis(100);
const CONTENT_EVERY_MAX: Duration = Duration::from_secs(3_600);

/// What a node runs with.
#[derive(Debug)]
pub struct Settings {
    /// For the decisions.
    pub config: NodeConfig,
    /// What can run.
    pub offer: Offer,
    /// The folder of these, as it was given.
    pub classes_folder: Option<PathBuf>,
    /// What is offered of the content that the node had, and its folder.
    pub content: (Offer, Option<PathBuf>),
    /// Between two looks for new content; `None`: it is not followed.
    pub content_every: Option<Duration>,
    /// Data folder.
    pub data: PathBuf,
    /// Cluster.
    pub cluster: ClusterName,
    /// Pool.
    pub pool: PoolName,
    /// Where to listen.
    pub listen: SocketAddr,
    /// Where to serve HTTP.
    pub http: Option<SocketAddr>,
    /// The names under which HTTP is asked.
    pub http_names: HttpNames,
    /// The host in addresses.
    pub host: String,
    /// First managers.
    pub managers: Vec<String>,
    /// Where to register as a service.
    pub consul: Option<ConsulAddress>,
    /// The ports for programs.
    pub ports: PortRange,
    /// Most bytes kept of each output.
    pub output_bytes_max: u64,
    /// Bytes that sessions leave free of the disk.
    pub disk_reserve_bytes: u64,
    /// Folders of ended programs that are kept.
    pub folders_kept_max: usize,
    /// What it runs of actions.
    pub actions: ActionSettings,
    /// What this node can keep programs from.
    pub ability: Ability,
    /// Names of variables that programs get of the node's own environment.
    pub env_pass: Vec<String>,
    /// The log.
    pub log: Log,
}

impl Settings {
    /// Begins with the content that the node had. Classes of `--classes` with the same names count. A version with
    /// mistakes, or with classes that this node must not offer, is left out.
    pub fn begin_with_content(&mut self, data: &Path) {
        let Some(root) = self.content_every.and_then(|_| version_at_start(data)) else { return };
        match Offer::read(&root, &self.ability) {
            Ok(offer) => {
                offer.tell();
                let mut all = texts(&offer.classes);
                all.extend(texts(&self.offer.classes));
                self.config.classes = all;
                self.content = (offer, Some(root));
            }
            Err(mistakes) => {
                let mistakes = mistakes.join("; ");
                tracing::error!(version = %root.display(), mistakes, "the content that was in use is left out");
            }
        }
    }
}

/// Checks everything; on failure gives all mistakes, one a line.
pub fn check(args: &RunArgs) -> Result<Settings, Vec<String>> {
    let mut mistakes = Mistakes::default();
    let node = mistakes.note("--id", NodeId::parse_new(&args.id));
    let cluster = mistakes.note("--cluster", ClusterName::parse(&args.cluster));
    let pool = mistakes.note("--pool", PoolName::parse_new(&args.pool));
    let host = mistakes.note("--listen", host(args));
    for address in &args.managers {
        mistakes.note("--managers", check_address(address));
    }
    if let Some(http) = args.http {
        mistakes.note("--http", may_listen("--http", http, args.insecure_bind));
    }
    let consul = args.consul.as_deref().map(ConsulAddress::parse).transpose();
    let consul = mistakes.note("--consul", consul).flatten();
    mistakes.0.extend(may_hold_data("--data", &args.data).err().map(|it| it.to_string()));
    let log = args.log.check();
    let log = log.map_err(|list| mistakes.0.extend(list.iter().map(ToString::to_string))).ok();
    let ports = PortRange::parse(&args.session_ports);
    let ports = ports.map_err(|it| mistakes.0.push(format!("--session-ports {it}"))).ok();
    let limit = mistakes.note("--load-limit", LoadLimit::parse(args.load_limit));
    let classes = classes(args.classes.as_deref(), &mut mistakes);
    mistakes.0.extend(args.env_pass.iter().filter_map(|it| mistake_of_variable(it)));
    let ability = ability(args, &classes, &mut mistakes);
    let content_every = content_every(args, &mut mistakes);
    let config = NodeConfig {
        // A placeholder where the id is wrong: the other fields are checked all the same.
        node: node.unwrap_or_else(|| NodeId::parse("x").expect("one letter is a name")),
        // The data folder counts boots; it is not open yet.
        boot: BootId(0),
        ended_boots: Vec::new(),
        offers: offers(args),
        labels: labels(args, &mut mistakes),
        load_limit: limit.unwrap_or(LoadLimit::USUAL),
        // Those that are offered, once it is known what this node can do.
        classes: BTreeMap::new(),
        timing: timing(args),
        bounds: NodeBounds::default(),
    };
    mistakes.0.extend(config.mistakes_as(&flag).iter().map(ToString::to_string));
    match (cluster, pool, host, ports, log, ability) {
        (Some(cluster), Some(pool), Some(host), Some(ports), Some(log), Some(ability))
            if mistakes.0.is_empty() =>
        {
            let offer = Offer::of(classes, &ability);
            let classes = texts(&offer.classes);
            Ok(Settings {
                config: NodeConfig { classes, ..config },
                offer,
                classes_folder: args.classes.clone(),
                content: (Offer::default(), None),
                content_every,
                data: args.data.clone(),
                cluster,
                pool,
                listen: args.listen,
                http: args.http,
                http_names: http_names(args, &host),
                host,
                managers: args.managers.clone(),
                consul,
                ports,
                output_bytes_max: args.output_bytes_max,
                disk_reserve_bytes: args.disk_reserve_bytes,
                folders_kept_max: args.folders_kept_max,
                actions: actions(args),
                ability,
                env_pass: args.env_pass.clone(),
                log,
            })
        }
        _ => Err(mistakes.0),
    }
}

fn actions(args: &RunArgs) -> ActionSettings {
    ActionSettings {
        classes: args.classes.clone(),
        allowed: !args.no_actions,
        max: usize::from(args.actions_max),
    }
}

/// Between two looks for new content; `None`: it is not followed.
fn content_every(args: &RunArgs, mistakes: &mut Mistakes) -> Option<Duration> {
    let every = *args.content_every;
    if !(CONTENT_EVERY_MIN..=CONTENT_EVERY_MAX).contains(&every) {
        let given = args.content_every;
        mistakes.0.push(format!("--content-every is {given}; it must be 100ms to 1h"));
    }
    (!args.no_content).then_some(every)
}

fn timing(args: &RunArgs) -> NodeTiming {
    NodeTiming {
        renew_ms: ms(*args.renew),
        lease_term_ms: ms(*args.lease_term),
        lease_kill_ms: ms(*args.lease_kill),
        renew_retry_ms: (ms(*args.renew) / 10).max(1),
        ..NodeTiming::default()
    }
}

/// What the node has for sessions.
fn offers(args: &RunArgs) -> Resources {
    let found = machine();
    Resources {
        places: args.places,
        cpu_millis: args.cpu_millis.unwrap_or(found.cpu_millis),
        memory_mib: args.memory_mib.unwrap_or(found.memory_mib),
    }
}

fn labels(args: &RunArgs, mistakes: &mut Mistakes) -> Labels {
    if args.labels.len() > LABELS_MAX {
        mistakes.0.push(format!(
            "--label is given {} times; the most is {LABELS_MAX}",
            args.labels.len()
        ));
    }
    let mut labels = Labels::new();
    for text in &args.labels {
        let Some((name, value)) = mistakes.note("--label", parse_label(text)) else { continue };
        if labels.insert(name.clone(), value).is_some() {
            mistakes.0.push(format!("--label gives {name} twice"));
        }
    }
    labels
}

/// What this node can do, if its classes and its flags ask for no more than that.
fn ability(
    args: &RunArgs,
    classes: &BTreeMap<ClassName, Class>,
    mistakes: &mut Mistakes,
) -> Option<Ability> {
    let mut note = |flag: &str, problem: String| mistakes.0.push(format!("{flag} {problem}"));
    let users = args.program_users.parse::<UserRange>();
    let users = users.map_err(|problem| note("--program-users:", problem)).ok();
    let least = Sandbox::parse(&args.sandbox_min);
    let least = least.map_err(|problem| note("--sandbox-min", problem)).ok();
    let (users, least) = (users?, least?);
    let ability = Ability::look(&args.data, users);
    if least > ability.best() {
        let (text, why) = (least.as_str(), ability.obstacle().unwrap_or_default());
        note("--sandbox-min", format!("is {text}, which this node cannot do: {why}"));
    }
    let ability = ability.and_no_less_than(least);
    mistakes.0.extend(mistakes_of_sandboxes(&ability, classes));
    Some(ability)
}

/// The classes that a node with that ability must not offer, each with the reason.
pub fn mistakes_of_sandboxes(
    ability: &Ability,
    classes: &BTreeMap<ClassName, Class>,
) -> Vec<String> {
    let of = |(name, class): (&ClassName, &Class)| {
        Some(format!("class {name}: {}", ability.mistake_of(class)?))
    };
    classes.iter().filter_map(of).collect()
}

fn mistake_of_variable(name: &str) -> Option<String> {
    if name.starts_with("ROTA_") {
        return Some(format!("--env-pass: {name} is for Rota's own programs, and not passed on"));
    }
    let wrong = name.is_empty() || name.contains(['=', '\0']);
    wrong.then(|| format!("--env-pass: {name:?} is no name of a variable"))
}

/// The flag of a field that has one.
fn flag(field: &str) -> String {
    match field {
        "places" | "renew_ms" | "lease_term_ms" | "lease_kill_ms" => {
            format!("--{}", field.trim_end_matches("_ms").replace('_', "-"))
        }
        other => other.to_owned(),
    }
}

#[derive(Default)]
struct Mistakes(Vec<String>);

impl Mistakes {
    fn note<T>(&mut self, flag: &str, result: Result<T, FieldError>) -> Option<T> {
        result.map_err(|error| self.0.push(format!("{flag}: {error}"))).ok()
    }
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX / 4).min(u64::MAX / 4)
}

fn host(args: &RunArgs) -> Result<String, FieldError> {
    let ip = args.listen.ip();
    may_listen("--listen", args.listen, args.insecure_bind)?;
    match &args.advertise {
        Some(host) if Address::new(host, 1).is_some() => Ok(host.clone()),
        Some(host) => Err(FieldError::new(
            "address",
            format!("--advertise {host:?} is no name or IP address"),
        )),
        None if ip.is_unspecified() => {
            let problem = format!("{ip} is no address to tell others; add --advertise HOST");
            Err(FieldError::new("address", problem))
        }
        None => Ok(ip.to_string()),
    }
}

/// Whoever knows the node by the host that it tells others may ask it so.
fn http_names(args: &RunArgs, host: &str) -> HttpNames {
    let own = [host.to_owned()];
    HttpNames::new(&[&args.http_names[..], &own].concat())
}

fn check_address(address: &str) -> Result<(), FieldError> {
    if Address::parse(address).is_some() {
        return Ok(());
    }
    Err(FieldError::new("address", format!("{address:?} is not host:port")))
}

/// The classes in a folder.
///
/// # Errors
/// All mistakes in its files.
pub fn read_classes(folder: &Path) -> Result<BTreeMap<ClassName, Class>, Vec<String>> {
    let mut mistakes = Mistakes::default();
    let classes = classes(Some(folder), &mut mistakes);
    if mistakes.0.is_empty() { Ok(classes) } else { Err(mistakes.0) }
}

/// Which texts of classes these are.
pub fn texts(classes: &BTreeMap<ClassName, Class>) -> BTreeMap<ClassName, ClassText> {
    classes.iter().map(|(name, class)| (name.clone(), class.text.clone())).collect()
}

/// The same, for `check`: what programs cannot reach on this machine is a mistake, too.
///
/// # Errors
/// All mistakes in its files.
pub fn check_classes(folder: &Path) -> Result<BTreeMap<ClassName, Class>, Vec<String>> {
    let mut mistakes = Mistakes::default();
    let classes = classes(Some(folder), &mut mistakes);
    // As another user one cannot see what a user without rights can reach.
    if getuid().is_root() {
        mistakes.0.extend(classes.iter().filter_map(|(name, class)| {
            let ClassKind::Program(program) = &class.kind else { return None };
            let shared = program.sandbox == Some(Sandbox::None);
            let why = if shared { None } else { unreachable_in(program) }?;
            Some(format!("class {name}: {why}, or say sandbox = \"none\""))
        }));
    }
    if mistakes.0.is_empty() { Ok(classes) } else { Err(mistakes.0) }
}

/// Reads and checks every class file of the folder.
fn classes(folder: Option<&Path>, mistakes: &mut Mistakes) -> BTreeMap<ClassName, Class> {
    let Some(folder) = folder else { return BTreeMap::new() };
    let read = read_all(folder).and_then(|texts| Ok((texts, class_folder::list(folder)?)));
    let (texts, actions) = match read {
        Ok(read) => read,
        Err(error) => {
            mistakes.0.push(format!("--classes {}: {error}", folder.display()));
            return BTreeMap::new();
        }
    };
    let mut files = Vec::new();
    for (file, text) in &texts {
        match text {
            Ok(text) => files.push((file.as_str(), text.as_str())),
            Err(error) => mistakes.0.push(format!("{file}: cannot be read: {error}")),
        }
    }
    match parse_classes_with(files, &actions) {
        Ok(classes) => classes,
        Err(list) => {
            mistakes.0.extend(list.iter().map(ToString::to_string));
            BTreeMap::new()
        }
    }
}

/// Name and text of each class file, in order of name.
fn read_all(folder: &Path) -> io::Result<Vec<(String, io::Result<String>)>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        // The rules of content describe no class.
        let is_rules = path.file_name().is_some_and(|it| it == RULES_FILE);
        if path.extension().is_some_and(|it| it == "toml") && !is_rules {
            paths.push(path);
        }
    }
    paths.sort();
    let read = |path: PathBuf| (path.display().to_string(), fs::read_to_string(&path));
    Ok(paths.into_iter().map(read).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;

    fn checked(flags: &[&str]) -> Result<Settings, Vec<String>> {
        let fixed = ["rota-node-agent", "run", "--id", "n1", "--data", "/nowhere"];
        let cli = Cli::try_parse_from(fixed.iter().chain(flags)).unwrap();
        let Command::Run(args) = cli.command else { panic!("run") };
        check(&args)
    }

    fn mistakes(flags: &[&str]) -> String {
        checked(flags).unwrap_err().join("\n")
    }

    #[test]
    fn the_defaults_make_a_node_on_loopback() {
        let settings = checked(&["--managers", "127.0.0.1:7400,[::1]:7401"]).unwrap();
        assert_eq!(settings.config.load_limit, LoadLimit::USUAL);
        assert_eq!(settings.host, "127.0.0.1");
        assert_eq!(settings.managers, ["127.0.0.1:7400", "[::1]:7401"]);
    }

    #[test]
    fn listening_for_other_machines_takes_a_flag_that_says_insecure() {
        let flags = ["--managers", "m:1", "--listen", "0.0.0.0:0"];
        assert!(mistakes(&flags).contains("--insecure-bind"));
        let http = mistakes(&["--managers", "m:1", "--http", "0.0.0.0:9"]);
        assert!(http.contains("--http is 0.0.0.0:9") && http.contains("--insecure-bind"), "{http}");
        let flags = [&flags[..], &["--insecure-bind"]].concat();
        assert!(mistakes(&flags).contains("--advertise"));
        let flags = [&flags[..], &["--advertise", "node.example"]].concat();
        let settings = checked(&flags).unwrap();
        assert_eq!(settings.host, "node.example");
        assert_eq!(settings.http_names, HttpNames::new(&["node.example".to_owned()]));
        let flags = [&flags[..], &["--http-name", "a.example,b.example"]].concat();
        let names = ["a.example", "b.example", "node.example"].map(str::to_owned);
        assert_eq!(checked(&flags).unwrap().http_names, HttpNames::new(&names));
    }

    #[test]
    fn all_mistakes_are_listed_at_once() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a.toml"), "name = \"a\"\nkind = \"magic\"").unwrap();
        fs::write(folder.path().join("b.toml"), "not toml").unwrap();
        fs::write(folder.path().join("c.toml"), [0xff, 0xfe]).unwrap();
        let text = mistakes(&[
            "--managers",
            "m:1,nonsense",
            "--places",
            "0",
            "--load-limit",
            "1.5",
            "--session-ports",
            "9-8",
            "--lease-kill",
            "8s",
            "--log",
            "=,=",
            "--classes",
            folder.path().to_str().unwrap(),
        ]);
        for part in [
            "nonsense",
            "--places is 0",
            "load_limit is 1.5",
            "--session-ports is \"9-8\"",
            "--lease-term is",
            "--log",
            "a.toml",
            "b.toml",
            "c.toml",
        ] {
            assert!(text.contains(part), "{part} in:\n{text}");
        }
        assert!(!text.contains("\"m:1\""), "{text}");
    }

    #[test]
    fn a_class_folder_that_is_not_there_is_a_mistake() {
        let text = mistakes(&["--managers", "m:1", "--classes", "/nowhere/at/all"]);
        assert!(text.contains("--classes /nowhere/at/all"), "{text}");
    }
}
