//! What the embedded client makes of answers that no healthy store gives, and of a long outage.

use crate::conformance::{PATIENCE, done, first_view, name, next_view};
use crate::process::{Folder, StoreProcess};
use rota_membership::wire::state_to_json;
use rota_membership::{CasReply, ConfigStore, EmbeddedStore, StoreError, Watcher};
use rota_ring::{Change, ConfigState};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::timeout;

/// A client of something that gives every request this answer.
async fn answered_with(answer: String) -> EmbeddedStore {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = [0; 4096];
            if stream.read(&mut head).await.is_ok() {
                stream.write_all(answer.as_bytes()).await.ok();
            }
        }
    });
    EmbeddedStore::new(&address, name("suite"), PATIENCE).unwrap()
}

fn ok(body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}")
}

fn founded_json() -> String {
    let view = Some(Arc::new(first_view(name("suite"))));
    let state = ConfigState { index: 1, view, ..ConfigState::default() };
    String::from_utf8(state_to_json(&name("suite"), &state).to_vec()).unwrap()
}

#[tokio::test]
async fn an_answer_that_no_store_may_give_is_broken_and_says_why() {
    let json = founded_json();
    for (body, words) in [
        (json.replacen("\"format\":1", "\"format\":7", 1), "state has format 7"),
        (json.replace("\"view\":{\"format\":1", "\"view\":{\"format\":8"), "View has format 8"),
        (json.replace("\"m\":1024", "\"m\":0"), "the View is broken"),
        ("<html>".into(), "does not parse"),
    ] {
        let store = answered_with(ok(&body)).await;
        match store.read().await {
            Err(StoreError::Broken(text)) => assert!(text.contains(words), "{text}"),
            other => panic!("{other:?}"),
        }
        let unknown = store.cas(Change::view(first_view(name("suite")))).await;
        assert!(matches!(unknown, CasReply::Unknown(StoreError::Broken(_))), "{unknown:?}");
    }
}

#[tokio::test]
async fn an_answer_cut_short_is_unreachable_and_a_write_unknown() {
    let whole = ok(&founded_json());
    let store = answered_with(whole[..whole.len() - 9].to_owned()).await;
    assert!(matches!(store.read().await, Err(StoreError::Unreachable(_))));
    let unknown = store.cas(Change::view(first_view(name("suite")))).await;
    assert!(matches!(unknown, CasReply::Unknown(StoreError::Unreachable(_))), "{unknown:?}");
}

#[tokio::test]
async fn a_refused_connection_is_unreachable() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let store = EmbeddedStore::new(&address, name("suite"), PATIENCE).unwrap();
    assert!(matches!(store.read().await, Err(StoreError::Unreachable(_))));
}

#[tokio::test]
async fn an_address_without_a_port_is_refused() {
    for address in ["", "localhost", "host:", "host:99999", "http://host:1", "a b:1"] {
        let error = EmbeddedStore::new(address, name("suite"), PATIENCE).unwrap_err();
        assert_eq!(error.field, "config store address", "{address:?}");
    }
}

/// A loopback address of this test process alone, so that nobody takes the port between two runs
/// of a store.
fn own_loopback() -> String {
    let pid = std::process::id();
    format!("127.77.{}.{}:0", pid / 250 % 250, pid % 250 + 1)
}

#[tokio::test]
async fn a_watcher_and_its_client_follow_the_store_over_a_kill_and_a_restart() {
    let folder = Folder::new();
    let process = StoreProcess::start(&folder, &["--listen", &own_loopback()]).await;
    let store = process.client();
    let watcher = Watcher::start(Arc::new(store.clone()));
    let (mut states, mut trouble) = (watcher.states(), watcher.trouble());
    let founded = done(store.cas(Change::view(first_view(name("suite")))).await);
    let seen = states.wait_for(|it| it.as_ref().is_some_and(|it| it.index >= founded.index));
    let seen = timeout(PATIENCE, seen).await.expect("it follows").unwrap().clone();
    assert_eq!(seen.as_deref(), Some(&founded));

    let address = process.address.clone();
    process.kill().await;
    let gone = timeout(PATIENCE, trouble.wait_for(Option::is_some)).await.expect("it notices");
    let gone = gone.unwrap().clone().unwrap();
    assert!(matches!(gone.error, StoreError::Unreachable(_)), "{gone:?}");
    assert_eq!(states.borrow().as_deref(), Some(&founded), "the last state stays");

    let _process = StoreProcess::start(&folder, &["--listen", &address]).await;
    let well = timeout(PATIENCE, trouble.wait_for(Option::is_none)).await.expect("it notices");
    well.unwrap();
    // The old client has connections that died; each call of it still tells the truth.
    let next = Change::view(next_view(founded.view.as_ref().unwrap(), 1));
    let expected = match store.cas(next).await {
        CasReply::Done(state) => state,
        CasReply::Unknown(_) => store.read().await.unwrap(),
        CasReply::Conflict(state) => panic!("nobody else writes, yet {state:?}"),
    };
    let seen = states.wait_for(|it| it.as_ref().is_some_and(|it| it.index >= expected.index));
    let seen = timeout(PATIENCE, seen).await.expect("it follows").unwrap().clone();
    assert_eq!(seen.as_deref(), Some(&expected));
}

#[tokio::test]
async fn a_store_that_went_back_is_refused_by_who_saw_more() {
    let folder = Folder::new();
    let process = StoreProcess::start(&folder, &["--listen", &own_loopback()]).await;
    let store = process.client();
    let first = done(store.cas(Change::view(first_view(name("suite")))).await);
    let next = Change::view(next_view(first.view.as_ref().unwrap(), 1));
    let second = done(store.cas(next.clone()).await);
    let address = process.address.clone();
    process.kill().await;
    // Another folder, which never had any of it, under the same address.
    let empty = Folder::new();
    let _process = StoreProcess::start(&empty, &["--listen", &address]).await;
    let broken = |error: StoreError| {
        let StoreError::Broken(text) = error else { panic!("{error:?}") };
        text
    };
    // The first call may find a connection that died.
    let read = match store.read().await {
        Err(StoreError::Unreachable(_)) => store.read().await,
        other => other,
    };
    let text = broken(read.unwrap_err());
    assert!(text.contains(&format!("went back from index {} to 0", second.index)), "{text}");
    assert!(broken(store.next(0, Duration::ZERO).await.unwrap_err()).contains("went back"));
    let reply = store.cas(next).await;
    let CasReply::Unknown(error) = reply else { panic!("{reply:?}") };
    assert!(broken(error).contains("went back"));
    // Who never saw more believes it.
    let new = EmbeddedStore::new(&address, name("suite"), PATIENCE).unwrap();
    assert_eq!(new.read().await.unwrap(), ConfigState::default());
}
