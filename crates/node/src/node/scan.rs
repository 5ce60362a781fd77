//! Scans: what lives and what is dead in a range of slots, page by page.

use super::Node;
use rota_model::SessionKey;
use rota_model::node_msg::{NodeAnswer, ScanFate, ScanItem, SlotRange};

/// Most entries in a page, whatever the caller asks for (one session's tokens are never split, so
/// that a page can hold a few more).
pub const SCAN_PAGE_MAX: u32 = 1_000;

impl Node {
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
