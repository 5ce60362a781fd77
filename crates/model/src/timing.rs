//! The rule that every set of time limits obeys.

use crate::refusal::FieldError;
use serde::{Deserialize, Serialize};

/// Two times, in milliseconds, of which one must be the shorter, by a factor that leaves room for what
/// clocks and schedulers do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimeOrder<'a> {
    /// Name and value of the one that must be above 0 and the shorter.
    pub low: (&'a str, u64),
    /// So many of it, as a fraction, must be below the other.
    pub factor: (u64, u64),
    /// Name and value of the other.
    pub high: (&'a str, u64),
}

impl<'a> TimeOrder<'a> {
    /// `low` must be above 0 and below `high`.
    pub fn below(low: (&'a str, u64), high: (&'a str, u64)) -> Self {
        Self { low, factor: (1, 1), high }
    }

    /// What is wrong, by the names that `named` gives.
    fn mistake(&self, named: &dyn Fn(&str) -> String) -> Option<FieldError> {
        let Self { low: (low_name, low), factor: (times, parts), high: (high_name, high) } = *self;
        let wide = |value: u64, by: u64| u128::from(value) * u128::from(by);
        if low > 0 && wide(low, times) < wide(high, parts) {
            return None;
        }
        let it = match (times, parts) {
            _ if low == 0 => "it must be above 0, and".to_owned(),
            (1, 1) => "it must be".to_owned(),
            (times, 1) => format!("{times} times that must be"),
            (times, parts) => format!("{times}/{parts} of that must be"),
        };
        let high_name = named(high_name);
        let problem = format!("is {low} ms; {it} below {high_name} ({high} ms)");
        Some(FieldError::new(named(low_name), problem))
    }
}

/// What is wrong with an order of times. `named` gives the names that its reader knows the times by.
pub fn times_out_of_order(
    order: &[TimeOrder<'_>],
    named: &dyn Fn(&str) -> String,
) -> Vec<FieldError> {
    order.iter().filter_map(|it| it.mistake(named)).collect()
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
    /// Where nothing else is asked for.
    pub const USUAL: Self = Self { renew_ms: 3_000, lease_term_ms: 8_000, lease_kill_ms: 12_000 };

    /// The rules of order among these and, where it is given, with the time (its name and value) after
    /// which managers declare a silent node lost. What is left between kill and lost is all the time
    /// that a machine has to run the killing.
    pub fn order<'a>(self, lost: Option<(&'a str, u64)>) -> Vec<TimeOrder<'a>> {
        let Self { renew_ms, lease_term_ms, lease_kill_ms } = self;
        let term = ("lease_term_ms", lease_term_ms);
        let kill = ("lease_kill_ms", lease_kill_ms);
        let mut order = vec![
            TimeOrder { low: ("renew_ms", renew_ms), factor: (2, 1), high: term },
            TimeOrder { low: term, factor: (6, 5), high: kill },
        ];
        order.extend(lost.map(|high| TimeOrder { low: kill, factor: (5, 4), high }));
        order
    }
}

/// How often a manager says that it is there, and how long it is patient with others, in milliseconds.
/// Managers of a cluster may differ in them, as long as each is heard in time by each.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct PeerTimes {
    /// Between heartbeats to a peer.
    pub heartbeat_ms: u64,
    /// Silence after which a peer is suspected.
    pub suspect_ms: u64,
}

impl PeerTimes {
    /// The rule that one is heard in time by another, with the names of both times. A lost heartbeat or
    /// two are no silence.
    pub fn heard_by<'a>(self, other: Self, [low, high]: [&'a str; 2]) -> TimeOrder<'a> {
        let (low, high) = ((low, self.heartbeat_ms), (high, other.suspect_ms));
        TimeOrder { low, factor: (3, 1), high }
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

    fn mistakes(order: &[TimeOrder<'_>]) -> Vec<String> {
        times_out_of_order(order, &|name| format!("--{name}"))
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn a_lease_that_outlives_the_managers_patience_is_named_with_both_values() {
        let lease = LeaseTimes { renew_ms: 3_000, lease_term_ms: 8_000, lease_kill_ms: 12_000 };
        let lost = Some(("node_lost_ms", 20_000));
        assert_eq!(mistakes(&lease.order(lost)), Vec::<String>::new());
        let late = LeaseTimes { lease_kill_ms: 16_000, ..lease };
        assert_eq!(mistakes(&late.order(None)), Vec::<String>::new());
        let text =
            "--lease_kill_ms is 16000 ms; 5/4 of that must be below --node_lost_ms (20000 ms)";
        assert_eq!(mistakes(&late.order(lost)), [text]);
        let rare = LeaseTimes { renew_ms: u64::MAX, ..lease };
        assert!(mistakes(&rare.order(None))[0].contains("2 times that must be below"));
    }

    #[test]
    fn a_heartbeat_that_is_too_rare_for_a_peer_is_named_with_both_values() {
        let slow = PeerTimes { heartbeat_ms: 900, suspect_ms: 3_000 };
        let usual = PeerTimes { heartbeat_ms: 200, suspect_ms: 1_000 };
        let told = |from: PeerTimes, to| mistakes(&[from.heard_by(to, ["here", "there"])]);
        assert_eq!(told(slow, slow), Vec::<String>::new());
        assert_eq!(told(usual, slow), Vec::<String>::new());
        let text = "--here is 900 ms; 3 times that must be below --there (1000 ms)";
        assert_eq!(told(slow, usual), [text]);
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
        let [a, b, c] = [("a", 1), ("b", 2), ("c", 2)];
        let order = [(a, b), (b, c), (("d", 0), ("e", 9))].map(|(l, h)| TimeOrder::below(l, h));
        let wanted = [
            "--b is 2 ms; it must be below --c (2 ms)",
            "--d is 0 ms; it must be above 0, and below --e (9 ms)",
        ];
        assert_eq!(mistakes(&order), wanted);
    }
}
