//! Sessions that wait for a node. They run nowhere yet, so nothing is proved of them.

use crate::inspect::{Answers, stats_of, waiting_text};
use rota_ring::View;
use std::collections::BTreeMap;

/// By pool, how many wait. Each is told by the owner of its partition.
pub fn count(view: &View, answers: &Answers) -> BTreeMap<String, u64> {
    let owned = view.parts.iter();
    let owned = owned.filter_map(|(number, it)| stats_of(answers, it.owner.0, number.0));
    let mut counts = BTreeMap::new();
    for (pool, count) in owned.flat_map(|it| &it.waiting) {
        *counts.entry(pool.clone()).or_default() += count;
    }
    counts
}

/// For people; empty when none waits.
pub fn told(waiting: &BTreeMap<String, u64>) -> String {
    match waiting.is_empty() {
        true => String::new(),
        false => format!("waiting for a node: {}\n", waiting_text(waiting)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::report;
    use super::super::{Report, told};

    #[test]
    fn sessions_that_wait_for_a_node_are_counted_by_pool_and_violate_nothing() {
        let sessions_waiting = [("default".to_owned(), 2), ("gpu".to_owned(), 1)].into();
        let text = told(&Report { sessions_waiting, ..report() });
        let first = "waiting for a node: 2 in pool default, 1 in pool gpu\neverything holds";
        assert!(text.starts_with(first), "{text}");
    }
}
