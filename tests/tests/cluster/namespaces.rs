//! `ringctl namespace` and `ringctl document`, from the creation of a namespace to its end.

use rota_client::{Watch, WatchOptions, v1};
use rota_tests::processes::process;
use rota_tests::programs::running;
use rota_tests::{Cluster, Launched, PATIENCE, TestFolder, eventually, http_get, ringctl};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// Within this time of the answer to `namespace off` its clients are refused everywhere. Clients are
/// promised a second, and `crates/protocol/tests/namespaces.rs` holds managers to some tens of
/// milliseconds of their own time. Here a loaded machine starts a process for each look, three after
/// each other, which takes it some tenths of a second at most; a manager that learned it by a slow
/// way (a time-out, the next long poll of a watch after 15 s) would be far too late.
const REFUSED_WITHIN: Duration = Duration::from_secs(5);

/// The parameters of `document.write` that puts items into one document of class `Cart`.
fn put(docid: &str, items: &Value) -> String {
    let change = json!({"class": "Cart", "docid": docid, "life": "ensure", "put": items});
    json!({"changes": [change]}).to_string()
}

/// The same with one line that says a text.
fn line(docid: &str, text: &str) -> String {
    put(docid, &json!([{"class": "Line", "key": "1", "json": {"text": text}}]))
}

/// The parameters of `document.read` of one document.
fn reading(space: &str, docid: &str) -> String {
    let which = json!({"namespace": space, "class": "Cart", "docid": docid, "tolerance_s": 60});
    json!({"documents": [which]}).to_string()
}

async fn json_of(cluster: &Cluster, arguments: &[&str]) -> Value {
    cluster.ringctl(&[arguments, &["-o", "json"]].concat()).await.json()
}

async fn error_of(cluster: &Cluster, arguments: &[&str]) -> Value {
    cluster.ringctl(&[arguments, &["-o", "json"]].concat()).await.error()
}

async fn write(cluster: &Cluster, place: &str, parameters: &str) -> Value {
    json_of(cluster, &["document", "operate", place, "document.write", parameters]).await
}

/// Every cart of a namespace, by id, without what is different in another namespace.
async fn carts(cluster: &Cluster, space: &str) -> Vec<Value> {
    let list = ["document", "list", space, "--class", "Cart", "--page-size", "2"];
    let listed = json_of(cluster, &list).await;
    let heads = listed["documents"].as_array().unwrap();
    let mut carts = Vec::new();
    for head in heads {
        let name = format!("{space}/Cart/{}", head["docid"].as_str().unwrap());
        let mut cart = json_of(cluster, &["document", "get", &name]).await;
        for field in ["ctime", "version", "item_bytes", "attachment_bytes"] {
            assert_eq!(cart[field], head[field], "{field} of {name}");
        }
        assert_eq!(cart["namespace"].take(), space);
        carts.push(cart);
    }
    carts.sort_by_key(|it| it["docid"].to_string());
    carts
}

/// The same without when: what comes to where something was told of it comes at a later version.
fn contents(carts: &[Value]) -> Vec<Value> {
    let mut carts = carts.to_vec();
    for cart in &mut carts {
        for field in ["ctime", "version"] {
            cart[field].take();
        }
        for item in cart["items"].as_array_mut().expect("a list") {
            item["version"].take();
        }
    }
    carts
}

/// Waits until every manager refuses a command, by itself, with this reason, and tells why.
async fn refused_everywhere(cluster: &Cluster, arguments: &[&str], reason: &str, told: &str) {
    refused_everywhere_within(cluster, arguments, reason, told, PATIENCE).await;
}

async fn refused_everywhere_within(
    cluster: &Cluster,
    arguments: &[&str],
    reason: &str,
    told: &str,
    within: Duration,
) {
    let arguments = [arguments, &["-o", "json"]].concat();
    let end = Instant::now() + within;
    for manager in 0..cluster.document.managers.len() {
        let left = end.saturating_duration_since(Instant::now());
        eventually("the manager refuses it", left, async || {
            let ran = cluster.ringctl_at(manager, &arguments).await;
            if ran.code == 0 {
                return Err(format!("manager {manager} does it: {}", ran.stdout));
            }
            let error = ran.error();
            let message = error["message"].as_str().unwrap_or_default();
            let is_it = error["reason"] == reason && message.contains(told);
            if is_it { Ok(()) } else { Err(error.to_string()) }
        })
        .await;
    }
}

/// Waits until every manager does a command, by itself.
async fn done_everywhere(cluster: &Cluster, arguments: &[&str]) {
    for manager in 0..cluster.document.managers.len() {
        eventually("the manager does it", PATIENCE, async || {
            let ran = cluster.ringctl_at(manager, arguments).await;
            if ran.code == 0 { Ok(()) } else { Err(ran.stderr) }
        })
        .await;
    }
}

/// A watch of a namespace that waits for changes, with no patience for refusals.
async fn watching(cluster: &Cluster, namespace: &str) -> Watch {
    let filter = v1::Filter { namespace: namespace.to_owned(), ..Default::default() };
    let request = v1::WatchRequest { filter: Some(filter), ..Default::default() };
    let mut watch = cluster.client().watch(request, WatchOptions { patience: Duration::ZERO });
    while !watch.next().await.expect("it goes on").caught_up {}
    watch
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_that_is_off_refuses_its_clients_everywhere_and_leaves_its_programs_alone() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let create = ["namespace", "create", "shop", "--description", "Carts of the shop"];
    json_of(&cluster, &create).await;
    write(&cluster, "shop/c1", &line("c1", "tea")).await;
    let open = ["session", "open", "web", "--class", "http", "--namespace", "shop"];
    json_of(&cluster, &[&open[..], &["--timeout", "60s"]].concat()).await;
    let get = ["session", "get", "web", "--namespace", "shop"];
    let before = json_of(&cluster, &get).await;
    let session = |it: &Value| it.get("session").unwrap_or(it).clone();
    let address = session(&before)["address"].as_str().unwrap().to_owned();
    let programs = running(cluster.folder()).remove("web").expect("its program runs");
    let mut open_watch = watching(&cluster, "shop").await;
    let off = json_of(&cluster, &["namespace", "off", "shop", "-m", "Back at noon"]).await;
    refused_everywhere_within(&cluster, &get, "NAMESPACE_OFF", "Back at noon", REFUSED_WITHIN)
        .await;
    let ended = timeout(REFUSED_WITHIN, open_watch.next()).await.expect("the watch is not ended");
    let ended = ended.expect_err("the watch goes on").to_string();
    assert!(ended.contains("Back at noon"), "{ended}");
    assert_eq!((&off["name"], &off["off"]), (&json!("shop"), &json!("Back at noon")));
    let parameters = line("c2", "milk");
    let operate = ["document", "operate", "shop/c2", "document.write", &parameters];
    let get_cart = ["document", "get", "shop/Cart/c1"];
    let documents = ["document", "list", "shop"];
    for refused in [&operate[..], &get_cart, &documents] {
        refused_everywhere(&cluster, refused, "O-OFF", "Back at noon").await;
    }
    let close = ["session", "close", "web", "--namespace", "shop"];
    let list = ["session", "list", "--namespace", "shop"];
    let watch = ["session", "watch", "--namespace", "shop", "--patience", "1s"];
    let watch_one = ["session", "watch", "web", "--namespace", "shop", "--patience", "1s"];
    for refused in [&get[..], &open, &close, &list, &watch, &watch_one] {
        refused_everywhere(&cluster, refused, "NAMESPACE_OFF", "Back at noon").await;
    }
    // Others are not concerned.
    write(&cluster, "other/c1", &line("c1", "tea")).await;
    assert_eq!(http_get(&address, "/").await.unwrap().code, 200);
    assert!(programs.iter().all(|it| it.runs()), "its program was touched");
    let shown = json_of(&cluster, &["namespace", "show", "shop"]).await;
    assert_eq!(shown["off"], "Back at noon");
    json_of(&cluster, &["namespace", "on", "shop"]).await;
    for done in [&get[..], &list, &get_cart, &operate] {
        done_everywhere(&cluster, done).await;
    }
    let after = json_of(&cluster, &get).await;
    for field in ["state", "life", "address"] {
        assert_eq!(session(&after)[field], session(&before)[field], "{field}");
    }
    assert_eq!(session(&after)["state"], "READY");
    assert_eq!(running(cluster.folder()).remove("web"), Some(programs));
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_moves_into_another_by_a_file_and_is_deleted_when_nothing_of_it_lives() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    json_of(&cluster, &["namespace", "create", "shop", "--description", "Carts"]).await;
    for number in 0..5 {
        let docid = format!("c{number}");
        write(&cluster, &format!("shop/{docid}"), &line(&docid, &"tea".repeat(number))).await;
    }
    let items = json!([
        {"class": "Owner", "json": {"name": "Ada"}},
        {"class": "Blob", "key": "a/b", "raw": "AQID"},
        {"class": "Line", "key": "", "json": [1, "two", {"three": 3.5}]},
    ]);
    write(&cluster, "shop/c1", &put("c1", &items)).await;
    let remove = json!({"class": "Cart", "docid": "c1", "remove": [{"class": "Line", "key": "1"}]});
    write(&cluster, "shop/c1", &json!({"changes": [remove]}).to_string()).await;
    let open = ["session", "open", "one", "--class", "counter", "--namespace", "shop"];
    json_of(&cluster, &open).await;
    let before = carts(&cluster, "shop").await;
    assert_eq!(before.len(), 5);
    let delete = ["namespace", "delete", "shop", "--yes"];
    let refused = error_of(&cluster, &delete).await;
    assert_eq!((&refused["reason"], &refused["changed"]), (&json!("A-ON"), &json!("no")));
    assert!(refused["message"].as_str().unwrap().contains("switch it off first"), "{refused}");
    json_of(&cluster, &["namespace", "off", "shop"]).await;
    let refused = error_of(&cluster, &delete).await;
    assert_eq!(refused["reason"], "A-SESSIONS");
    assert!(refused["message"].as_str().unwrap().contains("shop/one has not ended"), "{refused}");
    json_of(&cluster, &["namespace", "on", "shop"]).await;
    let close = ["session", "close", "one", "--namespace", "shop"];
    done_everywhere(&cluster, &close).await;
    json_of(&cluster, &["namespace", "off", "shop"]).await;
    let file = folder.at("shop.export");
    let exported = json_of(&cluster, &["namespace", "export", "shop", &file]).await;
    assert_eq!((&exported["documents"], &exported["bodies"]), (&json!(5), &json!(0)));
    assert_eq!(exported["bytes"], std::fs::metadata(&file).unwrap().len());
    eventually("nothing of it lives", PATIENCE, async || {
        let ran = cluster.ringctl(&delete).await;
        if ran.code == 0 { Ok(()) } else { Err(ran.stderr) }
    })
    .await;
    assert_eq!(json_of(&cluster, &["namespace", "list"]).await["namespaces"], json!([]));
    the_ended_session_is_kept(&cluster, &delete).await;
    let show = ["namespace", "show", "shop"];
    assert_eq!(error_of(&cluster, &show).await["reason"], "N-NAMESPACE");
    // It is created as it was described, and comes from an export of one that was off.
    let import = ["namespace", "import", &file, "--into", "copy"];
    let imported = json_of(&cluster, &import).await;
    assert_eq!(imported, json!({"documents": 5, "kept": 0, "bodies": 0}));
    let shown = json_of(&cluster, &["namespace", "show", "copy"]).await;
    assert_eq!((&shown["description"], &shown["off"]), (&json!("Carts"), &json!("")));
    json_of(&cluster, &["namespace", "on", "copy"]).await;
    done_everywhere(&cluster, &["document", "list", "copy"]).await;
    let copied = carts(&cluster, "copy").await;
    assert_eq!(contents(&copied), contents(&before));
    // To repeat it changes nothing; what has changed since is kept.
    assert_eq!(json_of(&cluster, &import).await, json!({"documents": 0, "kept": 5, "bodies": 0}));
    write(&cluster, "copy/c0", &line("c0", "milk")).await;
    assert_eq!(json_of(&cluster, &import).await, json!({"documents": 0, "kept": 5, "bodies": 0}));
    let after = carts(&cluster, "copy").await;
    assert_eq!(
        (&after[0]["items"][0]["json"]["text"], &after[1..]),
        (&json!("milk"), &copied[1..])
    );
    what_was_deleted_stays_closed_until_it_is_created_anew(&cluster).await;
    let shown = json_of(&cluster, &["namespace", "show", "copy"]).await;
    assert_eq!(shown["documents"], 5);
    damaged_files_are_refused(&cluster, &file).await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_that_was_deleted_comes_back_from_its_export_under_the_same_name() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    json_of(&cluster, &["namespace", "create", "vault", "--description", "Kept"]).await;
    for docid in ["a", "b", "c"] {
        write(&cluster, &format!("vault/{docid}"), &line(docid, docid)).await;
    }
    let before = carts(&cluster, "vault").await;
    let file = folder.at("vault.export");
    json_of(&cluster, &["namespace", "export", "vault", &file]).await;
    json_of(&cluster, &["namespace", "off", "vault"]).await;
    eventually("every owner knows that it is off", PATIENCE, async || {
        let ran = cluster.ringctl(&["namespace", "delete", "vault", "--yes"]).await;
        if ran.code == 0 { Ok(()) } else { Err(ran.stderr) }
    })
    .await;
    let again = ["namespace", "delete", "vault", "--yes"];
    let told = json_of(&cluster, &again).await;
    assert_eq!(told, json!({"name": "vault", "documents": 0, "was_there": false}));
    let import = ["namespace", "import", &file];
    assert_eq!(json_of(&cluster, &import).await, json!({"documents": 3, "kept": 0, "bodies": 0}));
    done_everywhere(&cluster, &["document", "list", "vault"]).await;
    let after = carts(&cluster, "vault").await;
    let lived = |carts: &[Value]| {
        let mut carts = contents(carts);
        // New lives know of nothing that was destroyed before them.
        carts.iter_mut().for_each(|it| drop(it["dtime"].take()));
        carts
    };
    assert_eq!(lived(&after), lived(&before));
    assert_eq!(json_of(&cluster, &import).await, json!({"documents": 0, "kept": 3, "bodies": 0}));
    assert_eq!(carts(&cluster, "vault").await, after);
    cluster.end().await;
}

/// The record of an ended session is no document of its namespace. It goes by itself, and that is
/// told.
async fn the_ended_session_is_kept(cluster: &Cluster, delete: &[&str]) {
    let told = cluster.ringctl(delete).await.expect_success().stdout;
    assert!(told.contains("ended sessions stay until 10 minutes"), "{told}");
    let kept = &json_of(cluster, &["session", "list"]).await["sessions"];
    assert_eq!((&kept[0]["id"], &kept[0]["state"]), (&json!("one"), &json!("CLOSED")));
}

/// Clients of it fill it again through no manager.
async fn what_was_deleted_stays_closed_until_it_is_created_anew(cluster: &Cluster) {
    let open = ["session", "open", "a", "--namespace", "shop", "--class", "builtin"];
    refused_everywhere(cluster, &open, "NAMESPACE_OFF", "shop was deleted").await;
    let list = ["document", "list", "shop"];
    refused_everywhere(cluster, &list, "N-NAMESPACE", "shop was deleted").await;
    json_of(cluster, &["namespace", "create", "shop"]).await;
    done_everywhere(cluster, &list).await;
    assert_eq!(carts(cluster, "shop").await, Vec::<Value>::new());
}

/// Nothing of a file that was cut short or changed is taken over.
async fn damaged_files_are_refused(cluster: &Cluster, file: &str) {
    let whole = std::fs::read(file).unwrap();
    let mut changed = whole.clone();
    changed[whole.len() / 2] ^= 1;
    for damaged in [&whole[..whole.len() - 1], &changed] {
        std::fs::write(file, damaged).unwrap();
        let refused = error_of(cluster, &["namespace", "import", file, "--into", "third"]).await;
        let message = refused["message"].as_str().unwrap();
        assert!(message.contains(file) && message.contains("record "), "{refused}");
        assert_eq!(carts(cluster, "third").await, Vec::<Value>::new());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_counts_what_all_owners_hold() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    json_of(&cluster, &["namespace", "create", "wide", "--max-documents", "60"]).await;
    // So many in a row that some would go to each owner.
    let (mut count, mut refused) = (0, 0);
    eventually("the namespace is full for every owner", PATIENCE, async || {
        count += 1;
        // Three owners, each by itself, would take 180.
        assert!(count - refused <= 150, "each owner counts by itself");
        let (place, parameters) = (format!("wide/w{count}"), line(&format!("w{count}"), "tea"));
        let command = ["document", "operate", &*place, "document.write", &parameters];
        let ran = cluster.ringctl(&command).await;
        refused = if ran.stderr.contains("the limit is 60") { refused + 1 } else { 0 };
        if refused > 9 { Ok(()) } else { Err(format!("of {count}: {}", ran.stderr)) }
    })
    .await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_is_described_once_and_its_limits_are_refused_with_field_and_limit() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let create = "namespace create small --description Tiny --max-documents 2 --max-item-bytes 400 \
                  --reader guest";
    let create: Vec<&str> = create.split(' ').collect();
    let created = json_of(&cluster, &create).await;
    assert_eq!(json_of(&cluster, &create).await, created, "repeating it changes nothing");
    let other = ["namespace", "create", "small", "--max-documents", "3"];
    assert_eq!(error_of(&cluster, &other).await["reason"], "A-EXISTS");
    assert_eq!(json_of(&cluster, &["namespace", "show", "small"]).await, created);
    assert_eq!(
        created["limits"],
        json!({"documents": 2, "item_bytes": 400, "attachment_bytes": null})
    );
    assert_eq!(created["readers"], json!(["guest"]));
    let listed = json_of(&cluster, &["namespace", "list"]).await;
    assert_eq!(listed["namespaces"], json!([created]));
    // What shares a slot shares an owner, who learns the limits a moment later.
    let parameters = line("{c}1", &"long".repeat(100));
    let long = ["document", "operate", "small/{c}1", "document.write", &parameters];
    eventually("the owner knows the limits", PATIENCE, async || {
        write(&cluster, "small/{c}1", &line("{c}1", "tea")).await;
        let ran = cluster.ringctl(&long).await;
        if ran.code == 1 { Ok(()) } else { Err(ran.stdout) }
    })
    .await;
    write(&cluster, "small/{c}2", &line("{c}2", "tea")).await;
    refused_everywhere(&cluster, &long, "A-LIMIT", "the limit is 400").await;
    let parameters = line("{c}3", "tea");
    let third = ["document", "operate", "small/{c}3", "document.write", &parameters];
    refused_everywhere(&cluster, &third, "A-LIMIT", "the limit is 2").await;
    for (refused, field) in [(&third, "documents"), (&long, "item_bytes")] {
        let refused = error_of(&cluster, refused).await;
        assert_eq!(
            (&refused["fields"][0]["field"], &refused["changed"]),
            (&field.into(), &"no".into())
        );
    }
    assert_eq!(carts(&cluster, "small").await.len(), 2);
    let shown = json_of(&cluster, &["namespace", "show", "small"]).await;
    assert_eq!(shown["documents"], 2);
    assert!(shown["item_bytes"].as_u64().unwrap() <= 400, "{shown}");
    let table = cluster.ringctl(&["namespace", "list"]).await.expect_success().stdout;
    assert!(table.contains("2 of 2") && table.contains("Tiny"), "{table}");
    let set = ["namespace", "set", "small", "--max-documents", "3", "--no-reader", "guest"];
    let changed = json_of(&cluster, &set).await;
    assert_eq!(
        changed["limits"],
        json!({"documents": 3, "item_bytes": 400, "attachment_bytes": null}),
        "{changed}"
    );
    assert_eq!((&changed["readers"], &changed["description"]), (&json!([]), &json!("Tiny")));
    done_everywhere(&cluster, &third).await;
    let unknown = ["namespace", "set", "large", "--max-item-bytes", "none"];
    assert_eq!(error_of(&cluster, &unknown).await["reason"], "N-NAMESPACE");
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_that_nobody_created_is_shown_while_something_is_in_it() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let show = async |name: &str| json_of(&cluster, &["namespace", "show", name]).await;
    let nobody = json!({
        "name": "default", "description": "", "off": null, "documents": 0, "item_bytes": 0, "attachment_bytes": 0,
        "limits": {"documents": null, "item_bytes": null, "attachment_bytes": null}, "readers": [], "version": null,
    });
    assert_eq!(show("default").await, nobody, "every call means it that names none");
    let missing = error_of(&cluster, &["namespace", "show", "shop"]).await;
    assert_eq!(missing["reason"], "N-NAMESPACE", "{missing}");
    let open = ["session", "open", "one", "--class", "counter", "--namespace", "shop"];
    json_of(&cluster, &open).await;
    assert_eq!(show("shop").await["version"], Value::Null);
    write(&cluster, "stall/c1", &line("c1", "tea")).await;
    assert_eq!(show("stall").await["documents"], 1);
    let ran = cluster.ringctl(&["namespace", "show", "stall"]).await.expect_success();
    assert!(ran.stdout.contains("not created: on, without limits"), "{}", ran.stdout);
    let file = folder.at("stall.export");
    let exported = json_of(&cluster, &["namespace", "export", "stall", &file]).await;
    assert_eq!(exported["documents"], 1, "{exported}");
    let import = ["namespace", "import", &file, "--into", "copy"];
    assert_eq!(json_of(&cluster, &import).await["documents"], 1);
    json_of(&cluster, &["session", "close", "one", "--namespace", "shop"]).await;
    let again = error_of(&cluster, &["namespace", "show", "shop"]).await;
    assert_eq!(again["reason"], "N-NAMESPACE", "nothing lives in it any more: {again}");
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_of_another_namespace_are_read_only_where_it_names_the_reader() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    json_of(&cluster, &["namespace", "create", "shop", "--reader", "guest"]).await;
    write(&cluster, "shop/c1", &line("c1", "tea")).await;
    let parameters = reading("shop", "c1");
    let read = |space: &str| {
        let place = format!("{space}/c1");
        ["document", "operate", &place, "document.read", &parameters].map(str::to_owned)
    };
    let stranger = read("stranger");
    let stranger: Vec<&str> = stranger.iter().map(String::as_str).collect();
    refused_everywhere(&cluster, &stranger, "S-SPACE", "must not be read").await;
    let guest = read("guest");
    let guest: Vec<&str> = guest.iter().map(String::as_str).collect();
    done_everywhere(&cluster, &guest).await;
    let shown = json_of(&cluster, &guest).await;
    let cart = &shown["json"]["documents"][0];
    assert_eq!(cart["items"][0]["json"], json!({"text": "tea"}), "{shown}");
    cluster.end().await;
}

/// What is no operation refuses a wrong key and an old build, too, and then has done nothing.
async fn every_service_checks_its_callers(cluster: &Cluster, folder: &TestFolder) {
    let (source, target) = (folder.at("tea.txt"), folder.at("tea.copy"));
    let exported = folder.at("c1");
    std::fs::write(&source, "tea").unwrap();
    let barley = folder.at("barley.key");
    let sha256 = rota_docstore::Digest(Sha256::digest(b"tea").into()).to_string();
    let services: [&[&str]; 5] = [
        &["document", "get", "shop/Cart/c1"],
        &["document", "list", "shop"],
        &["document", "put-body", "shop/c1", &source],
        &["document", "get-body", "shop/c1", &sha256, &target],
        &["document", "export", "shop/Cart/c1", &exported],
    ];
    for service in services {
        let old = [service, &["--build", "4"]].concat();
        refused_everywhere(cluster, &old, "D-BUILD", "build is 4; the server's is 5").await;
        let wrong = [service, &["--admin-key-file", &barley]].concat();
        refused_everywhere(cluster, &wrong, "S-REFUSED", "key is wrong").await;
        assert!(!std::path::Path::new(&target).exists());
    }
    for service in services {
        done_everywhere(cluster, &[service, &["--build", "5"]].concat()).await;
    }
    assert_eq!(std::fs::read(&target).unwrap(), b"tea");
    let to_stdout = ["document", "get-body", "shop/c1", &sha256, "-"];
    assert_eq!(cluster.ringctl(&to_stdout).await.expect_success().stdout, "tea");
    std::fs::write(&source, "milk").unwrap();
    let limit = "the size of an attachment in bytes is 4; the limit is 3";
    refused_everywhere(cluster, services[2], "A-INVALID", limit).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn administration_needs_the_key_of_a_manager_that_has_one_and_old_builds_are_refused() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &["--managers", "1", "--replicas", "0"]).await;
    json_of(&cluster, &["namespace", "create", "shop"]).await;
    let key = folder.secret("admin.key", "open sesame\n");
    let barley = folder.secret("barley.key", "open barley");
    let manager = process(cluster.document.managers[0].pid).expect("it ran until now");
    cluster.kill_manager(0).await;
    let more = ["--admin-key-file", &key, "--client-build-min", "5", "--body-bytes-max", "3"];
    let more = more.map(str::to_owned);
    let again =
        Launched::again(&folder, "manager-with-key", &[&manager.line[..], &more].concat()).await;
    let file = folder.at("shop.export");
    let off = ["namespace", "off", "shop"];
    let commands: [&[&str]; 5] = [
        &["namespace", "create", "other"],
        &off,
        &["namespace", "on", "shop"],
        &["namespace", "export", "shop", &file],
        &["namespace", "delete", "shop", "--yes"],
    ];
    done_everywhere(&cluster, &["namespace", "show", "shop"]).await;
    for command in commands {
        refused_everywhere(&cluster, command, "S-REFUSED", "key is missing").await;
        let wrong = [command, &["--admin-key-file", &barley]].concat();
        refused_everywhere(&cluster, &wrong, "S-REFUSED", "key is wrong").await;
    }
    assert!(!std::path::Path::new(&file).exists(), "a refused export leaves no file");
    let page = json!({"path": "a.txt", "mime": "text/plain", "body": "YQ=="}).to_string();
    let publish = ["document", "operate", "z/a.txt", "web.put", &page];
    refused_everywhere(&cluster, &publish, "S-REFUSED", "key is missing").await;
    // Others need none.
    write(&cluster, "shop/c1", &line("c1", "tea")).await;
    let changes = line("c2", "milk");
    let old = ["document", "operate", "shop/c2", "document.write", &changes, "--build", "4"];
    refused_everywhere(&cluster, &old, "D-BUILD", "build is 4; the server's is 5").await;
    let new = [&old[..6], &["5"]].concat();
    done_everywhere(&cluster, &new).await;
    every_service_checks_its_callers(&cluster, &folder).await;
    let listed = json_of(&cluster, &["namespace", "list"]).await;
    assert_eq!(listed["namespaces"][0]["off"], Value::Null, "nothing was changed");
    for command in commands.iter().filter(|it| it[1] != "delete").chain([&&off[..], &commands[4]]) {
        let right = [*command, &["--admin-key-file", &key]].concat();
        done_everywhere(&cluster, &right).await;
    }
    let right = [&publish[..], &["--admin-key-file", &key]].concat();
    done_everywhere(&cluster, &right).await;
    let nobody = ringctl(&cluster.endpoints(), &["namespace", "show", "shop", "-o", "json"]).await;
    assert_eq!(nobody.error()["reason"], "N-NAMESPACE");
    cluster.end_with(vec![again]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn namespaces_are_described_and_shown_while_a_partition_has_no_owner() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &["--replicas", "0"]).await;
    json_of(&cluster, &["namespace", "create", "shop", "--max-documents", "9"]).await;
    write(&cluster, "shop/c1", &line("c1", "tea")).await;
    let shown = json_of(&cluster, &["namespace", "show", "shop"]).await;
    assert_eq!(shown["documents"], 1);
    // Descriptions lie where a document `spaces` of z would.
    let told = json_of(&cluster, &["explain", "spaces", "--namespace", "z"]).await;
    let mut managers = cluster.document.managers.iter();
    let other = managers.position(|it| told["owner"]["number"] != it.number).expect("there are 3");
    cluster.kill_manager(other).await;
    let unknown = |shown: &Value| {
        let counts = ["documents", "item_bytes", "attachment_bytes"].map(|it| shown[it].clone());
        assert_eq!(counts, [Value::Null, Value::Null, Value::Null], "{shown}");
    };
    let off = ["namespace", "off", "shop", "-m", "Back at noon"];
    let changed = json_of(&cluster, &off).await;
    assert_eq!(changed["off"], "Back at noon");
    unknown(&changed);
    let changed = json_of(&cluster, &["namespace", "on", "shop", "--timeout", "2s"]).await;
    assert_eq!(changed["off"], Value::Null);
    let changed = json_of(&cluster, &["namespace", "set", "shop", "--max-documents", "5"]).await;
    assert_eq!(changed["limits"]["documents"], 5);
    unknown(&json_of(&cluster, &["namespace", "create", "other"]).await);
    unknown(&json_of(&cluster, &["namespace", "show", "shop"]).await);
    unknown(&json_of(&cluster, &["namespace", "show", "default"]).await);
    let listed = json_of(&cluster, &["namespace", "list"]).await;
    let names: Vec<_> =
        listed["namespaces"].as_array().unwrap().iter().map(|it| &it["name"]).collect();
    assert_eq!(names, ["other", "shop"]);
    listed["namespaces"].as_array().unwrap().iter().for_each(unknown);
    let ran = cluster.ringctl(&["namespace", "list"]).await.expect_success();
    assert!(ran.stdout.contains("- of 5"), "{}", ran.stdout);
    assert!(ran.stderr.contains("what namespaces hold is not known"), "{}", ran.stderr);
    // Whether somebody uses a name that nobody described cannot be told now.
    let error = error_of(&cluster, &["namespace", "show", "nobody", "--timeout", "5s"]).await;
    assert_eq!(error["changed"], "no", "{error}");
    cluster.end().await;
}
