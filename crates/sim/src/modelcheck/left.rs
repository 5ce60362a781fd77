//! How often something may still happen in one search, by who does it or suffers it.

/// How often each kind of thing may still happen. Everything else (messages that arrive, watches that
/// show news, a manager that starts again) happens as often as it can.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Left {
    /// What clients do.
    pub clients: OfClients,
    /// What becomes of messages.
    pub network: OfNetwork,
    /// What managers suffer.
    pub managers: OfManagers,
    /// What the config store does to those that use it.
    pub store: OfStore,
    /// How clocks go on.
    pub clocks: OfClocks,
    /// What operators order.
    pub operators: OfOperators,
    /// What nodes, and what runs there, suffer.
    pub nodes: OfNodes,
}

/// What clients do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct OfClients {
    /// Opens by clients.
    pub opens: u8,
    /// Closes by clients.
    pub closes: u8,
    /// Reads by clients.
    pub gets: u8,
    /// Requests that are asked again, under their name, of another manager.
    pub repeats: u8,
}

/// What becomes of messages.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct OfNetwork {
    /// Messages that are lost.
    pub losses: u8,
    /// Messages that arrive and stay under way: they may arrive again.
    pub copies: u8,
    /// Calls to nodes that wait for a connection and are thrown away, since the port refuses: their manager is
    /// told. What arrived once was sent, so this comes before any copy.
    pub refusals: u8,
}

/// What managers suffer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct OfManagers {
    /// Managers' processes that die.
    pub crashes: u8,
    /// Such deaths that take the disk along.
    pub wipes: u8,
    /// Managers that start again.
    pub starts: u8,
    /// A manager is taken for gone that runs.
    pub suspicions: u8,
}

/// What the config store does to those that use it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct OfStore {
    /// A manager hears that the outcome of its compare-and-set is unknown; it may be written later.
    pub unknowns: u8,
    /// A compare-and-set is done, and its manager hears of that later.
    pub unheard: u8,
    /// The config store is away: it shows nothing, does not answer reads, and writes nothing of what is
    /// asked meanwhile. It comes back at any later time.
    pub outages: u8,
}

/// How clocks go on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct OfClocks {
    /// The clocks of all go on by one step when nothing is under way.
    pub ticks: u8,
    /// One process is a step ahead of the others' clocks, whatever is under way.
    pub early: u8,
}

/// What operators order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct OfOperators {
    /// Numbers that join, in the order of [`super::bounds::Bounds::newcomers`].
    pub joins: u8,
    /// Numbers that an operator orders to leave.
    pub leaves: u8,
    /// Joins and leaves that an operator takes back.
    pub cancels: u8,
    /// Nodes of which an operator orders that they become empty, and that nothing more is placed there.
    pub drains: u8,
}

/// What nodes, and what runs there, suffer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct OfNodes {
    /// Node-agents that die with what they run, and boot anew.
    pub boots: u8,
    /// Programs that end by themselves.
    pub ends: u8,
    /// Node-agents that go silent while their programs run on.
    pub silences: u8,
    /// Silent node-agents that are heard again; the others stay silent for good.
    pub returns: u8,
    /// Agents of nodes that die alone, the next one going on.
    pub resumes: u8,
}

impl Left {
    /// Nothing may happen.
    pub const NOTHING: Self = Self {
        clients: OfClients { opens: 0, closes: 0, gets: 0, repeats: 0 },
        network: OfNetwork { losses: 0, copies: 0, refusals: 0 },
        managers: OfManagers { crashes: 0, wipes: 0, starts: 0, suspicions: 0 },
        store: OfStore { unknowns: 0, unheard: 0, outages: 0 },
        clocks: OfClocks { ticks: 0, early: 0 },
        operators: OfOperators { joins: 0, leaves: 0, cancels: 0, drains: 0 },
        nodes: OfNodes { boots: 0, ends: 0, silences: 0, returns: 0, resumes: 0 },
    };
}

/// Defines how a search says how often something may happen: `NOTHING.opens(1).crashes(1)`.
macro_rules! how_often {
    ($($group:ident: $($kind:ident)*;)*) => {
        impl Left {
            $($(
                #[doc = concat!("The same with so many [`", stringify!($kind), "`](Self::", stringify!($group), ").")]
                #[must_use]
                pub const fn $kind(mut self, count: u8) -> Self {
                    self.$group.$kind = count;
                    self
                }
            )*)*
        }
    };
}

how_often! {
    clients: opens closes gets repeats;
    network: losses copies refusals;
    managers: crashes wipes starts suspicions;
    store: unknowns unheard outages;
    clocks: ticks early;
    operators: joins leaves cancels drains;
    nodes: boots ends silences returns resumes;
}
