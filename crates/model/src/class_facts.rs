//! What managers decide by of a class, as its text says.

use crate::digest::ClassDigest;
use crate::ids::PoolName;
use crate::life::LifeFacts;
use crate::resources::Needs;
use serde::{Deserialize, Serialize};

/// Which orders may end a session of a class while it works.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Disturb {
    /// Neither scale-in nor a drain, until the drain's deadline or `--force`.
    Never,
    /// A drain, and not scale-in.
    #[default]
    OnUpgrade,
    /// Both.
    Always,
}

impl Disturb {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Never, Self::OnUpgrade, Self::Always];

    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::OnUpgrade => "on_upgrade",
            Self::Always => "always",
        }
    }

    /// What a text says.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.as_str() == text)
    }

    /// Whether nothing is said.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// What managers decide by of a class, as its text says.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClassFacts {
    /// The pool of opens that name none; `None`: `default`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<PoolName>,
    /// What a session needs of its node.
    #[serde(skip_serializing_if = "Needs::is_default")]
    pub needs: Needs,
    /// A session whose node is lost is opened again, as a new life (`on_node_loss = "reopen"`).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub reopens: bool,
    /// Which orders may end a session of it.
    #[serde(skip_serializing_if = "Disturb::is_default")]
    pub disturb: Disturb,
    /// Whoever is on the way to a session may open it (`open_on_demand = true`): see the route of HTTP.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub opens_on_demand: bool,
    /// An open may name no other pool than `pool` (`other_pools = false`).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub only_its_pool: bool,
    /// How its sessions live.
    #[serde(skip_serializing_if = "LifeFacts::is_default")]
    pub life: Box<LifeFacts>,
}

impl ClassFacts {
    /// Whether the text says nothing that managers decide by.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// A text of a class, and what it says.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClassText {
    /// Which text.
    pub digest: ClassDigest,
    /// What it says.
    #[serde(default, skip_serializing_if = "ClassFacts::is_default")]
    pub facts: ClassFacts,
}

impl From<ClassDigest> for ClassText {
    /// Of a text that says nothing that managers decide by.
    fn from(digest: ClassDigest) -> Self {
        Self { digest, facts: ClassFacts::default() }
    }
}
