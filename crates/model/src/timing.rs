//! The rule that every set of time limits obeys.

use crate::refusal::FieldError;
use serde::{Deserialize, Serialize};

/// Checks that each limit, in milliseconds, is above 0 and below another. An entry is the name and
/// the value (with its safety factor) of the lower one, then those of the higher one. Gives every
/// entry that does not hold.
pub fn times_out_of_order(order: &[(&str, u64, &str, u64)]) -> Vec<FieldError> {
    let wrong = order.iter().filter(|(_, low, _, high)| *low == 0 || low >= high);
    wrong
        .map(|(low_name, low, high_name, high)| {
            let problem = format!(
                "is too long: {low} ms (with its safety factor) must be above 0 and below \
                 {high_name} ({high} ms)"
            );
            FieldError::new(*low_name, problem)
        })
        .collect()
}

/// The times of a node's lease, in milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LeaseTimes {
    /// Between renewals.
    pub renew_ms: u64,
    /// Without a renewal for this long, the node ends its programs politely.
    pub lease_term_ms: u64,
    /// Without a renewal for this long, the node kills its programs.
    pub lease_kill_ms: u64,
}

impl LeaseTimes {
    /// Every rule of order that does not hold: among these times and, where it is given, with the
    /// time (its name and value) after which managers declare a silent node lost. Empty when all is
    /// well.
    pub fn mistakes(self, lost: Option<(&str, u64)>) -> Vec<FieldError> {
        let Self { renew_ms, lease_term_ms, lease_kill_ms } = self;
        let mut order = vec![
            ("renew_ms", renew_ms.saturating_mul(2), "lease_term_ms", lease_term_ms),
            ("lease_term_ms", lease_term_ms, "lease_kill_ms", lease_kill_ms),
        ];
        order.extend(lost.map(|(name, ms)| ("lease_kill_ms", lease_kill_ms, name, ms)));
        times_out_of_order(&order)
    }
}

/// Times that all managers of a cluster share, in milliseconds: a node that one of them lets in is
/// judged by whichever owns its slot.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct ClusterTimes {
    /// Between renewals of a node's lease.
    pub renew_ms: u64,
    /// Without a renewal for this long, a node ends its programs politely.
    pub lease_term_ms: u64,
    /// Without a renewal for this long, a node kills its programs.
    pub lease_kill_ms: u64,
    /// Silence after which a node is declared lost.
    pub node_lost_ms: u64,
}

impl ClusterTimes {
    /// Each time in which the two differ: its name, its value here, its value there.
    pub fn differences(&self, there: &Self) -> Vec<(&'static str, u64, u64)> {
        let all = [
            ("renew_ms", self.renew_ms, there.renew_ms),
            ("lease_term_ms", self.lease_term_ms, there.lease_term_ms),
            ("lease_kill_ms", self.lease_kill_ms, there.lease_kill_ms),
            ("node_lost_ms", self.node_lost_ms, there.node_lost_ms),
        ];
        all.into_iter().filter(|(_, here, there)| here != there).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_that_outlives_the_managers_patience_is_named_with_both_values() {
        let lease = LeaseTimes { renew_ms: 3_000, lease_term_ms: 8_000, lease_kill_ms: 12_000 };
        assert_eq!(lease.mistakes(Some(("node_lost_ms", 20_000))), vec![]);
        let late = LeaseTimes { lease_kill_ms: 200_000, ..lease };
        assert_eq!(late.mistakes(None), vec![]);
        let text = late.mistakes(Some(("node_lost_ms", 20_000)))[0].to_string();
        for part in ["lease_kill_ms", "200000 ms", "node_lost_ms (20000 ms)"] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        let rare = LeaseTimes { renew_ms: u64::MAX, ..lease };
        assert_eq!(rare.mistakes(None)[0].field, "renew_ms");
    }

    #[test]
    fn times_that_differ_are_named_with_both_values() {
        let here =
            ClusterTimes { renew_ms: 1, lease_term_ms: 3, lease_kill_ms: 4, node_lost_ms: 5 };
        assert_eq!(here.differences(&here), vec![]);
        let there = ClusterTimes { renew_ms: 2, node_lost_ms: 9, ..here };
        assert_eq!(here.differences(&there), [("renew_ms", 1, 2), ("node_lost_ms", 5, 9)]);
    }

    #[test]
    fn zero_and_limits_that_do_not_grow_are_named() {
        let order = [("a", 1, "b", 2), ("b", 2, "c", 2), ("d", 0, "e", 9)];
        let mistakes = times_out_of_order(&order);
        let fields: Vec<&str> = mistakes.iter().map(|it| it.field.as_str()).collect();
        assert_eq!(fields, ["b", "d"]);
        assert!(mistakes[0].problem.contains("below c (2 ms)"), "{mistakes:?}");
    }
}
