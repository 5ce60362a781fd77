//! Bodies that changed on the disk.

use super::{body, open, put, read, sha};
use crate::forgetful_disk::ForgetfulDisk;
use rota_storage::attachments::{AttachmentError, Attachments, Stored};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const FOLDER: &str = "/attachments";

fn file_of(number: u64) -> PathBuf {
    Path::new(FOLDER).join(sha(number).to_string())
}

fn files_with(numbers: &[u64]) -> BTreeMap<PathBuf, Vec<u8>> {
    let disk = ForgetfulDisk::new(1);
    let store = open_on(&disk);
    numbers.iter().for_each(|&number| assert!(put(&store, &body(number), 0).is_ok()));
    disk.files()
}

fn open_on(disk: &ForgetfulDisk) -> Attachments {
    open(Arc::new(disk.clone()), Path::new(FOLDER)).expect("opens")
}

/// The store over changed files refuses the body by name, or reads it as it was.
fn is_noticed(files: &BTreeMap<PathBuf, Vec<u8>>, number: u64) -> bool {
    let store = open_on(&ForgetfulDisk::with_files(files));
    match read(&store, &sha(number)) {
        Ok(bytes) => {
            assert!(bytes == body(number));
            false
        }
        Err(error) => {
            assert!(
                matches!(&error, AttachmentError::Damaged { sha256, file, .. }
                    if *sha256 == sha(number) && *file == file_of(number)),
                "{error}"
            );
            let text = error.to_string();
            assert!(text.contains(&sha(number).to_string()) && text.contains(FOLDER), "{text}");
            // From now on the body counts as missing.
            assert!(!store.contains(&sha(number)));
            assert_eq!(store.damaged().len(), 1);
            assert!(store.refer(&[sha(number)]).is_err());
            true
        }
    }
}

#[test]
fn no_changed_byte_of_a_body_goes_unnoticed() {
    for number in [2, 5] {
        let mut files = files_with(&[number]);
        let length = files[&file_of(number)].len();
        for at in (0..length).step_by((length / 250).max(1)).chain(length - 80..length) {
            files.get_mut(&file_of(number)).expect("it is there")[at] ^= 0x20;
            assert!(is_noticed(&files, number), "byte {at} of {length}");
            files.get_mut(&file_of(number)).expect("it is there")[at] ^= 0x20;
        }
    }
}

#[test]
fn no_body_is_cut_off_or_lengthened_unnoticed() {
    let files = files_with(&[5]);
    let length = files[&file_of(5)].len();
    for end in (0..length).step_by(length / 200).chain(length - 80..length) {
        let mut cut = files.clone();
        cut.get_mut(&file_of(5)).expect("it is there").truncate(end);
        assert!(is_noticed(&cut, 5), "at {end} of {length}");
    }
    let mut longer = files.clone();
    longer.get_mut(&file_of(5)).expect("it is there").push(0);
    assert!(is_noticed(&longer, 5));
}

#[test]
fn bodies_that_changed_places_are_noticed() {
    let mut files = files_with(&[4, 12]);
    let [first, second] = [4, 12].map(|number| files[&file_of(number)].clone());
    assert_eq!(first.len(), second.len(), "as hard as it can be");
    files.insert(file_of(4), second.clone());
    assert!(is_noticed(&files, 4));
    // Also only their first pieces, each with its checksum.
    let piece = 65_536;
    let mut mixed = first.clone();
    let sums = body(4).len();
    mixed[..piece].copy_from_slice(&second[..piece]);
    mixed[sums..sums + 8].copy_from_slice(&second[sums..sums + 8]);
    files.insert(file_of(4), mixed);
    assert!(is_noticed(&files, 4));
}

#[test]
fn a_damaged_range_is_refused_and_the_others_stay_readable_until_then() {
    let mut files = files_with(&[7]);
    files.get_mut(&file_of(7)).expect("it is there")[100_000] ^= 1;
    let store = open_on(&ForgetfulDisk::with_files(&files));
    let mut reader = store.read_range(&sha(7), 10..65_536).expect("opens");
    assert!(reader.next_piece().expect("this piece is whole") == &body(7)[10..65_536]);
    let mut reader = store.read_range(&sha(7), 65_530..65_540).expect("opens");
    assert!(reader.next_piece().expect("this piece is whole") == &body(7)[65_530..65_536]);
    let error = reader.next_piece().expect_err("this one is not");
    assert!(error.to_string().ends_with("has changed between bytes 65536 and 131072"), "{error}");
}

#[test]
fn a_damaged_body_is_mended_by_putting_it_again_and_collected_when_nobody_names_it() {
    let mut files = files_with(&[3, 7]);
    files.get_mut(&file_of(3)).expect("it is there").truncate(70);
    files.get_mut(&file_of(7)).expect("it is there").truncate(70);
    let disk = ForgetfulDisk::with_files(&files);
    let store = open_on(&disk);
    assert_eq!(store.damaged().len(), 2);
    assert_eq!(store.set_references(&BTreeMap::from([(sha(7), 1)]), 0), [sha(7)]);
    assert_eq!(put(&store, &body(7), 0).expect("stored"), Stored::New);
    assert!(read(&store, &sha(7)).expect("reads") == body(7));
    assert_eq!(store.references(&sha(7)), 1);
    let collected = store.collect(super::GRACE_MS, 10).expect("collects");
    assert_eq!(collected.iter().map(|it| it.sha256).collect::<Vec<_>>(), [sha(3)]);
    assert!(store.damaged().is_empty());
    assert!(!disk.files().contains_key(&file_of(3)));
}

#[test]
fn a_body_whose_file_somebody_removed_is_noticed_when_it_is_read() {
    let disk = ForgetfulDisk::with_files(&files_with(&[2]));
    let store = open_on(&disk);
    rota_storage::Disk::remove(&disk, &file_of(2)).expect("removes");
    let error = store.read(&sha(2)).map(drop).expect_err("it is gone");
    assert!(error.to_string().ends_with("is gone"), "{error}");
    assert!(!store.contains(&sha(2)));
}
