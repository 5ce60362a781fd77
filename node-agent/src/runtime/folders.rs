//! Folders of program sessions. Those of the last ended ones are kept, for their output.

use super::surroundings::shut_folder;
use rota_model::{SessionKey, Token};
use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Longest part of a folder's name that is taken from the session's id. The token makes it unique.
const ID_CHARS_MAX: usize = 48;

/// The folders under `DIR/sessions`.
pub struct Folders {
    sessions: PathBuf,
    /// Of ended sessions, oldest first.
    ended: VecDeque<PathBuf>,
    kept_max: usize,
}

impl Folders {
    /// The folders that earlier runs left: all of them ended.
    pub fn found(sessions: &Path, kept_max: usize) -> Self {
        let entries = fs::read_dir(sessions).into_iter().flatten().flatten();
        let mut dated: Vec<(SystemTime, PathBuf)> = Vec::new();
        for entry in entries {
            let changed = entry.metadata().and_then(|it| it.modified());
            dated.push((changed.unwrap_or(SystemTime::UNIX_EPOCH), entry.path()));
        }
        dated.sort();
        let ended: VecDeque<PathBuf> = dated.into_iter().map(|(_, path)| path).collect();
        ended.iter().for_each(|it| shut(it));
        let mut folders = Self { sessions: sessions.to_owned(), ended, kept_max };
        folders.trim();
        folders
    }

    /// The folder of a session: its id as far as it is safe in a file name, a digest of its full
    /// name, and its token.
    fn of(&self, key: &SessionKey, token: Token) -> PathBuf {
        let safe =
            |it: char| if it.is_ascii_alphanumeric() || "-_".contains(it) { it } else { '_' };
        let id: String = key.id.as_str().chars().take(ID_CHARS_MAX).map(safe).collect();
        let full = key.to_string();
        // FNV-1a: only has to keep different sessions with equal tokens (of two partitions) apart.
        let digest = full.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |digest, byte| {
            (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let (pe, seq) = (token.0.pe, token.0.seq);
        self.sessions.join(format!("{id}.{digest:016x}.{pe}-{seq}"))
    }

    /// The folder of a session that is about to start. Not made here.
    pub fn begin(&mut self, key: &SessionKey, token: Token) -> PathBuf {
        let folder = self.of(key, token);
        self.ended.retain(|it| *it != folder);
        folder
    }

    /// A session's program is over.
    pub fn ended(&mut self, key: &SessionKey, token: Token) {
        let folder = self.of(key, token);
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
        // A program may have left a large tree. What cannot be removed is found at the next start.
        let remove = move || old.iter().for_each(|folder| drop(fs::remove_dir_all(folder)));
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

    fn key(namespace: &str, id: &str) -> SessionKey {
        SessionKey::new(Namespace::parse(namespace).unwrap(), SessionId::parse(id).unwrap())
    }

    fn token(seq: u64) -> Token {
        Token(LogPos::new(Epoch(7), Seq(seq)))
    }

    #[test]
    fn a_folder_stays_in_its_place_whatever_the_id_is() {
        let folder = tempfile::tempdir().unwrap();
        let folders = Folders::found(folder.path(), 1);
        for id in ["../../etc", "a/b", ".", "..", "ä€\u{1F600}", &"x".repeat(255), "-rf *"] {
            let path = folders.of(&key("default", id), token(1));
            assert_eq!(path.parent(), Some(folder.path()), "{id}");
            assert!(path.file_name().unwrap().len() < 128, "{id}");
            fs::create_dir(&path).unwrap();
        }
    }

    #[test]
    fn equal_ids_of_two_namespaces_and_lives_have_their_own_folders() {
        let folder = tempfile::tempdir().unwrap();
        let folders = Folders::found(folder.path(), 1);
        let one = folders.of(&key("a", "x"), token(1));
        assert_ne!(one, folders.of(&key("b", "x"), token(1)));
        assert_ne!(one, folders.of(&key("a", "x"), token(2)));
        assert_ne!(folders.of(&key("a", "x/y"), token(1)), folders.of(&key("a", "x_y"), token(1)));
    }

    #[test]
    fn only_the_newest_ended_folders_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let mut folders = Folders::found(folder.path(), 2);
        for number in 1..=5 {
            fs::create_dir(folders.of(&key("a", "x"), token(number))).unwrap();
            folders.ended(&key("a", "x"), token(number));
        }
        let left = |number| folders.of(&key("a", "x"), token(number)).exists();
        assert_eq!([1, 2, 3, 4, 5].map(left), [false, false, false, true, true]);
        let folders = Folders::found(folder.path(), 1);
        assert_eq!(folders.ended.len(), 1);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
