//! What this manager keeps on its disk: read once at the start, then only written.
//!
//! Keys begin with a letter: `d` documents, `p` partitions, `i` who the manager is.

use crate::bodies;
use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::options::EngineOptions;
use anyhow::{Context, Result, bail};
use rota_docstore::cache::CLOCKS_APART_MS_MAX;
use rota_docstore::{Document, Stamp};
use rota_model::{ClusterName, ManagerId, ManagerNumber};
use rota_proto::disk as codec;
use rota_proto::encoded::DocBytes;
use rota_protocol::{Disk, DiskWrite};
use rota_storage::{
    Counters, Disk as _, Engine, KvWrite, Label, LogEngine, LogSettings, NotQueued, Pace, RealDisk,
    Writer, is_unclaimed,
};
use rota_storage_postgres::{Address, DocumentRow, Opening, PostgresEngine, Waits};
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::watch;

const DOCUMENT: u8 = b'd';
const PARTITION: u8 = b'p';
const IDENTITY: &[u8] = b"i";

/// Submissions that may wait for the disk. The driver submits once a turn; when so many turns have
/// passed during one commit, waiting is better than taking more work.
const QUEUE_MAX: NonZeroUsize = NonZeroUsize::new(1024).expect("1024 is not 0");
/// Several managers on one machine share its processor, which limits them before the disk does:
/// half the commits for 64 callers, an eighth less processor time for each open, and no longer
/// latencies. A caller waits for it twice at most.
const PACE: Pace = Pace { queue_max: QUEUE_MAX, rest_max: Duration::from_millis(2) };

/// Bytes that must be free where a manager starts. Its log grows by 256 KiB at a time, and a commit that does
/// not fit ends the process.
const FREE_BYTES_MIN: u64 = 8 * 1024 * 1024;

/// Checks that the data folder, which need not be there yet, lies on a disk that is not full: nothing may be
/// served by a manager that its first commit ends.
pub fn check_room(folder: &Path) -> Result<()> {
    let mut above =
        folder.ancestors().map(|it| if it == Path::new("") { Path::new(".") } else { it });
    let Some(there) = above.find(|it| it.exists()) else { return Ok(()) };
    let free = RealDisk.free_bytes(there);
    let free =
        free.with_context(|| format!("--data: cannot look at the disk of {}", there.display()))?;
    if free < FREE_BYTES_MIN {
        let (shown, mib) = (folder.display(), FREE_BYTES_MIN >> 20);
        bail!(
            "--data: the disk of {shown} is full: {} KiB are free, and a manager starts with {mib} MiB. Free \
             some space, or give it a larger disk",
            free >> 10
        );
    }
    Ok(())
}

/// Whether neither the folder nor a server says yet whose the records are. May wait for a server.
pub fn is_new(folder: &Path, label: &Label, engine: &EngineOptions) -> Result<bool> {
    let unclaimed = is_unclaimed(folder)
        .with_context(|| format!("data folder {} cannot be used", folder.display()))?;
    match engine {
        EngineOptions::Postgres(address) if unclaimed => {
            let exists = rota_storage_postgres::exists(&opening(address, label));
            Ok(!exists.context("--engine postgres")?)
        }
        EngineOptions::Postgres(_) | EngineOptions::Log => Ok(unclaimed),
    }
}

fn opening(address: &Address, label: &Label) -> Opening {
    let (address, label) = (address.clone(), label.clone());
    Opening { address, label, row_of, waits: Waits::default() }
}

/// What people see of a record: of documents, what they say.
fn row_of(key: &[u8], value: &[u8]) -> Option<DocumentRow> {
    let (&DOCUMENT, name) = key.split_first()? else { return None };
    let slot = codec::decode_key(name).ok()?.slot.0;
    Some(DocumentRow::of(slot, &Document::from_bytes(value).ok()?))
}

/// Opens the folder, which must be this manager's (or new), and reads everything that it keeps. May wait for a
/// server.
pub fn open(
    folder: &Path,
    cluster: &ClusterName,
    manager: &ManagerId,
    number: ManagerNumber,
    engine: &EngineOptions,
) -> Result<(Box<dyn Engine>, Disk)> {
    let label = Label { cluster: cluster.clone(), manager: manager.clone(), number };
    let unusable = || format!("data folder {} cannot be used", folder.display());
    let mut engine: Box<dyn Engine> = match engine {
        EngineOptions::Log => {
            let settings = LogSettings::default();
            let engine = LogEngine::open(Arc::new(RealDisk), folder, &label, settings);
            Box::new(engine.with_context(unusable)?)
        }
        EngineOptions::Postgres(address) => {
            let engine = PostgresEngine::open(folder, opening(address, &label));
            Box::new(engine.with_context(unusable)?)
        }
    };
    let disk = read(engine.as_mut())
        .with_context(|| format!("data folder {} cannot be read", folder.display()))?;
    if let Some(text) = from_the_future(&disk, Clock::start().now().wall_ms) {
        tracing::warn!("{text}");
    }
    Ok((engine, disk))
}

/// Makes a folder that was begun for a number nobody's again. Only for one that was new to this very
/// run, whose number was refused: it holds nothing that anybody was promised.
pub fn give_up(folder: &Path, label: &Label, engine: &EngineOptions) -> Result<()> {
    match engine {
        EngineOptions::Log => {}
        EngineOptions::Postgres(address) => {
            let given_up = rota_storage_postgres::give_up(&opening(address, label));
            given_up.context("the schema of a number that was refused cannot be given up")?;
        }
    }
    let given_up = bodies::remove(folder).and_then(|()| Ok(rota_storage::give_up(folder, label)?));
    given_up.with_context(|| format!("data folder {} cannot be given up", folder.display()))
}

/// What to say of documents whose versions are far ahead of the clock. They are whole (their
/// checksums match) and were answered for, by an owner whose clock was ahead, or before this one
/// stepped back. So they are kept as they are: to lower a version would leave copies ahead of their
/// source for good, and to refuse it would take away what nobody could put right again.
fn from_the_future(disk: &Disk, wall_ms: u64) -> Option<String> {
    let now = Stamp::from_epoch_ms(wall_ms);
    let newest = disk.docs.values().max_by_key(|it| it.version())?;
    let (name, version) = (newest.name(), newest.version());
    if version <= now.plus_ms(CLOCKS_APART_MS_MAX) {
        return None;
    }
    Some(format!(
        "document {name} has version {version}, in the future: the clock here says {now}; what is \
         written next is later than that version; check the clocks of the managers"
    ))
}

fn read(engine: &mut dyn Engine) -> Result<Disk> {
    let mut disk = Disk::default();
    let mut failed = None;
    engine.scan_all(&mut |key, value| match read_record(&mut disk, key, value) {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => {
            failed = Some(error);
            ControlFlow::Break(())
        }
    })?;
    failed.map_or(Ok(disk), Err)
}

/// Every mistake names the record that it is in.
fn read_record(disk: &mut Disk, key: &[u8], value: &[u8]) -> Result<()> {
    let read = take_record(disk, key, value);
    read.with_context(|| format!("record \"{}\"", key.escape_ascii()))
}

fn take_record(disk: &mut Disk, key: &[u8], value: &[u8]) -> Result<()> {
    match key.split_first() {
        Some((&DOCUMENT, name)) => {
            let (key, doc) = codec::decode_doc(name, value)?;
            disk.docs.insert(key, Arc::new(doc));
        }
        Some((&PARTITION, name)) => {
            let meta = codec::decode_part_meta(value)?;
            disk.parts.insert(codec::decode_part_key(name)?, meta);
        }
        _ if key == IDENTITY => disk.identity = codec::decode_identity(value)?,
        _ => anyhow::bail!("it is of an unknown kind"),
    }
    Ok(())
}

fn lettered(letter: u8, name: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(1 + name.len());
    key.push(letter);
    key.extend_from_slice(name);
    key
}

fn encode(write: &DiskWrite, docs: &mut DocBytes) -> KvWrite {
    match write {
        DiskWrite::Doc { key, doc: Some(doc) } => {
            KvWrite::put(lettered(DOCUMENT, &codec::encode_key(key)), docs.of(doc))
        }
        DiskWrite::Doc { key, doc: None } => {
            KvWrite::delete(lettered(DOCUMENT, &codec::encode_key(key)))
        }
        DiskWrite::Part { part, meta } => KvWrite::put(
            lettered(PARTITION, &codec::encode_part_key(*part)),
            codec::encode_part_meta(*meta),
        ),
        DiskWrite::Identity(identity) => KvWrite::put(IDENTITY, codec::encode_identity(identity)),
    }
}

/// The thread that writes, and how far it is.
pub struct DiskWriter {
    writer: Writer,
    durable: watch::Receiver<u64>,
    /// What found the queue full; nothing may overtake it.
    held: Option<(u64, Vec<KvWrite>)>,
}

impl DiskWriter {
    /// Starts the thread. One wake-up of the runtime per commit: the newest durable number goes
    /// through one `watch`, however many submissions the commit held.
    pub fn start(engine: Box<dyn Engine>, metrics: &Metrics) -> Result<Self> {
        let (newest, durable) = watch::channel(0);
        let counters: Arc<OnceLock<Arc<Counters>>> = Arc::new(OnceLock::new());
        let seen = counters.clone();
        let (batch, seconds) = (metrics.commit_batch.clone(), metrics.commit_seconds.clone());
        let sync_seconds = metrics.commit_sync_seconds.clone();
        let writes = metrics.commit_writes.clone();
        let mut writes_before = 0;
        let on_committed = move |lsn| {
            newest.send_replace(lsn);
            if let Some(counters) = seen.get() {
                let writes_now = counters.writes();
                writes.record(as_float(writes_now - writes_before));
                writes_before = writes_now;
                batch.record(as_float(counters.last_batch()));
                seconds.record(counters.last_commit_time());
                sync_seconds.record(counters.last_sync_time());
            }
        };
        let writer = Writer::spawn(engine, PACE, on_committed)
            .context("the thread that writes to disk cannot be started")?;
        let _ = counters.set(writer.counters());
        Ok(Self { writer, durable, held: None })
    }

    /// Everything up to this number is on disk.
    pub fn durable(&mut self) -> u64 {
        *self.durable.borrow_and_update()
    }

    /// Waits until more is on disk.
    pub async fn more_durable(&mut self) {
        if self.durable.changed().await.is_err() {
            // The thread has ended, which it only does with the process.
            std::future::pending::<()>().await;
        }
    }

    /// Writes in order of `lsn`. Call [`DiskWriter::has_room`] first.
    pub fn submit(&mut self, lsn: u64, writes: &[DiskWrite], docs: &mut DocBytes) {
        let writes = writes.iter().map(|it| encode(it, docs)).collect();
        self.try_submit(lsn, writes);
    }

    /// Whether the next submission will be queued; else wait for [`DiskWriter::more_durable`].
    pub fn has_room(&mut self) -> bool {
        if let Some((lsn, writes)) = self.held.take() {
            self.try_submit(lsn, writes);
        }
        self.held.is_none()
    }

    fn try_submit(&mut self, lsn: u64, writes: Vec<KvWrite>) {
        debug_assert!(self.held.is_none(), "nothing overtakes what is held");
        match self.writer.try_submit(lsn, writes) {
            Ok(()) => {}
            Err(NotQueued::Full(writes)) => self.held = Some((lsn, writes)),
            Err(NotQueued::Ended(_)) => {
                // The thread says why, and ends the process, before anything else can happen.
                tracing::error!(lsn, "the thread that writes to disk has ended");
            }
        }
    }

    /// Commits what is queued and closes the files; waits for `patience` at most.
    pub fn close(self, patience: Duration) -> Result<()> {
        self.writer.shutdown(patience).context("the disk was not closed in good order")
    }
}

/// Counts in a batch are far below 2^52.
#[allow(clippy::cast_precision_loss)]
fn as_float(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_model::items::Orders;
    use rota_model::{Epoch, Incarnation, LogPos, Nonce, PoolName, Seq, SlotId};
    use rota_protocol::{Doc, DocKey, Identity, PartitionMeta};

    fn folder_of(path: &Path, manager: &str) -> Result<(Box<dyn Engine>, Disk)> {
        let cluster = ClusterName::parse("c").unwrap();
        let manager = ManagerId::parse(manager).unwrap();
        open(path, &cluster, &manager, ManagerNumber(7), &EngineOptions::Log)
    }

    fn writes() -> Vec<DiskWrite> {
        let orders =
            Orders { decisions: 3, ordered: Vec::new(), lapses_wall_ms: 9, ..Orders::default() };
        let doc = Doc::orders_after(None, &PoolName::default_pool(), orders, Stamp::MIN);
        let doc = Arc::new(doc);
        let key = DocKey::new(SlotId(5), doc.name().clone());
        let gone = DocKey::new(SlotId(6), key.name.clone());
        let meta = PartitionMeta {
            pe: Epoch(4),
            last: LogPos::new(Epoch(4), Seq(2)),
            whole: true,
            forgotten: Stamp::MIN,
            found_from: None,
        };
        let identity = Identity { taken: Some((Incarnation(2), Nonce(11))), intended: None };
        vec![
            DiskWrite::Doc { key: gone.clone(), doc: Some(doc.clone()) },
            DiskWrite::Doc { key, doc: Some(doc) },
            DiskWrite::Doc { key: gone, doc: None },
            DiskWrite::Part { part: ManagerNumber(7), meta },
            DiskWrite::Identity(identity),
        ]
    }

    #[test]
    fn what_was_committed_is_read_at_the_next_start() {
        let folder = tempfile::tempdir().unwrap();
        let (mut engine, empty) = folder_of(folder.path(), "a").unwrap();
        assert_eq!(empty, Disk::default());
        let mut docs = DocBytes::default();
        let batch: Vec<KvWrite> = writes().iter().map(|it| encode(it, &mut docs)).collect();
        engine.commit(&batch).unwrap();
        drop(engine);
        let (_, disk) = folder_of(folder.path(), "a").unwrap();
        let mut expected = Disk::default();
        writes().iter().for_each(|it| expected.apply(it));
        assert_eq!(disk, expected);
    }

    #[test]
    fn a_folder_of_another_manager_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        drop(folder_of(folder.path(), "a").unwrap());
        let error = folder_of(folder.path(), "b").err().unwrap();
        let text = format!("{error:#}");
        assert!(text.contains("belongs to manager a"), "{text}");
    }

    #[test]
    fn a_record_that_does_not_read_as_it_must_is_refused_by_its_key() {
        let named = b"d\0\0\0\x05z\0orders\0default";
        let wrong: [(&[u8], &[u8], &str); 6] = [
            (
                named,
                b"?",
                "record \"d\\x00\\x00\\x00\\x05z\\x00orders\\x00default\": document z/orders/default: ",
            ),
            (b"d\0\0\0\x05z\0orders", b"", "record \"d\\x00\\x00\\x00\\x05z\\x00orders\": key"),
            (b"p\0\0\0\x07", b"\xff", "record \"p\\x00\\x00\\x00\\x07\": PartitionMeta"),
            (b"p\0", &[], "record \"p\\x00\": "),
            (b"i", b"\xff", "record \"i\": Identity"),
            (b"x", b"", "record \"x\": it is of an unknown kind"),
        ];
        for (key, value, told) in wrong {
            let folder = tempfile::tempdir().unwrap();
            let (mut engine, _) = folder_of(folder.path(), "a").unwrap();
            engine.commit(&[KvWrite::put(key, value)]).unwrap();
            drop(engine);
            let text = format!("{:#}", folder_of(folder.path(), "a").err().unwrap());
            assert!(text.contains(told), "{text}");
            assert!(text.contains(&folder.path().display().to_string()), "{text}");
        }
    }

    #[test]
    fn a_document_from_the_future_is_kept_and_told_by_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let wall_ms = Clock::start().now().wall_ms;
        let day_ms = 24 * 3_600_000;
        let orders =
            Orders { decisions: 3, ordered: Vec::new(), lapses_wall_ms: 9, ..Orders::default() };
        let ahead = Stamp::from_epoch_ms(wall_ms + day_ms);
        let doc = Arc::new(Doc::orders_after(None, &PoolName::default_pool(), orders, ahead));
        let key = DocKey::new(SlotId(5), doc.name().clone());
        let write = DiskWrite::Doc { key: key.clone(), doc: Some(doc.clone()) };
        let (mut engine, _) = folder_of(folder.path(), "a").unwrap();
        engine.commit(&[encode(&write, &mut DocBytes::default())]).unwrap();
        drop(engine);
        let (_, disk) = folder_of(folder.path(), "a").unwrap();
        assert_eq!(disk.docs[&key].version(), ahead);
        let text = from_the_future(&disk, wall_ms).unwrap();
        let told = format!("document z/orders/default has version {ahead}, in the future");
        assert!(text.starts_with(&told), "{text}");
        assert_eq!(from_the_future(&disk, wall_ms + day_ms), None);
    }
}
