//! The agent's end of a keeper: starts it or connects to one that an earlier agent started, talks to it, and clears
//! up after one that was killed.

use super::orphans::{self, Keepers, Left};
use super::program_settings::ProgramSettings;
use super::terms::Terms;
use crate::keeper::news_file;
use crate::keeper::order::{Cause, Command, News, Order, PIDS_FILE, Pids, SOCKET_FILE, socket_in};
use crate::leftovers::DATA_VARIABLE;
use anyhow::{Context, ensure};
use rota_daemon::processes::{self, Process, machine_boot};
use rota_daemon::program::watched;
use rota_model::Exit;
use rustix::process::{Pid, PidfdFlags, Signal, geteuid, getpid, pidfd_open, pidfd_send_signal};
use serde::Serialize;
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::process::Child;
use tokio::time::{Instant, sleep, timeout};

/// How long a keeper may take to read a line. It does nothing else meanwhile that blocks, so a
/// longer wait means that it is stopped or broken.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a keeper may have no room for a connection. It takes one as soon as it does anything at all, and is
/// killed after that.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Between two tries to connect.
const CONNECT_PAUSE: Duration = Duration::from_millis(20);

type Reader = Box<dyn AsyncRead + Send + Sync + Unpin>;
type Writer = Box<dyn AsyncWrite + Send + Sync + Unpin>;

/// The keeper's process.
enum Keeper {
    /// This agent started it, and takes its exit status.
    Child(Child),
    /// An earlier agent did. Its end is seen here; somebody else takes its exit status.
    Adopted { process: Process, fd: AsyncFd<OwnedFd> },
    /// It is gone.
    Gone,
}

/// A running keeper.
pub struct KeeperLink {
    keeper: Keeper,
    input: Option<Writer>,
    news: Option<Lines<BufReader<Reader>>>,
    folder: PathBuf,
    pid: Option<i32>,
    keepers: Keepers,
    /// The program's process group, once the keeper told it.
    group: Option<i32>,
    /// The session's own uid.
    user: Option<u32>,
    /// The session's control groups.
    groups: Vec<PathBuf>,
    /// What was below an adopted keeper when it was killed here.
    seen: Vec<Process>,
    /// The keeper came to work: it left word of itself.
    worked: bool,
    /// How often a lost connection may still be made again.
    reconnects: u32,
    /// No lease of this node goes on for longer.
    lease_ms_max: u64,
}

/// How often a connection is made again that somebody else took.
const RECONNECTS_MAX: u32 = 100;

/// What is known of a program whose keeper went without telling this agent the end.
pub enum Cleared {
    /// The keeper was killed, and the program with it; how that ended, if that is known.
    Killed(Option<Exit>),
    /// The keeper had written the end down.
    Told(Exit, Cause),
    /// It was never started, and why.
    Never(String),
}

impl KeeperLink {
    /// Starts a keeper, in a process group of its own so that a terminal's Ctrl-C does not reach
    /// it, and gives it the order.
    pub async fn start(order: &Order, settings: &ProgramSettings) -> anyhow::Result<Self> {
        let ProgramSettings { data, keepers, log, .. } = settings;
        let errors = File::create(order.folder.join("keeper.log"))?;
        let mut command = tokio::process::Command::new("/proc/self/exe");
        command
            .arg0("rota-node-agent")
            .arg("keeper")
            .args(log.options())
            .env_clear()
            .env(DATA_VARIABLE, data)
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors);
        let mut child = command.spawn().context("cannot start a keeper")?;
        // Before anything is awaited: whoever looks for strays must not take it for one.
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
        pid.iter().for_each(|pid| keepers.add(*pid));
        let input = child.stdin.take().map(|it| Box::new(it) as Writer);
        let output = child.stdout.take().context("a keeper without output")?;
        let mut link = Self {
            keeper: Keeper::Child(child),
            input,
            news: Some(lines(Box::new(output))),
            folder: order.folder.clone(),
            pid,
            keepers: keepers.clone(),
            group: None,
            user: order.own.map(|it| it.user),
            groups: order.bounds.groups.clone(),
            seen: Vec::new(),
            worked: true,
            reconnects: RECONNECTS_MAX,
            lease_ms_max: settings.lease_ms_max,
        };
        // A keeper that gets no order says so, or ends.
        link.write(order).await;
        Ok(link)
    }

    /// The link to the keeper of a session that an earlier agent began in that folder. One that is gone, or cannot
    /// be reached, tells nothing: [`KeeperLink::clear_up`] knows what became of it.
    pub async fn again(folder: &Path, terms: &Terms, settings: &ProgramSettings) -> Self {
        let pids = Pids::read(folder).ok().flatten();
        let pids = pids.filter(|it| it.machine_boot == machine_boot());
        let user = terms.own.map(|it| it.user);
        let mut link = Self {
            keeper: Keeper::Gone,
            input: None,
            news: None,
            folder: folder.to_owned(),
            pid: None,
            keepers: settings.keepers.clone(),
            group: None,
            user,
            groups: terms.held.groups().to_vec(),
            seen: Vec::new(),
            worked: pids.is_some(),
            reconnects: RECONNECTS_MAX,
            lease_ms_max: settings.lease_ms_max,
        };
        let Some(pids) = pids else { return link };
        match adopted(pids.keeper) {
            Ok(keeper) => link.hold(keeper, pids.keeper.pid),
            Err(error) => tracing::info!(%error, "its keeper is gone"),
        }
        // The number of a group that nobody held meanwhile may name strangers.
        let program = pids.program;
        link.group = program.map(|it| it.pid).filter(|group| {
            link.pid.is_some()
                || program.is_some_and(Process::runs)
                || link.left(None).is_in(*group)
        });
        if link.pid.is_some() {
            match connect(folder, pids.keeper).await {
                Ok(stream) => link.talk(stream, settings.lease_ms_max).await,
                Err(error) => {
                    tracing::warn!("its keeper cannot be reached and is killed: {error:#}")
                }
            }
        }
        link
    }

    fn hold(&mut self, keeper: Keeper, pid: i32) {
        self.keepers.add(pid);
        (self.keeper, self.pid) = (keeper, Some(pid));
    }

    async fn talk(&mut self, stream: UnixStream, ms_max: u64) {
        let (reader, writer) = stream.into_split();
        self.news = Some(lines(Box::new(reader)));
        self.input = Some(Box::new(writer));
        self.write(&Command::Lease { ms_max }).await;
    }

    /// The keeper's pid, while it runs.
    pub fn pid(&self) -> Option<i32> {
        self.pid
    }

    async fn write(&mut self, value: &impl Serialize) {
        let Some(input) = &mut self.input else { return };
        let mut line = serde_json::to_vec(value).expect("orders and commands have text keys");
        line.push(b'\n');
        let written = timeout(WRITE_TIMEOUT, async {
            input.write_all(&line).await?;
            input.flush().await
        });
        if !matches!(written.await, Ok(Ok(()))) {
            self.input = None;
        }
    }

    /// Asks for the end of the program.
    pub async fn stop(&mut self, grace_ms: u64) {
        self.write(&Command::Stop { grace_ms }).await;
    }

    /// What the keeper tells next; `None` once it is gone. Somebody else of its user may have taken the connection: then it
    /// is asked again, and repeats what it told.
    pub async fn news(&mut self) -> Option<News> {
        let line = loop {
            if let Ok(Some(line)) = self.news.as_mut()?.next_line().await {
                break line;
            }
            self.reconnect().await?;
        };
        let news: News = serde_json::from_str(&line).ok()?;
        if let News::Started { pid } = news {
            self.group = Some(pid);
        }
        Some(news)
    }

    async fn reconnect(&mut self) -> Option<()> {
        self.reconnects = self.reconnects.checked_sub(1)?;
        let pids = Pids::read(&self.folder).ok().flatten()?;
        if Some(pids.keeper.pid) != self.pid || !pids.keeper.runs() {
            return None;
        }
        let stream = connect(&self.folder, pids.keeper).await.ok()?;
        tracing::warn!("somebody else took the connection to its keeper");
        self.talk(stream, self.lease_ms_max).await;
        Some(())
    }

    /// Kills the keeper itself; the kernel kills the program with it.
    pub fn kill(&mut self) {
        // In each case it may have ended by itself.
        match &mut self.keeper {
            Keeper::Child(child) => drop(child.start_kill()),
            Keeper::Adopted { process, fd } => {
                // From here on nothing tells whose they were.
                if process.runs() {
                    let all = processes::all();
                    self.seen = processes::descendants_among(&all, process.pid, |_| false);
                }
                let _ = pidfd_send_signal(fd.get_ref(), Signal::KILL);
            }
            Keeper::Gone => {}
        }
    }

    /// After the keeper's last news: takes its exit status, or waits for its end.
    pub async fn reap(&mut self) {
        let ended = match &mut self.keeper {
            Keeper::Child(child) => child.wait().await.map(|_| ()),
            Keeper::Adopted { fd, .. } => fd.readable().await.map(|_| ()),
            Keeper::Gone => Ok(()),
        };
        if let Err(error) = ended {
            tracing::warn!(%error, "a keeper could not be waited for");
        }
        self.pid.take().iter().for_each(|pid| self.keepers.remove(*pid));
    }

    /// Instead of [`KeeperLink::reap`], when the keeper went without telling the end: ends what is
    /// left of its program, and waits until it is gone. Tells how it ended.
    pub async fn clear_up(mut self) -> Cleared {
        self.kill();
        self.reap().await;
        let told = news_file::read(&self.folder).ok().flatten().unwrap_or_default();
        self.worked |= !told.is_empty();
        let told = told.into_iter().find_map(end_in);
        let is_gone = matches!(self.keeper, Keeper::Gone);
        // Nothing of it was left when the keeper wrote that, and nobody killed this one for being late.
        let exit = match told.is_some() && is_gone {
            true => None,
            false => orphans::end(self.left(self.group_left()), &self.keepers).await,
        };
        let never = || Cleared::Never(NEVER_WORKED.to_owned());
        let cleared =
            told.unwrap_or_else(|| if self.worked { Cleared::Killed(exit) } else { never() });
        // Nothing is left that a later agent would have to end.
        for file in [SOCKET_FILE, PIDS_FILE] {
            drop(fs::remove_file(self.folder.join(file)));
        }
        cleared
    }

    /// The program's group, if its number is known to name no strangers.
    fn group_left(&self) -> Option<i32> {
        let written = || {
            let pids = Pids::read(&self.folder).ok().flatten()?;
            Some(pids.program?.pid)
        };
        self.group.or_else(|| matches!(self.keeper, Keeper::Child(_)).then(written).flatten())
    }

    fn left(&self, group: Option<i32>) -> Left<'_> {
        let Self { folder, user, groups, seen, .. } = self;
        Left { group, user: *user, folder, groups, seen }
    }
}

/// Why a session did not start whose keeper left no word of itself.
const NEVER_WORKED: &str = "the node's agent ended before it was started";

fn lines(reader: Reader) -> Lines<BufReader<Reader>> {
    BufReader::new(reader).lines()
}

/// The end of a program, if that is what was told.
fn end_in(news: News) -> Option<Cleared> {
    match news {
        News::Ended { exit, cause } => Some(Cleared::Told(exit, cause)),
        News::Failed { detail } => Some(Cleared::Never(detail)),
        News::Started { .. } | News::ReadyLine => None,
    }
}

/// Holds a keeper that an earlier agent started.
fn adopted(process: Process) -> io::Result<Keeper> {
    let gone = || io::Error::from(io::ErrorKind::NotFound);
    let pid = Pid::from_raw(process.pid).filter(|it| *it != getpid()).ok_or_else(gone)?;
    let fd = watched(pidfd_open(pid, PidfdFlags::empty())?)?;
    // Looked at after it is held: before that the pid could have become somebody else's.
    if process.runs() { Ok(Keeper::Adopted { process, fd }) } else { Err(gone()) }
}

/// A connection to that very keeper.
async fn connect(folder: &Path, keeper: Process) -> anyhow::Result<UnixStream> {
    let folder = File::open(folder).context("its folder cannot be opened")?;
    let (path, until) = (socket_in(&folder), Instant::now() + CONNECT_TIMEOUT);
    let stream = loop {
        match UnixStream::connect(&path).await {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < until => {
                sleep(CONNECT_PAUSE).await;
            }
            stream => break stream?,
        }
    };
    let peer = stream.peer_cred()?;
    let (pid, uid) = (peer.pid(), peer.uid());
    ensure!(
        pid == Some(keeper.pid) && uid == geteuid().as_raw(),
        "process {pid:?} of uid {uid} listens in the place of keeper {}",
        keeper.pid
    );
    Ok(stream)
}
