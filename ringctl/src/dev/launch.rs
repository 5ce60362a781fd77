//! The command line of each process of a cluster.

use super::consul;
use super::family::{Ending, Family};
use super::layout::Folder;
use super::ports::Ports;
use super::programs::{self, program};
use crate::failure::UsageMistake;
use anyhow::{Context, bail};
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

struct Programs {
    store: PathBuf,
    manager: PathBuf,
    agent: PathBuf,
}

/// How long a look at the class files may take.
const CHECK_WAIT: Duration = Duration::from_secs(10);

/// Makes every command line; fails when a program is missing or a class file is wrong.
pub async fn plan(family: &Family, folder: &Folder, ports: &Ports) -> anyhow::Result<Launches> {
    let programs = Programs {
        store: match folder.layout.consul {
            true => consul::program()?,
            false => program(programs::CONFIG_STORE)?,
        },
        manager: program(programs::MANAGER)?,
        agent: program(programs::NODE_AGENT)?,
    };
    let classes = classes(folder);
    if !programs::has_classes(&classes) {
        let classes = classes.display();
        eprintln!("no class files in {classes}: no session can be opened; name them by --classes");
    } else {
        check_classes(family, &programs.agent, &classes).await?;
    }
    Ok(commands(folder, ports, &programs, &classes))
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

fn classes(folder: &Folder) -> PathBuf {
    let shipped = || programs::shipped_classes().unwrap_or_else(|| folder.path.join("classes"));
    folder.layout.classes.clone().unwrap_or_else(shipped)
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

fn commands(folder: &Folder, ports: &Ports, programs: &Programs, classes: &Path) -> Launches {
    let layout = &folder.layout;
    let store = match layout.consul {
        true => consul::command(&programs.store, folder, ports),
        false => embedded(&programs.store, folder, ports),
    };
    let config_store = store_address(folder, ports);
    let mut managers = Vec::new();
    for ((seat, grpc), http) in layout.managers.iter().zip(&ports.grpc).zip(&ports.http) {
        let mut command = Command::new(&programs.manager);
        command.arg("--data").arg(folder.path.join("managers").join(&seat.id));
        command.arg("--number").arg(seat.number.to_string());
        command.arg("--id").arg(&seat.id);
        command.arg("--grpc").arg(grpc.to_string());
        command.arg("--http").arg(http.to_string());
        command.arg("--config-store").arg(&config_store);
        command.arg("--cluster").arg(&layout.cluster);
        command.arg("--ring").arg(layout.ring());
        command.arg("--slots").arg(layout.slots.to_string());
        command.arg("--replicas").arg(layout.replicas.to_string());
        if layout.max_nodes > 0 {
            command.arg("--pool").arg("default");
            command.arg("--pool-max").arg(layout.max_nodes.to_string());
            command.arg("--pool-places").arg(layout.places.to_string());
            command.arg("--pool-agent").arg(&programs.agent);
            command.arg("--pool-data").arg(folder.path.join("pool"));
            command.arg("--pool-classes").arg(classes);
        }
        managers.push(Launch { name: seat.id.clone(), command });
    }
    let addresses: Vec<String> = ports.grpc.iter().map(ToString::to_string).collect();
    let mut nodes = Vec::new();
    for (id, listen) in layout.nodes.iter().zip(&ports.nodes) {
        let mut command = Command::new(&programs.agent);
        command.arg("run").arg("--id").arg(id);
        command.arg("--data").arg(folder.path.join("nodes").join(id));
        command.arg("--listen").arg(listen.to_string());
        command.arg("--managers").arg(addresses.join(","));
        command.arg("--cluster").arg(&layout.cluster);
        command.arg("--places").arg(layout.places.to_string());
        command.arg("--classes").arg(classes);
        if layout.consul {
            command.arg("--consul").arg(&config_store);
        }
        nodes.push(Launch { name: id.clone(), command });
    }
    Launches { store: Launch { name: "store".to_owned(), command: store }, managers, nodes }
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
        let programs = Programs { store: at.clone(), manager: at.clone(), agent: at };
        commands(&folder, &ports, &programs, &classes(&folder))
    }

    #[test]
    fn every_process_is_told_the_same_cluster_and_ring() {
        let all = launches(&Settings { port_base: Some(0), ..Settings::default() });
        assert_eq!((all.managers.len(), all.nodes.len()), (3, 1));
        let manager = text(&all.managers[1]);
        assert!(manager.contains("--number 681 --id m2"), "{manager}");
        assert!(manager.contains("--ring 340=m1,681=m2,1023=m3"), "{manager}");
        assert!(!manager.contains("--pool"), "{manager}");
        let node = text(&all.nodes[0]);
        assert!(node.starts_with("run --id n1") && node.contains("--places 1000"), "{node}");
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
    fn a_pool_is_given_to_managers_only_when_more_nodes_may_come() {
        let settings = Settings { port_base: Some(0), max_nodes: Some(4), ..Settings::default() };
        let manager = text(&launches(&settings).managers[0]);
        assert!(manager.contains("--pool default --pool-max 4 --pool-places 1000"), "{manager}");
    }
}
