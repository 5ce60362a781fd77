//! Documents that keep themselves in step: sessions, and others.

use crate::WAIT;
use crate::manager::{Running, start};
use crate::ring::{Balance, Ring, account, session_key, session_name};
use rota_client::cached::CacheError;
use rota_client::{
    CachedDocument, CachedDocumentOptions, CachedSession, CachedSessionOptions, Client,
    DocumentCopy, SessionCopy,
};
use rota_docstore::{Exception, Phase, Stamp, codes};
use rota_model::SessionState;
use rota_proto::documents::status;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

async fn open(endpoints: &[&Running], file: Option<&Path>) -> CachedSession {
    let list: Vec<&str> = endpoints.iter().map(|it| &*it.address).collect();
    let client = Client::connect(&list.join(",")).unwrap();
    let options = CachedSessionOptions {
        file: file.map(Path::to_owned),
        call_wait: Duration::from_secs(2),
        patience: Duration::from_secs(2),
        ..CachedSessionOptions::default()
    };
    CachedSession::open(&client, &session_key("s"), options).await.unwrap()
}

fn is(state: SessionState) -> impl FnMut(&SessionCopy) -> bool {
    move |copy| copy.state().unwrap() == Some(state)
}

/// What the store says, as a copy would.
fn is_in_step(ring: &Arc<Ring>, copy: &SessionCopy) -> bool {
    let state = ring.state();
    match (state.store.peek(&session_name(&session_key("s"))), copy.document()) {
        (Some(source), Some(copy)) => copy.says_the_same(source),
        (source, copy) => source.is_none() && copy.is_none(),
    }
}

#[tokio::test]
async fn a_copy_follows_its_session_from_before_it_exists_and_asks_for_nothing_meanwhile() {
    let ring = Ring::new();
    let manager = start(&ring).await;
    let mut cached = open(&[&manager], None).await;
    let copy = cached.refresh(WAIT).await.unwrap();
    assert_eq!((copy.document(), copy.state()), (None, Ok(None)));
    let key = session_key("s");
    ring.set_session(&key, SessionState::Starting);
    let copy = cached.wait_until(WAIT, is(SessionState::Starting)).await.unwrap();
    assert_eq!(copy.address(), Ok(None));
    assert_eq!(copy.spec().unwrap().unwrap().class.as_str(), "http");
    ring.set_session(&key, SessionState::Ready);
    let copy = cached.wait_until(WAIT, is(SessionState::Ready)).await.unwrap();
    assert_eq!(copy.address(), Ok(Some("10.0.0.1:80".to_owned())));
    assert_eq!(copy.machine_state(), Ok(None));
    ring.set_machine(&key, "green", 1);
    let copy = cached.changed_from(&copy, WAIT).await.unwrap();
    assert_eq!(copy.machine_state(), Ok(Some("green".to_owned())));
    assert!(is_in_step(&ring, &copy));
    // Two at the beginning at most, and one for each change.
    let calls = manager.calls();
    assert!(calls <= 5, "{calls}");
    let waited = cached.changed_from(&copy, Duration::from_millis(1)).await;
    let waited = waited.unwrap_err();
    assert!(matches!(waited, CacheError::TimedOut { trouble: None, .. }), "{waited:?}");
    assert_eq!(cached.close().await, copy);
}

#[tokio::test]
async fn updates_that_were_missed_come_with_the_next_one_or_a_refresh() {
    let ring = Ring::new();
    let manager = start(&ring).await;
    let key = session_key("s");
    ring.set_session(&key, SessionState::Ready);
    let mut cached = open(&[&manager], None).await;
    cached.wait_until(WAIT, is(SessionState::Ready)).await.unwrap();
    manager.script.is_deaf.store(true, Ordering::SeqCst);
    for change in 1..20 {
        ring.set_machine(&key, "red", change);
    }
    manager.script.is_deaf.store(false, Ordering::SeqCst);
    ring.set_machine(&key, "green", 20);
    let green = |it: &SessionCopy| it.machine_state() == Ok(Some("green".to_owned()));
    let copy = cached.wait_until(WAIT, green).await.unwrap();
    assert!(is_in_step(&ring, &copy));
    manager.script.is_deaf.store(true, Ordering::SeqCst);
    ring.set_session(&key, SessionState::Closed);
    let copy = cached.refresh(WAIT).await.unwrap();
    assert_eq!(copy.state(), Ok(Some(SessionState::Closed)));
}

#[tokio::test]
async fn a_new_life_replaces_the_old_one_and_the_end_of_a_life_is_seen() {
    let ring = Ring::new();
    let manager = start(&ring).await;
    let key = session_key("s");
    ring.set_session(&key, SessionState::Ready);
    ring.set_machine(&key, "green", 1);
    let mut cached = open(&[&manager], None).await;
    let old = cached.wait_until(WAIT, is(SessionState::Ready)).await.unwrap();
    ring.rebirth(&key);
    let copy = cached.wait_until(WAIT, is(SessionState::Pending)).await.unwrap();
    assert!(copy.life() > old.life());
    assert_eq!((copy.machine_state(), copy.spec()), (Ok(None), Ok(None)));
    assert!(is_in_step(&ring, &copy));
    ring.session(&key, |edited| assert!(edited.destroy()));
    let ended = |it: &SessionCopy| it.document().is_some_and(|it| it.is_deleted());
    let copy = cached.wait_until(WAIT, ended).await.unwrap();
    assert_eq!(copy.state(), Ok(None));
    // Gone without trace, and there again.
    ring.state().store.set(&session_name(&key), None);
    let copy = cached.refresh(WAIT).await.unwrap();
    assert_eq!(copy.document(), None);
    ring.set_session(&key, SessionState::Starting);
    cached.wait_until(WAIT, is(SessionState::Starting)).await.unwrap();
}

#[tokio::test]
async fn a_manager_that_goes_is_followed_by_the_next_one() {
    let ring = Ring::new();
    let (first, second) = (start(&ring).await, start(&ring).await);
    let key = session_key("s");
    ring.set_session(&key, SessionState::Starting);
    let mut cached = open(&[&first, &second], None).await;
    cached.wait_until(WAIT, is(SessionState::Starting)).await.unwrap();
    drop(first);
    ring.set_session(&key, SessionState::Ready);
    let copy = cached.wait_until(WAIT, is(SessionState::Ready)).await.unwrap();
    assert!(is_in_step(&ring, &copy));
    assert!(second.calls() > 0);
}

#[tokio::test]
async fn the_file_holds_over_a_restart_and_only_the_difference_is_asked_for() {
    let ring = Ring::new();
    let manager = start(&ring).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("s.copy");
    let key = session_key("s");
    ring.set_session(&key, SessionState::Starting);
    let mut cached = open(&[&manager], Some(&file)).await;
    let before = cached.refresh(WAIT).await.unwrap();
    assert_eq!(cached.close().await, before);
    // Nobody answers: what was known is there at once.
    drop(manager);
    let cached = open(&[&start(&Ring::new()).await], Some(&file)).await;
    assert_eq!(cached.copy(), before);
    drop(cached);
    ring.set_session(&key, SessionState::Ready);
    let manager = start(&ring).await;
    let mut cached = open(&[&manager], Some(&file)).await;
    let copy = cached.wait_until(WAIT, is(SessionState::Ready)).await.unwrap();
    assert!(is_in_step(&ring, &copy));
    assert_eq!(copy.spec(), before.spec());
}

#[tokio::test]
async fn a_source_that_knows_less_does_not_take_the_copy_back() {
    let (ring, empty) = (Ring::new(), Ring::new());
    let manager = start(&ring).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("s.copy");
    let key = session_key("s");
    ring.set_session(&key, SessionState::Starting);
    let old = ring.state().store.peek(&session_name(&key)).cloned().unwrap();
    ring.set_session(&key, SessionState::Ready);
    let mut cached = open(&[&manager], Some(&file)).await;
    let copy = cached.wait_until(WAIT, is(SessionState::Ready)).await.unwrap();
    // A source with an earlier version.
    ring.state().store.set(&session_name(&key), Some(old));
    let refused = cached.refresh(Duration::from_millis(300)).await.unwrap_err();
    let CacheError::TimedOut { trouble: Some(trouble), .. } = refused else {
        panic!("it says why: {refused:?}")
    };
    assert!(trouble.contains("source behind"), "{trouble}");
    assert_eq!((cached.copy(), cached.trouble()), (copy.clone(), Some(trouble)));
    cached.close().await;
    // One that never heard of it.
    let other = start(&empty).await;
    let mut cached = open(&[&other], Some(&file)).await;
    assert!(cached.refresh(Duration::from_millis(300)).await.is_err());
    assert_eq!(cached.close().await, copy);
}

#[tokio::test]
async fn trouble_passes_and_a_refusal_for_good_ends_it() {
    let ring = Ring::new();
    let manager = start(&ring).await;
    let key = session_key("s");
    ring.set_session(&key, SessionState::Ready);
    let contention = Exception::new(codes::CONTENTION, "busy").at(Phase::Validation);
    let trouble = [status(&contention), tonic::Status::unimplemented("not yet")];
    manager.script.refusals.lock().unwrap().extend(trouble);
    let mut cached = open(&[&manager], None).await;
    let copy = cached.wait_until(WAIT, is(SessionState::Ready)).await.unwrap();
    assert_eq!(cached.trouble(), None);
    let refused = Exception::unauthorised("KEY", "the key is wrong").at(Phase::Before);
    manager.script.refusals.lock().unwrap().push_back(status(&refused));
    let ended = cached.refresh(WAIT).await.unwrap_err();
    let CacheError::Ended(error) = ended else { panic!("not ended: {ended:?}") };
    assert_eq!(error.reason(), "S-KEY");
    assert_eq!(cached.close().await, copy);
}

#[tokio::test]
async fn a_file_that_cannot_be_written_is_told_and_the_copy_goes_on() {
    let ring = Ring::new();
    let manager = start(&ring).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("no folder").join("s.copy");
    ring.set_session(&session_key("s"), SessionState::Ready);
    let mut cached = open(&[&manager], Some(&file)).await;
    let copy = cached.wait_until(WAIT, is(SessionState::Ready)).await.unwrap();
    assert!(cached.trouble().unwrap().contains("no folder"));
    assert!(copy.version() > Some(Stamp::MIN));
}

fn holds(cents: i64) -> impl FnMut(&DocumentCopy) -> bool {
    move |copy| copy.one::<Balance>().unwrap() == Some(Balance { cents })
}

#[tokio::test]
async fn a_document_of_any_class_is_kept_in_step_over_changes_an_end_and_a_restart() {
    let ring = Ring::new();
    let manager = start(&ring).await;
    let client = Client::connect(&manager.address).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = Some(folder.path().join("account.copy"));
    let options = CachedDocumentOptions { file, ..CachedDocumentOptions::default() };
    let name = account("ann");
    let open = || CachedDocument::open(&client, &name, options.clone());
    let mut cached = open().await.unwrap();
    assert_eq!(cached.refresh(WAIT).await.unwrap().document(), None);
    let set = |cents| {
        ring.change(&name, |edited| {
            edited.ensure();
            edited.put_one(&Balance { cents }).unwrap();
        });
    };
    set(7);
    let copy = cached.wait_until(WAIT, holds(7)).await.unwrap();
    assert_eq!(copy.name(), &name);
    assert_eq!(cached.close().await, copy);
    set(8);
    let mut cached = open().await.unwrap();
    assert_eq!(cached.copy(), copy, "what the file has");
    cached.wait_until(WAIT, holds(8)).await.unwrap();
    ring.change(&name, |edited| assert!(edited.destroy()));
    let ended = |it: &DocumentCopy| it.document().is_some_and(|it| it.is_deleted());
    cached.wait_until(WAIT, ended).await.unwrap();
}
