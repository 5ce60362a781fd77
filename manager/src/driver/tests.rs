//! One manager with a real disk and a fake config store, from its claim to its end.

use super::*;
use crate::config_link;
use crate::mailbox::{Mailbox, mailbox};
use crate::tasks::TaskWorld;
use rota_membership::{FakeStore, Watcher};
use rota_model::node_msg::{NodeLoad, Register, Renew, Renewed};
use rota_model::{
    BootId, ClassName, ClusterName, GetOp, LeaseTimes, ListCursor, ListOp, LoadLimit, ManagerId,
    ManagerNumber, Namespace, NodeId, NodeState, OpenOp, PoolName, RefusalKind, RequestId,
    SessionId, SessionKey, SessionSpec, SlotId,
};
use rota_protocol::{ManagerConfig, Op, Sizes, Timing};
use rota_ring::{ConfigState, Dropped, NodeReg, RingShape};
use std::path::Path;
use tokio::task::JoinHandle;
use tokio::time::Instant;

const NUMBER: ManagerNumber = ManagerNumber(100);

struct One {
    mailbox: Mailbox,
    seen: watch::Receiver<DriverState>,
    stop: CancellationToken,
    driver: JoinHandle<Ended>,
    _watcher: Arc<Watcher>,
}

fn cluster() -> ClusterName {
    ClusterName::parse("c").unwrap()
}

fn founded() -> FakeStore {
    let numbers = [(NUMBER, ManagerId::parse("a").unwrap())];
    let view = View::found(cluster(), 1024, 2, 10, &numbers).unwrap();
    FakeStore::new(ConfigState { index: 1, view: Some(Arc::new(view)), ..ConfigState::default() })
}

fn config(id: &str) -> ManagerConfig {
    ManagerConfig {
        number: NUMBER,
        id: ManagerId::parse(id).unwrap(),
        ring: RingShape { cluster: cluster(), m: 1024, r: 2 },
        grpc: "127.0.0.1:1".to_owned(),
        http: "127.0.0.1:2".to_owned(),
        load_limit: LoadLimit::of_permille(800).expect("within bounds"),
        timing: Timing::default(),
        sizes: Sizes::default(),
        documents: rota_protocol::DocumentsConfig::default(),
        numbers: None,
        tasks: rota_protocol::TasksConfig::default(),
    }
}

impl One {
    fn start(store: FakeStore, folder: &Path, id: &str) -> Self {
        let store = Arc::new(store);
        let manager_id = ManagerId::parse("a").unwrap();
        let (engine, disk) = {
            let engine = crate::options::EngineOptions::Log;
            crate::disk::open(folder, &cluster(), &manager_id, NUMBER, &engine).unwrap()
        };
        let (mailbox, lanes) = mailbox();
        let metrics = Metrics::new();
        let (bodies, _fetcher) = crate::bodies::of_test(folder, &cluster(), NUMBER);
        let outputs = Outputs {
            peers: PeerLinks::new(
                cluster(),
                mailbox.clone(),
                metrics.peer_late.clone(),
                metrics.copied.clone(),
            ),
            nodes: NodeLinks::new(cluster(), mailbox.clone()),
            disk: DiskWriter::start(engine, &metrics).unwrap(),
            ledger: Ledger::new(bodies.clone(), &disk.docs).0,
            bodies,
            config: ConfigLink::new(store.clone(), mailbox.clone()),
            provisioner: Provisioner::new(rota_provision::Provisioners::default(), mailbox.clone()),
            workers: Workers::new(mailbox.clone()),
            tasks: Tasks::new(TaskWorld::default(), mailbox.clone()).unwrap(),
            events: crate::events::EventLog::new(NUMBER, 0),
            metrics,
        };
        let clock = Clock::start();
        let manager = Manager::new(config(id), disk, 7, clock.now());
        let (driver, seen) = Driver::new(manager, clock, lanes, outputs);
        let stop = CancellationToken::new();
        let driver = tokio::spawn(driver.run(stop.clone()));
        let watcher = Arc::new(Watcher::start(store));
        tokio::spawn(config_link::follow(watcher.clone(), mailbox.clone()));
        Self { mailbox, seen, stop, driver, _watcher: watcher }
    }

    /// Waits for the claim; gives the incarnation.
    async fn claimed(&mut self) -> u64 {
        let claim = self.seen.wait_for(|seen| seen.member.is_some());
        let seen = tokio::time::timeout(PATIENCE, claim).await.expect("in time").unwrap();
        seen.member.expect("it was waited for").incarnation.0
    }

    async fn call(&self, op: Op) -> rota_protocol::OpResult {
        self.mailbox.call(op, Instant::now() + PATIENCE).await
    }

    async fn end(self) -> Option<ClaimRefused> {
        self.stop.cancel();
        let Ended { disk, refused } = self.driver.await.unwrap();
        disk.close(PATIENCE).unwrap();
        refused
    }
}

/// Far above what any step takes; only a failing test waits for it.
const PATIENCE: Duration = Duration::from_secs(20);

fn key() -> SessionKey {
    SessionKey::new(Namespace::default_space(), SessionId::parse("x").unwrap())
}

fn open() -> Op {
    let spec = SessionSpec {
        class: ClassName::parse("builtin").unwrap(),
        pool: PoolName::default_pool(),
        attributes: Arc::default(),
        life: None,
    };
    let request = RequestId::parse("r").unwrap();
    Op::Open(OpenOp { key: key(), spec, pool_named: true, request, remember: true })
}

#[tokio::test]
async fn a_manager_claims_its_number_serves_and_claims_it_again_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let store = founded();
    let mut one = One::start(store.clone(), folder.path(), "a");
    assert_eq!(one.claimed().await, 1);
    let get = Op::Get(GetOp { key: key(), stale_ok: false });
    assert_eq!(one.call(get).await.unwrap_err().kind, RefusalKind::NotFound);
    let from = ListCursor { slot: SlotId(0), after: None };
    let list = Op::List(ListOp { from, limit: 5, filter: Default::default(), stale_ok: false });
    assert!(matches!(one.call(list).await, Ok(rota_protocol::Answer::Listed(_))));
    assert_eq!(one.mailbox.stats().await.unwrap().parts.len(), 1);
    assert_eq!(one.end().await, None);

    let mut again = One::start(store, folder.path(), "a");
    assert_eq!(again.claimed().await, 2);
    assert_eq!(again.end().await, None);
}

#[tokio::test]
async fn a_node_registers_and_renews_and_a_class_that_it_lacks_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut one = One::start(founded(), folder.path(), "a");
    one.claimed().await;
    let node = NodeId::parse("n").unwrap();
    let register = Register {
        node: node.clone(),
        boot: BootId(5),
        ended_boots: Vec::new(),
        address: "127.0.0.1:9".to_owned(),
        pool: PoolName::default_pool(),
        offers: rota_model::Resources::of_places(3),
        labels: rota_model::Labels::new(),
        classes: vec![ClassName::parse("other").unwrap()],
        digests: std::collections::BTreeMap::new(),
        facts: std::collections::BTreeMap::new(),
        sandbox: None,
        state: NodeState::Ready,
        lease: LeaseTimes { renew_ms: 3_000, lease_term_ms: 8_000, lease_kill_ms: 12_000 },
        tombstone_ms: 600_000,
    };
    let registered = one.mailbox.register(register).await.unwrap();
    assert_eq!(registered.m, 1024);
    // Clients are told where it is as soon as the decisions know it, whatever the watch says.
    assert_eq!(one.seen.borrow().nodes[&node].address, "127.0.0.1:9");
    let load = NodeLoad::of_places(0, 3);
    let renew = Renew { node, boot: BootId(5), load };
    let renewed = one.mailbox.renew(renew).await.unwrap();
    assert!(matches!(renewed, Renewed::Heard { .. }), "{renewed:?}");
    assert_eq!(one.call(open()).await.unwrap_err().kind, RefusalKind::UnknownClass);
    assert_eq!(one.end().await, None);
}

#[tokio::test]
async fn nodes_that_the_decisions_do_not_take_are_shown_to_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let mut one = One::start(founded(), folder.path(), "a");
    one.claimed().await;
    let node = |address: &str| NodeReg {
        node: NodeId::parse("n").unwrap(),
        boot: BootId(5),
        unproven: None,
        address: address.to_owned(),
        pool: PoolName::default_pool(),
        offers: rota_model::Resources::of_places(3),
        labels: rota_model::Labels::new(),
        classes: Vec::new(),
        digests: std::collections::BTreeMap::new(),
        facts: std::collections::BTreeMap::new(),
        sandbox: None,
        renew_ms: 0,
        state: NodeState::Ready,
        wish: rota_ring::NodeWish::Serves,
        revision: 1,
    };
    let with = |index, view: Option<Arc<View>>, address: &str| {
        let node = node(address);
        Input::Config(ConfigState {
            index,
            view,
            nodes: [(node.node.clone(), node)].into(),
            dropped: Dropped::default(),
        })
    };
    let shown = |one: &One| {
        one.seen.borrow().nodes.values().map(|it| it.address.clone()).collect::<Vec<_>>()
    };
    let numbers = [(NUMBER, ManagerId::parse("a").unwrap())];
    let other = View::found(ClusterName::parse("d").unwrap(), 1024, 2, 10, &numbers).unwrap();
    one.mailbox.input(with(1_000, Some(Arc::new(other)), "another:1")).await.unwrap();
    // An answer to a later call tells that the decisions have looked at it.
    one.mailbox.stats().await.unwrap();
    assert_eq!(shown(&one), Vec::<String>::new());
    let view = one.seen.borrow().view.clone();
    one.mailbox.input(with(1_001, view.clone(), "newer:1")).await.unwrap();
    one.mailbox.input(with(1_000, view, "older:1")).await.unwrap();
    one.seen.wait_for(|it| !it.nodes.is_empty()).await.unwrap();
    one.mailbox.stats().await.unwrap();
    assert_eq!(shown(&one), ["newer:1"]);
    assert_eq!(one.end().await, None);
}

#[tokio::test]
async fn a_number_that_belongs_to_another_manager_ends_the_driver_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let one = One::start(founded(), folder.path(), "b");
    let ended = tokio::time::timeout(PATIENCE, one.driver).await.expect("in time").unwrap();
    assert!(matches!(ended.refused, Some(ClaimRefused::Taken { .. })), "{:?}", ended.refused);
    ended.disk.close(PATIENCE).unwrap();
}

#[tokio::test]
async fn while_the_config_store_is_away_nothing_is_claimed_and_calls_end_at_their_deadline() {
    let folder = tempfile::tempdir().unwrap();
    let store = founded();
    store.set_outage(rota_membership::Outage::Away);
    let mut one = One::start(store.clone(), folder.path(), "a");
    let soon = Instant::now() + Duration::from_millis(100);
    let refused = one.mailbox.call(open(), soon).await.unwrap_err();
    assert_eq!(refused.kind, RefusalKind::DeadlineExceeded);
    assert!(one.seen.borrow().member.is_none());
    store.set_outage(rota_membership::Outage::None);
    assert_eq!(one.claimed().await, 1);
    assert_eq!(one.end().await, None);
}
