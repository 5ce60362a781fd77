//! Everything that can go wrong with a server.

use rota_storage::EngineError;
use std::time::Duration;
use tokio_postgres::error::SqlState;

/// What the engine refuses or fails with. Every variant names the place: server, database and mostly the schema.
#[derive(Debug, thiserror::Error)]
pub enum PostgresError {
    /// The server refused.
    #[error("cannot {doing} at {place}")]
    Server {
        /// A verb and its object, as in "commit a batch".
        doing: &'static str,
        /// Where.
        place: String,
        /// Its reason.
        source: Box<tokio_postgres::Error>,
    },
    /// The role may not make a schema. Nothing was changed.
    #[error(
        "{place} does not let this role make schema \"{schema}\": GRANT CREATE ON DATABASE to it, or make the schema \
         with the role as its owner"
    )]
    MayNotCreate {
        /// Where.
        place: String,
        /// Which schema.
        schema: String,
        /// The server's reason.
        source: Box<tokio_postgres::Error>,
    },
    /// No server could be talked to in time.
    #[error("no answer within {} s while trying to {doing} at {place}", .waited.as_secs())]
    Late {
        /// A verb and its object.
        doing: &'static str,
        /// Where.
        place: String,
        /// How long was waited.
        waited: Duration,
        /// What the last attempt met, if it met anything.
        source: Option<Box<tokio_postgres::Error>>,
    },
    /// The server is older than the oldest that this program was run with.
    #[error("{place} is PostgreSQL {found}; the oldest that is supported is {oldest}")]
    TooOld {
        /// Where.
        place: String,
        /// Its version.
        found: String,
        /// The oldest that is supported.
        oldest: &'static str,
    },
    /// Nothing can be written there.
    #[error("{place} is read-only: {why}")]
    ReadOnly {
        /// Where.
        place: String,
        /// A standby, or a setting.
        why: &'static str,
    },
    /// The server promises less than a manager promises.
    #[error("{place} has {setting} = {found}; it must be {wanted}, {why}")]
    Setting {
        /// Where.
        place: String,
        /// Which setting.
        setting: &'static str,
        /// What it is.
        found: String,
        /// What it must be.
        wanted: &'static str,
        /// Because of what.
        why: &'static str,
    },
    /// Another process has the schema open. Nothing was changed.
    #[error("{place} is in use: {holder} holds its lock")]
    InUse {
        /// Where.
        place: String,
        /// Whose connection holds the lock.
        holder: String,
    },
    /// The schema belongs to somebody else. Nothing was changed.
    #[error("{place} belongs to {found}, not to {wanted}")]
    OtherOwner {
        /// Where.
        place: String,
        /// Whose it is.
        found: String,
        /// Who asked.
        wanted: String,
    },
    /// The schema was written in a format that this program does not know. Nothing was changed.
    #[error(
        "{place} has format {found}; this program knows format {wanted}: start the release that wrote it"
    )]
    OtherFormat {
        /// Where.
        place: String,
        /// What it says.
        found: i32,
        /// What this program reads and writes.
        wanted: i32,
    },
    /// The schema holds something, and is no manager's. Nothing was changed.
    #[error("{place} holds {found} and is no manager's schema: rename it or drop it")]
    Foreign {
        /// Where.
        place: String,
        /// A name in it.
        found: String,
    },
    /// The folder was used with a schema, and the schema is not there.
    #[error(
        "{place} is not there, and the data folder says that it was made: name the server that has it, or restore it"
    )]
    Gone {
        /// Where.
        place: String,
    },
    /// Somebody else opened the schema since, or it was put back to an earlier state.
    #[error(
        "{place} was opened by another process or was put back since this one opened it: {found}"
    )]
    TakenOver {
        /// Where.
        place: String,
        /// What stands there, and what should.
        found: String,
    },
    /// A record is not what was written.
    #[error("{place} is damaged in the record \"{}\": its checksum does not match", .key.escape_ascii())]
    Damaged {
        /// Where.
        place: String,
        /// Which record.
        key: Vec<u8>,
    },
    /// The process cannot have what it needs to connect.
    #[error("cannot {doing}")]
    System {
        /// A verb and its object.
        doing: &'static str,
        /// The system's reason.
        source: std::io::Error,
    },
}

impl From<PostgresError> for EngineError {
    fn from(error: PostgresError) -> Self {
        Self::Elsewhere(Box::new(error))
    }
}

/// Whether an error says that the connection is gone, and nothing of what became of the work.
pub(crate) fn is_lost(error: &tokio_postgres::Error) -> bool {
    let Some(code) = error.code() else {
        let source = std::error::Error::source(error);
        return error.is_closed()
            || source.is_some_and(<dyn std::error::Error>::is::<std::io::Error>);
    };
    [
        SqlState::ADMIN_SHUTDOWN,
        SqlState::CRASH_SHUTDOWN,
        SqlState::CANNOT_CONNECT_NOW,
        SqlState::CONNECTION_EXCEPTION,
        SqlState::CONNECTION_FAILURE,
        SqlState::CONNECTION_DOES_NOT_EXIST,
        SqlState::IDLE_SESSION_TIMEOUT,
        SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
    ]
    .contains(code)
}

/// Whether a connection may be had a little later.
pub(crate) fn may_connect_later(error: &tokio_postgres::Error) -> bool {
    is_lost(error) || error.code() == Some(&SqlState::TOO_MANY_CONNECTIONS)
}
