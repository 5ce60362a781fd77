//! [`Engine`] over one schema of a server.

use crate::address::Address;
use crate::error::PostgresError;
use crate::link::{Doing, Fault, Link, Session};
use crate::rows::RowOf;
use crate::schema::{self, Found, Meta, schema_name};
use crate::work::{Puts, Work};
use rota_storage::{
    Claim, Engine, EngineError, EngineKind, KvWrite, Label, Visit, check, checksum,
};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio_postgres::Row;
use tokio_stream::StreamExt;

/// How long a server is waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Waits {
    /// Until it can be connected to, at the start. Too low: a machine that starts both fails once.
    pub connect: Duration,
    /// For the lock. Too low: a process that was killed and starts again finds its own lock.
    pub lock: Duration,
    /// For one commit or one read, with all that is tried when connections are lost. Too low: a server that starts
    /// again ends its managers; too high: a manager with a server that is gone for good does not end.
    pub commit: Duration,
}

impl Default for Waits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            lock: Duration::from_secs(10),
            commit: Duration::from_secs(60),
        }
    }
}

/// What is opened, and how.
#[derive(Clone, Debug)]
pub struct Opening {
    /// Where the server is.
    pub address: Address,
    /// Whose records they are.
    pub label: Label,
    /// Reads the columns of a record.
    pub row_of: RowOf,
    /// How long the server is waited for.
    pub waits: Waits,
}

impl Opening {
    fn link(&self) -> Result<Link, EngineError> {
        let schema = schema_name(&self.label);
        Ok(Link::new(&self.address, self.label.manager.as_str(), schema)?)
    }

    fn connect_until(&self) -> Instant {
        Instant::now() + self.waits.connect
    }
}

/// Whether a schema holds this label's records. Refuses one that is another's.
///
/// # Errors
/// No server, or none that may be used; a schema of somebody else.
pub fn exists(opening: &Opening) -> Result<bool, EngineError> {
    let link = opening.link()?;
    let told = |fault: Fault| fault.told(&link.place, opening.waits.connect);
    let until = opening.connect_until();
    let connection = link.connect(until).map_err(told)?;
    let look = schema::look(&connection.client, &link.schema);
    let found = link.wait("look at the schema", until, look).map_err(told)?;
    match recognised(found, opening, &link.place)? {
        Here::Meta(_) => Ok(true),
        Here::Nothing | Here::Empty => Ok(false),
    }
}

/// Takes the records of this label away. For a schema that was begun in vain.
///
/// # Errors
/// It is in use or another's, or the server does not do it.
pub fn give_up(opening: &Opening) -> Result<(), EngineError> {
    let link = opening.link()?;
    let told = |fault: Fault| fault.told(&link.place, opening.waits.connect);
    let until = opening.connect_until();
    let connection = link.lock(until, opening.waits.lock).map_err(told)?;
    let client = &connection.client;
    let found = link.wait("look at the schema", until, schema::look(client, &link.schema));
    match recognised(found.map_err(told)?, opening, &link.place)? {
        Here::Meta(_) => {
            let removed = schema::remove(client, &link.schema);
            Ok(link.wait("remove the tables", until, removed).map_err(told)?)
        }
        Here::Nothing | Here::Empty => Ok(()),
    }
}

/// What stands where a label's records are to be, when it is nobody else's.
enum Here {
    Nothing,
    Empty,
    Meta(Meta),
}

fn recognised(found: Found, opening: &Opening, place: &str) -> Result<Here, PostgresError> {
    match found {
        Found::Nothing => Ok(Here::Nothing),
        Found::Empty => Ok(Here::Empty),
        Found::Foreign(found) => Err(PostgresError::Foreign { place: place.to_owned(), found }),
        Found::Ours(meta) => {
            schema::check(&meta, &opening.label, place)?;
            Ok(Here::Meta(meta))
        }
    }
}

/// Records in a schema of a PostgreSQL server. Its methods wait, on the caller's thread.
pub struct PostgresEngine {
    link: Link,
    opening: Opening,
    /// The number of this opening, and of the last batch that is known to be there.
    opened: i64,
    batch: i64,
    last_commit: Duration,
    failed: bool,
    folder: PathBuf,
    // Last, so that the folder is given up after the schema.
    _claim: Claim,
}

impl std::fmt::Debug for PostgresEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PostgresEngine({}, batch {})", self.link.place, self.batch)
    }
}

impl PostgresEngine {
    /// Opens a label's schema, and makes it when neither folder nor server has it. `folder` says whose it is, and
    /// is locked meanwhile; an empty folder may take a schema that is there.
    ///
    /// # Errors
    /// Folder or schema are another's or in use; the server is not there, too old, read-only, or lost the schema.
    pub fn open(folder: &Path, opening: Opening) -> Result<Self, EngineError> {
        let mut claim = Claim::open(folder, &opening.label, EngineKind::Postgres)?;
        let mut link = opening.link()?;
        let until = opening.connect_until() + opening.waits.lock;
        let waited = opening.waits.connect;
        let connection = link.lock(opening.connect_until(), opening.waits.lock);
        let connection = connection.map_err(|it| it.told(&link.place, waited))?;
        let opened = open_schema(&link, &opening, &connection.client, claim.is_made(), until);
        let (opened, batch) = opened.map_err(|it| it.told(&link.place, waited))?;
        let taken = link.take(connection, until);
        taken.map_err(|it| it.told(&link.place, waited))?;
        claim.made()?;
        let folder = folder.to_owned();
        let (last_commit, failed) = (Duration::ZERO, false);
        Ok(Self { link, opening, opened, batch, last_commit, failed, folder, _claim: claim })
    }

    fn usable(&self) -> Result<(), EngineError> {
        if self.failed {
            return Err(EngineError::GivenUp { folder: self.folder.clone() });
        }
        Ok(())
    }

    /// Runs something on the session; connects again first where there is none. A session that is lost on the way,
    /// or that fails, is given up.
    fn on_session<T>(
        &mut self,
        doing: &'static str,
        until: Instant,
        work: impl AsyncFnOnce(&Session) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let session = self.link.session.as_ref().expect("callers have one");
        let done = self.link.wait(doing, until, work(session));
        if done.is_err() {
            self.link.lose();
        }
        done
    }

    /// Connects again, where the session was lost. Gives the number of the last batch that is there.
    fn again(&mut self, until: Instant) -> Result<i64, Fault> {
        if self.link.session.is_some() {
            return Ok(self.batch);
        }
        tracing::warn!(place = self.link.place, "the connection was lost; connecting again");
        loop {
            match self.try_again(until) {
                // The server went away once more.
                Err(fault) if fault.is_lost() && Instant::now() < until => {}
                done @ (Ok(_) | Err(_)) => return done,
            }
        }
    }

    fn try_again(&mut self, until: Instant) -> Result<i64, Fault> {
        let left = until.saturating_duration_since(Instant::now());
        let connection = self.link.lock(until, left)?;
        let look = schema::look(&connection.client, &self.link.schema);
        let found = self.link.wait("look at the schema", until, look)?;
        let place = self.link.place.clone();
        let Here::Meta(meta) = recognised(found, &self.opening, &place)? else {
            return Err(PostgresError::Gone { place }.into());
        };
        if meta.opened != self.opened {
            let found = format!("it was opened {} times, not {}", meta.opened, self.opened);
            return Err(PostgresError::TakenOver { place, found }.into());
        }
        if meta.batch != self.batch && meta.batch != self.batch + 1 {
            let found = format!("its last batch is {}, not {}", meta.batch, self.batch);
            return Err(PostgresError::TakenOver { place, found }.into());
        }
        self.link.take(connection, until)?;
        Ok(meta.batch)
    }

    fn try_commit(&mut self, work: &Work<'_>, until: Instant) -> Result<(), Fault> {
        let (opened, batch, next) = (self.opened, self.batch, self.batch + 1);
        let place = self.link.place.clone();
        loop {
            if self.again(until)? == next {
                // Its answer was lost, and it is there.
                self.batch = next;
                return Ok(());
            }
            let done = self.on_session("commit a batch", until, async |session| {
                carry_out(session, work, [opened, batch, next], &place).await
            });
            match done {
                Ok(took) => {
                    (self.batch, self.last_commit) = (next, took);
                    return Ok(());
                }
                Err(fault) if fault.is_lost() => {}
                Err(fault) => return Err(fault),
            }
        }
    }

    fn try_get(&mut self, key: &[u8], until: Instant) -> Result<Option<Vec<u8>>, Fault> {
        let place = self.link.place.clone();
        loop {
            self.again(until)?;
            let read = self.on_session("read a record", until, async |session| {
                let doing = "read a record";
                let asked = session.client().query_opt(&session.statements.get, &[&key]).await;
                let Some(row) = asked.doing(doing)? else { return Ok(None) };
                let value: &[u8] = row.try_get(0).doing(doing)?;
                verify(key, value, row.try_get(1).doing(doing)?, &place)?;
                Ok(Some(value.to_vec()))
            });
            match read {
                Err(fault) if fault.is_lost() => {}
                done @ (Ok(_) | Err(_)) => return done,
            }
        }
    }

    fn try_scan(
        &mut self,
        from: &[u8],
        to: Option<&[u8]>,
        visit: &mut Visit<'_>,
    ) -> Result<(), Fault> {
        let (place, wait) = (self.link.place.clone(), self.opening.waits.commit);
        let mut from = from.to_vec();
        // Where a connection is lost on the way, the next goes on behind the last record that was visited.
        let mut seen: Option<Vec<u8>> = None;
        loop {
            self.again(Instant::now() + wait)?;
            let first = from.clone();
            // Each record is waited for so long, and there is no bound for all of them: hence the far deadline.
            let done = self.on_session("read records", far(), async |session| {
                let mut reading = Reading { session, wait, place: &place, seen: &mut seen };
                reading.run(&first, to, visit).await
            });
            match done {
                Err(fault) if fault.is_lost() => from = seen.clone().unwrap_or(from),
                done @ (Ok(()) | Err(_)) => return done,
            }
        }
    }

    /// An engine that failed does nothing more, and lets go of its lock.
    fn finished<T>(&mut self, done: Result<T, Fault>) -> Result<T, EngineError> {
        done.map_err(|fault| {
            self.failed = true;
            self.link.close();
            fault.told(&self.link.place, self.opening.waits.commit).into()
        })
    }
}

/// No deadline of its own.
fn far() -> Instant {
    Instant::now() + Duration::from_secs(365 * 24 * 3600)
}

/// A scan on one session.
struct Reading<'a> {
    session: &'a Session,
    wait: Duration,
    place: &'a str,
    seen: &'a mut Option<Vec<u8>>,
}

impl Reading<'_> {
    async fn run(
        &mut self,
        from: &[u8],
        to: Option<&[u8]>,
        visit: &mut Visit<'_>,
    ) -> Result<(), Fault> {
        let doing = "read records";
        let late = |_| Fault::Late(doing);
        let Session { statements, .. } = self.session;
        let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 2] = [&from, &to];
        let asked = self.session.client().query_raw(&statements.scan, parameters);
        let rows = tokio::time::timeout(self.wait, asked).await.map_err(late)?.doing(doing)?;
        tokio::pin!(rows);
        loop {
            let row = tokio::time::timeout(self.wait, rows.next()).await.map_err(late)?;
            let Some(row) = row else { return Ok(()) };
            let row: Row = row.doing(doing)?;
            let (key, value): (&[u8], &[u8]) =
                (row.try_get(0).doing(doing)?, row.try_get(1).doing(doing)?);
            if self.seen.as_deref().is_some_and(|seen| key <= seen) {
                continue;
            }
            verify(key, value, row.try_get(2).doing(doing)?, self.place)?;
            *self.seen = Some(key.to_vec());
            if visit(key, value) == ControlFlow::Break(()) {
                return Ok(());
            }
        }
    }
}

fn verify(key: &[u8], value: &[u8], sum: i64, place: &str) -> Result<(), Fault> {
    if checksum(0, key, Some(value)).cast_signed() == sum {
        return Ok(());
    }
    Err(PostgresError::Damaged { place: place.to_owned(), key: key.to_vec() }.into())
}

/// Makes the schema or recognises it, and counts the opening. Gives the numbers of opening and last batch.
fn open_schema(
    link: &Link,
    opening: &Opening,
    client: &tokio_postgres::Client,
    is_made: bool,
    until: Instant,
) -> Result<(i64, i64), Fault> {
    let (schema, place) = (&link.schema, &link.place);
    link.wait("open the schema", until, async {
        let found = recognised(schema::look(client, schema).await?, opening, place)?;
        let meta = match found {
            Here::Meta(meta) => meta,
            Here::Nothing | Here::Empty if is_made => {
                return Err(PostgresError::Gone { place: place.clone() }.into());
            }
            Here::Nothing => schema::make(client, schema, false, &opening.label, place).await?,
            Here::Empty => schema::make(client, schema, true, &opening.label, place).await?,
        };
        Ok((schema::count_opening(client, schema).await?, meta.batch))
    })
}

/// One batch in one transaction. All but the commit travels together; the commit follows only when nobody else
/// wrote meanwhile. Gives how long the commit took.
async fn carry_out(
    session: &Session,
    work: &Work<'_>,
    [opened, batch, next]: [i64; 3],
    place: &str,
) -> Result<Duration, Fault> {
    let doing = "write a batch";
    let (client, statements) = (session.client(), &session.statements);
    let mut puts = work.puts.iter();
    let first = puts.next();
    let delete = async {
        match work.deletes.as_slice() {
            [] => Ok(0),
            deletes => client.execute(&statements.delete, &[&deletes]).await,
        }
    };
    let put = async {
        match first {
            None => Ok(0),
            Some(puts) => write(session, puts).await,
        }
    };
    let numbers: [&(dyn tokio_postgres::types::ToSql + Sync); 3] = [&opened, &batch, &next];
    let fence = client.execute(&statements.fence, &numbers);
    // In this order: each is sent when it is looked at first.
    let (begun, fenced, deleted, written) =
        tokio::join!(biased; client.batch_execute("BEGIN"), fence, delete, put);
    begun.doing("begin a batch")?;
    if fenced.doing(doing)? != 1 {
        let found = format!("opening {opened} and batch {batch} do not stand there");
        return Err(PostgresError::TakenOver { place: place.to_owned(), found }.into());
    }
    deleted.doing(doing)?;
    written.doing(doing)?;
    for more in puts {
        write(session, more).await.doing(doing)?;
    }
    let began = Instant::now();
    client.batch_execute("COMMIT").await.doing("commit a batch")?;
    Ok(began.elapsed())
}

async fn write(session: &Session, it: &Puts<'_>) -> Result<u64, tokio_postgres::Error> {
    let Session { statements, .. } = session;
    let columns: [&(dyn tokio_postgres::types::ToSql + Sync); 11] = [
        &it.keys,
        &it.values,
        &it.checksums,
        &it.slots,
        &it.namespaces,
        &it.classes,
        &it.docids,
        &it.versions,
        &it.ctimes,
        &it.deleted,
        &it.items,
    ];
    session.client().execute(&statements.put, &columns).await
}

impl Engine for PostgresEngine {
    fn commit(&mut self, batch: &[KvWrite]) -> Result<(), EngineError> {
        self.usable()?;
        check(batch)?;
        if batch.is_empty() {
            return Ok(());
        }
        let work = Work::of(batch, self.opening.row_of);
        let until = Instant::now() + self.opening.waits.commit;
        let done = self.try_commit(&work, until);
        self.finished(done)
    }

    fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        self.usable()?;
        let until = Instant::now() + self.opening.waits.commit;
        let done = self.try_get(key, until);
        self.finished(done)
    }

    fn scan(
        &mut self,
        from: &[u8],
        to: Option<&[u8]>,
        visit: &mut Visit<'_>,
    ) -> Result<(), EngineError> {
        self.usable()?;
        if to.is_some_and(|to| to <= from) {
            return Ok(());
        }
        let done = self.try_scan(from, to, visit);
        self.finished(done)
    }

    fn last_sync_time(&self) -> Duration {
        self.last_commit
    }
}
