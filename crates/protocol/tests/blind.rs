//! A manager that lives, is heard by the others, and does not reach the config store.

use crate::table::*;
use rota_model::{Outcome, SessionState};
use rota_protocol::Transition;

#[test]
fn whoever_sees_the_config_store_serves_without_one_that_does_not_and_one_that_died() {
    let mut table = Table::serving();
    let [sees, blind, victim] = NUMBERS;
    opened(table.call(sees, open("before", "r1")));
    table.blind = Some(blind);
    table.kill(victim);
    // One that is silent is missed, and then one that is heard and reports nothing.
    table.pass(4_000);
    assert_eq!(table.count(Transition::TakenOut), 2, "{:?}", table.view());
    assert_eq!(got(table.call(sees, get("before"))).record.state, SessionState::Ready);
    let (outcome, _) = opened(table.call(sees, open("meanwhile", "r2")));
    assert_eq!(outcome, Outcome::Created);
    table.blind = None;
    table.start(victim);
    table.pass(5_000);
    for n in NUMBERS {
        assert!(table.view().is_up(rota_model::ManagerNumber(n)), "{:?}", table.view());
        assert_eq!(got(table.call(n, get("meanwhile"))).record.state, SessionState::Ready);
    }
}
