//! Starts a cluster and waits until it is ready.

use super::consul;
use super::document::{Document, ManagerProcess, NodeProcess, StoreProcess};
use super::earlier;
use super::family::{Ending, Family, Process};
use super::launch::{self, Launch, Programs};
use super::layout::{Folder, Seat, Settings};
use super::pool;
use super::ports::Ports;
use super::readiness;
use crate::inspect;
use anyhow::{Context, anyhow, bail};
use rota_client::Client;
use rota_daemon::HAS_LEFT;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout_at};

/// How long the start of a small cluster may take. One that comes back with many records reads them
/// first.
const START_WAIT: Duration = Duration::from_secs(30);
/// How much longer for each manager: each waits for the turn of all others.
const START_WAIT_EACH: Duration = Duration::from_millis(500);
/// Between two looks at a cluster that is not ready yet.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(10);
/// How long a manager may take to answer one look.
pub(super) const LOOK_WAIT: Duration = Duration::from_secs(2);
/// How a manager ends whose number has left the ring. The others go on without it.
pub(super) const LEFT: Ending = Ending::Code(HAS_LEFT as i32);
/// Lines of a log that are shown when its process failed.
const TAIL_LINES: usize = 20;

/// A cluster of real processes below this one.
#[derive(Debug)]
pub struct Cluster {
    /// The processes.
    pub family: Family,
    pub(super) document: Document,
    pub(super) folder: Folder,
    classes: BTreeSet<String>,
    /// Keeps the guards of free ports.
    pub(super) ports: Ports,
    pub(super) programs: Programs,
    /// From the first process to readiness.
    pub started_in: Duration,
}

impl Cluster {
    /// Starts everything and waits until it is ready. On failure the caller ends the family.
    pub async fn start(settings: &Settings, family: &Family) -> anyhow::Result<Self> {
        let mut folder = Folder::open(&settings.folder(), settings)?;
        earlier::refuse_running(&folder.path)?;
        let ports = Ports::find(&folder.layout)?;
        let programs = launch::programs(family, &folder).await?;
        let launches = launch::commands(&folder, &ports, &programs);
        if let Some(shortage) = folder.layout.shortage(settings) {
            eprintln!("warning: {shortage}");
        }
        folder.keep()?;
        earlier::begin(&folder.path)?;
        let began = Instant::now();
        let starting = Starting::new(family, &folder.path, launches.managers.len());
        let starting = Starting { on_earlier: folder.was_there, ..starting };
        let store = starting.start(launches.store)?;
        let store_pid = store.pid;
        if folder.layout.consul {
            starting.leads(&store.name, ports.store).await?;
        } else {
            starting.ready(store).await?;
        }
        // Everyone at once; each finds the others by itself.
        let managers = launches.managers.into_iter().map(|it| starting.start(it));
        let managers = managers.collect::<anyhow::Result<Vec<Process>>>()?;
        let nodes = launches.nodes.into_iter().map(|it| starting.start(it));
        let nodes = nodes.collect::<anyhow::Result<Vec<Process>>>()?;
        let mut document = Document {
            ready: true,
            cluster: folder.layout.cluster.clone(),
            config_store: StoreProcess {
                address: launch::store_address(&folder, &ports),
                pid: store_pid,
            },
            data: folder.path.display().to_string(),
            ..Document::default()
        };
        for (process, seat) in managers.into_iter().zip(&folder.layout.managers) {
            let pid = process.pid;
            let Some(told) = starting.seated(process, seat).await? else { continue };
            let grpc = text(&told, "grpc", &seat.id)?;
            let http = text(&told, "http", &seat.id)?;
            let (number, id) = (seat.number, seat.id.clone());
            document.managers.push(ManagerProcess { number, id, grpc, http, pid });
        }
        for (process, id) in nodes.into_iter().zip(&folder.layout.nodes) {
            let pid = process.pid;
            let told = starting.ready(process).await?;
            let address = text(&told, "address", id)?;
            document.nodes.push(NodeProcess { id: id.clone(), address, pid });
        }
        if document.managers.is_empty() {
            bail!("each manager of this folder has left the ring; those that joined go on without");
        }
        let classes = starting.serving(&document).await?;
        let client = Client::connect(&document.endpoints())?;
        pool::describe(settings, &folder.layout, &client).await?;
        let (family, started_in) = (family.clone(), began.elapsed());
        Ok(Self { family, document, folder, classes, ports, programs, started_in })
    }

    /// What runs.
    pub fn document(&self) -> &Document {
        &self.document
    }

    /// The classes that its nodes offered when it had become ready.
    pub fn classes(&self) -> &BTreeSet<String> {
        &self.classes
    }

    /// The data folder.
    pub fn folder(&self) -> &Path {
        &self.folder.path
    }

    /// Ids of the managers, in the order of the document.
    pub fn manager_ids(&self) -> impl Iterator<Item = &str> {
        let runs = |seat: &&Seat| self.document.managers.iter().any(|it| it.number == seat.number);
        self.folder.layout.managers.iter().filter(runs).map(|it| it.id.as_str())
    }

    /// Where a log of that name goes.
    pub fn log(&self, name: &str) -> PathBuf {
        log_in(&self.folder.path, name)
    }
}

fn log_in(folder: &Path, name: &str) -> PathBuf {
    folder.join("logs").join(format!("{name}.log"))
}

/// A start under way.
pub(super) struct Starting<'a> {
    family: &'a Family,
    folder: &'a Path,
    wait: Duration,
    until: Instant,
    /// What earlier runs wrote, in bytes: logs go on where they stood.
    written: BTreeMap<PathBuf, u64>,
    /// The whole cluster starts again on what it had.
    on_earlier: bool,
}

impl<'a> Starting<'a> {
    /// Of so many managers.
    pub(super) fn new(family: &'a Family, folder: &'a Path, managers: usize) -> Self {
        let managers = u32::try_from(managers).unwrap_or(u32::MAX);
        let wait = START_WAIT + START_WAIT_EACH.saturating_mul(managers);
        let until = Instant::now() + wait;
        let logs = std::fs::read_dir(folder.join("logs")).into_iter().flatten().flatten();
        let written = logs.filter_map(|it| Some((it.path(), it.metadata().ok()?.len()))).collect();
        Self { family, folder, wait, until, written, on_earlier: false }
    }

    pub(super) fn start(&self, launch: Launch) -> anyhow::Result<Process> {
        let process = self.family.start(&launch.name, launch.command, &self.log(&launch.name))?;
        earlier::note(self.folder, &process.name, process.pid)?;
        Ok(process)
    }

    /// Waits for the line in which a process says that it is ready.
    pub(super) async fn ready(&self, process: Process) -> anyhow::Result<Value> {
        let (name, pid) = (process.name, process.pid);
        let line = tokio::select! {
            line = timeout_at(self.until, process.first_line) => line,
            (name, ending) = self.any_end() => {
                return Err(self.not_ready(&name, &format!("ended {ending}")));
            }
        };
        let line = line.map_err(|_elapsed| {
            anyhow!("{name} was not ready within {:?}{}", self.wait, self.tail(&name))
        })?;
        match line {
            Ok(line) if line.get("ready") == Some(&Value::Bool(true)) => Ok(line),
            Ok(line) => bail!("{name} said {line} instead of that it is ready"),
            Err(_closed) => {
                let ending = self.family.wait_for_end(pid);
                let ending = timeout_at(self.until, ending).await;
                let how = ending.map_or("closed its stdout".to_owned(), |it| format!("ended {it}"));
                Err(self.not_ready(&name, &how))
            }
        }
    }

    fn not_ready(&self, name: &str, how: &str) -> anyhow::Error {
        anyhow!("{name} {how} before it was ready{}{}", self.tail(name), self.remedy())
    }

    /// What may be wrong with a folder that was used before: its processes say only what each finds in
    /// its own.
    fn remedy(&self) -> String {
        if !self.on_earlier {
            return String::new();
        }
        format!(
            "\neverything in --data {} belongs together, and to one moment: if a part of it was restored \
             from elsewhere or from an older copy, restore all of it from the same copy, or take \
             another --data",
            self.folder.display()
        )
    }

    /// The same for a manager. `None`: its number has left the ring, and it has ended.
    async fn seated(&self, process: Process, seat: &Seat) -> anyhow::Result<Option<Value>> {
        let pid = process.pid;
        match self.ready(process).await {
            Err(_) if self.family.ending(pid) == Some(LEFT) => {
                eprintln!(
                    "manager {} ({}) has left the ring and is not started",
                    seat.id, seat.number
                );
                Ok(None)
            }
            told => told.map(Some),
        }
    }

    /// Waits for a Consul agent, which does not say by itself when it is ready.
    async fn leads(&self, name: &str, http: std::net::SocketAddr) -> anyhow::Result<()> {
        tokio::select! {
            led = timeout_at(self.until, consul::ready(http)) => led.map_err(|_elapsed| {
                anyhow!("Consul had no leader within {:?}{}", self.wait, self.tail(name))
            }),
            (name, ending) = self.any_end() => {
                Err(self.not_ready(&name, &format!("ended {ending}")))
            }
        }
    }

    /// The first process that ended: none may while the cluster starts, but managers that have left.
    async fn any_end(&self) -> (String, Ending) {
        loop {
            if let Some(ended) = self.family.first_ended(LEFT) {
                return ended;
            }
            self.family.next_end().await;
        }
    }

    /// Waits until the cluster serves. Gives the classes that its nodes offer.
    async fn serving(&self, document: &Document) -> anyhow::Result<BTreeSet<String>> {
        let client = Client::connect(&document.endpoints())?;
        let own: Vec<u32> = document.managers.iter().map(|it| it.number).collect();
        let nodes: Vec<String> = document.nodes.iter().map(|it| it.id.clone()).collect();
        let mut silent = None;
        loop {
            let missing = match inspect::ask(&client, LOOK_WAIT).await {
                Ok(answers) => {
                    // Told once, and at once: with it the start may succeed after all.
                    if silent.is_none() {
                        silent = readiness::silent(&answers, &own);
                        silent.iter().for_each(|it| eprintln!("warning: {it}"));
                    }
                    match readiness::missing(&answers, &own, &nodes) {
                        Some(missing) => missing,
                        None => return Ok(readiness::classes(&answers)),
                    }
                }
                Err(error) => error.to_string(),
            };
            if let Some((name, ending)) = self.family.first_ended(LEFT) {
                let (tail, remedy) = (self.tail(&name), self.remedy());
                bail!("{name} ended {ending} while the cluster started{tail}{remedy}");
            }
            if Instant::now() >= self.until {
                let silent = silent.map(|it| format!("; {it}")).unwrap_or_default();
                bail!("not ready within {:?}: {missing}{silent}", self.wait);
            }
            sleep(LOOK_EVERY).await;
        }
    }

    fn tail(&self, name: &str) -> String {
        let log = self.log(name);
        tail(&log, self.written.get(&log).copied().unwrap_or(0))
    }

    fn log(&self, name: &str) -> PathBuf {
        log_in(self.folder, name)
    }
}

pub(super) fn text(told: &Value, field: &str, name: &str) -> anyhow::Result<String> {
    let value = told.get(field).and_then(Value::as_str);
    Ok(value.with_context(|| format!("{name} did not say its {field}"))?.to_owned())
}

/// The end of what was written to a log after its first `written` bytes, as a part of an error
/// message: the last words first, since they say why.
fn tail(log: &Path, written: u64) -> String {
    let Ok(bytes) = std::fs::read(log) else { return String::new() };
    let new = usize::try_from(written).ok().and_then(|from| bytes.get(from..)).unwrap_or_default();
    let text = String::from_utf8_lossy(new);
    let lines: Vec<&str> = text.lines().collect();
    let log = log.display();
    let Some((last, before)) = lines.split_last() else {
        return format!("; it wrote nothing to its log {log}");
    };
    let before = before.get(before.len().saturating_sub(TAIL_LINES)..).unwrap_or_default();
    if before.is_empty() {
        return format!(": {last} (all of its log {log})");
    }
    format!(": {last}\nbefore that, in {log}:\n  {}", before.join("\n  "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_of_a_log_is_its_last_word_and_what_came_before_it_in_this_run() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("a.log");
        assert_eq!(tail(&log, 0), "");
        let earlier = "the earlier run\n";
        std::fs::write(&log, earlier).unwrap();
        let written = u64::try_from(earlier.len()).unwrap();
        assert!(tail(&log, written).contains("wrote nothing"));
        std::fs::write(&log, format!("{earlier}why\n")).unwrap();
        assert!(tail(&log, written).starts_with(": why (all of its log "));
        let lines: Vec<String> = (0..30).map(|it| format!("line {it}\n")).collect();
        std::fs::write(&log, format!("{earlier}{}", lines.concat())).unwrap();
        let all = tail(&log, written);
        assert!(all.starts_with(": line 29\nbefore that, in "), "{all}");
        assert!(all.contains("  line 9\n") && all.ends_with("line 28"), "{all}");
        assert!(!all.contains("line 8\n") && !all.contains("earlier"), "{all}");
        std::fs::write(&log, "cut").unwrap();
        assert!(tail(&log, written).contains("wrote nothing"), "a log that was cut meanwhile");
    }

    #[tokio::test]
    async fn a_process_that_fails_is_named_with_the_end_of_its_log() {
        let folder = tempfile::tempdir().unwrap();
        let family = Family::found().unwrap();
        std::fs::create_dir(folder.path().join("logs")).unwrap();
        std::fs::write(folder.path().join("logs/m1.log"), "all is well\n").unwrap();
        let starting = Starting::new(&family, folder.path(), 1);
        let mut command = std::process::Command::new("sh");
        command.args(["-c", "echo 'no such port' >&2; exit 3"]);
        let process = starting.start(Launch { name: "m1".to_owned(), command }).unwrap();
        let error = starting.ready(process).await.unwrap_err().to_string();
        let told = "m1 ended with exit code 3 before it was ready: no such port";
        assert!(error.starts_with(told) && !error.contains("all is well"), "{error}");
    }

    #[tokio::test]
    async fn a_process_is_ready_when_it_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let family = Family::found().unwrap();
        std::fs::create_dir(folder.path().join("logs")).unwrap();
        let starting = Starting::new(&family, folder.path(), 1);
        let mut command = std::process::Command::new("sh");
        command.args([
            "-c",
            "echo starting; echo '{\"ready\":true,\"address\":\"a:1\"}'; exec sleep 600",
        ]);
        let process = starting.start(Launch { name: "store".to_owned(), command }).unwrap();
        let pid = process.pid;
        let told = starting.ready(process).await.unwrap();
        family.signal(pid, rustix::process::Signal::KILL);
        assert_eq!(family.wait_for_end(pid).await, Ending::Signal(9));
        assert_eq!(text(&told, "address", "store").unwrap(), "a:1");
        assert!(text(&told, "grpc", "store").unwrap_err().to_string().contains("grpc"));
    }
}
