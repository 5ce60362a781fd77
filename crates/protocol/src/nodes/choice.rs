//! The choice of a node for a session.

use crate::nodes::registry::Nodes;
use rota_model::{
    BootId, ClassName, LoadLimit, Needs, NodeId, NodeLoad, NodeState, PoolName, PoolSettings,
    Resources, SessionSpec,
};
use rota_placement::Candidate;
use rota_ring::NodeReg;

/// A chosen node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Chosen {
    pub node: NodeId,
    pub boot: BootId,
}

/// Why no node was chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoNode {
    /// Nodes of the pool run, and none offers the class.
    UnknownClass,
    /// Every node of the pool is full, or the pool has none.
    NoRoom {
        /// Nodes of the pool that are not gone.
        nodes: u32,
        /// How many of them take nothing because operators want it so.
        cordoned: u32,
    },
    /// Some node has room, and takes nothing for the moment.
    Unable,
    /// No node of the pool could take such a session if it were empty, and no new one will.
    Unfit(Unfit),
}

/// Why no node of a pool could take a session, also if it were empty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unfit {
    /// None has the labels that the class needs.
    Labels,
    /// The class needs more than the largest one has: what it takes, and what that one offers.
    Size { takes: Resources, offers: Resources },
}

/// What was seen of the nodes of a pool while one was looked for.
#[derive(Default)]
struct Seen {
    /// Nodes that are not gone.
    nodes: u32,
    /// Of these, how many take nothing because operators want it so.
    cordoned: u32,
    /// How many have the class.
    offering: u32,
    /// The largest one of those with the labels that the class needs, and what a session takes there.
    largest: Option<(Resources, Resources)>,
    /// Some node with the class and its labels would take it if it were empty.
    fits: bool,
    /// How many have room, and take nothing for the moment.
    unable: u32,
}

impl Nodes {
    /// The node for a session: READY, of its pool, with its class, with room, as the pool's policy says. One
    /// that is out of reach, or leaves calls unanswered, only when there is no other.
    pub fn choose(
        &self,
        spec: &SessionSpec,
        refused: &[NodeId],
        now_ms: u64,
    ) -> Result<Chosen, NoNode> {
        let limit = self.limit(&spec.pool);
        let policy = self.settings(&spec.pool).map(|it| it.policy).unwrap_or_default();
        let mut seen = Seen::default();
        let candidates = self.of_pool(&spec.pool).filter_map(|reg| {
            seen.nodes += 1;
            seen.cordoned += u32::from(!reg.wish.is_none());
            if !reg.classes.contains(&spec.class) {
                return None;
            }
            seen.offering += 1;
            if !reg.fits(&spec.class) {
                return None;
            }
            let (load, takes) = (self.load(reg), reg.takes(&spec.class));
            seen.largest = seen.largest.max(Some((reg.offers(), takes)));
            seen.fits |= NodeLoad { used: Resources::default(), ..load }.has_room(limit, takes);
            let is_open = reg.state == NodeState::Ready && !refused.contains(&reg.node);
            if !(is_open && load.has_room(limit, takes)) {
                return None;
            }
            if self.is_unable(&reg.node, now_ms) {
                seen.unable += 1;
                return None;
            }
            let is_doubtful =
                self.is_avoided(&reg.node, now_ms) || self.is_unreachable(&reg.node, now_ms);
            Some(Candidate { node: reg, load, takes, is_doubtful })
        });
        match rota_placement::choose(policy, limit, candidates) {
            Some(reg) => Ok(Chosen { node: reg.node.clone(), boot: reg.boot }),
            None => Err(self.why_none(spec, limit, &seen)),
        }
    }

    fn why_none(&self, spec: &SessionSpec, limit: LoadLimit, seen: &Seen) -> NoNode {
        let &Seen { nodes, cordoned, offering, largest, fits, unable } = seen;
        if nodes > 0 && offering == 0 {
            return NoNode::UnknownClass;
        }
        if unable > 0 {
            return NoNode::Unable;
        }
        let grows = self.settings(&spec.pool).filter(|it| it.provisioner.is_some());
        let needs = self.needs(&spec.pool, &spec.class);
        let new = grows.map(|it| (self.offers_of_new(&spec.pool, it), needs.fits(&it.labels)));
        let new_fits = new.is_some_and(|(offered, has_labels)| {
            has_labels && NodeLoad { offered, ..NodeLoad::default() }.has_room(limit, needs.takes())
        });
        let is_empty = nodes == 0 && grows.is_none();
        if fits || new_fits || is_empty {
            return NoNode::NoRoom { nodes, cordoned };
        }
        let new = new.filter(|(_, has_labels)| *has_labels).map(|(it, _)| (it, needs.takes()));
        NoNode::Unfit(match largest.max(new) {
            Some((offers, takes)) => Unfit::Size { takes, offers },
            None => Unfit::Labels,
        })
    }

    /// What a class needs by the text that counts in a pool; where none is kept there, by what a node says.
    pub fn needs(&self, pool: &PoolName, class: &ClassName) -> Needs {
        let kept = self.pools.get(pool).and_then(|it| it.texts.get(class)).map(|it| &it.facts);
        let told = || self.of_pool(pool).find_map(|it| it.facts.get(class));
        kept.or_else(told).map(|it| it.needs.clone()).unwrap_or_default()
    }

    /// What a new node of a pool has: places as the pool says, and CPU and memory as the largest that is there.
    pub fn offers_of_new(&self, pool: &PoolName, settings: &PoolSettings) -> Resources {
        let largest =
            self.of_pool(pool).map(NodeReg::offers).fold(Resources::default(), |largest, it| {
                Resources {
                    places: 0,
                    cpu_millis: largest.cpu_millis.max(it.cpu_millis),
                    memory_mib: largest.memory_mib.max(it.memory_mib),
                }
            });
        Resources { places: settings.places, ..largest }
    }
}
