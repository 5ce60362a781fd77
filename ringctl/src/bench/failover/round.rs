//! One fault, what came of it, and the way back.

use super::Struck;
use super::detection::Detection;
use crate::bench::pulse::Pulse;
use crate::bench::target;
use crate::dev::Cluster;
use crate::verify::{self, Account, Key};
use anyhow::{Context, bail};
use rota_client::{CallError, Client, v1};
use rota_model::Namespace;
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use tokio::task::{AbortHandle, JoinSet};

/// Every session must be served again within this time, or the measurement fails.
const SERVED_WAIT: Duration = Duration::from_secs(60);
/// How long one try may take before the next manager is asked.
const TRY_WAIT: Duration = Duration::from_secs(1);
/// Sessions that are tried at the same time.
const TRIES_IN_FLIGHT: usize = 64;
/// How long the View may take to say that the manager is gone, and the ring to be whole again.
const GONE_WAIT: Duration = Duration::from_secs(60);
const WHOLE_WAIT: Duration = Duration::from_secs(120);
/// How long an account of all sessions may take, and one answer for it.
const ACCOUNT_WAIT: Duration = Duration::from_secs(60);
const ANSWER_WAIT: Duration = Duration::from_secs(5);
/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What is done to a manager.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// SIGKILL.
    Kill,
    /// SIGSTOP until it was taken out.
    Stop,
}

impl Fault {
    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Fault::Kill => "kill",
            Fault::Stop => "stop",
        }
    }
}

/// A round that is to be run.
pub struct Round<'a> {
    /// Through all managers.
    pub client: &'a Client,
    /// Class of the sessions.
    pub class: &'a str,
    /// The sessions that are served again.
    pub ids: &'a [String],
    /// What goes on in the background.
    pub pulse: &'a Pulse,
    /// What is done.
    pub fault: Fault,
    /// Whether Consul alone is to notice.
    pub by_signal: bool,
    /// From 0.
    pub number: u32,
}

/// What came of it.
#[derive(Debug)]
pub struct Outcome {
    /// Which manager.
    pub struck: Struck,
    /// From the fault until Consul noticed, if that alone was to.
    pub detected: Option<Duration>,
    /// Times from the fault until each session that it owned was opened again.
    pub opened: Vec<Duration>,
    /// Until every session was opened and read again.
    pub all: Duration,
    /// From its restart or its going on until the ring was whole again.
    pub whole: Duration,
    /// Sessions that are not there any more, or are other lives.
    pub lost: BTreeSet<Key>,
    /// Sessions with two live instances.
    pub twice: BTreeSet<Key>,
}

/// A session that was served again.
struct Served {
    id: String,
    /// From the fault to the answers of the open and of the read.
    opened: Duration,
    read: Duration,
    /// The same life at the same address as before.
    same: bool,
}

fn key(id: &str) -> Key {
    (Namespace::default_space().as_str().to_owned(), id.to_owned())
}

impl Round<'_> {
    /// Runs it.
    pub async fn run(&self, cluster: &mut Cluster) -> anyhow::Result<Outcome> {
        let mut lives = lives(self.client, self.ids).await?;
        let struck = self.choose(cluster, &lives)?;
        // Its own first: they are what is measured.
        lives.sort_by_key(|it| it.owner != struck.number);
        let others = cluster.document().managers.iter().filter(|it| it.number != struck.number);
        let left: Vec<String> = others.map(|it| it.grpc.clone()).collect();
        let noticed = self.by_signal.then(|| Detection::of(cluster, struck.number)).transpose()?;
        let struck_at = Instant::now();
        match self.fault {
            Fault::Kill => cluster.family.signal(struck.pid, Signal::KILL),
            Fault::Stop => cluster.family.signal(struck.pid, Signal::STOP),
        }
        let served = serve_all(self.client, self.class, &lives, &left, struck_at).await?;
        let detected = match noticed {
            Some(noticed) => Some(noticed.at().await?.saturating_duration_since(struck_at)),
            None => None,
        };
        let meanwhile = Client::connect(&left.join(","))?;
        is_gone(&meanwhile, struck.number).await?;
        let mut account = self.account(&meanwhile).await?;
        let healed_at = Instant::now();
        match self.fault {
            Fault::Kill => {
                cluster.kill_manager(struck.number).await?;
                cluster.restart_manager(struck.number).await?;
            }
            Fault::Stop => cluster.family.signal(struck.pid, Signal::CONT),
        }
        cluster.whole(WHOLE_WAIT).await?;
        let whole = healed_at.elapsed();
        let after = self.account(self.client).await?;
        account.lost.extend(after.lost);
        account.twice.extend(after.twice);
        account.lost.extend(served.iter().filter(|it| !it.same).map(|it| key(&it.id)));
        let own = lives.iter().filter(|it| it.owner == struck.number);
        let own: BTreeSet<&str> = own.map(|it| it.id.as_str()).collect();
        let opened = served.iter().filter(|it| own.contains(it.id.as_str()));
        let opened: Vec<Duration> = opened.map(|it| it.opened).collect();
        if let Some(early) = opened.iter().find(|it| Some(**it) < detected) {
            bail!("a session was served {early:?} after the fault, before Consul noticed it");
        }
        Ok(Outcome {
            struck,
            detected,
            opened,
            all: served.iter().map(|it| it.read).max().unwrap_or_default(),
            whole,
            lost: account.lost,
            twice: account.twice,
        })
    }

    /// The next manager that owns any of the sessions.
    fn choose(&self, cluster: &Cluster, lives: &[v1::Session]) -> anyhow::Result<Struck> {
        let managers = &cluster.document().managers;
        let first = self.number as usize % managers.len().max(1);
        let mut in_turn = managers.iter().cycle().skip(first).take(managers.len());
        let victim = in_turn.find(|it| lives.iter().any(|life| life.owner == it.number));
        let victim = victim.context("no manager owns any of the sessions")?;
        Ok(Struck { number: victim.number, pid: victim.pid })
    }

    /// What became of everything that was acknowledged, until it can be told.
    async fn account(&self, client: &Client) -> anyhow::Result<Account> {
        let until = Instant::now() + ACCOUNT_WAIT;
        loop {
            let opened = self.pulse.acknowledged();
            let acknowledged = self.ids.iter().chain(&opened).map(|it| key(it));
            match verify::account(client, acknowledged, ANSWER_WAIT).await {
                Ok(account) => return Ok(account),
                // Owners change while the ring heals.
                Err(_) if Instant::now() < until => tokio::time::sleep(LOOK_EVERY).await,
                Err(error) => return Err(error.context("no account of all sessions")),
            }
        }
    }
}

/// Waits until the View says that the manager is not in the ring any more.
async fn is_gone(client: &Client, number: u32) -> anyhow::Result<()> {
    let until = Instant::now() + GONE_WAIT;
    while Instant::now() < until {
        let view = client.inspect(ANSWER_WAIT).await.ok().and_then(|it| it.view);
        let mut managers = view.iter().flat_map(|it| &it.managers);
        if managers.any(|it| it.number == number && it.status != "ACTIVE") {
            return Ok(());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    bail!("manager {number} was not taken out of the ring within {GONE_WAIT:?}")
}

/// Each id with its life, its address and its owner.
async fn lives(client: &Client, ids: &[String]) -> anyhow::Result<Vec<v1::Session>> {
    let mut lives = Vec::new();
    for id in ids {
        let request = v1::GetRequest { id: id.clone(), ..Default::default() };
        let answer = client.get(request, target::CALL_WAIT).await?;
        lives.push(answer.session.context("the answer has no session")?);
    }
    Ok(lives)
}

/// Tries every session until it was opened and read.
async fn serve_all(
    client: &Client,
    class: &str,
    lives: &[v1::Session],
    left: &[String],
    struck_at: Instant,
) -> anyhow::Result<Vec<Served>> {
    let mut served = Vec::new();
    let mut trying: JoinSet<anyhow::Result<Served>> = JoinSet::new();
    let mut next = lives.iter().enumerate();
    loop {
        while trying.len() < TRIES_IN_FLIGHT {
            let Some((index, before)) = next.next() else { break };
            let (client, class, before) = (client.clone(), class.to_owned(), before.clone());
            let left = left.to_vec();
            let _handle: AbortHandle = trying.spawn(async move {
                serve_one(&client, &class, &before, &left, index, struck_at).await
            });
        }
        match trying.join_next().await {
            Some(done) => served.push(done??),
            None => return Ok(served),
        }
    }
}

async fn serve_one(
    client: &Client,
    class: &str,
    before: &v1::Session,
    left: &[String],
    index: usize,
    struck_at: Instant,
) -> anyhow::Result<Served> {
    // One request id for all tries: the answer of a try that was lost counts as well.
    let mut open = target::open_request(before.id.clone(), class);
    open.request_id = client.request_id();
    let get = v1::GetRequest { id: before.id.clone(), ..Default::default() };
    let mut opened_after = None;
    for attempt in index.. {
        let address = left.get(attempt % left.len().max(1)).context("no manager is left")?;
        let tried = async {
            let opened = client.open_at(address, open.clone(), TRY_WAIT).await?;
            let after = *opened_after.get_or_insert_with(|| struck_at.elapsed());
            let got = client.get_at(address, get.clone(), TRY_WAIT).await?;
            Ok::<_, CallError>((after, opened.session, got.session))
        };
        match tried.await {
            Ok((opened_after, Some(opened), Some(got))) => {
                let same =
                    |it: &v1::Session| it.life == before.life && it.address == before.address;
                return Ok(Served {
                    id: before.id.clone(),
                    opened: opened_after,
                    read: struck_at.elapsed(),
                    same: same(&opened) && same(&got),
                });
            }
            Ok(_) => bail!("an answer has no session"),
            Err(error) if struck_at.elapsed() > SERVED_WAIT => {
                return Err(error).context(format!("session {} is not served", before.id));
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
    bail!("session {} is not served", before.id)
}
