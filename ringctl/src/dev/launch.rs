//! The command line of each process of a cluster.

use super::consul;
use super::family::{Ending, Family};
use super::layout::Folder;
use super::ports::Ports;
use super::programs::{self, program};
use crate::failure::UsageMistake;
use anyhow::{Context, bail};
use rota_model::LeaseTimes;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A process that is to be started.
#[derive(Debug)]
pub struct Launch {
    /// Its name, and that of its log.
    pub name: String,
    /// What to run.
    pub command: Command,
}

/// All processes of a cluster.
#[derive(Debug)]
pub struct Launches {
    /// Started first: everyone else needs it.
    pub store: Launch,
    /// In order of their numbers.
    pub managers: Vec<Launch>,
    /// In order of the layout.
    pub nodes: Vec<Launch>,
}

/// What is run, and over which classes.
#[derive(Debug)]
pub struct Programs {
    store: PathBuf,
    manager: PathBuf,
    agent: PathBuf,
    classes: PathBuf,
}

/// One manager of a cluster.
#[derive(Debug)]
pub struct Member<'a> {
    /// Its name.
    pub id: &'a str,
    /// Its reserved number; without one it waits outside of the ring.
    pub number: Option<u32>,
    /// Where it serves gRPC and HTTP. Port 0 takes a free one.
    pub listen: [SocketAddr; 2],
}

/// How long a look at the class files may take.
const CHECK_WAIT: Duration = Duration::from_secs(10);

/// Finds the programs; fails when one is missing or a class file is wrong.
pub async fn programs(family: &Family, folder: &Folder) -> anyhow::Result<Programs> {
    let programs = Programs {
        store: match folder.layout.consul {
            true => consul::program()?,
            false => program(programs::CONFIG_STORE)?,
        },
        manager: program(programs::MANAGER)?,
        agent: program(programs::NODE_AGENT)?,
        classes: classes(folder)?,
    };
    if !programs::has_classes(&programs.classes) {
        let classes = programs.classes.display();
        eprintln!("no class files in {classes}: no session can be opened; name them by --classes");
    } else {
        check_classes(family, &programs.agent, &programs.classes).await?;
    }
    Ok(programs)
}

/// Nodes that are started later would only find out then, and each by itself.
async fn check_classes(family: &Family, agent: &Path, classes: &Path) -> anyhow::Result<()> {
    let mut command = Command::new(agent);
    command.arg("check").arg("--classes").arg(classes);
    let checked = tokio::time::timeout(CHECK_WAIT, family.run("the check of classes", command));
    let ended = checked.await.with_context(|| format!("{} check hangs", agent.display()))?;
    match ended? {
        (Ending::Code(0), _) => Ok(()),
        (ending, said) => {
            let text = format!("wrong class files; nothing was started\n{}", said.trim_end());
            match ending {
                Ending::Code(2) => Err(UsageMistake(text).into()),
                Ending::Code(_) | Ending::Signal(_) => bail!(text),
            }
        }
    }
}

/// The folder that was named, or that of the checkout; elsewhere the cluster's own.
fn classes(folder: &Folder) -> anyhow::Result<PathBuf> {
    if let Some(found) = folder.layout.classes.clone().or_else(programs::shipped_classes) {
        return Ok(found);
    }
    let own = folder.path.join("classes");
    programs::fill_with_classes(&own)?;
    Ok(own)
}

/// How the config store is told to those who use it.
pub fn store_address(folder: &Folder, ports: &Ports) -> String {
    if folder.layout.consul { consul::address(ports) } else { ports.store.to_string() }
}

fn embedded(program: &PathBuf, folder: &Folder, ports: &Ports) -> Command {
    let mut store = Command::new(program);
    store.arg("--data").arg(folder.path.join("store"));
    store.arg("--listen").arg(ports.store.to_string());
    store.arg("--cluster").arg(&folder.layout.cluster);
    store
}

/// The command line of a manager.
pub fn manager(folder: &Folder, ports: &Ports, programs: &Programs, it: &Member<'_>) -> Launch {
    let (layout, [grpc, http]) = (&folder.layout, it.listen);
    let mut command = Command::new(&programs.manager);
    command.arg("--data").arg(data_of(folder, it.id));
    match it.number {
        Some(number) => {
            command.arg("--number").arg(number.to_string());
            command.arg("--ring").arg(layout.ring());
        }
        None => {
            command.arg("--join");
        }
    }
    command.arg("--id").arg(it.id);
    command.arg("--grpc").arg(grpc.to_string());
    command.arg("--http").arg(http.to_string());
    command.arg("--config-store").arg(store_address(folder, ports));
    command.arg("--cluster").arg(&layout.cluster);
    command.arg("--slots").arg(layout.slots.to_string());
    command.arg("--replicas").arg(layout.replicas.to_string());
    if let Some(most) = layout.managers_max {
        command.arg("--managers-max").arg(most.to_string());
    }
    if let Some(patience) = layout.suspect_ms {
        command.arg("--suspect-ms").arg(patience.to_string());
        let flags = ["--lease-term-ms", "--lease-kill-ms", "--node-lost-ms"];
        for (flag, ms) in flags.iter().zip(patient_lease(patience).into_iter().flatten()) {
            command.arg(flag).arg(ms.to_string());
        }
    }
    command.arg("--process-agent").arg(&programs.agent);
    command.arg("--process-data").arg(folder.path.join("pool"));
    command.arg("--process-classes").arg(&programs.classes);
    for (name, program) in &layout.provision_commands {
        let mut word = OsString::from(format!("{name}="));
        word.push(program);
        command.arg("--provision-command").arg(word);
    }
    if let Some(file) = &layout.engine_url_file {
        command.args(["--engine", "postgres", "--engine-url-file"]).arg(file);
    }
    if let Some(file) = &layout.fields_file {
        command.arg("--fields-file").arg(file);
    }
    command.args(&layout.manager_options);
    Launch { name: it.id.to_owned(), command }
}

/// Term, kill and loss of leases that outlive the silence of a node's owner, in ms, where managers are so patient with
/// each other that the usual ones may not.
fn patient_lease(suspect_ms: u32) -> Option<[u64; 3]> {
    let suspect_ms = u64::from(suspect_ms);
    let term_ms = suspect_ms * 5 / 2;
    let kill_ms = term_ms * 3 / 2;
    (suspect_ms * 2 >= LeaseTimes::USUAL.lease_term_ms).then(|| [term_ms, kill_ms, kill_ms * 5 / 3])
}

/// The data folder of a manager.
pub fn data_of(folder: &Folder, id: &str) -> PathBuf {
    folder.path.join("managers").join(id)
}

/// The command line of a node's agent.
pub fn node(
    folder: &Folder,
    ports: &Ports,
    programs: &Programs,
    id: &str,
    listen: SocketAddr,
) -> Launch {
    let layout = &folder.layout;
    let addresses: Vec<String> = ports.grpc.iter().map(ToString::to_string).collect();
    let mut command = Command::new(&programs.agent);
    command.arg("run").arg("--id").arg(id);
    command.arg("--data").arg(folder.path.join("nodes").join(id));
    command.arg("--listen").arg(listen.to_string());
    command.arg("--managers").arg(addresses.join(","));
    command.arg("--cluster").arg(&layout.cluster);
    command.arg("--places").arg(layout.places.to_string());
    command.arg("--classes").arg(&programs.classes);
    let lease = layout.suspect_ms.and_then(patient_lease);
    for (flag, ms) in ["--lease-term", "--lease-kill"].iter().zip(lease.into_iter().flatten()) {
        command.arg(flag).arg(format!("{ms}ms"));
    }
    if layout.consul {
        command.arg("--consul").arg(store_address(folder, ports));
    }
    Launch { name: id.to_owned(), command }
}

/// Makes every command line.
pub fn commands(folder: &Folder, ports: &Ports, programs: &Programs) -> Launches {
    let layout = &folder.layout;
    let store = match layout.consul {
        true => consul::command(&programs.store, folder, ports),
        false => embedded(&programs.store, folder, ports),
    };
    let listens = ports.grpc.iter().zip(&ports.http);
    let managers = layout.managers.iter().zip(listens).map(|(seat, (grpc, http))| {
        let listen = [*grpc, *http];
        manager(
            folder,
            ports,
            programs,
            &Member { id: &seat.id, number: Some(seat.number), listen },
        )
    });
    let nodes = layout.nodes.iter().zip(&ports.nodes);
    Launches {
        store: Launch { name: "store".to_owned(), command: store },
        managers: managers.collect(),
        nodes: nodes.map(|(id, listen)| node(folder, ports, programs, id, *listen)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::Settings;
    use super::*;

    fn text(launch: &Launch) -> String {
        let arguments = launch.command.get_args().map(|it| it.to_string_lossy());
        arguments.collect::<Vec<_>>().join(" ")
    }

    fn launches(settings: &Settings) -> Launches {
        let data = tempfile::tempdir().unwrap();
        let folder = Folder::open(data.path(), settings).unwrap();
        let ports = Ports::find(&folder.layout).unwrap();
        let at = PathBuf::from("/bin");
        let (store, manager, agent) = (at.clone(), at.clone(), at);
        let programs = Programs { store, manager, agent, classes: classes(&folder).unwrap() };
        commands(&folder, &ports, &programs)
    }

    #[test]
    fn every_process_is_told_the_same_cluster_and_ring() {
        let all = launches(&Settings { port_base: Some(0), ..Settings::default() });
        assert_eq!((all.managers.len(), all.nodes.len()), (3, 1));
        let manager = text(&all.managers[1]);
        assert!(manager.contains("--number 681 --ring 340=m1,681=m2,1023=m3 --id m2"), "{manager}");
        assert!(manager.contains("--process-agent /bin --process-data "), "{manager}");
        let node = text(&all.nodes[0]);
        assert!(node.starts_with("run --id n1") && node.contains("--places 1000"), "{node}");
    }

    #[test]
    fn further_options_go_to_every_manager_and_to_nobody_else() {
        let manager_options = vec!["--no-session-numbers".to_owned(), "--works-max=3".to_owned()];
        let all =
            launches(&Settings { port_base: Some(0), manager_options, ..Settings::default() });
        let ends = |it: &Launch| text(it).ends_with(" --no-session-numbers --works-max=3");
        assert!(all.managers.iter().all(ends), "{}", text(&all.managers[0]));
        assert!(
            !text(&all.nodes[0]).contains("--works-max") && !text(&all.store).contains("--works")
        );
    }

    #[test]
    fn every_manager_is_told_the_programs_that_start_nodes() {
        let program = std::fs::canonicalize("/bin/sh").unwrap();
        let given = ["mine", "other"].map(|name| format!("{name}=/bin/sh"));
        let provision_commands = given.to_vec();
        let all =
            launches(&Settings { port_base: Some(0), provision_commands, ..Settings::default() });
        for manager in &all.managers {
            let line = text(manager);
            for name in ["mine", "other"] {
                let option = format!("--provision-command {name}={}", program.display());
                assert!(line.contains(&option), "{line}");
            }
        }
    }

    #[test]
    fn with_consul_everybody_is_told_the_same_agent_and_prefix() {
        let settings = Settings { port_base: Some(0), consul: true, ..Settings::default() };
        let all = launches(&settings);
        let store = text(&all.store);
        let port = store.split("-http-port ").nth(1).unwrap().split(' ').next().unwrap();
        let address = format!("consul://127.0.0.1:{port}/rota");
        assert!(store.starts_with("agent -server") && !store.contains("-port 0"), "{store}");
        assert!(text(&all.managers[2]).contains(&format!("--config-store {address}")));
        assert!(text(&all.nodes[0]).contains(&format!("--consul {address}")));
    }

    #[test]
    fn leases_outlive_the_silence_of_an_owner_where_managers_are_patient() {
        let of = |suspect_ms| {
            let all = launches(&Settings { suspect_ms, port_base: Some(0), ..Settings::default() });
            (text(&all.managers[0]), text(&all.nodes[0]))
        };
        let (manager, node) = of(Some(5_000));
        let times = "--lease-term-ms 12500 --lease-kill-ms 18750 --node-lost-ms 31250";
        assert!(manager.contains(&format!("--suspect-ms 5000 {times}")), "{manager}");
        assert!(node.contains("--lease-term 12500ms --lease-kill 18750ms"), "{node}");
        for usual in [None, Some(3_999)] {
            let (manager, node) = of(usual);
            assert!(!manager.contains("--lease") && !node.contains("--lease"), "{manager} {node}");
        }
    }
}
