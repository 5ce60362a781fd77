//! Tells a manager that waits outside of the ring its number: `ringctl join`.
//!
//! ```text
//!   target ── Join ──▶ the View has it ──▶ any manager's View, again and again ──▶ it has arrived
//! ```

use crate::cli::length_of_time;
use crate::failure::{Addressee, Unknown, UsageMistake};
use crate::output::{Format, Out, counted};
use anyhow::{Context, bail};
use clap::Args;
use rota_client::{Client, v1};
use rota_model::{ManagerNumber, ManagerStatus};
use rota_ring::{RingTransition, View};
use serde::Serialize;
use std::time::{Duration, Instant};

/// How long the target may take to get into the View. It gives up, or says so, before.
const JOIN_WAIT: Duration = Duration::from_secs(30);

/// How long one look at the ring may take; the next one asks the next manager.
const LOOK_WAIT: Duration = Duration::from_secs(2);

/// Between two looks at the ring.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A number, or the choice of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Wanted(Option<u32>);

fn wanted(text: &str) -> Result<Wanted, String> {
    if text == "auto" {
        return Ok(Wanted(None));
    }
    let number = text.parse().map_err(|_| "must be a whole number, or auto".to_owned())?;
    Ok(Wanted(Some(number)))
}

/// `join`.
#[derive(Args, Debug)]
pub struct JoinArguments {
    /// Where the manager serves gRPC that was started with --join.
    #[arg(long, value_name = "HOST:PORT")]
    target: String,
    /// Its number: one that nobody has, its own one that is DOWN, or auto, which halves the widest
    /// arc.
    #[arg(long, value_name = "N|auto", value_parser = wanted)]
    number: Wanted,
    /// Any manager of the ring.
    #[arg(long, value_name = "HOST:PORT")]
    contact: String,
    /// Wait until it holds all that it should, and show progress.
    #[arg(long)]
    wait: bool,
    /// How long that may take.
    #[arg(long, default_value = "10m", value_parser = length_of_time)]
    timeout: Duration,
}

/// What came of it.
#[derive(Serialize, PartialEq, Debug)]
struct Joined {
    number: u32,
    incarnation: u64,
    /// Epoch of the View that was looked at last.
    epoch: u64,
    /// joined (the View has it) or finished (it holds all that it should).
    state: &'static str,
    /// Partitions whose copy it holds, its own arc included.
    copies: Vec<u32>,
    seconds: f64,
}

/// How far a newcomer is.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Stage {
    /// Its arc is still part of another partition.
    Uncut { from: u32 },
    /// It holds some of the copies that it should.
    Copying { held: Vec<u32>, wanted: usize },
    /// It holds all of them, and owns its arc.
    Arrived { held: Vec<u32> },
    /// It was taken out.
    Out,
}

impl Stage {
    fn of(view: &View, number: ManagerNumber) -> Self {
        let is_up = |it: &rota_ring::ManagerEntry| it.status == ManagerStatus::Active;
        if !view.managers.get(&number).is_some_and(is_up) {
            return Stage::Out;
        }
        if !view.parts.contains_key(&number) {
            let from = view.home(rota_model::SlotId(number.0)).0;
            return Stage::Uncut { from };
        }
        let held = view.parts.iter().filter(|(_, part)| part.has(number));
        let held = held.map(|(part, _)| part.0).collect();
        let is_under_way = view.transition.map(RingTransition::number) == Some(number);
        if view.has_arrived(number) && !is_under_way {
            return Stage::Arrived { held };
        }
        let wanted = view.parts.keys().filter(|part| view.wanted(**part).contains(&number));
        Stage::Copying { held, wanted: wanted.count() }
    }

    fn text(&self, number: u32) -> String {
        match self {
            Stage::Uncut { from } => {
                format!("number {number} waits for its arc to be cut out of partition {from}")
            }
            Stage::Copying { held, wanted } => {
                let held = held.len();
                format!(
                    "number {number} holds {held} of {} in sync",
                    counted(*wanted as u64, "copy")
                )
            }
            Stage::Arrived { .. } => format!("number {number} owns its arc and holds every copy"),
            Stage::Out => format!("number {number} was taken out"),
        }
    }
}

fn one_address(flag: &str, text: &str) -> Result<String, UsageMistake> {
    match rota_client::parse_endpoints(text).as_deref() {
        Ok([one]) => Ok(one.clone()),
        Ok(_) | Err(_) => Err(UsageMistake(format!(
            "{flag}: {text:?} is not the address of one manager; it is given as host:port, as in \
             127.0.0.1:7400"
        ))),
    }
}

/// Tells the target, and waits if that is wished.
pub async fn run(it: &JoinArguments, out: &mut Out) -> anyhow::Result<()> {
    let target = one_address("--target", &it.target)?;
    let contact = one_address("--contact", &it.contact)?;
    let began = Instant::now();
    let request = v1::JoinRequest { number: it.number.0, contact: contact.clone() };
    let client = Client::connect(&target)?;
    let answer = client.join_at(&target, request, JOIN_WAIT.min(it.timeout)).await;
    let answer = answer.map_err(|error| {
        Addressee::Target(target.clone()).unless_answered(Unknown::Join.unless_refused(error))
    })?;
    let mut joined = Joined {
        number: answer.number,
        incarnation: answer.incarnation,
        epoch: answer.epoch,
        state: "joined",
        copies: Vec::new(),
        seconds: began.elapsed().as_secs_f64(),
    };
    if it.wait {
        follow(&contact, &mut joined, began + it.timeout, out.format()).await?;
        joined.seconds = began.elapsed().as_secs_f64();
    }
    show(&joined, out)
}

/// Looks at the ring until the newcomer holds all that it should.
async fn follow(
    contact: &str,
    joined: &mut Joined,
    until: Instant,
    format: Format,
) -> anyhow::Result<()> {
    let number = ManagerNumber(joined.number);
    let mut client = Client::connect(contact)?;
    let mut known: Option<Stage> = None;
    loop {
        if Instant::now() >= until {
            let stage =
                known.map_or("no manager shows the ring".to_owned(), |it| it.text(number.0));
            bail!(
                "{stage}; the time of --timeout is over, and the join goes on without being watched"
            );
        }
        if let Some(view) = look(&client).await?.filter(|view| view.epoch.0 >= joined.epoch) {
            let all: Vec<&str> = view.managers.values().map(|it| it.grpc.as_str()).collect();
            let all: Vec<&str> = all.into_iter().filter(|it| !it.is_empty()).collect();
            client = Client::connect(&all.join(",")).context("the addresses in the View")?;
            joined.epoch = view.epoch.0;
            let stage = Stage::of(&view, number);
            if known.as_ref() != Some(&stage) && format == Format::Table {
                eprintln!("{}", stage.text(number.0));
            }
            match &stage {
                Stage::Arrived { held } => {
                    (joined.state, joined.copies) = ("finished", held.clone());
                    return Ok(());
                }
                Stage::Out => bail!(
                    "number {number} was taken out before it held all that it should: the join is \
                     rolled back, and the number stays reserved; start that manager again"
                ),
                Stage::Uncut { .. } | Stage::Copying { .. } => known = Some(stage),
            }
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Some manager's View; `None` when none answers just now.
async fn look(client: &Client) -> anyhow::Result<Option<View>> {
    let Ok(answer) = client.inspect(LOOK_WAIT).await else { return Ok(None) };
    let view = answer.view.map(View::try_from).transpose();
    view.context("a manager's View cannot be read")
}

fn show(joined: &Joined, out: &mut Out) -> anyhow::Result<()> {
    if out.format() == Format::Json {
        return Ok(out.json(joined)?);
    }
    let Joined { number, incarnation, epoch, copies, .. } = joined;
    let text = match joined.state {
        "finished" => format!(
            "number {number} (run {incarnation}) is part of the ring and holds {}, after {:.1} s\n",
            counted(copies.len() as u64, "partition"),
            joined.seconds
        ),
        _ => format!(
            "number {number} (run {incarnation}) is in the View since epoch {epoch} and copies now; \
             `ringctl inspect` shows how far it is\n"
        ),
    };
    Ok(out.text(&text)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_model::{ClusterName, ClusterTimes, Epoch, Incarnation, ManagerId, Nonce};
    use rota_ring::{Claim, View};
    use std::collections::BTreeMap;

    const NEW: ManagerNumber = ManagerNumber(250);

    fn claim(number: u32, id: &str) -> Claim {
        Claim {
            number: ManagerNumber(number),
            id: ManagerId::parse(id).unwrap(),
            grpc: format!("{id}:1"),
            http: String::new(),
            held: Vec::new(),
            taken: None,
            nonce: Nonce(1),
            disk: BTreeMap::new(),
            times: ClusterTimes {
                renew_ms: 1,
                lease_term_ms: 2,
                lease_kill_ms: 3,
                node_lost_ms: 4,
            },
        }
    }

    /// Two managers with one copy each, and a newcomer.
    fn joined() -> View {
        let numbers: Vec<_> = [(100, "a"), (400, "b")]
            .map(|(number, id)| (ManagerNumber(number), ManagerId::parse(id).unwrap()))
            .into();
        let cluster = ClusterName::parse("c").unwrap();
        let view = View::found(cluster, 1024, 0, 100, &numbers).unwrap();
        let view = view.claimed(&claim(100, "a")).unwrap().claimed(&claim(400, "b")).unwrap();
        view.joined(&claim(NEW.0, "new")).unwrap()
    }

    #[test]
    fn a_newcomer_is_followed_from_the_cut_to_its_arc() {
        let view = joined();
        assert_eq!(Stage::of(&view, NEW), Stage::Uncut { from: 400 });
        let view = view.split(NEW).unwrap();
        assert_eq!(Stage::of(&view, NEW), Stage::Copying { held: vec![], wanted: 1 });
        let member = view.member(NEW).unwrap();
        let view = view.with_members(NEW, &[member]).unwrap();
        let copying = Stage::of(&view, NEW);
        assert_eq!(copying, Stage::Copying { held: vec![250], wanted: 1 });
        assert_eq!(copying.text(250), "number 250 holds 1 of 1 copy in sync");
        let view = view.released().unwrap();
        assert_eq!(Stage::of(&view, NEW), Stage::Arrived { held: vec![250] });
        assert_eq!((member.incarnation, view.epoch), (Incarnation(1), Epoch(7)));
    }

    #[test]
    fn a_newcomer_that_is_taken_out_is_out() {
        let view = joined();
        let view = view.without(&[view.member(NEW).unwrap()]).unwrap();
        assert_eq!(Stage::of(&view, NEW), Stage::Out);
    }

    #[test]
    fn a_number_is_given_or_chosen() {
        assert_eq!((wanted("7"), wanted("auto")), (Ok(Wanted(Some(7))), Ok(Wanted(None))));
        assert!(wanted("-1").is_err() && wanted("any").is_err());
    }

    #[test]
    fn one_manager_is_meant_and_not_a_list() {
        assert_eq!(one_address("--target", "a:1").unwrap(), "a:1");
        for wrong in ["", "a", "a:1,b:2"] {
            assert!(one_address("--target", wrong).unwrap_err().0.starts_with("--target"));
        }
    }
}
