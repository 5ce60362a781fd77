//! Searches of a size for every change of the code: all of them in a few minutes.

use super::{
    BEGINS_SHORT, COPY_MISSED, DRAIN, JOIN, LEASE, LEASE_AT_OWNER, LEASE_ENDS, LEAVE, LOSES_NODE,
    NODE_UNHEARD, NOTHING, ONE, OPENED, OWNER_DEAF, PURGES, THREE, THREE_TWO_JOINS, TOMBSTONE_GOES,
    TWO, TWO_JOINS, UNHEARD, WIDE, WITHDRAWS,
};
use crate::modelcheck::bounds::{Bounds, From, Times};

/// All of them.
pub fn ci() -> Vec<Bounds> {
    let of = |name, bounds: Bounds, left| Bounds { name, left, ..bounds };
    let n = NOTHING;
    let mut all = vec![
        THREE,
        of(
            "n=1 r=0: open, close, crash, unknown outcome, loss",
            ONE,
            n.opens(1).closes(1).crashes(1).unknowns(1).losses(1).ticks(1),
        ),
        of(
            "n=2 r=1: open, crash for good, suspicion",
            TWO,
            n.opens(1).crashes(1).suspicions(1).starts(0).ticks(1),
        ),
        of(
            "n=2 r=1: open, crash, writes and their ends apart",
            Bounds { disk_apart: true, ..TWO },
            n.opens(1).crashes(1).ticks(1),
        ),
        of("n=3 r=1: 2 opens, crash", THREE, n.opens(2).crashes(1)),
        of(
            "n=3 r=1: open, close, copy, loss",
            THREE,
            n.opens(1).closes(1).copies(1).losses(1).ticks(1),
        ),
        of("n=3 r=1: open, suspicion, return", THREE, n.opens(1).suspicions(1).ticks(3)),
        of(
            "n=3 r=1: crash for good, suspicion, join, no clocks",
            JOIN,
            n.crashes(1).suspicions(1).joins(1).starts(0),
        ),
        of("n=3 r=1: suspicion, join", JOIN, n.suspicions(1).joins(1).starts(0).ticks(1)),
    ];
    all.extend(ci_in_time());
    all.extend(ci_further());
    all.extend(ci_agents());
    all.extend(ci_leases());
    all.extend(ci_reads());
    all.extend(ci_faults());
    all.extend(ci_outages());
    all.extend(ci_refusals());
    all
}

/// Calls that wait for a connection to a node are thrown away.
fn ci_refusals() -> Vec<Bounds> {
    let of = |name, bounds: Bounds, left| Bounds { name, left, shows: WITHDRAWS, ..bounds };
    let n = NOTHING;
    vec![
        of(
            "n=3 r=1: open, 2 refusals, loss",
            Bounds { doors: &[10], ..THREE },
            n.opens(1).refusals(2).losses(1).ticks(2),
        ),
        of("n=2 r=1: 2 opens, close, refusal", TWO, n.opens(2).closes(1).refusals(1)),
        of(
            "n=2 r=1: open, refusal, crash for good",
            TWO,
            n.opens(1).refusals(1).crashes(1).starts(0).ticks(1),
        ),
        of("n=2 r=1: open, refusal, suspicion", TWO, n.opens(1).refusals(1).suspicions(1)),
        of(
            "n=3 r=1: open, refusal, node boots anew",
            Bounds { doors: &[10], ..THREE },
            n.opens(1).refusals(1).boots(1),
        ),
    ]
}

/// What takes long; and a crash, a false suspicion and a join one step of the clocks before it is due.
fn ci_in_time() -> Vec<Bounds> {
    let of = |name, bounds: Bounds, left| Bounds { name, left, ..bounds };
    let n = NOTHING;
    let all = n.crashes(1).suspicions(1).joins(1).starts(0).ticks(1);
    vec![
        of(
            "n=3 r=1: lease about to end, crash for good, suspicion, join, one accuser, one step",
            LEASE_ENDS,
            all,
        ),
        of(
            "n=3 r=1: tombstone about to go, crash for good, suspicion, join, one accuser, one step",
            TOMBSTONE_GOES,
            all,
        ),
        of(
            "n=3 r=1: open, close, tombstones",
            Bounds { times: Times::Tombstone, opened: 1, doors: &[10], shows: PURGES, ..THREE },
            n.opens(1).closes(1).ticks(6),
        ),
        of(
            "n=3 r=1: open, suspicion, loss, copy_deadline about to end",
            Bounds { opened: 0, shows: BEGINS_SHORT, ..COPY_MISSED },
            n.opens(1).suspicions(1).losses(1).ticks(1),
        ),
        of(
            "n=4 r=1: suspicion, loss, repair_after about to end, one accuser",
            Bounds { numbers: &[10, 20, 30, 50], accuser: 30, all_act: true, ..COPY_MISSED },
            n.suspicions(1).losses(1).ticks(2),
        ),
    ]
}

/// The config store is away for a while.
fn ci_outages() -> Vec<Bounds> {
    let of = |name, bounds: Bounds, left| Bounds { name, left, ..bounds };
    let n = NOTHING;
    vec![
        of(
            "n=2 r=1: open, close, config store away",
            Bounds { doors: &[10], ..TWO },
            n.opens(1).closes(1).outages(1).ticks(1),
        ),
        of(
            "n=2 r=1: close, read, suspicion, config store away, no clocks",
            Bounds { opened: 1, doors: &[10], readers: &[10, 40], ..TWO },
            n.closes(1).gets(1).suspicions(1).outages(1),
        ),
        of("n=3 r=1: suspicion, config store away", OPENED, n.suspicions(1).outages(1).ticks(2)),
    ]
}

/// Unknown outcomes where there are copies; leaves, cancels and leases amid faults; no copies at all.
fn ci_faults() -> Vec<Bounds> {
    let of = |name, bounds: Bounds, left| Bounds { name, left, ..bounds };
    let n = NOTHING;
    let abandon = Bounds { times: Times::Abandon, ..LEAVE };
    vec![
        of(
            "n=2 r=1: suspicion, unknown outcome",
            Bounds { opened: 1, ..TWO },
            n.suspicions(1).unknowns(1).ticks(3),
        ),
        of("n=3 r=1: suspicion, unknown outcome", OPENED, n.suspicions(1).unknowns(1).ticks(3)),
        of("n=3 r=1: join, unknown outcome", JOIN, n.joins(1).unknowns(1).ticks(6)),
        of("n=3 r=1: leave, suspicion, no clocks", LEAVE, n.leaves(1).suspicions(1)),
        of(
            "n=3 r=1: leave, crash for good, one step",
            LEAVE,
            n.leaves(1).crashes(1).starts(0).ticks(1),
        ),
        of("n=3 r=1: join, cancel", JOIN, n.joins(1).cancels(1).ticks(6)),
        of("n=3 r=1: leave, cancel", abandon, n.leaves(1).cancels(1).ticks(2)),
        of(
            "n=3 r=1: node cut off, lease, the node's owner is suspected",
            LEASE_AT_OWNER,
            n.silences(1).suspicions(1).ticks(5),
        ),
        of(
            "n=3 r=1: 2 ids in 2 partitions, crash with disk, no clocks",
            Bounds { ids: &[(10, 10), (30, 30)], opened: 2, doors: &[10], ..THREE },
            n.crashes(1).wipes(1).starts(1),
        ),
        of(
            "n=2 r=0: open, crash, suspicion",
            Bounds { r: 0, ..TWO },
            n.opens(1).crashes(1).suspicions(1).ticks(1),
        ),
    ]
}

/// Reads amid faults: what they show is linearizable.
fn ci_reads() -> Vec<Bounds> {
    let of = |name, bounds: Bounds, left| Bounds { name, left, ..bounds };
    let n = NOTHING;
    vec![
        of("n=3 r=1: close, 2 reads", OPENED, n.closes(1).gets(2)),
        of("n=3 r=1: read, suspicion, return", OPENED, n.gets(1).suspicions(1).ticks(3)),
        of("n=3 r=1: close, read, suspicion", OPENED, n.closes(1).gets(1).suspicions(1)),
        of(
            "n=3 r=1: close, read, crash for good",
            OPENED,
            n.closes(1).gets(1).crashes(1).starts(0).ticks(1),
        ),
        of(
            "n=3 r=1: close, read, suspicion, added unheard and cut off",
            Bounds { from: From::Adding, ..UNHEARD },
            n.closes(1).gets(1).suspicions(1).unheard(1),
        ),
    ]
}

fn ci_further() -> Vec<Bounds> {
    let of = |name, bounds: Bounds, left| Bounds { name, left, ..bounds };
    let n = NOTHING;
    vec![
        of("n=3 r=1: open, join", JOIN, n.opens(1).joins(1).ticks(6)),
        of(
            "n=4 r=2: crash for good, suspicion",
            Bounds { numbers: &[10, 20, 30, 50], opened: 1, ..WIDE },
            n.crashes(1).suspicions(1).starts(0),
        ),
        of(
            "n=3 r=1: 2 ids, 2 opens, 1 place",
            Bounds { ids: &[(10, 10), (10, 10)], places: 1, doors: &[10], ..THREE },
            n.opens(2),
        ),
        of(
            "n=3 r=1: open, node boots anew",
            Bounds { opened: 1, doors: &[10], ..THREE },
            n.opens(1).boots(1).ticks(1),
        ),
    ]
}

/// Agents that die alone, and the next one goes on with what runs.
fn ci_agents() -> Vec<Bounds> {
    let of = |name, bounds: Bounds, left| Bounds { name, left, ..bounds };
    let n = NOTHING;
    vec![
        of(
            "n=1: open, close, repetitions, an agent dies",
            ONE,
            n.opens(1).closes(1).resumes(1).copies(1).losses(1).ticks(1),
        ),
        of("n=2 r=1: open, close, an agent dies", TWO, n.opens(1).closes(1).resumes(1)),
        of(
            "n=3 r=1: open, an agent dies, suspicion, one accuser",
            Bounds { accuser: 30, doors: &[10], ..THREE },
            n.opens(1).resumes(1).suspicions(1),
        ),
        of("n=3 r=1: node cut off, agents die, lease", LEASE, n.silences(1).resumes(2).ticks(7)),
        of(
            "n=3 r=1: the owner of session and node hears nothing of it, an agent dies, lease",
            OWNER_DEAF,
            n.resumes(1).ticks(8),
        ),
    ]
}

fn ci_leases() -> Vec<Bounds> {
    let of = |name, bounds: Bounds, left| Bounds { name, left, ..bounds };
    let n = NOTHING;
    vec![
        of("n=3 r=1: node cut off, lease", LEASE, n.silences(1).ticks(7)),
        of(
            "n=3 r=1: node cut off and reached again, lease",
            LEASE_AT_OWNER,
            n.silences(1).returns(1).ticks(7),
        ),
        of("n=3 r=1: a node's owner hears nothing of it, lease", NODE_UNHEARD, n.ticks(7)),
        of(
            "n=3 r=1: a node's owner hears nothing of it, lease, suspicion, one accuser",
            Bounds { accuser: 30, shows: LOSES_NODE, ..NODE_UNHEARD },
            n.suspicions(1).ticks(1),
        ),
        of(
            "n=3 r=1: the owner of session and node hears nothing of it, lease",
            OWNER_DEAF,
            n.ticks(8),
        ),
        of("n=3 r=1: leave", LEAVE, n.leaves(1).ticks(4)),
        of("n=3 r=1: open, drain", DRAIN, n.opens(1).drains(1).ticks(4)),
        of("n=3 r=1: drain, node boots anew", DRAIN, n.drains(1).boots(1).ticks(2)),
        of(
            "n=3 r=1: drain, crash for good, suspicion",
            DRAIN,
            n.drains(1).crashes(1).suspicions(1).starts(0).ticks(2),
        ),
        of("n=3 r=1: 2 joins", THREE_TWO_JOINS, n.joins(2).ticks(4)),
        of("n=2 r=0: 2 joins", Bounds { r: 0, ..TWO_JOINS }, n.joins(2).ticks(10)),
        of(
            "n=3 r=1: open, crash with disk",
            THREE,
            n.opens(1).crashes(1).wipes(1).starts(1).ticks(1),
        ),
        of(
            "n=3 r=1: 2 crashes with disks: a last copy is lost",
            Bounds { opened: 1, doors: &[10], ..THREE },
            n.crashes(2).wipes(2).starts(2).ticks(1),
        ),
    ]
}
