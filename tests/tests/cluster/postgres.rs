//! Clusters whose records a PostgreSQL server keeps.

use crate::bodies::{attach, attachments_of, body, in_folder, put};
use crate::joins::settles;
use rota_tests::sessions::{opened, read};
use rota_tests::small::join;
use rota_tests::{
    Cluster, PATIENCE, PostgresServer, TestFolder, eventually, ringctl_in, run_to_end,
};
use serde_json::{Value, json};

/// Starts a cluster on the server, whose URL lies in a file of the folder.
async fn on(server: &PostgresServer, folder: &TestFolder) -> Cluster {
    let file = folder.secret("url", &server.url());
    Cluster::start(folder, &["--engine", "postgres", "--engine-url-file", &file]).await
}

async fn json_of(cluster: &Cluster, arguments: &[&str]) -> Value {
    cluster.ringctl(&[arguments, &["-o", "json"]].concat()).await.json()
}

async fn write(cluster: &Cluster, docid: &str, text: &str) {
    let put = json!([{"class": "Line", "key": "1", "json": {"text": text}}]);
    let change = json!({"class": "Cart", "docid": docid, "life": "ensure", "put": put});
    let parameters = json!({"changes": [change]}).to_string();
    let place = format!("shop/{docid}");
    json_of(cluster, &["document", "operate", &place, "document.write", &parameters]).await;
}

/// What a document's only line says.
async fn text_of(cluster: &Cluster, space: &str, docid: &str) -> Value {
    let cart = json_of(cluster, &["document", "get", &format!("{space}/Cart/{docid}")]).await;
    cart["items"][0]["json"]["text"].clone()
}

/// How many managers' schemas find a document by what its line says.
fn found(server: &PostgresServer, text: &str) -> usize {
    let schemas = server.psql("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'rota/%'");
    let contained = json!([{"class": "Line", "content": {"text": text}}]);
    let finds = |schema: &&str| {
        let ask = format!(
            "SELECT count(*) FROM \"{schema}\".documents WHERE class = 'Cart' AND items @> '{contained}'"
        );
        server.psql(&ask) == "1"
    };
    schemas.lines().filter(finds).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_on_one_server_comes_back_when_all_of_it_was_killed_and_the_server_too() {
    let (mut server, folder) = (PostgresServer::start(), TestFolder::new());
    let cluster = on(&server, &folder).await;
    let client = cluster.client();
    let mut before = Vec::new();
    for number in 0..6 {
        before.push(opened(&client, &format!("machine {number}"), "counter").await);
    }
    write(&cluster, "first", "tea").await;
    let (documents, picture) = (client.documents(), body(4, 200_000));
    put(&documents, "album", &picture).await.expect("it is taken");
    attach(&documents, "album", &picture).await.expect("it is there");
    cluster.every_copy_is_in_sync().await;
    eventually("each manager's schema shows the document", PATIENCE, async || {
        let schemas = found(&server, "tea");
        if schemas == 3 { Ok(()) } else { Err(format!("{schemas} do")) }
    })
    .await;
    // The server dies under the cluster, which waits for it and goes on.
    server.kill();
    server.begin();
    before.push(opened(&client, "machine 6", "counter").await);
    write(&cluster, "second", "milk").await;
    cluster.crash(|_| true).await;
    server.kill();
    server.begin();
    // One manager's folder is gone: its records are the server's. The cluster's folder knows the engine.
    std::fs::remove_dir_all(folder.at("data/managers/m2")).expect("nobody is in it");
    let cluster = Cluster::start(&folder, &[]).await;
    let client = cluster.client();
    for old in &before {
        let session = read(&client, &old.id).await.expect("its record is there");
        assert_eq!(session.life, old.life, "{}", old.id);
    }
    assert_eq!(text_of(&cluster, "shop", "first").await, "tea");
    assert_eq!(text_of(&cluster, "shop", "second").await, "milk");
    // Bodies lie in folders, and the folder that is new gets them from the other managers.
    let folder_of_m2 = attachments_of(&cluster, 1);
    eventually("the new folder has the body", PATIENCE, async || {
        let bodies = in_folder(&folder_of_m2);
        if bodies.len() == 1 { Ok(()) } else { Err(format!("it has {bodies:?}")) }
    })
    .await;
    let documents = cluster.client_of(1).documents();
    let read = crate::bodies::read(&documents, "album", &picture).await.expect("it is there");
    assert!(read == picture, "the body is another");
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newcomer_gets_a_schema_of_its_own_when_it_joins() {
    let (server, folder) = (PostgresServer::start(), TestFolder::new());
    let cluster = on(&server, &folder).await;
    let schemas =
        "SELECT count(*) FROM pg_tables WHERE tablename = 'records' AND schemaname LIKE 'rota/%'";
    let newcomer = cluster.newcomer(&folder, "m4").await;
    assert_eq!(server.psql(schemas), "3", "outside of the ring it makes nothing");
    let contact = &cluster.document.managers[1].grpc;
    let joined = join(&newcomer, "500", contact, &["--wait"]).await.json();
    assert_eq!(joined["number"], 500, "{joined}");
    settles(&cluster.endpoints(), 500).await;
    assert_eq!(server.psql(schemas), "4");
    cluster.end_with(vec![newcomer]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_moves_from_one_engine_to_the_other_and_back_by_its_export() {
    let (server, files, folder) = (PostgresServer::start(), TestFolder::new(), TestFolder::new());
    let log = Cluster::start(&files, &["--managers", "1"]).await;
    let postgres = on(&server, &folder).await;
    json_of(&log, &["namespace", "create", "shop"]).await;
    for (docid, text) in [("one", "tea"), ("two", "milk")] {
        write(&log, docid, text).await;
    }
    let file = folder.at("shop.export");
    let exported = json_of(&log, &["namespace", "export", "shop", &file]).await;
    let imported = json_of(&postgres, &["namespace", "import", &file]).await;
    assert_eq!((&exported["documents"], &imported["documents"]), (&json!(2), &json!(2)));
    assert_eq!(text_of(&postgres, "shop", "two").await, "milk");
    let back = folder.at("back.export");
    json_of(&postgres, &["namespace", "export", "shop", &back]).await;
    let imported = json_of(&log, &["namespace", "import", &back, "--into", "copy"]).await;
    assert_eq!(imported["documents"], 2);
    assert_eq!(text_of(&log, "copy", "one").await, "tea");
    log.end().await;
    postgres.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manager_without_a_fit_server_says_why_and_claims_nothing() {
    let (server, folder) = (PostgresServer::start(), TestFolder::new());
    let cluster = Cluster::start(&folder, &["--managers", "1"]).await;
    let store = cluster.document.config_store.address.clone();
    let name = json_of(&cluster, &["inspect"]).await["cluster"].clone();
    let name = name.as_str().expect("it has a name").to_owned();
    let refused = async |url: &str, id: &str, parts: &[&str]| {
        let file = folder.secret("wrong", url);
        let data = folder.at(&format!("managers-{id}"));
        let line = [
            &["--data", &data, "--number", "1", "--id", id, "--config-store", &store][..],
            &["--cluster", &name],
            &["--engine", "postgres", "--engine-url-file", &file],
        ];
        let ended = run_to_end("rota-manager", &line.concat()).await;
        ended.expect_refusal(1, parts);
        assert!(!ended.stderr.contains("sesame"), "a password is shown: {}", ended.stderr);
    };
    let url = server.url();
    let wrong = url.replace("sesame", "other-sesame");
    refused(&wrong, "a", &["--engine postgres", "password authentication failed"]).await;
    let nowhere = server.url_at(1);
    refused(&nowhere, "a", &["--engine postgres", "no answer within 10 s", "127.0.0.1:1"]).await;
    let schema = format!("rota/{name}/a");
    server.psql(&format!("CREATE SCHEMA \"{schema}\"; CREATE TABLE \"{schema}\".mine (id int)"));
    refused(&url, "a", &["holds mine and is no manager's schema", &schema]).await;
    server.psql(&format!("DROP TABLE \"{schema}\".mine"));
    // What speaks against the claim leaves nothing at the server.
    let held = format!("SELECT count(*) FROM pg_tables WHERE schemaname = '{schema}'");
    refused(&url, "a", &["--number"]).await;
    assert_eq!(server.psql(&held), "0");
    cluster.end().await;
}

#[tokio::test]
async fn ringctl_dev_refuses_an_engine_whose_file_is_missing_or_open() {
    let folder = TestFolder::new();
    let data = folder.at("data");
    let dev = ["dev", "--port-base", "0", "--data", &data, "--engine", "postgres"];
    let refused = async |more: &[&str], part: &str| {
        let ran = ringctl_in(&folder, &[&dev[..], more].concat()).await;
        assert_eq!(ran.code, 2, "{}", ran.stderr);
        assert!(ran.stderr.contains(part), "{}", ran.stderr);
    };
    refused(&[], "--engine-url-file is missing").await;
    let open = folder.at("open");
    std::fs::write(&open, "postgresql://u@127.0.0.1/d").expect("it can be written");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(&open, mode).expect("it is our own");
    refused(&["--engine-url-file", &open], "chmod 0600").await;
    assert!(!folder.path().join("data").exists(), "nothing was made");
}
