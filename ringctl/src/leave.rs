//! Tells a manager to leave the ring, and takes a join or a leave back: `ringctl leave`, `ringctl cancel`.
//!
//! ```text
//!   any manager ── Leave, Cancel ──▶ the View has it ──▶ the View, again and again ──▶ LEFT
//! ```

use crate::connect;
use crate::failure::{OutcomeUnknown, UsageMistake};
use crate::follow::{Follower, LOOK_EVERY, LOOK_WAIT, Progress, endpoints_of, one_address};
use crate::inspect::{self, newest_view};
use crate::length_of_time::length_of_time;
use crate::output::{Format, Out, counted};
use anyhow::{Context, bail};
use clap::Args;
use rota_client::{CallError, Client, v1};
use rota_model::{ManagerNumber, ManagerStatus, Refusal, RefusalKind, Retry};
use rota_ring::{CancelRefused, View};
use serde::Serialize;
use std::time::{Duration, Instant};

/// How long a manager may take to answer. It gives up before.
pub const ORDER_WAIT: Duration = Duration::from_secs(15);

/// `leave`.
#[derive(Args, Debug)]
#[command(group(clap::ArgGroup::new("who").required(true)))]
pub struct LeaveArguments {
    /// Where the manager serves gRPC that is to leave.
    #[arg(long, value_name = "HOST:PORT", group = "who")]
    target: Option<String>,
    /// Its number; any manager is asked, see --endpoint.
    #[arg(long, value_name = "N", group = "who")]
    number: Option<u32>,
    /// Wait until it has left, and show progress.
    #[arg(long)]
    wait: bool,
    /// How long that may take.
    #[arg(long, default_value = "10m", value_parser = length_of_time)]
    timeout: Duration,
}

/// `cancel`.
#[derive(Args, Debug)]
pub struct CancelArguments {
    /// Only what is under way for that number. Default: what is when this command begins.
    #[arg(long, value_name = "N")]
    number: Option<u32>,
    /// Wait until everything is as if it had not begun, and show progress.
    #[arg(long)]
    wait: bool,
    /// How long that may take.
    #[arg(long, default_value = "10m", value_parser = length_of_time)]
    timeout: Duration,
}

/// What came of a leave.
#[derive(Serialize, PartialEq, Debug)]
struct Left {
    number: u32,
    /// Epoch of the View that was looked at last.
    epoch: u64,
    /// leaving (the View has it) or left.
    state: &'static str,
    /// Copies of each partition that there will be, the owner's included.
    copies: u32,
    /// Copies that the ring wants.
    copies_wanted: u32,
    seconds: f64,
}

/// What came of taking something back.
#[derive(Serialize, PartialEq, Debug)]
struct Cancelled {
    /// join or leave: what was taken back.
    cancelled: String,
    number: u32,
    /// Epoch of the View that was looked at last.
    epoch: u64,
    /// cancelled (the View has it) or finished (the number has left, or has again what it had).
    state: &'static str,
    seconds: f64,
}

/// How far a number is on its way out.
pub fn leaving(view: &View, number: ManagerNumber) -> Progress {
    let status = view.managers.get(&number).map(|it| it.status);
    match status {
        Some(ManagerStatus::Left) => Progress::Done(format!("number {number} has left")),
        Some(ManagerStatus::Leaving) => {
            let held = view.parts.values().filter(|part| part.has(number)).count();
            let owned = view.parts.values().filter(|part| part.owner == number).count();
            let (held, owned) = (counted(held as u64, "copy"), counted(owned as u64, "partition"));
            Progress::On(format!("number {number} still holds {held} and owns {owned}"))
        }
        Some(ManagerStatus::Down) => Progress::Over(format!(
            "number {number} went down with the last copy of a partition: the leave is rolled back; \
             start that manager again"
        )),
        Some(ManagerStatus::Active | ManagerStatus::Joining | ManagerStatus::Syncing) | None => {
            Progress::Over(format!(
                "number {number} stays in the ring: the leave was cancelled, or given up since it \
                 came no further"
            ))
        }
    }
}

/// How far a number is that stays.
fn staying(view: &View, number: ManagerNumber) -> Progress {
    if !view.is_up(number) {
        return Progress::Over(format!("number {number} is down, or leaves again"));
    }
    let wanted = view.parts.iter().filter(|(part, _)| view.wanted(**part).contains(&number));
    let (held, lacks): (Vec<_>, Vec<_>) = wanted.partition(|(_, part)| part.has(number));
    let text = format!(
        "number {number} holds {} of {} in sync",
        held.len(),
        counted((held.len() + lacks.len()) as u64, "copy")
    );
    if lacks.is_empty() { Progress::Done(text) } else { Progress::On(text) }
}

/// The number of the manager at an address, and where all are that it knows: it may end before it has
/// been seen to leave.
async fn number_at(target: &str) -> anyhow::Result<(u32, String)> {
    let client = Client::connect(target)?;
    let answer = client.inspect_at(target, ORDER_WAIT).await;
    let answer = answer.context("--target cannot be asked which number it has")?;
    let managers = answer.view.iter().flat_map(|it| &it.managers);
    Ok((answer.number, endpoints_of(managers.map(|it| it.grpc.as_str()))))
}

/// Tells a number to leave. Resolves when the View has it.
pub async fn tell(
    number: u32,
    contact: &Client,
    wait: Duration,
) -> anyhow::Result<v1::LeaveResponse> {
    let answer = contact.leave(v1::LeaveRequest { number }, wait).await;
    answer.map_err(|error| OutcomeUnknown::Leave.unless_refused(error))
}

/// Tells a number to leave, and waits if that is wished.
/// `endpoints` are looked at only without --target.
pub async fn run(
    it: &LeaveArguments,
    endpoints: Result<String, UsageMistake>,
    out: &mut Out,
) -> anyhow::Result<()> {
    let (number, contact, watched) = match (&it.target, it.number) {
        (Some(target), _) => {
            let target = one_address("--target", target)?;
            let (number, all) = number_at(&target).await?;
            (number, target, all)
        }
        (None, Some(number)) => {
            let endpoints = endpoints?;
            (number, endpoints.clone(), endpoints)
        }
        (None, None) => bail!("--target or --number is missing"),
    };
    let began = Instant::now();
    let wait = ORDER_WAIT.min(it.timeout);
    let contact = connect::client(&contact, out.format())?;
    let told = tell(number, &contact, wait);
    let answer = connect::told_of_order(out.format(), wait, told).await?;
    let v1::LeaveResponse { number, epoch, copies, copies_wanted, left } = answer;
    if copies < copies_wanted && out.format() == Format::Table {
        eprintln!(
            "each partition will have {copies} of {copies_wanted} copies: fewer managers are left"
        );
    }
    let state = if left { "left" } else { "leaving" };
    let seconds = began.elapsed().as_secs_f64();
    let mut done = Left { number, epoch, state, copies, copies_wanted, seconds };
    if it.wait && !left {
        let until = began + it.timeout;
        let follower = Follower {
            what: "the leave",
            since: epoch,
            until,
            every: LOOK_EVERY,
            serving: None,
            format: out.format(),
        };
        let number = ManagerNumber(number);
        let view = follower.follow(&watched, |view| leaving(view, number)).await?;
        (done.state, done.epoch) = ("left", view.epoch.0);
        done.seconds = began.elapsed().as_secs_f64();
    }
    show_left(&done, out)
}

fn show_left(done: &Left, out: &mut Out) -> anyhow::Result<()> {
    if out.format() == Format::Json {
        return Ok(out.json(done)?);
    }
    let Left { number, epoch, seconds, .. } = done;
    let text = match done.state {
        "left" => format!(
            "number {number} has left the ring, after {seconds:.1} s; its process, if it runs, ends \
             by itself, and its data folder may be removed\n"
        ),
        _ => format!(
            "number {number} leaves since epoch {epoch} and hands its partitions on now; `ringctl \
             inspect` shows how far it is\n"
        ),
    };
    Ok(out.text(&text)?)
}

/// The number that joins or leaves as this command begins: what begins later is not what was meant. A
/// single manager may not have heard of it yet, or not of its end.
async fn under_way(client: &Client, endpoints: &str, wait: Duration) -> anyhow::Result<u32> {
    let answers = inspect::ask(client, wait).await?;
    let number = |view: &v1::View| view.transition.as_ref().map(|it| it.number);
    Ok(newest_view(&answers).and_then(number).ok_or_else(|| {
        let text = CancelRefused::Nothing.to_string();
        let refusal = Refusal::new(RefusalKind::NotFound, Retry::WhenChanged, text);
        let (refusal, endpoint) = (Box::new(refusal), endpoints.to_owned());
        CallError::Refused { refusal, endpoint, attempts: 1 }
    })?)
}

/// Takes back what is under way, and waits if that is wished.
pub async fn cancel(it: &CancelArguments, endpoints: &str, out: &mut Out) -> anyhow::Result<()> {
    let began = Instant::now();
    let client = connect::client(endpoints, out.format())?;
    let number = match it.number {
        Some(number) => number,
        None => under_way(&client, endpoints, LOOK_WAIT.min(it.timeout)).await?,
    };
    let request = v1::CancelRequest { number: Some(number) };
    let wait = ORDER_WAIT.min(it.timeout);
    let answer = connect::told_of_order(out.format(), wait, client.cancel(request, wait)).await;
    let answer = answer.map_err(|error| OutcomeUnknown::Cancel.unless_refused(error))?;
    let cancelled = answer.cancelled.context("the answer does not say what was cancelled")?;
    let number = ManagerNumber(cancelled.number);
    let mut done = Cancelled {
        cancelled: cancelled.kind,
        number: number.0,
        epoch: answer.epoch,
        state: "cancelled",
        seconds: began.elapsed().as_secs_f64(),
    };
    if it.wait {
        let (since, until) = (answer.epoch, began + it.timeout);
        let (every, format) = (LOOK_EVERY, out.format());
        let follower = Follower { what: "it", since, until, every, serving: None, format };
        // Who joined, leaves.
        let leaves = answer.under_way.is_some();
        let step = |view: &View| if leaves { leaving(view, number) } else { staying(view, number) };
        let view = follower.follow(endpoints, step).await?;
        (done.state, done.epoch) = ("finished", view.epoch.0);
        done.seconds = began.elapsed().as_secs_f64();
    }
    show_cancelled(&done, answer.under_way.is_some(), out)
}

fn show_cancelled(done: &Cancelled, leaves: bool, out: &mut Out) -> anyhow::Result<()> {
    if out.format() == Format::Json {
        return Ok(out.json(done)?);
    }
    let Cancelled { cancelled, number, epoch, state, .. } = done;
    let text = match (leaves, *state) {
        (true, "finished") => {
            format!("the {cancelled} of number {number} is cancelled: it has left\n")
        }
        (true, _) => format!(
            "the {cancelled} of number {number} is cancelled since epoch {epoch}: it hands back what \
             it got and leaves; `ringctl inspect` shows how far it is\n"
        ),
        (false, "finished") => {
            format!("the {cancelled} of number {number} is cancelled: it holds what it should\n")
        }
        (false, _) => format!(
            "the {cancelled} of number {number} is cancelled since epoch {epoch}: it stays, and gets \
             back what it handed on\n"
        ),
    };
    Ok(out.text(&text)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring_example::ring;

    const LEAVER: ManagerNumber = ManagerNumber(100);

    /// Two managers with one copy each.
    fn two() -> View {
        ring(0, &[(100, "a"), (400, "b")])
    }

    #[test]
    fn a_leave_is_followed_until_the_number_has_left() {
        let view = two().leaving(LEAVER).unwrap();
        let still = "number 100 still holds 1 copy and owns 1 partition";
        assert_eq!(leaving(&view, LEAVER), Progress::On(still.to_owned()));
        let other = view.member(ManagerNumber(400)).unwrap();
        let view = view.with_members(LEAVER, &[other]).unwrap().left().unwrap();
        assert_eq!(leaving(&view, LEAVER), Progress::Done("number 100 has left".to_owned()));
    }

    #[test]
    fn a_leave_that_is_over_is_told_as_what_it_came_to() {
        let view = two().leaving(LEAVER).unwrap();
        let text = |view: &View| match leaving(view, LEAVER) {
            Progress::Over(text) => text,
            other @ (Progress::On(_) | Progress::Done(_)) => panic!("{other:?}"),
        };
        assert!(text(&view.cancelled(None).unwrap()).contains("stays in the ring"));
        let gone = view.without(&[view.member(LEAVER).unwrap()]).unwrap();
        assert!(text(&gone).contains("went down"));
    }

    #[test]
    fn who_stays_is_followed_until_it_holds_what_it_should() {
        let view = two().leaving(LEAVER).unwrap();
        let other = view.member(ManagerNumber(400)).unwrap();
        let view = view.with_members(LEAVER, &[other]).unwrap().cancelled(None).unwrap();
        let on = "number 100 holds 0 of 1 copy in sync".to_owned();
        assert_eq!(staying(&view, LEAVER), Progress::On(on));
        let view = view.with_members(LEAVER, &[view.member(LEAVER).unwrap()]).unwrap();
        let done = "number 100 holds 1 of 1 copy in sync".to_owned();
        assert_eq!(staying(&view, LEAVER), Progress::Done(done));
    }
}
