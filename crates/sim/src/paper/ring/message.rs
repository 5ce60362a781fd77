//! What is under way between managers and nodes.

use super::{Record, Who};
use std::fmt;

/// A message under way.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Message {
    /// A session is going to be created.
    Intent { from: Who, to: Who, record: Record },
    /// That was heard.
    Heard { from: Who, to: Who, instance: u8 },
    /// To a node.
    Create { from: Who, instance: u8, node: u8 },
    /// From a node.
    Created { to: Who, instance: u8 },
    /// A session was created.
    Made { to: Who, record: Record },
    /// To a node.
    Destroy { from: Who, instance: u8, node: u8 },
    /// From a node.
    Destroyed { to: Who, instance: u8 },
    /// A session was closed.
    Closed { from: Who, to: Who, instance: u8 },
    /// That was heard.
    HeardClosed { from: Who, to: Who, instance: u8 },
    /// A new manager tells that it is there.
    Hello { from: Who, to: Who },
}

impl Message {
    /// The manager that gets it; `None` for a node.
    pub fn to(&self) -> Option<Who> {
        match self {
            Message::Intent { to, .. }
            | Message::Heard { to, .. }
            | Message::Created { to, .. }
            | Message::Made { to, .. }
            | Message::Destroyed { to, .. }
            | Message::Closed { to, .. }
            | Message::HeardClosed { to, .. }
            | Message::Hello { to, .. } => Some(*to),
            Message::Create { .. } | Message::Destroy { .. } => None,
        }
    }

    /// The close of that session is told, or confirmed.
    pub fn tells_of_close(&self, session: u8) -> bool {
        let (Message::Closed { instance, .. } | Message::HeardClosed { instance, .. }) = self
        else {
            return false;
        };
        *instance == session
    }

    /// The session that it tells of.
    pub fn instance(&self) -> Option<u8> {
        match self {
            Message::Intent { record, .. } | Message::Made { record, .. } => Some(record.instance),
            Message::Heard { instance, .. }
            | Message::Create { instance, .. }
            | Message::Created { instance, .. }
            | Message::Destroy { instance, .. }
            | Message::Destroyed { instance, .. }
            | Message::Closed { instance, .. }
            | Message::HeardClosed { instance, .. } => Some(*instance),
            Message::Hello { .. } => None,
        }
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Message::Intent { from, to, record } => {
                write!(f, "{to} hears from {from} that y is to be created on N{}", record.node)
            }
            Message::Heard { from, to, .. } => write!(f, "{to} hears that {from} heard it"),
            Message::Create { node, .. } => write!(f, "N{node} creates y"),
            Message::Created { to, .. } => write!(f, "{to} hears that y runs and tells the client"),
            Message::Made { to, record } => {
                write!(f, "{to} hears from {} that y was created", record.creator)
            }
            Message::Destroy { node, .. } => write!(f, "N{node} ends y"),
            Message::Destroyed { to, .. } => write!(f, "{to} hears that y ended"),
            Message::Closed { from, to, .. } => {
                write!(f, "{to} hears from {from} that y is closed")
            }
            Message::HeardClosed { from, to, .. } => {
                write!(f, "{to} hears that {from} heard of the close")
            }
            Message::Hello { from, to } => write!(f, "{to} hears that {from} is there"),
        }
    }
}
