//! The lock that keeps a second writer out: the server's, held by one connection.

use crate::error::PostgresError;
use crate::link::{Doing, Fault};
use std::time::Duration;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;
use xxhash_rust::xxh3::xxh3_64;

/// A connection of this database that has the lock with that number.
const HOLDER: &str = "SELECT a.pid, a.application_name, host(a.client_addr), a.backend_start::text \
                      FROM pg_locks l JOIN pg_stat_activity a USING (pid) \
                      WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 \
                      AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) \
                      AND ((l.classid::bigint << 32) | l.objid::bigint) = $1";

/// Numbers are all that the server's locks are named by.
fn number_of(schema: &str) -> i64 {
    xxh3_64(format!("rota schema {schema}").as_bytes()).cast_signed()
}

/// Takes the lock of a schema for as long as the connection lives. The connection of a process that was killed
/// has it for a moment longer, so this waits.
pub(crate) async fn take(
    client: &Client,
    schema: &str,
    place: &str,
    patience: Duration,
) -> Result<(), Fault> {
    let doing = "lock the schema";
    let number = number_of(schema);
    let ms = patience.as_millis().max(1);
    client.batch_execute(&format!("SET lock_timeout = {ms}")).await.doing(doing)?;
    match client.execute("SELECT pg_advisory_lock($1)", &[&number]).await {
        Ok(_) => client.batch_execute("SET lock_timeout = 0").await.doing(doing),
        Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => {
            let holder = holder(client, number).await?;
            Err(PostgresError::InUse { place: place.to_owned(), holder }.into())
        }
        Err(error) => Err(error).doing(doing),
    }
}

async fn holder(client: &Client, number: i64) -> Result<String, Fault> {
    let doing = "ask who holds the lock of the schema";
    let Some(row) = client.query_opt(HOLDER, &[&number]).await.doing(doing)? else {
        return Ok("somebody who has just gone".to_owned());
    };
    let pid: i32 = row.try_get(0).doing(doing)?;
    // Null where this role may not see connections of the other.
    let text = |at: usize| row.try_get::<_, Option<String>>(at).doing(doing);
    let name = text(1)?.filter(|it| !it.is_empty()).unwrap_or_else(|| "somebody".to_owned());
    let from = text(2)?.map_or_else(|| "over a UNIX socket".to_owned(), |it| format!("from {it}"));
    let since = text(3)?.map(|it| format!(" since {it}")).unwrap_or_default();
    Ok(format!("{name}, connected {from}{since} (backend {pid} of the server)"))
}

/// One connection, as the server tells them apart.
#[derive(Clone, Debug)]
pub(crate) struct Backend {
    pid: i32,
    started: String,
}

impl Backend {
    pub(crate) async fn own(client: &Client) -> Result<Self, Fault> {
        let doing = "ask for the session's own number";
        let ask =
            "SELECT pid, backend_start::text FROM pg_stat_activity WHERE pid = pg_backend_pid()";
        let row = client.query_one(ask, &[]).await.doing(doing)?;
        Ok(Self { pid: row.try_get(0).doing(doing)?, started: row.try_get(1).doing(doing)? })
    }

    /// Ends a connection that this process had, should the server still have it. A commit that it is in comes to
    /// its end first.
    pub(crate) async fn end(&self, client: &Client) -> Result<(), Fault> {
        let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                   WHERE pid = $1 AND backend_start::text = $2";
        let ended = client.query(end, &[&self.pid, &self.started]).await;
        ended.doing("end the connection that was lost").map(drop)
    }
}
