//! One connection, and how long anything of it is waited for.

use crate::address::Address;
use crate::error::{PostgresError, is_lost, may_connect_later};
use crate::lock::{self, Backend};
use crate::schema::{self, Statements};
use crate::server;
use std::future::Future;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio_postgres::{Client, NoTls};

/// Between two attempts to connect.
const PAUSE: Duration = Duration::from_millis(100);
/// How long the last words to a server may take.
const GOODBYE: Duration = Duration::from_secs(1);
/// Longest name of a connection that a server keeps, in bytes.
const NAME_BYTES_MAX: usize = 63;

/// Why something was not done.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The server, or the way to it.
    Server(&'static str, Box<tokio_postgres::Error>),
    /// It is refused for good.
    Refused(Box<PostgresError>),
    /// Nothing came in time.
    Late(&'static str),
}

impl From<PostgresError> for Fault {
    fn from(error: PostgresError) -> Self {
        Self::Refused(Box::new(error))
    }
}

impl Fault {
    /// Whether the connection is gone, so that nobody knows what became of the work.
    pub(crate) fn is_lost(&self) -> bool {
        match self {
            Self::Server(_, error) => is_lost(error),
            Self::Refused(_) | Self::Late(_) => false,
        }
    }

    fn may_pass(&self) -> bool {
        match self {
            Self::Server(_, error) => may_connect_later(error),
            Self::Refused(_) | Self::Late(_) => false,
        }
    }

    /// The error to tell.
    pub(crate) fn told(self, place: &str, waited: Duration) -> PostgresError {
        let place = place.to_owned();
        match self {
            Self::Server(doing, source) if is_lost(&source) => {
                PostgresError::Late { doing, place, waited, source: Some(source) }
            }
            Self::Server(doing, source) => PostgresError::Server { doing, place, source },
            Self::Refused(error) => *error,
            Self::Late(doing) => PostgresError::Late { doing, place, waited, source: None },
        }
    }
}

/// Says what was being done when an error came.
pub(crate) trait Doing<T> {
    fn doing(self, what: &'static str) -> Result<T, Fault>;
}

impl<T> Doing<T> for Result<T, tokio_postgres::Error> {
    fn doing(self, what: &'static str) -> Result<T, Fault> {
        self.map_err(|error| Fault::Server(what, Box::new(error)))
    }
}

/// A connection, and the task that moves its bytes.
pub(crate) struct Connection {
    pub client: Client,
    task: JoinHandle<()>,
}

/// A connection that holds the lock of a schema.
pub(crate) struct Session {
    pub statements: Statements,
    backend: Backend,
    connection: Connection,
}

impl Session {
    pub(crate) fn client(&self) -> &Client {
        &self.connection.client
    }
}

/// Whom to talk to, about what, and a runtime for it on the caller's thread.
pub(crate) struct Link {
    runtime: Option<Runtime>,
    address: Address,
    name: String,
    pub schema: String,
    pub place: String,
    pub session: Option<Session>,
    /// The connection that was lost last, which the server may still have.
    lost: Option<Backend>,
}

impl Link {
    pub(crate) fn new(
        address: &Address,
        manager: &str,
        schema: String,
    ) -> Result<Self, PostgresError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let doing = "make what a connection runs on";
        let runtime = runtime.map_err(|source| PostgresError::System { doing, source })?;
        let machine = rustix::system::uname();
        let machine = machine.nodename().to_string_lossy();
        let mut name = format!("rota {manager} pid {} on {machine}", std::process::id());
        name.truncate(name.floor_char_boundary(NAME_BYTES_MAX));
        let place = format!("{address}, schema \"{schema}\"");
        let (runtime, address) = (Some(runtime), address.clone());
        Ok(Self { runtime, address, name, schema, place, session: None, lost: None })
    }

    /// Runs something to its end, or to a deadline.
    pub(crate) fn wait<T>(
        &self,
        doing: &'static str,
        until: Instant,
        work: impl Future<Output = Result<T, Fault>>,
    ) -> Result<T, Fault> {
        let runtime = self.runtime.as_ref().expect("whoever closed the link waits no more");
        runtime.block_on(async {
            let done = tokio::time::timeout_at(until.into(), work).await;
            done.unwrap_or(Err(Fault::Late(doing)))
        })
    }

    /// Connects, as soon as there is a server, and checks what it is. Nothing is locked.
    pub(crate) fn connect(&self, until: Instant) -> Result<Connection, Fault> {
        let doing = "connect";
        let mut last = None;
        loop {
            match self.wait(doing, until, self.try_connect()) {
                Err(fault) if fault.may_pass() => last = Some(fault),
                // What an attempt met is worth more than that the time is over.
                Err(Fault::Late(_)) => return Err(last.unwrap_or(Fault::Late(doing))),
                met @ (Ok(_) | Err(_)) => return met,
            }
            let pause = async {
                tokio::time::sleep(PAUSE).await;
                Ok(())
            };
            if self.wait(doing, until, pause).is_err() {
                return Err(last.unwrap_or(Fault::Late(doing)));
            }
        }
    }

    async fn try_connect(&self) -> Result<Connection, Fault> {
        let mut config = self.address.config().clone();
        config.application_name(&self.name);
        let (client, connection) = config.connect(NoTls).await.doing("connect")?;
        let task = tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to PostgreSQL ended");
            }
        });
        let connection = Connection { client, task };
        server::check(&connection.client, &self.place).await?;
        server::set_up(&connection.client).await?;
        Ok(connection)
    }

    /// Connects until a deadline, then takes the lock of the schema, for which it waits so long. Ends what is left of this link's last connection first: it may
    /// hold the lock.
    pub(crate) fn lock(&self, until: Instant, patience: Duration) -> Result<Connection, Fault> {
        let connection = self.connect(until)?;
        let client = &connection.client;
        // The server is the one to say that it took too long, and who has the lock.
        self.wait("lock the schema", Instant::now() + patience + GOODBYE, async {
            if let Some(lost) = &self.lost {
                lost.end(client).await?;
            }
            lock::take(client, &self.schema, &self.place, patience).await
        })?;
        Ok(connection)
    }

    /// Makes a connection with the lock the one that is used.
    pub(crate) fn take(&mut self, connection: Connection, until: Instant) -> Result<(), Fault> {
        let client = &connection.client;
        let (statements, backend) = self.wait("prepare statements", until, async {
            Ok((schema::prepare(client, &self.schema).await?, Backend::own(client).await?))
        })?;
        self.session = Some(Session { statements, backend, connection });
        self.lost = None;
        Ok(())
    }

    /// Gives the connection up.
    pub(crate) fn lose(&mut self) {
        if let Some(session) = self.session.take() {
            self.lost = Some(session.backend);
        }
    }

    /// Closes every connection with a goodbye, so that the server gives the lock to the next at once. Nothing can be
    /// waited for afterwards. On a thread of its own: this one may be one of another runtime's.
    pub(crate) fn close(&mut self) {
        let (session, runtime) = (self.session.take(), self.runtime.take());
        let Some(runtime) = runtime else { return };
        let goodbye = std::thread::Builder::new().spawn(move || {
            if let Some(Session { connection: Connection { client, task }, .. }) = session {
                drop(client);
                // A server that does not listen any more is not waited for.
                let _ = runtime.block_on(async { tokio::time::timeout(GOODBYE, task).await });
            }
            drop(runtime);
        });
        if let Ok(thread) = goodbye {
            // It ends within the time for goodbyes.
            let _ = thread.join();
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.close();
    }
}
