//! Watches of the whole ring with a filter: exactly what passes it, through any manager, and on
//! from a position.

use rota_client::{Client, Watch, WatchOptions, v1};
use rota_tests::sessions::{CALL, listed, open, opened};
use rota_tests::{Cluster, PATIENCE, TestFolder, eventually};
use std::collections::{BTreeMap, BTreeSet};
use tokio::time::timeout;
use v1::SessionState;

/// A session in a state: namespace, id, state.
type Shown = (String, String, SessionState);

const CLASSES: [&str; 2] = ["counter", "builtin"];
const NAMESPACES: [&str; 2] = ["default", "other"];

/// The sessions of a phase: three of each class in each namespace, by names that no other phase
/// has. The first of each three is closed again.
fn sessions_of(phase: &str) -> Vec<(v1::OpenRequest, bool)> {
    let mut sessions = Vec::new();
    for class in CLASSES {
        for namespace in NAMESPACES {
            for number in 0..3 {
                let id = format!("{phase} {class} {number}");
                let namespace = namespace.to_owned();
                sessions.push((v1::OpenRequest { namespace, ..open(&id, class) }, number == 0));
            }
        }
    }
    sessions
}

/// Opens them, closes those that are to be, and waits until all of that is committed: a READY is
/// told before it is.
async fn play(client: &Client, phase: &str) {
    let sessions = sessions_of(phase);
    for (request, closed) in &sessions {
        client.open(request.clone(), CALL).await.unwrap();
        if *closed {
            close(client, &request.namespace, &request.id).await;
        }
    }
    eventually("every open session is READY", PATIENCE, async || {
        let ready = v1::Filter { states: vec![SessionState::Ready.into()], ..Default::default() };
        let there = listed(client, ready).await;
        let there = there.iter().filter(|it| it.id.starts_with(phase)).count();
        let wanted = sessions.iter().filter(|(_, closed)| !closed).count();
        if there == wanted { Ok(()) } else { Err(format!("{there} of {wanted}")) }
    })
    .await;
}

async fn close(client: &Client, namespace: &str, id: &str) {
    let (namespace, id) = (namespace.to_owned(), id.to_owned());
    let request = v1::CloseRequest { namespace, id, ..Default::default() };
    assert!(client.close(request, CALL).await.unwrap().finished);
}

fn passes(filter: &v1::Filter, namespace: &str, class: &str, state: SessionState) -> bool {
    (filter.states.is_empty() || filter.states.contains(&state.into()))
        && (filter.class.is_empty() || filter.class == class)
        && (filter.namespace.is_empty() || filter.namespace == namespace)
}

/// What a watch must show of a phase: all that the sessions became (`changes`), or only what they
/// are now.
fn expected(filter: &v1::Filter, phase: &str, changes: bool) -> BTreeSet<Shown> {
    let mut expected = BTreeSet::new();
    for (request, closed) in sessions_of(phase) {
        let mut add = |state| {
            if passes(filter, &request.namespace, &request.class, state) {
                expected.insert((request.namespace.clone(), request.id.clone(), state));
            }
        };
        if closed {
            add(SessionState::Closed);
        }
        if changes || !closed {
            add(SessionState::Ready);
        }
    }
    expected
}

/// Opens and closes sessions that pass every filter of these tests, until each partition has one.
/// Whoever has seen these has seen everything before them. Gives (owner, id) of one for each.
async fn markers(client: &Client, name: &str) -> BTreeSet<(u32, String)> {
    let (mut owners, mut markers) = (BTreeSet::new(), BTreeSet::new());
    for number in 0..100 {
        let id = format!("{name} {number}");
        let request = v1::OpenRequest { namespace: "other".to_owned(), ..open(&id, "counter") };
        let session = client.open(request, CALL).await.unwrap().session.unwrap();
        close(client, "other", &id).await;
        if owners.insert(session.owner) {
            markers.insert((session.owner, id));
        }
        if owners.len() == 3 {
            return markers;
        }
    }
    panic!("a hundred sessions belong to {owners:?}");
}

/// Filters that let the markers through, in the state in which they let them through.
fn filters() -> Vec<(v1::Filter, SessionState)> {
    let (ready, closed) = (SessionState::Ready, SessionState::Closed);
    let (class, namespace) = ("counter".to_owned(), "other".to_owned());
    let of = |states: &[SessionState]| states.iter().map(|it| (*it).into()).collect();
    vec![
        (v1::Filter { states: of(&[ready]), ..Default::default() }, ready),
        (v1::Filter { class: class.clone(), ..Default::default() }, closed),
        (v1::Filter { namespace: namespace.clone(), ..Default::default() }, closed),
        (
            v1::Filter { states: of(&[ready, closed]), class: class.clone(), ..Default::default() },
            closed,
        ),
        (v1::Filter { states: of(&[closed]), class, namespace, ..Default::default() }, closed),
    ]
}

/// A watch with its filter, which fails when anything comes that does not pass.
struct Filtered {
    watch: Watch,
    filter: v1::Filter,
    last: SessionState,
}

impl Filtered {
    fn start(client: &Client, (filter, last): (v1::Filter, SessionState), position: &[u8]) -> Self {
        let request = v1::WatchRequest {
            filter: Some(filter.clone()),
            position: position.to_vec().into(),
            ..Default::default()
        };
        Self { watch: client.watch(request, WatchOptions::default()), filter, last }
    }

    async fn next(&mut self) -> v1::WatchResponse {
        let answer = timeout(PATIENCE, self.watch.next()).await.expect("the watch goes on");
        let answer = answer.unwrap_or_else(|error| panic!("{error:?}"));
        if let Some(it) = &answer.session {
            let passed = passes(&self.filter, &it.namespace, &it.class, it.state());
            assert!(passed, "{:?} let {it:?} through", self.filter);
        }
        answer
    }

    /// The first snapshot.
    async fn snapshot(&mut self) -> BTreeSet<Shown> {
        let mut seen = BTreeSet::new();
        loop {
            let answer = self.next().await;
            if let Some(it) = answer.session {
                let state = it.state();
                seen.insert((it.namespace, it.id, state));
            }
            if answer.caught_up {
                return seen;
            }
        }
    }

    /// What the sessions of a phase became READY or CLOSED, up to the markers.
    async fn changes(&mut self, phase: &str, markers: &BTreeSet<(u32, String)>) -> BTreeSet<Shown> {
        let (mut seen, mut missing) = (BTreeSet::new(), markers.clone());
        while !missing.is_empty() {
            let answer = self.next().await;
            assert!(!answer.snapshot, "the position is new enough: {answer:?}");
            let Some(it) = answer.session else { continue };
            let state = it.state();
            if state == self.last {
                missing.remove(&(it.owner, it.id.clone()));
            }
            let told = [SessionState::Ready, SessionState::Closed].contains(&state);
            if told && it.id.starts_with(phase) {
                seen.insert((it.namespace, it.id, state));
            }
        }
        seen
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ring_wide_watch_shows_exactly_what_passes_its_filter_and_goes_on_from_its_position() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let (client, managers) = (cluster.client(), cluster.clients());
    play(&client, "before").await;
    let mut watches = Vec::new();
    for manager in &managers {
        for filter in filters() {
            let mut watch = Filtered::start(manager, filter, b"");
            let seen = watch.snapshot().await;
            assert_eq!(seen, expected(&watch.filter, "before", false), "{:?}", watch.filter);
            watches.push(watch);
        }
    }
    play(&client, "meanwhile").await;
    let first = markers(&client, "first marker").await;
    let mut positions = Vec::new();
    for watch in &mut watches {
        let seen = watch.changes("meanwhile", &first).await;
        assert_eq!(seen, expected(&watch.filter, "meanwhile", true), "{:?}", watch.filter);
        positions.push(watch.watch.position().to_vec());
    }
    drop(watches);
    play(&client, "unseen").await;
    let second = markers(&client, "second marker").await;
    // Each goes on through another manager than the one that it began with.
    let all =
        managers.iter().cycle().skip(1).flat_map(|it| filters().into_iter().map(move |f| (it, f)));
    for (position, (manager, filter)) in positions.iter().zip(all) {
        let mut watch = Filtered::start(manager, filter, position);
        let seen = watch.changes("unseen", &second).await;
        assert_eq!(seen, expected(&watch.filter, "unseen", true), "{:?}", watch.filter);
    }
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_of_one_node_shows_what_runs_there_and_nothing_else() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &["--nodes", "2", "--places", "5"]).await;
    let client = cluster.client();
    let mut by_node: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for number in 0..8 {
        let session = opened(&client, &format!("s{number}"), "counter").await;
        by_node.entry(session.node_id).or_default().insert(session.id);
    }
    assert_eq!(by_node.len(), 2, "one node takes four of them: {by_node:?}");
    for (node_id, ids) in by_node {
        let filter = v1::Filter { node_id, ..Default::default() };
        let request = v1::WatchRequest { filter: Some(filter), ..Default::default() };
        let mut watch = client.watch(request, WatchOptions::default());
        let mut seen = BTreeSet::new();
        loop {
            let answer = timeout(PATIENCE, watch.next()).await.expect("it goes on").unwrap();
            seen.extend(answer.session.map(|it| it.id));
            if answer.caught_up {
                break;
            }
        }
        assert_eq!(seen, ids);
    }
    cluster.end().await;
}
