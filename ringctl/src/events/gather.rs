//! Events of all managers.

use super::Ask;
use super::shown::Shown;
use anyhow::bail;
use rota_client::{CallError, Client, v1};
use rota_model::ManagerStatus;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// Between two looks for managers that are new.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Between two attempts to reach a manager that is silent.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Pages that wait to be shown.
const AHEAD: usize = 16;

/// The managers of the ring, by number, where each answers.
async fn managers(client: &Client, wait: Duration) -> Result<BTreeMap<u32, String>, CallError> {
    let view = client.inspect(wait).await?.view.unwrap_or_default();
    let there = view.managers.into_iter().filter(|it| !it.grpc.is_empty());
    let there = there.filter(|it| it.status != ManagerStatus::Left.as_str());
    Ok(there.map(|it| (it.number, it.grpc)).collect())
}

/// What all managers keep. One that does not answer in time is remarked.
pub async fn all(client: &Client, ask: &Ask) -> anyhow::Result<Vec<Shown>> {
    let mut asked = JoinSet::new();
    for (number, address) in managers(client, ask.wait).await? {
        let (client, request, wait) = (client.clone(), ask.request.clone(), ask.wait);
        asked.spawn(async move {
            let told = timeout(wait, kept(&client, &address, request)).await;
            let late = || format!("no answer within {}", humantime::format_duration(wait));
            (number, told.map_err(|_| late()).and_then(|it| it.map_err(|it| it.to_string())))
        });
    }
    let mut events = Vec::new();
    while let Some(told) = asked.join_next().await {
        match told? {
            (_, Ok(told)) => events.extend(told.into_iter().map(Shown::of)),
            (number, Err(why)) => events.push(Shown::silent(number, &why)),
        }
    }
    if !events.is_empty() && events.iter().all(Shown::is_remark) {
        let why = events.first().map(|it| it.text.clone()).unwrap_or_default();
        bail!("no manager tells its events; manager {}: {why}", events[0].manager);
    }
    Ok(events)
}

async fn kept(
    client: &Client,
    address: &str,
    request: v1::EventsRequest,
) -> Result<Vec<v1::Event>, CallError> {
    let mut stream = client.events_at(address, request).await?;
    let mut events = Vec::new();
    while let Some(page) = stream.next().await? {
        events.extend(page.events);
    }
    Ok(events)
}

/// What one manager says.
enum Told {
    /// Events, or a remark about them.
    Events(Vec<Shown>),
    /// What it kept is told, or it is silent.
    CaughtUp,
}

/// What all managers tell, and go on to tell.
pub struct Following {
    client: Client,
    request: v1::EventsRequest,
    wait: Duration,
    tasks: JoinSet<()>,
    /// Where each manager answers, and who reads it.
    readers: BTreeMap<u32, (String, AbortHandle)>,
    told: mpsc::Receiver<(u32, Told)>,
    tell: mpsc::Sender<(u32, Told)>,
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
            behind: None,
            first: Vec::new(),
        };
        following.read(managers(client, ask.wait).await?);
        let behind = following.readers.keys().copied().collect();
        following.behind = Some((behind, Instant::now() + ask.wait));
        Ok(following)
    }

    /// One reader for each manager.
    fn read(&mut self, managers: BTreeMap<u32, String>) {
        while self.tasks.try_join_next().is_some() {}
        self.readers.retain(|number, (address, reader)| {
            let stays = managers.get(number) == Some(address);
            if !stays {
                reader.abort();
            }
            stays
        });
        for (number, address) in managers {
            if self.readers.contains_key(&number) {
                continue;
            }
            let (client, request) = (self.client.clone(), self.request.clone());
            let work = read_one(client, number, address.clone(), request, self.tell.clone());
            let reader = self.tasks.spawn(work);
            self.readers.insert(number, (address, reader));
        }
    }

    /// What comes next. First everything that is kept, together.
    ///
    /// # Errors
    /// Never so far: a manager that is silent is remarked.
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
                        (Told::Events(events), None) => return Ok(events),
                        (Told::Events(events), Some(_)) => self.first.extend(events),
                        (Told::CaughtUp, Some((behind, _))) => drop(behind.remove(&number)),
                        (Told::CaughtUp, None) => {}
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
    tell: mpsc::Sender<(u32, Told)>,
) {
    let mut is_silent = false;
    loop {
        let read = read_once(&client, number, &address, &mut request, &tell, &mut is_silent).await;
        let Some(why) = read else { return };
        // One remark for each silence.
        if !std::mem::replace(&mut is_silent, true) {
            let remark = Told::Events(vec![Shown::silent(number, &why)]);
            if tell.send((number, remark)).await.is_err() {
                return;
            }
        }
        if tell.send((number, Told::CaughtUp)).await.is_err() {
            return;
        }
        sleep(AGAIN_AFTER).await;
    }
}

/// Why the stream ended; `None` when nobody listens.
async fn read_once(
    client: &Client,
    number: u32,
    address: &str,
    request: &mut v1::EventsRequest,
    tell: &mpsc::Sender<(u32, Told)>,
    is_silent: &mut bool,
) -> Option<String> {
    let mut stream = match client.events_at(address, request.clone()).await {
        Ok(stream) => stream,
        Err(error) => return Some(error.to_string()),
    };
    loop {
        let page = match stream.next().await {
            Ok(Some(page)) => page,
            Ok(None) => return Some("it stops".to_owned()),
            Err(error) => return Some(error.to_string()),
        };
        *is_silent = false;
        let v1::EventsResponse { events, missed, caught_up } = page;
        // Of what was not told yet, all is wanted.
        if let Some(newest) = events.last() {
            (request.after, request.last) = (newest.position.clone(), 0);
        }
        let remark = missed.then(|| Shown::missed(number));
        let events: Vec<Shown> =
            remark.into_iter().chain(events.into_iter().map(Shown::of)).collect();
        if !events.is_empty() {
            tell.send((number, Told::Events(events))).await.ok()?;
        }
        if caught_up {
            tell.send((number, Told::CaughtUp)).await.ok()?;
        }
    }
}
