//! What every config store must do. Needs nothing but the port, so that an adapter in another
//! crate can take this file.

use rota_membership::{CasReply, ConfigStore, StoreError};
use rota_model::{
    BootId, ClassName, ClusterName, Epoch, ManagerId, ManagerNumber, NodeId, NodeState, Nonce,
    PoolName,
};
use rota_ring::{Change, ConfigState, NodeChange, NodeReg, NodeWish, View};
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Bound of every wait: far above what a slow machine needs.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A store under test.
pub trait Rig: Send {
    /// The store's cluster.
    fn cluster(&self) -> ClusterName;
    /// A client of its own.
    fn client(&self) -> Arc<dyn ConfigStore>;
    /// Takes the store away in the middle of whatever it does. Older clients may stay without it.
    fn cut(&mut self) -> impl Future<Output = ()> + Send;
    /// Brings it back with what it held.
    fn mend(&mut self) -> impl Future<Output = ()> + Send;
}

/// Makes one test per rule; `$rig` is an async function that gives an empty store.
macro_rules! conformance {
    ($rig:path) => {
        conformance!($rig:
            a_write_is_read_by_every_client,
            of_two_changes_to_one_view_exactly_one_wins,
            of_two_changes_to_one_node_exactly_one_wins,
            a_view_and_a_node_change_together_or_not_at_all,
            a_verdict_on_a_node_holds_only_while_the_view_is_unchanged,
            a_watch_reaches_every_index_and_never_goes_back,
            a_blocking_query_answers_within_its_wait,
            a_change_that_no_store_may_take_is_refused_by_field,
            after_an_unknown_outcome_a_read_shows_the_change_whole_or_not_at_all,
        );
    };
    ($rig:path: $($rule:ident,)*) => {
        $(
            #[tokio::test]
            async fn $rule() {
                conformance::$rule(rig().await).await;
            }
        )*
    };
}
pub(crate) use conformance;

pub fn name(text: &str) -> ClusterName {
    ClusterName::parse(text).unwrap()
}

pub fn node_id(text: &str) -> NodeId {
    NodeId::parse(text).unwrap()
}

/// The first View of a ring of three.
pub fn first_view(cluster: ClusterName) -> View {
    let numbers: Vec<_> = [100, 400, 900]
        .into_iter()
        .map(|n| (ManagerNumber(n), ManagerId::parse(&format!("m{n}")).unwrap()))
        .collect();
    View::found(cluster, 1024, 2, 100, &numbers).unwrap()
}

/// A next View that can be told from every other by `mark`.
pub fn next_view(view: &View, mark: u64) -> View {
    let mut next = view.clone();
    next.epoch = view.epoch.next();
    next.managers.get_mut(&ManagerNumber(100)).unwrap().nonce = Nonce(mark);
    next
}

pub fn mark_of(state: &ConfigState) -> u64 {
    state.view.as_ref().unwrap().managers[&ManagerNumber(100)].nonce.0
}

/// The next entry of a node, whether it is there or not.
pub fn next_node(state: &ConfigState, id: &NodeId, node_state: NodeState, mark: u64) -> NodeChange {
    let expect_revision = revision(state, id);
    NodeChange {
        expect_revision,
        drops: Vec::new(),
        to: NodeReg {
            node: id.clone(),
            boot: BootId(mark),
            unproven: None,
            address: "127.0.0.1:9".into(),
            pool: PoolName::default_pool(),
            offers: rota_model::Resources::of_places(8),
            labels: rota_model::Labels::new(),
            classes: vec![ClassName::parse("builtin").unwrap()],
            digests: std::collections::BTreeMap::new(),
            facts: std::collections::BTreeMap::new(),
            sandbox: None,
            renew_ms: 0,
            state: node_state,
            wish: NodeWish::default(),
            revision: expect_revision + 1,
        },
    }
}

pub fn revision(state: &ConfigState, id: &NodeId) -> u64 {
    state.nodes.get(id).map_or(0, |it| it.revision)
}

pub fn only_node(change: NodeChange) -> Change {
    Change { expect_epoch: None, view: None, node: Some(change) }
}

pub fn done(reply: CasReply) -> ConfigState {
    match reply {
        CasReply::Done(state) => state,
        CasReply::Conflict(state) => panic!("conflict at index {}", state.index),
        CasReply::Unknown(error) => panic!("{error}"),
    }
}

fn conflict(reply: CasReply) -> ConfigState {
    match reply {
        CasReply::Conflict(state) => state,
        CasReply::Done(state) => panic!("done at index {}", state.index),
        CasReply::Unknown(error) => panic!("{error}"),
    }
}

/// The reason of a refused change.
pub fn refusal(reply: CasReply) -> String {
    match reply {
        CasReply::Unknown(StoreError::Refused(text)) => text,
        CasReply::Unknown(error) => panic!("{error}"),
        CasReply::Done(state) | CasReply::Conflict(state) => panic!("answered with {state:?}"),
    }
}

async fn found(rig: &impl Rig) -> ConfigState {
    done(rig.client().cas(Change::view(first_view(rig.cluster()))).await)
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it takes too long")
}

pub async fn a_write_is_read_by_every_client(rig: impl Rig) {
    let empty = rig.client().read().await.unwrap();
    assert_eq!((empty.view.clone(), empty.nodes.len()), (None, 0));
    let founded = found(&rig).await;
    assert!(founded.index > empty.index);
    assert_eq!(*founded.view.clone().unwrap(), first_view(rig.cluster()));

    let change = next_node(&founded, &node_id("n \"1\" é"), NodeState::Joining, u64::MAX);
    let with_node = done(rig.client().cas(only_node(change.clone())).await);
    assert!(with_node.index > founded.index);
    assert_eq!(with_node.nodes[&change.to.node], change.to);
    for _ in 0..3 {
        assert_eq!(rig.client().read().await.unwrap(), with_node);
    }
}

/// Several clients propose to the same state at once, many times.
async fn race(rig: impl Rig, propose: impl Fn(&ConfigState, u64) -> Change) {
    let clients: Vec<_> = (0..4).map(|_| rig.client()).collect();
    let mut before = found(&rig).await;
    for round in 0..40 {
        let mut racers = JoinSet::new();
        for (number, client) in (1..).zip(&clients) {
            let (client, change) = (Arc::clone(client), propose(&before, round * 10 + number));
            racers.spawn(async move { (change.clone(), client.cas(change).await) });
        }
        let replies = soon(racers.join_all()).await;
        let now = rig.client().read().await.unwrap();
        let mut winners = 0;
        for (change, reply) in replies {
            let state = match reply {
                CasReply::Done(state) => {
                    winners += 1;
                    assert_eq!(
                        Some(now.clone()),
                        change.apply(&before).map(|it| ConfigState { index: now.index, ..it })
                    );
                    state
                }
                CasReply::Conflict(state) => state,
                CasReply::Unknown(error) => panic!("{error}"),
            };
            assert!(state.index > before.index);
            assert_eq!(change.apply(&state), None, "the state that is answered shows why");
        }
        assert_eq!(winners, 1, "round {round}");
        before = now;
    }
}

pub async fn of_two_changes_to_one_view_exactly_one_wins(rig: impl Rig) {
    race(rig, |state, mark| Change::view(next_view(state.view.as_ref().unwrap(), mark))).await;
}

pub async fn of_two_changes_to_one_node_exactly_one_wins(rig: impl Rig) {
    race(rig, |state, mark| only_node(next_node(state, &node_id("n"), NodeState::Ready, mark)))
        .await;
}

fn both(state: &ConfigState, mark: u64) -> Change {
    let node = next_node(state, &node_id("n"), NodeState::Ready, mark);
    let view = next_view(state.view.as_ref().unwrap(), mark);
    Change { node: Some(node), ..Change::view(view) }
}

pub async fn a_view_and_a_node_change_together_or_not_at_all(rig: impl Rig) {
    let client = rig.client();
    let first = found(&rig).await;
    let state = done(client.cas(both(&first, 1)).await);
    assert_eq!((state.epoch(), revision(&state, &node_id("n"))), (Epoch(2), 1));

    let stale_node = Change { node: both(&first, 2).node, ..both(&state, 2) };
    assert_eq!(conflict(client.cas(stale_node).await), state);
    let stale_view = Change { node: both(&state, 3).node, ..both(&first, 3) };
    assert_eq!(conflict(client.cas(stale_view).await), state);
    assert_eq!(client.read().await.unwrap(), state);

    let watcher = tokio::spawn(watch_pairs(rig.client(), state.clone(), 30));
    let mut state = state;
    for mark in 10..=30 {
        state = done(client.cas(both(&state, mark)).await);
    }
    soon(watcher).await.unwrap();
}

/// Follows until the View's mark is `last`; the node's must be the same all the way.
async fn watch_pairs(client: Arc<dyn ConfigStore>, mut state: ConfigState, last: u64) {
    while mark_of(&state) != last {
        state = client.next(state.index, PATIENCE).await.unwrap();
        assert_eq!(state.nodes[&node_id("n")].boot, BootId(mark_of(&state)));
    }
}

pub async fn a_verdict_on_a_node_holds_only_while_the_view_is_unchanged(rig: impl Rig) {
    let client = rig.client();
    let first = found(&rig).await;
    let ready = next_node(&first, &node_id("n"), NodeState::Ready, 1);
    let ready = done(client.cas(only_node(ready)).await);
    let lost = |state: &ConfigState| Change {
        expect_epoch: Some(state.epoch()),
        view: None,
        node: Some(next_node(state, &node_id("n"), NodeState::Lost, 1)),
    };

    let changed = done(client.cas(Change::view(next_view(&first_view(rig.cluster()), 5))).await);
    assert_eq!(conflict(client.cas(lost(&ready)).await), changed);
    assert_eq!(client.read().await.unwrap().nodes[&node_id("n")].state, NodeState::Ready);

    let judged = done(client.cas(lost(&changed)).await);
    assert_eq!(judged.nodes[&node_id("n")].state, NodeState::Lost);
    assert_eq!((judged.epoch(), judged.view.clone()), (changed.epoch(), changed.view));
    assert!(judged.index > changed.index);
}

pub async fn a_watch_reaches_every_index_and_never_goes_back(rig: impl Rig) {
    let founded = found(&rig).await;
    let mut followers = JoinSet::new();
    let (goal, last_index) = watch::channel(u64::MAX);
    for _ in 0..3 {
        followers.spawn(follow(rig.client(), founded.clone(), last_index.clone()));
    }
    let client = rig.client();
    let mut state = founded;
    let mut written = BTreeMap::new();
    for mark in 1..=60 {
        state = done(client.cas(both(&state, mark)).await);
        written.insert(state.index, state.clone());
    }
    goal.send_replace(state.index);
    // One more change wakes who has seen them all and waits for the goal.
    done(client.cas(both(&state, 99)).await);
    for seen in soon(followers.join_all()).await {
        for (index, state) in seen {
            assert!(written.get(&index).is_none_or(|it| *it == state), "index {index}");
        }
    }
}

async fn follow(
    client: Arc<dyn ConfigStore>,
    from: ConfigState,
    goal: watch::Receiver<u64>,
) -> BTreeMap<u64, ConfigState> {
    let mut seen = BTreeMap::new();
    let mut index = from.index;
    while index < *goal.borrow() {
        let state = client.next(index, PATIENCE).await.unwrap();
        assert!(state.index > index, "{} after {index}", state.index);
        index = state.index;
        seen.insert(index, state);
    }
    seen
}

pub async fn a_blocking_query_answers_within_its_wait(rig: impl Rig) {
    let client = rig.client();
    let state = found(&rig).await;
    // Nothing changes: the same state, when the wait is over.
    assert_eq!(soon(client.next(state.index, Duration::from_millis(30))).await, Ok(state.clone()));
    assert_eq!(soon(client.next(state.index, Duration::ZERO)).await, Ok(state.clone()));
    // Changed already, or gone back: at once, however long the wait.
    assert_eq!(soon(client.next(state.index - 1, PATIENCE * 2)).await, Ok(state.clone()));
    assert_eq!(soon(client.next(state.index + 9, PATIENCE * 2)).await, Ok(state.clone()));
    // Changed while it waits: then, not at the end.
    let waiting = tokio::spawn({
        let (client, index) = (rig.client(), state.index);
        async move { client.next(index, PATIENCE * 2).await }
    });
    let changed = done(client.cas(both(&state, 7)).await);
    assert_eq!(soon(waiting).await.unwrap(), Ok(changed));
}

pub async fn a_change_that_no_store_may_take_is_refused_by_field(rig: impl Rig) {
    let client = rig.client();
    let state = found(&rig).await;
    let good = both(&state, 1);
    let mut far_view = good.clone();
    far_view.view.as_mut().unwrap().epoch = Epoch(9);
    let mut broken_view = good.clone();
    broken_view.view.as_mut().unwrap().m = 0;
    let mut far_node = good.clone();
    far_node.node.as_mut().unwrap().to.revision = 5;
    let nothing = Change { expect_epoch: Some(state.epoch()), view: None, node: None };
    let blind = Change { expect_epoch: None, ..good.clone() };
    for (change, field) in [
        (nothing, "change"),
        (blind, "expect_epoch"),
        (far_view, "view.epoch"),
        (broken_view, "view is refused"),
        (far_node, "node.to.revision"),
    ] {
        let text = refusal(client.cas(change).await);
        assert!(text.contains(field), "{field}: {text}");
    }
    assert_eq!(client.read().await.unwrap(), state);
    done(client.cas(good).await);
}

pub async fn after_an_unknown_outcome_a_read_shows_the_change_whole_or_not_at_all(
    mut rig: impl Rig,
) {
    let mut state = found(&rig).await;
    for round in 0..6 {
        let (progress, mut acknowledged) = watch::channel(state.clone());
        let load = tokio::spawn(write_until_unknown(rig.client(), progress, round * 1_000_000));
        let goal = state.index + 3;
        soon(acknowledged.wait_for(|it| it.index >= goal)).await.expect("the load goes on");
        rig.cut().await;
        let attempted = soon(load).await.unwrap();
        let known = acknowledged.borrow().clone();
        rig.mend().await;
        let now = rig.client().read().await.unwrap();
        let applied = attempted.apply(&known).unwrap();
        assert!(now == known || now == applied, "round {round}: {now:?}");
        state = now;
    }
}

/// Writes on and on; gives the change whose outcome is unknown.
async fn write_until_unknown(
    client: Arc<dyn ConfigStore>,
    progress: watch::Sender<ConfigState>,
    first_mark: u64,
) -> Change {
    let mut mark = first_mark;
    loop {
        mark += 1;
        let change = both(&progress.borrow(), mark);
        match client.cas(change.clone()).await {
            CasReply::Done(state) => {
                progress.send_replace(state);
                // A fake store never waits; let the one who cuts it have a turn.
                tokio::task::yield_now().await;
            }
            CasReply::Conflict(state) => panic!("nobody else writes, yet {state:?}"),
            CasReply::Unknown(_) => return change,
        }
    }
}
