//! Going on where an earlier agent of the same boot stopped, and what the next one must know.

use super::Node;
use crate::config::NodeConfig;
use crate::dead::DeadTokens;
use crate::fences::Fences;
use crate::io::{Adopted, NodeEffect};
use crate::journal::{Change, Entry, NotResumed};
use crate::lease::{Lease, SlotLease};
use crate::live::{Live, Stage};
use crate::slot_runs::SlotRuns;
use rota_model::node_msg::ReportEvent;
use rota_model::{SessionKey, Token};
use std::collections::BTreeMap;

/// So much later than its time a start may be found to have come in time: the node had no agent meanwhile.
const ADOPTED_MS: u64 = 60_000;

impl Node {
    /// What changed since the last flush, for the next agent.
    pub(super) fn journal(&mut self) -> Vec<Entry> {
        let mut changes = Vec::new();
        if self.fences.take_moved() {
            changes.extend(Change::fences(&self.fences));
        }
        for key in self.live.take_changed() {
            changes.push(match self.live.get(&key) {
                Some(live) => Change::Live { key, live: Box::new(live.without_waiters()) },
                None => Change::Gone { key },
            });
        }
        changes.extend(self.dead.take_changes().into_iter().map(Change::Dead));
        for key in self.outbox.take_changed() {
            let news = self.outbox.news_of(&key);
            changes.push(Change::News { key, news });
        }
        if std::mem::take(&mut self.lost_moved) {
            changes.push(Change::Lost);
        }
        changes.into_iter().map(Entry).collect()
    }

    /// Everything that the next agent must know: a journal that begins anew begins with this.
    pub fn remembered(&self) -> Vec<Entry> {
        let (boot, ended) = (self.config.boot, self.config.ended_boots.clone());
        let mut changes = vec![Change::Boot { boot, ended }];
        changes.extend(Change::fences(&self.fences));
        let live = self.live.after(None).map(|(key, live)| Change::Live {
            key: key.clone(),
            live: Box::new(live.without_waiters()),
        });
        changes.extend(live);
        changes.extend(self.dead.all().map(Change::Dead));
        let news = self
            .outbox
            .keys()
            .map(|key| Change::News { key: key.clone(), news: self.outbox.news_of(key) });
        changes.extend(news);
        changes.extend(self.lease.is_lost().then_some(Change::Lost));
        changes.into_iter().map(Entry).collect()
    }

    /// A node that goes on with the boot of a journal: nobody can tell it from the agent that wrote it, but for
    /// calls that nobody answered. `config` names that boot. `leases` is what keepers were told last. Gives
    /// [`NodeEffect::Adopt`] for everything that lived, and [`NodeEffect::Stop`] for what was being ended.
    ///
    /// # Errors
    /// The boot cannot go on.
    pub fn resumed(
        config: NodeConfig,
        journal: impl IntoIterator<Item = Entry>,
        leases: &[SlotLease],
    ) -> Result<Self, NotResumed> {
        let told = Told::of(journal.into_iter().map(|it| it.0))?;
        let mut node = Self::new(config);
        node.lease = Lease::resumed(told.fences.slots(), leases, &node.config.timing);
        let has_lease = |live: &Live| node.lease.deadlines_of(live.slot, &node.config.timing);
        if told.live.values().any(|it| has_lease(it).is_none()) {
            return Err(NotResumed::NoLease);
        }
        node.fences = Fences::resumed(told.fences);
        node.dead = told.dead;
        for (key, (token, events)) in told.news {
            events.into_iter().for_each(|event| node.outbox.push(&key, token, event));
        }
        for (key, mut live) in told.live {
            live.resumed = true;
            // No keeper starts anything for an agent that is gone; what one did start in time goes on.
            if let Stage::Starting { not_after_ms } = &mut live.stage {
                *not_after_ms = not_after_ms.saturating_add(ADOPTED_MS);
            }
            node.adopt(&key, &live);
            node.live.add(&key, live);
        }
        // It is written down already.
        drop((node.live.take_changed(), node.outbox.take_changed()));
        Ok(node)
    }

    fn adopt(&mut self, key: &SessionKey, live: &Live) {
        let adopted = Box::new(Adopted {
            life: live.life,
            slot: live.slot,
            spec: live.spec.clone(),
            ready: live.ready,
            machine: live.machine.clone().map(|it| (it.state, it.change)),
        });
        let (key, token) = (key.clone(), live.token);
        self.effects.push(NodeEffect::Adopt { key: key.clone(), token, adopted });
        if let Stage::Stopping { how, .. } = live.stage {
            self.effects.push(NodeEffect::Stop { key, token, how });
        }
    }
}

/// What a journal leads to.
struct Told {
    fences: SlotRuns<rota_model::Epoch>,
    live: BTreeMap<SessionKey, Live>,
    dead: DeadTokens,
    news: BTreeMap<SessionKey, (Token, Vec<ReportEvent>)>,
}

impl Told {
    fn of(changes: impl Iterator<Item = Change>) -> Result<Self, NotResumed> {
        let mut changes = changes.peekable();
        if !matches!(changes.peek(), Some(Change::Boot { .. })) {
            return Err(NotResumed::NoBoot);
        }
        let (mut live, mut news, mut dead) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        let mut fences = None;
        for change in changes {
            match change {
                Change::Boot { .. } => {}
                Change::Fences { m, runs } => {
                    let mut all = SlotRuns::new(m);
                    for (range, pe) in runs {
                        all.raise(range, pe);
                    }
                    fences = Some(all);
                }
                Change::Live { key, live: now } => drop(live.insert(key, *now)),
                Change::Gone { key } => drop(live.remove(&key)),
                Change::Dead(change) => dead.push(change),
                Change::News { key, news: Some(now) } => drop(news.insert(key, now)),
                Change::News { key, news: None } => drop(news.remove(&key)),
                Change::Lost => return Err(NotResumed::Lost),
            }
        }
        let fences = fences.ok_or(NotResumed::NeverRegistered)?;
        Ok(Self { fences, live, dead: DeadTokens::of(dead), news })
    }
}
