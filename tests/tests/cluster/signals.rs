//! Every process ends in good order when it is asked to, whoever still uses it.

use rota_client::{WatchOptions, v1};
use rota_tests::sessions::opened;
use rota_tests::{Cluster, PATIENCE, TestFolder, eventually, processes};
use rustix::process::Signal;
use tokio::time::timeout;

/// Sends the signal and waits until `ringctl dev` tells that the process ended well.
async fn ends_well(cluster: &Cluster, folder: &TestFolder, pid: u32, signal: Signal) {
    processes::send(pid, signal);
    let wanted = format!("(pid {pid}) ended with exit code 0");
    eventually(&format!("{wanted} after {signal:?}"), PATIENCE, async || {
        let log = std::fs::read_to_string(folder.at("dev.log")).unwrap_or_default();
        if log.contains(&wanted) { Ok(()) } else { Err(log) }
    })
    .await;
    assert!(cluster.processes().iter().all(|it| it.pid != pid));
}

#[tokio::test(flavor = "multi_thread")]
async fn each_process_ends_well_on_each_signal_while_clients_hold_watches_and_sessions_run() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let folder = TestFolder::new();
        let cluster = Cluster::start(&folder, &[]).await;
        let mut watches = Vec::new();
        for client in cluster.clients() {
            let request = v1::WatchRequest::default();
            let mut watch = client.watch(request, WatchOptions::default());
            timeout(PATIENCE, watch.next()).await.expect("it begins").expect("it is served");
            watches.push(watch);
        }
        opened(&cluster.client(), "program", "http").await;
        opened(&cluster.client(), "machine", "counter").await;
        let document = &cluster.document;
        // Nodes take a hang-up for a wish to read their classes again.
        let for_nodes = if signal == Signal::HUP { Signal::TERM } else { signal };
        for pid in document.nodes.iter().map(|it| it.pid) {
            ends_well(&cluster, &folder, pid, for_nodes).await;
        }
        let managers = document.managers.iter().map(|it| it.pid);
        for pid in managers.chain([document.config_store.pid]) {
            ends_well(&cluster, &folder, pid, signal).await;
        }
        assert_eq!(cluster.processes().len(), 1, "only ringctl dev is left");
        drop(watches);
        cluster.end().await;
    }
}
