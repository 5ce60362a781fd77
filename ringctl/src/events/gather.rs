//! Events of all managers.

use super::Ask;
use super::shown::Shown;
use anyhow::bail;
use rota_client::{CallError, Client, v1};
use rota_model::{ManagerStatus, RefusalKind};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// Between two looks for managers that are new.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Between two attempts to reach a manager that is silent.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Of the first run of a number.
const FIRST_INCARNATION: u64 = 1;
/// Pages that wait to be shown.
const AHEAD: usize = 16;

/// A manager of the ring.
#[derive(Clone)]
struct Manager {
    /// Where it answers.
    address: String,
    /// An earlier run had its number: what that one knew is gone.
    is_anew: bool,
}

/// The managers of the ring, by number.
async fn managers(client: &Client, wait: Duration) -> Result<BTreeMap<u32, Manager>, CallError> {
    let view = client.inspect(wait).await?.view.unwrap_or_default();
    let there = view.managers.into_iter().filter(|it| !it.grpc.is_empty());
    let there = there.filter(|it| it.status != ManagerStatus::Left.as_str());
    let manager = |entry: v1::ManagerEntry| {
        let is_anew = entry.incarnation > FIRST_INCARNATION;
        (entry.number, Manager { address: entry.grpc, is_anew })
    };
    Ok(there.map(manager).collect())
}

/// What all managers keep. One that does not answer in time is remarked.
pub async fn all(client: &Client, ask: &Ask) -> anyhow::Result<Vec<Shown>> {
    let mut asked = JoinSet::new();
    for (number, manager) in managers(client, ask.wait).await? {
        let (client, request, wait) = (client.clone(), ask.request.clone(), ask.wait);
        asked.spawn(async move {
            let told = timeout(wait, kept(&client, number, &manager, request)).await;
            (number, told)
        });
    }
    let (mut events, mut is_told) = (Vec::new(), false);
    while let Some(told) = asked.join_next().await {
        match told? {
            (_, Ok(Ok(told))) => {
                is_told = true;
                events.extend(told);
            }
            (_, Ok(Err(error))) if is_wrong(&error) => return Err(error.into()),
            (number, Ok(Err(error))) => events.push(Shown::silent(number, &error.to_string())),
            (number, Err(_)) => {
                let late = format!("no answer within {}", humantime::format_duration(ask.wait));
                events.push(Shown::silent(number, &late));
            }
        }
    }
    match events.first() {
        Some(first) if !is_told => {
            bail!("no manager tells its events; manager {}: {}", first.manager, first.text)
        }
        Some(_) | None => Ok(events),
    }
}

/// Whether what is asked for is wrong, whomever one asks.
fn is_wrong(error: &CallError) -> bool {
    error.reason() == RefusalKind::InvalidArgument.as_str()
}

async fn kept(
    client: &Client,
    number: u32,
    Manager { address, is_anew }: &Manager,
    request: v1::EventsRequest,
) -> Result<Vec<Shown>, CallError> {
    let mut stream = client.events_at(address, request).await?;
    let (mut events, mut is_whole) = (Vec::new(), false);
    while let Some(page) = stream.next().await? {
        if page.missed {
            events.push(Shown::dropped(number, page.events.first(), page.dropped));
        }
        if page.caught_up && *is_anew {
            events.push(Shown::forgotten(number, page.since));
        }
        is_whole |= page.caught_up;
        events.extend(page.events.into_iter().map(Shown::of));
    }
    let endpoint = address.clone();
    if is_whole { Ok(events) } else { Err(CallError::Incomplete { missing: "end", endpoint }) }
}

/// What one manager says.
enum FromManager {
    /// Events, or a remark about them.
    Events(Vec<Shown>),
    /// What it kept is told, or it is silent.
    CaughtUp,
    /// What is asked for is wrong.
    Wrong(CallError),
}

/// What all managers tell, and go on to tell.
pub struct Following {
    client: Client,
    request: v1::EventsRequest,
    wait: Duration,
    tasks: JoinSet<()>,
    /// Where each manager answers, and who reads it.
    readers: BTreeMap<u32, (String, AbortHandle)>,
    told: mpsc::Receiver<(u32, FromManager)>,
    tell: mpsc::Sender<(u32, FromManager)>,
    look_at: Instant,
    /// Managers whose kept events are not all there, and until when the others wait for them.
    behind: Option<(BTreeSet<u32>, Instant)>,
    first: Vec<Shown>,
}

impl Following {
    /// Begins to read all managers.
    pub async fn start(client: &Client, ask: &Ask) -> Result<Self, CallError> {
        let (tell, told) = mpsc::channel(AHEAD);
        let mut following = Self {
            client: client.clone(),
            request: ask.request.clone(),
            wait: ask.wait,
            tasks: JoinSet::new(),
            readers: BTreeMap::new(),
            told,
            tell,
            look_at: Instant::now() + LOOK_EVERY,
            behind: Some((BTreeSet::new(), Instant::now())),
            first: Vec::new(),
        };
        following.read(managers(client, ask.wait).await?);
        let behind = following.readers.keys().copied().collect();
        following.behind = Some((behind, Instant::now() + ask.wait));
        Ok(following)
    }

    /// One reader for each manager.
    fn read(&mut self, managers: BTreeMap<u32, Manager>) {
        while self.tasks.try_join_next().is_some() {}
        self.readers.retain(|number, (address, reader)| {
            let stays = managers.get(number).is_some_and(|it| it.address == *address);
            if !stays {
                reader.abort();
            }
            stays
        });
        for (number, Manager { address, .. }) in managers {
            if self.readers.contains_key(&number) {
                continue;
            }
            let (client, mut request) = (self.client.clone(), self.request.clone());
            if self.behind.is_none() {
                // It has come since: all that it tells happened since.
                request.last = 0;
            }
            let work = read_one(client, number, address.clone(), request, self.tell.clone());
            let reader = self.tasks.spawn(work);
            self.readers.insert(number, (address, reader));
        }
    }

    /// What comes next. First everything that is kept, together.
    ///
    /// # Errors
    /// What is asked for is wrong. A manager that is silent is remarked.
    pub async fn next(&mut self) -> anyhow::Result<Vec<Shown>> {
        loop {
            if let Some((behind, until)) = &self.behind
                && (behind.is_empty() || Instant::now() >= *until)
            {
                self.behind = None;
                return Ok(std::mem::take(&mut self.first));
            }
            let wake_at = self.behind.as_ref().map_or(self.look_at, |it| it.1.min(self.look_at));
            tokio::select! {
                Some((number, told)) = self.told.recv() => {
                    match (told, &mut self.behind) {
                        (FromManager::Events(events), None) => return Ok(events),
                        (FromManager::Events(events), Some(_)) => self.first.extend(events),
                        (FromManager::CaughtUp, Some((behind, _))) => drop(behind.remove(&number)),
                        (FromManager::CaughtUp, None) => {}
                        (FromManager::Wrong(error), _) => return Err(error.into()),
                    }
                }
                () = sleep_until(wake_at) => {
                    if Instant::now() >= self.look_at {
                        // While no manager answers, their readers say so.
                        if let Ok(managers) = managers(&self.client, self.wait).await {
                            self.read(managers);
                        }
                        self.look_at = Instant::now() + LOOK_EVERY;
                    }
                }
            }
        }
    }
}

/// Reads one manager, over breaks, until nobody listens.
async fn read_one(
    client: Client,
    number: u32,
    address: String,
    mut request: v1::EventsRequest,
    tell: mpsc::Sender<(u32, FromManager)>,
) {
    let mut is_silent = false;
    loop {
        let read = read_once(&client, number, &address, &mut request, &tell, &mut is_silent).await;
        let why = match read {
            Some(Err(error)) => {
                // Whoever listens is told, or has gone.
                let _ = tell.send((number, FromManager::Wrong(error))).await;
                return;
            }
            Some(Ok(why)) => why,
            None => return,
        };
        // One remark for each silence.
        if !std::mem::replace(&mut is_silent, true) {
            let remark = FromManager::Events(vec![Shown::silent(number, &why)]);
            if tell.send((number, remark)).await.is_err() {
                return;
            }
        }
        if tell.send((number, FromManager::CaughtUp)).await.is_err() {
            return;
        }
        sleep(AGAIN_AFTER).await;
    }
}

/// Why the stream ended, or what is wrong with what is asked for; `None` when nobody listens.
async fn read_once(
    client: &Client,
    number: u32,
    address: &str,
    request: &mut v1::EventsRequest,
    tell: &mpsc::Sender<(u32, FromManager)>,
    is_silent: &mut bool,
) -> Option<Result<String, CallError>> {
    let ended = |error: CallError| {
        if is_wrong(&error) { Err(error) } else { Ok(error.to_string()) }
    };
    let mut stream = match client.events_at(address, request.clone()).await {
        Ok(stream) => stream,
        Err(error) => return Some(ended(error)),
    };
    loop {
        let page = match stream.next().await {
            Ok(Some(page)) => page,
            Ok(None) => return Some(Ok("it stops".to_owned())),
            Err(error) => return Some(ended(error)),
        };
        *is_silent = false;
        let v1::EventsResponse { events, missed, caught_up, position, .. } = page;
        // Of what was not told yet, all is wanted.
        (request.after, request.last) = (position, 0);
        let remark = missed.then(|| Shown::missed(number, events.first()));
        let events: Vec<Shown> =
            remark.into_iter().chain(events.into_iter().map(Shown::of)).collect();
        if !events.is_empty() {
            tell.send((number, FromManager::Events(events))).await.ok()?;
        }
        if caught_up {
            tell.send((number, FromManager::CaughtUp)).await.ok()?;
        }
    }
}
