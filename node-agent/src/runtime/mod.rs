//! What runs on this node: machines inside this process, programs under their keepers.

mod adopt;
mod answering;
mod care;
mod ending;
mod folders;
mod health;
mod in_use;
mod keeper_link;
mod last_words;
mod orphans;
mod pins;
mod program;
mod program_settings;
mod running;
mod surroundings;
mod terms;

pub use adopt::AdoptOrder;
pub use in_use::{InUse, Used};
pub use orphans::{FOLDER_VARIABLE, Keepers, Left, end as end_left};
pub use program_settings::ProgramSettings;
pub use terms::{Terms, adoptable, groups_in};

use crate::actions::Ask;
use crate::catalog::Classes;
use crate::mailbox::{Event, Mailbox};
use crate::observe::Listed;
use folders::Folders;
use pins::Pins;
use program::ProgramSession;
use rota_model::{
    ClassName, Exit, FieldError, LifeOptions, Reason, Refusal, RefusalKind, RequestId, Retry,
    SessionKey, SessionSpec, SlotId, Stamp, Token,
};
use rota_node::class::{Class, ClassKind, MachineClass, ProgramClass};
use rota_node::machine::{Machine, SendError, Transition};
use rota_node::{Adopted, NodeInput, StopHow};
use rota_proto::SendEvent;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tracing::Instrument;

/// A session to start.
pub struct StartOrder {
    /// Which session.
    pub key: SessionKey,
    /// Which attempt.
    pub token: Token,
    /// Which life.
    pub life: Stamp,
    /// Its slot.
    pub slot: SlotId,
    /// What to run.
    pub spec: SessionSpec,
    /// Not to be started later, on [`crate::lease::boottime_ms`].
    pub not_after_ms: u64,
    /// The request that caused it, for traces.
    pub request: Option<RequestId>,
    /// Managers of the cluster, `host:port`.
    pub managers: Vec<String>,
}

/// A machine that runs.
struct Running {
    token: Token,
    life: Stamp,
    machine: Machine,
}

/// Everything that runs. Owned by one task; programs have a task each.
pub struct Runtime {
    /// Each with the folder of class files that it stands in.
    classes: BTreeMap<ClassName, (Arc<Class>, Arc<Path>)>,
    settings: Arc<ProgramSettings>,
    folders: Folders,
    mailbox: Mailbox,
    /// Where machine sessions answer: the node's own address.
    address: String,
    machines: BTreeMap<SessionKey, Running>,
    pins: Pins,
    /// Tasks of programs that are not over.
    programs: BTreeMap<(SessionKey, Token), Task>,
}

/// The task of a program.
struct Task {
    /// Its order to stop.
    stop: watch::Sender<Option<StopHow>>,
    /// The longest time that it may be given to end: by its class, or by a close.
    grace_ms: u64,
}

impl Runtime {
    /// A runtime with nothing running. `address` is the node's own; `spare` are the folders of sessions that it will
    /// adopt.
    pub fn new(
        classes: Classes,
        settings: ProgramSettings,
        (folders_kept_max, spare): (usize, &BTreeSet<PathBuf>),
        address: String,
        mailbox: Mailbox,
    ) -> Self {
        Self {
            classes: shared(classes),
            folders: Folders::found(&settings.sessions, folders_kept_max, spare),
            pins: Pins::new(settings.sessions.with_file_name("machines"), settings.listing.clone()),
            settings: Arc::new(settings),
            mailbox,
            address,
            machines: BTreeMap::new(),
            programs: BTreeMap::new(),
        }
    }

    /// From now on sessions begin with these classes; what runs keeps its own.
    pub fn offer(&mut self, classes: Classes) {
        self.classes = shared(classes);
    }

    /// Whose connections count as use.
    pub fn in_use(&self) -> InUse {
        self.settings.in_use.clone()
    }

    /// True when nothing runs and no task of a program is left.
    pub fn is_empty(&self) -> bool {
        self.machines.is_empty() && self.programs.is_empty()
    }

    /// Starts a session. What is known at once is put into `news`; the rest comes by mailbox.
    pub fn start(&mut self, order: StartOrder, news: &mut Vec<NodeInput>) {
        let Some((class, root)) = self.classes.get(&order.spec.class).cloned() else {
            let (key, token) = (order.key, order.token);
            let detail = format!("this node does not know the class {}", order.spec.class);
            return news.push(NodeInput::StartFailed { key, token, detail });
        };
        match &class.kind {
            ClassKind::Machine(machine) => {
                let remark = class.remark_on(&order.spec.attributes);
                self.start_machine(order, (machine, &root), remark, news);
            }
            ClassKind::Program(program) => {
                let life = order.spec.life.as_deref();
                let program = overridden(program, life);
                let idle_ms = life.and_then(|it| it.idle_ms).or(class.text.facts.life.idle_ms);
                let (stop, stopped) = watch::channel(None);
                let (key, token) = (order.key.clone(), order.token);
                let folder = self.folders.begin(&order.key, order.token, order.life);
                let listed = Listed {
                    life: order.life,
                    class: order.spec.class.clone(),
                    limits: program.limits,
                    folder: folder.clone(),
                    root: Some(root.to_path_buf()),
                    keeper: None,
                    groups: Vec::new(),
                    cpu: Duration::ZERO,
                };
                let session = ProgramSession {
                    settings: self.settings.clone(),
                    entry: self.settings.listing.begin(key.clone(), token, listed),
                    class,
                    root,
                    program,
                    attributes: order.spec.attributes.clone(),
                    folder,
                    not_after_ms: order.not_after_ms,
                    stop: stopped,
                    mailbox: self.mailbox.clone(),
                    key: order.key,
                    token: order.token,
                    life: order.life,
                    slot: order.slot,
                    managers: order.managers,
                    idle_ms,
                    request: order.request,
                };
                let request = session.request.clone();
                let task = Task { stop, grace_ms: session.program.grace_ms };
                self.spawn((key, token), request.as_ref(), task, session.run());
            }
        }
    }

    /// The task of a program from its start, or from its adoption, until its end was told.
    fn spawn(
        &mut self,
        (key, token): (SessionKey, Token),
        request: Option<&RequestId>,
        task: Task,
        run: impl Future<Output = ()> + Send + 'static,
    ) {
        let request = request.map_or("", RequestId::as_str);
        let span = tracing::info_span!("program", session = %key, %token, request);
        let mailbox = self.mailbox.clone();
        self.programs.insert((key.clone(), token), task);
        let all = async move {
            run.await;
            mailbox.give(Event::ProgramOver { key, token }).await;
        };
        tokio::spawn(all.instrument(span));
    }

    fn start_machine(
        &mut self,
        order: StartOrder,
        (class, root): (&Arc<MachineClass>, &Path),
        remark: String,
        news: &mut Vec<NodeInput>,
    ) {
        let (key, token, life) = (order.key, order.token, order.life);
        let machine = Machine::new(class);
        let address = self.address.clone();
        news.push(NodeInput::Started { key: key.clone(), token, address, ready: true, remark });
        let (state, told) = (machine.state().to_owned(), class.report_states());
        let begun = NodeInput::MachineState { key: key.clone(), token, state, change: 0, told };
        news.push(begun);
        if machine.has_ended() {
            return news.push(final_state(key, token, &machine));
        }
        self.pins.pin(&key, (life, &order.spec.class), root);
        self.machines.insert(key, Running { token, life, machine });
    }

    /// Goes on with a session of an earlier agent of this folder. `news` as for [`Runtime::start`].
    pub fn adopt(
        &mut self,
        (key, token): (SessionKey, Token),
        adopted: Adopted,
        news: &mut Vec<NodeInput>,
    ) {
        let Adopted { life, slot, spec, ready, machine } = adopted;
        let Some((state, changes)) = machine else {
            return self.adopt_program(AdoptOrder { key, token, life, slot, ready }, news);
        };
        let earlier = self.pins.earlier(&key, &spec.class);
        let now = self.classes.get(&spec.class);
        let class = match &earlier {
            Some((root, class)) => Some((&class.kind, root.as_path())),
            None => now.map(|(class, root)| (&class.kind, &**root)),
        };
        let machine = match class {
            Some((ClassKind::Machine(class), root)) => {
                Machine::resumed(class, &state, changes).map(|it| (it, root))
            }
            Some((ClassKind::Program(_), _)) | None => None,
        };
        if let Some((machine, root)) = machine {
            self.pins.pin(&key, (life, &spec.class), root);
            self.machines.insert(key, Running { token, life, machine });
            return;
        }
        let class = &spec.class;
        let detail = format!("class {class} of this node's next agent has no state {state:?}");
        let (reason, exit) = (Reason::Internal, None);
        news.push(NodeInput::Ended { key, token, reason, exit, detail });
    }

    /// Stops a session, or stops it more urgently. `news` as for [`Runtime::start`].
    pub fn stop(&mut self, key: SessionKey, token: Token, how: StopHow, news: &mut Vec<NodeInput>) {
        if self.machines.get(&key).is_some_and(|live| live.token == token) {
            self.machines.remove(&key);
            self.pins.unpin(&key);
            return news.push(NodeInput::Stopped { key, token, exit: None, detail: String::new() });
        }
        if let Some(task) = self.programs.get_mut(&(key.clone(), token)) {
            if let StopHow::Within(ms) = how {
                task.grace_ms = task.grace_ms.max(ms);
            }
            return more_urgent(&task.stop, how);
        }
        // Its end is on the way to the decisions, which ignore this then; or it was never here.
        news.push(NodeInput::Stopped { key, token, exit: None, detail: String::new() });
    }

    /// Runs an action of a session. `news` as for [`Runtime::start`].
    pub fn act(&self, ask: Ask, news: &mut Vec<NodeInput>) {
        let actions = &self.settings.actions;
        news.extend(actions.act(ask, &self.settings, &self.mailbox));
    }

    /// Stops all programs, whatever the decisions think.
    pub fn stop_programs(&self, how: StopHow) {
        self.programs.values().for_each(|it| more_urgent(&it.stop, how));
    }

    /// The longest time between TERM and KILL of a program that is not over, in milliseconds.
    pub fn longest_grace_ms(&self) -> u64 {
        self.programs.values().map(|it| it.grace_ms).max().unwrap_or_default()
    }

    /// The task of a program session is over: its folder is kept among the last ones.
    pub fn on_program_over(&mut self, key: &SessionKey, token: Token) {
        if self.programs.remove(&(key.clone(), token)).is_some() {
            self.folders.ended(key, token);
        }
    }

    /// Gives an event to a machine. `news` as for [`Runtime::start`].
    pub fn send(
        &mut self,
        event: &SendEvent,
        news: &mut Vec<NodeInput>,
    ) -> Result<Transition, Refusal> {
        let Some(Running { token, life, machine }) = self.machines.get_mut(&event.key) else {
            let message = format!("no machine of session {} runs on this node", event.key);
            return Err(Refusal::new(RefusalKind::NotFound, Retry::WhenChanged, message));
        };
        if event.life.is_some_and(|asked| asked != *life) {
            let message = format!("session {} lives life {life}", event.key);
            return Err(Refusal::new(RefusalKind::LifeMismatch, Retry::Never, message));
        }
        let token = *token;
        let transition = machine.send(&event.event).map_err(|error| refused(&error))?;
        let key = event.key.clone();
        let (state, change) = (transition.to.clone(), transition.changes);
        let told = machine.class().report_states();
        news.push(NodeInput::MachineState { key: key.clone(), token, state, change, told });
        if transition.is_final {
            news.push(final_state(key, token, machine));
            self.machines.remove(&event.key);
            self.pins.unpin(&event.key);
        }
        Ok(transition)
    }
}

fn shared(classes: Classes) -> BTreeMap<ClassName, (Arc<Class>, Arc<Path>)> {
    classes.into_iter().map(|(name, it)| (name, (Arc::new(it.class), it.root))).collect()
}

/// The class's program with the times that an open asked for instead.
fn overridden(program: &Arc<ProgramClass>, life: Option<&LifeOptions>) -> Arc<ProgramClass> {
    let (start, grace) = life.map_or((None, None), |it| (it.start_timeout_ms, it.close_grace_ms));
    if start.is_none() && grace.is_none() {
        return program.clone();
    }
    Arc::new(ProgramClass {
        start_timeout_ms: start.unwrap_or(program.start_timeout_ms),
        grace_ms: grace.unwrap_or(program.grace_ms),
        ..(**program).clone()
    })
}

fn more_urgent(stop: &watch::Sender<Option<StopHow>>, how: StopHow) {
    stop.send_if_modified(|now| {
        let more = now.is_none_or(|now| how.may_hasten(now));
        if more {
            *now = Some(how);
        }
        more
    });
}

fn final_state(key: SessionKey, token: Token, machine: &Machine) -> NodeInput {
    let exit = Some(Exit::FinalState(machine.state().to_owned()));
    NodeInput::Ended { key, token, reason: Reason::Exited, exit, detail: String::new() }
}

fn refused(error: &SendError) -> Refusal {
    match error {
        SendError::UnknownEvent { event, known } => {
            let known = known.join(", ");
            let problem = format!("{event:?} is none of the class's events: {known}");
            FieldError::new("event", problem).into()
        }
        SendError::NoTransition { state, possible, .. } => {
            let possible = if possible.is_empty() { "none".into() } else { possible.join(", ") };
            let problem = format!("leads nowhere from state {state:?}; events that do: {possible}");
            let field = FieldError::new("event", problem);
            let (kind, retry) = (RefusalKind::NoTransition, Retry::WhenChanged);
            Refusal { fields: vec![field.clone()], ..Refusal::new(kind, retry, field.to_string()) }
        }
        SendError::Ended { .. } => {
            Refusal::new(RefusalKind::NotFound, Retry::WhenChanged, error.to_string())
        }
    }
}
