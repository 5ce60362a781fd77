//! Every time constant of a manager, in one place, and the order that they must keep.

use rota_model::{ClusterTimes, FieldError, LeaseTimes, PeerTimes, TimeOrder, times_out_of_order};

/// Longest time that a caller's request may wait, in milliseconds.
pub const REQUEST_MS: u64 = 60_000;

/// Times, in milliseconds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Timing {
    /// Between heartbeats to a peer. Low costs messages, high delays suspicion.
    pub heartbeat_ms: u64,
    /// Silence after which a peer is suspected. Low: a busy machine is suspected and must rejoin
    /// (harmless); high: its partitions wait longer.
    pub suspect_ms: u64,
    /// Between repetitions of an unanswered message to a peer.
    pub resend_ms: u64,
    /// Between repetitions of an unanswered message to a node.
    pub node_resend_ms: u64,
    /// How long a Create may wait at a node before it is started.
    pub create_deadline_ms: u64,
    /// How long new operations wait for an Up manager that cannot be copied to.
    pub copy_deadline_ms: u64,
    /// How long a copy may be missing at an Up manager before another one gets it too. Low: a short
    /// trouble costs a copying; high: fewer copies for longer.
    pub repair_ms: u64,
    /// How long an owner that gave up copying to a manager waits until it lets that one drop what it
    /// has. Low: a member that comes and goes costs more copying; high: more memory and disk.
    pub abandon_ms: u64,
    /// How long a join or a leave may go without any change of the View before others get their turn.
    pub join_ms: u64,
    /// How long a partition whose last copy is gone waits for somebody with more than its owner has,
    /// before it is found again from the nodes. Low: a manager that was about to come back is passed
    /// over, with what its disk holds; high: nobody is answered for longer.
    pub recover_after_ms: u64,
    /// Between renewals of a node's lease.
    pub renew_ms: u64,
    /// Without a renewal for this long, a node ends its programs politely.
    pub lease_term_ms: u64,
    /// Without a renewal for this long, a node kills its programs.
    pub lease_kill_ms: u64,
    /// Silence after which a node is declared lost.
    pub node_lost_ms: u64,
    /// How long a tombstone and the request ids in it are kept. Clients are promised
    /// [`rota_model::REQUEST_MEMORY_MS`], and a manager process takes no less; with less, as in the
    /// simulator, that is how long a request id is remembered.
    pub tombstone_ms: u64,
    /// How long ordered nodes may take to register.
    pub provision_ms: u64,
    /// Longest time that a request waits at its entry manager. The same at all managers: owners
    /// remember answers for so long.
    pub request_ms: u64,
    /// Advice to a caller who should come again soon.
    pub retry_ms: u64,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            heartbeat_ms: 200,
            suspect_ms: 1_000,
            resend_ms: 100,
            node_resend_ms: 500,
            create_deadline_ms: 5_000,
            copy_deadline_ms: 5_000,
            repair_ms: 30_000,
            abandon_ms: 10_000,
            join_ms: 600_000,
            recover_after_ms: 10_000,
            renew_ms: LeaseTimes::USUAL.renew_ms,
            lease_term_ms: LeaseTimes::USUAL.lease_term_ms,
            lease_kill_ms: LeaseTimes::USUAL.lease_kill_ms,
            node_lost_ms: 20_000,
            tombstone_ms: rota_model::REQUEST_MEMORY_MS,
            provision_ms: 10_000,
            request_ms: REQUEST_MS,
            retry_ms: 200,
        }
    }
}

/// A time by its name and its place.
type Field = (&'static str, fn(&mut Timing) -> &mut u64);

/// One rule of the order of times: so many of `low`, as a fraction, must be below `high`.
struct Rule {
    low: Field,
    factor: (u64, u64),
    high: Field,
}

macro_rules! rules {
    ($($(#[$doc:meta])* $low:ident * $times:literal / $parts:literal < $high:ident;)*) => {
        const RULES: &[Rule] = &[$(Rule {
            low: (stringify!($low), |it| &mut it.$low),
            factor: ($times, $parts),
            high: (stringify!($high), |it| &mut it.$high),
        },)*];
    };
}

// The order of all times of a manager. Those of leases stand in `LeaseTimes::order`, since nodes have
// them, too, and that of heartbeats in `PeerTimes::heard_by`, since it holds among managers. `abandon_ms`
// and `copy_deadline_ms` have no place in it: they only say what is dearer.
rules! {
    // One lost message is no silence.
    resend_ms * 2 / 1 < suspect_ms;
    // Who is silent is out before others are copied to in its stead, and before a join or a leave is
    // given up that it held up: suspicion, the wedge that it ends, and the Sync after it.
    suspect_ms * 1 / 1 < repair_ms;
    suspect_ms * 3 / 1 < join_ms;
    // An owner that hangs is missed before the leases that it granted are over, and mostly early enough for the
    // next one to renew them: a lease is longer than two renewals, so with this it is longer than one of each.
    suspect_ms * 2 / 1 < lease_term_ms;
    // Whoever holds more has come back, or is known to be gone, before a partition is found again.
    suspect_ms * 1 / 1 < recover_after_ms;
    // A lost Create is sent again before it is too old.
    node_resend_ms * 2 / 1 < create_deadline_ms;
    // What may still be on its way is remembered where it ended.
    create_deadline_ms * 2 / 1 < tombstone_ms;
    node_lost_ms * 2 / 1 < tombstone_ms;
    // Who is told to come again soon does so before it gives up.
    retry_ms * 2 / 1 < request_ms;
    retry_ms * 2 / 1 < provision_ms;
}

impl Timing {
    /// Every rule of order that does not hold, by the names that `named` gives. Empty when all is well.
    pub fn mistakes(&self, named: &dyn Fn(&str) -> String) -> Vec<FieldError> {
        let mut order = self.lease().order(Some(("node_lost_ms", self.node_lost_ms)));
        let peers = self.of_peers();
        order.push(peers.heard_by(peers, ["heartbeat_ms", "suspect_ms"]));
        order.extend(RULES.iter().map(|rule| rule.of(self)));
        times_out_of_order(&order, named)
    }

    /// Those of nodes' leases, for nodes that are started from here.
    fn lease(&self) -> LeaseTimes {
        LeaseTimes {
            renew_ms: self.renew_ms,
            lease_term_ms: self.lease_term_ms,
            lease_kill_ms: self.lease_kill_ms,
        }
    }

    /// How long what was answered to a request is of use, in milliseconds: as long as it may wait at its
    /// entry manager, and some more, since clocks do not run equally fast.
    pub fn answers_ms(&self) -> u64 {
        self.request_ms * 11 / 10
    }

    /// Those that a manager has towards the others.
    pub fn of_peers(&self) -> PeerTimes {
        PeerTimes { heartbeat_ms: self.heartbeat_ms, suspect_ms: self.suspect_ms }
    }

    /// Those that all managers of a cluster share.
    pub fn of_cluster(&self) -> ClusterTimes {
        ClusterTimes {
            renew_ms: self.renew_ms,
            lease_term_ms: self.lease_term_ms,
            lease_kill_ms: self.lease_kill_ms,
            node_lost_ms: self.node_lost_ms,
        }
    }
}

impl Rule {
    pub(crate) fn of(&self, timing: &Timing) -> TimeOrder<'static> {
        let mut timing = timing.clone();
        let mut value = |(name, place): Field| (name, *place(&mut timing));
        TimeOrder { low: value(self.low), factor: self.factor, high: value(self.high) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mistakes(timing: &Timing) -> Vec<String> {
        timing.mistakes(&str::to_owned).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_default_times_are_in_order() {
        assert_eq!(mistakes(&Timing::default()), Vec::<String>::new());
    }

    #[test]
    fn each_rule_holds_to_its_factor_and_names_both_times_with_their_values() {
        for rule in RULES {
            let mut timing = Timing::default();
            let (times, parts) = rule.factor;
            // The shortest that is too short, and one more. A whole number of parts of the lower one.
            let low = *(rule.low.1)(&mut timing) / parts * parts;
            *(rule.low.1)(&mut timing) = low;
            *(rule.high.1)(&mut timing) = low / parts * times;
            let told = mistakes(&timing);
            let (low_name, high_name) = (rule.low.0, rule.high.0);
            let is_told = |text: &String| {
                text.starts_with(&format!("{low_name} is {low} ms; "))
                    && text.ends_with(&format!("{high_name} ({} ms)", low / parts * times))
            };
            assert!(told.iter().any(is_told), "{low_name} < {high_name}: {told:?}");
            *(rule.high.1)(&mut timing) += 1;
            let told = mistakes(&timing);
            let is_told = |text: &String| text.starts_with(low_name) && text.contains(high_name);
            assert!(!told.iter().any(is_told), "{low_name} < {high_name}: {told:?}");
        }
    }

    #[test]
    fn a_node_that_is_lost_before_its_programs_are_dead_is_refused() {
        for (lost_ms, is_wrong) in [(11_000, true), (15_000, true), (15_001, false)] {
            let timing = Timing { node_lost_ms: lost_ms, ..Timing::default() };
            let told = mistakes(&timing);
            assert_eq!(told.iter().any(|it| it.contains("lease_kill_ms")), is_wrong, "{told:?}");
        }
    }
}
