//! Each manager is a computer of its own, and its cable is cut; or works one way only.

use crate::rounds::rounds;

use rota_tests::namespaces::{Network, own_namespaces};
use rota_tests::{Leases, Places};

/// What is done to a cable, and what undoes it.
type Cut = (fn(&Network, usize), fn(&Network, usize));

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
        cut(&network, victim);
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
