//! What kind of cluster is wanted, and what a data folder says that it is.

use super::earlier;
use super::engine::{self, EngineName};
use super::family::Family;
use crate::failure::UsageMistake;
use crate::output::counted;
use anyhow::{Context, bail};
use rota_daemon::may_hold_data;
use rota_daemon::private::{make_way, shut_folder, shut_way};
use rota_model::ProvisionerName;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

const FORMAT: u32 = 1;
/// Holds the layout.
const LAYOUT: &str = "dev.json";
/// Locked while a cluster runs there; holds nothing.
const LOCK: &str = "dev.lock";
const MANAGERS: u32 = 3;
const REPLICAS: u32 = 2;
const NODES: u32 = 1;
const SLOTS: u32 = 1024;
const PLACES: u32 = 1000;
const PORT_BASE: u16 = 7400;
/// The provisioner that managers have built in.
const PROCESS: &str = "process";
/// From so many managers on one machine on they are more patient with each other, in a bench.
const CROWD: u32 = 30;
const CROWD_SUSPECT_MS: u32 = 5_000;

/// What was asked for; `None` leaves it to the data folder, or to the default of a new one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Settings {
    /// How many managers.
    pub managers: Option<u32>,
    /// Successors with copies.
    pub replicas: Option<u32>,
    /// How many nodes.
    pub nodes: Option<u32>,
    /// Slots of the ring.
    pub slots: Option<u32>,
    /// The data folder; `None` makes one that is removed at the end.
    pub data: Option<PathBuf>,
    /// First port; 0 takes free ones.
    pub port_base: Option<u16>,
    /// Places of each node.
    pub places: Option<u32>,
    /// Folder of class files.
    pub classes: Option<PathBuf>,
    /// Most nodes, those that managers start included; 0: they start none.
    pub max_nodes: Option<u32>,
    /// Programs that start nodes, as `NAME=PROGRAM`; none leaves it to the data folder.
    pub provision_commands: Vec<String>,
    /// Whether the config store is a Consul agent.
    pub consul: bool,
    /// What keeps the managers' records; `None` leaves it to the data folder.
    pub engine: Option<EngineName>,
    /// File with the URL of the server that does.
    pub engine_url_file: Option<PathBuf>,
    /// File with the declared fields of documents; `None` leaves it to the data folder.
    pub fields_file: Option<PathBuf>,
    /// Most managers of the ring; `None` leaves it to them.
    pub managers_max: Option<u32>,
    /// How long managers are patient with each other's silence, in ms; `None` leaves it to them.
    pub suspect_ms: Option<u32>,
    /// Further options of every manager; none: those of the last start.
    pub manager_options: Vec<String>,
}

/// A manager's place in the ring.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
pub struct Seat {
    /// Its reserved number.
    pub number: u32,
    /// Its name.
    pub id: String,
}

/// `dev.json` of a data folder. The ring and the nodes stay what they were when it was made;
/// the rest is what was asked for last.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    format: u32,
    /// Name of the cluster; no two folders share one.
    pub cluster: String,
    /// Slots of the ring.
    pub slots: u32,
    /// Successors with copies.
    pub replicas: u32,
    /// Managers, in order of their numbers.
    pub managers: Vec<Seat>,
    /// Ids of the nodes.
    pub nodes: Vec<String>,
    /// Places of each node.
    pub places: u32,
    /// Most nodes, the pool's included.
    pub max_nodes: u32,
    /// Programs that start nodes, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub provision_commands: BTreeMap<String, PathBuf>,
    /// Whether the config store is a Consul agent.
    #[serde(default)]
    pub consul: bool,
    /// File with the URL of the server that keeps the managers' records; `None`: their folders do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine_url_file: Option<PathBuf>,
    /// File with the declared fields of documents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fields_file: Option<PathBuf>,
    /// Most managers of the ring; `None` leaves it to them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub managers_max: Option<u32>,
    /// How long managers are patient with each other's silence, in ms; `None` leaves it to them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspect_ms: Option<u32>,
    /// Further options of every manager.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub manager_options: Vec<String>,
    /// First port; 0: free ones.
    pub port_base: u16,
    /// Folder of class files.
    pub classes: Option<PathBuf>,
}

/// A data folder in use by this process alone.
#[derive(Debug)]
pub struct Folder {
    /// Its absolute path.
    pub path: PathBuf,
    /// What it is.
    pub layout: Layout,
    /// Whether a cluster was made there before.
    pub was_there: bool,
    /// Locked as long as the file is open. A folder that is new has none yet.
    lock: Option<File>,
}

/// Folders of processes in a data folder.
const OF_PROCESSES: [&str; 3] = ["store", "managers", "nodes"];

/// Numbers that part the ring evenly; the last ends it.
fn spread(managers: u32, slots: u32) -> impl Iterator<Item = u32> {
    let (managers, slots) = (u64::from(managers), u64::from(slots));
    (1..=managers).filter_map(move |it| u32::try_from(it * slots / managers - 1).ok())
}

/// Programs that start nodes, by name. Their paths are whole: managers may run in another folder.
fn provision_commands(texts: &[String]) -> anyhow::Result<BTreeMap<String, PathBuf>> {
    let mut commands = BTreeMap::new();
    for text in texts {
        let mistake = |what: String| UsageMistake(format!("--provision-command {text:?}: {what}"));
        let parts = text.split_once('=');
        let (name, program) = parts.ok_or_else(|| mistake("it must be NAME=PROGRAM".into()))?;
        ProvisionerName::parse_new(name).map_err(|it| mistake(it.to_string()))?;
        if name == PROCESS {
            bail!(mistake(format!("{PROCESS} is built in; choose another name")));
        }
        let found = std::fs::canonicalize(program).map_err(|it| mistake(it.to_string()))?;
        if !found.is_file() {
            bail!(mistake("it is no file".into()));
        }
        if commands.insert(name.to_owned(), found).is_some() {
            bail!(mistake(format!("{name} is given twice")));
        }
    }
    Ok(commands)
}

impl Layout {
    fn new(settings: &Settings) -> anyhow::Result<Self> {
        let (managers, slots) =
            (settings.managers.unwrap_or(MANAGERS), settings.slots.unwrap_or(SLOTS));
        if managers > slots {
            let text = "a ring of --slots";
            bail!(UsageMistake(format!(
                "--managers is {managers}; {text} {slots} has room for {slots}"
            )));
        }
        engine::check_new(settings)?;
        let name = uuid::Uuid::new_v4().simple().to_string();
        let seats = spread(managers, slots).zip(1..);
        let mut layout = Self {
            format: FORMAT,
            cluster: format!("dev-{}", name.get(..8).unwrap_or(&name)),
            slots,
            replicas: settings.replicas.unwrap_or(REPLICAS),
            managers: seats.map(|(number, it)| Seat { number, id: format!("m{it}") }).collect(),
            nodes: (1..=settings.nodes.unwrap_or(NODES)).map(|it| format!("n{it}")).collect(),
            places: PLACES,
            max_nodes: 0,
            provision_commands: BTreeMap::new(),
            consul: settings.consul,
            engine_url_file: None,
            fields_file: None,
            managers_max: settings.managers_max,
            suspect_ms: settings.suspect_ms,
            manager_options: Vec::new(),
            port_base: PORT_BASE,
            classes: None,
        };
        layout.take(settings)?;
        Ok(layout)
    }

    /// Takes over what may differ from one start to the next.
    fn take(&mut self, settings: &Settings) -> anyhow::Result<()> {
        self.places = settings.places.unwrap_or(self.places);
        self.max_nodes = settings.max_nodes.unwrap_or(self.max_nodes);
        self.port_base = settings.port_base.unwrap_or(self.port_base);
        if !settings.manager_options.is_empty() {
            self.manager_options.clone_from(&settings.manager_options);
        }
        if let Some(file) = engine::url_file(settings)? {
            self.engine_url_file = Some(file);
        }
        if let Some(file) = &settings.fields_file {
            self.fields_file = Some(fields_file(file)?);
        }
        let nodes = self.nodes.len();
        if self.max_nodes > 0 && (self.max_nodes as usize) < nodes {
            let text = format!("--max-nodes is {}, and {nodes} are started", self.max_nodes);
            bail!(UsageMistake(format!("{text}: it counts all nodes, and 0 lets none be added")));
        }
        if let Some(classes) = &settings.classes {
            let at = classes.display();
            let found = std::fs::canonicalize(classes);
            let found = found.map_err(|why| UsageMistake(format!("--classes {at}: {why}")))?;
            if !found.is_dir() {
                bail!(UsageMistake(format!("--classes {at} is not a folder")));
            }
            self.classes = Some(found);
        }
        if !settings.provision_commands.is_empty() {
            self.provision_commands = provision_commands(&settings.provision_commands)?;
        }
        Ok(())
    }

    /// Names every flag that asks for another cluster than the folder holds.
    fn differences(&self, settings: &Settings) -> Vec<String> {
        let held = [
            ("managers", settings.managers, self.managers.len()),
            ("replicas", settings.replicas, self.replicas as usize),
            ("nodes", settings.nodes, self.nodes.len()),
            ("slots", settings.slots, self.slots as usize),
        ];
        let differs = held.into_iter().filter_map(|(flag, asked, held)| {
            let asked = asked.filter(|asked| *asked as usize != held)?;
            Some(format!("--{flag} is {asked}, but the folder's cluster has {held}"))
        });
        let mut differs: Vec<String> = differs.collect();
        if settings.consul && !self.consul {
            differs.push("--consul is given, but the folder's cluster has its own store".into());
        }
        differs.extend(engine::difference(settings, self.engine_url_file.is_some()));
        differs
    }

    /// What was asked for and cannot be had with these managers: more copies than there are managers
    /// to hold them. It is no mistake, since others may join.
    pub fn shortage(&self, settings: &Settings) -> Option<String> {
        let (asked, managers) = (settings.replicas?, self.managers.len());
        let possible = managers.saturating_sub(1);
        (asked as usize > possible).then(|| {
            format!(
                "--replicas is {asked}, but {} can keep {possible} beside the owner's own: sessions \
                 have {} until more managers join",
                counted(managers as u64, "manager"),
                if managers == 1 { "1 copy".to_owned() } else { format!("{managers} copies") }
            )
        })
    }

    /// `N1=ID1,N2=ID2,…`, as managers take the ring.
    pub fn ring(&self) -> String {
        let seats: Vec<String> =
            self.managers.iter().map(|it| format!("{}={}", it.number, it.id)).collect();
        seats.join(",")
    }
}

/// Its path whole: managers look from elsewhere. What is wrong in the file they tell themselves.
fn fields_file(path: &Path) -> Result<PathBuf, UsageMistake> {
    let wrong = |why: &dyn std::fmt::Display| {
        UsageMistake(format!("--fields-file {}: {why}", path.display()))
    };
    let found = std::fs::canonicalize(path).map_err(|why| wrong(&why))?;
    if found.is_file() { Ok(found) } else { Err(wrong(&"is not a file")) }
}

impl Folder {
    /// Reads the folder, and locks it if a cluster is in it. Nothing is made: the layout of a new
    /// one is what was asked for, until [`Folder::keep`].
    pub fn open(path: &Path, settings: &Settings) -> anyhow::Result<Self> {
        may_hold_data("--data", path).map_err(|it| UsageMistake(it.to_string()))?;
        let at = path.display();
        let path = resolved(path).with_context(|| format!("--data {at}"))?;
        let lock = match File::options().write(true).open(path.join(LOCK)) {
            Ok(file) => Some(locked(file, &path)?),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error).context(format!("--data {at}")),
        };
        let (layout, was_there) = match std::fs::read(path.join(LAYOUT)) {
            Ok(bytes) => (known(&bytes, settings).with_context(|| format!("--data {at}"))?, true),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                holds_no_processes(&path).with_context(|| format!("--data {at}"))?;
                (Layout::new(settings)?, false)
            }
            Err(error) => return Err(error).context(format!("--data {at}")),
        };
        Ok(Self { path, layout, was_there, lock })
    }

    /// Makes the folder what the layout says, once it is certain that the cluster can start.
    pub fn keep(&mut self) -> anyhow::Result<()> {
        let at = self.path.display();
        make_way(&self.path).with_context(|| format!("--data {at}"))?;
        if self.lock.is_none() {
            let file =
                File::create(self.path.join(LOCK)).with_context(|| format!("--data {at}"))?;
            self.lock = Some(locked(file, &self.path)?);
            if self.path.join(LAYOUT).exists() {
                bail!("--data {at}: another `ringctl dev` was started there at the same moment");
            }
        }
        let beside = self.path.join("dev.json.new");
        std::fs::write(&beside, serde_json::to_vec_pretty(&self.layout)?)?;
        std::fs::rename(&beside, self.path.join(LAYOUT))?;
        // Users of sessions pass through to the folders of their nodes.
        for below in ["nodes", "pool"].map(|it| self.path.join(it)) {
            make_way(&below)?;
            shut_way(&below)?;
        }
        for below in ["managers", "store", "logs", "classes"].map(|it| self.path.join(it)) {
            std::fs::create_dir_all(&below)?;
            shut_folder(&below)?;
        }
        Ok(())
    }
}

/// Refuses what processes of some cluster left without saying which: nothing could be started on it.
fn holds_no_processes(path: &Path) -> anyhow::Result<()> {
    let has_entries = |it: &&str| std::fs::read_dir(path.join(it)).is_ok_and(|it| it.count() > 0);
    match OF_PROCESSES.into_iter().find(has_entries) {
        Some(below) => bail!(
            "{below} has data of a cluster, and there is no {LAYOUT} that says which: restore the whole \
             folder that `ringctl dev` had, {LAYOUT} included, or take another --data"
        ),
        None => Ok(()),
    }
}

/// The absolute path without links, of which the last parts may not exist yet.
fn resolved(path: &Path) -> std::io::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    for there in path.ancestors() {
        match std::fs::canonicalize(there) {
            Ok(real) => {
                let rest = path.strip_prefix(there).expect("it begins with its ancestor");
                // Joined with nothing, a path would get a slash at its end.
                return Ok(if there == path { real } else { real.join(rest) });
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(path)
}

fn known(bytes: &[u8], settings: &Settings) -> anyhow::Result<Layout> {
    let mut layout: Layout = serde_json::from_slice(bytes).context("dev.json is not readable")?;
    if layout.format != FORMAT {
        bail!("dev.json has format {}; this build reads format {FORMAT}", layout.format);
    }
    let differences = layout.differences(settings);
    if !differences.is_empty() {
        bail!("{}; leave them out or take another --data", differences.join("; "));
    }
    layout.take(settings)?;
    Ok(layout)
}

fn locked(file: File, path: &Path) -> anyhow::Result<File> {
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => {
            bail!("--data {}: another `ringctl dev` runs there", path.display())
        }
        Err(std::fs::TryLockError::Error(error)) => Err(error.into()),
    }
}

impl Settings {
    /// A cluster at free ports whose node is never full. Many managers on one machine wait for its cores
    /// together: that silence is not to be taken for their end.
    pub fn roomy(managers: u32, replicas: u32) -> Self {
        Self {
            managers: Some(managers),
            replicas: Some(replicas),
            port_base: Some(0),
            places: Some(1_000_000),
            suspect_ms: (managers >= CROWD).then_some(CROWD_SUSPECT_MS),
            ..Self::default()
        }
    }

    /// The folder that was asked for, or a temporary one of this process.
    pub fn folder(&self) -> PathBuf {
        /// One for the process: clusters of one process follow each other.
        static TEMPORARY: OnceLock<PathBuf> = OnceLock::new();
        let temporary = || {
            let name = uuid::Uuid::new_v4().simple().to_string();
            std::env::temp_dir().join(format!("rota-dev-{}", name.get(..12).unwrap_or(&name)))
        };
        self.data.clone().unwrap_or_else(|| TEMPORARY.get_or_init(temporary).clone())
    }

    /// After the end: names who still works in the folder although nobody here started it, and removes
    /// the folder if it is a temporary one that nobody uses. Whoever is met by a start that is refused is
    /// named by the refusal.
    pub fn leave_folder(&self, family: &Family) {
        let others = earlier::found(&self.folder());
        if family.is_unused() && !others.is_empty() {
            return;
        }
        for (name, pid) in &others {
            let folder = self.folder();
            eprintln!(
                "{name} (pid {pid}) was not started here and goes on in {}, which stays; `kill {pid}` \
                 ends it",
                folder.display()
            );
        }
        if self.data.is_some() || !others.is_empty() || !family.is_gone() {
            return;
        }
        let folder = self.folder();
        // A start that failed early made none.
        if std::fs::symlink_metadata(&folder).is_err() {
            return;
        }
        if let Err(error) = std::fs::remove_dir_all(&folder) {
            eprintln!("cannot remove {}: {error}", folder.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(data: &Path) -> Settings {
        Settings { data: Some(data.to_owned()), ..Settings::default() }
    }

    #[test]
    fn a_folder_keeps_its_declared_fields_until_another_file_is_given() {
        let root = tempfile::tempdir().unwrap();
        let (file, data) = (root.path().join("fields.toml"), root.path().join("data"));
        let asked = Settings { fields_file: Some(file.clone()), ..Settings::default() };
        let error = Folder::open(&data, &asked).unwrap_err().to_string();
        assert!(error.contains("--fields-file"), "{error}");
        std::fs::write(&file, "").unwrap();
        let mut folder = Folder::open(&data, &asked).unwrap();
        folder.keep().unwrap();
        drop(folder);
        let again = Folder::open(&data, &Settings::default()).unwrap();
        assert_eq!(again.layout.fields_file, std::fs::canonicalize(&file).ok());
    }

    #[test]
    fn a_folder_of_classes_that_is_none_is_a_usage_mistake() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        for classes in [folder.path().join("nothing"), file] {
            let asked = Settings { classes: Some(classes), ..Settings::default() };
            let error = Layout::new(&asked).unwrap_err();
            assert!(crate::failure::is_usage(&error), "{error:#}");
            assert!(error.to_string().starts_with("--classes "), "{error:#}");
        }
    }

    #[test]
    fn programs_that_start_nodes_are_kept_and_wrong_ones_are_usage_mistakes() {
        let folder = tempfile::tempdir().unwrap();
        let asked = |given: &[&str]| Settings {
            provision_commands: given.iter().map(|it| (*it).to_owned()).collect(),
            ..settings(folder.path())
        };
        let mut opened = Folder::open(folder.path(), &asked(&["mine=/bin/sh"])).unwrap();
        opened.keep().unwrap();
        let first = opened.layout.clone();
        drop(opened);
        assert!(first.provision_commands.contains_key("mine"), "{first:?}");
        let again = Folder::open(folder.path(), &settings(folder.path())).unwrap().layout;
        assert_eq!(first, again);
        let wrong: [(&[&str], &str); 6] = [
            (&["mine"], "NAME=PROGRAM"),
            (&["=/bin/sh"], "=/bin/sh"),
            (&["process=/bin/sh"], "built in"),
            (&["a=/no/such"], "No such file"),
            (&["a=/bin"], "no file"),
            (&["a=/bin/sh", "a=/bin/cat"], "twice"),
        ];
        for (given, part) in wrong {
            let error = Folder::open(folder.path(), &asked(given)).unwrap_err();
            let text = format!("{error:#}");
            assert!(text.contains("--provision-command") && text.contains(part), "{text}");
            assert!(crate::failure::is_usage(&error), "{text}");
        }
    }

    #[test]
    fn numbers_part_the_ring_evenly_and_end_it() {
        assert_eq!(spread(3, 1024).collect::<Vec<_>>(), [340, 681, 1023]);
        assert_eq!(spread(1, 1).collect::<Vec<_>>(), [0]);
        let all: Vec<u32> = spread(100, 100).collect();
        assert_eq!(all, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn a_folder_comes_back_as_the_cluster_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let asked = Settings { managers: Some(5), places: Some(7), ..settings(folder.path()) };
        let first = {
            let mut opened = Folder::open(folder.path(), &asked).unwrap();
            opened.keep().unwrap();
            opened.layout.clone()
        };
        let second = Folder::open(folder.path(), &settings(folder.path())).unwrap().layout;
        assert_eq!(first, second);
        assert_eq!((second.managers.len(), second.places), (5, 7));
        assert_eq!(second.ring().split(',').count(), 5);
    }

    #[test]
    fn data_of_processes_without_a_layout_is_refused_with_what_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        let of_manager = folder.path().join("managers").join("m1");
        std::fs::create_dir_all(&of_manager).unwrap();
        let error = Folder::open(folder.path(), &settings(folder.path())).unwrap_err();
        let text = format!("{error:#}");
        assert!(text.contains("managers has data") && text.contains("dev.json"), "{text}");
        // Empty ones say nothing of any cluster.
        std::fs::remove_dir(&of_manager).unwrap();
        assert!(!Folder::open(folder.path(), &settings(folder.path())).unwrap().was_there);
    }

    #[test]
    fn flags_that_ask_for_another_cluster_are_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        Folder::open(folder.path(), &settings(folder.path())).unwrap().keep().unwrap();
        let other = Settings { managers: Some(4), slots: Some(8), ..settings(folder.path()) };
        let error = format!("{:#}", Folder::open(folder.path(), &other).unwrap_err());
        assert!(error.contains("--managers is 4") && error.contains("--slots is 8"), "{error}");
        assert!(!error.contains("--replicas"), "{error}");
        let same = Settings { managers: Some(3), places: Some(9), ..settings(folder.path()) };
        assert_eq!(Folder::open(folder.path(), &same).unwrap().layout.places, 9);
    }

    #[test]
    fn a_pool_that_may_hold_fewer_nodes_than_are_started_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let asked = |nodes, max_nodes| {
            let (nodes, max_nodes) = (Some(nodes), Some(max_nodes));
            Folder::open(folder.path(), &Settings { nodes, max_nodes, ..settings(folder.path()) })
        };
        let error = asked(5, 2).unwrap_err().to_string();
        assert!(error.contains("--max-nodes is 2, and 5 are started"), "{error}");
        assert_eq!(asked(5, 5).unwrap().layout.max_nodes, 5);
        assert_eq!(asked(5, 0).unwrap().layout.nodes.len(), 5);
    }

    #[test]
    fn a_folder_is_used_by_one_cluster_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let mut held = Folder::open(folder.path(), &settings(folder.path())).unwrap();
        held.keep().unwrap();
        let error = Folder::open(folder.path(), &settings(folder.path())).unwrap_err();
        assert!(error.to_string().contains("another `ringctl dev`"), "{error}");
        drop(held);
        Folder::open(folder.path(), &settings(folder.path())).unwrap();
    }

    #[test]
    fn of_two_that_begin_in_a_new_folder_at_once_only_one_gets_it() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Folder::open(folder.path(), &settings(folder.path())).unwrap();
        let (mut first, mut second) = (open(), open());
        first.keep().unwrap();
        assert!(second.keep().unwrap_err().to_string().contains("another `ringctl dev`"));
        drop(first);
        assert!(second.keep().unwrap_err().to_string().contains("another `ringctl dev`"));
    }

    #[test]
    fn a_start_that_failed_before_it_began_makes_nothing_and_binds_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("new/data");
        let path = Folder::open(&data, &settings(&data)).unwrap().path;
        assert_eq!(path, folder.path().canonicalize().unwrap().join("new/data"));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        let other = Settings { managers: Some(4), ..settings(&data) };
        assert_eq!(Folder::open(&data, &other).unwrap().layout.managers.len(), 4);
    }

    #[test]
    fn more_copies_than_managers_are_told_when_they_were_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let shortage = |managers, replicas| {
            let managers = Some(managers);
            let asked = Settings { managers, replicas, ..settings(folder.path()) };
            Layout::new(&asked).unwrap().shortage(&asked)
        };
        let text = shortage(2, Some(5)).unwrap();
        assert!(text.contains("--replicas is 5, but 2 managers can keep 1"), "{text}");
        assert!(shortage(1, Some(1)).unwrap().contains("sessions have 1 copy until"));
        assert_eq!(
            (shortage(3, Some(2)), shortage(1, Some(0)), shortage(1, None)),
            (None, None, None)
        );
    }

    #[test]
    fn more_managers_than_slots_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let asked = Settings { managers: Some(3), slots: Some(2), ..settings(folder.path()) };
        let error = Folder::open(folder.path(), &asked).unwrap_err().to_string();
        assert!(error.contains("--managers is 3"), "{error}");
    }
}
