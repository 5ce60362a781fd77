//! A crowd at one owner: many opens in one batch, at a node that never answers, all of which expire
//! in one tick. Its cost must grow with their number, not with its square:
//!
//! ```text
//! cargo build --release -p rota-protocol --example crowd
//! valgrind --tool=callgrind target/release/examples/crowd 2000
//! valgrind --tool=callgrind target/release/examples/crowd 16000
//! ```

use rota_model::node_msg::{Register, ToNode};
use rota_model::{
    BootId, ClassName, ClusterName, LeaseTimes, LoadLimit, ManagerId, ManagerNumber, Namespace,
    NodeId, NodeState, Now, OpenOp, PoolName, RequestId, SessionId, SessionKey, SessionSpec,
};
use rota_protocol::{
    CasOutcome, Disk, DiskWrite, EffectHandler, Envelope, Input, Manager, ManagerConfig, Op, Reply,
    Sizes, Timing,
};
use rota_ring::{Change, ConfigState, Dropped, RingShape, View};
use std::collections::{BTreeMap, VecDeque};
use std::error::Error;
use std::sync::Arc;

const WALL_MS: u64 = 1_800_000_000_000;

struct Crowd {
    manager: Manager,
    config: ConfigState,
    now_ms: u64,
    replies: usize,
    queue: VecDeque<Input>,
}

impl Crowd {
    fn now(&self) -> Now {
        Now { mono_ms: self.now_ms, wall_ms: WALL_MS + self.now_ms }
    }

    /// Gives inputs in one batch, then everything that follows from them.
    fn give(&mut self, inputs: impl IntoIterator<Item = Input>) {
        self.queue.extend(inputs);
        while !self.queue.is_empty() {
            for input in std::mem::take(&mut self.queue) {
                self.manager.handle(self.now(), input);
            }
            for effect in self.manager.flush(self.now()) {
                self.carry_out(effect);
            }
        }
    }
}

/// Nobody hears what it sends.
impl EffectHandler for Crowd {
    fn persist(&mut self, lsn: u64, _: Vec<DiskWrite>) {
        self.queue.push_back(Input::Persisted { lsn });
    }

    fn send(&mut self, _: String, _: Envelope) {}

    fn send_to_node(&mut self, _: NodeId, _: String, _: ToNode) {}

    fn reply(&mut self, _: u64, reply: Reply) {
        self.replies += usize::from(matches!(reply, Reply::Request(_)));
    }

    fn read_config(&mut self, read: u64) {
        let state = Some(self.config.clone());
        self.queue.push_back(Input::ConfigRead { read, state });
    }

    fn compare_and_set(&mut self, cas: u64, change: Box<Change>) {
        let outcome = match change.apply(&self.config) {
            Some(state) => {
                self.config = state.clone();
                CasOutcome::Done(state)
            }
            None => CasOutcome::Conflict(self.config.clone()),
        };
        self.queue.push_back(Input::CasDone { cas, outcome });
    }
}

fn config(id: &ManagerId, ring: RingShape) -> ManagerConfig {
    ManagerConfig {
        number: ManagerNumber(0),
        id: id.clone(),
        ring,
        grpc: "m:1".into(),
        http: String::new(),
        load_limit: LoadLimit::of_permille(1_000).expect("within bounds"),
        timing: Timing::default(),
        sizes: Sizes::default(),
        documents: rota_protocol::DocumentsConfig::default(),
        numbers: None,
        tasks: rota_protocol::TasksConfig::default(),
    }
}

fn open(index: u64) -> Result<Op, Box<dyn Error>> {
    let id = SessionId::parse(&format!("s{index}"))?;
    Ok(Op::Open(OpenOp {
        pool_named: true,
        key: SessionKey::new(Namespace::default_space(), id),
        spec: SessionSpec {
            class: ClassName::parse("builtin")?,
            pool: PoolName::default_pool(),
            attributes: Arc::default(),
            life: None,
        },
        request: RequestId::parse("r")?,
        remember: true,
    }))
}

fn main() -> Result<(), Box<dyn Error>> {
    let count: u64 = std::env::args().nth(1).unwrap_or_else(|| "16000".into()).parse()?;
    let id = ManagerId::parse("m")?;
    let numbers = [(ManagerNumber(0), id.clone())];
    let view = View::found(ClusterName::parse("c")?, 1024, 0, 1, &numbers)
        .map_err(|mistakes| format!("{mistakes:?}"))?;
    let ring = view.shape();
    let config_state = ConfigState {
        index: 1,
        view: Some(Arc::new(view)),
        nodes: BTreeMap::new(),
        dropped: Dropped::default(),
    };
    let start = Now { mono_ms: 1_000, wall_ms: WALL_MS };
    let manager = Manager::new(config(&id, ring), Disk::default(), 77 << 16, start);
    let queue = VecDeque::new();
    let mut crowd = Crowd { manager, config: config_state, now_ms: 1_000, replies: 0, queue };
    crowd.give([Input::Config(crowd.config.clone()), Input::Tick]);
    let register = Register {
        node: NodeId::parse("n")?,
        boot: BootId(1),
        ended_boots: Vec::new(),
        address: "n:1".into(),
        pool: PoolName::default_pool(),
        offers: rota_model::Resources::of_places(u32::MAX),
        labels: rota_model::Labels::new(),
        classes: vec![ClassName::parse("builtin")?],
        digests: std::collections::BTreeMap::new(),
        facts: std::collections::BTreeMap::new(),
        sandbox: None,
        state: NodeState::Ready,
        lease: LeaseTimes { renew_ms: 3_000, lease_term_ms: 8_000, lease_kill_ms: 12_000 },
        tombstone_ms: 600_000,
    };
    crowd.give([Input::NodeRegister { call: 0, register }]);
    let deadline_mono_ms = crowd.now_ms + 500;
    let opens: Result<Vec<Op>, _> = (0..count).map(open).collect();
    let opens = opens?.into_iter().zip(1..);
    let inputs: Vec<Input> =
        opens.map(|(op, call)| Input::Client { call, deadline_mono_ms, op }).collect();
    crowd.give(inputs);
    crowd.now_ms += 480;
    crowd.give([Input::Tick]);
    crowd.now_ms += 100;
    crowd.give([Input::Tick]);
    println!("{} of {count} opens were told that they are late", crowd.replies);
    Ok(())
}
