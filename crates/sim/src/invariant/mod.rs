//! What must hold, one rule per file, each with a hand-made example that violates it.
//!
//! | rule | file | when it is checked |
//! |---|---|---|
//! | S1 | [`one_instance`] | at the end, over the nodes' own logs |
//! | S2 | [`acknowledged_open`] | at the end, by the durability scan |
//! | S3 | [`closed_stays`] | at the end, over the clients' histories |
//! | S4, I1 | [`one_owner`] | at every effect of a manager |
//! | I1 | [`view_order`] | at every write of the config store |
//! | I2 | [`committed_everywhere`] | when something is announced or answered as committed |
//! | I3 | [`member_added`] | at every write of the config store |
//! | J1, J3 | [`split_at_rest`] | at every write of the config store |
//! | leave | [`leaver_released`] | at every write of the config store |
//! | surplus | [`surplus_only`] | at every write of the config store |
//! | one transition | [`one_transition`] | at every write of the config store |
//! | I4 | [`ack_floor`] | at every acknowledgement |
//! | I5 | [`intent_first`] | at every Create |
//! | I6 | [`placement_settled`] | at every Create |
//! | I7 | [`node_obeys`] | at every answer and start of a node |
//! | I8, I10 | [`synced_first`] | at every answer of an owner |
//! | I10 | [`shown_running`] | at every read of an owner that took over from its own disk |
//! | I9 | [`fresh_run`] | at every message and answer |
//! | I11 | [`registered_first`] | at every Create |
//! | copies | [`enough_copies`] | when a life is begun |
//! | awaited | [`better_awaited`] | at every write of the config store |
//! | lease | [`lost_is_dead`] | at every write of the config store, and of a record |
//! | over | [`over_stays`] | at every write of the config store |
//! | cordon | [`cordon_kept`] | at every write of the config store, and when a session is begun |
//! | closed for good | [`closed_for_good`] | at every write of a record |
//! | linear | [`linear`] | at the end, per session id |
//! | repeat | [`same_answer`] | at the end, per request id |
//! | forward | [`shown_forward`] | at the end, per life |
//! | ends | [`ends_told`] | at the end, over the clients' histories |
//! | unchanged | [`unchanged`] | at the end, per request id |
//! | deadlines | [`deadlines`] | all the time |
//! | documents | [`written_once`] | at the end, over the histories of documents |
//! | tasks | [`tasks_ran`] | at the end, over the histories of tasks and documents |
//! | action | [`actions_alone`] | when one is asked for and starts, and at the end |
//! | copied | [`copies_arrive`] | at the end, over the histories of copies |
//! | bodies | [`bodies_beside`] | at every write to a disk |
//! | converged | [`converged`] | after healing |
//! | list | [`complete_list`] | after healing, while nothing moves |
//! | watch | [`watch_gaps`] | after healing |
//! | document watch | [`document_gaps`] | after healing |
//!
//! Which of them hold in every order of events, within which bounds, and in how many states: `MODEL.md` beside
//! this crate's sources.

pub mod ack_floor;
pub mod acknowledged_open;
pub mod actions_alone;
pub mod better_awaited;
pub mod bodies_beside;
pub mod closed_for_good;
pub mod closed_stays;
pub mod committed_everywhere;
pub mod complete_list;
pub mod converged;
pub mod copies_arrive;
pub mod cordon_kept;
pub mod deadlines;
pub mod document_gaps;
pub mod ends_told;
pub mod enough_copies;
pub mod fresh_run;
pub mod given_up;
pub mod intent_first;
pub mod leaver_released;
pub mod linear;
pub mod lost_is_dead;
pub mod member_added;
pub mod node_obeys;
pub mod one_instance;
pub mod one_owner;
pub mod one_transition;
pub mod over_stays;
pub mod placement_settled;
pub mod registered_first;
pub mod same_answer;
pub mod shown_forward;
pub mod shown_running;
pub mod split_at_rest;
pub mod surplus_only;
pub mod synced_first;
pub mod tasks_ran;
pub mod unchanged;
pub mod view_order;
pub mod watch_gaps;
pub mod written_once;

#[cfg(test)]
pub(crate) mod example;

/// A rule that does not hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// The rule.
    pub rule: &'static str,
    /// What was seen, for people.
    pub text: String,
}

impl Violation {
    /// A violation of `rule`.
    pub fn new(rule: &'static str, text: impl Into<String>) -> Self {
        Self { rule, text: text.into() }
    }
}

/// What a check gives.
pub type Verdict = Result<(), Violation>;
