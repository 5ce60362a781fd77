//! One program session: one task that starts a keeper, watches the program get ready, and tells
//! the node's decisions what becomes of it.

use super::answering::Awaited;
use super::keeper_link::KeeperLink;
use super::orphans::Keepers;
use super::surroundings::{self, Facts, make_folders};
use crate::keeper::order::{Cause, News, Order, Own};
use crate::lease::boottime_ms;
use crate::mailbox::Mailbox;
use crate::ports::{Port, PortRange, Ports};
use crate::sandbox::{Sandboxes, User};
use rota_daemon::Log;
use rota_model::address::join;
use rota_model::{Attributes, Exit, Reason, RequestId, SessionKey, Stamp, Token};
use rota_node::class::{Class, ProgramClass, ReadyWhen, Values};
use rota_node::{NodeInput, StopHow};
use rustix::fs::OFlags;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// How much later than asked a keeper may be with the end before it is killed itself. Well below
/// the time that a leaving node waits.
const KEEPER_LATE: Duration = Duration::from_millis(1_500);

/// Most of the program's last words that go into a report.
const LAST_WORDS_BYTES_MAX: u64 = 300;

/// What all programs of a node share.
#[derive(Debug)]
pub struct ProgramSettings {
    /// The data folder.
    pub data: PathBuf,
    /// The lease file.
    pub lease: PathBuf,
    /// The folder of session folders.
    pub sessions: PathBuf,
    /// The host in the addresses of programs.
    pub host: String,
    /// The address on which ports are chosen and tried.
    pub ip: IpAddr,
    /// The ports to choose from.
    pub ports: PortRange,
    /// Most bytes kept of each of a program's outputs.
    pub output_bytes_max: u64,
    /// Between TERM and KILL when the lease has run out.
    pub lease_grace_ms: u64,
    /// No lease of this node goes on for longer.
    pub lease_ms_max: u64,
    /// Names of variables of this process's environment that programs get, too.
    pub env_pass: Vec<String>,
    /// What programs are kept from.
    pub sandboxes: Sandboxes,
    /// Limit of open files that the agent itself was started with.
    pub open_files: Option<u64>,
    /// Keepers that run.
    pub keepers: Keepers,
    /// The node's log, which keepers share.
    pub log: Log,
}

/// What to run.
pub struct ProgramSession {
    /// What all programs share.
    pub settings: Arc<ProgramSettings>,
    /// Which session.
    pub key: SessionKey,
    /// Which attempt.
    pub token: Token,
    /// Which life.
    pub life: Stamp,
    /// Managers of the cluster as this node knows them, `host:port`.
    pub managers: Vec<String>,
    /// The class.
    pub class: Arc<Class>,
    /// Its program.
    pub program: Arc<ProgramClass>,
    /// The request that caused it, for traces.
    pub request: Option<RequestId>,
    /// Attributes that the open gave.
    pub attributes: Arc<Attributes>,
    /// The session's folder; made here.
    pub folder: PathBuf,
    /// Not to be started later, on [`boottime_ms`].
    pub not_after_ms: u64,
    /// Set when it is to be stopped; only gets more urgent.
    pub stop: watch::Receiver<Option<StopHow>>,
    /// Where news goes.
    pub mailbox: Mailbox,
}

/// How far a program has got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// The keeper was asked.
    Asked,
    /// It runs and does not answer yet.
    Started,
    /// It answers.
    Ready,
}

/// How it came to its end.
enum End {
    /// It was never started.
    Never(String),
    /// The keeper told its end.
    Told(Exit, Cause),
    /// The keeper was killed, and the program with it.
    KeeperDied(Option<Exit>),
}

/// A program under way.
struct Running {
    session: ProgramSession,
    link: KeeperLink,
    /// Held until the end was told, so that no other session answers on them while this one counts
    /// as live.
    ports: Ports,
    /// Held as long, for the same reason.
    user: Option<User>,
    stage: Stage,
    /// The first process of the program, once it was started.
    pid: Option<i32>,
    /// Somebody else takes connections on its port.
    stranger: bool,
    /// When it must be ready.
    ready_by: Instant,
    timed_out: bool,
    /// When a keeper that does not obey is killed.
    keeper_late: Option<Instant>,
}

/// What happens next to a program.
enum Step {
    News(Option<News>),
    Stop(StopHow),
    Answers,
    TooSlow,
    KeeperLate,
}

impl ProgramSession {
    /// Runs it to its end. Everything of it is gone when this returns, and the end is told.
    pub async fn run(self) {
        let (key, token, mailbox) = (self.key.clone(), self.token, self.mailbox.clone());
        match self.start().await {
            Ok(running) => running.run().await,
            Err(detail) => {
                tracing::info!(%detail, "not started");
                mailbox.node(NodeInput::StartFailed { key, token, detail }).await;
            }
        }
    }

    async fn start(self) -> Result<Running, String> {
        if self.stop.borrow().is_some() {
            return Err("it was stopped before it was started".to_owned());
        }
        if boottime_ms() > self.not_after_ms {
            return Err("the time to start it has passed".to_owned());
        }
        let ports = self.choose_ports().map_err(|error| format!("no port: {error}"))?;
        let user = self.settings.sandboxes.user_for(&self.program)?;
        let order = self.order(&ports, user.as_ref().map(User::number))?;
        make_folders(&order).map_err(|error| format!("no folder for it: {error}"))?;
        let link = KeeperLink::start(&order, &self.settings)
            .await
            .map_err(|error| format!("{error:#}"))?;
        let ready_by = Instant::now() + Duration::from_millis(self.program.start_timeout_ms);
        Ok(Running {
            session: self,
            link,
            ports,
            user,
            stage: Stage::Asked,
            pid: None,
            stranger: false,
            ready_by,
            timed_out: false,
            keeper_late: None,
        })
    }

    fn choose_ports(&self) -> Result<Ports, String> {
        let choose = || Port::choose(self.settings.ip, &self.settings.ports);
        let main = self.program.port.then(choose).transpose()?;
        let named = self.program.ports.iter().map(|name| Ok((name.clone(), choose()?)));
        Ok(Ports { main, named: named.collect::<Result<_, String>>()? })
    }

    fn order(&self, ports: &Ports, user: Option<u32>) -> Result<Order, String> {
        let work = self.folder.join("work");
        let folder = work.to_str().ok_or("the path of its folder is not UTF-8")?;
        let (ip, attributes) = (self.settings.ip, &*self.attributes);
        let (main, named) = (ports.main.as_ref().map(Port::number), ports.named_numbers());
        let port = main.unwrap_or_default();
        let values = Values { key: &self.key, ip, port, ports: &named, folder, attributes };
        let line = self.program.command(&self.class, &values).map_err(|error| error.to_string())?;
        let facts = Facts {
            key: &self.key,
            token: self.token,
            life: self.life,
            port: main,
            ports: &named,
            managers: &self.managers,
            folder: &self.folder,
            data: &self.settings.data,
        };
        let env = surroundings::variables(&facts, &self.settings.env_pass, line.env);
        let pid_namespace = self.settings.sandboxes.pid_namespace;
        let ready_line = match &self.program.ready {
            ReadyWhen::Line(text) => Some(text.clone()),
            ReadyWhen::Port => None,
        };
        Ok(Order {
            session: self.key.clone(),
            token: self.token,
            request: self.request.clone(),
            folder: self.folder.clone(),
            argv: line.argv,
            env,
            cwd: work,
            grace_ms: self.program.grace_ms,
            lease: self.settings.lease.clone(),
            output_bytes_max: self.settings.output_bytes_max,
            ready_line,
            agent: i32::try_from(std::process::id()).map_err(|_| "pid out of range")?,
            open_files: self.settings.open_files,
            own: user.map(|user| Own { user, pid_namespace }),
            lease_ms_max: self.settings.lease_ms_max,
        })
    }
}

impl Running {
    async fn run(mut self) {
        let end = loop {
            let step = self.next().await;
            if let Some(end) = self.on(step).await {
                break end;
            }
        };
        let stranger = self.awaited().filter(|_| self.stranger).map(Awaited::stranger_is);
        let Self { session, link, ports, user, stage, timed_out, .. } = self;
        let end = match end {
            Some(end) => {
                link.reap().await;
                end
            }
            None => End::KeeperDied(link.clear_up().await),
        };
        let asked = session.stop.borrow().is_some();
        let was_ready = stage == Stage::Ready;
        let news = session.news_of(end, asked, timed_out, was_ready, stranger.as_deref());
        session.mailbox.node(news).await;
        drop((ports, user));
    }

    /// The port by which it becomes ready, while it is looked at.
    fn awaited(&self) -> Option<Awaited> {
        let Self { session, link, ports, .. } = self;
        let (port, keeper, program) = (ports.main.as_ref()?.number(), link.pid()?, self.pid?);
        let by_port = session.program.ready == ReadyWhen::Port && self.stage == Stage::Started;
        by_port.then_some(Awaited { ip: session.settings.ip, port, keeper, program })
    }

    async fn next(&mut self) -> Step {
        let probed = self.awaited();
        let Self { session, link, stage, stranger, ready_by, timed_out, keeper_late, .. } = self;
        let awaited = *stage != Stage::Ready && !*timed_out && session.stop.borrow().is_none();
        let late = *keeper_late;
        tokio::select! {
            biased;
            news = link.news() => Step::News(news),
            how = asked_to_stop(&mut session.stop) => Step::Stop(how),
            () = answers(probed, stranger), if awaited && probed.is_some() => Step::Answers,
            () = sleep_until(*ready_by), if awaited => Step::TooSlow,
            () = sleep_until(late.unwrap_or_else(Instant::now)), if late.is_some() => {
                Step::KeeperLate
            }
        }
    }

    /// `Some(None)` when the keeper is gone without a word.
    async fn on(&mut self, step: Step) -> Option<Option<End>> {
        match step {
            Step::News(None) => return Some(None),
            Step::News(Some(News::Failed { detail })) => return Some(Some(End::Never(detail))),
            Step::News(Some(News::Ended { exit, cause })) => {
                return Some(Some(End::Told(exit, cause)));
            }
            Step::News(Some(News::Started { pid })) => self.on_started(pid).await,
            Step::News(Some(News::ReadyLine)) | Step::Answers => self.on_ready().await,
            Step::Stop(how) => {
                let grace_ms = match how {
                    StopHow::Class => self.session.program.grace_ms,
                    StopHow::Term => self.session.settings.lease_grace_ms,
                    StopHow::Kill => 0,
                };
                self.stop(grace_ms).await;
            }
            Step::TooSlow => {
                self.timed_out = true;
                self.stop(0).await;
            }
            Step::KeeperLate => {
                tracing::warn!("its keeper does not obey and is killed");
                self.keeper_late = None;
                self.link.kill();
            }
        }
        None
    }

    async fn on_started(&mut self, pid: i32) {
        tracing::info!(pid, port = self.ports.main.as_ref().map(Port::number), "started");
        self.stage = Stage::Started;
        self.pid = Some(pid);
        let (key, token) = (self.session.key.clone(), self.session.token);
        let address = self.address();
        let news = NodeInput::Started { key, token, address, ready: false };
        self.session.mailbox.node(news).await;
    }

    async fn on_ready(&mut self) {
        // A program that is being ended is not announced any more.
        if self.stage != Stage::Started || self.timed_out || self.session.stop.borrow().is_some() {
            return;
        }
        tracing::info!("ready");
        self.stage = Stage::Ready;
        let (key, token) = (self.session.key.clone(), self.session.token);
        let address = self.address();
        self.session.mailbox.node(NodeInput::Ready { key, token, address }).await;
    }

    /// Empty for a program without a port: nobody listens then.
    fn address(&self) -> String {
        let host = &self.session.settings.host;
        self.ports.main.as_ref().map_or_else(String::new, |it| join(host, it.number()))
    }

    async fn stop(&mut self, grace_ms: u64) {
        let late = Instant::now() + Duration::from_millis(grace_ms) + KEEPER_LATE;
        self.keeper_late = Some(self.keeper_late.map_or(late, |it| it.min(late)));
        self.link.stop(grace_ms).await;
    }
}

async fn asked_to_stop(stop: &mut watch::Receiver<Option<StopHow>>) -> StopHow {
    loop {
        if stop.changed().await.is_err() {
            // Only a node that is being dropped as a whole forgets a session without stopping it.
            return StopHow::Kill;
        }
        if let Some(how) = *stop.borrow_and_update() {
            return how;
        }
    }
}

/// Waits until the session takes the connections of that port; for ever without one.
async fn answers(awaited: Option<Awaited>, stranger: &mut bool) {
    match awaited {
        Some(awaited) => awaited.answers(stranger).await,
        None => std::future::pending().await,
    }
}

impl ProgramSession {
    fn news_of(
        &self,
        end: End,
        asked: bool,
        timed_out: bool,
        was_ready: bool,
        stranger: Option<&str>,
    ) -> NodeInput {
        let (key, token) = (self.key.clone(), self.token);
        let (exit, cause) = match end {
            End::Never(detail) => {
                tracing::info!(%detail, "not started");
                return NodeInput::StartFailed { key, token, detail };
            }
            End::Told(exit, cause) => (Some(exit), Some(cause)),
            End::KeeperDied(exit) => (exit, None),
        };
        let shown = exit.as_ref().map_or("unknown".to_owned(), ToString::to_string);
        tracing::info!(exit = shown, asked, "ended");
        if asked {
            return NodeInput::Stopped { key, token, exit };
        }
        let (reason, detail) = match cause {
            None => (Reason::Internal, "its keeper was killed, and it was killed too".to_owned()),
            Some(Cause::Lease) => {
                let detail = "no manager renewed the node's lease in time";
                (Reason::LeaseNotRenewed, detail.to_owned())
            }
            Some(Cause::Own | Cause::Stop) if timed_out => {
                (Reason::StartTimeout, self.too_slow(stranger))
            }
            Some(Cause::Own | Cause::Stop) if !was_ready => {
                let taken = stranger.map(|it| format!("; {it} has its port")).unwrap_or_default();
                let detail = format!("it ended before it was ready{taken}{}", self.last_words());
                (Reason::Exited, detail)
            }
            Some(Cause::Own | Cause::Stop) => (Reason::Exited, String::new()),
        };
        NodeInput::Ended { key, token, reason, exit, detail }
    }

    fn too_slow(&self, stranger: Option<&str>) -> String {
        let awaited = match (&self.program.ready, stranger) {
            (ReadyWhen::Port, None) => "its port did not answer".to_owned(),
            (ReadyWhen::Port, Some(stranger)) => {
                format!("{stranger} listens on its port, and no process of the session did")
            }
            (ReadyWhen::Line(text), _) => format!("it printed no line with {text:?}"),
        };
        let limit = self.program.start_timeout_ms;
        format!("{awaited} within start_timeout ({limit} ms){}", self.last_words())
    }

    /// The last line that it wrote to its standard error, for the detail of a failure.
    fn last_words(&self) -> String {
        let tail = tail(&self.folder.join("stderr.log")).unwrap_or_default();
        match tail.lines().rev().find(|line| !line.trim().is_empty()) {
            Some(line) => format!("; it said: {}", line.trim()),
            None => String::new(),
        }
    }
}

fn tail(file: &Path) -> io::Result<String> {
    // What is there is the keeper's, or else nobody's that is read here.
    let no_link = OFlags::NOFOLLOW.bits().cast_signed();
    let mut file = File::options().read(true).custom_flags(no_link).open(file)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LAST_WORDS_BYTES_MAX)))?;
    let mut bytes = Vec::new();
    file.take(LAST_WORDS_BYTES_MAX).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    Ok(text.replace(|it: char| it.is_control() && it != '\n', " "))
}
