//! What a node is told about itself, and every time and bound of it in one place.

use rota_model::{
    BootId, ClassName, ClassText, Disturb, FieldError, Labels, LeaseTimes, LoadLimit, NodeId,
    PLACES_MAX, Resources, TimeOrder, times_out_of_order,
};
use std::collections::BTreeMap;

/// What a node is told at its start.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct NodeConfig {
    /// Its id, stable over boots.
    pub node: NodeId,
    /// This boot; higher than those before.
    pub boot: BootId,
    /// Earlier boots of which nothing runs for certain, newest last.
    pub ended_boots: Vec<BootId>,
    /// What it has for sessions: 1 to 1,000,000 places, and CPU and memory where they are counted.
    pub offers: Resources,
    /// What it is, as its operator says.
    pub labels: Labels,
    /// Load at which it takes no more. The node is the last judge of this, whatever managers believe.
    pub load_limit: LoadLimit,
    /// Classes that it can run, and which texts of them.
    pub classes: BTreeMap<ClassName, ClassText>,
    /// Times.
    pub timing: NodeTiming,
    /// Bounds.
    pub bounds: NodeBounds,
}

/// Times, in milliseconds. The order of the first three with the managers' times is checked by the
/// managers: they refuse the registration.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NodeTiming {
    /// Between renewals of the lease.
    pub renew_ms: u64,
    /// Without a renewal for this long, everything is ended politely.
    pub lease_term_ms: u64,
    /// Without a renewal for this long, everything is killed.
    pub lease_kill_ms: u64,
    /// How long a dead token is remembered, at least. Low: a call that was delayed longer could
    /// start it again; high: memory.
    pub tombstone_ms: u64,
    /// How soon a renewal is repeated when a manager was not yet able to grant it.
    pub renew_retry_ms: u64,
    /// How soon a report is repeated for the first time; doubles from there.
    pub report_resend_ms: u64,
    /// Longest time between repetitions of a report.
    pub report_resend_ms_max: u64,
}

/// A renewal that nobody granted is repeated after this part of the time between renewals.
const UNANSWERED_PART: u64 = 3;

impl NodeTiming {
    /// How soon a renewal is repeated that nobody granted.
    pub(crate) fn unanswered_ms(&self) -> u64 {
        (self.renew_ms / UNANSWERED_PART).max(self.renew_retry_ms)
    }
}

impl Default for NodeTiming {
    fn default() -> Self {
        Self {
            renew_ms: LeaseTimes::USUAL.renew_ms,
            lease_term_ms: LeaseTimes::USUAL.lease_term_ms,
            lease_kill_ms: LeaseTimes::USUAL.lease_kill_ms,
            tombstone_ms: rota_model::REQUEST_MEMORY_MS,
            renew_retry_ms: 300,
            report_resend_ms: 1_000,
            report_resend_ms_max: 8_000,
        }
    }
}

/// Bounds of queues.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NodeBounds {
    /// Most reports under way at a time; the rest wait their turn. 1,024 is four full requests:
    /// enough to keep a manager busy while the next ones are gathered.
    pub reports_in_flight_max: usize,
    /// Sessions with unacknowledged news at which new sessions are refused as if there were no
    /// room. Those that run may still add their end, so the outbox never holds more than this
    /// plus the places.
    pub outbox_sessions_max: usize,
    /// Most repetitions of a call that wait for one session's start or end. When there are more,
    /// the oldest is dropped: its manager has repeated it since.
    pub waiters_max: usize,
}

impl Default for NodeBounds {
    fn default() -> Self {
        Self { reports_in_flight_max: 1_024, outbox_sessions_max: 100_000, waiters_max: 16 }
    }
}

impl NodeConfig {
    /// What a session of a class takes here.
    pub(crate) fn takes(&self, class: &ClassName) -> Resources {
        let text = self.classes.get(class);
        text.map_or(Resources::of_places(1), |it| it.facts.needs.takes())
    }

    /// Which orders may end a session of a class.
    pub(crate) fn disturb(&self, class: &ClassName) -> Disturb {
        self.classes.get(class).map(|it| it.facts.disturb).unwrap_or_default()
    }

    /// Every rule that does not hold. Empty when all is well.
    pub fn mistakes(&self) -> Vec<FieldError> {
        self.mistakes_as(&str::to_owned)
    }

    /// The same by the names that `named` gives to fields.
    pub fn mistakes_as(&self, named: &dyn Fn(&str) -> String) -> Vec<FieldError> {
        let mut mistakes = self.timing.mistakes(named);
        let mut within = |field: &str, value: u64, max: u64| {
            if !(1..=max).contains(&value) {
                let problem = format!("is {value}; it must be 1 to {max}");
                mistakes.push(FieldError::new(named(field), problem));
            }
        };
        within("places", u64::from(self.offers.places), u64::from(PLACES_MAX));
        let count = |size: usize| u64::try_from(size).unwrap_or(u64::MAX);
        within("reports_in_flight_max", count(self.bounds.reports_in_flight_max), 100_000);
        within("outbox_sessions_max", count(self.bounds.outbox_sessions_max), 10_000_000);
        within("waiters_max", count(self.bounds.waiters_max), 1_000);
        mistakes
    }
}

impl NodeTiming {
    /// Those of the lease.
    pub fn lease(&self) -> LeaseTimes {
        LeaseTimes {
            renew_ms: self.renew_ms,
            lease_term_ms: self.lease_term_ms,
            lease_kill_ms: self.lease_kill_ms,
        }
    }

    fn mistakes(&self, named: &dyn Fn(&str) -> String) -> Vec<FieldError> {
        let renew = ("renew_ms", self.renew_ms);
        let retry = ("renew_retry_ms", self.renew_retry_ms);
        let kill = ("lease_kill_ms", self.lease_kill_ms);
        let resend = ("report_resend_ms", self.report_resend_ms);
        let mut order = self.lease().order(None);
        order.extend([
            TimeOrder { low: kill, factor: (2, 1), high: ("tombstone_ms", self.tombstone_ms) },
            TimeOrder::below(retry, renew),
            TimeOrder::below(resend, ("report_resend_ms_max", self.report_resend_ms_max)),
        ]);
        times_out_of_order(&order, named)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> NodeConfig {
        NodeConfig {
            node: NodeId::parse("n0").unwrap(),
            boot: BootId(1),
            ended_boots: Vec::new(),
            offers: Resources::of_places(10),
            labels: Labels::new(),
            load_limit: LoadLimit::USUAL,
            classes: BTreeMap::new(),
            timing: NodeTiming::default(),
            bounds: NodeBounds::default(),
        }
    }

    #[test]
    fn the_defaults_are_in_order() {
        assert_eq!(config().mistakes(), vec![]);
    }

    #[test]
    fn every_mistake_is_listed_with_its_field_and_limit() {
        let mut wrong = config();
        wrong.offers.places = 0;
        wrong.timing.lease_kill_ms = wrong.timing.lease_term_ms;
        let text: Vec<String> = wrong.mistakes().iter().map(ToString::to_string).collect();
        assert_eq!(text.len(), 2, "{text:?}");
        assert_eq!(
            text[0],
            "lease_term_ms is 8000 ms; 6/5 of that must be below lease_kill_ms (8000 ms)"
        );
        assert_eq!(text[1], "places is 0; it must be 1 to 1000000");
    }
}
