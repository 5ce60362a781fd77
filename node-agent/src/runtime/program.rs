//! A program session that begins: what it is given, and its keeper's start. How it goes on is in
//! [`super::running`].

use super::care::Care;
use super::keeper_link::KeeperLink;
use super::program_settings::ProgramSettings;
use super::running::{Holds, Running, Session, Stage};
use super::surroundings::{self, Facts, make_folders};
use super::terms::{FORMAT, Terms};
use crate::content::content_of_version;
use crate::keeper::order::{Order, Own, Stop};
use crate::lease::boottime_ms;
use crate::limits::{Bounds, Held};
use crate::mailbox::Mailbox;
use crate::observe::Entry;
use crate::ports::{Port, Ports};
use crate::sandbox::User;
use rota_daemon::processes::machine_boot;
use rota_model::{Attributes, RequestId, SessionKey, SlotId, Stamp, Token};
use rota_node::class::{Class, ProgramClass, ReadyWhen, Values};
use rota_node::{NodeInput, StopHow};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::watch;

/// How often connections are looked for at most and at least: a quarter of the idle time lies between. With less, a node
/// reads long tables; with more, a short use is not seen.
const USE_LOOK_MS: (u64, u64) = (1_000, 5_000);

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
    /// The folder of class files that it stands in.
    pub root: Arc<Path>,
    /// Its program.
    pub program: Arc<ProgramClass>,
    /// How long it may be idle, in milliseconds.
    pub idle_ms: Option<u64>,
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

/// Of a session that is about to start: what is not said of it elsewhere.
struct Given {
    /// The port that is its address.
    port: Option<u16>,
    /// Its further ports, by name.
    ports: BTreeMap<String, u16>,
    /// What it has of its own.
    own: Option<Own>,
    /// What holds it to its limits.
    held: Held,
    /// Its whole environment.
    env: BTreeMap<String, String>,
    /// How it is looked after.
    care: Option<Care>,
}

impl Terms {
    /// Those of a session of that class, which has so long to get ready from now on.
    fn now(session: &ProgramSession, given: Given) -> Self {
        let program = &session.program;
        let remarks = [session.class.remark_on(&session.attributes), given.held.remark()];
        let remarks: Vec<String> = remarks.into_iter().filter(|it| !it.is_empty()).collect();
        Self {
            format: FORMAT,
            machine_boot: machine_boot(),
            key: session.key.clone(),
            token: session.token,
            life: session.life,
            slot: session.slot,
            request: session.request.clone(),
            class: session.class.name.clone(),
            root: Some(session.root.to_path_buf()),
            port: given.port,
            ports: given.ports,
            own: given.own,
            held: given.held,
            stop: Stop::of(program),
            grace_ms: program.grace_ms,
            ready: program.ready.clone(),
            start_timeout_ms: program.start_timeout_ms,
            ready_by_ms: boottime_ms().saturating_add(program.start_timeout_ms),
            remark: remarks.join("; "),
            env: given.env,
            care: given.care,
            use_look_ms: session.use_look_ms(),
            kept_output: program.kept_output,
            marks: session.class.text.facts.life.marks(),
            action_memory_mib: session.class.action_memory_mib.clone(),
        }
    }
}

impl ProgramSession {
    /// Runs it to its end. Everything of it is gone when this returns, and the end is told.
    pub async fn run(self) {
        let (key, token, mailbox) = (self.key.clone(), self.token, self.mailbox.clone());
        match self.start().await {
            // Boxed: what is awaited in there is large.
            Ok(running) => Box::pin(running.run()).await,
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
        let (order, care) =
            self.order(&ports, user.as_ref().map(User::number), limited.bounds())?;
        make_folders(&self.settings.sessions, &order)
            .map_err(|error| format!("no folder for it: {error}"))?;
        let terms = Terms::now(
            &self,
            Given {
                port: ports.main.as_ref().map(Port::number),
                ports: ports.named_numbers(),
                own: order.own,
                held: limited.held().clone(),
                env: order.env.clone(),
                care,
            },
        );
        // Before the keeper: whatever runs, a later agent knows by what.
        terms.write(&self.folder).map_err(|error| format!("cannot write its terms: {error}"))?;
        let link = KeeperLink::start(&order, &self.settings)
            .await
            .map_err(|error| format!("{error:#}"))?;
        let Self { settings, folder, stop, mailbox, entry, .. } = self;
        let session = Session { settings, terms, folder, stop, mailbox, entry };
        Ok(Running::new(session, link, Holds { ports, user, limited }, Stage::Asked))
    }

    /// How often connections on its port are looked for, where they count as use.
    pub fn use_look_ms(&self) -> Option<u64> {
        let part = self.idle_ms.map_or(USE_LOOK_MS.1, |it| it / 4);
        self.class.idle_connections.then_some(part.clamp(USE_LOOK_MS.0, USE_LOOK_MS.1))
    }

    fn choose_ports(&self) -> Result<Ports, String> {
        let choose = || Port::choose(self.settings.ip, &self.settings.ports);
        let main = self.program.port.then(choose).transpose()?;
        let named = self.program.ports.iter().map(|name| Ok((name.clone(), choose()?)));
        Ok(Ports { main, named: named.collect::<Result<_, String>>()? })
    }

    fn order(
        &self,
        ports: &Ports,
        user: Option<u32>,
        limits: &Bounds,
    ) -> Result<(Order, Option<Care>), String> {
        let work = self.folder.join("work");
        let folder = work.to_str().ok_or("the path of its folder is not UTF-8")?;
        let (ip, attributes) = (self.settings.ip, &*self.attributes);
        let (main, named) = (ports.main.as_ref().map(Port::number), ports.named_numbers());
        let port = main.unwrap_or_default();
        let class_folder = self.root.join(self.class.name.as_str());
        let class_folder = class_folder.to_str().ok_or("the path of its class is not UTF-8")?;
        let key = &self.key;
        let values = Values { key, ip, port, ports: &named, folder, class_folder, attributes };
        let line = self.program.command(&self.class, &values).map_err(|error| error.to_string())?;
        let health = self.class.health.as_ref();
        let care = health.map(|it| Care::of(it, &self.class, &values)).transpose();
        let care = care.map_err(|error| error.to_string())?;
        let facts = Facts {
            key: &self.key,
            token: self.token,
            life: self.life,
            port: main,
            ports: &named,
            managers: &self.managers,
            folder: &self.folder,
            class_folder,
            content: content_of_version(&self.root),
            data: &self.settings.data,
        };
        let env = surroundings::variables(&facts, &self.settings.env_pass, line.env);
        let pid_namespace = self.settings.sandboxes.pid_namespace;
        let ready_line = match &self.program.ready {
            ReadyWhen::Line(text) => Some(text.clone()),
            ReadyWhen::Port => None,
        };
        let order = Order {
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
        };
        Ok((order, care))
    }
}
