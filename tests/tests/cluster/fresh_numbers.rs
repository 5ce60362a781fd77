//! Numbers that are taken anew: those that have left, by managers of any name.

use rota_tests::ringctl;
use rota_tests::small::{Small, join, manager, ring};

#[tokio::test(flavor = "multi_thread")]
async fn ten_managers_come_and_go_in_a_ring_for_three_and_the_next_still_finds_room() {
    let small = Small::start().await;
    let contact = small.first.told("grpc").to_owned();
    let mut before: Option<u64> = None;
    for index in 0..10 {
        let newcomer = small.waiting(&format!("fresh-{index}"), &[]).await;
        let joined = join(&newcomer, "auto", &contact, &["--wait"]).await.json();
        let number = joined["number"].as_u64().unwrap();
        let shown = manager(&ring(&contact).await.unwrap(), number);
        assert_eq!(shown["id"], format!("fresh-{index}"));
        if let Some(before) = before.replace(number) {
            // The number that the one before gave back.
            assert_eq!((number, &shown["incarnation"]), (before, &(index + 1).into()));
        }
        let leave = ["leave", "--number", &number.to_string(), "--wait", "-o", "json"];
        assert_eq!(ringctl(&contact, &leave).await.json()["state"], "left");
        assert_eq!(newcomer.ended().await, Some(0));
    }
    small.end(vec![]).await;
}
