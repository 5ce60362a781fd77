//! What decisions cost as the ring grows: processor time of an open over all managers, and of a turn (an
//! input and a flush) of a manager at rest. Neither may grow with the number of managers, beyond what
//! caches do:
//!
//! ```text
//! cargo run --release -p rota-protocol --example ring_sizes
//! ```
//! The managers sit around one table, which costs the same in each ring, so what is shown is flatter
//! than the decisions alone.

#[allow(
    dead_code,
    unused_imports,
    clippy::unwrap_used,
    reason = "tests use the rest, and may panic"
)]
#[path = "../tests/table/mod.rs"]
mod table;

use rustix::time::{ClockId, clock_gettime};
use table::{Table, open, opened};

const OPENS: u32 = 2_000;
const REST_MS: u64 = 5_000;
/// Until all have claimed their numbers, one after the other.
const SETTLED_MS: u64 = 20_000;

/// Microseconds of processor time that this process has used.
fn used_us() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

/// What it cost in microseconds, and how many turns it took.
fn measure(table: &mut Table, work: impl FnOnce(&mut Table)) -> (f64, u64) {
    let (before, turns) = (used_us(), table.turns);
    work(table);
    (used_us() - before, table.turns - turns)
}

fn main() {
    println!("MANAGERS  US PER OPEN  TURNS PER OPEN  US PER TURN  US PER TURN AT REST");
    for managers in [3_u32, 10, 30, 100] {
        let numbers: Vec<u32> = (1..=managers).map(|it| it * 1_024 / managers - 1).collect();
        let mut table = Table::laid_among(&numbers, 2);
        table.places = u32::MAX;
        table.start_all();
        table.pass(SETTLED_MS);
        table.register("n1", 7);
        let entry = |index: u32| numbers[index as usize % numbers.len()];
        let open_all = |table: &mut Table, word: &str| {
            for index in 0..OPENS {
                let call = table.ask(entry(index), open(&format!("{word}{index}"), "r"));
                let result = table.wait_for(call, 1_000);
                let _: (_, _) = opened(result);
                table.node_calls.clear();
            }
        };
        open_all(&mut table, "warm");
        let (us, turns) = measure(&mut table, |table| open_all(table, "s"));
        let (rest_us, rest_turns) = measure(&mut table, |table| table.pass(REST_MS));
        println!(
            "{managers:8}  {:11.1}  {:14.1}  {:11.2}  {:19.2}",
            us / f64::from(OPENS),
            turns as f64 / f64::from(OPENS),
            us / turns as f64,
            rest_us / rest_turns as f64,
        );
    }
}
