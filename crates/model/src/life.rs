//! How long a session lives, and what comes after it: what its class says, what its open asked for, and what holds.

use crate::digest::AttributesDigest;
use crate::refusal::FieldError;
use crate::stamp::Stamp;
use crate::state::Reason;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;
use std::collections::{BTreeMap, BTreeSet};

/// Longest idle time and longest life, in milliseconds: a year.
pub const LIFE_MS_MAX: u64 = 366 * 86_400_000;

/// Shortest idle time, in milliseconds. A shorter one would end what its clients just say that they use.
pub const IDLE_MS_MIN: u64 = 1_000;

/// Most restarts in a row that a class may allow.
pub const RESTARTS_MAX: u32 = 1_000;

/// Most life cycles that a class declares.
pub const LIFE_CYCLES_MAX: usize = 64;

/// Longest time that an action may take, in milliseconds.
pub const ACTION_TIMEOUT_MS_MAX: u64 = 3_600_000;

/// Most times that an action is tried again by itself.
pub const ACTION_RETRIES_MAX: u32 = 1_000;

/// Longest time that a program may take to become READY, in milliseconds.
pub const START_TIMEOUT_MS_MAX: u64 = 600_000;

/// What an open asks for instead of what its class says. What is left out is as the class says.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LifeOptions {
    /// It is closed when nobody used it for so long, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_ms: Option<u64>,
    /// It is closed so long after its life began, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_life_ms: Option<u64>,
    /// So long its program may take to become READY, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_timeout_ms: Option<u64>,
    /// So long its program is given to end, in milliseconds, where a close says nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub close_grace_ms: Option<u64>,
    /// How often in a row it is started again after a bad end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restarts: Option<u32>,
    /// Its life-cycle items, with absolute times.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub managed_state: BTreeSet<String>,
}

impl LifeOptions {
    /// Whether nothing is asked for.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// About how many bytes it takes in a message.
    pub fn bytes(&self) -> usize {
        64 + self.managed_state.iter().map(|it| it.len() + 8).sum::<usize>()
    }
}

/// When a session of a class is started again after it ended badly.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Restarts {
    /// At most so often in a row.
    pub times: u32,
    /// Before the first one, in milliseconds; before each later one twice as long.
    pub delay_ms: u64,
    /// At most so long, in milliseconds.
    pub delay_max_ms: u64,
    /// A life that lasted so long begins the count anew, in milliseconds.
    pub steady_ms: u64,
}

impl Restarts {
    /// How long to wait before another life, after so many restarts in a row.
    pub fn delay_after(&self, restarts: u32) -> u64 {
        let factor = 1_u64.checked_shl(restarts).unwrap_or(u64::MAX);
        self.delay_ms.saturating_mul(factor).min(self.delay_max_ms.max(self.delay_ms))
    }
}

/// Who does what an event of a life cycle asks for.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Handler {
    /// Nobody: it is only marked.
    Mark,
    /// A program of the class's folder.
    Action {
        /// The events that have a program; none: one does for all.
        #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
        events: BTreeSet<String>,
        /// How often it is tried again before an operator must look.
        retries: u32,
        /// How long one run may take, in milliseconds.
        timeout_ms: u64,
    },
}

impl Handler {
    /// Whether it does something for an event, by the last word of its item.
    pub fn takes(&self, word: &str) -> bool {
        let name = word.split_once('@').map_or(word, |(event, _)| event);
        match self {
            Self::Mark => true,
            Self::Action { events, .. } => events.is_empty() || events.contains(name),
        }
    }
}

/// What a class says of the lives of its sessions, as far as managers decide by it.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LifeFacts {
    /// Idle time in milliseconds; `None`: it is never closed for that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_ms: Option<u64>,
    /// The longest that an open may ask for; `None`: that of the class, or any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_max_ms: Option<u64>,
    /// Longest life in milliseconds; `None`: it may live for ever.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_life_ms: Option<u64>,
    /// The longest that an open may ask for; `None`: that of the class, or any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_life_max_ms: Option<u64>,
    /// The longest start that an open may ask for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_timeout_max_ms: Option<u64>,
    /// The longest grace that an open may ask for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub close_grace_max_ms: Option<u64>,
    /// Whether it is started again after a bad end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restarts: Option<Restarts>,
    /// Its life cycles.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub life_cycles: BTreeMap<String, Handler>,
}

/// What an open may ask for at most, and what it is told where it asks for more.
fn within(
    field: &str,
    asked: Option<u64>,
    most: Option<u64>,
    says: &str,
) -> Result<(), FieldError> {
    match (asked, most) {
        (Some(asked), Some(most)) if asked > most => {
            let problem = format!("is {asked} ms; the class allows {most} ms at most ({says})");
            Err(FieldError::new(field, problem))
        }
        _ => Ok(()),
    }
}

impl LifeFacts {
    /// Whether nothing is said.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Everything of what an open asks for that the class does not allow. Life-cycle items aside.
    pub fn refuses(&self, asked: &LifeOptions) -> Vec<FieldError> {
        let times = self.restarts.map_or(0, |it| it.times);
        let restarts = match asked.restarts {
            Some(wanted) if wanted > times => {
                let problem =
                    format!("is {wanted}; the class allows {times} at most (restart.times)");
                Err(FieldError::new("life.restarts", problem))
            }
            Some(_) | None => Ok(()),
        };
        let idle = self.idle_max_ms.or(self.idle_ms);
        let life = self.max_life_max_ms.or(self.max_life_ms);
        let (start, grace) = (self.start_timeout_max_ms, self.close_grace_max_ms);
        let checks = [
            within("life.idle_ms", asked.idle_ms, idle, "idle_max, or idle"),
            within("life.max_life_ms", asked.max_life_ms, life, "max_life_max, or max_life"),
            within("life.start_timeout_ms", asked.start_timeout_ms, start, "start_timeout_max"),
            within("life.close_grace_ms", asked.close_grace_ms, grace, "close_grace_max"),
            restarts,
        ];
        checks.into_iter().filter_map(Result::err).collect()
    }

    /// What holds for a life whose open asked for that.
    pub fn holds(&self, asked: &LifeOptions) -> Lifetime {
        Lifetime {
            idle_ms: asked.idle_ms.or(self.idle_ms),
            max_life_ms: asked.max_life_ms.or(self.max_life_ms),
            is_managed: !asked.managed_state.is_empty(),
            restart: self.restart(asked),
            life_cycles: self
                .life_cycles
                .iter()
                .map(|(name, it)| (name.into(), it.clone()))
                .collect(),
            ..Lifetime::default()
        }
    }

    /// When a life is started again, at most so often as its open asked for.
    fn restart(&self, asked: &LifeOptions) -> Option<Restarts> {
        let rule = self.restarts?;
        let times = asked.restarts.unwrap_or(rule.times).min(rule.times);
        (times > 0).then_some(Restarts { times, ..rule })
    }

    /// The life cycles whose events are only marked.
    pub fn marks(&self) -> BTreeSet<String> {
        let is_mark = |it: &(&String, &Handler)| matches!(it.1, Handler::Mark);
        self.life_cycles.iter().filter(is_mark).map(|(name, _)| name.clone()).collect()
    }
}

/// What holds for one life of a session. Also the content of an item: see [`crate::items`].
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Lifetime {
    /// It is closed when nobody used it for so long, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_ms: Option<u64>,
    /// It is closed so long after it began, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_life_ms: Option<u64>,
    /// Its open gave it life-cycle items.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_managed: bool,
    /// The first life of a chain that goes on in this one: nobody opened it anew. `None`: it is the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<Stamp>,
    /// How many restarts in a row led to this life.
    #[serde(skip_serializing_if = "is_zero")]
    pub restarts: u32,
    /// When another life begins, of one that has ended and is started again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restart_at: Option<Stamp>,
    /// How it ended, of one that has ended badly and is started again; in the next life, how the one before did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_as: Option<Reason>,
    /// Of the attributes that its open asked for, once a change made others of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opened_with: Option<AttributesDigest>,
    /// When it is started again after a bad end: as the text of its class said that its node had when it began, and at
    /// most so often in a row as its open asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restart: Option<Restarts>,
    /// Who handles its life cycles, by that text. A list: a map of a few would take ten times the memory.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub life_cycles: Vec<(SmolStr, Handler)>,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Lifetime {
    /// Whether nothing is said.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Who handles a life cycle.
    pub fn handler(&self, life_cycle: &str) -> Option<&Handler> {
        self.life_cycles.iter().find(|(name, _)| name == life_cycle).map(|(_, handler)| handler)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_restart_in_a_row_waits_twice_as_long_up_to_a_limit() {
        let rule = Restarts { times: 9, delay_ms: 500, delay_max_ms: 3_000, steady_ms: 60_000 };
        let delays: Vec<u64> = [0, 1, 2, 3, 200].map(|it| rule.delay_after(it)).to_vec();
        assert_eq!(delays, [500, 1_000, 2_000, 3_000, 3_000]);
    }

    #[test]
    fn an_open_may_ask_for_no_more_than_its_class_allows_and_hears_of_every_mistake() {
        let restarts = Restarts { times: 2, delay_ms: 1, delay_max_ms: 1, steady_ms: 1 };
        let facts = LifeFacts {
            idle_ms: Some(60_000),
            max_life_ms: Some(60_000),
            max_life_max_ms: Some(90_000),
            restarts: Some(restarts),
            ..LifeFacts::default()
        };
        let asked = |idle, life, restarts| LifeOptions {
            idle_ms: Some(idle),
            max_life_ms: Some(life),
            restarts: Some(restarts),
            ..LifeOptions::default()
        };
        assert_eq!(facts.refuses(&asked(60_000, 90_000, 2)), []);
        let refused = facts.refuses(&asked(60_001, 90_001, 3));
        let fields: Vec<&str> = refused.iter().map(|it| it.field.as_str()).collect();
        assert_eq!(fields, ["life.idle_ms", "life.max_life_ms", "life.restarts"]);
        assert_eq!(LifeFacts::default().refuses(&asked(99, 99, 0)), []);
    }

    #[test]
    fn a_program_for_some_events_takes_no_others() {
        let events = BTreeSet::from(["paid".to_owned(), "bill?sent".to_owned()]);
        let some = Handler::Action { events, retries: 1, timeout_ms: 1 };
        assert!(some.takes("paid@270101000000000") && some.takes("bill?sent"));
        assert!(!some.takes("sent@270101000000000") && Handler::Mark.takes("sent"));
    }
}
