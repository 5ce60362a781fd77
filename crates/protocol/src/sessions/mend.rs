//! A look at what one node has of one session, by order of an operator, at the owner of its slot.
//!
//! ```text
//!  order ──▶ confirm round ──▶ Scan around it ────▶ judge ──┬─▶ Destroy, until the node has ended it ──▶ answer
//!                                   ▲                │      └─▶ end of the life, committed ───────────▶ answer
//!                                   └── it moves ◀───┘
//! ```
//! It is the scan of a new owner ([`crate::sessions::scan`]), and judges alike; but the records move meanwhile. So:
//!
//! * An end is written for what was committed as running before the node was asked, and that the node did not show.
//!   What began to run later is not meant by that answer.
//! * An instance is ended that no committed record names, while nothing else of the session waits to be committed.
//!   No record will ever name it: later attempts have later tokens.
//! * Only the answer to the newest question counts.
//!
//! A later attempt than any that is known here proves that acknowledged writes were lost, as it does for a new owner:
//! then the partition is found again from what runs.

use crate::log::at::At;
use crate::log::origin::Origin;
use crate::nodes::calls::{CallFor, CallWhat};
use crate::ports::note::Transition;
use crate::sessions::read::key_of;
use crate::sessions::scan_state::UNKNOWN_THERE;
use rota_messages::{Answer, DocKey, Op};
use rota_model::node_msg::{DeadToken, NodeAnswer, NodeCall, ScanFate, ScanItem, ToNode};
use rota_model::{
    BootId, Exit, LogPos, MendOp, MendStep, Mended, NodeId, Reason, Refusal, RefusalKind, Retry,
    SessionId, SessionKey, SessionRecord, SessionState, Token,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Most looks that are under way in a partition. Each asks one question at a time, so more would only fill memory.
const LOOKS_MAX: usize = 256;

/// Most sessions in a page: only one of them is looked for.
const PAGE_MAX: u32 = 64;

/// A look that waits for its node.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Look {
    node: NodeId,
    boot: BootId,
    /// The attempt that ran there by the committed record, when the look began.
    ran: Option<Token>,
    /// What the node says of the session, page by page.
    found: Vec<ScanItem>,
    /// The last session of the page before.
    after: Option<SessionKey>,
    /// An instance that the node was told to end.
    ends: Option<Token>,
    /// The newest question.
    call: Option<u64>,
    ask_ms: u64,
    asked: u32,
}

/// What differs.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Judged {
    /// It moves: the look begins anew.
    Moves,
    /// A later owner asked for what runs there.
    Later,
    Told(MendStep, Option<Token>, String),
    /// Why it is ended.
    End(Token, String),
    WriteEnd {
        token: Token,
        reason: Reason,
        exit: Option<Exit>,
        detail: String,
    },
    Lost(Token),
}

/// Looks at what nodes have, by order of operators.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Looks {
    under_way: BTreeMap<Origin, Look>,
}

/// The node has shown that a life ended, and no record says so. Whoever writes ends answers.
pub(crate) struct FoundEnd {
    pub origin: Origin,
    pub key: DocKey,
    pub record: Arc<SessionRecord>,
    pub token: Token,
    pub reason: Reason,
    pub exit: Option<Exit>,
    pub detail: String,
}

impl Looks {
    /// An operator has a look ordered, and this manager is the owner.
    pub fn on_mend(&mut self, led: &mut At<'_>, origin: Origin, op: &MendOp) {
        if !led.lead.is_open() {
            return led.enqueue(origin);
        }
        if self.under_way.len() >= LOOKS_MAX && !self.under_way.contains_key(&origin) {
            let text = format!("{LOOKS_MAX} looks at nodes are under way in this partition");
            let retry = Retry::AfterMs(led.env.config.timing.retry_ms);
            let refusal = Refusal::new(RefusalKind::Overloaded, retry, text);
            return led.reply(origin, Err(refusal));
        }
        self.begin(led, origin, op);
    }

    fn begin(&mut self, led: &mut At<'_>, origin: Origin, op: &MendOp) {
        self.under_way.remove(&origin);
        let node = &op.node;
        let (boot, why) = match led.env.nodes.reg.get(node) {
            None => (None, format!("nobody registered a node {node}")),
            Some(reg) if reg.state.is_gone() => {
                let state = reg.state.as_str();
                let text = format!(
                    "node {node} is {state}: what it ran ends with its lease, and is written off after that"
                );
                (None, text)
            }
            Some(reg) => (Some(reg.boot), String::new()),
        };
        let Some(boot) = boot else {
            return self.tell(led, origin, MendStep::OutOfReach, None, why);
        };
        let key = key_of(led.env, &op.key);
        let record = committed(led, &key);
        let ran = record.filter(|it| runs_at(it, node, boot)).and_then(|it| it.token());
        let (found, after, ends) = (Vec::new(), just_before(&op.key), None);
        let (call, ask_ms, asked) = (None, 0, 0);
        let node = node.clone();
        let look = Look { node, boot, ran, found, after, ends, call, ask_ms, asked };
        self.under_way.insert(origin, look);
        self.ask(led, origin);
    }

    /// Asks the node, or asks it again.
    fn ask(&mut self, led: &mut At<'_>, origin: Origin) {
        let Some(op) = mend_of(led, &origin) else {
            self.under_way.remove(&origin);
            return;
        };
        let Some(look) = self.under_way.get_mut(&origin) else { return };
        let now = led.env.now.mono_ms;
        look.asked += 1;
        look.ask_ms = now + (led.env.config.timing.node_resend_ms << look.asked.min(3));
        let (part, range, pe, boot) = (led.log.number, led.log.range, led.lead.pe, look.boot);
        let slot = key_of(led.env, &op.key).slot;
        let until_ms = now + led.env.config.timing.node_lost_ms;
        let what = CallWhat::Look;
        let call = CallFor { part, pe, node: look.node.clone(), boot, what, until_ms };
        let (after, limit) = (look.after.clone(), led.env.config.sizes.scan_page.min(PAGE_MAX));
        let (ends, key) = (look.ends, op.key.clone());
        let asked = led.env.ask_node(call, |call| {
            let head = NodeCall { call, boot, pe, range };
            match ends {
                Some(token) => {
                    ToNode::Destroy { head, key, slot, token, grace_ms: None, request: None }
                }
                None => ToNode::Scan { head, after, limit },
            }
        });
        look.call = asked;
    }

    /// Asks again what nodes left unanswered, and begins anew where a node booted anew.
    pub fn tick(&mut self, led: &mut At<'_>) {
        if !led.lead.is_open() {
            return;
        }
        let now = led.env.now.mono_ms;
        let due = self.under_way.iter().filter(|(_, look)| now >= look.ask_ms);
        let due: Vec<Origin> = due.map(|(origin, _)| *origin).collect();
        for origin in due {
            let boot = self.under_way.get(&origin).map(|it| it.boot);
            match mend_of(led, &origin) {
                Some(op) if led.env.nodes.reg.get(&op.node).map(|it| it.boot) != boot => {
                    self.begin(led, origin, &op);
                }
                Some(_) | None => self.ask(led, origin),
            }
        }
    }

    /// A node answered.
    pub fn on_answer(
        &mut self,
        led: &mut At<'_>,
        call: u64,
        answer: NodeAnswer,
    ) -> Option<FoundEnd> {
        let waiting = self.under_way.iter_mut().find(|(_, it)| it.call == Some(call));
        let (origin, look) = waiting.map(|(origin, look)| (*origin, look))?;
        let op = mend_of(led, &origin).filter(|_| led.lead.is_open())?;
        match (answer, look.ends) {
            (NodeAnswer::Scanned { items, more, .. }, None) => {
                let last = items.last().map(|it| it.key.clone());
                look.found.extend(items.into_iter().filter(|it| it.key == op.key));
                if more && last > look.after && last.as_ref() < Some(&op.key) {
                    look.after = last;
                    look.asked = 0;
                    self.ask(led, origin);
                    return None;
                }
                return self.judge(led, origin, &op);
            }
            (NodeAnswer::Destroyed { .. }, Some(token)) => {
                let text = format!("attempt {token} has ended on node {}", op.node);
                self.tell(led, origin, MendStep::EndInstance, Some(token), text);
            }
            (NodeAnswer::Fenced { .. }, _) => {
                led.env.note(Transition::Fenced, Some(led.log.number));
                led.env.store.refresh = true;
            }
            (NodeAnswer::WrongBoot, _) => led.env.store.refresh = true,
            (
                NodeAnswer::Scanned { .. }
                | NodeAnswer::Destroyed { .. }
                | NodeAnswer::Running { .. }
                | NodeAnswer::Dead(_)
                | NodeAnswer::Full
                | NodeAnswer::Acted { .. }
                | NodeAnswer::OtherLive { .. },
                _,
            ) => {}
        }
        None
    }

    /// Everything is known: does what is to be done.
    fn judge(&mut self, led: &mut At<'_>, origin: Origin, op: &MendOp) -> Option<FoundEnd> {
        let look = self.under_way.get_mut(&origin)?;
        let key = key_of(led.env, &op.key);
        let is_written = led.log.replica.latest.contains_key(&key);
        let record = committed(led, &key);
        let judged = match is_written {
            true => Judged::Moves,
            false => judge(record.as_deref(), look, led.log.replica.last),
        };
        match judged {
            Judged::Moves => self.anew(led, origin, op),
            Judged::Later => {
                led.env.store.refresh = true;
                self.anew(led, origin, op);
            }
            Judged::Told(step, token, text) => self.tell(led, origin, step, token, text),
            Judged::End(token, says) if op.dry_run => {
                let text = format!("node {} would be told to end attempt {token}: {says}", op.node);
                self.tell(led, origin, MendStep::EndInstance, Some(token), text);
            }
            Judged::End(token, _) => {
                (look.ends, look.asked) = (Some(token), 0);
                self.ask(led, origin);
            }
            Judged::WriteEnd { token, .. } if op.dry_run => {
                let text = format!("node {} runs it no more: its end would be written", op.node);
                self.tell(led, origin, MendStep::WriteEnd, Some(token), text);
            }
            Judged::WriteEnd { token, reason, exit, detail } => {
                let record = record?;
                self.under_way.remove(&origin);
                return Some(FoundEnd { origin, key, record, token, reason, exit, detail });
            }
            Judged::Lost(token) => self.on_lost_writes(led, origin, op, token),
        }
        None
    }

    /// Something of it is being written, or may be. What was found so far is of before: the next question begins anew.
    fn anew(&mut self, led: &mut At<'_>, origin: Origin, op: &MendOp) {
        let Some(look) = self.under_way.get_mut(&origin) else { return };
        let record = committed(led, &key_of(led.env, &op.key));
        let runs = record.filter(|it| runs_at(it, &look.node, look.boot));
        look.ran = runs.and_then(|it| it.token());
        (look.found, look.after, look.call) = (Vec::new(), just_before(&op.key), None);
    }

    /// A node runs a later attempt than any that is known here. Whoever waits is asked again by the next owner.
    fn on_lost_writes(&mut self, led: &mut At<'_>, origin: Origin, op: &MendOp, token: Token) {
        let MendOp { key, node, dry_run } = op;
        if *dry_run {
            let text = format!(
                "attempt {token} is later than any that its owner knows: acknowledged writes were lost. The \
                 partition would be found again from what runs, and answer nobody meanwhile"
            );
            return self.tell(led, origin, MendStep::FindAgain, Some(token), text);
        }
        led.lead.halts = Some(format!(
            "partition {}: node {node} runs attempt {token} of session {key}, which is later than any that is \
             known here: acknowledged writes were lost",
            led.log.number
        ));
    }

    fn tell(
        &mut self,
        led: &mut At<'_>,
        origin: Origin,
        step: MendStep,
        token: Option<Token>,
        text: String,
    ) {
        self.under_way.remove(&origin);
        led.reply(origin, Ok(Answer::Mended(Mended { step, token, text })));
    }

    /// Those that wait, for whoever checks that they are there.
    pub fn origins(&self) -> impl Iterator<Item = &Origin> {
        self.under_way.keys()
    }

    pub fn is_empty(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Lets go of those that nobody waits for.
    pub fn retain(&mut self, is_there: &dyn Fn(&Origin) -> bool) {
        self.under_way.retain(|origin, _| is_there(origin));
    }

    /// What an operator is told whose look did not end in time.
    pub fn late(&self, led: &At<'_>, origin: &Origin, op: &MendOp) -> Refusal {
        let MendOp { key, node, .. } = op;
        match self.under_way.get(origin) {
            Some(Look { ends: Some(token), .. }) => led.too_late(&format!(
                "node {node} has not ended attempt {token} of session {key} yet: look again later"
            )),
            Some(_) => {
                let retry = Retry::AfterMs(led.env.config.timing.retry_ms);
                let text = format!("node {node} did not say in time what it has of session {key}");
                Refusal::new(RefusalKind::DeadlineExceeded, retry, text)
            }
            None => led.too_late("the copies did not confirm in time"),
        }
    }
}

/// The look that is ordered, as long as somebody waits for it.
fn mend_of(led: &At<'_>, origin: &Origin) -> Option<MendOp> {
    match led.inbox.live.get(origin).map(|asked| &asked.op) {
        Some(Op::Mend(op)) => Some(op.clone()),
        Some(
            Op::Open(_)
            | Op::Close(_)
            | Op::Get(_)
            | Op::KeepAlive(_)
            | Op::Lives(_)
            | Op::List(_)
            | Op::Pull(_)
            | Op::Report(_)
            | Op::Numbers(_)
            | Op::Tasks(_)
            | Op::Search(_)
            | Op::Documents(_),
        )
        | None => None,
    }
}

/// A session with few between it and `key`: a scan goes on after it.
fn just_before(key: &SessionKey) -> Option<SessionKey> {
    let mut id = key.id.as_str().to_owned();
    id.pop();
    Some(SessionKey::new(key.namespace.clone(), SessionId::parse(&id).ok()?))
}

/// What every copy has, unless something newer was appended.
fn committed(led: &At<'_>, key: &DocKey) -> Option<Arc<SessionRecord>> {
    if led.log.replica.latest.contains_key(key) {
        return None;
    }
    led.log.replica.record(key)
}

/// Whether a record says that it began to run on that boot, and has not begun to end.
fn runs_at(record: &SessionRecord, node: &NodeId, boot: BootId) -> bool {
    let ran = matches!(record.state, SessionState::Starting | SessionState::Ready);
    ran && is_at(record, node, boot)
}

fn is_at(record: &SessionRecord, node: &NodeId, boot: BootId) -> bool {
    record.placement.as_ref().is_some_and(|at| at.node == *node && at.boot == boot)
}

/// What differs between a committed record and what its node showed. `last`: the newest entry of the log.
fn judge(record: Option<&SessionRecord>, look: &Look, last: LogPos) -> Judged {
    let Look { node, boot, .. } = look;
    let live = look.found.iter().find(|it| matches!(it.fate, ScanFate::Live(_)));
    let Some(token) = live.map(|it| it.token) else { return judge_absent(record, look) };
    let named = record.filter(|it| !it.state.is_ended());
    if let Some(it) = named.filter(|it| it.token() == Some(token) && is_at(it, node, *boot)) {
        let step = match it.state {
            SessionState::Ready => MendStep::Nothing,
            SessionState::Pending
            | SessionState::Starting
            | SessionState::Closing
            | SessionState::Closed
            | SessionState::Failed
            | SessionState::Lost => MendStep::UnderWay,
        };
        let text =
            format!("node {node} runs attempt {token}, as its record says: {}", it.state.as_str());
        return Judged::Told(step, Some(token), text);
    }
    if token.0.pe > last.pe {
        return Judged::Later;
    }
    let newest = record.and_then(SessionRecord::token);
    if token.0 > last || newest.is_some_and(|it| token > it) {
        return Judged::Lost(token);
    }
    let says = match (record, &record.and_then(|it| it.placement.clone())) {
        (None, _) => "no record names it".to_owned(),
        (Some(it), _) if it.state.is_ended() => format!("its record is {}", it.state.as_str()),
        (Some(_), Some(at)) => format!("its record names attempt {} on node {}", at.token, at.node),
        (Some(it), None) => format!("its record is {} and names no node", it.state.as_str()),
    };
    Judged::End(token, says)
}

/// The same when nothing of it runs there.
fn judge_absent(record: Option<&SessionRecord>, look: &Look) -> Judged {
    let Look { node, boot, .. } = look;
    let here = record.filter(|it| !it.state.is_ended() && is_at(it, node, *boot));
    let Some((record, token)) = here.and_then(|it| Some((it, it.token()?))) else {
        let elsewhere = record.filter(|it| !it.state.is_ended());
        let at = elsewhere.and_then(|it| it.placement.as_ref()).filter(|it| it.node == *node);
        return match at {
            // A boot of before: its end is written when it is proved, or when what was granted is over.
            Some(at) => Judged::Told(
                MendStep::UnderWay,
                Some(at.token),
                format!("node {node} booted anew: its owner writes that off by itself"),
            ),
            None => Judged::Told(
                MendStep::Nothing,
                None,
                format!("nothing of it runs on node {node}, and no record says so"),
            ),
        };
    };
    if !runs_at(record, node, *boot) {
        let text = format!(
            "its record is {}: its owner asks node {node} by itself",
            record.state.as_str()
        );
        return Judged::Told(MendStep::UnderWay, Some(token), text);
    }
    if look.ran != Some(token) {
        return Judged::Moves;
    }
    let fate = look.found.iter().find(|it| it.token == token).map(|it| &it.fate);
    match fate {
        Some(ScanFate::Dead(DeadToken::Ended { reason, exit, detail })) => {
            let (reason, exit, detail) = (*reason, exit.clone(), detail.clone());
            Judged::WriteEnd { token, reason, exit, detail }
        }
        Some(ScanFate::Dead(DeadToken::NeverStarted { .. }) | ScanFate::Live(_)) | None => {
            let (reason, exit, detail) = (Reason::Internal, None, UNKNOWN_THERE.to_owned());
            Judged::WriteEnd { token, reason, exit, detail }
        }
    }
}
