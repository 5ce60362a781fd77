//! At each step of a join somebody is killed who takes part in it. Nobody helps: the join ends, or is taken
//! back, without whoever is gone.

use crate::rounds::{rounds, wanted};
use rota_client::{Client, v1};
use rota_tests::recorded::{Load, now_us};
use rota_tests::small::join_at;
use rota_tests::{Assembled, Member, PATIENCE, Places, Ran, eventually, ringctl};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// How long one manager may take to show the ring.
const LOOK: Duration = Duration::from_secs(2);

/// How far a join has come, as the View tells.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Step {
    /// It was asked for, and the ring does not know of it. The newcomer may have begun its folder.
    Asked,
    /// The ring has the number.
    Registered,
    /// It is the number that joins, and its arc is cut out. It copies.
    Copies,
    /// It counts as a copy of one partition or more.
    InSync,
    /// It owns its arc.
    Owns,
    /// Nobody joins any more.
    Released,
}

/// Those of which the ring knows.
const STEPS: [Step; 5] = [Step::Registered, Step::Copies, Step::InSync, Step::Owns, Step::Released];

impl Step {
    fn of(view: &v1::View, number: u32) -> Self {
        if !view.managers.iter().any(|it| it.number == number && it.status != "LEFT") {
            return Self::Asked;
        }
        let owns = view.parts.iter().any(|it| (it.number, it.owner) == (number, number));
        let joins = view.transition.as_ref().is_some_and(|it| it.number == number);
        match (owns, joins) {
            (true, true) => Self::Owns,
            (true, false) => Self::Released,
            _ if view.parts.iter().any(|it| it.isr.contains(&number)) => Self::InSync,
            (false, true) if view.parts.iter().any(|it| it.number == number) => Self::Copies,
            (false, _) => Self::Registered,
        }
    }
}

/// Who is killed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Victim {
    Newcomer,
    OwnerOfTheArc,
    Contact,
    OtherOwner,
    Ringctl,
}

const VICTIMS: [Victim; 5] =
    [Victim::Newcomer, Victim::OwnerOfTheArc, Victim::Contact, Victim::OtherOwner, Victim::Ringctl];

impl Victim {
    /// The manager that it is, by its index.
    fn member(self) -> Option<usize> {
        match self {
            Self::OwnerOfTheArc => Some(2),
            Self::Contact => Some(0),
            Self::OtherOwner => Some(1),
            Self::Newcomer | Self::Ringctl => None,
        }
    }
}

async fn view(cluster: &Assembled, at: usize) -> Result<v1::View, String> {
    let answer = cluster.client_of(at).inspect(LOOK).await;
    answer.map_err(|it| it.to_string())?.view.ok_or_else(|| "no View".to_owned())
}

/// Looks as often as it is answered, until the join has come so far; gives how far it was then.
async fn has_come_to(client: &Client, number: u32, step: Step) -> Step {
    let until = Instant::now() + PATIENCE;
    loop {
        let answer = client.inspect(LOOK).await.expect("it answers");
        let now = Step::of(&answer.view.expect("it shows a View"), number);
        if now >= step {
            return now;
        }
        assert!(Instant::now() < until, "it came to {now:?} only, and not to {step:?}");
    }
}

/// Waits until nobody joins; gives the status of that number.
async fn is_over(cluster: &Assembled, at: usize, number: u32) -> String {
    eventually("the join is over", PATIENCE, async || {
        let view = view(cluster, at).await?;
        let status = view.managers.iter().find(|it| it.number == number).map(|it| &it.status);
        match (status, &view.transition) {
            (Some(status), None) if status == "ACTIVE" || status == "DOWN" => Ok(status.clone()),
            _ => Err(format!("{view:?}")),
        }
    })
    .await
}

/// Waits until the newcomer is one of four that hold everything, and takes it out again.
async fn comes_and_goes(cluster: &Assembled, mut newcomer: Member, number: u32) {
    eventually("it is there", PATIENCE, async || {
        let view = view(cluster, 0).await?;
        if Step::of(&view, number) == Step::Released { Ok(()) } else { Err(format!("{view:?}")) }
    })
    .await;
    cluster.is_whole().await;
    let line = ["leave", "--number", &number.to_string(), "--wait", "-o", "json"];
    ringctl(&cluster.endpoints(), &line).await.expect_success();
    assert_eq!(newcomer.ended().await, Some(0), "it has left");
}

async fn told(target: String, number: u32, contact: String) -> Ran {
    join_at(&target, &number.to_string(), &contact, &["--wait"]).await
}

/// A newcomer of a case, and its number: below the last one, so that the third manager's arc is cut; later ones
/// take what has left.
async fn newcomer(cluster: &mut Assembled, case: u16) -> (Member, u32) {
    (cluster.newcomer(case).await, 690 + 13 * u32::from(case % 25))
}

async fn kill(
    cluster: &mut Assembled,
    victim: Victim,
    newcomer: &mut Member,
    joining: &JoinHandle<Ran>,
) {
    match victim.member() {
        Some(at) => cluster.kill(at).await,
        None if victim == Victim::Newcomer => newcomer.kill().await,
        // A command that is not waited for any more is killed.
        None => joining.abort(),
    }
}

async fn start(cluster: &mut Assembled, victim: Victim, newcomer: &mut Member) {
    match victim.member() {
        Some(at) => cluster.start_manager(at).await,
        None if victim == Victim::Newcomer => newcomer.start(&cluster.folder).await,
        None => {}
    }
}

/// Somebody is killed at the moment at which the newcomer begins its folder. The join goes on, or nothing came of
/// it, and who asks again gets it.
async fn killed_as_it_begins(
    cluster: &mut Assembled,
    load: &Load,
    case: u16,
    victim: Victim,
) -> Step {
    let (mut newcomer, number) = newcomer(cluster, case).await;
    let witness = usize::from(victim.member() == Some(0));
    let contact = cluster.grpc_of(0).to_owned();
    let joining = tokio::spawn(told(newcomer.grpc().to_owned(), number, contact.clone()));
    let until = Instant::now() + PATIENCE;
    while !newcomer.has_begun() {
        assert!(Instant::now() < until && !joining.is_finished(), "it was told its number");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    kill(cluster, victim, &mut newcomer, &joining).await;
    let client = cluster.client_of(witness);
    let reached = has_come_to(&client, number, Step::Asked).await;
    load.more(50).await;
    if victim != Victim::Ringctl {
        let ran = joining.await.expect("ringctl ends by itself");
        eprintln!(
            "{victim:?} was killed at {reached:?}, as it began: ringctl ended with {}",
            ran.code
        );
    }
    start(cluster, victim, &mut newcomer).await;
    eventually("it joins, if need be when it is asked again", PATIENCE, async || {
        if Step::of(&view(cluster, 0).await?, number) == Step::Released {
            return Ok(());
        }
        let ran = told(newcomer.grpc().to_owned(), number, contact.clone()).await;
        if ran.code == 0 { Ok(()) } else { Err(format!("{ran:?}")) }
    })
    .await;
    load.more(50).await;
    comes_and_goes(cluster, newcomer, number).await;
    reached
}

/// One join, and one who is killed when it has come so far. Gives how far it was.
async fn killed(
    cluster: &mut Assembled,
    load: &Load,
    case: u16,
    step: Step,
    victim: Victim,
) -> Step {
    let (mut newcomer, number) = newcomer(cluster, case).await;
    let witness = usize::from(victim.member() == Some(0));
    let watcher = cluster.client_of(witness);
    let contact = cluster.grpc_of(0).to_owned();
    let joining = tokio::spawn(told(newcomer.grpc().to_owned(), number, contact));
    let reached = has_come_to(&watcher, number, step).await;
    kill(cluster, victim, &mut newcomer, &joining).await;
    let began = now_us();
    load.more(50).await;
    let status = is_over(cluster, witness, number).await;
    let ms = (now_us() - began) / 1000;
    eprintln!("{victim:?} was killed at {reached:?}: {status} after {ms} ms");
    if victim != Victim::Newcomer {
        assert_eq!(status, "ACTIVE", "it lives, and joins in spite of that");
    }
    if victim != Victim::Ringctl {
        let ran = joining.await.expect("ringctl ends by itself");
        // A newcomer that is killed may have joined by its last look, or not.
        assert!(victim == Victim::Newcomer || ran.code == 0, "{ran:?}");
    }
    start(cluster, victim, &mut newcomer).await;
    load.more(50).await;
    comes_and_goes(cluster, newcomer, number).await;
    reached
}

/// The View passes some steps within milliseconds, so a look may find a join a step further. In so many
/// rounds every step must have been met.
const ROUNDS_TO_MEET_ALL: usize = 20;

#[tokio::test(flavor = "multi_thread")]
async fn at_each_step_of_a_join_whoever_takes_part_may_be_killed() {
    let mut met = BTreeMap::new();
    let mut cases = 0..;
    rounds(&Places::loopback(1), async |cluster, load, _| {
        let mut case = || cases.next().expect("not so many rounds");
        for victim in VICTIMS {
            let reached = killed_as_it_begins(cluster, load, case(), victim).await;
            *met.entry(reached).or_insert(0_u32) += 1;
        }
        for (step, victim) in STEPS.into_iter().flat_map(|step| VICTIMS.map(|it| (step, it))) {
            let reached = killed(cluster, load, case(), step, victim).await;
            *met.entry(reached).or_insert(0_u32) += 1;
        }
    })
    .await;
    eprintln!("somebody was killed at {met:?}");
    let all = STEPS.into_iter().chain([Step::Asked]).all(|it| met.contains_key(&it));
    assert!(all || wanted() < ROUNDS_TO_MEET_ALL, "{met:?}");
}
