//! The ring as its first text describes it breaks every promise. Each test prints one shortest way,
//! in words: `cargo nextest run -p rota-sim --test literal --no-capture`.

use rota_sim::model::counterexample::*;
use rota_sim::model::literal::{Left, Text};

/// A shortest way in which a promise is broken, printed.
fn way(scenario: &Scenario, steps: usize) -> Vec<String> {
    let searched = scenario.search();
    let trace = searched.trace.unwrap_or_else(|| panic!("nothing breaks: {}", scenario.name));
    println!("{}: breaks {} in {} steps", scenario.name, scenario.property.as_str(), trace.len());
    for (index, step) in trace.iter().enumerate() {
        println!("  {:>2}. {step}", index + 1);
    }
    assert_eq!(trace.len(), steps, "{trace:#?}");
    trace
}

/// How many steps say that.
fn count(trace: &[String], words: &str) -> usize {
    trace.iter().filter(|it| it.contains(words)).count()
}

#[test]
fn two_opens_without_any_fault_start_two_sessions() {
    let trace = way(&TWO_OPENS, 8);
    assert_eq!((count(&trace, "crash"), count(&trace, "creates y")), (0, 2));
}

#[test]
fn an_owner_that_does_not_wait_for_its_successors_takes_an_answered_open_with_it() {
    let trace = way(&TIMEOUT_THEN_CRASH, 7);
    assert_eq!(count(&trace, "tells the client"), 1);
    assert_eq!(trace.last().map(String::as_str), Some("A crashes"));
}

#[test]
fn more_copies_do_not_help_an_owner_that_does_not_wait_for_them() {
    let trace = way(&TIMEOUT_THEN_CRASH_R2, 9);
    assert_eq!(count(&trace, "crash"), 1, "one crash, where two must be survived");
}

#[test]
fn a_retry_after_the_crash_of_an_owner_that_did_not_wait_starts_a_second_session() {
    let trace = way(&TIMEOUT_THEN_RETRY, 9);
    assert_eq!((count(&trace, "crash"), count(&trace, "creates y")), (1, 2));
}

#[test]
fn a_manager_that_is_called_gone_and_is_only_slow_gives_two_owners_and_two_sessions() {
    let trace = way(&FALSE_SIGNAL, 3);
    assert_eq!((count(&trace, "crash"), count(&trace, "which is slow")), (0, 1));
    assert_eq!(count(&way(&FALSE_SIGNAL_TWICE, 9), "creates y"), 2);
}

#[test]
fn a_successor_answers_with_the_address_of_a_session_that_nobody_creates() {
    let trace = way(&CRASH_BEFORE_CREATE, 5);
    assert_eq!((count(&trace, "creates y"), count(&trace, "is told that y is on N0")), (0, 1));
}

#[test]
fn a_closed_session_comes_back_after_a_crash_because_no_successor_heard_of_the_close() {
    let trace = way(&CLOSE_FORGOTTEN, 11);
    let closed = trace.iter().position(|it| it.contains("tells the client that it is closed"));
    assert!(closed.is_some_and(|it| it < trace.len() - 1), "{trace:?}");
    assert!(trace.last().is_some_and(|it| it.contains("is told that y is on N0")), "{trace:?}");
}

#[test]
fn a_join_that_not_everybody_has_heard_of_gives_two_owners_and_two_sessions() {
    let trace = way(&JOIN, 3);
    assert_eq!((count(&trace, "crash"), count(&trace, "gone")), (0, 0));
    assert_eq!(count(&way(&JOIN_TWICE, 9), "creates y"), 2);
}

#[test]
fn a_restored_manager_may_never_hear_of_one_that_joined_before_it() {
    let trace = way(&RESTORE, 3);
    assert_eq!((count(&trace, "joins by"), count(&trace, "is restored from")), (1, 1));
}

/// The honest other side: what is not to blame. All of these are searched to the end.
#[test]
fn an_owner_that_looks_first_starts_one_session_while_nothing_goes_wrong() {
    let searched = Scenario { text: Text { r: 1, looks_first: true }, ..TWO_OPENS }.search();
    assert_eq!((searched.trace, searched.exhausted), (None, true));
    let left = Left { opens: 2, crashes: 1, ..TWO_OPENS.left };
    let waits = Scenario { left, ..FALSE_SIGNAL }.search();
    assert_eq!((waits.trace, waits.exhausted), (None, true), "signals that are true, no time-out");
}
