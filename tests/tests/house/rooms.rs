//! Which room of `crates/protocol` may use which.

use crate::{content, expect_none, tracked};
use std::collections::BTreeSet;

const FOLDER: &str = "crates/protocol/src/";

/// The rooms, from the bottom up: a room uses those before it.
const ROOMS: &[&str] = &[
    "ports",
    "settings",
    "contents",
    "nodes",
    "log",
    "managed",
    "node_lease",
    "numbers",
    "pools",
    "sessions",
    "documents",
    "searches",
    "lives",
    "ring_tasks",
    "tasks",
    "partition",
    "router",
    "membership",
    "manager",
];

/// What lives beside the log in a partition. None of these uses another one.
const RESIDENTS: &[&str] =
    &["node_lease", "numbers", "pools", "sessions", "documents", "searches", "lives", "tasks"];

/// Arrows that point the wrong way and are still to go: from a room to a file of another one.
const LEFT: &[(&str, &str)] = &[
    // These decisions are methods of the manager.
    ("membership", "manager::inputs"),
    // What every operation needs stands in the surroundings of the log.
    ("log", "documents::documents_env"),
];

/// An arrow: from a room to a file of another one, `room::file`.
type Arrow = (String, String);

/// The arrows in the text of a file of that room, tests and comments left out.
fn arrows(room: &str, text: &str) -> BTreeSet<Arrow> {
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let mut found = BTreeSet::new();
    for line in lines {
        for path in line.split("crate::").skip(1) {
            let names: Vec<&str> = path
                .split("::")
                .map(|name| name.split(|it: char| it != '_' && !it.is_alphanumeric()).next())
                .map(Option::unwrap_or_default)
                .collect();
            if let [to, file, ..] = names[..]
                && to != room
            {
                found.insert((room.to_owned(), format!("{to}::{file}")));
            }
        }
    }
    found
}

/// Why an arrow points the wrong way, if it does.
fn problem((from, to): &Arrow) -> Option<String> {
    let place = |room: &str| ROOMS.iter().position(|it| *it == room);
    let room = to.split("::").next().unwrap_or_default();
    let (Some(here), Some(there)) = (place(from), place(room)) else {
        return Some(format!("{from} -> {to}: no such room"));
    };
    let are_neighbours = RESIDENTS.contains(&from.as_str()) && RESIDENTS.contains(&room);
    match (there > here, are_neighbours) {
        (_, true) => Some(format!("{from} -> {to}: one resident uses another")),
        (true, false) => Some(format!("{from} -> {to}: upwards")),
        (false, false) => None,
    }
}

fn is_left((from, to): &Arrow) -> bool {
    LEFT.iter().any(|(room, file)| room == from && file == to)
}

fn all() -> BTreeSet<Arrow> {
    let files = tracked().into_iter().filter_map(|path| {
        let room = path.strip_prefix(FOLDER)?.split_once('/')?.0.to_owned();
        Some(arrows(&room, &content(&path)))
    });
    files.flatten().collect()
}

#[test]
fn rooms_use_only_those_before_them() {
    let wrong = all().into_iter().filter(|arrow| !is_left(arrow));
    expect_none(&wrong.filter_map(|arrow| problem(&arrow)).collect::<Vec<_>>());
}

#[test]
fn every_arrow_that_is_still_to_go_is_there() {
    let all = all();
    let gone = LEFT.iter().filter(|(from, to)| {
        let arrow = ((*from).to_owned(), (*to).to_owned());
        !all.contains(&arrow) || problem(&arrow).is_none()
    });
    expect_none(&gone.map(|(from, to)| format!("{from} -> {to} is gone")).collect::<Vec<_>>());
}

#[test]
fn an_arrow_that_points_the_wrong_way_is_found() {
    let text = "use crate::manager::inputs::Manager;\n// crate::router::forward\n\
                use crate::log::lead::{A, B};\nfn x() { crate::sessions::open::f() }\n\
                #[cfg(test)]\nuse crate::router::forward::Router;\n";
    let problems: Vec<String> = arrows("documents", text).iter().filter_map(problem).collect();
    assert_eq!(
        problems,
        [
            "documents -> manager::inputs: upwards",
            "documents -> sessions::open: one resident uses another",
        ]
    );
}
