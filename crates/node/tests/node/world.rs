//! A node with a clock, and short ways to talk to it.

use rota_model::node_msg::{
    DeadToken, FromNode, Grant, NodeAnswer, NodeCall, Registered, Renewed, ReportEvent, ScanItem,
    SlotRange, ToNode, ToldLimit,
};
use rota_model::*;
use rota_node::{
    Entry, Node, NodeBounds, NodeConfig, NodeEffect, NodeInput, NodeTiming, NotResumed, ReportId,
    StopHow,
};
use std::collections::BTreeMap;
use std::sync::Arc;

pub const BOOT: BootId = BootId(77);
pub const M: u32 = 16;

pub struct World {
    pub node: Node,
    pub now: u64,
    pub calls: u64,
    /// T that renewals tell.
    pub load_limit: ToldLimit,
    /// What managers say of its end.
    pub retires: bool,
    /// What the node wrote down so far.
    pub journal: Vec<Entry>,
}

pub fn key(id: &str) -> SessionKey {
    SessionKey::new(Namespace::default_space(), SessionId::parse(id).expect("a valid id"))
}

pub fn token(pe: u64, seq: u64) -> Token {
    Token(LogPos::new(Epoch(pe), Seq(seq)))
}

pub fn range(first: u32, last: u32) -> SlotRange {
    SlotRange { first: SlotId(first), last: SlotId(last) }
}

/// Sessions of the tests lie in slots 0 to 3, by their first letter.
pub fn slot(key: &SessionKey) -> SlotId {
    SlotId(u32::from(key.id.as_str().as_bytes()[0]) % 4)
}

pub fn spec(class: &str) -> SessionSpec {
    SessionSpec {
        class: ClassName::parse(class).expect("a valid name"),
        pool: PoolName::default_pool(),
        attributes: Arc::default(),
        life: None,
    }
}

pub fn config() -> NodeConfig {
    NodeConfig {
        ended_boots: Vec::new(),
        node: NodeId::parse("n0").expect("a valid id"),
        boot: BOOT,
        offers: Resources::of_places(10),
        labels: Labels::new(),
        load_limit: LoadLimit::FULL,
        classes: BTreeMap::from([(spec("builtin").class, ClassDigest(1).into())]),
        timing: NodeTiming::default(),
        bounds: NodeBounds::default(),
    }
}

pub fn registered(pe: u64) -> Registered {
    Registered {
        epoch: Epoch(pe),
        m: M,
        fences: vec![(range(4, 3), Epoch(pe))],
        managers: vec![(ManagerNumber(3), "a:1".into()), (ManagerNumber(9), "b:1".into())],
    }
}

pub fn never(answer: &NodeAnswer) -> bool {
    matches!(answer, NodeAnswer::Dead(DeadToken::NeverStarted { .. }))
}

impl World {
    /// A node that registered at time 1,000 with all fences at epoch 1.
    pub fn registered() -> Self {
        Self::with(config())
    }

    pub fn with(config: NodeConfig) -> Self {
        let mut world = Self::unregistered(config);
        let sent_mono_ms = world.now;
        world.give(NodeInput::Registered { sent_mono_ms, registered: registered(1) });
        world
    }

    pub fn unregistered(config: NodeConfig) -> Self {
        assert_eq!(config.mistakes(), vec![]);
        let node = Node::new(config);
        let journal = node.remembered();
        Self { node, now: 1_000, calls: 0, load_limit: ToldLimit::Nothing, retires: false, journal }
    }

    pub fn give(&mut self, input: NodeInput) -> Vec<NodeEffect> {
        self.node.handle(self.now, input);
        self.flush()
    }

    /// What is to be done once that is written down which comes first.
    fn flush(&mut self) -> Vec<NodeEffect> {
        let mut effects = self.node.flush();
        if let Some(NodeEffect::Journal { entries }) = effects.first_mut() {
            self.journal.append(entries);
            effects.remove(0);
        }
        let journals = effects.iter().filter(|it| matches!(it, NodeEffect::Journal { .. }));
        assert_eq!(journals.count(), 0, "it is written down before anything else is done");
        effects
    }

    /// The node that the next agent would be.
    pub fn next_agent(&self) -> Result<Node, NotResumed> {
        let leases = self.node.lease_deadlines();
        Node::resumed(self.node.config().clone(), self.journal.clone(), &leases)
    }

    /// Its agent dies, and the next one goes on.
    pub fn resume(&mut self) -> Result<Vec<NodeEffect>, NotResumed> {
        self.node = self.next_agent()?;
        Ok(self.flush())
    }

    /// Time passes, with a tick whenever the node wants one. Renewals are granted if `renewed`.
    pub fn pass(&mut self, ms: u64, renewed: bool) -> Vec<NodeEffect> {
        let until = self.now + ms;
        let mut all = Vec::new();
        while let Some(at) = self.node.wake_at().filter(|it| *it <= until) {
            self.now = self.now.max(at);
            let effects = self.give(NodeInput::Tick);
            if renewed && effects.iter().any(|it| matches!(it, NodeEffect::Renew { .. })) {
                all.extend(self.grant(self.now));
            }
            all.extend(effects);
        }
        self.now = until;
        all.extend(self.give(NodeInput::Tick));
        all
    }

    pub fn grant(&mut self, sent_mono_ms: u64) -> Vec<NodeEffect> {
        self.grant_to(sent_mono_ms, &[(range(4, 3), 1)])
    }

    /// The owners of these ranges grant what was sent at that time, under these epochs.
    pub fn grant_to(&mut self, sent_mono_ms: u64, ranges: &[(SlotRange, u64)]) -> Vec<NodeEffect> {
        let grants = ranges.iter().map(|(range, pe)| Grant { range: *range, pe: Epoch(*pe) });
        let renewed = Renewed::Heard {
            epoch: Epoch(1),
            managers: vec![],
            load_limit: self.load_limit,
            grants: grants.collect(),
            more: false,
            retires: self.retires,
        };
        self.give(NodeInput::Renewed { boot: BOOT, sent_mono_ms, renewed })
    }

    pub fn head(&mut self, pe: u64) -> NodeCall {
        self.calls += 1;
        NodeCall { call: self.calls, boot: BOOT, pe: Epoch(pe), range: range(0, 3) }
    }

    pub fn create_message(&mut self, id: &str, token: Token, pe: u64) -> ToNode {
        let (head, key) = (self.head(pe), key(id));
        let (slot, spec) = (slot(&key), spec("builtin"));
        let life = rota_model::Stamp::MIN;
        ToNode::Create { head, key, slot, token, life, deadline_ms: 5_000, spec, request: None }
    }

    pub fn destroy_message(&mut self, id: &str, token: Token, pe: u64) -> ToNode {
        let (head, key) = (self.head(pe), key(id));
        let slot = slot(&key);
        ToNode::Destroy { head, key, slot, token, grace_ms: None, request: None }
    }

    pub fn call(&mut self, message: ToNode) -> Vec<NodeEffect> {
        self.give(NodeInput::Call { stream: 5, message })
    }

    pub fn create(&mut self, id: &str, token: Token) -> Vec<NodeEffect> {
        let message = self.create_message(id, token, 1);
        self.call(message)
    }

    pub fn create_of(&mut self, id: &str, token: Token, class: &str) -> Vec<NodeEffect> {
        let mut message = self.create_message(id, token, 1);
        if let ToNode::Create { spec: asked, .. } = &mut message {
            *asked = spec(class);
        }
        self.call(message)
    }

    pub fn destroy(&mut self, id: &str, token: Token) -> Vec<NodeEffect> {
        let message = self.destroy_message(id, token, 1);
        self.call(message)
    }

    pub fn started(&mut self, id: &str, token: Token, ready: bool) -> Vec<NodeEffect> {
        let address = format!("127.0.0.1/{id}");
        self.give(NodeInput::Started {
            key: key(id),
            token,
            address,
            ready,
            remark: format!("said of {id}"),
        })
    }

    pub fn stopped(&mut self, id: &str, token: Token) -> Vec<NodeEffect> {
        self.give(NodeInput::Stopped {
            key: key(id),
            token,
            exit: Some(Exit::Signal(15)),
            detail: String::new(),
        })
    }

    pub fn ended(&mut self, id: &str, token: Token) -> Vec<NodeEffect> {
        self.give(NodeInput::Ended {
            key: key(id),
            token,
            reason: Reason::Exited,
            exit: Some(Exit::Code(3)),
            detail: String::new(),
        })
    }

    /// A session that runs and answers.
    pub fn run(&mut self, id: &str, token: Token) {
        self.create(id, token);
        let effects = self.started(id, token, true);
        assert_eq!(answers(&effects).len(), 1, "{effects:?}");
    }

    pub fn scan(&mut self, pe: u64, after: Option<&str>, limit: u32) -> (Vec<ScanItem>, bool) {
        let (head, after) = (self.head(pe), after.map(key));
        let effects = self.call(ToNode::Scan { head, after, limit });
        match &answers(&effects)[..] {
            [NodeAnswer::Scanned { items, more, .. }] => (items.clone(), *more),
            other => panic!("{other:?}"),
        }
    }

    /// The highest token that a scan tells of.
    pub fn highest(&mut self) -> Token {
        let head = self.head(1);
        let effects = self.call(ToNode::Scan { head, after: None, limit: 10 });
        match &answers(&effects)[..] {
            [NodeAnswer::Scanned { highest, more: false, .. }] => *highest,
            other => panic!("{other:?}"),
        }
    }

    pub fn live(&self) -> Vec<String> {
        self.node.live().map(|it| it.key.id.to_string()).collect()
    }
}

pub fn answers(effects: &[NodeEffect]) -> Vec<NodeAnswer> {
    full_answers(effects).into_iter().map(|it| it.answer).collect()
}

pub fn full_answers(effects: &[NodeEffect]) -> Vec<FromNode> {
    let mut answers = Vec::new();
    for effect in effects {
        if let NodeEffect::Answer { answer, .. } = effect {
            answers.push(answer.clone());
        }
    }
    answers
}

/// The only answer.
pub fn answer(effects: &[NodeEffect]) -> NodeAnswer {
    let all = answers(effects);
    assert_eq!(all.len(), 1, "{effects:?}");
    all[0].clone()
}

pub fn starts(effects: &[NodeEffect]) -> usize {
    effects.iter().filter(|it| matches!(it, NodeEffect::Start { .. })).count()
}

pub fn stops(effects: &[NodeEffect]) -> Vec<(String, StopHow)> {
    let mut stops = Vec::new();
    for effect in effects {
        if let NodeEffect::Stop { key, how, .. } = effect {
            stops.push((key.id.to_string(), *how));
        }
    }
    stops
}

pub fn reports(effects: &[NodeEffect]) -> Vec<(ReportId, String, ReportEvent)> {
    let mut reports = Vec::new();
    for effect in effects {
        if let NodeEffect::Report { id, item, .. } = effect {
            reports.push((*id, item.key.id.to_string(), item.event.clone()));
        }
    }
    reports
}
