//! Power goes out at any moment, and what was not synced is forgotten in part.

use crate::forgetful_disk::ForgetfulDisk;
use crate::workload::{Expected, writes};
use crate::{ENGINES, open};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rota_storage::EngineKind;
use std::path::Path;
use std::sync::Arc;

const FOLDER: &str = "/data";
const CUTS: u32 = 8;

/// One disk through several power cuts. Returns how many submissions were acknowledged.
fn lives(kind: EngineKind, seed: u64) -> u64 {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut disk = ForgetfulDisk::new(seed);
    let mut expected = Expected::default();
    let (mut acknowledged, mut submitted) = (0, 0);
    for cut in 0..=CUTS {
        if cut < CUTS {
            disk.power_lasts(random.random_range(1..500));
        }
        match open(Arc::new(disk.clone()), Path::new(FOLDER), kind) {
            Ok(mut engine) => {
                if !disk.power_is_out() {
                    // A check that is cut short says nothing; the next one will.
                    let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                        expected.check(&mut *engine, acknowledged..=submitted);
                    }));
                    assert!(checked.is_ok() || disk.power_is_out(), "seed {seed}, cut {cut}");
                }
                let mut lsn = expected.lsn;
                let until = lsn + random.random_range(1..400);
                while lsn < until {
                    lsn += 1;
                    submitted = submitted.max(lsn);
                    if let Err(error) = engine.commit(&writes(lsn)) {
                        assert!(disk.power_is_out(), "seed {seed}, cut {cut}: {error:?}");
                        break;
                    }
                    acknowledged = acknowledged.max(lsn);
                }
                if acknowledged == lsn {
                    expected.advance_to(lsn);
                }
            }
            Err(error) => {
                assert!(disk.power_is_out(), "seed {seed}, cut {cut}: {error:?}");
            }
        }
        disk = disk.restart();
    }
    acknowledged
}

fn survives(kind: EngineKind, seeds: u64) {
    let acknowledged: u64 = (0..seeds).map(|seed| lives(kind, seed)).sum();
    assert!(acknowledged > seeds * 100, "hardly anything was written: {acknowledged}");
}

#[test]
fn the_log_loses_nothing_acknowledged_when_the_power_goes_out() {
    survives(ENGINES[0], 150);
}

#[test]
fn redb_loses_nothing_acknowledged_when_the_power_goes_out() {
    survives(ENGINES[1], 25);
}

/// After a sync that failed the folder is opened again, written to, and then the power goes out.
/// Not for redb: it takes what the kernel still shows for what is on the disk.
fn survives_a_failed_sync(kind: EngineKind) {
    let mut failed = 0;
    for syncs in 1..80 {
        let disk = ForgetfulDisk::new(syncs);
        disk.sync_fails_after(syncs);
        let mut acknowledged = 0;
        if let Ok(mut engine) = open(Arc::new(disk.clone()), Path::new(FOLDER), kind) {
            let refused = (1..200).find(|&lsn| {
                let result = engine.commit(&writes(lsn));
                acknowledged = if result.is_ok() { lsn } else { acknowledged };
                result.is_err()
            });
            failed += u32::from(refused.is_some());
            assert!(refused.is_none() || engine.commit(&writes(1)).is_err(), "it gave up");
        }
        let again = open(Arc::new(disk.clone()), Path::new(FOLDER), kind);
        let mut engine = again.expect("opens");
        let mut expected = Expected::default();
        expected.check(&mut *engine, acknowledged..=acknowledged + 1);
        let newest = expected.lsn + 5;
        for lsn in expected.lsn + 1..=newest {
            engine.commit(&writes(lsn)).expect("commits");
        }
        let disk = disk.restart();
        let engine = open(Arc::new(disk), Path::new(FOLDER), kind);
        expected.check(&mut *engine.expect("opens"), newest..=newest);
    }
    assert!(failed > 40, "only {failed} commits failed");
}

#[test]
fn the_log_builds_on_nothing_that_a_failed_sync_left_behind() {
    survives_a_failed_sync(ENGINES[0]);
}
