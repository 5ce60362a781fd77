//! How much a manager keeps and sends at a time, in one place, and the rules between the sizes.

use rota_model::{FieldError, PAGE_SIZE_MAX, REQUESTS_REMEMBERED_MAX};

/// Most requests that wait at one partition's owner. 64 callers per client and some hundred
/// clients fit; beyond it callers are told to come back. What they hold together is bounded by
/// [`Sizes::request_bytes`].
pub(crate) const REQUESTS_MAX: usize = 20_000;

/// Sizes. What is counted here is bounded for the sake of memory and of messages; none of it
/// changes what is answered. The simulator draws small ones, so that every limit is met.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sizes {
    /// Most committed entries kept for Watch and Sync. A watcher or copy further behind gets a
    /// snapshot. At 1,000 changes a second in one partition 4,096 are 4 seconds; an entry keeps
    /// about 1 KB of an older record alive.
    pub window_entries: usize,
    /// Bytes of committed entries after which the window ends sooner: large attributes must not
    /// take more memory than the documents themselves.
    pub window_bytes: usize,
    /// Most entries that wait for their commit before new work is refused: as many as requests
    /// may wait at a partition, each of which writes one before it waits.
    pub tail_entries: usize,
    /// Most bytes of such entries: what a link of 1 Gbit/s carries in half a second.
    pub tail_bytes: usize,
    /// Bytes that are about to go to the disk together, after which one manager begins nothing more and
    /// takes no further input: they are committed at once, and an engine takes 256 MiB. What the
    /// last input comes to is on top: an operation, or what a commit or a change of the View lets go of.
    pub batch_bytes: usize,
    /// Most bytes of requests that wait at one manager for its clients, and at one partition's owner;
    /// beyond it callers are told to come back. As many opens with the largest attributes as a
    /// thousand clients send with four callers each.
    pub request_bytes: usize,
    /// Most bytes of the records of sessions in all copies at one manager, those of ended lives included; beyond
    /// it opens of new lives are told to come back. A million usual ones.
    pub session_bytes: u64,
    /// Bytes after which a Prepare, a chunk of a snapshot, a piece of a Sync or a page takes no
    /// further document. One document, or one operation, may be larger by itself.
    pub message_bytes: usize,
    /// Most entries in one Prepare.
    pub prepare_entries: usize,
    /// Most entries that were sent to one copy and are not acknowledged.
    pub flight_entries: usize,
    /// Bytes of such entries after which no more are sent. The outbox towards one manager holds
    /// 48 MiB; it shares at most r + 1 partitions with an owner, and each puts this and the chunks
    /// of a snapshot into it.
    pub flight_bytes: usize,
    /// Most documents in one chunk of a snapshot, or one piece of a Sync: about 300 KB of usual
    /// records.
    pub chunk_docs: usize,
    /// Chunks, or pieces, that may be unacknowledged at once.
    pub chunks_in_flight: usize,
    /// A learner that misses no more entries than this is caught up by wedging. More keep the
    /// partition wedged longer.
    pub close_entries: u64,
    /// Items in one page of a node's answer to a scan.
    pub scan_page: u32,
    /// Most sessions in one answer to a list or a watch.
    pub page_sessions: u32,
    /// Most documents that one answer to a list or a watch looks at, whether they pass its filter or
    /// not: some milliseconds where every record is made from its bytes. Whoever asks goes on from
    /// there; what others ask comes in between.
    pub page_looked_at: usize,
    /// Requests that a session's own document remembers, but for those under way; older ones lie beside
    /// it. Most sessions have no more of them than an open, a close and another open.
    pub requests_kept: usize,
    /// Most requests that a partition remembers beside its sessions. Those that only found their session
    /// may be a quarter as many more.
    pub requests_max: usize,
    /// Most documents that one entry removes, or frees of tombstones of their items.
    pub purge_docs: usize,
    /// Entries from one digest that is kept for comparisons to the next.
    pub mark_every: u64,
    /// Most documents among which one step looks for sessions of nodes that are drained: less than a
    /// millisecond.
    pub drain_docs: usize,
    /// Most traces of nodes that are gone in the registry, some 250 bytes each. Of the rest one bound is kept. With 0
    /// not even the newest stays.
    pub traces_max: usize,
    /// How long nothing was heard of a node before its trace may go, in milliseconds. Whoever started it has ended
    /// what is left of it by then.
    pub traces_ms: u64,
    /// Most sessions of a partition that are closed at once because their nodes are drained: a node
    /// with all its places in use ends some hundred programs at a time.
    pub drain_closes: usize,
}

impl Default for Sizes {
    fn default() -> Self {
        Self {
            window_entries: 4_096,
            window_bytes: 16 * 1024 * 1024,
            tail_entries: REQUESTS_MAX,
            tail_bytes: 64 * 1024 * 1024,
            batch_bytes: 64 * 1024 * 1024,
            request_bytes: 256 * 1024 * 1024,
            session_bytes: 1024 * 1024 * 1024,
            message_bytes: 512 * 1024,
            prepare_entries: 512,
            flight_entries: 8_192,
            flight_bytes: 2 * 1024 * 1024,
            chunk_docs: 512,
            chunks_in_flight: 4,
            close_entries: 256,
            scan_page: 2_000,
            page_sessions: PAGE_SIZE_MAX,
            page_looked_at: 2_000,
            requests_kept: 4,
            requests_max: REQUESTS_REMEMBERED_MAX,
            purge_docs: 512,
            mark_every: 64,
            traces_max: 100,
            traces_ms: 2 * 3_600_000,
            drain_docs: 2_000,
            drain_closes: 256,
        }
    }
}

impl Sizes {
    /// Every rule that does not hold. Empty when all is well.
    pub fn mistakes(&self) -> Vec<FieldError> {
        let number = |it: usize| u64::try_from(it).unwrap_or(u64::MAX);
        let counts = [
            ("window_entries", number(self.window_entries)),
            ("window_bytes", number(self.window_bytes)),
            ("tail_entries", number(self.tail_entries)),
            ("tail_bytes", number(self.tail_bytes)),
            ("batch_bytes", number(self.batch_bytes)),
            ("request_bytes", number(self.request_bytes)),
            ("session_bytes", self.session_bytes),
            ("message_bytes", number(self.message_bytes)),
            ("prepare_entries", number(self.prepare_entries)),
            ("flight_entries", number(self.flight_entries)),
            ("flight_bytes", number(self.flight_bytes)),
            ("chunk_docs", number(self.chunk_docs)),
            ("chunks_in_flight", number(self.chunks_in_flight)),
            ("close_entries", self.close_entries),
            ("scan_page", u64::from(self.scan_page)),
            ("page_sessions", u64::from(self.page_sessions)),
            ("page_looked_at", number(self.page_looked_at)),
            ("requests_kept", number(self.requests_kept)),
            ("requests_max", number(self.requests_max)),
            ("purge_docs", number(self.purge_docs)),
            ("mark_every", self.mark_every),
            ("drain_docs", number(self.drain_docs)),
            ("drain_closes", number(self.drain_closes)),
        ];
        let empty = counts.iter().filter(|(_, count)| *count == 0);
        let mut wrong: Vec<FieldError> =
            empty.map(|(name, _)| FieldError::new(*name, "is 0; it must be at least 1")).collect();
        if self.close_entries > number(self.window_entries) {
            let problem = format!(
                "is {}; it must not be above window_entries ({}), or a learner is called close \
                 that can only be copied anew",
                self.close_entries, self.window_entries
            );
            wrong.push(FieldError::new("close_entries", problem));
        }
        wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_sizes_keep_their_rules() {
        assert_eq!(Sizes::default().mistakes(), vec![]);
    }

    #[test]
    fn a_size_of_nothing_and_a_learner_that_is_close_beyond_the_window_are_refused() {
        let sizes = Sizes { chunk_docs: 0, window_entries: 10, ..Sizes::default() };
        let text: Vec<String> = sizes.mistakes().iter().map(ToString::to_string).collect();
        assert_eq!(text.len(), 2, "{text:?}");
        assert!(text[0].contains("chunk_docs") && text[1].contains("window_entries"), "{text:?}");
    }
}
