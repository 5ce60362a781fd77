//! Who is silent for too long is suspected; signals from outside shorten the patience.

use crate::log::env::Env;
use crate::membership::state::FailureDetector;
use crate::partition::partitions::Partitions;
use crate::partition::state::Leader;
use rota_messages::Message;
use rota_model::{LogPos, ManagerNumber, ManagerStatus, MemberId};
use rota_ring::View;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

impl FailureDetector {
    /// Who did not share a partition with this manager until now had no reason to say that it is there: its
    /// silence begins now, whatever was heard of it before.
    pub(crate) fn share_with(&mut self, sharing: BTreeSet<ManagerNumber>) {
        self.heard.retain(|number, _| self.sharing.contains(number));
        self.sharing = Arc::new(sharing);
    }
}

/// A number that was reserved and never started gets this many times the usual patience.
const FIRST_START_PATIENCE: u64 = 10;

/// How long a signal from outside counts. Who still sees the peer gone says so again.
const SIGNAL_MS: u64 = 5_000;

/// Of a peer that looks gone to somebody outside, as many heartbeats may be missing: enough that
/// the news of its end does not overtake its last words.
const SIGNAL_HEARTBEATS: u64 = 2;

/// How long an accusation is remembered; each one doubles the accuser's patience.
const ACCUSED_MS: u64 = 60_000;

impl FailureDetector {
    /// Heartbeats to everybody with whom a partition is shared; suspects who is silent.
    pub(crate) fn tick_peers(&mut self, env: &mut Env, parts: &mut Partitions) {
        let Some(view) = env.view.clone() else {
            return;
        };
        let now = env.now.mono_ms;
        let timing = env.config.timing.clone();
        self.accused.retain(|_, (_, at)| now < *at + ACCUSED_MS);
        self.signalled.retain(|_, at| now < *at + SIGNAL_MS);
        // A run that was stopped for a while has heard nobody: that is not their silence.
        let gap = now.saturating_sub(self.ticked_ms);
        if gap > timing.heartbeat_ms * 2 {
            // Who was heard since it goes on was heard now, and not later than that.
            self.heard.values_mut().for_each(|(_, at)| *at = now.min(*at + gap));
            let leaders = parts.awake_mut().filter_map(|part| part.leader_mut());
            leaders.for_each(|leader| leader.lead.on_gap(gap, now));
        }
        self.ticked_ms = now;
        let peers = self.sharing.clone();
        for number in &*peers {
            let Some(member) = view.member(*number) else {
                continue;
            };
            let heard = self.heard.entry(*number).or_insert((member, now));
            if heard.0 != member {
                *heard = (member, now);
            }
            let times = self.accused.get(number).map_or(0, |(times, _)| (*times).min(4));
            let usual = match self.signalled.get(&member) {
                Some(_) => timing.suspect_ms.min(timing.heartbeat_ms * SIGNAL_HEARTBEATS),
                None => timing.suspect_ms,
            };
            let mut patience = usual << times;
            let status = view.managers.get(number).map(|it| it.status);
            if status == Some(ManagerStatus::Joining) {
                patience *= FIRST_START_PATIENCE;
            }
            if now >= heard.1 + patience && view.may_run(member) {
                env.suspect(member);
            }
        }
        if now >= self.beat_ms + timing.heartbeat_ms {
            self.beat_ms = now;
            beat(env, parts, &view, &peers);
        }
    }

    /// A peer looks gone to somebody outside: less of its silence is enough from now on. The tick
    /// judges, because only it knows whether it was this run that slept. Gives whether it counts.
    pub(crate) fn on_signal(&mut self, env: &Env, member: MemberId) -> bool {
        let counts = env.view.as_ref().is_some_and(|view| view.may_run(member));
        if counts {
            self.signalled.insert(member, env.now.mono_ms);
        }
        counts
    }
}

fn beat(env: &mut Env, parts: &Partitions, view: &View, peers: &BTreeSet<ManagerNumber>) {
    let mut committed: BTreeMap<ManagerNumber, Vec<(ManagerNumber, LogPos)>> = BTreeMap::new();
    for part in parts.awake() {
        let Some(Leader { lead, .. }) = part.leader() else { continue };
        for copy in lead.copies.keys().chain(lead.newcomers.learners.keys()) {
            let at = (part.log.number, part.log.replica.committed);
            committed.entry(*copy).or_default().push(at);
        }
    }
    let learners = committed.keys().copied().collect::<BTreeSet<_>>();
    for peer in peers.union(&learners).filter(|it| view.managers.contains_key(it)) {
        let committed = committed.remove(peer).unwrap_or_default();
        env.send(*peer, Message::Heartbeat { committed });
    }
}
