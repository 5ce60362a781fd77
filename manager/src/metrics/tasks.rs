//! What is told of tasks: how many of each queue are in which state.

use super::{Look, SERVING};
use rota_protocol::TaskStats;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

/// Tasks are told by the owner of their partition alone, so that a sum over managers counts each once. Those that are late
/// do not count as waiting, so that a sum over states counts each once, too.
pub(super) fn write(text: &mut String, look: &Look) -> std::fmt::Result {
    let mut queues: BTreeMap<u8, TaskStats> = BTreeMap::new();
    let served = look.stats.parts.iter().filter(|it| it.role == SERVING);
    for (queue, it) in served.flat_map(|it| &it.tasks) {
        let sum = queues.entry(*queue).or_default();
        sum.counts = sum.counts.plus(it.counts);
        sum.late += it.late;
    }
    writeln!(
        text,
        "# HELP rota_tasks Tasks of partitions that this manager owns, by queue and state."
    )?;
    writeln!(text, "# TYPE rota_tasks gauge")?;
    for (queue, TaskStats { counts, late }) in queues {
        for (state, count) in [
            ("waiting", counts.waiting.saturating_sub(late)),
            ("late", late),
            ("running", counts.running),
            ("parked", counts.parked),
            ("paused", counts.paused),
        ] {
            writeln!(text, "rota_tasks{{queue=\"{queue}\",state=\"{state}\"}} {count}")?;
        }
    }
    let served = look.stats.parts.iter().filter(|it| it.role == SERVING);
    let lag = served.map(|it| it.copy_lag_ms).max().unwrap_or(0);
    let lag = Duration::from_millis(lag).as_secs_f64();
    writeln!(
        text,
        "# HELP rota_copy_lag_seconds Age of the oldest change that has not reached all deferred copies."
    )?;
    writeln!(text, "# TYPE rota_copy_lag_seconds gauge\nrota_copy_lag_seconds {lag}")
}

#[cfg(test)]
mod tests {
    use super::super::tests::{look, part};
    use super::*;
    use rota_protocol::{PartitionStats, Stats};

    #[test]
    fn tasks_are_told_by_the_owners_of_their_partitions_each_once() {
        let with = |number, role, queue| {
            let mut tasks = TaskStats { late: 2, ..TaskStats::default() };
            (tasks.counts.waiting, tasks.counts.parked) = (5, 1);
            let copy_lag_ms = u64::from(number) * 15;
            PartitionStats { tasks: [(queue, tasks)].into(), copy_lag_ms, ..part(number, role) }
        };
        let parts = vec![with(100, "serving", 0), with(400, "serving", 0), with(700, "copy", 1)];
        let mut text = String::new();
        write(&mut text, &look(Stats { parts, ..Stats::default() })).unwrap();
        let lines: Vec<_> = text.lines().filter(|it| it.starts_with("rota_tasks{")).collect();
        let expected = [("waiting", 6), ("late", 4), ("running", 0), ("parked", 2), ("paused", 0)]
            .map(|(state, count)| format!("rota_tasks{{queue=\"0\",state=\"{state}\"}} {count}"));
        assert_eq!(lines, expected);
        assert!(text.ends_with("\nrota_copy_lag_seconds 6\n"), "{text}");
    }
}
