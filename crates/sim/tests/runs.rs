//! Whole runs: the same seed gives the same run, runs are as big as promised. That planted bugs are
//! caught is shown by `rota-sim planted`, which `deploy/test` runs.

use rota_sim::run;

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
fn a_whole_run_has_500_client_operations_and_20_faults_that_took_effect() {
    for seed in [1, 2, 3, 4, 5] {
        let outcome = run(seed, false, None);
        assert_eq!(outcome.violations, vec![], "seed {seed}");
        assert!(outcome.requests >= 500, "seed {seed}: {} operations", outcome.requests);
        assert!(outcome.disturbances >= 20, "seed {seed}: {} faults", outcome.disturbances);
    }
}
