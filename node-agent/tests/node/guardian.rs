//! Agents that are killed, and keepers with them: what a program forked must not live on.

use crate::agent::{Agent, Home, keeper_of, kill, signal};
use crate::manager::{Line, Manager, running};
use crate::waiting::{numbers_in, runs, until, until_gone};
use rustix::process::Signal;
use rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::process::Stdio;
use tokio::process::{Child, Command};

const SHORT: [&str; 6] = ["--renew", "200ms", "--lease-term", "1000ms", "--lease-kill", "2000ms"];

/// A node with two programs: one with a child and one process in a session of its own, one with a
/// child without any environment.
struct Scene {
    home: Home,
    _manager: Manager,
    agent: Agent,
    pids: Vec<i32>,
    keepers: [i32; 2],
    guardian: i32,
}

async fn scene(flags: &[&str]) -> Scene {
    let (home, manager) = (Home::new(), Manager::start().await);
    let agent = home.start(&manager.address, flags).await;
    let mut line = Line::to(&manager.registration(1).await).await;
    running(&line.create("f", "family", 1).await);
    running(&line.create("b", "bare", 2).await);
    manager.ready("f").await;
    manager.ready("b").await;
    let (family, bare) = (home.work("f"), home.work("b"));
    let mut pids = numbers_in(&family.join("pids"), 3).await;
    pids.extend(numbers_in(&bare.join("pids"), 3).await);
    let keepers = [keeper_of(&family), keeper_of(&bare)];
    assert!(pids.iter().chain(&keepers).all(|it| runs(*it)));
    let guardian = agent.guardian().await;
    Scene { home, _manager: manager, agent, pids, keepers, guardian }
}

/// Also the guardian, which has nothing left to do.
async fn all_gone(scene: &Scene) {
    for pid in &scene.pids {
        until_gone(*pid).await;
    }
    scene.home.until_empty().await;
    until_gone(scene.guardian).await;
}

#[tokio::test]
async fn when_an_agent_and_then_its_keepers_are_killed_nothing_of_their_programs_lives_on() {
    let mut scene = scene(&[]).await;
    scene.agent.kill().await;
    assert!(scene.pids.iter().all(|it| runs(*it)), "keepers outlive their agent");
    scene.keepers.into_iter().for_each(kill);
    all_gone(&scene).await;
    let log = fs::read_to_string(scene.home.data().join("guardian.log")).unwrap();
    for told in ["the agent is gone", "keeper_gone=true", "nothing is left of it"] {
        assert!(log.contains(told), "{told}: {log}");
    }
}

#[tokio::test]
async fn when_a_keeper_and_then_its_agent_are_killed_the_others_go_on_until_the_lease_passes() {
    let mut scene = scene(&SHORT).await;
    // Stopped, so that it cannot clear up itself.
    signal(scene.agent.pid(), Signal::STOP);
    kill(scene.keepers[0]);
    until_gone(scene.pids[0]).await;
    assert!(scene.pids[1..3].iter().all(|it| runs(*it)), "the kernel ends only the first process");
    scene.agent.kill().await;
    for pid in &scene.pids[1..3] {
        until_gone(*pid).await;
    }
    all_gone(&scene).await;
}

#[tokio::test]
async fn what_a_keeper_that_hangs_does_not_end_is_killed_with_the_keeper_when_the_lease_passes() {
    let mut scene = scene(&SHORT).await;
    scene.agent.kill().await;
    // After its agent's end: before it, the kernel would tell them to go on and to hang up.
    scene.keepers.into_iter().for_each(|it| signal(it, Signal::STOP));
    all_gone(&scene).await;
    assert!(!scene.keepers.into_iter().any(runs));
}

#[tokio::test]
async fn a_guardian_does_not_believe_a_lease_that_its_node_cannot_have_written() {
    let mut scene = scene(&SHORT).await;
    // Stopped, so that it does not write another one.
    signal(scene.agent.pid(), Signal::STOP);
    fs::write(scene.home.data().join("lease"), "9000000000000 9000000000000\n").unwrap();
    scene.agent.kill().await;
    scene.keepers.into_iter().for_each(|it| signal(it, Signal::STOP));
    all_gone(&scene).await;
}

#[tokio::test]
async fn a_guardian_that_is_killed_is_followed_by_another_one_that_guards() {
    let mut scene = scene(&[]).await;
    kill(scene.guardian);
    until_gone(scene.guardian).await;
    scene.guardian = scene.agent.guardian().await;
    assert!(scene.pids.iter().all(|it| runs(*it)), "sessions do not notice");
    scene.agent.kill().await;
    scene.keepers.into_iter().for_each(kill);
    all_gone(&scene).await;
}

#[tokio::test]
async fn the_next_boot_ends_what_is_left_of_a_node_whose_guardian_was_killed_too() {
    let mut scene = scene(&[]).await;
    // Stopped, so that it starts no other one.
    signal(scene.agent.pid(), Signal::STOP);
    kill(scene.guardian);
    scene.agent.kill().await;
    scene.keepers.into_iter().for_each(kill);
    let [leaders, forked] = [[0, 3], [1, 2]].map(|of| of.map(|at| scene.pids[at]));
    for pid in leaders {
        until_gone(pid).await;
    }
    assert!(forked.iter().all(|it| runs(*it)), "nobody is left who knows of them");
    // With it the next agent would go on with the boot.
    std::fs::remove_file(scene.home.data().join("journal")).unwrap();
    let manager = Manager::start().await;
    let agent = scene.home.start(&manager.address, &[]).await;
    assert!(!forked.into_iter().any(runs), "before the new boot registers");
    assert!(agent.leave().await.success());
    // A child without an environment cannot be told from a stranger any more.
    kill(scene.pids[4]);
    all_gone(&scene).await;
}

#[tokio::test]
async fn a_guardian_ends_with_an_agent_that_has_nothing_running() {
    let (home, manager) = (Home::new(), Manager::start().await);
    let mut agent = home.start(&manager.address, &[]).await;
    manager.registration(1).await;
    let guardian = agent.guardian().await;
    agent.kill().await;
    until_gone(guardian).await;
    let agent = home.start(&manager.address, &[]).await;
    let guardian = agent.guardian().await;
    assert!(agent.leave().await.success());
    assert!(!runs(guardian), "an agent that leaves takes it along");
    home.until_empty().await;
}

/// A guardian as a later agent starts it: its standard input is that agent's life.
fn later_guardian(home: &Home, input: Stdio) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rota-node-agent"));
    let command =
        command.arg("guardian").env("ROTA_NODE_DATA", home.data().canonicalize().unwrap());
    let command = command.env("ROTA_LEASE_MS_MAX", "60000").stdin(input);
    command.stdout(Stdio::null()).process_group(0).kill_on_drop(true).spawn().unwrap()
}

#[tokio::test]
async fn a_guardian_leaves_when_that_of_a_later_agent_is_there_and_that_one_guards() {
    let mut scene = scene(&[]).await;
    scene.agent.kill().await;
    let mut later = later_guardian(&scene.home, Stdio::piped());
    until_gone(scene.guardian).await;
    let others = scene.pids.iter().chain(&scene.keepers);
    assert!(others.copied().all(runs), "sessions do not notice");
    // One that comes too late takes nobody's place.
    let mut too_late = later_guardian(&scene.home, Stdio::null());
    assert!(too_late.wait().await.unwrap().success());
    drop(later.stdin.take());
    scene.keepers.into_iter().for_each(kill);
    all_gone(&scene).await;
    assert!(later.wait().await.unwrap().success());
}

#[tokio::test]
async fn a_guardian_whose_agent_is_gone_sees_that_a_later_one_renews_the_lease() {
    let mut scene = scene(&SHORT).await;
    scene.agent.kill().await;
    // What is left is the guardian's from the end of the lease on.
    scene.keepers.into_iter().for_each(|it| signal(it, Signal::STOP));
    let now_ms = || {
        let now = clock_gettime(ClockId::Boottime);
        now.tv_sec * 1000 + now.tv_nsec / 1_000_000
    };
    let (lease, fresh) = (scene.home.data().join("lease"), scene.home.data().join("lease.new"));
    let over_ms = now_ms() + 3_000;
    until("the end of the first lease, long ago", || {
        let now = now_ms();
        fs::write(&fresh, format!("0 1023 {} {}\n", now + 900, now + 1_900)).unwrap();
        fs::rename(&fresh, &lease).unwrap();
        (now > over_ms).then_some(())
    })
    .await;
    let others = scene.pids.iter().chain(&scene.keepers);
    assert!(others.copied().all(runs));
    all_gone(&scene).await;
}
