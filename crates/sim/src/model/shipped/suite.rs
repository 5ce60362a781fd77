//! The searches.

use super::bounds::{Bounds, Left, Times};

const NOTHING: Left = Left {
    opens: 0,
    closes: 0,
    gets: 0,
    repeats: 0,
    losses: 0,
    copies: 0,
    crashes: 0,
    wipes: 0,
    suspicions: 0,
    unknowns: 0,
    ticks: 0,
    early: 0,
    joins: 0,
    leaves: 0,
    boots: 0,
    ends: 0,
    silences: 0,
};

const THREE: Bounds = Bounds {
    name: "n=3 r=1: open, close",
    numbers: &[10, 30, 50],
    r: 1,
    newcomers: &[],
    nodes: 2,
    places: 4,
    ids: &[(10, 10)],
    opened: 0,
    doors: &[10, 30],
    left: Left { opens: 1, closes: 1, ..NOTHING },
    leaver: u32::MAX,
    disk_apart: false,
    times: Times::Repeat,
    lives: true,
    states_max: 3_000_000,
};

/// Those of a size for every change of the code.
pub fn ci() -> Vec<Bounds> {
    let all = Left { opens: 1, ..NOTHING };
    vec![
        THREE,
        Bounds {
            name: "n=1 r=0: crash, unknown",
            numbers: &[10],
            r: 0,
            doors: &[10],
            left: Left { opens: 2, closes: 1, crashes: 2, unknowns: 1, losses: 1, ticks: 2, ..all },
            ..THREE
        },
        Bounds {
            name: "n=2 r=1: crash, suspicion",
            numbers: &[10, 40],
            doors: &[10, 40],
            left: Left { opens: 2, closes: 1, crashes: 1, suspicions: 1, ticks: 2, ..all },
            ..THREE
        },
        Bounds {
            name: "n=3 r=1: two opens, crash",
            left: Left { opens: 2, crashes: 1, ..NOTHING },
            ..THREE
        },
        Bounds {
            name: "n=3 r=1: open, close, copies, losses",
            left: Left { opens: 1, closes: 1, copies: 1, losses: 1, ticks: 1, ..NOTHING },
            ..THREE
        },
        Bounds {
            name: "n=3 r=1: open, suspicion, rejoin",
            left: Left { opens: 1, suspicions: 1, ticks: 3, ..NOTHING },
            ..THREE
        },
        Bounds {
            name: "n=3 r=1: open, crash, suspicion, join",
            newcomers: &[20],
            ids: &[(30, 20)],
            doors: &[30],
            left: Left { opens: 1, crashes: 1, suspicions: 1, joins: 1, ticks: 3, ..NOTHING },
            ..THREE
        },
        Bounds {
            name: "n=4 r=2: open, crash, suspicion",
            numbers: &[10, 20, 30, 50],
            r: 2,
            left: Left { opens: 1, crashes: 1, suspicions: 1, ..NOTHING },
            ..THREE
        },
    ]
}

/// The larger ones.
pub fn nightly() -> Vec<Bounds> {
    vec![THREE]
}
