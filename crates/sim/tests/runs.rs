//! Whole runs: the same seed gives the same run, runs are as big as promised. That planted bugs are
//! caught is shown by `rota-sim planted`, which `deploy/test` runs.

use rota_sim::run;
use rota_sim::run::{FAULTS_MIN, REQUESTS_MIN};

#[test]
fn a_seed_gives_the_same_run_every_time() {
    for seed in [1, 2, 3] {
        let (first, second) = (run(seed, false, None), run(seed, true, None));
        assert_eq!(first.trace_hash, second.trace_hash, "seed {seed}");
        assert_eq!(first.counters, second.counters, "seed {seed}");
        assert!(first.trace.is_empty() && !second.trace.is_empty());
    }
}

#[test]
fn two_seeds_give_two_runs() {
    assert_ne!(run(1, false, None).trace_hash, run(2, false, None).trace_hash);
}

#[test]
fn a_whole_run_has_enough_requests_and_faults() {
    let clean = (1..).map(|seed| run(seed, false, None)).find(|it| it.violations.is_empty());
    let outcome = clean.unwrap();
    assert!(outcome.requests >= REQUESTS_MIN, "{}", outcome.requests);
    assert!(outcome.disturbances >= FAULTS_MIN, "{}", outcome.disturbances);
}
