//! Tests of the engines and of the writer over them. Both engines run everything.

mod attachments;
mod conformance;
mod damage;
mod documents;
mod failing_disk;
mod forgetful_disk;
mod full_disk;
mod numbers;
mod ownership;
mod power_cut;
mod processes;
mod readme;
mod running;
mod tour;
mod workload;
mod writer;

use rota_model::{ClusterName, ManagerId, ManagerNumber};
use rota_storage::{
    Disk, Engine, EngineError, EngineKind, Label, LogSettings, RedbSettings, Settings, open_on,
};
use std::path::Path;
use std::sync::Arc;

const ENGINES: [EngineKind; 2] = [EngineKind::Log, EngineKind::Redb];

fn label() -> Label {
    Label {
        cluster: ClusterName::parse("test").expect("a good name"),
        manager: ManagerId::parse("m7").expect("a good name"),
        number: ManagerNumber(7),
    }
}

/// Runs a test on each engine, with a folder of its own.
fn on_each_engine(test: impl Fn(&Path, EngineKind)) {
    for engine in ENGINES {
        let folder = tempfile::tempdir().expect("a folder");
        test(folder.path(), engine);
    }
}

/// Small enough that every test folds its log and grows its segments many times.
fn settings(engine: EngineKind) -> Settings {
    Settings {
        engine: Some(engine),
        log: LogSettings { checkpoint_bytes: 48 * 1024, grow_bytes: 8 * 1024 },
        redb: RedbSettings { cache_bytes: 1024 * 1024, verify_pages: true },
    }
}

fn open(
    disk: Arc<dyn Disk>,
    folder: &Path,
    engine: EngineKind,
) -> Result<Box<dyn Engine>, EngineError> {
    open_on(disk, folder, &label(), &settings(engine))
}
