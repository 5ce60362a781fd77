//! Readable time stamps `AAMMJJhhmmssmmm` (in English YYMMDDhhmmssmmm): two digits each for year (of the
//! 21st century), month, day, hour, minute, second, and three for the millisecond, as one integer.
//! Source: the versioned document store's text, section on stamps.

use crate::refusal::FieldError;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

const MS_PER_DAY: u64 = 86_400_000;
const DAYS_1970_TO_2000: u64 = 10_957;
/// From 1 March 1996 to 2000. Years that begin in March end with their leap day, so every four of
/// them from there on have this many days, and each has the same pattern of months.
const DAYS_MARCH_1996_TO_2000: u64 = 1_401;
const DAYS_OF_FOUR_YEARS: u64 = 1_461;
const LAST_DAY: u64 = 36_524;
const DAYS_PER_MONTH: [u64; 12] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];

/// A moment of the 21st century (UTC), readable as decimal digits. Orders as time does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct Stamp(u64);

fn days_in_month(year: u64, month: u64) -> u64 {
    let leap_day = u64::from(month == 2 && year.is_multiple_of(4));
    let index = usize::try_from(month - 1).unwrap_or(usize::MAX);
    DAYS_PER_MONTH.get(index).copied().unwrap_or(0) + leap_day
}

impl Stamp {
    /// 2000-01-01 00:00:00.000.
    pub const MIN: Stamp = Stamp(101_000_000_000);
    /// 2099-12-31 23:59:59.999.
    pub const MAX: Stamp = Stamp(991_231_235_959_999);

    /// From milliseconds since 1970; earlier than 2000 gives [`Stamp::MIN`], later than 2099
    /// [`Stamp::MAX`].
    pub fn from_epoch_ms(epoch_ms: u64) -> Self {
        let Some(ms) = epoch_ms.checked_sub(DAYS_1970_TO_2000 * MS_PER_DAY) else {
            return Self::MIN;
        };
        let (days, ms) = (ms / MS_PER_DAY, ms % MS_PER_DAY);
        if days > LAST_DAY {
            return Self::MAX;
        }
        let days = days + DAYS_MARCH_1996_TO_2000;
        let year = (4 * days + 3) / DAYS_OF_FOUR_YEARS;
        let day = days - year * DAYS_OF_FOUR_YEARS / 4;
        // Five months from March or August on have 153 days.
        let month = (5 * day + 2) / 153;
        let day = day - (153 * month + 2) / 5;
        let (year, month) = if month < 10 { (year, month + 3) } else { (year + 1, month - 9) };
        let date = ((year - 4) * 100 + month) * 100 + day + 1;
        let (hour, minute) = (ms / 3_600_000, ms / 60_000 % 60);
        let clock = (hour * 100 + minute) * 100_000 + ms % 60_000;
        Self(date * 1_000_000_000 + clock)
    }

    /// From milliseconds since 1970; refuses what lies outside the 21st century.
    pub fn try_from_epoch_ms(epoch_ms: u64) -> Result<Self, FieldError> {
        let stamp = Self::from_epoch_ms(epoch_ms);
        if stamp.to_epoch_ms() == epoch_ms {
            return Ok(stamp);
        }
        let (min, max) = (Self::MIN.to_epoch_ms(), Self::MAX.to_epoch_ms());
        let problem = format!("is {epoch_ms} ms after 1970; the limits are {min} and {max}");
        Err(FieldError::new("stamp", problem))
    }

    /// Milliseconds since 1970.
    pub fn to_epoch_ms(self) -> u64 {
        let (date, clock) = (self.0 / 1_000_000_000, self.0 % 1_000_000_000);
        let (year, month, day) = (date / 10_000, date / 100 % 100, date % 100);
        let (year, month) = if month > 2 { (year + 4, month - 3) } else { (year + 3, month + 9) };
        let days = year * DAYS_OF_FOUR_YEARS / 4 + (153 * month + 2) / 5 + day - 1;
        let days = DAYS_1970_TO_2000 + days - DAYS_MARCH_1996_TO_2000;
        let (hour, minute) = (clock / 10_000_000, clock / 100_000 % 100);
        days * MS_PER_DAY + hour * 3_600_000 + minute * 60_000 + clock % 100_000
    }

    /// From its integer form; refuses what is not a moment (month 13, 31 April).
    pub fn parse(number: u64) -> Result<Self, FieldError> {
        let (date, clock) = (number / 1_000_000_000, number % 1_000_000_000);
        let (year, month, day) = (date / 10_000, date / 100 % 100, date % 100);
        let (hour, minute, ms) = (clock / 10_000_000, clock / 100_000 % 100, clock % 100_000);
        let is_moment = (Self::MIN.0..=Self::MAX.0).contains(&number)
            && (1..=12).contains(&month)
            && (1..=days_in_month(year, month)).contains(&day)
            && hour < 24
            && minute < 60
            && ms < 60_000;
        if !is_moment {
            return Err(FieldError::new(
                "stamp",
                format!("{number} is no stamp (YYMMDDhhmmssmmm, as in 261122070308123)"),
            ));
        }
        Ok(Self(number))
    }

    /// The integer form.
    pub fn as_u64(self) -> u64 {
        self.0
    }

    /// One millisecond later; [`Stamp::MAX`] stays.
    pub fn next(self) -> Self {
        Self::from_epoch_ms(self.to_epoch_ms() + 1)
    }

    /// That many milliseconds later, at most [`Stamp::MAX`].
    pub fn plus_ms(self, ms: u64) -> Self {
        Self::from_epoch_ms(self.to_epoch_ms().saturating_add(ms))
    }

    /// That many milliseconds earlier, at least [`Stamp::MIN`].
    pub fn minus_ms(self, ms: u64) -> Self {
        Self::from_epoch_ms(self.to_epoch_ms().saturating_sub(ms))
    }

    /// Milliseconds since `earlier`; `None` when that is the later one.
    pub fn ms_since(self, earlier: Stamp) -> Option<u64> {
        self.to_epoch_ms().checked_sub(earlier.to_epoch_ms())
    }
}

impl TryFrom<u64> for Stamp {
    type Error = FieldError;
    fn try_from(number: u64) -> Result<Self, FieldError> {
        Self::parse(number)
    }
}

impl From<Stamp> for u64 {
    fn from(stamp: Stamp) -> u64 {
        stamp.0
    }
}

/// The printed form: exactly 15 digits.
impl FromStr for Stamp {
    type Err = FieldError;
    fn from_str(text: &str) -> Result<Self, FieldError> {
        let wrong =
            || FieldError::new("stamp", format!("{text:?} is not 15 digits, YYMMDDhhmmssmmm"));
        if text.len() != 15 || !text.bytes().all(|it| it.is_ascii_digit()) {
            return Err(wrong());
        }
        Self::parse(text.parse().map_err(|_| wrong())?)
    }
}

impl Default for Stamp {
    fn default() -> Self {
        Self::MIN
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:015}", self.0)
    }
}

impl fmt::Debug for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_moments_read_as_their_digits() {
        assert_eq!(Stamp::from_epoch_ms(1_709_210_096_789).as_u64(), 240_229_123_456_789);
        assert_eq!(Stamp::from_epoch_ms(946_684_800_000), Stamp::MIN);
        assert_eq!(Stamp::from_epoch_ms(4_102_444_799_999), Stamp::MAX);
        assert_eq!(Stamp::from_epoch_ms(0), Stamp::MIN);
        assert_eq!(Stamp::from_epoch_ms(u64::MAX), Stamp::MAX);
    }

    #[test]
    fn every_day_of_the_century_comes_back() {
        let mut before = None;
        for day in 0..=LAST_DAY {
            let ms = (DAYS_1970_TO_2000 + day) * MS_PER_DAY + day * 1_009 % MS_PER_DAY;
            let stamp = Stamp::from_epoch_ms(ms);
            assert_eq!(stamp.to_epoch_ms(), ms);
            assert_eq!(Stamp::parse(stamp.as_u64()), Ok(stamp));
            assert!(before < Some(stamp), "{stamp}");
            before = Some(stamp);
        }
    }

    #[test]
    fn what_is_not_a_moment_is_refused() {
        for wrong in [0, 241_301_000_000_000, 240_431_000_000_000, 230_229_000_000_000] {
            assert!(Stamp::parse(wrong).is_err(), "{wrong}");
        }
        for wrong in [240_101_240_000_000, 240_101_006_000_000, 240_101_000_060_000] {
            assert!(Stamp::parse(wrong).is_err(), "{wrong}");
        }
        assert!(Stamp::parse(240_100_000_000_000).is_err());
        assert!(Stamp::parse(u64::MAX).is_err());
        assert!(Stamp::try_from_epoch_ms(0).is_err());
        assert!(Stamp::try_from_epoch_ms(4_102_444_800_000).is_err());
        for wrong in ["", "16071422304569", "+60714223045697", "160714223045697 "] {
            assert!(wrong.parse::<Stamp>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_century_has_a_last_millisecond() {
        assert_eq!(Stamp::MAX.next(), Stamp::MAX);
        assert_eq!(Stamp::MAX.plus_ms(u64::MAX), Stamp::MAX);
        assert_eq!(Stamp::MIN.minus_ms(1), Stamp::MIN);
        assert_eq!(Stamp::MIN.ms_since(Stamp::MAX), None);
    }

    /// Any moment of the century, in milliseconds since 1970.
    fn moment() -> impl Strategy<Value = u64> {
        Stamp::MIN.to_epoch_ms()..=Stamp::MAX.to_epoch_ms()
    }

    proptest! {
        #[test]
        fn a_moment_comes_back_from_every_form(ms in moment()) {
            let stamp = Stamp::try_from_epoch_ms(ms).unwrap();
            prop_assert_eq!(stamp.to_epoch_ms(), ms);
            prop_assert_eq!(Stamp::parse(stamp.as_u64()), Ok(stamp));
            prop_assert_eq!(stamp.to_string().parse(), Ok(stamp));
        }

        #[test]
        fn stamps_order_as_time_does(one in moment(), two in moment()) {
            let (a, b) = (Stamp::from_epoch_ms(one), Stamp::from_epoch_ms(two));
            prop_assert_eq!(a.cmp(&b), one.cmp(&two));
            prop_assert_eq!(b.ms_since(a), two.checked_sub(one));
            prop_assert!(a.next() > a || a == Stamp::MAX);
        }

        #[test]
        fn a_number_parses_only_when_each_of_its_parts_is_in_range(
            parts in (0_u64..=99, 0_u64..=14, 0_u64..=33, 0_u64..=25, 0_u64..=61, 0_u64..=61),
            ms in 0_u64..=999,
        ) {
            let (year, month, day, hour, minute, second) = parts;
            let date = (year * 100 + month) * 100 + day;
            let number = (((date * 100 + hour) * 100 + minute) * 100 + second) * 1000 + ms;
            let last_day = match month {
                2 if year % 4 == 0 => 29,
                2 => 28,
                4 | 6 | 9 | 11 => 30,
                1..=12 => 31,
                _ => 0,
            };
            let fits = (1..=last_day).contains(&day) && hour < 24 && minute < 60 && second < 60;
            prop_assert_eq!(Stamp::parse(number).is_ok(), fits, "{}", number);
        }
    }
}
