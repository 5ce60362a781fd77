//! What sessions take of their nodes, and what nodes offer.

use crate::ids::{LabelName, LabelValue};
use crate::pool::{LoadLimit, PLACES_MAX};
use crate::refusal::FieldError;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Most labels of a node, a pool or a class.
pub const LABELS_MAX: usize = 32;

/// What a node is, as its operator says: `zone = a`, `gpu = yes`.
pub type Labels = BTreeMap<LabelName, LabelValue>;

/// Reads one label as operators write it, `NAME=VALUE`.
///
/// # Errors
/// No equals sign, or a part that is no name.
pub fn parse_label(text: &str) -> Result<(LabelName, LabelValue), FieldError> {
    let Some((name, value)) = text.split_once('=') else {
        return Err(FieldError::new("label", format!("is {text:?}; it must be NAME=VALUE")));
    };
    Ok((LabelName::parse_new(name)?, LabelValue::parse_new(value)?))
}

/// A label as operators write it.
pub fn label_text((name, value): (&LabelName, &LabelValue)) -> String {
    format!("{name}={value}")
}

/// What a session takes of its node, or what a node offers. A node that offers no CPU, or no memory, did not say
/// how much it has: that is not counted there.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
pub struct Resources {
    /// Places.
    pub places: u32,
    /// Processors, in thousandths.
    pub cpu_millis: u32,
    /// Memory, in MiB.
    pub memory_mib: u32,
}

impl Resources {
    /// Places alone.
    pub const fn of_places(places: u32) -> Self {
        Self { places, cpu_millis: 0, memory_mib: 0 }
    }

    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.each(other, u32::saturating_add)
    }

    /// So many times that.
    #[must_use]
    pub fn times(self, count: u32) -> Self {
        self.each(self, |amount, _| amount.saturating_mul(count))
    }

    /// Of each amount the larger one.
    #[must_use]
    pub fn most(self, other: Self) -> Self {
        self.each(other, u32::max)
    }

    /// Of each amount the smaller one.
    #[must_use]
    pub fn least(self, other: Self) -> Self {
        self.each(other, u32::min)
    }

    fn each(self, other: Self, of: impl Fn(u32, u32) -> u32) -> Self {
        Self {
            places: of(self.places, other.places),
            cpu_millis: of(self.cpu_millis, other.cpu_millis),
            memory_mib: of(self.memory_mib, other.memory_mib),
        }
    }

    /// What is left of it.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        self.each(other, u32::saturating_sub)
    }
}

/// What of a node is in use. Its load is the largest part that is: of places, CPU and memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct NodeLoad {
    /// What its sessions take.
    pub used: Resources,
    /// What it has.
    pub offered: Resources,
    /// How many of its sessions scale-in must not end.
    pub kept: u32,
}

impl NodeLoad {
    /// Of a node that counts places alone.
    pub const fn of_places(used: u32, places: u32) -> Self {
        let (used, offered) = (Resources::of_places(used), Resources::of_places(places));
        Self { used, offered, kept: 0 }
    }

    /// Whether the node takes one more session that takes so much: while its load is below the limit, and it has
    /// that left of everything. What a node does not offer at all is not counted there.
    pub fn has_room(self, limit: LoadLimit, takes: Resources) -> bool {
        self.room(limit, takes) > 0
    }

    /// How many sessions that take so much the node takes, one after another.
    pub fn room(self, limit: LoadLimit, takes: Resources) -> u32 {
        let of_each = self.counted(takes).map(|(used, offered, more)| {
            let below = limit.room(offered).saturating_sub(used);
            // What takes nothing of it changes nothing of it.
            let by_limit =
                if more == 0 && below > 0 { u32::MAX } else { below.div_ceil(more.max(1)) };
            let by_rest = offered.saturating_sub(used).checked_div(more).unwrap_or(u32::MAX);
            by_limit.min(by_rest)
        });
        of_each.min().unwrap_or(0)
    }

    /// Load in thousandths.
    pub fn permille(self) -> u64 {
        let parts = self.counted(Resources::default());
        let parts =
            parts.map(|(used, offered, _)| u64::from(used) * 1_000 / u64::from(offered.max(1)));
        parts.max().unwrap_or(0)
    }

    /// What is used of each amount that the node offers, how much it offers, and how much more is asked for.
    fn counted(self, more: Resources) -> impl Iterator<Item = (u32, u32, u32)> {
        let Resources { places, cpu_millis, memory_mib } = self.used;
        let offered = self.offered;
        let optional = [
            (cpu_millis, offered.cpu_millis, more.cpu_millis),
            (memory_mib, offered.memory_mib, more.memory_mib),
        ];
        let optional = optional.into_iter().filter(|(_, offered, _)| *offered > 0);
        std::iter::once((places, offered.places, more.places)).chain(optional)
    }
}

/// What a class needs of its node.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Needs {
    /// How many places a session takes, from 1.
    #[serde(skip_serializing_if = "is_one")]
    pub weight: u32,
    /// Processors that a session takes, in thousandths.
    #[serde(skip_serializing_if = "is_zero")]
    pub cpu_millis: u32,
    /// Memory that a session takes, in MiB.
    #[serde(skip_serializing_if = "is_zero")]
    pub memory_mib: u32,
    /// Labels that the node must have.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: Labels,
}

impl Default for Needs {
    fn default() -> Self {
        Self { weight: 1, cpu_millis: 0, memory_mib: 0, labels: Labels::new() }
    }
}

impl Needs {
    /// What one session takes.
    pub fn takes(&self) -> Resources {
        Resources {
            places: self.weight.max(1),
            cpu_millis: self.cpu_millis,
            memory_mib: self.memory_mib,
        }
    }

    /// Whether a node with these labels has those that are needed.
    pub fn fits(&self, labels: &Labels) -> bool {
        self.labels.iter().all(|(name, value)| labels.get(name) == Some(value))
    }

    /// Whether a class that needs this says anything at all.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// What is wrong with it.
    ///
    /// # Errors
    /// Each field that is.
    pub fn check(&self) -> Result<(), Vec<FieldError>> {
        let mut mistakes = Vec::new();
        if !(1..=PLACES_MAX).contains(&self.weight) {
            let problem = format!("is {}; it must be 1 to {PLACES_MAX}", self.weight);
            mistakes.push(FieldError::new("weight", problem));
        }
        if self.labels.len() > LABELS_MAX {
            let problem = format!("has {} entries; the most is {LABELS_MAX}", self.labels.len());
            mistakes.push(FieldError::new("labels", problem));
        }
        if mistakes.is_empty() { Ok(()) } else { Err(mistakes) }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_one(number: &u32) -> bool {
    *number == 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn limit(permille: u32) -> LoadLimit {
        LoadLimit::of_permille(permille).unwrap()
    }

    fn labels(texts: &[&str]) -> Labels {
        texts.iter().map(|it| parse_label(it).unwrap()).collect()
    }

    #[test]
    fn a_label_is_a_name_an_equals_sign_and_a_value() {
        let (name, value) = parse_label("zone=eu=1").unwrap();
        assert_eq!((name.as_str(), value.as_str()), ("zone", "eu=1"));
        for (wrong, said) in
            [("zone", "must be NAME=VALUE"), ("=a", "must not be empty"), ("zone=", "empty")]
        {
            let error = parse_label(wrong).unwrap_err().to_string();
            assert!(error.contains(said), "{wrong}: {error}");
        }
    }

    #[test]
    fn a_node_fits_that_has_every_label_that_is_needed() {
        let needs = Needs { labels: labels(&["gpu=yes"]), ..Needs::default() };
        assert!(needs.fits(&labels(&["gpu=yes", "zone=a"])));
        assert!(!needs.fits(&labels(&["gpu=no"])));
        assert!(!needs.fits(&Labels::new()));
        assert!(Needs::default().fits(&Labels::new()));
    }

    #[test]
    fn needs_that_say_nothing_are_written_as_nothing_and_weigh_one_place() {
        assert_eq!(serde_json::to_string(&Needs::default()).unwrap(), "{}");
        let read: Needs = serde_json::from_str("{}").unwrap();
        assert_eq!((read.takes(), read.is_default()), (Resources::of_places(1), true));
        let wrong = Needs { weight: 0, ..Needs::default() }.check().unwrap_err();
        assert!(wrong[0].to_string().contains("weight is 0; it must be 1 to"), "{wrong:?}");
    }

    #[test]
    fn the_largest_part_that_is_in_use_is_the_load_and_what_is_not_offered_does_not_count() {
        let used = Resources { places: 1, cpu_millis: 3_000, memory_mib: 900 };
        let offered = Resources { places: 10, cpu_millis: 4_000, memory_mib: 0 };
        let load = NodeLoad { used, offered, kept: 0 };
        assert_eq!(load.permille(), 750);
        let takes = |cpu_millis, memory_mib| Resources { places: 1, cpu_millis, memory_mib };
        assert!(load.has_room(limit(800), takes(1_000, 5_000)));
        assert!(!load.has_room(limit(800), takes(1_001, 0)));
        assert!(!load.has_room(limit(750), takes(0, 0)));
        assert!(!NodeLoad::default().has_room(limit(1_000), takes(0, 0)));
    }

    proptest! {
        #[test]
        fn a_node_has_room_as_often_as_is_counted(
            (places, cpu, memory) in (0u32..30, 0u32..30, 0u32..30),
            (weight, millis, mib) in (1u32..5, 0u32..5, 0u32..5),
            permille in 1u32..=1_000,
        ) {
            let offered = Resources { places, cpu_millis: cpu, memory_mib: memory };
            let takes = Resources { places: weight, cpu_millis: millis, memory_mib: mib };
            let mut load = NodeLoad { used: Resources::default(), offered, kept: 0 };
            let counted = load.room(limit(permille), takes);
            for _ in 0..counted {
                prop_assert!(load.has_room(limit(permille), takes));
                load.used = load.used.plus(takes);
            }
            prop_assert!(!load.has_room(limit(permille), takes));
        }
    }
}
