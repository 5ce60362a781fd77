//! What programs printed last, on its way to the ring: there it is read when this node is gone.
//!
//! ```text
//!  a program has ended ── the end of its files ──▶ queue (bounded) ──▶ bodies, then session.output
//! ```

use crate::output_files::Kept;
use anyhow::bail;
use rota_client::{CallError, Client};
use rota_docstore::{Caller, Digest, Request};
use rota_model::{NodeId, Retry, SessionKey, Stamp};
use rota_node::class::KeptOutput;
use rota_proto::documents::request::{Operate, PutBody};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::io::{self, Cursor};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

/// Sessions that wait. Each holds the files of its outputs open, four at most: its folder may be removed meanwhile.
const WAITING_MAX: usize = 2_048;
/// Sessions that are sent at once. Each holds both ends in memory, 1 MiB of each at most.
const SENT_AT_ONCE_MAX: usize = 8;
/// How long one call may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// The pause before one is tried again: at first, and at most.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// After so long it is given up: managers were away all the time.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(300);
/// At the end of the agent: how long it waits for the next one, and for all of them.
const STANDSTILL: Duration = Duration::from_secs(3);
const END_PATIENCE: Duration = Duration::from_secs(20);
/// A line that was begun before what is kept is left out if it is no longer than this.
const LINE_BYTES_MAX: usize = 4_096;
/// What is no longer than this goes into the document: managers take no more.
const TEXT_BYTES_MAX: usize = 1_024;
/// What is read at once.
const PIECE_BYTES: usize = 64 * 1_024;

/// The end of one output.
#[derive(Debug)]
struct End {
    /// How many bytes come before.
    from: u64,
    bytes: Vec<u8>,
}

/// Of which life something is kept, and its outputs.
struct Printed {
    session: SessionKey,
    life: Stamp,
    kept: KeptOutput,
    outputs: [Kept; 2],
    /// Counts as under way until it is gone.
    _under_way: mpsc::Sender<()>,
}

/// Where the end of what programs printed goes.
#[derive(Clone, Debug)]
pub struct Outputs {
    queue: mpsc::Sender<Printed>,
    /// Taken when nothing more is to come.
    under_way: Arc<Mutex<Option<mpsc::Sender<()>>>>,
    over: Arc<tokio::sync::Mutex<mpsc::Receiver<()>>>,
    /// How many were sent, or given up.
    done: Arc<AtomicU64>,
}

/// What waits to be sent, and where those count that were.
pub struct Queue(mpsc::Receiver<Printed>, Arc<AtomicU64>);

impl Outputs {
    /// With nothing in it.
    pub fn new() -> (Self, Queue) {
        let (queue, waiting) = mpsc::channel(WAITING_MAX);
        let (under_way, over) = mpsc::channel(1);
        let outputs = Self {
            queue,
            under_way: Arc::new(Mutex::new(Some(under_way))),
            over: Arc::new(tokio::sync::Mutex::new(over)),
            done: Arc::default(),
        };
        let done = outputs.done.clone();
        (outputs, Queue(waiting, done))
    }

    /// Has the end of what a life printed into that folder kept. Blocks.
    ///
    /// # Errors
    /// Its files cannot be opened, or too many wait.
    pub fn keep(
        &self,
        (session, life): (SessionKey, Stamp),
        kept: KeptOutput,
        folder: &Path,
    ) -> anyhow::Result<()> {
        let output = |name: &str| Kept::look(&folder.join(format!("{name}.log")));
        let outputs = [output("stdout")?, output("stderr")?];
        if outputs.iter().all(|it| it.end() == 0) {
            return Ok(());
        }
        let under_way = self.under_way.lock().ok().and_then(|it| it.clone());
        let Some(_under_way) = under_way else { bail!("this agent ends") };
        let printed = Printed { session, life, kept, outputs, _under_way };
        let full = |_| anyhow::anyhow!("{WAITING_MAX} sessions wait for managers, the limit");
        self.queue.try_send(printed).map_err(full)
    }

    /// Waits until all of it was sent, or given up, as long as one after the other is. Nothing more is taken.
    pub async fn sent(&self) {
        if let Ok(mut under_way) = self.under_way.lock() {
            under_way.take();
        }
        let (began, mut over) = (Instant::now(), self.over.lock().await);
        loop {
            let before = self.done.load(Ordering::Relaxed);
            if timeout(STANDSTILL, over.recv()).await.is_ok() {
                return;
            }
            let stands_still = self.done.load(Ordering::Relaxed) == before;
            if stands_still || began.elapsed() > END_PATIENCE {
                return tracing::warn!("what some programs printed did not reach the ring in time");
            }
        }
    }
}

/// The end of an output, from the beginning of a line if one is near; `None` of one that is empty. Blocks.
fn end_of(kept: &Kept, most: u64) -> io::Result<Option<End>> {
    let (end, begin) = (kept.end(), kept.begin());
    let first = begin.max(end.saturating_sub(most));
    let (mut from, mut bytes) = (first, Vec::new());
    while from + (bytes.len() as u64) < end {
        let at = from + bytes.len() as u64;
        let Some((found, mut piece)) = kept.read(at, PIECE_BYTES)? else { break };
        if found != at {
            // What lay between is gone.
            (from, bytes) = (found, Vec::new());
        }
        bytes.append(&mut piece);
    }
    bytes.truncate(usize::try_from(most).unwrap_or(usize::MAX));
    let is_cut = first > begin;
    let line = bytes.iter().take(LINE_BYTES_MAX).position(|it| *it == b'\n').filter(|_| is_cut);
    if let Some(line) = line.filter(|it| it + 1 < bytes.len()) {
        bytes.drain(..=line);
        from += line as u64 + 1;
    }
    Ok((!bytes.is_empty()).then_some(End { from, bytes }))
}

/// Sends what waits, until the agent ends.
pub fn start(queue: Queue, node: NodeId, managers: watch::Receiver<Vec<String>>) {
    let sender = Sender { node, managers, client: Arc::default() };
    tokio::spawn(sender.run(queue));
}

/// Managers, and a client of theirs.
type Known = (Vec<String>, Client);

#[derive(Clone)]
struct Sender {
    node: NodeId,
    managers: watch::Receiver<Vec<String>>,
    /// Of these managers. A lock, because each session that is sent has a task; it is held for one look.
    client: Arc<Mutex<Option<Known>>>,
}

impl Sender {
    /// One for all sessions, until other managers are known.
    fn client(&self) -> anyhow::Result<Client> {
        let managers = self.managers.borrow().clone();
        let mut kept = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, client)) = kept.as_ref().filter(|it| it.0 == managers) {
            return Ok(client.clone());
        }
        let client = Client::connect(&managers.join(","))?;
        *kept = Some((managers, client.clone()));
        Ok(client)
    }

    async fn run(self, Queue(mut queue, count): Queue) {
        let mut sent: JoinSet<anyhow::Result<()>> = JoinSet::new();
        // Each failure is logged once.
        let mut told = String::new();
        loop {
            let done = tokio::select! {
                Some(done) = sent.join_next() => done,
                printed = queue.recv(), if sent.len() < SENT_AT_ONCE_MAX => {
                    let Some(printed) = printed else { break };
                    let sender = self.clone();
                    sent.spawn(async move { sender.send(printed).await });
                    continue;
                }
            };
            count.fetch_add(1, Ordering::Relaxed);
            let why = match done.map_err(anyhow::Error::from).and_then(|it| it) {
                Ok(()) => String::new(),
                Err(error) => format!("{error:#}"),
            };
            if !why.is_empty() && why != told {
                tracing::warn!(why, "what a program printed is not kept at the ring");
            }
            told = why;
        }
        while sent.join_next().await.is_some() {}
    }

    /// Tries again as long as that may help.
    async fn send(self, printed: Printed) -> anyhow::Result<()> {
        let Printed { session, life, kept, outputs, _under_way } = printed;
        let most = u64::from(kept.kib) * 1_024;
        let read = move || {
            let [stdout, stderr] = outputs;
            anyhow::Ok([end_of(&stdout, most)?, end_of(&stderr, most)?])
        };
        let ends = tokio::task::spawn_blocking(read).await??;
        let (began, mut pause) = (Instant::now(), PAUSE);
        loop {
            // Managers come and go while it waits.
            let failed = match self.client() {
                Ok(client) => {
                    let of = (&self.node, &session, life, kept.keep_ms);
                    match send_once(&client, of, &ends).await {
                        Ok(()) => return Ok(()),
                        Err(failed) => failed,
                    }
                }
                Err(error) => Failed { error, is_final: false },
            };
            if failed.is_final || began.elapsed() > GIVEN_UP_AFTER {
                return Err(failed.error);
            }
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
}

/// Why it was not kept, and whether it never will.
struct Failed {
    error: anyhow::Error,
    is_final: bool,
}

impl From<CallError> for Failed {
    fn from(error: CallError) -> Self {
        let is_final = matches!(error.retry(), Retry::Never | Retry::WhenChanged);
        Self { error: error.into(), is_final }
    }
}

/// May be repeated: what is kept of a life already stays.
async fn send_once(
    client: &Client,
    (node, session, life, keep_ms): (&NodeId, &SessionKey, Stamp, u64),
    [stdout, stderr]: &[Option<End>; 2],
) -> Result<(), Failed> {
    let stdout = put(client, session, stdout.as_ref()).await?;
    let stderr = put(client, session, stderr.as_ref()).await?;
    let parameters = json!({
        "id": session.id.as_str(), "life": life.as_u64(), "node": node.as_str(), "keep_ms": keep_ms,
        "stdout": stdout, "stderr": stderr,
    });
    let request = Request::new(session.namespace.clone(), "session.output").with(&parameters);
    let wrong = |it| Failed { error: anyhow::anyhow!("{it}"), is_final: true };
    let operate =
        Operate { request: request.map_err(wrong)?, docid: session.id.as_str().to_owned() };
    client.documents().operate(&operate, PATIENCE).await?;
    Ok(())
}

async fn put(client: &Client, session: &SessionKey, end: Option<&End>) -> Result<Value, CallError> {
    let Some(End { from, bytes }) = end else { return Ok(Value::Null) };
    if bytes.len() <= TEXT_BYTES_MAX
        && let Ok(text) = std::str::from_utf8(bytes)
    {
        return Ok(json!({"from": from, "bytes": bytes.len(), "text": text}));
    }
    let sha256 = Digest(Sha256::digest(bytes).into());
    let put = PutBody {
        space: session.namespace.clone(),
        docid: session.id.as_str().to_owned(),
        size: bytes.len() as u64,
        sha256,
        caller: Caller::default(),
    };
    client.documents().put_body(&put, &mut Cursor::new(bytes), PATIENCE).await?;
    Ok(json!({"from": from, "bytes": bytes.len(), "sha256": sha256.to_string()}))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn end(text: &str, most: u64) -> Option<(u64, String)> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stdout.log");
        fs::write(&path, text).unwrap();
        let kept = Kept::look(&path).unwrap();
        // Whoever holds it open reads it, whether it is there or not.
        fs::remove_file(&path).unwrap();
        let end = end_of(&kept, most).unwrap()?;
        Some((end.from, String::from_utf8(end.bytes).unwrap()))
    }

    #[test]
    fn the_end_begins_with_a_line_where_one_is_near() {
        assert_eq!(end("", 10), None);
        assert_eq!(end("one\ntwo\n", 100), Some((0, "one\ntwo\n".to_owned())));
        assert_eq!(end("one\ntwo\n", 6), Some((4, "two\n".to_owned())));
        assert_eq!(end("one\ntwo", 2), Some((5, "wo".to_owned())), "there is no other line");
        let long = "x".repeat(3 * PIECE_BYTES);
        let kept = end(&long, 2 * PIECE_BYTES as u64 + 7).unwrap();
        assert_eq!((kept.0, kept.1.len()), (PIECE_BYTES as u64 - 7, 2 * PIECE_BYTES + 7));
    }

    #[test]
    fn files_that_are_not_there_are_an_empty_output() {
        let folder = tempfile::tempdir().unwrap();
        let kept = Kept::look(&folder.path().join("stdout.log")).unwrap();
        assert!(end_of(&kept, 10).unwrap().is_none());
    }

    #[tokio::test]
    async fn what_waits_is_bounded_and_nothing_is_taken_after_the_end() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("stdout.log"), "up\n").unwrap();
        let empty = tempfile::tempdir().unwrap();
        let key = SessionKey::new(
            rota_model::Namespace::default_space(),
            rota_model::SessionId::parse("s").unwrap(),
        );
        let kept = KeptOutput { keep_ms: 1, kib: 1_024 };
        let (outputs, mut queue) = Outputs::new();
        let keep = |folder: &Path| outputs.keep((key.clone(), Stamp::MIN), kept, folder);
        keep(empty.path()).unwrap();
        assert!(queue.0.try_recv().is_err(), "there is nothing to keep");
        for _ in 0..WAITING_MAX {
            keep(folder.path()).unwrap();
        }
        assert!(keep(folder.path()).unwrap_err().to_string().contains("wait for managers"));
        queue.0.recv().await.unwrap();
        keep(folder.path()).unwrap();
        queue.0.close();
        while queue.0.recv().await.is_some() {}
        outputs.sent().await;
        assert!(keep(folder.path()).is_err());
    }
}
