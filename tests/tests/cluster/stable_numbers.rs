//! Stable numbers of managers, pools and nodes: the same everywhere, kept through deaths, and readable in a folder.

use rota_client::v1;
use rota_ring::slot_of_document;
use rota_tests::processes::{Process, gone, process};
use rota_tests::sessions::CALL;
use rota_tests::{Cluster, Launched, PATIENCE, TestFolder, eventually};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Numbers by the ids of nodes or managers.
type Numbers = BTreeMap<String, u64>;

fn numbers(of: &[(&str, u64)]) -> Numbers {
    of.iter().map(|(id, number)| ((*id).to_owned(), *number)).collect()
}

/// What one manager says by itself.
async fn said(cluster: &Cluster, manager: usize) -> Result<v1::InspectResponse, String> {
    cluster.client_of(manager).inspect(CALL).await.map_err(|it| format!("{it:?}"))
}

/// Waits until each of these managers says just these numbers of nodes.
async fn all_say(cluster: &Cluster, managers: &[usize], nodes: &Numbers) {
    eventually("every manager says the same numbers", PATIENCE, async || {
        for manager in managers {
            let said = said(cluster, *manager).await?;
            let found = said.nodes.iter().map(|it| (it.id.clone(), it.stable_number));
            let found: Numbers = found.collect();
            if found != *nodes {
                return Err(format!("manager {manager} says {found:?}"));
            }
        }
        Ok(())
    })
    .await;
}

fn command_line(cluster: &Cluster, manager: usize) -> Process {
    process(cluster.document.managers[manager].pid).expect("it runs")
}

fn numbers_folder(cluster: &Cluster, manager: usize) -> PathBuf {
    let line = command_line(cluster, manager);
    Path::new(line.option("--data").expect("it has a folder")).join("numbers")
}

/// The entries of a folder: each file's name with its number and whether its sticky bit is set.
fn entries(folder: &Path) -> Result<BTreeMap<String, (u64, bool)>, String> {
    let mut found = BTreeMap::new();
    for file in std::fs::read_dir(folder).map_err(|it| it.to_string())? {
        let path = file.map_err(|it| it.to_string())?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Some(name) = name.strip_suffix(".db") else { continue };
        let text = std::fs::read_to_string(&path).map_err(|it| it.to_string())?;
        let mode = path.metadata().map_err(|it| it.to_string())?.permissions().mode();
        let number = text.parse().map_err(|_| format!("{name} holds {text:?}"))?;
        found.insert(name.to_owned(), (number, mode & 0o1000 != 0));
    }
    Ok(found)
}

/// The entries that a manager's folder must have for what it says itself, and the lasts of their groups.
fn expected(said: &v1::InspectResponse, pool: &str) -> BTreeMap<String, (u64, bool)> {
    let managers = said.view.iter().flat_map(|it| &it.managers);
    let managers: Vec<_> =
        managers.map(|it| (format!("Manager.{}", it.uuid), it.stable_number)).collect();
    let nodes = said.nodes.iter();
    let nodes: Vec<_> =
        nodes.map(|it| (format!("Node.{pool}.{}", it.uuid), it.stable_number)).collect();
    let highest = |of: &[(String, u64)]| of.iter().map(|it| it.1).max().unwrap_or_default();
    let pool_entries = [(format!("Pool.{pool}"), 1), ("Pool.last".to_owned(), 1)];
    let lasts = [
        ("Manager.last".to_owned(), highest(&managers)),
        (format!("Node.{pool}.last"), highest(&nodes)),
    ];
    let all = managers.into_iter().chain(nodes).chain(pool_entries).chain(lasts);
    all.map(|(name, number)| (name, (number, true))).collect()
}

/// Waits until the folder of the manager at an address holds what that one says, valid.
async fn folder_has_what_it_says(address: &str, folder: &Path, pool: &str, nodes: &Numbers) {
    let client = rota_client::Client::connect(address).expect("the address is good");
    eventually("the folder has what its manager says", PATIENCE, async || {
        let said = client.inspect(CALL).await.map_err(|it| format!("{it:?}"))?;
        let told = said.nodes.iter().map(|it| (it.id.clone(), it.stable_number));
        let told: Numbers = told.collect();
        let expected = expected(&said, pool);
        let mut found = entries(folder)?;
        // Nodes that are gone keep their files for the interval.
        found.retain(|_, (_, valid)| *valid);
        let is_same = found == expected && told == *nodes;
        if is_same { Ok(()) } else { Err(format!("{found:?}, not {expected:?}; {told:?}")) }
    })
    .await;
}

/// The index of the manager that assigns.
async fn assigner(cluster: &Cluster) -> usize {
    let view = said(cluster, 0).await.expect("it answers").view.expect("it has a View");
    let z = rota_model::Namespace::parse("z").expect("a name");
    let slot = slot_of_document(&z, "spaces", view.m).0;
    let mut parts: Vec<&v1::Part> = view.parts.iter().collect();
    parts.sort_by_key(|it| it.number);
    let home = parts.iter().find(|it| it.number >= slot).unwrap_or(&parts[0]);
    let is_owner = |it: &rota_tests::Manager| it.number == home.owner;
    cluster.document.managers.iter().position(is_owner).expect("it was started here")
}

/// The command line of an agent, with another id and folder.
fn for_another_node(line: &[String], id: &str, data: &str) -> Vec<String> {
    let mut line = line.to_vec();
    for (option, value) in [("--id", id), ("--data", data), ("--listen", "127.0.0.1:0")] {
        let at = line.iter().position(|it| it == option).expect("dev gives it");
        value.clone_into(&mut line[at + 1]);
    }
    line
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_are_the_same_at_all_managers_outlive_their_assigner_and_stand_in_a_folder() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &["--nodes", "2"]).await;
    let at_first = eventually("both nodes have a number", PATIENCE, async || {
        let said = said(&cluster, 0).await?;
        let found: Numbers =
            said.nodes.iter().map(|it| (it.id.clone(), it.stable_number)).collect();
        let mut given: Vec<u64> = found.values().copied().collect();
        given.sort_unstable();
        if given == [1, 2] { Ok(found) } else { Err(format!("{found:?}")) }
    })
    .await;
    all_say(&cluster, &[0, 1, 2], &at_first).await;
    let pools = cluster.ringctl(&["pool", "list", "-o", "json"]).await.json();
    assert_eq!(pools["pools"][0]["stable_number"], 1, "{pools}");
    let pool = pools["pools"][0]["uuid"].as_str().expect("it has one").to_owned();
    let shown = cluster.ringctl(&["inspect", "-o", "json"]).await.json();
    let of_managers: Vec<u64> = shown["managers"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|it| it["stable_number"].as_u64())
        .collect();
    assert_eq!(of_managers, [1, 2, 3]);
    let folders: Vec<PathBuf> = (0..3).map(|it| numbers_folder(&cluster, it)).collect();
    for (manager, folder) in folders.iter().enumerate() {
        let address = &cluster.document.managers[manager].grpc;
        folder_has_what_it_says(address, folder, &pool, &at_first).await;
    }

    // Who assigns is killed, and a node leaves.
    let first = assigner(&cluster).await;
    let manager = command_line(&cluster, first);
    cluster.kill_manager(first).await;
    let rest: Vec<usize> = (0..3).filter(|it| *it != first).collect();
    let left = &cluster.document.nodes[0];
    let agent = process(left.pid).expect("it runs");
    agent.signal(Signal::TERM);
    gone("the agent has left", std::slice::from_ref(&agent)).await;
    let endpoint = &cluster.document.managers[rest[0]].grpc;
    eventually("it is forgotten", PATIENCE, async || {
        let ran = rota_tests::ringctl(endpoint, &["node", "forget", &left.id]).await;
        if ran.code == 0 { Ok(()) } else { Err(ran.stderr) }
    })
    .await;

    // A further node gets a further number, at whoever assigns now.
    let line = for_another_node(&agent.line, "n9", &folder.at("n9"));
    let n9 = Launched::again(&folder, "n9", &line).await;
    let mut now = at_first.clone();
    let number = now.remove(&left.id).expect("it had one");
    now.extend(numbers(&[("n9", 3)]));
    all_say(&cluster, &rest, &now).await;
    // The one that left comes back within the interval, and has its own.
    let again = Launched::again(&folder, "again", &agent.line).await;
    now.insert(left.id.clone(), number);
    all_say(&cluster, &rest, &now).await;

    // The killed one left a folder that looks valid; its next run makes it invalid first, and follows the ring.
    let mut stale = entries(&folders[first]).expect("it is there");
    stale.retain(|_, (_, valid)| *valid);
    assert!(!stale.is_empty());
    std::fs::write(folders[first].join("notes.txt"), "not Rota's").expect("it can be written");
    let back = Launched::again(&folder, "manager-again", &manager.line).await;
    folder_has_what_it_says(back.told("grpc"), &folders[first], &pool, &now).await;
    assert!(folders[first].join("set-aside/notes.txt").exists());
    let log = std::fs::read_to_string(&back.log).expect("it has a log");
    let invalidated = format!("invalidated={}", stale.len());
    assert!(log.contains("stable numbers of this manager start"), "{log}");
    assert!(log.contains(&invalidated) || log.contains(&invalidated.replace('=', "\":")), "{log}");

    // A manager that is told to end leaves nothing valid behind.
    cluster.end_with(vec![n9, again, back]).await;
    for folder in &folders {
        let entries = entries(folder).expect("it is there");
        let valid: Vec<_> = entries.iter().filter(|it| it.1.1).collect();
        assert!(!entries.is_empty() && valid.is_empty(), "{valid:?}");
    }
}
