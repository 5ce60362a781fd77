//! How a session is looked after once it is READY, as its class says and as it is written down.

use rota_node::class::{Class, Health, HealthCheck, StartError, Values};
use serde::{Deserialize, Serialize};

/// How a session is looked after, as it is written down for a later agent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Care {
    pub(super) check: Check,
    pub(super) every_ms: u64,
    pub(super) timeout_ms: u64,
    pub(super) failures: u32,
    pub(super) after_ms: u64,
}

/// What is looked at.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Check {
    /// Its port takes a connection.
    Port,
    /// A GET of that path is answered well.
    Http(String),
    /// A program ends well.
    Program(Vec<String>),
}

impl Care {
    /// As the class says, for a session with these values.
    ///
    /// # Errors
    /// What is missing for it.
    pub fn of(health: &Health, class: &Class, values: &Values<'_>) -> Result<Self, StartError> {
        let program = health.command(class, values)?;
        let check = match (&health.check, program) {
            (HealthCheck::Port, _) => Check::Port,
            (HealthCheck::Http(path), _) => Check::Http(path.clone()),
            (HealthCheck::Program(_), argv) => Check::Program(argv.unwrap_or_default()),
        };
        let Health { every_ms, timeout_ms, failures, after_ms, .. } = *health;
        Ok(Self { check, every_ms, timeout_ms, failures, after_ms })
    }
}

/// How much of them is of use to people that read a file of terms.
#[cfg(test)]
pub fn care_by_port(every_ms: u64, failures: u32) -> Care {
    Care { check: Check::Port, every_ms, timeout_ms: 1_000, failures, after_ms: 0 }
}
