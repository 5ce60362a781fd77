//! Tells a manager that waits outside of the ring its number: `ringctl join`.
//!
//! ```text
//!   target ── Join ──▶ the View has it ──▶ any View, again and again ──▶ it has arrived ──▶ it serves
//! ```

use crate::connect;
use crate::failure::{Addressee, OutcomeUnknown, UsageMistake};
use crate::follow::{Follower, LOOK_EVERY, Progress, one_address};
use crate::length_of_time::length_of_time;
use crate::output::{Format, Out, counted};
use clap::Args;
use rota_client::{CallError, Client, v1};
use rota_model::{ManagerNumber, ManagerStatus};
use rota_ring::{PartitionState, RingTransition, View};
use serde::Serialize;
use std::time::{Duration, Instant};
use tonic::Code;

/// How long the target may take to get into the View. It gives up, or says so, before.
pub const JOIN_WAIT: Duration = Duration::from_secs(30);

/// How long whatever is at the target may take to say what it is.
const LOOK_WAIT: Duration = Duration::from_secs(2);

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
    /// Its number: one that nobody has, one that has left, its own one that is DOWN, or auto: one that
    /// has left where that gives as much, else the one that halves the widest arc.
    #[arg(long, value_name = "N|auto", value_parser = wanted)]
    number: Wanted,
    /// Any manager of the ring.
    #[arg(long, value_name = "HOST:PORT", required_unless_present = "force_lost")]
    contact: Option<String>,
    /// The machine and the disk of that number's manager are gone for good: what only its disk held is
    /// lost. Needed where it held a last copy. Where the ring has it as ACTIVE it is taken out first, unless
    /// within --node-lost-ms it, or a manager that would miss it, answers.
    #[arg(long)]
    force_lost: bool,
    /// Wait until it holds all that it should, and says itself that all that it owns serves; show progress.
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
    /// joined (the View has it) or finished (it holds all that it should, and what it owns serves).
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
    /// It holds all of them; some are being found again from the nodes, and nobody is answered before.
    Recovering { parts: Vec<u32> },
    /// It holds all of them, and owns its arc.
    Arrived,
    /// It was taken out.
    Out,
    /// Somebody took the join back: it leaves, or has left.
    Cancelled,
}

impl Stage {
    fn of(view: &View, number: ManagerNumber) -> Self {
        match view.managers.get(&number).map(|it| it.status) {
            Some(ManagerStatus::Active) => {}
            Some(ManagerStatus::Leaving | ManagerStatus::Left) => return Stage::Cancelled,
            Some(ManagerStatus::Joining | ManagerStatus::Syncing | ManagerStatus::Down) | None => {
                return Stage::Out;
            }
        }
        if !view.parts.contains_key(&number) {
            let from = view.home(rota_model::SlotId(number.0)).0;
            return Stage::Uncut { from };
        }
        let held = view.parts.iter().filter(|(_, part)| part.has(number));
        let held = held.map(|(part, _)| part.0).collect();
        let is_under_way = view.transition.map(RingTransition::number) == Some(number);
        if view.has_arrived(number) && !is_under_way {
            let recovering = view
                .parts
                .iter()
                .filter(|(_, part)| part.has(number) && part.state == PartitionState::Recovering);
            let parts: Vec<u32> = recovering.map(|(part, _)| part.0).collect();
            return if parts.is_empty() { Stage::Arrived } else { Stage::Recovering { parts } };
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
            Stage::Recovering { parts } => {
                let numbers: Vec<String> = parts.iter().map(ToString::to_string).collect();
                format!(
                    "number {number} finds {} again from the nodes: {}",
                    counted(parts.len() as u64, "partition"),
                    numbers.join(", ")
                )
            }
            Stage::Arrived => format!("number {number} owns its arc and holds every copy"),
            Stage::Out => format!("number {number} was taken out"),
            Stage::Cancelled => format!("the join of number {number} was cancelled"),
        }
    }
}

/// How far a newcomer is on its way in.
pub fn progress(view: &View, number: ManagerNumber) -> Progress {
    let stage = Stage::of(view, number);
    let text = stage.text(number.0);
    match stage {
        Stage::Uncut { .. } | Stage::Copying { .. } | Stage::Recovering { .. } => {
            Progress::On(text)
        }
        Stage::Arrived => Progress::Done(text),
        Stage::Cancelled => Progress::Over(text),
        Stage::Out => Progress::Over(format!(
            "{text} before it held all that it should: the join is rolled back, and the number stays \
             reserved; start that manager again"
        )),
    }
}

/// Tells the target its number, or to choose one: one that has left where that gives as much, else the one
/// that halves the widest arc. Resolves when the View has it.
pub async fn tell(
    target: &str,
    number: Option<u32>,
    contact: &str,
    wait: Duration,
) -> anyhow::Result<v1::JoinResponse> {
    let request = v1::JoinRequest { number, contact: contact.to_owned(), force_lost: false };
    send(target, request, wait).await
}

async fn send(
    target: &str,
    request: v1::JoinRequest,
    wait: Duration,
) -> anyhow::Result<v1::JoinResponse> {
    let client = Client::connect(target)?;
    match client.join_at(target, request, wait).await {
        Ok(answer) => Ok(answer),
        Err(CallError::Broken { code: Code::Unimplemented, .. }) => {
            Err(no_manager(&client, target).await.into())
        }
        Err(error) => {
            let target = Addressee::Target(target.to_owned());
            Err(target.unless_answered(OutcomeUnknown::Join.unless_refused(error)))
        }
    }
}

/// What is at a target that cannot be told to join, and what to give instead. Nothing was changed.
async fn no_manager(client: &Client, target: &str) -> UsageMistake {
    let ask = v1::LiveRequest { page_size: 1, ..v1::LiveRequest::default() };
    let what = match client.live_at(target, ask, LOOK_WAIT).await {
        Ok(answer) => format!("node {}", answer.node),
        // It has the service of nodes, and wants to know the cluster.
        Err(CallError::Refused { .. }) => "a node-agent".to_owned(),
        Err(_) => "no manager of this ring".to_owned(),
    };
    UsageMistake(format!(
        "--target {target} is {what}, and nothing was changed; give the gRPC address of the manager that \
         was started with --join, as its first line says it"
    ))
}

/// Tells the target, and waits if that is wished.
pub async fn run(it: &JoinArguments, out: &mut Out) -> anyhow::Result<()> {
    let target = one_address("--target", &it.target)?;
    let contact = it.contact.as_deref().map(|it| one_address("--contact", it)).transpose()?;
    if it.force_lost && it.number.0.is_none() {
        let text = "--number: must be that of the lost manager with --force-lost";
        return Err(UsageMistake(text.to_owned()).into());
    }
    let began = Instant::now();
    let request = v1::JoinRequest {
        number: it.number.0,
        contact: contact.clone().unwrap_or_default(),
        force_lost: it.force_lost,
    };
    let wait = if it.force_lost { it.timeout } else { JOIN_WAIT.min(it.timeout) };
    let told = send(&target, request, wait);
    let answer = match it.force_lost {
        // It looks first, for as long as a lost manager may be silent.
        true => told.await?,
        false => connect::told_of_order(out.format(), wait, told).await?,
    };
    // Where nobody else may be left, or the contact ends meanwhile, the target shows the ring.
    let mut watched: Vec<String> = contact.into_iter().chain([target]).collect();
    watched.dedup();
    let mut joined = Joined {
        number: answer.number,
        incarnation: answer.incarnation,
        epoch: answer.epoch,
        state: "joined",
        copies: Vec::new(),
        seconds: began.elapsed().as_secs_f64(),
    };
    if it.wait {
        let (number, until) = (ManagerNumber(joined.number), began + it.timeout);
        let (since, format) = (joined.epoch, out.format());
        let (what, every, serving) = ("the join", LOOK_EVERY, Some(number));
        let follower = Follower { what, since, until, every, serving, format };
        let view = follower.follow(&watched.join(","), |view| progress(view, number)).await?;
        let held = view.parts.iter().filter(|(_, part)| part.has(number));
        joined.copies = held.map(|(part, _)| part.0).collect();
        (joined.state, joined.epoch) = ("finished", view.epoch.0);
        joined.seconds = began.elapsed().as_secs_f64();
    }
    show(&joined, out)
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
    use crate::ring_example::{claim, ring};
    use rota_model::{Epoch, Incarnation};
    use rota_ring::View;

    const NEW: ManagerNumber = ManagerNumber(250);

    /// Two managers with one copy each, and a newcomer.
    fn joined() -> View {
        ring(0, &[(100, "a"), (400, "b")]).joined(&claim(NEW.0, "new")).unwrap()
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
        assert_eq!(Stage::of(&view, NEW), Stage::Arrived);
        assert_eq!((member.incarnation, view.epoch), (Incarnation(1), Epoch(7)));
    }

    #[test]
    fn a_number_whose_partitions_are_being_found_again_has_not_arrived() {
        let mut view = ring(0, &[(100, "a"), (400, "b")]);
        let number = ManagerNumber(400);
        view.parts.get_mut(&number).unwrap().state = PartitionState::Recovering;
        assert_eq!(Stage::of(&view, ManagerNumber(100)), Stage::Arrived);
        let text = "number 400 finds 1 partition again from the nodes: 400".to_owned();
        assert_eq!(progress(&view, number), Progress::On(text));
        view.parts.get_mut(&number).unwrap().state = PartitionState::Active;
        assert!(matches!(progress(&view, number), Progress::Done(_)));
    }

    #[test]
    fn a_newcomer_that_is_taken_out_is_out() {
        let view = joined();
        let view = view.without(&[view.member(NEW).unwrap()]).unwrap();
        assert_eq!(Stage::of(&view, NEW), Stage::Out);
        let view = joined().cancelled(None).unwrap();
        assert_eq!(Stage::of(&view, NEW), Stage::Cancelled);
        assert_eq!(Stage::of(&view.left().unwrap(), NEW), Stage::Cancelled);
    }

    #[test]
    fn a_number_is_given_or_chosen() {
        assert_eq!((wanted("7"), wanted("auto")), (Ok(Wanted(Some(7))), Ok(Wanted(None))));
        assert!(wanted("-1").is_err() && wanted("any").is_err());
    }
}
