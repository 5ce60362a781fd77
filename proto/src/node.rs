//! Messages between managers and node-agents. Requests and batches of calls name the cluster; what is
//! of another one is refused by its receiver.

use crate::life::action;
use crate::offers::{
    digests, digests_from, facts, facts_from, label_texts, labels_from, sandbox_from, sandbox_text,
};
use crate::record::{reason, reason_number, request_text, stamp};
use crate::v1;
use crate::wire::{
    WireError, check_cluster, convert, each, named, optional, required, sentence, short,
    unless_empty,
};
use rota_model::address::Address;
use rota_model::node_msg::{
    Alive, Blame, DeadToken, ENDED_BOOTS_MAX, FromNode, Grant, NodeAnswer, NodeCall, Register,
    Registered, Renew, Renewed, ReportItem, ScanFate, ScanItem, SlotRange, ToNode, ToldLimit,
};
use rota_model::{
    BootId, ClassName, ClusterName, Epoch, Exit, FieldError, GRACE_MS_MAX, LeaseTimes, LoadLimit,
    ManagerNumber, NAME_BYTES_MAX, NodeId, NodeState, PoolName, Reason, RequestId, Resources,
    SlotId, Token,
};

/// Most items of one report.
pub const REPORT_ITEMS_MAX: usize = 256;

impl From<SlotRange> for v1::SlotRange {
    fn from(range: SlotRange) -> Self {
        Self { first: range.first.0, last: range.last.0 }
    }
}

impl From<v1::SlotRange> for SlotRange {
    fn from(range: v1::SlotRange) -> Self {
        SlotRange { first: SlotId(range.first), last: SlotId(range.last) }
    }
}

impl From<ToNode> for v1::NodeCall {
    fn from(message: ToNode) -> Self {
        use v1::node_call::What;
        let (head, what) = match message {
            ToNode::Create { head, key, slot, token, life, deadline_ms, spec, request } => {
                let create = v1::Create {
                    key: Some((&key).into()),
                    slot: slot.0,
                    token: Some(token.into()),
                    life: life.as_u64(),
                    deadline_ms,
                    spec: Some(spec.into()),
                    request: request_text(request.as_ref()),
                };
                (head, What::Create(create))
            }
            ToNode::Destroy { head, key, slot, token, grace_ms, request } => {
                let destroy = v1::Destroy {
                    key: Some((&key).into()),
                    slot: slot.0,
                    token: Some(token.into()),
                    request: request_text(request.as_ref()),
                    grace_ms,
                };
                (head, What::Destroy(destroy))
            }
            ToNode::Act { head, key, slot, token, action } => {
                let act = v1::Act {
                    key: Some((&key).into()),
                    slot: slot.0,
                    token: Some(token.into()),
                    life: action.life.as_u64(),
                    life_cycle: action.life_cycle,
                    word: action.word,
                    failures: action.failures,
                    timeout_ms: action.timeout_ms,
                    document: action.document,
                };
                (head, What::Act(act))
            }
            ToNode::Scan { head, after, limit } => {
                (head, What::Scan(v1::Scan { after: after.as_ref().map(Into::into), limit }))
            }
            ToNode::Meet { head, epoch, managers: known } => {
                (head, What::Meet(v1::Meet { epoch: epoch.0, managers: managers(known) }))
            }
        };
        Self {
            call: head.call,
            boot: head.boot.0,
            pe: head.pe.0,
            range: Some(head.range.into()),
            what: Some(what),
        }
    }
}

impl TryFrom<v1::NodeCall> for ToNode {
    type Error = WireError;
    fn try_from(call: v1::NodeCall) -> Result<Self, WireError> {
        use v1::node_call::What;
        let head = NodeCall {
            call: call.call,
            boot: BootId(call.boot),
            pe: Epoch(call.pe),
            range: convert("NodeCall.range", call.range)?,
        };
        Ok(match required("NodeCall.what", call.what)? {
            What::Create(it) => ToNode::Create {
                head,
                key: convert("Create.key", it.key)?,
                slot: SlotId(it.slot),
                token: convert("Create.token", it.token)?,
                life: stamp("Create.life", it.life)?,
                deadline_ms: it.deadline_ms,
                spec: convert("Create.spec", it.spec)?,
                request: unless_empty("Create.request", &it.request, RequestId::parse)?,
            },
            What::Destroy(it) => ToNode::Destroy {
                head,
                key: convert("Destroy.key", it.key)?,
                slot: SlotId(it.slot),
                token: convert("Destroy.token", it.token)?,
                grace_ms: it.grace_ms.map(|it| it.min(GRACE_MS_MAX)),
                request: unless_empty("Destroy.request", &it.request, RequestId::parse)?,
            },
            What::Act(it) => ToNode::Act {
                head,
                action: Box::new(action(&it)?),
                key: convert("Act.key", it.key)?,
                slot: SlotId(it.slot),
                token: convert("Act.token", it.token)?,
            },
            What::Scan(it) => ToNode::Scan { head, after: optional(it.after)?, limit: it.limit },
            What::Meet(it) => {
                ToNode::Meet { head, epoch: Epoch(it.epoch), managers: managers_from(it.managers) }
            }
        })
    }
}

/// Calls to one node, as they travel together.
pub fn call_batch(cluster: &ClusterName, calls: Vec<v1::NodeCall>) -> v1::NodeCallBatch {
    v1::NodeCallBatch { calls, cluster: cluster.as_str().into() }
}

/// The calls of a batch, each with its own verdict: one that is malformed does not sink the others.
///
/// # Errors
/// The batch is of another cluster.
pub fn calls(
    cluster: &ClusterName,
    batch: v1::NodeCallBatch,
) -> Result<impl Iterator<Item = Result<ToNode, WireError>> + use<>, WireError> {
    check_cluster("NodeCallBatch.cluster", cluster, &batch.cluster)?;
    Ok(batch.calls.into_iter().map(ToNode::try_from))
}

/// The end of a session: why, how, and a sentence.
pub(crate) fn ended(
    ended: v1::dead_token::Ended,
) -> Result<(Reason, Option<Exit>, String), WireError> {
    let reason = required("Ended.reason", reason("Ended.reason", ended.reason)?)?;
    Ok((reason, optional(ended.exit)?, sentence(ended.detail)))
}

impl From<DeadToken> for v1::DeadToken {
    fn from(dead: DeadToken) -> Self {
        use v1::dead_token::{Ended, Fate, NeverStarted};
        let fate = match dead {
            DeadToken::NeverStarted { blame, detail } => {
                Fate::NeverStarted(NeverStarted { detail, by_node: blame == Blame::Node })
            }
            DeadToken::Ended { reason, exit, detail } => {
                let reason = reason_number(Some(reason));
                Fate::Ended(Ended { reason, exit: exit.map(Into::into), detail })
            }
        };
        Self { fate: Some(fate) }
    }
}

impl TryFrom<v1::DeadToken> for DeadToken {
    type Error = WireError;
    fn try_from(dead: v1::DeadToken) -> Result<Self, WireError> {
        use v1::dead_token::Fate;
        Ok(match required("DeadToken.fate", dead.fate)? {
            Fate::NeverStarted(it) => DeadToken::NeverStarted {
                blame: if it.by_node { Blame::Node } else { Blame::Session },
                detail: sentence(it.detail),
            },
            Fate::Ended(it) => {
                let (reason, exit, detail) = ended(it)?;
                DeadToken::Ended { reason, exit, detail }
            }
        })
    }
}

impl From<Alive> for v1::Alive {
    fn from(it: Alive) -> Self {
        Self {
            address: it.address,
            ready: it.ready,
            ends: reason_number(it.ends),
            life: it.life.as_u64(),
            spec: Some(it.spec.into()),
            machine_state: it.machine_state,
            machine_change: it.machine_change,
        }
    }
}

impl TryFrom<v1::Alive> for Alive {
    type Error = WireError;
    fn try_from(it: v1::Alive) -> Result<Self, WireError> {
        Ok(Self {
            address: short("Alive.address", it.address)?,
            ready: it.ready,
            ends: reason("Alive.ends", it.ends)?,
            life: stamp("Alive.life", it.life)?,
            spec: convert("Alive.spec", it.spec)?,
            machine_state: short("Alive.machine_state", it.machine_state)?,
            machine_change: it.machine_change,
        })
    }
}

impl From<ScanItem> for v1::ScanItem {
    fn from(item: ScanItem) -> Self {
        use v1::scan_item::Fate;
        let fate = match item.fate {
            ScanFate::Live(it) => Fate::Live((*it).into()),
            ScanFate::Dead(dead) => Fate::Dead(dead.into()),
        };
        let token = Some(item.token.into());
        Self { key: Some((&item.key).into()), token, fate: Some(fate) }
    }
}

impl TryFrom<v1::ScanItem> for ScanItem {
    type Error = WireError;
    fn try_from(item: v1::ScanItem) -> Result<Self, WireError> {
        use v1::scan_item::Fate;
        let fate = match required("ScanItem.fate", item.fate)? {
            Fate::Live(it) => ScanFate::Live(Box::new(it.try_into()?)),
            Fate::Dead(it) => ScanFate::Dead(it.try_into()?),
        };
        let key = convert("ScanItem.key", item.key)?;
        Ok(ScanItem { key, token: convert("ScanItem.token", item.token)?, fate })
    }
}

impl From<NodeAnswer> for v1::node_answer::Answer {
    fn from(answer: NodeAnswer) -> Self {
        use v1::node_answer::{Destroyed, Full, Running, Scanned, WrongBoot};
        match answer {
            NodeAnswer::Running { address, ready, remark } => {
                Self::Running(Running { address, ready, remark })
            }
            NodeAnswer::Dead(dead) => Self::Dead(dead.into()),
            NodeAnswer::Full => Self::Full(Full {}),
            NodeAnswer::OtherLive { token } => Self::OtherLive(token.into()),
            NodeAnswer::Acted { end } => Self::Acted(end.into()),
            NodeAnswer::Destroyed { exit, detail } => {
                Self::Destroyed(Destroyed { exit: exit.map(Into::into), detail })
            }
            NodeAnswer::Scanned { items, more, highest } => {
                let items = items.into_iter().map(Into::into).collect();
                Self::Scanned(Scanned { items, more, highest: Some(highest.into()) })
            }
            NodeAnswer::Fenced { fence } => Self::Fenced(fence.0),
            NodeAnswer::WrongBoot => Self::WrongBoot(WrongBoot {}),
        }
    }
}

impl TryFrom<v1::node_answer::Answer> for NodeAnswer {
    type Error = WireError;
    fn try_from(answer: v1::node_answer::Answer) -> Result<Self, WireError> {
        use v1::node_answer::Answer;
        Ok(match answer {
            Answer::Running(it) => {
                let address = short("Running.address", it.address)?;
                NodeAnswer::Running { address, ready: it.ready, remark: sentence(it.remark) }
            }
            Answer::Dead(dead) => NodeAnswer::Dead(dead.try_into()?),
            Answer::Full(_) => NodeAnswer::Full,
            Answer::OtherLive(at) => NodeAnswer::OtherLive { token: Token::from(at) },
            Answer::Acted(it) => NodeAnswer::Acted { end: it.try_into()? },
            Answer::Destroyed(it) => {
                NodeAnswer::Destroyed { exit: optional(it.exit)?, detail: sentence(it.detail) }
            }
            Answer::Scanned(it) => {
                let highest = convert("Scanned.highest", it.highest)?;
                NodeAnswer::Scanned { items: each(it.items)?, more: it.more, highest }
            }
            Answer::Fenced(fence) => NodeAnswer::Fenced { fence: Epoch(fence) },
            Answer::WrongBoot(_) => NodeAnswer::WrongBoot,
        })
    }
}

impl From<FromNode> for v1::NodeAnswer {
    fn from(message: FromNode) -> Self {
        Self {
            call: message.call,
            node: message.node.as_str().into(),
            boot: message.boot.0,
            load: Some(message.load.into()),
            answer: Some(message.answer.into()),
        }
    }
}

impl TryFrom<v1::NodeAnswer> for FromNode {
    type Error = WireError;
    fn try_from(message: v1::NodeAnswer) -> Result<Self, WireError> {
        Ok(FromNode {
            call: message.call,
            node: named("NodeAnswer.node", NodeId::parse(&message.node))?,
            boot: BootId(message.boot),
            load: convert("NodeAnswer.load", message.load)?,
            answer: convert("NodeAnswer.answer", message.answer)?,
        })
    }
}

fn check_address(text: &str) -> Result<(), FieldError> {
    if text.len() > NAME_BYTES_MAX || Address::parse(text).is_none() {
        let problem = format!("must be host:port, at most {NAME_BYTES_MAX} bytes long");
        return Err(FieldError::new("address", problem));
    }
    Ok(())
}

/// A node's registration, ready to send.
pub fn register_request(cluster: &ClusterName, register: Register) -> v1::RegisterRequest {
    v1::RegisterRequest {
        cluster: cluster.as_str().into(),
        node: register.node.as_str().into(),
        boot: register.boot.0,
        address: register.address,
        pool: register.pool.as_str().into(),
        places: register.offers.places,
        cpu_millis: register.offers.cpu_millis,
        memory_mib: register.offers.memory_mib,
        labels: label_texts(&register.labels),
        classes: register.classes.iter().map(|it| it.as_str().into()).collect(),
        class_digests: digests(register.digests.iter().map(|(name, it)| (name, *it))),
        class_facts: facts(&register.facts),
        sandbox: sandbox_text(register.sandbox),
        state: register.state.as_str().into(),
        renew_ms: register.lease.renew_ms,
        lease_term_ms: register.lease.lease_term_ms,
        lease_kill_ms: register.lease.lease_kill_ms,
        ended_boots: register.ended_boots.iter().map(|it| it.0).collect(),
        tombstone_ms: register.tombstone_ms,
    }
}

/// A node's registration at a manager of `cluster`.
///
/// # Errors
/// The first field that is wrong; that of the cluster before all others.
pub fn register(cluster: &ClusterName, it: v1::RegisterRequest) -> Result<Register, WireError> {
    check_cluster("RegisterRequest.cluster", cluster, &it.cluster)?;
    let state = NodeState::parse(&it.state)
        .filter(|state| matches!(state, NodeState::Ready | NodeState::Removed));
    let Some(state) = state else {
        let problem = format!("is {:?}; a node registers as READY or REMOVED", it.state);
        return Err(WireError::new("RegisterRequest.state", problem));
    };
    named("RegisterRequest.address", check_address(&it.address))?;
    let ended = it.ended_boots.len();
    if ended > ENDED_BOOTS_MAX {
        let problem = format!("are {ended}; the limit is {ENDED_BOOTS_MAX}");
        return Err(WireError::new("RegisterRequest.ended_boots", problem));
    }
    let classes = it.classes.iter().map(|class| ClassName::parse(class)).collect();
    let digests = digests_from("RegisterRequest.class_digests", it.class_digests)?;
    let facts = facts_from("RegisterRequest.class_facts", it.class_facts)?;
    Ok(Register {
        node: named("RegisterRequest.node", NodeId::parse(&it.node))?,
        boot: BootId(it.boot),
        ended_boots: it.ended_boots.into_iter().map(BootId).collect(),
        address: it.address,
        pool: named("RegisterRequest.pool", PoolName::parse(&it.pool))?,
        offers: Resources {
            places: it.places,
            cpu_millis: it.cpu_millis,
            memory_mib: it.memory_mib,
        },
        labels: labels_from("RegisterRequest.labels", it.labels)?,
        classes: named("RegisterRequest.classes", classes)?,
        digests,
        facts,
        sandbox: sandbox_from("RegisterRequest.sandbox", &it.sandbox)?,
        state,
        lease: LeaseTimes {
            renew_ms: it.renew_ms,
            lease_term_ms: it.lease_term_ms,
            lease_kill_ms: it.lease_kill_ms,
        },
        tombstone_ms: it.tombstone_ms,
    })
}

fn managers(managers: Vec<(ManagerNumber, String)>) -> Vec<v1::ManagerAddress> {
    let to_wire = |(number, address): (ManagerNumber, String)| v1::ManagerAddress {
        number: number.0,
        address,
    };
    managers.into_iter().map(to_wire).collect()
}

fn managers_from(managers: Vec<v1::ManagerAddress>) -> Vec<(ManagerNumber, String)> {
    managers.into_iter().map(|it| (ManagerNumber(it.number), it.address)).collect()
}

impl From<Registered> for v1::RegisterResponse {
    fn from(registered: Registered) -> Self {
        use v1::register_response::Fence;
        let fence = |(range, pe): (SlotRange, Epoch)| Fence { range: Some(range.into()), pe: pe.0 };
        Self {
            epoch: registered.epoch.0,
            m: registered.m,
            fences: registered.fences.into_iter().map(fence).collect(),
            managers: managers(registered.managers),
        }
    }
}

impl TryFrom<v1::RegisterResponse> for Registered {
    type Error = WireError;
    fn try_from(it: v1::RegisterResponse) -> Result<Self, WireError> {
        let fences = it.fences.into_iter().map(|fence| {
            Ok((convert("RegisterResponse.Fence.range", fence.range)?, Epoch(fence.pe)))
        });
        Ok(Registered {
            epoch: Epoch(it.epoch),
            m: it.m,
            fences: fences.collect::<Result<_, WireError>>()?,
            managers: managers_from(it.managers),
        })
    }
}

/// A node's sign of life, ready to send.
pub fn renew_request(cluster: &ClusterName, renew: Renew) -> v1::RenewRequest {
    v1::RenewRequest {
        cluster: cluster.as_str().into(),
        node: renew.node.as_str().into(),
        boot: renew.boot.0,
        load: Some(renew.load.into()),
    }
}

/// A node's sign of life at a manager of `cluster`.
///
/// # Errors
/// The first field that is wrong; that of the cluster before all others.
pub fn renew(cluster: &ClusterName, it: v1::RenewRequest) -> Result<Renew, WireError> {
    check_cluster("RenewRequest.cluster", cluster, &it.cluster)?;
    Ok(Renew {
        node: named("RenewRequest.node", NodeId::parse(&it.node))?,
        boot: BootId(it.boot),
        load: convert("RenewRequest.load", it.load)?,
    })
}

impl From<Renewed> for v1::RenewResponse {
    fn from(renewed: Renewed) -> Self {
        use v1::renew_response::{Grant as WireGrant, Heard, Lost, NotServing, Result as Wire};
        let (result, epoch, known) = match renewed {
            Renewed::Heard { epoch, managers, load_limit, grants, more, retires } => {
                let load_limit_permille = match load_limit {
                    ToldLimit::Nothing => None,
                    ToldLimit::AsStarted => Some(0),
                    ToldLimit::Of(limit) => Some(limit.permille()),
                };
                let grant = |it: Grant| WireGrant { range: Some(it.range.into()), pe: it.pe.0 };
                let grants = grants.into_iter().map(grant).collect();
                let heard = Heard { load_limit_permille, grants, more, retires };
                (Wire::Heard(heard), epoch, managers)
            }
            Renewed::Lost => (Wire::Lost(Lost {}), Epoch(0), Vec::new()),
            Renewed::NotServing => (Wire::NotServing(NotServing {}), Epoch(0), Vec::new()),
        };
        Self { result: Some(result), epoch: epoch.0, managers: managers(known) }
    }
}

impl TryFrom<v1::RenewResponse> for Renewed {
    type Error = WireError;
    fn try_from(renewed: v1::RenewResponse) -> Result<Self, WireError> {
        use v1::renew_response::Result as Wire;
        let (epoch, managers) = (Epoch(renewed.epoch), managers_from(renewed.managers));
        Ok(match required("RenewResponse.result", renewed.result)? {
            Wire::Heard(it) => {
                let load_limit = match it.load_limit_permille {
                    None => ToldLimit::Nothing,
                    Some(0) => ToldLimit::AsStarted,
                    Some(permille) => {
                        let wrong = || FieldError::new("load_limit_permille", "must be 0 to 1000");
                        let limit = LoadLimit::of_permille(permille).ok_or_else(wrong);
                        ToldLimit::Of(named("RenewResponse.heard", limit)?)
                    }
                };
                let grant = |grant: v1::renew_response::Grant| {
                    let range = required("RenewResponse.heard.grants.range", grant.range)?;
                    Ok(Grant { range: range.into(), pe: Epoch(grant.pe) })
                };
                let grants = it.grants.into_iter().map(grant).collect::<Result<_, WireError>>()?;
                let (more, retires) = (it.more, it.retires);
                Renewed::Heard { epoch, managers, load_limit, grants, more, retires }
            }
            Wire::Lost(_) => Renewed::Lost,
            Wire::NotServing(_) => Renewed::NotServing,
        })
    }
}

/// A node's report, ready to send. At most [`REPORT_ITEMS_MAX`] items: the receiver refuses more.
pub fn report_request(
    cluster: &ClusterName,
    items: impl IntoIterator<Item = ReportItem>,
) -> v1::ReportRequest {
    let items = items.into_iter().map(Into::into).collect();
    v1::ReportRequest { items, cluster: cluster.as_str().into() }
}

/// The items of a node's report at a manager of `cluster`, in order.
///
/// # Errors
/// The report is of another cluster, or too large, or the first item that is malformed.
pub fn report_items(
    cluster: &ClusterName,
    request: v1::ReportRequest,
) -> Result<Vec<ReportItem>, WireError> {
    check_cluster("ReportRequest.cluster", cluster, &request.cluster)?;
    let count = request.items.len();
    if count > REPORT_ITEMS_MAX {
        let problem = format!("are {count}; the limit is {REPORT_ITEMS_MAX}");
        return Err(WireError::new("ReportRequest.items", problem));
    }
    each(request.items)
}
