//! One program session: one task that starts a keeper, watches the program get ready, and tells
//! the node's decisions what becomes of it.

use super::answering::Awaited;
use super::keeper_link::KeeperLink;
use super::last_words::last_words;
use super::orphans::Keepers;
use super::surroundings::{self, Facts, make_folders};
use crate::keeper::order::{Cause, News, Order, Own, Stop};
use crate::lease::boottime_ms;
use crate::limits::{Bounds, Limited, Limiter};
use crate::mailbox::Mailbox;
use crate::observe::{Entry, Listing};
use crate::ports::{Port, PortRange, Ports};
use crate::sandbox::{Sandboxes, User};
use rota_daemon::processes::descendants;
use rota_daemon::{Log, listeners};
use rota_model::address::join;
use rota_model::{Attributes, Exit, Reason, RequestId, SessionKey, SlotId, Stamp, Token};
use rota_node::class::{Class, ProgramClass, ReadyWhen, Values};
use rota_node::{NodeInput, StopHow};
use rustix::process::Signal;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// How much later than asked a keeper may be with the end before it is killed itself. Well below
/// the time that a leaving node waits.
const KEEPER_LATE: Duration = Duration::from_millis(1_500);

/// Most addresses in a report on which a program listened.
const OPENED_SHOWN_MAX: usize = 8;

/// What there is to say of an end that no keeper told.
const KEEPER_KILLED: &str = "its keeper was killed, and it was killed too";

/// What ends a program that does not end when it is asked to.
const KILL: i32 = Signal::KILL.as_raw();

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
    /// Bytes that they leave free of the disk.
    pub disk_reserve_bytes: u64,
    /// Until KILL when the lease has run out.
    pub lease_grace_ms: u64,
    /// No lease of this node goes on for longer.
    pub lease_ms_max: u64,
    /// Names of variables of this process's environment that programs get, too.
    pub env_pass: Vec<String>,
    /// What programs are kept from.
    pub sandboxes: Sandboxes,
    /// Limit of open files that the agent itself was started with.
    pub open_files: Option<u64>,
    /// What this machine can hold programs to.
    pub limiter: Limiter,
    /// Keepers that run.
    pub keepers: Keepers,
    /// What runs, for operators.
    pub listing: Listing,
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
    /// Its slot.
    pub slot: SlotId,
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
    /// Its place in the listing.
    pub entry: Entry,
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
    /// Holds its processes; its groups go when nothing of it runs.
    limited: Limited,
    stage: Stage,
    /// The first process of the program, once it was started.
    pid: Option<i32>,
    /// Somebody else takes connections on its port.
    stranger: bool,
    /// When it must be ready.
    ready_by: Instant,
    timed_out: bool,
    /// Where it listened then.
    opened: Vec<SocketAddr>,
    /// The time that it was last given to end, before it was to be killed at once.
    grace_ms: Option<u64>,
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

    /// May look at every process of the machine, so nothing else of the node waits for it.
    async fn choose_user(&self) -> Result<Option<User>, String> {
        let (settings, program) = (self.settings.clone(), self.program.clone());
        let chosen = move || settings.sandboxes.user_for(&program);
        let chosen = tokio::task::spawn_blocking(chosen).await;
        chosen.map_err(|error| format!("no uid for it: {error}"))?
    }

    async fn start(self) -> Result<Running, String> {
        if self.stop.borrow().is_some() {
            return Err("it was stopped before it was started".to_owned());
        }
        if boottime_ms() > self.not_after_ms {
            return Err("the time to start it has passed".to_owned());
        }
        let ports = self.choose_ports().map_err(|error| format!("no port: {error}"))?;
        let user = self.choose_user().await?;
        let limited = self.settings.limiter.limit(&self.program.limits, user.is_some())?;
        let order = self.order(&ports, user.as_ref().map(User::number), limited.bounds())?;
        make_folders(&self.settings.sessions, &order)
            .map_err(|error| format!("no folder for it: {error}"))?;
        let link = KeeperLink::start(&order, &self.settings)
            .await
            .map_err(|error| format!("{error:#}"))?;
        self.entry.started(link.pid(), &limited.bounds().groups);
        let ready_by = Instant::now() + Duration::from_millis(self.program.start_timeout_ms);
        Ok(Running {
            session: self,
            link,
            ports,
            user,
            limited,
            stage: Stage::Asked,
            pid: None,
            stranger: false,
            ready_by,
            timed_out: false,
            opened: Vec::new(),
            grace_ms: None,
            keeper_late: None,
        })
    }

    fn choose_ports(&self) -> Result<Ports, String> {
        let choose = || Port::choose(self.settings.ip, &self.settings.ports);
        let main = self.program.port.then(choose).transpose()?;
        let named = self.program.ports.iter().map(|name| Ok((name.clone(), choose()?)));
        Ok(Ports { main, named: named.collect::<Result<_, String>>()? })
    }

    fn order(&self, ports: &Ports, user: Option<u32>, limits: &Bounds) -> Result<Order, String> {
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
            stop: Stop::of(&self.program),
            slot: self.slot,
            lease: self.settings.lease.clone(),
            output_bytes_max: self.settings.output_bytes_max,
            disk_reserve_bytes: self.settings.disk_reserve_bytes,
            ready_line,
            agent: i32::try_from(std::process::id()).map_err(|_| "pid out of range")?,
            bounds: Bounds { open_files: self.settings.open_files, ..limits.clone() },
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
        let killed = |it: &End| {
            matches!(it, End::Told(Exit::Signal(KILL), _) | End::Told(Exit::Code(137), _))
        };
        let course = self.course(end.as_ref().is_some_and(killed)).await;
        let Self { session, link, ports, user, limited, .. } = self;
        let end = match end {
            Some(end) => {
                session.entry.over();
                link.reap().await;
                end
            }
            None => End::KeeperDied(link.clear_up().await),
        };
        let news = session.news_of(end, &course);
        // Nothing of it runs any more. The kernel may take a moment to let a group go.
        if !limited.bounds().groups.is_empty() {
            drop(tokio::task::spawn_blocking(move || drop(limited)).await);
        }
        session.mailbox.node(news).await;
        drop((ports, user));
    }

    async fn course(&self, was_killed: bool) -> Course {
        // It looks at every process of the machine.
        let stranger = match self.awaited().filter(|_| self.stranger) {
            Some(awaited) => tokio::task::spawn_blocking(move || awaited.stranger_is()).await.ok(),
            None => None,
        };
        Course {
            asked: self.session.stop.borrow().is_some(),
            grace_ms: self.grace_ms,
            timed_out: self.timed_out,
            was_ready: self.stage == Stage::Ready,
            port: self.ports.main.as_ref().map(Port::number),
            stranger,
            opened: self.opened.clone(),
            limit: self.limited.broken(was_killed),
        }
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
                    StopHow::Within(ms) => ms,
                    StopHow::Term => self.session.settings.lease_grace_ms,
                    StopHow::Kill => 0,
                };
                self.stop(grace_ms).await;
            }
            Step::TooSlow => {
                self.timed_out = true;
                self.opened = self.listens_on().await;
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
        let remarks =
            [self.session.class.remark_on(&self.session.attributes), self.limited.remark()];
        let remarks: Vec<String> = remarks.into_iter().filter(|it| !it.is_empty()).collect();
        let remark = remarks.join("; ");
        let news = NodeInput::Started { key, token, address, ready: false, remark };
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

    /// Where processes of the session listen, as far as can be seen.
    async fn listens_on(&self) -> Vec<SocketAddr> {
        let (Some(keeper), Some(program)) = (self.link.pid(), self.pid) else {
            return Vec::new();
        };
        let looked = tokio::task::spawn_blocking(move || {
            listeners::held(program, &descendants(keeper)).unwrap_or_default()
        });
        looked.await.unwrap_or_default()
    }

    /// Empty for a program without a port: nobody listens then.
    fn address(&self) -> String {
        let host = &self.session.settings.host;
        self.ports.main.as_ref().map_or_else(String::new, |it| join(host, it.number()))
    }

    async fn stop(&mut self, grace_ms: u64) {
        // Of two times the shorter counts. What kills at once leaves what was told before.
        let given = Some(grace_ms).filter(|ms| *ms > 0);
        self.grace_ms = given.into_iter().chain(self.grace_ms).min().or(Some(0));
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

/// How a program went on until its end.
struct Course {
    /// Somebody asked for its end.
    asked: bool,
    /// The time that it was given for that; 0: none.
    grace_ms: Option<u64>,
    timed_out: bool,
    was_ready: bool,
    /// The port that it was given.
    port: Option<u16>,
    /// Who else has that.
    stranger: Option<String>,
    /// Where it listened when its time to start was over.
    opened: Vec<SocketAddr>,
    /// Which limit of its class it came up against.
    limit: Option<String>,
}

impl Course {
    fn limit(&self) -> String {
        self.limit.as_ref().map(|it| format!("; {it}")).unwrap_or_default()
    }
}

impl ProgramSession {
    fn news_of(&self, end: End, course: &Course) -> NodeInput {
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
        if course.asked {
            let detail = self.asked_to_end(exit.as_ref(), cause, course);
            tracing::info!(exit = shown, detail, "ended, as it was asked to");
            return NodeInput::Stopped { key, token, exit, detail };
        }
        let (reason, detail) = self.ended_unasked(exit.as_ref(), cause, course);
        // Whoever looks after a node looks for what did not end well.
        if course.was_ready && exit == Some(Exit::Code(0)) {
            tracing::info!(exit = shown, detail, "ended");
        } else {
            tracing::warn!(exit = shown, %reason, detail, "ended");
        }
        NodeInput::Ended { key, token, reason, exit, detail }
    }

    /// What there is to say of an end that was asked for: nothing, if it was in good order.
    fn asked_to_end(&self, exit: Option<&Exit>, cause: Option<Cause>, course: &Course) -> String {
        let stop = Stop::of(&self.program).signal;
        let how = match (exit, course.grace_ms) {
            (None | Some(Exit::Code(0) | Exit::FinalState(_)), _) => return String::new(),
            _ if cause.is_none() => KEEPER_KILLED.to_owned(),
            (Some(Exit::Signal(signal)), _) if *signal == stop => return String::new(),
            // What a shell tells of a signal.
            (Some(Exit::Code(code)), _) if code - 128 == stop => return String::new(),
            (Some(Exit::Signal(KILL)), Some(0) | None) => return String::new(),
            (Some(Exit::Signal(KILL)), Some(grace_ms)) => {
                format!("it did not end when it was asked to (grace {grace_ms} ms), and was killed")
            }
            (Some(exit), _) => format!("asked to end, it ended with {exit}"),
        };
        format!("{how}{}", last_words(&self.folder))
    }

    fn ended_unasked(
        &self,
        exit: Option<&Exit>,
        cause: Option<Cause>,
        course: &Course,
    ) -> (Reason, String) {
        let words = || last_words(&self.folder);
        match cause {
            None => (Reason::Internal, format!("{KEEPER_KILLED}{}", words())),
            Some(Cause::Lease) => {
                let detail = "no manager renewed the node's lease in time";
                (Reason::LeaseNotRenewed, detail.to_owned())
            }
            Some(Cause::Own | Cause::Stop) if course.timed_out => {
                (Reason::StartTimeout, format!("{}{}", self.too_slow(course), words()))
            }
            Some(Cause::Own | Cause::Stop) if !course.was_ready => {
                let taken = course.stranger.as_deref();
                let taken = taken.map(|it| format!("; {it} has its port")).unwrap_or_default();
                (
                    Reason::Exited,
                    format!("it ended before it was ready{taken}{}{}", course.limit(), words()),
                )
            }
            Some(Cause::Own | Cause::Stop) if exit == Some(&Exit::Code(0)) => {
                (Reason::Exited, String::new())
            }
            Some(Cause::Own | Cause::Stop) => (
                Reason::Exited,
                format!("it ended by itself after it was ready{}{}", course.limit(), words()),
            ),
        }
    }

    fn too_slow(&self, course: &Course) -> String {
        let port = course.port.map(|port| format!(" {port}")).unwrap_or_default();
        let awaited = match (&self.program.ready, &course.stranger) {
            (ReadyWhen::Port, None) => format!("its port{port} did not answer"),
            (ReadyWhen::Port, Some(stranger)) => {
                format!("{stranger} listens on its port{port}, and no process of the session did")
            }
            (ReadyWhen::Line(text), _) => format!("it printed no line with {text:?}"),
        };
        let limit = self.program.start_timeout_ms;
        let shown = course.opened.iter().take(OPENED_SHOWN_MAX).map(ToString::to_string);
        let shown: Vec<String> = shown.collect();
        let listens = match (course.opened.len().saturating_sub(shown.len()), shown.join(", ")) {
            (_, none) if none.is_empty() => "no port".to_owned(),
            (0, all) => all,
            (more, some) => format!("{some} and {more} more"),
        };
        format!("{awaited} within start_timeout ({limit} ms); it listened on {listens}")
    }
}
