//! The life of a task, from its registration to its end.

use crate::task::end::{Change, Patience, fail, lose, succeed};
use crate::task::register::{
    Config, INFO_BYTES_MAX, PARAM_BYTES_MAX, PARAM_INLINE_BYTES_MAX, Registration,
};
use crate::task::{LOST, NoStart, Param, Run, Task, TaskState, start};
use proptest::prelude::*;
use rota_model::{Namespace, SlotId, Stamp};
use serde_json::json;

const HERE: (SlotId, SlotId) = (SlotId(7), SlotId(7));

fn now() -> Stamp {
    Stamp::parse(261_127_120_000_000).unwrap()
}

fn config() -> Config {
    let operations = [("bill", 1), ("idle", 2), ("exec", 1), ("http", 1)];
    Config {
        operations: operations.map(|(name, qn)| (name.to_owned(), qn)).into(),
        queues: [(1, 2), (2, 0)].into(),
        programs: ["/usr/bin/true".to_owned()].into(),
        ..Config::default()
    }
}

fn bill() -> Registration {
    Registration {
        ns: Namespace::parse("shop").unwrap(),
        place: "cart-7".into(),
        taskid: "t1".into(),
        op_name: "bill".into(),
        param: json!({"cart": 7}),
        info: "bills".into(),
        start_at: None,
        cron: None,
    }
}

fn waiting() -> Task {
    bill().check(&config(), HERE, now()).unwrap().task
}

fn periodic() -> Task {
    let registration = Registration { cron: Some("D0425".into()), ..bill() };
    registration.check(&config(), HERE, now()).unwrap().task
}

fn started(task: &Task, at: Stamp) -> (Task, Run) {
    let task = start(Some(task), at).unwrap();
    let run = task.run().unwrap();
    (task, run)
}

fn put(change: Change) -> (Task, bool) {
    match change {
        Change::Put { task, gave_up } => (*task, gave_up),
        Change::Nothing | Change::Remove { .. } => panic!("{change:?} writes no task"),
    }
}

fn mistakes(registration: &Registration, slots: (SlotId, SlotId)) -> Vec<String> {
    let refused = registration.check(&config(), slots, now()).unwrap_err();
    refused.iter().map(ToString::to_string).collect()
}

#[test]
fn the_record_has_the_names_of_the_source() {
    let value = serde_json::to_value(waiting()).unwrap();
    for field in ["ns", "taskid", "opName", "param", "info", "retry", "startAt", "qn"] {
        assert!(!value[field].is_null(), "{field} in {value}");
    }
    assert!(value["startTime"].is_null());
    assert_eq!(serde_json::from_value::<Task>(value).unwrap(), waiting());
    assert_eq!(waiting().docid(), "{cart-7}t1");
}

#[test]
fn every_mistake_of_a_registration_is_told_with_its_field() {
    let wrong = Registration {
        op_name: "bil".into(),
        info: "x".repeat(INFO_BYTES_MAX + 1),
        param: json!("x".repeat(PARAM_BYTES_MAX)),
        start_at: Some(1_000_101_000_000_000),
        cron: Some("D2500".into()),
        place: "a{b".into(),
        taskid: "no id".into(),
        ..bill()
    };
    let told = mistakes(&wrong, (SlotId(7), SlotId(8)));
    for field in
        ["place must", "place lies", "taskid", "info", "param", "opName", "startAt", "cron"]
    {
        assert!(told.iter().any(|it| it.starts_with(field)), "{field} in {told:?}");
    }
}

#[test]
fn a_start_in_the_past_and_a_queue_without_workers_are_refused() {
    let past = Registration { start_at: Some(261_127_115_859_999), ..bill() };
    assert!(mistakes(&past, HERE)[0].starts_with("startAt is "), "{:?}", mistakes(&past, HERE));
    let idle = Registration { op_name: "idle".into(), ..bill() };
    assert!(mistakes(&idle, HERE)[0].starts_with("qn is 2"));
}

#[test]
fn programs_and_targets_are_those_that_flags_allow() {
    let run = |op_name: &str, param| Registration { op_name: op_name.into(), param, ..bill() };
    let allowed = run("exec", json!({"program": "/usr/bin/true"}));
    assert!(allowed.check(&config(), HERE, now()).is_ok());
    for refused in [
        run("exec", json!({"program": "/bin/sh"})),
        run("exec", json!({})),
        run("http", json!({"target": "http://127.0.0.1/"})),
    ] {
        assert!(mistakes(&refused, HERE)[0].starts_with("param "));
    }
}

#[test]
fn large_parameters_get_a_document() {
    let param = json!("x".repeat(PARAM_INLINE_BYTES_MAX));
    let large = Registration { param: param.clone(), ..bill() };
    let registered = large.check(&config(), HERE, now()).unwrap();
    assert_eq!(registered.task.param, Param::Document("{cart-7}t1".into()));
    assert_eq!(registered.param_document, Some(param));
}

#[test]
fn a_start_that_finds_its_task_gone_postponed_or_running_ends_quietly() {
    assert_eq!(start(None, now()), Err(NoStart::Gone));
    let later = waiting().postpone(now().plus_ms(60_000)).unwrap();
    assert_eq!(start(Some(&later), now()), Err(NoStart::Postponed));
    let (running, _) = started(&waiting(), now());
    assert_eq!(running.state(), TaskState::Running);
    assert_eq!(start(Some(&running), now().plus_ms(1)), Err(NoStart::Running));
    let paused = periodic().pause().unwrap();
    assert_eq!(start(Some(&paused), now()), Err(NoStart::Paused));
}

#[test]
fn failures_wait_longer_each_time_until_the_task_is_given_up() {
    let patience = Patience { first_ms: 1_000, most_ms: 3_000, retries: 3 };
    let (mut task, mut at, mut delays) = (waiting(), now(), Vec::new());
    loop {
        let (running, run) = started(&task, at);
        let (failed, gave_up) = put(fail(Some(&running), run, ("E", "why"), patience, at));
        task = failed;
        if gave_up {
            break;
        }
        let next = task.start_at.unwrap();
        delays.push(next.ms_since(at).unwrap());
        at = next;
    }
    assert_eq!(delays, [1_000, 2_000, 3_000]);
    assert_eq!((task.state(), task.retry), (TaskState::Parked, 4));
    assert_eq!((task.exc.as_deref(), task.report.as_deref()), (Some("E"), Some("why")));
    assert_eq!(start(Some(&task), at), Err(NoStart::Parked));
    // An administrator gives it one more try.
    let again = task.retry_now(at).unwrap();
    let (running, run) = started(&again, at);
    assert_eq!(put(fail(Some(&running), run, ("E", "why"), patience, at)).0.retry, 5);
}

#[test]
fn a_periodic_task_registers_its_next_run_when_it_ended_well_and_only_then() {
    let at = periodic().start_at.unwrap();
    assert_eq!(at.as_u64(), 261_128_042_500_000);
    let (running, run) = started(&periodic(), at);
    let (failed, _) = put(fail(Some(&running), run, ("E", ""), Patience::default(), at));
    assert_eq!(failed.taskid, "t1");
    // A day late: the next run is 1 h 15 min away, as in the source.
    let late = Stamp::parse(261_129_031_000_000).unwrap();
    let (running, _) = started(&failed, late);
    let Change::Remove { next: Some(next) } = succeed(Some(&running), "t2", late) else {
        panic!("a next run is registered");
    };
    assert_eq!((next.taskid.as_str(), next.retry, next.run()), ("t2", 0, None));
    assert_eq!(next.start_at.unwrap().as_u64(), 261_129_042_500_000);
}

#[test]
fn a_lost_task_that_ends_after_all_goes_if_well_and_stays_lost_if_badly() {
    let patience = Patience::default();
    let (running, run) = started(&waiting(), now());
    let (lost, _) = put(lose(Some(&running), run, patience, now().plus_ms(900_000)));
    assert_eq!((lost.state(), lost.retry), (TaskState::Lost, 1));
    assert_eq!(lost.exc.as_deref(), Some(LOST));
    let at = lost.start_at.unwrap();
    assert_eq!(fail(Some(&lost), run, ("E", ""), patience, at), Change::Nothing);
    assert_eq!(succeed(Some(&lost), "t2", at), Change::Remove { next: None });
    // The same when it was started again: the second run finds nothing.
    let (again, second) = started(&lost, at);
    assert_eq!(fail(Some(&again), run, ("E", ""), patience, at), Change::Nothing);
    assert_eq!(succeed(Some(&again), "t2", at), Change::Remove { next: None });
    assert_eq!(fail(None, second, ("E", ""), patience, at), Change::Nothing);
    assert_eq!(succeed(None, "t3", at), Change::Nothing);
}

#[test]
fn administrators_advance_postpone_pause_and_resume() {
    let later = now().plus_ms(60_000);
    let postponed = waiting().postpone(later).unwrap();
    assert_eq!(postponed.advance(now()).unwrap(), waiting());
    assert_eq!(postponed.advance(later).unwrap_err().field, "startAt");
    assert_eq!(postponed.postpone(now()).unwrap_err().field, "startAt");
    let (running, _) = started(&waiting(), now());
    assert_eq!(running.postpone(later).unwrap_err().field, "startTime");
    assert_eq!(waiting().pause().unwrap_err().field, "cron");
    let paused = periodic().pause().unwrap();
    assert_eq!((paused.state(), paused.due_at()), (TaskState::Paused, None));
    assert_eq!(paused.resume(now()).unwrap(), periodic());
    let after_two = Stamp::parse(261_129_120_000_000).unwrap();
    let resumed = paused.resume(after_two).unwrap();
    assert_eq!(resumed.start_at.unwrap().as_u64(), 261_130_042_500_000);
}

#[test]
fn reports_are_cut_between_characters() {
    let (running, run) = started(&waiting(), now());
    let report = "é".repeat(5_000) + "x";
    let (failed, _) = put(fail(Some(&running), run, ("E", &report), Patience::default(), now()));
    assert_eq!(failed.report.unwrap().len(), 4_096);
}

proptest! {
    #[test]
    fn delays_never_shrink_and_stay_within_their_bounds(
        first_ms in 1..100_000u64,
        more_ms in 0..10_000_000u64,
        retries in 1..200u32,
    ) {
        let patience = Patience { first_ms, most_ms: first_ms + more_ms, retries };
        let delays: Vec<_> = (1..=retries).map(|it| patience.delay_ms(it).unwrap()).collect();
        prop_assert_eq!(delays[0], first_ms);
        prop_assert!(delays.is_sorted());
        prop_assert!(delays.iter().all(|it| *it <= patience.most_ms));
        prop_assert_eq!(patience.delay_ms(retries + 1), None);
    }
}
