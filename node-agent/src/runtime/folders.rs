//! Folders of program sessions. Those of the last ended ones are kept, for their output.

use super::surroundings::shut_folder;
use crate::session_folders;
use rota_model::{SessionKey, Stamp, Token};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The folders under `DIR/sessions`.
pub struct Folders {
    sessions: PathBuf,
    /// Of sessions that run or are about to. No two attempts share one: by it processes are found.
    live: BTreeMap<(SessionKey, Token), PathBuf>,
    /// Of ended sessions, oldest first.
    ended: VecDeque<PathBuf>,
    kept_max: usize,
}

impl Folders {
    /// The folders that earlier runs left: all of them ended, but for those of `spare`.
    pub fn found(sessions: &Path, kept_max: usize, spare: &BTreeSet<PathBuf>) -> Self {
        let mut dated: Vec<(SystemTime, PathBuf)> = Vec::new();
        let all = session_folders::all(sessions).unwrap_or_default();
        for folder in all.into_iter().filter(|it| !spare.contains(it)) {
            let changed = folder.metadata().and_then(|it| it.modified());
            dated.push((changed.unwrap_or(SystemTime::UNIX_EPOCH), folder));
        }
        dated.sort();
        let ended: VecDeque<PathBuf> = dated.into_iter().map(|(_, path)| path).collect();
        ended.iter().for_each(|it| shut(it));
        let live = BTreeMap::new();
        let mut folders = Self { sessions: sessions.to_owned(), live, ended, kept_max };
        folders.trim();
        folders
    }

    /// The folder of a session that is about to start. Not made here.
    pub fn begin(&mut self, key: &SessionKey, token: Token, life: Stamp) -> PathBuf {
        // Above all others: the oldest are removed first, and readers take the highest for the newest.
        let live = self.live.values();
        let live = live.filter_map(|it| session_folders::attempt_in(&self.sessions, key, it));
        let live = live.filter(|it| it.0 == u64::from(life)).map(|it| it.1).max().unwrap_or(0);
        let last = session_folders::last_attempt(&self.sessions, key, life).max(live);
        let next = last.saturating_add(1);
        let folder = session_folders::of_attempt(&self.sessions, key, life, next);
        self.live.insert((key.clone(), token), folder.clone());
        folder
    }

    /// A session goes on in the folder in which an earlier agent began it.
    pub fn go_on(&mut self, key: &SessionKey, token: Token, folder: &Path) {
        self.ended.retain(|it| it != folder);
        self.live.insert((key.clone(), token), folder.to_owned());
    }

    /// A session's program is over.
    pub fn ended(&mut self, key: &SessionKey, token: Token) {
        let Some(folder) = self.live.remove(&(key.clone(), token)) else { return };
        // There is none when it could not even be started.
        if folder.exists() {
            shut(&folder);
            self.ended.push_back(folder);
            self.trim();
        }
    }

    fn trim(&mut self) {
        let over = self.ended.len().saturating_sub(self.kept_max);
        let old: Vec<PathBuf> = self.ended.drain(..over).collect();
        if old.is_empty() {
            return;
        }
        let sessions = self.sessions.clone();
        // A program may have left a large tree.
        let remove = move || old.iter().for_each(|it| session_folders::remove(&sessions, it));
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(remove)),
            Err(_) => remove(),
        }
    }
}

/// Nobody but this node comes in any more.
fn shut(folder: &Path) {
    if let Err(error) = shut_folder(folder) {
        tracing::warn!(%error, folder = %folder.display(), "a session's folder stays open to others");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_model::{Epoch, LogPos, Namespace, Seq, SessionId};
    use std::fs;

    fn key(namespace: &str, id: &str) -> SessionKey {
        SessionKey::new(Namespace::parse(namespace).unwrap(), SessionId::parse(id).unwrap())
    }

    fn token(seq: u64) -> Token {
        Token(LogPos::new(Epoch(7), Seq(seq)))
    }

    fn life(number: u64) -> Stamp {
        Stamp::parse(261_122_152_849_000 + number).unwrap()
    }

    fn found(sessions: &Path, kept_max: usize) -> Folders {
        Folders::found(sessions, kept_max, &BTreeSet::new())
    }

    #[test]
    fn a_folder_that_is_spared_is_neither_removed_nor_shut_until_its_session_ends() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = session_folders::of_attempt(folder.path(), &key("a", "x"), life(1), 1);
        fs::create_dir_all(&path).unwrap();
        let open = fs::metadata(&path).unwrap().permissions();
        let spare = BTreeSet::from([path.clone()]);
        let mut folders = Folders::found(folder.path(), 0, &spare);
        folders.go_on(&key("a", "x"), token(1), &path);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode(), open.mode());
        assert_ne!(path, folders.begin(&key("a", "x"), token(2), life(1)));
        folders.ended(&key("a", "x"), token(1));
        assert!(!path.exists());
    }

    #[test]
    fn equal_ids_of_two_namespaces_lives_and_attempts_have_their_own_folders() {
        let folder = tempfile::tempdir().unwrap();
        let mut folders = found(folder.path(), 1);
        let one = folders.begin(&key("a", "x"), token(1), life(1));
        assert_eq!(one, folder.path().join("a/x").join(u64::from(life(1)).to_string()));
        let others = [
            folders.begin(&key("b", "x"), token(1), life(1)),
            folders.begin(&key("a", "x"), token(2), life(2)),
            // It was not made yet, and is taken all the same.
            folders.begin(&key("a", "x"), token(3), life(1)),
        ];
        assert!(!others.contains(&one), "{others:?}");
        fs::create_dir_all(&one).unwrap();
        folders.ended(&key("a", "x"), token(1));
        assert_ne!(one, folders.begin(&key("a", "x"), token(4), life(1)), "its output is kept");
    }

    #[test]
    fn a_later_attempt_has_a_higher_number_although_the_first_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let mut folders = found(folder.path(), 1);
        let key = key("a", "x");
        let mut begin = |number| {
            let path = folders.begin(&key, token(number), life(1));
            fs::create_dir_all(&path).unwrap();
            assert_eq!(session_folders::newest(folder.path(), &key, None).unwrap().1, path);
            folders.ended(&key, token(number));
            path
        };
        let paths = [1, 2, 3, 4].map(&mut begin);
        assert_eq!(paths.each_ref().map(|it| it.exists()), [false, false, false, true]);
        let expected = session_folders::of_attempt(folder.path(), &key, life(1), 4);
        assert_eq!(paths[3], expected);
    }

    #[test]
    fn only_the_newest_ended_folders_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let mut folders = found(folder.path(), 2);
        let paths = [1, 2, 3, 4, 5].map(|number| {
            let path = folders.begin(&key("a", "x"), token(number), life(number));
            fs::create_dir_all(&path).unwrap();
            folders.ended(&key("a", "x"), token(number));
            path
        });
        assert_eq!(paths.each_ref().map(|it| it.exists()), [false, false, false, true, true]);
        let folders = found(folder.path(), 1);
        assert_eq!(folders.ended.len(), 1);
        assert_eq!(session_folders::all(folder.path()).unwrap().len(), 1);
        drop(found(folder.path(), 0));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nor those above them");
    }
}
