//! Work that takes long, and managers that stand still: whoever can be served is served.

use rota_client::documents::request::Operate;
use rota_client::{CallError, Client, Options};
use rota_docstore::{Answer, Body, Credentials, Namespace, Request};
use rota_tests::processes;
use rota_tests::sessions::{CALL, close, get, opened};
use rota_tests::{Cluster, PATIENCE, TestFolder, binary, eventually, http_get, ringctl};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// A cluster of banks whose managers take these options, too.
async fn banks(folder: &TestFolder, options: &str) -> Cluster {
    let programs = folder.path().join("programs");
    std::fs::create_dir_all(&programs).unwrap();
    let bank = binary("examples/bank");
    let script = format!("#!/bin/sh\nexec '{}' \"$@\" {options}\n", bank.display());
    let manager = programs.join("rota-manager");
    std::fs::write(&manager, script).unwrap();
    std::fs::set_permissions(&manager, std::fs::Permissions::from_mode(0o755)).unwrap();
    let cluster = Cluster::start_in(folder, &[], &[("ROTA_BIN_DIR", &folder.at("programs"))]).await;
    cluster.every_copy_is_in_sync().await;
    cluster
}

/// What an account asks for. Its key is its name, backwards.
fn asked(account: &str, operation: &str, parameters: &Value) -> Operate {
    let space = Namespace::parse("bank").unwrap();
    let mut request = Request::new(space, operation).with(parameters).unwrap();
    let (account, key) = (account.to_owned(), account.chars().rev().collect());
    request.who = Credentials { account: account.clone(), key, ..Credentials::default() };
    Operate { request, docid: account }
}

async fn operate(
    client: &Client,
    account: &str,
    operation: &str,
    parameters: Value,
) -> Result<Answer, CallError> {
    client.documents().operate(&asked(account, operation, &parameters), CALL).await
}

/// The balance that an operation answered.
fn cents(answer: &Answer) -> Value {
    let Body::Json(text) = &answer.body else { panic!("no balance: {answer:?}") };
    text.read::<Value>().unwrap()["cents"].clone()
}

async fn deposited(client: &Client, account: &str, amount: u64) -> Value {
    cents(&operate(client, account, "deposit", json!({"cents": amount})).await.unwrap())
}

/// Interest that takes so long, without waiting for it.
fn interest(client: &Client, account: &str, ms: u64) -> JoinHandle<Result<Answer, CallError>> {
    let (client, account) = (client.clone(), account.to_owned());
    let parameters = json!({"permille": 20, "ms": ms});
    tokio::spawn(async move { operate(&client, &account, "interest", parameters).await })
}

fn raised(result: Result<Answer, CallError>) -> (String, String) {
    match result {
        Err(CallError::Raised { exception, .. }) => {
            (exception.code().to_string(), exception.to_string())
        }
        other => panic!("no exception: {other:?}"),
    }
}

/// A number that all managers say together.
async fn metric(cluster: &Cluster, line: &str) -> u64 {
    let mut sum = 0;
    for manager in &cluster.document.managers {
        let page = http_get(&manager.http, "/metrics").await.unwrap();
        let values = page.body.lines().filter_map(|it| it.strip_prefix(line));
        sum += values.map(|it| it.trim().parse::<u64>().unwrap()).sum::<u64>();
    }
    sum
}

async fn epoch(client: &Client) -> u64 {
    client.inspect(CALL).await.unwrap().view.unwrap().epoch
}

/// Peers miss a manager after 2 s, so in the thread of the decisions this would move partitions.
#[tokio::test(flavor = "multi_thread")]
async fn while_an_operation_works_for_seconds_others_are_served_and_no_partition_moves() {
    let folder = TestFolder::new();
    let cluster = banks(&folder, "").await;
    let client = cluster.client();
    assert_eq!(deposited(&client, "ann", 1_000).await, 1_000);
    let before = epoch(&client).await;
    let working = [1_500, 4_000].map(|ms| interest(&client, "ann", ms));
    let (mut rounds, mut slowest) = (0, Duration::ZERO);
    while working.iter().any(|it| !it.is_finished()) {
        let began = Instant::now();
        let id = format!("s{rounds}");
        opened(&client, &id, "builtin").await;
        client.close(close(&id), CALL).await.unwrap();
        deposited(&client, "bob", 1).await;
        slowest = slowest.max(began.elapsed());
        rounds += 1;
    }
    // The one that worked longer found that the balance had changed, and worked again.
    let mut balances = Vec::new();
    for it in working {
        balances.push(cents(&it.await.unwrap().unwrap()));
    }
    assert_eq!(balances, [1_020, 1_040]);
    assert!(rounds > 20 && slowest < Duration::from_millis(1_500), "{rounds}, {slowest:?}");
    assert_eq!(epoch(&client).await, before);
    assert_eq!(metric(&cluster, "rota_transitions_total{step=\"suspected\"}").await, 0);
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operation_that_works_beyond_its_quota_is_told_and_does_nothing_and_few_may_at_once() {
    let folder = TestFolder::new();
    let cluster = banks(&folder, "--works-max 2 --work-ms 1000").await;
    let client = cluster.client();
    assert_eq!(deposited(&client, "ann", 1_000).await, 1_000);
    // Both of one owner's workers.
    let stuck = [(); 2].map(|()| interest(&client, "ann", 6_000));
    eventually("both work", PATIENCE, async || {
        let works = metric(&cluster, "rota_works{state=\"working\"}").await;
        if works == 2 { Ok(()) } else { Err(format!("{works} work")) }
    })
    .await;
    let parameters = json!({"permille": 20, "ms": 0});
    let third = asked("ann", "interest", &parameters);
    let refused = client.documents().operate(&third, Duration::from_millis(2_500)).await;
    let (code, text) = raised(refused);
    assert_eq!(code, "X-BUSY");
    assert!(text.contains("2 operations of applications work at this manager"), "{text}");
    for it in stuck {
        let (code, text) = raised(it.await.unwrap());
        assert_eq!(code, "X-QUOTA");
        assert!(text.contains("works for longer than 1000 ms"), "{text}");
    }
    assert_eq!(metric(&cluster, "rota_works{state=\"overdue\"}").await, 2);
    // What needs no worker goes on, and so does the other when they are free again.
    assert_eq!(deposited(&client, "ann", 1).await, 1_001);
    eventually("the workers are free again", PATIENCE, async || {
        let works = metric(&cluster, "rota_works{state=\"overdue\"}").await;
        if works == 0 { Ok(()) } else { Err(format!("{works} work")) }
    })
    .await;
    let answer = operate(&client, "ann", "interest", parameters).await.unwrap();
    assert_eq!(cents(&answer), 1_021, "what came too late has changed nothing");
    let logs = ["m1", "m2", "m3"].map(|it| cluster.log(it)).concat();
    assert!(logs.contains("operation interest works for longer than 1000 ms"), "{logs}");
    assert!(logs.contains("nobody waits for it any more"), "{logs}");
    cluster.end().await;
}

/// A manager that stands still for a moment finds calls that were given up meanwhile. That is no attack:
/// with more than 20 of them the whole connection was ended, and every other call on it.
#[tokio::test(flavor = "multi_thread")]
async fn a_patient_call_survives_many_that_were_given_up_while_its_manager_stood_still() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let manager = &cluster.document.managers[0];
    let options = Options { connections: 1, ..Options::default() };
    let client = Client::with_options(&manager.grpc, options).unwrap();
    opened(&client, "one", "builtin").await;
    processes::send(manager.pid, Signal::STOP);
    let ask = |wait: Duration| {
        let (client, address) = (client.clone(), manager.grpc.clone());
        tokio::spawn(async move { client.get_at(&address, get("one"), wait).await })
    };
    let patient = ask(CALL);
    let hasty: Vec<_> = (0..300).map(|_| ask(Duration::from_millis(150))).collect();
    for it in hasty {
        assert!(it.await.unwrap().is_err(), "nobody was there");
    }
    processes::send(manager.pid, Signal::CONT);
    let session = patient.await.unwrap().unwrap().session.unwrap();
    assert_eq!(session.id, "one");
    cluster.end().await;
}

/// The first endpoint takes connections and answers nothing: `inspect` and `explain` failed, and every other
/// command took four seconds.
#[tokio::test(flavor = "multi_thread")]
async fn commands_go_on_at_the_next_endpoint_when_the_first_one_hangs() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    opened(&cluster.client(), "one", "builtin").await;
    let managers = &cluster.document.managers;
    processes::send(managers[0].pid, Signal::STOP);
    // Until the others have taken over what it owned.
    let others = format!("{},{}", managers[1].grpc, managers[2].grpc);
    eventually("it is missed", PATIENCE, async || {
        let explained = ringctl(&others, &["explain", "one", "-o", "json"]).await.json();
        let serves = explained["owner"]["role"] == "serving";
        let ring = ringctl(&others, &["inspect", "-o", "json"]).await.json();
        let down = ring["managers"].as_array().unwrap().iter().any(|it| it["status"] == "DOWN");
        if serves && down { Ok(()) } else { Err(format!("{explained} {}", ring["managers"])) }
    })
    .await;
    let all = cluster.endpoints();
    let began = Instant::now();
    let session = ringctl(&all, &["session", "get", "one", "-o", "json"]).await.json();
    let took = began.elapsed();
    assert_eq!(session["id"], "one");
    assert!(took < Duration::from_secs(2), "{took:?}");
    let explained = ringctl(&all, &["explain", "one", "-o", "json"]).await.json();
    assert_eq!((&explained["id"], &explained["session_known"]), (&json!("one"), &json!(true)));
    let ring = ringctl(&all, &["inspect", "-o", "json"]).await.json();
    assert_eq!(ring["managers"].as_array().unwrap().len(), 3);
    processes::send(managers[0].pid, Signal::CONT);
    cluster.end().await;
}
