//! The walls in the simulator: users reach no machine, and a machine reaches no other one.

use crate::{content, expect_none, tracked};
use std::collections::{BTreeMap, BTreeSet};

const FOLDER: &str = "crates/sim/src/";

/// What stands on the ground beside users, and what is done to it.
const MACHINES: &[&str] = &["world", "site", "manager_host", "node_host", "store", "mutants"];

/// What happens at one machine.
const AT_A_MACHINE: &[&str] = &[
    "site",
    "manager_process",
    "manager_effects",
    "manager_disk",
    "manager_orders",
    "manager_store",
    "link",
    "tasks",
    "node_process",
    "agent_host",
    "program_host",
    "actions",
    "folders",
    "mutants",
];

/// What sees all machines, or whoever uses them.
const ABOVE: &[&str] = &["world", "users", "fault", "orders", "run"];

/// The modules of the simulator that a text names, tests and comments left out.
fn named(text: &str) -> BTreeSet<String> {
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let paths = lines.flat_map(|line| line.split("crate::").skip(1));
    let first = |path: &str| {
        path.split(|it: char| it != '_' && !it.is_alphanumeric()).next().map(Into::into)
    };
    paths.filter_map(first).collect()
}

/// What of `to` is reached from a module, through whatever that names.
fn reached(from: &str, to: &[&str], modules: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(from) = open.pop() {
        let fresh = modules.get(from).into_iter().flatten().filter(|to| seen.insert(to.as_str()));
        open.extend(fresh.map(String::as_str));
    }
    let found = to.iter().filter(|it| seen.contains(*it));
    found.map(|it| format!("{from} reaches {it}")).collect()
}

/// The modules of the simulator, and which of them each names.
fn modules() -> BTreeMap<String, BTreeSet<String>> {
    let mut modules: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for path in tracked() {
        let Some(name) = path.strip_prefix(FOLDER).and_then(|it| it.split(['/', '.']).next())
        else {
            continue;
        };
        modules.entry(name.to_owned()).or_default().extend(named(&content(&path)));
    }
    let mut known = MACHINES.iter().chain(AT_A_MACHINE).chain(ABOVE).chain(&["ground"]);
    assert!(known.all(|it| modules.contains_key(*it)));
    modules
}

#[test]
fn users_of_the_simulator_reach_no_machine() {
    expect_none(&reached("users", MACHINES, &modules()));
}

#[test]
fn what_happens_at_one_machine_of_the_simulator_reaches_no_other() {
    let modules = modules();
    let found = AT_A_MACHINE.iter().flat_map(|it| reached(it, ABOVE, &modules));
    expect_none(&found.collect::<Vec<_>>());
}

#[test]
fn a_way_from_users_to_a_machine_is_found() {
    let texts = [
        (
            "users",
            "use crate::ground::Ground;\n// crate::store::Store\n#[cfg(test)]\nuse crate::mutants::Bug;\n",
        ),
        ("ground", "fn x() { crate::world::f() }\n"),
        ("world", "use crate::users::Users;\n"),
    ];
    let modules = texts.map(|(name, text)| (name.to_owned(), named(text)));
    assert_eq!(reached("users", MACHINES, &modules.into()), ["users reaches world"]);
}
