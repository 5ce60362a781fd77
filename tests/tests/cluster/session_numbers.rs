//! Stable numbers of sessions: shown below their node at every manager, in one manager's folder, kept when it dies.

use rota_tests::processes::process;
use rota_tests::sessions::{CALL, close, opened};
use rota_tests::{Cluster, PATIENCE, Page, TestFolder, eventually, http_get};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const LIST: &str = "/v1/pools/default/nodes/1/sessions";

async fn asked(cluster: &Cluster, manager: usize, path: &str) -> Result<Page, String> {
    http_get(&cluster.document.managers[manager].http, path).await
}

/// The numbers of a node's sessions in the list of a manager; those without one have 0.
async fn listed(cluster: &Cluster, manager: usize) -> Result<BTreeMap<String, u64>, String> {
    let page = asked(cluster, manager, LIST).await?;
    if page.code != 200 {
        return Err(page.body);
    }
    let shown = page.json();
    let live =
        shown["sessions"].as_array().expect("a list").iter().filter(|it| it["state"] == "READY");
    let number = |it: &Value| it["stable_number"].as_u64().unwrap_or_default();
    Ok(live.map(|it| (it["id"].as_str().expect("it has one").to_owned(), number(it))).collect())
}

/// Waits until these managers list just those sessions, each with a number, and gives it.
async fn numbered(cluster: &Cluster, managers: &[usize], ids: &[&str]) -> BTreeMap<String, u64> {
    eventually("all list the same numbers", PATIENCE, async || {
        let first = listed(cluster, managers[0]).await?;
        let is_all = first.keys().eq(ids.iter()) && first.values().all(|it| *it > 0);
        for manager in managers {
            let also = listed(cluster, *manager).await?;
            if !is_all || also != first {
                return Err(format!("{also:?}, {first:?}"));
            }
        }
        Ok(first)
    })
    .await
}

fn folders(cluster: &Cluster) -> Vec<PathBuf> {
    let folder = |manager: &rota_tests::Manager| {
        let process = process(manager.pid).expect("it runs");
        Path::new(process.option("--data").expect("it has a folder")).join("numbers")
    };
    cluster.document.managers.iter().map(folder).collect()
}

/// The numbers of sessions in files of a folder, the last left out.
fn files(folder: &Path) -> Vec<u64> {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let is_session = |name: &str| name.starts_with("Session.") && !name.ends_with("last.db");
    let sessions = files.filter(|it| it.file_name().to_str().is_some_and(is_session));
    let numbers = sessions.map(|it| std::fs::read_to_string(it.path()).expect("a file"));
    let mut numbers: Vec<u64> = numbers.map(|it| it.parse().expect("a number")).collect();
    numbers.sort_unstable();
    numbers
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_have_numbers_within_their_node_that_outlive_whoever_keeps_them() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &["--nodes", "1"]).await;
    let client = cluster.client();
    let ids = ["a", "b/c", "d", "e", "f", "g"];
    for id in ids {
        opened(&client, id, "builtin").await;
    }
    let first = numbered(&cluster, &[0, 1, 2], &ids).await;
    let mut given: Vec<u64> = first.values().copied().collect();
    given.sort_unstable();
    assert_eq!(given, [1, 2, 3, 4, 5, 6]);
    for (id, number) in &first {
        let path = format!("{LIST}/{number}");
        let shown = asked(&cluster, 1, &path).await.expect("it answers");
        let shown = shown.json();
        assert_eq!((&shown["id"], &shown["stable_number"]), (&(**id).into(), &(*number).into()));
        assert_eq!(shown["links"]["on_node"], path);
        let own = shown["links"]["self"].as_str().expect("it has one");
        assert_eq!(asked(&cluster, 2, own).await.expect("it answers").json()["id"], **id);
    }
    for nothing in ["7", "0", "a", "01"] {
        let page = asked(&cluster, 0, &format!("{LIST}/{nothing}")).await.expect("it answers");
        assert_eq!(page.code, 404, "{page:?}");
        let text = format!("there is no session \\\"{nothing}\\\"; GET {LIST} shows");
        assert!(page.body.contains(&text), "{page:?}");
    }

    // One that ended has its number as long as it is known, and no other one gets it.
    client.close(close("d"), CALL).await.expect("it is closed");
    let path = format!("{LIST}/{}", first["d"]);
    let ended = asked(&cluster, 0, &path).await.expect("it answers").json();
    assert_eq!((&ended["id"], &ended["state"]), (&"d".into(), &"CLOSED".into()));
    opened(&client, "h", "builtin").await;
    let now = ["a", "b/c", "e", "f", "g", "h"];
    let second = numbered(&cluster, &[0, 1, 2], &now).await;
    assert_eq!(second["h"], 7);

    // One manager has the files. It is killed, and another one has them then.
    let folders = folders(&cluster);
    let keeper = eventually("one folder has them", PATIENCE, async || {
        let with: Vec<usize> =
            (0..3).filter(|it| files(&folders[*it]) == [1, 2, 3, 4, 5, 6, 7]).collect();
        if with.len() == 1 { Ok(with[0]) } else { Err(format!("{with:?}")) }
    })
    .await;
    cluster.kill_manager(keeper).await;
    let rest: Vec<usize> = (0..3).filter(|it| *it != keeper).collect();
    assert_eq!(numbered(&cluster, &rest, &now).await, second);
    opened(&cluster.client_of(rest[0]), "i", "builtin").await;
    let third = numbered(&cluster, &rest, &["a", "b/c", "e", "f", "g", "h", "i"]).await;
    assert_eq!(third["i"], 8);
    assert!(second.iter().all(|(id, number)| third[id] == *number));
    eventually("another folder has them", PATIENCE, async || {
        let with = rest.iter().filter(|it| files(&folders[**it]).contains(&8)).count();
        if with == 1 { Ok(()) } else { Err(format!("{with} have them")) }
    })
    .await;
    cluster.end().await;
}
