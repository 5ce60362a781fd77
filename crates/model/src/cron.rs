//! Short texts that say when something happens again and again: a periodic task, a schedule of a pool.
//!
//! ```text
//!   H25          each hour at minute 25
//!   D0425        each day at 04:25
//!   W30425       each Wednesday at 04:25 (1 = Monday, 7 = Sunday)
//!   M100425      on day 10 of each month at 04:25
//!   Y11100425    on 10 November of each year at 04:25
//! ```
//!
//! All times are UTC. A day that a month lacks is the last day of that month, so that no month goes without its
//! run: `M31` runs on 30 April, `Y0229` on 28 February 2027. A text whose day no year has is refused.

use crate::refusal::FieldError;
use crate::stamp::Stamp;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The field that errors name.
const FIELD: &str = "cron";
const MS_PER_HOUR: u64 = 3_600_000;
const MS_PER_DAY: u64 = 24 * MS_PER_HOUR;
/// Days of each month, in leap years.
const DAYS_MAX: [u8; 12] = [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];

/// How often.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
enum Period {
    #[default]
    Hour,
    /// At this hour.
    Day(u8),
    /// On this day of the week (1 = Monday), at this hour.
    Week(u8, u8),
    /// On this day of the month, at this hour.
    Month(u8, u8),
    /// In this month, on this day, at this hour.
    Year(u8, u8, u8),
}

/// A checked text of this page. Prints as the text that it was read from. The default is each hour at minute 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Cron {
    period: Period,
    minute: u8,
}

/// What is left of a text, with its column: the first character stands in column 1.
struct Reader<'a> {
    left: std::str::Chars<'a>,
    column: usize,
}

impl Reader<'_> {
    fn take(&mut self) -> Option<char> {
        let taken = self.left.next();
        self.column += usize::from(taken.is_some());
        taken
    }

    /// A number of so many digits. `what` is its name in errors.
    fn number(&mut self, what: &str, digits: u8, min: u8, max: u8) -> Result<u8, FieldError> {
        let (from, width) = (self.column + 1, usize::from(digits));
        let plural = if digits == 1 { "" } else { "s" };
        let expected = format!("{what} of {digits} digit{plural}, {min:0width$} to {max:0width$}");
        let mut value = 0;
        for _ in 0..digits {
            let Some(it) = self.take() else {
                return Err(wrong(self.column + 1, "the text ends", &expected));
            };
            let Some(digit) = it.to_digit(10).and_then(|it| u8::try_from(it).ok()) else {
                return Err(wrong(self.column, &format!("{it:?} is no digit"), &expected));
            };
            value = value * 10 + digit;
        }
        if !(min..=max).contains(&value) {
            return Err(wrong(from, &format!("the {what} is {value:0width$}"), &expected));
        }
        Ok(value)
    }

    fn hour(&mut self) -> Result<u8, FieldError> {
        self.number("hour", 2, 0, 23)
    }

    fn period(&mut self) -> Result<Period, FieldError> {
        let expected = "H, D, W, M or Y";
        Ok(match self.take() {
            Some('H') => Period::Hour,
            Some('D') => Period::Day(self.hour()?),
            Some('W') => Period::Week(self.number("day of the week", 1, 1, 7)?, self.hour()?),
            Some('M') => Period::Month(self.number("day", 2, 1, 31)?, self.hour()?),
            Some('Y') => {
                let month = self.number("month", 2, 1, 12)?;
                let days = DAYS_MAX[usize::from(month) - 1];
                Period::Year(month, self.number("day", 2, 1, days)?, self.hour()?)
            }
            Some(it) => return Err(wrong(1, &format!("{it:?} is no period"), expected)),
            None => return Err(wrong(1, "the text ends", expected)),
        })
    }
}

fn wrong(column: usize, problem: &str, expected: &str) -> FieldError {
    FieldError::new(FIELD, format!("column {column}: {problem}; expected: {expected}"))
}

/// Year of the century (0 to 99), month and day.
fn date_of(stamp: Stamp) -> (u64, u64, u64) {
    let date = stamp.as_u64() / 1_000_000_000;
    (date / 10_000, date / 100 % 100, date % 100)
}

/// That day at midnight, or the last one of the month if it lacks that day. `None`: outside the century.
fn midnight(year: u64, month: u64, day: u64) -> Option<u64> {
    // At most three days less: 31 becomes 28.
    let days = (day.saturating_sub(3)..=day).rev();
    let stamp = |day| Stamp::parse(((year * 100 + month) * 100 + day) * 1_000_000_000);
    days.filter_map(|day| stamp(day).ok()).next().map(Stamp::to_epoch_ms)
}

impl Cron {
    /// Reads a text. The error names the field `cron`, the column, and what was expected there.
    pub fn parse(text: &str) -> Result<Self, FieldError> {
        let mut reader = Reader { left: text.chars(), column: 0 };
        let period = reader.period()?;
        let minute = reader.number("minute", 2, 0, 59)?;
        match reader.take() {
            None => Ok(Self { period, minute }),
            Some(it) => Err(wrong(reader.column, &format!("{it:?} is too much"), "the end")),
        }
    }

    /// The next run strictly after `after`, to the minute. `None`: it lies beyond [`Stamp::MAX`].
    ///
    /// A late run changes nothing: whoever asks at its end gets the next run after that moment. So a run of
    /// `D0425` that ends on the next day at 03:10 is followed by the one 1 h 15 min later.
    pub fn next(self, after: Stamp) -> Option<Stamp> {
        let Around { this, later, .. } = self.around(after);
        let run = this.filter(|ms| *ms > after.to_epoch_ms()).or(later)?;
        Stamp::try_from_epoch_ms(run).ok()
    }

    /// The last run at `until` or earlier, to the minute. `None`: it lies ahead of [`Stamp::MIN`].
    pub fn last(self, until: Stamp) -> Option<Stamp> {
        let Around { earlier, this, .. } = self.around(until);
        let run = this.filter(|ms| *ms <= until.to_epoch_ms()).or(earlier)?;
        Stamp::try_from_epoch_ms(run).ok()
    }

    /// The run of the hour, day, week, month or year of that moment, and its neighbours.
    fn around(self, moment: Stamp) -> Around {
        let (year, month, _) = date_of(moment);
        let today = moment.to_epoch_ms() / MS_PER_DAY * MS_PER_DAY;
        let at = |day: u64, hour: u8| {
            day + u64::from(hour) * MS_PER_HOUR + u64::from(self.minute) * 60_000
        };
        match self.period {
            Period::Hour => {
                let hour = moment.to_epoch_ms() / MS_PER_HOUR * MS_PER_HOUR;
                Around::each(at(hour, 0), MS_PER_HOUR)
            }
            Period::Day(hour) => Around::each(at(today, hour), MS_PER_DAY),
            Period::Week(day, hour) => {
                // 1 January 1970 was a Thursday.
                let weekday = (today / MS_PER_DAY + 3) % 7 + 1;
                let days = (u64::from(day) + 7 - weekday) % 7;
                Around::each(at(today + days * MS_PER_DAY, hour), 7 * MS_PER_DAY)
            }
            Period::Month(day, hour) => {
                let run = |year, month| midnight(year, month, day.into()).map(|day| at(day, hour));
                let later = if month == 12 { run(year + 1, 1) } else { run(year, month + 1) };
                let earlier = match (year, month) {
                    (0, 1) => None,
                    (_, 1) => run(year - 1, 12),
                    _ => run(year, month - 1),
                };
                Around { earlier, this: run(year, month), later }
            }
            Period::Year(month, day, hour) => {
                let run = |year| midnight(year, month.into(), day.into()).map(|day| at(day, hour));
                let earlier = year.checked_sub(1).and_then(run);
                Around { earlier, this: run(year), later: run(year + 1) }
            }
        }
    }
}

/// Three runs in a row, in milliseconds since 1970. `None`: outside the century.
struct Around {
    earlier: Option<u64>,
    this: Option<u64>,
    later: Option<u64>,
}

impl Around {
    /// One each so many milliseconds.
    fn each(this: u64, period_ms: u64) -> Self {
        Self { earlier: Some(this - period_ms), this: Some(this), later: Some(this + period_ms) }
    }
}

impl fmt::Display for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.period {
            Period::Hour => f.write_str("H"),
            Period::Day(hour) => write!(f, "D{hour:02}"),
            Period::Week(day, hour) => write!(f, "W{day}{hour:02}"),
            Period::Month(day, hour) => write!(f, "M{day:02}{hour:02}"),
            Period::Year(month, day, hour) => write!(f, "Y{month:02}{day:02}{hour:02}"),
        }?;
        write!(f, "{:02}", self.minute)
    }
}

impl FromStr for Cron {
    type Err = FieldError;
    fn from_str(text: &str) -> Result<Self, FieldError> {
        Self::parse(text)
    }
}

impl TryFrom<String> for Cron {
    type Error = FieldError;
    fn try_from(text: String) -> Result<Self, FieldError> {
        Self::parse(&text)
    }
}

impl From<Cron> for String {
    fn from(cron: Cron) -> String {
        cron.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The next run, both as YYMMDDhhmm.
    fn next(text: &str, after: u64) -> u64 {
        let after = Stamp::parse(after * 100_000).unwrap();
        let run = Cron::parse(text).unwrap().next(after).unwrap();
        assert_eq!(run.as_u64() % 100_000, 0, "a run is on the minute");
        run.as_u64() / 100_000
    }

    #[test]
    fn the_examples_of_the_source_run_when_it_says() {
        assert_eq!(next("H25", 26_1127_1024), 26_1127_1025);
        assert_eq!(next("H25", 26_1127_2325), 26_1128_0025);
        assert_eq!(next("D0425", 26_1127_0424), 26_1127_0425);
        assert_eq!(next("D0425", 26_1127_0425), 26_1128_0425);
        // 27 November 2026 is a Friday.
        assert_eq!(next("W30425", 26_1127_1000), 26_1202_0425);
        assert_eq!(next("W50425", 26_1127_0400), 26_1127_0425);
        assert_eq!(next("W50425", 26_1127_0500), 26_1204_0425);
        assert_eq!(next("M100425", 26_1110_0424), 26_1110_0425);
        assert_eq!(next("M100425", 26_1210_0425), 27_0110_0425);
        assert_eq!(next("Y11100425", 26_1109_0000), 26_1110_0425);
        assert_eq!(next("Y11100425", 26_1110_0425), 27_1110_0425);
    }

    /// The last run, both as YYMMDDhhmm.
    fn last(text: &str, until: u64) -> u64 {
        let until = Stamp::parse(until * 100_000).unwrap();
        Cron::parse(text).unwrap().last(until).unwrap().as_u64() / 100_000
    }

    #[test]
    fn the_last_run_is_the_one_that_was_or_is_just_now() {
        assert_eq!(last("H25", 26_1127_1024), 26_1127_0925);
        assert_eq!(last("H25", 26_1127_1025), 26_1127_1025);
        assert_eq!(last("H25", 26_1127_0024), 26_1126_2325);
        assert_eq!(last("D0425", 26_1127_0424), 26_1126_0425);
        assert_eq!(last("D0425", 26_1127_2359), 26_1127_0425);
        // 27 November 2026 is a Friday.
        assert_eq!(last("W30425", 26_1127_1000), 26_1125_0425);
        assert_eq!(last("W50425", 26_1127_0424), 26_1120_0425);
        assert_eq!(last("W50425", 26_1127_0425), 26_1127_0425);
        assert_eq!(last("M100425", 26_1110_0424), 26_1010_0425);
        assert_eq!(last("M100425", 27_0105_0000), 26_1210_0425);
        assert_eq!(last("M310000", 27_0301_0000), 27_0228_0000);
        assert_eq!(last("Y11100425", 26_1109_0000), 25_1110_0425);
        assert_eq!(last("Y02290000", 28_0228_0000), 27_0228_0000);
    }

    #[test]
    fn no_run_lies_ahead_of_the_century() {
        let until = Stamp::parse(101_002_400_000).unwrap();
        for text in ["H25", "D0425", "W50425", "M100425", "Y11100425"] {
            assert_eq!(Cron::parse(text).unwrap().last(until), None, "{text}");
        }
        assert_eq!(last("H25", 1_010_025), 1_010_025);
    }

    #[test]
    fn a_run_that_ends_late_is_followed_an_hour_and_a_quarter_later() {
        assert_eq!(next("D0425", 26_1128_0310), 26_1128_0425);
    }

    #[test]
    fn a_day_that_a_month_lacks_is_its_last_day() {
        assert_eq!(next("M310000", 26_0401_0000), 26_0430_0000);
        assert_eq!(next("M310000", 27_0131_0000), 27_0228_0000);
        assert_eq!(next("M310000", 28_0131_0000), 28_0229_0000);
        assert_eq!(next("M310000", 27_0228_0000), 27_0331_0000);
        assert_eq!(next("Y02290000", 26_0301_0000), 27_0228_0000);
        assert_eq!(next("Y02290000", 27_0301_0000), 28_0229_0000);
    }

    #[test]
    fn no_run_lies_beyond_the_century() {
        for text in ["H25", "D0425", "W30425", "M100425", "Y11100425"] {
            assert_eq!(Cron::parse(text).unwrap().next(Stamp::MAX), None, "{text}");
        }
    }

    #[test]
    fn a_mistake_is_told_with_its_column_and_what_was_expected() {
        let problem = |text: &str| Cron::parse(text).unwrap_err().to_string();
        assert_eq!(problem(""), "cron column 1: the text ends; expected: H, D, W, M or Y");
        assert_eq!(problem("X1"), "cron column 1: 'X' is no period; expected: H, D, W, M or Y");
        assert_eq!(
            problem("H6"),
            "cron column 3: the text ends; expected: minute of 2 digits, 00 to 59"
        );
        assert_eq!(
            problem("D2425"),
            "cron column 2: the hour is 24; expected: hour of 2 digits, 00 to 23"
        );
        assert_eq!(
            problem("W80425"),
            "cron column 2: the day of the week is 8; expected: day of the week of 1 digit, 1 to 7"
        );
        assert_eq!(
            problem("Y02300425"),
            "cron column 4: the day is 30; expected: day of 2 digits, 01 to 29"
        );
        assert_eq!(
            problem("Mé00425"),
            "cron column 2: 'é' is no digit; expected: day of 2 digits, 01 to 31"
        );
        assert_eq!(problem("D04257"), "cron column 6: '7' is too much; expected: the end");
    }

    fn periods() -> impl Strategy<Value = Period> {
        prop_oneof![
            Just(Period::Hour),
            (0..24u8).prop_map(Period::Day),
            (1..=7u8, 0..24u8).prop_map(|(day, hour)| Period::Week(day, hour)),
            (1..=31u8, 0..24u8).prop_map(|(day, hour)| Period::Month(day, hour)),
            (1..=12u8, 1..=28u8, 0..24u8)
                .prop_map(|(month, day, hour)| Period::Year(month, day, hour)),
        ]
    }

    proptest! {
        #[test]
        fn each_run_is_later_on_the_minute_and_none_lies_between(
            period in periods(),
            minute in 0..60u8,
            ms in 946_684_800_000..4_000_000_000_000u64,
        ) {
            let cron = Cron { period, minute };
            prop_assert_eq!(Cron::parse(&cron.to_string()), Ok(cron));
            let after = Stamp::from_epoch_ms(ms);
            let run = cron.next(after).unwrap();
            prop_assert!(run > after);
            let clock = run.as_u64() % 1_000_000_000;
            prop_assert_eq!(clock % 10_000_000, u64::from(minute) * 100_000);
            // From any moment before that run on, it is the next one.
            prop_assert_eq!(cron.next(run.minus_ms(1)), Some(run));
            let middle = Stamp::from_epoch_ms(ms.midpoint(run.to_epoch_ms() - 1));
            prop_assert_eq!(cron.next(middle), Some(run));
            // What was the last run is followed by that one, and the last run just then is itself.
            prop_assert_eq!(cron.last(run), Some(run));
            let Some(last) = cron.last(after) else {
                prop_assert!(ms < 946_684_800_000 + 366 * MS_PER_DAY, "only in the first year");
                return Ok(());
            };
            prop_assert!(last <= after);
            prop_assert_eq!(cron.next(last), Some(run));
        }
    }
}
