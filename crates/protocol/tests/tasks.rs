//! Tasks at the owner of their slot: each runs at least once, and what it writes is written once.

use crate::table::asking::*;
use crate::table::*;
use rota_docstore::*;
use rota_protocol::operate::{AdminKey, operations, schema};
use rota_protocol::{Answer, DocumentCursor, Op, QueueRow, TasksOp, TasksPage, Transition};
use rota_tasks::{Backlog, Filter, Patience, Task, TaskState};
use serde_json::{Value, json};

/// Counts up in a document, in so many cycles; fails as often as it is told; may leave further tasks.
struct Step {
    docid: String,
    cycles: u64,
    failures: u64,
    then: u64,
}

impl Operation for Step {
    const NAME: &'static str = "step";
    type Parameters = Value;

    fn new(parameters: Value) -> Result<Self, Exception> {
        let number = |name: &str| parameters[name].as_u64().unwrap_or(0);
        let docid = parameters["docid"].as_str().unwrap_or_default().to_owned();
        let (failures, then) = (number("failures"), number("then"));
        Ok(Self { docid, cycles: number("cycles").max(1), failures, then })
    }

    fn work(&mut self, transaction: &mut Transaction<'_>) -> Result<(), Exception> {
        let task = transaction.task().cloned();
        if task.as_ref().is_some_and(|it| u64::from(it.retry) < self.failures) {
            return Err(Exception::new(Code::parse("A-NOT-YET")?, "not yet"));
        }
        let name = transaction.name("Cart", &self.docid)?;
        let edited = transaction.current(&name)?;
        edited.ensure();
        let item = ItemName::singleton("N")?;
        let before = match edited.content("N", None) {
            Some(Content::Json(text)) => text.read::<u64>()?,
            Some(_) | None => 0,
        };
        edited.put_content(&item, Content::json_of(&(before + 1))?)?;
        let checkpoint = task.and_then(|it| it.checkpoint);
        let done = checkpoint.map_or(Ok(0), |it| it.read::<u64>())? + 1;
        if done < self.cycles {
            return transaction.go_on_with(&done);
        }
        if self.then > 0 {
            let parameters = json!({"docid": self.docid, "then": self.then - 1});
            transaction.register_task(&NewTask::new("step", &self.docid).with(&parameters)?)?;
        }
        transaction.answer_json(&"nobody reads this")
    }
}

fn table_with(set: impl FnOnce(&mut Table)) -> Table {
    let mut table = Table::laid();
    table.offer = Some((operations().with::<Step>(), schema()));
    table.tasks.patience = Patience { first_ms: 1_000, most_ms: 2_000, retries: 2 };
    table.tasks.programs = ["mail".to_owned()].into();
    set(&mut table);
    table.start_all();
    table
}

fn new_task(param: &Value) -> Value {
    json!({"operation": "step", "place": param["docid"], "param": param})
}

fn create(table: &mut Table, task: &Value) -> String {
    let place = task["place"].as_str().unwrap().to_owned();
    let created = operated(table.call(300, op(request("task.create", task), &place))).unwrap();
    body(&created)["docid"].as_str().unwrap().to_owned()
}

fn order(table: &mut Table, operation: &str, parameters: &Value) -> Result<Value, Exception> {
    let docid = parameters["docid"].as_str().unwrap().to_owned();
    operated(table.call(300, op(request(operation, parameters), &docid))).map(|it| body(&it))
}

/// What stands in the document that steps count up.
fn steps(table: &mut Table, docid: &str) -> u64 {
    let shown = body(&operated(table.call(300, op(read(docid), docid))).unwrap());
    shown["documents"][0]["items"][0]["json"].as_u64().unwrap_or(0)
}

fn ask(table: &mut Table, docid: &str, limit: u32, filter: Filter) -> TasksPage {
    let of = |table: &Table| rota_ring::slot_of_document(&space("shop"), docid, table.view().m);
    let from = DocumentCursor { slot: if limit == 0 { of(table) } else { SlotId(0) }, after: None };
    let mut tasks = Vec::new();
    let mut next = Some(from);
    let mut last = None;
    while let Some(from) = next {
        let op = TasksOp { from, limit, filter: filter.clone() };
        let Ok(Answer::Tasks(page)) = table.call(300, Op::Tasks(op)) else { panic!("no page") };
        tasks.extend(page.tasks.iter().cloned());
        next = page.next.clone();
        last = Some(page);
    }
    TasksPage { tasks, ..last.unwrap() }
}

fn tasks(table: &mut Table) -> Vec<Task> {
    ask(table, "c", 2, Filter::default()).tasks
}

#[test]
fn a_task_is_there_with_the_commit_that_registers_it_runs_once_and_is_gone_without_trace() {
    let mut table = table_with(|it| it.manual_works = true);
    let parameters = json!({
        "changes": [{"class": "Cart", "docid": "c", "life": "ensure"}],
        "tasks": [new_task(&json!({"docid": "c"}))],
    });
    let written = operated(table.call(300, op(request("document.write", &parameters), "c")));
    let docid = body(&written.unwrap())["tasks"][0].as_str().unwrap().to_owned();
    assert!(docid.starts_with("{c}"));
    table.pass_until("it works", 1_000, |it| !it.works.is_empty());
    let found = tasks(&mut table);
    let of = |it: &Task| (it.docid(), it.state(), it.retry);
    assert_eq!(found.iter().map(of).collect::<Vec<_>>(), [(docid, TaskState::Running, 0)]);
    table.manual_works = false;
    table.work_once();
    table.pass_until("it is gone", 1_000, |it| it.count(Transition::TaskEnded) == 1);
    assert_eq!((tasks(&mut table).len(), steps(&mut table, "c")), (0, 1));
    for n in NUMBERS {
        let left = table.disks[&n].docs.keys().filter(|it| it.name.class() == "Task");
        assert_eq!(left.count(), 0, "manager {n}");
    }
    // A commit that is refused registers nothing.
    let parameters = json!({
        "changes": [{"class": "Cart", "docid": "c", "life": "create"}],
        "tasks": [new_task(&json!({"docid": "c"}))],
    });
    assert!(operated(table.call(300, op(request("document.write", &parameters), "c"))).is_err());
    assert_eq!(tasks(&mut table), []);
}

#[test]
fn a_task_that_fails_waits_longer_each_time_is_given_up_and_told_once_and_may_be_tried_again() {
    let mut table = table_with(|_| ());
    let docid = create(&mut table, &new_task(&json!({"docid": "c", "failures": 4})));
    table.pass_until("it is given up", 10_000, |it| !it.given_up.is_empty());
    let found = tasks(&mut table);
    assert_eq!((found[0].state(), found[0].retry), (TaskState::Parked, 3));
    assert_eq!(found[0].exc.as_deref(), Some("A-NOT-YET"));
    assert!(found[0].report.as_deref().unwrap().contains("not yet"));
    assert_eq!(table.given_up[0]["taskid"], json!(found[0].taskid));
    table.pass(5_000);
    assert_eq!((table.given_up.len(), steps(&mut table, "c")), (1, 0));
    order(&mut table, "task.retry", &json!({"docid": docid})).unwrap();
    table.pass_until("it fails again", 5_000, |it| it.given_up.len() == 2);
    order(&mut table, "task.retry", &json!({"docid": docid})).unwrap();
    table.pass_until("it ends", 5_000, |it| it.count(Transition::TaskEnded) == 1);
    assert_eq!((tasks(&mut table).len(), steps(&mut table, "c")), (0, 1));
}

#[test]
fn a_task_goes_on_in_cycles_and_may_leave_further_tasks() {
    let mut table = table_with(|_| ());
    create(&mut table, &new_task(&json!({"docid": "c", "cycles": 5, "then": 2})));
    table.pass_until("all end", 5_000, |it| it.count(Transition::TaskEnded) == 3);
    assert_eq!(table.count(Transition::TaskWentOn), 4);
    assert_eq!((tasks(&mut table).len(), steps(&mut table, "c")), (0, 7));
}

#[test]
fn a_run_of_a_former_owner_is_lost_at_once_runs_again_and_its_effect_is_there_once() {
    let mut table = table_with(|it| it.manual_works = true);
    let owner = owner_of(&table, "c");
    create(&mut table, &new_task(&json!({"docid": "c"})));
    table.pass_until("it works", 1_000, |it| !it.works.is_empty());
    let (_, work, job) = table.works.remove(0);
    table.kill(owner);
    table.pass_until("it is lost", 10_000, |it| it.count(Transition::TaskLost) == 1);
    table.pass_until("it works again", 10_000, |it| !it.works.is_empty());
    let entry = other_than(owner);
    let op = TasksOp {
        from: DocumentCursor {
            slot: rota_ring::slot_of_document(&space("shop"), "c", table.view().m),
            after: None,
        },
        limit: 9,
        filter: Filter::default(),
    };
    let Ok(Answer::Tasks(page)) = table.call(entry, Op::Tasks(op)) else { panic!("no page") };
    assert_eq!((page.tasks[0].retry, page.tasks[0].state()), (1, TaskState::Running));
    // What the former owner's worker came to goes nowhere.
    table.start(owner);
    table.input(owner, rota_protocol::Input::Worked { work, worked: job.run() });
    table.settle();
    table.manual_works = false;
    table.work_once();
    table.pass_until("it ends", 5_000, |it| it.count(Transition::TaskEnded) == 1);
    table.pass(20_000);
    assert_eq!((tasks(&mut table).len(), steps(&mut table, "c")), (0, 1));
}

#[test]
fn programs_run_beside_the_decisions_and_end_as_they_say() {
    let mut table = table_with(|_| ());
    let owner = owner_of(&table, "c");
    let task = json!({"operation": "exec", "place": "c", "param": {"program": "mail"}});
    create(&mut table, &task);
    table.pass_until("it runs", 1_000, |it| !it.task_works.is_empty());
    let (n, part, work, job) = table.task_works.remove(0);
    assert_eq!((n, job.operation.as_str(), job.run.retry), (owner, "exec", 0));
    let outcome = Err(("EXIT-1".to_owned(), "no such mailbox".to_owned()));
    table.input(n, rota_protocol::Input::TaskRan { part, work, outcome });
    table.pass_until("it runs again", 5_000, |it| !it.task_works.is_empty());
    let (n, part, work, job) = table.task_works.remove(0);
    assert_eq!(job.run.retry, 1);
    let outcome = Ok(());
    table.input(n, rota_protocol::Input::TaskRan { part, work, outcome: outcome.clone() });
    table.pass_until("it ends", 5_000, |it| it.count(Transition::TaskEnded) == 1);
    // An end that is told again ends nothing more.
    table.input(n, rota_protocol::Input::TaskRan { part, work, outcome });
    table.pass(2_000);
    assert_eq!((tasks(&mut table).len(), table.task_works.len()), (0, 0));
}

#[test]
fn a_program_of_a_former_owner_is_lost_only_when_it_is_old() {
    let mut table = table_with(|it| it.tasks.queues.lost_ms = 20_000);
    let owner = owner_of(&table, "c");
    create(&mut table, &json!({"operation": "exec", "place": "c", "param": {"program": "mail"}}));
    table.pass_until("it runs", 1_000, |it| !it.task_works.is_empty());
    table.kill(owner);
    table.pass(15_000);
    assert_eq!((table.count(Transition::TaskLost), table.task_works.len()), (0, 1));
    table.pass_until("it is lost", 15_000, |it| it.count(Transition::TaskLost) == 1);
    table.pass_until("it runs again", 5_000, |it| it.task_works.len() == 2);
    assert_eq!(table.task_works[1].3.run.retry, 1);
}

#[test]
fn a_task_that_is_deleted_while_it_works_changes_nothing() {
    let mut table = table_with(|it| it.manual_works = true);
    let docid = create(&mut table, &new_task(&json!({"docid": "c"})));
    table.pass_until("it works", 1_000, |it| !it.works.is_empty());
    let running =
        order(&mut table, "task.postpone", &json!({"docid": docid, "at": 991231235959000_u64}));
    assert!(running.unwrap_err().to_string().contains("startTime is set: it runs since"));
    order(&mut table, "task.delete", &json!({"docid": docid})).unwrap();
    table.manual_works = false;
    table.work_once();
    table.pass(3_000);
    assert_eq!((tasks(&mut table).len(), steps(&mut table, "c")), (0, 0));
    assert_eq!(table.count(Transition::TaskFailed), 0);
    let gone = order(&mut table, "task.delete", &json!({"docid": docid})).unwrap_err();
    assert_eq!(*gone.code(), codes::TASK);
}

#[test]
fn no_more_run_at_once_than_the_queue_has_workers_and_none_of_a_suspended_one_starts() {
    let mut table = table_with(|table| {
        table.manual_works = true;
        table.tasks.queues.queues = [(0, 2), (1, 1)].into();
        table.tasks.queue_of = [("step".to_owned(), 1)].into();
    });
    for _ in 0..3 {
        create(&mut table, &new_task(&json!({"docid": "c"})));
    }
    table.pass(1_000);
    assert_eq!(table.works.len(), 1);
    let page = ask(&mut table, "c", 0, Filter::default());
    let backlog = Backlog { waiting: 2, due: 2, busy: 1 };
    assert_eq!(page.queues, [QueueRow { queue: 1, space: space("shop"), backlog }]);
    let counts = page.counts[0].1;
    assert_eq!((page.counts[0].0, counts.waiting, counts.running), (1, 2, 1));
    let suspend = |table: &mut Table, operation: &str| {
        let parameters = json!({"queue": 1, "namespace": "shop"});
        operated(table.call(300, configure(operation, &parameters))).unwrap();
        table.pass(1_500);
    };
    for operation in ["queue.suspend", "queue.resume"] {
        let request = configure(operation, &json!({"queue": 7}));
        let refused = operated(table.call(300, request)).unwrap_err();
        assert_eq!(*refused.code(), codes::INVALID);
        assert!(refused.to_string().contains("queue is 7; the queues are 0, 1"), "{refused}");
    }
    suspend(&mut table, "queue.suspend");
    table.manual_works = false;
    table.work_once();
    table.pass(3_000);
    assert_eq!((tasks(&mut table).len(), steps(&mut table, "c")), (2, 1));
    suspend(&mut table, "queue.resume");
    table.pass_until("all end", 5_000, |it| it.count(Transition::TaskEnded) == 3);
    assert_eq!((tasks(&mut table).len(), steps(&mut table, "c")), (0, 3));
}

#[test]
fn a_periodic_task_is_registered_again_at_each_success_and_can_be_held_back() {
    let mut table = table_with(|_| ());
    let task = json!({"operation": "step", "place": "c", "param": {"docid": "c"}, "cron": "H25"});
    let docid = create(&mut table, &task);
    assert_eq!(steps(&mut table, "c"), 0);
    order(&mut table, "task.retry", &json!({"docid": docid})).unwrap();
    table.pass_until("it runs", 5_000, |it| it.count(Transition::TaskEnded) == 1);
    let found = tasks(&mut table);
    assert_eq!((found.len(), found[0].retry, found[0].state()), (1, 0, TaskState::Waiting));
    assert_ne!(found[0].docid(), docid);
    let docid = found[0].docid();
    order(&mut table, "task.pause", &json!({"docid": docid})).unwrap();
    let filter = Filter { periodic: true, states: [TaskState::Paused].into(), ..Filter::default() };
    assert_eq!(ask(&mut table, "c", 9, filter).tasks.len(), 1);
    assert!(order(&mut table, "task.retry", &json!({"docid": docid})).is_err());
    order(&mut table, "task.resume", &json!({"docid": docid})).unwrap();
    assert_eq!(tasks(&mut table)[0].state(), TaskState::Waiting);
}

#[test]
fn what_cannot_be_a_task_is_refused_with_its_field_and_only_managers_start_tasks() {
    let mut table = table_with(|_| ());
    let mut refused = |task: Value| {
        let place = task["place"].as_str().unwrap().to_owned();
        let made = operated(table.call(300, op(request("task.create", &task), &place)));
        made.unwrap_err().to_string()
    };
    let unknown = refused(json!({"operation": "dance", "place": "c"}));
    assert!(unknown.contains("opName is \"dance\""), "{unknown}");
    // Managers alone register what tries an action again, and what copies.
    for own in ["session.action", "document.copy"] {
        let told = refused(json!({"operation": own, "place": "c", "param": {}}));
        assert!(told.contains(&format!("opName is {own:?}")), "{told}");
    }
    let program = json!({"operation": "exec", "place": "c", "param": {"program": "rm"}});
    assert!(refused(program).contains("names the program \"rm\", which no flag allows"));
    let cron = refused(json!({"operation": "step", "place": "c", "cron": "D2425"}));
    assert!(cron.contains("cron column 2: the hour is 24"), "{cron}");
    let elsewhere = json!({
        "changes": [{"class": "Cart", "docid": "c", "life": "ensure"}],
        "tasks": [{"operation": "step", "place": "another"}],
    });
    let made = operated(table.call(300, op(request("document.write", &elsewhere), "c")));
    assert!(made.unwrap_err().to_string().contains("place lies in another slot"));
    for operation in ["task.start", "task.end", "task.fail"] {
        let now = stamp(&table).as_u64();
        let parameters = if operation == "task.start" {
            json!({"docid": "{c}1"})
        } else {
            json!({"docid": "{c}1", "start_time": now, "retry": 0})
        };
        let made = operated(table.call(300, op(request(operation, &parameters), "c")));
        assert_eq!(*made.unwrap_err().code(), codes::REFUSED, "{operation}");
    }
    assert_eq!(steps(&mut table, "c"), 0);
}

#[test]
fn a_program_goes_on_while_its_owner_stays_whatever_becomes_of_copies() {
    let mut table = table_with(|_| ());
    let owner = owner_of(&table, "c");
    let task = json!({"operation": "exec", "place": "c", "param": {"program": "mail"}});
    create(&mut table, &task);
    table.pass_until("it runs", 1_000, |it| !it.task_works.is_empty());
    let copy = other_than(owner);
    table.kill(copy);
    table.pass(20_000);
    table.start(copy);
    table.pass(20_000);
    assert_eq!((table.stopped.len(), table.count(Transition::TaskLost)), (0, 0));
    let (n, part, work, _) = table.task_works.remove(0);
    table.input(n, rota_protocol::Input::TaskRan { part, work, outcome: Ok(()) });
    table.pass_until("it ends", 5_000, |it| it.count(Transition::TaskEnded) == 1);
    let entry = other_than(copy);
    let left = TasksOp { from: DocumentCursor::default(), limit: 9, filter: Filter::default() };
    let Ok(Answer::Tasks(page)) = table.call(entry, Op::Tasks(left)) else { panic!("no page") };
    assert_eq!((page.tasks, table.task_works.len()), (Vec::new(), 0));
}

#[test]
fn a_task_does_not_let_whoever_registered_it_do_more_than_they_may() {
    let mut table = table_with(|it| it.documents.admin_key = AdminKey::new("secret"));
    let exec = json!({"operation": "exec", "place": "c", "param": {"program": "mail"}});
    let change = json!([{"class": "Cart", "docid": "c", "life": "ensure"}]);
    let direct = json!({"changes": change, "tasks": [exec]});
    let refused = operated(table.call(300, op(request("document.write", &direct), "c")));
    assert_eq!(*refused.unwrap_err().code(), codes::REFUSED);
    let inner = json!({"operation": "document.write", "place": "c", "param": direct});
    let hidden = json!({"changes": change, "tasks": [inner]});
    operated(table.call(300, op(request("document.write", &hidden), "c"))).unwrap();
    table.pass_until("it fails", 5_000, |it| it.count(Transition::TaskFailed) > 0);
    table.pass(5_000);
    assert_eq!((table.task_works.len(), table.count(Transition::TaskEnded)), (0, 0));
}

#[test]
fn a_namespace_that_is_full_or_off_keeps_no_task_from_failing_or_waits_for_it() {
    let mut table = table_with(|_| ());
    let described = json!({"name": "shop", "create": true, "limits": {"item_bytes": 1_000}});
    operated(table.call(300, configure("namespace.put", &described))).unwrap();
    table.pass(1_500);
    create(&mut table, &new_task(&json!({"docid": "c", "failures": 9, "x": "y".repeat(600)})));
    table.pass_until("it is given up", 20_000, |it| !it.given_up.is_empty());
    assert_eq!((table.count(Transition::TaskLost), table.count(Transition::TaskFailed)), (0, 3));
}

#[test]
fn queues_of_a_namespace_that_nobody_described_are_resumed_without_a_trace() {
    let mut table = table_with(|_| ());
    let resume = json!({"namespace": "shop"});
    operated(table.call(300, configure("queue.resume", &resume))).unwrap();
    table.pass(1_500);
    create(&mut table, &new_task(&json!({"docid": "c"})));
    table.pass_until("it ends", 5_000, |it| it.count(Transition::TaskEnded) == 1);
}

#[test]
fn a_program_that_is_deleted_or_never_tells_its_end_is_stopped() {
    let mut table = table_with(|it| it.tasks.quota_ms = 5_000);
    let task = json!({"operation": "exec", "place": "c", "param": {"program": "mail"}});
    let docid = create(&mut table, &task);
    table.pass_until("it runs", 1_000, |it| !it.task_works.is_empty());
    order(&mut table, "task.delete", &json!({"docid": docid})).unwrap();
    assert_eq!(table.stopped, [table.task_works.remove(0).2]);
    create(&mut table, &task);
    table.pass_until("it runs", 1_000, |it| !it.task_works.is_empty());
    table.pass_until("it failed", 60_000, |it| it.count(Transition::TaskFailed) == 1);
    assert_eq!(table.stopped.len(), 2);
    assert_eq!(tasks(&mut table)[0].exc.as_deref(), Some("TIMEOUT"));
}

#[test]
fn an_end_that_is_refused_is_told_again_and_no_success_is_forgotten() {
    let mut table = table_with(|it| it.tasks.queues.lost_ms = 5_000);
    create(&mut table, &json!({"operation": "exec", "place": "c", "param": {"program": "mail"}}));
    table.pass_until("it runs", 1_000, |it| !it.task_works.is_empty());
    // No copy hears of anything, and nobody can be taken out: nothing is committed.
    table.store_away = true;
    table.lose = Box::new(|it| matches!(it.message, rota_protocol::Message::Prepare { .. }));
    let (n, part, work, _) = table.task_works.remove(0);
    table.input(n, rota_protocol::Input::TaskRan { part, work, outcome: Ok(()) });
    table.pass(4_000);
    table.store_away = false;
    table.lose = Box::new(|_| false);
    table.pass(20_000);
    assert_eq!((tasks(&mut table).len(), table.task_works.len()), (0, 0));
}
