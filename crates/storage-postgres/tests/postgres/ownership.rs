//! Whose a schema is, who may write to it, and which servers are refused.

use crate::crashes::Running;
use crate::proxy::Proxy;
use crate::server::PostgresServer;
use crate::workload::{Expected, writes};
use crate::{label, open_at, opening, told};
use rota_storage::{Engine, KEY_BYTES_MAX, KvWrite, ManagerNumber};
use rota_storage_postgres::{Opening, PostgresEngine, Waits, exists, give_up};
use std::time::Duration;

const SCHEMA: &str = r#""rota/test/m7""#;

/// Waits for nothing, so that a refusal comes at once.
fn hasty(url: &str) -> Opening {
    let waits = Waits {
        connect: Duration::from_secs(2),
        lock: Duration::from_millis(300),
        ..Waits::default()
    };
    Opening { waits, ..opening(url) }
}

#[test]
fn a_second_writer_is_refused_and_told_who_writes_until_the_first_is_killed() {
    let server = PostgresServer::start();
    let (one, other) = (tempfile::tempdir().expect("one"), tempfile::tempdir().expect("two"));
    let mut running = Running::start(&server.url(), one.path());
    running.wait_for_open();
    running.wait_for(1);
    let error = told(PostgresEngine::open(other.path(), hasty(&server.url())));
    let holder = format!("rota m7 pid {} on ", running.pid());
    assert!(
        error.contains("schema \"rota/test/m7\" is in use: ") && error.contains(&holder),
        "{error}"
    );
    let error = told(give_up(&hasty(&server.url())));
    assert!(error.contains("is in use"), "{error}");
    // The first goes on, and a process that was killed lets go.
    let acknowledged = running.wait_for(5);
    running.kill();
    let acknowledged = running.rest().unwrap_or(acknowledged);
    let mut engine = open_at(&server.url(), other.path()).expect("opens");
    Expected::default().check(&mut engine, acknowledged..=acknowledged + 64);
}

#[test]
fn a_writer_that_lost_its_lock_to_another_writes_nothing_more() {
    let server = PostgresServer::start();
    let (one, other) = (tempfile::tempdir().expect("one"), tempfile::tempdir().expect("two"));
    let mut first = open_at(&server.url(), one.path()).expect("opens");
    first.commit(&writes(1)).expect("commits");
    // As a break of the network does at the server's side.
    server.psql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'rota m7%'");
    let mut second = open_at(&server.url(), other.path()).expect("opens");
    second.commit(&writes(2)).expect("commits");
    drop(second);
    let error = told(first.commit(&writes(3)));
    assert!(error.contains("was opened by another process"), "{error}");
    let mut third = open_at(&server.url(), other.path()).expect("opens");
    Expected::default().check(&mut third, 2..=2);
}

#[test]
fn a_transaction_under_numbers_that_are_not_the_last_is_refused_although_the_connection_lives() {
    let server = PostgresServer::start();
    let folder = tempfile::tempdir().expect("a folder");
    for change in ["opened = opened + 1", "batch = batch - 1"] {
        let mut engine = open_at(&server.url(), folder.path()).expect("opens");
        engine.commit(&[KvWrite::put("a", "1")]).expect("commits");
        server.psql(&format!("UPDATE {SCHEMA}.meta SET {change}"));
        let error = told(engine.commit(&[KvWrite::put("a", "2")]));
        assert!(error.contains("was opened by another process or was put back"), "{error}");
        let stands = format!("SELECT convert_from(value, 'UTF8') FROM {SCHEMA}.records");
        assert_eq!(server.psql(&stands), "1");
    }
}

#[test]
fn a_schema_of_another_manager_or_format_is_refused_and_left_alone() {
    let server = PostgresServer::start();
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    drop(open_at(&server.url(), &at("own")).expect("opens"));
    let mut wrong = hasty(&server.url());
    wrong.label.number = ManagerNumber(8);
    let error = told(PostgresEngine::open(&at("other"), wrong));
    let expected =
        "belongs to manager m7 with number 7 of cluster test, not to manager m7 with number 8 of";
    assert!(error.contains(expected), "{error}");
    for (change, back, expected) in [
        ("cluster = 'x'", "cluster = 'test'", "of cluster x, not to manager m7"),
        ("manager = 'x'", "manager = 'm7'", "belongs to manager x"),
        ("format = 9", "format = 1", "has format 9; this program knows format 1"),
    ] {
        server.psql(&format!("UPDATE {SCHEMA}.meta SET {change}"));
        let error = told(PostgresEngine::open(&at("own"), hasty(&server.url())));
        assert!(error.contains(expected), "{error}");
        assert!(told(exists(&hasty(&server.url()))).contains(expected), "also of a look");
        server.psql(&format!("UPDATE {SCHEMA}.meta SET {back}"));
    }
    drop(open_at(&server.url(), &at("own")).expect("nothing was changed"));
}

#[test]
fn a_schema_of_another_program_is_refused_and_an_empty_one_is_taken() {
    let server = PostgresServer::start();
    let folder = tempfile::tempdir().expect("a folder");
    server.psql(&format!("CREATE SCHEMA {SCHEMA}; CREATE TABLE {SCHEMA}.orders (id int)"));
    let error = told(PostgresEngine::open(folder.path(), hasty(&server.url())));
    assert!(error.contains("holds orders and is no manager's schema"), "{error}");
    server.psql(&format!("ALTER TABLE {SCHEMA}.orders RENAME TO meta"));
    let error = told(PostgresEngine::open(folder.path(), hasty(&server.url())));
    assert!(error.contains("a table meta of another kind"), "{error}");
    server.psql(&format!("DROP TABLE {SCHEMA}.meta"));
    assert!(!exists(&opening(&server.url())).expect("it may be looked at"));
    drop(open_at(&server.url(), folder.path()).expect("an empty one is taken"));
    assert!(exists(&opening(&server.url())).expect("it may be looked at"));
    give_up(&opening(&server.url())).expect("it is nobody's again");
    assert!(!exists(&opening(&server.url())).expect("it may be looked at"));
}

#[test]
fn a_schema_that_is_gone_is_not_made_anew_and_an_empty_folder_takes_one_that_is_there() {
    let server = PostgresServer::start();
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let mut engine = open_at(&server.url(), &at("a")).expect("opens");
    engine.commit(&writes(1)).expect("commits");
    drop(engine);
    let mut engine = open_at(&server.url(), &at("b")).expect("the records are the server's");
    Expected::default().check(&mut engine, 1..=1);
    drop(engine);
    server.psql(&format!("SET client_min_messages = error; DROP SCHEMA {SCHEMA} CASCADE"));
    let error = told(PostgresEngine::open(&at("a"), hasty(&server.url())));
    assert!(error.contains("is not there, and the data folder says that it was made"), "{error}");
}

#[test]
fn a_folder_of_the_log_is_refused_and_so_is_a_folder_of_postgres_by_the_log() {
    let server = PostgresServer::start();
    let folder = tempfile::tempdir().expect("a folder");
    let (log, here) = (folder.path().join("log"), folder.path().join("postgres"));
    let settings = rota_storage::Settings::default();
    drop(rota_storage::open(&log, &label(), &settings).expect("opens"));
    let error = told(open_at(&server.url(), &log));
    assert!(error.contains("is kept by engine log, not by engine postgres"), "{error}");
    drop(open_at(&server.url(), &here).expect("opens"));
    let error = told(rota_storage::open(&here, &label(), &settings).map(drop));
    assert!(error.contains("is kept by engine postgres, not by engine log"), "{error}");
}

#[test]
fn servers_that_are_too_old_read_only_or_without_sync_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut server = PostgresServer::start_with(&["fsync=off"]);
    let refused = |url: &str| told(PostgresEngine::open(folder.path(), hasty(url)));
    let error = refused(&server.url());
    assert!(error.contains("has fsync = off; it must be on"), "{error}");
    server.stop();
    server.set(&[]);
    server.begin();
    // A real server's own answer, with another version in it.
    let proxy = Proxy::start(server.port());
    let number = server.psql("SHOW server_version_num");
    let number: i32 = number.parse().expect("a number");
    let (number, old) = (number.to_be_bytes(), 140_099i32.to_be_bytes());
    proxy.change_answers(&number, &old);
    let error = refused(&server.url_at(proxy.port));
    assert!(error.contains("the oldest that is supported is 15"), "{error}");
    server.psql("ALTER DATABASE rota SET default_transaction_read_only = on");
    let error = refused(&server.url());
    assert!(error.contains("is read-only: default_transaction_read_only is on"), "{error}");
}

#[test]
fn a_wrong_password_a_missing_database_and_a_role_without_rights_are_told() {
    let mut server = PostgresServer::start();
    let folder = tempfile::tempdir().expect("a folder");
    let refused = |url: &str| told(PostgresEngine::open(folder.path(), hasty(url)));
    let url = server.url();
    let error = refused(&url.replace("sesame", "wrong"));
    assert!(error.contains("password authentication failed for user \"rota\""), "{error}");
    assert!(!error.contains("wrong"), "the password is shown: {error}");
    let error = refused(&format!("{}/none", url.trim_end_matches("/rota")));
    assert!(error.contains("database \"none\" does not exist"), "{error}");
    server.psql("CREATE ROLE guest LOGIN PASSWORD 'sesame/1'");
    let error = refused(&url.replace("//rota:", "//guest:"));
    assert!(
        error.contains("does not let this role make schema") && error.contains("GRANT CREATE"),
        "{error}"
    );
    server.psql(&format!("CREATE SCHEMA {SCHEMA} AUTHORIZATION guest"));
    let guest = url.replace("//rota:", "//guest:");
    drop(open_at(&guest, folder.path()).expect("the schema was made for it"));
    server.stop();
    let error = refused(&url);
    assert!(error.contains("no answer within 2 s") && error.contains("refused"), "{error}");
}

#[test]
fn the_longest_key_is_taken_whatever_its_bytes_are() {
    use rand::{RngCore, SeedableRng};
    let server = PostgresServer::start();
    let folder = tempfile::tempdir().expect("a folder");
    let mut engine = open_at(&server.url(), folder.path()).expect("opens");
    let mut key = vec![0; KEY_BYTES_MAX];
    rand_chacha::ChaCha8Rng::seed_from_u64(3).fill_bytes(&mut key);
    engine.commit(&[KvWrite::put(key.clone(), "1")]).expect("an index holds it");
    assert_eq!(engine.get(&key).expect("reads"), Some(b"1".to_vec()));
}

#[test]
fn a_value_that_was_changed_in_the_table_is_noticed_and_named() {
    let server = PostgresServer::start();
    let folder = tempfile::tempdir().expect("a folder");
    let mut engine = open_at(&server.url(), folder.path()).expect("opens");
    engine.commit(&[KvWrite::put("a", "1"), KvWrite::put("b", "2")]).expect("commits");
    server.psql(&format!("UPDATE {SCHEMA}.records SET value = 'x' WHERE key = 'b'"));
    let error = told(engine.scan_all(&mut |_, _| std::ops::ControlFlow::Continue(())));
    assert!(error.contains("is damaged in the record \"b\""), "{error}");
}
