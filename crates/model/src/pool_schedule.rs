//! Schedules of a pool: what it keeps from a moment on, by cron texts.
//!
//! ```text
//!   D0600 min=5 warm=20places      each day from 06:00 on: five nodes at least, and 20 free places
//!   D2000 min=0 warm=none          each day from 20:00 on: nothing
//! ```
//!
//! A schedule sets the minimum of nodes, the warm buffer, or both. Each of the two holds until the next moment of a
//! schedule that sets it, too. A schedule that leaves one out leaves it as the moment ahead of its own one set it.
//! Where no schedule sets one, the pool's own setting holds.
//!
//! What is in force follows from the schedules and the time alone ([`PoolSettings::in_force`]). A schedule counts as
//! if it had always been there: one that is written down at noon with `D0600` is in force at once. So nothing is to
//! be remembered, and nothing is lost when another owner decides. Of two schedules with one moment the later one in
//! the list counts.

use crate::cron::Cron;
use crate::pool::PoolSettings;
use crate::refusal::FieldError;
use crate::stamp::Stamp;
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;

/// Most schedules of a pool.
pub const POOL_SCHEDULES_MAX: usize = 16;

/// How a warm buffer is written that keeps nothing free.
const NONE: &str = "none";

/// What a pool keeps from each moment of `at` on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolSchedule {
    /// When.
    pub at: Cron,
    /// So many nodes are kept. `None`: this schedule does not set that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_nodes: Option<u32>,
    /// The warm buffer: so many places are kept free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm_places: Option<u32>,
    /// The warm buffer: as much room as so many empty nodes have is kept free; instead of `warm_places`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm_nodes: Option<u32>,
}

/// What a pool keeps, whether it is needed or not.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Kept {
    /// So many nodes.
    pub min_nodes: u32,
    /// The warm buffer, in places.
    pub warm_places: u32,
    /// The warm buffer, in nodes. One of the two is 0.
    pub warm_nodes: u32,
}

/// What is in force in a pool with schedules.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct InForce {
    /// What the pool keeps.
    pub kept: Kept,
    /// Since when a schedule sets the minimum; `None`: the pool's own setting holds.
    pub min_since: Option<Stamp>,
    /// Since when a schedule sets the warm buffer; `None`: the pool's own setting holds.
    pub warm_since: Option<Stamp>,
    /// The next moment of a schedule, and what the pool keeps from then on. `None`: the century ends.
    pub next: Option<(Stamp, Kept)>,
}

impl PoolSchedule {
    /// Places and nodes of the warm buffer that it sets, if it sets one.
    fn warm(&self) -> Option<(u32, u32)> {
        let is_set = self.warm_places.is_some() || self.warm_nodes.is_some();
        is_set.then(|| (self.warm_places.unwrap_or(0), self.warm_nodes.unwrap_or(0)))
    }

    /// Reads `D0600 min=5 warm=20places`. The error names `at`, `min`, `warm` or `schedule`, the column, and what was
    /// expected there. Columns count from 1.
    pub fn parse(text: &str) -> Result<Self, FieldError> {
        let mut words = words(text);
        let Some((column, at)) = words.next() else {
            let problem =
                "is empty; expected: a cron text, and min=COUNT, warm=COUNTplaces or both";
            return Err(FieldError::new("schedule", problem));
        };
        if column > 1 {
            return Err(FieldError::new("schedule", "column 1: a space; expected: a cron text"));
        }
        let at = Cron::parse(at).map_err(|it| FieldError::new("at", it.problem))?;
        let mut schedule = Self { at, ..Self::default() };
        for (column, word) in words {
            schedule.read(column, word)?;
        }
        if schedule.min_nodes.is_none() && schedule.warm().is_none() {
            return Err(FieldError::new("schedule", SETS_NOTHING));
        }
        Ok(schedule)
    }

    fn read(&mut self, column: usize, word: &str) -> Result<(), FieldError> {
        let wrong = |field: &str, expected: &str| {
            FieldError::new(field, format!("column {column}: {word:?}; expected: {expected}"))
        };
        let count = |text: &str| text.parse::<u32>().ok().filter(|_| !text.starts_with('+'));
        match word.split_once('=') {
            Some(("min", _)) if self.min_nodes.is_some() => Err(wrong("min", "one min=")),
            Some(("min", text)) => {
                let min = count(text).ok_or_else(|| wrong("min", "min=COUNT, as min=5"))?;
                self.min_nodes = Some(min);
                Ok(())
            }
            Some(("warm", _)) if self.warm().is_some() => Err(wrong("warm", "one warm=")),
            Some(("warm", NONE)) => {
                self.warm_places = Some(0);
                Ok(())
            }
            Some(("warm", text)) => {
                let of = |unit| text.strip_suffix(unit).and_then(count);
                (self.warm_places, self.warm_nodes) = (of("places"), of("nodes"));
                let forms = "warm=COUNTplaces, warm=COUNTnodes or warm=none, as warm=20places";
                self.warm().map(|_| ()).ok_or_else(|| wrong("warm", forms))
            }
            Some(_) | None => Err(wrong("schedule", "min=COUNT or warm=COUNTplaces")),
        }
    }

    /// Every mistake of the schedule with that place in the list.
    fn mistakes(&self, place: usize, max_nodes: u32, add: &mut impl FnMut(&str, String)) {
        if self.min_nodes.is_none() && self.warm().is_none() {
            add(&format!("schedules[{place}]"), SETS_NOTHING.to_owned());
        }
        if self.warm_places.is_some() && self.warm_nodes.is_some() {
            let problem = "is there beside warm_places: give one of them";
            add(&format!("schedules[{place}].warm_nodes"), problem.to_owned());
        }
        for (field, nodes) in [("min_nodes", self.min_nodes), ("warm_nodes", self.warm_nodes)] {
            if let Some(nodes) = nodes.filter(|it| *it > max_nodes) {
                let problem =
                    format!("is {nodes}, and max_nodes is {max_nodes}: it must not be above that");
                add(&format!("schedules[{place}].{field}"), problem);
            }
        }
    }
}

const SETS_NOTHING: &str = "sets nothing; expected: a minimum of nodes, a warm buffer, or both";

/// The words of a text with the column of each.
fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut column = 1;
    let words = text.split(' ').map(move |word| {
        let at = column;
        column += word.chars().count() + 1;
        (at, word)
    });
    words.filter(|(_, word)| !word.is_empty())
}

/// As it is read from.
impl fmt::Display for PoolSchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, min_nodes, warm_places, warm_nodes } = self;
        write!(f, "{at}")?;
        if let Some(min) = min_nodes {
            write!(f, " min={min}")?;
        }
        match (warm_places, warm_nodes) {
            (Some(0), _) => write!(f, " warm={NONE}"),
            (Some(places), _) => write!(f, " warm={places}places"),
            (None, Some(nodes)) => write!(f, " warm={nodes}nodes"),
            (None, None) => Ok(()),
        }
    }
}

/// Reads the schedules of a pool; a wrong cron text is told with its place in the list.
pub(crate) fn read_list<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<PoolSchedule>, D::Error> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Unread {
        at: String,
        min_nodes: Option<u32>,
        warm_places: Option<u32>,
        warm_nodes: Option<u32>,
    }
    let unread = Vec::<Unread>::deserialize(deserializer)?.into_iter().enumerate();
    let read = unread.map(|(place, schedule)| {
        let Unread { at, min_nodes, warm_places, warm_nodes } = schedule;
        let at = Cron::parse(&at).map_err(|wrong| {
            let wrong = FieldError::new(format!("schedules[{place}].at"), wrong.problem);
            serde::de::Error::custom(wrong)
        })?;
        Ok(PoolSchedule { at, min_nodes, warm_places, warm_nodes })
    });
    read.collect()
}

impl PoolSettings {
    /// Every mistake of the schedules.
    pub(crate) fn mistakes_of_schedules(&self, add: &mut impl FnMut(&str, String)) {
        let count = self.schedules.len();
        if count > POOL_SCHEDULES_MAX {
            add("schedules", format!("are {count}; the limit is {POOL_SCHEDULES_MAX}"));
        }
        if self.provisioner.is_none() && count > 0 {
            let useless = "start nothing without a provisioner: name one, or leave this out";
            return add("schedules", useless.to_owned());
        }
        for (place, schedule) in self.schedules.iter().enumerate() {
            schedule.mistakes(place, self.max_nodes, add);
        }
    }

    /// The newest moment at `now` or earlier of a schedule that sets a value, and that value.
    fn newest<T>(
        &self,
        now: Stamp,
        set: impl Fn(&PoolSchedule) -> Option<T>,
    ) -> Option<(Stamp, T)> {
        let setting = self.schedules.iter().filter_map(|it| Some((it.at.last(now)?, set(it)?)));
        // The last one of several with one moment.
        setting.max_by_key(|(moment, _)| *moment)
    }

    /// What the pool keeps at a moment, and since when schedules set that.
    fn kept_at(&self, now: Stamp) -> InForce {
        let min = self.newest(now, |it| it.min_nodes);
        let warm = self.newest(now, PoolSchedule::warm);
        let own_warm = (self.warm_places, self.warm_nodes);
        let (warm_places, warm_nodes) = warm.map_or(own_warm, |it| it.1);
        let min_nodes = min.map_or(self.min_nodes, |it| it.1);
        InForce {
            kept: Kept { min_nodes, warm_places, warm_nodes },
            min_since: min.map(|it| it.0),
            warm_since: warm.map(|it| it.0),
            next: None,
        }
    }

    /// What is in force at a moment, and what comes next. `None`: the pool has no schedules.
    pub fn in_force(&self, now: Stamp) -> Option<InForce> {
        if self.schedules.is_empty() {
            return None;
        }
        let next = self.schedules.iter().filter_map(|it| it.at.next(now)).min();
        let next = next.map(|moment| (moment, self.kept_at(moment).kept));
        Some(InForce { next, ..self.kept_at(now) })
    }

    /// The settings with what is in force at a moment in place of the pool's own minimum and warm buffer.
    #[must_use]
    pub fn as_of(&self, now: Stamp) -> Self {
        let Kept { min_nodes, warm_places, warm_nodes } = self.kept_at(now).kept;
        Self { min_nodes, warm_places, warm_nodes, ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::ProvisionerName;
    use proptest::prelude::*;

    /// A moment, YYMMDDhhmm.
    fn at(moment: u64) -> Stamp {
        Stamp::parse(moment * 100_000).unwrap()
    }

    fn schedule(text: &str) -> PoolSchedule {
        PoolSchedule::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    /// A pool that keeps one node, and room of one.
    fn scheduled(texts: &[&str]) -> PoolSettings {
        PoolSettings {
            provisioner: Some(ProvisionerName::parse("process").unwrap()),
            places: 10,
            min_nodes: 1,
            max_nodes: 9,
            warm_nodes: 1,
            schedules: texts.iter().map(|it| schedule(it)).collect(),
            ..PoolSettings::default()
        }
    }

    /// The minimum, and the warm buffer in places and nodes.
    fn kept(pool: &PoolSettings, moment: u64) -> (u32, u32, u32) {
        let Kept { min_nodes, warm_places, warm_nodes } = pool.in_force(at(moment)).unwrap().kept;
        (min_nodes, warm_places, warm_nodes)
    }

    #[test]
    fn by_day_more_is_kept_than_by_night_from_the_very_moment_on() {
        let pool = scheduled(&["D0600 min=5 warm=20places", "D2000 min=0 warm=none"]);
        assert_eq!(kept(&pool, 26_1127_0559), (0, 0, 0));
        assert_eq!(kept(&pool, 26_1127_0600), (5, 20, 0));
        assert_eq!(kept(&pool, 26_1127_1959), (5, 20, 0));
        assert_eq!(kept(&pool, 26_1127_2000), (0, 0, 0));
        let night = pool.in_force(at(26_1127_2200)).unwrap();
        assert_eq!(night.min_since, Some(at(26_1127_2000)));
        assert_eq!(night.warm_since, Some(at(26_1127_2000)));
        let day = Kept { min_nodes: 5, warm_places: 20, warm_nodes: 0 };
        assert_eq!(night.next, Some((at(26_1128_0600), day)));
        let settings = pool.as_of(at(26_1127_1200));
        assert_eq!((settings.min_nodes, settings.warm_places, settings.warm_nodes), (5, 20, 0));
        assert_eq!((settings.max_nodes, &settings.schedules), (9, &pool.schedules));
    }

    #[test]
    fn what_a_schedule_does_not_set_stays_as_the_moment_ahead_of_its_own_set_it() {
        let pool =
            scheduled(&["D0600 min=5", "D0800 warm=2nodes", "D2000 min=0", "D2200 warm=none"]);
        assert_eq!(kept(&pool, 26_1127_0700), (5, 0, 0), "no buffer since 22:00");
        assert_eq!(kept(&pool, 26_1127_0800), (5, 0, 2), "the minimum of 06:00 stays");
        assert_eq!(kept(&pool, 26_1127_2100), (0, 0, 2), "the buffer of 08:00 stays");
        let evening = pool.in_force(at(26_1127_2100)).unwrap();
        assert_eq!(evening.min_since, Some(at(26_1127_2000)));
        assert_eq!(evening.warm_since, Some(at(26_1127_0800)));
        assert_eq!(evening.next.unwrap().0, at(26_1127_2200));
        // What no schedule sets is the pool's own.
        let pool = scheduled(&["D0600 min=5"]);
        assert_eq!(kept(&pool, 26_1127_0500), (5, 0, 1), "since 06:00 of the day before");
        assert_eq!(pool.in_force(at(26_1127_0500)).unwrap().warm_since, None);
    }

    #[test]
    fn a_moment_of_a_day_that_a_month_lacks_is_on_its_last_day() {
        let pool = scheduled(&["M310000 min=7", "M010000 min=2"]);
        assert_eq!(kept(&pool, 27_0227_2359).0, 2);
        assert_eq!(kept(&pool, 27_0228_0000).0, 7);
        assert_eq!(kept(&pool, 27_0301_0000).0, 2);
        assert_eq!(kept(&pool, 27_0430_1200).0, 7);
        let pool = scheduled(&["Y02290000 min=7", "Y03010000 min=2"]);
        assert_eq!((kept(&pool, 27_0228_0000).0, kept(&pool, 28_0228_0000).0), (7, 2));
    }

    #[test]
    fn of_two_schedules_with_one_moment_the_later_one_in_the_list_counts() {
        let texts = ["D0600 min=5 warm=2nodes", "W50600 min=8", "D0600 warm=7places"];
        let pool = scheduled(&texts);
        // 27 November 2026 is a Friday.
        assert_eq!(kept(&pool, 26_1127_0600), (8, 7, 0));
        assert_eq!(kept(&pool, 26_1128_0600), (5, 7, 0));
        let turned = scheduled(&[texts[2], texts[1], texts[0]]);
        assert_eq!(kept(&turned, 26_1127_0600), (5, 0, 2));
        assert_eq!(pool.in_force(at(26_1127_0559)).unwrap().next.unwrap().1.min_nodes, 8);
    }

    #[test]
    fn a_yearly_schedule_holds_at_once_and_not_before_the_first_moment_of_the_century() {
        let pool = scheduled(&["Y12240000 min=9"]);
        assert_eq!(kept(&pool, 26_1127_0000).0, 9, "since December of the year before");
        assert_eq!(pool.in_force(at(26_1127_0000)).unwrap().min_since, Some(at(25_1224_0000)));
        let first = pool.in_force(at(12_232_359)).unwrap();
        assert_eq!((first.kept.min_nodes, first.min_since), (1, None), "the pool's own");
        assert_eq!(first.next.map(|it| (it.0, it.1.min_nodes)), Some((at(12_240_000), 9)));
        assert_eq!(pool.in_force(Stamp::MAX).unwrap().next, None);
        assert_eq!(scheduled(&[]).in_force(Stamp::MAX), None);
    }

    #[test]
    fn a_schedule_reads_as_it_prints_and_a_mistake_is_told_with_its_column() {
        for text in ["D0600 min=5 warm=20places", "H00 warm=2nodes", "W10000 min=0 warm=none"] {
            assert_eq!(schedule(text).to_string(), text);
        }
        for (text, told) in [
            (
                "",
                "schedule is empty; expected: a cron text, and min=COUNT, warm=COUNTplaces or both",
            ),
            (" D0600 min=5", "schedule column 1: a space; expected: a cron text"),
            ("D2500 min=5", "at column 2: the hour is 25; expected: hour of 2 digits, 00 to 23"),
            (
                "D0600",
                "schedule sets nothing; expected: a minimum of nodes, a warm buffer, or both",
            ),
            ("D0600 min=x", "min column 7: \"min=x\"; expected: min=COUNT, as min=5"),
            ("D0600 min=+5", "min column 7: \"min=+5\"; expected: min=COUNT, as min=5"),
            ("D0600 min=1  min=2", "min column 14: \"min=2\"; expected: one min="),
            (
                "D0600 warm=1nodes warm=2nodes",
                "warm column 19: \"warm=2nodes\"; expected: one warm=",
            ),
            (
                "D0600 warm=20",
                "warm column 7: \"warm=20\"; expected: warm=COUNTplaces, warm=COUNTnodes or warm=none, as \
                 warm=20places",
            ),
            (
                "D0600 max=3",
                "schedule column 7: \"max=3\"; expected: min=COUNT or warm=COUNTplaces",
            ),
        ] {
            assert_eq!(PoolSchedule::parse(text).unwrap_err().to_string(), told, "{text}");
        }
    }

    #[test]
    fn every_mistake_of_schedules_is_told_with_its_place_in_the_list() {
        let told = |pool: &PoolSettings| {
            pool.mistakes().into_iter().map(|it| it.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(told(&scheduled(&["D0600 min=9 warm=9nodes", "D2000 warm=none"])), [""; 0]);
        let mut pool = scheduled(&["D0600 min=10", "D2000 warm=10nodes"]);
        pool.schedules.push(PoolSchedule::default());
        pool.schedules.push(PoolSchedule { warm_places: Some(0), ..pool.schedules[1] });
        assert_eq!(
            told(&pool),
            [
                "schedules[0].min_nodes is 10, and max_nodes is 9: it must not be above that",
                "schedules[1].warm_nodes is 10, and max_nodes is 9: it must not be above that",
                "schedules[2] sets nothing; expected: a minimum of nodes, a warm buffer, or both",
                "schedules[3].warm_nodes is there beside warm_places: give one of them",
                "schedules[3].warm_nodes is 10, and max_nodes is 9: it must not be above that",
            ]
        );
        let many = scheduled(&["D0600 min=1"; POOL_SCHEDULES_MAX + 1]);
        assert_eq!(told(&many), ["schedules are 17; the limit is 16"]);
        let alone =
            PoolSettings { schedules: many.schedules[..1].to_vec(), ..PoolSettings::default() };
        assert_eq!(
            told(&alone),
            ["schedules start nothing without a provisioner: name one, or leave this out"]
        );
    }

    #[test]
    fn schedules_are_written_as_people_write_them_and_a_wrong_text_names_its_place() {
        let list = serde_json::json!([{"at": "D0600", "min_nodes": 5, "warm_places": 20},
            {"at": "D2000", "min_nodes": 0, "warm_nodes": 0}]);
        let read: PoolSettings =
            serde_json::from_value(serde_json::json!({"schedules": list})).unwrap();
        assert_eq!(read.schedules[0], schedule("D0600 min=5 warm=20places"));
        assert_eq!(serde_json::to_value(&read).unwrap()["schedules"], list);
        for (list, told) in [
            (
                r#"[{"at": "H00"}, {"at": "D2500"}]"#,
                "schedules[1].at column 2: the hour is 25; expected: hour of 2 digits, 00 to 23",
            ),
            (r#"[{"min_nodes": 5}]"#, "missing field `at`"),
            (
                r#"[{"at": "H00", "max_nodes": 5}]"#,
                "expected one of `at`, `min_nodes`, `warm_places`, `warm_nodes`",
            ),
        ] {
            let text = format!("{{\"schedules\": {list}}}");
            let error = serde_json::from_str::<PoolSettings>(&text).unwrap_err().to_string();
            assert!(error.contains(told), "{error}");
        }
    }

    fn texts() -> impl Strategy<Value = String> {
        let when = prop_oneof![
            (0..60u8).prop_map(|it| format!("H{it:02}")),
            (0..24u8, 0..60u8).prop_map(|(hour, it)| format!("D{hour:02}{it:02}")),
            (1..=7u8, 0..24u8).prop_map(|(day, hour)| format!("W{day}{hour:02}00")),
            (1..=31u8).prop_map(|day| format!("M{day:02}0000")),
        ];
        let min = proptest::option::of(0..10u32);
        let warm = proptest::option::of((0..10u32, any::<bool>()));
        let sets =
            (min, warm).prop_filter("it sets something", |it| it.0.is_some() || it.1.is_some());
        (when, sets).prop_map(|(when, (min, warm))| {
            let min = min.map(|it| format!(" min={it}")).unwrap_or_default();
            let unit = |places| if places { "places" } else { "nodes" };
            let warm = warm.map(|(it, places)| format!(" warm={it}{}", unit(places)));
            format!("{when}{min}{}", warm.unwrap_or_default())
        })
    }

    proptest! {
        #[test]
        fn what_is_in_force_changes_at_moments_only_and_then_to_what_was_told_to_come(
            texts in proptest::collection::vec(texts(), 1..6),
            ms in 1_700_000_000_000..2_000_000_000_000u64,
            share in 0.0..1.0f64,
        ) {
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            let pool = scheduled(&texts);
            let now = Stamp::from_epoch_ms(ms);
            let found = pool.in_force(now).unwrap();
            let (moment, comes) = found.next.unwrap();
            prop_assert!(moment > now);
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "a moment between")]
            let between = now.plus_ms((share * (moment.ms_since(now).unwrap() - 1) as f64) as u64);
            let later = pool.in_force(between).unwrap();
            prop_assert_eq!(later, InForce { next: Some((moment, comes)), ..found });
            prop_assert_eq!(pool.in_force(moment).unwrap().kept, comes);
            for schedule in &pool.schedules {
                prop_assert_eq!(PoolSchedule::parse(&schedule.to_string()).unwrap().at, schedule.at);
            }
        }
    }
}
