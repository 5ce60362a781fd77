//! A manager's schema: how it is named, made, recognised and written to.

use crate::error::PostgresError;
use crate::link::{Doing, Fault};
use rota_storage::Label;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Statement};
use xxhash_rust::xxh3::xxh3_64;

/// Version of what stands in a schema. A change of the tables raises it.
pub const FORMAT: i32 = 1;

/// Longest name of a schema that a server keeps, in bytes.
const NAME_BYTES_MAX: usize = 63;

/// The schema of a manager: `rota/CLUSTER/MANAGER`. Where that is too long, or the names have slashes of their own,
/// a number that follows from both stands for them.
pub fn schema_name(label: &Label) -> String {
    let (cluster, manager) = (label.cluster.as_str(), label.manager.as_str());
    let plain = format!("rota/{cluster}/{manager}");
    if plain.len() <= NAME_BYTES_MAX && plain.matches('/').count() == 2 {
        return plain;
    }
    format!("rota/{:016x}", xxh3_64(format!("{cluster}\n{manager}").as_bytes()))
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// What stands under the name of a schema.
pub(crate) enum Found {
    Nothing,
    /// A schema with nothing in it, as whoever keeps the database may have made it.
    Empty,
    /// Something of somebody else's, and what.
    Foreign(String),
    Ours(Meta),
}

/// The one row of `meta`.
#[derive(Debug)]
pub(crate) struct Meta {
    pub format: i32,
    pub owner: [String; 3],
    /// How often it was opened.
    pub opened: i64,
    /// The number of the newest batch.
    pub batch: i64,
}

pub(crate) async fn look(client: &Client, schema: &str) -> Result<Found, Fault> {
    let doing = "look at the schema";
    let there = "SELECT 1 FROM pg_namespace WHERE nspname = $1";
    if client.query_opt(there, &[&schema]).await.doing(doing)?.is_none() {
        return Ok(Found::Nothing);
    }
    let held = "SELECT c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
                WHERE n.nspname = $1 ORDER BY c.relname = 'meta' DESC, c.relname LIMIT 1";
    let Some(row) = client.query_opt(held, &[&schema]).await.doing(doing)? else {
        return Ok(Found::Empty);
    };
    let first: String = row.try_get(0).doing(doing)?;
    if first != "meta" {
        return Ok(Found::Foreign(first));
    }
    match meta(client, schema).await {
        Ok(Some(meta)) => Ok(Found::Ours(meta)),
        Ok(None) => Ok(Found::Foreign("an empty table meta".to_owned())),
        Err(error) if error.code() == Some(&SqlState::UNDEFINED_COLUMN) => {
            Ok(Found::Foreign("a table meta of another kind".to_owned()))
        }
        Err(error) => Err(error).doing(doing),
    }
}

async fn meta(client: &Client, schema: &str) -> Result<Option<Meta>, tokio_postgres::Error> {
    let ask = format!(
        "SELECT format, cluster, manager, number::text, opened, batch FROM {}.meta",
        quoted(schema)
    );
    let Some(row) = client.query(&ask, &[]).await?.into_iter().next() else { return Ok(None) };
    let owner = [row.try_get(1)?, row.try_get(2)?, row.try_get(3)?];
    let (format, opened, batch) = (row.try_get(0)?, row.try_get(4)?, row.try_get(5)?);
    Ok(Some(Meta { format, owner, opened, batch }))
}

/// Refuses another's schema, and another format.
pub(crate) fn check(meta: &Meta, label: &Label, place: &str) -> Result<(), PostgresError> {
    let place = place.to_owned();
    if meta.format != FORMAT {
        return Err(PostgresError::OtherFormat { place, found: meta.format, wanted: FORMAT });
    }
    let wanted = [label.cluster.to_string(), label.manager.to_string(), label.number.to_string()];
    if meta.owner != wanted {
        let told = |[cluster, manager, number]: &[String; 3]| {
            format!("manager {manager} with number {number} of cluster {cluster}")
        };
        let (found, wanted) = (told(&meta.owner), told(&wanted));
        return Err(PostgresError::OtherOwner { place, found, wanted });
    }
    Ok(())
}

/// Makes the tables, and the schema where `is_there` says that there is none: all or nothing.
pub(crate) async fn make(
    client: &Client,
    schema: &str,
    is_there: bool,
    label: &Label,
    place: &str,
) -> Result<Meta, Fault> {
    let doing = "make the schema";
    let name = quoted(schema);
    client.batch_execute("BEGIN").await.doing(doing)?;
    if !is_there && let Err(error) = client.batch_execute(&format!("CREATE SCHEMA {name}")).await {
        if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) {
            let (place, schema, source) = (place.to_owned(), schema.to_owned(), Box::new(error));
            return Err(PostgresError::MayNotCreate { place, schema, source }.into());
        }
        return Err(error).doing(doing);
    }
    client.batch_execute(&tables(&name)).await.doing(doing)?;
    let number = i64::from(label.number.0);
    let insert = format!(
        "INSERT INTO {name}.meta (format, cluster, manager, number, opened, batch) VALUES ($1, $2, $3, $4, 0, 0)"
    );
    let owner = (label.cluster.as_str(), label.manager.as_str());
    client.execute(&insert, &[&FORMAT, &owner.0, &owner.1, &number]).await.doing(doing)?;
    client.batch_execute("COMMIT").await.doing(doing)?;
    let made = meta(client, schema).await.doing(doing)?;
    made.ok_or_else(|| PostgresError::Gone { place: place.to_owned() }.into())
}

/// Names are compared as bytes, so that no change of a machine's collations breaks an index.
fn tables(name: &str) -> String {
    format!(
        r#"
CREATE TABLE {name}.meta (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    format integer NOT NULL,
    cluster text NOT NULL,
    manager text NOT NULL,
    number bigint NOT NULL,
    opened bigint NOT NULL,
    batch bigint NOT NULL
);
CREATE TABLE {name}.records (
    key bytea PRIMARY KEY,
    value bytea NOT NULL,
    checksum bigint NOT NULL,
    slot integer,
    namespace text COLLATE "C",
    class text COLLATE "C",
    docid text COLLATE "C",
    version bigint,
    ctime bigint,
    deleted boolean,
    items jsonb
);
CREATE INDEX documents_name ON {name}.records (namespace, class, docid) WHERE class IS NOT NULL;
CREATE INDEX documents_version ON {name}.records (version) WHERE class IS NOT NULL;
CREATE INDEX documents_items ON {name}.records USING gin (items jsonb_path_ops) WHERE class IS NOT NULL;
CREATE VIEW {name}.documents AS
    SELECT namespace, class, docid, version, ctime, deleted, slot, items
    FROM {name}.records WHERE class IS NOT NULL;
COMMENT ON TABLE {name}.meta IS 'Whose records these are. Written by rota-manager alone.';
COMMENT ON TABLE {name}.records IS 'Records of a manager. Written by rota-manager alone; read documents instead.';
COMMENT ON VIEW {name}.documents IS 'What the records say, for people. Changing it changes no document.';
"#
    )
}

/// Counts an opening. Gives its number.
pub(crate) async fn count_opening(client: &Client, schema: &str) -> Result<i64, Fault> {
    let doing = "open the schema";
    let count = format!("UPDATE {}.meta SET opened = opened + 1 RETURNING opened", quoted(schema));
    client.query_one(&count, &[]).await.and_then(|it| it.try_get(0)).doing(doing)
}

/// Takes the tables away, and leaves the schema, which others may have made.
pub(crate) async fn remove(client: &Client, schema: &str) -> Result<(), Fault> {
    let name = quoted(schema);
    let remove = format!(
        "BEGIN; DROP VIEW {name}.documents; DROP TABLE {name}.records; DROP TABLE {name}.meta; COMMIT"
    );
    client.batch_execute(&remove).await.doing("remove the tables")
}

/// What is asked again and again.
pub(crate) struct Statements {
    /// Opening, last batch, next batch: counts the batch, if nobody else did anything.
    pub fence: Statement,
    pub delete: Statement,
    pub put: Statement,
    pub get: Statement,
    /// From (inclusive), and to (exclusive, or null).
    pub scan: Statement,
}

pub(crate) async fn prepare(client: &Client, schema: &str) -> Result<Statements, Fault> {
    let name = quoted(schema);
    let doing = "prepare statements";
    let put = format!(
        "INSERT INTO {name}.records \
         (key, value, checksum, slot, namespace, class, docid, version, ctime, deleted, items) \
         SELECT key, value, checksum, slot, namespace, class, docid, version, ctime, deleted, items::jsonb \
         FROM unnest($1::bytea[], $2::bytea[], $3::bigint[], $4::integer[], $5::text[], $6::text[], $7::text[], \
                     $8::bigint[], $9::bigint[], $10::boolean[], $11::text[]) \
         AS new(key, value, checksum, slot, namespace, class, docid, version, ctime, deleted, items) \
         ON CONFLICT (key) DO UPDATE SET value = excluded.value, checksum = excluded.checksum, \
         slot = excluded.slot, namespace = excluded.namespace, class = excluded.class, docid = excluded.docid, \
         version = excluded.version, ctime = excluded.ctime, deleted = excluded.deleted, items = excluded.items"
    );
    let fence = format!("UPDATE {name}.meta SET batch = $3 WHERE opened = $1 AND batch = $2");
    let delete = format!("DELETE FROM {name}.records WHERE key = ANY ($1::bytea[])");
    let get = format!("SELECT value, checksum FROM {name}.records WHERE key = $1");
    let scan = format!(
        "SELECT key, value, checksum FROM {name}.records \
         WHERE key >= $1 AND ($2::bytea IS NULL OR key < $2) ORDER BY key"
    );
    let prepared = |text: String| async move { client.prepare(&text).await.doing(doing) };
    Ok(Statements {
        fence: prepared(fence).await?,
        delete: prepared(delete).await?,
        put: prepared(put).await?,
        get: prepared(get).await?,
        scan: prepared(scan).await?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_storage::{ClusterName, ManagerId, ManagerNumber};

    fn name_of(cluster: &str, manager: &str) -> String {
        schema_name(&Label {
            cluster: ClusterName::parse(cluster).unwrap(),
            manager: ManagerId::parse(manager).unwrap(),
            number: ManagerNumber(7),
        })
    }

    #[test]
    fn each_manager_has_a_schema_of_its_own_with_a_name_that_a_server_keeps_whole() {
        assert_eq!(name_of("demo", "m1"), "rota/demo/m1");
        let long = "x".repeat(255);
        let pairs = [("a/b", "c"), ("a", "b/c"), (&long, "m"), ("m", &long), ("a", "b")];
        let names: std::collections::BTreeSet<_> =
            pairs.iter().map(|(cluster, manager)| name_of(cluster, manager)).collect();
        assert_eq!(names.len(), pairs.len());
        assert!(names.iter().all(|it| it.len() <= NAME_BYTES_MAX), "{names:?}");
        assert_eq!(quoted("a\"b"), "\"a\"\"b\"");
    }
}
