//! The committed sessions of a copy, counted, and those that are on their way by name: whoever takes over a
//! partition from copies, and each change of the registry, looks at these first, and at every document only
//! where a boot is over.

use rota_messages::DocKey;
use rota_messages::documents::Brief;
use rota_model::{BootId, NodeId, SessionState};
use std::collections::{BTreeMap, BTreeSet};

/// What a copy's committed sessions come to.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct SessionCounts {
    by_state: BTreeMap<SessionState, u64>,
    by_boot: BTreeMap<NodeId, BTreeMap<BootId, u64>>,
    under_way: BTreeSet<DocKey>,
    /// Lost ones that are to be opened again.
    reopening: BTreeSet<DocKey>,
    /// Those that live, and end by themselves, when nobody uses them or after a time, or have life cycles.
    timed: BTreeSet<DocKey>,
    /// Those of them that have ended, and are not forgotten.
    timed_ended: BTreeSet<DocKey>,
}

impl SessionCounts {
    /// A session was written, or has gone.
    pub fn change(&mut self, key: &DocKey, before: Option<&Brief>, after: Option<&Brief>) {
        let [was, is] = [before, after].map(|it| it.map(|brief| brief.state));
        if was != is {
            self.count_states(key, was, is);
        }
        match [before, after].map(|it| it.is_some_and(is_reopening)) {
            [false, true] => drop(self.reopening.insert(key.clone())),
            [true, false] => drop(self.reopening.remove(key)),
            [true, true] | [false, false] => {}
        }
        for (ended, all) in [(false, &mut self.timed), (true, &mut self.timed_ended)] {
            let is_one = |it: &Brief| it.is_timed && it.state.is_ended() == ended;
            match [before, after].map(|it| it.is_some_and(is_one)) {
                [false, true] => drop(all.insert(key.clone())),
                [true, false] => drop(all.remove(key)),
                [true, true] | [false, false] => {}
            }
        }
        let [from, to] = [before, after].map(|it| it.and_then(Brief::runs_at));
        // Most writes move nothing from boot to boot.
        if from != to {
            self.count_boots(from, to);
        }
    }

    fn count_states(&mut self, key: &DocKey, was: Option<SessionState>, is: Option<SessionState>) {
        if let Some(state) = is {
            *self.by_state.entry(state).or_default() += 1;
        }
        if let Some(state) = was {
            one_less(&mut self.by_state, &state);
        }
        match [was, is].map(|it| it.is_some_and(is_under_way)) {
            [false, true] => drop(self.under_way.insert(key.clone())),
            [true, false] => drop(self.under_way.remove(key)),
            [true, true] | [false, false] => {}
        }
    }

    fn count_boots(&mut self, from: Option<&(NodeId, BootId)>, to: Option<&(NodeId, BootId)>) {
        if let Some((node, boot)) = to {
            match self.by_boot.get_mut(node) {
                Some(boots) => *boots.entry(*boot).or_default() += 1,
                None => drop(self.by_boot.insert(node.clone(), BTreeMap::from([(*boot, 1)]))),
            }
        }
        if let Some((node, boot)) = from
            && let Some(boots) = self.by_boot.get_mut(node)
        {
            one_less(boots, boot);
            if boots.is_empty() {
                self.by_boot.remove(node);
            }
        }
    }

    /// How many are in each state.
    pub fn by_state(&self) -> &BTreeMap<SessionState, u64> {
        &self.by_state
    }

    /// How many that have not ended run on each node, or are to run there.
    pub fn by_node(&self) -> BTreeMap<NodeId, u64> {
        let sum = |boots: &BTreeMap<BootId, u64>| boots.values().sum();
        self.by_boot.iter().map(|(node, boots)| (node.clone(), sum(boots))).collect()
    }

    /// Whether any that has not ended runs on a node, or is to run there.
    pub fn is_on(&self, node: &NodeId) -> bool {
        self.by_boot.contains_key(node)
    }

    /// The boots where any that has not ended runs, or is to run.
    pub fn boots(&self) -> impl Iterator<Item = (&NodeId, BootId)> {
        self.by_boot.iter().flat_map(|(node, boots)| boots.keys().map(move |boot| (node, *boot)))
    }

    /// Those of which a node is still to answer, in order.
    pub fn under_way(&self) -> impl Iterator<Item = &DocKey> {
        self.under_way.iter()
    }

    /// Those that live, and end by themselves or have life cycles, in order.
    pub fn timed(&self) -> impl Iterator<Item = &DocKey> {
        self.timed.iter()
    }

    /// Those of that kind that have ended and are not forgotten, in order.
    pub fn timed_ended(&self) -> impl Iterator<Item = &DocKey> {
        self.timed_ended.iter()
    }

    /// Lost ones that are to be opened again, in order.
    pub fn reopening(&self) -> impl Iterator<Item = &DocKey> {
        self.reopening.iter()
    }
}

/// Whether a lost session is to be opened again.
pub fn is_reopening(brief: &Brief) -> bool {
    brief.state.is_reopened(brief.reason)
}

/// Whether a node is still to answer.
pub fn is_under_way(state: SessionState) -> bool {
    use SessionState::{Closing, Pending, Starting};
    matches!(state, Pending | Starting | Closing)
}

fn one_less<K: Ord>(counts: &mut BTreeMap<K, u64>, of: &K) {
    if let Some(count) = counts.get_mut(of) {
        *count = count.saturating_sub(1);
        if *count == 0 {
            counts.remove(of);
        }
    }
}
