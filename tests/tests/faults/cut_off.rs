//! Each manager is a computer of its own, and its cable is cut; or works one way only.

use crate::rounds::rounds;

use rota_tests::namespaces::{Network, own_namespaces};
use rota_tests::recorded::{Load, Recording};
use rota_tests::sessions::read;
use rota_tests::{Assembled, Leases, Places};
use std::time::{Duration, Instant};

/// Until a session of the manager that was cut off is served elsewhere: others are patient for a second, and
/// the goal is two. A busy machine takes longer; what it took is printed, and this only says that it ends.
const SERVED: Duration = Duration::from_secs(15);

/// What is done to a cable, and what undoes it.
type Cut = (fn(&Network, usize), fn(&Network, usize));

/// A session that the victim owns, opened through another manager.
async fn session_of(
    cluster: &Assembled,
    reader: &Recording,
    victim: usize,
    round: usize,
) -> String {
    let client = cluster.client_of((victim + 1) % cluster.managers());
    for number in 0..1_000 {
        let id = format!("cut-{round}-{number}");
        reader.open(&id, "counter").await;
        let owner = read(&client, &id).await.expect("it was opened").owner;
        if u64::from(owner) == cluster.number_of(victim) {
            return id;
        }
        // Nodes have places for a few more than the load only.
        reader.close(&id, None).await;
    }
    panic!("manager {victim} owns none of 1,000 sessions");
}

/// Cuts, and measures how long nobody serves what the victim owned.
async fn served_after(
    cluster: &Assembled,
    load: &Load,
    victim: usize,
    round: usize,
    cut: impl FnOnce(),
) -> Duration {
    let other = cluster.client_of((victim + 1) % cluster.managers());
    let reader = Recording::new(other, 900, &load.book);
    let id = session_of(cluster, &reader, victim, round).await;
    cut();
    let began = Instant::now();
    reader.open(&id, "counter").await.expect("it is served in the end");
    let served = began.elapsed();
    reader.close(&id, None).await;
    served
}

async fn cutting(test: &str, (cut, mend): Cut) {
    if !own_namespaces(test) {
        return;
    }
    let network = Network::of(3);
    let places = Places {
        servers: vec![Network::HERE],
        nodes: Network::HERE,
        managers: [0, 1, 2].map(|it| network.ip(it)),
        through: [0, 1, 2].map(|it| network.through(it)),
        leases: Leases::Usual,
    };
    rounds(&places, async |cluster, load, round| {
        let victim = round % cluster.managers();
        let served = served_after(cluster, load, victim, round, || cut(&network, victim)).await;
        eprintln!(
            "round {round}: from the cut to the first served open: {} ms",
            served.as_millis()
        );
        assert!(served < SERVED, "{served:?}");
        cluster.is_missed(victim).await;
        load.more(100).await;
        mend(&network, victim);
        load.more(100).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn managers_whose_cable_is_cut_and_mended_break_no_promise() {
    let test = "cut_off::managers_whose_cable_is_cut_and_mended_break_no_promise";
    cutting(test, (Network::cut, Network::mend)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn managers_that_nobody_hears_break_no_promise() {
    let test = "cut_off::managers_that_nobody_hears_break_no_promise";
    cutting(test, (Network::mute, Network::unmute)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn managers_that_hear_nobody_break_no_promise() {
    let test = "cut_off::managers_that_hear_nobody_break_no_promise";
    cutting(test, (Network::deafen, Network::undeafen)).await;
}
