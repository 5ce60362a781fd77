//! `ringctl session close --where`: a task closes what the conditions select.

use rota_tests::{Cluster, PATIENCE, TestFolder, eventually};
use serde_json::{Value, json};

async fn open(cluster: &Cluster, id: &str, user: &str) {
    let user = format!("user={user}");
    let line = ["session", "open", id, "--class", "counter", "--attr", &user, "-o", "json"];
    cluster.ringctl(&line).await.json();
}

async fn live(cluster: &Cluster, manager: usize) -> Vec<String> {
    let line = ["session", "list", "--where", "state = READY", "--sort", "docid", "-o", "json"];
    let listed = cluster.ringctl_at(manager, &line).await.json();
    let sessions = listed["sessions"].as_array().expect("there are sessions").iter();
    sessions.map(|it| it["id"].as_str().expect("it is a text").to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn many_sessions_are_closed_by_a_task_that_outlives_the_owner_that_began_it() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    for n in 0..24 {
        let user = if n % 4 == 0 { "ann" } else { "bob" };
        open(&cluster, &format!("s{n:02}"), user).await;
    }
    let close = ["session", "close", "--where", "attr.user = bob"];
    let planned =
        cluster.ringctl(&[&close[..], &["--dry-run", "-o", "json"]].concat()).await.json();
    assert_eq!((&planned["dry_run"], &planned["matching"]), (&json!(true), &json!(18)));
    assert_eq!(live(&cluster, 1).await.len(), 24);
    // Nobody is at a terminal.
    let unasked = cluster.ringctl(&close).await;
    assert_eq!(unasked.code, 2);
    assert!(unasked.stderr.contains("say so with --yes"), "{}", unasked.stderr);
    let wrong = ["session", "close", "--where", "user = bob", "--yes", "-o", "json"];
    let wrong = cluster.ringctl(&wrong).await.error();
    assert!(wrong["message"].as_str().unwrap().contains("column 1"), "{wrong}");
    for refused in [
        &["session", "close", "s01", "--dry-run"][..],
        &["session", "close", "--where", "", "--yes"],
    ] {
        assert_eq!(cluster.ringctl(refused).await.code, 2, "{refused:?}");
    }
    let both = cluster.ringctl(&["session", "close", "s01", "--where", "docid = s01"]).await;
    assert_eq!(both.code, 2);
    let closed = cluster.ringctl(&[&close[..], &["--yes", "-o", "json"]].concat()).await.json();
    let shown = |part: &str| closed[part].clone();
    assert_eq!(
        [shown("matching"), shown("finished"), shown("closing")],
        [json!(18), json!(true), json!(0)]
    );
    let left: Vec<String> = (0..24).filter(|n| n % 4 == 0).map(|n| format!("s{n:02}")).collect();
    assert_eq!(live(&cluster, 2).await, left);
    // A task that its owner leaves behind is gone on with by the next one.
    for n in 24..40 {
        open(&cluster, &format!("s{n:02}"), "eve").await;
    }
    let parameters = json!({"operation": "session.close", "place": "here", "param": {"where": "attr.user = eve"}});
    let owner = rota_tests::sessions::opened(&cluster.client(), "here", "counter").await.owner;
    let owner = cluster.document.managers.iter().position(|it| it.number == owner).unwrap();
    let other = (owner + 1) % 3;
    let text = parameters.to_string();
    let create = ["document", "operate", "default/{here}", "task.create", &text, "-o", "json"];
    cluster.ringctl_at(other, &create).await.json();
    cluster.kill_manager(owner).await;
    eventually("they are closed", PATIENCE, async || {
        let line =
            ["session", "list", "--where", "attr.user = eve and state = READY", "-o", "json"];
        let listed = cluster.ringctl_at(other, &line).await;
        let found: Value = serde_json::from_str(&listed.stdout).unwrap_or_default();
        let left = found["sessions"].as_array().map(Vec::len);
        if left == Some(0) { Ok(()) } else { Err(format!("{left:?} live: {}", listed.stderr)) }
    })
    .await;
    cluster.end().await;
}
