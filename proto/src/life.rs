//! How long sessions live, what comes after, and what their events run, on the wire.

use crate::lives::check_items;
use crate::v1;
use crate::wire::{WireError, named};
use rota_model::node_msg::{ACTION_OUTPUT_BYTES_MAX, Action, ActionEnd};
use rota_model::{
    ACTION_RETRIES_MAX, ACTION_TIMEOUT_MS_MAX, FieldError, GRACE_MS_MAX, Handler, IDLE_MS_MIN,
    LIFE_CYCLES_MAX, LIFE_MS_MAX, LifeFacts, LifeOptions, Lifetime, RESTARTS_MAX, Restarts,
    START_TIMEOUT_MS_MAX, Stamp,
};
use std::ops::RangeInclusive;
use std::sync::Arc;

impl From<&LifeOptions> for v1::LifeOptions {
    fn from(it: &LifeOptions) -> Self {
        Self {
            idle_ms: it.idle_ms,
            max_life_ms: it.max_life_ms,
            start_timeout_ms: it.start_timeout_ms,
            close_grace_ms: it.close_grace_ms,
            restarts: it.restarts,
            managed_state: it.managed_state.iter().cloned().collect(),
        }
    }
}

/// Checks what an open asks for. Gives every mistake; life-cycle items aside.
pub(crate) fn options(it: v1::LifeOptions) -> Result<Option<Arc<LifeOptions>>, Vec<FieldError>> {
    let mut mistakes = Vec::new();
    let mut within = |field: &str, value: Option<u64>, range: RangeInclusive<u64>, unit: &str| {
        if let Some(value) = value.filter(|it| !range.contains(it)) {
            let (least, most) = (range.start(), range.end());
            let problem = format!("is {value}{unit}; it must be {least} to {most}{unit}");
            mistakes.push(FieldError::new(field, problem));
        }
    };
    within("life.idle_ms", it.idle_ms, IDLE_MS_MIN..=LIFE_MS_MAX, " ms");
    within("life.max_life_ms", it.max_life_ms, 1_000..=LIFE_MS_MAX, " ms");
    within("life.start_timeout_ms", it.start_timeout_ms, 100..=START_TIMEOUT_MS_MAX, " ms");
    within("life.close_grace_ms", it.close_grace_ms, 0..=GRACE_MS_MAX, " ms");
    within("life.restarts", it.restarts.map(u64::from), 0..=RESTARTS_MAX.into(), "");
    if !mistakes.is_empty() {
        return Err(mistakes);
    }
    let options = LifeOptions {
        idle_ms: it.idle_ms,
        max_life_ms: it.max_life_ms,
        start_timeout_ms: it.start_timeout_ms,
        close_grace_ms: it.close_grace_ms,
        restarts: it.restarts,
        managed_state: it.managed_state.into_iter().collect(),
    };
    Ok((!options.is_default()).then(|| Arc::new(options)))
}

/// What another manager, or a node, says that an open asked for.
pub(crate) fn options_from(
    it: Option<v1::LifeOptions>,
) -> Result<Option<Arc<LifeOptions>>, WireError> {
    check_items(it.as_ref().map_or(&[], |it| it.managed_state.as_slice()))?;
    let checked = it.map(options).transpose().map(Option::flatten);
    named("SessionSpec.life", checked.map_err(|mut mistakes| mistakes.swap_remove(0)))
}

/// What a session on the wire says of its life.
pub(crate) fn lifetime_from(session: &v1::Session) -> Result<Option<Arc<Lifetime>>, WireError> {
    let restart_at = (session.restart_at > 0).then(|| Stamp::parse(session.restart_at));
    let lifetime = Lifetime {
        idle_ms: session.idle_ms,
        max_life_ms: session.max_life_ms,
        is_managed: false,
        origin: None,
        restarts: session.restarts,
        restart_at: named("Session.restart_at", restart_at.transpose())?,
        ended_as: None,
        opened_with: None,
        restart: None,
        life_cycles: Vec::new(),
    };
    Ok((!lifetime.is_default()).then(|| Arc::new(lifetime)))
}

impl From<&LifeFacts> for v1::LifeFacts {
    fn from(it: &LifeFacts) -> Self {
        use v1::life_facts::{Handler as WireHandler, Restarts as WireRestarts};
        let restarts = it.restarts.map(|restarts| WireRestarts {
            times: restarts.times,
            delay_ms: restarts.delay_ms,
            delay_max_ms: restarts.delay_max_ms,
            steady_ms: restarts.steady_ms,
        });
        let handler = |handler: &Handler| match handler {
            Handler::Mark => WireHandler { mark: true, ..WireHandler::default() },
            Handler::Action { events, retries, timeout_ms } => {
                let events = events.iter().cloned().collect();
                WireHandler { mark: false, events, retries: *retries, timeout_ms: *timeout_ms }
            }
        };
        let life_cycles = it.life_cycles.iter().map(|(name, it)| (name.clone(), handler(it)));
        Self {
            idle_ms: it.idle_ms,
            max_life_ms: it.max_life_ms,
            idle_max_ms: it.idle_max_ms,
            max_life_max_ms: it.max_life_max_ms,
            start_timeout_max_ms: it.start_timeout_max_ms,
            close_grace_max_ms: it.close_grace_max_ms,
            restarts,
            life_cycles: life_cycles.collect(),
        }
    }
}

/// Classes are read by nodes, and a number beyond the bounds of their reference is taken as the bound.
impl TryFrom<v1::LifeFacts> for LifeFacts {
    type Error = WireError;
    fn try_from(it: v1::LifeFacts) -> Result<Self, WireError> {
        if it.life_cycles.len() > LIFE_CYCLES_MAX {
            let problem = format!("are {}; the limit is {LIFE_CYCLES_MAX}", it.life_cycles.len());
            return Err(WireError::new("LifeFacts.life_cycles", problem));
        }
        let handler = |handler: v1::life_facts::Handler| match handler.mark {
            true => Handler::Mark,
            false => Handler::Action {
                events: handler.events.into_iter().collect(),
                retries: handler.retries.min(ACTION_RETRIES_MAX),
                timeout_ms: handler.timeout_ms.clamp(1, ACTION_TIMEOUT_MS_MAX),
            },
        };
        let time = |it: Option<u64>| it.map(|it| it.clamp(IDLE_MS_MIN, LIFE_MS_MAX));
        let life_cycles = it.life_cycles.into_iter().map(|(name, it)| (name, handler(it)));
        Ok(Self {
            idle_ms: time(it.idle_ms),
            idle_max_ms: time(it.idle_max_ms),
            max_life_ms: time(it.max_life_ms),
            max_life_max_ms: time(it.max_life_max_ms),
            start_timeout_max_ms: it.start_timeout_max_ms.map(|it| it.min(START_TIMEOUT_MS_MAX)),
            close_grace_max_ms: it.close_grace_max_ms.map(|it| it.min(GRACE_MS_MAX)),
            restarts: it.restarts.map(|restarts| Restarts {
                times: restarts.times.min(RESTARTS_MAX),
                delay_ms: restarts.delay_ms.min(LIFE_MS_MAX),
                delay_max_ms: restarts.delay_max_ms.min(LIFE_MS_MAX),
                steady_ms: restarts.steady_ms.min(LIFE_MS_MAX),
            }),
            life_cycles: life_cycles.collect(),
        })
    }
}

impl From<ActionEnd> for v1::node_answer::Acted {
    fn from(it: ActionEnd) -> Self {
        match it {
            ActionEnd::Done { output } => Self { done: true, text: output, code: String::new() },
            ActionEnd::Failed { code, report } => Self { done: false, text: report, code },
        }
    }
}

impl TryFrom<v1::node_answer::Acted> for ActionEnd {
    type Error = WireError;
    fn try_from(it: v1::node_answer::Acted) -> Result<Self, WireError> {
        if it.text.len() > ACTION_OUTPUT_BYTES_MAX {
            let problem =
                format!("is {} bytes; the limit is {ACTION_OUTPUT_BYTES_MAX}", it.text.len());
            return Err(WireError::new("Acted.text", problem));
        }
        Ok(match it.done {
            true => ActionEnd::Done { output: it.text },
            false => ActionEnd::Failed { code: it.code, report: it.text },
        })
    }
}

/// An action on the wire.
pub(crate) fn action(it: &v1::Act) -> Result<Action, WireError> {
    Ok(Action {
        life: named("Act.life", Stamp::parse(it.life))?,
        life_cycle: it.life_cycle.clone(),
        word: it.word.clone(),
        failures: it.failures,
        timeout_ms: it.timeout_ms,
        document: it.document.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_a_node_tells_of_a_class_are_bounded() {
        let handler = v1::life_facts::Handler {
            timeout_ms: u64::MAX,
            retries: u32::MAX,
            ..Default::default()
        };
        let restarts = v1::life_facts::Restarts {
            times: u32::MAX,
            delay_ms: u64::MAX,
            delay_max_ms: u64::MAX,
            steady_ms: u64::MAX,
        };
        let facts = LifeFacts::try_from(v1::LifeFacts {
            idle_ms: Some(0),
            max_life_ms: Some(u64::MAX),
            start_timeout_max_ms: Some(u64::MAX),
            close_grace_max_ms: Some(u64::MAX),
            restarts: Some(restarts),
            life_cycles: [("bill".to_owned(), handler)].into(),
            ..Default::default()
        });
        let facts = facts.expect("they are bounded");
        assert_eq!((facts.idle_ms, facts.max_life_ms), (Some(IDLE_MS_MIN), Some(LIFE_MS_MAX)));
        let longest = (facts.start_timeout_max_ms, facts.close_grace_max_ms);
        assert_eq!(longest, (Some(START_TIMEOUT_MS_MAX), Some(GRACE_MS_MAX)));
        let rule = facts.restarts.expect("it was told");
        assert_eq!((rule.times, rule.delay_max_ms), (RESTARTS_MAX, LIFE_MS_MAX));
        let handler = Handler::Action {
            events: Default::default(),
            retries: ACTION_RETRIES_MAX,
            timeout_ms: ACTION_TIMEOUT_MS_MAX,
        };
        assert_eq!(facts.life_cycles["bill"], handler);
    }
}
