//! What operators say of a pool of nodes.

use crate::class_facts::ClassText;
use crate::ids::{ClassName, Namespace, PoolName, ProvisionerName, check_text};
use crate::pool_schedule::{self, PoolSchedule};
use crate::refusal::FieldError;
use crate::resources::{LABELS_MAX, Labels};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;

/// Most nodes of a pool.
pub const POOL_NODES_MAX: u32 = 10_000;

/// Most places of a node.
pub const PLACES_MAX: u32 = 1_000_000;

/// Longest description, in bytes.
pub const POOL_TEXT_BYTES_MAX: usize = 1_024;

/// Longest name of a pool whose nodes are started, in bytes.
pub const GROWING_NAME_BYTES_MAX: usize = 64;

/// Longest delay before a node is ended that is not needed: a year.
pub const SCALE_IN_DELAY_S_MAX: u32 = 366 * 24 * 3_600;

/// Most namespaces that a pool may list.
pub const POOL_NAMESPACES_MAX: usize = 64;

/// T: the load at which a node takes no more sessions. Above 0, at most 1; kept in thousandths.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LoadLimit(u32);

impl LoadLimit {
    /// Every place may be used.
    pub const FULL: Self = Self(1_000);
    /// Where nobody says anything else.
    pub const USUAL: Self = Self(800);

    /// From a share of a node's places. Field: `load_limit`.
    pub fn parse(share: f64) -> Result<Self, FieldError> {
        let wrong = || FieldError::new("load_limit", format!("is {share}; it must be 0.001 to 1"));
        if !(0.001..=1.0).contains(&share) {
            return Err(wrong());
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "in bounds")]
        let permille = (share * 1_000.0).round() as u32;
        Self::of_permille(permille).ok_or_else(wrong)
    }

    /// From thousandths; `None` out of bounds.
    pub fn of_permille(permille: u32) -> Option<Self> {
        (1..=1_000).contains(&permille).then_some(Self(permille))
    }

    /// In thousandths.
    pub fn permille(self) -> u32 {
        self.0
    }

    /// As a share of a node's places.
    pub fn share(self) -> f64 {
        f64::from(self.0) / 1_000.0
    }

    /// How many sessions a node with so many places takes: it takes one more while its load is below the limit.
    pub fn room(self, places: u32) -> u32 {
        let room = (u64::from(places) * u64::from(self.0)).div_ceil(1_000);
        u32::try_from(room).unwrap_or(u32::MAX).min(places)
    }
}

impl fmt::Display for LoadLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.share())
    }
}

impl fmt::Debug for LoadLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for LoadLimit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.share())
    }
}

impl<'de> Deserialize<'de> for LoadLimit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let share = f64::deserialize(deserializer)?;
        Self::parse(share).map_err(|it| serde::de::Error::custom(it.problem))
    }
}

/// Which of the nodes that have room is chosen.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// The most loaded one: others become empty, and can go.
    #[default]
    Pack,
    /// The least loaded one: the loss of a node ends few sessions.
    Spread,
}

impl Policy {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Pack, Self::Spread];

    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pack => "pack",
            Self::Spread => "spread",
        }
    }

    /// From how it is written. Field: `policy`.
    pub fn parse(text: &str) -> Result<Self, FieldError> {
        Self::ALL.into_iter().find(|it| it.as_str() == text).ok_or_else(|| {
            FieldError::new("policy", format!("is {text:?}; it must be \"pack\" or \"spread\""))
        })
    }
}

/// What operators say of a pool. What is left out is as here.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PoolSettings {
    /// A sentence for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Who starts nodes: the name of a provisioner that managers were started with. `None`: nodes come by
    /// themselves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provisioner: Option<ProvisionerName>,
    /// Places of each node that is started; needed with a provisioner.
    #[serde(skip_serializing_if = "is_zero")]
    pub places: u32,
    /// T; `None`: as managers were started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_limit: Option<LoadLimit>,
    /// Which of the nodes that have room is chosen.
    pub policy: Policy,
    /// So many nodes are kept, whether they are needed or not.
    #[serde(skip_serializing_if = "is_zero")]
    pub min_nodes: u32,
    /// More nodes are never started; needed with a provisioner.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_nodes: u32,
    /// So many places are kept free, so that an open need not wait for a node.
    #[serde(skip_serializing_if = "is_zero")]
    pub warm_places: u32,
    /// As much room as so many empty nodes have is kept free; instead of `warm_places`.
    #[serde(skip_serializing_if = "is_zero")]
    pub warm_nodes: u32,
    /// A node that was started is ended after so many seconds in which nothing ran there; 0: never.
    #[serde(skip_serializing_if = "is_zero")]
    pub scale_in_delay_s: u32,
    /// A node counts as not needed below this load, if nothing runs there but sessions that may always be disturbed;
    /// those are closed then. `None`: only while nothing runs there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale_in_below: Option<LoadLimit>,
    /// Namespaces whose sessions may run there; none: all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<Namespace>,
    /// Labels of each node that is started.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: Labels,
    /// Processors of each node that is started, in thousandths; 0: those of its machine.
    #[serde(skip_serializing_if = "is_zero")]
    pub cpu_millis: u32,
    /// Memory of each node that is started, in MiB; 0: that of its machine.
    #[serde(skip_serializing_if = "is_zero")]
    pub memory_mib: u32,
    /// What is kept by the time of day, in place of the minimum and the warm buffer.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "pool_schedule::read_list")]
    pub schedules: Vec<PoolSchedule>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl PoolSettings {
    /// Names of the fields, as they are written.
    pub const FIELDS: [&'static str; 16] = [
        "description",
        "provisioner",
        "places",
        "load_limit",
        "policy",
        "min_nodes",
        "max_nodes",
        "warm_places",
        "warm_nodes",
        "scale_in_delay_s",
        "scale_in_below",
        "namespaces",
        "labels",
        "cpu_millis",
        "memory_mib",
        "schedules",
    ];

    /// Those that mean nothing without a provisioner.
    pub const OF_GROWTH: [&'static str; 11] = [
        "places",
        "min_nodes",
        "max_nodes",
        "warm_places",
        "warm_nodes",
        "scale_in_delay_s",
        "scale_in_below",
        "labels",
        "cpu_millis",
        "memory_mib",
        "schedules",
    ];

    /// Every mistake, under the name of its field.
    pub fn mistakes(&self) -> Vec<FieldError> {
        let mut wrong = Vec::new();
        let mut add = |field: &str, problem: String| wrong.push(FieldError::new(field, problem));
        if !self.description.is_empty()
            && let Err(it) = check_text("description", &self.description, POOL_TEXT_BYTES_MAX)
        {
            add("description", it.problem);
        }
        if self.places > PLACES_MAX {
            add("places", format!("is {}; the most is {PLACES_MAX}", self.places));
        }
        for (field, nodes) in [("min_nodes", self.min_nodes), ("max_nodes", self.max_nodes)] {
            if nodes > POOL_NODES_MAX {
                add(field, format!("is {nodes}; the most is {POOL_NODES_MAX}"));
            }
        }
        if self.min_nodes > self.max_nodes {
            let (min, max) = (self.min_nodes, self.max_nodes);
            add(
                "min_nodes",
                format!("is {min}, and max_nodes is {max}: it must not be above that"),
            );
        }
        match &self.provisioner {
            Some(name) => {
                let needed = format!("is needed with provisioner {name:?}; give 1 or more");
                for (field, number) in [("places", self.places), ("max_nodes", self.max_nodes)] {
                    if number == 0 {
                        add(field, needed.clone());
                    }
                }
            }
            None => {
                let useless = "starts nothing without a provisioner: name one, or leave this out";
                let of_growth = [
                    ("places", self.places),
                    ("min_nodes", self.min_nodes),
                    ("max_nodes", self.max_nodes),
                    ("warm_places", self.warm_places),
                    ("warm_nodes", self.warm_nodes),
                    ("scale_in_delay_s", self.scale_in_delay_s),
                    ("cpu_millis", self.cpu_millis),
                    ("memory_mib", self.memory_mib),
                ];
                for (field, number) in of_growth {
                    if number > 0 {
                        add(field, useless.to_owned());
                    }
                }
                if self.scale_in_below.is_some() {
                    add("scale_in_below", useless.to_owned());
                }
                if !self.labels.is_empty() {
                    add("labels", useless.to_owned());
                }
            }
        }
        self.mistakes_of_room(&mut add);
        self.mistakes_of_schedules(&mut add);
        if self.namespaces.len() > POOL_NAMESPACES_MAX {
            let count = self.namespaces.len();
            add("namespaces", format!("are {count}; the limit is {POOL_NAMESPACES_MAX}"));
        }
        if self.labels.len() > LABELS_MAX {
            add("labels", format!("are {}; the limit is {LABELS_MAX}", self.labels.len()));
        }
        wrong
    }

    /// What is wrong with how much is kept free, and with when nodes are ended.
    fn mistakes_of_room(&self, add: &mut impl FnMut(&str, String)) {
        if self.warm_places > 0 && self.warm_nodes > 0 {
            add(
                "warm_nodes",
                "is there beside warm_places: give one of them, and `none` or 0 for the other"
                    .to_owned(),
            );
        }
        if self.warm_nodes > POOL_NODES_MAX {
            add("warm_nodes", format!("is {}; the most is {POOL_NODES_MAX}", self.warm_nodes));
        }
        if self.provisioner.is_some() && self.warm_nodes > self.max_nodes {
            let (warm, max) = (self.warm_nodes, self.max_nodes);
            add(
                "warm_nodes",
                format!("is {warm}, and max_nodes is {max}: it must not be above that"),
            );
        }
        let delay_s = self.scale_in_delay_s;
        if delay_s > SCALE_IN_DELAY_S_MAX {
            let most = SCALE_IN_DELAY_S_MAX;
            add("scale_in_delay_s", format!("is {delay_s}; the most is {most}, which is 366 days"));
        }
        let Some(below) = self.scale_in_below.filter(|_| self.provisioner.is_some()) else {
            return;
        };
        if delay_s == 0 {
            add("scale_in_below", "does nothing without scale_in_delay_s; give both".to_owned());
        }
        if let Some(limit) = self.load_limit.filter(|limit| below >= *limit) {
            let problem = format!("is {below}, and load_limit is {limit}: it must be below that");
            add("scale_in_below", problem);
        }
    }

    /// Every mistake, that of the pool's name included: names of nodes that are started begin with it, and so do
    /// their folders.
    pub fn mistakes_of(&self, name: &PoolName) -> Vec<FieldError> {
        let mut wrong = self.mistakes();
        let text = name.as_str();
        if self.provisioner.is_some()
            && (text.len() > GROWING_NAME_BYTES_MAX || text.contains('/') || text.starts_with('.'))
        {
            let problem = format!(
                "is {text:?}; with a provisioner it has at most {GROWING_NAME_BYTES_MAX} bytes, no slash, and \
                 no dot at its beginning"
            );
            wrong.push(FieldError::new("name", problem));
        }
        wrong
    }

    /// Whether sessions of a namespace may run there.
    pub fn admits(&self, namespace: &Namespace) -> bool {
        self.namespaces.is_empty() || self.namespaces.contains(namespace)
    }
}

/// What whoever starts nodes is told.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct NewNodes {
    /// The pool.
    pub pool: PoolName,
    /// Who starts them.
    pub provisioner: ProvisionerName,
    /// Places of each.
    pub places: u32,
    /// Labels of each.
    pub labels: Labels,
    /// Processors of each in thousandths, and memory in MiB; 0: those of its machine.
    pub cpu_millis: u32,
    /// See `cpu_millis`.
    pub memory_mib: u32,
    /// T until they are told that of the pool.
    pub load_limit: LoadLimit,
}

/// What managers know of a pool.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct KnownPool {
    /// What operators said; `None`: nobody described it.
    pub settings: Option<PoolSettings>,
    /// The text that counts of each class that its nodes have or had.
    pub texts: BTreeMap<ClassName, ClassText>,
}

/// The pools that managers know of.
pub type PoolsByName = BTreeMap<PoolName, KnownPool>;

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(settings: &PoolSettings) -> Vec<String> {
        settings.mistakes().into_iter().map(|it| it.field).collect()
    }

    fn grown() -> PoolSettings {
        PoolSettings {
            provisioner: Some(ProvisionerName::parse("process").unwrap()),
            places: 10,
            min_nodes: 1,
            max_nodes: 4,
            ..PoolSettings::default()
        }
    }

    #[test]
    fn every_mistake_of_a_pool_is_told_with_its_field() {
        assert_eq!(fields(&PoolSettings::default()), [""; 0]);
        assert_eq!(fields(&grown()), [""; 0]);
        let lost = PoolSettings { provisioner: None, warm_places: 3, ..grown() };
        assert_eq!(fields(&lost), ["places", "min_nodes", "max_nodes", "warm_places"]);
        let bare = PoolSettings { places: 0, max_nodes: 0, min_nodes: 0, ..grown() };
        assert_eq!(fields(&bare), ["places", "max_nodes"]);
        let wrong = PoolSettings {
            description: "a\nb".into(),
            places: PLACES_MAX + 1,
            min_nodes: 5,
            max_nodes: POOL_NODES_MAX + 1,
            namespaces: vec![Namespace::default_space(); POOL_NAMESPACES_MAX + 1],
            ..grown()
        };
        assert_eq!(fields(&wrong), ["description", "places", "max_nodes", "namespaces"]);
        assert_eq!(fields(&PoolSettings { min_nodes: 5, ..grown() }), ["min_nodes"]);
    }

    #[test]
    fn nodes_are_ended_after_a_delay_and_below_a_load_that_fit_the_pool() {
        let limited = |permille| PoolSettings {
            load_limit: LoadLimit::of_permille(500),
            scale_in_below: LoadLimit::of_permille(permille),
            scale_in_delay_s: 60,
            ..grown()
        };
        assert_eq!(fields(&limited(499)), [""; 0]);
        assert_eq!(fields(&limited(500)), ["scale_in_below"]);
        let never = PoolSettings { scale_in_delay_s: 0, ..limited(100) };
        assert_eq!(fields(&never), ["scale_in_below"]);
        let both = PoolSettings { warm_places: 1, warm_nodes: 1, ..grown() };
        assert_eq!(fields(&both), ["warm_nodes"]);
        assert_eq!(fields(&PoolSettings { warm_nodes: 5, ..grown() }), ["warm_nodes"]);
        let far = PoolSettings {
            max_nodes: POOL_NODES_MAX,
            warm_nodes: POOL_NODES_MAX + 1,
            scale_in_delay_s: SCALE_IN_DELAY_S_MAX + 1,
            ..grown()
        };
        assert_eq!(fields(&far), ["warm_nodes", "warm_nodes", "scale_in_delay_s"]);
        let alone = PoolSettings { warm_nodes: 1, ..limited(100) };
        let alone =
            PoolSettings { provisioner: None, places: 0, max_nodes: 0, min_nodes: 0, ..alone };
        assert_eq!(fields(&alone), ["warm_nodes", "scale_in_delay_s", "scale_in_below"]);
    }

    #[test]
    fn a_pool_whose_nodes_are_started_has_a_name_that_begins_theirs() {
        let wrong = |name: &str, it: PoolSettings| it.mistakes_of(&PoolName::parse(name).unwrap());
        for name in ["a/b", ".a", &"x".repeat(65)] {
            let told = wrong(name, grown());
            assert_eq!(told.iter().map(|it| &*it.field).collect::<Vec<_>>(), ["name"], "{name}");
            assert_eq!(wrong(name, PoolSettings::default()), []);
        }
        assert_eq!(wrong(&"x".repeat(64), grown()), []);
    }

    #[test]
    fn a_load_limit_is_a_share_above_none_and_up_to_all() {
        for (share, permille) in [(0.8, 800), (1.0, 1_000), (0.001, 1), (0.3335, 334)] {
            assert_eq!(LoadLimit::parse(share).unwrap().permille(), permille);
        }
        for share in [0.0, 0.0009, -1.0, 1.0001, 1.001, 80.0, f64::NAN, f64::INFINITY] {
            let problem = LoadLimit::parse(share).unwrap_err().problem;
            assert_eq!(problem, format!("is {share}; it must be 0.001 to 1"));
        }
    }

    #[test]
    fn a_node_takes_sessions_while_its_load_is_below_the_limit() {
        let room = |permille, places| LoadLimit::of_permille(permille).unwrap().room(places);
        assert_eq!([room(800, 10), room(800, 4), room(1_000, 7), room(1, 10)], [8, 4, 7, 1]);
        assert_eq!([room(500, 3), room(999, u32::MAX), room(800, 0)], [2, 4_290_672_328, 0]);
    }

    #[test]
    fn settings_are_written_as_people_write_them() {
        let text = serde_json::json!({"provisioner": "process", "places": 10, "min_nodes": 1,
            "max_nodes": 4, "policy": "pack"});
        assert_eq!(serde_json::to_value(grown()).unwrap(), text);
        let limited: PoolSettings =
            serde_json::from_str(r#"{"load_limit": 0.8, "policy": "spread"}"#).unwrap();
        assert_eq!(limited.load_limit.unwrap().permille(), 800);
        assert_eq!(limited.policy, Policy::Spread);
        for wrong in [r#"{"load_limit": 2}"#, r#"{"policy": "fast"}"#, r#"{"size": 3}"#] {
            assert!(serde_json::from_str::<PoolSettings>(wrong).is_err(), "{wrong}");
        }
        let all = PoolSettings {
            description: "d".into(),
            load_limit: LoadLimit::of_permille(1),
            warm_places: 1,
            warm_nodes: 1,
            scale_in_delay_s: 60,
            scale_in_below: LoadLimit::of_permille(1),
            namespaces: vec![Namespace::default_space()],
            labels: [crate::resources::parse_label("gpu=yes").unwrap()].into(),
            cpu_millis: 1,
            memory_mib: 1,
            schedules: vec![PoolSchedule::default()],
            ..grown()
        };
        let written = serde_json::to_value(all).unwrap();
        let names: Vec<_> = written.as_object().unwrap().keys().cloned().collect();
        let mut known = PoolSettings::FIELDS.map(str::to_owned).to_vec();
        known.sort();
        assert_eq!(names, known);
    }
}
