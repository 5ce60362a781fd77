//! Which crate may use which.

use crate::{expect_none, metadata};
use std::collections::BTreeSet;

/// Every arrow that is allowed between the rooms of the code map in ARCHITECTURE.md. `rota-model` is a leaf that
/// everything may use, and stands in no list.
const ALLOWED: &[(&str, &[&str])] = &[
    ("rota-model", &[]),
    ("rota-ring", &[]),
    ("rota-node", &[]),
    // Log, ready line and signals of a process.
    ("rota-daemon", &[]),
    // Everything that managers keep is a document.
    (
        "rota-messages",
        &["rota-ring", "rota-docstore", "rota-tasks", "rota-search", "rota-lifecycle"],
    ),
    // Which node, and how many.
    ("rota-placement", &[]),
    // Numbers of resources that stay.
    ("rota-ids", &[]),
    // Work that goes on after an operation.
    ("rota-tasks", &[]),
    // What is searched are documents.
    ("rota-search", &["rota-docstore"]),
    // What happens in a session, and when.
    ("rota-lifecycle", &[]),
    // Commits are items of documents, and digests name bodies.
    ("rota-content", &["rota-docstore"]),
    (
        "rota-protocol",
        &[
            "rota-messages",
            "rota-lifecycle",
            "rota-content",
            "rota-placement",
            "rota-ids",
            "rota-tasks",
            "rota-search",
            "rota-ring",
            "rota-docstore",
            "rota-search",
        ],
    ),
    // Its binary is the embedded config store.
    ("rota-membership", &["rota-ring", "rota-daemon"]),
    ("rota-docstore", &[]),
    // Who starts nodes: files, processes and logs of this machine.
    ("rota-provision", &["rota-daemon"]),
    // The digest that names an attachment; numbers that a person reads.
    ("rota-storage", &["rota-docstore", "rota-ids"]),
    // Fulfils its trait; of documents it reads what people query.
    ("rota-storage-postgres", &["rota-storage", "rota-docstore"]),
    // The one parser of the wire: it converts messages, documents and the View, so it must know their
    // types. It knows nothing that decides: clients, node-agents and `ringctl` link it.
    (
        "rota-proto",
        &[
            "rota-messages",
            "rota-docstore",
            "rota-ring",
            "rota-tasks",
            "rota-search",
            "rota-lifecycle",
            "rota-content",
        ],
    ),
    // Copies of documents, and what brings them up to date.
    ("rota-client", &["rota-proto", "rota-docstore", "rota-content", "rota-ring", "rota-tasks"]),
    ("rota-sim", &["rota-docstore", "rota-lifecycle", "rota-protocol", "rota-node", "rota-ring"]),
    (
        "rota-manager",
        &[
            "rota-docstore",
            "rota-protocol",
            "rota-membership",
            "rota-storage",
            "rota-storage-postgres",
            // The readable copy of the numbers.
            "rota-ids",
            // The updates feed.
            "rota-content",
            "rota-proto",
            "rota-provision",
            "rota-client",
            "rota-daemon",
            // Pages of owners are put together.
            "rota-search",
            // What protocol, membership and client hand to the driver are Views.
            "rota-ring",
        ],
    ),
    // Managers and node-agents meet only in proto: no ring, no protocol here. Of membership it has
    // the registration in Consul; it never reads or writes a config store.
    (
        "rota-node-agent",
        &[
            "rota-node",
            "rota-content",
            "rota-docstore",
            "rota-proto",
            "rota-client",
            "rota-daemon",
            "rota-membership",
        ],
    ),
    // Of membership it has the marks in Consul, by which a restore command is run once; of placement what it
    // measures.
    (
        "ringctl",
        &[
            "rota-client",
            // Times that people enter become absolute there.
            "rota-lifecycle",
            // Commits are made of folders there, and classes in these are read as nodes read them.
            "rota-content",
            "rota-node",
            "rota-proto",
            "rota-ring",
            "rota-daemon",
            "rota-membership",
            "rota-placement",
        ],
    ),
    // The simulator checks what real processes did, too.
    (
        "rota-tests",
        &[
            "rota-client",
            "rota-daemon",
            "rota-docstore",
            "rota-proto",
            // What asks an engine of containers.
            "rota-provision",
            "rota-ring",
            "rota-sim",
        ],
    ),
];

/// A crate of the workspace, and the crates of the workspace that it uses (for anything: code,
/// tests, build).
type Crate = (String, Vec<String>);

fn wrong_arrows(crates: &[Crate]) -> Vec<String> {
    let mut mistakes = Vec::new();
    for (from, uses) in crates {
        let Some((_, allowed)) = ALLOWED.iter().find(|(name, _)| name == from) else {
            mistakes.push(format!("{from} is not on the list of crates in arrows.rs"));
            continue;
        };
        for to in uses {
            if to != "rota-model" && !allowed.contains(&to.as_str()) {
                mistakes.push(format!("{from} -> {to} is not an allowed arrow"));
            }
        }
    }
    mistakes
}

fn workspace() -> Vec<Crate> {
    let metadata = metadata(&["--no-deps"]);
    let packages = metadata["packages"].as_array().expect("metadata lists packages");
    let text = |value: &serde_json::Value| value.as_str().expect("a name is text").to_owned();
    let uses = |package: &serde_json::Value| {
        let all = package["dependencies"].as_array().expect("a package lists dependencies");
        // Crates of the workspace are the dependencies that have a path.
        all.iter().filter(|it| it["path"].is_string()).map(|it| text(&it["name"])).collect()
    };
    packages.iter().map(|it| (text(&it["name"]), uses(it))).collect()
}

#[test]
fn crates_use_only_what_the_arrows_allow() {
    expect_none(&wrong_arrows(&workspace()));
}

/// Every crate of the workspace that this one links, by whatever way.
fn linked(crates: &[Crate], from: &str) -> BTreeSet<String> {
    let (mut found, mut next) = (BTreeSet::new(), vec![from.to_owned()]);
    while let Some(name) = next.pop() {
        let uses = crates.iter().filter(|(it, _)| *it == name).flat_map(|(_, uses)| uses);
        next.extend(uses.filter(|to| found.insert((*to).clone())).cloned());
    }
    found
}

#[test]
fn clients_operators_and_nodes_link_nothing_that_decides_for_managers() {
    let crates = workspace();
    for name in ["rota-client", "ringctl", "rota-node-agent"] {
        let linked = linked(&crates, name);
        assert!(linked.contains("rota-messages"), "{name} links {linked:?}");
        assert!(!linked.contains("rota-protocol"), "{name} links {linked:?}");
    }
    assert!(linked(&crates, "rota-manager").contains("rota-protocol"));
}

#[test]
fn every_crate_on_the_list_exists() {
    let crates = workspace();
    let gone = ALLOWED.iter().filter(|(name, _)| crates.iter().all(|(it, _)| it != name));
    expect_none(&gone.map(|(name, _)| format!("{name} does not exist")).collect::<Vec<_>>());
}

#[test]
fn an_arrow_that_is_not_allowed_is_found() {
    let uses = |names: &[&str]| names.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
    let crates = [
        ("rota-node-agent".to_owned(), uses(&["rota-model", "rota-proto", "rota-protocol"])),
        ("rota-model".to_owned(), uses(&["rota-ring"])),
        ("rota-surprise".to_owned(), uses(&[])),
    ];
    let expected = [
        "rota-node-agent -> rota-protocol is not an allowed arrow",
        "rota-model -> rota-ring is not an allowed arrow",
        "rota-surprise is not on the list of crates in arrows.rs",
    ];
    assert_eq!(wrong_arrows(&crates), expected);
}
