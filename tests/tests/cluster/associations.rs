//! The example of associations and working groups: copies arrive in every group, and an owner that dies half-way loses and
//! doubles nothing.

use rota_tests::sessions::opened;
use rota_tests::{Cluster, PATIENCE, TestFolder, binary, eventually};
use serde_json::{Value, json};

const GROUPS: usize = 12;

async fn operate(cluster: &Cluster, manager: usize, docid: &str, operation: &str, more: Value) {
    let mut parameters = more;
    parameters["id"] = json!(docid);
    let (at, text) = (format!("default/{docid}"), parameters.to_string());
    let line = ["document", "operate", &at, operation, &text, "-o", "json"];
    cluster.ringctl_at(manager, &line).await.json();
}

/// The items of a group: class, key and content.
async fn held(cluster: &Cluster, manager: usize, group: &str) -> Vec<(String, String, Value)> {
    let name = format!("default/Group/{group}");
    let shown = cluster.ringctl_at(manager, &["document", "get", &name, "-o", "json"]).await.json();
    let text = |it: &Value, part: &str| it[part].as_str().unwrap_or_default().to_owned();
    let items = shown["items"].as_array().expect("there are items");
    items.iter().map(|it| (text(it, "class"), text(it, "key"), it["json"].clone())).collect()
}

fn member(active: bool, name: &str) -> Value {
    json!({"active": active, "name": name})
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_hold_what_their_associations_say_though_an_owner_dies_half_way() {
    let folder = TestFolder::new();
    let programs = folder.path().join("programs");
    std::fs::create_dir_all(&programs).unwrap();
    let program = binary("examples/associations");
    std::os::unix::fs::symlink(program, programs.join("rota-manager")).unwrap();
    let programs = folder.at("programs");
    let cluster = Cluster::start_in(&folder, &[], &[("ROTA_BIN_DIR", &programs)]).await;
    let ann = |active: bool| json!({"number": "N7", "name": "Ann", "active": active});
    operate(&cluster, 0, "A1", "asso.status", json!({"title": "Chess", "active": true})).await;
    operate(&cluster, 0, "A1", "asso.member", ann(true)).await;
    operate(
        &cluster,
        0,
        "A1",
        "asso.member",
        json!({"number": "N8", "name": "Bob", "active": true}),
    )
    .await;
    for group in 0..GROUPS {
        let join = json!({"association": "A1", "number": "N7"});
        operate(&cluster, group % 3, &format!("G{group}"), "group.join", join).await;
    }
    // Two members of one association share its status; the last one takes it along.
    operate(&cluster, 1, "G0", "group.join", json!({"association": "A1", "number": "N8"})).await;
    operate(&cluster, 1, "G0", "group.leave", json!({"association": "A1", "number": "N8"})).await;
    operate(&cluster, 1, "G1", "group.leave", json!({"association": "A1", "number": "N7"})).await;
    assert_eq!(held(&cluster, 2, "G1").await, []);
    // The owner of A1 dies when it has registered the copying.
    let owner = owner_of(&cluster, "A1").await;
    let others: Vec<usize> = (0..3).filter(|it| *it != owner).collect();
    operate(&cluster, others[0], "A1", "asso.member", ann(false)).await;
    cluster.kill_manager(owner).await;
    operate(&cluster, others[0], "A1", "asso.status", json!({"title": "Go", "active": true})).await;
    let status = json!({"active": true, "title": "Go"});
    for group in (0..GROUPS).filter(|it| *it != 1) {
        let group = format!("G{group}");
        let expected = [
            ("Adh".to_owned(), "N7.A1".to_owned(), member(false, "Ann")),
            ("Sta".to_owned(), "A1".to_owned(), status.clone()),
        ];
        eventually("the copies arrive", PATIENCE, async || {
            let found = held(&cluster, others[1], &group).await;
            if found == expected { Ok(()) } else { Err(format!("{group} holds {found:?}")) }
        })
        .await;
    }
    assert_eq!(held(&cluster, others[0], "G1").await, []);
    let tasks = ["task", "list", "--operation", "document.copy", "-o", "json"];
    eventually("no copying is left", PATIENCE, async || {
        let left = cluster.ringctl_at(others[0], &tasks).await.json();
        let is_done = left["tasks"] == json!([]);
        if is_done { Ok(()) } else { Err(format!("{left}")) }
    })
    .await;
    // Whoever joins late gets the newest state.
    operate(&cluster, others[1], "G1", "group.join", json!({"association": "A1", "number": "N7"}))
        .await;
    assert_eq!(held(&cluster, others[1], "G1").await.len(), 2);
    cluster.end().await;
}

/// Which of the managers, in their order, owns the slot of a document: that of the session of that id.
async fn owner_of(cluster: &Cluster, docid: &str) -> usize {
    let owner = opened(&cluster.client(), docid, "counter").await.owner;
    cluster.document.managers.iter().position(|it| it.number == owner).expect("it is one of them")
}
