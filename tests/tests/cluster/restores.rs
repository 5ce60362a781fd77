//! Lost managers that are recreated by a command: once for each loss, over a real Consul.

use crate::consul::{Watching, consul, signal_with, signalled, until_instances};
use rota_tests::sessions::{opened, read};
use rota_tests::small::{manager, ring};
use rota_tests::{Cluster, Launched, PATIENCE, TestFolder, eventually, processes};
use rustix::process::Signal;
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;

/// Waits until all three managers are registered with Consul.
async fn cluster_of_three(folder: &TestFolder) -> Cluster {
    let cluster = Cluster::start(folder, &["--consul"]).await;
    let all = [("1023", true), ("340", true), ("681", true)];
    until_instances(&cluster, "rota-manager", &all).await;
    cluster
}

/// The command line of a member, as far as it must be the same at all.
fn common_options(cluster: &Cluster) -> String {
    let line = processes::process(cluster.document.managers[0].pid).unwrap().line;
    let is_common = |word: &str| ["--slots", "--replicas", "--managers-max"].contains(&word);
    let pairs = line.windows(2).filter(|it| is_common(&it[0]));
    pairs.map(|it| it.join(" ")).collect::<Vec<_>>().join(" ")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_watch_with_the_example_recreates_a_lost_manager_on_an_empty_folder() {
    let folder = TestFolder::new();
    let cluster = cluster_of_three(&folder).await;
    for number in 0..9 {
        opened(&cluster.client(), &format!("s{number}"), "counter").await;
    }
    let store = cluster.document.config_store.address.clone();
    let variables = [
        ("ROTA_CONSUL", store),
        ("ROTA_RESTORE_DATA", folder.at("restored")),
        ("ROTA_RESTORE_OPTIONS", common_options(&cluster)),
    ];
    let watching = Watching::start(&folder, &cluster, "restore.hcl", &variables).await;
    cluster.kill_manager(1).await;
    let said = signalled(&folder, |it| !it["restores"][0].is_null()).await;
    let restored = &said["restores"][0];
    assert_eq!((&restored["outcome"], &restored["number"]), (&"restored".into(), &681.into()));
    let others =
        format!("{},{}", cluster.document.managers[0].grpc, cluster.document.managers[2].grpc);
    let again = manager(&ring(&others).await.unwrap(), 681);
    assert_eq!((&again["status"], &again["incarnation"]), (&"ACTIVE".into(), &2.into()));
    let before = cluster.document.managers[1].grpc.as_str();
    assert_eq!(again["grpc"], before, "lists of endpoints stay right");
    for number in 0..9 {
        read(&cluster.client_of(0), &format!("s{number}")).await.unwrap();
    }
    watching.end().await;
    let of_restored = processes::of_folder(folder.path());
    let of_restored: Vec<_> =
        of_restored.iter().filter(|it| it.line.contains(&"--join".to_owned())).collect();
    assert_eq!(of_restored.len(), 1, "one manager was started: {of_restored:?}");
    of_restored[0].signal(Signal::TERM);
    eventually("the restored manager ends", PATIENCE, async || {
        if of_restored[0].runs() { Err("it runs".to_owned()) } else { Ok(()) }
    })
    .await;
    cluster.end().await;
}

/// A restore command that notes each run in the file `runs`, and then does this.
fn command(folder: &TestFolder, then: &str) -> String {
    let path = folder.at("command");
    let script = format!(
        "#!/bin/sh\necho \"$ROTA_CLUSTER $ROTA_NUMBER $ROTA_ID $ROTA_INCARNATION $ROTA_ATTEMPT\" \
         >>{}\n{then}\n",
        folder.at("runs")
    );
    // A new file each time: one that runs cannot be written.
    let new = folder.at("command.new");
    std::fs::write(&new, script).unwrap();
    std::fs::set_permissions(&new, PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::rename(&new, &path).unwrap();
    path
}

fn runs(folder: &TestFolder) -> Vec<String> {
    let text = std::fs::read_to_string(folder.at("runs")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Runs the handler with what Consul shows now; gives its exit code and what it says of the only loss.
async fn handled(cluster: &Cluster, command: &str, more: &[&str]) -> (Option<i32>, Value, String) {
    let shown = consul(cluster, "/v1/health/service/rota-manager").await.unwrap();
    let store = &cluster.document.config_store.address;
    let options = ["--restore-command", command, "--consul", store, "--restore-after", "1ms"];
    let (code, stdout, stderr) = signal_with(&shown.to_string(), &[&options, more].concat()).await;
    let said: Value = serde_json::from_str(&stdout).unwrap_or_default();
    (code, said["restores"][0].clone(), stderr)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_command_runs_once_for_each_loss_and_again_only_after_it_failed() {
    let folder = TestFolder::new();
    let cluster = cluster_of_three(&folder).await;
    let (code, nothing, _) = handled(&cluster, &command(&folder, "exit 0"), &[]).await;
    assert_eq!((code, nothing), (Some(0), Value::Null), "nobody is lost");

    let line = processes::process(cluster.document.managers[1].pid).unwrap().line;
    cluster.kill_manager(1).await;
    let gone = [("1023", true), ("340", true), ("681", false)];
    until_instances(&cluster, "rota-manager", &gone).await;
    // It fails, and says so; the next handler runs it again.
    let (code, failed, stderr) = handled(&cluster, &command(&folder, "exit 7"), &[]).await;
    assert_eq!((code, &failed["outcome"]), (Some(1), &"failed".into()), "{failed}");
    assert_eq!((&failed["exit_code"], &failed["attempt"]), (&7.into(), &1.into()));
    assert!(stderr.contains("runs it again"), "{stderr}");
    // It hangs, with a child of its own, and is ended at its deadline.
    let hangs = command(&folder, "(trap '' TERM; sleep 600) & sleep 600");
    let (code, failed, _) = handled(&cluster, &hangs, &["--restore-timeout", "300ms"]).await;
    assert_eq!((code, &failed["attempt"]), (Some(1), &2.into()), "{failed}");
    assert!(failed["why"].as_str().unwrap().contains("did not end within"), "{failed}");
    eventually("nothing of it runs", PATIENCE, async || {
        let left = processes::of_folder(folder.path());
        let hangs = left.iter().any(|it| it.line.contains(&"600".to_owned()));
        if hangs { Err(format!("{left:?}")) } else { Ok(()) }
    })
    .await;
    // Many handlers at once: one run.
    let works = command(&folder, "exit 0");
    let all = tokio::join!(
        handled(&cluster, &works, &[]),
        handled(&cluster, &works, &[]),
        handled(&cluster, &works, &[]),
    );
    let outcomes = [all.0, all.1, all.2].map(|(code, restore, _)| {
        assert_eq!(code, Some(0), "{restore}");
        restore["outcome"].as_str().unwrap().to_owned()
    });
    let ran = outcomes.iter().filter(|it| *it == "restored").count();
    assert_eq!(ran, 1, "{outcomes:?}");
    let (_, again, _) = handled(&cluster, &works, &[]).await;
    assert_eq!(again["outcome"], "restored_before");
    let name = consul(&cluster, "/v1/kv/rota/state?raw").await.unwrap()["view"]["cluster"].clone();
    let run = |attempt| format!("{} 681 m2 1 {attempt}", name.as_str().unwrap());
    assert_eq!(runs(&folder), [run(1), run(2), run(3)]);

    // Another run of it is another loss.
    let again = Launched::again(&folder, "m2-again", &line).await;
    until_instances(&cluster, "rota-manager", &[("1023", true), ("340", true), ("681", true)])
        .await;
    again.kill().await;
    until_instances(&cluster, "rota-manager", &gone).await;
    let (_, restored, _) = handled(&cluster, &works, &[]).await;
    assert_eq!(restored["outcome"], "restored", "{restored}");
    assert_eq!(runs(&folder).len(), 4);
    assert!(restored["incarnation"].as_u64() > Some(1), "{restored}");
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_restore_command_runs_for_a_manager_that_only_looks_gone_or_without_consul() {
    let folder = TestFolder::new();
    let cluster = cluster_of_three(&folder).await;
    let works = command(&folder, "exit 0");
    let shown = consul(&cluster, "/v1/health/service/rota-manager").await.unwrap();
    // What is wrong with the command is told at each run.
    let missing = folder.at("no-such-command");
    let (code, stdout, stderr) =
        signal_with(&shown.to_string(), &["--restore-command", &missing]).await;
    let said: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((code, &said["gone"]), (Some(2), &Value::Array(Vec::new())), "{stderr}");
    assert!(stderr.contains("--restore-command") && stderr.contains(&missing), "{stderr}");
    // Consul finds it critical, and its peers hear it: it comes back as the run that it was.
    let critical = shown.to_string().replacen("\"passing\"", "\"critical\"", 1);
    let store = &cluster.document.config_store.address;
    let options = ["--restore-command", &works, "--consul", store, "--restore-after", "1ms"];
    let soon = [&options[..], &["--restore-wait", "2s"]].concat();
    let (code, stdout, stderr) = signal_with(&critical, &soon).await;
    let said: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(said["restores"][0]["outcome"], "not_lost", "{said} {stderr}");
    assert_eq!((code, runs(&folder)), (Some(0), Vec::new()));

    cluster.kill_manager(1).await;
    let gone = [("1023", true), ("340", true), ("681", false)];
    until_instances(&cluster, "rota-manager", &gone).await;
    let shown = consul(&cluster, "/v1/health/service/rota-manager").await.unwrap().to_string();
    let options = ["--restore-command", &works, "--consul", "consul://127.0.0.1:1/rota"];
    let options = [&options[..], &["--restore-after", "1ms"]].concat();
    let (code, stdout, stderr) = signal_with(&shown, &options).await;
    let said: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((code, &said["restores"][0]["outcome"]), (Some(1), &"not_run".into()), "{stderr}");
    assert_eq!(runs(&folder), Vec::<String>::new());
    let options = ["--restore-command", &works, "--consul", "127.0.0.1:1"];
    let (code, _, stderr) = signal_with(&shown, &options).await;
    assert_eq!(code, Some(2));
    assert!(stderr.contains("--consul") && stderr.contains("consul://HOST:PORT"), "{stderr}");
    // It silences no signal.
    let (code, stdout, stderr) = signal_with(&shown, &["--restore-command", &missing]).await;
    let said: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((code, said["told"].as_array().map(Vec::len)), (Some(2), Some(2)), "{stderr}");
    cluster.end().await;
}
