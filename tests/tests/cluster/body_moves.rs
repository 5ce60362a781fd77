//! Bodies of attachments go where their documents go, and leave room for everything else.

use crate::bodies::{attach, attachments_of, body, digest, in_folder, put, read};
use crate::joins::settles;
use crate::leaves::has_left;
use rota_client::CallError;
use rota_client::documents::Documents;
use rota_docstore::codes;
use rota_tests::processes::process;
use rota_tests::sessions::opened;
use rota_tests::small::join;
use rota_tests::{Cluster, Launched, PATIENCE, TestFolder, eventually, ringctl};
use std::path::PathBuf;

/// Enough that every manager owns some.
const ALBUMS: u64 = 24;

fn album(nth: u64) -> (String, Vec<u8>) {
    (format!("album-{nth}"), body(100 + nth, 40_000))
}

async fn albums(documents: &Documents) {
    for (docid, body) in (0..ALBUMS).map(album) {
        put(documents, &docid, &body).await.unwrap();
        attach(documents, &docid, &body).await.unwrap();
    }
}

async fn all_are_read(documents: &Documents) {
    for (docid, body) in (0..ALBUMS).map(album) {
        assert!(read(documents, &docid, &body).await.unwrap() == body, "{docid}");
    }
}

/// The bodies at a manager.
fn held(pid: u32) -> Vec<String> {
    let line = process(pid).unwrap().line;
    let at = line.iter().position(|it| it == "--data").unwrap();
    in_folder(&PathBuf::from(&line[at + 1]).join("attachments"))
}

/// The number of the manager that owns an album.
async fn owner_of(cluster: &Cluster, docid: &str) -> u64 {
    opened(&cluster.client(), docid, "counter").await.owner.into()
}

async fn joined(cluster: &Cluster, folder: &TestFolder) -> (Launched, u64) {
    let newcomer = cluster.newcomer(folder, "m4").await;
    let contact = cluster.document.managers[0].grpc.clone();
    let joined = join(&newcomer, "auto", &contact, &["--wait"]).await.json();
    let number = joined["number"].as_u64().unwrap();
    settles(&cluster.endpoints(), number).await;
    (newcomer, number)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newcomer_holds_the_bodies_of_what_it_owns_before_the_old_owner_dies() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    albums(&cluster.client().documents()).await;
    let first = owner_of(&cluster, &album(0).0).await;
    let mut before = vec![first];
    for (docid, _) in (1..ALBUMS).map(album) {
        before.push(owner_of(&cluster, &docid).await);
    }
    let (newcomer, number) = joined(&cluster, &folder).await;
    let here = held(newcomer.pid());
    let mut old = Vec::new();
    for ((docid, body), before) in (0..ALBUMS).map(album).zip(before) {
        if owner_of(&cluster, &docid).await == number {
            assert!(here.contains(&digest(&body).to_string()), "{docid} is not in {here:?}");
            old.push(before);
        }
    }
    let old = old.first().expect("it owns some");
    let managers = &cluster.document.managers;
    let old = managers.iter().position(|it| u64::from(it.number) == *old).unwrap();
    cluster.kill_manager(old).await;
    let client = rota_client::Client::connect(newcomer.told("grpc")).unwrap();
    all_are_read(&client.documents()).await;
    cluster.end_with(vec![newcomer]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_leaves_takes_no_body_along() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let (fourth, number) = joined(&cluster, &folder).await;
    albums(&cluster.client().documents()).await;
    assert!(!held(fourth.pid()).is_empty());
    let contact = cluster.document.managers[0].grpc.clone();
    let line = ["leave", "--number", &number.to_string(), "--wait", "-o", "json"];
    ringctl(&contact, &line).await.json();
    assert_eq!(fourth.ended().await, Some(0));
    has_left(&contact, number, 3).await;
    for manager in &cluster.document.managers {
        let here = held(manager.pid);
        for (docid, body) in (0..ALBUMS).map(album) {
            let is_here = here.contains(&digest(&body).to_string());
            assert!(is_here, "{docid} is not at {}", manager.number);
        }
    }
    all_are_read(&cluster.client_of(1).documents()).await;
    cluster.end().await;
}

fn limit_of_size(error: &CallError) -> String {
    let CallError::Raised { exception, .. } = error else { panic!("{error:?}") };
    assert_eq!(*exception.code(), codes::LIMIT, "{exception}");
    assert_eq!(exception.details().fields[0].field, "size");
    exception.details().message.clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_that_nobody_names_fill_no_disk_and_operations_go_on() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &["--managers", "1", "--replicas", "0"]).await;
    let manager = process(cluster.document.managers[0].pid).unwrap();
    cluster.kill_manager(0).await;
    let with = async |name: &str, more: [&str; 2]| {
        let more = more.map(str::to_owned);
        Launched::again(&folder, name, &[&manager.line[..], &more].concat()).await
    };
    let again = with("with-a-limit", ["--body-free-bytes-max", "100000"]).await;
    let documents = cluster.client().documents();
    let [first, second, third] = [1, 3, 5].map(|it| body(it, 60_000));
    put(&documents, "a", &first).await.unwrap();
    let text = limit_of_size(&put(&documents, "a", &second).await.unwrap_err());
    assert!(text.ends_with("is 120000; the limit is 100000"), "{text}");
    attach(&documents, "a", &first).await.unwrap();
    eventually("what is named takes none of it", PATIENCE, async || {
        put(&documents, "a", &second).await.map(drop).map_err(|it| it.to_string())
    })
    .await;
    again.kill().await;
    let again = with("with-a-reserve", ["--body-reserve-bytes", "1125899906842624"]).await;
    let text = limit_of_size(&put(&documents, "b", &third).await.unwrap_err());
    assert!(text.contains("an attachment of 60000 bytes would leave too little"), "{text}");
    attach(&documents, "b", &second).await.unwrap();
    cluster.end_with(vec![again]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_nobody_names_is_gone_when_its_time_of_grace_ends() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &["--managers", "1", "--replicas", "0"]).await;
    let manager = process(cluster.document.managers[0].pid).unwrap();
    let attachments = attachments_of(&cluster, 0);
    cluster.kill_manager(0).await;
    let more = ["--body-grace-ms", "10000"].map(str::to_owned);
    let again = Launched::again(&folder, "short", &[&manager.line[..], &more].concat()).await;
    let documents = cluster.client().documents();
    let (old, new) = (body(7, 50_000), body(8, 60_000));
    for body in [&old, &new] {
        put(&documents, "album", body).await.unwrap();
        attach(&documents, "album", body).await.unwrap();
    }
    assert_eq!(read(&documents, "album", &old).await.unwrap(), old, "asked for by its digest");
    eventually("only the named one is left", PATIENCE, async || {
        let left = in_folder(&attachments);
        if left == [digest(&new).to_string()] { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
    assert_eq!(read(&documents, "album", &old).await.unwrap_err().reason(), "N-BODY");
    assert_eq!(read(&documents, "album", &new).await.unwrap(), new);
    // It may come back.
    assert!(!put(&documents, "album", &old).await.unwrap());
    attach(&documents, "album", &old).await.unwrap();
    assert_eq!(read(&documents, "album", &old).await.unwrap(), old);
    cluster.end_with(vec![again]).await;
}
