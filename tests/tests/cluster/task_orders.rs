//! `ringctl task` over real processes: what administrators create, see and order.

use rota_client::documents::request::Operate;
use rota_docstore::{Namespace, Request};
use rota_tests::processes::process;
use rota_tests::sessions::CALL;
use rota_tests::{
    Cluster, HttpRequest, Launched, PATIENCE, TestFolder, binary, eventually, http_ask, http_get,
};
use serde_json::{Value, json};
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};

/// Runs `ringctl task …` and gives its document.
async fn task(cluster: &Cluster, line: &[&str]) -> Value {
    cluster.ringctl(&[&["task"], line, &["-o", "json"]].concat()).await.json()
}

/// Creates a task that writes a document in a far future, unless the options say otherwise. Gives its name.
async fn created(cluster: &Cluster, docid: &str, more: &[&str]) -> String {
    let param = json!({"changes": [{"class": "Cart", "docid": docid, "life": "create"}]});
    let param = param.to_string();
    let line = ["create", "shop/document.write", "--place", docid, "--param", &param];
    let created = task(cluster, &[&line[..], more].concat()).await;
    assert_eq!(created["namespace"], "shop", "{created}");
    format!("shop/{}", created["id"].as_str().expect("an id"))
}

/// The names of the tasks that a filter selects.
async fn selected(cluster: &Cluster, filter: &[&str]) -> Vec<String> {
    let listed = task(cluster, &[&["list"], filter].concat()).await;
    let name = |task: &Value| {
        format!("{}/{}", task["namespace"].as_str().unwrap(), task["id"].as_str().unwrap())
    };
    let mut names: Vec<String> = listed["tasks"].as_array().unwrap().iter().map(name).collect();
    names.sort();
    names
}

fn sorted(names: &[&String]) -> Vec<String> {
    let mut names: Vec<String> = names.iter().map(|it| (*it).clone()).collect();
    names.sort();
    names
}

/// Waits until a document is there.
async fn eventually_written(cluster: &Cluster, docid: &str) {
    eventually(&format!("a task wrote {docid}"), PATIENCE, async || {
        let read = cluster.ringctl(&["document", "get", &format!("shop/Cart/{docid}")]).await;
        if read.code == 0 { Ok(()) } else { Err(read.stderr) }
    })
    .await;
}

/// Its start is moved earlier and later.
async fn moves(cluster: &Cluster, far: &str) {
    let moved = task(cluster, &["advance", far, "--at", "2098-01-01T00:00:00Z"]).await;
    assert_eq!(moved["task"]["start_at"], 980_101_000_000_000_u64);
    let moved = task(cluster, &["postpone", far, "--at", "980202000000000"]).await;
    assert_eq!(moved["task"]["start_at"], 980_202_000_000_000_u64);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_created_found_by_each_filter_ordered_about_and_run() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &["--nodes", "0"]).await;
    let far =
        created(&cluster, "far", &["--at", "2099-01-01T00:00:00Z", "--info", "carts/1"]).await;
    let daily = created(&cluster, "daily", &["--cron", "D0425", "--info", "carts/2"]).await;
    let other = task(&cluster, &["create", "lab/document.read", "--at", "+10m"]).await;
    let other = format!("lab/{}", other["id"].as_str().unwrap());
    // One that fails at once: its document is there already.
    let write = r#"{"changes": [{"class": "Cart", "docid": "there", "life": "create"}]}"#;
    let there = ["document", "operate", "shop/there", "document.write", write];
    cluster.ringctl(&there).await.expect_success();
    let failing = created(&cluster, "there", &[]).await;
    eventually("it has failed", PATIENCE, async || {
        let shown = task(&cluster, &["show", &failing]).await;
        if shown["retry"] == 1 { Ok(()) } else { Err(shown.to_string()) }
    })
    .await;

    let all = sorted(&[&far, &daily, &other, &failing]);
    assert_eq!(selected(&cluster, &[]).await, all);
    for (filter, expected) in [
        (&["--namespace", "lab"][..], &[&other][..]),
        (&["--operation", "document.read"], &[&other]),
        (&["--info", "carts/"], &[&far, &daily]),
        (&["--info", "carts/", "--periodic"], &[&daily]),
        (&["--retry-min", "1"], &[&failing]),
        (&["--state", "waiting,lost"], &[&far, &daily, &other, &failing]),
        (&["--state", "PARKED"], &[]),
        (&["--started-after", "-10m"], &[]),
        (&["--started-before", "+10m"], &[]),
    ] {
        assert_eq!(selected(&cluster, filter).await, sorted(expected), "{filter:?}");
    }
    let limited = task(&cluster, &["list", "--limit", "3"]).await;
    assert_eq!((limited["tasks"].as_array().unwrap().len(), &limited["more"]), (3, &json!(true)));

    let shown = task(&cluster, &["show", &daily]).await;
    assert_eq!((&shown["cron"], &shown["state"]), (&json!("D0425"), &json!("WAITING")), "{shown}");
    assert_eq!(shown["next_run"], shown["start_at"]);
    let next = shown["next_run"].as_u64().expect("a stamp");
    assert_eq!(next % 1_000_000_000, 42_500_000, "{next}");
    assert_eq!(shown["param"]["changes"][0]["docid"], "daily", "{shown}");
    let shown = task(&cluster, &["show", &failing]).await;
    assert_eq!(shown["exception"], "A-EXISTS", "{shown}");

    let paused = task(&cluster, &["pause", &daily]).await;
    assert_eq!(
        (&paused["task"]["state"], &paused["task"]["next_run"]),
        (&json!("PAUSED"), &Value::Null)
    );
    let refused = cluster.ringctl(&["task", "run", &daily, "-o", "json"]).await.error();
    assert!(
        refused["message"].as_str().unwrap().contains("paused is set; resume it first"),
        "{refused}"
    );
    let resumed = task(&cluster, &["resume", &daily]).await;
    assert_eq!(resumed["task"]["next_run"], next);
    moves(&cluster, &far).await;

    task(&cluster, &["retry", &far]).await;
    eventually_written(&cluster, "far").await;
    task(&cluster, &["run", &daily]).await;
    eventually_written(&cluster, "daily").await;
    eventually("the daily task is registered again", PATIENCE, async || {
        let names = selected(&cluster, &["--periodic"]).await;
        if names.len() == 1 && names[0] != daily { Ok(()) } else { Err(format!("{names:?}")) }
    })
    .await;
    let deleted = task(&cluster, &["delete", &other]).await;
    assert_eq!(deleted["task"], Value::Null);
    for line in [["delete", &other], ["show", &other]] {
        let gone = cluster.ringctl(&[&["task"], &line[..], &["-o", "json"]].concat()).await.error();
        assert_eq!(gone["reason"], "N-TASK", "{gone}");
    }
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_tasks_are_changed_at_once_and_a_suspended_queue_starts_none() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &["--nodes", "0"]).await;
    cluster.ringctl(&["namespace", "create", "shop"]).await.expect_success();
    let suspended = task(&cluster, &["suspend", "--queue", "0", "--namespace", "shop"]).await;
    assert_eq!(suspended, json!({"namespace": "shop", "all_queues": false, "queues": [0]}));
    let round = AtomicU32::new(0);
    eventually("no owner starts one", PATIENCE, async || {
        // One that does not know it yet starts its tasks at once.
        let round = round.fetch_add(1, Ordering::Relaxed) + 1;
        for number in 0..9 {
            created(&cluster, &format!("c{round}-{number}"), &["--info", "many"]).await;
        }
        let backlog = task(&cluster, &["backlog"]).await;
        if backlog["queues"][0]["due"] == 9 {
            return Ok(());
        }
        task(&cluster, &["delete", "--all-matching", "--yes"]).await;
        Err(backlog.to_string())
    })
    .await;
    let round = round.into_inner();
    created(&cluster, "kept", &["--info", "few", "--at", "+1h"]).await;
    let backlog = task(&cluster, &["backlog"]).await;
    assert_eq!(backlog["counts"][0]["waiting"], 10, "{backlog}");
    assert_eq!(
        (&backlog["queues"][0]["due"], &backlog["queues"][0]["busy"]),
        (&json!(9), &json!(0))
    );

    let mut pages = String::new();
    for manager in &cluster.document.managers {
        pages.push_str(&http_get(&manager.http, "/metrics").await.unwrap().body);
    }
    let of = "rota_tasks{queue=\"0\",state=\"waiting\"} ";
    let counts = pages.lines().filter_map(|it| it.strip_prefix(of)?.parse::<u32>().ok());
    assert_eq!(counts.sum::<u32>(), 10, "{pages}");

    let many = ["--all-matching", "--info", "many"];
    let dry = task(&cluster, &[&["delete"], &many[..], &["--dry-run"]].concat()).await;
    assert_eq!((&dry["matching"], dry["tasks"].as_array().unwrap().len()), (&json!(9), 9));
    let unsure = cluster.ringctl(&[&["task", "delete"], &many[..]].concat()).await;
    assert_eq!((unsure.code, unsure.stdout.as_str()), (2, ""));
    let told = "this is to delete many tasks; say so with --yes, or see which with --dry-run";
    assert!(unsure.stderr.contains(told), "{}", unsure.stderr);
    assert_eq!(selected(&cluster, &[]).await.len(), 10);

    let postpone = [&["postpone"], &many[..], &["--at", "+2h", "--yes"]].concat();
    assert_eq!(task(&cluster, &postpone).await["changed"], 9);
    let backlog = task(&cluster, &["backlog"]).await;
    assert_eq!(
        (&backlog["queues"][0]["due"], &backlog["queues"][0]["waiting"]),
        (&json!(0), &json!(10))
    );
    // Those that are no periodic ones cannot be paused: each says why, and the command fails.
    let pause = [&["task", "pause"], &many[..], &["--yes", "-o", "json"]].concat();
    let ran = cluster.ringctl(&pause).await;
    let paused: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((ran.code, &paused["changed"], &paused["failed"]), (1, &json!(0), &json!(9)));
    let message = paused["failures"][0]["message"].as_str().unwrap();
    assert!(message.contains("cron is not set: it is not periodic; postpone it"), "{message}");
    let retried = cluster.ringctl(&[&["task", "run"], &many[..], &["--yes"]].concat()).await;
    assert_eq!(retried.expect_success().stdout, "retried 9 tasks\n");

    let going = task(&cluster, &["unsuspend", "--queue", "0", "--namespace", "shop"]).await;
    assert_eq!(going["queues"], json!([]));
    for number in 0..9 {
        eventually_written(&cluster, &format!("c{round}-{number}")).await;
    }
    let rest = [&["task", "delete", "--all-matching", "--yes", "-o", "json"][..]].concat();
    assert_eq!(cluster.ringctl(&rest).await.json()["failed"], 0);
    eventually("nothing is left", PATIENCE, async || {
        let backlog = task(&cluster, &["backlog"]).await;
        if backlog["counts"] == json!([]) { Ok(()) } else { Err(backlog.to_string()) }
    })
    .await;
    cluster.end().await;
}

/// What the owner refuses.
async fn refuses(cluster: &Cluster, large: &str) {
    let refused: &[(&[&str], &str)] = &[
        (
            &["shop/nonesuch"],
            "opName is \"nonesuch\", which is no operation for tasks: `ringctl document operations` lists them",
        ),
        (
            &["shop/exec", "--param", r#"{"program": "rm"}"#],
            "param names the program \"rm\", which no flag allows",
        ),
        (
            &["shop/document.write", "--at", "200101000000000"],
            "startAt is 200101000000000, which is over",
        ),
        (
            &["shop/document.write", "--param", large],
            "parameters are 1100087 bytes long; the limit is 1048576",
        ),
        (
            &["shop/document.write", "--place", "a{b}c"],
            "place must be text without braces and control characters",
        ),
    ];
    for (more, told) in refused {
        let line = [&["task", "create"], *more, &["-o", "json"]].concat();
        let error = cluster.ringctl(&line).await.error();
        assert!(error["message"].as_str().unwrap().contains(told), "{told}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_a_task_is_told_with_its_field_and_what_is_expected() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &["--nodes", "0"]).await;
    let large = folder.at("large.json");
    std::fs::write(&large, json!({"text": "x".repeat(1_100_000)}).to_string()).unwrap();
    let large = format!("@{large}");
    let create = ["task", "create", "shop/document.write"];
    let usage: &[(&[&str], &str)] = &[
        (
            &["--cron", "D2425"],
            "cron column 2: the hour is 24; expected: hour of 2 digits, 00 to 23",
        ),
        (&["--cron", "X1"], "cron column 1"),
        (&["--cron", "H"], "cron column 2"),
        (&["--cron", "H251"], "cron column 4"),
        (&["--cron", "W80425"], "cron column 2"),
        (&["--cron", "Y02300000"], "cron column 4"),
        (&["--at", "2100-01-01T00:00:00Z"], "the years are 2000 to 2099"),
        (&["--at", "soon"], "a moment is written as 2026-11-28T04:25:00Z"),
        (&["--at", "+1m", "--cron", "H25"], "cannot be used with"),
        (&["--param", "{"], "parameters: what the command line holds does not parse"),
    ];
    for (more, told) in usage {
        let ran = cluster.ringctl(&[&create[..], more].concat()).await;
        assert_eq!(ran.code, 2, "{more:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(told), "{more:?}: {}", ran.stderr);
    }
    for (line, told) in [
        (&["task", "show", "shop"][..], "must be NAMESPACE/ID, as in shop/{cart-7}4f1c"),
        (&["task", "delete"], "required"),
        (&["task", "delete", "shop/{a}b", "--info", "x"], "a filter goes with --all-matching"),
        (&["task", "list", "--state", "GONE"], "[possible values: WAITING"),
        (&["task", "suspend"], "--queue"),
        (&["task", "create", "shop"], "must be NAMESPACE/OPERATION"),
    ] {
        let ran = cluster.ringctl(line).await;
        assert_eq!(ran.code, 2, "{line:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(told), "{line:?}: {}", ran.stderr);
    }
    refuses(&cluster, &large).await;
    let elsewhere = json!({
        "changes": [{"class": "Cart", "docid": "c", "life": "ensure"}],
        "tasks": [{"operation": "document.read", "place": "another-slot", "param": {}}],
    });
    let elsewhere = elsewhere.to_string();
    let line = ["document", "operate", "shop/c", "document.write", &elsewhere, "-o", "json"];
    let error = cluster.ringctl(&line).await.error();
    let told = "place lies in another slot than the operation; take the place of its documents";
    assert_eq!(error["message"], told);
    assert_eq!(selected(&cluster, &[]).await, Vec::<String>::new());
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_need_the_key_of_a_manager_that_has_one() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &["--managers", "1", "--replicas", "0"]).await;
    let task = created(&cluster, "c", &["--cron", "D0425"]).await;
    let key = folder.secret("admin.key", "open sesame\n");
    let manager = process(cluster.document.managers[0].pid).expect("it ran until now");
    cluster.kill_manager(0).await;
    let more = ["--admin-key-file", &key].map(str::to_owned);
    let again = [&manager.line[..], &more].concat();
    let again = Launched::again(&folder, "manager-with-key", &again).await;
    let lines: &[&[&str]] = &[
        &["create", "shop/document.read", "--at", "+1h"],
        &["list"],
        &["backlog"],
        &["pause", &task],
        &["resume", "--all-matching", "--periodic", "--yes"],
        &["suspend", "--all"],
        &["unsuspend", "--all"],
        &["delete", &task],
    ];
    for line in lines {
        let line = [&["task"], *line, &["-o", "json"]].concat();
        let refused = cluster.ringctl(&line).await.error();
        assert_eq!(refused["reason"], "S-REFUSED", "{line:?}: {refused}");
        assert!(refused["message"].as_str().unwrap().contains("key is missing"), "{refused}");
        let hint = refused["hint"].as_str();
        assert!(hint.is_some_and(|it| it.starts_with("--admin-key-file")), "{refused}");
        let right = [&line[..], &["--admin-key-file", &key]].concat();
        cluster.ringctl(&right).await.json();
    }
    let http = &cluster.document.managers[0].http;
    let path = "/v1/namespaces/shop/tasks/%7Bc%7Db";
    for (method, path, with_key) in
        [("GET", "/v1/namespaces/shop/tasks", 200), ("GET", path, 404), ("DELETE", path, 404)]
    {
        for (headers, code) in [(&[][..], 403), (&[("Rota-Admin-Key", "open sesame")], with_key)] {
            let request = HttpRequest { method, path, headers, body: None };
            let page = http_ask(http, request).await.unwrap();
            assert_eq!(page.code, code, "{method} {path}: {page:?}");
        }
    }
    cluster.end_with(vec![again]).await;
}

/// Registers tasks with a far start, four by each write.
async fn registered(cluster: &Cluster, writes: u32) {
    let mut running = tokio::task::JoinSet::new();
    for number in 0..writes {
        let (client, docid) = (cluster.client(), format!("w{number}"));
        running.spawn(async move {
            let task = json!({
                "operation": "document.read", "place": docid, "info": "many",
                "param": {"documents": []}, "start_at": 980_101_000_000_000_u64,
            });
            let change = json!({"class": "Cart", "docid": docid, "life": "ensure"});
            let parameters = json!({"changes": [change], "tasks": [task, task, task, task]});
            let request = Request::new(Namespace::parse("shop").unwrap(), "document.write");
            let request = request.with(&parameters).unwrap();
            client.documents().operate(&Operate { request, docid }, CALL).await.unwrap();
        });
    }
    running.join_all().await;
}

async fn waiting(cluster: &Cluster) -> u64 {
    let backlog = task(cluster, &["backlog"]).await;
    backlog["counts"][0]["waiting"].as_u64().unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_about_many_tasks_that_is_interrupted_tells_what_was_left_and_is_repeated() {
    const WRITES: u32 = 500;
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &["--nodes", "0"]).await;
    registered(&cluster, WRITES).await;
    let all = u64::from(WRITES) * 4;
    assert_eq!(waiting(&cluster).await, all);
    let line = ["task", "delete", "--all-matching", "--info", "many", "--yes", "-o", "json"];
    let mut command = tokio::process::Command::new(binary("ringctl"));
    command.env("ROTA_ENDPOINT", cluster.endpoints()).args(line).kill_on_drop(true);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let bulk = command.spawn().expect("ringctl starts");
    let pid = bulk.id().expect("it runs");
    eventually("some are deleted", PATIENCE, async || {
        let left = waiting(&cluster).await;
        if left < all { Ok(()) } else { Err(left.to_string()) }
    })
    .await;
    rota_tests::processes::send(pid, rustix::process::Signal::INT);
    let ran = tokio::time::timeout(PATIENCE, bulk.wait_with_output()).await.expect("it ends");
    let ran = ran.expect("it ran");
    let told: Value = serde_json::from_slice(&ran.stdout).expect("a document");
    let [changed, left] = ["changed", "left"].map(|it| told[it].as_u64().unwrap());
    assert_eq!((ran.status.code(), &told["failed"]), (Some(1), &json!(0)), "{told}");
    assert!(changed > 0 && left > 0 && changed + left == all, "{told}");
    assert_eq!(waiting(&cluster).await, left);
    let again = cluster.ringctl(&line).await.json();
    assert_eq!((&again["changed"], &again["left"]), (&json!(left), &json!(0)), "{again}");
    assert_eq!(waiting(&cluster).await, 0);
    cluster.end().await;
}
