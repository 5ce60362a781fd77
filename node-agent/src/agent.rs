//! The task that owns the node's decisions: takes what happened, carries out what follows.

use crate::actions::Ask;
use crate::boots::Boots;
use crate::catalog::Classes;
use crate::discovery::Discovery;
use crate::disk_reserve::DiskReserve;
use crate::journal::Journal;
use crate::lease::{Leases, boottime_ms, boottime_us};
use crate::leaving::{Gone, Leaving};
use crate::looking;
use crate::mailbox::{Event, Mailbox};
use crate::managers::{self, Channels, Hearing, Report, Reporter};
use crate::runtime::{Runtime, StartOrder};
use crate::session_log;
use rota_model::node_msg::{FromNode, Register, Renewed, ToNode};
use rota_model::{
    BootId, ClassName, ClassText, ClusterName, NodeState, PoolName, Refusal, RefusalKind,
    RequestId, Retry, Sandbox, SessionKey, SlotId, Stamp, Token,
};
use rota_node::machine::Transition;
use rota_node::{LeaseState, Node, NodeConfig, NodeEffect, NodeInput};
use rota_proto::SendEvent;
use serde_json::json;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

/// Events taken before their effects are carried out: some batches of calls.
const EVENTS_AT_ONCE_MAX: usize = 64;

/// The clocks of this task and of the decisions differ while the machine is suspended, so it never
/// sleeps longer than this.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// The next agent would take an earlier state for this one's.
const STALE_JOURNAL: &str = "its journal can be neither written nor removed";

/// What an agent is made of.
pub struct Parts {
    /// The decisions, with the first boot id, or as an earlier agent of that boot left them.
    pub node: Node,
    /// What runs.
    pub runtime: Runtime,
    /// The cluster that managers must belong to.
    pub cluster: ClusterName,
    /// Where managers reach this node.
    pub address: String,
    /// Its pool.
    pub pool: PoolName,
    /// The best that its programs can be kept from.
    pub sandbox: Sandbox,
    /// Managers to start with.
    pub seeds: Vec<String>,
    /// The lease file.
    pub lease: PathBuf,
    /// Where the node registers besides the managers.
    pub discovery: Option<Discovery>,
    /// Counts boots.
    pub boots: Boots,
    /// For the next agent.
    pub journal: Journal,
    /// Own mailbox, for what is started here.
    pub mailbox: Mailbox,
    /// What sessions leave free of the disk.
    pub disk: DiskReserve,
}

/// The owner of the decisions.
pub struct Agent {
    node: Node,
    parts: Parts,
    channels: Channels,
    reporter: Reporter,
    /// Managers to report to, for the reporter.
    known: watch::Sender<Vec<String>>,
    registration: Option<JoinHandle<()>>,
    /// Whether any manager answers.
    hearing: Hearing,
    streams: BTreeMap<u64, mpsc::Sender<FromNode>>,
    /// What creates that were just taken said beside what is decided about, until their start is.
    taken: BTreeMap<(SessionKey, Token), Taken>,
    /// Answers to events of machines, until what follows from them is written down.
    replies: Vec<SendReply>,
    leaving: Option<Leaving>,
    /// What runs is left to the next agent: this one is to end now.
    leaves_running: bool,
    /// That this boot is registered was told, on stdout and to Consul.
    told_registered: bool,
    /// Why managers do not let this node in.
    refused: Option<String>,
}

/// Who sent an event, and what is told then.
type SendReply = (oneshot::Sender<Result<Transition, Refusal>>, Result<Transition, Refusal>);

/// What a create said beside what is decided about.
struct Taken {
    slot: SlotId,
    life: Stamp,
    request: Option<RequestId>,
}

impl Agent {
    /// An agent that has not begun to register yet.
    pub fn new(parts: Parts) -> Self {
        let channels = Channels::new(parts.cluster.clone());
        let (known, managers) = watch::channel(parts.seeds.clone());
        managers::keep_alive(channels.clone(), managers.clone(), parts.runtime.in_use());
        let reporter = Reporter::start(channels.clone(), managers, parts.mailbox.clone());
        Self {
            node: parts.node.clone(),
            parts,
            channels,
            reporter,
            known,
            registration: None,
            hearing: Hearing::default(),
            streams: BTreeMap::new(),
            taken: BTreeMap::new(),
            replies: Vec::new(),
            leaving: None,
            leaves_running: false,
            told_registered: false,
            refused: None,
        }
    }

    /// The managers of the cluster, as this node knows them.
    pub fn known_managers(&self) -> watch::Receiver<Vec<String>> {
        self.known.subscribe()
    }

    /// Registers, and works until the node has left, or managers do not let it in. A boot that is not registered
    /// starts nothing; what an earlier agent of it started is left to the next one.
    pub async fn run(mut self, mut events: mpsc::Receiver<Event>) -> Gone {
        self.parts.journal.begin(&self.node.remembered());
        self.register();
        // What an earlier agent left.
        self.carry_out();
        let mut taken = Vec::with_capacity(EVENTS_AT_ONCE_MAX);
        loop {
            tokio::select! {
                count = events.recv_many(&mut taken, EVENTS_AT_ONCE_MAX) => {
                    debug_assert!(count > 0, "this task has a sender itself");
                }
                () = tokio::time::sleep(self.pause()) => {}
            }
            for event in taken.drain(..) {
                self.on(event);
            }
            if self.node.wake_at().is_some_and(|at| at <= boottime_ms()) {
                self.decide(NodeInput::Tick);
            }
            self.carry_out();
            if let Some(word) = self.hearing.due(boottime_ms()) {
                word.log(self.term_at_ms());
            }
            let refused = self.refused.take();
            if refused.is_some() {
                self.end_discovery().await;
            }
            if refused.is_some() || self.leaves_running {
                let sessions = self.node.live().count();
                tracing::info!(sessions, "ending; what runs is left to the next agent");
                // Whatever is dropped is stopped.
                std::mem::forget(self);
                return Gone { clean: refused.is_none(), left_running: sessions > 0, refused };
            }
            if let Some(gone) = self.leave_step() {
                self.parts.journal.end();
                self.sign_off().await;
                self.end_discovery().await;
                return gone;
            }
        }
    }

    async fn end_discovery(&mut self) {
        if let Some(discovery) = self.parts.discovery.take() {
            discovery.end().await;
        }
    }

    /// Until something is due by itself.
    fn pause(&self) -> Duration {
        let now = boottime_ms();
        let word = self.hearing.wake_at();
        let due = self.node.wake_at().into_iter().chain(word).map(|at| at.saturating_sub(now));
        let leaving = self.leaving.as_ref().map(|it| it.due_in_ms(now));
        let ms = due.chain(leaving).min();
        ms.map_or(SLEEP_MAX, Duration::from_millis).min(SLEEP_MAX)
    }

    fn decide(&mut self, input: NodeInput) {
        let stale = self.parts.journal.is_stale().then_some(STALE_JOURNAL);
        self.node.take_no_session(stale.or(self.parts.disk.look(boottime_ms())));
        if let Some((key, token, why)) = session_log::ended(&input) {
            let lease = self.lease_of(key).unwrap_or_else(|| self.node.lease());
            session_log::over(self.node.config().boot, lease, (key, token, why));
        }
        self.node.handle(boottime_ms(), input);
    }

    fn on(&mut self, event: Event) {
        match event {
            Event::Node(input) => self.on_input(input),
            Event::Unanswered { manager, why } => self.hearing.failed(&manager, why),
            Event::NobodyAnswered { boot, sent_mono_ms } => {
                let renewed = Renewed::NotServing;
                self.decide(NodeInput::Renewed { boot, sent_mono_ms, renewed });
            }
            Event::Refused(why) => self.refused = Some(why),
            Event::BootOver(why) => self.boot_beyond(&why),
            Event::StreamOpened { stream, answers } => {
                self.streams.insert(stream, answers);
                self.decide(NodeInput::Reached);
            }
            Event::Calls { stream, calls } => {
                for message in calls {
                    self.on_call(stream, message);
                }
            }
            Event::Acked { boot, ids } if boot == self.node.config().boot => {
                self.decide(NodeInput::ReportsAcked { ids });
            }
            Event::Acked { .. } => {}
            Event::Send { event, reply } => {
                let result = self.send(&event);
                self.replies.push((reply, result));
            }
            Event::Look { ask, reply } => {
                // Whoever asked may have gone.
                drop(reply.send(looking::page(&self.node, &ask)));
            }
            Event::ProgramOver { key, token } => self.parts.runtime.on_program_over(&key, token),
            Event::Classes(classes) => self.on_classes(classes),
            Event::Leave { signal } => self.on_leave(signal),
            Event::LeaveRunning => self.leaves_running |= self.leaving.is_none(),
        }
    }

    /// New opens get these; what runs keeps its own.
    fn on_classes(&mut self, classes: Classes) {
        let texts: BTreeMap<ClassName, ClassText> =
            classes.iter().map(|(name, it)| (name.clone(), it.class.text.clone())).collect();
        // Their programs may have changed, and the folder of these.
        self.parts.runtime.offer(classes);
        if self.leaving.is_some() || texts == self.node.config().classes {
            return tracing::info!("the classes were read again, and managers know their texts");
        }
        let shown: Vec<String> =
            texts.iter().map(|(name, it)| format!("{name} {}", it.digest)).collect();
        tracing::info!(classes = shown.join(", "), "the classes were read again");
        self.node.offer(texts);
        self.register();
    }

    /// Gives an event to a machine, unless the lease is over: the session may run elsewhere by now.
    /// The clock is looked at first, since this process may have been stopped for long.
    fn send(&mut self, event: &SendEvent) -> Result<Transition, Refusal> {
        self.decide(NodeInput::Tick);
        if let Some(why) = self.takes_no_event(&event.key) {
            let retry = Retry::AfterMs(self.node.config().timing.renew_ms);
            return Err(Refusal::new(RefusalKind::NotServing, retry, why));
        }
        let mut news = Vec::new();
        let result = self.parts.runtime.send(event, &mut news);
        news.into_iter().for_each(|input| self.decide(input));
        result
    }

    fn takes_no_event(&self, session: &SessionKey) -> Option<String> {
        if self.lease_of(session).is_some_and(|it| it != LeaseState::Valid) {
            let node = &self.node.config().node;
            return Some(format!("the lease of {session} on node {node} has run out, and it ends"));
        }
        self.parts.journal.is_stale().then(|| STALE_JOURNAL.to_owned())
    }

    fn on_input(&mut self, input: NodeInput) {
        let managers_told =
            matches!(input, NodeInput::Registered { .. } | NodeInput::Renewed { .. });
        if managers_told && let Some(word) = self.hearing.heard(boottime_ms()) {
            word.log(self.term_at_ms());
        }
        let registers = matches!(input, NodeInput::Registered { .. });
        if let NodeInput::StreamClosed { stream } = &input {
            self.streams.remove(stream);
        }
        self.decide(input);
        if managers_told && self.node.is_registered() {
            self.learn_managers();
        }
        if registers && !std::mem::replace(&mut self.told_registered, true) {
            let boot = self.node.config().boot;
            tracing::info!(%boot, "registered");
            rota_daemon::announce(&json!({ "registered": true, "boot": boot.0 }));
            if let Some(discovery) = &mut self.parts.discovery {
                discovery.on_registered(boot);
            }
        }
    }

    /// Whether managers know of this boot, as this agent heard.
    fn is_known(&self) -> bool {
        self.node.is_registered() && !self.node.managers().is_empty()
    }

    fn learn_managers(&mut self) {
        let mut addresses: Vec<String> =
            self.node.managers().iter().map(|(_, address)| address.clone()).collect();
        if addresses.is_empty() || *self.known.borrow() == addresses {
            return;
        }
        self.known.send_replace(addresses.clone());
        addresses.extend(self.parts.seeds.iter().cloned());
        self.channels.keep_only(&addresses);
    }

    /// A decision about a call is traced under the request that caused it.
    fn on_call(&mut self, stream: u64, message: ToNode) {
        let span = match &message {
            ToNode::Create { key, slot, token, life, request, .. } => {
                let taken = Taken { slot: *slot, life: *life, request: request.clone() };
                self.taken.insert((key.clone(), *token), taken);
                let request = request.as_ref().map_or("", RequestId::as_str);
                tracing::debug_span!("create", session = %key, %token, request)
            }
            ToNode::Destroy { key, token, request, .. } => {
                let request = request.as_ref().map_or("", RequestId::as_str);
                tracing::debug_span!("destroy", session = %key, %token, request)
            }
            ToNode::Act { key, token, action, .. } => {
                let (life_cycle, word) = (&action.life_cycle, &action.word);
                tracing::debug_span!("act", session = %key, %token, life_cycle, word)
            }
            ToNode::Scan { head, .. } => tracing::debug_span!("scan", pe = %head.pe),
            ToNode::Meet { epoch, .. } => tracing::debug_span!("meet", %epoch),
        };
        let _in_span = span.entered();
        tracing::debug!(stream, call = message.head().call, "asked");
        self.decide(NodeInput::Call { stream, message });
    }

    fn carry_out(&mut self) {
        let mut news = Vec::new();
        loop {
            let effects = self.node.flush();
            if effects.is_empty() && news.is_empty() {
                break;
            }
            self.write_down(&effects);
            self.write_lease(&effects);
            for effect in effects {
                self.carry_out_one(effect, &mut news);
            }
            for input in news.drain(..) {
                self.decide(input);
            }
        }
        // A start is decided with its create or never.
        self.taken.clear();
        for (reply, result) in self.replies.drain(..) {
            // A caller that is gone has no use for it.
            drop(reply.send(result));
        }
    }

    /// For the next agent, before anything of it is done.
    fn write_down(&mut self, effects: &[NodeEffect]) {
        if let Some(NodeEffect::Journal { entries }) = effects.first() {
            let node = &self.node;
            self.parts.journal.write(entries, || node.remembered());
        }
    }

    /// Of all that managers granted the newest counts: it is one file, however many of them answer.
    fn write_lease(&self, effects: &[NodeEffect]) {
        let newest = effects.iter().rev().find_map(NodeEffect::lease);
        if let Some(slots) = newest
            && let Err(error) = Leases::new(slots).write(&self.parts.lease)
        {
            // Keepers go by the old one: programs end early, never late.
            tracing::error!(%error, "the lease file cannot be written");
        }
    }

    /// The time, if a session may begin now. This process may have been stopped since its start was
    /// decided, and the session may run elsewhere by now.
    fn may_begin_us(&self, slot: SlotId) -> Option<u64> {
        let lease = Leases::new(&self.node.lease_deadlines()).of(slot)?;
        let now_us = boottime_us();
        (now_us / 1_000 < lease.term_at_ms).then_some(now_us)
    }

    /// When the last of what runs here is to be ended politely.
    fn term_at_ms(&self) -> Option<u64> {
        Leases::new(&self.node.lease_deadlines()).latest().map(|it| it.term_at_ms)
    }

    /// Where the lease of a session that lives here stands.
    fn lease_of(&self, key: &SessionKey) -> Option<LeaseState> {
        let live = self.node.live_of(std::slice::from_ref(key));
        live.first().map(|it| self.node.lease_of(it.slot))
    }

    fn carry_out_one(&mut self, effect: NodeEffect, news: &mut Vec<NodeInput>) {
        match effect {
            NodeEffect::Answer { stream, answer } => {
                if let Some(answers) = self.streams.get(&stream)
                    && answers.try_send(answer).is_err()
                {
                    tracing::debug!(stream, "an answer is dropped; its manager asks again");
                }
            }
            NodeEffect::Start { key, token, spec, not_after_mono_ms } => {
                // A start is decided with the create that asks for it.
                let Some(taken) = self.taken.remove(&(key.clone(), token)) else {
                    tracing::error!(session = %key, %token, "a start without its create");
                    return;
                };
                let Taken { slot, life, request } = taken;
                let Some(at_us) = self.may_begin_us(slot) else {
                    let detail = "the lease of its slot ran out before it began".to_owned();
                    return news.push(NodeInput::StartFailed { key, token, detail });
                };
                session_log::begins(self.node.config().boot, at_us, &key, token, life);
                let not_after_ms = not_after_mono_ms;
                let managers = self.known.borrow().clone();
                let order =
                    StartOrder { key, token, life, slot, spec, not_after_ms, request, managers };
                self.parts.runtime.start(order, news);
            }
            NodeEffect::Adopt { key, token, adopted } => {
                self.parts.runtime.adopt((key, token), *adopted, news);
            }
            NodeEffect::Stop { key, token, how } => self.parts.runtime.stop(key, token, how, news),
            NodeEffect::Act { key, token, spec, action } => {
                self.parts.runtime.act(Ask { key, token, spec, action: *action }, news);
            }
            NodeEffect::Report { id, item, attempt } => {
                let boot = self.node.config().boot;
                self.reporter.send(Report { boot, id, item, attempt });
            }
            NodeEffect::Renew { sent_mono_ms, renew, managers } => {
                let wait = Duration::from_millis(self.node.config().timing.renew_ms);
                self.hearing.asked(sent_mono_ms, managers.iter().map(|(_, address)| address));
                let (channels, mailbox) = (&self.channels, &self.parts.mailbox);
                managers::renew(channels, mailbox, sent_mono_ms, &renew, managers, wait);
            }
            // Written before everything else.
            NodeEffect::Journal { .. } | NodeEffect::Lease { .. } => {}
            NodeEffect::BootAnew => self.boot_anew(),
            NodeEffect::Retire => self.retire(),
            NodeEffect::Left => {
                if let Some(leaving) = &mut self.leaving {
                    leaving.left = true;
                }
            }
        }
    }

    /// Nothing runs here, and nothing is to.
    fn retire(&mut self) {
        tracing::info!("the pool needs this node no more: leaving");
        self.leaving = Some(Leaving::begin(boottime_ms(), &self.parts.runtime));
    }

    /// This boot was declared lost, and nothing of it runs any more.
    fn boot_anew(&mut self) {
        if let Some(leaving) = &mut self.leaving {
            // Nothing runs, and there is nobody to tell any more.
            leaving.left = true;
            return;
        }
        tracing::warn!("this boot was declared lost; booting anew");
        let next = self.parts.boots.next();
        self.boot(next);
    }

    /// This boot was over before it was registered. The number of the one that is registered is not
    /// known: the clock here may be behind.
    fn boot_beyond(&mut self, why: &str) {
        if self.leaving.is_none() && !self.node.is_registered() {
            tracing::warn!(why, "booting anew, with a higher number");
            let next = self.parts.boots.next_beyond();
            self.boot(next);
        }
    }

    fn boot(&mut self, next: io::Result<(BootId, Vec<BootId>)>) {
        let (boot, ended_boots) = match next {
            Ok(next) => next,
            Err(error) => {
                // Nothing runs any more, and without a boot nothing ever will.
                tracing::error!(%error, "the next boot id cannot be written; ending");
                std::process::exit(1);
            }
        };
        tracing::info!(%boot, "booting");
        let config = NodeConfig { boot, ended_boots, ..self.node.config().clone() };
        self.node = Node::new(config);
        self.parts.journal.begin(&self.node.remembered());
        self.hearing = Hearing::default();
        self.told_registered = false;
        self.register();
    }

    fn registration_of(&self, state: NodeState) -> Register {
        let (address, pool) = (self.parts.address.clone(), self.parts.pool.clone());
        let sandbox = Some(self.parts.sandbox);
        Register { sandbox, ..self.node.registration(address, pool, state) }
    }

    /// Managers to register with: those last heard of, then those given at the start.
    fn managers_to_try(&self) -> Vec<String> {
        let mut managers = self.known.borrow().clone();
        for seed in &self.parts.seeds {
            if !managers.contains(seed) {
                managers.push(seed.clone());
            }
        }
        managers
    }

    /// Also once more, when it offers other classes than before: then a refusal changes nothing here.
    fn register(&mut self) {
        let again = self.is_known();
        let resumed = self.node.is_registered() && !again;
        let boot = self.node.config().boot;
        if !self.node.is_registered() {
            session_log::boots(boot);
        }
        let request = self.registration_of(NodeState::Ready);
        let managers = self.managers_to_try();
        let (channels, mailbox) = (self.channels.clone(), self.parts.mailbox.clone());
        let task = tokio::spawn(async move {
            match managers::register(&channels, &managers, &request).await {
                managers::Outcome::Registered { sent_mono_ms, registered } => {
                    mailbox.node(NodeInput::Registered { sent_mono_ms, registered }).await;
                }
                managers::Outcome::Refused(why) | managers::Outcome::Over(why) if again => {
                    tracing::error!(why, "managers do not learn of the new classes");
                }
                managers::Outcome::Over(why) if resumed => {
                    tracing::warn!(why, "the boot of the agent before this one is over");
                    let (sent_mono_ms, renewed) = (boottime_ms(), Renewed::Lost);
                    mailbox.node(NodeInput::Renewed { boot, sent_mono_ms, renewed }).await;
                }
                managers::Outcome::Refused(why) => mailbox.give(Event::Refused(why)).await,
                managers::Outcome::Over(why) => mailbox.give(Event::BootOver(why)).await,
            }
        });
        if let Some(old) = self.registration.replace(task) {
            old.abort();
        }
    }

    fn on_leave(&mut self, signal: &'static str) {
        match &mut self.leaving {
            None => {
                tracing::info!(signal, "leaving");
                self.leaving = Some(Leaving::begin(boottime_ms(), &self.parts.runtime));
                self.decide(NodeInput::Leave);
            }
            Some(leaving) => leaving.hurry(boottime_ms(), &self.parts.runtime),
        }
    }

    /// `Some` once the node may go.
    fn leave_step(&mut self) -> Option<Gone> {
        let leaving = self.leaving.as_mut()?;
        let clean = self.parts.runtime.is_empty();
        let gone = Gone { clean, left_running: false, refused: None };
        leaving.step(clean, boottime_ms(), &self.parts.runtime).then_some(gone)
    }

    /// Only a node with nothing running says that it left, and only if it ever came.
    async fn sign_off(&mut self) {
        if let Some(registration) = self.registration.take() {
            registration.abort();
        }
        if !self.node.is_registered() || !self.parts.runtime.is_empty() {
            return;
        }
        let removed = self.registration_of(NodeState::Removed);
        let managers = self.managers_to_try();
        if !managers::sign_off(&self.channels, &managers, &removed).await {
            tracing::warn!("no manager took the sign-off");
        }
    }
}
