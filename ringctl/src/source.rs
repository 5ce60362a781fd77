//! What a command reads: a file, a pipe, or standard input.

use crate::output::{STANDARD, standard};
use anyhow::Context;
use std::io::SeekFrom;
use std::os::fd::AsFd;
use std::path::Path;
use tokio::fs::File;
use tokio::io::AsyncSeekExt;

/// Opens `path` for a command that reads it twice, or sends it again after a break. What can be read
/// only once (a pipe, `-` for standard input) is copied into a file without a name first, below
/// `TMPDIR`.
pub async fn to_read_again(path: &Path) -> anyhow::Result<File> {
    let told = || path.display().to_string();
    let mut file = if path == Path::new(STANDARD) {
        standard(std::io::stdin().as_fd())?
    } else {
        File::open(path).await.with_context(told)?
    };
    let found = file.metadata().await.with_context(told)?;
    anyhow::ensure!(!found.is_dir(), "{} is a folder; give the path of a file", path.display());
    if found.is_file() {
        return Ok(file);
    }
    let copy = tempfile::tempfile().context("no place to keep what comes through the pipe")?;
    let mut copy = File::from_std(copy);
    tokio::io::copy(&mut file, &mut copy).await.with_context(told)?;
    copy.seek(SeekFrom::Start(0)).await?;
    Ok(copy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    #[tokio::test]
    async fn what_comes_through_a_pipe_can_be_read_twice() {
        let (from, to) = rustix::pipe::pipe().unwrap();
        std::io::Write::write_all(&mut std::fs::File::from(to), b"once").unwrap();
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&from));
        let mut file = to_read_again(Path::new(&path)).await.unwrap();
        for _ in 0..2 {
            let mut text = String::new();
            file.read_to_string(&mut text).await.unwrap();
            assert_eq!(text, "once");
            file.seek(SeekFrom::Start(0)).await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_folder_is_told() {
        let error = to_read_again(Path::new("/")).await.unwrap_err();
        assert_eq!(error.to_string(), "/ is a folder; give the path of a file");
    }
}
