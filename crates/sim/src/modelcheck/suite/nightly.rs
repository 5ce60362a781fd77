//! The larger searches: too long for every change of the code.

use super::{
    BEGINS_SHORT, COPY_MISSED, DRAIN, JOIN, JOIN_MISSED, LEASE, LEASE_AT_OWNER, LEASE_ENDS, LEAVE,
    LOSING, NODE_UNHEARD, NOTHING, ONE, PURGES, THREE, THREE_TWO_JOINS, TOMBSTONE_GOES, TWO,
    TWO_JOINS, UNHEARD, WIDE,
};
use crate::modelcheck::bounds::{Bounds, From, Times};
use crate::modelcheck::left::Left;

/// States of the largest: one that reaches this says that it did not exhaust its bounds.
const STATES_MAX: usize = 40_000_000;

/// One door, and the other manager that holds the id is read.
const DOOR: Bounds = Bounds { doors: &[10], readers: &[30], ..THREE };
/// The same, and the id lives.
const DOOR_OPENED: Bounds = Bounds { opened: 1, ..DOOR };
/// Two ids live, in two partitions of which one manager holds both.
const APART: Bounds = Bounds { ids: &[(10, 10), (30, 30)], opened: 2, doors: &[10], ..THREE };

fn of(name: &'static str, bounds: &Bounds, left: Left) -> Bounds {
    Bounds { name, left, states_max: STATES_MAX, ..bounds.clone() }
}

/// All of them.
pub fn nightly() -> Vec<Bounds> {
    let themes = [
        together(),
        together_in_time(),
        crashes(),
        messages(),
        joins(),
        leaves_and_drains(),
        leases(),
        agents(),
        reads(),
        disks(),
        outages(),
    ];
    themes.into_iter().flatten().collect()
}

/// A crash, a false suspicion and a join in one search.
fn together() -> Vec<Bounds> {
    let all = NOTHING.crashes(1).suspicions(1).joins(1).starts(0);
    let first = Bounds { opened: 0, ..JOIN };
    let second = Bounds { ids: &[(30, 20), (30, 30)], ..JOIN };
    vec![
        of("n=3 r=1: crash for good, suspicion, join", &JOIN, all.ticks(1)),
        of("n=3 r=1: first open, crash for good, suspicion, join, no clocks", &first, all.opens(1)),
        of("n=3 r=1: close, crash for good, suspicion, join, no clocks", &JOIN, all.closes(1)),
        of(
            "n=3 r=1: read, crash for good, suspicion, join, no clocks",
            &Bounds { readers: &[30], ..JOIN },
            all.gets(1),
        ),
        of("n=3 r=1: drain, crash for good, suspicion, join, no clocks", &JOIN, all.drains(1)),
        of(
            "n=3 r=1: crash for good, suspicion, 2 joins, one accuser, no clocks",
            &Bounds { accuser: 10, ..THREE_TWO_JOINS },
            all.joins(2),
        ),
        of(
            "n=3 r=1: 2 ids, open, crash for good, suspicion, join, no clocks",
            &second,
            all.opens(1),
        ),
        of(
            "n=3 r=1: node boots anew, crash for good, suspicion, join, no clocks",
            &JOIN,
            all.boots(1),
        ),
        of("n=3 r=1: crash, suspicion, join, no clocks", &JOIN, all.starts(1)),
    ]
}

/// The same three, and something that takes long is due with the next step of the clocks. The last one has no
/// crash and no join, so that everybody acts.
fn together_in_time() -> Vec<Bounds> {
    let all = NOTHING.crashes(1).suspicions(1).joins(1).starts(0).ticks(1);
    let opens = all.opens(1);
    let short = Bounds { opened: 0, mortal: 50, shows: BEGINS_SHORT, ..JOIN_MISSED };
    vec![
        of(
            "n=3 r=1: read, lease about to end, crash for good, suspicion, join, one accuser, one step",
            &Bounds { readers: &[30], ..LEASE_ENDS },
            all.gets(1),
        ),
        of(
            "n=3 r=1: open, node about to be lost, crash for good, suspicion, join, one accuser, one step",
            &LOSING,
            opens,
        ),
        of(
            "n=3 r=1: open, tombstone about to go, crash for good, suspicion, join, one accuser, one step",
            &TOMBSTONE_GOES,
            opens,
        ),
        of(
            "n=3 r=1: repair_after about to end, crash for good, suspicion, join, one accuser, one step",
            &JOIN_MISSED,
            all,
        ),
        of(
            "n=3 r=1: open, copy_deadline about to end, one crash for good, suspicion, join, one accuser, one step",
            &short,
            opens,
        ),
        of(
            "n=3 r=1: open, suspicion, loss, copy_deadline about to end, one accuser, no bystander",
            &Bounds { opened: 0, accuser: 30, all_act: true, shows: BEGINS_SHORT, ..COPY_MISSED },
            NOTHING.opens(1).suspicions(1).losses(1).ticks(1),
        ),
    ]
}

/// Crashes and suspicions.
fn crashes() -> Vec<Bounds> {
    let n = NOTHING.starts(0);
    let two = Bounds { doors: &[10], ..TWO };
    let tombstone = Bounds { times: Times::Tombstone, shows: PURGES, ..DOOR_OPENED };
    vec![
        of(
            "n=1 r=0: 2 opens, close, 2 crashes, unknown outcome, loss",
            &ONE,
            NOTHING.opens(2).closes(1).crashes(2).unknowns(1).losses(1).ticks(2),
        ),
        of(
            "n=2 r=1: open, close, crash for good, suspicion, one door, no clocks",
            &two,
            n.opens(1).closes(1).crashes(1).suspicions(1),
        ),
        of(
            "n=2 r=1: 2 opens, crash for good, suspicion, one door",
            &two,
            n.opens(2).crashes(1).suspicions(1).ticks(1),
        ),
        of(
            "n=2 r=1: open, crash, suspicion, one door",
            &two,
            n.opens(1).crashes(1).suspicions(1).starts(1).ticks(1),
        ),
        of(
            "n=4 r=2: open, crash for good, suspicion, one accuser, no clocks",
            &Bounds { numbers: &[10, 20, 30, 50], accuser: 20, ..WIDE },
            n.opens(1).crashes(1).suspicions(1),
        ),
        of(
            "n=3 r=1: 2 ids, 2 opens, crash for good, 1 place, one door",
            &Bounds { ids: &[(10, 10), (30, 30)], places: 1, ..DOOR },
            n.opens(2).crashes(1),
        ),
        of(
            "n=3 r=1: close, tombstones, suspicion, one door, 4 steps",
            &tombstone,
            n.closes(1).suspicions(1).ticks(4),
        ),
        of(
            "n=3 r=1: close, tombstones, crash for good, one door, 4 steps",
            &tombstone,
            n.closes(1).crashes(1).ticks(4),
        ),
        of(
            "n=3 r=1: open, node boots anew, crash for good, one door",
            &DOOR_OPENED,
            n.opens(1).boots(1).crashes(1).ticks(1),
        ),
    ]
}

/// What becomes of messages and compare-and-sets.
fn messages() -> Vec<Bounds> {
    let n = NOTHING;
    vec![
        of(
            "n=3 r=1: open, copy, loss, suspicion, one door",
            &DOOR,
            n.opens(1).copies(1).losses(1).suspicions(1).ticks(1),
        ),
        of(
            "n=3 r=1: close, copy, loss, suspicion, one door",
            &DOOR_OPENED,
            n.closes(1).copies(1).losses(1).suspicions(1).ticks(1),
        ),
        of(
            "n=3 r=1: open, close, 2 copies, loss, one door",
            &DOOR,
            n.opens(1).closes(1).copies(2).losses(1).ticks(1),
        ),
        of(
            "n=2 r=1: open, suspicion, unknown outcome",
            &TWO,
            n.opens(1).suspicions(1).unknowns(1).ticks(3),
        ),
        of(
            "n=3 r=1: open, suspicion, unknown outcome",
            &THREE,
            n.opens(1).suspicions(1).unknowns(1).ticks(3),
        ),
    ]
}

/// Joins, two of them too.
fn joins() -> Vec<Bounds> {
    let n = NOTHING;
    vec![
        of("n=2 r=1: open, 2 joins, 4 steps", &TWO_JOINS, n.opens(1).joins(2).ticks(4)),
        of("n=3 r=1: 2 joins, late clocks", &THREE_TWO_JOINS, n.joins(2).ticks(10)),
        of("n=3 r=1: open, 2 joins", &THREE_TWO_JOINS, n.opens(1).joins(2).ticks(4)),
        of(
            "n=3 r=1: suspicion, 2 joins, one accuser, one step",
            &Bounds { accuser: 60, ..THREE_TWO_JOINS },
            n.suspicions(1).joins(2).ticks(1),
        ),
    ]
}

/// Numbers that leave, and nodes that are drained.
fn leaves_and_drains() -> Vec<Bounds> {
    let n = NOTHING;
    let first = Bounds { opened: 0, ..DRAIN };
    vec![
        of("n=3 r=1: open, leave", &LEAVE, n.opens(1).leaves(1).ticks(5)),
        of("n=3 r=1: leave, crash for good", &LEAVE, n.leaves(1).crashes(1).starts(0).ticks(4)),
        of("n=3 r=1: leave, suspicion", &LEAVE, n.leaves(1).suspicions(1).ticks(4)),
        of(
            "n=3 r=1: leave, crash for good, suspicion, no clocks",
            &LEAVE,
            n.leaves(1).crashes(1).suspicions(1).starts(0),
        ),
        of(
            "n=3 r=1: leave, cancel, 4 steps",
            &Bounds { times: Times::Abandon, ..LEAVE },
            n.leaves(1).cancels(1).ticks(4),
        ),
        of("n=3 r=1: open, drain, suspicion", &DRAIN, n.opens(1).drains(1).suspicions(1).ticks(2)),
        of(
            "n=3 r=1: first open, drain, suspicion",
            &first,
            n.opens(1).drains(1).suspicions(1).ticks(1),
        ),
        of("n=3 r=1: open, drain, node boots anew", &DRAIN, n.opens(1).drains(1).boots(1).ticks(3)),
        of("n=3 r=1: drain, crash", &DRAIN, n.drains(1).crashes(1).starts(1).ticks(2)),
        of("n=3 r=1: first open, drain, crash", &first, n.opens(1).drains(1).crashes(1).ticks(2)),
    ]
}

/// Nodes that are cut off until their leases end.
fn leases() -> Vec<Bounds> {
    let n = NOTHING;
    vec![
        of(
            "n=3 r=1: open, drain, node cut off, lease",
            &Bounds { nodes: 2, ..LEASE },
            n.opens(1).drains(1).silences(1).ticks(7),
        ),
        of(
            "n=3 r=1: open, node cut off, lease, early clocks",
            &LEASE,
            n.opens(1).silences(1).early(1).ticks(7),
        ),
        of(
            "n=3 r=1: node cut off, lease, the node's owner dies",
            &LEASE_AT_OWNER,
            n.silences(1).crashes(1).starts(0).ticks(6),
        ),
        of(
            "n=2 r=1: node cut off, lease, the node's owner dies",
            &Bounds { numbers: &[10, 40], ..LEASE },
            n.silences(1).crashes(1).starts(0).ticks(7),
        ),
        of(
            "n=3 r=1: node cut off, lease, crash for good, suspicion, one accuser, 5 steps",
            &Bounds { accuser: 50, ..LEASE_AT_OWNER },
            n.silences(1).crashes(1).suspicions(1).starts(0).ticks(5),
        ),
    ]
}

/// Reads, which must be linearizable.
fn reads() -> Vec<Bounds> {
    let n = NOTHING;
    vec![
        of("n=3 r=1: read, join", &JOIN, n.gets(1).joins(1).ticks(6)),
        of(
            "n=3 r=1: close, read, join, one reader, 2 steps",
            &Bounds { readers: &[30], ..JOIN },
            n.closes(1).gets(1).joins(1).ticks(2),
        ),
        of(
            "n=3 r=1: close, read, suspicion, return, one door",
            &DOOR_OPENED,
            n.closes(1).gets(1).suspicions(1).ticks(3),
        ),
        of(
            "n=3 r=1: close, read, suspicion, added unheard and cut off, whoever is asked",
            &Bounds { accuser: u32::MAX, doors: &[20, 30], ..UNHEARD },
            n.closes(1).gets(1).suspicions(1).ticks(1),
        ),
        of(
            "n=3 r=1: close, read, a newcomer is being added, one node",
            &Bounds { from: From::Adding, doors: &[20], readers: &[20, 30], nodes: 1, ..JOIN },
            n.closes(1).gets(1),
        ),
        of(
            "n=3 r=1: open, close, read, crash for good, one door",
            &DOOR,
            n.opens(1).closes(1).gets(1).crashes(1).starts(0).ticks(1),
        ),
    ]
}

/// Crashes with disks.
fn disks() -> Vec<Bounds> {
    let n = NOTHING;
    vec![
        of(
            "n=3 r=1: 2 ids in 2 partitions, crash with disk",
            &APART,
            n.crashes(1).wipes(1).starts(1).ticks(1),
        ),
        of(
            "n=3 r=1: 2 ids in 2 partitions, 2 crashes, a disk is lost, no clocks",
            &APART,
            n.crashes(2).wipes(1).starts(2),
        ),
        of(
            "n=3 r=1: 2 ids in 2 partitions, 2 crashes with disks, no clocks",
            &APART,
            n.crashes(2).wipes(2).starts(2),
        ),
        of(
            "n=3 r=1: 2 ids in 2 partitions, open, crash with disk, no clocks",
            &Bounds { opened: 1, ..APART },
            n.opens(1).crashes(1).wipes(1).starts(1),
        ),
    ]
}

/// Agents of nodes die alone, and the next ones go on.
fn agents() -> Vec<Bounds> {
    let n = NOTHING.resumes(1);
    vec![
        of("n=2 r=1: open, close, repetition, an agent dies", &TWO, n.opens(1).closes(1).copies(1)),
        of(
            "n=3 r=1: a node's owner hears nothing of it, an agent dies, lease",
            &NODE_UNHEARD,
            n.ticks(1),
        ),
    ]
}

/// The config store is away for a while.
fn outages() -> Vec<Bounds> {
    let n = NOTHING.outages(1).starts(0);
    let two = Bounds { doors: &[10], ..TWO };
    vec![
        of(
            "n=2 r=1: open, crash, config store away, one door",
            &two,
            n.opens(1).crashes(1).starts(1).ticks(1),
        ),
        of(
            "n=2 r=1: close, read, suspicion, config store away, one door, one reader",
            &Bounds { opened: 1, readers: &[40], ..two },
            n.closes(1).gets(1).suspicions(1).ticks(1),
        ),
        of(
            "n=3 r=1: open, suspicion, config store away, one door",
            &DOOR,
            n.opens(1).suspicions(1).ticks(1),
        ),
        of(
            "n=3 r=1: close, read, suspicion, config store away, one door, no clocks",
            &DOOR_OPENED,
            n.closes(1).gets(1).suspicions(1),
        ),
        of(
            "n=3 r=1: close, crash, config store away, one door",
            &DOOR_OPENED,
            n.closes(1).crashes(1).starts(1).ticks(1),
        ),
        of("n=3 r=1: join, config store away, 4 steps", &JOIN, n.joins(1).ticks(4)),
    ]
}
