//! Bytes that change on the disk, and logs that end in the middle of a batch.

use crate::forgetful_disk::ForgetfulDisk;
use crate::workload::{Expected, newest, try_all, writes};
use crate::{label, open, settings};
use rand::{Rng, RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rota_storage::{
    Disk, Engine, EngineError, EngineKind, FORMAT, KvWrite, RedbEngine, RedbSettings,
};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

const FOLDER: &str = "/data";
type Files = BTreeMap<PathBuf, Vec<u8>>;

fn engine_on(disk: &ForgetfulDisk, kind: EngineKind) -> Box<dyn Engine> {
    open(Arc::new(disk.clone()), Path::new(FOLDER), kind).expect("opens")
}

fn open_files(files: &Files, kind: EngineKind) -> Result<Box<dyn Engine>, EngineError> {
    open(Arc::new(ForgetfulDisk::with_files(files)), Path::new(FOLDER), kind)
}

/// Files of an engine after so many submissions; closed in good order, or as a kill leaves them.
fn files_after(kind: EngineKind, lsn: u64, closed: bool) -> Files {
    let disk = ForgetfulDisk::new(1);
    let mut engine = engine_on(&disk, kind);
    for lsn in 1..=lsn {
        engine.commit(&writes(lsn)).expect("commits");
    }
    let killed = disk.files();
    drop(engine);
    if closed { disk.files() } else { killed }
}

fn newest_segment(files: &Files) -> PathBuf {
    let named = |path: &&PathBuf| {
        path.extension().is_some_and(|e| e == "segment") && !path.ends_with("spare.segment")
    };
    files.keys().rfind(named).expect("there is one").clone()
}

#[test]
fn no_changed_byte_of_the_log_or_its_checkpoint_goes_unnoticed() {
    let mut files = files_after(EngineKind::Log, 160, true);
    let mut engine = open_files(&files, EngineKind::Log).expect("opens");
    let good = try_all(&mut engine).expect("reads");
    drop(engine);
    let (mut refused, mut harmless) = (0, 0);
    for path in files.keys().cloned().collect::<Vec<_>>() {
        for at in (0..files[&path].len()).step_by(7) {
            let bytes = files.get_mut(&path).expect("it is there");
            bytes[at] ^= 0x10;
            let found =
                open_files(&files, EngineKind::Log).and_then(|mut engine| try_all(&mut *engine));
            match found {
                Ok(records) => {
                    harmless += 1;
                    assert!(records == good, "byte {at} of {}", path.display());
                }
                Err(error) => {
                    refused += 1;
                    let text = error.to_string();
                    assert!(text.contains(FOLDER), "it names the file: {text}");
                }
            }
            files.get_mut(&path).expect("it is there")[at] ^= 0x10;
        }
    }
    // Blocks that wait for their next use may hold anything.
    assert!(refused > 1000 && harmless > 100, "{refused} refused, {harmless} harmless");
}

#[test]
fn no_changed_byte_of_redb_goes_unnoticed() {
    let mut files = files_after(EngineKind::Redb, 160, true);
    let mut engine = open_files(&files, EngineKind::Redb).expect("opens");
    let good = try_all(&mut engine).expect("reads");
    drop(engine);
    let path = Path::new(FOLDER).join("records.redb");
    let length = files[&path].len();
    let mut refused = 0;
    for at in (0..length).step_by(length / 400) {
        files.get_mut(&path).expect("it is there")[at] ^= 0x10;
        let found =
            open_files(&files, EngineKind::Redb).and_then(|mut engine| try_all(&mut *engine));
        match found {
            Ok(records) => assert!(records == good, "byte {at}"),
            Err(error) => {
                refused += 1;
                assert!(error.to_string().contains("records.redb"), "{error}");
            }
        }
        files.get_mut(&path).expect("it is there")[at] ^= 0x10;
    }
    assert!(refused > 10, "{refused} refused");
}

/// Cuts a file of a folder off at many lengths.
fn cut(files: &Files, path: &Path, mut check: impl FnMut(usize, &Files)) {
    let length = files[path].len();
    for end in (0..length).step_by((length / 300).max(1)) {
        let mut cut = files.clone();
        cut.get_mut(path).expect("it is there").truncate(end);
        check(end, &cut);
    }
}

fn all_in(files: &Files, kind: EngineKind) -> Result<Files, EngineError> {
    let records = open_files(files, kind).and_then(|mut engine| try_all(&mut *engine))?;
    Ok(records.into_iter().map(|(key, value)| (PathBuf::from(hex(&key)), value)).collect())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn no_file_of_a_closed_folder_is_cut_off_unnoticed() {
    for kind in crate::ENGINES {
        let files = files_after(kind, 160, true);
        let good = all_in(&files, kind).expect("reads");
        let mut refused = 0;
        for path in files.keys() {
            cut(&files, path, |end, cut| match all_in(cut, kind) {
                // Space after the end of the log, and blocks that wait for their next use.
                Ok(records) => assert!(records == good, "{} at {end}", path.display()),
                Err(error) => {
                    refused += 1;
                    assert!(error.to_string().contains(FOLDER), "it names the file: {error}");
                }
            });
        }
        assert!(refused > 300, "{kind}: {refused} refused");
    }
}

#[test]
fn files_of_random_bytes_are_refused_by_name_without_a_panic() {
    for kind in crate::ENGINES {
        let files = files_after(kind, 160, true);
        let good = all_in(&files, kind).expect("reads");
        let mut random = ChaCha8Rng::seed_from_u64(8);
        for path in files.keys().filter(|path| !path.ends_with("spare.segment")) {
            for _ in 0..40 {
                let mut other = files.clone();
                let bytes = other.get_mut(path).expect("it is there");
                // All of it, or from somewhere on: behind what was a good beginning.
                let from = random.random_range(0..=bytes.len()) * random.random_range(0..2);
                bytes.truncate(from);
                let mut rest = vec![0; random.random_range(1..20_000)];
                random.fill_bytes(&mut rest);
                bytes.extend(rest);
                match all_in(&other, kind) {
                    // Behind the end of the log anything may stand.
                    Ok(records) => assert!(records == good, "{}", path.display()),
                    Err(error) => assert!(error.to_string().contains(FOLDER), "{error}"),
                }
            }
        }
    }
}

#[test]
fn a_log_that_was_cut_off_after_a_kill_holds_the_history_up_to_the_cut_or_is_refused() {
    let files = files_after(EngineKind::Log, 160, false);
    let path = newest_segment(&files);
    let mut histories = vec![Expected::default()];
    for lsn in 1..=160 {
        let mut next = histories.last().expect("one").clone();
        next.advance_to(lsn);
        histories.push(next);
    }
    let mut opened = 0;
    cut(&files, &path, |end, cut| {
        let Ok(mut engine) = open_files(cut, EngineKind::Log) else { return };
        opened += 1;
        let lsn = newest(&mut *engine);
        let index = usize::try_from(lsn).expect("small");
        assert!(try_all(&mut *engine).expect("reads") == histories[index].records, "at {end}");
    });
    assert!(opened > 100, "{opened} opened");
}

#[test]
fn a_log_that_was_closed_and_then_cut_off_between_two_batches_is_refused() {
    let (_, path, range) = last_batch();
    // The same batches, and the end that a close wrote.
    let mut closed = closed_files_with(40);
    closed.get_mut(&path).expect("it is there").truncate(range.start);
    let error = open_files(&closed, EngineKind::Log).map(drop).expect_err("it is refused");
    assert!(matches!(&error, EngineError::Damaged { file, offset: Some(_), .. } if *file == path));
    assert!(error.to_string().contains("but it was closed in segment"), "{error}");
}

#[test]
fn a_file_of_another_format_is_refused_with_what_to_do() {
    let files = files_after(EngineKind::Log, 160, true);
    let segment = newest_segment(&files);
    let checkpoint = Path::new(FOLDER).join("records.checkpoint");
    for path in [segment, checkpoint] {
        let mut other = files.clone();
        // The second word of a head.
        other.get_mut(&path).expect("it is there")[8] = 9;
        let error = open_files(&other, EngineKind::Log).map(drop).expect_err("it is refused");
        assert!(
            matches!(&error, EngineError::OtherFormat { file, found, wanted: FORMAT }
            if *file == path && found == "9"),
            "{error}"
        );
        assert!(error.to_string().contains("start the release that wrote it"), "{error}");
    }
}

#[test]
fn a_changed_value_is_an_error_that_names_file_and_key() {
    let value = b"a value that is found again in its file".repeat(3);
    for kind in crate::ENGINES {
        let disk = ForgetfulDisk::new(1);
        let mut engine = engine_on(&disk, kind);
        let batch = [KvWrite::put("session/a", "1"), KvWrite::put("session/b", value.clone())];
        engine.commit(&batch).expect("commits");
        engine.commit(&[KvWrite::put("session/c", "3")]).expect("commits");
        drop(engine);
        let mut files = disk.files();
        let found = files.iter_mut().find_map(|(path, bytes)| {
            let at = bytes.windows(value.len()).position(|part| part == value)?;
            bytes[at + 50] ^= 1;
            Some(path.clone())
        });
        let path = found.expect("the value stands in a file");
        let disk: Arc<dyn Disk> = Arc::new(ForgetfulDisk::with_files(&files));
        let error = match kind {
            EngineKind::Log => open(disk, Path::new(FOLDER), kind).map(drop),
            EngineKind::Redb => {
                // Without redb's own check of pages, which comes first otherwise.
                let settings = RedbSettings { verify_pages: false, ..settings(kind).redb };
                RedbEngine::open(disk, Path::new(FOLDER), &label(), settings).and_then(
                    |mut engine| {
                        engine.get(b"session/a").expect("this record is whole");
                        try_all(&mut engine).map(drop)
                    },
                )
            }
            EngineKind::Postgres => unreachable!("another crate has its tests"),
        };
        let error = error.expect_err("it is noticed");
        assert!(
            matches!(&error, EngineError::Damaged { file, key: Some(key), .. }
            if *file == path && key == b"session/b"),
            "{error}"
        );
        assert!(error.to_string().contains("in the record \"session/b\""), "{error}");
    }
}

#[test]
fn a_record_that_changes_while_the_log_is_open_is_noticed_when_it_is_read() {
    let value = b"a value that is found again in its file".repeat(3);
    let disk = ForgetfulDisk::new(1);
    let mut engine = engine_on(&disk, EngineKind::Log);
    engine.commit(&[KvWrite::put("session/b", value.clone())]).expect("commits");
    engine.get(b"session/b").expect("reads");
    let path = newest_segment(&disk.files());
    let bytes = &disk.files()[&path];
    let at = bytes.windows(value.len()).position(|part| part == value).expect("it is there");
    disk.open(&path).expect("opens").write_at(at as u64, b"A").expect("writes");
    let error = engine.get(b"session/b").expect_err("it is noticed");
    assert!(
        matches!(&error, EngineError::Damaged { file, offset: Some(_), key: Some(key), .. }
        if *file == path && key == b"session/b"),
        "{error}"
    );
}

/// Where the last batch of a segment begins and ends, by what one more submission changes.
fn last_batch() -> (Files, PathBuf, std::ops::Range<usize>) {
    let (before, after) = (files_with(39), files_with(40));
    let path = newest_segment(&after);
    let differs = |(at, byte): (usize, &u8)| (before[&path].get(at) != Some(byte)).then_some(at);
    let bytes = &after[&path];
    let from = bytes.iter().enumerate().find_map(differs).expect("they differ");
    let until = bytes.iter().rposition(|&byte| byte != 0).expect("not all are zeros") + 1;
    (after, path, from..until)
}

/// One run, so that both have the same salts; no submission is larger than what is left.
fn files_with(lsn: u64) -> Files {
    thread_local!(static RUN: BTreeMap<u64, Files> = {
        let disk = ForgetfulDisk::new(1);
        let mut engine = engine_on(&disk, EngineKind::Log);
        (1..=40).map(|lsn| {
            engine.commit(&writes(lsn)).expect("commits");
            (lsn, disk.files())
        }).collect()
    });
    RUN.with(|run| run[&lsn].clone())
}

/// The files of [`files_with`], as a close in good order leaves them.
fn closed_files_with(lsn: u64) -> Files {
    let disk = ForgetfulDisk::with_files(&files_with(lsn));
    drop(engine_on(&disk, EngineKind::Log));
    disk.files()
}

#[test]
fn a_torn_last_batch_is_cut_off_and_the_log_goes_on() {
    let (files, path, range) = last_batch();
    let mut expected = Expected::default();
    expected.advance_to(39);
    let whole = open_files(&files, EngineKind::Log).map(|mut engine| newest(&mut engine));
    assert_eq!(whole.expect("opens"), 40);
    for end in range.clone().step_by(3) {
        // The file ends inside the batch, or zeros or other bytes stand in the rest of it.
        for rest in [None, Some(0), Some(0xa5)] {
            let mut torn = files.clone();
            let bytes = torn.get_mut(&path).expect("it is there");
            match rest {
                None => bytes.truncate(end),
                Some(byte) => bytes[end..range.end].fill(byte),
            }
            let disk = ForgetfulDisk::with_files(&torn);
            let mut engine = engine_on(&disk, EngineKind::Log);
            expected.check(&mut *engine, 39..=39);
            engine.commit(&writes(40)).expect("commits");
            engine.commit(&writes(41)).expect("commits");
            drop(engine);
            let mut later = expected.clone();
            later.check(&mut *engine_on(&disk.restart(), EngineKind::Log), 41..=41);
        }
    }
}

#[test]
fn a_batch_that_is_damaged_before_others_is_refused_with_file_and_offset() {
    let (files, path, range) = last_batch();
    let (mut tried, mut refused) = (0, 0);
    for at in (64..range.start).step_by(5) {
        let mut damaged = files.clone();
        damaged.get_mut(&path).expect("it is there")[at] ^= 0x40;
        let result = open_files(&damaged, EngineKind::Log).map(drop);
        tried += 1;
        // Zeros between two batches belong to none; they are never read.
        let Err(error) = result else { continue };
        refused += 1;
        assert!(
            matches!(&error, EngineError::Damaged { file, offset: Some(offset), .. }
            if *file == path && *offset <= at as u64 && *offset >= 64),
            "{error}"
        );
        assert!(error.to_string().contains("a later batch follows"), "{error}");
    }
    assert!(refused * 10 > tried * 9, "{refused} of {tried} were refused");
}

#[test]
fn a_log_that_ends_before_its_last_segment_is_refused() {
    let disk = ForgetfulDisk::new(1);
    let mut engine = engine_on(&disk, EngineKind::Log);
    // The log cannot be folded, so that two segments stay.
    disk.forbid(&Path::new(FOLDER).join("records.new"));
    let deadline = Instant::now() + Duration::from_secs(30);
    let mut lsn = 1;
    while engine.commit(&writes(lsn)).is_ok() {
        assert!(Instant::now() < deadline, "a checkpoint that cannot be written is an error");
        std::thread::yield_now();
        lsn += 1;
    }
    drop(engine);
    let files = disk.files();
    let mut engine = open_files(&files, EngineKind::Log).expect("opens");
    Expected::default().check(&mut *engine, lsn - 1..=lsn);
    drop(engine);
    let mut without = files.clone();
    let last = newest_segment(&files);
    without.remove(&last);
    let error = open_files(&without, EngineKind::Log).map(drop).expect_err("it is refused");
    assert!(matches!(&error, EngineError::Damaged { file, .. } if *file == last), "{error}");
    assert!(error.to_string().contains("it is missing"), "{error}");
}
