//! `ringctl verify`: everything is asked, what holds is proved, and what does not is named.

use rota_client::v1;
use rota_proto::v1::node_agent_client::NodeAgentClient;
use rota_tests::busy::Busy;
use rota_tests::processes;
use rota_tests::sessions::{CALL, opened};
use rota_tests::small::ring;
use rota_tests::{Cluster, PATIENCE, Ran, TestFolder, eventually};
use rustix::process::Signal;
use serde_json::Value;
use tonic::codegen::tokio_stream::{self, StreamExt};
use tonic::transport::Endpoint;
use v1::node_call::What;

pub(super) async fn verify(cluster: &Cluster, more: &[&str]) -> Ran {
    cluster.ringctl(&[&["verify", "-o", "json"], more].concat()).await
}

/// The document of a run that did not prove everything.
pub(super) fn not_proved(ran: &Ran) -> Value {
    assert_eq!((ran.code, ran.stderr.as_str()), (1, ""), "{ran:?}");
    serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran:?}"))
}

/// Waits until everything is proved, and gives the document.
pub(super) async fn holds(cluster: &Cluster) -> Value {
    eventually("everything holds", PATIENCE, async || {
        let ran = verify(cluster, &[]).await;
        if ran.code == 0 { Ok(ran.json()) } else { Err(format!("{ran:?}")) }
    })
    .await
}

/// The one violation of a document.
fn violation(document: &Value) -> Value {
    let all = document["violations"].as_array().cloned().unwrap_or_default();
    assert_eq!(all.len(), 1, "{document}");
    all[0].clone()
}

/// Says something to a node as if the owner of that partition said it, and gives the answer.
async fn as_owner(cluster: &Cluster, part: &Value, what: What) -> v1::NodeAnswer {
    let node = &cluster.document.nodes[0];
    let shown = ring(&cluster.endpoints()).await.unwrap();
    let boot = shown["nodes"][0]["boot"].as_str().unwrap().parse().unwrap();
    let slot = |name: &str| u32::try_from(part[name].as_u64().unwrap()).unwrap();
    let range = v1::SlotRange { first: slot("first_slot"), last: slot("last_slot") };
    let pe = part["pe"].as_u64().unwrap();
    let call = v1::NodeCall { call: 1, boot, pe, range: Some(range), what: Some(what) };
    let cluster = shown["cluster"].as_str().unwrap().to_owned();
    let batch = v1::NodeCallBatch { calls: vec![call], cluster };
    let endpoint = Endpoint::from_shared(format!("http://{}", node.address)).unwrap();
    let mut client = NodeAgentClient::new(endpoint.connect().await.unwrap());
    let calls = tokio_stream::iter([batch]).chain(tokio_stream::pending());
    let mut answers = client.exchange(calls).await.unwrap().into_inner();
    let answer = tokio::time::timeout(PATIENCE, answers.message()).await.unwrap();
    answer.unwrap().unwrap().answers.remove(0)
}

pub(super) fn key(id: &str) -> Option<v1::SessionKey> {
    Some(v1::SessionKey { namespace: "default".to_owned(), id: id.to_owned() })
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_holds_in_a_cluster_at_rest_and_under_load() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &["--nodes", "2", "--places", "100000"]).await;
    let client = cluster.client();
    for number in 0..40 {
        opened(&client, &format!("s{number}"), "counter").await;
    }
    opened(&client, "program", "http").await;
    // An open is answered a moment before READY is committed.
    let proved = eventually("everything is READY", PATIENCE, async || {
        let proved = holds(&cluster).await;
        if proved["sessions"] == 41 { Ok(proved) } else { Err(proved.to_string()) }
    })
    .await;
    assert_eq!((&proved["ok"], &proved["partitions"]), (&true.into(), &3.into()), "{proved}");
    assert_eq!(proved["nodes"], 2, "{proved}");
    for empty in ["violations", "unanswered", "unproved"] {
        assert_eq!(proved[empty], Value::Array(vec![]), "{proved}");
    }
    let busy = Busy::start(&cluster);
    busy.more(200).await;
    let proved = holds(&cluster).await;
    assert!(proved["sessions"].as_u64() > Some(41), "{proved}");
    busy.more(50).await;
    busy.stop().await;
    let told = cluster.ringctl(&["verify"]).await.expect_success();
    assert!(told.stdout.contains("everything holds"), "{told:?}");
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_runs_unknown_and_what_does_not_run_is_named() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let client = cluster.client();
    opened(&client, "known", "counter").await;
    holds(&cluster).await;
    let part = ring(&cluster.endpoints()).await.unwrap()["partitions"][0].clone();
    let slot = u32::try_from(part["last_slot"].as_u64().unwrap()).unwrap();
    let token = Some(v1::LogPos { pe: part["pe"].as_u64().unwrap(), seq: 999_999 });
    let spec = v1::SessionSpec {
        class: "counter".to_owned(),
        pool: "default".to_owned(),
        ..Default::default()
    };
    let create = v1::Create {
        key: key("nobody's"),
        slot,
        token,
        deadline_ms: 5_000,
        spec: Some(spec),
        life: opened(&client, "known", "counter").await.life,
        ..Default::default()
    };
    let answer = as_owner(&cluster, &part, What::Create(create)).await;
    assert!(matches!(answer.answer, Some(v1::node_answer::Answer::Running(_))), "{answer:?}");
    let document = not_proved(&verify(&cluster, &[]).await);
    let found = violation(&document);
    assert_eq!((&found["kind"], &found["id"]), (&"unknown_runs".into(), &"nobody's".into()));
    assert_eq!(found["node"], cluster.document.nodes[0].id, "{found}");
    assert!(found["text"].as_str().unwrap().contains("no record names it"), "{found}");
    assert_eq!((&document["ok"], &document["sessions"]), (&false.into(), &1.into()));
    let destroy = v1::Destroy { key: key("nobody's"), slot, token, ..Default::default() };
    as_owner(&cluster, &part, What::Destroy(destroy)).await;
    holds(&cluster).await;
    // The owner hears nothing of what another one destroys under its epoch.
    let (part, token) = placed(&cluster, "known").await;
    let slot = u32::try_from(part["last_slot"].as_u64().unwrap()).unwrap();
    let destroy = v1::Destroy { key: key("known"), slot, token, ..Default::default() };
    as_owner(&cluster, &part, What::Destroy(destroy)).await;
    let found = violation(&not_proved(&verify(&cluster, &[]).await));
    assert_eq!((&found["kind"], &found["id"]), (&"not_running".into(), &"known".into()), "{found}");
    let told = cluster.ringctl(&["verify"]).await;
    let line = "violated: session default/known is READY on node";
    assert!(told.code == 1 && told.stdout.contains(line), "{told:?}");
    cluster.end().await;
}

/// The partition and the attempt of a session.
async fn placed(cluster: &Cluster, id: &str) -> (Value, Option<v1::LogPos>) {
    let shown = ring(&cluster.endpoints()).await.unwrap();
    for part in shown["partitions"].as_array().unwrap() {
        let owner = cluster.document.managers.iter().find(|it| part["owner"] == it.number).unwrap();
        let number = u32::try_from(part["number"].as_u64().unwrap()).unwrap();
        let keys = vec![key(id).unwrap()];
        let request = v1::PlacementsRequest { part: number, keys, ..Default::default() };
        let page = cluster.client().placements_at(&owner.grpc, request, CALL).await.unwrap();
        if let Some(placed) = page.sessions.first() {
            return (part.clone(), placed.token);
        }
    }
    panic!("{id} is nowhere");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_answer_is_told_and_nothing_is_proved_of_it() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let client = cluster.client();
    opened(&client, "a", "counter").await;
    let victim = &cluster.document.managers[1];
    processes::send(victim.pid, Signal::STOP);
    let document = not_proved(&verify(&cluster, &["--wait", "1s"]).await);
    let silent = &document["unanswered"][0];
    assert_eq!(
        (&silent["kind"], &silent["name"]),
        (&"manager".into(), &victim.number.to_string().into())
    );
    assert_eq!(document["ok"], false);
    processes::send(victim.pid, Signal::CONT);
    holds(&cluster).await;
    let node = &cluster.document.nodes[0];
    processes::send(node.pid, Signal::STOP);
    let document = not_proved(&verify(&cluster, &["--wait", "1s"]).await);
    processes::send(node.pid, Signal::CONT);
    let silent = &document["unanswered"][0];
    assert_eq!((&silent["kind"], &silent["name"]), (&"node".into(), &node.id.as_str().into()));
    assert_eq!((&document["sessions"], &document["sessions_unproved"]), (&0.into(), &1.into()));
    holds(&cluster).await;
    cluster.end().await;
}
