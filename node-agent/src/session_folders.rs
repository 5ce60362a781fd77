//! Where the folders of program sessions are.
//!
//! ```text
//! DIR/sessions/<namespace>/<id>/<life>/       the first attempt of that life on this node
//! DIR/sessions/<namespace>/<id>/<life>.2/     the next one
//! DIR/sessions/<id>.<digest>.<pe>-<seq>/      as earlier versions made them: found, kept and removed like the others
//! ```
//! Namespaces and ids stand there as [`folder_name`] writes them.

use rota_model::{SessionKey, Stamp};
use rota_node::folder_name;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The folder below which those of all lives of a session are.
pub fn of_session(sessions: &Path, key: &SessionKey) -> PathBuf {
    let (namespace, id) = (key.namespace.as_str(), key.id.as_str());
    sessions.join(folder_name(namespace)).join(folder_name(id))
}

/// The folder of a life, for the attempt of that number, from 1.
pub fn of_attempt(sessions: &Path, key: &SessionKey, life: Stamp, attempt: u32) -> PathBuf {
    let life = u64::from(life);
    let name = if attempt == 1 { life.to_string() } else { format!("{life}.{attempt}") };
    of_session(sessions, key).join(name)
}

/// The life and the attempt that a folder's name tells.
fn attempt_of(name: &str) -> Option<(u64, u32)> {
    let (life, attempt) = match name.split_once('.') {
        Some((life, attempt)) => (life, attempt.parse().ok()?),
        None => (name, 1),
    };
    Some((life.parse().ok()?, attempt))
}

/// The life and the attempt that a folder is of, if it is one of that session.
pub fn attempt_in(sessions: &Path, key: &SessionKey, folder: &Path) -> Option<(u64, u32)> {
    let is_of = folder.parent() == Some(&of_session(sessions, key));
    if is_of { attempt_of(name_of(folder)?) } else { None }
}

/// The number of the last attempt of that life whose folder is there; 0 without any.
pub fn last_attempt(sessions: &Path, key: &SessionKey, life: Stamp) -> u32 {
    let folders = folders_in(&of_session(sessions, key)).unwrap_or_default();
    let attempts = folders.iter().filter_map(|it| attempt_of(name_of(it)?));
    attempts.filter(|it| it.0 == u64::from(life)).map(|it| it.1).max().unwrap_or(0)
}

/// The folder of the last attempt of that life, or of the newest life that has one.
pub fn newest(sessions: &Path, key: &SessionKey, life: Option<Stamp>) -> Option<(Stamp, PathBuf)> {
    let folders = folders_in(&of_session(sessions, key)).ok()?;
    let named = folders.into_iter().filter_map(|it| Some((attempt_of(name_of(&it)?)?, it)));
    let asked = named.filter(|(of, _)| life.is_none_or(|life| u64::from(life) == of.0));
    let ((life, _), folder) = asked.max_by_key(|it| it.0)?;
    Some((Stamp::parse(life).ok()?, folder))
}

/// The folders of all lives and attempts of a session; none where they cannot be read.
pub fn of_lives(sessions: &Path, key: &SessionKey) -> Vec<PathBuf> {
    let folders = folders_in(&of_session(sessions, key)).unwrap_or_default();
    folders.into_iter().filter(|it| name_of(it).and_then(attempt_of).is_some()).collect()
}

/// The folders of all sessions that are in that folder.
///
/// # Errors
/// It cannot be read, or one below it: what may still run there must not be missed.
pub fn all(sessions: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for namespace in folders_in(sessions)? {
        if is_of_an_earlier_version(&namespace) {
            found.push(namespace);
            continue;
        }
        // What goes meanwhile is not to be found.
        for id in if_there(folders_in(&namespace))? {
            let lives = if_there(folders_in(&id))?.into_iter();
            found.extend(lives.filter(|it| name_of(it).and_then(attempt_of).is_some()));
        }
    }
    Ok(found)
}

/// Removes a session's folder, and those above it that are empty then.
pub fn remove(sessions: &Path, folder: &Path) {
    // A program may have left what cannot be removed: it is found at the next start.
    drop(fs::remove_dir_all(folder));
    // One that is not empty ends it.
    let mut above = above(sessions, folder).into_iter().rev();
    above.any(|it| fs::remove_dir(it).is_err());
}

/// The folders between that of all sessions and a session's own, the highest first.
pub fn above<'a>(sessions: &Path, folder: &'a Path) -> Vec<&'a Path> {
    let between = folder.ancestors().skip(1);
    let mut between: Vec<&Path> =
        between.take_while(|it| *it != sessions && it.starts_with(sessions)).collect();
    between.reverse();
    between
}

fn name_of(path: &Path) -> Option<&str> {
    path.file_name()?.to_str()
}

/// What is no folder itself, as a link to one, is left alone.
fn folders_in(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut folders = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => folders.push(entry.path()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(folders)
}

/// Nothing where there is no such folder; every other error stays.
fn if_there(found: io::Result<Vec<PathBuf>>) -> io::Result<Vec<PathBuf>> {
    match found {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        found => found,
    }
}

/// By its name, and since files stand in it: in the folder of a namespace there are none.
fn is_of_an_earlier_version(folder: &Path) -> bool {
    let is_named_so = || {
        let (rest, token) = name_of(folder)?.rsplit_once('.')?;
        let (_, digest) = rest.rsplit_once('.')?;
        let (pe, seq) = token.split_once('-')?;
        let numbers = pe.parse::<u64>().is_ok() && seq.parse::<u64>().is_ok();
        Some(numbers && digest.len() == 16 && digest.bytes().all(|it| it.is_ascii_hexdigit()))
    };
    let has_files = || {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.into_iter().any(|it| it.file_type().is_ok_and(|it| it.is_file()))
    };
    is_named_so() == Some(true) && has_files()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_model::{Namespace, SessionId};

    fn key(namespace: &str, id: &str) -> SessionKey {
        SessionKey::new(Namespace::parse(namespace).unwrap(), SessionId::parse(id).unwrap())
    }

    fn life(number: u64) -> Stamp {
        Stamp::parse(261_122_152_849_000 + number).unwrap()
    }

    #[test]
    fn a_folder_stays_in_its_place_whatever_namespace_and_id_are() {
        let folder = tempfile::tempdir().unwrap();
        let sessions = folder.path();
        let long = "x".repeat(255);
        let ids = ["../../etc", "a/b", ".", "..", "ä€\u{1F600}", &long, "-rf *", "work"];
        // A namespace has no slash.
        let namespaces = [".", "..", "ä€\u{1F600}", &long, "-rf *", "work"];
        for (id, namespace) in ids.iter().flat_map(|id| namespaces.map(|it| (*id, it))) {
            let key = key(namespace, id);
            let path = of_attempt(sessions, &key, life(1), 1);
            assert_eq!(path.ancestors().nth(3), Some(sessions), "{namespace} {id}");
            fs::create_dir_all(&path).unwrap();
            assert_eq!(newest(sessions, &key, None), Some((life(1), path)));
        }
        assert_eq!(all(sessions).unwrap().len(), ids.len() * namespaces.len());
    }

    #[test]
    fn the_newest_attempt_of_the_newest_life_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let key = key("default", "s");
        let path = |number, attempt| of_attempt(folder.path(), &key, life(number), attempt);
        for (number, attempt) in [(9, 1), (9, 2), (9, 10), (10, 1)] {
            fs::create_dir_all(path(number, attempt)).unwrap();
        }
        fs::create_dir_all(of_session(folder.path(), &key).join("notes")).unwrap();
        let newest = |life| newest(folder.path(), &key, life).map(|it| it.1);
        assert_eq!(newest(None), Some(path(10, 1)));
        assert_eq!(newest(Some(life(9))), Some(path(9, 10)));
        assert_eq!(newest(Some(life(8))), None);
        assert_eq!(all(folder.path()).unwrap().len(), 4);
    }

    #[test]
    fn a_level_that_cannot_be_read_is_an_error_and_one_that_is_gone_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(if_there(folders_in(&file)).is_err());
        assert_eq!(if_there(folders_in(&folder.path().join("gone"))).unwrap().len(), 0);
        // Root reads whatever the rights are.
        let level = folder.path().join("n/s");
        fs::create_dir_all(level.join("1")).unwrap();
        let shut = std::os::unix::fs::PermissionsExt::from_mode(0o000);
        fs::set_permissions(&level, shut).unwrap();
        assert_eq!(all(folder.path()).is_ok(), fs::read_dir(&level).is_ok());
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        fs::set_permissions(&level, open).unwrap();
    }

    #[test]
    fn a_folder_goes_with_those_above_it_that_are_empty() {
        let folder = tempfile::tempdir().unwrap();
        let path = |id, number| of_attempt(folder.path(), &key("n", id), life(number), 1);
        for path in [path("a", 1), path("a", 2), path("b", 1)] {
            fs::create_dir_all(path.join("work")).unwrap();
        }
        remove(folder.path(), &path("a", 1));
        assert!(path("a", 2).exists());
        remove(folder.path(), &path("a", 2));
        assert!(!folder.path().join("n/a").exists() && path("b", 1).exists());
        remove(folder.path(), &path("b", 1));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn folders_of_an_earlier_version_are_found_and_no_namespace_is_taken_for_one() {
        let folder = tempfile::tempdir().unwrap();
        let name = "demo.72774ab54eabbe1b.1-2";
        let earlier = folder.path().join(name);
        fs::create_dir_all(earlier.join("work/1")).unwrap();
        fs::write(earlier.join("keeper.log"), "").unwrap();
        assert_eq!(all(folder.path()).unwrap(), std::slice::from_ref(&earlier));
        remove(folder.path(), &earlier);
        let now = of_attempt(folder.path(), &key(name, "s"), life(1), 1);
        fs::create_dir_all(&now).unwrap();
        fs::write(now.join("keeper.log"), "").unwrap();
        fs::write(folder.path().join("notes"), "").unwrap();
        assert_eq!(all(folder.path()).unwrap(), [now]);
    }
}
