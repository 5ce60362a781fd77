//! Scans: what lives and what is dead in a range of slots, page by page.

use super::{LiveSession, Node};
use crate::dead::DeadTokens;
use crate::live::LiveSessions;
use rota_model::node_msg::{NodeAnswer, ScanFate, ScanItem, SlotRange};
use rota_model::{LogPos, SessionKey, Token};

/// Most entries in a page, whatever the caller asks for (one session's tokens are never split, so
/// that a page can hold a few more).
pub const SCAN_PAGE_MAX: u32 = 1_000;

/// About as many bytes are in a page at most: what lives is told with its attributes.
const SCAN_PAGE_BYTES: usize = 512 * 1024;

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
}

/// What a manager is told that may have lost its record of a range of slots.
pub(super) struct Scan<'a> {
    pub(super) live: &'a LiveSessions,
    pub(super) dead: &'a DeadTokens,
    pub(super) range: SlotRange,
}

impl Scan<'_> {
    /// A page after the session `after`.
    pub(super) fn page(&self, after: Option<&SessionKey>, limit: u32) -> NodeAnswer {
        let range = self.range;
        let limit = limit.clamp(1, SCAN_PAGE_MAX) as usize;
        let live = self.live.after(after).filter(|(_, it)| range.contains(it.slot));
        let dead = self.dead.after(after).filter(|(_, _, it)| range.contains(it.slot));
        let (mut live, mut dead) = (live.peekable(), dead.peekable());
        let mut items: Vec<ScanItem> = Vec::new();
        let mut bytes = 0;
        loop {
            let keys = [live.peek().map(|it| it.0), dead.peek().map(|it| it.0)];
            let Some(key) = keys.into_iter().flatten().min() else {
                let highest = self.highest();
                return NodeAnswer::Scanned { items, more: false, highest };
            };
            // The next page starts after a key, so all tokens of a key stand in one page.
            if items.len() >= limit || bytes >= SCAN_PAGE_BYTES {
                return NodeAnswer::Scanned { items, more: true, highest: Token(LogPos::ZERO) };
            }
            while let Some((key, token, dead)) = dead.next_if(|it| it.0 == key) {
                bytes += dead.why.detail().len();
                let fate = ScanFate::Dead(dead.why.clone());
                items.push(ScanItem { key: key.clone(), token, fate });
            }
            if let Some((key, live)) = live.next_if(|it| it.0 == key) {
                let alive = live.shown();
                bytes += alive.bytes();
                let fate = ScanFate::Live(Box::new(alive));
                items.push(ScanItem { key: key.clone(), token: live.token, fate });
            }
        }
    }

    /// The highest token of these slots that this boot has seen, even if nothing else of it is known
    /// any more.
    fn highest(&self) -> Token {
        let range = self.range;
        let live = self.live.after(None).filter(|(_, it)| range.contains(it.slot));
        let live = live.map(|(_, it)| it.token).max();
        live.max(self.dead.highest_in(range)).unwrap_or(Token(LogPos::ZERO))
    }
}
