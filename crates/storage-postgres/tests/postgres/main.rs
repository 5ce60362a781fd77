//! The engine on a real server, which each test starts for itself. Conformance is the suite of `rota-storage`.

mod columns;
#[path = "../../../storage/tests/storage/conformance.rs"]
mod conformance;
mod crashes;
mod full_disk;
mod ownership;
mod proxy;
#[path = "../../../../tests/src/postgres.rs"]
mod server;
#[path = "../../../storage/tests/storage/workload.rs"]
mod workload;

use rota_model::{ClusterName, ManagerId, ManagerNumber};
use rota_storage::{Disk, Engine, EngineError, EngineKind, Label};
use rota_storage_postgres::{Address, Opening, PostgresEngine, Waits};
use server::PostgresServer;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

fn label() -> Label {
    Label {
        cluster: ClusterName::parse("test").expect("a good name"),
        manager: ManagerId::parse("m7").expect("a good name"),
        number: ManagerNumber(7),
    }
}

/// Short waits, for what comes to an end in a test.
fn opening(url: &str) -> Opening {
    Opening {
        address: Address::parse("url", url, false).expect("a good address"),
        label: label(),
        row_of: |_, _| None,
        waits: Waits { lock: Duration::from_secs(5), ..Waits::default() },
    }
}

fn open_at(url: &str, folder: &Path) -> Result<PostgresEngine, EngineError> {
    PostgresEngine::open(folder, opening(url))
}

/// All causes of an error in one line, as a process tells them.
fn told<T>(result: Result<T, EngineError>) -> String {
    let error = result.err().expect("it is refused");
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(next) = cause {
        text = format!("{text}: {next}");
        cause = next.source();
    }
    text
}

/// Runs a test of the suite with a folder, beside which a server's address lies.
fn on_each_engine(test: impl Fn(&Path, EngineKind)) {
    let server = PostgresServer::start();
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("url"), server.url_of_socket()).expect("it is our own");
    test(&folder.path().join("data"), EngineKind::Postgres);
}

/// The suite hands over a disk, which is the server's matter here.
fn open(
    _: Arc<dyn Disk>,
    folder: &Path,
    engine: EngineKind,
) -> Result<Box<dyn Engine>, EngineError> {
    assert_eq!(engine, EngineKind::Postgres);
    let url = folder.parent().expect("it lies in a folder").join("url");
    let url = fs::read_to_string(url).expect("it lies beside the folder");
    Ok(Box::new(open_at(&url, folder)?))
}
