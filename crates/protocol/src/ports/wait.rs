//! A table in which something waits.

/// A table in which something waits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wait {
    /// Which table.
    pub table: &'static str,
    /// How many entries.
    pub count: usize,
    /// By how many ms the deadline of one of them is passed at most.
    pub overdue_ms: u64,
}

impl Wait {
    pub(crate) fn new(
        table: &'static str,
        now_ms: u64,
        deadlines: impl Iterator<Item = u64>,
    ) -> Self {
        let (mut count, mut overdue_ms) = (0, 0);
        for deadline in deadlines {
            count += 1;
            overdue_ms = overdue_ms.max(now_ms.saturating_sub(deadline));
        }
        Self { table, count, overdue_ms }
    }
}
