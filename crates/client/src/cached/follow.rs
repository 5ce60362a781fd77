//! The task behind a cached document.

use super::copy::DocumentCopy;
use super::file;
use super::{CachedDocumentOptions, PAUSE_MAX};
use crate::documents::Documents;
use crate::error::CallError;
use crate::session::Client;
use crate::watch::{DocumentWatch, WatchOptions};
use rota_docstore::{ApplyError, Caller, DocName, SyncRequest};
use rota_model::{Namespace, Retry};
use rota_proto::documents::request::Sync;
use rota_proto::v1;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, watch};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep_until};

/// A watch that has failed is begun anew after this long: it has tried for long enough to leave
/// the managers alone for a moment.
const WATCH_PAUSE: Duration = Duration::from_secs(1);

/// The pause after the first failure is twice this; it doubles with every further one.
const PAUSE_FIRST: Duration = Duration::from_millis(5);

/// What users of a cached document see.
#[derive(Debug)]
pub(super) struct Published {
    pub(super) copy: DocumentCopy,
    /// The last request to refresh that a successful synchronisation began after; the first one
    /// counts as 0.
    pub(super) synced: u64,
    pub(super) trouble: Option<String>,
    pub(super) ended: Option<CallError>,
}

impl Published {
    pub(super) fn new(copy: DocumentCopy) -> Self {
        Self { copy, synced: 0, trouble: None, ended: None }
    }
}

/// Why the copy is not in step.
enum Trouble {
    Call(CallError),
    Update(ApplyError),
}

impl Trouble {
    fn text(&self) -> String {
        match self {
            Trouble::Call(error) => error.to_string(),
            Trouble::Update(error @ ApplyError::SourceBehind { .. }) => {
                format!("{error}; if the cluster was set up anew, delete the file of this copy")
            }
            Trouble::Update(
                error @ (ApplyError::Gap { .. }
                | ApplyError::Lacks { .. }
                | ApplyError::OtherDocument { .. }
                | ApplyError::Invalid(_)),
            ) => error.to_string(),
        }
    }

    /// How long to wait after that many failures in a row; `None`: it will never be otherwise.
    fn pause(&self, failures: u32) -> Option<Duration> {
        let advised = match self {
            Trouble::Call(error) => match error.retry() {
                Retry::Never | Retry::WhenChanged => return None,
                Retry::AfterMs(ms) => Duration::from_millis(ms),
                Retry::Now | Retry::AtOwner(_) => Duration::ZERO,
            },
            Trouble::Update(_) => Duration::ZERO,
        };
        let growing = PAUSE_FIRST.saturating_mul(1 << failures.min(16));
        Some(advised.max(growing).min(PAUSE_MAX))
    }
}

/// What the task waits for.
enum Wake {
    Due,
    Wanted,
    News(Box<Result<v1::WatchDocumentsResponse, CallError>>),
}

pub(super) struct Follower {
    client: Client,
    documents: Documents,
    name: DocName,
    /// The namespace that reads.
    space: Namespace,
    options: CachedDocumentOptions,
    publish: watch::Sender<Published>,
    wanted: watch::Receiver<u64>,
    /// Held while the file is written, also when nobody waits for that any more.
    saving: Arc<Mutex<()>>,
}

impl Follower {
    pub(super) fn new(
        client: Client,
        name: DocName,
        options: CachedDocumentOptions,
        publish: watch::Sender<Published>,
        wanted: watch::Receiver<u64>,
    ) -> Self {
        let (documents, saving) = (client.documents(), Arc::default());
        let own = || Namespace::parse(name.space()).expect("a part of a name");
        let space = options.reader.clone().unwrap_or_else(own);
        Self { client, documents, name, space, options, publish, wanted, saving }
    }

    pub(super) fn saving(&self) -> Arc<Mutex<()>> {
        Arc::clone(&self.saving)
    }

    fn watch(&self) -> DocumentWatch {
        let Caller { build, who } = self.options.caller.clone();
        let request = v1::WatchDocumentsRequest {
            namespace: self.name.space().into(),
            reader: self.space.as_str().into(),
            class: self.name.class().into(),
            docid: self.name.docid().into(),
            names_only: true,
            build: build.unwrap_or(0),
            account: who.account,
            key: who.key,
            admin: who.admin,
            ..Default::default()
        };
        self.client.watch_documents(request, WatchOptions { patience: self.options.patience })
    }

    /// Keeps the copy in step until the managers refuse for good.
    pub(super) async fn follow(mut self) {
        let mut watch = self.watch();
        let mut watch_from = Instant::now();
        let (mut due, mut failures) = (Some(Instant::now()), 0);
        loop {
            // Each of these may be dropped and begun again without loss.
            let wake = tokio::select! {
                biased;
                () = moment(due) => Wake::Due,
                asked = self.wanted.changed() => match asked {
                    Ok(()) => Wake::Wanted,
                    Err(_nobody_is_left) => return,
                },
                news = news(&mut watch, watch_from) => Wake::News(news),
            };
            match wake {
                Wake::Wanted => due = Some(Instant::now()),
                Wake::News(news) => match *news {
                    // Also when a manager answers again after failures.
                    Ok(answer) if failures > 0 || self.is_news(&answer) => {
                        due = Some(Instant::now());
                    }
                    Ok(_) => {}
                    Err(error) if error.retry().is_final() => return self.end(error),
                    Err(error) => {
                        tracing::debug!(document = %self.name, "watch begins anew after: {error}");
                        watch = self.watch();
                        watch_from = Instant::now() + WATCH_PAUSE;
                    }
                },
                Wake::Due => match self.sync().await {
                    Ok(()) => (due, failures) = (None, 0),
                    Err(trouble) => {
                        failures += 1;
                        let text = trouble.text();
                        tracing::debug!(document = %self.name, failures, "not in step: {text}");
                        due = match (trouble.pause(failures), trouble) {
                            (Some(pause), _) => Some(Instant::now() + pause),
                            (None, Trouble::Call(error)) => return self.end(error),
                            (None, Trouble::Update(_)) => Some(Instant::now() + PAUSE_MAX),
                        };
                        self.publish.send_modify(|it| it.trouble = Some(text));
                    }
                },
            }
        }
    }

    fn end(&self, error: CallError) {
        self.publish.send_modify(|published| {
            published.trouble = Some(error.to_string());
            published.ended = Some(error);
        });
    }

    fn is_news(&self, answer: &v1::WatchDocumentsResponse) -> bool {
        let event = answer.event.as_ref();
        event.is_some_and(|it| self.publish.borrow().copy.is_behind(it.ctime, it.version))
    }

    async fn sync(&mut self) -> Result<(), Trouble> {
        let wanted = *self.wanted.borrow_and_update();
        let before = self.publish.borrow().copy.clone();
        let after = match self.ask(&before, true).await {
            // What is held does not fit what the source has: the whole will.
            Err(Trouble::Update(ApplyError::Gap { .. } | ApplyError::Lacks { .. })) => {
                self.ask(&before, false).await?
            }
            other => other?,
        };
        let mut trouble = None;
        if after != before {
            trouble = self.save(&after).await;
        }
        self.publish.send_modify(|published| {
            published.copy = after;
            published.synced = wanted;
            published.trouble = trouble;
        });
        Ok(())
    }

    async fn ask(&self, copy: &DocumentCopy, says_held: bool) -> Result<DocumentCopy, Trouble> {
        let held = copy.held().filter(|_| says_held);
        let documents = vec![SyncRequest { name: copy.name().clone(), held }];
        let (space, caller) = (self.space.clone(), self.options.caller.clone());
        let sync = Sync { space, documents, stale_ok: false, caller };
        let updates = self.documents.sync(&sync, self.options.call_wait).await;
        let updates = updates.map_err(Trouble::Call)?;
        let applied = updates.iter().try_fold(copy.clone(), |copy, (_, it)| copy.after(it));
        applied.map_err(Trouble::Update)
    }

    /// Makes a copy durable before anybody sees it. A disk that fails is no reason to know less.
    async fn save(&self, copy: &DocumentCopy) -> Option<String> {
        let path = self.options.file.clone()?;
        let copy = copy.clone();
        let saving = self.saving().lock_owned().await;
        let save = move || {
            let saved = file::save(&path, &copy);
            drop(saving);
            saved
        };
        let saved = spawn_blocking(save).await;
        let trouble = match saved {
            Ok(saved) => saved.err()?.to_string(),
            Err(error) => error.to_string(),
        };
        tracing::warn!(document = %self.name, "the copy is not kept over a restart: {trouble}");
        Some(trouble)
    }
}

async fn moment(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => pending().await,
    }
}

async fn news(
    watch: &mut DocumentWatch,
    from: Instant,
) -> Box<Result<v1::WatchDocumentsResponse, CallError>> {
    sleep_until(from).await;
    Box::new(watch.next().await)
}
