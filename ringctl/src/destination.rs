//! Where a command writes a file of its user's, and what it does with what stands there.
//!
//! | at the path stands | what happens |
//! |---|---|
//! | nothing | the file is written beside it, its user's alone, and renamed when it is whole |
//! | a regular file, or a link to one | refused without `--force`; replaced as a whole, with its mode kept |
//! | a FIFO or a character device | it is written into, and stays what it is |
//! | a folder, a block device, a socket, a link to nothing | refused |

use crate::failure::UsageMistake;
use anyhow::Context;
use std::fs::{FileType, Metadata, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use tokio::fs::{self, File, OpenOptions};

/// A file that a command is about to write.
#[derive(Debug)]
pub struct Destination {
    path: PathBuf,
    way: Way,
}

/// How the bytes get there.
#[derive(Debug)]
enum Way {
    /// Into what stands there.
    Through,
    /// Into a new file, which takes the path when it is whole; with the mode of what it replaces.
    Beside { mode: Option<Permissions> },
}

impl Destination {
    /// Looks at what stands at `path`. A usage mistake when it must not be written; `force` lets a
    /// regular file be replaced.
    pub fn at(path: &Path, force: bool) -> anyhow::Result<Self> {
        Self::agreed(path, |_| force)
    }

    /// The same, for a file that a command keeps for itself from one run to the next: it replaces the
    /// file when `is_own` says of its content that it is one.
    pub fn own(path: &Path, is_own: impl Fn(&[u8]) -> bool) -> anyhow::Result<Self> {
        Self::agreed(path, |found| std::fs::read(found).is_ok_and(|content| is_own(&content)))
    }

    fn agreed(path: &Path, may_replace: impl Fn(&Path) -> bool) -> anyhow::Result<Self> {
        let refused = |why: &str| UsageMistake(format!("{} {why}", path.display())).into();
        let failed = || format!("cannot write {}", path.display());
        let found = match std::fs::symlink_metadata(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Self::new(path)),
            found => found.with_context(failed)?,
        };
        // A link stays a link: what it leads to is looked at, and written.
        let path = match found.file_type().is_symlink() {
            false => path.to_owned(),
            true => match std::fs::canonicalize(path) {
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    return Err(refused("is a link to nothing; remove it, or give another path"));
                }
                target => target.with_context(failed)?,
            },
        };
        let found = std::fs::metadata(&path).with_context(failed)?;
        match Kind::of(found.file_type()) {
            Kind::Stream => Ok(Self { path, way: Way::Through }),
            Kind::File if may_replace(&path) => Ok(Self::instead(path, &found)),
            Kind::File => Err(refused("exists; give --force to replace it, or another path")),
            Kind::Other(what) => Err(refused(&format!("is {what}; give the path of a file"))),
        }
    }

    fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), way: Way::Beside { mode: None } }
    }

    fn instead(path: PathBuf, found: &Metadata) -> Self {
        Self { path, way: Way::Beside { mode: Some(found.permissions()) } }
    }

    /// Opens what takes the bytes. A FIFO waits here for its reader.
    pub async fn open(&self) -> anyhow::Result<File> {
        let open = async {
            match &self.way {
                Way::Through => OpenOptions::new().write(true).open(&self.path).await,
                Way::Beside { mode } => {
                    let file = create(&self.beside()).await?;
                    if let Some(mode) = mode {
                        file.set_permissions(mode.clone()).await?;
                    }
                    Ok(file)
                }
            }
        };
        open.await.with_context(|| self.failed())
    }

    /// The file is whole: from here on it stands at the path, whatever happens.
    pub async fn finish(&self, file: File) -> anyhow::Result<()> {
        let Way::Beside { .. } = self.way else { return Ok(()) };
        let finish = async {
            file.sync_all().await?;
            fs::rename(self.beside(), &self.path).await
        };
        finish.await.with_context(|| self.failed())
    }

    /// What was begun is of no use.
    pub async fn discard(&self) {
        if let Way::Beside { .. } = self.way {
            // That it cannot be removed, the next one will tell.
            let _gone = fs::remove_file(self.beside()).await;
        }
    }

    fn beside(&self) -> PathBuf {
        let mut beside = self.path.clone().into_os_string();
        beside.push(".new");
        beside.into()
    }

    fn failed(&self) -> String {
        format!("cannot write {}", self.path.display())
    }
}

/// A file that nobody else has: what a command that was killed left there goes, and nothing else is
/// followed or replaced.
async fn create(path: &Path) -> io::Result<File> {
    match fs::symlink_metadata(path).await {
        Ok(found) if found.is_file() => fs::remove_file(path).await?,
        // Whatever else stands there, the next line tells.
        Ok(_) | Err(_) => {}
    }
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    OpenOptions::from(options).open(path).await
}

/// What can stand at a path.
enum Kind {
    File,
    /// Takes bytes one after the other and keeps none.
    Stream,
    Other(&'static str),
}

impl Kind {
    fn of(found: FileType) -> Self {
        if found.is_file() {
            Self::File
        } else if found.is_fifo() || found.is_char_device() {
            Self::Stream
        } else if found.is_dir() {
            Self::Other("a folder")
        } else if found.is_block_device() {
            Self::Other("a block device")
        } else {
            Self::Other("a socket")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{read, write};
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    async fn put(path: &Path, force: bool) -> anyhow::Result<()> {
        let to = Destination::at(path, force)?;
        let mut file = to.open().await?;
        file.write_all(b"new").await?;
        file.flush().await?;
        to.finish(file).await
    }

    #[tokio::test]
    async fn a_file_is_there_only_when_it_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let to = Destination::at(&path, false).unwrap();
        let file = to.open().await.unwrap();
        assert!(!path.exists());
        to.finish(file).await.unwrap();
        assert!(path.exists());
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let to = Destination::at(&folder.path().join("b"), false).unwrap();
        to.open().await.unwrap();
        to.discard().await;
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[tokio::test]
    async fn a_file_is_replaced_only_by_force_and_keeps_its_mode() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("a"), folder.path().join("link"));
        write(&path, "old").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        symlink(&path, &link).unwrap();
        for path in [&path, &link] {
            let error = put(path, false).await.unwrap_err();
            assert!(crate::failure::is_usage(&error) && error.to_string().contains("--force"));
            assert_eq!(read(path).unwrap(), b"old");
        }
        put(&link, true).await.unwrap();
        assert_eq!(read(&path).unwrap(), b"new");
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[tokio::test]
    async fn a_pipe_is_written_into_and_stays_a_pipe() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        let mut read = String::new();
        let reading = async {
            let mut from = File::open(&path).await.unwrap();
            from.read_to_string(&mut read).await.unwrap();
        };
        let (put, ()) = tokio::join!(put(&path, false), reading);
        put.unwrap();
        assert_eq!(read, "new");
        assert!(std::fs::metadata(&path).unwrap().file_type().is_fifo());
    }

    #[tokio::test]
    async fn a_device_is_written_into_and_stays_a_device() {
        put(Path::new("/dev/null"), false).await.unwrap();
        assert!(std::fs::metadata("/dev/null").unwrap().file_type().is_char_device());
    }

    #[tokio::test]
    async fn what_takes_no_bytes_is_refused_even_by_force() {
        let folder = tempfile::tempdir().unwrap();
        let (socket, link) = (folder.path().join("socket"), folder.path().join("link"));
        let _listener = UnixListener::bind(&socket).unwrap();
        symlink(folder.path().join("nothing"), &link).unwrap();
        for (path, what) in
            [(folder.path(), "a folder"), (&socket, "a socket"), (&link, "a link to nothing")]
        {
            let error = put(path, true).await.unwrap_err();
            assert!(crate::failure::is_usage(&error) && error.to_string().contains(what));
        }
    }

    #[tokio::test]
    async fn a_link_beside_the_path_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let other = folder.path().join("other");
        write(&other, "of somebody").unwrap();
        symlink(&other, folder.path().join("a.new")).unwrap();
        assert!(put(&folder.path().join("a"), false).await.is_err());
        assert_eq!(read(&other).unwrap(), b"of somebody");
    }

    #[tokio::test]
    async fn a_file_of_the_commands_own_is_replaced_and_another_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("position");
        let is_own = |content: &[u8]| content.starts_with(b"own");
        write(&path, "own 1").unwrap();
        Destination::own(&path, is_own).unwrap();
        write(&path, "a letter").unwrap();
        let error = Destination::own(&path, is_own).unwrap_err();
        assert!(crate::failure::is_usage(&error));
    }
}
