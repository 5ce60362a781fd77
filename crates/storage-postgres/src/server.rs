//! What a server must be.

use crate::error::PostgresError;
use crate::link::{Doing, Fault};
use tokio_postgres::Client;

/// The oldest server that is supported, as people call it: the oldest that the tests were run with.
pub const OLDEST: &str = "15";
/// The same, as the server tells it.
pub const OLDEST_NUMBER: i32 = 150_000;

const ASK: &str = "SELECT current_setting('server_version_num')::int, current_setting('server_version'), \
                   pg_is_in_recovery(), current_setting('transaction_read_only'), current_setting('fsync'), \
                   current_setting('server_encoding')";

/// Refuses a server that is too old, writes nothing, or promises less than managers do.
pub(crate) async fn check(client: &Client, place: &str) -> Result<(), Fault> {
    let doing = "ask what the server is";
    let row = client.query_one(ASK, &[]).await.doing(doing)?;
    let place = place.to_owned();
    let setting = |at: usize| row.try_get::<_, String>(at).doing(doing);
    if row.try_get::<_, i32>(0).doing(doing)? < OLDEST_NUMBER {
        return Err(PostgresError::TooOld { place, found: setting(1)?, oldest: OLDEST }.into());
    }
    if row.try_get(2).doing(doing)? {
        let why = "it is a standby of another server";
        return Err(PostgresError::ReadOnly { place, why }.into());
    }
    if setting(3)? != "off" {
        let why = "default_transaction_read_only is on for this server, database or role";
        return Err(PostgresError::ReadOnly { place, why }.into());
    }
    let settings = [
        ("fsync", 4, "on", "since what is acknowledged must survive a loss of power"),
        ("server_encoding", 5, "UTF8", "since names and items of documents are Unicode"),
    ];
    for (name, at, wanted, why) in settings {
        let found = setting(at)?;
        if found != wanted {
            return Err(PostgresError::Setting { place, setting: name, found, wanted, why }.into());
        }
    }
    Ok(())
}

/// Makes the session one that waits for the sync, and for nothing else without an end. What it needs to keep a
/// connection of a machine that lost its power from holding the lock for hours is set, too.
pub(crate) async fn set_up(client: &Client) -> Result<(), Fault> {
    let set = "SELECT set_config('synchronous_commit', 'on', false) \
               WHERE current_setting('synchronous_commit') = 'off'; \
               SET statement_timeout = 0; \
               SET idle_in_transaction_session_timeout = 0; \
               SET idle_session_timeout = 0; \
               SET default_transaction_isolation = 'read committed'; \
               SET client_min_messages = warning; \
               SET tcp_keepalives_idle = 10; \
               SET tcp_keepalives_interval = 5; \
               SET tcp_keepalives_count = 2";
    client.batch_execute(set).await.doing("set up the session")
}
