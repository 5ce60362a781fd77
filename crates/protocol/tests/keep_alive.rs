//! Clients say that they use sessions.

use crate::table::*;
use rota_model::{KeepAliveOp, RefusalKind};
use rota_protocol::{Answer, Op, OpResult};

/// For how long nobody had said that a session is used.
fn kept_alive(result: OpResult) -> Option<u64> {
    match result {
        Ok(Answer::KeptAlive { idle_ms, .. }) => idle_ms,
        other => panic!("not kept alive: {other:?}"),
    }
}

#[test]
fn who_keeps_a_session_alive_hears_since_when_nobody_had() {
    let mut table = Table::serving();
    opened(table.call(300, open("a", "r1")));
    assert_eq!(kept_alive(table.call(300, keep_alive("a"))), None, "nobody had said so");
    table.pass(2_000);
    let entry = *NUMBERS.iter().find(|n| **n != 300).unwrap();
    let idle_ms = kept_alive(table.call(entry, keep_alive("a"))).unwrap();
    assert!((2_000..2_500).contains(&idle_ms), "through another manager: {idle_ms}");
    // A later owner counts from its own serving.
    let owner = table.owner("a");
    table.kill(owner);
    let entry = *NUMBERS.iter().find(|n| **n != owner).unwrap();
    let call = table.ask(entry, keep_alive("a"));
    assert_eq!(kept_alive(table.wait_for(call, 5_000)), None);
    table.pass(1_000);
    let call = table.ask(entry, keep_alive("a"));
    assert!(kept_alive(table.wait_for(call, 1_000)).unwrap() >= 1_000);
}

#[test]
fn nothing_is_written_to_keep_a_session_alive() {
    let mut table = Table::serving();
    let (_, before) = opened(table.call(300, open("a", "r1")));
    table.pass(1_000);
    let persisted = table.persisted;
    for _ in 0..100 {
        kept_alive(table.call(300, keep_alive("a")));
    }
    assert_eq!(table.persisted, persisted, "batches were written");
    assert_eq!(got(table.call(300, get("a"))).record.version, before.record.version);
}

#[test]
fn what_does_not_live_is_not_kept_alive() {
    let mut table = Table::serving();
    assert_eq!(refused(table.call(300, keep_alive("a"))), RefusalKind::NotFound);
    let (_, session) = opened(table.call(300, open("a", "r1")));
    let of_life = |life| {
        let key = session.record.key.clone();
        Op::KeepAlive(KeepAliveOp { key, life: Some(life) })
    };
    let (life, later) = (session.record.life, session.record.life.next());
    assert_eq!(kept_alive(table.call(300, of_life(life))), None);
    assert_eq!(refused(table.call(300, of_life(later))), RefusalKind::LifeMismatch);
    // While it is being closed, and its node says nothing.
    table.manual_nodes = true;
    let closing = table.ask(300, close("a", "r2"));
    let refusal = table.call(300, keep_alive("a")).unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::NotFound, "{refusal:?}");
    assert!(refusal.message.contains("CLOSING"), "{refusal:?}");
    table.manual_nodes = false;
    closed(table.wait_for(closing, 5_000));
    assert_eq!(refused(table.call(300, keep_alive("a"))), RefusalKind::NotFound);
    // A new life begins anew.
    opened(table.call(300, open("a", "r3")));
    assert_eq!(kept_alive(table.call(300, keep_alive("a"))), None);
}
