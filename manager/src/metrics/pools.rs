//! What is told of pools: their nodes, and who waits for one.

use super::{Look, SERVING};
use rota_model::PoolName;
use rota_ring::slot_of_pool;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Nodes of a pool are told by its owner alone. A session that waits is told by the owner of its partition, so a sum
/// over managers counts each once.
pub(super) fn write(text: &mut String, look: &Look) -> std::fmt::Result {
    let served = || look.stats.parts.iter().filter(|it| it.role == SERVING);
    let is_here = |pool: &PoolName| {
        let home = look.view.as_ref().map(|view| view.home(slot_of_pool(pool, view.m)));
        home.is_some_and(|home| served().any(|it| it.part == home))
    };
    let mut nodes: BTreeMap<(&PoolName, &str), u64> = BTreeMap::new();
    for (reg, _) in look.stats.nodes.iter().filter(|(reg, _)| !reg.state.is_gone()) {
        if is_here(&reg.pool) {
            *nodes.entry((&reg.pool, reg.state.as_str())).or_default() += 1;
        }
    }
    // A pool whose nodes are told here has a line, also while nothing waits.
    let mut waiting: BTreeMap<&PoolName, u64> = nodes.keys().map(|it| (it.0, 0)).collect();
    for (pool, count) in served().flat_map(|it| &it.waiting) {
        *waiting.entry(pool).or_default() += count;
    }
    let name = |it: &PoolName| it.as_str().replace('\\', "\\\\").replace('"', "\\\"");
    writeln!(text, "# HELP rota_pool_nodes Nodes of a pool that are not gone, at its owner.")?;
    writeln!(text, "# TYPE rota_pool_nodes gauge")?;
    for ((pool, state), count) in nodes {
        writeln!(text, "rota_pool_nodes{{pool=\"{}\",state=\"{state}\"}} {count}", name(pool))?;
    }
    writeln!(text, "# HELP rota_pool_waiting Sessions that wait for a node of a pool.")?;
    writeln!(text, "# TYPE rota_pool_waiting gauge")?;
    for (pool, count) in waiting {
        writeln!(text, "rota_pool_waiting{{pool=\"{}\"}} {count}", name(pool))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::tests::{look, part};
    use super::*;
    use rota_protocol::{PartitionStats, Stats};

    #[test]
    fn sessions_that_wait_for_a_node_are_told_by_the_owners_of_their_partitions() {
        let waits = |number, role, count| PartitionStats {
            waiting: [(PoolName::parse("p").unwrap(), count)].into(),
            ..part(number, role)
        };
        let parts = vec![waits(100, "serving", 3), waits(400, "copy", 5)];
        let mut text = String::new();
        write(&mut text, &look(Stats { parts, ..Stats::default() })).unwrap();
        let lines: Vec<_> = text.lines().filter(|it| it.starts_with("rota_pool_waiting")).collect();
        assert_eq!(lines, ["rota_pool_waiting{pool=\"p\"} 3"]);
    }
}
