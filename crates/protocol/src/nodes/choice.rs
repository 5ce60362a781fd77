//! The choice of a node for a session.

use crate::nodes::registry::Nodes;
use rota_model::{
    BootId, ClassFacts, ClassName, LoadLimit, Needs, NodeId, NodeLoad, NodeState, PoolName,
    PoolSettings, Resources, SessionSpec,
};
use rota_placement::Candidate;

/// A chosen node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Chosen {
    pub node: NodeId,
    pub boot: BootId,
}

/// Why no node was chosen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum NoNode {
    /// Nodes of the pool run, and none offers the class.
    UnknownClass,
    /// Every node of the pool that could take it is full, or the pool has none.
    NoRoom(NoRoom),
    /// Some node has room, and takes nothing for the moment.
    Unable,
    /// No node of the pool could take such a session if it were empty, and no new one will.
    Unfit(Unfit),
}

/// Nodes of a pool in which a session finds no room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NoRoom {
    /// Nodes of the pool that are not gone.
    pub nodes: u32,
    /// How many of them take nothing because operators want it so.
    pub cordoned: u32,
    /// How many of the others lack labels, or could not take it if they were empty.
    pub unfit: u32,
    /// A node that is started would take it.
    pub new_fits: bool,
}

/// No node of a pool could take a session, also if it were empty.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Unfit {
    /// What it needs.
    pub needs: Needs,
    /// Of each amount the most that a node with the labels has; `None`: no node has them.
    pub offers: Option<Resources>,
    /// A node that is gone could take it if it came back.
    pub may_return: bool,
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
    /// How many lack labels, or could not take it if they were empty, and are not cordoned.
    unfit: u32,
    /// Of each amount the most that a node with the labels has.
    offers: Option<Resources>,
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
            let (load, takes) = (self.load(reg), reg.takes(&spec.class));
            let has_labels = reg.fits(&spec.class);
            if has_labels {
                seen.offers = Some(seen.offers.unwrap_or_default().most(load.offered));
            }
            if !(has_labels && is_large_enough(load.offered, limit, takes)) {
                seen.unfit += u32::from(reg.wish.is_none());
                return None;
            }
            seen.fits = true;
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
        match rota_placement::choose((policy, limit), refused.len(), candidates) {
            Some(reg) => Ok(Chosen { node: reg.node.clone(), boot: reg.boot }),
            None => Err(self.why_none(spec, limit, &seen)),
        }
    }

    fn why_none(&self, spec: &SessionSpec, limit: LoadLimit, seen: &Seen) -> NoNode {
        let &Seen { nodes, cordoned, offering, unfit, offers, fits, unable } = seen;
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
            has_labels && is_large_enough(offered, limit, needs.takes())
        });
        let is_empty = nodes == 0 && grows.is_none();
        if fits || new_fits || is_empty {
            return NoNode::NoRoom(NoRoom { nodes, cordoned, unfit, new_fits });
        }
        let new = new.filter(|(_, has_labels)| *has_labels).map(|(offered, _)| offered);
        let offers = offers.into_iter().chain(new).reduce(Resources::most);
        let may_return = self.reg.values().any(|reg| {
            let could = reg.state.is_gone() && reg.pool == spec.pool && !reg.is_forgotten();
            could && needs.fits(&reg.labels) && is_large_enough(reg.offers, limit, needs.takes())
        });
        NoNode::Unfit(Unfit { needs, offers, may_return })
    }

    /// What a class needs by the text that counts in a pool; where none is kept there, by what a node says.
    pub fn needs(&self, pool: &PoolName, class: &ClassName) -> Needs {
        self.facts(pool, class).map(|it| it.needs.clone()).unwrap_or_default()
    }

    /// What the text of a class says that counts in a pool, or that of a node.
    pub fn facts<'a>(&'a self, pool: &'a PoolName, class: &ClassName) -> Option<&'a ClassFacts> {
        let kept = self.pools.get(pool).and_then(|it| it.texts.get(class)).map(|it| &it.facts);
        let told = || self.of_pool(pool).find_map(|it| it.facts.get(class));
        kept.or_else(told)
    }

    /// What the text of a class says of a session that runs on a node: the text that the node has or had, since it ran
    /// by that; else the text that counts in its pool.
    pub fn facts_there(
        &self,
        node: &NodeId,
        pool: &PoolName,
        class: &ClassName,
    ) -> Option<&ClassFacts> {
        let there = self.reg.get(node).filter(|it| it.classes.contains(class));
        match there {
            Some(reg) => reg.facts.get(class),
            None => self.pools.get(pool)?.texts.get(class).map(|it| &it.facts),
        }
    }

    /// Whether a text of a class is known by which a session on a node may run.
    pub fn knows_class(&self, node: &NodeId, pool: &PoolName, class: &ClassName) -> bool {
        let there = self.reg.get(node).is_some_and(|it| it.classes.contains(class));
        there || self.pools.get(pool).is_some_and(|it| it.texts.contains_key(class))
    }

    /// What a new node of a pool has: as the pool says. Where that says nothing of CPU or memory, as the least of
    /// the nodes that the pool ordered; as long as there is none, these are not counted.
    pub fn offers_of_new(&self, pool: &PoolName, settings: &PoolSettings) -> Resources {
        let ordered = format!("{pool}-");
        let ordered = self.of_pool(pool).filter(|it| it.node.as_str().starts_with(&ordered));
        let least = ordered.map(|it| it.offers).reduce(Resources::least).unwrap_or_default();
        let said = |said: u32, least: u32| if said > 0 { said } else { least };
        Resources {
            places: settings.places,
            cpu_millis: said(settings.cpu_millis, least.cpu_millis),
            memory_mib: said(settings.memory_mib, least.memory_mib),
        }
    }
}

/// Whether a node that has so much takes such a session while it is empty.
fn is_large_enough(offered: Resources, limit: LoadLimit, takes: Resources) -> bool {
    NodeLoad { used: Resources::default(), offered, kept: 0 }.has_room(limit, takes)
}
