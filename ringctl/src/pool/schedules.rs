//! Schedules of a pool as they are shown, and what they have set.

use rota_model::{InForce, Kept, PoolSchedule, Stamp};
use serde::Serialize;
use std::time::{Duration, UNIX_EPOCH};

/// A schedule. None: it does not set that.
#[derive(Serialize, PartialEq, Eq, Debug)]
pub struct ShownSchedule {
    /// A cron text.
    pub at: String,
    pub min_nodes: Option<u32>,
    pub warm_places: Option<u32>,
    pub warm_nodes: Option<u32>,
    /// As flags write it.
    #[serde(skip)]
    pub text: String,
}

/// What schedules have set by now, by the clock of the manager that answers. Moments are stamps.
#[derive(Serialize, PartialEq, Eq, Debug)]
pub struct ShownInForce {
    pub min_nodes: u32,
    /// None: the pool's own setting holds.
    pub min_since: Option<u64>,
    pub warm_places: u32,
    pub warm_nodes: u32,
    /// None: the pool's own setting holds.
    pub warm_since: Option<u64>,
    /// None: no moment comes in this century.
    pub next: Option<ShownNext>,
    /// What is in force, for a person.
    #[serde(skip)]
    pub now_text: String,
    /// What comes next, for a person.
    #[serde(skip)]
    pub next_text: String,
}

/// What schedules set next.
#[derive(Serialize, PartialEq, Eq, Debug)]
pub struct ShownNext {
    pub at: u64,
    pub min_nodes: u32,
    pub warm_places: u32,
    pub warm_nodes: u32,
}

impl ShownSchedule {
    /// Of a schedule.
    pub fn of(it: &PoolSchedule) -> Self {
        let PoolSchedule { at, min_nodes, warm_places, warm_nodes } = *it;
        Self { at: at.to_string(), min_nodes, warm_places, warm_nodes, text: it.to_string() }
    }
}

impl ShownInForce {
    /// Of what is in force.
    pub fn of(it: &InForce) -> Self {
        let Kept { min_nodes, warm_places, warm_nodes } = it.kept;
        let next = it.next.map(|(at, kept)| {
            let Kept { min_nodes, warm_places, warm_nodes } = kept;
            ShownNext { at: at.as_u64(), min_nodes, warm_places, warm_nodes }
        });
        Self {
            min_nodes,
            min_since: it.min_since.map(Stamp::as_u64),
            warm_places,
            warm_nodes,
            warm_since: it.warm_since.map(Stamp::as_u64),
            next,
            now_text: now(it),
            next_text: upcoming(it),
        }
    }
}

/// `min 5`.
fn minimum(kept: Kept) -> String {
    format!("min {}", kept.min_nodes)
}

/// `warm 20 places`.
fn buffer(kept: Kept) -> String {
    match (kept.warm_places, kept.warm_nodes) {
        (0, 0) => "warm none".to_owned(),
        (0, nodes) => format!("warm {nodes} nodes"),
        (places, _) => format!("warm {places} places"),
    }
}

/// `2026-11-28T06:00:00Z`.
fn moment(at: Stamp) -> String {
    let time = UNIX_EPOCH + Duration::from_millis(at.to_epoch_ms());
    humantime::format_rfc3339_seconds(time).to_string()
}

/// What is in force, and since when, for a person.
fn now(it: &InForce) -> String {
    let since = |what: String, since: Option<Stamp>| match since {
        Some(since) => format!("{what} since {}", moment(since)),
        None => format!("{what} as the pool says"),
    };
    let (min, warm) = (minimum(it.kept), buffer(it.kept));
    format!("{}, {}", since(min, it.min_since), since(warm, it.warm_since))
}

/// What comes next, and when, for a person.
fn upcoming(it: &InForce) -> String {
    it.next.map_or_else(
        || "nothing in this century".to_owned(),
        |(at, kept)| format!("{}, {} from {} on", minimum(kept), buffer(kept), moment(at)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_model::PoolSettings;

    fn in_force(texts: &[&str], moment: u64) -> InForce {
        let schedules = texts.iter().map(|it| PoolSchedule::parse(it).unwrap()).collect();
        let pool = PoolSettings { min_nodes: 1, warm_nodes: 2, schedules, ..Default::default() };
        pool.in_force(Stamp::parse(moment).unwrap()).unwrap()
    }

    #[test]
    fn a_person_reads_what_is_in_force_since_when_and_what_comes_next() {
        let day = in_force(&["D0600 min=5 warm=20places", "D2000 min=0"], 261_127_120_000_000);
        assert_eq!(
            now(&day),
            "min 5 since 2026-11-27T06:00:00Z, warm 20 places since 2026-11-27T06:00:00Z"
        );
        assert_eq!(upcoming(&day), "min 0, warm 20 places from 2026-11-27T20:00:00Z on");
        let part = in_force(&["D0600 min=5"], 261_127_120_000_000);
        assert_eq!(now(&part), "min 5 since 2026-11-27T06:00:00Z, warm 2 nodes as the pool says");
        let last = in_force(&["D0600 warm=none"], Stamp::MAX.as_u64());
        assert_eq!(now(&last), "min 1 as the pool says, warm none since 2099-12-31T06:00:00Z");
        assert_eq!(upcoming(&last), "nothing in this century");
    }

    #[test]
    fn what_is_in_force_is_printed_with_exactly_these_fields_in_this_order() {
        let day = in_force(&["D0600 min=5 warm=20places", "D2000 min=0"], 261_127_120_000_000);
        assert_eq!(
            serde_json::to_string(&ShownInForce::of(&day)).unwrap(),
            "{\"min_nodes\":5,\"min_since\":261127060000000,\"warm_places\":20,\"warm_nodes\":0,\
             \"warm_since\":261127060000000,\"next\":{\"at\":261127200000000,\"min_nodes\":0,\
             \"warm_places\":20,\"warm_nodes\":0}}"
        );
    }
}
