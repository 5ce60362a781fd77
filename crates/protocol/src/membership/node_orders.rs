//! What operators order about nodes: cordon, drain, uncordon, forget.
//!
//! ```text
//!  order ──▶ read the registry consistently ──▶ compare-and-set of the node's entry ──▶ answer
//!                                                      │
//!  owners: nothing more is placed there ◀──────────────┘ ──▶ [`crate::sessions::drain`]: what runs is closed
//! ```
//! The order is done when the registry says so; whoever gave it may go. Every order may be repeated.

use crate::log::env::Env;
use crate::membership::purpose::Purpose;
use crate::membership::state::{Membership, Orders, ViewChanges};
use crate::membership::waiting::{ORDER_MS, WaitingNode};
use crate::nodes::registry::Nodes;
use rota_messages::NodeOrdered;
use rota_model::{FieldError, NodeId, Refusal, RefusalKind, Retry};
use rota_ring::{Change, NodeChange, NodeOrder, NodeOrderRefused, NodeReg};

/// Most attempts to write a node's entry against others who write it at the same time.
const TRIES: u32 = 5;

/// Most names of nodes in a refusal: a status has room for no more.
const NAMED_MAX: usize = 16;

impl Orders {
    /// An operator's order about a node.
    pub(crate) fn on_node_order(
        &mut self,
        env: &mut Env,
        membership: &mut Membership,
        (call, node, order): (u64, NodeId, NodeOrder),
    ) {
        match membership.begin_order(env, self.nodes.len(), "orders about nodes") {
            Ok((read, until_ms)) => {
                let waiting = WaitingNode { call, node, order, until_ms, read, tries: 0 };
                self.nodes.push_back(waiting);
            }
            Err(refusal) => env.answer_node_order(call, Err(refusal)),
        }
    }

    /// A read of the config store has ended: the order that waited for it, if it may be carried out.
    pub(crate) fn on_node_order_read(
        &mut self,
        env: &mut Env,
        read: u64,
        is_there: bool,
    ) -> Option<WaitingNode> {
        let index = self.nodes.iter().position(|it| it.read == read)?;
        let waiting = self.nodes.remove(index)?;
        if is_there {
            return Some(waiting);
        }
        let refusal = env.not_read();
        env.answer_node_order(waiting.call, Err(refusal));
        None
    }
}

impl ViewChanges {
    /// Carries out an order about a node.
    pub(crate) fn order_node(&mut self, env: &mut Env, waiting: WaitingNode) {
        let WaitingNode { call, node, order, tries, .. } = &waiting;
        // Of one that was forgotten nobody hears but who asks for the same again.
        let is_known = |it: &&NodeReg| !it.is_forgotten() || *order == NodeOrder::Forget;
        let reg = env.nodes.reg.get(node).filter(is_known);
        if let Some(refusal) = reg.and_then(|reg| cannot_be_replaced(env, reg, *order)) {
            return env.answer_node_order(*call, Err(refusal));
        }
        let next = match reg {
            Some(reg) => reg.ordered(*order, env.now.wall_ms),
            None => Err(NodeOrderRefused::Unknown(node.clone(), env.nodes.registered())),
        };
        let result = match next {
            Ok(Some(_)) if *tries >= TRIES => {
                let text =
                    format!("the entry of node {node} changes all the time; nothing was changed");
                Err(Refusal::new(RefusalKind::NotServing, env.soon(), text))
            }
            Ok(Some(to)) => {
                let drops = env.drops_with(&to);
                let node = Some(NodeChange { drops, ..NodeChange::to(to.clone()) });
                let change = Change { expect_epoch: None, view: None, node };
                return self.ask(env, Purpose::NodeOrder(Box::new(waiting), Box::new(to)), change);
            }
            Ok(None) => {
                let reg = env.nodes.reg.get(node).cloned();
                Ok(NodeOrdered { reg: reg.expect("its entry was looked at"), changed: false })
            }
            Err(why) => Err(refused(&why)),
        };
        env.answer_node_order(*call, result);
    }

    /// Somebody else changed the entry, and what stands there now is known: it is looked at again.
    pub(crate) fn order_node_again(&mut self, env: &mut Env, waiting: WaitingNode) {
        self.order_node(env, WaitingNode { tries: waiting.tries + 1, ..waiting });
    }
}

/// Why no other node would come for one that is to be replaced.
fn cannot_be_replaced(env: &Env, reg: &NodeReg, order: NodeOrder) -> Option<Refusal> {
    let NodeOrder::Replace(_) = order else { return None };
    if !env.documents_env.knows_spaces {
        let text = "this manager does not know the pools yet; nothing was changed";
        return Some(Refusal::new(RefusalKind::NotServing, env.soon(), text));
    }
    let grows = env.nodes.settings(&reg.pool).is_some_and(|it| it.provisioner.is_some());
    let why = NodeOrderRefused::NoProvisioner(reg.node.clone(), reg.pool.clone());
    (!grows).then(|| refused(&why))
}

fn refused(why: &NodeOrderRefused) -> Refusal {
    let kind = match why {
        NodeOrderRefused::Unknown(..) => RefusalKind::UnknownNode,
        NodeOrderRefused::Gone(..)
        | NodeOrderRefused::There(..)
        | NodeOrderRefused::NoProvisioner(..) => RefusalKind::InvalidArgument,
    };
    let text = why.to_string();
    let fields = vec![FieldError::new("node", text.clone())];
    Refusal { fields, ..Refusal::new(kind, Retry::WhenChanged, text) }
}

impl Nodes {
    /// Nodes that are there, for people.
    fn registered(&self) -> String {
        let there = self.reg.values().filter(|it| !it.state.is_gone());
        let names: Vec<&str> = there.map(|it| it.node.as_str()).collect();
        match names.len() {
            0 => "none".to_owned(),
            count if count > NAMED_MAX => {
                format!("{} and {} more", names[..NAMED_MAX].join(", "), count - NAMED_MAX)
            }
            _ => names.join(", "),
        }
    }
}

impl Orders {
    /// By when each waiting order about a node is answered.
    pub(crate) fn node_order_deadlines(&self) -> impl Iterator<Item = u64> {
        self.nodes.iter().map(|it| it.until_ms)
    }

    /// Orders that waited too long have changed nothing.
    pub(crate) fn expire_node_orders(&mut self, env: &mut Env) {
        let now = env.now.mono_ms;
        while let Some(index) = self.nodes.iter().position(|it| now >= it.until_ms) {
            let Some(waiting) = self.nodes.remove(index) else { return };
            let text = format!("the config store was not read within {ORDER_MS} ms; try again");
            let refusal = Refusal::new(RefusalKind::DeadlineExceeded, env.soon(), text);
            env.answer_node_order(waiting.call, Err(refusal));
        }
    }
}
