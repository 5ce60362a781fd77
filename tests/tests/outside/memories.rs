//! Requests that are remembered: each by the name that its caller gives it, and at a cost that does not grow.

use rota_client::docstore::{
    Caller, Content, DocName, Namespace, Request, Stamp, SyncRequest, apply,
};
use rota_client::documents::request::{Operate, Sync};
use rota_client::{CallError, Client};
use rota_tests::sessions::CALL;
use rota_tests::{Cluster, TestFolder, ringctl_in};
use serde_json::json;
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::task::JoinSet;

/// Clients that count up together.
const CLIENTS: usize = 8;

/// How often each of them counts up.
const TURNS: usize = 20;

/// What the cost of a request may grow by, at most. What is remembered would make it more than ten times.
const RATIO_MAX: f64 = 3.0;

fn space() -> Namespace {
    Namespace::parse("shop").unwrap()
}

/// The same time for everybody who asks within a second.
fn operation_time() -> Stamp {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    Stamp::from_epoch_ms(now * 1_000).minus_ms(1_000)
}

/// Sets the counter, if it has that version.
fn set(number: u64, expected: Option<Stamp>, operation_time: Stamp) -> Operate {
    let put = json!([{"class": "N", "key": "1", "json": number}]);
    let mut change = json!({"class": "Count", "docid": "c", "life": "ensure", "put": put});
    if let Some(version) = expected {
        change["expect"] = json!({"version": version});
    }
    let request = Request::new(space(), "document.write");
    let mut request = request.with(&json!({"changes": [change]})).unwrap();
    request.operation_time = Some(operation_time);
    Operate { request, docid: "c".to_owned() }
}

/// The version of the counter, and what it says.
async fn counter(client: &Client) -> (Stamp, u64) {
    let name = DocName::new(&space(), "Count", "c").unwrap();
    let documents = vec![SyncRequest { name: name.clone(), held: None }];
    let sync = Sync { space: space(), documents, stale_ok: false, caller: Caller::default() };
    let updates = client.documents().sync(&sync, CALL).await.unwrap();
    let document = apply(&name, None, &updates[0].1).unwrap().unwrap();
    match document.content("N", Some("1")) {
        Some(Content::Json(text)) => (document.version(), text.read::<u64>().unwrap()),
        other => panic!("no number: {other:?}"),
    }
}

/// Whether it was done; if not, because the version was another one.
fn is_done<T: std::fmt::Debug>(result: Result<T, CallError>) -> bool {
    match result {
        Ok(_) => true,
        Err(CallError::Raised { exception, .. }) => {
            assert_eq!(exception.code().to_string(), "A-EXPECTED", "{exception}");
            false
        }
        Err(error) => panic!("{error:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_callers_that_ask_for_the_same_in_one_millisecond_one_is_refused() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let [one, two] = [0, 1].map(|it| cluster.client_of(it));
    one.documents().operate(&set(0, None, operation_time()), CALL).await.unwrap();
    let (version, _) = counter(&one).await;
    let asked = set(1, Some(version), operation_time());
    let (first, second) = (one.documents(), two.documents());
    let (first, second) = tokio::join!(first.operate(&asked, CALL), second.operate(&asked, CALL));
    assert_eq!([is_done(first), is_done(second)].iter().filter(|it| **it).count(), 1);
    assert_eq!(counter(&two).await.1, 1);
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_clients_without_accounts_counted_up_is_what_they_were_told() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let client = cluster.client();
    client.documents().operate(&set(0, None, operation_time()), CALL).await.unwrap();
    let mut counting = JoinSet::new();
    for turn in 0..CLIENTS {
        let client = cluster.client_of(turn % 3);
        counting.spawn(async move {
            let mut done = 0;
            for _ in 0..TURNS {
                let (version, number) = counter(&client).await;
                let asked = set(number + 1, Some(version), operation_time());
                done += u64::from(is_done(client.documents().operate(&asked, CALL).await));
            }
            done
        });
    }
    let acknowledged: u64 = counting.join_all().await.iter().sum();
    assert!(acknowledged > 0);
    assert_eq!(counter(&client).await.1, acknowledged);
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hot_session_and_a_hot_document_cost_the_same_however_much_is_remembered_of_them() {
    let folder = TestFolder::new();
    let ran = ringctl_in(&folder, &["bench", "hot", "--requests", "300", "-o", "json"]).await;
    let hot = ran.json();
    for ratio in [&hot["ratio"], &hot["document"]["ratio"]] {
        assert!(ratio.as_f64().is_some_and(|it| it < RATIO_MAX), "{hot}");
    }
}
