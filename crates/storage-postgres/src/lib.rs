//! Records of one manager in a PostgreSQL server: an [`rota_storage::Engine`] over a schema of its own.
//!
//! ```text
//!   Writer ── PostgresEngine ── Link ── one connection ── schema "rota/CLUSTER/MANAGER"
//!                  │                                        ├─ meta       whose it is, the number of the last batch
//!                  ├─ Work: a batch, put in order           ├─ records    key, value, checksum, and columns
//!                  └─ Claim: the data folder says whose      └─ documents  a view of the columns, for people
//! ```
//!
//! * [`Address`]: where the server is. Only UNIX sockets and loopback, unless the caller insists: nothing is
//!   encrypted.
//! * [`PostgresEngine`]: commit, get, scan. One batch is one transaction.
//! * [`DocumentRow`]: what the columns of a record say. Records are opaque here, so whoever opens the engine gives a
//!   function that reads them.
//!
//! # What is promised
//! * What the trait promises: a batch is there as a whole or not at all, and survives `kill -9` of the server and a
//!   loss of power. A server that does not sync (`fsync = off`) is refused, and a session that would not wait for the
//!   sync is told to.
//! * One writer. A lock of the server's, held by the connection, keeps others out. Each opening has a number, and each
//!   batch has one. A transaction checks both, so that a writer that lost its lock writes nothing.
//! * A commit whose answer was lost is looked up: the number of the last batch says whether it is there. It is sent
//!   again if it is not. When no server answers within [`Waits::commit`], the commit fails, which ends the process.
//! * No changed byte goes unnoticed: each record has its checksum. The columns are a copy for people, and nothing
//!   reads them back.
//!
//! The methods wait, so they must not be called on a thread of an asynchronous runtime.

mod address;
mod engine;
mod error;
mod link;
mod lock;
mod rows;
mod schema;
mod server;
mod work;

pub use address::Address;
pub use engine::{Opening, PostgresEngine, Waits, exists, give_up};
pub use error::PostgresError;
pub use rows::{DocumentRow, ITEMS_BYTES_MAX, RowOf};
pub use schema::{FORMAT, schema_name};
pub use server::{OLDEST, OLDEST_NUMBER};
