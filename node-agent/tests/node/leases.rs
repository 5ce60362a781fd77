//! Programs of a node that no manager hears of.

use crate::agent::{Home, signal};
use crate::manager::{Line, Manager, Mood, running};
use crate::waiting::{numbers_in, runs, until, until_gone};
use rota_model::node_msg::{ScanFate, ScanItem};
use rustix::process::Signal;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// Of [`SHORT`].
const LEASE_TERM: Duration = Duration::from_millis(1_000);
const SHORT: [&str; 6] = ["--renew", "200ms", "--lease-term", "1000ms", "--lease-kill", "2000ms"];

async fn stubborn(home: &Home, manager: &Manager, line: &mut Line) -> (std::path::PathBuf, i32) {
    running(&line.create("s", "stubborn", 1).await);
    manager.ready("s").await;
    let work = home.work("s");
    let pid = numbers_in(&work.join("pids"), 1).await[0];
    (work, pid)
}

/// Waits for the polite signal, at which the program must still run, and then for its end.
async fn asked_and_then_killed(work: &Path, pid: i32) {
    let signs = work.join("signs");
    let asked = || fs::read_to_string(&signs).ok().filter(|it| it.contains("term"));
    until("the polite signal", asked).await;
    assert!(runs(pid), "asked before it is killed");
    until_gone(pid).await;
}

#[tokio::test]
async fn keepers_of_a_killed_agent_end_their_programs_when_the_lease_passes() {
    let (home, manager) = (Home::new(), Manager::start().await);
    let mut agent = home.start(&manager.address, &SHORT).await;
    let mut line = Line::to(&manager.registration(1).await).await;
    let (work, pid) = stubborn(&home, &manager, &mut line).await;
    // Renewals keep it running well past the first deadlines.
    until("renewals", || (manager.renewals() > 15).then_some(())).await;
    assert!(runs(pid) && !work.join("signs").exists());
    agent.kill().await;
    asked_and_then_killed(&work, pid).await;
    home.until_empty().await;

    let agent = home.start(&manager.address, &SHORT).await;
    let mut line = Line::to(&manager.registration(2).await).await;
    // It goes on with the boot, and knows that nothing lives.
    let lives = |it: &ScanItem| matches!(it.fate, ScanFate::Live(_));
    assert!(!line.scan().await.iter().any(lives));
    assert!(agent.leave().await.success());
}

#[tokio::test]
async fn a_machine_of_a_node_that_was_stopped_past_its_lease_takes_no_event() {
    let (home, manager) = (Home::new(), Manager::start().await);
    let agent = home.start(&manager.address, &SHORT).await;
    let mut line = Line::to(&manager.registration(1).await).await;
    running(&line.create("d", "door", 1).await);
    signal(agent.pid(), Signal::STOP);
    let stopped = Instant::now();
    let sent = async {
        until("the end of the lease", || (stopped.elapsed() > LEASE_TERM).then_some(())).await;
        signal(agent.pid(), Signal::CONT);
    };
    // It waits in the socket meanwhile.
    let (answer, ()) = tokio::join!(line.send("d", "push"), sent);
    assert!(answer.is_err(), "{answer:?}");
    assert!(agent.leave().await.success());
}

#[tokio::test]
async fn a_node_that_no_manager_renews_ends_its_programs_and_goes_on_when_one_does() {
    let (home, manager) = (Home::new(), Manager::start().await);
    let agent = home.start(&manager.address, &SHORT).await;
    let mut line = Line::to(&manager.registration(1).await).await;
    let (work, pid) = stubborn(&home, &manager, &mut line).await;
    running(&line.create("d", "door", 2).await);
    manager.set_mood(Mood::Silent);
    asked_and_then_killed(&work, pid).await;
    home.until_empty().await;
    assert!(line.send("d", "push").await.is_err(), "machines end when programs are asked to");
    manager.set_mood(Mood::Grants);
    manager.end_of("s").await;
    manager.end_of("d").await;
    until("a lease", || (manager.renewals() > 0).then_some(())).await;
    let mut seq = 10;
    loop {
        seq += 1;
        let answer = line.create("again", "door", seq).await;
        if matches!(answer, rota_model::node_msg::NodeAnswer::Running { .. }) {
            break;
        }
        assert!(seq < 10_000, "{answer:?}");
    }
    assert!(agent.leave().await.success());
}
