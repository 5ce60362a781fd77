//! The suite on a real Consul, and what only Consul can show.

use crate::conformance::{
    self, PATIENCE, Rig, conformance, done, first_view, name, next_node, next_view, node_id,
    only_node, refusal, revision,
};
use crate::consul_process::ConsulAgent;
use rota_membership::consul::{Marks, VALUE_BYTES_MAX};
use rota_membership::wire::state_to_json;
use rota_membership::{CasReply, ConfigStore, ConsulStore, StoreError, Watcher};
use rota_model::{ClusterName, ManagerId, ManagerNumber, NodeId, NodeState};
use rota_ring::{Change, ConfigState, View};
use rustix::process::Signal;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

impl Rig for ConsulAgent {
    fn cluster(&self) -> ClusterName {
        name("suite")
    }

    fn client(&self) -> Arc<dyn ConfigStore> {
        Arc::new(ConsulAgent::client(self))
    }

    async fn cut(&mut self) {
        self.kill().await;
    }

    async fn mend(&mut self) {
        self.run().await;
    }
}

async fn rig() -> ConsulAgent {
    ConsulAgent::start().await
}

conformance!(rig);

/// Three servers, of which the leader dies when the store is taken away: another one takes its place.
mod three {
    use super::*;

    struct Servers {
        agents: [ConsulAgent; 3],
        dead: usize,
    }

    impl Rig for Servers {
        fn cluster(&self) -> ClusterName {
            name("suite")
        }

        fn client(&self) -> Arc<dyn ConfigStore> {
            Arc::new(self.agents[(self.dead + 1) % 3].client())
        }

        async fn cut(&mut self) {
            while !self.agents[self.dead].leads().await {
                self.dead = (self.dead + 1) % 3;
            }
            self.agents[self.dead].kill().await;
        }

        async fn mend(&mut self) {
            self.agents[self.dead].run().await;
        }
    }

    async fn rig() -> Servers {
        Servers { agents: ConsulAgent::three().await, dead: 0 }
    }

    conformance!(rig);
}

fn broken(read: Result<ConfigState, StoreError>) -> String {
    match read {
        Err(StoreError::Broken(text)) => text,
        other => panic!("{other:?}"),
    }
}

async fn founded(store: &ConsulStore) -> ConfigState {
    done(store.cas(Change::view(first_view(name("suite")))).await)
}

#[tokio::test]
async fn a_value_that_no_store_may_hold_is_broken_and_says_why() {
    let agent = rig().await;
    let path = "/v1/kv/rota/state";
    let state = founded(&agent.client()).await;
    let good = String::from_utf8(state_to_json(&name("suite"), &state).to_vec()).unwrap();
    for (value, words) in [
        (good.replacen("\"format\":1", "\"format\":7", 1), "state has format 7"),
        (good.replace("\"view\":{\"format\":1", "\"view\":{\"format\":8"), "View has format 8"),
        (good.replace("\"m\":1024", "\"m\":0"), "the View is broken"),
        (good.replace("\"cluster\":\"suite\"", "\"cluster\":\"other\""), "belongs to cluster"),
        ("<html>".into(), "does not parse"),
        (String::new(), "does not parse"),
    ] {
        assert_eq!(agent.http("PUT", path, value.into()).await.0, 200);
        let store = agent.client();
        let text = broken(store.read().await);
        assert!(text.contains(words) && text.contains("rota/state"), "{text}");
        let reply = store.cas(Change::view(first_view(name("suite")))).await;
        assert!(matches!(reply, CasReply::Unknown(StoreError::Broken(_))), "{reply:?}");
    }
}

#[tokio::test]
async fn a_value_that_went_back_or_went_away_is_refused_by_who_saw_it() {
    let agent = rig().await;
    let path = "/v1/kv/rota/state";
    let store = agent.client();
    let first = founded(&store).await;
    let older = state_to_json(&name("suite"), &first).to_vec();
    let second = done(store.cas(Change::view(next_view(first.view.as_ref().unwrap(), 1))).await);
    agent.http("PUT", path, older).await;
    let text = broken(store.read().await);
    assert!(text.contains(&format!("from index {} to {}", second.index, first.index)), "{text}");
    let text = broken(store.next(second.index, Duration::ZERO).await);
    assert!(text.contains("went back"), "{text}");
    // Somebody writes nodes into the old state until its index is a later one.
    let overtaken = ConfigState { index: second.index + 1, ..first.clone() };
    agent.http("PUT", path, state_to_json(&name("suite"), &overtaken).to_vec()).await;
    let text = broken(store.read().await);
    assert!(text.contains("went back from epoch"), "{text}");
    // What was there is put back: everybody goes on.
    agent.http("PUT", path, state_to_json(&name("suite"), &second).to_vec()).await;
    assert_eq!(store.read().await.unwrap(), second);
    agent.http("DELETE", path, Vec::new()).await;
    let text = broken(store.read().await);
    assert!(text.contains("is gone") && text.contains("rota/state"), "{text}");
    // Nobody makes it anew whose memory says that it was there.
    let reply = store.cas(Change::view(first_view(name("suite")))).await;
    assert!(matches!(reply, CasReply::Unknown(StoreError::Broken(_))), "{reply:?}");
    assert_eq!(agent.http("GET", path, Vec::new()).await.0, 404);
}

#[tokio::test]
async fn two_clusters_live_in_one_consul_under_two_prefixes() {
    let agent = rig().await;
    let (one, other) = (agent.client(), agent.client_within(PATIENCE, "a/b-2"));
    founded(&one).await;
    assert_eq!(other.read().await.unwrap(), ConfigState::default());
    founded(&other).await;
    assert_eq!(agent.json("/v1/kv/?keys").await, serde_json::json!(["a/b-2/state", "rota/state"]));
    let stranger = Change::view(first_view(name("other")));
    let text = refusal(one.cas(stranger).await);
    assert!(text.contains("view.cluster"), "{text}");
}

#[tokio::test]
async fn of_all_that_write_a_mark_at_once_one_does_and_the_next_must_have_read_that() {
    let agent = rig().await;
    let marks = Marks::new(&agent.address("a/b"), PATIENCE).unwrap();
    let name = ["restores", "my cluster/1", "7"];
    assert_eq!(marks.read(&name).await.unwrap(), None);
    let mut writes = JoinSet::new();
    for writer in 0..8_u8 {
        let marks = marks.clone();
        writes.spawn(async move { marks.write(&name, vec![writer], 0).await.unwrap() });
    }
    let won = writes.join_all().await.into_iter().filter(|it| *it).count();
    let first = marks.read(&name).await.unwrap().unwrap();
    assert_eq!((won, first.value.len()), (1, 1));
    assert!(marks.write(&name, b"later".to_vec(), first.index).await.unwrap());
    assert!(!marks.write(&name, b"too late".to_vec(), first.index).await.unwrap());
    assert_eq!(marks.read(&name).await.unwrap().unwrap().value, b"later");
    let keys = agent.json("/v1/kv/?keys").await;
    assert_eq!(keys, serde_json::json!(["a/b/restores/my:20cluster:2f1/7"]));
}

/// A View of a hundred managers, and nodes until the value is full.
#[tokio::test]
async fn a_hundred_managers_and_a_thousand_nodes_fit_and_more_than_fits_is_refused() {
    let agent = rig().await;
    let store = agent.client();
    let numbers: Vec<_> = (0..100)
        .map(|n| (ManagerNumber(n * 10), ManagerId::parse(&format!("manager-{n}")).unwrap()))
        .collect();
    let mut view = View::found(name("suite"), 1024, 2, 100, &numbers).unwrap();
    for entry in view.managers.values_mut() {
        entry.grpc = "manager.of.some.department.example.com:7400".into();
        entry.http = entry.grpc.clone();
    }
    let mut state = done(store.cas(Change::view(view)).await);
    // Written by hand, for a thousand compare-and-sets of such a value take a while.
    for number in 0..1000 {
        let id = node_id(&format!("node-{number}.of.some.department.example.com"));
        let node = next_node(&state, &id, NodeState::Ready, 1).to;
        state.nodes.insert(id, node);
    }
    state.index += 1;
    let value = state_to_json(&name("suite"), &state);
    assert!(value.len() < VALUE_BYTES_MAX, "{} bytes", value.len());
    assert_eq!(agent.http("PUT", "/v1/kv/rota/state", value.to_vec()).await.1, "true");
    let one_more = only_node(next_node(&state, &node_id("n"), NodeState::Ready, 1));
    let mut state = done(store.cas(one_more).await);

    // Up to a few hundred bytes below the limit.
    let length = state_to_json(&name("suite"), &state).len();
    let each = length / state.nodes.len() + 100;
    for number in 0..(VALUE_BYTES_MAX - length - 500) / each {
        let id = node_id(&format!("{number:0100}"));
        let node = next_node(&state, &id, NodeState::Ready, 1).to;
        state.nodes.insert(id, node);
    }
    state.index += 1;
    let value = state_to_json(&name("suite"), &state);
    assert_eq!(agent.http("PUT", "/v1/kv/rota/state", value.to_vec()).await.1, "true");
    let mut refused = String::new();
    for number in 0..1000 {
        let id = node_id(&format!("{number}{}", "x".repeat(250)));
        match store.cas(only_node(next_node(&state, &id, NodeState::Ready, 1))).await {
            CasReply::Done(_) => {}
            reply @ (CasReply::Conflict(_) | CasReply::Unknown(_)) => {
                refused = refusal(reply);
                break;
            }
        }
    }
    assert!(refused.contains("524288") && refused.contains("nodes"), "{refused}");
}

#[tokio::test]
async fn an_agent_that_hangs_is_a_timeout_and_its_late_write_may_still_happen() {
    let agent = rig().await;
    let limit = Duration::from_millis(300);
    let hasty = agent.client_within(limit, "rota");
    let state = agent.client().read().await.unwrap();
    let change = only_node(next_node(&state, &node_id("n"), NodeState::Ready, 1));
    agent.stop().await;
    assert_eq!(hasty.read().await, Err(StoreError::Timeout(limit)));
    assert_eq!(hasty.cas(change).await, CasReply::Unknown(StoreError::Timeout(limit)));
    agent.signal(Signal::CONT);
    let now = agent.client().read().await.unwrap();
    assert!(now.index <= 1 && now.nodes.len() as u64 == now.index, "{now:?}");
}

#[tokio::test]
async fn a_watcher_follows_over_a_kill_and_a_restart() {
    let mut agent = rig().await;
    let store = agent.client();
    let watcher = Watcher::start(Arc::new(store.clone()));
    let (mut states, mut trouble) = (watcher.states(), watcher.trouble());
    // The key is not there yet: the watch must see how it comes.
    timeout(PATIENCE, states.wait_for(Option::is_some)).await.expect("it reads").unwrap();
    let founded = founded(&agent.client()).await;
    let seen = states.wait_for(|it| it.as_ref().is_some_and(|it| it.index >= founded.index));
    let seen = timeout(PATIENCE, seen).await.expect("it follows").unwrap().clone();
    assert_eq!(seen.as_deref(), Some(&founded));

    agent.kill().await;
    let gone = timeout(PATIENCE, trouble.wait_for(Option::is_some)).await.expect("it notices");
    let gone = gone.unwrap().clone().unwrap();
    assert!(matches!(gone.error, StoreError::Unreachable(_)), "{gone:?}");
    agent.run().await;
    timeout(PATIENCE, trouble.wait_for(Option::is_none)).await.expect("it notices").unwrap();
    let next = Change::view(next_view(founded.view.as_ref().unwrap(), 1));
    let expected = done(agent.client().cas(next).await);
    let seen = states.wait_for(|it| it.as_ref().is_some_and(|it| it.index >= expected.index));
    let seen = timeout(PATIENCE, seen).await.expect("it follows").unwrap().clone();
    assert_eq!(seen.as_deref(), Some(&expected));
}

/// Writes its own node on and on, over unknown outcomes. Gives the revisions that stand when it is
/// told to stop, as far as it knows.
async fn write_on(
    store: ConsulStore,
    id: NodeId,
    writes: watch::Sender<u64>,
    stop: watch::Receiver<bool>,
) -> (NodeId, u64) {
    let mut state = store.read().await.unwrap();
    let mut unsure = false;
    while !*stop.borrow() {
        let known = revision(&state, &id);
        match store.cas(only_node(next_node(&state, &id, NodeState::Ready, known))).await {
            CasReply::Done(next) => {
                assert_eq!(revision(&next, &id), known + 1);
                (state, unsure) = (next, false);
                writes.send_modify(|it| *it += 1);
            }
            // Only its own write of unknown outcome may have come in between, and only once.
            CasReply::Conflict(next) => {
                assert!(unsure, "nobody else writes {id}: {next:?}");
                assert_eq!(revision(&next, &id), known + 1);
                (state, unsure) = (next, false);
            }
            CasReply::Unknown(_) => {
                unsure = true;
                if let Ok(next) = store.read().await {
                    let there = revision(&next, &id);
                    assert!(there == known || there == known + 1, "{there} after {known}");
                    unsure = there == known;
                    state = next;
                }
            }
        }
    }
    (id.clone(), revision(&state, &id))
}

#[tokio::test]
async fn of_three_servers_the_leader_may_die_and_nothing_acknowledged_is_lost() {
    let mut agents = ConsulAgent::three().await;
    founded(&agents[0].client()).await;
    let mut leader = 0;
    while !agents[leader].leads().await {
        leader = (leader + 1) % 3;
    }
    agents.swap(0, leader);
    let [leader, others @ ..] = &mut agents;
    let (stop, stopped) = watch::channel(false);
    let mut writers = JoinSet::new();
    let mut counts = Vec::new();
    for (number, agent) in others.iter().enumerate() {
        let (count, counted) = watch::channel(0);
        let store = agent.client_within(Duration::from_secs(2), "rota");
        writers.spawn(write_on(store, node_id(&format!("n{number}")), count, stopped.clone()));
        counts.push(counted);
    }
    for counted in &mut counts {
        timeout(PATIENCE, counted.wait_for(|it| *it >= 20)).await.expect("they write").unwrap();
    }
    leader.kill().await;
    for counted in &mut counts {
        let goal = *counted.borrow() + 20;
        let more = counted.wait_for(|it| *it >= goal);
        timeout(PATIENCE, more).await.expect("they go on under the next leader").unwrap();
    }
    stop.send_replace(true);
    for (id, known) in timeout(PATIENCE, writers.join_all()).await.expect("they stop") {
        for agent in others.iter() {
            assert_eq!(revision(&agent.client().read().await.unwrap(), &id), known, "{id}");
        }
    }
}

#[tokio::test]
async fn without_a_majority_of_servers_nothing_is_read_and_every_write_is_unknown() {
    let mut agents = ConsulAgent::three().await;
    let founded = founded(&agents[0].client()).await;
    let [left, gone @ ..] = &mut agents;
    for agent in gone.iter_mut() {
        agent.kill().await;
    }
    let store = left.client_within(Duration::from_secs(1), "rota");
    let away =
        |error: &StoreError| matches!(error, StoreError::Unreachable(_) | StoreError::Timeout(_));
    // A leader that lost its followers knows it at once for a consistent read.
    assert!(away(&store.read().await.unwrap_err()));
    let change = Change::view(next_view(founded.view.as_ref().unwrap(), 1));
    match store.cas(change).await {
        CasReply::Unknown(error) => assert!(away(&error), "{error}"),
        CasReply::Done(state) | CasReply::Conflict(state) => panic!("{state:?}"),
    }
    for agent in gone.iter_mut() {
        agent.run().await;
    }
    let now = left.client().read().await.unwrap();
    assert_eq!(now, founded);
}
