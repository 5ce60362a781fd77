//! Changes of sessions and how their life cycles stand, on the wire: of clients, and between managers.

use crate::life::options;
use crate::mistakes::Mistakes;
use crate::record::{check_attributes, stamp, stamp_or_none};
use crate::session::{shown, unexpected};
use crate::v1;
use crate::wire::{WireError, convert, named, optional, required};
use rota_lifecycle::{Edit, Held, LifeItem, Managed, Name, Past, Word};
use rota_messages::Answer;
use rota_messages::lives::{Event, FireOp, Life, LivesAnswer, LivesOp, Retrying, UpdateOp};
use rota_model::{FieldError, NodeId, Refusal, SessionKey, Stamp};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Life-cycle items as an open gives them: relative times become absolute.
pub(crate) fn options_at(
    it: v1::LifeOptions,
    now: Stamp,
) -> Result<Option<Arc<rota_model::LifeOptions>>, Vec<FieldError>> {
    let in_life = |it: FieldError| FieldError::new(format!("life.{}", it.field), it.problem);
    let items = Edit::parse_entries(&it.managed_state, now)
        .map_err(|them| them.into_iter().map(in_life).collect::<Vec<_>>());
    let (items, asked) = match (items, options(it)) {
        (Ok(items), Ok(asked)) => (items, asked),
        (items, asked) => {
            let mistakes = items.err().into_iter().chain(asked.err());
            return Err(mistakes.flatten().collect());
        }
    };
    let mut managed = Managed::new(now);
    let checked = managed.edit(&Edit::adding(items.clone()), now);
    checked.map_err(|them| them.into_iter().map(in_life).collect::<Vec<_>>())?;
    Ok(asked.map(|asked| {
        let managed_state = items.iter().map(ToString::to_string).collect();
        Arc::new(rota_model::LifeOptions { managed_state, ..(*asked).clone() })
    }))
}

fn items(
    mistakes: &mut Mistakes,
    field: &str,
    lines: &[String],
    read: impl Fn(&str) -> Result<LifeItem, FieldError>,
) -> Vec<LifeItem> {
    let mut items = Vec::with_capacity(lines.len());
    for (at, line) in lines.iter().enumerate() {
        items.extend(mistakes.note_in(&format!("{field}[{at}]"), read(line)));
    }
    items
}

fn events(mistakes: &mut Mistakes, field: &str, them: Vec<v1::LifeEvent>) -> Vec<Event> {
    let mut events = Vec::with_capacity(them.len());
    for (at, it) in them.into_iter().enumerate() {
        let item = LifeItem::parse(&format!("{} {}", it.life_cycle, it.word));
        if mistakes.note_in(&format!("{field}[{at}]"), item).is_some() {
            events.push(Event { life_cycle: it.life_cycle, word: it.word });
        }
    }
    events
}

/// Checks a change. Relative times become absolute.
pub fn update(request: v1::UpdateRequest, now: Stamp) -> Result<UpdateOp, Refusal> {
    let mut mistakes = Mistakes::default();
    let key = mistakes.key(&request.namespace, &request.id);
    let life = mistakes.life(request.life);
    let version = mistakes.stamp_or_none("if_version", request.if_version);
    mistakes.note(check_attributes(&request.attributes));
    let mut attributes: BTreeMap<String, Option<String>> =
        request.attributes.into_iter().map(|(name, it)| (name, Some(it))).collect();
    for name in request.remove_attributes {
        if attributes.insert(name.clone(), None).is_some() {
            let problem = format!("{name:?} is set in attributes, too");
            mistakes.note::<()>(Err(FieldError::new("remove_attributes", problem)));
        }
    }
    let entry = |line: &str| LifeItem::parse_entry(line, now);
    let add = items(&mut mistakes, "add_state", &request.add_state, entry);
    let remove = items(&mut mistakes, "remove_state", &request.remove_state, LifeItem::parse);
    let mut finish = Vec::with_capacity(request.finish.len());
    for (at, name) in request.finish.iter().enumerate() {
        finish.extend(mistakes.note_in(&format!("finish[{at}]"), Name::parse(name)));
    }
    let skip = events(&mut mistakes, "skip", request.skip);
    let retry = events(&mut mistakes, "retry", request.retry);
    let edit = Arc::new(Edit { add, remove, finish, replace: None });
    let op = || {
        let (key, life, if_version) = (key?, life?, version?);
        Some(UpdateOp { key, life, if_version, attributes, edit, skip, retry, ran: None })
    };
    let op = op();
    mistakes.finish(op)
}

/// Checks a question for the life cycles of a session.
pub fn get_life(request: &v1::GetLifeRequest) -> Result<SessionKey, Refusal> {
    let mut mistakes = Mistakes::default();
    let key = mistakes.key(&request.namespace, &request.id);
    mistakes.finish(key)
}

/// The answer to both. `node_address` as in [`crate::session::session`].
pub fn life_response(
    answer: Answer,
    node_address: impl Fn(&NodeId) -> String,
) -> Result<v1::Life, Refusal> {
    let Answer::Lives(LivesAnswer::Life(life)) = answer else {
        return Err(unexpected("question for life cycles"));
    };
    Ok(life_to_wire(*life, node_address))
}

fn life_to_wire(life: Life, node_address: impl Fn(&NodeId) -> String) -> v1::Life {
    let managed = &life.managed;
    let next = managed.items().filter(|(_, it)| it.fired.is_none() && it.failed.is_none());
    let next = next.filter_map(|(item, _)| match item.last() {
        Word::At { at, .. } => Some(*at),
        Word::Mark(_) | Word::Wait { .. } => None,
    });
    v1::Life {
        items: managed.items().map(|(item, held)| item_to_wire(item, held, &life)).collect(),
        history: managed.history().iter().map(past_to_wire).collect(),
        cycles: managed.cycles().iter().map(|it| it.join(", ")).collect(),
        next_at: next.min().map_or(0, Stamp::as_u64),
        last_fired: last_fired(managed),
        session: life.session.map(|it| shown(it, node_address)),
    }
}

fn last_fired(managed: &Managed) -> BTreeMap<String, u64> {
    let last = managed.items().filter_map(|(item, _)| {
        let life_cycle = item.life_cycle();
        Some((life_cycle.to_string(), managed.last(life_cycle)?.as_u64()))
    });
    last.collect()
}

fn item_to_wire(item: &LifeItem, held: &Held, life: &Life) -> v1::LifeItem {
    let word = item.last().to_string();
    let is_it = |it: &Event| it.life_cycle == item.life_cycle().as_str() && it.word == word;
    let retrying = life.retrying.iter().find(|it| is_it(&it.event));
    let is_open = held.fired.is_none() && held.failed.is_none();
    let (due_at, waits_for) = match item.last() {
        Word::At { at, .. } if is_open => (at.as_u64(), String::new()),
        Word::Wait { life_cycle, event } if is_open => (0, format!("{life_cycle}?{event}")),
        Word::At { .. } | Word::Wait { .. } | Word::Mark(_) => (0, String::new()),
    };
    let failed = held.failed.as_ref();
    v1::LifeItem {
        text: item.to_string(),
        life_cycle: item.life_cycle().to_string(),
        fired_at: held.fired.map_or(0, |it| it.at.as_u64()),
        skipped: held.fired.is_some_and(|it| it.skipped),
        due_at,
        waits_for,
        failures: failed.map_or(0, |it| it.attempts),
        code: failed.map_or_else(String::new, |it| it.code.to_string()),
        report: failed.map_or_else(String::new, |it| it.report.clone()),
        task: retrying.map_or_else(String::new, |it| it.task.clone()),
        task_state: retrying.map_or_else(String::new, |it| it.state.clone()),
        retry_at: retrying.and_then(|it| it.at).map_or(0, Stamp::as_u64),
        moved_at: 0,
        running: life.running.as_ref().is_some_and(is_it),
    }
}

fn past_to_wire(it: &Past) -> v1::LifeItem {
    let failed = it.failed.as_ref();
    v1::LifeItem {
        text: it.item.to_string(),
        life_cycle: it.item.life_cycle().to_string(),
        fired_at: it.fired.map_or(0, |it| it.at.as_u64()),
        skipped: it.fired.is_some_and(|it| it.skipped),
        failures: failed.map_or(0, |it| it.attempts),
        code: failed.map_or_else(String::new, |it| it.code.to_string()),
        report: failed.map_or_else(String::new, |it| it.report.clone()),
        moved_at: it.moved.as_u64(),
        ..v1::LifeItem::default()
    }
}

fn texts(items: &[LifeItem]) -> Vec<String> {
    items.iter().map(ToString::to_string).collect()
}

impl From<Event> for v1::LifeEvent {
    fn from(it: Event) -> Self {
        Self { life_cycle: it.life_cycle, word: it.word }
    }
}

impl From<v1::LifeEvent> for Event {
    fn from(it: v1::LifeEvent) -> Self {
        Self { life_cycle: it.life_cycle, word: it.word }
    }
}

impl From<UpdateOp> for v1::UpdateRequest {
    fn from(op: UpdateOp) -> Self {
        let (mut set, mut remove) = (BTreeMap::new(), Vec::new());
        for (name, value) in op.attributes {
            match value {
                Some(value) => drop(set.insert(name, value)),
                None => remove.push(name),
            }
        }
        Self {
            namespace: op.key.namespace.as_str().into(),
            id: op.key.id.as_str().into(),
            life: op.life.map_or(0, Stamp::as_u64),
            if_version: op.if_version.map_or(0, Stamp::as_u64),
            attributes: set,
            remove_attributes: remove,
            add_state: texts(&op.edit.add),
            remove_state: texts(&op.edit.remove),
            finish: op.edit.finish.iter().map(ToString::to_string).collect(),
            skip: op.skip.into_iter().map(Into::into).collect(),
            retry: op.retry.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<LivesOp> for v1::LivesOp {
    fn from(op: LivesOp) -> Self {
        use v1::lives_op::What;
        let what = match op {
            LivesOp::Update(op) => What::Update((*op).into()),
            LivesOp::Show(key) => What::Show((&key).into()),
            LivesOp::Fire(op) => What::Fire(v1::FireOp {
                key: Some((&op.key).into()),
                origin: op.origin.as_u64(),
                event: Some(op.event.into()),
            }),
        };
        Self { what: Some(what) }
    }
}

impl TryFrom<v1::LivesOp> for LivesOp {
    type Error = WireError;
    fn try_from(op: v1::LivesOp) -> Result<Self, WireError> {
        use v1::lives_op::What;
        Ok(match required("LivesOp.what", op.what)? {
            What::Update(it) => {
                // The manager that took it has made all times absolute.
                let op = update(it, Stamp::MIN);
                let refused = |it: Refusal| WireError::new("LivesOp.update", it.message);
                LivesOp::Update(Box::new(op.map_err(refused)?))
            }
            What::Show(key) => LivesOp::Show(key.try_into()?),
            What::Fire(it) => LivesOp::Fire(Box::new(FireOp {
                key: convert("FireOp.key", it.key)?,
                origin: stamp("FireOp.origin", it.origin)?,
                event: required("FireOp.event", it.event)?.into(),
            })),
        })
    }
}

impl From<LivesAnswer> for v1::LivesAnswer {
    fn from(it: LivesAnswer) -> Self {
        use v1::lives_answer::{Fired, Shown, What};
        let what = match it {
            LivesAnswer::Fired(end) => {
                let is_done = end.is_ok();
                let (code, report) = end.err().unwrap_or_default();
                What::Fired(Fired { done: is_done, code, report })
            }
            LivesAnswer::Life(life) => {
                let retrying = life.retrying.into_iter().map(|retry| v1::lives_answer::Retrying {
                    event: Some(retry.event.into()),
                    task: retry.task,
                    state: retry.state,
                    at: retry.at.map_or(0, Stamp::as_u64),
                });
                let managed = serde_json::to_vec(&*life.managed);
                What::Shown(Shown {
                    session: life.session.as_ref().map(Into::into),
                    managed: managed.expect("texts and numbers have a form in JSON").into(),
                    retrying: retrying.collect(),
                    running: life.running.map(Into::into),
                })
            }
        };
        Self { what: Some(what) }
    }
}

impl TryFrom<v1::LivesAnswer> for LivesAnswer {
    type Error = WireError;
    fn try_from(it: v1::LivesAnswer) -> Result<Self, WireError> {
        use v1::lives_answer::What;
        Ok(match required("LivesAnswer.what", it.what)? {
            What::Fired(it) if it.done => LivesAnswer::Fired(Ok(())),
            What::Fired(it) => LivesAnswer::Fired(Err((it.code, it.report))),
            What::Shown(it) => {
                let managed: Managed = serde_json::from_slice(&it.managed)
                    .map_err(|error| WireError::new("Shown.managed", error.to_string()))?;
                let retrying = it.retrying.into_iter().map(|retry| {
                    Ok(Retrying {
                        event: required("Retrying.event", retry.event)?.into(),
                        task: retry.task,
                        state: retry.state,
                        at: stamp_or_none("Retrying.at", retry.at)?,
                    })
                });
                LivesAnswer::Life(Box::new(Life {
                    session: optional(it.session)?,
                    managed: Arc::new(managed),
                    retrying: retrying.collect::<Result<_, WireError>>()?,
                    running: it.running.map(Into::into),
                }))
            }
        })
    }
}

/// What another manager says of items: they must read as such.
pub(crate) fn check_items(lines: &[String]) -> Result<(), WireError> {
    lines
        .iter()
        .try_for_each(|it| named("LifeOptions.managed_state", LifeItem::parse(it)).map(drop))
}
