//! A program of an application's own in the manager's place: its operations, and its accounts.

use rota_tests::{Cluster, TestFolder, binary, http_get};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn an_applications_operation_runs_through_any_manager_for_whoever_has_the_right_key() {
    let folder = TestFolder::new();
    let programs = folder.path().join("programs");
    std::fs::create_dir_all(&programs).unwrap();
    std::os::unix::fs::symlink(binary("examples/bank"), programs.join("rota-manager")).unwrap();
    let programs = folder.at("programs");
    let cluster = Cluster::start_in(&folder, &[], &[("ROTA_BIN_DIR", &programs)]).await;
    let deposit = ["document", "operate", "bank/ann", "deposit", "{\"cents\": 5}", "-o", "json"];
    let [nna, ann, x, of_bob] =
        ["nna", "ann", "x", "bob"].map(|it| folder.secret(&format!("{it}.key"), it));
    let with_key = |key| ["--account", "ann", "--key-file", key];
    let as_ann = |key| [&deposit[..], &with_key(key)].concat();
    let get = ["document", "get", "bank/Acc/ann", "-o", "json"];
    for (manager, cents) in (0..cluster.document.managers.len()).zip([5, 10, 15]) {
        for wrong in [&deposit[..], &as_ann(&ann)] {
            let refused = cluster.ringctl_at(manager, wrong).await.error();
            assert_eq!(
                (&refused["reason"], &refused["changed"]),
                (&json!("S-REFUSED"), &json!("no"))
            );
            let message = refused["message"].as_str().unwrap();
            assert!(message.contains("the key of account"), "{refused}");
        }
        let answer = cluster.ringctl_at(manager, &as_ann(&nna)).await.json();
        assert_eq!(answer["json"], json!({"cents": cents}));
        let wrong = [&get[..], &with_key(&x)].concat();
        assert_eq!(cluster.ringctl_at(manager, &wrong).await.error()["reason"], "S-REFUSED");
        let balance = cluster.ringctl_at(manager, &get).await.json();
        assert_eq!(balance["items"][0]["json"], json!({"cents": cents}));
        let page = http_get(&cluster.document.managers[manager].http, "/metrics").await.unwrap();
        let count = "rota_operations_total{operation=\"deposit\",result=\"ok\"} 1";
        assert!(page.body.contains(count), "{}", page.body);
    }
    let all = cluster.ringctl(&["document", "operations", "-o", "json"]).await.json();
    let all = all["operations"].as_array().unwrap();
    let told = all.iter().find(|it| it["name"] == "deposit").unwrap();
    assert_eq!(told["example"], json!({"cents": 5}));
    assert_eq!(told["parameters"]["properties"]["cents"]["minimum"], json!(1));
    // Of this one its application tells nothing more.
    assert!(all.iter().any(|it| it["name"] == "interest" && it["parameters"].is_null()), "{all:?}");
    // Its classes hold for what every manager knows, too.
    let change = json!({"class": "Acc", "docid": "bob", "life": "create", "put": [
        {"class": "Bal", "json": {"cents": "many"}}]});
    let write = json!({"changes": [change]}).to_string();
    let bob = ["--account", "bob", "--key-file", &of_bob, "-o", "json"];
    let write = [&["document", "operate", "bank/bob", "document.write", &write][..], &bob].concat();
    let refused = cluster.ringctl(&write).await.error();
    assert_eq!(
        (&refused["reason"], &refused["fields"][0]["field"]),
        (&json!("A-INVALID"), &json!("json"))
    );
    // With whatever classes, sessions and pools are for managers alone.
    for (place, class, docid) in
        [("default/one", "session", "one"), ("z/default", "orders", "default")]
    {
        let change = json!({"class": class, "docid": docid, "life": "ensure"});
        let write = json!({"changes": [change]}).to_string();
        let write = ["document", "operate", place, "document.write", &write, "-o", "json"];
        let refused = cluster.ringctl(&write).await.error();
        assert_eq!((&refused["reason"], &refused["changed"]), (&json!("S-CLASS"), &json!("no")));
    }
    cluster.end().await;
}
