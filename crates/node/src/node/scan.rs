//! Scans: what lives and what is dead in a range of slots, page by page.

use super::{LiveSession, Node};
use rota_model::SessionKey;
use rota_model::node_msg::{NodeAnswer, ScanFate, ScanItem, SlotRange};

/// Most entries in a page, whatever the caller asks for (one session's tokens are never split, so
/// that a page can hold a few more).
pub const SCAN_PAGE_MAX: u32 = 1_000;

impl Node {
    /// Sessions that live in a range of slots, after one of them, at most so many; and whether more
    /// follow.
    pub fn live_page(
        &self,
        range: SlotRange,
        after: Option<&SessionKey>,
        limit: u32,
    ) -> (Vec<LiveSession<'_>>, bool) {
        let limit = limit.clamp(1, SCAN_PAGE_MAX) as usize;
        let mut live = self.live.after(after).filter(|(_, it)| range.contains(it.slot));
        let page = live.by_ref().take(limit).map(|(key, it)| LiveSession::of(key, it)).collect();
        (page, live.next().is_some())
    }

    /// Those of these sessions that live here.
    pub fn live_of(&self, keys: &[SessionKey]) -> Vec<LiveSession<'_>> {
        let live = keys.iter().filter_map(|key| self.live.entry(key));
        live.map(|(key, it)| LiveSession::of(key, it)).collect()
    }

    /// A page after the session `after`.
    pub(super) fn page(
        &self,
        range: SlotRange,
        after: Option<&SessionKey>,
        limit: u32,
    ) -> NodeAnswer {
        let limit = limit.clamp(1, SCAN_PAGE_MAX) as usize;
        let live = self.live.after(after).filter(|(_, it)| range.contains(it.slot));
        let dead = self.dead.after(after).filter(|(_, _, it)| range.contains(it.slot));
        let (mut live, mut dead) = (live.peekable(), dead.peekable());
        let mut items: Vec<ScanItem> = Vec::new();
        loop {
            let keys = [live.peek().map(|it| it.0), dead.peek().map(|it| it.0)];
            let Some(key) = keys.into_iter().flatten().min() else {
                return NodeAnswer::Scanned { items, more: false };
            };
            // The next page starts after a key, so all tokens of a key stand in one page.
            if items.len() >= limit {
                return NodeAnswer::Scanned { items, more: true };
            }
            while let Some((key, token, dead)) = dead.next_if(|it| it.0 == key) {
                let fate = ScanFate::Dead(dead.why.clone());
                items.push(ScanItem { key: key.clone(), token, fate });
            }
            if let Some((key, live)) = live.next_if(|it| it.0 == key) {
                let fate = ScanFate::Live { address: live.address.clone(), ready: live.ready };
                items.push(ScanItem { key: key.clone(), token: live.token, fate });
            }
        }
    }
}
