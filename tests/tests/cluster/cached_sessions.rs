//! Copies of sessions' documents that clients keep in step with a cluster.

use rota_client::{CachedSession, CachedSessionOptions, Client, SessionCopy, v1};
use rota_docstore::Stamp;
use rota_model::{Namespace, SessionId, SessionKey, SessionState};
use rota_tests::sessions::{CALL, becomes, close, open, opened, read};
use rota_tests::{Cluster, PATIENCE, TestFolder, eventually, processes};
use rustix::process::Signal;
use std::path::Path;
use std::time::Duration;

/// The class of every session here: its machine is `red` at first.
const LIGHT: &str = "traffic-light";

async fn cached(client: &Client, id: &str, file: Option<&Path>) -> CachedSession {
    let key = SessionKey::new(Namespace::default_space(), SessionId::parse(id).unwrap());
    // A manager that is stopped answers nothing at all: no call waits long for it.
    let options = CachedSessionOptions {
        file: file.map(Path::to_owned),
        call_wait: Duration::from_secs(2),
        patience: Duration::from_secs(2),
        ..CachedSessionOptions::default()
    };
    CachedSession::open(client, &key, options).await.unwrap()
}

fn event(id: &str, event: &str) -> v1::SendRequest {
    v1::SendRequest { id: id.to_owned(), event: event.to_owned(), ..Default::default() }
}

async fn next(client: &Client, session: &v1::Session) -> String {
    let moved = client.send_event(&session.address, event(&session.id, "next"), CALL).await;
    moved.unwrap().to
}

fn is(state: SessionState) -> impl FnMut(&SessionCopy) -> bool {
    move |copy| copy.state().unwrap() == Some(state)
}

fn shows(machine: &str) -> impl FnMut(&SessionCopy) -> bool {
    move |copy| copy.machine_state().unwrap().as_deref() == Some(machine)
}

/// Whether a copy says what a manager says.
fn is_of(copy: &SessionCopy, session: &v1::Session) -> bool {
    let number = |it: Option<Stamp>| it.map(Stamp::as_u64);
    let address = copy.address().unwrap().unwrap_or_default();
    let machine = copy.machine_state().unwrap().unwrap_or_default();
    (number(copy.life()), number(copy.version())) == (Some(session.life), Some(session.version))
        && (&address, &machine) == (&session.address, &session.machine_state)
}

/// Waits until a copy says what these managers say, each of them.
async fn in_step(cached: &mut CachedSession, id: &str, managers: &[Client]) -> SessionCopy {
    eventually("the copy says what every manager says", PATIENCE, async || {
        let copy = cached.refresh(PATIENCE).await.map_err(|it| it.to_string())?;
        for manager in managers {
            let session = read(manager, id).await.map_err(|it| it.to_string())?;
            if !is_of(&copy, &session) {
                return Err(format!("{copy:?} beside {session:?}"));
            }
        }
        Ok(copy)
    })
    .await
}

/// Follows a copy until it is closed in this life. Fails when it goes back on the way: each copy
/// that is shown has a later version than the one before it.
async fn follow_to_the_end(mut cached: CachedSession, life: u64) -> (CachedSession, SessionCopy) {
    let mut seen = cached.copy();
    loop {
        let ends = seen.life().is_some_and(|it| it.as_u64() == life);
        if ends && seen.state().unwrap() == Some(SessionState::Closed) {
            return (cached, seen);
        }
        let copy = cached.changed_from(&seen, PATIENCE).await.unwrap();
        assert!(copy.version() > seen.version(), "{copy:?} after {seen:?}");
        assert!(copy.life() >= seen.life(), "{copy:?} after {seen:?}");
        seen = copy;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_follows_its_session_from_before_it_is_opened_through_its_states_to_its_end() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let managers = cluster.clients();
    for (turn, manager) in managers.iter().enumerate() {
        let id = format!("light {turn}");
        let mut copies = Vec::new();
        for client in &managers {
            let mut cached = cached(client, &id, None).await;
            let copy = cached.refresh(PATIENCE).await.unwrap();
            assert_eq!((copy.document(), copy.state()), (None, Ok(None)));
            copies.push(cached);
        }
        let light = opened(manager, &id, LIGHT).await;
        for cached in &mut copies {
            let copy = cached.wait_until(PATIENCE, is(SessionState::Ready)).await.unwrap();
            assert_eq!(copy.life().map(Stamp::as_u64), Some(light.life));
            assert_eq!(copy.address().unwrap().as_ref(), Some(&light.address));
            assert_eq!(copy.spec().unwrap().unwrap().class.as_str(), LIGHT);
        }
        for _ in 0..5 {
            let machine = next(manager, &light).await;
            for cached in &mut copies {
                cached.wait_until(PATIENCE, shows(&machine)).await.unwrap();
            }
        }
        manager.close(close(&id), CALL).await.unwrap();
        for mut cached in copies {
            let copy = cached.wait_until(PATIENCE, is(SessionState::Closed)).await.unwrap();
            assert_eq!(copy.address(), Ok(None), "what has ended answers nowhere");
            let last = in_step(&mut cached, &id, &managers).await;
            assert_eq!(cached.close().await, last);
        }
    }
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_begins_with_its_file_and_learns_what_was_missed_meanwhile() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let managers = cluster.clients();
    let file = folder.path().join("light.copy");
    let light = opened(&managers[0], "light", LIGHT).await;
    let mut first = cached(&managers[0], "light", Some(&file)).await;
    first.wait_until(PATIENCE, is(SessionState::Ready)).await.unwrap();
    first.wait_until(PATIENCE, shows("red")).await.unwrap();
    let before = first.close().await;
    // Nobody keeps it in step: the machine moves on.
    for _ in 0..7 {
        next(&managers[0], &light).await;
    }
    let mut second = cached(&managers[1], "light", Some(&file)).await;
    let known = second.copy();
    assert!(known.version() >= before.version() && known.life() == before.life(), "{known:?}");
    let copy = second.wait_until(PATIENCE, shows("amber")).await.unwrap();
    assert_eq!((copy.life(), copy.spec()), (before.life(), before.spec()));
    let before = second.close().await;
    // A whole life passes, and another begins.
    managers[2].close(close("light"), CALL).await.unwrap();
    becomes(&managers[2], "light", v1::SessionState::Closed).await;
    let again = opened(&managers[2], "light", LIGHT).await;
    assert!(again.life > light.life);
    let mut third = cached(&managers[2], "light", Some(&file)).await;
    assert!(third.copy().version() >= before.version());
    let copy = third.wait_until(PATIENCE, shows("red")).await.unwrap();
    assert_eq!(copy.life().map(Stamp::as_u64), Some(again.life));
    let last = in_step(&mut third, "light", &managers).await;
    assert_eq!(third.close().await, last);
    cluster.end().await;
    // Without a manager there is what was known last.
    let last_known = cached(&managers[0], "light", Some(&file)).await;
    assert_eq!(last_known.copy(), last);
    last_known.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_is_closed_and_opened_again_is_a_new_life_in_every_copy() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let managers = cluster.clients();
    let mut life = 0;
    let mut followers = Vec::new();
    for manager in &managers {
        followers.push(cached(manager, "light", None).await);
    }
    for _ in 0..3 {
        let light = opened(&managers[0], "light", LIGHT).await;
        assert!(light.life > life, "{} after {life}", light.life);
        life = light.life;
        next(&managers[1], &light).await;
        let following = followers.into_iter().map(|it| tokio::spawn(follow_to_the_end(it, life)));
        let following: Vec<_> = following.collect();
        managers[2].close(close("light"), CALL).await.unwrap();
        followers = Vec::new();
        for following in following {
            let (cached, copy) = following.await.unwrap();
            assert_eq!(copy.life().map(Stamp::as_u64), Some(life));
            followers.push(cached);
        }
    }
    for mut cached in followers {
        in_step(&mut cached, "light", &managers).await;
        cached.close().await;
    }
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_whose_only_manager_was_stopped_for_a_while_is_right_afterwards() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let light = opened(&cluster.client(), "light", LIGHT).await;
    let managers = &cluster.document.managers;
    // Not the owner: the session itself goes on without it.
    let cut_off = managers.iter().position(|it| it.number != light.owner).unwrap();
    let others: Vec<_> = (0..3).filter(|it| *it != cut_off).collect();
    let other = cluster.client_of(others[0]);
    let mut cached = cached(&cluster.client_of(cut_off), "light", None).await;
    let ready = cached.wait_until(PATIENCE, is(SessionState::Ready)).await.unwrap();
    processes::send(managers[cut_off].pid, Signal::STOP);
    for _ in 0..3 {
        next(&other, &light).await;
    }
    other.close(close("light"), CALL).await.unwrap();
    becomes(&other, "light", v1::SessionState::Closed).await;
    // Its node may have been looked after by the one that is stopped, and may need another first.
    let again = eventually("a second life begins", PATIENCE, async || {
        let opened = other.open(open("light", LIGHT), CALL).await;
        opened.map(|it| it.session.unwrap()).map_err(|it| it.to_string())
    })
    .await;
    cached.refresh(Duration::from_millis(1)).await.unwrap_err();
    eventually("the copy tells of its trouble", PATIENCE, async || {
        cached.trouble().map(|_| ()).ok_or("no trouble".to_owned())
    })
    .await;
    assert_eq!(cached.copy().life(), ready.life());
    processes::send(managers[cut_off].pid, Signal::CONT);
    let is_again = |it: &SessionCopy| it.life().map(Stamp::as_u64) == Some(again.life);
    cached.wait_until(PATIENCE, is_again).await.unwrap();
    in_step(&mut cached, "light", &cluster.clients()).await;
    assert_eq!(cached.trouble(), None);
    cached.close().await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_goes_over_to_the_next_owner_without_going_back_and_sees_the_end() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let client = cluster.client();
    let light = opened(&client, "light", LIGHT).await;
    let managers = &cluster.document.managers;
    let owner = managers.iter().position(|it| it.number == light.owner).unwrap();
    let survivors = (0..3).filter(|it| *it != owner).map(|it| cluster.client_of(it));
    let survivors: Vec<Client> = survivors.collect();
    let file = folder.path().join("light.copy");
    let mut with_file = cached(&client, "light", Some(&file)).await;
    with_file.wait_until(PATIENCE, is(SessionState::Ready)).await.unwrap();
    let mut copies = vec![with_file];
    for client in &survivors {
        copies.push(cached(client, "light", None).await);
    }
    let life = light.life;
    let following = copies.into_iter().map(|it| tokio::spawn(follow_to_the_end(it, life)));
    let following: Vec<_> = following.collect();
    next(&client, &light).await;
    cluster.kill_manager(owner).await;
    // Its node does not need the owner for this.
    let machine = next(&client, &light).await;
    eventually("the next owner knows the machine's state", PATIENCE, async || {
        let session = read(&survivors[0], "light").await.map_err(|it| it.to_string())?;
        let is_there = session.owner != light.owner && session.machine_state == machine;
        if is_there { Ok(()) } else { Err(format!("{session:?}")) }
    })
    .await;
    survivors[1].close(close("light"), CALL).await.unwrap();
    let mut last = Vec::new();
    for following in following {
        let (mut cached, end) = following.await.unwrap();
        assert_eq!(end.life().map(Stamp::as_u64), Some(life));
        last.push(in_step(&mut cached, "light", &survivors).await);
        assert_eq!(Some(&cached.close().await), last.last());
    }
    let restarted = cached(&survivors[0], "light", Some(&file)).await;
    assert!(restarted.copy().version() >= last[0].version());
    assert_eq!(restarted.close().await.state(), Ok(Some(SessionState::Closed)));
    cluster.end().await;
}
