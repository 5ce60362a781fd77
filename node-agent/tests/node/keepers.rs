//! Keepers and agents that are killed.

use crate::agent::{Home, keeper_of, kill, signal};
use crate::manager::{Line, Manager, Mood, running, signs_off};
use crate::waiting::{children_of, numbers_in, runs, until_gone};
use rota_model::node_msg::NodeAnswer;
use rota_model::{Exit, Reason};
use rustix::process::Signal;

#[tokio::test]
async fn when_a_keeper_is_killed_its_program_dies_and_the_end_is_reported() {
    let (home, manager) = (Home::new(), Manager::start().await);
    let agent = home.start(&manager.address, &[]).await;
    let mut line = Line::to(&manager.registration(1).await).await;
    running(&line.create("f", "family", 1).await);
    manager.ready("f").await;
    let work = home.work("f");
    let pids = numbers_in(&work.join("pids"), 3).await;
    kill(keeper_of(&work));
    let (reason, exit, detail) = manager.end_of("f").await;
    assert_eq!((reason, exit), (Reason::Internal, Some(Exit::Signal(9))));
    assert!(detail.contains("keeper"), "{detail}");
    let children = children_of(agent.pid());
    assert_eq!(children, [agent.guardian().await], "all are reaped");
    assert!(!pids.iter().any(|it| runs(*it)), "told only when all are gone");
    assert!(agent.leave().await.success());
}

#[tokio::test]
async fn a_keeper_that_hangs_is_killed_when_its_session_is_destroyed() {
    let (home, manager) = (Home::new(), Manager::start().await);
    let _agent = home.start(&manager.address, &[]).await;
    let mut line = Line::to(&manager.registration(1).await).await;
    running(&line.create("f", "family", 1).await);
    manager.ready("f").await;
    let work = home.work("f");
    let pids = numbers_in(&work.join("pids"), 3).await;
    signal(keeper_of(&work), Signal::STOP);
    let destroyed = line.destroy("f", 1).await;
    let NodeAnswer::Destroyed { exit: Some(Exit::Signal(9)), detail } = destroyed else {
        panic!("{destroyed:?}");
    };
    assert!(detail.contains("its keeper was killed"), "{detail}");
    assert!(!pids.iter().any(|it| runs(*it)));
}

#[tokio::test]
async fn without_a_journal_the_next_agent_ends_what_a_killed_one_left_before_it_registers() {
    let (home, manager) = (Home::new(), Manager::start().await);
    let mut agent = home.start(&manager.address, &[]).await;
    let first = manager.registration(1).await;
    let mut line = Line::to(&first).await;
    running(&line.create("f", "family", 1).await);
    running(&line.create("s", "stubborn", 2).await);
    manager.ready("f").await;
    manager.ready("s").await;
    let mut pids = numbers_in(&home.work("f").join("pids"), 3).await;
    pids.extend(numbers_in(&home.work("s").join("pids"), 1).await);
    let keepers = [keeper_of(&home.work("f")), keeper_of(&home.work("s"))];
    agent.kill().await;
    assert!(keepers.iter().chain(&pids).all(|it| runs(*it)), "keepers outlive their agent");
    std::fs::remove_file(home.data().join("journal")).unwrap();

    let agent = home.start(&manager.address, &[]).await;
    let second = manager.registration(2).await;
    assert!(!keepers.iter().chain(&pids).any(|it| runs(*it)));
    assert_ne!(first.boot, second.boot);
    assert_eq!(agent.ready["boot"], second.boot.0);
    let mut line = Line::to(&second).await;
    assert_eq!(line.scan().await, vec![]);
    running(&line.create("f", "family", 3).await);
    assert!(agent.leave().await.success());
    home.until_empty().await;
}

#[tokio::test]
async fn a_boot_that_is_declared_lost_ends_everything_and_another_boot_registers() {
    let (home, manager) = (Home::new(), Manager::start().await);
    let flags = ["--renew", "100ms"];
    let mut agent = home.start(&manager.address, &flags).await;
    let first = manager.registration(1).await;
    assert_eq!(agent.line().await["boot"], first.boot.0);
    let mut line = Line::to(&first).await;
    running(&line.create("f", "family", 1).await);
    running(&line.create("d", "door", 2).await);
    manager.ready("f").await;
    let pids = numbers_in(&home.work("f").join("pids"), 3).await;
    manager.set_mood(Mood::SaysLost(first.boot));
    let second = manager.registration(2).await;
    assert_ne!(first.boot, second.boot);
    assert!(!pids.iter().any(|it| runs(*it)), "registered only when all are gone");
    assert_eq!(agent.line().await["boot"], second.boot.0);
    let mut line = Line::to(&second).await;
    assert_eq!(line.scan().await, vec![]);
    assert!(line.send("d", "push").await.is_err());
    running(&line.create("d", "door", 3).await);
}

#[tokio::test]
async fn a_node_that_leaves_ends_its_sessions_and_signs_off() {
    let (home, manager) = (Home::new(), Manager::start().await);
    let agent = home.start(&manager.address, &[]).await;
    let mut line = Line::to(&manager.registration(1).await).await;
    running(&line.create("f", "family", 1).await);
    running(&line.create("d", "door", 2).await);
    manager.ready("f").await;
    let mut pids = numbers_in(&home.work("f").join("pids"), 3).await;
    pids.push(keeper_of(&home.work("f")));
    assert!(agent.leave().await.success());
    assert!(!pids.iter().any(|it| runs(*it)));
    assert!(signs_off(&manager.registration(2).await));
    for id in ["f", "d"] {
        assert_eq!(manager.end_of(id).await.0, Reason::Drained, "{id}");
    }
}

#[tokio::test]
async fn a_second_signal_ends_a_stubborn_program_at_once() {
    let (home, manager) = (Home::new(), Manager::start().await);
    let agent = home.start(&manager.address, &[]).await;
    let mut line = Line::to(&manager.registration(1).await).await;
    running(&line.create("s", "stubborn", 1).await);
    manager.ready("s").await;
    let work = home.work("s");
    let pids = numbers_in(&work.join("pids"), 1).await;
    signal(agent.pid(), Signal::INT);
    crate::waiting::until("the polite signal", || work.join("signs").exists().then_some(())).await;
    assert!(agent.leave().await.success());
    until_gone(pids[0]).await;
}
