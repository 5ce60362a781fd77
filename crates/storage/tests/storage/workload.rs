//! Submissions that follow from their LSN alone, and what they add up to.

use rand::{Rng, RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rota_storage::{Engine, KvWrite};
use std::collections::BTreeMap;
use std::ops::{ControlFlow, RangeInclusive};

/// Its record holds the newest LSN: each submission writes it.
pub const NEWEST: &[u8] = b"~newest";
const KEYS: u16 = 300;

/// What the submission with this LSN writes.
pub fn writes(lsn: u64) -> Vec<KvWrite> {
    let mut random = ChaCha8Rng::seed_from_u64(lsn);
    let mut writes: Vec<KvWrite> = (0..random.random_range(1..4))
        .map(|_| {
            let key = random.random_range(0..KEYS).to_be_bytes();
            if random.random_ratio(1, 4) {
                return KvWrite::delete(key);
            }
            let mut value = vec![0; random.random_range(0..900)];
            random.fill_bytes(&mut value);
            KvWrite::put(key, value)
        })
        .collect();
    writes.push(KvWrite::put(NEWEST, lsn.to_be_bytes()));
    writes
}

/// What an engine must hold after the submissions up to `lsn`.
#[derive(Clone, Default)]
pub struct Expected {
    pub lsn: u64,
    pub records: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Expected {
    pub fn advance_to(&mut self, lsn: u64) {
        while self.lsn < lsn {
            self.lsn += 1;
            writes(self.lsn).into_iter().for_each(|write| self.apply(write));
        }
    }

    pub fn apply(&mut self, write: KvWrite) {
        match write {
            KvWrite::Put { key, value } => self.records.insert(key, value),
            KvWrite::Delete { key } => self.records.remove(&key),
        };
    }

    /// Checks that the engine holds exactly the submissions up to some LSN in `range`, none of
    /// them by half, and moves there.
    pub fn check(&mut self, engine: &mut dyn Engine, range: RangeInclusive<u64>) {
        let newest = newest(engine);
        assert!(range.contains(&newest), "holds everything up to {newest}, not one of {range:?}");
        self.advance_to(newest);
        assert_eq!(self.lsn, newest);
        assert!(all(engine) == self.records, "the records up to {newest} are others");
    }
}

/// The newest LSN that an engine holds.
pub fn newest(engine: &mut dyn Engine) -> u64 {
    let newest = engine.get(NEWEST).expect("reads");
    newest.map_or(0, |value| u64::from_be_bytes(value.try_into().expect("eight bytes")))
}

/// Everything that an engine holds.
pub fn all(engine: &mut dyn Engine) -> BTreeMap<Vec<u8>, Vec<u8>> {
    try_all(engine).expect("reads")
}

pub fn try_all(
    engine: &mut dyn Engine,
) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, rota_storage::EngineError> {
    let mut records = BTreeMap::new();
    engine.scan_all(&mut |key, value| {
        let before =
            records.last_key_value().is_none_or(|(last, _): (&Vec<u8>, _)| last < &key.to_vec());
        assert!(before, "keys come in order");
        records.insert(key.to_vec(), value.to_vec());
        ControlFlow::Continue(())
    })?;
    Ok(records)
}
