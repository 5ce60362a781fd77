//! What pure crates never see: runtimes, sockets, files, clocks, unseeded randomness.

use crate::{content, expect_none, metadata, printed_by, tracked};
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// Crates that decide, with their folders.
const DECIDERS: &[(&str, &str)] = &[
    ("rota-model", "crates/model/"),
    ("rota-ring", "crates/ring/"),
    ("rota-node", "crates/node/"),
    ("rota-messages", "crates/messages/"),
    ("rota-placement", "crates/placement/"),
    ("rota-ids", "crates/ids/"),
    ("rota-tasks", "crates/tasks/"),
    ("rota-search", "crates/search/"),
    ("rota-lifecycle", "crates/lifecycle/"),
    ("rota-content", "crates/content/"),
    ("rota-protocol", "crates/protocol/"),
    ("rota-docstore", "crates/docstore/"),
];
/// The simulator is pure as well, but its binary prints, writes files, and seeds its randomness.
const SIMULATOR: (&str, &str) = ("rota-sim", "crates/sim/");

/// The simulator's command line: it stops in time, runs seeds on several threads, and says how long a
/// search took. No seed and no search sees any of that; everything else of that crate is as pure as the
/// rest.
const COMMAND_LINE: &[&str] = &["crates/sim/src/main.rs", "crates/sim/src/searches.rs"];

/// Packages that no pure crate reaches, each also as the beginning of a longer name
/// (`tokio-util`).
const RIM: &[&str] = &["tokio", "tonic", "prost", "axum", "hyper", "mio", "h2", "socket2"];
/// Packages that no deciding crate reaches either: files and randomness.
const WORLD: &[&str] = &["redb", "rustix", "rand", "getrandom", "tempfile"];
/// A package whose parts that draw or read the clock are features, which the rim turns on for the whole
/// workspace. Deciding crates turn on no other feature than these, and [`WORLD_WORDS`] names what they never
/// call.
const NAMES_ONLY: (&str, &[&str]) = ("uuid", &["v5"]);

/// Words of code that no pure crate has, tests included.
const RIM_WORDS: &[&str] =
    &["HashMap", "HashSet", "Instant::now", "SystemTime", "std::net", "thread::", "RandomState"];
/// Words of code that no deciding crate has either. Its tests may read the files that we ship.
const WORLD_WORDS: &[&str] = &[
    "std::fs",
    "std::io",
    "std::env",
    "std::process",
    "println!",
    "Uuid::new_v1",
    "Uuid::new_v4",
    "Uuid::new_v6",
    "Uuid::new_v7",
    "Uuid::now_v",
];

/// Package name to the packages that it is built with.
type Graph = BTreeMap<String, BTreeSet<String>>;

/// Every way from a package to a banned one, each as the chain of names. No way leads through the package
/// of [`NAMES_ONLY`].
fn ways_to(graph: &Graph, from: &str, banned: &[&str]) -> Vec<String> {
    let is_banned = |name: &str| {
        banned.iter().any(|prefix| {
            name.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        })
    };
    let mut ways = Vec::new();
    let mut seen = BTreeSet::from([from]);
    let mut open = vec![vec![from]];
    while let Some(way) = open.pop() {
        let last = way.last().expect("a way has a beginning");
        for next in graph.get(*last).into_iter().flatten() {
            let longer = [&way[..], &[next.as_str()]].concat();
            if is_banned(next) {
                ways.push(longer.join(" -> "));
            } else if next != NAMES_ONLY.0 && seen.insert(next) {
                open.push(longer);
            }
        }
    }
    ways
}

fn graph() -> Graph {
    let version = printed_by(Command::new(env!("CARGO")).arg("-vV"));
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    // Only this platform: packages of others need not be on this machine.
    let metadata = metadata(&["--filter-platform", host.expect("cargo says its host")]);
    let list = |value: &serde_json::Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let packages = list(&metadata["packages"]);
    let names: BTreeMap<String, String> =
        packages.iter().map(|it| (text(&it["id"]), text(&it["name"]))).collect();
    let is_built = |dep: &serde_json::Value| {
        list(&dep["dep_kinds"]).iter().any(|it| text(&it["kind"]) != "dev")
    };
    let mut graph = Graph::new();
    for node in list(&metadata["resolve"]["nodes"]) {
        let uses = graph.entry(names[&text(&node["id"])].clone()).or_default();
        let built_with = list(&node["deps"]).into_iter().filter(is_built);
        uses.extend(built_with.map(|dep| names[&text(&dep["pkg"])].clone()));
    }
    graph
}

/// Features of the package of [`NAMES_ONLY`] that a crate turns on beyond those that it may.
fn features_too_many(name: &str, dependencies: &serde_json::Value) -> Vec<String> {
    let list = |value: &serde_json::Value| value.as_array().cloned().unwrap_or_default();
    let (package, may) = NAMES_ONLY;
    let mut mistakes = Vec::new();
    for dependency in list(dependencies).iter().filter(|it| it["name"] == package) {
        if dependency["uses_default_features"] != false {
            mistakes.push(format!("{name} takes the default features of {package}"));
        }
        let features = list(&dependency["features"]);
        let features = features.iter().filter_map(|it| it.as_str());
        let more = features.filter(|it| !may.contains(it));
        mistakes.extend(more.map(|it| format!("{name} turns on {it} of {package}")));
    }
    mistakes
}

/// Lines of code (not of comments) that have one of the words.
fn impure_lines(path: &str, code: &str, words: &[&str]) -> Vec<String> {
    let lines = code.lines().enumerate().filter(|(_, it)| !it.trim_start().starts_with("//"));
    let found = lines.filter_map(|(index, line)| {
        let word = words.iter().find(|word| line.contains(**word))?;
        Some(format!("{path}:{}: {word} in a pure crate", index + 1))
    });
    found.collect()
}

#[test]
fn pure_crates_are_built_without_runtimes_sockets_files_and_randomness() {
    let graph = graph();
    let mut ways = ways_to(&graph, SIMULATOR.0, RIM);
    for (name, _) in DECIDERS {
        ways.extend(ways_to(&graph, name, RIM));
        ways.extend(ways_to(&graph, name, WORLD));
    }
    expect_none(&ways);
}

#[test]
fn deciding_crates_take_uuids_by_names_only() {
    let metadata = metadata(&["--no-deps"]);
    let packages = metadata["packages"].as_array().expect("metadata lists packages");
    let decides = |it: &serde_json::Value| DECIDERS.iter().any(|(name, _)| it["name"] == *name);
    let deciding = packages.iter().filter(|it| decides(it));
    let mistakes = deciding.flat_map(|package| {
        features_too_many(package["name"].as_str().unwrap_or_default(), &package["dependencies"])
    });
    expect_none(&mistakes.collect::<Vec<_>>());
}

#[test]
fn a_crate_that_draws_uuids_by_chance_is_found() {
    let of = |defaults: bool, features: &[&str]| {
        let uuid = serde_json::json!({
            "name": "uuid", "uses_default_features": defaults, "features": features,
        });
        features_too_many("rota-ring", &serde_json::json!([{ "name": "serde" }, uuid]))
    };
    assert_eq!(of(false, &["v5"]), Vec::<String>::new());
    let expected =
        ["rota-ring takes the default features of uuid", "rota-ring turns on v4 of uuid"];
    assert_eq!(of(true, &["v4", "v5"]), expected);
    let drawn = impure_lines("a.rs", "let it = Uuid::new_v4();\n", WORLD_WORDS);
    assert_eq!(drawn, ["a.rs:1: Uuid::new_v4 in a pure crate"]);
}

#[test]
fn the_way_to_the_runtime_is_found_where_there_is_one() {
    assert_ne!(ways_to(&graph(), "rota-manager", RIM), Vec::<String>::new());
}

#[test]
fn a_runtime_behind_another_package_is_found() {
    let uses = |names: &[&str]| names.iter().map(|it| (*it).to_owned()).collect();
    let graph = Graph::from([
        ("rota-ring".to_owned(), uses(&["serde", "handy"])),
        ("handy".to_owned(), uses(&["serde", "tokio-util", "hyperactive"])),
    ]);
    assert_eq!(ways_to(&graph, "rota-ring", RIM), ["rota-ring -> handy -> tokio-util"]);
}

#[test]
fn the_code_of_pure_crates_names_no_clock_no_file_and_no_unordered_map() {
    let mut mistakes = Vec::new();
    for path in tracked().iter().filter(|it| it.ends_with(".rs")) {
        let decides = DECIDERS.iter().any(|(_, folder)| path.starts_with(folder));
        let simulates = path.starts_with(SIMULATOR.1) && !COMMAND_LINE.contains(&path.as_str());
        if decides || simulates {
            mistakes.extend(impure_lines(path, &content(path), RIM_WORDS));
        }
        if decides && path.contains("/src/") {
            mistakes.extend(impure_lines(path, &content(path), WORLD_WORDS));
        }
    }
    expect_none(&mistakes);
}

#[test]
fn a_line_that_reads_the_clock_is_found_and_a_comment_about_it_is_not() {
    let code = "// never Instant::now\nlet now = Instant::now();\n";
    let expected = ["a.rs:2: Instant::now in a pure crate"];
    assert_eq!(impure_lines("a.rs", code, RIM_WORDS), expected);
}
