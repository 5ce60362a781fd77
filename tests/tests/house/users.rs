//! The wall between the users of a simulated cluster and its machines.

use crate::{content, expect_none, tracked};
use std::collections::{BTreeMap, BTreeSet};

const FOLDER: &str = "crates/sim/src/";

/// What stands on the ground beside users, and what is done to it.
const MACHINES: &[&str] = &["world", "site", "manager_host", "node_host", "store", "mutants"];

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

/// Machines that users reach, through whatever they name.
fn reached(modules: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let (mut seen, mut open) = (BTreeSet::new(), vec!["users"]);
    while let Some(from) = open.pop() {
        let fresh = modules.get(from).into_iter().flatten().filter(|to| seen.insert(to.as_str()));
        open.extend(fresh.map(String::as_str));
    }
    let found = MACHINES.iter().filter(|it| seen.contains(*it));
    found.map(|it| format!("users reach {it}")).collect()
}

#[test]
fn users_of_the_simulator_reach_no_machine() {
    let mut modules: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for path in tracked() {
        let Some(name) = path.strip_prefix(FOLDER).and_then(|it| it.split(['/', '.']).next())
        else {
            continue;
        };
        modules.entry(name.to_owned()).or_default().extend(named(&content(&path)));
    }
    assert!(MACHINES.iter().chain(&["users", "ground"]).all(|it| modules.contains_key(*it)));
    expect_none(&reached(&modules));
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
    assert_eq!(reached(&modules.into()), ["users reach world"]);
}
