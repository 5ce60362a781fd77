//! A keeper's link to its agent: at first standard input and output of the one that started it, then the newest
//! connection to the socket in the session's folder.
//!
//! ```text
//!  agent that started it ── stdin, stdout ──▶ ┌──────┐ ── each news, once ──▶ file of news
//!  a later agent ── keeper.sock, repeats ───▶ │ link │
//! ```
//! Nothing here waits for an agent: one that takes no more loses the link, and may connect again.

use super::news_file::NewsFile;
use super::order::{Command, LINE_BYTES_MAX, News, SOCKET_FILE, socket_in};
use crate::lease::boottime_ms;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionbio};
use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;
use serde::de::DeserializeOwned;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

/// How long a keeper waits for its order, in seconds: its agent may have been stopped when it had just
/// started this one.
const ORDER_WITHIN_S: u64 = 5;

/// Only the keeper's own user connects.
const SOCKET_MODE: u32 = 0o600;

/// The link, and what a later agent needs to take it over.
pub struct Link {
    /// What the agent writes.
    input: Option<OwnedFd>,
    /// What the agent reads. Never waits.
    output: Option<OwnedFd>,
    /// Read, and not a whole line yet.
    pending: Vec<u8>,
    socket: Option<UnixListener>,
    file: Option<NewsFile>,
    /// Every line so far, for those who connect.
    told: Vec<Vec<u8>>,
    /// Whether a later agent finds all of them in the file.
    all_written: bool,
}

impl Link {
    /// The link to the agent that started this process. Standard input and output are `/dev/null` from here on.
    ///
    /// # Errors
    /// The kernel gives no descriptors.
    pub fn of_standard_streams() -> io::Result<Self> {
        let input = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
        let output = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3)?;
        let null = File::options().read(true).write(true).open("/dev/null")?;
        rustix::stdio::dup2_stdin(&null)?;
        rustix::stdio::dup2_stdout(&null)?;
        Self::of(input, output)
    }

    fn of(input: OwnedFd, output: OwnedFd) -> io::Result<Self> {
        ioctl_fionbio(&output, true)?;
        let (input, output) = (Some(input), Some(output));
        Ok(Self {
            input,
            output,
            pending: vec![],
            socket: None,
            file: None,
            told: vec![],
            all_written: true,
        })
    }

    /// From here on news is written down in that folder, and others may take the link over.
    ///
    /// # Errors
    /// News cannot be written down. Without a socket only a later agent cannot go on with the program.
    pub fn open(&mut self, folder: &Path) -> io::Result<()> {
        self.file = Some(NewsFile::create(folder)?);
        match listen(folder) {
            Ok(socket) => self.socket = Some(socket),
            Err(error) => tracing::warn!(%error, "no later agent can go on with this program"),
        }
        Ok(())
    }

    /// Whether everything that was told stands in the file.
    pub fn has_written_all(&self) -> bool {
        self.all_written
    }

    /// Nobody connects any more.
    pub fn close(&mut self, folder: &Path) {
        if self.socket.take().is_some() {
            drop(fs::remove_file(folder.join(SOCKET_FILE)));
        }
    }

    /// Readable when the agent wrote something, or is gone.
    pub fn input(&self) -> Option<BorrowedFd<'_>> {
        self.input.as_ref().map(AsFd::as_fd)
    }

    /// Readable when somebody connects.
    pub fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.socket.as_ref().map(AsFd::as_fd)
    }

    /// Writes it down and tells the agent. An agent that is gone hears nothing, and that changes nothing here.
    pub fn tell(&mut self, news: &News) {
        let Ok(mut line) = serde_json::to_vec(news) else { return };
        line.push(b'\n');
        if let Some(file) = &mut self.file {
            self.all_written &= file.append(&line);
        }
        self.write(&line);
        self.told.push(line);
    }

    /// Waits for the first line, but not for ever.
    ///
    /// # Errors
    /// None came in time, or not the one that was to come.
    pub fn first<T: DeserializeOwned>(&mut self) -> anyhow::Result<T> {
        let until_ms = boottime_ms() + ORDER_WITHIN_S * 1_000;
        loop {
            if let Some(first) = self.next() {
                return Ok(first?);
            }
            let left_ms = until_ms.saturating_sub(boottime_ms());
            anyhow::ensure!(left_ms > 0, "no order came within {ORDER_WITHIN_S} s");
            if self.is_readable(left_ms)? {
                anyhow::ensure!(self.read()?, "standard input ended before the order");
            }
        }
    }

    /// Takes what the agent wrote, after its [`Link::input`] was readable.
    pub fn hear(&mut self) -> Vec<Command> {
        let open = self.read().unwrap_or(false);
        let mut commands = Vec::new();
        while let Some(Ok(command)) = self.next() {
            commands.push(command);
        }
        if !open {
            tracing::warn!("the agent is gone, and the lease decides");
            self.input = None;
        }
        commands
    }

    /// Takes a connection, after the [`Link::socket`] was readable. It replaces the link, and is told all that
    /// was told before.
    pub fn take_connection(&mut self) {
        let Some(socket) = &self.socket else { return };
        let stream = match socket.accept() {
            Ok((stream, _)) => stream,
            Err(error) if is_passing(&error) => return,
            Err(error) => {
                tracing::warn!(%error, "no later agent can go on with this program any more");
                self.socket = None;
                return;
            }
        };
        let peer = socket_peercred(&stream).map(|it| it.uid.as_raw());
        if !peer.is_ok_and(|uid| is_trusted(uid, geteuid().as_raw())) {
            return tracing::warn!("somebody else tried to connect, and was refused");
        }
        match self.replace(stream) {
            Ok(()) => tracing::info!("an agent connected"),
            Err(error) => tracing::warn!(%error, "an agent connected in vain"),
        }
    }

    fn replace(&mut self, stream: UnixStream) -> io::Result<()> {
        stream.set_nonblocking(true)?;
        let input = OwnedFd::from(stream.try_clone()?);
        self.pending.clear();
        (self.input, self.output) = (Some(input), Some(stream.into()));
        let told = std::mem::take(&mut self.told);
        told.iter().for_each(|line| self.write(line));
        self.told = told;
        Ok(())
    }

    /// Without waiting. What cannot be written at once ends the link: half a line would spoil the next one.
    fn write(&mut self, line: &[u8]) {
        let Some(output) = &self.output else { return };
        let written = loop {
            match rustix::io::write(output, line) {
                Err(Errno::INTR) => {}
                other => break other,
            }
        };
        if written != Ok(line.len()) {
            if self.input.is_some() {
                tracing::warn!("the agent takes no more news, and loses its link");
            }
            (self.input, self.output) = (None, None);
        }
    }

    /// Reads once. False at the end of the input.
    fn read(&mut self) -> io::Result<bool> {
        let Some(input) = &self.input else { return Ok(false) };
        let mut buffer = [0_u8; 64 * 1024];
        let count = match rustix::io::read(input, &mut buffer) {
            Err(Errno::INTR | Errno::AGAIN) => return Ok(true),
            other => other?,
        };
        self.pending.extend_from_slice(&buffer[..count]);
        if self.pending.len() > LINE_BYTES_MAX {
            return Err(io::Error::other("a line is too long"));
        }
        Ok(count > 0)
    }

    fn next<T: DeserializeOwned>(&mut self) -> Option<serde_json::Result<T>> {
        let end = self.pending.iter().position(|byte| *byte == b'\n')?;
        let line: Vec<u8> = self.pending.drain(..=end).collect();
        Some(serde_json::from_slice(&line))
    }

    /// Whether the input can be read, or is at its end, within that time.
    fn is_readable(&self, within_ms: u64) -> io::Result<bool> {
        let Some(input) = &self.input else { return Ok(true) };
        let mut fds = [PollFd::new(input, PollFlags::IN)];
        let within = Duration::from_millis(within_ms);
        let timeout = Timespec::try_from(within).map_err(io::Error::other)?;
        match poll(&mut fds, Some(&timeout)) {
            Err(Errno::INTR) => Ok(false),
            found => Ok(found? > 0),
        }
    }
}

/// Programs do not get hold of it: it closes on exec, and other users cannot connect.
fn listen(folder: &Path) -> io::Result<UnixListener> {
    let socket = UnixListener::bind(socket_in(&File::open(folder)?))?;
    fs::set_permissions(folder.join(SOCKET_FILE), Permissions::from_mode(SOCKET_MODE))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Whether a connection of that user may replace the link of a keeper that runs as `own`.
fn is_trusted(peer: u32, own: u32) -> bool {
    peer == own || peer == 0
}

/// The next connection may be taken all the same.
fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, Interrupted, WouldBlock};
    [ConnectionAborted, Interrupted, WouldBlock].contains(&error.kind())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keeper::news_file;
    use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Read, Write};

    /// A link, and the pipes of its agent.
    fn link() -> (Link, PipeWriter, PipeReader) {
        let (input, writes) = io::pipe().unwrap();
        let (reads, output) = io::pipe().unwrap();
        (Link::of(input.into(), output.into()).unwrap(), writes, reads)
    }

    fn started() -> News {
        News::Started { pid: 7 }
    }

    fn next(reads: &mut impl BufRead) -> News {
        let mut line = String::new();
        reads.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    #[test]
    fn who_connects_hears_everything_again_and_takes_the_place_of_the_one_before() {
        // Longer than the name of a socket may be.
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("f".repeat(200));
        fs::create_dir(&folder).unwrap();
        let (mut link, _writes, mut reads) = link();
        link.open(&folder).unwrap();
        let mode = fs::metadata(folder.join(SOCKET_FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        link.tell(&started());
        let opened = File::open(&folder).unwrap();
        let path = socket_in(&opened);
        for ends_the_one_before in [true, false] {
            let mut stream = UnixStream::connect(&path).unwrap();
            link.take_connection();
            if ends_the_one_before {
                let mut all = String::new();
                reads.read_to_string(&mut all).unwrap();
                assert_eq!(all.lines().count(), 1, "it hears nothing more");
            }
            let mut news = BufReader::new(stream.try_clone().unwrap());
            assert_eq!(next(&mut news), started());
            stream.write_all(b"{\"stop\":{\"grace_ms\":3}}\n").unwrap();
            assert_eq!(link.hear(), [Command::Stop { grace_ms: 3 }]);
        }
        link.tell(&News::ReadyLine);
        let told = news_file::read(&folder).unwrap().unwrap();
        assert_eq!(told, [started(), News::ReadyLine], "each once, however often it was told");
        link.close(&folder);
        assert!(!folder.join(SOCKET_FILE).exists());
    }

    #[test]
    fn an_agent_that_reads_nothing_loses_the_link_and_holds_nothing_up() {
        let folder = tempfile::tempdir().unwrap();
        let (mut link, _writes, _reads) = link();
        link.open(folder.path()).unwrap();
        let long = News::Failed { detail: "x".repeat(1000) };
        for _ in 0..2_000 {
            link.tell(&long);
        }
        assert!(link.input().is_none());
        assert_eq!(news_file::read(folder.path()).unwrap().unwrap().len(), 2_000);
    }

    #[test]
    fn only_the_keepers_own_user_and_root_are_trusted() {
        assert!(is_trusted(1000, 1000) && is_trusted(0, 1000));
        assert!(!is_trusted(200_000, 0) && !is_trusted(1001, 1000));
    }
}
