//! Every time constant of a manager, in one place, and the order that they must keep.

use rota_model::{ClusterTimes, FieldError, LeaseTimes, times_out_of_order};

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
            renew_ms: 3_000,
            lease_term_ms: 8_000,
            lease_kill_ms: 12_000,
            node_lost_ms: 20_000,
            tombstone_ms: rota_model::REQUEST_MEMORY_MS,
            provision_ms: 10_000,
            request_ms: REQUEST_MS,
            retry_ms: 200,
        }
    }
}

impl Timing {
    /// Every rule of order that does not hold. Empty when all is well.
    pub fn mistakes(&self) -> Vec<FieldError> {
        let order = [
            ("heartbeat_ms", self.heartbeat_ms * 3, "suspect_ms", self.suspect_ms),
            ("resend_ms", self.resend_ms, "suspect_ms", self.suspect_ms),
            ("create_deadline_ms", self.create_deadline_ms, "tombstone_ms", self.tombstone_ms),
            ("node_lost_ms", self.node_lost_ms, "tombstone_ms", self.tombstone_ms),
        ];
        let mut mistakes = self.lease().mistakes(Some(("node_lost_ms", self.node_lost_ms)));
        mistakes.extend(times_out_of_order(&order));
        mistakes
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_times_are_in_order() {
        assert_eq!(Timing::default().mistakes(), vec![]);
    }

    #[test]
    fn a_node_that_is_lost_before_its_programs_are_dead_is_refused() {
        let timing = Timing { node_lost_ms: 11_000, ..Timing::default() };
        assert_eq!(timing.mistakes().len(), 1);
        assert!(timing.mistakes()[0].to_string().contains("lease_kill_ms"));
    }
}
