//! The nodes: what they answer, and what they ask for.

use super::Table;
use rota_model::node_msg::{
    ActionEnd, Alive, FromNode, Grant, NodeAnswer, NodeLoad, Register, Renew, Renewed, ScanFate,
    ScanItem, SlotRange, ToNode,
};
use rota_model::{
    ClassDigest, ClassFacts, ClassName, Disturb, LogPos, NodeId, Resources, SessionKey, Token,
};
use rota_protocol::Input;

impl Table {
    /// A node boots with class `builtin`, whose text says that.
    pub fn register_with_facts(&mut self, node: &str, boot: u64, places: u32, facts: ClassFacts) {
        let class = ClassName::parse("builtin").expect("a name");
        self.register_as(node, boot, places, &["builtin".to_owned()], |register| {
            let digests = [(class.clone(), ClassDigest(7))].into();
            Register { facts: [(class, facts)].into(), digests, ..register }
        });
    }

    /// A node renews its lease through a manager. Gives the answer, once there is one.
    pub fn renews(&mut self, n: u32, node: &str) -> Option<Renewed> {
        self.renewed = None;
        let node = NodeId::parse(node).unwrap();
        let boot = self.config.nodes[&node].boot;
        let load = self.load_of(&node);
        self.calls += 1;
        let call = 1_000_000 + self.calls;
        self.input(n, Input::NodeRenew { call, renew: Renew { node, boot, load } });
        self.renewed.take()
    }

    /// The answer to the newest renewal, if it came since.
    pub fn renewed(&mut self) -> Option<Renewed> {
        self.renewed.take()
    }

    /// A node renews. Gives what the manager granted.
    pub fn granted(&mut self, n: u32, node: &str) -> Vec<Grant> {
        match self.renews(n, node) {
            Some(Renewed::Heard { grants, .. }) => grants,
            Some(Renewed::Lost | Renewed::NotServing) | None => Vec::new(),
        }
    }

    /// Whether a manager grants a node anything.
    pub fn grants(&mut self, n: u32, node: &str) -> bool {
        !self.granted(n, node).is_empty()
    }

    /// A node that runs everything, at once.
    pub(super) fn answer_node(&mut self, n: u32, node: &str, message: &ToNode) {
        let answer = match message {
            ToNode::Create { key, slot, token, life, spec, .. } => {
                let address = format!("{node}:{token}");
                let alive = Alive {
                    address: address.clone(),
                    ready: true,
                    ends: None,
                    life: *life,
                    spec: spec.clone(),
                    machine_state: String::new(),
                    machine_change: 0,
                };
                self.live.insert(key.clone(), (node.to_string(), *token, alive));
                let seen = self.seen.entry((node.to_string(), *slot)).or_insert(*token);
                *seen = (*seen).max(*token);
                NodeAnswer::Running { address, ready: true, remark: String::new() }
            }
            ToNode::Destroy { key, .. } => {
                self.live.remove(key);
                NodeAnswer::Destroyed { exit: None, detail: String::new() }
            }
            ToNode::Act { .. } if self.keeps_actions => return,
            ToNode::Act { .. } => {
                NodeAnswer::Acted { end: ActionEnd::Done { output: String::new() } }
            }
            ToNode::Scan { .. } => self.scanned(node, message.head().range),
            ToNode::Meet { .. } => return,
        };
        self.node_says(n, node, message.head().call, answer);
    }

    /// A call that the test kept back is answered as by a node that runs everything.
    pub fn answers(&mut self, n: u32, node: &str, message: &ToNode) {
        self.answer_node(n, node, message);
    }

    /// Everything that a node knows, in one page; it forgets at once what ended.
    fn scanned(&self, node: &str, range: SlotRange) -> NodeAnswer {
        let is_here = |key: &SessionKey| range.contains(rota_ring::slot_of_session(key, 1024));
        let here = self.live.iter().filter(|(key, (at, ..))| at == node && is_here(key));
        let item = |(key, (_, token, alive)): (&SessionKey, &(String, Token, Alive))| ScanItem {
            key: key.clone(),
            token: *token,
            fate: ScanFate::Live(Box::new(alive.clone())),
        };
        let seen = self.seen.iter().filter(|((at, slot), _)| at == node && range.contains(*slot));
        let highest = seen.map(|(_, token)| *token).max().unwrap_or(Token(LogPos::ZERO));
        NodeAnswer::Scanned { items: here.map(item).collect(), more: false, highest }
    }

    pub fn node_says(&mut self, n: u32, node: &str, call: u64, answer: NodeAnswer) {
        let node = NodeId::parse(node).unwrap();
        let (boot, load) = (self.config.nodes[&node].boot, self.load_of(&node));
        self.queue.push_back((n, Input::Node(FromNode { call, node, boot, load, answer })));
    }

    /// What a node says of its load.
    fn load_of(&self, node: &NodeId) -> NodeLoad {
        let reg = &self.config.nodes[node];
        let here = || self.live.values().filter(|(at, ..)| at == node.as_str());
        let taken = here().map(|(_, _, alive)| reg.takes(&alive.spec.class));
        let used = taken.fold(Resources::default(), Resources::plus);
        let ends = |class| reg.facts.get(class).is_some_and(|it| it.disturb == Disturb::Always);
        let kept = here().filter(|(_, _, alive)| !ends(&alive.spec.class)).count();
        let kept = u32::try_from(kept).unwrap_or(u32::MAX);
        NodeLoad { used, offered: Resources::of_places(self.places), kept }
    }
}
