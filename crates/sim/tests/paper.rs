//! The ring as its first text describes it breaks every promise. Each test prints one shortest way,
//! in words: `cargo nextest run -p rota-sim --test paper --no-capture`.

use rota_sim::paper::counterexample::*;
use rota_sim::paper::ring::{Left, State, Text, Who};

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

/// Everything that may happen is searched, and breaks nothing.
fn holds(scenario: &Scenario) {
    let searched = scenario.search();
    assert_eq!((searched.trace, searched.exhausted), (None, true), "{}", scenario.name);
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
    is_served_after_its_close(&trace);
}

/// The close ended the session and was acknowledged; after that somebody tells where it is.
fn is_served_after_its_close(trace: &[String]) {
    let closed = trace.iter().position(|it| it.contains("tells the client that it is closed"));
    assert!(closed.is_some_and(|it| it < trace.len() - 1), "{trace:#?}");
    assert!(trace.last().is_some_and(|it| it.contains("is told that y is on N0")), "{trace:#?}");
}

/// Where in the trace something is said first.
fn first(trace: &[String], words: &str) -> usize {
    let found = trace.iter().position(|it| it.contains(words));
    found.unwrap_or_else(|| panic!("nobody says {words:?}: {trace:#?}"))
}

#[test]
fn a_closed_session_comes_back_when_the_notice_of_its_close_was_lost() {
    let trace = way(&CLOSE_LOST, 13);
    is_served_after_its_close(&trace);
    assert_eq!(count(&trace, "lost on the way: B hears from A that y is closed"), 1);
    assert_eq!(count(&trace, "lost on the way"), 1);
    let waits = Left { timeouts: 0, ..CLOSE_LOST.left };
    holds(&Scenario { left: waits, ..CLOSE_LOST });
    let nothing_lost = Left { losses: 0, ..CLOSE_LOST.left };
    holds(&Scenario { left: nothing_lost, ..CLOSE_LOST });
}

#[test]
fn a_closed_session_comes_back_when_news_of_its_creation_comes_after_the_notice_of_its_close() {
    let trace = way(&CLOSE_OVERTAKES, 14);
    is_served_after_its_close(&trace);
    let (closed, created) =
        ("B hears from A that y is closed", "B hears from A that y was created");
    assert!(first(&trace, closed) < first(&trace, created), "{trace:#?}");
    assert_eq!((count(&trace, "lost"), count(&trace, "waited")), (0, 0));
    let text = Text { in_order: true, ..CLOSE_OVERTAKES.text };
    holds(&Scenario { text, ..CLOSE_OVERTAKES });
}

#[test]
fn a_closed_session_comes_back_with_the_disk_of_a_successor_that_was_down_meanwhile() {
    let trace = way(&CLOSE_OLD_DISK, 16);
    is_served_after_its_close(&trace);
    let (down, back) = (first(&trace, "B crashes"), first(&trace, "B is restored from C"));
    let closed = first(&trace, "tells the client that it is closed");
    assert!(down < closed && closed < back, "{trace:#?}");
    assert_eq!(count(&trace, "lost"), 0);
    let text = Text { disks: false, ..CLOSE_OLD_DISK.text };
    holds(&Scenario { text, ..CLOSE_OLD_DISK });
}

#[test]
fn a_join_leaves_a_copy_of_what_a_predecessor_owns_with_who_is_no_successor_any_more() {
    let trace = way(&JOIN_SURPLUS, 7);
    assert_eq!((count(&trace, "crash"), count(&trace, "gone")), (0, 0));
    assert!(trace.last().is_some_and(|it| it.contains("B joins by C")), "{trace:#?}");
    let text = Text { drops_all: true, ..JOIN_SURPLUS.text };
    holds(&Scenario { text, ..JOIN_SURPLUS });
}

#[test]
fn a_copy_that_a_join_left_behind_serves_what_was_closed() {
    let trace = way(&JOIN_SURPLUS_SERVED, 17);
    is_served_after_its_close(&trace);
    let (joined, closes) = (first(&trace, "B joins by C"), first(&trace, "a client closes y"));
    assert!(joined < closes, "{trace:#?}");
    assert!(trace.last().is_some_and(|it| it.contains("a client asks C for y")), "{trace:#?}");
    let text = Text { drops_all: true, ..JOIN_SURPLUS_SERVED.text };
    holds(&Scenario { text, ..JOIN_SURPLUS_SERVED });
}

#[test]
fn a_session_whose_creator_is_gone_cannot_be_closed() {
    let trace = way(&CLOSE_REFUSED, 8);
    let refused =
        "B asks A, which created it and does not answer, and tells the client of an error";
    assert!(trace.last().is_some_and(|it| it.ends_with(refused)), "{trace:#?}");
    // A creator that comes back can close it.
    let left = Left { joins: 1, ..CLOSE_REFUSED.left };
    let text = Text { joins_at_rest: true, ..CLOSE_REFUSED.text };
    let members = &[Who::A, Who::B, Who::C, Who::D];
    holds(&Scenario { members, text, left, ..CLOSE_REFUSED });
}

#[test]
fn a_manager_that_is_wrongly_called_gone_stays_so() {
    let trace = way(&NEVER_HEALED, 1);
    assert_eq!(count(&trace, "which is slow"), 1);
    let true_signals = Left { false_signals: 0, crashes: 1, joins: 1, ..NEVER_HEALED.left };
    holds(&Scenario { left: true_signals, ..NEVER_HEALED });
    // It takes a crash and a restore of who is called gone.
    let left = Left { crashes: 1, joins: 1, ..NEVER_HEALED.left };
    let mut state = State::ring(NEVER_HEALED.members, left);
    let way = ["A is told that B is gone, which is slow", "B crashes", "B is restored from C"];
    for words in way.into_iter().chain(["A hears that B is there"]) {
        let steps = state.steps(NEVER_HEALED.text);
        let step = steps.into_iter().find(|(step, _)| step.starts_with(words));
        state = step.unwrap_or_else(|| panic!("not possible: {words}")).1;
    }
    assert!(!state.is_suspicious());
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
    holds(&Scenario { text: TIMEOUT_THEN_CRASH.text, ..TWO_OPENS });
    let left = Left { opens: 2, crashes: 1, ..TWO_OPENS.left };
    // Signals that are true, no time-out.
    holds(&Scenario { left, ..FALSE_SIGNAL });
}

#[test]
fn what_its_creator_acknowledged_is_not_lost_while_signals_are_true_and_nobody_waits_in_vain() {
    let left = Left { opens: 1, crashes: 1, ..TWO_OPENS.left };
    let one = Scenario { left, ..TIMEOUT_THEN_CRASH };
    holds(&one);
    let (text, left) = (Text { r: 2, ..one.text }, Left { crashes: 2, ..left });
    let two = Scenario { text, left, ..one };
    holds(&two);
    assert_eq!(
        [one.search().states, two.search().states],
        [119, 334],
        "all of them, as MODEL.md has it"
    );
    let too_many = Scenario { left: Left { crashes: 2, ..left }, ..one }.search();
    assert!(too_many.trace.is_some(), "r + 1 are down");
}
