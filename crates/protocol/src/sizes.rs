//! How much a manager keeps and sends at a time, in one place, and the rules between the sizes.

use rota_model::{FieldError, PAGE_SIZE_MAX};

/// Sizes. What is counted here is bounded for the sake of memory and of messages; none of it
/// changes what is answered. The simulator draws small ones, so that every limit is met.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sizes {
    /// Most committed entries kept for Watch and Sync. A watcher or copy further behind gets a
    /// snapshot. At 1,000 changes a second in one partition 4,096 are 4 seconds; an entry keeps
    /// about 1 KB of an older record alive.
    pub window_entries: usize,
    /// Most entries in one Prepare.
    pub prepare_entries: usize,
    /// Most documents in one chunk of a snapshot: about 300 KB of usual records.
    pub chunk_docs: usize,
    /// Chunks that may be unacknowledged at once.
    pub chunks_in_flight: usize,
    /// A learner that misses no more entries than this is caught up by wedging. More keep the
    /// partition wedged longer.
    pub close_entries: u64,
    /// Items in one page of a node's answer to a scan.
    pub scan_page: u32,
    /// Most sessions in one answer to a list or a watch.
    pub page_sessions: u32,
    /// Most tombstones removed with one entry.
    pub purge_docs: usize,
}

impl Default for Sizes {
    fn default() -> Self {
        Self {
            window_entries: 4_096,
            prepare_entries: 512,
            chunk_docs: 512,
            chunks_in_flight: 4,
            close_entries: 256,
            scan_page: 2_000,
            page_sessions: PAGE_SIZE_MAX,
            purge_docs: 512,
        }
    }
}

impl Sizes {
    /// Every rule that does not hold. Empty when all is well.
    pub fn mistakes(&self) -> Vec<FieldError> {
        let number = |it: usize| u64::try_from(it).unwrap_or(u64::MAX);
        let counts = [
            ("window_entries", number(self.window_entries)),
            ("prepare_entries", number(self.prepare_entries)),
            ("chunk_docs", number(self.chunk_docs)),
            ("chunks_in_flight", number(self.chunks_in_flight)),
            ("close_entries", self.close_entries),
            ("scan_page", u64::from(self.scan_page)),
            ("page_sessions", u64::from(self.page_sessions)),
            ("purge_docs", number(self.purge_docs)),
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
