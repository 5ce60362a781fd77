//! A program session under way, whoever began it: one task that watches the program get ready, hands on what it is
//! to do, and tells the node's decisions what becomes of it.

use super::answering::Awaited;
use super::ending::{Course, End};
use super::health::Patient;
use super::keeper_link::{Cleared, KeeperLink};
use super::orphans::{self, Left};
use super::program_settings::ProgramSettings;
use super::terms::Terms;
use crate::actions::Gate;
use crate::keeper::order::News;
use crate::lease::boottime_ms;
use crate::limits::Limited;
use crate::mailbox::Mailbox;
use crate::observe::Entry;
use crate::ports::{Port, Ports};
use crate::sandbox::User;
use rota_daemon::listeners;
use rota_daemon::processes::descendants;
use rota_model::Exit;
use rota_model::address::join;
use rota_node::class::ReadyWhen;
use rota_node::{NodeInput, StopHow};
use rustix::process::Signal;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

/// How much later than asked a keeper may be with the end before it is killed itself. Well below
/// the time that a leaving node waits.
const KEEPER_LATE: Duration = Duration::from_millis(1_500);

/// What ends a program that does not end when it is asked to.
const KILL: i32 = Signal::KILL.as_raw();

/// A program session whose keeper was started, by this agent or by an earlier one.
pub struct Session {
    /// What all programs share.
    pub settings: Arc<ProgramSettings>,
    /// By what it runs.
    pub terms: Terms,
    /// The session's folder.
    pub folder: PathBuf,
    /// Set when it is to be stopped; only gets more urgent.
    pub stop: watch::Receiver<Option<StopHow>>,
    /// Where news goes.
    pub mailbox: Mailbox,
    /// Its place in the listing.
    pub entry: Entry,
}

/// What a session has to itself until its end was told.
pub struct Holds {
    /// So that no other session answers on them while this one counts as live.
    pub ports: Ports,
    /// For the same reason.
    pub user: Option<User>,
    /// Holds its processes; its groups go when nothing of it runs.
    pub limited: Limited,
}

impl Holds {
    /// What a session has that an earlier agent began.
    pub fn again(terms: &Terms) -> Self {
        Self {
            ports: Ports::again(terms.port, &terms.ports),
            user: terms.own.map(|it| User::again(it.user)),
            limited: Limited::again(terms.held.clone()),
        }
    }
}

impl Session {
    /// Has the end of what it printed kept at the ring, as its class says.
    async fn keep_output(&self) {
        let Some(kept) = self.terms.kept_output else { return };
        let (outputs, folder) = (self.settings.outputs.clone(), self.folder.clone());
        let of = (self.terms.key.clone(), self.terms.life);
        let read = tokio::task::spawn_blocking(move || outputs.keep(of, kept, &folder)).await;
        if let Ok(Err(why)) = read {
            tracing::warn!(%why, "what it printed is not kept at the ring");
        }
    }

    /// Kills what actions under an earlier agent left: it may have been killed together with their minders.
    async fn end_what_acted(&self) {
        let user = self.terms.own.map(|it| it.user);
        let (folder, groups) = (&self.folder, self.terms.held.groups());
        let left = Left { group: None, user, folder, groups, seen: &[] };
        if left.is_there() {
            tracing::warn!("killing what an action left under an earlier agent");
            drop(orphans::end(left, &self.settings.keepers).await);
        }
    }
}

/// How far a program has got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// The keeper was asked.
    Asked,
    /// It runs and does not answer yet.
    Started,
    /// It answers.
    Ready,
}

/// Looks whether a program is well.
enum Looks {
    /// It is not ready.
    NotYet,
    /// They go on; the end tells why it is unwell.
    Going(JoinHandle<Option<String>>),
    /// Nobody looks any more.
    Over,
}

/// A program under way.
pub struct Running {
    session: Session,
    link: KeeperLink,
    holds: Holds,
    stage: Stage,
    /// An earlier agent asked for it.
    adopted: bool,
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
    /// Through here goes what runs beside the program.
    gate: Gate,
    /// Looks whether it is well, once it is ready.
    looks: Looks,
    /// Why it was found unwell.
    unwell: Option<String>,
}

/// What happens next to a program.
enum Step {
    News(Option<News>),
    Stop(StopHow),
    Answers,
    TooSlow,
    KeeperLate,
    Unwell(String),
}

impl Running {
    /// One whose keeper that link leads to. It got that far.
    pub fn new(session: Session, link: KeeperLink, holds: Holds, stage: Stage) -> Self {
        session.entry.started(link.pid(), session.terms.held.groups());
        let gate = session.settings.actions.open(&session.terms.key, session.terms.token);
        let left_ms = session.terms.ready_by_ms.saturating_sub(boottime_ms());
        Self {
            session,
            link,
            holds,
            stage,
            adopted: false,
            pid: None,
            stranger: false,
            ready_by: Instant::now() + Duration::from_millis(left_ms),
            timed_out: false,
            opened: Vec::new(),
            grace_ms: None,
            keeper_late: None,
            gate,
            looks: Looks::NotYet,
            unwell: None,
        }
    }

    /// The same, of an earlier agent.
    pub fn adopted(session: Session, link: KeeperLink, holds: Holds, stage: Stage) -> Self {
        Self { adopted: true, ..Self::new(session, link, holds, stage) }
    }

    /// To its end. Everything of it is gone when this returns, and the end is told.
    pub async fn run(mut self) {
        let end = loop {
            let step = self.next().await;
            if let Some(end) = self.on(step).await {
                break end;
            }
        };
        self.gate.shut();
        self.session.settings.in_use.forget(&self.session.terms);
        let killed = |it: &End| matches!(it, End::Told(Exit::Signal(KILL) | Exit::Code(137), _));
        let course = self.course(end.as_ref().is_some_and(killed)).await;
        let Self { session, mut link, holds, stage, adopted, .. } = self;
        let end = match end {
            Some(end) => {
                session.entry.over();
                link.reap().await;
                end
            }
            None => match link.clear_up().await {
                Cleared::Killed(exit) => End::KeeperDied(exit),
                Cleared::Told(exit, cause) => End::Told(exit, cause),
                // It was ready once, whatever is left of its files.
                Cleared::Never(_) if stage == Stage::Ready => End::KeeperDied(None),
                Cleared::Never(detail) => End::Never(detail),
            },
        };
        let news = session.news_of(end, &course);
        // Neither its actions nor what looked after it.
        session.settings.actions.close(&session.terms.key, session.terms.token).await;
        if adopted {
            session.end_what_acted().await;
        }
        let Holds { ports, user, limited } = holds;
        // Nothing of it runs any more. The kernel may take a moment to let a group go.
        if !session.terms.held.groups().is_empty() {
            drop(tokio::task::spawn_blocking(move || drop(limited)).await);
        }
        session.keep_output().await;
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
            port: self.holds.ports.main.as_ref().map(Port::number),
            stranger,
            opened: self.opened.clone(),
            limit: self.holds.limited.broken(was_killed),
            unwell: self.unwell.clone(),
        }
    }

    /// The port by which it becomes ready, while it is looked at.
    fn awaited(&self) -> Option<Awaited> {
        let Self { session, link, holds, .. } = self;
        let port = holds.ports.main.as_ref()?.number();
        let (keeper, program) = (link.pid()?, self.pid?);
        let by_port = session.terms.ready == ReadyWhen::Port && self.stage == Stage::Started;
        by_port.then_some(Awaited { ip: session.settings.ip, port, keeper, program })
    }

    async fn next(&mut self) -> Step {
        self.look_after();
        let probed = self.awaited();
        let Self {
            session, link, stage, stranger, ready_by, timed_out, keeper_late, looks, ..
        } = self;
        let awaited = *stage != Stage::Ready && !*timed_out && session.stop.borrow().is_none();
        let late = *keeper_late;
        tokio::select! {
            biased;
            news = link.news() => Step::News(news),
            how = asked_to_stop(&mut session.stop) => Step::Stop(how),
            () = answers(probed, stranger), if awaited && probed.is_some() => Step::Answers,
            () = sleep_until(*ready_by), if awaited => Step::TooSlow,
            why = unwell(looks) => Step::Unwell(why),
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
                    StopHow::Class => self.session.terms.grace_ms,
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
            Step::Unwell(why) => {
                tracing::warn!(why, "it is unwell, and is ended");
                self.unwell = Some(why);
                self.stop(self.session.terms.grace_ms).await;
            }
            Step::KeeperLate => {
                tracing::warn!("its keeper does not obey and is killed");
                self.keeper_late = None;
                self.link.kill();
            }
        }
        None
    }

    /// Once it is ready and is to go on: whether it is well, and whether it is used.
    fn look_after(&mut self) {
        let Session { settings, terms, folder, .. } = &self.session;
        if self.stage != Stage::Ready || !matches!(self.looks, Looks::NotYet) || self.gate.is_shut()
        {
            return;
        }
        settings.in_use.look_at(terms);
        let patient = Patient {
            settings: settings.clone(),
            terms: terms.clone(),
            folder: folder.clone(),
            gate: self.gate.clone(),
        };
        self.looks = Looks::Going(self.gate.spawn(patient.until_unwell()));
    }

    async fn on_started(&mut self, pid: i32) {
        let what = if self.adopted { "adopted" } else { "started" };
        tracing::info!(pid, port = self.session.terms.port, "{what}");
        self.pid = Some(pid);
        // What is adopted may have been ready long ago.
        if self.stage == Stage::Asked {
            self.stage = Stage::Started;
        }
        let Terms { key, token, remark, .. } = self.session.terms.clone();
        let address = self.address();
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
        let (key, token) = (self.session.terms.key.clone(), self.session.terms.token);
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
        self.holds.ports.main.as_ref().map_or_else(String::new, |it| join(host, it.number()))
    }

    async fn stop(&mut self, grace_ms: u64) {
        self.gate.shut();
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

/// Waits until looks found the session unwell; for ever where nobody looks.
async fn unwell(looks: &mut Looks) -> String {
    if let Looks::Going(task) = looks {
        let found = task.await.ok().flatten();
        *looks = Looks::Over;
        if let Some(why) = found {
            return why;
        }
    }
    std::future::pending().await
}

/// Waits until the session takes the connections of that port; for ever without one.
async fn answers(awaited: Option<Awaited>, stranger: &mut bool) {
    match awaited {
        Some(awaited) => awaited.answers(stranger).await,
        None => std::future::pending().await,
    }
}
