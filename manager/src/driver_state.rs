//! What everybody may see of the driver.

use rota_membership::Trouble;
use rota_model::{ClassName, MemberId, NodeId};
use rota_protocol::stable_numbers::Told;
use rota_ring::{NodeReg, View};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What everybody may see of the driver's state, replaced as a whole.
#[derive(Clone, Debug, Default)]
pub struct DriverState {
    /// The View that the decisions go by.
    pub view: Option<Arc<View>>,
    /// The member that this process is, from its claim on and while it counts as Up.
    pub member: Option<MemberId>,
    /// The number has left the ring: the process is to end.
    pub left: bool,
    /// The nodes that the decisions know. The config store's watch may be ahead of them or behind, and
    /// may show what they refuse.
    pub nodes: Arc<BTreeMap<NodeId, NodeReg>>,
    /// Classes whose sessions are opened by whoever is on the way to them.
    pub on_demand: Arc<BTreeSet<ClassName>>,
    /// The stable numbers that the decisions know.
    pub numbers: Arc<Told>,
    /// The stable numbers of sessions that this manager assigns.
    pub session_numbers: Arc<Told>,
    /// The config store answers, and the decisions do not follow what it shows.
    pub refused: Option<Trouble>,
}
