//! Open and get as load: on the cluster at --endpoint, and for `bench compare`.

use super::LoadArguments;
use super::echo::mistake;
use super::load::{self, Load, Measured};
use super::report::{Figures, show, tell_mistakes};
use crate::follow::endpoints_of;
use crate::output::Out;
use anyhow::{Context, bail};
use clap::Args;
use rota_client::{CallError, Client, Entry, Options, v1};
use rota_daemon::Stop;
use rota_model::RefusalKind;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Ids of the sessions that a load opened or is about to open. A lock because all calls in flight add to it.
pub type Ids = Arc<Mutex<Vec<String>>>;

fn locked(ids: &Ids) -> MutexGuard<'_, Vec<String>> {
    ids.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How long one call may take under load.
pub const CALL_WAIT: Duration = Duration::from_secs(10);
/// Calls in flight while sessions are prepared or closed.
const PREPARE_CONCURRENCY: usize = 64;

/// `bench open`.
#[derive(Args, Debug)]
pub struct OpenArguments {
    #[command(flatten)]
    load: LoadArguments,
    /// Class of the sessions.
    #[arg(long, default_value = "builtin")]
    class: String,
    /// Open new sessions only, and close them all at the end. The cluster needs room for all of
    /// them: start it with enough --places. Without this each session is closed before the next
    /// is opened, so that the cluster does not fill up; then `PER S` counts pairs of both, and the
    /// latencies are of the opens alone.
    #[arg(long)]
    hold: bool,
    /// Go to the owners directly instead of through any manager.
    #[arg(long)]
    route: bool,
    /// With --hold: leave the sessions open.
    #[arg(long, requires = "hold")]
    keep: bool,
}

/// `bench get`.
#[derive(Args, Debug)]
pub struct GetArguments {
    #[command(flatten)]
    load: LoadArguments,
    /// Class of the sessions.
    #[arg(long, default_value = "builtin")]
    class: String,
    /// How many sessions are opened and read.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..))]
    sessions: u32,
    /// Go to the owners directly instead of through any manager.
    #[arg(long)]
    route: bool,
}

/// A client for load: each call through the next manager, or with `route` to the owner.
pub fn client(endpoints: &str, connections: u32, route: bool) -> anyhow::Result<Client> {
    let options = Options {
        entry: Entry::RoundRobin,
        route_by_view: route,
        connections: connections as usize,
        ..Options::default()
    };
    Ok(Client::with_options(endpoints, options)?)
}

/// A name that no other run of a bench uses, before the number of a session.
pub fn prefix() -> String {
    let name = uuid::Uuid::new_v4().simple().to_string();
    format!("bench-{}", name.get(..8).unwrap_or(&name))
}

/// An open of session `id`.
pub fn open_request(id: String, class: &str) -> v1::OpenRequest {
    v1::OpenRequest { id, class: class.to_owned(), ..Default::default() }
}

/// Opens sessions until the time is over. The ids of those that were opened are kept.
pub async fn open_load(
    name: &str,
    load: Load,
    client: &Client,
    class: &str,
    opened: Ids,
) -> Measured {
    let (client, class, prefix) = (client.clone(), class.to_owned(), prefix());
    load::run(name, load, move |number| {
        let (client, opened) = (client.clone(), opened.clone());
        let id = format!("{prefix}-{number}");
        let request = open_request(id.clone(), &class);
        async move {
            // Before it is opened: a load that is cut off leaves nothing behind.
            locked(&opened).push(id);
            client.open(request, CALL_WAIT).await.map_err(|error| mistake(&error))?;
            Ok(Instant::now())
        }
    })
    .await
}

/// Reads those sessions, each call through the next manager, until the time is over.
pub async fn get_load(name: &str, load: Load, client: &Client, ids: Arc<Vec<String>>) -> Measured {
    let client = client.clone();
    load::run(name, load, move |number| {
        let client = client.clone();
        let count = u64::try_from(ids.len()).unwrap_or(1).max(1);
        // Scattered, so that every session is read through every manager.
        let scattered = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33;
        let index = usize::try_from(scattered % count).unwrap_or(0);
        let id = ids.get(index).cloned().unwrap_or_default();
        async move {
            let request = v1::GetRequest { id, ..Default::default() };
            client.get(request, CALL_WAIT).await.map_err(|error| mistake(&error))?;
            Ok(Instant::now())
        }
    })
    .await
}

/// Opens `count` sessions, many at a time, and gives their ids.
pub async fn prepare(client: &Client, class: &str, count: u32) -> anyhow::Result<Vec<String>> {
    let pace = Pace { concurrency: PREPARE_CONCURRENCY, every: None };
    prepare_with(client, class, count, &pace).await
}

/// How fast sessions are opened.
pub struct Pace {
    /// Calls in flight.
    pub concurrency: usize,
    /// One call, and no more, begins in each such time.
    pub every: Option<Duration>,
}

/// The same as fast as that.
pub async fn prepare_with(
    client: &Client,
    class: &str,
    count: u32,
    pace: &Pace,
) -> anyhow::Result<Vec<String>> {
    let mut beat = pace.every.map(tokio::time::interval);
    let prefix = prefix();
    let ids: Vec<String> = (0..count).map(|it| format!("{prefix}-{it}")).collect();
    let bar = load::bar("opening", u64::from(count));
    let mut opening = JoinSet::new();
    let mut next = ids.iter();
    loop {
        while opening.len() < pace.concurrency {
            let Some(id) = next.next() else { break };
            if let Some(beat) = &mut beat {
                beat.tick().await;
            }
            let (client, request) = (client.clone(), open_request(id.clone(), class));
            opening.spawn(async move { client.open(request, CALL_WAIT).await });
        }
        let Some(opened) = opening.join_next().await else { break };
        opened?.map_err(|error| no_room(error, count))?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(ids)
}

fn no_room(error: CallError, count: u32) -> anyhow::Error {
    let full = error.refusal().is_some_and(|it| it.kind == RefusalKind::NoCapacity);
    let text = if full { "the cluster has too few places for" } else { "cannot open" };
    anyhow::Error::from(error).context(format!("{text} {count} sessions"))
}

/// Closes sessions, many at a time; gives how many could not be closed.
pub async fn clean_up(client: &Client, ids: &[String]) -> u64 {
    let bar = load::bar("closing", u64::try_from(ids.len()).unwrap_or(0));
    let mut closing = JoinSet::new();
    let mut next = ids.iter();
    let mut failed = 0;
    loop {
        while closing.len() < PREPARE_CONCURRENCY {
            let Some(id) = next.next() else { break };
            let request = v1::CloseRequest { id: id.clone(), ..Default::default() };
            let client = client.clone();
            closing.spawn(async move { client.close(request, CALL_WAIT).await });
        }
        match closing.join_next().await {
            None => break,
            Some(Ok(Ok(_))) => bar.inc(1),
            // One that was never opened is as good as closed.
            Some(Ok(Err(error))) if error.reason() == "NOT_FOUND" => bar.inc(1),
            Some(Ok(Err(_)) | Err(_)) => failed += 1,
        }
    }
    bar.finish_and_clear();
    failed
}

/// Every manager's address: a bench goes through all of them, whichever one was named.
async fn all_managers(endpoint: &str) -> anyhow::Result<String> {
    let inspected = Client::connect(endpoint)?.inspect(Duration::from_secs(5)).await?;
    let view = inspected.view.context("the manager has no View yet")?;
    let up = view.managers.iter().filter(|it| it.status == "ACTIVE");
    Ok(endpoints_of(up.map(|it| it.grpc.as_str())))
}

fn load_of(it: &LoadArguments) -> Load {
    Load { concurrency: it.concurrency, duration: it.duration }
}

async fn finish(client: &Client, ids: &[String], stop: &mut Stop) {
    let failed = tokio::select! {
        failed = clean_up(client, ids) => failed,
        _ = stop.wished() => u64::try_from(ids.len()).unwrap_or(u64::MAX),
    };
    if failed > 0 {
        eprintln!("up to {failed} sessions were not closed");
    }
}

/// `bench open`.
pub async fn open(it: &OpenArguments, endpoint: &str, out: &mut Out) -> anyhow::Result<()> {
    let mut stop = Stop::listen()?;
    let client = client(&all_managers(endpoint).await?, it.load.connections, it.route)?;
    let opened = Ids::default();
    let load = load_of(&it.load);
    let measured = tokio::select! {
        measured = async {
            if it.hold {
                open_load("open", load, &client, &it.class, opened.clone()).await
            } else {
                cycle_load(load, &client, &it.class, opened.clone()).await
            }
        } => Some(measured),
        _ = stop.wished() => None,
    };
    let ids: Vec<String> = locked(&opened).drain(..).collect();
    if !it.keep {
        finish(&client, &ids, &mut stop).await;
    }
    let Some(measured) = measured else { bail!("stopped by a signal") };
    let name = if it.hold { "open" } else { "open+close" };
    tell_mistakes(name, &measured);
    show(&[Figures::of(name, &measured)], out)?;
    if it.hold && measured.failed > 0 {
        eprintln!("if the cluster is full: give it more --places, or leave --hold out");
    }
    if measured.count == 0 { bail!("no session was opened") } else { Ok(()) }
}

/// Opens and closes in turns; the opens alone are counted. `opened` has those that are not closed.
async fn cycle_load(load: Load, client: &Client, class: &str, opened: Ids) -> Measured {
    let (client, class, prefix) = (client.clone(), class.to_owned(), prefix());
    load::run("open+close", load, move |number| {
        let (client, opened) = (client.clone(), opened.clone());
        let id = format!("{prefix}-{number}");
        let request = open_request(id.clone(), &class);
        async move {
            locked(&opened).push(id.clone());
            client.open(request, CALL_WAIT).await.map_err(|error| mistake(&error))?;
            let ended = Instant::now();
            let close = v1::CloseRequest { id: id.clone(), ..Default::default() };
            client.close(close, CALL_WAIT).await.map_err(|error| mistake(&error))?;
            locked(&opened).retain(|it| *it != id);
            Ok(ended)
        }
    })
    .await
}

/// `bench get`.
pub async fn get(it: &GetArguments, endpoint: &str, out: &mut Out) -> anyhow::Result<()> {
    let mut stop = Stop::listen()?;
    let client = client(&all_managers(endpoint).await?, it.load.connections, it.route)?;
    let ids = Arc::new(prepare(&client, &it.class, it.sessions).await?);
    let measured = tokio::select! {
        measured = get_load("get", load_of(&it.load), &client, ids.clone()) => Some(measured),
        _ = stop.wished() => None,
    };
    finish(&client, &ids, &mut stop).await;
    let Some(measured) = measured else { bail!("stopped by a signal") };
    tell_mistakes("get", &measured);
    show(&[Figures::of("get", &measured)], out)?;
    if measured.count == 0 { bail!("no session was read") } else { Ok(()) }
}
