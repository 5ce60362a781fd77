//! Whose a folder is.

use crate::{ENGINES, label, open, settings};
use rota_model::{ClusterName, ManagerId, ManagerNumber};
use rota_storage::{
    EngineError, EngineKind, KvWrite, Label, RealDisk, Settings, begun_for, give_up,
    open as open_folder,
};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn made(kind: EngineKind) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let mut engine = open(Arc::new(RealDisk), folder.path(), kind).expect("opens");
    engine.commit(&[KvWrite::put("a", "1")]).expect("commits");
    folder
}

fn bytes_of(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = fs::read_dir(folder).expect("a folder");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths.map(|path| (path.clone(), fs::read(path).expect("a file"))).collect()
}

/// Opens the folder and gives the refusal, which must have changed nothing.
fn refused(folder: &Path, label: &Label, settings: &Settings) -> EngineError {
    let before = bytes_of(folder);
    let error = open_folder(folder, label, settings).map(drop).expect_err("it is refused");
    assert!(before == bytes_of(folder), "nothing is changed: {error}");
    error
}

#[test]
fn a_folder_of_another_cluster_is_refused_with_both_names() {
    for kind in ENGINES {
        let folder = made(kind);
        let other = Label { cluster: ClusterName::parse("prod").expect("a name"), ..label() };
        let error = refused(folder.path(), &other, &settings(kind));
        assert!(matches!(&error, EngineError::OtherCluster { found, wanted, .. }
            if found.as_str() == "test" && wanted.as_str() == "prod"));
        let text = error.to_string();
        assert!(text.ends_with("belongs to cluster test, not to cluster prod"), "{text}");
    }
}

#[test]
fn a_folder_that_is_given_up_is_anybodys_and_holds_nothing() {
    for kind in ENGINES {
        let folder = made(kind);
        let engine = open(Arc::new(RealDisk), folder.path(), kind).expect("opens");
        let error = give_up(folder.path(), &label()).expect_err("it is in use");
        assert!(matches!(error, EngineError::InUse { .. }), "{error}");
        drop(engine);
        let other = Label { number: ManagerNumber(8), ..label() };
        let error = give_up(folder.path(), &other).expect_err("it is another's");
        assert!(matches!(error, EngineError::OtherManager { .. }), "{error}");
        give_up(folder.path(), &label()).expect("is given up");
        assert_eq!(begun(&folder, &label()).expect("readable"), None);
        let mut engine = open_folder(folder.path(), &other, &settings(kind)).expect("opens");
        assert_eq!(engine.get(b"a").expect("reads"), None);
    }
}

fn begun(folder: &tempfile::TempDir, by: &Label) -> Result<Option<ManagerNumber>, EngineError> {
    begun_for(folder.path(), &by.cluster, &by.manager)
}

#[test]
fn a_folder_tells_its_manager_alone_for_which_number_it_was_begun_and_only_while_it_is_free() {
    for kind in ENGINES {
        let folder = made(kind);
        assert_eq!(begun(&folder, &label()).expect("it is free"), Some(label().number));
        let other = Label { manager: ManagerId::parse("m8").expect("a name"), ..label() };
        let error = begun(&folder, &other).expect_err("it is another manager's");
        assert!(matches!(error, EngineError::OtherManager { .. }), "{error}");
        let other = Label { cluster: ClusterName::parse("d").expect("a name"), ..label() };
        let error = begun(&folder, &other).expect_err("it is another cluster's");
        assert!(matches!(error, EngineError::OtherCluster { .. }), "{error}");
        let engine = open(Arc::new(RealDisk), folder.path(), kind).expect("opens");
        let error = begun(&folder, &label()).expect_err("it is in use");
        assert!(matches!(error, EngineError::InUse { .. }), "{error}");
        drop(engine);
        assert_eq!(begun(&folder, &label()).expect("it is free again"), Some(label().number));
    }
}

#[test]
fn a_folder_of_another_manager_or_number_is_refused_with_both() {
    for kind in ENGINES {
        let folder = made(kind);
        let others = [
            Label { manager: ManagerId::parse("m8").expect("a name"), ..label() },
            Label { number: ManagerNumber(8), ..label() },
        ];
        for other in others {
            let error = refused(folder.path(), &other, &settings(kind));
            assert!(matches!(&error, EngineError::OtherManager { found, wanted, .. }
                if found.1 == ManagerNumber(7) && *wanted == (other.manager, other.number)));
            let text = error.to_string();
            assert!(
                text.contains("belongs to manager m7 with number 7, not to manager m"),
                "{text}"
            );
        }
    }
}

#[test]
fn a_folder_of_another_format_is_refused_with_both_versions() {
    for kind in ENGINES {
        let folder = made(kind);
        let owner = folder.path().join("OWNER");
        let text = fs::read_to_string(&owner).expect("text");
        fs::write(&owner, text.replace("format 6", "format 3")).expect("writes");
        let error = refused(folder.path(), &label(), &settings(kind));
        assert!(
            matches!(&error, EngineError::OtherFormat { found, wanted: 6, .. } if found == "3")
        );
        let text = error.to_string();
        assert!(text.contains("has format 3; this program knows format 6: start the"), "{text}");
    }
}

#[test]
fn a_folder_of_another_engine_is_refused_and_without_a_wish_its_own_is_taken() {
    for (kind, other) in [(ENGINES[0], ENGINES[1]), (ENGINES[1], ENGINES[0])] {
        let folder = made(kind);
        let error = refused(folder.path(), &label(), &settings(other));
        assert!(matches!(error, EngineError::OtherEngine { found, wanted, .. }
            if found == kind && wanted == other));
        let any = Settings { engine: None, ..settings(kind) };
        let mut engine = open_folder(folder.path(), &label(), &any).expect("opens");
        assert_eq!(engine.get(b"a").expect("reads"), Some(b"1".to_vec()));
    }
}

#[test]
fn a_second_opener_is_refused_until_the_first_is_gone() {
    for kind in ENGINES {
        let folder = made(kind);
        let first = open(Arc::new(RealDisk), folder.path(), kind).expect("opens");
        let error = open(Arc::new(RealDisk), folder.path(), kind).map(drop);
        assert!(matches!(error, Err(EngineError::InUse { .. })), "{error:?}");
        drop(first);
        open(Arc::new(RealDisk), folder.path(), kind).expect("opens");
    }
}

#[test]
fn an_owner_file_that_is_damaged_or_gone_is_no_reason_to_begin_anew() {
    for kind in ENGINES {
        let folder = made(kind);
        let owner = folder.path().join("OWNER");
        let good = fs::read(&owner).expect("bytes");
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 4;
            fs::write(&owner, bad).expect("writes");
            refused(folder.path(), &label(), &settings(kind));
        }
        fs::write(&owner, &good[..good.len() / 2]).expect("writes");
        refused(folder.path(), &label(), &settings(kind));
        fs::remove_file(&owner).expect("removes");
        let error = refused(folder.path(), &label(), &settings(kind));
        assert!(error.to_string().contains("is there without it"), "{error}");
        fs::write(&owner, good).expect("writes");
        let mut engine = open(Arc::new(RealDisk), folder.path(), kind).expect("opens");
        assert_eq!(engine.get(b"a").expect("reads"), Some(b"1".to_vec()));
    }
}

#[test]
fn a_data_file_that_is_gone_or_empty_is_no_reason_to_begin_anew() {
    for kind in ENGINES {
        let folder = made(kind);
        for (path, bytes) in bytes_of(folder.path()) {
            if path.ends_with("LOCK") {
                continue;
            }
            // Without it the folder is as a kill leaves it.
            if !path.ends_with("CLOSED") {
                fs::remove_file(&path).expect("removes");
                let error = refused(folder.path(), &label(), &settings(kind));
                assert!(error.to_string().contains(path.to_str().expect("text")), "{error}");
            }
            fs::write(&path, b"").expect("writes");
            let error = refused(folder.path(), &label(), &settings(kind));
            assert!(error.to_string().contains(path.to_str().expect("text")), "{error}");
            fs::write(&path, bytes).expect("writes");
        }
    }
}

#[test]
fn a_data_file_of_another_folder_is_refused() {
    for kind in ENGINES {
        let folder = made(kind);
        let foreign = tempfile::tempdir().expect("a folder");
        let other = Label { number: ManagerNumber(8), ..label() };
        drop(open_folder(foreign.path(), &other, &settings(kind)).expect("opens"));
        for (path, bytes) in bytes_of(foreign.path()) {
            let name = path.file_name().expect("a name");
            if name == "OWNER" || name == "LOCK" {
                continue;
            }
            let own = fs::read(folder.path().join(name)).expect("bytes");
            fs::write(folder.path().join(name), bytes).expect("writes");
            let error = open_folder(folder.path(), &label(), &settings(kind)).map(drop);
            let text = error.expect_err("it is refused").to_string();
            assert!(text.contains("it was made for another folder"), "{text}");
            fs::write(folder.path().join(name), own).expect("writes");
        }
    }
}
