//! `ringctl bench` as a command, and the bench of the storage: what they print and how they end. How fast
//! anything is is told by the bench, not by a test.

use rota_tests::processes::of_folder;
use rota_tests::sessions::listed;
use rota_tests::{Cluster, Ran, TestFolder, checkout, ringctl, ringctl_in, run_to_end};
use serde_json::Value;

/// The shortest load that has figures: enough calls in flight that some end in any moment.
const SHORT: [&str; 4] = ["--concurrency", "4", "--duration", "500ms"];

/// In the order of their names.
const FIGURES: [&str; 8] =
    ["count", "failed", "max_ms", "name", "p50_ms", "p90_ms", "p99_ms", "per_s"];

/// Fails unless that is all that stands on stdout, and stderr has no progress: it is no terminal.
fn one_line(ran: &Ran) -> &str {
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{}", ran.stdout);
    let line = ran.stdout.strip_suffix('\n').expect("a line ends");
    assert!(!line.contains(['\n', '\r', '\u{1b}']), "{line:?}");
    line
}

fn fields(document: &Value) -> Vec<&str> {
    document.as_object().expect("a document").keys().map(String::as_str).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn bench_open_and_get_print_their_figures_and_leave_no_session() {
    let folder = TestFolder::new();
    // Room for everything that a fast machine opens and holds.
    let cluster = Cluster::start(&folder, &["--places", "100000"]).await;
    let one = &cluster.document.managers[1].grpc;
    let calls: [(&str, &str, &[&str]); 3] = [
        ("open", "open+close", &[]),
        ("open", "open", &["--hold"]),
        ("get", "get", &["--sessions", "10"]),
    ];
    for (command, name, more) in calls {
        let line = [&["bench", command], &SHORT[..], more].concat();
        let ran = ringctl(one, &[&line[..], &["-o", "json"]].concat()).await;
        let document: Value = serde_json::from_str(one_line(&ran)).unwrap();
        assert_eq!(fields(&document), FIGURES, "{document}");
        assert_eq!((&document["name"], &document["failed"]), (&name.into(), &0.into()));
        assert!(document["count"].as_u64() > Some(0), "{document}");
        for field in ["per_s", "p50_ms", "p90_ms", "p99_ms", "max_ms"] {
            assert!(document[field].as_f64() > Some(0.0), "{field} in {document}");
        }
        let ran = ringctl(one, &line).await;
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
        let mut lines = ran.stdout.lines();
        let header = lines.next().unwrap();
        for column in ["CALL", "PER S", "P50 MS", "P90 MS", "P99 MS", "MAX MS", "COUNT", "FAILED"] {
            assert!(header.contains(column), "{column} in {header}");
        }
        assert!(lines.next().is_some_and(|it| it.starts_with(name)), "{}", ran.stdout);
        assert_eq!(lines.next(), None);
        let ready = rota_client::v1::SessionState::Ready.into();
        let filter = rota_client::v1::Filter { states: vec![ready], ..Default::default() };
        assert_eq!(listed(&cluster.client(), filter).await, vec![], "after bench {command}");
    }
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bench_compare_starts_its_own_cluster_prints_the_ratios_and_leaves_no_process() {
    let folder = TestFolder::new();
    let line = [&["bench", "compare", "--rounds", "1"], &SHORT[..]].concat();
    let ran = ringctl_in(&folder, &[&line[..], &["-o", "json"]].concat()).await;
    let document: Value = serde_json::from_str(one_line(&ran)).unwrap();
    let first = ["echo_per_s", "open_per_s", "get_per_s", "open_ratio", "get_ratio"];
    let then = ["open_p99_ms", "open_any_ratio", "get_p99_ms", "echo_p99_ms"];
    for field in first.into_iter().chain(then) {
        assert!(document[field].as_f64() > Some(0.0), "{field} in {document}");
    }
    for (field, value) in [("concurrency", 4), ("rounds", 1), ("managers", 3), ("failed", 0)] {
        assert_eq!(document[field], value, "{field} in {document}");
    }
    assert_eq!(of_folder(folder.path()), vec![], "processes are left");
    let ran = ringctl_in(&folder, &line).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    let names: Vec<&str> = ran.stdout.lines().filter_map(|it| it.split(' ').next()).collect();
    assert_eq!(names, ["CALL", "echo", "open", "open-any", "get", "", "open"], "{}", ran.stdout);
    assert!(ran.stdout.contains("get / echo"), "{}", ran.stdout);
    assert_eq!(of_folder(folder.path()), vec![], "processes are left");
}

/// Runs a bench that starts clusters of its own; gives its document. Fails when a process is left.
async fn own_cluster(folder: &TestFolder, line: &[&str]) -> Value {
    let ran = ringctl_in(folder, &[&["bench"], line, &["-o", "json"]].concat()).await;
    let document = serde_json::from_str(one_line(&ran)).unwrap();
    assert_eq!(of_folder(folder.path()), vec![], "processes are left after {line:?}");
    document
}

/// Fails unless the rounds lost nothing, ran nothing twice, and were measured.
fn nothing_was_lost(document: &Value, fault: &str, rounds: u64) {
    assert_eq!(
        (&document["fault"], &document["rounds"], document["times"].as_array().map(Vec::len)),
        (&fault.into(), &rounds.into(), usize::try_from(rounds).ok())
    );
    for field in ["lost", "duplicates"] {
        assert_eq!(document[field], 0, "{field} in {document}");
    }
    assert_eq!(document["background"]["failed"], 0, "{document}");
    assert!(document["measured"].as_u64() >= Some(rounds), "{document}");
    let times = ["p50_ms", "p99_ms", "all_served_ms"].map(|it| document[it].as_f64().unwrap());
    assert!(0.0 < times[0] && times[0] <= times[1] && times[1] <= times[2], "{document}");
    let struck: Vec<&Value> =
        document["times"].as_array().unwrap().iter().map(|it| &it["number"]).collect();
    assert_eq!(struck.last(), Some(&&document["killed"]["number"]), "{document}");
}

#[tokio::test(flavor = "multi_thread")]
async fn bench_nodes_tells_what_renewals_cost_and_opens_among_many_nodes() {
    let folder = TestFolder::new();
    let line = ["nodes", "--nodes", "3", "--sessions", "10", "--managers", "3", "--rest", "1s"];
    let document = own_cluster(&folder, &line).await;
    assert_eq!((&document["managers"], &document["renewals_per_s"]), (&3.into(), &3.0.into()));
    let rests = document["rests"].as_array().expect("a list");
    let of =
        |field: &str| -> Vec<u64> { rests.iter().filter_map(|it| it[field].as_u64()).collect() };
    assert_eq!((of("nodes"), of("sessions")), (vec![1, 3, 3], vec![0, 0, 30]), "{document}");
    for rest in rests {
        for field in ["manager_cores", "loopback_kib_per_s", "manager_rss_max_mib"] {
            assert!(rest[field].as_f64() > Some(0.0), "{field} in {document}");
        }
    }
    let opens = &document["opens"];
    let [p50, p99] = ["p50_ms", "p99_ms"].map(|it| opens[it].as_f64().expect("a number"));
    assert!(0.0 < p50 && p50 <= p99 && opens["count"] == 30, "{document}");
    // A node has 14 places, so thirty sessions need three of them.
    assert_eq!(
        (&opens["nodes_used"], opens["fullest_node"].as_u64() <= Some(14)),
        (&3.into(), true)
    );
}

const FEW: [&str; 6] = ["--sessions", "24", "--concurrency", "4", "--rate", "100"];

#[tokio::test(flavor = "multi_thread")]
async fn bench_failover_kills_or_stops_one_manager_after_the_other_and_loses_nothing() {
    let folder = TestFolder::new();
    let line = [&["failover", "--kill", "--rounds", "2"], &FEW[..]].concat();
    let killed = own_cluster(&folder, &line).await;
    nothing_was_lost(&killed, "kill", 2);
    assert_ne!(killed["times"][0]["number"], killed["times"][1]["number"], "{killed}");
    let line = [&["failover", "--stop"], &FEW[..]].concat();
    nothing_was_lost(&own_cluster(&folder, &line).await, "stop", 1);
    let ran = ringctl_in(&folder, &["bench", "failover", "--kill", "--stop"]).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{}", ran.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn bench_failover_over_consul_measures_the_same() {
    let folder = TestFolder::new();
    let line = [&["failover", "--consul"], &FEW[..]].concat();
    let document = own_cluster(&folder, &line).await;
    assert_eq!(document["consul"], true);
    nothing_was_lost(&document, "kill", 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn bench_failover_by_the_signal_of_consul_alone_measures_from_its_check_on() {
    let folder = TestFolder::new();
    let alone = ["failover", "--stop", "--consul", "--signal-alone"];
    let document = own_cluster(&folder, &[&alone[..], &FEW[..]].concat()).await;
    nothing_was_lost(&document, "stop", 1);
    let figure = |it: &str| document[it].as_f64().unwrap();
    assert!(document["times"][0]["detected_ms"].as_f64() > Some(0.0), "{document}");
    assert!(figure("after_detection_p50_ms") <= figure("after_detection_p99_ms"), "{document}");
    assert!(figure("after_detection_p99_ms") < figure("p99_ms"), "{document}");
    let ran = ringctl_in(&folder, &["bench", "failover", "--stop", "--signal-alone"]).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{}", ran.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn bench_join_measures_a_join_a_restore_and_a_leave_and_no_request_fails() {
    let folder = TestFolder::new();
    let line = ["join", "--managers", "4", "--sessions", "200", "--replicas", "2"];
    let document = own_cluster(&folder, &[&line[..], &["--rate", "50"]].concat()).await;
    for (field, value) in [("managers", 4), ("sessions", 200), ("replicas", 2)] {
        assert_eq!(document[field], value, "{field} in {document}");
    }
    for kind in ["", "restore_", "leave_"] {
        let figure = |it: &str| document[format!("{kind}{it}")].as_f64().unwrap();
        assert!(figure("seconds") > 0.0 && figure("longest_gap_ms") > 0.0, "{document}");
        assert!((figure("failed_requests")).abs() < 0.5, "{document}");
        assert!(figure("requests") > 0.0, "{document}");
        // A few of them may have come while it was measured.
        assert!(figure("documents_minimum") > 50.0, "{document}");
        assert!(figure("documents_moved") > figure("documents_minimum") - 10.0, "{document}");
        assert!(figure("bytes_moved") > figure("bytes_minimum") * 0.9, "{document}");
    }
    assert_ne!(document["number"], document["restore_number"], "{document}");
    assert_eq!(document["number"], document["leave_number"], "{document}");
    for field in ["stream_seconds", "restore_to_stream"] {
        assert!(document[field].as_f64() > Some(0.0), "{field} in {document}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bench_grow_tells_the_cost_of_an_open_in_rings_of_several_sizes() {
    let folder = TestFolder::new();
    let line = ["grow", "--managers", "2,4", "--replicas", "0,3", "--sessions", "300"];
    let document = own_cluster(&folder, &[&line[..], &["--rest", "300ms"]].concat()).await;
    let rows = document["rows"].as_array().cloned().unwrap_or_default();
    let sizes: Vec<_> =
        rows.iter().map(|it| (it["managers"].as_u64(), it["replicas"].as_u64())).collect();
    assert_eq!(sizes, [(2, 0), (4, 0), (4, 3)].map(|(n, r)| (Some(n), Some(r))));
    for row in &rows {
        for field in ["cpu_us_per_open_with_rest", "per_s", "ready_seconds"] {
            assert!(row[field].as_f64() > Some(0.0), "{field} in {row}");
        }
    }
    // So many begin in a second at each manager, and no more.
    let line = ["grow", "--managers", "2", "--sessions", "60", "--rate-per-manager", "20"];
    let line = [&line[..], &["--replicas", "1", "--rest", "300ms"]].concat();
    let document = own_cluster(&folder, &line).await;
    let per_s = document["rows"][0]["per_s"].as_f64();
    assert!(per_s > Some(0.0) && per_s < Some(41.0), "{document}");
    let line = ["bench", "grow", "--managers", "2", "--replicas", "2"];
    let ran = ringctl_in(&folder, &line).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{}", ran.stderr);
    assert!(ran.stderr.contains("--replicas"), "{}", ran.stderr);
}

#[tokio::test]
async fn a_bench_that_cannot_be_is_told_with_its_exit_code() {
    let nobody = "127.0.0.1:1";
    for command in ["open", "get"] {
        let error = ringctl(nobody, &["bench", command, "-o", "json"]).await.error();
        assert_eq!(error["reason"], "UNREACHABLE", "{error}");
        for wrong in [["--concurrency", "0"], ["--duration", "0s"], ["--connections", "65"]] {
            let ran = ringctl(nobody, &[&["bench", command], &wrong[..]].concat()).await;
            assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{}", ran.stderr);
            assert!(ran.stderr.contains(wrong[0]), "{}", ran.stderr);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bench_memory_and_cold_tell_what_a_session_costs_and_how_soon_a_program_answers() {
    let folder = TestFolder::new();
    let memory = own_cluster(&folder, &["memory", "--sessions", "50"]).await;
    assert_eq!(
        (&memory["sessions"], memory["managers"].as_array().map(Vec::len)),
        (&50.into(), Some(3))
    );
    for field in ["rss_max_mib", "disk_bytes_per_session"] {
        assert!(memory[field].as_f64() > Some(0.0), "{field} in {memory}");
    }
    let classes = checkout().join("deploy/classes").display().to_string();
    let cold = own_cluster(&folder, &["cold", "--runs", "2", "--classes", &classes]).await;
    for time in [&cold["bare"]["p50_ms"], &cold["answered"]["p50_ms"], &cold["ratio"]] {
        assert!(time.as_f64() > Some(0.0), "{cold}");
    }
    assert_eq!((&cold["class"], &cold["runs"]), (&"http".into(), &2.into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn bench_tasks_tells_how_many_are_started_how_late_and_that_none_is_lost_or_doubled() {
    let folder = TestFolder::new();
    let line = ["tasks", "--tasks", "40", "--paced", "20", "--waiting", "100", "--managers", "2"];
    let document = own_cluster(&folder, &line).await;
    for (field, value) in [("tasks", 40), ("paced", 20), ("waiting", 100), ("lost", 0)] {
        assert_eq!(document[field], value, "{field} in {document}");
    }
    assert_eq!(document["doubled"], 0, "{document}");
    for field in ["started_per_s", "late_p50_ms", "late_p99_ms", "late_max_ms"] {
        assert!(document[field].as_f64() > Some(0.0), "{field} in {document}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bench_search_tells_the_time_of_a_first_page_for_which_no_more_is_read_than_found() {
    let folder = TestFolder::new();
    let document = own_cluster(&folder, &["search", "--documents", "320", "--matches", "10"]).await;
    for (field, value) in [("documents", 320), ("matches", 10), ("documents_read", 10)] {
        assert_eq!(document[field], value, "{field} in {document}");
    }
    for field in ["first_page_ms", "ring_first_page_ms"] {
        assert!(document[field].as_f64() > Some(0.0), "{field} in {document}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bench_timers_tells_what_a_timer_takes_how_late_marks_are_and_what_a_keep_alive_costs() {
    let folder = TestFolder::new();
    let line = ["timers", "--sessions", "60", "--together", "40", "--duration", "500ms"];
    let line = [&line[..], &["--actions", "40"]].concat();
    let document = own_cluster(&folder, &[&line[..], &["--keep-alives", "6000"]].concat()).await;
    for (field, value) in [("sessions", 60), ("timers", 120), ("marks_due_together", 40)] {
        assert_eq!(document[field], value, "{field} in {document}");
    }
    let figure = |it: &str| document[it].as_f64().unwrap_or_else(|| panic!("{it}: {document}"));
    for field in ["late_p99_ms", "keep_alives_per_s", "serve_after_restart_ms", "actions_per_s"] {
        assert!(figure(field) > 0.0, "{field} in {document}");
    }
    assert!(figure("late_p50_ms") <= figure("late_p99_ms"), "{document}");
    // Differences of a short run may be anything.
    assert!(figure("bytes_per_timer").is_finite() && figure("keep_alive_cpu_us").is_finite());
}

#[tokio::test(flavor = "multi_thread")]
async fn bench_content_tells_what_all_files_take_and_a_few_and_none() {
    let folder = TestFolder::new();
    let line = ["content", "--files", "40", "--mib", "1", "--changed", "2", "--managers", "1"];
    let document = own_cluster(&folder, &line).await;
    for (field, value) in [("files", 40), ("mib", 1)] {
        assert_eq!(document[field], value, "{field} in {document}");
    }
    for field in ["publish_ms", "publish_changed_ms", "full_ms", "changed_ms", "unchanged_ms"] {
        assert!(document[field].as_f64() > Some(0.0), "{field} in {document}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bench_burst_packing_and_adopt_tell_their_figures_and_lose_nothing() {
    let folder = TestFolder::new();
    let line = ["burst", "--sessions", "24", "--places", "4", "--managers", "2"];
    let burst = own_cluster(&folder, &line).await;
    assert_eq!((&burst["failed"], &burst["nodes_needed"]), (&0.into(), &6.into()), "{burst}");
    assert!(burst["nodes_started"].as_u64() >= Some(6), "{burst}");
    let packing = own_cluster(&folder, &["packing", "--sessions", "2000"]).await;
    let ratio = packing["ratio_to_best_fit"].as_f64();
    assert!(ratio > Some(0.9) && ratio < Some(1.1), "{packing}");
    assert!(packing["refused"].as_u64() > Some(0), "{packing}");
    let adopt = own_cluster(&folder, &["adopt", "--sessions", "5", "--managers", "1"]).await;
    assert_eq!((&adopt["adopted"], &adopt["lost"]), (&5.into(), &0.into()), "{adopt}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_bench_of_the_storage_tells_each_figure_by_its_name() {
    let folder = TestFolder::new();
    let place = folder.at("data");
    std::fs::create_dir_all(&place).unwrap();
    let small = ["-o", "json", "--rounds", "1", "--millis", "200", "--before", "256"];
    let line = [&small[..], &["--documents", "300", "--folder", &place]].concat();
    let ended = run_to_end("examples/bench", &line).await;
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let figures: Value = serde_json::from_str(&ended.stdout).unwrap();
    let figures = figures.as_object().unwrap();
    let mut names: Vec<&str> = figures.keys().map(String::as_str).collect();
    names.sort_unstable();
    let mut expected = vec!["by_hand_per_s", "bytes_per_document", "memory_per_document"];
    expected.extend(["open_after_kill_ms", "ops_per_s", "ratio_256", "raw_append_per_s"]);
    expected.extend(["scan_30000_ms", "sync_unchanged_us"]);
    assert_eq!(names, expected);
    for (name, figure) in figures {
        let by_callers = ["by_hand_per_s", "ops_per_s"].contains(&name.as_str());
        let of = |it: &Value| it.as_f64().unwrap_or_else(|| panic!("{name}: {it}"));
        if by_callers {
            let callers: Vec<&String> = figure.as_object().unwrap().keys().collect();
            assert_eq!(callers, ["1", "16", "256"], "{name}");
            assert!(
                figure.as_object().unwrap().values().all(|it| of(it) > 0.0),
                "{name}: {figure}"
            );
        } else {
            assert!(of(figure) >= 0.0, "{name}: {figure}");
        }
    }
}
