//! Rounds of one fault: before, during and after them some hundred calls a second are recorded; at the
//! end everything must have been linearizable, and nothing may have run twice.

use rota_sim::ledger::EndCause;
use rota_tests::recorded::{Book, Classes, Load, Recording, judge, now_us};
use rota_tests::{Assembled, Places};

/// How many rounds each fault gets: ROTA_FAULT_ROUNDS, else one.
pub fn wanted() -> usize {
    let text = std::env::var("ROTA_FAULT_ROUNDS").unwrap_or_else(|_| "1".to_owned());
    let rounds = text.parse().ok().filter(|it| *it > 0);
    rounds.unwrap_or_else(|| panic!("ROTA_FAULT_ROUNDS is {text:?}; it must be a number from 1"))
}

/// Starts a cluster and the load, makes the fault in each round and mends it, and checks everything.
pub async fn rounds(places: &Places, fault: impl AsyncFnMut(&mut Assembled, &Load, usize)) {
    rounds_of(Classes::Machines, places, fault).await;
}

/// The same with sessions of these classes.
pub async fn rounds_of(
    classes: Classes,
    places: &Places,
    mut fault: impl AsyncFnMut(&mut Assembled, &Load, usize),
) {
    let mut cluster = Assembled::start(places).await;
    let load = Load::start(Book::new(cluster.folder.path()), &cluster.clients(), classes);
    load.more(100).await;
    for round in 0..wanted() {
        load.book.note(&format!("round {round} begins"));
        let began = now_us();
        fault(&mut cluster, &load, round).await;
        load.book.note(&format!("round {round}: the fault is mended"));
        cluster.is_whole().await;
        eprintln!("round {round}: {} ms", (now_us() - began) / 1000);
    }
    load.more(100).await;
    let book = load.stop().await;
    let (answered, ms) = book.answered();
    eprintln!("under load {answered} calls were answered in {ms} ms");
    proves(&cluster, &book).await;
    cluster.end().await;
}

/// Nobody is at work any more: the ring proves itself, every session is read through every manager, and
/// the whole history is judged.
async fn proves(cluster: &Assembled, book: &Book) {
    cluster.verifies().await;
    let mut ids: Vec<String> = book.calls().into_iter().map(|it| it.id).collect();
    ids.sort();
    ids.dedup();
    for at in 0..cluster.managers() {
        let reader = Recording::new(cluster.client_of(at), 1000 + at, book);
        for id in &ids {
            reader.get(id).await;
        }
    }
    let (calls, executions) = (book.calls(), cluster.executions());
    let outages = book.outages();
    let is_lost = |why| matches!(why, EndCause::Lease | EndCause::BootDied);
    let lost = executions.iter().filter(|it| it.instance.to.is_some_and(|(_, why)| is_lost(why)));
    let lost = lost.count();
    let us = calls.last().map_or(0, |it| it.sent_us) - calls.first().map_or(0, |it| it.sent_us);
    eprintln!(
        "{} calls on {} sessions in {} s, {} executions, {lost} lost in {} outages: {:?}",
        calls.len(),
        ids.len(),
        us / 1_000_000,
        executions.len(),
        outages.len(),
        book.tally()
    );
    let (failures, judged) = (book.failures(), judge(&calls, &executions, &outages));
    assert!(
        judged.is_ok() && failures.is_empty(),
        "{judged:?}; who followed the advice: {failures:#?}"
    );
}
