//! `ringctl verify --repair`: what a test plants by hand is found, and put right by the owners.

use super::verify::{holds, key, not_proved, verify};
use rota_client::v1;
use rota_model::SessionKey;
use rota_proto::v1::node_agent_client::NodeAgentClient;
use rota_tests::sessions::{CALL, close, opened, read};
use rota_tests::{Cluster, PATIENCE, TestFolder, eventually, processes};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use tonic::codegen::tokio_stream::{self, StreamExt};
use tonic::transport::Endpoint;
use v1::node_call::What;

/// The partition of a session, as its owner knows it.
struct Home {
    slot: u32,
    part: v1::Part,
    owner: String,
}

/// The cluster, and what is said to its nodes in the name of owners.
struct Hand<'a> {
    cluster: &'a Cluster,
}

impl Hand<'_> {
    async fn home(&self, id: &str) -> Home {
        let shown = self.cluster.client().inspect(CALL).await.unwrap();
        let view = shown.view.unwrap();
        let slot = rota_ring::slot_of_session(&session_key(id), view.m).0;
        let holds = |part: &&v1::Part| match part.first_slot <= part.number {
            true => (part.first_slot..=part.number).contains(&slot),
            false => slot >= part.first_slot || slot <= part.number,
        };
        let part = view.parts.iter().find(holds).unwrap().clone();
        let owner = view.managers.iter().find(|it| it.number == part.owner).unwrap();
        Home { slot, owner: owner.grpc.clone(), part }
    }

    /// Where a session is by its record, under which attempt.
    async fn placed(&self, id: &str) -> v1::PlacedSession {
        let home = self.home(id).await;
        let keys = vec![key(id).unwrap()];
        let request = v1::PlacementsRequest { part: home.part.number, keys, ..Default::default() };
        let page = self.cluster.client().placements_at(&home.owner, request, CALL).await.unwrap();
        page.sessions.first().unwrap_or_else(|| panic!("{id} is nowhere")).clone()
    }

    /// Says something to a node as the owner of a session says it.
    async fn say(&self, node: &str, id: &str, what: What) -> v1::node_answer::Answer {
        let home = self.home(id).await;
        let shown = self.cluster.client().inspect(CALL).await.unwrap();
        let known = shown.nodes.iter().find(|it| it.id == node).unwrap();
        let range = v1::SlotRange { first: home.part.first_slot, last: home.part.number };
        let (boot, pe) = (known.boot, home.part.pe);
        let call = v1::NodeCall { call: 1, boot, pe, range: Some(range), what: Some(what) };
        let cluster = shown.view.unwrap().cluster;
        let batch = v1::NodeCallBatch { calls: vec![call], cluster };
        let endpoint = Endpoint::from_shared(format!("http://{}", known.address)).unwrap();
        let mut client = NodeAgentClient::new(endpoint.connect().await.unwrap());
        let calls = tokio_stream::iter([batch]).chain(tokio_stream::pending());
        let mut answers = client.exchange(calls).await.unwrap().into_inner();
        let answer = tokio::time::timeout(PATIENCE, answers.message()).await.unwrap();
        answer.unwrap().unwrap().answers.remove(0).answer.unwrap()
    }

    /// Has a node run a session, and no owner knows of it.
    async fn create(&self, node: &str, id: &str, class: &str, token: v1::LogPos) {
        let slot = self.home(id).await.slot;
        let life =
            self.cluster.client().open(anything(), CALL).await.unwrap().session.unwrap().life;
        let (class, pool) = (class.to_owned(), "default".to_owned());
        let spec = Some(v1::SessionSpec { class, pool, ..Default::default() });
        let (key, token, deadline_ms) = (key(id), Some(token), 5_000);
        let create = v1::Create { key, slot, token, deadline_ms, spec, life, ..Default::default() };
        let answer = self.say(node, id, What::Create(create)).await;
        assert!(matches!(answer, v1::node_answer::Answer::Running(_)), "{id}: {answer:?}");
    }

    /// Has a node end a session, and no owner hears of it.
    async fn destroy(&self, id: &str) {
        let placed = self.placed(id).await;
        let slot = self.home(id).await.slot;
        let (key, token) = (key(id), placed.token);
        let destroy = v1::Destroy { key, slot, token, ..Default::default() };
        self.say(&placed.node, id, What::Destroy(destroy)).await;
    }

    fn other_than(&self, node: &str) -> String {
        let nodes = &self.cluster.document.nodes;
        nodes.iter().find(|it| it.id != node).unwrap().id.clone()
    }

    /// An attempt that its owner never gave to a session.
    async fn early(&self, id: &str) -> v1::LogPos {
        v1::LogPos { pe: self.home(id).await.part.pe, seq: 0 }
    }
}

fn session_key(id: &str) -> SessionKey {
    SessionKey::try_from(key(id).unwrap()).unwrap()
}

/// A session that is only there for its life.
fn anything() -> v1::OpenRequest {
    rota_tests::sessions::open("anything", "counter")
}

/// The repairs of a document, by session.
fn repairs(document: &Value) -> BTreeMap<String, Value> {
    let all = document["repairs"].as_array().cloned().unwrap_or_default();
    let id = |it: &Value| it["id"].as_str().unwrap_or_default().to_owned();
    all.into_iter().map(|it| (id(&it), it)).collect()
}

async fn ready(hand: &Hand<'_>, id: &str, class: &str) -> v1::PlacedSession {
    opened(&hand.cluster.client(), id, class).await;
    eventually("READY is committed", PATIENCE, async || {
        let placed = hand.placed(id).await;
        if placed.state == "READY" { Ok(placed) } else { Err(placed.state) }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_planted_by_hand_is_found_and_mended_by_the_owners() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &["--nodes", "2", "--places", "1000"]).await;
    let hand = Hand { cluster: &cluster };
    let client = cluster.client();
    ready(&hand, "anything", "counter").await;
    let nothing = verify(&cluster, &["--repair"]).await.expect_success().json();
    assert_eq!((&nothing["repairs"], &nothing["ok"]), (&json!([]), &true.into()), "{nothing}");

    let node = cluster.document.nodes[0].id.clone();
    // A program and a machine that no record names.
    hand.create(&node, "orphan", "counter", hand.early("orphan").await).await;
    hand.create(&node, "program", "http", hand.early("program").await).await;
    // One that runs on after its end.
    let zombie = ready(&hand, "zombie", "counter").await;
    client.close(close("zombie"), CALL).await.unwrap();
    let elsewhere = hand.other_than(&zombie.node);
    hand.create(&elsewhere, "zombie", "counter", zombie.token.unwrap()).await;
    // One that runs on a second node, too.
    let twin = ready(&hand, "twin", "counter").await;
    hand.create(&hand.other_than(&twin.node), "twin", "counter", twin.token.unwrap()).await;
    // Records of which nothing runs.
    ready(&hand, "gone", "counter").await;
    ready(&hand, "gone-program", "http").await;
    hand.destroy("gone").await;
    hand.destroy("gone-program").await;

    let planted = ["gone", "gone-program", "orphan", "program", "twin", "zombie"];
    let dry = not_proved(&verify(&cluster, &["--repair", "--dry-run"]).await);
    assert_eq!(dry["dry_run"], true, "{dry}");
    let would = repairs(&dry);
    assert_eq!(would.keys().collect::<Vec<_>>(), planted, "{dry}");
    for (id, repair) in &would {
        let step = if id.starts_with("gone") { "write_end" } else { "end_instance" };
        assert_eq!((&repair["step"], &repair["gone"]), (&step.into(), &Value::Null), "{repair}");
    }
    assert_eq!(read(&client, "gone").await.unwrap().state(), v1::SessionState::Ready);
    let again = not_proved(&verify(&cluster, &[]).await);
    assert_eq!(again["violations"].as_array().unwrap().len(), planted.len(), "{again}");

    let mended = verify(&cluster, &["--repair"]).await.expect_success().json();
    assert_eq!((&mended["ok"], &mended["violations"]), (&true.into(), &json!([])), "{mended}");
    let done = repairs(&mended);
    assert_eq!(done.keys().collect::<Vec<_>>(), planted, "{mended}");
    assert!(done.values().all(|it| it["gone"] == true && it["error"].is_null()), "{mended}");
    for id in ["gone", "gone-program"] {
        let session = read(&client, id).await.unwrap();
        assert!(matches!(session.state(), v1::SessionState::Closed | v1::SessionState::Failed));
    }
    assert_eq!(hand.placed("twin").await, twin, "its record stays");
    opened(&client, "gone", "counter").await;
    opened(&client, "orphan", "counter").await;
    holds(&cluster).await;
    let told = cluster.ringctl(&["verify", "--repair"]).await.expect_success();
    assert!(told.stdout.starts_with("nothing to mend\neverything holds"), "{told:?}");
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_node_knows_later_than_its_owner_is_found_again_with_its_partition() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let hand = Hand { cluster: &cluster };
    ready(&hand, "anything", "counter").await;
    let node = cluster.document.nodes[0].id.clone();
    let later = v1::LogPos { seq: 999_999, ..hand.early("lost").await };
    hand.create(&node, "lost", "counter", later).await;
    hand.create(&node, "orphan", "counter", hand.early("orphan").await).await;
    ready(&hand, "gone", "counter").await;
    hand.destroy("gone").await;
    let dry = not_proved(&verify(&cluster, &["--repair", "--dry-run"]).await);
    assert_eq!(repairs(&dry)["lost"]["step"], "find_again", "{dry}");
    let mended = verify(&cluster, &["--repair"]).await.expect_success().json();
    // What is found again makes a session of all that runs there. So everything else is mended before.
    for (id, step) in [("gone", "write_end"), ("lost", "find_again"), ("orphan", "end_instance")] {
        let repair = repairs(&mended)[id].clone();
        assert_eq!((&repair["step"], &repair["gone"]), (&step.into(), &true.into()), "{mended}");
    }
    let found = hand.placed("lost").await;
    assert_eq!((found.state.as_str(), found.token), ("READY", Some(later)));
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_node_that_does_not_answer_nothing_is_mended_and_it_tells_the_rest_by_itself() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let hand = Hand { cluster: &cluster };
    ready(&hand, "program", "http").await;
    let node = cluster.document.nodes[0].clone();
    // Whatever it runs is killed while its agent cannot see that.
    processes::send(node.pid, Signal::STOP);
    cluster.keepers().iter().for_each(|it| it.signal(Signal::KILL));
    let request =
        v1::MendRequest { id: "program".to_owned(), node: node.id.clone(), ..Default::default() };
    let refused = cluster.client().mend(request, Duration::from_secs(2)).await.unwrap_err();
    assert!(refused.to_string().contains("did not say in time"), "{refused}");
    let document = not_proved(&verify(&cluster, &["--repair", "--wait", "1s"]).await);
    assert_eq!(
        (&document["repairs"], &document["unanswered"][0]["name"]),
        (&json!([]), &node.id.into())
    );
    processes::send(node.pid, Signal::CONT);
    let ended = v1::SessionState::Failed;
    rota_tests::sessions::becomes(&cluster.client(), "program", ended).await;
    let proved = verify(&cluster, &["--repair"]).await.expect_success().json();
    assert_eq!((&proved["repairs"], &proved["ok"]), (&json!([]), &true.into()), "{proved}");
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_fit_together_is_refused() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let ran = cluster.ringctl(&["verify", "--dry-run"]).await;
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.stderr.contains("--repair"), "{ran:?}");
    let wrong = v1::MendRequest { id: "a".to_owned(), ..Default::default() };
    let refused = cluster.client().mend(wrong, CALL).await.unwrap_err().to_string();
    assert!(refused.contains("node"), "{refused}");
    let (id, node) = ("a".to_owned(), "nobody".to_owned());
    let unknown = v1::MendRequest { id, node, ..Default::default() };
    let told = cluster.client().mend(unknown, CALL).await.unwrap();
    assert_eq!(told.step, "out_of_reach", "{told:?}");
    cluster.end().await;
}
