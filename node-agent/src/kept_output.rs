//! What programs printed last, on its way to the ring: there it is read when this node is gone.
//!
//! ```text
//!  a program has ended ── the end of its files ──▶ queue (bounded) ──▶ bodies, then session.output
//! ```

use crate::output_files::Kept;
use anyhow::{Context, bail};
use rota_client::Client;
use rota_docstore::{Caller, Digest, Request};
use rota_model::{NodeId, SessionKey, Stamp};
use rota_node::class::KeptOutput;
use rota_proto::documents::request::{Operate, PutBody};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::io::{self, Cursor};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Sessions that wait.
const WAITING_MAX: usize = 1_024;
/// What they may hold together, in KiB.
const KIB_MAX: usize = 32 * 1_024;
/// Sessions that are sent at once.
const SENT_AT_ONCE_MAX: usize = 8;
/// How long one call may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often one is tried, and the pause between.
const TRIES_MAX: u32 = 4;
const PAUSE: Duration = Duration::from_secs(2);
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

/// What the program of a life printed last.
#[derive(Debug)]
struct Printed {
    session: SessionKey,
    life: Stamp,
    keep_ms: u64,
    stdout: Option<End>,
    stderr: Option<End>,
    /// Room in the queue.
    _room: OwnedSemaphorePermit,
    /// Counts as under way until it is gone.
    _under_way: mpsc::Sender<()>,
}

/// Where the end of what programs printed goes.
#[derive(Clone, Debug)]
pub struct Outputs {
    queue: mpsc::Sender<Printed>,
    room: Arc<Semaphore>,
    /// Taken when nothing more is to come.
    under_way: Arc<std::sync::Mutex<Option<mpsc::Sender<()>>>>,
    over: Arc<tokio::sync::Mutex<mpsc::Receiver<()>>>,
}

/// What waits to be sent.
pub struct Queue(mpsc::Receiver<Printed>);

impl Outputs {
    /// With nothing in it.
    pub fn new() -> (Self, Queue) {
        let (queue, waiting) = mpsc::channel(WAITING_MAX);
        let (under_way, over) = mpsc::channel(1);
        let outputs = Self {
            queue,
            room: Arc::new(Semaphore::new(KIB_MAX)),
            under_way: Arc::new(std::sync::Mutex::new(Some(under_way))),
            over: Arc::new(tokio::sync::Mutex::new(over)),
        };
        (outputs, Queue(waiting))
    }

    /// Reads the end of what a life printed into that folder, and has it kept. Blocks.
    ///
    /// # Errors
    /// It cannot be read, or too much waits.
    pub fn keep(
        &self,
        (session, life): (SessionKey, Stamp),
        kept: KeptOutput,
        folder: &Path,
    ) -> anyhow::Result<()> {
        let most = u64::from(kept.kib) * 1_024;
        let end = |name: &str| end_of(&folder.join(format!("{name}.log")), most);
        let (stdout, stderr) = (end("stdout")?, end("stderr")?);
        let bytes = |it: &Option<End>| it.as_ref().map_or(0, |it| it.bytes.len());
        let kib = (bytes(&stdout) + bytes(&stderr)).div_ceil(1_024);
        if kib == 0 {
            return Ok(());
        }
        let kib = u32::try_from(kib).context("an output is bounded")?;
        let room = self.room.clone().try_acquire_many_owned(kib);
        let under_way = self.under_way.lock().ok().and_then(|it| it.clone());
        let (Ok(_room), Some(_under_way)) = (room, under_way) else {
            bail!("too much of other sessions waits for managers");
        };
        let keep_ms = kept.keep_ms;
        let printed = Printed { session, life, keep_ms, stdout, stderr, _room, _under_way };
        self.queue.try_send(printed).map_err(|_| anyhow::anyhow!("too many sessions wait"))
    }

    /// Waits until all of it was sent, or given up. Nothing more is taken.
    pub async fn sent(&self, patience: Duration) {
        if let Ok(mut under_way) = self.under_way.lock() {
            under_way.take();
        }
        let mut over = self.over.lock().await;
        if timeout(patience, over.recv()).await.is_err() {
            tracing::warn!("what some programs printed did not reach the ring in time");
        }
    }
}

/// The end of an output, from the beginning of a line if one is near; `None` of one that is empty.
fn end_of(path: &Path, most: u64) -> io::Result<Option<End>> {
    let kept = Kept::look(path)?;
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
    let sender = Sender { node, managers, client: None, told: String::new() };
    tokio::spawn(sender.run(queue.0));
}

struct Sender {
    node: NodeId,
    managers: watch::Receiver<Vec<String>>,
    /// Of these managers.
    client: Option<(Vec<String>, Client)>,
    /// The failure that was logged last.
    told: String,
}

impl Sender {
    async fn run(mut self, mut queue: mpsc::Receiver<Printed>) {
        let mut sent = JoinSet::new();
        loop {
            tokio::select! {
                Some(done) = sent.join_next() => self.on_sent(done.ok()),
                printed = queue.recv(), if sent.len() < SENT_AT_ONCE_MAX => {
                    let Some(printed) = printed else { break };
                    match self.client() {
                        Ok(client) => {
                            let node = self.node.clone();
                            sent.spawn(async move { send(&client, &node, printed).await });
                        }
                        Err(error) => self.tell(&format!("{error:#}")),
                    }
                }
            }
        }
        while let Some(done) = sent.join_next().await {
            self.on_sent(done.ok());
        }
    }

    fn on_sent(&mut self, done: Option<anyhow::Result<()>>) {
        match done {
            Some(Ok(())) | None => self.told.clear(),
            Some(Err(error)) => self.tell(&format!("{error:#}")),
        }
    }

    /// Each failure once.
    fn tell(&mut self, why: &str) {
        if self.told != why {
            tracing::warn!(why, "what a program printed is not kept at the ring");
            why.clone_into(&mut self.told);
        }
    }

    fn client(&mut self) -> anyhow::Result<Client> {
        let managers = self.managers.borrow().clone();
        if let Some((_, client)) = self.client.as_ref().filter(|it| it.0 == managers) {
            return Ok(client.clone());
        }
        let client = Client::connect(&managers.join(","))?;
        self.client = Some((managers, client.clone()));
        Ok(client)
    }
}

async fn send(client: &Client, node: &NodeId, printed: Printed) -> anyhow::Result<()> {
    let mut tries = 1;
    loop {
        let failed = match send_once(client, node, &printed).await {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        if tries == TRIES_MAX {
            return Err(failed.context(format!("session {}", printed.session)));
        }
        tries += 1;
        sleep(PAUSE).await;
    }
}

/// May be repeated: what is kept of a life already stays.
async fn send_once(client: &Client, node: &NodeId, printed: &Printed) -> anyhow::Result<()> {
    let stdout = put(client, &printed.session, printed.stdout.as_ref()).await?;
    let stderr = put(client, &printed.session, printed.stderr.as_ref()).await?;
    let parameters = json!({
        "id": printed.session.id.as_str(), "life": printed.life.as_u64(), "node": node.as_str(),
        "keep_ms": printed.keep_ms, "stdout": stdout, "stderr": stderr,
    });
    let space = printed.session.namespace.clone();
    let request = Request::new(space, "session.output").with(&parameters);
    let request = request.map_err(|it| anyhow::anyhow!("{it}"))?;
    let docid = printed.session.id.as_str().to_owned();
    client.documents().operate(&Operate { request, docid }, PATIENCE).await?;
    Ok(())
}

async fn put(client: &Client, session: &SessionKey, end: Option<&End>) -> anyhow::Result<Value> {
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
        let end = end_of(&path, most).unwrap()?;
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
        assert!(end_of(&folder.path().join("stdout.log"), 10).unwrap().is_none());
    }

    #[tokio::test]
    async fn what_waits_is_bounded_and_nothing_is_taken_after_the_end() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("stdout.log"), vec![b'x'; 1_024 * 1_024]).unwrap();
        let key = SessionKey::new(
            rota_model::Namespace::default_space(),
            rota_model::SessionId::parse("s").unwrap(),
        );
        let kept = KeptOutput { keep_ms: 1, kib: 1_024 };
        let (outputs, mut queue) = Outputs::new();
        let keep = || outputs.keep((key.clone(), Stamp::MIN), kept, folder.path());
        for _ in 0..KIB_MAX / 1_024 {
            keep().unwrap();
        }
        assert!(keep().unwrap_err().to_string().contains("waits for managers"));
        queue.0.recv().await.unwrap();
        keep().unwrap();
        queue.0.close();
        while queue.0.recv().await.is_some() {}
        outputs.sent(Duration::from_secs(5)).await;
        assert!(keep().is_err());
    }
}
