//! Pools as operators describe them, over real processes.

use rota_client::v1;
use rota_model::{Cron, Retry, Stamp};
use rota_tests::processes::gone;
use rota_tests::sessions::{CALL, close, open, opened};
use rota_tests::{Cluster, PATIENCE, TestFolder, classes_of, eventually};
use serde_json::{Value, json};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Node-agents, all started by managers.
fn nodes(cluster: &Cluster) -> usize {
    cluster.processes().iter().filter(|it| it.is_agent()).count()
}

async fn shown(cluster: &Cluster, pool: &str) -> Value {
    cluster.ringctl(&["pool", "show", pool, "-o", "json"]).await.json()
}

async fn eventually_shown(cluster: &Cluster, pool: &str, field: &str, wanted: Value) {
    eventually(&format!("{field} of pool {pool} is {wanted}"), PATIENCE, async || {
        let found = shown(cluster, pool).await;
        if found[field] == wanted { Ok(()) } else { Err(found.to_string()) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_is_described_grows_keeps_its_minimum_and_goes_by_its_limit() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &["--nodes", "0"]).await;
    let client = cluster.client();
    let error = client.open(open("a", "counter"), CALL).await.unwrap_err();
    assert_eq!((error.reason(), error.retry()), ("NO_CAPACITY", Retry::WhenChanged), "{error:?}");
    assert!(error.to_string().contains("ringctl pool create"), "{error}");
    let missing = cluster.ringctl(&["pool", "show", "default", "-o", "json"]).await.error();
    assert_eq!(missing["reason"], "N-DOCUMENT", "{missing}");

    let create = ["pool", "create", "default", "--provisioner", "process", "--places", "10"];
    let create = [&create[..], &["--max-nodes", "2", "-o", "json"]].concat();
    let created = cluster.ringctl(&create).await.json();
    assert_eq!((&created["provisioner"], &created["nodes"]), (&json!("process"), &json!(0)));
    // Whoever asks again gets the same answer; another description is refused.
    let again = cluster.ringctl(&create).await.json();
    assert_eq!(again["version"], created["version"]);
    let other = ["pool", "create", "default", "--policy", "spread", "-o", "json"];
    assert_eq!(cluster.ringctl(&other).await.error()["reason"], "A-EXISTS");

    opened(&client, "a", "counter").await;
    assert_eq!(nodes(&cluster), 1);
    eventually_shown(&cluster, "default", "used_places", json!(1)).await;
    let set = ["pool", "set", "default", "--min-nodes", "2", "-o", "json"];
    assert_eq!(cluster.ringctl(&set).await.json()["min_nodes"], 2);
    eventually_shown(&cluster, "default", "ready_nodes", json!(2)).await;
    assert_eq!(nodes(&cluster), 2);

    // At the limit of 0.8 two nodes of ten places take sixteen; at 1 they take all twenty.
    for number in 1..16 {
        opened(&client, &format!("s{number}"), "counter").await;
    }
    let wait = Duration::from_secs(3);
    let error = client.open(open("s16", "counter"), wait).await.unwrap_err();
    assert_eq!(error.reason(), "NO_CAPACITY", "{error:?}");
    let set = ["pool", "set", "default", "--load-limit", "1", "-o", "json"];
    assert_eq!(cluster.ringctl(&set).await.json()["load_limit"], json!(1.0));
    for number in 16..20 {
        let answer = client.open(open(&format!("s{number}"), "counter"), CALL * 2).await;
        answer.unwrap_or_else(|error| panic!("s{number}: {error:?}"));
    }
    let refused = cluster.ringctl(&["pool", "delete", "default", "-o", "json"]).await.error();
    assert_eq!(refused["reason"], "A-NODES", "{refused}");

    // Every manager knows it, also when the one that owns the description is gone.
    cluster.kill_manager(0).await;
    for manager in [1, 2] {
        let list = cluster.ringctl_at(manager, &["pool", "list", "-o", "json"]).await.json();
        assert_eq!(list["pools"][0]["name"], "default", "{list}");
        assert_eq!(list["pools"][0]["max_nodes"], 2, "{list}");
    }
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_warm_buffer_is_there_ahead_of_any_open_and_follows_what_is_used() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &["--nodes", "0"]).await;
    let client = cluster.client();
    let create = ["pool", "create", "default", "--provisioner", "process", "--places", "4"];
    let limits = ["--load-limit", "1", "--max-nodes", "3", "--warm-places", "3", "-o", "json"];
    cluster.ringctl(&[&create[..], &limits].concat()).await.json();
    eventually_shown(&cluster, "default", "ready_nodes", json!(1)).await;
    // The node has three places left: that is the buffer still.
    opened(&client, "a", "counter").await;
    eventually_shown(&cluster, "default", "used_places", json!(1)).await;
    assert_eq!((nodes(&cluster), &shown(&cluster, "default").await["nodes"]), (1, &json!(1)));
    opened(&client, "b", "counter").await;
    eventually_shown(&cluster, "default", "ready_nodes", json!(2)).await;
    let open_more = ["c", "d", "e", "f"];
    for id in open_more {
        opened(&client, id, "counter").await;
    }
    eventually_shown(&cluster, "default", "ready_nodes", json!(3)).await;
    let set = ["pool", "set", "default", "--warm-places", "0", "--scale-in-delay", "1s"];
    cluster.ringctl(&[&set[..], &["-o", "json"]].concat()).await.json();
    eventually_shown(&cluster, "default", "ready_nodes", json!(2)).await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_pools_is_applied_once_and_a_dry_run_changes_nothing() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &["--nodes", "0"]).await;
    let file = folder.at("pools.toml");
    std::fs::write(&file, "[pool.big]\nload_limit = 0.5\npolicy = \"spread\"\n[pool.small]\n")
        .unwrap();
    let actions = |answer: &Value| {
        let pools = answer["pools"].as_array().unwrap();
        pools.iter().map(|it| it["action"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let dry = ["apply", "-f", &file, "--dry-run", "-o", "json"];
    let apply = ["apply", "-f", &file, "-o", "json"];
    assert_eq!(actions(&cluster.ringctl(&dry).await.json()), ["created", "created"]);
    let none = cluster.ringctl(&["pool", "list", "-o", "json"]).await.json();
    assert_eq!(none["pools"], json!([]));
    assert_eq!(actions(&cluster.ringctl(&apply).await.json()), ["created", "created"]);
    assert_eq!(actions(&cluster.ringctl(&apply).await.json()), ["unchanged", "unchanged"]);
    std::fs::write(&file, "[pool.big]\npolicy = \"spread\"\n").unwrap();
    let changed = cluster.ringctl(&apply).await.json();
    assert_eq!(actions(&changed), ["changed"]);
    assert_eq!(changed["pools"][0]["changes"][0]["field"], "load_limit", "{changed}");
    assert_eq!(shown(&cluster, "big").await["load_limit"], Value::Null);
    std::fs::write(&file, "[pool.big]\nplaces = 3\nsize = 1\n").unwrap();
    let refused = cluster.ringctl(&apply).await;
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.stderr.contains("size is no field of a pool"), "{}", refused.stderr);
    let gone = cluster.ringctl(&["pool", "delete", "small", "-o", "json"]).await.json();
    assert_eq!(gone["existed"], true);
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provisioner_that_no_manager_has_is_told_to_operators_and_to_who_waits() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &["--nodes", "0"]).await;
    let create = ["pool", "create", "default", "--provisioner", "nonesuch", "--places", "1"];
    let create = [&create[..], &["--max-nodes", "1", "-o", "json"]].concat();
    cluster.ringctl(&create).await.json();
    eventually("the refusal says why", PATIENCE, async || {
        let wait = Duration::from_millis(1_500);
        let error = cluster.client().open(open("a", "counter"), wait).await.unwrap_err();
        let text = error.to_string();
        if text.contains("no provisioner \"nonesuch\"") { Ok(()) } else { Err(text) }
    })
    .await;
    let found = shown(&cluster, "default").await;
    let warning = found["warning"].as_str().unwrap_or_default();
    assert!(
        warning.contains("no provisioner \"nonesuch\"") && warning.contains("process"),
        "{found}"
    );
    let failure = found["failure"].as_str().unwrap_or_default();
    assert!(failure.contains("no provisioner \"nonesuch\""), "{found}");
    assert_eq!(nodes(&cluster), 0);
    // What was ordered is expected for some seconds, and then is in nobody's way.
    let none = ["pool", "set", "default", "--provisioner", "none", "-o", "json"];
    assert_eq!(cluster.ringctl(&none).await.json()["max_nodes"], 0);
    can_be_deleted(&cluster).await;
    // When the name is mended, nothing of the misspelt one is told, or in the way of the next delete.
    cluster.ringctl(&create).await.json();
    let wait = Duration::from_millis(1_500);
    cluster.client().open(open("a", "counter"), wait).await.expect_err("nobody starts nodes");
    let mended = ["pool", "set", "default", "--provisioner", "process", "--max-nodes", "1"];
    cluster.ringctl(&[&mended[..], &["--scale-in-delay", "1s"]].concat()).await.expect_success();
    eventually_shown(&cluster, "default", "failure", Value::Null).await;
    eventually("a node comes", PATIENCE, async || {
        let opened = cluster.client().open(open("a", "counter"), PATIENCE).await;
        opened.map(|_| ()).map_err(|it| it.to_string())
    })
    .await;
    cluster.client().close(close("a"), PATIENCE).await.expect("closes");
    eventually("its node has ended", PATIENCE, async || match nodes(&cluster) {
        0 => Ok(()),
        left => Err(format!("{left} nodes")),
    })
    .await;
    cluster.ringctl(&none).await.json();
    assert_eq!(shown(&cluster, "default").await["end_failure"], Value::Null);
    can_be_deleted(&cluster).await;
    cluster.end().await;
}

async fn can_be_deleted(cluster: &Cluster) {
    eventually("the pool can be deleted", PATIENCE, async || {
        let delete = ["pool", "delete", "default", "-o", "json"];
        let deleted = cluster.ringctl(&delete).await;
        if deleted.code == 0 { Ok(()) } else { Err(deleted.stderr) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_class_that_names_its_pool_goes_there_also_when_no_node_is_left() {
    let folder = TestFolder::new();
    let classes = folder.path().join("classes");
    std::fs::create_dir_all(&classes).unwrap();
    let text =
        "name = \"big\"\nkind = \"machine\"\npool = \"gpu\"\nstates = [\"a\"]\ninitial = \"a\"\n";
    std::fs::write(classes.join("big.toml"), text).unwrap();
    let options = ["--nodes", "0", "--classes", &folder.at("classes")];
    let cluster = Cluster::start(&folder, &options).await;
    let create = ["pool", "create", "gpu", "--provisioner", "process", "--places", "4"];
    let create = [&create[..], &["--max-nodes", "1", "--min-nodes", "1", "-o", "json"]].concat();
    cluster.ringctl(&create).await.json();
    eventually("the pool knows the class", PATIENCE, async || {
        let found = shown(&cluster, "gpu").await;
        if found["classes"]["big"]["pool"] == "gpu" { Ok(()) } else { Err(found.to_string()) }
    })
    .await;
    let session = opened(&cluster.client(), "a", "big").await;
    assert_eq!(session.pool, "gpu");
    let named = v1::OpenRequest { pool: "default".to_owned(), ..open("b", "big") };
    let error = cluster.client().open(named, CALL).await.unwrap_err();
    assert!(error.to_string().contains("no pool \"default\""), "{error}");
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_class_needs_decides_which_node_takes_it_and_how_many_are_started() {
    let folder = TestFolder::new();
    let machine = |name: &str, needs: &str| {
        format!(
            "name = {name:?}\nkind = \"machine\"\nstates = [\"a\"]\ninitial = \"a\"\n[needs]\n{needs}\n"
        )
    };
    let heavy = machine("heavy", "weight = 6\nmemory_mib = 1\nlabels = { zone = \"a\" }");
    let classes = [
        ("heavy.toml", heavy),
        ("huge.toml", machine("huge", "weight = 11")),
        ("away.toml", machine("away", "labels = { zone = \"b\" }")),
    ];
    let classes = classes.each_ref().map(|(name, text)| (*name, text.as_str()));
    let classes = classes_of(&folder, &classes);
    let cluster = Cluster::start(&folder, &["--nodes", "0", "--classes", &classes]).await;
    let create = ["pool", "create", "default", "--provisioner", "process", "--places", "10"];
    let more = ["--min-nodes", "1", "--max-nodes", "3", "--label", "zone=a", "-o", "json"];
    let created = cluster.ringctl(&[&create[..], &more].concat()).await.json();
    assert_eq!(created["labels"], json!({"zone": "a"}));
    let known = ["away", "heavy", "huge"];
    eventually("the pool knows its classes", PATIENCE, async || {
        let found = shown(&cluster, "default").await;
        let names: Vec<&String> = found["classes"].as_object().expect("a table").keys().collect();
        if names == known { Ok(()) } else { Err(found.to_string()) }
    })
    .await;
    let heavy = &shown(&cluster, "default").await["classes"]["heavy"];
    assert_eq!((&heavy["weight"], &heavy["labels"]), (&json!(6), &json!({"zone": "a"})));

    let client = cluster.client();
    for id in ["a", "b"] {
        opened(&client, id, "heavy").await;
    }
    assert_eq!(nodes(&cluster), 2, "a second one of six places does not fit beside the first");
    for (id, class, text) in [
        ("c", "huge", "11 places, and the largest has 10"),
        ("d", "away", "needs a node with the labels zone=b"),
    ] {
        let error = client.open(open(id, class), CALL).await.unwrap_err();
        assert_eq!((error.reason(), error.retry()), ("NO_CAPACITY", Retry::WhenChanged));
        assert!(error.to_string().contains(text), "{error}");
    }
    eventually("managers know what is in use", PATIENCE, async || {
        let list = cluster.ringctl(&["node", "list", "-o", "json"]).await.json();
        let listed = list["nodes"].as_array().expect("a list").iter();
        let used = listed.map(|it| (it["used"].clone(), it["used_memory_mib"].clone()));
        let is_right = used.clone().all(|it| it == (json!(6), json!(1))) && used.count() == 2;
        if is_right { Ok(()) } else { Err(list.to_string()) }
    })
    .await;
    let list = cluster.ringctl(&["node", "list", "-o", "json"]).await.json();
    assert_eq!(list["nodes"][0]["labels"], json!({"zone": "a"}));
    assert_eq!(list["nodes"][0]["load"], json!(0.6), "{list}");
    assert!(list["nodes"][0]["cpu_millis"].as_u64().is_some_and(|it| it >= 1_000), "{list}");
    assert_eq!(nodes(&cluster), 2);
    cluster.end().await;
}

/// A stamp of now, and its minute with that of a moment 20 to 80 seconds later, which begins a minute.
fn minutes_around_now() -> (Stamp, u64, u64) {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let now = Stamp::from_epoch_ms(u64::try_from(since.as_millis()).unwrap());
    let minute = |it: Stamp| it.as_u64() / 100_000 % 100;
    (now, minute(now), minute(now.plus_ms(80_000)))
}

#[tokio::test(flavor = "multi_thread")]
async fn schedules_are_set_shown_applied_and_refused_and_a_node_comes_at_the_moment_of_one() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &["--nodes", "0"]).await;
    let create = ["pool", "create", "default", "--provisioner", "process", "--places", "10"];
    let more = ["--max-nodes", "2", "--scale-in-delay", "1s", "-o", "json"];
    let created = cluster.ringctl(&[&create[..], &more].concat()).await.json();
    assert_eq!((&created["schedules"], &created["in_force"]), (&json!([]), &Value::Null));

    let (now, night, day) = minutes_around_now();
    let texts = [format!("H{night:02} min=0 warm=none"), format!("H{day:02} min=1")];
    let set = ["pool", "set", "default", "--schedule", &texts[0], "--schedule", &texts[1]];
    cluster.ringctl(&set).await.expect_success();
    let found = shown(&cluster, "default").await;
    assert_eq!(found["schedules"][1]["at"], json!(format!("H{day:02}")), "{found}");
    assert_eq!(found["schedules"][1]["warm_places"], Value::Null);
    let in_force = &found["in_force"];
    assert_eq!((&in_force["min_nodes"], &found["nodes"]), (&json!(0), &json!(0)), "{found}");
    let moment = Cron::parse(&format!("H{day:02}")).unwrap().next(now).unwrap();
    assert_eq!(in_force["next"]["at"], json!(moment.as_u64()), "{found}");
    assert_eq!(in_force["next"]["min_nodes"], 1, "{found}");
    let text = cluster.ringctl(&["pool", "show", "default"]).await.expect_success().stdout;
    assert!(text.contains(&texts.join("; ")) && text.contains("min 0 since 20"), "{text}");
    let http = &cluster.document.managers[1].http;
    let page = rota_tests::http_get(http, "/v1/pools/default").await.unwrap().json();
    assert_eq!(page["in_force"], *in_force, "every manager works out the same");

    // What is wrong is told with its place, by whoever sees it first.
    for (schedule, says) in [
        ("D2500 min=1", "at column 2: the hour is 25; expected: hour of 2 digits, 00 to 23"),
        ("H00 min=3", "schedules[0].min_nodes is 3, and max_nodes is 2"),
    ] {
        let refused = cluster.ringctl(&["pool", "set", "default", "--schedule", schedule]).await;
        assert!(refused.code != 0 && refused.stderr.contains(says), "{refused:?}");
    }
    let file = folder.at("pools.toml");
    let base = "[pool.default]\nprovisioner = \"process\"\nplaces = 10\nmax_nodes = 2\nscale_in_delay_s = 1\n";
    let applied = |schedules: &str| std::fs::write(&file, format!("{base}{schedules}")).unwrap();
    applied(
        "schedules = [{ at = \"D0600\", min_nodes = 2 }, { at = \"W80000\", min_nodes = 0 }]\n",
    );
    let refused = cluster.ringctl(&["apply", "-f", &file]).await;
    let says = "pool default: schedules[1].at column 2: the day of the week is 8";
    assert!(refused.code == 2 && refused.stderr.contains(says), "{refused:?}");
    applied("[[pool.default.schedules]]\nat = \"D0600\"\nmin_nodes = 2\nwarm_nodes = 1\n");
    let dry = cluster.ringctl(&["apply", "-f", &file, "--dry-run"]).await.expect_success().stdout;
    let change =
        format!("schedules {:?} and {:?} -> \"D0600 min=2 warm=1nodes\"", texts[0], texts[1]);
    assert_eq!(dry, format!("pool default: would change {change}\n"));
    assert_eq!(shown(&cluster, "default").await["schedules"], found["schedules"]);

    eventually("a node comes at the moment", Duration::from_secs(80) + PATIENCE, async || {
        let found = shown(&cluster, "default").await;
        if found["ready_nodes"] == 1 { Ok(()) } else { Err(found.to_string()) }
    })
    .await;
    let now = shown(&cluster, "default").await;
    assert_eq!(now["in_force"]["min_since"], json!(moment.as_u64()), "{now}");
    let came = cluster.started_nodes();
    assert_eq!(came.len(), 1);
    let none = ["pool", "set", "default", "--no-schedules", "-o", "json"];
    assert_eq!(cluster.ringctl(&none).await.json()["in_force"], Value::Null);
    gone("the node is not needed any more", &came).await;
    cluster.end().await;
}
