//! Attachments: beside a put stands the same file written by hand, digest and sync included.

use crate::{Options, label, median, rounded};
use rota_storage::RealDisk;
use rota_storage::attachments::{AttachmentSettings, Attachments, PIECE_BYTES, digest_of};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use std::fs::File;
use std::io::{Read, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// So many bytes of a piece, again and again.
fn source(piece: &[u8], bytes: u64) -> impl Read {
    std::io::Cursor::new(piece.to_vec().repeat(16)).chain(std::io::repeat(piece[0])).take(bytes)
}

fn by_hand(folder: &Path, mut bytes: impl Read) {
    let mut file = File::create(folder.join("raw")).expect("a file can be made");
    let mut buffer = vec![0; PIECE_BYTES];
    let mut hash = Sha256::new();
    loop {
        let length = bytes.read(&mut buffer).expect("memory");
        if length == 0 {
            break;
        }
        hash.update(&buffer[..length]);
        file.write_all(&buffer[..length]).expect("the disk works");
    }
    std::hint::black_box(hash.finalize());
    file.sync_data().expect("the disk works");
    File::open(folder).and_then(|folder| folder.sync_all()).expect("the disk works");
}

pub fn measure(options: &Options) -> Vec<(String, Value)> {
    let folder = tempfile::tempdir_in(&options.folder).expect("a folder can be made");
    let settings = AttachmentSettings::default();
    let (disk, path) = (Arc::new(RealDisk), folder.path().join("attachments"));
    let store = Attachments::open(disk, &path, &label(), settings, 0).expect("opens");
    let (mut puts, mut raws, mut reads, mut ratios) = (vec![], vec![], vec![], vec![]);
    let bytes = options.body_bytes;
    let megabytes = bytes as f64 / 1e6;
    for round in 0..options.rounds {
        eprintln!("attachments, round {} of {}", round + 1, options.rounds);
        let first = u8::try_from(round % 251).expect("small") + 1;
        let piece: Vec<u8> = (0..=250).cycle().map(|byte| first ^ byte).take(PIECE_BYTES).collect();
        let mut whole = Vec::new();
        source(&piece, bytes).read_to_end(&mut whole).expect("memory");
        let sha256 = digest_of(&whole);
        drop(whole);
        let began = Instant::now();
        store.put(sha256, bytes, source(&piece, bytes), 0).expect("stored");
        let put = began.elapsed().as_secs_f64();
        let began = Instant::now();
        by_hand(folder.path(), source(&piece, bytes));
        let raw = began.elapsed().as_secs_f64();
        let began = Instant::now();
        store.verify(&sha256).expect("whole");
        reads.push(megabytes / began.elapsed().as_secs_f64());
        puts.push(megabytes / put);
        raws.push(megabytes / raw);
        ratios.push(raw / put);
    }
    [
        ("attachment_put_mb_per_s", median(puts)),
        ("attachment_put_by_hand_mb_per_s", median(raws)),
        ("attachment_put_ratio", median(ratios)),
        ("attachment_read_mb_per_s", median(reads)),
    ]
    .map(|(name, figure)| (name.to_owned(), rounded(figure)))
    .into()
}
