//! The agent of a node is ended, and another one is started in its place: what it ran goes on. Meanwhile each program
//! is asked for an answer in turn.

use super::load;
use super::report::rounded;
use super::target;
use crate::dev::{Cluster, Settings, with_cluster};
use crate::output::{Format, Out, plain_table};
use anyhow::{Context, ensure};
use clap::{Args, ValueEnum};
use rota_client::{Client, v1};
use rustix::process::Signal;
use serde::Serialize;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::sync::watch;

/// How long a program may take to take a connection.
const ANSWER_WAIT: Duration = Duration::from_secs(2);
/// Between two connections.
const ASK_EVERY: Duration = Duration::from_millis(5);
/// How long the next agent may take to be seen with all that it adopted.
const SEEN_WAIT: Duration = Duration::from_secs(60);

/// How the agent ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum How {
    /// It is killed.
    Kill,
    /// It is told to leave what runs to the next one (SIGUSR2), as an upgrade does.
    Leave,
}

/// `bench adopt`.
#[derive(Args, Debug)]
pub struct AdoptArguments {
    /// Sessions that run on the node.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    sessions: u32,
    /// How the agent ends.
    #[arg(long, value_enum, default_value_t = How::Kill)]
    how: How,
    /// Managers of the cluster.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    managers: u32,
    /// Class of the sessions: programs that answer on a port.
    #[arg(long, default_value = "http")]
    class: String,
}

#[derive(Serialize, PartialEq, Debug, Default)]
struct Adopt {
    sessions: u32,
    /// Sessions that are READY under the next agent, each with the life that it had.
    adopted: u64,
    /// All others.
    lost: u64,
    /// From the end of the agent until managers show all that is adopted.
    seconds: f64,
    /// Connections to programs meanwhile, and those that none answered.
    asked: u64,
    unanswered: u64,
}

/// `bench adopt`.
pub async fn run(it: &AdoptArguments, out: &mut Out) -> anyhow::Result<()> {
    let roomy = Settings::roomy(it.managers, it.managers.saturating_sub(1).min(2));
    let places = Some(it.sessions * 2);
    let settings = Settings { nodes: Some(1), max_nodes: Some(1), places, ..roomy };
    let adopt = with_cluster(&settings, async |cluster| measure(it, cluster).await).await?;
    let lost = adopt.lost;
    show(adopt, out)?;
    ensure!(lost == 0, "{lost} of {} sessions did not go on", it.sessions);
    Ok(())
}

fn show(adopt: Adopt, out: &mut Out) -> anyhow::Result<()> {
    if out.format() == Format::Json {
        return Ok(out.json(&adopt)?);
    }
    let mut table = plain_table(["SESSIONS", "ADOPTED", "LOST", "SECONDS", "ASKED", "UNANSWERED"]);
    let Adopt { sessions, adopted, lost, seconds, asked, unanswered } = adopt;
    let figures = [u64::from(sessions), adopted, lost].map(|it| it.to_string());
    let more = [format!("{seconds:.2}"), asked.to_string(), unanswered.to_string()];
    table.add_row(figures.into_iter().chain(more));
    Ok(out.table(&table)?)
}

async fn measure(it: &AdoptArguments, cluster: &mut Cluster) -> anyhow::Result<Adopt> {
    let client = target::client(&cluster.document().endpoints(), 2, false)?;
    let ids = target::prepare(&client, &it.class, it.sessions).await?;
    let before = read_all(&client, &ids).await?;
    let addresses: Vec<String> = before.iter().map(|it| it.address.clone()).collect();
    ensure!(addresses.iter().all(|it| !it.is_empty()), "class {} has no port", it.class);
    let node = cluster.document().nodes.first().context("a cluster has a node")?.clone();
    let (stop, stopped) = watch::channel(false);
    let asking = tokio::spawn(ask_in_turn(addresses, stopped));
    let began = Instant::now();
    match it.how {
        How::Kill => cluster.family.kill(node.pid).await,
        How::Leave => cluster.family.end(node.pid, Signal::USR2).await,
    }
    cluster.restart_node(&node.id).await?;
    let bar = load::bar("adopting", u64::from(it.sessions));
    let (mut adopted, mut seconds);
    loop {
        let after = read_all(&client, &ids).await?;
        let goes_on = |(was, is): &(&v1::Session, &v1::Session)| {
            is.state() == v1::SessionState::Ready && was.life == is.life && is.node_state == "READY"
        };
        adopted = before.iter().zip(&after).filter(goes_on).count() as u64;
        seconds = began.elapsed().as_secs_f64();
        bar.set_position(adopted);
        let is_settled = after.iter().all(|it| it.state() != v1::SessionState::Ready);
        if adopted == u64::from(it.sessions) || is_settled || began.elapsed() > SEEN_WAIT {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    bar.finish_and_clear();
    stop.send_replace(true);
    let (asked, unanswered) = asking.await?;
    let lost = u64::from(it.sessions) - adopted;
    let seconds = rounded(seconds, 2);
    Ok(Adopt { sessions: it.sessions, adopted, lost, seconds, asked, unanswered })
}

async fn read_all(client: &Client, ids: &[String]) -> anyhow::Result<Vec<v1::Session>> {
    let mut all = Vec::with_capacity(ids.len());
    for id in ids {
        let request = v1::GetRequest { id: id.clone(), ..Default::default() };
        all.push(client.get(request, target::CALL_WAIT).await?.session.unwrap_or_default());
    }
    Ok(all)
}

/// Connects to one program after the other. Gives how often, and how often in vain.
async fn ask_in_turn(addresses: Vec<String>, stopped: watch::Receiver<bool>) -> (u64, u64) {
    let (mut asked, mut unanswered) = (0, 0);
    for address in addresses.iter().cycle() {
        if *stopped.borrow() {
            break;
        }
        let answered = tokio::time::timeout(ANSWER_WAIT, TcpStream::connect(address)).await;
        asked += 1;
        unanswered += u64::from(!matches!(answered, Ok(Ok(_))));
        tokio::time::sleep(ASK_EVERY).await;
    }
    (asked, unanswered)
}
