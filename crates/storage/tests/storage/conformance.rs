//! What every engine does. The tests of the engine over PostgreSQL have this file, too.

use crate::workload::{Expected, all, writes};
use crate::{on_each_engine, open};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rota_storage::{
    Engine, EngineError, EngineKind, KEY_BYTES_MAX, KvWrite, RealDisk, VALUE_BYTES_MAX,
};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

fn open_real(folder: &Path, engine: EngineKind) -> Box<dyn Engine> {
    open(Arc::new(RealDisk), folder, engine).expect("opens")
}

#[test]
fn a_commit_is_read_back_at_once_and_after_a_restart() {
    on_each_engine(|folder, kind| {
        let mut engine = open_real(folder, kind);
        let batch = [KvWrite::put("a", "1"), KvWrite::put("b", ""), KvWrite::put("", "no key")];
        engine.commit(&batch).expect("commits");
        for _ in 0..2 {
            assert_eq!(engine.get(b"a").expect("reads"), Some(b"1".to_vec()));
            assert_eq!(engine.get(b"b").expect("reads"), Some(Vec::new()));
            assert_eq!(engine.get(b"").expect("reads"), Some(b"no key".to_vec()));
            assert_eq!(engine.get(b"c").expect("reads"), None);
            drop(engine);
            engine = open_real(folder, kind);
        }
    });
}

#[test]
fn writes_of_one_batch_take_effect_in_their_order() {
    on_each_engine(|folder, kind| {
        let mut engine = open_real(folder, kind);
        let batch = [
            KvWrite::put("a", "1"),
            KvWrite::delete("a"),
            KvWrite::put("a", "2"),
            KvWrite::put("b", "1"),
            KvWrite::delete("b"),
            KvWrite::delete("never there"),
        ];
        engine.commit(&batch).expect("commits");
        let left: Vec<_> = all(&mut engine).into_iter().collect();
        assert_eq!(left, [(b"a".to_vec(), b"2".to_vec())]);
    });
}

#[test]
fn an_empty_batch_does_nothing() {
    on_each_engine(|folder, kind| {
        let mut engine = open_real(folder, kind);
        engine.commit(&[]).expect("commits");
        assert!(all(&mut engine).is_empty());
    });
}

#[test]
fn what_is_too_long_is_refused_and_the_engine_goes_on() {
    on_each_engine(|folder, kind| {
        let mut engine = open_real(folder, kind);
        let long_key = [KvWrite::put("a", "1"), KvWrite::delete(vec![1; KEY_BYTES_MAX + 1])];
        let error = engine.commit(&long_key).expect_err("too long");
        assert!(matches!(error, EngineError::TooLong { what: "a key", .. }), "{error}");
        let long_value = [KvWrite::put("a", vec![1; VALUE_BYTES_MAX + 1])];
        let error = engine.commit(&long_value).expect_err("too long");
        assert!(matches!(error, EngineError::TooLong { what: "a value", .. }), "{error}");
        assert!(all(&mut engine).is_empty());
        let longest = KvWrite::put(vec![1; KEY_BYTES_MAX], vec![2; VALUE_BYTES_MAX]);
        engine.commit(&[longest.clone(), KvWrite::put("b", "2")]).expect("commits");
        drop(engine);
        let mut engine = open_real(folder, kind);
        let value = engine.get(longest.key()).expect("reads");
        assert!(value.as_deref() == longest.value());
        assert_eq!(engine.get(b"b").expect("reads"), Some(b"2".to_vec()));
    });
}

#[test]
fn scans_keep_to_their_bounds_and_end_when_told() {
    on_each_engine(|folder, kind| {
        let mut engine = open_real(folder, kind);
        let keys = ["a", "ab", "abc", "b", "ba", "\u{7f}"];
        let batch: Vec<_> = keys.iter().map(|&key| KvWrite::put(key, key)).collect();
        engine.commit(&batch).expect("commits");
        let mut scan = |from: &str, to: Option<&str>, most: usize| {
            let mut seen = Vec::new();
            let to = to.map(str::as_bytes);
            let visit = &mut |key: &[u8], value: &[u8]| {
                assert_eq!(key, value);
                seen.push(String::from_utf8(key.to_vec()).expect("text"));
                if seen.len() == most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            engine.scan(from.as_bytes(), to, visit).expect("reads");
            seen
        };
        assert_eq!(scan("", None, 99), keys);
        assert_eq!(scan("ab", Some("ba"), 99), ["ab", "abc", "b"]);
        assert_eq!(scan("aa", None, 2), ["ab", "abc"]);
        assert_eq!(scan("b", Some("b"), 99), [""; 0]);
        assert_eq!(scan("b", Some("a"), 99), [""; 0]);
        let mut seen = 0;
        let visit = &mut |key: &[u8], _: &[u8]| {
            assert!(key.starts_with(b"a"));
            seen += 1;
            ControlFlow::Continue(())
        };
        engine.scan_prefix(b"a", visit).expect("reads");
        assert_eq!(seen, 3);
    });
}

#[test]
fn an_engine_agrees_with_a_map_through_checkpoints_and_restarts() {
    on_each_engine(|folder, kind| {
        let mut random = ChaCha8Rng::seed_from_u64(11);
        let mut expected = Expected::default();
        let mut engine = open_real(folder, kind);
        for lsn in 1..=1500 {
            engine.commit(&writes(lsn)).expect("commits");
            expected.advance_to(lsn);
            if random.random_ratio(1, 50) {
                let (from, to) = (random.random::<u16>() % 300, random.random::<u16>() % 300);
                let (from, to) = (from.min(to).to_be_bytes(), from.max(to).to_be_bytes());
                let mut seen = Vec::new();
                let visit = &mut |key: &[u8], value: &[u8]| {
                    seen.push((key.to_vec(), value.to_vec()));
                    ControlFlow::Continue(())
                };
                engine.scan(&from, Some(&to), visit).expect("reads");
                let wanted = expected.records.range(from.to_vec()..to.to_vec());
                assert!(seen.into_iter().eq(wanted.map(|(k, v)| (k.clone(), v.clone()))));
                let value = engine.get(&from).expect("reads");
                assert_eq!(value.as_ref(), expected.records.get(from.as_slice()));
            }
            if random.random_ratio(1, 60) {
                engine.reading_is_over();
            }
            if random.random_ratio(1, 150) {
                drop(engine);
                engine = open_real(folder, kind);
                expected.check(&mut engine, lsn..=lsn);
            }
        }
        expected.check(&mut engine, 1500..=1500);
    });
}
