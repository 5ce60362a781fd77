//! Numbers in a folder, as a person sees them and as the next process finds them.

use rota_ids::{Change, Entry, Key, Kind, Name, Numbers, Policy, Uuid};
use rota_storage::numbers::{NumbersError, NumbersFolder, Opened, SET_ASIDE, Why};
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const HOUR: u64 = 3_600_000;
/// A moment with milliseconds.
const NOW: u64 = 1_795_000_000_123;

fn kind(text: &str) -> Kind {
    Kind::parse(text).expect("a good name")
}

fn pool(it: u128) -> Key {
    Policy::Local.key(kind("Pool"), None, Uuid::from_u128(it))
}

/// A node of pool 1.
fn node(it: u128) -> Key {
    Policy::Local.key(kind("Node"), Some(Uuid::from_u128(1)), Uuid::from_u128(it))
}

fn folder() -> TempDir {
    tempfile::tempdir().expect("a folder")
}

fn open(folder: &TempDir) -> Opened {
    NumbersFolder::open(folder.path(), HOUR).expect("opens")
}

/// The file of a name.
fn file(folder: &TempDir, name: &Name) -> PathBuf {
    folder.path().join(format!("{name}.db"))
}

fn file_of(folder: &TempDir, key: &Key) -> PathBuf {
    file(folder, &Name::Entry(key.clone()))
}

fn last_of(folder: &TempDir, key: &Key) -> PathBuf {
    file(folder, &Name::Last(key.group()))
}

/// Assigns numbers and persists them. Returns the numbers.
fn assign(opened: &mut Opened, keys: &[Key], now_ms: u64) -> Vec<u64> {
    let mut given = Vec::new();
    for key in keys {
        let assigned = opened.numbers.assign(key, now_ms).expect("a number is free");
        opened.folder.persist(&assigned.changes).expect("persists");
        given.push(assigned.number);
    }
    given
}

/// Name, mode and milliseconds of the last change, as `ls` shows them.
fn seen(path: &Path) -> (String, u32, u64) {
    let data = fs::metadata(path).expect("it is there");
    let ms = data.mtime() * 1_000 + data.mtime_nsec() / 1_000_000;
    let content = fs::read_to_string(path).expect("it is text");
    (content, data.mode() & 0o7777, ms.try_into().expect("after 1970"))
}

/// Names of the files in a folder, without the lock.
fn names(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).expect("lists").map(|it| it.expect("lists").file_name());
    let names = names.map(|it| it.into_string().expect("text")).filter(|it| it != "LOCK");
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

/// Why each file was set aside, and its name there.
fn aside(opened: &Opened) -> Vec<(String, Why)> {
    let name = |path: &Path| path.file_name().expect("a name").to_string_lossy().into_owned();
    opened.set_aside.iter().map(|it| (name(&it.to), it.why.clone())).collect()
}

/// What this process's umask leaves of `rw-rw-r--`.
fn rights(folder: &TempDir) -> u32 {
    use std::os::unix::fs::OpenOptionsExt as _;
    let path = folder.path().join("plain");
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true).mode(0o664).open(&path).expect("makes a file");
    let mode = fs::metadata(&path).expect("it is there").mode() & 0o7777;
    fs::remove_file(path).expect("removes it");
    mode
}

#[test]
fn an_entry_is_a_file_with_its_number_its_sticky_bit_and_its_time() {
    let folder = folder();
    let rights = rights(&folder);
    let mut opened = open(&folder);
    assert_eq!(assign(&mut opened, &[pool(1), node(2), node(3)], NOW), [1, 1, 2]);
    let valid = |number: &str| (number.to_owned(), rights | 0o1000, NOW);
    assert_eq!(seen(&file_of(&folder, &pool(1))), valid("1"));
    assert_eq!(seen(&file_of(&folder, &node(3))), valid("2"));
    assert_eq!(seen(&last_of(&folder, &node(3))), valid("2"));
    let expected = [
        "Node.00000000-0000-0000-0000-000000000001.00000000-0000-0000-0000-000000000002.db",
        "Node.00000000-0000-0000-0000-000000000001.00000000-0000-0000-0000-000000000003.db",
        "Node.00000000-0000-0000-0000-000000000001.last.db",
        "Pool.00000000-0000-0000-0000-000000000001.db",
        "Pool.last.db",
    ];
    assert_eq!(names(folder.path()), expected);

    let purged = opened.numbers.purge(&pool(1), NOW + 5).unwrap();
    opened.folder.persist(&purged.changes).unwrap();
    let invalid = |number: &str| (number.to_owned(), rights, NOW + 5);
    assert_eq!(seen(&file_of(&folder, &pool(1))), invalid("1"));
    assert_eq!(seen(&last_of(&folder, &node(3))), invalid("2"));
    assert_eq!(seen(&file_of(&folder, &node(3))), valid("2"));
}

#[test]
fn rights_that_a_person_gave_stay_when_the_validity_changes() {
    let folder = folder();
    let mut opened = open(&folder);
    assign(&mut opened, &[pool(1)], NOW);
    let path = file_of(&folder, &pool(1));
    fs::set_permissions(&path, Permissions::from_mode(0o1640)).unwrap();
    let stopped = opened.numbers.stop(NOW + 1);
    opened.folder.persist(&stopped.changes).unwrap();
    assert_eq!(seen(&path), ("1".to_owned(), 0o640, NOW + 1));
}

#[test]
fn a_restart_keeps_numbers() {
    let folder = folder();
    let keys = [pool(1), node(2), node(3)];
    let mut opened = open(&folder);
    assign(&mut opened, &keys, NOW);
    let stopped = opened.numbers.stop(NOW + 1);
    opened.folder.persist(&stopped.changes).unwrap();
    let before = opened.numbers.clone();
    drop(opened);

    let mut opened = open(&folder);
    assert_eq!((&opened.numbers, opened.set_aside.len()), (&before, 0));
    let started = opened.numbers.start(NOW + HOUR);
    opened.folder.persist(&started.changes).unwrap();
    assert_eq!((started.removed, started.invalidated), (0, 0));
    // Not in the order of before.
    let again = [node(4), node(3), node(2), pool(1)];
    assert_eq!(assign(&mut opened, &again, NOW + HOUR), [3, 2, 1, 1]);
}

#[test]
fn a_restart_after_the_interval_drops_numbers() {
    let folder = folder();
    let mut opened = open(&folder);
    assign(&mut opened, &[pool(1), node(2), node(3)], NOW);
    let stopped = opened.numbers.stop(NOW + 1);
    opened.folder.persist(&stopped.changes).unwrap();
    drop(opened);

    let mut opened = open(&folder);
    let started = opened.numbers.start(NOW + 1 + HOUR);
    opened.folder.persist(&started.changes).unwrap();
    assert_eq!((started.removed, opened.numbers.len()), (5, 0));
    assert_eq!(names(folder.path()), [""; 0]);
    assert_eq!(assign(&mut opened, &[node(3)], NOW + 2 * HOUR), [1]);
}

#[test]
fn a_process_that_was_killed_leaves_valid_entries_and_the_next_start_makes_them_invalid() {
    let folder = folder();
    let mut opened = open(&folder);
    assign(&mut opened, &[pool(1)], NOW);
    drop(opened);

    let mut opened = open(&folder);
    let started = opened.numbers.start(NOW + 9 * HOUR);
    opened.folder.persist(&started.changes).unwrap();
    assert_eq!((started.removed, started.invalidated), (0, 2));
    let (_, mode, ms) = seen(&file_of(&folder, &pool(1)));
    assert_eq!((mode & 0o1000, ms), (0, NOW + 9 * HOUR));
    assert_eq!(assign(&mut opened, &[pool(1)], NOW + 9 * HOUR), [1]);
}

#[test]
fn a_write_that_was_cut_off_is_set_aside_and_what_has_the_name_counts() {
    let folder = folder();
    let mut opened = open(&folder);
    assign(&mut opened, &[pool(1), pool(2)], NOW);
    let before = opened.numbers.clone();
    drop(opened);
    let torn = last_of(&folder, &pool(1)).with_extension("new");
    fs::write(&torn, "").unwrap();

    let opened = open(&folder);
    assert_eq!(opened.numbers, before);
    assert_eq!(aside(&opened), [("Pool.last.new".to_owned(), Why::CutOff)]);
    assert!(!torn.exists() && folder.path().join(SET_ASIDE).join("Pool.last.new").exists());
}

#[test]
fn a_broken_file_is_set_aside_and_the_rest_is_read() {
    for content in ["", "x", "0", "-1", "+1", "01", " 1", "1 ", "1\n\n", "18446744073709551616"] {
        let folder = folder();
        let mut opened = open(&folder);
        assign(&mut opened, &[pool(1), pool(2)], NOW);
        drop(opened);
        fs::write(file_of(&folder, &pool(1)), content).unwrap();

        let mut opened = open(&folder);
        let name = format!("{}.db", pool(1));
        assert_eq!(aside(&opened), [(name.clone(), Why::Content)], "{content:?}");
        let kept = folder.path().join(SET_ASIDE).join(name);
        assert_eq!(fs::read_to_string(kept).unwrap(), content);
        assert_eq!(opened.numbers.len(), 2);
        assert_eq!(assign(&mut opened, &[pool(2), pool(1)], NOW), [2, 3]);
    }
}

#[test]
fn a_number_with_a_line_end_is_read_as_a_person_writes_it() {
    let folder = folder();
    let path = file_of(&folder, &pool(1));
    fs::write(&path, "18446744073709551615\n").unwrap();
    let opened = open(&folder);
    let entry = opened.numbers.entry(&pool(1)).unwrap();
    assert_eq!((entry.number, entry.valid), (u64::MAX, false));
}

#[test]
fn a_broken_last_is_made_anew_from_the_highest_number_of_its_group() {
    let folder = folder();
    let mut opened = open(&folder);
    assign(&mut opened, &[pool(1), pool(2), pool(3)], NOW);
    drop(opened);
    let path = last_of(&folder, &pool(1));
    fs::write(&path, "?").unwrap();

    let mut opened = open(&folder);
    assert_eq!(aside(&opened), [("Pool.last.db".to_owned(), Why::Content)]);
    assert_eq!(seen(&path).0, "3");
    assert_eq!(assign(&mut opened, &[pool(4)], NOW), [4]);
}

#[test]
fn names_that_are_none_of_an_entry_and_what_is_no_regular_file_are_set_aside() {
    let folder = folder();
    let inside = |name: &str| folder.path().join(name);
    fs::write(inside("notes.txt"), "1").unwrap();
    fs::write(inside("No-de.last.db"), "1").unwrap();
    fs::write(inside("Pool.7.db"), "1").unwrap();
    fs::create_dir(inside("Node.last.db")).unwrap();
    symlink("notes.txt", inside("Pool.last.db")).unwrap();
    fs::create_dir(inside("lost+found")).unwrap();

    let opened = open(&folder);
    let told: Vec<String> =
        aside(&opened).iter().map(|(name, why)| format!("{name}: {why}")).collect();
    let expected = [
        "No-de.last.db: its kind has '-' at byte 2; use letters and digits only",
        "Node.last.db: it is no regular file",
        "Pool.7.db: its name has \"7\", which is not a lower-case UUID",
        "Pool.last.db: it is no regular file",
        "notes.txt: its name does not end with .db",
    ];
    assert_eq!(told, expected);
    assert!(opened.numbers.is_empty());
    assert_eq!(names(folder.path()), ["lost+found", SET_ASIDE]);
    assert_eq!(names(&inside(SET_ASIDE)).len(), 5);
}

#[test]
fn a_name_that_is_taken_among_what_was_set_aside_gets_a_suffix() {
    let folder = folder();
    for content in ["first", "second", "third"] {
        fs::write(folder.path().join("notes"), content).unwrap();
        assert_eq!(open(&folder).set_aside.len(), 1);
    }
    let kept = folder.path().join(SET_ASIDE);
    assert_eq!(names(&kept), ["notes", "notes.1", "notes.2"]);
    assert_eq!(fs::read_to_string(kept.join("notes.2")).unwrap(), "third");
}

#[test]
fn of_two_files_with_one_number_the_valid_one_stays_and_the_other_is_set_aside() {
    let folder = folder();
    let mut opened = open(&folder);
    assign(&mut opened, &[pool(1), pool(2)], NOW);
    let purged = opened.numbers.purge(&pool(1), NOW + 1).unwrap();
    opened.folder.persist(&purged.changes).unwrap();
    drop(opened);
    // A person writes another resource's number into a valid file, which keeps its bit.
    fs::write(file_of(&folder, &pool(2)), "1").unwrap();

    let mut opened = open(&folder);
    let by = pool(2).uuid;
    assert_eq!(aside(&opened), [(format!("{}.db", pool(1)), Why::Taken { by })]);
    assert_eq!(assign(&mut opened, &[pool(2), pool(1)], NOW), [1, 3]);
}

#[test]
fn a_folder_is_open_once_and_the_error_names_it_and_what_to_do() {
    let folder = folder();
    let opened = open(&folder);
    let refused = NumbersFolder::open(folder.path(), HOUR).unwrap_err();
    let path = folder.path().display();
    let text = format!("{path} is in use by another process: end that one, or give another folder");
    assert_eq!(refused.to_string(), text);
    drop(opened);
    open(&folder);
}

#[test]
fn an_error_names_the_path_and_what_to_do() {
    let folder = folder();
    let path = folder.path().join("file");
    fs::write(&path, "").unwrap();
    let refused = NumbersFolder::open(&path, HOUR).unwrap_err();
    let shown = path.display();
    let text = format!(
        "cannot make the folder {shown}: give a folder, or move the file away that has its name"
    );
    assert_eq!(refused.to_string(), text);
    assert!(matches!(refused, NumbersError::Io { file, .. } if file == path));
}

#[test]
fn a_batch_that_fails_leaves_no_file_that_is_half_written_and_may_be_given_again() {
    let folder = folder();
    let mut opened = open(&folder);
    let changes = opened.numbers.assign(&pool(1), NOW).unwrap().changes;
    // A folder with the name of an entry: no rename replaces it.
    let in_the_way = file_of(&folder, &pool(1));
    fs::create_dir(&in_the_way).unwrap();
    let refused = opened.folder.persist(&changes).unwrap_err().to_string();
    assert!(
        refused.contains("cannot rename") && refused.contains(&pool(1).to_string()),
        "{refused}"
    );
    let left = [format!("{}.db", pool(1)), "Pool.last.db".to_owned()];
    assert_eq!(names(folder.path()), left);
    fs::remove_dir(in_the_way).unwrap();
    opened.folder.persist(&changes).unwrap();
    let before = opened.numbers.clone();
    drop(opened);
    assert_eq!(open(&folder).numbers, before);
}

#[test]
fn of_several_changes_of_one_name_the_last_one_counts_also_in_a_large_batch() {
    let folder = folder();
    let mut opened = open(&folder);
    let mut changes = Vec::new();
    let mut numbers = Numbers::new(HOUR);
    for it in 0..100 {
        changes.extend(numbers.assign(&pool(it), NOW).unwrap().changes);
    }
    for it in 0..50 {
        changes.extend(numbers.purge(&pool(it), NOW + 1).unwrap().changes);
    }
    changes.extend(numbers.remove_outdated(NOW + 1 + HOUR).changes);
    let entry = Entry { number: 7, valid: true, changed_ms: NOW + 2 };
    let gone = Name::Entry(pool(3));
    changes.push(Change::Put(gone.clone(), entry));
    numbers.restore(gone, entry).unwrap();
    opened.folder.persist(&changes).unwrap();
    opened.folder.persist(&changes).unwrap();
    drop(opened);
    assert_eq!(open(&folder).numbers, numbers);
}
