//! Every order of events within the bounds of CI size, with the code that ships. The same by command,
//! with the way to whatever is broken: `rota-sim model`, `rota-sim mutants --traces`.

use rota_sim::Bug;
use rota_sim::modelcheck::{Bounds, Left, explore, explore_watching, suite};

/// Searches the bounds of that name; they must hold at least so many states.
fn holds(name: &str, states_min: usize) {
    let bounds = suite::ci().into_iter().find(|it| it.name == name);
    let explored = explore(&bounds.unwrap_or_else(|| panic!("no bounds: {name}")), None);
    if let Some(broken) = &explored.broken {
        panic!("{name} breaks {}: {:#?}", broken.violation.rule, broken);
    }
    assert!(explored.exhausted, "{name}: not exhausted after {} states", explored.states);
    assert!(explored.states >= states_min, "{name}: only {} states", explored.states);
    assert!(explored.unshown.is_empty(), "{name}: never came to {:?}", explored.unshown);
    assert!(explored.fair_runs > 0, "{name}: nothing was seen to come to rest");
}

macro_rules! searches {
    ($($test:ident: $name:literal, $states:literal;)*) => {
        $(#[test] fn $test() { holds($name, $states); })*

        #[test]
        fn no_bounds_of_ci_size_are_forgotten() {
            let tested = [$($name),*];
            for bounds in suite::ci() {
                assert!(tested.contains(&bounds.name), "{} is not tested", bounds.name);
            }
        }
    };
}

searches! {
    an_open_and_a_close_keep_every_promise: "n=3 r=1: open, close", 1_000;
    a_lone_manager_comes_back_from_its_disk: "n=1 r=0: open, close, crash, unknown outcome, loss", 5_000;
    two_managers_suspect_each_other: "n=2 r=1: open, crash for good, suspicion", 5_000;
    a_disk_may_write_late: "n=2 r=1: open, crash, writes and their ends apart", 60_000;
    two_opens_and_a_crash: "n=3 r=1: 2 opens, crash", 10_000;
    messages_come_twice_or_never: "n=3 r=1: open, close, copy, loss", 100_000;
    who_was_suspected_wrongly_returns: "n=3 r=1: open, suspicion, return", 50_000;
    crash_suspicion_and_join_together: "n=3 r=1: crash for good, suspicion, join, no clocks", 10_000;
    a_join_while_somebody_is_suspected: "n=3 r=1: suspicion, join", 17_000;
    a_number_joins: "n=3 r=1: open, join", 30_000;
    four_managers_with_two_copies: "n=4 r=2: crash for good, suspicion", 50_000;
    two_ids_share_what_place_there_is: "n=3 r=1: 2 ids, 2 opens, 1 place", 100;
    a_node_boots_anew: "n=3 r=1: open, node boots anew", 500;
    an_agent_dies_at_each_step_and_calls_come_again:
        "n=1: open, close, repetitions, an agent dies", 20_000;
    an_agent_dies_at_each_step: "n=2 r=1: open, close, an agent dies", 100_000;
    an_agent_dies_while_a_manager_is_suspected:
        "n=3 r=1: open, an agent dies, suspicion, one accuser", 300_000;
    agents_die_on_a_node_that_is_cut_off: "n=3 r=1: node cut off, agents die, lease", 1_000_000;
    an_agent_dies_of_which_an_owner_hears_nothing:
        "n=3 r=1: the owner of session and node hears nothing of it, an agent dies, lease", 2_000;
    a_node_is_cut_off_until_it_is_lost: "n=3 r=1: node cut off, lease", 100;
    a_lease_ends_amid_a_crash_a_suspicion_and_a_join:
        "n=3 r=1: lease about to end, crash for good, suspicion, join, one accuser, one step", 1_000_000;
    a_tombstone_goes_amid_a_crash_a_suspicion_and_a_join:
        "n=3 r=1: tombstone about to go, crash for good, suspicion, join, one accuser, one step", 1_300_000;
    owners_wait_when_an_owner_that_heard_nothing_declares_a_node_lost:
        "n=3 r=1: a node's owner hears nothing of it, lease", 1_000;
    a_new_owner_waits_when_an_owner_that_heard_nothing_declares_a_node_lost:
        "n=3 r=1: a node's owner hears nothing of it, lease, suspicion, one accuser", 10_000;
    what_an_owner_hears_nothing_of_ends: "n=3 r=1: the owner of session and node hears nothing of it, lease", 30;
    a_node_is_reached_again: "n=3 r=1: node cut off and reached again, lease", 7_000;
    a_number_leaves: "n=3 r=1: leave", 13_000;
    two_numbers_join_one_after_the_other: "n=2 r=0: 2 joins", 10_000;
    two_numbers_join_a_ring_of_three: "n=3 r=1: 2 joins", 68_000;
    a_node_is_drained: "n=3 r=1: open, drain", 400;
    a_drained_node_boots_anew: "n=3 r=1: drain, node boots anew", 3_000;
    a_node_is_drained_in_the_midst_of_a_crash_and_a_suspicion: "n=3 r=1: drain, crash for good, suspicion", 50_000;
    a_last_copy_is_lost: "n=3 r=1: 2 crashes with disks: a last copy is lost", 50_000;
    a_disk_is_lost: "n=3 r=1: open, crash with disk", 40_000;
    tombstones_are_forgotten: "n=3 r=1: open, close, tombstones", 1_000;
    a_copy_that_cannot_be_made_is_waited_for_no_longer: "n=3 r=1: open, suspicion, loss, copy_deadline about to end", 390_000;
    somebody_else_stands_in_for_a_copy: "n=4 r=1: suspicion, loss, repair_after about to end, one accuser", 480_000;
    a_session_is_read_twice_while_it_closes: "n=3 r=1: close, 2 reads", 5_000;
    a_read_while_somebody_is_suspected_and_returns: "n=3 r=1: read, suspicion, return", 11_000;
    a_read_of_what_closes_while_somebody_is_suspected: "n=3 r=1: close, read, suspicion", 74_000;
    a_read_of_what_closes_while_a_manager_dies: "n=3 r=1: close, read, crash for good", 31_000;
    a_read_by_an_owner_that_does_not_know_whom_it_added:
        "n=3 r=1: close, read, suspicion, added unheard and cut off", 50_000;
    two_managers_and_a_compare_and_set_of_unknown_outcome: "n=2 r=1: suspicion, unknown outcome", 2_200;
    a_compare_and_set_of_unknown_outcome_among_three: "n=3 r=1: suspicion, unknown outcome", 7_400;
    a_join_and_a_compare_and_set_of_unknown_outcome: "n=3 r=1: join, unknown outcome", 18_000;
    a_number_leaves_while_somebody_is_suspected: "n=3 r=1: leave, suspicion, no clocks", 1_000;
    a_number_leaves_while_a_manager_dies: "n=3 r=1: leave, crash for good, one step", 5_000;
    a_join_is_taken_back: "n=3 r=1: join, cancel", 33_000;
    a_leave_is_taken_back: "n=3 r=1: leave, cancel", 2_000;
    the_owner_of_a_node_is_suspected_while_a_node_is_cut_off: "n=3 r=1: node cut off, lease, the node's owner is suspected", 30_000;
    a_disk_is_lost_that_holds_two_partitions: "n=3 r=1: 2 ids in 2 partitions, crash with disk, no clocks", 400;
    two_managers_without_copies: "n=2 r=0: open, crash, suspicion", 1_000;
    two_managers_and_a_config_store_that_is_away: "n=2 r=1: open, close, config store away", 1_500;
    a_lone_owner_is_read_while_the_config_store_is_away:
        "n=2 r=1: close, read, suspicion, config store away, no clocks", 100_000;
    somebody_is_suspected_while_the_config_store_is_away: "n=3 r=1: suspicion, config store away", 4_000;
    what_was_never_sent_is_taken_back: "n=3 r=1: open, 2 refusals, loss", 250;
    two_opens_and_a_close_amid_a_refusal: "n=2 r=1: 2 opens, close, refusal", 130_000;
    who_takes_over_takes_nothing_back: "n=2 r=1: open, refusal, crash for good", 1_500;
    a_suspicion_amid_a_refusal: "n=2 r=1: open, refusal, suspicion", 4_300;
    a_node_boots_anew_that_refused: "n=3 r=1: open, refusal, node boots anew", 5_000;
}

/// A search says so when what it is named for never came about.
#[test]
fn a_search_that_never_comes_to_what_it_is_named_for_is_not_fine() {
    let all = suite::ci();
    let bounds = all.iter().find(|it| it.name == "n=3 r=1: node cut off, lease");
    let bounds = bounds.expect("it is one of them");
    assert!(explore(bounds, None).is_fine());
    let short = Bounds { left: bounds.left.ticks(2), ..bounds.clone() };
    let explored = explore(&short, None);
    assert!(explored.exhausted && explored.broken.is_none() && !explored.is_fine());
    assert_eq!(explored.unshown, ["node_lost", "session_lost"]);
}

/// Searches leave out answers that come too late. With them under way to the end, none of them ever
/// matters, and the same is found.
#[test]
fn what_comes_too_late_never_matters() {
    let names = [
        "n=3 r=1: suspicion, join",
        "n=3 r=1: open, suspicion, return",
        "n=3 r=1: leave, crash for good, one step",
        "n=3 r=1: close, read, crash for good",
        "n=3 r=1: open, crash with disk",
    ];
    let all = suite::ci();
    for bounds in all.iter().filter(|it| names.contains(&it.name)) {
        let watched = explore_watching(bounds);
        assert!(watched.broken.is_none() && watched.exhausted, "{watched:#?}");
        let without = explore(bounds, None);
        assert!(without.states < watched.states, "{}: nothing came too late", bounds.name);
    }
}

/// A rule is removed: the search finds it, by a way of at most so many steps.
fn is_found(bug: Bug, rule: &str, steps_max: usize) {
    let bounds = suite::bounds_for(bug).expect("a bug that a search finds");
    let broken =
        explore(&bounds, Some(bug)).broken.unwrap_or_else(|| panic!("{bug:?} is not found"));
    assert_eq!(broken.violation.rule, rule, "{broken:#?}");
    assert!(broken.trace.len() <= steps_max, "{broken:#?}");
}

#[test]
fn an_owner_that_does_not_wait_for_its_copies_is_found() {
    is_found(Bug::TimeoutThenProceed, "I5", 1);
}

#[test]
fn an_owner_that_believes_a_verdict_at_once_is_found() {
    is_found(Bug::GrantUnwaited, "lease", 3);
}

#[test]
fn a_new_owner_that_believes_a_verdict_at_once_is_found() {
    is_found(Bug::NewOwnerUnwaited, "lease", 4);
}

#[test]
fn a_node_that_takes_what_one_owner_grants_for_all_its_slots_is_found() {
    is_found(Bug::GrantForAll, "lease", 9);
}

#[test]
fn an_agent_that_writes_down_what_it_did_too_late_is_found() {
    is_found(Bug::JournalLate, "I7", 15);
}

#[test]
fn an_agent_that_begins_a_new_boot_and_goes_on_with_what_runs_is_found() {
    is_found(Bug::AdoptedAnew, "lease", 3);
}

#[test]
fn an_agent_that_does_not_know_dead_tokens_is_found() {
    is_found(Bug::DeadForgotten, "I7", 10);
}

#[test]
fn an_agent_that_does_not_know_the_fences_is_found() {
    is_found(Bug::FencesForgotten, "I7", 7);
}

#[test]
fn an_agent_that_takes_its_start_for_a_grant_is_found() {
    is_found(Bug::LeaseByItself, "lease", 12);
}

#[test]
fn an_owner_that_assumes_a_destroy_is_found() {
    is_found(Bug::DestroyAssumed, "S3", 5);
}

#[test]
fn an_owner_that_counts_old_confirmations_is_found() {
    is_found(Bug::StaleConfirm, "S3", 6);
}

#[test]
fn an_owner_that_reads_without_whom_it_may_have_added_is_found() {
    is_found(Bug::AddedUnasked, "S3", 10);
}

#[test]
fn a_lone_owner_that_reads_without_the_config_store_is_found() {
    is_found(Bug::LoneUnread, "S3", 7);
}

#[test]
fn an_owner_that_takes_a_silent_node_for_full_is_found() {
    is_found(Bug::FullAssumed, "S1", 7);
}

#[test]
fn an_owner_that_takes_back_what_was_sent_is_found() {
    is_found(Bug::UnsentAssumed, "S1", 8);
}

#[test]
fn an_owner_that_takes_back_what_its_predecessor_asked_for_is_found() {
    is_found(Bug::WithdrawnLater, "S1", 7);
}

#[test]
fn a_partition_that_is_served_before_it_is_found_again_is_found() {
    is_found(Bug::RecoverySkipped, "S2", 8);
}

#[test]
fn a_node_that_forgets_that_it_was_full_is_found() {
    is_found(Bug::FullForgotten, "S1", 14);
}

#[test]
fn a_member_that_is_added_too_early_is_found() {
    is_found(Bug::EarlyMember, "I3", 6);
}

#[test]
fn a_split_under_the_old_epoch_is_found() {
    is_found(Bug::SplitUnfenced, "I1", 6);
}

#[test]
fn an_owner_that_places_on_a_node_that_it_knows_to_be_drained_is_found() {
    is_found(Bug::CordonUnseen, "cordon", 3);
}

#[test]
fn a_boot_that_takes_its_nodes_cordon_away_is_found() {
    is_found(Bug::CordonForgotten, "cordon", 5);
}

#[test]
fn a_drained_node_that_never_gets_empty_is_found() {
    is_found(Bug::DrainHidden, "converged", 3);
}

#[test]
fn an_owner_that_counts_acknowledgements_of_an_earlier_epoch_is_found() {
    is_found(Bug::LateAckCounted, "I5", 7);
}

#[test]
fn a_copy_that_acknowledges_below_the_epoch_that_it_knows_is_found() {
    is_found(Bug::OldEpochAcked, "S2", 7);
}

#[test]
fn a_learner_that_gets_a_delta_after_a_loss_is_found() {
    is_found(Bug::DeltaAfterLoss, "I5", 4);
}

#[test]
fn a_boot_that_is_used_before_it_is_registered_is_found() {
    is_found(Bug::RegisteredEarly, "I11", 6);
}

#[test]
fn an_owner_that_serves_before_its_copies_have_answered_its_sync_is_found() {
    is_found(Bug::ServedUnsynced, "I2", 4);
}

#[test]
fn a_manager_that_speaks_before_its_number_is_taken_is_found() {
    is_found(Bug::ClaimedEarly, "I9", 3);
}

#[test]
fn a_node_that_forgets_what_it_was_told_to_destroy_is_found() {
    is_found(Bug::DestroyedForgotten, "S3", 11);
}

/// Two suspect each other while one is copied to: its owner read the config store as fast as that
/// answers, until its clock went on, since the copy that it wanted was not wanted any more.
#[test]
fn a_wish_that_a_view_does_not_allow_is_no_reason_to_read_it_without_end() {
    let left = Left::NOTHING.crashes(1).starts(1).suspicions(1).ticks(1);
    let ci = suite::ci();
    let two = ci.iter().find(|it| it.numbers.len() == 2).unwrap();
    let bounds = Bounds { name: "two, and one comes back", left, ..two.clone() };
    let explored = explore(&bounds, None);
    assert!(explored.exhausted, "{explored:#?}");
}
