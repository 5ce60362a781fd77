//! What operators see: the View, partitions and nodes.

use crate::offers::{
    digests, digests_from, facts, facts_from, label_texts, labels_from, sandbox_from, sandbox_text,
};
use crate::pool::numbered;
use crate::record::stamp;
use crate::v1;
use crate::wire::{WireError, convert, count, named, required};
use rota_messages::{IndexStats, NodeOrdered, Numbered, Ordered, PartitionStats, Stats};
use rota_model::address::Address;
use rota_model::{
    BootId, ClassName, ClusterName, Epoch, FieldError, Incarnation, ManagerId, ManagerNumber,
    ManagerStatus, MemberId, NodeId, NodeLoad, NodeState, Nonce, PeerTimes, PoolName, Refusal,
    Resources, SessionState,
};
use rota_ring::view::least_format;
use rota_ring::{
    DRAIN_MS_MAX, DrainTime, IsrMember, Loss, ManagerEntry, NodeOrder, NodeReg, NodeWish,
    PartitionEntry, PartitionState, Recovered, RingTransition, Spares, View,
};
use std::collections::BTreeMap;

/// Every role that [`PartitionStats::role`] can have.
pub const ROLES: [&str; 9] = [
    "serving",
    "syncing",
    "scanning",
    "wedged",
    "copy",
    "former copy",
    "learning",
    "recovering",
    "idle",
];

/// One manager's answer to an operator.
///
/// What only managers need does not travel: in its View nonces, `since` and `base_pe` are 0, and
/// so are the revisions of its nodes. It is for showing and routing, never for a compare-and-set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Inspected {
    /// The manager that answers.
    pub number: ManagerNumber,
    /// Its View.
    pub view: View,
    /// Its partitions and nodes.
    pub stats: Stats,
    /// How and since when it does not reach the config store; empty while it does.
    pub config_store_error: String,
}

fn part_state_text(state: PartitionState) -> &'static str {
    match state {
        PartitionState::Active => "active",
        PartitionState::Recovering => "recovering",
    }
}

const JOIN: &str = "join";
const LEAVE: &str = "leave";

impl From<RingTransition> for v1::RingTransition {
    fn from(it: RingTransition) -> Self {
        let kind = match it {
            RingTransition::Join { .. } => JOIN,
            RingTransition::Leave { .. } => LEAVE,
        };
        Self { kind: kind.into(), number: it.number().0, since: it.since().0 }
    }
}

impl TryFrom<v1::RingTransition> for RingTransition {
    type Error = WireError;
    fn try_from(it: v1::RingTransition) -> Result<Self, WireError> {
        let (number, since) = (ManagerNumber(it.number), Epoch(it.since));
        match it.kind.as_str() {
            JOIN => Ok(Self::Join { number, since }),
            LEAVE => Ok(Self::Leave { number, since }),
            other => {
                let text = format!("{other:?} is not known");
                Err(WireError::new("RingTransition.kind", text))
            }
        }
    }
}

impl From<&View> for v1::View {
    fn from(view: &View) -> Self {
        let manager = |(number, entry): (&ManagerNumber, &ManagerEntry)| v1::ManagerEntry {
            number: number.0,
            id: entry.id.as_str().into(),
            grpc: entry.grpc.clone(),
            http: entry.http.clone(),
            incarnation: entry.incarnation.0,
            status: entry.status.as_str().into(),
            heartbeat_ms: entry.peer_times.map(|it| it.heartbeat_ms),
            suspect_ms: entry.peer_times.map(|it| it.suspect_ms),
            stable_number: 0,
            uuid: String::new(),
        };
        let part = |(number, entry): (&ManagerNumber, &PartitionEntry)| v1::Part {
            number: number.0,
            first_slot: view.range(*number).first.0,
            pe: entry.pe.0,
            owner: entry.owner.0,
            isr: entry.isr.iter().map(|member| member.number.0).collect(),
            state: part_state_text(entry.state).into(),
            recovered: entry.recovered.map(|recovered| v1::Recovered {
                epoch: recovered.epoch.0,
                sessions: recovered.sessions,
                held: Some(recovered.held.into()),
                loss: recovered.loss.as_str().into(),
            }),
            loss: entry.loss.map(|it| it.as_str().into()),
            stamps_above: entry.stamps_above.map(u64::from),
        };
        Self {
            cluster: view.cluster.as_str().into(),
            epoch: view.epoch.0,
            m: view.m,
            r: view.r,
            managers_max: view.managers_max,
            managers: view.managers.iter().map(manager).collect(),
            parts: view.parts.iter().map(part).collect(),
            transition: view.transition.map(Into::into),
        }
    }
}

fn manager_from(it: v1::ManagerEntry) -> Result<(ManagerNumber, ManagerEntry), WireError> {
    let status = ManagerStatus::parse(&it.status).ok_or_else(|| {
        WireError::new("ManagerEntry.status", format!("{:?} is not known", it.status))
    })?;
    let entry = ManagerEntry {
        id: named("ManagerEntry.id", ManagerId::parse(&it.id))?,
        grpc: it.grpc,
        http: it.http,
        incarnation: Incarnation(it.incarnation),
        nonce: Nonce(0),
        status,
        // Neither without the other.
        peer_times: (it.heartbeat_ms.zip(it.suspect_ms))
            .map(|(heartbeat_ms, suspect_ms)| PeerTimes { heartbeat_ms, suspect_ms }),
    };
    Ok((ManagerNumber(it.number), entry))
}

fn recovered_from(it: v1::Recovered) -> Result<Recovered, WireError> {
    let held = convert("Recovered.held", it.held)?;
    let loss = loss_from("Recovered.loss", &it.loss)?;
    Ok(Recovered { epoch: Epoch(it.epoch), sessions: it.sessions, held, loss })
}

/// Empty where the sender's build told none.
fn loss_from(field: &'static str, name: &str) -> Result<Loss, WireError> {
    if name.is_empty() {
        return Ok(Loss::default());
    }
    let known = Loss::ALL.into_iter().find(|it| it.as_str() == name);
    known.ok_or_else(|| WireError::new(field, format!("{name:?} is not known")))
}

fn part_from(it: v1::Part) -> Result<(ManagerNumber, PartitionEntry), WireError> {
    Ok((ManagerNumber(it.number), it.try_into()?))
}

/// A partition for showing and routing, as in a View.
impl TryFrom<v1::Part> for PartitionEntry {
    type Error = WireError;
    fn try_from(it: v1::Part) -> Result<Self, WireError> {
        let states = [PartitionState::Active, PartitionState::Recovering];
        let state = states.into_iter().find(|state| part_state_text(*state) == it.state);
        let member = |number| IsrMember { number: ManagerNumber(number), since: Epoch(0) };
        Ok(PartitionEntry {
            pe: Epoch(it.pe),
            owner: ManagerNumber(it.owner),
            isr: it.isr.into_iter().map(member).collect(),
            base_pe: Epoch(0),
            state: state.ok_or_else(|| {
                WireError::new("Part.state", format!("{:?} is not known", it.state))
            })?,
            loss: it.loss.map(|it| loss_from("Part.loss", &it)).transpose()?,
            recovered: it.recovered.map(recovered_from).transpose()?,
            stamps_above: it.stamps_above.map(|at| stamp("Part.stamps_above", at)).transpose()?,
        })
    }
}

/// A View for showing and routing; see [`Inspected`] for what it leaves out. Refuses one that
/// breaks a View's rules.
impl TryFrom<v1::View> for View {
    type Error = WireError;
    fn try_from(it: v1::View) -> Result<Self, WireError> {
        let managers = it.managers.into_iter().map(manager_from);
        let parts = it.parts.into_iter().map(part_from);
        let transition = it.transition.map(RingTransition::try_from).transpose()?;
        let parts: BTreeMap<ManagerNumber, PartitionEntry> = parts.collect::<Result<_, _>>()?;
        let view = View {
            format: least_format(&parts, transition.as_ref()),
            cluster: named("View.cluster", ClusterName::parse(&it.cluster))?,
            epoch: Epoch(it.epoch),
            m: it.m,
            r: it.r,
            managers_max: it.managers_max,
            // By what managers judge nodes is between managers, too.
            times: None,
            managers: managers.collect::<Result<_, _>>()?,
            parts,
            transition,
            // Where partitions come from is between managers.
            splits: BTreeMap::new(),
        };
        view.check().map_err(|error| WireError::new("View", error.to_string()))?;
        Ok(view)
    }
}

impl From<&PartitionStats> for v1::PartitionStats {
    fn from(it: &PartitionStats) -> Self {
        let sessions = it.sessions.iter().map(|(state, count)| (state.as_str().into(), *count));
        Self {
            number: it.part.0,
            role: it.role.into(),
            last_pe: it.last.pe.0,
            last_seq: it.last.seq.0,
            committed_pe: it.committed.pe.0,
            committed_seq: it.committed.seq.0,
            sessions: sessions.collect(),
            documents: it.documents,
            lag: it.lag.iter().map(|(number, behind)| (number.0, *behind)).collect(),
            digest: it.digest,
            marks: it.marks.iter().map(|(at, digest)| digest_mark(*at, *digest)).collect(),
            on_nodes: it.on_nodes.iter().map(|(node, count)| (node.to_string(), *count)).collect(),
            waiting: it.waiting.iter().map(|(pool, count)| (pool.to_string(), *count)).collect(),
        }
    }
}

fn digest_mark(at: rota_model::LogPos, digest: u64) -> v1::DigestMark {
    v1::DigestMark { pe: at.pe.0, seq: at.seq.0, digest }
}

impl TryFrom<v1::PartitionStats> for PartitionStats {
    type Error = WireError;
    fn try_from(it: v1::PartitionStats) -> Result<Self, WireError> {
        let role = ROLES.into_iter().find(|role| *role == it.role).ok_or_else(|| {
            WireError::new("PartitionStats.role", format!("{:?} is not known", it.role))
        })?;
        let mut sessions = BTreeMap::new();
        for (text, count) in it.sessions {
            let problem = || format!("{text:?} is not a session state");
            let mistake = || WireError::new("PartitionStats.sessions", problem());
            let state = SessionState::parse(&text).ok_or_else(mistake)?;
            sessions.insert(state, count);
        }
        let on_node = |(node, count): (String, u64)| {
            Ok((named("PartitionStats.on_nodes", NodeId::parse(&node))?, count))
        };
        let in_pool = |(pool, count): (String, u64)| {
            Ok((named("PartitionStats.waiting", PoolName::parse(&pool))?, count))
        };
        let position = |pe, seq| rota_model::LogPos::from(v1::LogPos { pe, seq });
        Ok(PartitionStats {
            part: ManagerNumber(it.number),
            role,
            last: position(it.last_pe, it.last_seq),
            committed: position(it.committed_pe, it.committed_seq),
            sessions,
            documents: it.documents,
            lag: it.lag.into_iter().map(|(number, it)| (ManagerNumber(number), it)).collect(),
            digest: it.digest,
            marks: it.marks.into_iter().map(|it| (position(it.pe, it.seq), it.digest)).collect(),
            on_nodes: it.on_nodes.into_iter().map(on_node).collect::<Result<_, WireError>>()?,
            waiting: it.waiting.into_iter().map(in_pool).collect::<Result<_, WireError>>()?,
            tasks: BTreeMap::new(),
            copy_lag_ms: 0,
        })
    }
}

fn node_stats((node, load): &(NodeReg, NodeLoad)) -> v1::NodeStats {
    v1::NodeStats {
        id: node.node.as_str().into(),
        address: node.address.clone(),
        pool: node.pool.as_str().into(),
        state: node.state.as_str().into(),
        boot: node.boot.0,
        used: load.used.places,
        places: load.offered.places,
        used_cpu_millis: load.used.cpu_millis,
        cpu_millis: load.offered.cpu_millis,
        used_memory_mib: load.used.memory_mib,
        memory_mib: load.offered.memory_mib,
        labels: label_texts(&node.labels),
        classes: node.classes.iter().map(|it| it.as_str().into()).collect(),
        class_digests: digests(node.digests.iter().map(|(name, it)| (name, *it))),
        class_facts: facts(&node.facts),
        sandbox: sandbox_text(node.sandbox),
        wish: wish_text(node.wish).into(),
        stable_number: 0,
        uuid: String::new(),
        kept: load.kept,
        ..wish_details(node.wish)
    }
}

const CORDONED: &str = "cordoned";
const DRAINED: &str = "drained";
const REPLACED: &str = "replaced";
const FORGOTTEN: &str = "forgotten";

fn wish_text(wish: NodeWish) -> &'static str {
    match wish {
        NodeWish::Serves => "",
        NodeWish::Cordoned => CORDONED,
        NodeWish::Drained { .. } => DRAINED,
        NodeWish::Replaced { .. } => REPLACED,
        NodeWish::Forgotten => FORGOTTEN,
    }
}

fn closes_at_ms(wish: NodeWish) -> Option<u64> {
    match wish {
        NodeWish::Serves | NodeWish::Cordoned | NodeWish::Forgotten | NodeWish::Replaced { .. } => {
            None
        }
        NodeWish::Drained { closes_at_ms, .. } => closes_at_ms,
    }
}

/// What is told of a wish beside its name.
fn wish_details(wish: NodeWish) -> v1::NodeStats {
    let mut told = v1::NodeStats { closes_at_ms: closes_at_ms(wish), ..v1::NodeStats::default() };
    match wish {
        NodeWish::Serves | NodeWish::Cordoned | NodeWish::Forgotten => {}
        NodeWish::Replaced { closes_after_ms, spares } => {
            told.closes_after_ms = closes_after_ms;
            told.spares = spares.as_str().into();
        }
        NodeWish::Drained { spares, retires, .. } => {
            told.spares = spares.as_str().into();
            told.retires = retires;
        }
    }
    told
}

fn wish_from(it: &v1::NodeStats) -> Result<NodeWish, WireError> {
    let spares = || {
        let known = Spares::ALL.into_iter().find(|spares| spares.as_str() == it.spares);
        let unknown =
            || WireError::new("NodeStats.spares", format!("{:?} is not known", it.spares));
        known.ok_or_else(unknown)
    };
    match it.wish.as_str() {
        "" => Ok(NodeWish::Serves),
        CORDONED => Ok(NodeWish::Cordoned),
        DRAINED => Ok(NodeWish::Drained {
            closes_at_ms: it.closes_at_ms,
            spares: spares()?,
            retires: it.retires,
        }),
        REPLACED => {
            Ok(NodeWish::Replaced { closes_after_ms: it.closes_after_ms, spares: spares()? })
        }
        FORGOTTEN => Ok(NodeWish::Forgotten),
        other => Err(WireError::new("NodeStats.wish", format!("{other:?} is not known"))),
    }
}

fn node_stats_from(it: v1::NodeStats) -> Result<(NodeReg, NodeLoad), WireError> {
    let classes = it.classes.iter().map(|class| ClassName::parse(class)).collect();
    let wish = wish_from(&it)?;
    let node = NodeReg {
        node: named("NodeStats.id", NodeId::parse(&it.id))?,
        boot: BootId(it.boot),
        unproven: None,
        address: it.address,
        pool: named("NodeStats.pool", PoolName::parse(&it.pool))?,
        offers: Resources {
            places: it.places,
            cpu_millis: it.cpu_millis,
            memory_mib: it.memory_mib,
        },
        labels: labels_from("NodeStats.labels", it.labels)?,
        classes: named("NodeStats.classes", classes)?,
        digests: digests_from("NodeStats.class_digests", it.class_digests)?,
        facts: facts_from("NodeStats.class_facts", it.class_facts)?,
        sandbox: sandbox_from("NodeStats.sandbox", &it.sandbox)?,
        renew_ms: 0,
        state: NodeState::parse(&it.state).ok_or_else(|| {
            WireError::new("NodeStats.state", format!("{:?} is not known", it.state))
        })?,
        wish,
        revision: 0,
    };
    let used = Resources {
        places: it.used,
        cpu_millis: it.used_cpu_millis,
        memory_mib: it.used_memory_mib,
    };
    let offered = node.offers;
    Ok((node, NodeLoad { used, offered, kept: it.kept }))
}

fn number_texts(numbered: Option<&Numbered>) -> (u64, String) {
    numbered.map(|it| (it.number, it.uuid.clone())).unwrap_or_default()
}

/// A manager's answer to an operator. `config_store_error` as in [`Inspected`].
pub fn inspect_response(
    number: ManagerNumber,
    view: &View,
    stats: &Stats,
    config_store_error: String,
) -> v1::InspectResponse {
    let mut view = v1::View::from(view);
    for it in &mut view.managers {
        let numbered = stats.manager_numbers.get(&ManagerNumber(it.number));
        (it.stable_number, it.uuid) = number_texts(numbered);
    }
    let nodes = stats.nodes.iter().map(|node| {
        let (stable_number, uuid) = number_texts(stats.node_numbers.get(&node.0.node));
        v1::NodeStats { stable_number, uuid, ..node_stats(node) }
    });
    v1::InspectResponse {
        number: number.0,
        view: Some(view),
        parts: stats.parts.iter().map(Into::into).collect(),
        nodes: nodes.collect(),
        requests_waiting: count(stats.requests_waiting),
        config_store_error,
        works: count(stats.works),
        works_overdue: count(stats.works_overdue),
    }
}

impl TryFrom<v1::InspectResponse> for Inspected {
    type Error = WireError;
    fn try_from(it: v1::InspectResponse) -> Result<Self, WireError> {
        let waiting = usize::try_from(it.requests_waiting).ok();
        let [works, overdue] = [it.works, it.works_overdue].map(|it| usize::try_from(it).ok());
        let managers = it.view.iter().flat_map(|it| &it.managers);
        let manager_numbers = managers.filter_map(|entry| {
            Some((ManagerNumber(entry.number), numbered(entry.stable_number, entry.uuid.clone())?))
        });
        let mut node_numbers = BTreeMap::new();
        for it in &it.nodes {
            if let Some(numbered) = numbered(it.stable_number, it.uuid.clone()) {
                node_numbers.insert(named("NodeStats.id", NodeId::parse(&it.id))?, numbered);
            }
        }
        let stats = Stats {
            parts: crate::wire::each(it.parts)?,
            manager_numbers: manager_numbers.collect(),
            node_numbers,
            nodes: it.nodes.into_iter().map(node_stats_from).collect::<Result<_, _>>()?,
            requests_waiting: required("InspectResponse.requests_waiting", waiting)?,
            works: required("InspectResponse.works", works)?,
            works_overdue: required("InspectResponse.works_overdue", overdue)?,
            indexes: IndexStats::default(),
        };
        let view = convert("InspectResponse.view", it.view)?;
        let (number, config_store_error) = (ManagerNumber(it.number), it.config_store_error);
        Ok(Inspected { number, view, stats, config_store_error })
    }
}

/// What a manager outside of the ring is told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JoinAsk {
    /// Its number; `None`: it is chosen.
    pub number: Option<ManagerNumber>,
    /// `host:port` of a manager of the ring; `None` where none may be left.
    pub contact: Option<String>,
    /// The manager that has the number is lost with its disk, for good.
    pub force_lost: bool,
}

/// A request to join, checked.
///
/// # Errors
/// A refusal that names the contact when it is no address, or the number that is not given.
pub fn join(request: v1::JoinRequest) -> Result<JoinAsk, Refusal> {
    let v1::JoinRequest { number, contact, force_lost } = request;
    if force_lost && number.is_none() {
        let problem = "must be given with force_lost: that of the lost manager";
        return Err(FieldError::new("number", problem).into());
    }
    let contact = Some(contact).filter(|it| !(force_lost && it.is_empty()));
    if let Some(contact) = contact.as_ref().filter(|it| Address::parse(it).is_none()) {
        return Err(FieldError::new("contact", format!("is {contact:?}, not host:port")).into());
    }
    Ok(JoinAsk { number: number.map(ManagerNumber), contact, force_lost })
}

/// A number leaves, or began to before.
pub fn leave_response(it: &Ordered) -> v1::LeaveResponse {
    v1::LeaveResponse {
        number: it.number.0,
        epoch: it.epoch.0,
        copies: count32(it.copies),
        copies_wanted: count32(it.copies_wanted),
        left: it.under_way.is_none(),
    }
}

/// Something was taken back.
pub fn cancel_response(it: &Ordered) -> v1::CancelResponse {
    v1::CancelResponse {
        cancelled: it.cancelled.map(Into::into),
        epoch: it.epoch.0,
        under_way: it.under_way.map(Into::into),
    }
}

/// An order about a node, checked.
///
/// # Errors
/// A refusal that names the field: no name of a node, no order, or a time above [`DRAIN_MS_MAX`].
pub fn order_node(request: v1::OrderNodeRequest) -> Result<(NodeId, NodeOrder), Refusal> {
    use v1::order_node_request::{Drain, Order, Replace};
    let v1::OrderNodeRequest { node, order } = request;
    let node = NodeId::parse(&node);
    let node = node.map_err(|error| Refusal::from(FieldError::new("node", error.problem)))?;
    let order = match order {
        None => return Err(FieldError::new("order", "is missing").into()),
        Some(Order::Cordon(_)) => NodeOrder::Cordon,
        Some(Order::Uncordon(_)) => NodeOrder::Uncordon,
        Some(Order::Forget(_)) => NodeOrder::Forget,
        Some(Order::Drain(Drain { time })) => NodeOrder::Drain(drain_time(time)?),
        Some(Order::Replace(Replace { drain })) => {
            let time = drain.and_then(|it| it.time);
            NodeOrder::Replace(drain_time(time)?)
        }
    };
    Ok((node, order))
}

fn drain_time(time: Option<v1::order_node_request::drain::Time>) -> Result<DrainTime, Refusal> {
    use v1::order_node_request::drain::Time;
    Ok(match time {
        None | Some(Time::Unlimited(false) | Time::Force(false)) => DrainTime::AsBefore,
        Some(Time::Unlimited(true)) => DrainTime::Unlimited,
        Some(Time::Force(true)) => DrainTime::Force,
        Some(Time::WithinMs(ms)) if ms <= DRAIN_MS_MAX => DrainTime::Ms(ms),
        Some(Time::WithinMs(ms)) => {
            let text = format!("is {ms}; the limit is {DRAIN_MS_MAX}, which is 366 days");
            return Err(FieldError::new("within_ms", text).into());
        }
    })
}

/// The registry has an order about a node.
pub fn order_node_response(it: &NodeOrdered) -> v1::OrderNodeResponse {
    v1::OrderNodeResponse {
        node: it.reg.node.to_string(),
        state: it.reg.state.as_str().into(),
        closes_at_ms: closes_at_ms(it.reg.wish),
        changed: it.changed,
    }
}

fn count32(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Most managers in one [`signal`]: as many as a ring can have.
pub const SIGNAL_MEMBERS_MAX: usize = 10_000;

/// Who looks gone to somebody outside.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Signal {
    /// The cluster that is meant.
    pub cluster: ClusterName,
    /// The runs that look gone.
    pub gone: Vec<MemberId>,
}

/// A signal, checked.
///
/// # Errors
/// A refusal with every field that is wrong.
pub fn signal(request: v1::SignalRequest) -> Result<Signal, Refusal> {
    let mut mistakes = Vec::new();
    let cluster = ClusterName::parse(&request.cluster);
    let cluster = cluster.map_err(|error| mistakes.push(FieldError::new("cluster", error.problem)));
    if request.gone.len() > SIGNAL_MEMBERS_MAX {
        let count = request.gone.len();
        let problem = format!("names {count} managers; the limit is {SIGNAL_MEMBERS_MAX}");
        mistakes.push(FieldError::new("gone", problem));
    }
    match cluster {
        Ok(cluster) if mistakes.is_empty() => {
            Ok(Signal { cluster, gone: request.gone.into_iter().map(MemberId::from).collect() })
        }
        Ok(_) | Err(()) => Err(Refusal::invalid(mistakes)),
    }
}
