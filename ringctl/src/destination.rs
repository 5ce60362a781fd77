//! Where a command writes a file of its user's, and what it does with what stands there.
//!
//! | at the path stands | what happens |
//! |---|---|
//! | nothing | the file is written beside it, its user's alone, under a name that nobody has, and renamed when whole |
//! | a regular file, or a link to one | refused without `--force`; replaced as a whole, with its mode kept |
//! | a FIFO or a character device | it is written into, and stays what it is |
//! | a folder, a block device, a socket, a link to nothing | refused |

use crate::failure::UsageMistake;
use anyhow::Context;
use rustix::fs::{CWD, RenameFlags};
use rustix::io::Errno;
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
    /// Into a new file of that name, which takes the path when it is whole; with the mode of what it replaces,
    /// if it may replace something.
    Beside { new: PathBuf, replaces: Option<Permissions> },
}

impl Way {
    fn new(path: &Path) -> Self {
        Self::Beside { new: beside(path), replaces: None }
    }

    fn instead(path: &Path, found: &Metadata) -> Self {
        Self::Beside { new: beside(path), replaces: Some(found.permissions()) }
    }
}

/// A name in the same folder, which no other run makes.
fn beside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{}.new", uuid::Uuid::new_v4().simple()))
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
        let found = match std::fs::metadata(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                if std::fs::symlink_metadata(path).is_ok() {
                    return Err(refused("is a link to nothing; remove it, or give another path"));
                }
                return Ok(Self { path: path.to_owned(), way: Way::new(path) });
            }
            found => found.with_context(failed)?,
        };
        match Kind::of(found.file_type()) {
            // By its own name: what a link of /proc leads to has no other.
            Kind::Stream => Ok(Self { path: path.to_owned(), way: Way::Through }),
            Kind::File => {
                // A link stays a link: what it leads to is written.
                let path = std::fs::canonicalize(path).with_context(failed)?;
                if !may_replace(&path) {
                    return Err(refused("exists; give --force to replace it, or another path"));
                }
                let way = Way::instead(&path, &found);
                Ok(Self { path, way })
            }
            Kind::Other(what) => Err(refused(&format!("is {what}; give the path of a file"))),
        }
    }

    /// Opens what takes the bytes. A FIFO waits here for its reader.
    pub async fn open(&self) -> anyhow::Result<File> {
        let open = async {
            match &self.way {
                Way::Through => OpenOptions::new().write(true).open(&self.path).await,
                Way::Beside { new, replaces } => {
                    let mut options = std::fs::OpenOptions::new();
                    options.write(true).create_new(true).mode(0o600);
                    let file = OpenOptions::from(options).open(new).await?;
                    if let Some(mode) = replaces {
                        file.set_permissions(mode.clone()).await?;
                    }
                    Ok(file)
                }
            }
        };
        open.await.with_context(|| self.failed())
    }

    /// The file is whole: from here on it stands at the path, whatever happens. What came there meanwhile is
    /// not replaced without `force`.
    pub async fn finish(&self, file: File) -> anyhow::Result<()> {
        let Way::Beside { new, replaces } = &self.way else { return Ok(()) };
        let finish = async {
            file.sync_all().await?;
            match replaces {
                Some(_) => fs::rename(new, &self.path).await,
                None => take(new, &self.path).await,
            }
        };
        finish.await.with_context(|| self.failed())
    }

    /// What was begun is of no use.
    pub async fn discard(&self) {
        if let Way::Beside { new, .. } = &self.way {
            // What cannot be removed has a name that is in nobody's way.
            let _gone = fs::remove_file(new).await;
        }
    }

    fn failed(&self) -> String {
        format!("cannot write {}", self.path.display())
    }
}

/// Gives a file a name that nothing has.
async fn take(new: &Path, path: &Path) -> io::Result<()> {
    match rustix::fs::renameat_with(CWD, new, CWD, path, RenameFlags::NOREPLACE) {
        // A file system that cannot: two steps do the same.
        Err(Errno::INVAL | Errno::NOSYS) => {
            fs::hard_link(new, path).await?;
            fs::remove_file(new).await
        }
        done => Ok(done?),
    }
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
    async fn two_that_write_one_path_touch_nothing_of_each_other_or_of_others() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("a"), folder.path().join("a.new"));
        write(&other, "of somebody").unwrap();
        let (one, two) =
            (Destination::at(&path, false).unwrap(), Destination::at(&path, false).unwrap());
        let mut files = (one.open().await.unwrap(), two.open().await.unwrap());
        files.0.write_all(b"one").await.unwrap();
        files.1.write_all(b"two").await.unwrap();
        one.finish(files.0).await.unwrap();
        let error = format!("{:#}", two.finish(files.1).await.unwrap_err());
        assert!(error.contains("exists"), "{error}");
        two.discard().await;
        assert_eq!(
            (read(&path).unwrap(), read(&other).unwrap()),
            (b"one".into(), b"of somebody".into())
        );
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[tokio::test]
    async fn a_pipe_that_has_no_name_of_its_own_is_written_into() {
        let (reader, writer) = std::io::pipe().unwrap();
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&writer));
        put(Path::new(&path), false).await.unwrap();
        drop(writer);
        assert_eq!(std::io::read_to_string(reader).unwrap(), "new");
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
