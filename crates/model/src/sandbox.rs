//! What a program is kept from.

use serde::{Deserialize, Serialize};

/// What a program is kept from. Ordered: a later one keeps it from more.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sandbox {
    /// It runs as the node's own user, and reaches what that one reaches.
    None,
    /// It has a user of its own, and reaches neither the node nor other sessions.
    Basic,
}

impl Sandbox {
    /// As in a class file and on a command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Sandbox::None => "none",
            Sandbox::Basic => "basic",
        }
    }

    /// Reads what a class file or a command line says.
    ///
    /// # Errors
    /// What is wrong with the text: "is ..., it must be ...".
    pub fn parse(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Sandbox::None),
            "basic" => Ok(Sandbox::Basic),
            "strict" => {
                Err("is \"strict\", which no node can do yet; it must be \"none\" or \"basic\""
                    .to_owned())
            }
            other => Err(format!("is {other:?}; it must be \"none\" or \"basic\"")),
        }
    }
}
