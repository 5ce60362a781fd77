//! What the program's commands print for other programs, read as such.

use serde_json::Value;
use std::process::{Command, Output};

/// Far more than any of these commands takes, in seconds.
const PATIENCE: &str = "120";

/// Runs the program to its end, or ends it.
fn output(arguments: &[&str]) -> Output {
    let program = ["--signal=KILL", PATIENCE, env!("CARGO_BIN_EXE_rota-sim")];
    Command::new("timeout").args(program).args(arguments).output().expect("the program runs")
}

/// What it prints: one document.
fn document(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// What a command prints that ends well.
fn printed(arguments: &[&str]) -> Value {
    let output = output(arguments);
    assert!(output.status.success(), "{output:?}");
    document(&output)
}

/// A list that has something in it.
fn rows(document: &Value) -> &Vec<Value> {
    let rows = document.as_array().unwrap_or_else(|| panic!("no list: {document}"));
    assert!(!rows.is_empty());
    rows
}

/// Numbers by name, of which some are not 0.
fn has_counts(document: &Value, name: &str) {
    let counts = document[name].as_object().unwrap_or_else(|| panic!("no {name}: {document}"));
    let numbers =
        counts.iter().map(|(key, it)| it.as_u64().unwrap_or_else(|| panic!("{key}: {it}")));
    assert!(numbers.sum::<u64>() > 0, "{name}: {document}");
}

#[test]
fn literal_prints_for_each_broken_promise_its_steps_and_the_trace_in_words() {
    let document = printed(&["paper", "-o", "json"]);
    for row in rows(&document) {
        let trace = rows(&row["trace"]);
        assert_eq!(row["steps"], trace.len(), "{row}");
        assert!(trace.iter().all(|it| it.as_str().is_some_and(|it| it.contains(' '))), "{row}");
        assert!(row["states"].as_u64() > row["steps"].as_u64(), "{row}");
        assert!(row["name"].is_string() && row["property"].is_string(), "{row}");
    }
    let breaks = |property: &str| rows(&document).iter().any(|it| it["property"] == property);
    for property in ["S1", "S2", "S3", "S4", "no stabilisation needed", "no surplus copies"] {
        assert!(breaks(property), "{property}: {document}");
    }
    for property in ["every session can be closed", "a false suspicion heals"] {
        assert!(breaks(property), "{property}: {document}");
    }
}

#[test]
fn model_prints_how_many_states_a_search_has_and_that_these_are_all_and_sound() {
    let name = "n=3 r=1: 2 ids, 2 opens, 1 place";
    let document = printed(&["model", "--bounds", "ci", "--only", name, "-o", "json"]);
    let [row] = rows(&document).as_slice() else { panic!("not one search: {document}") };
    assert_eq!(row["name"], name);
    assert!(row["states"].as_u64().is_some_and(|it| it > 100), "{row}");
    assert_eq!((&row["exhausted"], &row["violations"]), (&true.into(), &0.into()), "{row}");
    assert_eq!(row["broken"], Value::Null);
}

/// One rule that a search notices, and one that a seed notices.
#[test]
fn mutants_prints_for_a_removed_rule_what_notices_that() {
    for (rule, by) in [("timeout_then_proceed", "search: I5"), ("request_forgotten", "simulator: ")]
    {
        let document = printed(&["mutants", "--rule", rule, "-o", "json"]);
        let [row] = rows(&document).as_slice() else { panic!("not one rule: {document}") };
        assert_eq!((&row["rule"], &row["caught"]), (&rule.into(), &true.into()), "{row}");
        assert!(row["by"].as_str().is_some_and(|it| it.starts_with(by)), "{row}");
    }
}

#[test]
fn run_prints_seeds_violations_and_what_happened_how_often() {
    let output = output(&["run", "--seeds", "2", "-o", "json"]);
    // So few seeds do not reach everything, and a run says so.
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(told.contains("never happened in 2 seeds: "), "{told}");
    let document = document(&output);
    assert_eq!((&document["seeds"], &document["violations"]), (&2.into(), &0.into()), "{document}");
    assert_eq!(document["failed_seeds"], Value::Array(Vec::new()));
    assert!(document["requests"].as_u64().is_some_and(|it| it >= 1_000), "{document}");
    for name in ["faults", "transitions", "limits", "answers"] {
        has_counts(&document, name);
    }
}
